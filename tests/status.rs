//! Status for people: one screen that says who leaves where, since when, and what is due.

use crate::world;

use egressctl::machine::{Machine as _, ReasonText, Subject};
use egressctl::outcome::Ending;
use egressctl::policy::{Policy, PoolPolicy};
use egressctl::pool::Pool;
use egressctl::pool::candidate::Rejected;
use egressctl::pool::state::Mode;
use egressctl::pool::status::{ClientRow, PoolStatus, SlotHealth, SlotRow, status};
use egressctl::record::{LastStep, Record};
use egressctl::time::Moment;
use serde_json::{Value, json};
use std::time::Duration;
use world::{Endpoint, Lab, Played, Steps as _, lab_of};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A record as the step that was played leaves it.
fn record(lab: &Lab, played: &Played) -> Record<egressctl::pool::PoolState> {
    let last = LastStep {
        at: lab.now.clone(),
        outcome: Ending::Applied,
        transition: None,
        duration_ms: 41,
        reasons: played.decision.wished.reasons.clone(),
    };
    Record {
        machine: Some(played.after.clone()),
        last_step: Some(last),
        owned: lab.owned.clone(),
        ..Record::default()
    }
}

fn shown(lab: &Lab, played: &Played, now: &Moment) -> PoolStatus {
    status(&lab.name, &lab.policy, &record(lab, played), now)
}

fn tell(name: &str, status: &PoolStatus) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, status.to_string()));
}

/// The world's policy with other clients.
fn serving(clients: &Value, params: &Value) -> PoolPolicy {
    let text = json!({
        "kind": "pool",
        "slots": { "interfaces": ["vpn1", "vpn2"] },
        "clients": clients,
        "lan_interfaces": ["eth1"],
        "wan_interface": "eth0",
        "provider": { "directory": { "path": "/etc/egressctl/endpoints" } },
        "probe": { "urls": ["http://192.0.2.1/generate_204"] },
        "wan": { "urls": ["http://192.0.2.2/"] },
        "params": params,
    });
    let Policy::Pool(policy) = Policy::parse(&text.to_string()).unwrap() else {
        panic!("it is a pool")
    };
    *policy
}

#[test]
fn of_a_pool_that_was_just_loaded_and_of_one_that_was_checked() {
    let mut lab = lab_of(world::policy(2, 3, &json!({})), &NAMES);
    let loaded = lab.step();
    tell("status_just_loaded", &shown(&lab, &loaded, &lab.now));
    lab.later(10);
    let checked = lab.step();
    tell("status_steady", &shown(&lab, &checked, &lab.now));
}

#[test]
fn of_a_slot_that_fails_and_of_one_whose_clients_have_moved() {
    let mut lab = lab_of(world::policy(2, 3, &json!({})), &NAMES);
    lab.step();
    lab.set(&["a"], Endpoint::Dead);
    lab.later(10);
    let failing = lab.step();
    tell("status_check_failed", &shown(&lab, &failing, &lab.now));
    lab.later(10);
    let moved = lab.step();
    assert_eq!(moved.after.mode, Mode::LocalRepair);
    tell("status_local_repair", &shown(&lab, &moved, &lab.now));
}

#[test]
fn of_many_clients_and_of_a_spread_prefix_is_still_one_screen() {
    let many: Vec<Value> = (1..=30).map(|n| json!(format!("10.77.0.{n}"))).collect();
    let spread = [json!({ "prefix": "10.77.4.0/22", "spread": true })];
    let clients: Vec<Value> = many.into_iter().chain(spread).collect();
    let mut lab = lab_of(serving(&json!(clients), &json!({})), &NAMES);
    let loaded = lab.step();
    assert_eq!(loaded.after.mode, Mode::Normal);
    let status = shown(&lab, &loaded, &lab.now);
    tell("status_many_clients", &status);
    assert!(status.to_string().lines().all(|line| line.chars().count() <= 120));
}

#[test]
fn of_many_slots_those_with_something_to_tell_are_listed_and_the_others_counted() {
    let names: Vec<String> = (0..100).map(|n| format!("vpn{n}")).collect();
    let slots: Vec<SlotRow> = names.iter().map(|name| healthy(name)).collect();
    let mut lab = lab_of(world::policy(1, 1, &json!({})), &NAMES);
    let loaded = lab.step();
    let mut status = PoolStatus { slots, ..shown(&lab, &loaded, &lab.now) };
    status.clients = names
        .iter()
        .map(|name| ClientRow { client: format!("10.78.0.0/22#{name}"), egress: name.clone() })
        .collect();
    for (place, health) in [(7, SlotHealth::Failed), (70, SlotHealth::Empty)] {
        status.slots[place].health = health;
    }
    status.slots[99].failures = 1;
    let text = status.to_string();
    tell("status_many_slots", &status);
    assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 160));
    // Even where all of them failed it is one screen, and none goes uncounted.
    for slot in &mut status.slots {
        slot.health = SlotHealth::Failed;
    }
    let text = status.to_string();
    assert!(text.lines().count() <= 24, "{text}");
    assert!(text.contains("and more slots: 88 failed"), "{text}");
}

