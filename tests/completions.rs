//! `egressctl completions`: the shell that a script is made for takes it, and it knows every command.

use std::process::Command;

fn script(shell: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_egressctl"))
        .args(["completions", shell])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What bash offers after a command line.
fn offered(line: &str) -> Vec<String> {
    let words: Vec<String> = line.split(' ').map(|word| format!("{word:?}")).collect();
    let ask = format!(
        "{}\nCOMP_WORDS=({}); COMP_CWORD={}; _egressctl egressctl \"${{COMP_WORDS[COMP_CWORD]}}\" \
         \"${{COMP_WORDS[COMP_CWORD-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script("bash"),
        words.join(" "),
        words.len() - 1
    );
    let output = Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_offers_commands_and_options_and_what_a_schema_is_of() {
    let commands = offered("egressctl ");
    for command in ["step", "plan", "status", "history", "down", "schema", "completions"] {
        assert!(commands.iter().any(|offer| offer == command), "{command} is not in {commands:?}");
    }
    assert_eq!(offered("egressctl pau"), ["pause"]);
    assert_eq!(offered("egressctl step --no"), ["--now"]);
    assert_eq!(offered("egressctl schema p"), ["policy"]);
}

#[test]
fn scripts_of_the_other_shells_name_every_command() {
    let help = Command::new(env!("CARGO_BIN_EXE_egressctl")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let commands: Vec<&str> = list
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() > 8, "{commands:?}");
    let (zsh, fish) = (script("zsh"), script("fish"));
    assert!(zsh.starts_with("#compdef egressctl"));
    for command in commands {
        assert!(zsh.contains(&format!("({command})\n")), "zsh does not know {command}");
        assert!(fish.contains(&format!("-a \"{command}\"")), "fish does not know {command}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_trouble() {
    for command in ["completions bash", "schema policy"] {
        let program = env!("CARGO_BIN_EXE_egressctl");
        let line = format!("set -o pipefail; {program} {command} 2>&1 | head -c 1 | wc -c");
        let output = Command::new("bash").args(["-c", &line]).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1");
    }
}
