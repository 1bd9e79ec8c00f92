//! The control API of a proxy core: what is read, what is written, and cores that misbehave.

use crate::fake_core;

use egressctl::clash::choice::{Choice, Confirmed, judge};
use egressctl::host::{clash, core, cut};
use egressctl::machine::Cut;
use egressctl::observation::{
    ConfigReading, CoreFault, CoreQuestion, CoreSeen, GroupFault, Life, Program,
};
use egressctl::setting::{Control, Core as At};
use egressctl::url::Target;
use fake_core::{Core, FakeCore, Fault};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A group and members as people name them.
const GROUP: &str = "🌍 out/all #1";
const MEMBERS: [&str; 3] = ["a b", "c/d?", "ü+%"];

fn at(fake: &FakeCore) -> At {
    let url = Target::try_from(fake.url()).unwrap();
    At { control: Control::Http(url), secret_file: None, secret_in: None }
}

fn with_secret(fake: &FakeCore, file: &Path) -> At {
    At { secret_file: Some(file.to_owned()), ..at(fake) }
}

fn look(at: &At, groups: &[&str]) -> Result<CoreSeen, CoreFault> {
    let question = CoreQuestion {
        turn: 0,
        core: at.clone(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect::<BTreeSet<_>>(),
        traffic: true,
        config: false,
        process: None,
    };
    core::look(&question).unwrap().core
}

fn secret(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join(format!("secret-{text}"));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_look_tells_the_program_the_groups_and_what_flows() {
    for (core, program, version) in [
        (Core::sing_box(GROUP, &MEMBERS), Program::SingBox, "sing-box 1.14.4"),
        (Core::mihomo(GROUP, &MEMBERS), Program::Mihomo, "v1.19.12"),
    ] {
        let fake = FakeCore::start(core);
        let seen = look(&at(&fake), &[GROUP, "none"]).unwrap();
        assert_eq!((seen.program, seen.version.as_str()), (program, version));
        let group = seen.groups[GROUP].as_ref().unwrap();
        assert_eq!(
            (group.now.as_str(), group.all.as_slice()),
            ("a b", &MEMBERS.map(String::from)[..])
        );
        assert_eq!(seen.groups["none"], Err(GroupFault::Missing));
        let flows = seen.traffic.unwrap().unwrap();
        assert_eq!((flows.received, flows.sent, flows.flows.len()), (1_000, 500, 0));
        // The fake runs in this process, and who runs a test may see his own.
        let process = seen.life.process.unwrap();
        assert_eq!(process.pid, std::process::id());
        assert_eq!(seen.life.totals, Some((1_000, 500)));
    }
}

/// Case C51.
#[test]
fn a_name_of_any_kind_is_selected_and_read_back() {
    let fake = FakeCore::start(Core::sing_box(GROUP, &MEMBERS));
    for member in MEMBERS {
        clash::select(&at(&fake), GROUP, member).unwrap();
        assert_eq!(clash::selected(&at(&fake), GROUP).as_deref(), Ok(member));
    }
    let asked = fake.core().asked.clone();
    assert_eq!(asked[0], "PUT /proxies/%F0%9F%8C%8D%20out%2Fall%20%231 {\"name\":\"a b\"}");
}

#[test]
fn what_the_core_says_against_a_selection_is_told() {
    let fake = FakeCore::start(Core::sing_box("out", &["a", "b"]));
    let said = |group: &str, member: &str| {
        clash::select(&at(&fake), group, member).unwrap_err().replace(&fake.url(), "CORE")
    };
    assert_eq!(said("out", "zzz"), "CORE answers 400 (Selector update error: not found)");
    assert_eq!(said("zzz", "a"), "CORE answers 404 (Resource not found)");
    fake.core().fault = Some(Fault::RefusesSelections(400, "Must be a Selector\u{1b}[2J"));
    assert_eq!(said("out", "b"), "CORE answers 400 (Must be a Selector\u{fffd}[2J)");
    assert_eq!(fake.core().now("out"), "a");
}

#[test]
fn the_secret_is_sent_and_never_said() {
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeCore::start(Core {
        secret: Some("right".into()),
        ..Core::sing_box("out", &["a", "b"])
    });
    let right = with_secret(&fake, &secret(folder.path(), "right"));
    clash::select(&right, "out", "b").unwrap();
    assert_eq!(look(&right, &["out"]).unwrap().groups["out"].as_ref().unwrap().now, "b");
    let wrong = with_secret(&fake, &secret(folder.path(), "wrong"));
    for other in [wrong, at(&fake)] {
        let Err(CoreFault::Refused(why)) = look(&other, &["out"]) else { panic!("it let us in") };
        assert!(why.contains("401") && why.contains("secret_file"), "{why}");
        assert!(!why.contains("wrong") && !why.contains("right"), "{why}");
        clash::select(&other, "out", "a").unwrap_err();
    }
    let missing = with_secret(&fake, &folder.path().join("none"));
    let Err(CoreFault::Refused(why)) = look(&missing, &["out"]) else {
        panic!("no secret is enough")
    };
    assert!(why.contains("/none"), "{why}");
    assert_eq!(fake.core().now("out"), "b");
}

#[test]
fn a_core_that_is_down_hangs_or_breaks_off_is_down_and_comes_back() {
    let mut fake = FakeCore::start(Core::sing_box("out", &["a", "b"]));
    let here = at(&fake);
    fake.down();
    assert!(matches!(look(&here, &["out"]), Err(CoreFault::Down(_))));
    fake.up();
    assert!(look(&here, &["out"]).is_ok());
    for fault in [Fault::Hangs, Fault::Garbage, Fault::BreaksOff, Fault::Says(503, "{}")] {
        fake.core().fault = Some(fault.clone());
        let begun = Instant::now();
        let seen = look(&here, &["out"]);
        assert!(matches!(seen, Err(CoreFault::Down(_))), "{fault:?}: {seen:?}");
        assert!(begun.elapsed().as_secs() < 5, "{fault:?}");
    }
    for (status, body) in [(200, "<html>"), (200, "{}"), (404, "404 page not found"), (200, "[1]")]
    {
        fake.core().fault = Some(Fault::Says(status, body));
        let seen = look(&here, &["out"]);
        assert!(matches!(seen, Err(CoreFault::Strange(_))), "{body}: {seen:?}");
    }
}

/// Case C54.
#[test]
fn a_group_without_members_or_that_is_none_is_told_from_a_missing_one() {
    let fake = FakeCore::start(Core::mihomo("out", &["a"]));
    let odd = [
        ("empty", json!({ "type": "Selector", "now": "", "all": [] }), GroupFault::Empty),
        (
            "compatible",
            json!({ "type": "Selector", "now": "COMPATIBLE", "all": ["COMPATIBLE"] }),
            GroupFault::Empty,
        ),
        ("null", json!({ "type": "URLTest", "now": "", "all": null }), GroupFault::Empty),
        ("plain", json!({ "type": "Direct" }), GroupFault::NoGroup { kind: "Direct".into() }),
    ];
    for (name, answer, fault) in odd {
        fake.core().odd.insert(name.to_owned(), answer);
        assert_eq!(look(&at(&fake), &[name]).unwrap().groups[name], Err(fault), "{name}");
        assert!(clash::selected(&at(&fake), name).is_err(), "{name}");
    }
    fake.core().odd.insert("list".to_owned(), json!([1]));
    let list = &look(&at(&fake), &["list"]).unwrap().groups["list"];
    assert!(matches!(list, Err(GroupFault::Unread(_))), "{list:?}");
}

#[test]
fn a_unix_socket_is_asked_alike_and_its_owner_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("core.sock");
    let mut fake = FakeCore::start_unix(Core::mihomo("out", &["a", "b"]), &path);
    let here = At { control: Control::Unix(path), secret_file: None, secret_in: None };
    clash::select(&here, "out", "b").unwrap();
    let seen = look(&here, &["out"]).unwrap();
    assert_eq!(seen.groups["out"].as_ref().unwrap().now, "b");
    assert_eq!(seen.life.process.unwrap().pid, std::process::id());
    fake.down();
    assert!(matches!(look(&here, &["out"]), Err(CoreFault::Down(_))));
}

#[test]
fn just_the_connections_through_group_and_member_are_closed() {
    let fake = FakeCore::start(Core::sing_box("out", &["a", "b"]));
    fake.core().flow("1", &["a", "out"], 10);
    fake.core().flow("2", &["b", "out"], 10);
    fake.core().flow("3", &["a"], 10);
    fake.core().flow("4", &["a", "inner", "out"], 10);
    fake.core().flows.push(json!({ "id": "5" }));
    fake.core().flows.push(json!({ "chains": ["a", "out"] }));
    let all = Cut::Through { core: at(&fake), names: vec!["out".into(), "a".into()] };
    assert_eq!(cut::cut(&all).unwrap(), cut::CutResult::Ended(2));
    let closed: Vec<String> =
        fake.core().asked.iter().filter(|asked| asked.starts_with("DELETE")).cloned().collect();
    assert_eq!(closed, ["DELETE /connections/1", "DELETE /connections/4"]);
}

#[test]
fn odd_numbers_of_bytes_are_no_trouble() {
    let fake = FakeCore::start(Core::mihomo("out", &["a", "b"]));
    for odd in [json!({ "id": "x", "download": -1, "chains": null }), json!(7), json!(null)] {
        fake.core().flows.push(odd);
    }
    let seen = look(&at(&fake), &["out"]).unwrap();
    let flows = seen.traffic.unwrap().unwrap().flows;
    assert_eq!((flows.len(), flows[0].received, flows[0].chains.len()), (1, 0, 0));
}

/// Case C53.
#[test]
fn a_choice_is_lost_only_where_a_restart_explains_it() {
    let fake = FakeCore::start(Core::sing_box("out", &["a", "b", "c"]));
    let seen = |config: ConfigReading| {
        let mut seen = look(&at(&fake), &["out"]).unwrap();
        seen.config = config;
        seen
    };
    let asked = || ConfigReading::Unread("not told".into());
    let before = Confirmed { member: "b".into(), life: seen(asked()).life };
    let whose =
        |seen: &CoreSeen| judge(&before, "out", &seen.groups["out"].as_ref().unwrap().now, seen);
    fake.core().select("out", "b");
    assert_eq!(whose(&seen(asked())), Choice::Ours);
    fake.core().select("out", "a");
    assert_eq!(whose(&seen(asked())), Choice::Persons("a".into()));
    fake.core().restart();
    assert_eq!(whose(&seen(ConfigReading::Unasked)), Choice::Unclear);
    assert_eq!(whose(&seen(asked())), Choice::Lost);
    fake.core().select("out", "c");
    assert_eq!(whose(&seen(asked())), Choice::Persons("c".into()));
    // mihomo keeps what was selected unless it is told not to.
    fake.core().select("out", "a");
    fake.core().version = json!({ "meta": true, "version": "v1" });
    assert_eq!(whose(&seen(asked())), Choice::Persons("a".into()));
}

#[test]
fn another_process_or_totals_that_fell_are_another_run() {
    let process =
        |pid, began| Some(egressctl::observation::Process { boot: "b".into(), pid, began });
    let life = |process, totals| Life { process, totals };
    let first = life(process(7, 100), Some((50, 50)));
    for (later, restarted) in [
        (life(process(7, 100), Some((50, 60))), false),
        (life(process(7, 200), Some((50, 60))), true),
        (life(process(8, 100), Some((90, 90))), true),
        (life(process(7, 100), Some((10, 60))), true),
        (life(None, Some((60, 60))), false),
        (life(None, Some((60, 10))), true),
        (life(None, None), false),
    ] {
        assert_eq!(first.ended_before(&later), restarted, "{later:?}");
    }
}