/// A slot of which nothing is to be told.
fn healthy(name: &str) -> SlotRow {
    SlotRow {
        interface: name.to_owned().try_into().unwrap(),
        endpoint: Some("de-1".to_owned()),
        health: SlotHealth::Healthy,
        why: String::new(),
        failures: 0,
        clients: 1,
        exit_ip: None,
        carries_ipv6: None,
        latency_ms: Some(20),
        since: jiff::Timestamp::UNIX_EPOCH,
    }
}

#[test]
fn what_is_due_is_never_in_the_past() {
    let always = json!({ "health_check_interval_sec": 0 });
    for (params, later, said) in [
        (json!({}), 4, "next check at "),
        (json!({}), 11, "next check at once"),
        (always.clone(), 0, "next check at once"),
        (always, 9, "next check at once"),
    ] {
        let mut lab = lab_of(world::policy(2, 3, &params), &NAMES);
        let played = lab.step();
        let now = lab.now.after(Duration::from_secs(later));
        let status = shown(&lab, &played, &now);
        assert!(status.to_string().contains(said), "{status}");
        assert!(status.next.iter().all(|next| next.at >= now.at), "{:?}", status.next);
    }
}

#[test]
fn of_a_pause_and_of_a_step_long_ago() {
    let mut lab = lab_of(world::policy(2, 3, &json!({})), &NAMES);
    let played = lab.step();
    let mut record = record(&lab, &played);
    record.paused = Some(lab.now.clone());
    let now = lab.now.after(Duration::from_secs(31));
    let status = status(&lab.name, &lab.policy, &record, &now);
    tell("status_paused_and_out_of_date", &status);
    assert_eq!((status.next, status.standing.code()), (Vec::new(), 3));
}

#[test]
fn of_what_was_taken_down() {
    let mut lab = lab_of(world::policy(2, 3, &json!({})), &NAMES);
    lab.step();
    lab.later(10);
    let played = lab.step();
    let mut record = record(&lab, &played);
    record.paused = Some(lab.now.clone());
    let subject = Subject::<Pool> {
        name: &lab.name,
        policy: &lab.policy,
        state: record.machine.as_ref(),
        paused: false,
        owned: &lab.owned,
    };
    record.machine = Some(Pool::retire(&subject, &lab.now).unwrap().state);
    record.last_step.as_mut().unwrap().reasons =
        vec![ReasonText::new("down", "all that was made is removed; paused")];
    let status = status(&lab.name, &lab.policy, &record, &lab.now);
    tell("status_down", &status);
    assert_eq!(status.standing.code(), 2);
}

#[test]
fn of_entries_that_cannot_be_used() {
    let mut lab = lab_of(world::policy(2, 3, &json!({})), &NAMES);
    let played = lab.step();
    let mut record = record(&lab, &played);
    let entries = (1..=6).map(|n| Rejected {
        name: format!("bad{n}"),
        why: "line 2: PrivateKey is not a key".to_owned(),
    });
    record.machine.as_mut().unwrap().pool.as_mut().unwrap().left_out = entries.collect();
    tell("status_left_out", &status(&lab.name, &lab.policy, &record, &lab.now));
}

#[test]
fn nothing_in_a_name_or_a_reason_reaches_the_terminal() {
    let mut lab = lab_of(world::policy(2, 3, &json!({})), &NAMES);
    let played = lab.step();
    let mut record = record(&lab, &played);
    for slot in record.machine.as_mut().unwrap().slots.values_mut() {
        slot.why = "\u{1b}[2J".to_owned();
    }
    record.last_step.as_mut().unwrap().reasons = vec![ReasonText::new("x", "\u{7}\r")];
    let text = status(&lab.name, &lab.policy, &record, &lab.now).to_string();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}

/// The keys of `status --json` are a contract.
#[test]
fn the_json_has_these_keys() {
    let mut lab = lab_of(world::policy(2, 3, &json!({})), &NAMES);
    let played = lab.step();
    let json = serde_json::to_value(shown(&lab, &played, &lab.now)).unwrap();
    let keys = |value: &Value| -> Vec<String> {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort_unstable();
        keys
    };
    assert_eq!(
        keys(&json),
        [
            "clients",
            "kind",
            "last_step",
            "next",
            "paused",
            "policy",
            "pool",
            "reasons",
            "repair_events_since_full_refresh",
            "since",
            "slots",
            "state",
        ]
    );
    assert_eq!(keys(&json["last_step"]), ["at", "duration_ms", "outcome", "transition"]);
    assert_eq!(
        keys(&json["slots"][0]),
        [
            "clients",
            "endpoint",
            "exit_ip",
            "failures",
            "health",
            "interface",
            "latency_ms",
            "since",
            "why",
        ]
    );
    assert_eq!(keys(&json["clients"][0]), ["client", "egress"]);
    assert_eq!(keys(&json["pool"]), ["fetched_at", "generation", "quarantined", "reserve"]);
    assert_eq!(keys(&json["next"][0]), ["at", "what"]);
}
