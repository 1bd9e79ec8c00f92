//! What each key of a pool's policy changes: pools that differ in one key, and the step that shows it.

use crate::world;

use egressctl::machine::{Considered, Cut, Machine as _};
use egressctl::observation::{AnyOrAll, Asker, Expect, Pages, Reading};
use egressctl::plan::Check;
use egressctl::policy::{Policy, PoolPolicy};
use egressctl::pool::Pool;
use egressctl::pool::state::{Content, Mode, Slot};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use world::{Endpoint, Lab, Outcome, Played, Source, Steps as _, Uplink, interface, lab_of};

const ALL: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// A policy of so many slots, with these keys laid over; an object is laid over key by key.
fn policy(slots: usize, keys: &Value) -> PoolPolicy {
    let interfaces: Vec<String> = (1..=slots).map(|n| format!("vpn{n}")).collect();
    let mut text = json!({
        "kind": "pool",
        "slots": { "interfaces": interfaces },
        "clients": ["10.77.0.11", "10.77.0.12", "10.77.0.13", "10.77.0.14"],
        "provider": { "directory": { "path": "/etc/egressctl/endpoints" } },
        "probe": { "urls": ["http://192.0.2.80/generate_204"] },
        "wan": { "urls": ["http://192.0.2.90/"] },
        "params": { "health_failures_before_down": 1, "local_repair_retest_count": 1 },
    });
    for (key, value) in keys.as_object().unwrap() {
        match (&mut text[key], value) {
            // A policy has one provider.
            (Value::Object(there), Value::Object(more)) if key != "provider" => {
                there.extend(more.clone());
            }
            (there, value) => *there = value.clone(),
        }
    }
    let Policy::Pool(policy) = Policy::parse(&text.to_string()).expect("a good policy") else {
        panic!("it is a pool")
    };
    *policy
}

