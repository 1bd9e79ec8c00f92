//! The units are sound and shut in: systemd's own checker has nothing to say about them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The exposure, in tenths, that no service of ours may exceed.
const THRESHOLD: &str = "--threshold=25";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd")
}

fn units(extension: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| Path::new(name).extension().is_some_and(|e| e == extension))
        .collect();
    names.sort();
    names
}

fn unit(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

/// The values of a key, in order; what a comment says is no value.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

fn analyze(args: &[&str], files: &[PathBuf]) -> Output {
    Command::new("systemd-analyze")
        .args(args)
        .args(files)
        .env("SYSTEMD_COLORS", "0")
        .output()
        .expect("systemd-analyze is in Debian's package systemd: apt-get install -y systemd")
}

/// The units with the built program in the place of the installed one.
fn built(into: &Path) -> Vec<PathBuf> {
    let place = |name: &String| {
        let text = unit(name).replace(
            "ExecStart=egressctl ",
            concat!("ExecStart=", env!("CARGO_BIN_EXE_egressctl"), " "),
        );
        // The checker reads an instance of a template as a unit that is named.
        let path = into.join(name.replace("@.", "@vpn1."));
        fs::write(&path, text).unwrap();
        path
    };
    units("service").iter().chain(&units("timer")).map(place).collect()
}

#[test]
fn the_units_are_those_that_the_manual_names() {
    assert_eq!(
        units("service"),
        [
            "egressctl-barrier.service",
            "egressctl-wg@.service",
            "egressctl.service",
            "egressctl@.service"
        ]
    );
    assert_eq!(units("timer"), ["egressctl.timer", "egressctl@.timer"]);
}

#[test]
fn the_checker_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let output = analyze(&["verify", "--man=no"], &built(folder.path()));
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "");
    assert!(output.status.success());
}

