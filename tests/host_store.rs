//! State folders after crashes, power cuts and strangers.

use egressctl::host::store::{Folder, Held, Loaded, Opened, ReadOnly, open_locked, read_only};
use egressctl::names::PolicyName;
use egressctl::time::Moment;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    word: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Journal {
    undo: Vec<String>,
}

const POLICY: &str = "/etc/egressctl/home.json";

fn now() -> Moment {
    Moment { at: "2026-11-30T02:17:44Z".parse().unwrap(), boot: "a".into(), up_ms: 1_000 }
}

fn body(word: &str) -> Body {
    Body { word: word.to_owned() }
}

fn journal() -> Journal {
    Journal { undo: vec!["ip rule del".to_owned()] }
}

fn home(root: &Path) -> Folder {
    Folder::new(root, PolicyName::try_from("home".to_owned()).unwrap())
}

fn open(folder: &Folder) -> Opened<Body, Journal> {
    open_locked(folder, "sample", Path::new(POLICY), false, &now()).unwrap()
}

fn held(folder: &Folder) -> Held<Body, Journal> {
    match open(folder) {
        Opened::Held(held) => held,
        Opened::Busy => panic!("busy"),
        Opened::Newer { found, .. } => panic!("newer {found}"),
        Opened::OtherPath { recorded } => panic!("other path {}", recorded.display()),
    }
}

fn names(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn two_commits(folder: &Folder) {
    for word in ["one", "two"] {
        held(folder).commit(&body(word), &now()).unwrap();
    }
}

#[test]
fn a_first_run_finds_nothing_and_a_second_what_the_first_left() {
    let root = tempfile::tempdir().unwrap();
    let folder = home(root.path());
    let mut first = held(&folder);
    assert_eq!(first.loaded(), &Loaded::Nothing);
    first.begin(&journal()).unwrap();
    assert!(folder.path().join("journal.json").exists());
    assert!(first.begin(&journal()).is_err(), "one change at a time");
    first.commit(&body("one"), &now()).unwrap();
    drop(first);
    assert_eq!(names(&folder), ["lock", "state.json"]);
    let mut second = held(&folder);
    assert_eq!(second.loaded(), &Loaded::Good(body("one")));
    second.commit(&body("two"), &now()).unwrap();
    assert_eq!(second.about().unwrap().generation, 2);
    drop(second);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder.path()), 0o700);
    for file in ["state.json", "state.json.bak", "lock"] {
        assert_eq!(mode(&folder.path().join(file)), 0o600, "{file}");
    }
    let text = fs::read_to_string(folder.path().join("state.json")).unwrap();
    assert_eq!(
        text.trim_end(),
        "{\"version\":1,\"kind\":\"sample\",\"policy\":\"home\",\"path\":\"/etc/egressctl/home.json\",\
         \"generation\":2,\"saved_at\":\"2026-11-30T02:17:44Z\",\"body\":{\"word\":\"two\"}}"
    );
    assert!(fs::read_to_string(folder.path().join("state.json.bak")).unwrap().contains("one"));
}

#[test]
fn a_change_goes_on_in_its_own_journal_and_in_no_other() {
    let root = tempfile::tempdir().unwrap();
    let folder = home(root.path());
    let mut run = held(&folder);
    assert!(run.go_on(&journal()).is_err(), "nothing was begun");
    run.begin(&journal()).unwrap();
    let text = || fs::read_to_string(folder.path().join("journal.json")).unwrap();
    let begun = text();
    run.go_on(&Journal { undo: vec!["more".to_owned()] }).unwrap();
    assert!(text().contains("more") && !begun.contains("more"));
    drop(run);
    let mut next = held(&folder);
    assert!(next.go_on(&journal()).is_err(), "it is another run's");
    assert!(text().contains("more"));
}

