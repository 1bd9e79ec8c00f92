//! One story for each row of the machine of host names: what was, why, what is written, what is.

use crate::dns_world;

use dns_world::{Lab, Life, Online, Played, Writes, address, host, policy, story};
use egressctl::dns::state::Mode;
use egressctl::machine::{Machine as _, PartWish, Settled};
use serde_json::{Value, json};

const FI: &str = "fi.example.org";

fn one() -> Value {
    json!({ FI: { "native": "fi", "fallbacks": ["de", "us"] } })
}

/// One host on `fi`, with `de` and `us` behind it, after its first run.
fn lab(params: &Value) -> Lab {
    let mut lab = Lab::new(policy(3, &one(), params));
    lab.step();
    assert_eq!(lab.mode(FI), Mode::Native);
    lab
}

/// The same once its native has died and the record has moved.
fn away(params: &Value) -> Lab {
    let mut lab = lab(params);
    lab.set(&["fi"], Life::Dead);
    lab.next(30);
    lab.next(30);
    assert!(matches!(lab.mode(FI), Mode::Fallback | Mode::NativeQuarantined));
    lab
}

fn tell(name: &str, lab: &Lab, played: &Played) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(format!("dns_{name}"), story(lab, played)));
}

#[test]
fn a_record_is_taken_up_as_it_is_found() {
    for (name, record) in [
        ("first_run_native", &["192.0.2.1"][..]),
        ("first_run_fallback", &["192.0.2.3"]),
        ("first_run_foreign", &["198.51.100.9"]),
        ("first_run_missing", &[]),
        ("first_run_too_many", &["192.0.2.1", "192.0.2.2"]),
    ] {
        let mut lab = Lab::new(policy(3, &one(), &json!({})));
        lab.edit(FI, record);
        let played = lab.step();
        assert!(played.written.is_empty());
        tell(name, &lab, &played);
    }
    let mut unread = Lab::new(policy(3, &one(), &json!({})));
    unread.records.insert(host(FI), None);
    let played = unread.step();
    tell("first_run_unreadable", &unread, &played);
    unread.edit(FI, &["192.0.2.1"]);
    unread.next(30);
    assert_eq!(unread.mode(FI), Mode::Native, "it is taken up once it can be read");
}

#[test]
fn a_native_that_dies_is_left_after_two_checks_and_returned_to_after_its_stay() {
    let mut lab = lab(&json!({}));
    lab.set(&["fi"], Life::Dead);
    let played = lab.next(30);
    tell("native_fails_once", &lab, &played);
    let played = lab.next(30);
    tell("native_is_down", &lab, &played);
    assert_eq!(lab.record(FI), [address("192.0.2.2")].into());
    let played = lab.next(30);
    tell("fallback_waits", &lab, &played);
    lab.set(&["fi"], Life::Alive);
    let played = lab.next(30);
    tell("fallback_native_passes", &lab, &played);
    lab.set(&["fi"], Life::Dead);
    let played = lab.next(30);
    tell("recovering_native_fails", &lab, &played);
    lab.set(&["fi"], Life::Alive);
    lab.next(30);
    let played = lab.next(30);
    tell("recovering_stay_is_not_over", &lab, &played);
    assert_eq!(lab.record(FI), [address("192.0.2.2")].into());
    let played = lab.next(240);
    tell("recovering_returns", &lab, &played);
    assert_eq!(lab.record(FI), [address("192.0.2.1")].into());
    let played = lab.next(30);
    assert!(played.written.is_empty());
    tell("native_all_well", &lab, &played);
}

/// Case C62.
#[test]
fn one_failed_check_moves_nothing() {
    let mut lab = lab(&json!({}));
    lab.set(&["fi"], Life::Dead);
    lab.next(30);
    lab.set(&["fi"], Life::Alive);
    let played = lab.next(30);
    tell("failing_native_passes", &lab, &played);
    // Two failures that are further apart than ten intervals are not in a row.
    lab.set(&["fi"], Life::Dead);
    lab.next(30);
    lab.next(301);
    assert_eq!(lab.mode(FI), Mode::NativeFailing);
    assert_eq!(lab.record(FI), [address("192.0.2.1")].into());
}