#[test]
fn the_services_are_shut_in() {
    for name in units("service") {
        let output = analyze(&["security", "--offline=true", THRESHOLD], &[folder().join(&name)]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {}", said.lines().last().unwrap_or_default());
    }
}

#[test]
fn a_timer_fires_the_first_time_and_again_and_on_the_second() {
    for name in units("timer") {
        let text = unit(&name);
        assert_eq!(values(&text, "OnActiveSec").len(), 1, "{name}");
        assert_eq!(values(&text, "OnUnitActiveSec").len(), 1, "{name}");
        assert_eq!(values(&text, "AccuracySec"), ["1s"], "{name}");
    }
}

#[test]
fn a_step_ends_by_its_own_deadline_and_its_soft_codes_are_no_failures() {
    for name in ["egressctl.service", "egressctl@.service"] {
        let text = unit(name);
        let timeout: u32 = values(&text, "TimeoutStartSec")[0].parse().unwrap();
        assert!(timeout > 60, "{name}: the default step_budget_sec is 60");
        assert_eq!(values(&text, "TimeoutStopSec"), ["10"], "{name}: to finish or undo a change");
        assert_eq!(values(&text, "KillMode"), ["mixed"], "{name}: its commands are not cut off");
        assert_eq!(values(&text, "SuccessExitStatus"), ["3 5 75"], "{name}");
        assert_eq!(values(&text, "StateDirectory"), ["egressctl"], "{name}");
        assert_eq!(values(&text, "StateDirectoryMode"), ["0700"], "{name}");
        assert!(values(&text, "RemainAfterExit").is_empty(), "{name} would step once only");
        assert!(values(&text, "ProtectKernelTunables").is_empty(), "{name} writes rp_filter");
    }
}

#[test]
fn a_step_has_the_rights_that_it_needs_and_no_other() {
    for name in ["egressctl.service", "egressctl@.service"] {
        let text = unit(name);
        let is = |key: &str, wished: &str| {
            assert_eq!(values(&text, key), [wished], "{name}: {key}");
        };
        is("CapabilityBoundingSet", "CAP_NET_ADMIN CAP_NET_RAW");
        is("ProtectSystem", "strict");
        is("ProtectHome", "read-only");
        is("ProtectProc", "invisible");
        is("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6 AF_NETLINK");
        is("SystemCallArchitectures", "native");
        is("UMask", "0077");
        // Sockets of daemons that died are removed there.
        is("ReadWritePaths", "-/run/wireguard -/run/amneziawg");
        for key in [
            "NoNewPrivileges",
            "PrivateTmp",
            "ProtectKernelModules",
            "ProtectKernelLogs",
            "ProtectControlGroups",
            "ProtectClock",
            "ProtectHostname",
            "RestrictNamespaces",
            "RestrictRealtime",
            "RestrictSUIDSGID",
            "LockPersonality",
            "MemoryDenyWriteExecute",
        ] {
            is(key, "yes");
        }
        assert!(values(&text, "SystemCallFilter").contains(&"@system-service"), "{name}");
        // Each of these would keep a step from its work.
        for key in ["PrivateNetwork", "PrivateUsers", "ProcSubset"] {
            assert!(values(&text, key).is_empty(), "{name}: {key}");
        }
    }
    let daemon = unit("egressctl-wg@.service");
    assert!(values(&daemon, "PrivateDevices").is_empty(), "it hides /dev/net/tun");
    assert_eq!(values(&daemon, "DeviceAllow"), ["/dev/net/tun rw"]);
    assert_eq!(values(&daemon, "ExecStart"), ["/usr/bin/wireguard-go -f %i"]);
    assert_eq!(values(&daemon, "Restart"), ["no"], "the next step makes the tunnel anew");
}

#[test]
fn all_policies_have_one_unit_and_each_its_own() {
    assert_eq!(values(&unit("egressctl.service"), "ExecStart"), ["egressctl step"]);
    assert_eq!(values(&unit("egressctl@.service"), "ExecStart"), ["egressctl step %i"]);
    for name in units("timer") {
        let text = unit(&name);
        assert_eq!(values(&text, "WantedBy"), ["timers.target"], "{name}");
        assert!(values(&text, "OnCalendar").is_empty(), "{name} goes by no wall clock");
        assert!(values(&text, "Unit").is_empty(), "{name} is for the service of its name");
    }
}

#[test]
fn the_barrier_is_closed_before_the_network_is_there() {
    let text = unit("egressctl-barrier.service");
    let has = |key: &str, wished: &str| {
        let all = values(&text, key).join(" ");
        assert!(all.split(' ').any(|word| word == wished), "{key}={all} lacks {wished}");
    };
    has("DefaultDependencies", "no");
    has("Before", "network-pre.target");
    has("Wants", "network-pre.target");
    has("After", "nftables.service");
    has("WantedBy", "sysinit.target");
    has("RemainAfterExit", "yes");
    // It does what it says, on files that are there: one that is spoilt keeps no other from its turn.
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    for name in ["a", "b", "c"] {
        fs::create_dir_all(folder.path().join("state").join(name)).unwrap();
        fs::write(folder.path().join("state").join(name).join("barrier.nft"), name).unwrap();
    }
    let nft = folder.path().join("nft");
    let script =
        format!("#!/bin/sh\necho $2 >>{}\ncase $2 in */b/*) exit 1;; esac\n", log.display());
    fs::write(&nft, script).unwrap();
    fs::set_permissions(&nft, fs::Permissions::from_mode(0o755)).unwrap();
    let line = values(&text, "ExecStart")[0]
        .replace("/var/lib/egressctl", folder.path().join("state").to_str().unwrap())
        .replace("/usr/sbin/nft", nft.to_str().unwrap());
    let script = line.split('\'').nth(1).unwrap();
    let status = Command::new("/bin/sh").args(["-c", script]).status().unwrap();
    assert!(!status.success(), "that one was spoilt is told");
    assert_eq!(fs::read_to_string(log).unwrap().lines().count(), 3);
}

/// The units for a user's own manager, with the built program in the place of the installed one.
fn users(into: &Path) -> Vec<PathBuf> {
    let place = |name: &str| {
        let text = fs::read_to_string(folder().join("user").join(name)).unwrap();
        let program = concat!("ExecStart=", env!("CARGO_BIN_EXE_egressctl"), " ");
        let path = into.join(name);
        fs::write(&path, text.replace("ExecStart=egressctl ", program)).unwrap();
        path
    };
    ["egressctl.service", "egressctl.timer"].map(place).into()
}

#[test]
fn an_ordinary_user_has_units_that_write_the_state_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let files = users(folder.path());
    let runtime = folder.path().join("run");
    fs::create_dir(&runtime).unwrap();
    let output = Command::new("systemd-analyze")
        .args(["--user", "verify", "--man=no"])
        .args(&files)
        .env("SYSTEMD_COLORS", "0")
        .env("XDG_RUNTIME_DIR", &runtime)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "");
    assert!(output.status.success());
    let text = fs::read_to_string(&files[0]).unwrap();
    assert_eq!(values(&text, "StateDirectory"), ["egressctl/state"]);
    assert_eq!(values(&text, "ProtectSystem"), ["strict"]);
    assert_eq!(values(&text, "ProtectHome"), ["read-only"]);
    assert!(values(&text, "ReadWritePaths").is_empty(), "the state alone is written");
    assert!(values(&text, "CapabilityBoundingSet").is_empty(), "a user's manager has none to give");
    assert!(values(&text, "PrivateTmp").is_empty(), "sockets of cores are below /tmp");
    assert_eq!(values(&text, "SuccessExitStatus"), ["3 5 75"]);
    let manual = fs::read_to_string(self::folder().join("../man/egressctl.8")).unwrap();
    assert!(manual.contains("systemctl --user"), "man/egressctl.8 does not tell of it");
}

