//! What is wrong with what people write: one line that says so, and nothing changed.

use crate::lab;
use crate::told;

use lab::gateway::Outcome;
use lab::space;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;
use told::{files, no_panic, one_line};

/// A folder of policies and a place for states that does not exist; no network is needed to refuse.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("policies")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path("policies").join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Runs egressctl; whatever it says, it made nothing, and did not panic.
    fn run(&self, args: &[&str]) -> Outcome {
        let before = files(self.folder.path());
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_egressctl"));
        command.env_clear().env("PATH", space::PATH).args(args);
        command.arg("--policy-dir").arg(self.path("policies"));
        command.arg("--state-dir").arg(self.path("states"));
        let output = command.output().unwrap();
        assert_eq!(files(self.folder.path()), before, "{args:?} makes nothing");
        let outcome = Outcome {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        no_panic(&outcome);
        outcome
    }
}

const POLICY: &str = r#"{
  "kind": "pool",
  "slots": { "interfaces": ["vpn1", "vpn2"], "first_table": 101 },
  "clients": ["10.77.0.11"],
  "provider": { "directory": { "path": "/nowhere/endpoints" } }
}"#;

#[test]
fn a_missing_policy_is_named_with_its_file() {
    let bench = Bench::new();
    for command in ["step", "plan", "down", "pause", "resume", "history"] {
        let said = one_line(&bench.run(&[command, "home"]), 2, &["policies/home.json"]);
        assert!(said.contains("no such file") || said.contains("No such file"), "{said}");
    }
    one_line(&bench.run(&["status", "home"]), 3, &["policies/home.json"]);
    one_line(&bench.run(&["step", "./other.json"]), 2, &["other.json"]);
}

#[test]
fn a_policy_folder_that_is_empty_or_missing_is_named() {
    let bench = Bench::new();
    for command in ["step", "plan"] {
        one_line(&bench.run(&[command]), 2, &["policies", "--policy-dir"]);
    }
    fs::remove_dir(bench.path("policies")).unwrap();
    for command in ["step", "plan"] {
        one_line(&bench.run(&[command]), 2, &["policies", "--policy-dir"]);
    }
    one_line(&bench.run(&["status"]), 3, &["policies"]);
}

#[test]
fn what_is_wrong_in_a_policy_is_said_with_its_place() {
    let swapped = |from: &str, to: &str| POLICY.replace(from, to);
    let cases: [(&str, String, &[&str]); 13] = [
        (
            "key",
            swapped("\"clients\"", "\"client\""),
            &["\"client\"", "line 4 column 10", "\"clients\""],
        ),
        (
            "nested",
            swapped("first_table", "frist_table"),
            &["frist_table", "line 3", "column", "first_table"],
        ),
        ("json", swapped("\"kind\": \"pool\",", "\"kind\": \"pool\""), &["line 3", "column"]),
        ("text", "clients = 10.77.0.11\n".to_owned(), &["line 1", "column"]),
        ("cut", POLICY[..120].to_owned(), &["line 5", "column"]),
        ("empty", String::new(), &["empty"]),
        ("kind", swapped("\"pool\"", "\"pol\""), &["\"pol\"", "line 2", "\"pool\""]),
        ("kindless", swapped("\"kind\": \"pool\",", ""), &["kind"]),
        ("type", swapped("[\"10.77.0.11\"]", "\"10.77.0.11\""), &["line 4", "column"]),
        ("client", swapped("10.77.0.11", "10.77.0.300"), &["10.77.0.300"]),
        ("interface", swapped("vpn2", "a-name-that-is-too-long"), &["a-name-that-is-too-long"]),
        ("twice", swapped("\"vpn2\"", "\"vpn1\""), &["vpn1"]),
        ("deep", "[".repeat(100_000), &["line 1", "column"]),
    ];
    for (name, text, words) in &cases {
        let bench = Bench::new();
        let path = bench.write(&format!("{name}.json"), text);
        let words: Vec<&str> = words.iter().copied().chain([path.to_str().unwrap()]).collect();
        for command in ["step", "plan"] {
            one_line(&bench.run(&[command, name]), 2, &words);
        }
        one_line(&bench.run(&["step"]), 2, &words);
        one_line(&bench.run(&["status", name]), 3, &words);
    }
}

#[test]
fn a_policy_that_is_no_text_or_no_file_or_ill_named_is_refused() {
    let bench = Bench::new();
    bench.write("bytes.json", [0xff, 0xfe, 0, 1]);
    one_line(&bench.run(&["step", "bytes"]), 2, &["bytes.json", "UTF-8"]);
    fs::create_dir(bench.path("policies/folder.json")).unwrap();
    one_line(&bench.run(&["step", "folder"]), 2, &["folder.json"]);
    bench.write("my home.json", POLICY);
    one_line(&bench.run(&["step", "my home"]), 2, &["my home"]);
    one_line(&bench.run(&["step", "../../etc/passwd"]), 2, &["passwd"]);
}

#[test]
fn two_policies_that_claim_the_same_are_both_named() {
    let bench = Bench::new();
    let first = bench.write("one.json", POLICY);
    let second = bench.write("two.json", POLICY.replace("vpn1", "other1").replace("101", "301"));
    let both = [first.to_str().unwrap(), second.to_str().unwrap()];
    for name in ["one", "two"] {
        for command in ["step", "plan", "down"] {
            let said = one_line(&bench.run(&[command, name]), 2, &both);
            assert!(said.contains("interface vpn2"), "what they both claim: {said}");
        }
    }
    let outcome = bench.run(&["step"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""));
    for line in outcome.stderr.lines() {
        assert!(both.iter().all(|path| line.contains(path)), "{line}");
    }
}

#[test]
fn what_has_no_effect_is_noted_where_a_person_reads_it() {
    let bench = Bench::new();
    let idle = r#""bootstrap": { "wireguard": { "interface": "vpnboot", "config": "/etc/b.conf", "keep": "down" } }, "clients""#;
    bench.write("home.json", POLICY.replace("\"clients\"", idle));
    let note = "egressctl: note: policy home: bootstrap.wireguard has no effect: the provider is on this machine, so that the tunnel is never needed";
    for command in ["plan", "status"] {
        let outcome = bench.run(&[command]);
        let notes = outcome.stderr.lines().filter(|line| line.contains("note: "));
        assert_eq!(notes.collect::<Vec<_>>(), [note], "{command}");
    }
}

#[test]
fn the_status_of_several_policies_is_an_array_whatever_is_wrong_with_them() {
    let bench = Bench::new();
    bench.write("good.json", POLICY);
    let several = bench.run(&["status", "good", "missing", "--json"]);
    assert!(several.stdout.starts_with("[{\"policy\":\"good\""), "{several:?}");
    let one = bench.run(&["status", "good", "--json"]);
    assert!(one.stdout.starts_with("{\"policy\":\"good\""), "{one:?}");
    assert_eq!(bench.run(&["status", "missing", "--json"]).stdout, "");
}

#[test]
fn usage_errors_are_code_2_and_questions_are_answered() {
    let bench = Bench::new();
    for args in [&[][..], &["stpe"], &["step", "--nonsense"], &["history"], &["down"], &["pause"]] {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_egressctl"));
        let output = command.env_clear().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
    for args in [["step", "--help"], ["--help", "step"], ["--version", "step"]] {
        assert_eq!(bench.run(&args).code, Some(0), "{args:?}");
    }
}
