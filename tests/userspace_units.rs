//! Userspace WireGuard: as units where systemd runs, detached elsewhere; the daemons outlive the step.

use crate::fakes;
use crate::lab;

use fakes::{Fakes, is_as_before, on_two_slots, small_policy, world};
use lab::{Lab, space};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

fn lab(systemd: bool) -> Lab {
    let lab = Lab::builder().clients(2).endpoints(4).start();
    lab.gw().policy("home", &small_policy(&lab));
    if systemd {
        let made = ["-p", "/run/systemd/system"];
        let _none = space::run(lab.gw().command("mkdir").args(made), "");
    }
    lab
}

#[track_caller]
fn run(lab: &Lab, fakes: &Fakes, args: &[&str]) -> String {
    let outcome = fakes.run(lab.gw(), "", args);
    assert_eq!(outcome.code, Some(0), "{args:?}: {}{}", outcome.stdout, outcome.stderr);
    outcome.stdout
}

fn started(fakes: &Fakes) -> Vec<String> {
    let calls = fakes.calls("systemctl");
    let mut units: Vec<String> = calls
        .iter()
        .filter_map(|call| Some(call.strip_prefix("systemctl start ")?.to_owned()))
        .collect();
    units.sort();
    units
}

fn unit(interface: &str) -> String {
    format!("egressctl-wg@{interface}.service")
}

/// The daemon of an interface: the one of the gateway that has this word in its command line.
fn daemon(lab: &Lab, interface: &str) -> u32 {
    let serves = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == interface.as_bytes())
    };
    let found: Vec<u32> = lab.gw().daemons().into_iter().filter(serves).collect();
    assert_eq!(found.len(), 1, "daemons of {interface}");
    found[0]
}

/// What a daemon holds open, and who its parent and session are.
fn holds_nothing_of_the_step(lab: &Lab, pid: u32) {
    let files: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten()
        .filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
        .collect();
    let states = lab.gw().state_dir().display().to_string();
    let policies = lab.gw().policy_dir().display().to_string();
    for file in &files {
        assert!(!file.starts_with(&states) && !file.starts_with(&policies), "{files:?}");
    }
    let lock = fs::File::open(lab.gw().state_dir().join("home/lock")).unwrap();
    lock.try_lock().expect("nobody holds the lock");
}

#[test]
fn where_systemd_runs_tunnels_are_units() {
    let lab = lab(true);
    let fakes = Fakes::new(&lab).with_systemctl();
    let bare = world(lab.gw());
    let _loaded = run(&lab, &fakes, &["step", "home"]);
    let units = started(&fakes);
    for interface in ["vpn1", "vpn2", "vpnt1"] {
        assert!(units.contains(&unit(interface)), "{units:?}");
    }
    let calls = fakes.calls("systemctl");
    let stopped: BTreeSet<&str> =
        calls.iter().filter_map(|call| call.strip_prefix("systemctl stop ")).collect();
    assert!(
        stopped.contains(unit("vpnt1").as_str()),
        "the units of tests end with them: {calls:?}"
    );
    assert!(!stopped.contains(unit("vpn1").as_str()), "{calls:?}");
    let direct = |call: &&String| call.starts_with("wireguard-go");
    assert_eq!(fakes.calls("change").iter().find(direct), None, "systemd starts the daemons");
    assert_eq!(fakes.calls("trial").iter().find(direct), None, "systemd starts the daemons");
    let slots = on_two_slots(&lab);
    let (before, pids) = (world(lab.gw()), ["vpn1", "vpn2"].map(|name| daemon(&lab, name)));
    for pid in pids {
        holds_nothing_of_the_step(&lab, pid);
    }
    for _ in 0..3 {
        let _steady = run(&lab, &fakes, &["step", "home"]);
        assert_eq!(fakes.calls("systemctl"), [""; 0], "a steady step asks systemd nothing");
    }
    assert_eq!(pids, ["vpn1", "vpn2"].map(|name| daemon(&lab, name)));
    is_as_before(lab.gw(), &before, "steady");
    assert_eq!(on_two_slots(&lab), slots);

    let _down = run(&lab, &fakes, &["down", "home"]);
    let calls = fakes.calls("systemctl");
    for interface in ["vpn1", "vpn2"] {
        assert!(calls.contains(&format!("systemctl stop {}", unit(interface))), "{calls:?}");
    }
    is_as_before(lab.gw(), &bare, "down");
    assert!(space::wait_until(Duration::from_secs(2), || lab.gw().daemons().is_empty()));
}