fn example(name: &str) -> String {
    fs::read_to_string(folder().join("examples").join(name)).unwrap()
}

#[test]
fn the_units_go_with_the_examples_of_an_alert_and_of_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = built(folder.path());
    for of in ["egressctl.service", "egressctl@vpn1.service"] {
        let drop_ins = folder.path().join(format!("{of}.d"));
        fs::create_dir(&drop_ins).unwrap();
        for name in ["alert.conf", "credentials.conf", "publish.conf"] {
            fs::write(drop_ins.join(name), example(name)).unwrap();
        }
    }
    let alert = folder.path().join("egressctl-alert@egressctl.service.service");
    fs::write(&alert, example("egressctl-alert@.service")).unwrap();
    files.push(alert.clone());
    let output = analyze(&["verify", "--man=no"], &files);
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "");
    assert!(output.status.success());
    let output = analyze(&["security", "--offline=true", THRESHOLD], &[alert]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(values(&example("alert.conf"), "OnFailure"), ["egressctl-alert@%n.service"]);
    assert_eq!(values(&example("credentials.conf"), "LoadCredential").len(), 1);
    let alert = example("egressctl-alert@.service");
    assert_eq!(values(&alert, "StartLimitBurst"), ["1"], "every failing step would tell again");
}

#[test]
fn the_line_of_cron_finds_every_program_and_sends_no_mail() {
    let cron = example("cron");
    let path = values(&cron, "PATH")[0];
    for folder in ["/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"] {
        assert!(path.split(':').any(|part| part == folder), "{folder} is not in {path}");
    }
    let line = cron.lines().find(|line| line.starts_with("* * * * * root ")).unwrap();
    assert!(line.contains("egressctl step 2>&1 | logger"), "{line}");
    let manual = fs::read_to_string(folder().join("../man/egressctl.8")).unwrap();
    for part in [line, &format!("PATH={path}")] {
        assert!(manual.contains(part), "man/egressctl.8 does not show {part}");
    }
}