#[test]
fn what_cannot_be_asked_adds_and_clears_nothing() {
    let mut lab = lab(&json!({}));
    lab.set(&["fi"], Life::Dead);
    lab.next(30);
    lab.set(&["fi"], Life::Unseen);
    let played = lab.next(30);
    tell("failing_native_unknown", &lab, &played);
    lab.set(&["fi"], Life::Dead);
    lab.next(30);
    assert_eq!(lab.mode(FI), Mode::Fallback, "the failure before still counts");
}

#[test]
fn a_fallback_that_dies_gives_way_and_one_that_lives_does_not() {
    let mut lab = away(&json!({}));
    lab.set(&["de"], Life::Dead);
    let played = lab.next(30);
    assert!(played.written.is_empty(), "one failed check of it is not enough");
    tell("fallback_fails_once", &lab, &played);
    let played = lab.next(30);
    tell("fallback_is_down", &lab, &played);
    assert_eq!(lab.record(FI), [address("192.0.2.3")].into());
    lab.set(&["de"], Life::Alive);
    lab.next(30);
    lab.next(30);
    let played = lab.next(30);
    assert!(played.written.is_empty(), "nobody is preferred over it but the native");
    lab.set(&["us"], Life::Dead);
    lab.set(&["fi"], Life::Alive);
    lab.next(30);
    let played = lab.next(30);
    tell("fallback_is_down_native_up", &lab, &played);
    assert_eq!(lab.mode(FI), Mode::Native, "the stay does not hold it");
}

#[test]
fn a_fallback_that_does_not_serve_the_natives_name_is_not_used() {
    let mut lab = lab(&json!({}));
    lab.set(&["de"], Life::OwnNameOnly);
    lab.set(&["fi"], Life::Dead);
    lab.next(30);
    let played = lab.next(30);
    tell("native_is_down_first_fallback_has_another_name", &lab, &played);
    assert_eq!(lab.record(FI), [address("192.0.2.3")].into());
    lab.set(&["us"], Life::OwnNameOnly);
    lab.set(&["de"], Life::Alive);
    lab.next(30);
    let played = lab.next(30);
    tell("fallback_lost_its_certificate", &lab, &played);
    assert_eq!(lab.record(FI), [address("192.0.2.2")].into());
}

/// Case C63.
#[test]
fn with_nobody_alive_the_record_stays() {
    let mut lab = lab(&json!({ "mass_rounds": 0 }));
    lab.set(&["fi", "de", "us"], Life::Dead);
    lab.next(30);
    let played = lab.next(30);
    tell("native_is_down_none_serves", &lab, &played);
    assert_eq!(lab.record(FI), [address("192.0.2.1")].into());
    let played = lab.next(30);
    tell("stranded_stays", &lab, &played);
    let mut fallback = lab.clone();
    fallback.set(&["us"], Life::Alive);
    fallback.next(30);
    let played = fallback.next(30);
    tell("stranded_a_fallback_serves", &fallback, &played);
    let mut native = lab.clone();
    native.set(&["fi"], Life::Alive);
    native.next(30);
    let played = native.next(30);
    tell("stranded_the_published_serves", &native, &played);
    assert!(played.written.is_empty());

    let mut away = away(&json!({ "mass_rounds": 0 }));
    away.set(&["de", "us"], Life::Dead);
    away.next(30);
    away.next(30);
    assert_eq!(away.mode(FI), Mode::Stranded);
    let mut published = away.clone();
    published.set(&["de"], Life::Alive);
    published.next(30);
    let played = published.next(30);
    tell("stranded_away_the_published_serves", &published, &played);
    assert!(played.written.is_empty());
    away.set(&["fi"], Life::Alive);
    away.next(30);
    let played = away.next(30);
    tell("stranded_away_the_native_serves", &away, &played);
    assert_eq!(away.record(FI), [address("192.0.2.1")].into());
}

