//! A state that is newer, torn, foreign or another's: nothing is lost by it and no client is moved.

use crate::fakes;
use crate::lab;

use fakes::{is_as_before, on_two_slots, small_policy, world};
use lab::Lab;
use lab::gateway::Outcome;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn lab() -> Lab {
    let lab = Lab::builder().clients(2).endpoints(4).start();
    lab.gw().policy("home", &small_policy(&lab));
    lab
}

#[track_caller]
fn run(lab: &Lab, args: &[&str], code: i32) -> Outcome {
    let outcome = lab.gw().egressctl(args);
    fakes::no_panic(&outcome);
    assert_eq!(outcome.code, Some(code), "{args:?}: {}{}", outcome.stdout, outcome.stderr);
    outcome
}

#[track_caller]
fn up(lab: &Lab) -> [usize; 2] {
    let _loaded = run(lab, &["step", "home"], 0);
    let _steady = run(lab, &["step", "home"], 0);
    on_two_slots(lab)
}

fn folder(lab: &Lab) -> PathBuf {
    lab.gw().state_dir().join("home")
}

/// What tells whether a tunnel was made or configured anew: device numbers, ports and sessions.
fn sessions(lab: &Lab) -> String {
    let links = lab.gw().ip("-o link show");
    let numbers: Vec<&str> = links.lines().filter_map(|line| line.split(" mtu ").next()).collect();
    let names = ["vpn1", "vpn2"].map(|name| lab.gw().wg(&format!("show {name} listen-port"), ""));
    numbers.join("\n") + &names.concat() + &format!("{:?}", lab.gw().daemons())
}

