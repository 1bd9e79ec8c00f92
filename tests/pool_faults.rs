//! A command that fails in the middle of a change: all that was done is undone, said, and tried again.

use crate::fakes;
use crate::lab;

use fakes::{
    Fakes, is_as_before, is_in_flight, last_step, on_two_slots, planned, small_policy, world,
};
use lab::Lab;
use lab::gateway::Outcome;

/// Two clients on two slots, with endpoints to spare.
fn lab() -> Lab {
    let lab = Lab::builder().clients(2).endpoints(5).start();
    let mut policy = small_policy(&lab);
    // So many that the step that moves a client is not yet the one that repairs the slot.
    policy["params"]["local_repair_retest_count"] = 3.into();
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

/// The slots are up, the clients on them, and nothing is due. Gives the endpoints.
#[track_caller]
fn up(lab: &Lab) -> [usize; 2] {
    let _loaded = step(lab, 0);
    let _steady = step(lab, 0);
    assert_eq!(planned(lab.gw()), [""; 0]);
    on_two_slots(lab)
}

/// Commands that are processes: settings below `/proc/sys` are written by egressctl itself.
fn processes(commands: &[String]) -> usize {
    commands.iter().filter(|command| !command.starts_with("sysctl ")).count()
}

/// What a run says and leaves when its change failed and was undone.
#[track_caller]
fn was_undone(lab: &Lab, fakes: &Fakes, n: usize, outcome: &Outcome, before: &str) {
    let called = fakes.calls("change");
    let when = format!("after {called:#?}\n{}{}", outcome.stdout, outcome.stderr);
    assert_eq!(outcome.code, Some(3), "{when}");
    is_as_before(lab.gw(), before, &when);
    assert!(!is_in_flight(lab.gw()), "the journal is gone {when}");
    let last = last_step(lab.gw());
    assert_eq!(last["outcome"], "rolled-back", "{when}");
    let reasons = last["reasons"].to_string();
    assert!(reasons.contains(&called[n - 1]), "{reasons} {when}");
    assert_eq!(outcome.stdout.lines().count(), 1, "{when}");
    assert!(outcome.stdout.contains("rolled-back"), "{when}");
    assert!(outcome.stdout.contains(&called[n - 1]), "{when}");
}

/// Fails each changing command of what `args` does in turn, until one run has none left to fail.
///
/// Each run is also the one after a run that failed: it gets one command further. The number of runs is given.
fn each_command_fails(lab: &Lab, args: &[&str]) -> usize {
    let fakes = Fakes::new(lab);
    let before = world(lab.gw());
    for n in 1..200 {
        let outcome = fakes.run(lab.gw(), &format!("fail:{n}"), args);
        if fakes.calls("change").len() < n {
            assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
            return n - 1;
        }
        was_undone(lab, &fakes, n, &outcome, &before);
    }
    panic!("{args:?} does not come to its end");
}

#[test]
fn each_command_of_the_first_run_fails_in_turn() {
    let lab = lab();
    let planned = planned(lab.gw());
    let failed = each_command_fails(&lab, &["step", "home"]);
    assert_eq!(failed, processes(&planned), "{planned:#?}");
    let _slots = on_two_slots(&lab);
}

#[test]
fn each_command_of_a_move_and_of_a_repair_fails_in_turn() {
    let lab = lab();
    let [first, second] = up(&lab);
    lab.portal(first);
    let (mark, before) = (lab.capture.mark(), world(lab.gw()));
    let moved = each_command_fails(&lab, &["step", "home"]);
    assert!(moved >= 1, "the step that sees the failure moves the client");
    assert_ne!(world(lab.gw()), before);
    assert_eq!(lab.exits(), [Some(second), Some(second)], "no client is left on the dead slot");

    fakes::step_until_repair(lab.gw());
    let planned = planned(lab.gw());
    let failed = each_command_fails(&lab, &["step", "home"]);
    assert_eq!(failed, processes(&planned), "{planned:#?}");
    let now = on_two_slots(&lab);
    assert_ne!(now[0], first, "the slot is on another endpoint, its client home");
    assert_eq!(now[1], second);
    assert_eq!(lab.capture.leaks_since(mark), []);
}

#[test]
fn each_command_of_down_fails_in_turn() {
    let lab = lab();
    let bare = world(lab.gw());
    let _slots = up(&lab);
    let failed = each_command_fails(&lab, &["down", "home"]);
    assert!(failed > 10, "rules, table and tunnels are removed one by one: {failed}");
    is_as_before(lab.gw(), &bare, "down leaves nothing behind");
    assert_eq!(lab.gw().daemons().len(), 0);
    assert_eq!(lab.client(1).exit(), Some("10.77.0.11".to_owned()));
    assert!(lab.gw().state("home").unwrap()["body"]["paused"].is_object());
}

#[test]
fn a_down_that_was_undone_pauses_nothing() {
    let lab = lab();
    let slots = up(&lab);
    let (fakes, before) = (Fakes::new(&lab), world(lab.gw()));
    let outcome = fakes.run(lab.gw(), "fail:5", &["down", "home"]);
    was_undone(&lab, &fakes, 5, &outcome, &before);
    assert!(lab.gw().state("home").unwrap()["body"]["paused"].is_null());
    let _steady = step(&lab, 0);
    is_as_before(lab.gw(), &before, "there is nothing left to mend");
    assert_eq!(on_two_slots(&lab), slots);
}

/// Everything fails from the n-th command on, the undoing too: the journal stays for the next run.
#[track_caller]
fn stuck_then_recovered(lab: &Lab, args: &[&str], at: &[usize]) {
    let (fakes, before) = (Fakes::new(lab), world(lab.gw()));
    for n in at {
        let outcome = fakes.run(lab.gw(), &format!("fail-from:{n}"), args);
        let when = format!("{args:?} from {n}: {}{}", outcome.stdout, outcome.stderr);
        assert_eq!(outcome.code, Some(4), "{when}");
        assert!(is_in_flight(lab.gw()), "{when}");
        // A second try that fails as well changes nothing about that.
        let outcome = fakes.run(lab.gw(), "fail-from:1", &["step", "home"]);
        assert_eq!(outcome.code, Some(4), "{when}, then {}{}", outcome.stdout, outcome.stderr);
        assert!(is_in_flight(lab.gw()), "{when}");
        let outcome = step(lab, 5);
        assert!(outcome.stdout.contains("recovered"), "{}", outcome.stdout);
        assert!(!is_in_flight(lab.gw()), "{when}");
        is_as_before(lab.gw(), &before, &when);
    }
}

#[test]
fn a_rollback_that_fails_too_is_made_good_by_the_next_run() {
    let lab = lab();
    stuck_then_recovered(&lab, &["step", "home"], &[2, 7, 14, 20]);
    let [first, second] = up(&lab);
    stuck_then_recovered(&lab, &["down", "home"], &[2, 9]);
    lab.portal(first);
    let mark = lab.capture.mark();
    fakes::step_until_repair(lab.gw());
    stuck_then_recovered(&lab, &["step", "home"], &[2, 3]);
    let _done = step(&lab, 0);
    let now = on_two_slots(&lab);
    assert_ne!(now[0], first);
    assert_eq!(now[1], second);
    assert_eq!(lab.capture.leaks_since(mark), []);
}

#[test]
fn a_change_that_cannot_be_read_back_is_undone_or_left_to_the_next_run() {
    let lab = lab();
    let (fakes, before) = (Fakes::new(&lab), world(lab.gw()));
    for program in ["ip", "wg", "nft"] {
        let fault = format!("fail-read:{program}:12");
        let outcome = fakes.run(lab.gw(), &fault, &["step", "home"]);
        let when = format!("{fault}: {}{}", outcome.stdout, outcome.stderr);
        // What cannot be looked at cannot be undone for certain either.
        assert_eq!(outcome.code, Some(4), "{when}");
        assert!(is_in_flight(lab.gw()), "{when}");
        let _recovered = step(&lab, 5);
        is_as_before(lab.gw(), &before, &when);
    }
    let _slots = up(&lab);
}

#[test]
fn a_look_that_fails_touches_nothing() {
    let lab = lab();
    let fakes = Fakes::new(&lab);
    let looks_fail = |commands: &[&str]| {
        let before = world(lab.gw());
        for program in ["ip", "wg", "nft"] {
            for command in commands {
                let fault = format!("fail-read:{program}:0");
                let outcome = fakes.run(lab.gw(), &fault, &[command, "home"]);
                let when = format!("{program} {command}: {}{}", outcome.stdout, outcome.stderr);
                assert_eq!(outcome.code, Some(1), "{when}");
                assert!(when.contains("the test makes this fail"), "{when}");
                assert_eq!(when.lines().count(), 1, "{when}");
                assert_eq!(fakes.calls("change"), [""; 0], "{when}");
                assert_eq!(world(lab.gw()), before, "{when}");
                assert!(!is_in_flight(lab.gw()), "{when}");
            }
        }
    };
    looks_fail(&["step", "plan"]);
    let slots = up(&lab);
    looks_fail(&["step", "plan", "down"]);
    let _steady = step(&lab, 0);
    assert_eq!(on_two_slots(&lab), slots);
}

#[test]
fn trouble_with_a_test_interface_is_not_held_against_the_candidate() {
    let lab = lab();
    let (fakes, before) = (Fakes::new(&lab), world(lab.gw()));
    let outcome = fakes.run(lab.gw(), "fail-trial:1", &["step", "home"]);
    let when = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(matches!(outcome.code, Some(0 | 1)), "{when}");
    assert_eq!(fakes.calls("change"), [""; 0], "nothing untested is loaded: {when}");
    let state = lab.gw().state("home").unwrap()["body"]["machine"].to_string();
    assert!(!state.contains("Failed"), "no candidate is blamed: {state}");
    is_as_before(lab.gw(), &before, &when);
    let _step = step(&lab, 0);
    assert!(!lab.gw().devices().iter().any(|name| name.starts_with("vpnt")), "none is left");
    let _slots = on_two_slots(&lab);
}

#[test]
fn a_test_interface_that_could_not_be_removed_is_gone_after_the_next_step() {
    for n in [4, 8, 16] {
        let lab = lab();
        let mut policy = small_policy(&lab);
        policy["params"]["bootstrap_retry_interval_sec"] = 600.into();
        lab.gw().policy("home", &policy);
        let fakes = Fakes::new(&lab);
        let outcome = fakes.run(lab.gw(), &format!("fail-trial:{n}"), &["step", "home"]);
        let when = format!("{n}: {}{}", outcome.stdout, outcome.stderr);
        assert!(outcome.code.is_some_and(|code| code != 4), "{when}");
        // No candidate is tested anew now, which would take the name, and no key may be up twice.
        let next = lab.gw().egressctl(&["step", "home"]);
        let left: Vec<String> =
            lab.gw().devices().into_iter().filter(|name| name.starts_with("vpnt")).collect();
        assert_eq!(left, [""; 0], "{when}then {:?}: {}", next.code, next.stdout);
    }
}

/// Case C38.
#[test]
fn open_flows_that_cannot_be_ended_are_a_note_and_no_failure() {
    let lab = lab();
    let [first, second] = up(&lab);
    lab.portal(first);
    let fakes = Fakes::new(&lab);
    let mut noted = false;
    for _ in 0..2 {
        let outcome = fakes.run(lab.gw(), "fail-cut:0", &["step", "home"]);
        assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
        noted |= outcome.stdout.contains("open flows were not ended");
        assert_eq!(fakes.calls("cut").is_empty(), !outcome.stdout.contains("open flows"));
    }
    assert!(noted, "the step that moves the client wants to end its flows");
    assert_eq!(lab.client(2).endpoint(), Some(second));
    assert!(lab.client(1).endpoint().is_some_and(|now| now != first));
}

#[test]
fn what_cannot_be_written_at_the_end_leaves_no_half_change() {
    let lab = lab();
    let before = world(lab.gw());
    let barrier = lab.gw().state_dir().join("home/barrier.nft");
    std::fs::create_dir_all(&barrier).unwrap();
    let outcome = lab.gw().egressctl(&["step", "home"]);
    fakes::no_panic(&outcome);
    let when = format!("{:?} {}{}", outcome.code, outcome.stdout, outcome.stderr);
    assert!(matches!(outcome.code, Some(1 | 3 | 4)), "{when}");
    assert!(outcome.stdout.contains("barrier.nft"), "{when}");
    std::fs::remove_dir(&barrier).unwrap();
    if is_in_flight(lab.gw()) {
        let _recovered = step(&lab, 5);
    }
    is_as_before(lab.gw(), &before, &when);
    let _slots = up(&lab);
}

#[test]
fn a_disk_that_is_full_when_the_state_is_written_leaves_no_half_change() {
    let lab = lab();
    let (fakes, before) = (Fakes::new(&lab), world(lab.gw()));
    let states = lab.gw().state_dir().display().to_string();
    let shell = |script: &str| lab::space::run(lab.gw().command("sh").args(["-c", script]), "");
    let _mounted = shell(&format!("mount -t tmpfs -o size=1m lab {states}"));
    let mut first = fakes.spawn(lab.gw(), "slow:20", &["step", "home"]);
    let reached = || fakes.calls("change").len() == 20;
    assert!(lab::space::wait_until(std::time::Duration::from_secs(10), reached));
    let _full = shell(&format!("cat /dev/zero >{states}/filler 2>/dev/null; true"));
    let code = first.wait().unwrap().code();
    assert!(matches!(code, Some(1 | 3 | 4)), "{code:?}");
    let again = lab.gw().egressctl(&["step", "home"]);
    fakes::no_panic(&again);
    assert_ne!(again.code, Some(0), "the disk is still full: {}", again.stdout);
    let _free = shell(&format!("rm {states}/filler"));
    if lab.gw().file(&states).join("home/journal.json").exists() {
        let _recovered = step(&lab, 5);
    }
    is_as_before(lab.gw(), &before, &format!("{code:?}, then {:?}", again.code));
    let _slots = up(&lab);
}

#[test]
fn a_setting_that_cannot_be_written_is_undone() {
    let lab = lab();
    let before = world(lab.gw());
    let shell = |script: &str| lab::space::run(lab.gw().command("sh").args(["-c", script]), "");
    let folder = "/proc/sys/net/ipv4/conf/eth0";
    let _ro =
        shell(&format!("mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}"));
    let outcome = step(&lab, 3);
    assert!(outcome.stdout.contains("net/ipv4/conf/eth0/src_valid_mark"), "{}", outcome.stdout);
    is_as_before(lab.gw(), &before, &outcome.stdout);
    assert!(!is_in_flight(lab.gw()));
    let _rw = shell(&format!("umount {folder}"));
    let _slots = up(&lab);
}
