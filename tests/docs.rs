//! README and manual pages say what the program does: they are held to its help, its parser and its files.

use egressctl::policy::{Policy, Site};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn file(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The help of the program or of one of its commands.
fn help(command: Option<&str>) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_egressctl"));
    let output = program.args(command).arg("--help").output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that the program's help lists.
fn commands() -> Vec<String> {
    let help = help(None);
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let name = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    // A line that goes on with a description is indented by more than two blanks.
    list.lines().filter(|line| !line.starts_with("   ")).map(name).collect()
}

/// The long options in a help text.
fn options(help: &str) -> BTreeSet<String> {
    let long = |line: &str| {
        let rest = line.trim_start().split("--").nth(1)?;
        let is_option = line.trim_start().starts_with('-');
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
        is_option.then(|| rest[..end].to_owned())
    };
    help.lines().filter_map(long).collect()
}

/// The blocks of README.md in one language, indentation taken away.
fn blocks(language: &str) -> Vec<String> {
    let readme = file("README.md");
    let mut blocks = Vec::new();
    let mut block: Option<(usize, String)> = None;
    for line in readme.lines() {
        let text = line.trim_start();
        match &mut block {
            None => {
                if text.strip_prefix("```") == Some(language) {
                    block = Some((line.len() - text.len(), String::new()));
                }
            }
            Some((indent, lines)) => {
                if text == "```" {
                    blocks.push(std::mem::take(lines));
                    block = None;
                } else {
                    *lines += line.get(*indent..).unwrap_or(text);
                    *lines += "\n";
                }
            }
        }
    }
    blocks
}

#[test]
fn every_policy_in_the_readme_and_the_manual_is_one() {
    let readme = blocks("json");
    assert!(!readme.is_empty());
    let manual = file("man/egressctl-policy.5");
    let example = manual.split(".Bd -literal").nth(1).unwrap().split(".Ed").next().unwrap();
    let example = example.split_once('\n').unwrap().1.to_owned();
    for text in readme.iter().chain([&example]) {
        let read = if Site::is_meant(text) {
            Site::parse(text).map(drop)
        } else {
            Policy::parse(text).map(drop)
        };
        read.unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    }
}

#[test]
fn the_readme_names_every_command_and_no_other() {
    let known: BTreeSet<String> = commands().into_iter().collect();
    assert!(known.len() > 5, "{known:?}");
    let mut named = BTreeSet::new();
    for block in blocks("text").iter().chain(&blocks("sh")) {
        for line in block.lines() {
            let mut words = line.trim_start_matches("$ ").split_whitespace();
            if words.next() == Some("egressctl") {
                named.insert(words.next().unwrap_or_default().to_owned());
            }
        }
    }
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(unknown.is_empty(), "README.md shows {unknown:?}, which the program does not know");
    let silent: Vec<_> = known.difference(&named).filter(|name| *name != "help").collect();
    assert!(silent.is_empty(), "README.md does not show {silent:?}");
}

#[test]
fn the_manual_describes_every_command_and_option() {
    let manual = file("man/egressctl.8");
    let named = |option: &str| {
        manual.contains(&format!(".It Fl -{option}")) || manual.contains(&format!("Fl -{option}\n"))
    };
    for command in commands() {
        assert!(
            manual.contains(&format!(".It Cm {command} ")),
            "man/egressctl.8 does not describe the command {command}"
        );
        if command == "help" {
            continue;
        }
        let from = manual.find(&format!(".It Cm {command} ")).unwrap();
        let rest = &manual[from + 1..];
        let section = &rest[..rest.find(".It Cm ").unwrap_or(rest.len())];
        for option in options(&help(Some(&command))) {
            let general = ["policy-dir", "state-dir", "help", "version"].contains(&option.as_str());
            let described = section.contains(&format!(".It Fl -{option}"));
            assert!(
                described || (general && named(&option)),
                "man/egressctl.8 does not describe --{option} of {command}"
            );
        }
    }
    for variable in ["EGRESSCTL_POLICY_DIR", "EGRESSCTL_STATE_DIR", "STATE_DIRECTORY"] {
        assert!(manual.contains(&format!(".It Ev {variable}")), "{variable}");
    }
}

#[test]
fn the_manual_and_the_readme_name_every_exit_code() {
    let (manual, readme) = (file("man/egressctl.8"), file("README.md"));
    for code in [0, 1, 2, 3, 4, 5, 75] {
        assert!(manual.contains(&format!("\n.It {code}\n")), "{code}");
        assert!(readme.contains(&format!("\n| {code} | ")), "{code}");
    }
}

#[test]
fn the_manual_describes_every_finding_of_check_and_no_other() {
    let manual = file("man/egressctl.8");
    let section = manual.split(".Sh FINDINGS\n").nth(1).unwrap().split(".Sh ").next().unwrap();
    let described: BTreeSet<&str> =
        section.lines().filter_map(|l| l.strip_prefix(".It Li ")).collect();
    let known: Vec<String> = egressctl::check::Code::ALL
        .iter()
        .map(|code| format!("{code} Pq {}", code.severity().as_str()))
        .collect();
    assert_eq!(described, known.iter().map(String::as_str).collect());
}

/// The part of the manual of policies that is about one kind.
fn manual_of(kind: &str) -> String {
    let manual = file("man/egressctl-policy.5");
    let begins = format!("\n.Sh KEYS OF A {}", kind.to_uppercase());
    let from = manual.find(&begins).unwrap_or_else(|| panic!("no section on kind {kind}"));
    let rest = manual[from + 1..].to_owned();
    let ends = ["\n.Sh KEYS OF A ", "\n.Sh SEE ALSO"].into_iter().filter_map(|end| rest.find(end));
    rest[..=ends.min().unwrap()].to_owned()
}

/// What names a provider in a policy.
const PROVIDERS: [&str; 8] =
    ["directory", "http", "exec", "hidemyname", "mullvad", "ivpn", "nordvpn", "gluetun"];

/// A file of the policy's parser with those in the folder of its name.
fn sources(name: &str) -> String {
    let folder = fs::read_dir(root().join("src/policy").join(name)).unwrap();
    let rest = folder.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let first = file(&format!("src/policy/{name}.rs"));
    std::iter::once(first).chain(rest).collect::<Vec<_>>().join("\n\n")
}

/// The keys of a policy by the last part of their names, as the parser's source has them.
fn keys() -> BTreeSet<String> {
    let source = sources("pool") + "\n\n" + &sources("provider");
    // What the parser does not read is no key. Sources in the network are declared by a macro.
    let declared = "remote_source! {";
    let parsed = |part: &&str| part.contains("Deserialize") || part.starts_with(declared);
    let mut keys: BTreeSet<String> = ["kind", "$schema", "description", "prefix", "spread"]
        .into_iter()
        .map(str::to_owned)
        .collect();
    for part in source.split("\n\n").filter(parsed) {
        for line in part.lines().map(str::trim_start) {
            let field = match line.strip_prefix("pub ") {
                Some(field) => field,
                None if part.starts_with(declared) => line,
                None => continue,
            };
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if let Some((name, _)) = field.split_once(": ")
                && name.chars().all(plain)
            {
                keys.insert(name.to_owned());
            }
        }
    }
    keys
}

#[test]
fn the_manual_describes_every_key_of_a_pool_and_no_other() {
    let manual = manual_of("pool");
    let described: Vec<&str> =
        manual.lines().filter_map(|line| line.strip_prefix(".It Va ")).collect();
    let keys = keys();
    assert!(keys.len() > 50, "{keys:?}");
    // A key that holds an object stands in the names of its own keys, too.
    let parts: BTreeSet<String> = described
        .iter()
        .flat_map(|name| name.split('.'))
        .map(|part| part.trim_end_matches("[]").to_owned())
        .collect();
    let missing: Vec<_> = keys.difference(&parts).collect();
    assert!(missing.is_empty(), "man/egressctl-policy.5 does not describe {missing:?}");
    let foreign: Vec<_> =
        parts.difference(&keys).filter(|part| !PROVIDERS.contains(&part.as_str())).collect();
    assert!(
        foreign.is_empty(),
        "man/egressctl-policy.5 describes {foreign:?}, which no policy has"
    );
}

/// What the manual says of each key, without its markup.
fn entries(manual: &str) -> Vec<(String, String)> {
    let plain = |line: &str| {
        let Some(macros) = line.strip_prefix('.') else { return line.to_owned() };
        let words =
            macros.split_whitespace().skip(1).filter(|word| !["No", "Va", "Cm"].contains(word));
        words.fold(String::new(), |text, word| {
            let closes = [".", ",", ";", ":", ")"].contains(&word);
            let gap = if text.is_empty() || closes { "" } else { " " };
            text + gap + word
        })
    };
    let ends = |line: &str| [".El", ".Sh", ".Ss", ".Bl"].iter().any(|mark| line.starts_with(mark));
    let parts = manual.split("\n.It Va ").skip(1);
    parts
        .map(|part| {
            let (name, body) = part.split_once('\n').unwrap();
            let lines: Vec<String> =
                body.lines().take_while(|line| !ends(line)).map(plain).collect();
            (name.to_owned(), lines.join(" "))
        })
        .collect()
}

/// Stands in the manual for a name that the operator gives.
const ANY_NAME: &str = "NAME";

/// What the schema of a kind says of a key that is named as in the manual.
fn schema_says(root: &Value, kind: &str, path: &str) -> Option<String> {
    fn follow<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
        let choices =
            ["allOf", "anyOf"].iter().filter_map(|key| schema.get(key)?.as_array()).flatten();
        let inner = choices
            .into_iter()
            .find(|choice| choice.get("$ref").is_some() || choice.get("properties").is_some());
        if let Some(inner) = inner {
            return follow(root, inner);
        }
        match schema.get("$ref").and_then(Value::as_str) {
            Some(target) => follow(root, root.pointer(target.trim_start_matches('#')).unwrap()),
            None => schema,
        }
    }
    let mut here = &root["definitions"][kind];
    for part in path.split('.') {
        if part == ANY_NAME {
            here = follow(root, here).get("additionalProperties")?;
            continue;
        }
        let (key, is_list) = part.strip_suffix("[]").map_or((part, false), |key| (key, true));
        here = follow(root, here)["properties"].get(key)?;
        if is_list {
            here = &here["items"];
        }
    }
    Some(here["description"].as_str()?.to_owned())
}

