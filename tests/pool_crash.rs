//! `kill -9` in the middle of a change: the next step undoes, the one after does the work, and no packet leaks.

use crate::fakes;
use crate::lab;

use fakes::{Fakes, is_as_before, is_in_flight, on_two_slots, planned, small_policy, world};
use lab::client::Client;
use lab::gateway::Outcome;
use lab::{Lab, space};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Two clients on two slots, with endpoints to spare.
fn lab() -> Lab {
    let lab = Lab::builder().clients(2).endpoints(5).start();
    let mut policy = small_policy(&lab);
    // So many that the step that moves a client is not yet the one that repairs the slot.
    policy["params"]["local_repair_retest_count"] = 4.into();
    lab.gw().policy("home", &policy);
    lab
}

#[track_caller]
fn step(lab: &Lab, code: i32) -> Outcome {
    let outcome = lab.gw().egressctl(&["step", "home"]);
    fakes::no_panic(&outcome);
    assert_eq!(outcome.code, Some(code), "{}{}", outcome.stdout, outcome.stderr);
    outcome
}

#[track_caller]
fn up(lab: &Lab) -> [usize; 2] {
    let _loaded = step(lab, 0);
    let _steady = step(lab, 0);
    on_two_slots(lab)
}

/// Waits until what the killed run had started has ended, daemons apart.
fn orphans_end(lab: &Lab) {
    let is_fake = |pid: u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        matches!(name.trim(), "fail-nth" | "ip" | "wg" | "nft" | "conntrack")
            || std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.contains("/fakes/"))
    };
    let ended = space::wait_until(Duration::from_secs(5), || {
        !lab.gw().space().pids().into_iter().any(is_fake)
    });
    assert!(ended, "an orphan lives on");
}

/// Kills egressctl at each changing command of what `args` does in turn, and once more after the last one;
/// each time the next step undoes. Gives the commands that a whole run makes.
fn killed_at_each_command(lab: &Lab, args: &[&str]) -> Vec<String> {
    let (fakes, before) = (Fakes::new(lab), world(lab.gw()));
    let mut made = Vec::new();
    for n in 1..200 {
        let outcome = fakes.run(lab.gw(), &format!("kill:{n}"), args);
        let called = fakes.calls("change");
        if called.len() < n {
            assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
            break;
        }
        undone_by_the_next(lab, &outcome, &before, &called);
        made = called;
    }
    made
}

