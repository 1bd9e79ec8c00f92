//! What is wrong with the provider's files or with the machine: one line that says so, and nothing changed.

use crate::lab;
use crate::told;

use lab::{Lab, space};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use told::{files, no_panic, one_line};

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

/// Case C03.
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