/// Case C62.
#[test]
fn a_native_that_flaps_is_quarantined() {
    let params = json!({ "minimum_stay_sec": 30, "flap_limit": 2, "quarantine_sec": 600 });
    let mut lab = away(&params);
    let back = |lab: &mut Lab| {
        lab.set(&["fi"], Life::Alive);
        for _ in 0..4 {
            lab.next(30);
        }
        lab.set(&["fi"], Life::Dead);
        lab.next(30);
        lab.next(30)
    };
    let played = back(&mut lab);
    tell("native_is_down_too_often", &lab, &played);
    lab.set(&["fi"], Life::Alive);
    for _ in 0..19 {
        assert!(lab.next(30).written.is_empty());
        assert_eq!(lab.mode(FI), Mode::NativeQuarantined);
    }
    let mut dead = lab.clone();
    dead.set(&["fi"], Life::Dead);
    let played = dead.next(30);
    tell("quarantine_over_native_fails", &dead, &played);
    let mut forced = lab.clone();
    forced.set(&["de", "us"], Life::Dead);
    forced.later(0);
    forced.state.as_mut().unwrap().hosts.get_mut(&host(FI)).unwrap().quarantined =
        Some(forced.now.clone());
    forced.next(30);
    let played = forced.next(30);
    tell("quarantined_only_the_native_serves", &forced, &played);
    assert_eq!(forced.record(FI), [address("192.0.2.1")].into());
    forced.set(&["de"], Life::Alive);
    forced.next(30);
    forced.next(30);
    forced.set(&["fi"], Life::Dead);
    forced.next(30);
    let played = forced.next(30);
    tell("native_is_down_while_quarantined", &forced, &played);
    let played = lab.next(30);
    tell("quarantine_over_native_passes", &lab, &played);
    let played = lab.next(30);
    assert_eq!(lab.mode(FI), Mode::Native, "{:?}", played.codes());
    lab.set(&["de"], Life::Dead);
    let mut fallback = away(&params);
    back(&mut fallback);
    fallback.set(&["de"], Life::Dead);
    fallback.next(30);
    let played = fallback.next(30);
    tell("quarantined_fallback_is_down", &fallback, &played);
    assert_eq!(fallback.mode(FI), Mode::NativeQuarantined);
}

/// Case C64.
#[test]
fn a_round_that_may_be_our_own_fault_counts_nothing() {
    for (name, online) in [("offline", Online::No), ("offline_after", Online::NotAfter)] {
        let mut lab = lab(&json!({}));
        lab.set(&["fi", "de", "us"], Life::Dead);
        lab.online = online;
        let before = lab.state().clone();
        let played = lab.next(30);
        tell(name, &lab, &played);
        lab.next(30);
        lab.next(30);
        assert_eq!(*lab.state(), before, "nothing was counted");
    }
    let mut lab = lab(&json!({}));
    lab.set(&["fi", "de", "us"], Life::Dead);
    let played = lab.next(30);
    tell("most_nodes_fail", &lab, &played);
    lab.next(30);
    lab.next(30);
    assert_eq!(lab.mode(FI), Mode::Native);
    let played = lab.next(30);
    tell("most_nodes_fail_for_long", &lab, &played);
    lab.next(30);
    assert_eq!(lab.mode(FI), Mode::Stranded);

    // A round in which others answer ends the row, also one that nobody had seen fail.
    let mut again = self::lab(&json!({}));
    for _ in 0..2 {
        again.set(&["fi", "de", "us"], Life::Dead);
        for round in 1..=3 {
            let played = again.next(30);
            let told = format!("(round {round} of 3)");
            assert!(played.future.reasons[0].text.contains(&told), "{:?}", played.future.reasons);
        }
        again.set(&["fi", "de", "us"], Life::Alive);
        again.next(30);
    }
    assert_eq!(again.record(FI), [address("192.0.2.1")].into());
}

#[test]
fn what_somebody_else_wrote_is_left_alone() {
    let mut lab = lab(&json!({}));
    lab.edit(FI, &["198.51.100.9"]);
    let played = lab.next(30);
    tell("edited", &lab, &played);
    lab.set(&["fi"], Life::Dead);
    for _ in 0..4 {
        assert!(lab.next(30).written.is_empty());
    }
    let mut again = lab.clone();
    again.edit(FI, &["192.0.2.1"]);
    let played = again.next(30);
    tell("edited_ours_again", &again, &played);
    again.next(30);
    assert_eq!(again.record(FI), [address("192.0.2.2")].into(), "automation goes on");

    let mut resumed = lab.clone();
    resumed.part(FI, PartWish::Resume).unwrap();
    let played = resumed.next(30);
    tell("resumed_foreign_native_down", &resumed, &played);
    let mut native = lab.clone();
    native.set(&["fi"], Life::Alive);
    native.next(30);
    native.next(30);
    native.part(FI, PartWish::Resume).unwrap();
    let played = native.next(30);
    tell("resumed_foreign_native_up", &native, &played);
    let mut nobody = lab.clone();
    nobody.set(&["us", "de"], Life::OwnNameOnly);
    nobody.part(FI, PartWish::Resume).unwrap();
    let played = nobody.next(30);
    tell("resumed_foreign_nobody_serves", &nobody, &played);
    assert!(played.written.is_empty());
    nobody.set(&["us"], Life::Alive);
    nobody.next(30);
    assert_eq!(nobody.record(FI), [address("192.0.2.3")].into());
    let mut fallback = lab.clone();
    fallback.edit(FI, &["192.0.2.3"]);
    fallback.part(FI, PartWish::Resume).unwrap();
    let played = fallback.next(30);
    tell("resumed_on_a_fallback", &fallback, &played);
    assert!(played.written.is_empty());
    let mut missing = lab.clone();
    missing.edit(FI, &[]);
    missing.part(FI, PartWish::Resume).unwrap();
    let played = missing.next(30);
    tell("resumed_missing", &missing, &played);
    assert!(played.written.is_empty(), "records are never made");
    assert_eq!(missing.part(FI, PartWish::Resume), Ok(()));
    assert!(lab.part("us.example.org", PartWish::Pause).unwrap_err().contains("no host"));
}