/// A killed run left no word; the next step undoes what it did.
#[track_caller]
fn undone_by_the_next(lab: &Lab, killed: &Outcome, before: &str, called: &[String]) {
    let when = format!("killed after {called:#?}: {}{}", killed.stdout, killed.stderr);
    assert_eq!(killed.code, None, "{when}");
    orphans_end(lab);
    assert!(is_in_flight(lab.gw()), "{when}");
    let outcome = lab.gw().egressctl(&["step", "home"]);
    fakes::no_panic(&outcome);
    assert_eq!(outcome.code, Some(5), "{when}, then {}{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.contains("recovered"), "{}", outcome.stdout);
    is_as_before(lab.gw(), before, &when);
    assert!(!is_in_flight(lab.gw()), "{when}");
}

/// Clients ask for pages all the while.
fn while_clients_ask<T>(clients: &[Client], work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in clients {
            let over = &over;
            scope.spawn(move || {
                let mut flow = client.udp_flow();
                while !over.load(Ordering::Relaxed) {
                    let _answer = client.exit();
                    let _answer = flow.ping();
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        result
    })
    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Case C18.
#[test]
fn killed_at_each_command_of_the_first_run() {
    let lab = lab();
    let made = killed_at_each_command(&lab, &["step", "home"]);
    assert!(made.len() > 20, "{made:#?}");
    let _slots = on_two_slots(&lab);
}

#[test]
fn killed_when_all_commands_of_the_first_run_are_made() {
    let lab = lab();
    let (fakes, before) = (Fakes::new(&lab), world(lab.gw()));
    let all = planned(lab.gw()).iter().filter(|line| !line.starts_with("sysctl ")).count();
    let outcome = fakes.run(lab.gw(), &format!("kill-after:{all}"), &["step", "home"]);
    undone_by_the_next(&lab, &outcome, &before, &fakes.calls("change"));
    let _slots = up(&lab);
}

#[test]
fn killed_at_each_command_of_a_move_and_of_a_repair_without_a_leak() {
    let lab = lab();
    let [first, second] = up(&lab);
    lab.portal(first);
    let mark = lab.capture.mark();
    while_clients_ask(&lab.clients(), || {
        let made = killed_at_each_command(&lab, &["step", "home"]);
        assert!(!made.is_empty(), "the step that sees the failure moves the client");
        assert_eq!(lab.exits(), [Some(second), Some(second)]);
        fakes::step_until_repair(lab.gw());
        let made = killed_at_each_command(&lab, &["step", "home"]);
        assert!(made.iter().any(|line| line.starts_with("wg setconf vpn1")), "{made:#?}");
        let now = on_two_slots(&lab);
        assert_ne!(now[0], first);
        assert_eq!(now[1], second);
    });
    assert_eq!(lab.capture.leaks_since(mark), []);
}

#[test]
fn killed_at_each_command_of_down_without_a_leak_before_the_clients_are_given_back() {
    let lab = lab();
    let slots = up(&lab);
    let (fakes, before) = (Fakes::new(&lab), world(lab.gw()));
    let all = {
        let outcome = lab.gw().egressctl(&["down", "home", "--plan"]);
        outcome.stdout.lines().filter(|line| line.trim_start().starts_with("do ")).count()
    };
    let mark = lab.capture.mark();
    let mut given_back = false;
    for n in 1..=all {
        let outcome = while_clients_ask(&lab.clients(), || {
            let outcome = fakes.run(lab.gw(), &format!("kill:{n}"), &["down", "home"]);
            std::thread::sleep(Duration::from_millis(30));
            outcome
        });
        let called = fakes.calls("change");
        if outcome.code == Some(0) {
            // As long as anything else of ours is there, so is what closes the clients in.
            assert!(
                called.last().is_some_and(|last| last.starts_with("nft delete")),
                "{called:#?}"
            );
            given_back = true;
            break;
        }
        assert_eq!(lab.capture.leaks_since(mark), [], "{called:#?}");
        undone_by_the_next(&lab, &outcome, &before, &called);
        let after = lab.capture.mark();
        assert_eq!(on_two_slots(&lab), slots, "{called:#?}");
        assert_eq!(lab.capture.leaks_since(after), [], "{called:#?}");
    }
    assert!(given_back, "it comes to its end");
}

#[test]
fn killed_while_candidates_are_tested() {
    let lab = lab();
    let (fakes, before) = (Fakes::new(&lab), world(lab.gw()));
    for n in [1, 3, 6, 10, 14, 18] {
        let outcome = fakes.run(lab.gw(), &format!("kill-trial:{n}"), &["step", "home"]);
        let when = format!("{n}: {}{}", outcome.stdout, outcome.stderr);
        assert_eq!(outcome.code, None, "{when}");
        orphans_end(&lab);
        let _recovered = step(&lab, 5);
        is_as_before(lab.gw(), &before, &when);
        assert!(!lab.gw().devices().iter().any(|name| name.starts_with("vpnt")), "{when}");
        let gone = space::wait_until(Duration::from_secs(2), || lab.gw().daemons().is_empty());
        assert!(gone, "the daemon of a test is left: {when}");
    }
    let _slots = up(&lab);
}

#[test]
fn a_second_instance_while_one_runs_does_nothing() {
    let lab = lab();
    let fakes = Fakes::new(&lab);
    let mut first = fakes.spawn(lab.gw(), "slow:8", &["step", "home"]);
    assert!(space::wait_until(Duration::from_secs(10), || fakes.calls("change").len() == 8));
    let (state, before) = (lab.gw().state("home"), world(lab.gw()));
    let begun = Instant::now();
    for args in
        [&["step", "home"][..], &["step", "home", "--now"], &["down", "home"], &["pause", "home"]]
    {
        let outcome = lab.gw().egressctl(args);
        assert_eq!(outcome.code, Some(75), "{args:?}: {}{}", outcome.stdout, outcome.stderr);
        assert_eq!(outcome.stdout.lines().count() + outcome.stderr.lines().count(), 1, "{args:?}");
    }
    let outcome = lab.gw().egressctl(&["step", "home", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((outcome.code, &report["outcome"]), (Some(75), &"busy".into()));
    // Readers need no lock.
    assert!(lab.gw().egressctl(&["status", "home"]).code.is_some_and(|code| code <= 3));
    assert!(begun.elapsed() < Duration::from_millis(1900), "the first one still waits");
    assert_eq!((lab.gw().state("home"), world(lab.gw())), (state, before));
    assert!(first.wait().unwrap().success());
    let _slots = on_two_slots(&lab);
}

#[test]
fn a_kill_leaves_no_lock_behind() {
    let lab = lab();
    let (fakes, before) = (Fakes::new(&lab), world(lab.gw()));
    // Daemons run already and a command of the killed run goes on: none of them holds the lock.
    let mut first = fakes.spawn(lab.gw(), "slow:14", &["step", "home"]);
    assert!(space::wait_until(Duration::from_secs(10), || fakes.calls("change").len() == 14));
    first.kill().unwrap();
    assert_eq!(first.wait().unwrap().code(), None);
    let outcome = lab.gw().egressctl(&["step", "home"]);
    assert_ne!(outcome.code, Some(75), "{}{}", outcome.stdout, outcome.stderr);
    assert!(matches!(outcome.code, Some(4 | 5)), "{}{}", outcome.stdout, outcome.stderr);
    std::thread::sleep(Duration::from_secs(2));
    orphans_end(&lab);
    // What the orphan made after the next step had looked is mended by steps, too.
    let _any = lab.gw().egressctl(&["step", "home"]);
    let _steady = step(&lab, 0);
    let _slots = on_two_slots(&lab);
    assert_eq!(lab.gw().egressctl(&["down", "home"]).code, Some(0));
    is_as_before(lab.gw(), &before, "after all of it");
}

#[test]
fn killed_while_it_undoes_what_a_killed_run_left() {
    let lab = lab();
    let (fakes, before) = (Fakes::new(&lab), world(lab.gw()));
    for n in [1, 2, 5, 9, 14, 20] {
        let outcome = fakes.run(lab.gw(), "kill:22", &["step", "home"]);
        assert_eq!(outcome.code, None, "{}{}", outcome.stdout, outcome.stderr);
        let undoing = fakes.run(lab.gw(), &format!("kill:{n}"), &["step", "home"]);
        if undoing.code.is_some() {
            // It had fewer commands than that.
            assert_eq!(undoing.code, Some(5), "{}{}", undoing.stdout, undoing.stderr);
            break;
        }
        undone_by_the_next(&lab, &undoing, &before, &fakes.calls("change"));
    }
    let _slots = up(&lab);
}

#[test]
fn killed_and_then_rebooted() {
    let lab = lab();
    let (fakes, bare) = (Fakes::new(&lab), world(lab.gw()));
    for n in [2, 12, 22] {
        let outcome = fakes.run(lab.gw(), &format!("kill:{n}"), &["step", "home"]);
        assert_eq!(outcome.code, None, "{}{}", outcome.stdout, outcome.stderr);
        orphans_end(&lab);
        lab.gw().reboot();
        let _recovered = step(&lab, 5);
        is_as_before(lab.gw(), &bare, "the first run was undone");
    }
    let [first, second] = up(&lab);
    lab.portal(first);
    fakes::step_until_repair(lab.gw());
    for n in [2, 3] {
        let outcome = fakes.run(lab.gw(), &format!("kill:{n}"), &["step", "home"]);
        assert_eq!(outcome.code, None, "{}{}", outcome.stdout, outcome.stderr);
        orphans_end(&lab);
        lab.gw().reboot();
        let _recovered = step(&lab, 5);
        assert_eq!(lab.exits(), [Some(second), Some(second)], "all is there again");
    }
    let _repaired = step(&lab, 0);
    let now = on_two_slots(&lab);
    assert_ne!(now[0], first);
    assert_eq!(now[1], second);
}

#[test]
fn killed_and_then_a_daemon_dies() {
    let lab = lab();
    let [first, second] = up(&lab);
    lab.portal(first);
    fakes::step_until_repair(lab.gw());
    let fakes = Fakes::new(&lab);
    let outcome = fakes.run(lab.gw(), "kill:3", &["step", "home"]);
    assert_eq!(outcome.code, None, "{}{}", outcome.stdout, outcome.stderr);
    orphans_end(&lab);
    for pid in lab.gw().daemons() {
        space::signal(pid, rustix::process::Signal::KILL);
    }
    let _gone = space::wait_until(Duration::from_secs(2), || {
        !lab.gw().devices().iter().any(|name| name.starts_with("vpn"))
    });
    let _recovered = step(&lab, 5);
    assert_eq!(lab.exits(), [Some(second), Some(second)]);
    let _repaired = step(&lab, 0);
    assert_eq!(on_two_slots(&lab)[1], second);
}