#[test]
fn a_run_that_died_leaves_its_journal_to_the_next() {
    let root = tempfile::tempdir().unwrap();
    let folder = home(root.path());
    two_commits(&folder);
    held(&folder).begin(&journal()).unwrap();
    let mut next = held(&folder);
    assert_eq!(next.journal(), Some(&journal()));
    assert!(next.begin(&journal()).is_err());
    next.commit(&body("undone"), &now()).unwrap();
    drop(next);
    assert_eq!(held(&folder).journal(), None);
}

#[test]
fn a_crash_after_the_state_and_before_the_journal_went_undoes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let folder = home(root.path());
    two_commits(&folder);
    let mut run = held(&folder);
    run.begin(&journal()).unwrap();
    let saved = fs::read(folder.path().join("journal.json")).unwrap();
    run.commit(&body("three"), &now()).unwrap();
    drop(run);
    fs::write(folder.path().join("journal.json"), saved).unwrap();
    let next = held(&folder);
    assert_eq!(next.loaded(), &Loaded::Good(body("three")));
    assert_eq!(next.journal(), None);
    assert!(!folder.path().join("journal.json").exists());
}

/// Every combination of files between the primitives of a commit: the link of the backup under its
/// first name, the backup renamed, the new state beside it, the new state renamed.
#[test]
fn a_crash_between_any_two_writes_leaves_a_whole_state() {
    for crash in 0..5 {
        let root = tempfile::tempdir().unwrap();
        let folder = home(root.path());
        two_commits(&folder);
        held(&folder).begin(&journal()).unwrap();
        let file = |name: &str| folder.path().join(name);
        let third = fs::read_to_string(file("state.json")).unwrap().replace("two", "three");
        let third = third.replace("\"generation\":2", "\"generation\":3");
        if crash >= 1 {
            fs::hard_link(file("state.json"), file(".egressctl-backup")).unwrap();
        }
        if crash >= 2 {
            fs::rename(file(".egressctl-backup"), file("state.json.bak")).unwrap();
        }
        if crash >= 3 {
            fs::write(file(".egressctl-x1"), &third[..third.len() / 2]).unwrap();
        }
        if crash >= 4 {
            fs::write(file(".egressctl-x1"), &third).unwrap();
            fs::rename(file(".egressctl-x1"), file("state.json")).unwrap();
        }
        let mut next = held(&folder);
        let expected = if crash >= 4 { "three" } else { "two" };
        assert_eq!(next.loaded(), &Loaded::Good(body(expected)), "crash {crash}");
        assert_eq!(next.journal().is_some(), crash < 4, "crash {crash}");
        next.commit(&body("four"), &now()).unwrap();
        drop(next);
        assert_eq!(names(&folder), ["lock", "state.json", "state.json.bak"], "crash {crash}");
        let backup = fs::read_to_string(file("state.json.bak")).unwrap();
        assert!(backup.contains(expected), "crash {crash}: {backup}");
    }
}

#[test]
fn a_bad_state_is_kept_aside_and_its_backup_used() {
    let other_kind = "{\"version\":1,\"kind\":\"dns\"}";
    let other_policy = include_str!("fixtures/state-v1-envelope.json").replace("home", "work");
    for bad in ["", "{\"version\":1,\"ki", "null", "\u{0}\u{0}", other_kind, &other_policy] {
        let root = tempfile::tempdir().unwrap();
        let folder = home(root.path());
        two_commits(&folder);
        let state = folder.path().join("state.json");
        fs::write(folder.path().join(".egressctl-good"), fs::read(&state).unwrap()).unwrap();
        fs::write(folder.path().join("state.json.bad-20261130T021744Z"), "earlier").unwrap();
        fs::write(&state, bad).unwrap();
        match read_only::<Body>(&folder, "sample") {
            ReadOnly::Seen { loaded: Loaded::FromBackup { body: b, .. }, .. } => {
                assert_eq!(b, body("one"));
            }
            ReadOnly::Seen { .. } | ReadOnly::Newer { .. } => panic!("{bad:?}"),
        }
        let mut next = held(&folder);
        match next.loaded() {
            Loaded::FromBackup { body: b, why } => {
                assert_eq!(b, &body("one"));
                assert!(why.starts_with("state.json: "), "{why}");
            }
            Loaded::Nothing | Loaded::Good(_) | Loaded::Lost { .. } => panic!("{bad:?}"),
        }
        let aside = folder.path().join("state.json.bad-20261130T021744Z-2");
        assert_eq!(fs::read(aside).unwrap(), bad.as_bytes());
        assert!(folder.path().join(".egressctl-good").exists(), "kept for a person to look at");
        next.commit(&body("again"), &now()).unwrap();
        assert_eq!(next.about().unwrap().generation, 2);
        drop(next);
        assert_eq!(held(&folder).loaded(), &Loaded::Good(body("again")));
    }
}