#[test]
fn the_schema_says_of_a_key_what_the_manual_says() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_egressctl")).args(["schema", "policy"]).output().unwrap();
    let root: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (kind, least) in
        [("pool", 80), ("selector", 25), ("guard", 20), ("dns", 25), ("chain", 25), ("site", 3)]
    {
        let entries = entries(&manual_of(kind));
        assert!(entries.len() > least, "{kind}: {}", entries.len());
        for (path, text) in entries {
            assert_eq!(schema_says(&root, kind, &path).as_ref(), Some(&text), "{kind}: {path}");
        }
    }
}

/// The keys of a schema that hold a value, by their whole names.
fn values_of(schema: &Value, at: &str) -> BTreeSet<String> {
    let properties = schema["properties"].as_object().unwrap();
    properties
        .iter()
        .flat_map(|(key, inner)| {
            let name = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            let items = inner.get("items").filter(|items| items.get("properties").is_some());
            let named = inner.get("additionalProperties").filter(|named| named.is_object());
            match (inner.get("properties"), items, named) {
                (Some(_), ..) => values_of(inner, &name),
                (None, Some(items), _) => values_of(items, &format!("{name}[]")),
                (None, None, Some(named)) => {
                    let mut all = values_of(named, &format!("{name}.{ANY_NAME}"));
                    all.insert(name);
                    all
                }
                (None, None, None) => BTreeSet::from([name]),
            }
        })
        .collect()
}

