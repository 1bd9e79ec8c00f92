//! The first change of a remote machine: what cuts people off is undone by itself, unless somebody confirms it.

use crate::fakes;
use crate::lab;

use fakes::Fakes;
use lab::gateway::path_with;
use lab::pool::{Pool, differences};
use lab::space::wait_until;
use lab::{Lab, names};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

/// A gateway whose clients leave by the WAN, as long as nobody does anything about them.
fn lab() -> Lab {
    Lab::builder().endpoints(6).masquerade().start()
}

fn leaves_by_the_wan(lab: &Lab) -> bool {
    let uplink = Some(names::WAN.to_string());
    lab.clients().iter().all(|client| client.exit() == uplink)
}

/// A world as before; a daemon that was told to end takes its device with it a moment later.
#[track_caller]
fn is_again(pool: &Pool<'_>, bare: &BTreeMap<&'static str, String>) {
    let same = wait_until(Duration::from_secs(5), || differences(bare, &pool.kernel()).is_empty());
    assert!(same, "{:#?}", differences(bare, &pool.kernel()));
}

/// The processes of the gateway that wait for a confirmation.
fn waiters(lab: &Lab) -> Vec<u32> {
    let waits = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("--give-up")
    };
    lab.gw().space().pids().into_iter().filter(waits).collect()
}

/// What history tells last.
fn last_of_history(lab: &Lab) -> Value {
    let told = lab.gw().egressctl(&["history", "home", "--json", "-n", "1"]).stdout;
    serde_json::from_str(told.trim()).unwrap()
}

#[test]
fn a_change_that_cuts_the_clients_off_is_undone_when_nobody_confirms_it() {
    let lab = lab();
    let pool = Pool::new(&lab, |_| {});
    let bare = pool.kernel();
    assert!(leaves_by_the_wan(&lab));
    // The session that it is made from is closed afterwards, with all that still belongs to it.
    let mut command = lab.gw().egressctl_command(&["step", "home", "--try", "6"]);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut session = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let group = session.id();
    assert_eq!(session.wait().unwrap().code(), Some(0));
    let waiter = waiters(&lab);
    assert_eq!(waiter.len(), 1, "somebody waits");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", waiter[0])).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    assert_ne!(fields[2], group.to_string(), "not in the group of the session");
    // Compared as text: where the tests run in a container, their own session may be 0 here.
    assert_eq!(fields[3], waiter[0].to_string(), "leads a session of its own: {stat}");
    lab::space::signal(waiter[0], Signal::HUP);

    for k in 1..=6 {
        lab.drop(k);
    }
    assert!(lab.exits().iter().all(Option::is_none), "the clients are cut off");
    assert!(!leaves_by_the_wan(&lab));
    let meanwhile = pool.step();
    assert_eq!((meanwhile.code, meanwhile.word("outcome")), (Some(0), "not-due"), "{meanwhile:#?}");

    let back = wait_until(Duration::from_secs(30), || leaves_by_the_wan(&lab));
    assert!(back, "the clients get back: {:#?}", pool.status());
    is_again(&pool, &bare);
    // Clients come back by the undo, and what is remembered of it is written after that.
    let ended = wait_until(Duration::from_secs(10), || waiters(&lab).is_empty());
    assert!(ended, "who waited has ended");
    assert!(!lab.gw().state_dir().join("home/barrier.nft").exists(), "a boot closes nobody in");
    assert!(pool.status()["paused"].is_string());
    let told = last_of_history(&lab);
    let codes: Vec<&str> =
        told["reasons"].as_array().unwrap().iter().filter_map(|r| r["code"].as_str()).collect();
    assert!(codes.contains(&"not-confirmed"), "{told}");
    // The timer's next run makes no second attempt.
    assert_eq!(pool.step().report["changes"], 0);
    is_again(&pool, &bare);
    assert!(leaves_by_the_wan(&lab));
    let late = lab.gw().egressctl(&["confirm", "home"]);
    assert_eq!(late.code, Some(2), "{late:?}");
    assert!(late.stderr.contains("nothing waits to be confirmed"), "{}", late.stderr);
}