#[test]
fn a_write_ends_in_one_of_these_ways() {
    for (name, writes) in [
        ("write_refused", Writes::Refused),
        ("write_refused_for_a_time", Writes::RefusedFor(70)),
        ("write_overtaken", Writes::Overtaken(address("198.51.100.9"))),
        ("write_unread", Writes::TakenUnread),
        ("write_altered", Writes::Altered),
    ] {
        let mut lab = lab(&json!({}));
        lab.set(&["fi"], Life::Dead);
        lab.next(30);
        lab.writes.insert(host(FI), writes);
        let played = lab.next(30);
        tell(name, &lab, &played);
        lab.writes.clear();
        let played = lab.next(30);
        match writes {
            Writes::Refused => assert_eq!(lab.mode(FI), Mode::Fallback, "it is tried again"),
            Writes::RefusedFor(_) => {
                tell("write_waits", &lab, &played);
                lab.next(30);
                assert_eq!(lab.mode(FI), Mode::NativeFailing);
                lab.next(30);
                assert_eq!(lab.mode(FI), Mode::Fallback);
            }
            Writes::Overtaken(_) => assert!(played.written.is_empty()),
            Writes::TakenUnread => {
                tell("write_unread_shows", &lab, &played);
                assert_eq!(lab.mode(FI), Mode::Fallback);
            }
            Writes::Altered => assert_eq!(lab.mode(FI), Mode::Fallback),
            Writes::Taken | Writes::RefusedUnread => {}
        }
    }
    let mut lab = lab(&json!({}));
    lab.set(&["fi"], Life::Dead);
    lab.next(30);
    lab.writes.insert(host(FI), Writes::RefusedUnread);
    lab.next(30);
    lab.writes.clear();
    let played = lab.next(30);
    tell("write_unread_does_not_show", &lab, &played);
    assert_eq!(lab.mode(FI), Mode::Fallback, "it is written in the same step");

    let mut unread = away(&json!({}));
    unread.set(&["de"], Life::Dead);
    unread.next(30);
    let records = unread.records.clone();
    unread.records.insert(host(FI), None);
    let played = unread.next(30);
    tell("unreadable", &unread, &played);
    unread.records = records;
    unread.next(30);
    assert_eq!(unread.record(FI), [address("192.0.2.3")].into());
}

#[test]
fn a_person_chooses_a_node() {
    let mut lab = lab(&json!({}));
    for (target, why) in [
        ("de", "write HOST=NODE"),
        ("us.example.org=de", "no host of this policy"),
        ("fi.example.org=nl", "no node of fi.example.org"),
    ] {
        let refused = lab.switch(target, true).unwrap_err();
        assert!(refused.contains(why), "{target}: {refused}");
    }
    lab.set(&["us"], Life::Dead);
    lab.next(30);
    assert!(lab.switch("fi.example.org=us", false).unwrap_err().contains("--force"));
    lab.switch("fi.example.org=us", true).unwrap();
    let played = lab.next(30);
    tell("switch_by_force", &lab, &played);
    assert_eq!(lab.record(FI), [address("192.0.2.3")].into());
    for _ in 0..4 {
        assert!(lab.next(300).written.is_empty(), "it stays until a person says otherwise");
    }
    lab.switch("fi.example.org=de", false).unwrap();
    lab.online = Online::No;
    let played = lab.next(30);
    assert!(played.written.is_empty() && egressctl::dns::Dns::has_wish(lab.state()));
    lab.online = Online::Yes;
    lab.set(&["de"], Life::Dead);
    let played = lab.next(30);
    tell("switch_waits", &lab, &played);
    lab.set(&["de"], Life::Alive);
    lab.edit(FI, &["198.51.100.9"]);
    let played = lab.next(30);
    tell("switch_over_a_foreign_record", &lab, &played);
    assert_eq!(lab.record(FI), [address("192.0.2.2")].into());
    lab.writes.insert(host(FI), Writes::Refused);
    lab.switch("fi.example.org=fi", false).unwrap();
    let played = lab.next(30);
    tell("switch_refused", &lab, &played);
    assert!(!egressctl::dns::Dns::has_wish(lab.state()));
    assert_eq!(played.settled, Settled::RolledBack);
}