/// A world that was not stepped yet.
fn fresh(slots: usize, names: &[&'static str], keys: &Value) -> Lab {
    lab_of(policy(slots, keys), names)
}

/// One whose slots serve.
fn normal(slots: usize, names: &[&'static str], keys: &Value) -> Lab {
    let mut lab = fresh(slots, names, keys);
    lab.step();
    assert_eq!(lab.state().mode, Mode::Normal);
    lab
}

/// Some parameters.
fn params(params: &Value) -> Value {
    json!({ "params": params })
}

fn next(lab: &mut Lab) -> Played {
    lab.later(10);
    lab.step()
}

/// Steps, ten seconds apart, until that is so; how many it took, and the last of them.
fn steps_until(lab: &mut Lab, done: impl Fn(&Played) -> bool) -> (usize, Played) {
    for count in 1..=30 {
        let played = next(lab);
        if done(&played) {
            return (count, played);
        }
    }
    panic!("it did not come to that: {:?}", lab.state().mode);
}

fn to(mode: Mode) -> impl Fn(&Played) -> bool {
    move |played| played.after.mode == mode
}

fn says(played: &Played, code: &str) -> bool {
    played.codes().iter().any(|said| said == code)
}

fn asks_for_a_refresh(lab: &mut Lab) {
    lab.state.as_mut().unwrap().refresh_asked = Some(lab.now.clone());
    assert_eq!(next(lab).after.mode, Mode::FullPoolRefresh);
}

/// Whether the provider was asked.
fn fetched(played: &Played) -> bool {
    played.seen.lists().next().is_some()
}

/// What was asked by somebody in a step, each time.
fn asked(played: &Played, by: &Asker) -> Vec<Pages> {
    played.seen.pages(by).into_iter().map(|(pages, _)| pages.clone()).collect()
}

fn vpn1() -> Asker {
    Asker::Slot(interface("vpn1"))
}

/// All endpoints die, and the machine looks for the way back.
fn in_direct(lab: &mut Lab, names: &[&'static str]) {
    lab.set(names, Endpoint::Dead);
    steps_until(lab, to(Mode::BootstrapRecovery));
}

/// A provider that only a tunnel reaches.
fn by_http() -> Value {
    json!({ "http": { "url": "https://192.0.2.70/list.json" } })
}

/// How often a request through a new tunnel is tried in the proof of a step.
fn attempts(played: &Played) -> Vec<u32> {
    let checks = played.decision.checks.iter().filter_map(|check| match check {
        Check::Answer { attempts, .. } => Some(*attempts),
        Check::Route { .. } | Check::Outside { .. } => None,
    });
    checks.collect()
}

fn lent(played: &Played) -> Vec<String> {
    let slots = played.after.slots.iter();
    let lent = slots.filter(|(_, slot)| matches!(slot.content, Content::Lent(_)));
    lent.map(|(interface, _)| interface.to_string()).collect()
}

/// Each parameter and the test that shows what it does, in this file or on real tunnels.
const SHOWN: &[(&str, &str, &str)] = &[
    ("health_check_interval_sec", HERE, "testing_takes_no_more_than_the_time_between_two_checks"),
    ("health_failures_before_down", HERE, "so_many_failed_checks_stop_a_slot"),
    ("local_repair_retest_count", HERE, "so_many_retests_decide"),
    ("full_refresh_after_repairs", HERE, "so_many_repairs_lead_to_a_full_refresh"),
    ("hmn_refresh_retry_interval_sec", HERE, "a_provider_is_asked_again_after_its_interval"),
    ("bootstrap_retry_interval_sec", HERE, "out_of_direct_it_is_asked_again_after_another"),
    ("bootstrap_candidate_retry_count", HERE, "the_slot_that_is_lent_and_how_often_it_is_tried"),
    ("bootstrap_slot", HERE, "the_slot_that_is_lent_and_how_often_it_is_tried"),
    ("bootstrap_strategy_order", HERE, "the_first_strategy_is_tried_first"),
    ("candidate_test_timeout_sec", HERE, "a_candidate_has_so_long_to_answer"),
    ("candidate_test_retries", HERE, "a_candidate_is_tried_so_often_again"),
    (
        "min_healthy_slots_to_exit_direct",
        LAB,
        "fewer_slots_than_all_end_direct_where_the_policy_says_so",
    ),
    ("direct_grace_sec", HERE, "repair_goes_on_for_so_long_before_direct"),
    (
        "direct_failopen_enabled",
        DIRECT,
        "where_nothing_may_go_direct_clients_are_closed_in_from_the_first_step_on",
    ),
    ("emergency_commit_enabled", DIRECT, "a_held_move_waits_for_a_persons_consent"),
    ("exit_direct_from_cache", LAB, "the_last_pool_ends_direct_only_where_the_policy_lets_it"),
    ("refresh_min_ratio", HERE, "a_list_is_too_short_below_a_share_of_the_last"),
    ("flap_limit", HERE, "so_many_false_alarms_within_a_window_are_none"),
    ("flap_window_sec", HERE, "so_many_false_alarms_within_a_window_are_none"),
    ("step_budget_sec", LAB, "a_step_asks_for_half_of_its_budget_and_the_next_one_goes_on"),
];
const HERE: &str = include_str!("pool_keys.rs");
const LAB: &str = include_str!("pool_params.rs");
const DIRECT: &str = include_str!("pool_direct.rs");

#[test]
fn every_parameter_has_a_test() {
    let source = include_str!("../src/policy/pool/params.rs");
    let fields = source.split("pub struct Params {").nth(1).unwrap().split("\n}").next().unwrap();
    let fields = fields.lines().filter_map(|line| line.trim().strip_prefix("pub "));
    let there: BTreeSet<&str> = fields.map(|field| field.split(':').next().unwrap()).collect();
    let shown: BTreeSet<&str> = SHOWN.iter().map(|(name, _, _)| *name).collect();
    assert_eq!(there, shown);
    for (name, file, test) in SHOWN {
        assert!(file.contains(&format!("\nfn {test}()")), "{test} is gone, for {name}");
    }
}

#[test]
fn testing_takes_no_more_than_the_time_between_two_checks() {
    for (interval, tried) in [(5, 2), (60, 8)] {
        let keys = json!({ "params": { "health_check_interval_sec": interval },
                           "test": { "parallel": 2 } });
        let mut lab = fresh(2, &ALL, &keys);
        lab.trial_sec = 6;
        assert_eq!(lab.step().trials().len(), tried, "in {interval} s");
    }
}

/// Case C28.
#[test]
fn so_many_failed_checks_stop_a_slot() {
    for count in [1, 3] {
        let mut lab =
            normal(2, &ALL[..3], &params(&json!({ "health_failures_before_down": count })));
        lab.set(&["a"], Endpoint::Dead);
        assert_eq!(steps_until(&mut lab, to(Mode::LocalRepair)).0, count);
    }
}

#[test]
fn so_many_retests_decide() {
    for count in [1, 3] {
        for (then, loaded) in [(Endpoint::Dead, "c"), (Endpoint::Alive, "a")] {
            let keys = params(&json!({ "local_repair_retest_count": count }));
            let mut lab = normal(2, &ALL[..3], &keys);
            lab.set(&["a"], Endpoint::Dead);
            steps_until(&mut lab, to(Mode::LocalRepair));
            lab.set(&["a"], then);
            let (steps, played) = steps_until(&mut lab, to(Mode::Normal));
            assert_eq!(steps, count, "{then:?}");
            let now = played.after.slots[&interface("vpn1")].loaded().unwrap().name.clone();
            assert_eq!(now, loaded, "{then:?}");
        }
    }
}

#[test]
fn so_many_repairs_lead_to_a_full_refresh() {
    for count in [1, 3] {
        let keys = params(&json!({ "full_refresh_after_repairs": count }));
        let mut lab = normal(2, &ALL, &keys);
        let mut repairs = 0;
        while lab.state().mode != Mode::FullPoolRefresh {
            let name = lab.state().slots[&interface("vpn1")].loaded().unwrap().name.clone();
            lab.endpoints.insert(name, Endpoint::Dead);
            steps_until(&mut lab, |played| says(played, "repaired"));
            repairs += 1;
        }
        assert_eq!(repairs, count);
    }
}

#[test]
fn a_provider_is_asked_again_after_its_interval() {
    for wait in [100, 400] {
        let keys = params(&json!({ "hmn_refresh_retry_interval_sec": wait }));
        let mut lab = normal(2, &ALL[..3], &keys);
        lab.source = Source::Unavailable;
        asks_for_a_refresh(&mut lab);
        assert_eq!(next(&mut lab).after.mode, Mode::DegradedPool);
        lab.source = Source::lists(&ALL[..3]);
        lab.later(wait - 10);
        assert!(!fetched(&lab.step()), "{wait}");
        assert_eq!(next(&mut lab).after.mode, Mode::Normal, "{wait}");
    }
}

#[test]
fn out_of_direct_it_is_asked_again_after_another() {
    for wait in [30, 90] {
        let keys = params(&json!({ "bootstrap_retry_interval_sec": wait, "direct_grace_sec": 0 }));
        let mut lab = normal(2, &ALL[..2], &keys);
        lab.source = Source::Unavailable;
        in_direct(&mut lab, &ALL[..2]);
        assert!(fetched(&next(&mut lab)), "at once");
        lab.later(wait - 10);
        assert!(!fetched(&lab.step()), "{wait}");
        assert!(fetched(&next(&mut lab)), "{wait}");
    }
}

#[test]
fn the_slot_that_is_lent_and_how_often_it_is_tried() {
    for (slot, tries) in [(Value::Null, 1), (json!("vpn2"), 3)] {
        let keys = json!({ "provider": by_http(), "params": {
            "bootstrap_slot": slot, "bootstrap_candidate_retry_count": tries,
            "candidate_test_retries": 6, "direct_grace_sec": 0, "bootstrap_retry_interval_sec": 0,
        } });
        let mut lab = normal(2, &ALL[..4], &keys);
        lab.source = Source::by_tunnel(&ALL[..4]);
        in_direct(&mut lab, &ALL[..4]);
        lab.set(&["d"], Endpoint::Alive);
        let (_, played) = steps_until(&mut lab, |played| {
            !lent(played).is_empty() && played.outcome == Outcome::Applied
        });
        assert_eq!(lent(&played), [slot.as_str().unwrap_or("vpn1")]);
        assert_eq!(attempts(&played), [tries]);
    }
}

#[test]
fn the_first_strategy_is_tried_first() {
    for (order, by_uplink) in
        [(["direct", "cached_pool"], true), (["cached_pool", "direct"], false)]
    {
        let keys = json!({ "provider": by_http(), "params": {
            "bootstrap_strategy_order": order, "direct_grace_sec": 0,
        } });
        let mut lab = normal(2, &ALL[..3], &keys);
        lab.source = Source::Unavailable;
        in_direct(&mut lab, &ALL[..3]);
        let first = next(&mut lab);
        assert_eq!(
            (fetched(&first), says(&first, "lending") || !by_uplink),
            (by_uplink, !by_uplink)
        );
    }
}

#[test]
fn a_candidate_has_so_long_to_answer() {
    for (timeout, mode) in [(1, Mode::FullPoolRefresh), (3, Mode::Normal)] {
        let mut lab =
            fresh(2, &ALL[..3], &params(&json!({ "candidate_test_timeout_sec": timeout })));
        lab.set(&ALL[..3], Endpoint::Slow);
        assert_eq!(lab.step().after.mode, mode, "{timeout} s");
    }
}

#[test]
fn a_candidate_is_tried_so_often_again() {
    for retries in [0, 2] {
        let mut lab = fresh(2, &ALL[..3], &params(&json!({ "candidate_test_retries": retries })));
        let played = lab.step();
        assert!(played.seen.trials().all(|(trial, _)| trial.retries == retries));
        assert_eq!(attempts(&played), [retries + 1, retries + 1]);
    }
}

#[test]
fn repair_goes_on_for_so_long_before_direct() {
    for (grace, steps) in [(0, 1), (35, 5)] {
        let keys = params(&json!({ "direct_grace_sec": grace }));
        let mut lab = normal(2, &ALL, &keys);
        lab.set(&ALL[..2], Endpoint::Dead);
        // What answers its trial and nothing in its slot is never used up.
        lab.set(&ALL[2..], Endpoint::TrialOnly);
        assert_eq!(steps_until(&mut lab, to(Mode::DirectEmergency)).0, steps, "{grace} s");
    }
}

#[test]
fn a_list_is_too_short_below_a_share_of_the_last() {
    for (ratio, refused) in [(0.5, true), (0.2, false)] {
        let mut lab = normal(2, &ALL, &params(&json!({ "refresh_min_ratio": ratio })));
        lab.source = Source::lists(&ALL[..3]);
        asks_for_a_refresh(&mut lab);
        assert_eq!(says(&next(&mut lab), "list-refused"), refused, "{ratio}");
    }
}

/// Case C28.
#[test]
fn so_many_false_alarms_within_a_window_are_none() {
    let alarms = |limit: u32, window: u64| {
        let keys = params(&json!({ "flap_limit": limit, "flap_window_sec": window }));
        let mut lab = normal(2, &ALL[..3], &keys);
        for alarms in 0..6 {
            lab.set(&["a"], Endpoint::Portal);
            steps_until(&mut lab, to(Mode::LocalRepair));
            lab.set(&["a"], Endpoint::Alive);
            if says(&steps_until(&mut lab, to(Mode::Normal)).1, "repaired") {
                return Some(alarms);
            }
        }
        None
    };
    assert_eq!(alarms(2, 1_000), Some(1));
    assert_eq!(alarms(4, 1_000), Some(3));
    assert_eq!(alarms(2, 15), None, "each is forgotten before the next");
}

#[test]
fn what_a_probe_asks_and_how_it_is_judged() {
    let all = json!({ "probe": {
        "urls": ["http://192.0.2.81/", "http://192.0.2.82/"], "require": "all",
        "expect_status": [200, 302], "timeout_sec": 7,
    } });
    let mut lab = normal(2, &ALL[..3], &all);
    let played = next(&mut lab);
    let [pages] = &asked(&played, &vpn1())[..] else { panic!("once") };
    let urls: Vec<String> = pages.pages.iter().map(|page| page.url.to_string()).collect();
    assert_eq!(urls, ["http://192.0.2.81/", "http://192.0.2.82/"]);
    assert_eq!((pages.require, pages.timeout_ms), (AnyOrAll::All, 7_000));
    assert_eq!(pages.expect, Expect::Status(vec![200, 302]));

    // What it means for an endpoint: a page of a portal, one that is slow, one that loses large packets.
    let large = json!({ "url": "http://192.0.2.83/", "bytes": 1400 });
    for (probe, endpoint, mode) in [
        (json!({ "expect_status": [204] }), Endpoint::Portal, Mode::LocalRepair),
        (json!({ "expect_status": [204, 200] }), Endpoint::Portal, Mode::Normal),
        (json!({ "timeout_sec": 1 }), Endpoint::Slow, Mode::LocalRepair),
        (json!({ "timeout_sec": 3 }), Endpoint::Slow, Mode::Normal),
        (json!({ "large": large }), Endpoint::SmallOnly, Mode::LocalRepair),
        (json!({ "large": null }), Endpoint::SmallOnly, Mode::Normal),
    ] {
        let mut lab = normal(2, &ALL[..3], &json!({ "probe": probe }));
        lab.set(&["a"], endpoint);
        assert_eq!(next(&mut lab).after.mode, mode, "{probe}");
    }
}

#[test]
fn what_the_uplink_is_asked() {
    let two = json!({ "wan": { "urls": ["http://192.0.2.91/", "http://192.0.2.92/"],
                               "require": "all", "timeout_sec": 9 } });
    let usual = (1, AnyOrAll::Any, 3_000);
    for (keys, expected) in [(json!({}), usual), (two, (2, AnyOrAll::All, 9_000))] {
        let mut lab = normal(2, &ALL[..3], &keys);
        let played = next(&mut lab);
        let [pages] = &asked(&played, &Asker::Wan)[..] else { panic!("once") };
        assert_eq!((pages.pages.len(), pages.require, pages.timeout_ms), expected);
    }
}

#[test]
fn an_exit_address_is_asked_at_its_interval_and_may_have_to_differ_from_the_uplinks() {
    let exit = |differs: bool| {
        json!({ "exit_ip": { "url": "http://192.0.2.84/ip", "interval_sec": 25,
                             "must_differ_from_wan": differs } })
    };
    let by = Asker::SlotExit(interface("vpn1"));
    let mut lab = normal(2, &ALL[..3], &exit(true));
    let played = lab.steps(7, 10);
    let asked: Vec<bool> = played.iter().map(|played| !asked(played, &by).is_empty()).collect();
    assert_eq!(asked, [true, false, false, true, false, false, true]);

    for (differs, mode) in [(true, Mode::LocalRepair), (false, Mode::Normal)] {
        let mut lab = normal(2, &ALL[..3], &exit(differs));
        next(&mut lab);
        // The address that the uplink had when it was last seen is the one that a slot leaves by now.
        lab.uplink = Uplink::ReferencesDown;
        let state = lab.state.as_mut().unwrap();
        state.wan_exit_ip = state.slots[&interface("vpn1")].exit_ip;
        assert!(state.wan_exit_ip.is_some());
        lab.later(20);
        assert_eq!(next(&mut lab).after.mode, mode, "{differs}");
    }
    let mut none = normal(2, &ALL[..3], &json!({}));
    assert!(none.steps(3, 1_000).iter().all(|played| self::asked(played, &by).is_empty()));
}

#[test]
fn how_candidates_are_tested() {
    let test = json!({ "test": { "interface_prefix": "try", "parallel": 3, "enough": 4 } });
    let mut lab = fresh(2, &ALL, &test);
    let played = lab.step();
    let by: BTreeSet<String> =
        played.seen.trials().map(|(trial, _)| trial.interface.to_string()).collect();
    assert_eq!(by, ["try1", "try2", "try3"].map(str::to_owned).into());
    assert_eq!(played.trials().len(), 6, "two batches of three bring four and more");
    let mut lab = fresh(2, &ALL, &json!({ "test": { "parallel": 1, "enough": 3 } }));
    assert_eq!(lab.step().trials().len(), 3);
    let mut lab = fresh(4, &ALL, &json!({ "test": { "parallel": 1, "enough": 3 } }));
    assert_eq!(lab.step().trials().len(), 4, "one for each slot at least");
}

/// The rules and the nft table that serve the clients, and what is loaded at boot.
fn laid_out(keys: &Value) -> (String, String, Option<String>) {
    let mut lab = normal(2, &ALL[..3], keys);
    let played = next(&mut lab);
    let rules: Vec<String> = lab.kernel.rules.iter().map(|rule| format!("{rule:?}")).collect();
    let nft = lab.kernel.nft.as_ref().unwrap().text.clone();
    (rules.join("\n"), nft, played.decision.wished.barrier)
}

#[test]
fn what_the_layout_is_made_of() {
    let (rules, nft, barrier) = laid_out(&json!({}));
    for said in ["10.9.0.0/16", "ens9"] {
        assert!(!rules.contains(said) && !nft.contains(said), "{said}");
    }
    let inbound = "0x45471001";
    assert!(nft.contains("nfproto ipv6") && nft.contains(inbound));
    assert!(nft.contains("\"eth1\"") && nft.contains("\"vpn2\""), "found by itself: {nft}");
    assert!(barrier.is_some());
    let with = |routing: Value| laid_out(&json!({ "routing": routing }));

    let (rules, nft, _) = with(json!({ "local": ["10.9.0.0/16"] }));
    assert!(rules.contains("10.9.0.0/16") && nft.contains("10.9.0.0/16"), "{rules}\n{nft}");
    let (rules, nft, _) = with(json!({ "ipv6": "off" }));
    assert!(!nft.contains("nfproto ipv6") && !rules.contains("V6"), "{rules}\n{nft}");
    let (rules, nft, _) = laid_out(
        &json!({ "routing": { "ipv6": "tunnel" }, "clients": ["10.77.0.11", "2001:db8:7::/64"] }),
    );
    assert!(rules.contains("2001:db8:7::/64") && nft.contains("set clients6"), "{rules}\n{nft}");
    assert!(!with(json!({ "inbound": "block" })).1.contains(inbound));
    let by_slots =
        |nft: &str| nft.lines().any(|line| line.contains("vpn1") && line.contains("masquerade"));
    assert!(by_slots(&nft) && !by_slots(&with(json!({ "masquerade": false })).1));
    assert_eq!(with(json!({ "barrier": false })).2, None);
    let (_, nft, _) = laid_out(&json!({ "lan_interfaces": ["ens8", "ens9"] }));
    assert!(nft.contains("\"ens8\"") && nft.contains("\"ens9\"") && !nft.contains("\"eth1\""));
    let (rules, nft, _) = with(json!({ "first_mark": "0x51230000", "rule_priority": 9000 }));
    assert!(nft.contains("0x51231001") && rules.contains("9000"), "{rules}\n{nft}");
}

#[test]
fn the_uplink_is_the_one_that_is_named_or_else_the_default_routes() {
    for (keys, wan) in [(json!({}), "ppp9"), (json!({ "wan_interface": "eth0" }), "eth0")] {
        let mut lab = fresh(2, &ALL[..3], &keys);
        let (_, mut seen) = lab.decide();
        for reading in seen.readings.values_mut() {
            if let Reading::Kernel(kernel) = reading {
                kernel.default_device = Some(interface("ppp9"));
            }
        }
        let Considered::Decide(decision) = Pool::consider(&lab.subject(), &seen, &lab.now, false)
        else {
            panic!("enough is known")
        };
        assert_eq!(decision.wished.state.surroundings.unwrap().wan.as_str(), wan);
    }
}

#[test]
fn open_flows_of_a_dead_slot_are_cut_where_the_policy_says_so() {
    for (cut, cuts) in [("dead", 1), ("none", 0)] {
        let mut lab = normal(2, &ALL[..3], &json!({ "routing": { "cut": cut } }));
        lab.set(&["a"], Endpoint::Dead);
        let played = next(&mut lab);
        assert_eq!(played.after.mode, Mode::LocalRepair);
        let marked = |cut: &&Cut| matches!(cut, Cut::Marked(_));
        assert_eq!(played.decision.wished.cuts.iter().filter(marked).count(), cuts, "{cut}");
    }
}

#[test]
fn tunnels_are_made_by_the_tool_that_is_named() {
    let made = |wireguard: Value| {
        let means = Pool::means(&policy(1, &json!({ "wireguard": wireguard })));
        format!("{means:?}")
    };
    let (kernel, go) = (made(json!({})), made(json!({ "userspace": "wireguard-go" })));
    let awg = made(json!({ "tool": "awg", "userspace": "amneziawg-go" }));
    assert!(kernel.contains("\"wg\"") && !kernel.contains("-go"), "{kernel}");
    assert!(go.contains("\"wireguard-go\""), "{go}");
    assert!(awg.contains("\"awg\"") && awg.contains("\"amneziawg-go\""), "{awg}");
}

#[test]
fn the_slots_tables_are_counted_from_the_first() {
    let keys = json!({ "slots": { "interfaces": ["vpn1", "vpn2"], "first_table": 301 } });
    let lab = normal(2, &ALL[..3], &keys);
    let tables: BTreeSet<String> =
        lab.kernel.routes.iter().map(|route| format!("{:?}", route.table)).collect();
    assert_eq!(tables, ["Table(301)", "Table(302)"].map(str::to_owned).into());
    assert!(lab.state().slots.values().all(|slot: &Slot| slot.loaded().is_some()));
}