#[test]
fn a_unit_whose_daemon_died_is_started_again() {
    let lab = lab(true);
    let fakes = Fakes::new(&lab).with_systemctl();
    let _loaded = run(&lab, &fakes, &["step", "home"]);
    let slots = on_two_slots(&lab);
    let kept = daemon(&lab, "vpn2");
    let dead = daemon(&lab, "vpn1");
    space::signal(dead, Signal::KILL);
    assert!(space::wait_until(Duration::from_secs(2), || space::has_ended(dead)));
    let said = run(&lab, &fakes, &["step", "home"]);
    assert!(said.starts_with("home: NORMAL:"), "no transition, nothing counted: {said}");
    let calls = fakes.calls("systemctl");
    let again = ["start", "restart"].map(|verb| format!("systemctl {verb} {}", unit("vpn1")));
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert!(again.contains(&calls[0]), "{calls:?}");
    assert_ne!(daemon(&lab, "vpn1"), dead);
    assert_eq!(daemon(&lab, "vpn2"), kept);
    assert_eq!(on_two_slots(&lab), slots);
    assert_eq!(
        lab.gw().state("home").unwrap()["body"]["machine"]["repair_events_since_full_refresh"],
        0
    );
}

#[test]
fn a_unit_that_does_not_start_is_named_and_undone() {
    let lab = lab(true);
    let fakes = Fakes::new(&lab).with_systemctl();
    let _loaded = run(&lab, &fakes, &["step", "home"]);
    let _down = run(&lab, &fakes, &["down", "home"]);
    let bare = world(lab.gw());
    let _resumed = run(&lab, &fakes, &["resume", "home"]);
    // The tested list is known, so the next change begins with a slot.
    let refuse = lab.folder().join("fakes/systemctl");
    fs::remove_file(&refuse).unwrap();
    fs::write(&refuse, "#!/bin/sh\necho 'Unit not found.' >&2\nexit 5\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&refuse, executable).unwrap();
    let outcome = fakes.run(lab.gw(), "", &["step", "home"]);
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(said.contains("systemctl") && said.contains("egressctl-wg@"), "{said}");
    assert!(said.contains("Unit not found."), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    is_as_before(lab.gw(), &bare, &said);
}

#[test]
fn elsewhere_daemons_are_detached_and_outlive_the_step() {
    let lab = lab(false);
    let fakes = Fakes::new(&lab).with_systemctl();
    let bare = world(lab.gw());
    // Standard output is a pipe that ends with the step, as under cron.
    let mut command = lab.gw().egressctl_command(&["step", "home"]);
    command.env("PATH", lab::gateway::path_with(&lab.folder().join("fakes")));
    let begun = std::time::Instant::now();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "no daemon keeps the pipe open");
    assert_eq!(fakes.calls("systemctl"), [""; 0], "systemd does not run here");
    for interface in ["vpn1", "vpn2"] {
        let pid = daemon(&lab, interface);
        holds_nothing_of_the_step(&lab, pid);
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        // Compared as text: a group that was made outside a container is 0 when seen from within.
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        let own: Vec<&str> = own.rsplit(") ").next().unwrap().split(' ').collect();
        assert_ne!(fields[2], own[2], "{interface}: what ends the step's group spares its daemons");
    }
    let slots = on_two_slots(&lab);
    let pids = ["vpn1", "vpn2"].map(|name| daemon(&lab, name));
    let _steady = run(&lab, &fakes, &["step", "home"]);
    assert_eq!(pids, ["vpn1", "vpn2"].map(|name| daemon(&lab, name)));

    space::signal(pids[0], Signal::KILL);
    assert!(space::wait_until(Duration::from_secs(2), || space::has_ended(pids[0])));
    let said = run(&lab, &fakes, &["step", "home"]);
    assert!(said.starts_with("home: NORMAL:"), "no transition, nothing counted: {said}");
    assert_ne!(daemon(&lab, "vpn1"), pids[0]);
    assert_eq!(daemon(&lab, "vpn2"), pids[1]);
    assert_eq!(on_two_slots(&lab), slots);

    let _down = run(&lab, &fakes, &["down", "home"]);
    is_as_before(lab.gw(), &bare, "down");
    assert!(space::wait_until(Duration::from_secs(2), || lab.gw().daemons().is_empty()));
}

#[test]
fn a_daemon_that_dies_while_the_step_looks_is_put_back_by_that_step_or_the_next() {
    let lab = lab(false);
    let mut policy = small_policy(&lab);
    // A probe that was under way when the daemon died fails like any other.
    policy["params"]["health_failures_before_down"] = 2.into();
    lab.gw().policy("home", &policy);
    let fakes = Fakes::new(&lab);
    let _loaded = run(&lab, &fakes, &["step", "home"]);
    let slots = on_two_slots(&lab);
    for wait in [0, 2, 4, 6, 8, 10, 14, 18, 25] {
        let dead = daemon(&lab, "vpn1");
        let mut step = lab.gw().spawn_egressctl(&["step", "home"]);
        std::thread::sleep(Duration::from_millis(wait));
        space::signal(dead, Signal::KILL);
        let code = step.wait().unwrap().code();
        assert!(matches!(code, Some(0 | 1 | 3)), "after {wait} ms: {code:?}");
        // The kernel takes some milliseconds to take the device away.
        std::thread::sleep(Duration::from_millis(50));
        let _mended = run(&lab, &fakes, &["step", "home"]);
        // A slot that is being mended is not judged; the next check passes, and counting begins anew.
        let _passes = run(&lab, &fakes, &["step", "home"]);
        assert_eq!(on_two_slots(&lab), slots, "after {wait} ms");
    }
}