/// Files of a state folder with what is in them, but for the lock and history.
fn kept(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = fs::read_dir(folder)
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .filter(|(name, _)| name != "lock")
        .map(|(name, path)| (name, fs::read(path).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_state_of_a_newer_version_is_left_alone() {
    let lab = lab();
    let slots = up(&lab);
    let path = folder(&lab).join("state.json");
    let mut state: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    state["version"] = 2.into();
    state["body"] = serde_json::json!({ "of another": ["shape"] });
    fs::write(&path, serde_json::to_vec(&state).unwrap()).unwrap();
    let (before, files, sessions_before) = (world(lab.gw()), kept(&folder(&lab)), sessions(&lab));
    for name in ["step", "down", "pause", "resume", "plan"] {
        let outcome = run(&lab, &[name, "home"], 1);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert_eq!(said.lines().count(), 1, "{said}");
        for word in ["home", "version 2", "newer", "use the newer egressctl"] {
            assert!(said.contains(word), "{word:?} is not in: {said}");
        }
        assert_eq!(kept(&folder(&lab)), files, "{name} touches no file");
        assert_eq!(world(lab.gw()), before, "{name}");
    }
    let status = run(&lab, &["status", "home"], 3);
    assert!(format!("{}{}", status.stdout, status.stderr).contains("version 2"));
    assert_eq!(sessions(&lab), sessions_before);
    assert_eq!(on_two_slots(&lab), slots);
}

/// Spoils the state, and the backup too if `both`; the next step goes on without touching what works.
#[track_caller]
fn goes_on(lab: &Lab, what: &str, both: bool, spoil: impl Fn(&Path)) {
    let slots = on_two_slots(lab);
    let (before, numbers) = (world(lab.gw()), sessions(lab));
    let mut open = lab.client(1).tcp_flow().unwrap();
    let leaves = open.ping();
    assert!(leaves.is_ok(), "{what}");
    spoil(&folder(lab).join("state.json"));
    if both {
        spoil(&folder(lab).join("state.json.bak"));
    }
    let outcome = lab.gw().egressctl(&["step", "home"]);
    fakes::no_panic(&outcome);
    let when = format!("{what}, both: {both}: {}{}", outcome.stdout, outcome.stderr);
    assert_eq!(outcome.code, Some(0), "{when}");
    let aside = fs::read_dir(folder(lab))
        .unwrap()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("state.json.bad-"));
    assert!(aside || what == "missing", "kept aside: {when}");
    assert!(outcome.stdout.contains("state"), "it is said: {when}");
    is_as_before(lab.gw(), &before, &when);
    assert_eq!(sessions(lab), numbers, "no working tunnel is loaded again: {when}");
    assert_eq!(on_two_slots(lab), slots, "no client is moved: {when}");
    assert_eq!(open.ping(), leaves, "open flows live: {when}");
    let state = lab.gw().state("home").expect("a state is written again");
    // How the kernel lists the table is known from the state alone, so it may be loaded once more.
    let ending = state["body"]["last_step"]["outcome"].as_str().unwrap();
    assert!(ending == "steady" || both && ending == "applied", "{when}");
    let _steady = run(lab, &["step", "home"], 0);
    is_as_before(lab.gw(), &before, &when);
    assert_eq!(run(lab, &["status", "home"], 0).code, Some(0), "as wished: {when}");
}

fn torn(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

fn empty(path: &Path) {
    fs::write(path, "").unwrap();
}

fn missing(path: &Path) {
    let _gone = fs::remove_file(path);
}

fn foreign(path: &Path) {
    let mut state: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    state["kind"] = "selector".into();
    fs::write(path, serde_json::to_vec(&state).unwrap()).unwrap();
}

fn noise(path: &Path) {
    fs::write(path, [0xff, 0, 0x7b, 0x7d]).unwrap();
}

#[test]
fn a_lost_state_is_taken_from_its_backup() {
    let lab = lab();
    let _slots = up(&lab);
    goes_on(&lab, "torn", false, torn);
    goes_on(&lab, "empty", false, empty);
    goes_on(&lab, "missing", false, missing);
    goes_on(&lab, "of another kind", false, foreign);
    goes_on(&lab, "noise", false, noise);
}

#[test]
fn a_state_that_is_torn_with_its_backup_is_rebuilt_from_the_kernel() {
    let lab = lab();
    let _slots = up(&lab);
    goes_on(&lab, "torn", true, torn);
}

#[test]
fn a_state_that_is_gone_with_its_backup_is_rebuilt_from_the_kernel() {
    let lab = lab();
    let _slots = up(&lab);
    goes_on(&lab, "missing", true, missing);
}

#[test]
fn a_state_of_another_kind_is_rebuilt_from_the_kernel() {
    let lab = lab();
    let _slots = up(&lab);
    goes_on(&lab, "of another kind", true, foreign);
}

#[test]
fn what_was_changed_on_the_host_is_given_back_also_when_the_state_was_rebuilt() {
    let lab = lab();
    let bare = world(lab.gw());
    let _slots = up(&lab);
    missing(&folder(&lab).join("state.json"));
    missing(&folder(&lab).join("state.json.bak"));
    let _rebuilt = run(&lab, &["step", "home"], 0);
    let _down = run(&lab, &["down", "home"], 0);
    // What `src_valid_mark` was before went with the state; all else is known by its marks of ownership.
    let but_sysctl = |world: &str| {
        let lines = world.lines().filter(|line| !line.starts_with("eth0/src_valid_mark"));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(but_sysctl(&world(lab.gw())), but_sysctl(&bare));
}

#[test]
fn a_torn_journal_means_that_nothing_had_begun() {
    let lab = lab();
    let slots = up(&lab);
    let before = world(lab.gw());
    fs::write(folder(&lab).join("journal.json"), "{\"version\":1,\"kind\":\"po").unwrap();
    let outcome = run(&lab, &["step", "home"], 0);
    assert!(outcome.stdout.contains("journal"), "{}", outcome.stdout);
    is_as_before(lab.gw(), &before, "a torn journal");
    assert!(!fakes::is_in_flight(lab.gw()));
    assert_eq!(on_two_slots(&lab), slots);
}

#[test]
fn the_same_name_from_another_path_needs_to_be_adopted() {
    let lab = lab();
    let slots = up(&lab);
    let (before, files, numbers) = (world(lab.gw()), kept(&folder(&lab)), sessions(&lab));
    let elsewhere = lab.folder().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let moved = elsewhere.join("home.json");
    fs::rename(lab.gw().policy_dir().join("home.json"), &moved).unwrap();
    let moved = moved.to_str().unwrap();
    for name in ["step", "down", "pause"] {
        let outcome = run(&lab, &[name, moved], 1);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert_eq!(said.lines().count(), 1, "{said}");
        for word in ["home", "--adopt", moved, lab.gw().policy_dir().to_str().unwrap()] {
            assert!(said.contains(word), "{word:?} is not in: {said}");
        }
        assert_eq!(kept(&folder(&lab)), files, "{name}");
        assert_eq!(world(lab.gw()), before, "{name}");
    }
    let _adopted = run(&lab, &["step", moved, "--adopt"], 0);
    is_as_before(lab.gw(), &before, "adopted");
    assert_eq!((sessions(&lab), on_two_slots(&lab)), (numbers, slots));
    assert_eq!(lab.gw().state("home").unwrap()["path"], moved);
    let _steady = run(&lab, &["step", moved], 0);
}