#[test]
fn a_changed_policy_is_followed() {
    let mut lab = lab(&json!({}));
    let mut moved = lab.clone();
    moved.policy.nodes.get_mut(&dns_world::node("fi")).unwrap().address = address("192.0.2.77");
    let played = moved.next(30);
    tell("edit_address_of_the_published", &moved, &played);
    assert_eq!(moved.record(FI), [address("192.0.2.77")].into());

    let mut dead = lab.clone();
    dead.policy.nodes.get_mut(&dns_world::node("fi")).unwrap().address = address("192.0.2.77");
    dead.set(&["fi"], Life::Dead);
    assert!(dead.next(30).written.is_empty(), "it is not followed to where nobody serves");
    dead.next(30);
    assert_eq!(dead.record(FI), [address("192.0.2.2")].into());

    // What failed at its old address says nothing of the new one.
    let mut anew = lab.clone();
    anew.set(&["fi"], Life::Dead);
    anew.next(30);
    anew.policy.nodes.get_mut(&dns_world::node("fi")).unwrap().address = address("192.0.2.77");
    anew.next(30);
    assert_eq!(anew.mode(FI), Mode::NativeFailing, "it failed once there");
    anew.next(30);
    assert_eq!(anew.mode(FI), Mode::Fallback);

    let mut native = lab.clone();
    native.policy = policy(3, &json!({ FI: { "native": "us", "fallbacks": ["fi"] } }), &json!({}));
    let played = native.next(30);
    tell("edit_native", &native, &played);
    assert!(played.written.is_empty());
    native.policy = policy(3, &one(), &json!({}));
    native.next(30);
    assert_eq!(native.mode(FI), Mode::Native);

    let mut dropped = away(&json!({}));
    dropped.policy = policy(3, &json!({ FI: { "native": "fi", "fallbacks": ["us"] } }), &json!({}));
    let played = dropped.next(30);
    tell("edit_published_fallback_dropped", &dropped, &played);
    assert_eq!(dropped.record(FI), [address("192.0.2.3")].into());

    lab.policy = policy(3, &json!({ "us.example.org": { "native": "us" } }), &json!({}));
    lab.records.insert(host("us.example.org"), Some(dns_world::set(&["192.0.2.3"])));
    let played = lab.next(30);
    tell("edit_host_gone", &lab, &played);
    assert_eq!(lab.record(FI), [address("192.0.2.1")].into(), "its record is left as it is");
}

#[test]
fn several_records_are_the_first_that_serve() {
    let hosts = json!({ FI: { "native": "fi", "fallbacks": ["de", "us", "nl"], "records": 2 } });
    let mut lab = Lab::new(policy(4, &hosts, &json!({ "minimum_stay_sec": 60, "flap_limit": 2 })));
    lab.policy.nodes.get_mut(&dns_world::node("us")).unwrap().weight = 5;
    lab.step();
    let played = lab.next(30);
    tell("set_is_filled_by_weight", &lab, &played);
    assert_eq!(lab.record(FI), [address("192.0.2.1"), address("192.0.2.3")].into());
    lab.set(&["us"], Life::Dead);
    lab.next(30);
    let played = lab.next(30);
    tell("set_member_is_down", &lab, &played);
    assert_eq!(lab.record(FI), [address("192.0.2.1"), address("192.0.2.2")].into());
    lab.set(&["us"], Life::Alive);
    lab.set(&["de"], Life::Dead);
    lab.next(30);
    lab.next(30);
    assert_eq!(
        lab.record(FI),
        [address("192.0.2.1"), address("192.0.2.3")].into(),
        "the stay of us is over"
    );
    lab.set(&["fi", "nl"], Life::Dead);
    lab.next(30);
    let played = lab.next(30);
    tell("set_native_is_down", &lab, &played);
    assert_eq!(lab.record(FI), [address("192.0.2.3")].into(), "fewer, and never none");
    lab.set(&["us"], Life::Dead);
    lab.policy.params.mass_rounds = 0;
    lab.next(30);
    lab.next(30);
    assert_eq!(lab.record(FI), [address("192.0.2.3")].into());
    assert_eq!(lab.mode(FI), Mode::Stranded);
}