#[test]
fn a_missing_state_with_a_backup_is_not_a_first_run() {
    let root = tempfile::tempdir().unwrap();
    let folder = home(root.path());
    two_commits(&folder);
    fs::remove_file(folder.path().join("state.json")).unwrap();
    assert!(matches!(held(&folder).loaded(), Loaded::FromBackup { .. }));
    fs::write(folder.path().join("state.json.bak"), "").unwrap();
    assert!(matches!(held(&folder).loaded(), Loaded::Lost { .. }));
}

#[test]
fn a_newer_version_is_told_as_such_and_nothing_touched() {
    for file in ["state.json", "state.json.bak", "journal.json"] {
        let root = tempfile::tempdir().unwrap();
        let folder = home(root.path());
        two_commits(&folder);
        fs::write(folder.path().join("state.json"), "").unwrap();
        let newer = "{\"version\":9,\"kind\":\"sample\",\"shape\":[\"unknown\"]}";
        fs::write(folder.path().join(file), newer).unwrap();
        let before = names(&folder);
        assert!(matches!(open(&folder), Opened::Newer { found: 9, known: 1 }), "{file}");
        assert_eq!(names(&folder), before);
    }
}

#[test]
fn a_state_of_another_path_needs_a_word() {
    let root = tempfile::tempdir().unwrap();
    let folder = home(root.path());
    two_commits(&folder);
    let elsewhere = Path::new("/root/home.json");
    let opened = open_locked::<Body, Journal>(&folder, "sample", elsewhere, false, &now()).unwrap();
    assert!(matches!(opened, Opened::OtherPath { recorded } if recorded == Path::new(POLICY)));
    let opened = open_locked::<Body, Journal>(&folder, "sample", elsewhere, true, &now()).unwrap();
    let Opened::Held(mut adopted) = opened else { panic!("not adopted") };
    adopted.commit(&body("mine"), &now()).unwrap();
    drop(adopted);
    assert!(matches!(open(&folder), Opened::OtherPath { .. }));
}

#[test]
fn a_torn_journal_means_that_nothing_began() {
    let root = tempfile::tempdir().unwrap();
    let folder = home(root.path());
    two_commits(&folder);
    fs::write(folder.path().join("journal.json"), "{\"version\":1,").unwrap();
    let next = held(&folder);
    assert_eq!(next.journal(), None);
    assert!(next.notes().iter().any(|note| note.contains("never complete")), "{:?}", next.notes());
    assert!(folder.path().join("journal.json.bad-20261130T021744Z").exists());
}

