//! What is wrong with what people write, and with the machine: one line that says so, and nothing changed.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "test code"
)]

mod lab;

use lab::gateway::Outcome;
use lab::{Lab, space};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

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

fn no_panic(outcome: &Outcome) {
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{said}");
}

/// Every file below a folder with what is in it.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        }
        let bytes = if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        all.insert(path, bytes);
    }
    all
}

/// The words with which a line says what to do.
const MENDS: [&str; 20] = [
    "make", "write", "name", "correct", "change", "install", "run", "use", "remove", "rename",
    "put", "say", "save", "add", "give", "set", "copy", "must", "expected", "complete",
];

/// One line, on one of both outputs, with all of `words` in it and with something to do.
#[track_caller]
fn one_line(outcome: &Outcome, code: i32, words: &[&str]) -> String {
    no_panic(outcome);
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert_eq!(outcome.code, Some(code), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    let words: Vec<&str> = said.split([' ', ':', ';', '(', ',']).collect();
    let mends = MENDS.iter().any(|mend| words.contains(mend)) || said.contains("did you mean");
    assert!(mends, "it does not say what to do: {said}");
    said
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

/// A lab with a small policy `home`; what is wrong is brought in by the test.
fn lab() -> Lab {
    let lab = Lab::builder().clients(1).endpoints(3).start();
    lab.gw().policy("home", &policy(&lab));
    lab
}

fn policy(lab: &Lab) -> Value {
    let mut policy = lab.pool_policy();
    policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
    policy
}

/// What must stay as it is: devices with their numbers, rules, nft, and the tunnels' sessions.
fn untouched(lab: &Lab) -> [String; 4] {
    let gw = lab.gw();
    let wg = gw.command("wg").args(["show", "all", "dump"]).output().unwrap().stdout;
    let ports_and_peers = String::from_utf8(wg).unwrap();
    let stable = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields.len() > 5 { fields[..6].join(" ") } else { fields.join(" ") }
    };
    [
        gw.ip("-o link show"),
        gw.ip("rule list") + &gw.ip("route show table all"),
        gw.nft("-s list ruleset"),
        ports_and_peers.lines().map(stable).collect::<Vec<_>>().join("\n"),
    ]
}

#[test]
fn a_bad_config_is_told_and_the_others_are_used() {
    let lab = lab();
    let bad = lab.provider_dir().join("broken.conf");
    fs::write(&bad, "[Interface]\nPrivateKey = nonsense\n").unwrap();
    let plan = lab.gw().egressctl(&["plan", "home"]);
    assert_eq!(plan.code, Some(0), "{}{}", plan.stdout, plan.stderr);
    assert!(plan.stdout.contains("broken") && plan.stdout.contains("line 2"), "{}", plan.stdout);
    let outcome = lab.gw().egressctl(&["step", "home"]);
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    assert!(lab.exits()[0].is_some(), "the others are used");
    let status = lab.gw().egressctl(&["status", "home"]);
    no_panic(&status);
    assert!(
        status.stdout.contains("broken") && status.stdout.contains("line 2"),
        "{}",
        status.stdout
    );
    for said in [plan.stdout, outcome.stdout, status.stdout] {
        assert!(!said.contains("nonsense"), "no key material, not even a wrong one: {said}");
    }
}

#[test]
fn without_a_usable_config_the_first_run_stays_and_says_what_to_do() {
    let lab = lab();
    let exit = lab.client(1).exit();
    let bare = untouched(&lab);
    fs::remove_dir_all(lab.provider_dir()).unwrap();
    let folder = lab.provider_dir().display().to_string();
    for case in ["missing", "empty", "unusable"] {
        match case {
            "missing" => {}
            "empty" => fs::create_dir(lab.provider_dir()).unwrap(),
            _ => fs::write(lab.provider_dir().join("bad.conf"), "[Interface]\nPrivateKey = x\n")
                .unwrap(),
        }
        let outcome = lab.gw().egressctl(&["step", "home"]);
        let named = if case == "unusable" { "bad" } else { folder.as_str() };
        one_line(&outcome, 0, &["FULL_POOL_REFRESH", named]);
        let status = lab.gw().egressctl(&["status", "home"]);
        no_panic(&status);
        assert_eq!(status.code, Some(2), "{case}: {}{}", status.stdout, status.stderr);
        assert_eq!(untouched(&lab), bare, "{case}");
        assert_eq!(lab.client(1).exit(), exit, "clients stay as they were");
        fs::remove_dir_all(lab.gw().state_dir().join("home")).unwrap();
    }
}

#[test]
fn a_program_that_is_missing_is_named_with_its_package() {
    let lab = lab();
    let bare = untouched(&lab);
    let packages = [("wg", "wireguard-tools"), ("ip", "iproute2"), ("nft", "nftables")];
    for (missing, package) in packages {
        let bin = lab.folder().join(format!("without-{missing}"));
        fs::create_dir(&bin).unwrap();
        for tool in ["wg", "ip", "nft", "wireguard-go", "conntrack"] {
            let real = space::PATH.split(':').map(|dir| Path::new(dir).join(tool));
            if tool != missing {
                symlink(real.into_iter().find(|path| path.exists()).unwrap(), bin.join(tool))
                    .unwrap();
            }
        }
        for command in ["step", "plan"] {
            let mut run = lab.gw().egressctl_command(&[command, "home"]);
            run.env("PATH", &bin);
            let outcome = lab.gw().finish(run);
            // It is on the machine and not on PATH, which is another thing to do.
            let said = one_line(&outcome, 1, &[missing, "PATH"]);
            assert!(said.contains(package) || said.contains("add that to PATH"), "{said}");
            assert_eq!(untouched(&lab), bare, "{missing}");
        }
    }
}

#[test]
fn whoever_is_not_root_is_told_so() {
    let lab = lab();
    let program = lab.folder().join("egressctl");
    fs::copy(env!("CARGO_BIN_EXE_egressctl"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let bare = untouched(&lab);
    for name in ["step", "down", "plan", "pause"] {
        let mut run = lab.gw().command("setpriv");
        run.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "--bounding-set",
            "-all",
            "--",
        ]);
        run.arg(&program).args([name, "home", "--policy-dir"]).arg(lab.gw().policy_dir());
        run.arg("--state-dir").arg(lab.gw().state_dir());
        let outcome = lab.gw().finish(run);
        one_line(&outcome, 1, &[]);
        if name == "step" || name == "down" {
            one_line(&outcome, 1, &["root"]);
        }
        assert_eq!(files(lab.gw().state_dir()).len(), 0, "{name} makes no state");
        assert_eq!(untouched(&lab), bare, "{name}");
    }
}

#[test]
fn a_state_folder_that_cannot_be_written_is_named() {
    let lab = lab();
    let bare = untouched(&lab);
    let file = lab.folder().join("file");
    fs::write(&file, "in the way").unwrap();
    let mount = "mkdir -p /run/ro && mount -t tmpfs -o ro lab /run/ro";
    let _mounted = space::run(lab.gw().command("sh").args(["-c", mount]), "");
    for place in
        [file.join("states"), file, PathBuf::from("/run/ro/states"), PathBuf::from("/run/ro")]
    {
        for name in ["step", "down"] {
            let mut run = lab.gw().command(env!("CARGO_BIN_EXE_egressctl"));
            run.args([name, "home", "--policy-dir"]).arg(lab.gw().policy_dir());
            run.arg("--state-dir").arg(&place);
            one_line(&lab.gw().finish(run), 1, &[place.to_str().unwrap()]);
            assert_eq!(untouched(&lab), bare, "{}", place.display());
        }
    }
}