#[test]
fn a_member_that_left_comes_back_after_its_stay_and_after_a_quarantine_if_it_flaps() {
    let hosts = json!({ FI: { "native": "fi", "fallbacks": ["us"], "records": 2 } });
    let params = json!({ "minimum_stay_sec": 120, "flap_limit": 2, "quarantine_sec": 600 });
    let mut lab = Lab::new(policy(3, &hosts, &params));
    let (one, two): (std::collections::BTreeSet<_>, std::collections::BTreeSet<_>) =
        ([address("192.0.2.1")].into(), [address("192.0.2.1"), address("192.0.2.3")].into());
    lab.step();
    lab.next(30);
    // How many rounds it is away for, once it is alive again.
    for rounds in [4, 20] {
        assert_eq!(lab.record(FI), two);
        lab.set(&["us"], Life::Dead);
        lab.next(30);
        assert_eq!(lab.record(FI), two, "one failed check moves nothing");
        lab.next(30);
        lab.set(&["us"], Life::Alive);
        for round in 1..rounds {
            lab.next(30);
            assert_eq!(lab.record(FI), one, "round {round} of {rounds}");
        }
        lab.next(30);
        assert_eq!(lab.mode(FI), Mode::Native, "its native has never left");
    }
    assert_eq!(lab.record(FI), two);
}

#[test]
fn others_take_their_turn_by_weight() {
    let hosts = json!({ FI: { "native": "fi", "fallbacks": ["de", "us", "nl"], "records": 2, "rotate_sec": 60 } });
    let mut lab = Lab::new(policy(4, &hosts, &json!({})));
    lab.policy.nodes.get_mut(&dns_world::node("de")).unwrap().weight = 2;
    lab.step();
    lab.next(30);
    let mut turns = std::collections::BTreeMap::new();
    let mut told = false;
    for _ in 0..40 {
        let played = lab.next(60);
        if !told && played.codes().contains("rotated") {
            tell("set_rotates", &lab, &played);
            told = true;
        }
        assert_eq!(lab.mode(FI), Mode::Native);
        let published = &lab.host(FI).published;
        assert!(published.contains_key(&dns_world::node("fi")), "the native keeps its place");
        let other = published.keys().find(|name| name.as_str() != "fi").unwrap().to_string();
        *turns.entry(other).or_insert(0) += 1;
    }
    assert_eq!(turns, [("de".to_owned(), 20), ("nl".to_owned(), 10), ("us".to_owned(), 10)].into());
    lab.set(&["us"], Life::Unseen);
    for _ in 0..4 {
        assert!(lab.next(60).written.is_empty(), "nobody moves while somebody was not heard of");
    }
    assert!(lab.host(FI).left.is_empty() && lab.host(FI).quarantined.is_none());
}

#[test]
fn a_region_in_the_name_has_fallbacks_of_its_own() {
    let hosts = json!({
        "fi-ru.example.org": { "native": "fi", "fallbacks": ["de"], "fallbacks_by_region": { "ru": ["us"], "cn": ["de"] } },
        "fi.example.org": { "native": "fi", "fallbacks": ["de"], "fallbacks_by_region": { "ru": ["us"], "cn": ["de"] } },
    });
    let mut lab = Lab::new(policy(3, &hosts, &json!({})));
    lab.step();
    lab.set(&["fi"], Life::Dead);
    lab.next(30);
    let played = lab.next(30);
    tell("two_hosts_of_two_regions", &lab, &played);
    assert_eq!(lab.record("fi-ru.example.org"), [address("192.0.2.3")].into());
    assert_eq!(lab.record("fi.example.org"), [address("192.0.2.2")].into());
}

