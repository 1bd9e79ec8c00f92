//! A failed check that is repeated within the step (`probe.confirm`): a death is acted upon at once, and one lost
//! packet is no death.

use crate::world;

use egressctl::machine::{Considered, Decision, Machine as _};
use egressctl::observation::{Asker, Observation, Question};
use egressctl::policy::{Policy, PoolPolicy};
use egressctl::pool::state::{Mode, Slot};
use egressctl::pool::{Pool, PoolState};
use serde_json::json;
use world::{Endpoint, Lab, Steps as _, Uplink, interface, lab_of};

/// Three endpoints for two slots, whose failed checks are repeated so often.
fn policy(confirm: u32, failures: u32) -> PoolPolicy {
    let text = json!({
        "kind": "pool",
        "slots": { "interfaces": ["vpn1", "vpn2"] },
        "clients": ["10.77.0.11", "10.77.0.12", "10.77.0.13", "10.77.0.14"],
        "provider": { "directory": { "path": "/etc/egressctl/endpoints" } },
        "probe": { "urls": ["http://192.0.2.80/generate_204"], "confirm": confirm },
        "wan": { "urls": ["http://192.0.2.90/"] },
        "params": { "health_failures_before_down": failures, "local_repair_retest_count": 2 },
    });
    let Policy::Pool(policy) = Policy::parse(&text.to_string()).expect("a good policy") else {
        panic!("it is a pool")
    };
    *policy
}

/// The same in NORMAL, every slot checked once, a step being due.
fn normal(confirm: u32, failures: u32) -> Lab {
    let mut lab = lab_of(policy(confirm, failures), &["a", "b", "c"]);
    lab.step();
    lab.later(10);
    lab.step();
    assert_eq!(lab.state().mode, Mode::Normal);
    lab.later(10);
    lab
}

/// One step in which `happens` changes the world when a question is about to be answered. What came true is remembered.
fn step(
    lab: &mut Lab,
    mut happens: impl FnMut(&mut Lab, &Question),
) -> (Decision<PoolState>, Observation) {
    let mut seen = Observation::new(lab.now.clone());
    loop {
        lab.tick();
        match Pool::consider(&lab.subject(), &seen, &lab.now, true) {
            Considered::Ask(asked) => {
                for question in asked {
                    happens(lab, &question);
                    lab.tick();
                    let reading = lab.answer(&question).unwrap();
                    assert!(seen.readings.insert(question, reading).is_none(), "asked twice");
                }
            }
            Considered::Decide(decision) => {
                lab.state = Some(decision.wished.state.clone());
                lab.later(10);
                return (*decision, seen);
            }
            Considered::Unable(why) => panic!("{why:?}"),
        }
    }
}

fn repeated(seen: &Observation, slot: &str) -> usize {
    seen.pages(&Asker::SlotAgain(interface(slot))).len()
}

fn vpn1(lab: &Lab) -> &Slot {
    &lab.state().slots[&interface("vpn1")]
}

#[test]
fn a_slot_that_dies_loses_its_clients_in_the_step_that_sees_it() {
    for (confirm, failures, mode) in [
        (0, 2, Mode::Normal),
        (1, 2, Mode::LocalRepair),
        (1, 3, Mode::Normal),
        (2, 3, Mode::LocalRepair),
        (3, 1, Mode::LocalRepair),
    ] {
        let mut lab = normal(confirm, failures);
        lab.set(&["a"], Endpoint::Dead);
        let (decision, seen) = step(&mut lab, |_, _| ());
        assert_eq!(decision.wished.state.mode, mode, "{confirm} of {failures}");
        let often = usize::try_from(confirm).unwrap();
        assert_eq!((repeated(&seen, "vpn1"), repeated(&seen, "vpn2")), (often, 0));
        assert_eq!(vpn1(&lab).failures, confirm + 1);
        if mode == Mode::LocalRepair {
            let text = &decision.wished.reasons[0].text;
            assert!(text.contains(&format!("silent for {} checks", confirm + 1)), "{text}");
        }
    }
}

#[test]
fn one_lost_packet_is_no_death_and_the_next_silence_is_waited_for_longer() {
    let mut lab = normal(3, 1);
    let usual = vpn1(&lab).smoothed_ms;
    assert_eq!(usual, Some(20));
    lab.set(&["a"], Endpoint::Dead);
    let mut pauses = 0;
    let (decision, seen) = step(&mut lab, |lab, question| {
        if matches!(question, Question::Wait { .. }) {
            pauses += 1;
            // It answers when it is asked for the third time.
            if pauses == 2 {
                lab.set(&["a"], Endpoint::Alive);
            }
        }
    });
    assert_eq!((pauses, repeated(&seen, "vpn1")), (2, 2), "it is asked until it answers");
    assert_eq!(decision.wished.state.mode, Mode::Normal);
    assert_eq!((vpn1(&lab).failures, vpn1(&lab).failed), (0, false));
    let (waited, _) = step(&mut lab, |_, _| ());
    assert_eq!(waited.wished.state.mode, Mode::Normal);
    // Twice 200 ms passed before it answered in 20, and half of the way there is gone at once.
    let (_, seen) = step(&mut lab, |_, _| ());
    let asked = seen.pages(&Asker::Slot(interface("vpn1")))[0].0;
    let silent_ms = asked.patience.unwrap().silent_ms;
    assert!((1_000..=1_320).contains(&silent_ms), "{silent_ms} ms");
    let asked = seen.pages(&Asker::Slot(interface("vpn2")))[0].0;
    assert_eq!(asked.patience.unwrap().silent_ms, 200);
}

#[test]
fn without_it_a_check_is_asked_once_and_has_its_whole_time() {
    let mut lab = normal(0, 1);
    lab.set(&["a"], Endpoint::Dead);
    let (decision, seen) = step(&mut lab, |_, _| ());
    assert_eq!(decision.wished.state.mode, Mode::LocalRepair);
    let waits = |question: &Question| matches!(question, Question::Wait { .. });
    let hurries = |question: &Question| matches!(question, Question::Pages(pages) if pages.patience.is_some());
    assert!(!seen.readings.keys().any(|question| waits(question) || hurries(question)));
}

#[test]
fn retests_are_one_a_step() {
    let mut lab = normal(3, 1);
    lab.set(&["a"], Endpoint::Dead);
    drop(step(&mut lab, |_, _| ()));
    let (_, seen) = step(&mut lab, |_, _| ());
    assert_eq!(repeated(&seen, "vpn1"), 0);
    assert_eq!((vpn1(&lab).failed, vpn1(&lab).retests_failed), (true, 1));
}

#[test]
fn an_uplink_that_went_down_meanwhile_is_no_slots_death() {
    // Before the first check, and before its repetition.
    for late in [false, true] {
        let mut lab = normal(2, 1);
        if !late {
            lab.uplink = Uplink::Down;
        }
        lab.set(&["a"], Endpoint::Dead);
        let (decision, _) = step(&mut lab, |lab, question| {
            if matches!(question, Question::Wait { .. }) {
                lab.uplink = Uplink::Down;
            }
        });
        let codes: Vec<&str> =
            decision.wished.reasons.iter().map(|reason| reason.code.as_str()).collect();
        assert_eq!(codes, ["wan-down"], "{late}");
        assert_eq!((vpn1(&lab).failures, vpn1(&lab).failed), (0, false));
    }
}