#[test]
fn the_manual_describes_every_key_of_a_kind_and_no_other() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_egressctl")).args(["schema", "policy"]).output().unwrap();
    let root: Value = serde_json::from_slice(&output.stdout).unwrap();
    // An object that may be left out is described beside its keys.
    for (kind, may_be_left_out) in
        [("selector", "wan"), ("guard", "reference"), ("chain", "wan"), ("site", "notify")]
    {
        let described: BTreeSet<String> =
            entries(&manual_of(kind)).into_iter().map(|(name, _)| name).collect();
        let mut known = values_of(&root["definitions"][kind], "");
        known.insert(may_be_left_out.to_owned());
        assert_eq!(described, known, "{kind}");
    }
}

#[test]
fn the_manual_gives_the_defaults_of_the_parser() {
    let manual = file("man/egressctl-policy.5");
    let source = sources("pool");
    let mut seen = 0;
    for line in source.lines() {
        let Some((name, value)) = line.trim().trim_end_matches(',').split_once(": ") else {
            continue;
        };
        let value = value.replace('_', "");
        let is_plain = value == "true" || value == "false" || value.parse::<f64>().is_ok();
        if !line.starts_with("            ") || !is_plain || !line.ends_with(',') {
            continue;
        }
        // Several objects have a key of this name, each with its own default.
        let mut entries = manual.split(".It Va ").filter(|entry| {
            entry.lines().next().is_some_and(|full| full.rsplit('.').next() == Some(name))
        });
        let says = format!("Default: {value}.\n");
        assert!(entries.any(|entry| entry.contains(&says)), "{name} is {value}, and not described");
        seen += 1;
    }
    assert!(seen > 20, "only {seen} defaults were found");
}

#[test]
fn the_manual_pages_are_sound() {
    let pages: Vec<PathBuf> =
        ["egressctl.8", "egressctl-policy.5"].map(|page| root().join("man").join(page)).into();
    let output = Command::new("mandoc")
        .args(["-T", "lint", "-W", "warning"])
        .args(pages)
        .output()
        .expect("mandoc is in Debian's package mandoc: apt-get install -y mandoc");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert!(output.status.success());
}

#[test]
fn what_the_readme_names_is_there() {
    let readme = file("README.md");
    for path in [
        "tests/run",
        "tests/lab/demo",
        "man/egressctl.8",
        "man/egressctl-policy.5",
        "systemd/deb/build",
        "systemd/examples",
        "systemd/examples/publish.conf",
        "policies/site.json",
        "policies/monitoring/",
        "policies/two-gateways/",
        "policies/watchers/egressctl-watch",
    ] {
        assert!(readme.contains(path) && root().join(path).exists(), "{path}");
    }
    for unit in ["egressctl.timer", "egressctl-barrier.service"] {
        assert!(readme.contains(unit) && root().join("systemd").join(unit).exists(), "{unit}");
    }
}