#[test]
fn one_host_that_is_refused_holds_no_other() {
    let hosts = json!({
        "a.example.org": { "native": "fi", "fallbacks": ["de"] },
        "b.example.org": { "native": "fi", "fallbacks": ["us"] },
        "c.example.org": { "native": "fi", "fallbacks": ["us"] },
    });
    let mut lab = Lab::new(policy(3, &hosts, &json!({})));
    lab.step();
    lab.set(&["fi"], Life::Dead);
    lab.next(30);
    lab.records.insert(host("c.example.org"), None);
    lab.writes.insert(host("a.example.org"), Writes::Refused);
    let played = lab.next(30);
    tell("one_host_refused_one_unread_one_moved", &lab, &played);
    assert_eq!(played.settled, Settled::RolledBack);
    assert_eq!(lab.mode("a.example.org"), Mode::NativeFailing);
    assert_eq!(lab.mode("b.example.org"), Mode::Fallback);
    assert_eq!(lab.record("b.example.org"), [address("192.0.2.3")].into());
    assert_eq!(lab.record("a.example.org"), [address("192.0.2.1")].into());
}

#[test]
fn a_pause_of_all_looks_on_and_a_resume_takes_up_what_is_there() {
    let mut lab = lab(&json!({}));
    lab.paused = true;
    lab.set(&["fi"], Life::Dead);
    for _ in 0..3 {
        let played = lab.next(30);
        assert!(played.decision.wished.settings.is_empty());
    }
    assert!(!lab.state().nodes[&dns_world::node("fi")].up, "nodes are looked at all the same");
    lab.edit(FI, &["198.51.100.9"]);
    lab.next(30);
    lab.paused = false;
    lab.state = Some(egressctl::dns::Dns::resumed(lab.state(), &lab.now).unwrap());
    let played = lab.next(30);
    assert!(played.written.is_empty(), "nobody spoke of that record");
    tell("resumed_after_a_pause_of_all", &lab, &played);
}

#[test]
fn a_record_that_resolvers_keep_too_long_is_told() {
    let hosts = json!({ FI: { "native": "fi", "fallbacks": ["de"], "ttl": 60 } });
    let mut lab = Lab::new(policy(3, &hosts, &json!({})));
    lab.step();
    let played = lab.next(30);
    tell("ttl_is_too_long", &lab, &played);
    lab.set(&["fi"], Life::Dead);
    lab.next(30);
    lab.next(30);
    let played = lab.next(30);
    assert!(!played.codes().contains("long-ttl"), "a move sets it");
}

#[test]
fn down_leaves_the_records() {
    let lab = away(&json!({}));
    let owned = egressctl::machine::Owned::default();
    let future = egressctl::dns::Dns::retire(&lab.subject(&owned), &lab.now).unwrap();
    assert!(future.settings.is_empty() && future.state.hosts.is_empty());
    assert_eq!(
        future.reasons[0].text,
        "fi.example.org is not kept any more; its record stays at 192.0.2.2"
    );
}

#[test]
fn a_reference_is_found_by_its_last_good_address_when_the_resolver_fails() {
    let mut lab = Lab::new(policy(3, &one(), &json!({})));
    let url = "https://reference.example.net/generate_204".to_owned();
    lab.policy.reference.urls = vec![url.try_into().unwrap()];
    lab.step();
    lab.resolves = false;
    let played = lab.next(30);
    let pages = played.seen.pages(&egressctl::observation::Asker::Named("reference".to_owned()));
    assert_eq!(pages.len(), 2, "it is asked before and after");
    assert!(pages.iter().all(|(pages, _)| pages.pages[0].addresses.len() == 1));
    assert_eq!(played.codes(), ["all-native".to_owned()].into());
}

#[test]
fn a_pause_by_a_person_outlives_what_becomes_known_later() {
    let mut lab = lab(&json!({}));
    lab.set(&["fi"], Life::Dead);
    lab.next(30);
    lab.writes.insert(host(FI), Writes::TakenUnread);
    lab.next(30);
    lab.part(FI, PartWish::Pause).unwrap();
    lab.next(30);
    assert_eq!(lab.mode(FI), Mode::Fallback, "what was written shows");
    assert!(lab.host(FI).paused.is_some());
    lab.part(FI, PartWish::Resume).unwrap();
    lab.part(FI, PartWish::Pause).unwrap();
    lab.next(30);
    assert!(lab.host(FI).paused.is_some());
}
