//! Situations of a whole pool that bring several rows of its plan together, each told from its start to its end.

use crate::world;

use egressctl::machine::{Considered, Machine as _};
use egressctl::names::Interface;
use egressctl::observation::{Asker, Observation, PageReading, Question, Reading};
use egressctl::plan::Step;
use egressctl::pool::Pool;
use egressctl::pool::state::{Egress, Mode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use world::{Endpoint, Lab, Played, Source, Steps as _, Uplink, interface, lab_of, policy};

const ALL: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// So many slots and four clients, before the first run.
fn fresh(slots: usize, names: &[&'static str], params: &Value) -> Lab {
    let mut all = json!({ "health_failures_before_down": 1, "local_repair_retest_count": 1 });
    for (key, value) in params.as_object().unwrap() {
        all[key] = value.clone();
    }
    lab_of(policy(slots, 4, &all), names)
}

fn normal(slots: usize, names: &[&'static str], params: &Value) -> Lab {
    let mut lab = fresh(slots, names, params);
    lab.step();
    assert_eq!(lab.state().mode, Mode::Normal);
    lab
}

/// The next step, and where it led.
fn next(lab: &mut Lab) -> (Mode, Played) {
    lab.later(10);
    let played = lab.step();
    (played.after.mode, played)
}

/// What is in each slot that serves.
fn serving(lab: &Lab) -> BTreeMap<String, String> {
    let state = lab.state();
    let slots = state.slots.iter().filter(|(slot, _)| state.serves(slot));
    slots.map(|(slot, held)| (slot.to_string(), held.loaded().unwrap().name.clone())).collect()
}

fn serves(slots: &[(&str, &str)]) -> BTreeMap<String, String> {
    slots.iter().map(|(slot, name)| ((*slot).to_owned(), (*name).to_owned())).collect()
}

/// How many clients leave by each slot.
fn loads(lab: &Lab) -> BTreeMap<Interface, usize> {
    let mut loads = BTreeMap::new();
    for egress in lab.state().egress.values() {
        let Egress::Slot(slot) = egress else { panic!("{egress:?}") };
        *loads.entry(slot.clone()).or_default() += 1;
    }
    loads
}

fn quarantined(lab: &Lab) -> Vec<&str> {
    let mut names: Vec<&str> =
        lab.state().quarantine.values().map(|endpoint| endpoint.name.as_str()).collect();
    names.sort_unstable();
    names
}

fn all_on(lab: &Lab, way: &Egress) -> bool {
    lab.state().egress.values().all(|egress| egress == way)
}

#[test]
fn several_slots_that_fail_in_one_step_lose_their_clients_at_once_and_are_repaired_one_by_one() {
    let mut lab = normal(4, &ALL, &json!({}));
    lab.set(&["b", "c"], Endpoint::Dead);
    let (mode, played) = next(&mut lab);
    assert_eq!(mode, Mode::LocalRepair);
    assert_eq!(serving(&lab), serves(&[("vpn1", "a"), ("vpn4", "d")]));
    assert_eq!(loads(&lab).into_values().collect::<Vec<_>>(), [2, 2]);
    assert!(played.plan.iter().all(|step| !format!("{:?}", step.action).contains("Tunnel")));
    let (mode, _) = next(&mut lab);
    assert_eq!((mode, serving(&lab).len()), (Mode::LocalRepair, 3), "one slot a step");
    assert_eq!(serving(&lab)["vpn2"], "e", "the lowest first, and the best for it");
    assert_eq!(quarantined(&lab), ["b"], "the other one waits for its turn");
    let (mode, _) = next(&mut lab);
    assert_eq!((mode, serving(&lab)["vpn3"].as_str()), (Mode::Normal, "f"));
    assert_eq!(
        (quarantined(&lab), lab.state().repair_events_since_full_refresh),
        (vec!["b", "c"], 2)
    );
    assert!(loads(&lab).into_values().all(|clients| clients == 1), "each is home");
}

#[test]
fn the_threshold_that_is_met_while_another_slot_is_failed_waits_until_that_is_repaired() {
    let mut lab = normal(3, &ALL, &json!({ "full_refresh_after_repairs": 1 }));
    lab.set(&["a", "b"], Endpoint::Dead);
    assert_eq!(next(&mut lab).0, Mode::LocalRepair);
    let (mode, played) = next(&mut lab);
    assert_eq!(played.after.repair_events_since_full_refresh, 1, "the threshold");
    assert_eq!((mode, serving(&lab).len()), (Mode::LocalRepair, 2));
    let (mode, played) = next(&mut lab);
    assert_eq!(played.after.repair_events_since_full_refresh, 2);
    assert_eq!((mode, serving(&lab).len()), (Mode::FullPoolRefresh, 3));
    let (mode, played) = next(&mut lab);
    assert_eq!(mode, Mode::Normal, "asked at once, whatever the interval");
    assert_eq!(played.after.repair_events_since_full_refresh, 0);
}

#[test]
fn a_slot_that_fails_during_a_refresh_is_repaired_and_the_refresh_goes_on_from_where_it_was() {
    let mut lab = normal(2, &ALL, &json!({}));
    lab.policy.test.parallel = 1;
    lab.trial_sec = 11;
    lab.state.as_mut().unwrap().refresh_asked = Some(lab.now.clone());
    assert_eq!(next(&mut lab).0, Mode::FullPoolRefresh);
    let tested = |lab: &Lab| lab.state().fresh.as_ref().map_or(0, |fresh| fresh.tested.len());
    assert_eq!(next(&mut lab).0, Mode::FullPoolRefresh);
    let before = tested(&lab);
    assert!(before >= 3, "two by their slots, and one trial a step: {before}");
    lab.set(&["a"], Endpoint::Dead);
    let (mode, played) = next(&mut lab);
    assert_eq!((mode, serving(&lab).len()), (Mode::FullPoolRefresh, 1), "{:?}", played.codes());
    let mut modes = Vec::new();
    let mut most = tested(&lab);
    assert!(most >= before, "progress is kept");
    while lab.state().pool.as_ref().unwrap().generation == 1 {
        modes.push(next(&mut lab).0);
        assert!(tested(&lab) >= most || lab.state().fresh.is_none());
        most = tested(&lab);
        assert!(modes.len() < 12, "{modes:?}");
    }
    assert_eq!(modes.pop(), Some(Mode::Normal));
    assert!(modes.iter().all(|mode| *mode == Mode::FullPoolRefresh), "{modes:?}");
    assert_eq!(lab.state().last_generation, 2, "of one list, which was asked for once");
    assert_eq!(serving(&lab).len(), 2);
    assert!(!serving(&lab).values().any(|name| name == "a"));
}

#[test]
fn a_pool_of_one_slot_is_repaired_given_up_and_brought_back() {
    let mut lab = normal(1, &ALL[..2], &json!({}));
    lab.set(&["a"], Endpoint::Dead);
    let (mode, played) = next(&mut lab);
    assert_eq!(mode, Mode::LocalRepair);
    assert_eq!(loads(&lab).into_values().collect::<Vec<_>>(), [4], "there is no other to go to");
    assert_eq!(played.after.repair_events_since_full_refresh, 0);
    assert_eq!(next(&mut lab).0, Mode::Normal);
    assert_eq!((serving(&lab), quarantined(&lab)), (serves(&[("vpn1", "b")]), vec!["a"]));

    lab.set(&["b"], Endpoint::Dead);
    assert_eq!(next(&mut lab).0, Mode::DirectEmergency, "no reserve, so no grace");
    assert!(all_on(&lab, &Egress::Direct));
    assert_eq!(next(&mut lab).0, Mode::BootstrapRecovery);
    lab.set(&["a"], Endpoint::Alive);
    for _ in 0..4 {
        lab.later(30);
        lab.step();
    }
    assert_eq!(lab.state().mode, Mode::Normal);
    assert_eq!(serving(&lab), serves(&[("vpn1", "a")]));
    assert!(all_on(&lab, &Egress::Slot(interface("vpn1"))));
}

#[test]
fn a_first_run_with_the_wan_down_tries_nothing_and_the_wan_brings_it_up() {
    let mut lab = fresh(2, &ALL[..3], &json!({}));
    lab.uplink = Uplink::Down;
    for _ in 0..3 {
        let (mode, played) = next(&mut lab);
        assert_eq!(mode, Mode::FullPoolRefresh);
        assert!(played.seen.lists().next().is_none() && played.trials().is_empty());
        assert!(played.plan.is_empty() && !played.after.proven && played.after.egress.is_empty());
    }
    lab.uplink = Uplink::Up;
    let (mode, played) = next(&mut lab);
    assert_eq!((mode, played.codes()), (Mode::FullPoolRefresh, vec!["settling".to_owned()]));
    assert!(played.plan.is_empty(), "the first step with it only looks");
    assert_eq!(next(&mut lab).0, Mode::Normal);
    assert_eq!(loads(&lab).len(), 2);
}

#[test]
fn a_first_run_with_fewer_candidates_than_slots_serves_and_fills_up_when_the_list_grows() {
    let mut lab = fresh(3, &ALL[..2], &json!({ "hmn_refresh_retry_interval_sec": 60 }));
    let (mode, _) = next(&mut lab);
    assert_eq!((mode, serving(&lab).len()), (Mode::DegradedPool, 2));
    assert_eq!(loads(&lab).into_values().collect::<Vec<_>>(), [2, 2], "all clients are served");
    let before = serving(&lab);
    lab.set(&ALL, Endpoint::Alive);
    lab.source = Source::lists(&ALL);
    let mut steps = 0;
    while lab.state().mode != Mode::Normal {
        next(&mut lab);
        steps += 1;
        assert!(steps < 12, "{:?}", lab.state().mode);
    }
    assert_eq!(serving(&lab).len(), 3);
    assert!(before.iter().all(|(slot, name)| serving(&lab)[slot] == *name), "what served goes on");
}

#[test]
fn a_slot_that_loses_large_packets_gets_a_smaller_mtu_once_and_is_then_replaced() {
    let mut lab = normal(2, &ALL[..3], &json!({}));
    lab.set(&["a"], Endpoint::SmallOnly);
    let mtu = |lab: &Lab| lab.kernel.tunnels[&interface("vpn1")].mtu;
    let before = mtu(&lab);
    assert_eq!(next(&mut lab).0, Mode::LocalRepair);
    assert_eq!((next(&mut lab).0, mtu(&lab)), (Mode::LocalRepair, 1_280));
    assert!(before > 1_280);
    // The smaller one does not help: large packets are still lost.
    lab.later(10);
    let (_, mut seen) = lab.decide();
    for (question, reading) in &mut seen.readings {
        if let (Question::Pages(pages), Reading::Pages(answers)) = (question, reading)
            && pages.asker == Asker::SlotLarge(interface("vpn1"))
        {
            answers.pages = vec![Some(PageReading::TimedOut)];
        }
    }
    let Considered::Decide(decision) = Pool::consider(&lab.subject(), &seen, &lab.now, true) else {
        panic!("enough is known")
    };
    let said = |code: &str| decision.wished.reasons.iter().any(|reason| reason.code == code);
    assert!(said("repaired") && !said("mtu-lowered"), "{:?}", decision.wished.reasons);
    let wished = &decision.wished.world.tunnels[&interface("vpn1")];
    assert_eq!(wished.mtu, before, "the next endpoint has its own");
    assert_eq!(decision.wished.state.repair_events_since_full_refresh, 1, "the MTU is no repair");
}

#[test]
fn a_person_needs_force_for_an_endpoint_that_is_not_confirmed_healthy() {
    let mut lab = normal(2, &ALL[..4], &json!({}));
    lab.set(&["a"], Endpoint::Dead);
    next(&mut lab);
    next(&mut lab);
    assert_eq!(quarantined(&lab), ["a"]);
    lab.set(&["a"], Endpoint::Alive);
    let refused = Pool::switch(&lab.subject(), "vpn2=a", false).expect_err("it is quarantined");
    assert!(refused.contains("not confirmed healthy, it is quarantined"), "{refused}");
    let (state, _) = Pool::switch(&lab.subject(), "vpn2=a", true).unwrap();
    lab.state = Some(state);
    next(&mut lab);
    assert_eq!((serving(&lab)["vpn2"].as_str(), quarantined(&lab).len()), ("a", 0));
}

#[test]
fn a_step_whose_time_is_over_asks_just_for_the_uplink_and_keeps_what_it_has_learned() {
    for uplink in [Uplink::Up, Uplink::Down] {
        let mut lab = fresh(2, &ALL, &json!({}));
        lab.set(&ALL, Endpoint::Dead);
        let mut seen = Observation::new(lab.now.clone());
        let decision = loop {
            lab.tick();
            // Its time is over with the first batch of tests, which fails.
            let in_time = seen.trials().next().is_none();
            match Pool::consider(&lab.subject(), &seen, &lab.now, in_time) {
                Considered::Ask(asked) => {
                    for question in asked {
                        assert!(in_time || matches!(&question, Question::Pages(_)), "{question:?}");
                        lab.tick();
                        let reading = lab.answer(&question).unwrap();
                        seen.readings.insert(question, reading);
                    }
                    if seen.trials().next().is_some() {
                        lab.uplink = uplink;
                    }
                }
                Considered::Decide(decision) => break decision,
                Considered::Unable(why) => panic!("{why:?}"),
            }
        };
        let codes: Vec<&str> =
            decision.wished.reasons.iter().map(|reason| reason.code.as_str()).collect();
        let tested = decision.wished.state.fresh.as_ref().map(|fresh| fresh.tested.len());
        let learned = if uplink == Uplink::Up { ("testing", Some(2)) } else { ("wan-down", None) };
        assert_eq!((codes, tested), (vec![learned.0], learned.1));
    }
}

#[test]
fn with_the_wan_down_nothing_moves_in_any_state_and_its_return_changes_nothing_at_first() {
    let provider = json!({ "directory": { "path": "/etc/egressctl/endpoints" } });
    let mut states = Vec::new();
    // One life of a pool through all its states; at each step of it the WAN falls in another life.
    let mut lab =
        fresh(2, &ALL[..3], &json!({ "direct_grace_sec": 0, "full_refresh_after_repairs": 1 }));
    lab.policy.provider = serde_json::from_value(provider).unwrap();
    let script: [&dyn Fn(&mut Lab); 14] = [
        &|_| {},
        &|lab| lab.set(&["a"], Endpoint::Dead),
        &|_| {},
        &|lab| lab.source = Source::Unavailable,
        &|_| {},
        &|lab| lab.set(&["b"], Endpoint::Dead),
        &|_| {},
        &|_| {},
        &|lab| lab.set(&["c"], Endpoint::Dead),
        &|_| {},
        &|_| {},
        &|_| {},
        &|lab| lab.set(&ALL[..3], Endpoint::Alive),
        &|lab| lab.source = Source::lists(&ALL[..3]),
    ];
    for act in script {
        act(&mut lab);
        next(&mut lab);
        states.push(lab.state().mode);
        let mut dark = lab.clone();
        dark.uplink = Uplink::Down;
        let (before, kernel) = (lab.state().clone(), lab.kernel.clone());
        let (asked, tried) = (before.refresh_tried_at.clone(), before.bootstrap.clone());
        for step in 0..6 {
            if step == 4 {
                dark.uplink = Uplink::Up;
            }
            if step == 5 {
                break;
            }
            let (mode, played) = next(&mut dark);
            assert_eq!(mode, before.mode, "step {step}: {:?}", played.codes());
            assert!(played.plan.is_empty(), "{mode}, step {step}: {:?}", played.plan);
            if dark.uplink == Uplink::Down {
                assert!(played.trials().is_empty() && played.seen.lists().next().is_none());
            }
            let after = &played.after;
            assert_eq!((&after.egress, &after.quarantine), (&before.egress, &before.quarantine));
            assert_eq!((&after.refresh_tried_at, &after.bootstrap), (&asked, &tried));
            for (slot, held) in &after.slots {
                let old = &before.slots[slot];
                assert_eq!((&held.content, held.failed), (&old.content, old.failed), "{mode}");
                assert_eq!(held.retests_failed, 0, "{mode}: retests begin anew");
            }
        }
        assert_eq!(dark.kernel, kernel);
    }
    let seen: std::collections::BTreeSet<&str> = states.iter().map(|mode| mode.as_str()).collect();
    assert_eq!(seen.len(), 7, "in every state: {states:?}");
}

#[test]
fn a_tunnel_that_only_keeps_what_was_open_alive_is_given_up_after_a_minute() {
    let mut lab = normal(
        2,
        &ALL[..3],
        &json!({ "health_failures_before_down": 2, "local_repair_retest_count": 2 }),
    );
    lab.set(&["a"], Endpoint::Dead);
    let slot = interface("vpn1");
    let mut steps = 0;
    let is_busy = |lab: &Lab| lab.state().slots[&slot].why.starts_with("busy");
    while serving(&lab).values().any(|name| name == "a") {
        // Somebody's download goes on, however dead the tunnel is for all that is new.
        *lab.received.entry(slot.clone()).or_default() += 1 << 20;
        next(&mut lab);
        steps += 1;
        assert_eq!(is_busy(&lab), steps <= 6, "step {steps}");
        assert!(steps <= 8, "two failures after a minute");
    }
    for _ in 0..3 {
        *lab.received.entry(slot.clone()).or_default() += 1 << 20;
        next(&mut lab);
    }
    assert_eq!((lab.state().mode, quarantined(&lab)), (Mode::Normal, vec!["a"]), "nor by retests");
}

#[test]
fn a_rescue_loads_what_passed_before_what_could_not_be_tried() {
    let mut lab = normal(1, &ALL[..3], &json!({}));
    lab.set(&["a"], Endpoint::Dead);
    lab.set(&["b"], Endpoint::Untried);
    let mut steps = 0;
    while serving(&lab).is_empty() || serving(&lab)["vpn1"] == "a" {
        let (mode, played) = next(&mut lab);
        let loads_b = |step: &Step| format!("{:?}", step.action).contains("b.conf");
        assert!(!played.plan.iter().any(loads_b), "b was not tried, and c has passed");
        steps += 1;
        assert!(steps < 6, "{mode}");
    }
    assert_eq!(serving(&lab), serves(&[("vpn1", "c")]));
}

#[test]
fn addresses_of_hosts_that_nothing_names_any_more_are_forgotten_with_the_list_that_named_them() {
    let mut lab = normal(2, &ALL[..3], &json!({}));
    let gone = "left.example".to_owned();
    lab.state.as_mut().unwrap().names.insert(gone.clone(), vec!["203.0.113.9".parse().unwrap()]);
    lab.state.as_mut().unwrap().refresh_asked = Some(lab.now.clone());
    let mut steps = 0;
    while lab.state().pool.as_ref().unwrap().generation == 1 {
        next(&mut lab);
        steps += 1;
        assert!(steps < 12, "{:?}", lab.state().mode);
    }
    assert!(!lab.state().names.contains_key(&gone));
}