#[test]
fn one_run_at_a_time_and_children_do_not_hold_the_lock() {
    let root = tempfile::tempdir().unwrap();
    let folder = home(root.path());
    let first = held(&folder);
    assert!(matches!(open(&folder), Opened::Busy));
    let lock = folder.path().join("lock");
    let flock = format!("flock -n {} true", lock.display());
    let other = std::process::Command::new("sh").args(["-c", &flock]).status().unwrap();
    assert!(!other.success(), "another process is kept out");
    let mut child = std::process::Command::new("sleep").arg("5").spawn().unwrap();
    drop(first);
    // A process that another test of this program is starting holds it until it has become itself.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(3);
    while matches!(open(&folder), Opened::Busy) {
        assert!(std::time::Instant::now() < deadline, "the child holds it");
        std::thread::yield_now();
    }
    assert!(child.try_wait().unwrap().is_none(), "the child lived through all of this");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn history_keeps_a_thousand_lines_and_survives_a_torn_one() {
    let root = tempfile::tempdir().unwrap();
    let folder = home(root.path());
    let run = held(&folder);
    let path = folder.path().join("history.jsonl");
    let lines = "{\"n\":1}\n".repeat(999);
    fs::write(&path, format!("{lines}{{\"n\":99")).unwrap();
    for n in [1_000, 1_001, 1_002] {
        run.remember(&format!("{{\"n\":{n}}}\n")).unwrap();
        assert!(fs::read_to_string(&path).unwrap().lines().count() <= 1_000);
    }
    assert_eq!(folder.history(2).unwrap(), ["{\"n\":1001}", "{\"n\":1002}"]);
    assert_eq!(folder.history(5_000).unwrap().len(), 999);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_symbolic_link_in_place_of_the_folder_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), root.path().join("home")).unwrap();
    let refused = open_locked::<Body, Journal>(
        &home(root.path()),
        "sample",
        Path::new(POLICY),
        false,
        &now(),
    );
    assert!(refused.is_err_and(|why| format!("{why:#}").contains("symbolic link")));
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_that_cannot_be_made_gives_one_clear_line() {
    let folder = home(Path::new("/proc/egressctl"));
    let opened = open_locked::<Body, Journal>(&folder, "sample", Path::new(POLICY), false, &now());
    let Err(why) = opened else { panic!("made") };
    let told = format!("{why:#}");
    assert!(told.contains("/proc/egressctl/home") && told.contains("writable"), "{told}");
    assert_eq!(told.lines().count(), 1);
    assert!(matches!(
        read_only::<Body>(&folder, "sample"),
        ReadOnly::Seen { loaded: Loaded::Nothing, about: None, is_in_flight: false }
    ));
}

#[test]
fn reading_only_makes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let folder = home(root.path());
    let seen = read_only::<Body>(&folder, "sample");
    assert!(matches!(seen, ReadOnly::Seen { loaded: Loaded::Nothing, .. }));
    assert!(folder.history(5).unwrap().is_empty());
    assert!(!folder.path().exists());
}

#[test]
fn the_first_version_loads_for_ever() {
    let root = tempfile::tempdir().unwrap();
    let folder = home(root.path());
    fs::create_dir(folder.path()).unwrap();
    let text = include_str!("fixtures/state-v1-envelope.json");
    fs::write(folder.path().join("state.json"), text).unwrap();
    let run = held(&folder);
    assert_eq!(run.loaded(), &Loaded::Good(body("kept")));
    assert_eq!(run.about().unwrap().generation, 41);
    drop(run);
    fs::write(folder.path().join("state.json"), text.replace("\"version\":1", "\"version\":0"))
        .unwrap();
    assert!(matches!(held(&folder).loaded(), Loaded::Lost { why } if why.contains("version 0")));
}

/// A state that is written and never read again is a lost one.
#[test]
fn what_is_too_long_to_be_read_again_is_not_written() {
    let root = tempfile::tempdir().unwrap();
    let folder = home(root.path());
    two_commits(&folder);
    let long = "x".repeat(33 << 20);
    let mut run = held(&folder);
    let why = run.begin(&Journal { undo: vec![long.clone()] }).unwrap_err().to_string();
    assert!(why.contains("journal.json") && why.contains("read back"), "{why}");
    assert!(!run.is_in_flight() && !run.is_open(), "nothing begins");
    run.begin(&journal()).unwrap();
    let why = run.commit(&body(&long), &now()).unwrap_err().to_string();
    assert!(why.contains("state.json"), "{why}");
    assert!(run.is_open(), "and what was begun can be taken back");
    drop(run);
    assert_eq!(held(&folder).loaded(), &Loaded::Good(body("two")));
}