#[test]
fn a_change_that_is_confirmed_stays_when_its_time_is_up() {
    let lab = lab();
    let pool = Pool::new(&lab, |_| {});
    let tried = lab.gw().egressctl(&["step", "home", "--try", "4"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert!(tried.stdout.contains("egressctl confirm home"), "{}", tried.stdout);
    let slots = pool.serves(5);
    let waiting = lab.gw().egressctl(&["status", "home"]).stdout;
    assert!(
        waiting.contains("undone soon unless somebody says: egressctl confirm home"),
        "{waiting}"
    );
    let confirmed = lab.gw().egressctl(&["confirm", "home"]);
    assert_eq!(confirmed.code, Some(0), "{confirmed:?}");
    let gone = wait_until(Duration::from_secs(20), || waiters(&lab).is_empty());
    assert!(gone, "who waited has ended");
    assert_eq!(pool.serves(5), slots);
    assert!(pool.step().is_steady());
    assert_eq!(pool.status()["paused"], Value::Null);
    // A steady step leaves nothing on trial.
    let steady = lab.gw().egressctl(&["step", "home", "--try", "1"]);
    assert!(steady.stdout.contains("nothing waits to be confirmed"), "{}", steady.stdout);
    assert!(!lab.gw().state_dir().join("home/trial.json").exists());
}

#[test]
fn where_systemd_runs_it_comes_back_by_a_timer_of_systemd() {
    let lab = lab();
    let pool = Pool::new(&lab, |_| {});
    let bare = pool.kernel();
    let _made = lab::space::run(lab.gw().command("mkdir").args(["-p", "/run/systemd/system"]), "");
    let fakes = Fakes::new(&lab).with_systemctl();
    let folder = lab.folder().join("fakes");
    let script = folder.join("systemd-run");
    std::fs::write(
        &script,
        format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >{0}/systemd-run.log\n", folder.display()),
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let tried = fakes.run(lab.gw(), "", &["step", "home", "--try", "1"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    pool.serves(5);
    let log = std::fs::read_to_string(folder.join("systemd-run.log")).unwrap();
    let words: Vec<&str> = log.lines().collect();
    for word in ["--on-active=1s", "--timer-property=AccuracySec=1s", "--collect"] {
        assert!(words.contains(&word), "{words:?}");
    }
    assert!(words.iter().any(|word| word.starts_with("--unit=egressctl-trial-home-")), "{words:?}");
    assert!(waiters(&lab).is_empty(), "nobody else waits");
    // What the timer starts.
    let at = words.iter().position(|word| *word == "--").unwrap();
    let mut command = lab.gw().command(words[at + 1]);
    command.args(&words[at + 2..]).env("PATH", path_with(&folder));
    let undone = lab.gw().finish(command);
    assert_eq!(undone.code, Some(3), "{undone:?}");
    is_again(&pool, &bare);
    assert!(leaves_by_the_wan(&lab));
}

/// By which boots the moments count that the state remembers.
fn boots(lab: &Lab) -> BTreeSet<String> {
    let text = std::fs::read_to_string(lab.gw().state_dir().join("home/state.json")).unwrap();
    let boots = text.split("\"boot\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    boots.map(str::to_owned).collect()
}

/// Nobody is left who could be cut off, and who waited for a word is gone.
#[test]
fn a_boot_ends_the_wait_and_the_first_step_after_it_undoes() {
    let lab = lab();
    let pool = Pool::new(&lab, |_| {});
    let tried = lab.gw().egressctl(&["step", "home", "--try", "600"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    pool.serves(5);
    let before = boots(&lab);
    lab.gw().reboot();
    let first = pool.step();
    assert_eq!((first.code, first.word("outcome")), (Some(3), "rolled-back"), "{first:#?}");
    assert!(boots(&lab).len() == 1 && boots(&lab) != before, "its windows count by this boot");
    assert!(leaves_by_the_wan(&lab), "as before the change: {:#?}", pool.status());
    assert!(!lab.gw().state_dir().join("home/barrier.nft").exists(), "a boot closes nobody in");
    assert!(pool.status()["paused"].is_string(), "the timer's next run makes no second attempt");
}

/// A window that counts by the clock of a boot that is over would end at once, or never.
#[test]
fn what_is_undone_after_a_boot_counts_on_by_the_clock_of_this_boot() {
    let lab = lab();
    let pool = Pool::up(&lab, |_| {});
    lab.drop(pool.endpoints()["vpn1"]);
    pool.goes("NORMAL", "NORMAL");
    let tried = lab.gw().egressctl(&["step", "home", "--now", "--try", "600"]);
    assert!(tried.code == Some(0) && tried.stdout.contains("LOCAL_REPAIR"), "{tried:?}");
    let before = boots(&lab);
    lab.gw().reboot();
    let first = pool.step();
    assert_eq!((first.code, first.word("to")), (Some(3), "NORMAL"), "{first:#?}");
    assert!(boots(&lab).len() == 1 && boots(&lab) != before, "{:?} {before:?}", boots(&lab));
}
