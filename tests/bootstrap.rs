//! The ways to a provider in the network: in service, on the first run, and out of Direct.

use crate::world;

use egressctl::pool::state::{Content, Egress, Mode, Slot};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use world::{Endpoint, Lab, Played, Source, Steps as _, lab_of, policy_by, story};

const ALL: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn provider(via: &Value) -> Value {
    json!({ "http": { "url": "https://192.0.2.70/list.json", "via": via } })
}

fn lab(slots: usize, names: &[&'static str], via: &Value, params: &Value) -> Lab {
    let mut all = json!({
        "local_repair_retest_count": 1, "direct_grace_sec": 0, "bootstrap_retry_interval_sec": 30,
    });
    for (key, value) in params.as_object().unwrap() {
        all[key] = value.clone();
    }
    lab_of(policy_by(slots, 4, &all, &provider(via)), names)
}

fn tell(name: &str, lab: &Lab, played: &Played) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, story(lab, played)));
}

/// The devices by which the provider was asked in a step.
fn asked_by(played: &Played) -> Vec<String> {
    played
        .seen
        .lists()
        .filter_map(|(question, _)| Some(question.via.as_ref()?.device.to_string()))
        .collect()
}

/// A person asks, and the step after that enters the refresh.
fn asks_for_a_refresh(lab: &mut Lab) {
    lab.state.as_mut().unwrap().refresh_asked = Some(lab.now.clone());
    lab.later(10);
    assert_eq!(lab.step().after.mode, Mode::FullPoolRefresh);
}

fn until(lab: &mut Lab, most: usize, mut done: impl FnMut(&Played) -> bool) -> Played {
    for _ in 0..most {
        lab.later(31);
        let played = lab.step();
        if done(&played) {
            return played;
        }
    }
    panic!("it did not come to that in {most} steps: {:?}", lab.state().mode);
}

#[test]
fn in_service_the_uplink_is_asked_first_and_then_each_serving_slot() {
    let mut lab = lab(2, &ALL[..4], &Value::Null, &json!({}));
    lab.step();
    assert_eq!(lab.state().mode, Mode::Normal);
    lab.source = Source::by_tunnel(&ALL[..4]);
    asks_for_a_refresh(&mut lab);
    lab.later(10);
    let played = lab.step();
    assert_eq!(asked_by(&played), ["eth0", "vpn1"], "vpn2 is not asked for nothing");
    assert_eq!(played.after.mode, Mode::Normal);
    assert_eq!(played.after.pool.as_ref().unwrap().generation, 2);
}

#[test]
fn a_provider_that_wants_a_tunnel_is_never_asked_by_the_uplink() {
    let mut lab = lab(2, &ALL[..4], &json!("tunnel"), &json!({}));
    let first = lab.step();
    assert_eq!(asked_by(&first), Vec::<String>::new(), "there is no tunnel on the first run");
    assert_eq!(first.after.mode, Mode::FullPoolRefresh);

    // Nor is it in service.
    let mut lab = self::lab(2, &ALL[..4], &Value::Null, &json!({}));
    lab.step();
    lab.policy = policy_by(2, 4, &json!({}), &provider(&json!("tunnel")));
    asks_for_a_refresh(&mut lab);
    lab.later(10);
    let played = lab.step();
    assert_eq!(asked_by(&played), ["vpn1"]);
    assert_eq!(played.after.pool.as_ref().unwrap().generation, 2);
}

#[test]
fn a_short_list_is_taken_at_once_where_no_slot_serves() {
    let mut lab = lab(1, &ALL[..4], &Value::Null, &json!({}));
    lab.step();
    lab.set(&ALL[..4], Endpoint::Dead);
    lab.source = Source::Unavailable;
    until(&mut lab, 12, |played| played.after.mode == Mode::BootstrapRecovery);
    lab.source = Source::lists(&["e"]);
    lab.endpoints.insert("e".to_owned(), Endpoint::Alive);
    let mut codes = Vec::new();
    until(&mut lab, 8, |played| {
        codes.extend(played.codes());
        played.after.mode == Mode::Normal
    });
    assert!(!codes.iter().any(|code| code == "list-refused"), "{codes:?}");
}

#[test]
fn short_lists_that_differ_are_not_one_that_came_three_times() {
    let mut lab = lab(1, &ALL[..4], &Value::Null, &json!({}));
    lab.step();
    for nth in 0..6 {
        lab.source = Source::lists(&ALL[nth % 2..=nth % 2]);
        lab.state.as_mut().unwrap().refresh_asked = Some(lab.now.clone());
        lab.later(10);
        lab.step();
        lab.later(10);
        let played = lab.step();
        assert_eq!(played.codes()[0], "list-refused", "{:?}", played.codes());
    }
    assert_eq!(lab.state().pool.as_ref().unwrap().generation, 1);
}

#[test]
fn a_refusal_is_honoured_and_never_asked_again_at_once() {
    let mut lab = lab(2, &ALL[..4], &Value::Null, &json!({ "hmn_refresh_retry_interval_sec": 60 }));
    lab.step();
    lab.source = Source::Refuses(500);
    asks_for_a_refresh(&mut lab);
    lab.later(10);
    let refused = lab.step();
    assert_eq!(asked_by(&refused), ["eth0"], "a refusal is an answer: no other way is tried");
    assert_eq!(refused.after.mode, Mode::DegradedPool);
    for waited in [100, 200, 150] {
        lab.later(waited);
        assert_eq!(asked_by(&lab.step()), Vec::<String>::new());
    }
    lab.later(100);
    assert_eq!(asked_by(&lab.step()), ["eth0"], "once it is over");
    // Refused again, without a word about when: longer than the interval.
    lab.source = Source::Refuses(0);
    lab.later(600);
    assert_eq!(asked_by(&lab.step()).len(), 1);
    lab.later(130);
    assert_eq!(asked_by(&lab.step()), Vec::<String>::new(), "the wait doubles");
}

/// Case C50.
#[test]
fn refusals_in_a_row_double_the_wait_up_to_a_bound_and_no_two_gateways_come_back_together() {
    let waits = |offset: u64| {
        let params = json!({ "hmn_refresh_retry_interval_sec": 100 });
        let mut lab = lab(1, &ALL[..2], &Value::Null, &params);
        lab.later(offset);
        lab.step();
        lab.source = Source::Refuses(0);
        asks_for_a_refresh(&mut lab);
        let mut waits = Vec::new();
        for _ in 0..6 {
            lab.later(2_000);
            assert_eq!(asked_by(&lab.step()).len(), 1);
            waits.push(lab.state().refusal_wait_sec.unwrap());
        }
        lab.source = Source::lists(&ALL[..2]);
        lab.later(2_000);
        lab.step();
        assert_eq!(lab.state().refusal_wait_sec, None, "a list ends it");
        waits
    };
    let all: Vec<Vec<u64>> = (0..8).map(waits).collect();
    for (nth, wait) in [100, 200, 400, 800, 1_600, 1_600].into_iter().enumerate() {
        let seen: BTreeSet<u64> = all.iter().map(|waits| waits[nth]).collect();
        assert!(seen.iter().all(|seen| (wait..=wait + wait / 10).contains(seen)), "{seen:?}");
        assert!(seen.len() > 3, "they differ: {seen:?}");
    }
}

#[test]
fn why_a_refresh_came_to_nothing_is_told_until_one_came_to_something() {
    let said = |played: &Played| {
        let reasons = &played.decision.wished.reasons;
        reasons.iter().find(|said| said.code == "refresh-later").map(|said| said.text.clone())
    };
    let mut lab = lab(2, &ALL[..2], &Value::Null, &json!({}));
    lab.step();
    lab.source = Source::Unavailable;
    asks_for_a_refresh(&mut lab);
    lab.later(10);
    lab.step();
    lab.later(10);
    let why = said(&lab.step()).unwrap();
    assert!(why.contains("the last came to nothing: the provider gave no list: "), "{why}");
    lab.source = Source::lists(&ALL[..2]);
    asks_for_a_refresh(&mut lab);
    lab.later(10);
    assert_eq!(lab.step().after.mode, Mode::Normal);
    lab.set(&["a"], Endpoint::Dead);
    let waits = until(&mut lab, 12, |played| said(played).is_some());
    let why = said(&waits).unwrap();
    assert!(!why.contains("came to nothing"), "{:?}: {why}", waits.after.mode);
}

/// Case C15.
#[test]
fn what_it_is_asked_with_when_no_name_is_resolved_is_the_last_good_answer() {
    let by_name = json!({ "http": { "url": "https://list.example/l", "via": null } });
    let mut lab = lab_of(policy_by(1, 1, &json!({}), &by_name), &ALL[..2]);
    let known = |played: &Played| {
        let (question, _) = played.seen.lists().next().unwrap();
        question.names.get("list.example").cloned().unwrap_or_default()
    };
    let first = known(&lab.step());
    assert_eq!(first.len(), 1);
    lab.resolver = false;
    asks_for_a_refresh(&mut lab);
    lab.later(10);
    assert_eq!(known(&lab.step()), first);
}

#[test]
fn slots_take_the_fastest_and_of_equals_the_first_that_is_listed() {
    let loaded = |lab: &mut Lab| {
        let played = lab.step();
        let slots = played.after.slots.values().filter_map(Slot::loaded);
        slots.map(|candidate| candidate.name.clone()).collect::<Vec<_>>()
    };
    let mut lab_one = lab(2, &ALL[..4], &Value::Null, &json!({}));
    assert_eq!(loaded(&mut lab_one), ["a", "b"]);
    let mut other = lab(2, &["d", "c", "b", "a"], &Value::Null, &json!({}));
    assert_eq!(loaded(&mut other), ["d", "c"], "as listed");
    let mut slow = lab(2, &ALL[..4], &Value::Null, &json!({}));
    slow.set(&["a", "c"], Endpoint::Slow);
    assert_eq!(loaded(&mut slow), ["b", "d"]);
}

#[test]
fn out_of_direct_a_candidate_of_the_last_pool_is_the_way_to_a_new_list() {
    let mut lab = lab(2, &ALL[..4], &Value::Null, &json!({}));
    lab.step();
    // All that is known dies but one that is in nobody's slot; the provider wants a tunnel.
    lab.set(&ALL[..4], Endpoint::Dead);
    lab.source = Source::by_tunnel(&["d", "e", "f"]);
    for name in ["e", "f"] {
        lab.endpoints.insert(name.to_owned(), Endpoint::Alive);
    }
    until(&mut lab, 12, |played| played.after.mode == Mode::BootstrapRecovery);
    lab.set(&["d"], Endpoint::Alive);
    let lent = until(&mut lab, 20, |played| {
        played.after.slots.values().any(|slot| matches!(slot.content, Content::Lent(_)))
    });
    tell("bootstrap_recovery_a_slot_is_lent", &lab, &lent);
    let direct = |egress: &Egress| *egress == Egress::Direct;
    assert!(lent.after.egress.values().all(direct), "a lent slot carries no client");
    let back = until(&mut lab, 4, |played| played.after.mode == Mode::Normal);
    tell("bootstrap_recovery_by_the_cached_pool", &lab, &back);
    let names: BTreeSet<&str> = back
        .after
        .slots
        .values()
        .filter_map(Slot::loaded)
        .map(|candidate| candidate.name.as_str())
        .collect();
    assert!(names.contains("d"), "the way itself is of the new set: {names:?}");
    assert_eq!(back.after.bootstrap, egressctl::pool::state::Bootstrap::default());
    assert!(!back.after.egress.values().any(direct));
}

#[test]
fn a_way_that_a_reboot_took_away_is_put_back_and_not_given_up() {
    let mut lab = lab(2, &ALL[..4], &Value::Null, &json!({}));
    lab.step();
    lab.set(&ALL[..4], Endpoint::Dead);
    lab.source = Source::by_tunnel(&["d", "e", "f"]);
    lab.set(&["e", "f"], Endpoint::Alive);
    until(&mut lab, 12, |played| played.after.mode == Mode::BootstrapRecovery);
    lab.set(&["d"], Endpoint::Alive);
    until(&mut lab, 20, |played| {
        played.after.slots.values().any(|slot| matches!(slot.content, Content::Lent(_)))
    });
    lab.reboot();
    let mended = lab.step();
    let lent = |slot: &Slot| matches!(&slot.content, Content::Lent(c) if c.name == "d");
    assert!(mended.after.slots.values().any(lent), "{}", story(&lab, &mended));
    lab.later(10);
    assert_eq!(lab.step().after.mode, Mode::Normal, "the list comes by it");
}

#[test]
fn ways_that_failed_are_tried_again_after_all_others_and_with_the_provider_well_direct_ends() {
    let mut lab = lab(1, &ALL[..3], &Value::Null, &json!({}));
    lab.step();
    lab.set(&ALL[..3], Endpoint::Dead);
    lab.source = Source::Unavailable;
    until(&mut lab, 12, |played| played.after.mode == Mode::BootstrapRecovery);
    let silent =
        until(&mut lab, 8, |played| played.codes().iter().any(|code| code == "bootstrap-failed"));
    tell("bootstrap_recovery_a_way_fails", &lab, &silent);
    let mut ways = Vec::new();
    for _ in 0..8 {
        lab.later(31);
        lab.step();
        ways.push(lab.state().bootstrap.failed.iter().map(|failed| failed.times).max());
    }
    assert!(lab.state().bootstrap.failed.len() >= 4, "{:?}", lab.state().bootstrap.failed);
    let (least, most) = lab
        .state()
        .bootstrap
        .failed
        .iter()
        .fold((9, 0), |(least, most), way| (least.min(way.times), most.max(way.times)));
    assert!(most - least <= 1, "no way is tried twice before another once: {ways:?}");
    lab.source = Source::lists(&["e"]);
    lab.endpoints.insert("e".to_owned(), Endpoint::Alive);
    until(&mut lab, 8, |played| played.after.mode == Mode::Normal);
}

#[test]
fn a_lent_slot_that_answers_and_does_not_lead_to_the_provider_is_lent_to_the_next() {
    let mut lab = lab(1, &ALL[..3], &Value::Null, &json!({}));
    lab.step();
    lab.set(&ALL[..3], Endpoint::Dead);
    lab.source = Source::Unavailable;
    until(&mut lab, 12, |played| played.after.mode == Mode::BootstrapRecovery);
    // The candidates work, and the provider is silent to whoever comes by the first two.
    lab.set(&["b", "c"], Endpoint::Alive);
    let lent_to = |played: &Played| {
        let slot = played.after.slots.values().next().unwrap();
        matches!(slot.content, Content::Lent(_)).then(|| slot.candidate().unwrap().name.clone())
    };
    let mut tried = BTreeSet::new();
    until(&mut lab, 30, |played| {
        tried.extend(lent_to(played));
        tried.len() == 2
    });
    lab.source = Source::ByTunnel(vec!["c".to_owned(), "b".to_owned()]);
    until(&mut lab, 12, |played| played.after.mode == Mode::Normal);
}

#[test]
fn slots_are_spread_over_places_where_the_policy_wants_it_and_filled_all_the_same() {
    for (spread_by, wished) in [(Value::Null, ["a", "b"]), (json!("country"), ["a", "c"])] {
        let mut policy = policy_by(2, 4, &json!({}), &provider(&Value::Null));
        policy.candidates.spread_by = serde_json::from_value(spread_by).unwrap();
        let mut lab = lab_of(policy, &ALL[..4]);
        // Both of the first and the last are in one country each.
        lab.countries = [("a", "SE"), ("b", "SE"), ("c", "NL"), ("d", "NL")]
            .map(|(name, country)| (name.to_owned(), country.to_owned()))
            .into();
        let played = lab.step();
        let names: Vec<&str> = played
            .after
            .slots
            .values()
            .filter_map(Slot::loaded)
            .map(|candidate| candidate.name.as_str())
            .collect();
        assert_eq!(names, wished);
        lab.set(&["a"], Endpoint::Dead);
        let repaired =
            until(&mut lab, 6, |played| played.codes().iter().any(|code| code == "repaired"));
        let now = repaired.after.slots.values().find_map(Slot::loaded).unwrap();
        let apart = if wished[1] == "c" { "b" } else { "c" };
        assert_eq!(now.name, apart, "the place that the other slot does not have");
    }
}

/// What the provider was asked with: the version that is at hand.
fn known(played: &Played) -> Vec<Option<String>> {
    played.seen.lists().map(|(question, _)| question.known.as_ref()?.etag.clone()).collect()
}

#[test]
fn a_list_that_has_not_changed_is_fetched_with_its_version_and_counts_as_fetched() {
    let mut lab = lab(2, &ALL[..4], &Value::Null, &json!({}));
    lab.tag = Some("v1".to_owned());
    let first = lab.step();
    assert_eq!(known(&first), [None], "nothing is at hand");
    let before = lab.state().pool.clone().unwrap();
    asks_for_a_refresh(&mut lab);
    lab.later(10);
    let unchanged = lab.step();
    tell("refresh_the_list_is_unchanged", &lab, &unchanged);
    assert_eq!(known(&unchanged), [Some("v1".to_owned())]);
    assert_eq!(unchanged.after.mode, Mode::Normal);
    let after = lab.state().pool.clone().unwrap();
    assert_eq!((before.generation, after.generation), (1, 2), "it is a full refresh");
    assert_eq!(before.candidates, after.candidates, "with the files that are there");
    assert!(lab.state().generations().contains(&1), "whose folder stays");
    assert_eq!(after.validators, before.validators);
    assert_eq!(lab.state().repair_events_since_full_refresh, 0);
    // A newer list comes whole, with a version of its own.
    lab.tag = Some("v2".to_owned());
    lab.source = Source::lists(&["a", "b", "e"]);
    lab.set(&["e"], Endpoint::Alive);
    asks_for_a_refresh(&mut lab);
    lab.later(10);
    assert_eq!(known(&lab.step()), [Some("v1".to_owned())]);
    let newest = lab.state().pool.clone().unwrap();
    assert_eq!(newest.validators.unwrap().etag.as_deref(), Some("v2"));
    assert_eq!(newest.candidates.len(), 3);
}

#[test]
fn direct_does_not_end_on_a_slot_that_cannot_be_judged_unless_its_proof_passes() {
    for still_alive in [false, true] {
        let only_uplink = json!({ "bootstrap_strategy_order": ["direct"] });
        let mut lab = lab(1, &ALL[..3], &Value::Null, &only_uplink);
        lab.policy.test.parallel = 1;
        lab.step();
        lab.set(&ALL[..3], Endpoint::Dead);
        until(&mut lab, 12, |played| played.after.mode == Mode::BootstrapRecovery);
        // The slot's endpoint passes; of the rest of the list one is tested in this step, one in the next.
        lab.set(&["a"], Endpoint::Alive);
        lab.trial_sec = 11;
        let tested = |played: &Played| {
            played.after.fresh.as_ref().is_some_and(|fresh| fresh.tested.len() == 2)
        };
        let halfway = until(&mut lab, 12, tested);
        assert!(halfway.after.serves(&world::interface("vpn1")), "{}", story(&lab, &halfway));
        lab.blind = true;
        if !still_alive {
            lab.set(&["a"], Endpoint::Dead);
        }
        lab.later(10);
        let played = lab.step();
        let direct = played.after.egress.values().all(|egress| *egress == Egress::Direct);
        let ended = (played.after.mode != Mode::BootstrapRecovery, !direct);
        assert_eq!(ended, (still_alive, still_alive), "{}", story(&lab, &played));
        lab.blind = false;
        lab.set(&["a"], Endpoint::Alive);
        until(&mut lab, 8, |played| played.after.mode == Mode::Normal);
    }
}

#[test]
fn out_of_direct_an_unchanged_list_is_a_list() {
    let mut lab = lab(1, &ALL[..2], &Value::Null, &json!({}));
    lab.tag = Some("v1".to_owned());
    lab.step();
    lab.set(&ALL[..2], Endpoint::Dead);
    until(&mut lab, 12, |played| played.after.mode == Mode::BootstrapRecovery);
    lab.set(&ALL[..2], Endpoint::Alive);
    let back = until(&mut lab, 12, |played| played.after.mode == Mode::Normal);
    assert_eq!(back.after.pool.unwrap().candidates.len(), 2);
}

#[test]
fn a_list_that_gives_too_few_lets_the_last_pool_end_direct_where_the_policy_wants_it() {
    for from_cache in [false, true] {
        let mut lab = lab(
            2,
            &ALL[..4],
            &Value::Null,
            &json!({
                "exit_direct_from_cache": from_cache, "bootstrap_strategy_order": ["direct"],
                "hmn_refresh_retry_interval_sec": 3600,
            }),
        );
        lab.step();
        lab.set(&ALL[..4], Endpoint::Dead);
        // The provider answers all the time, with what does not work.
        lab.source = Source::lists(&["e", "f"]);
        until(&mut lab, 12, |played| played.after.mode == Mode::BootstrapRecovery);
        lab.later(31);
        lab.step();
        let asked = lab.state().last_generation;
        lab.set(&ALL[2..4], Endpoint::Alive);
        for _ in 0..4 {
            lab.later(31);
            let played = lab.step();
            if played.after.mode == Mode::DegradedPool {
                tell("bootstrap_recovery_too_few_and_the_last_pool", &lab, &played);
                break;
            }
        }
        let state = lab.state();
        assert_eq!(state.last_generation, asked, "the list at hand is not asked for again");
        if from_cache {
            assert_eq!(state.mode, Mode::DegradedPool);
            assert_eq!(state.pool.as_ref().unwrap().generation, 1, "generation kept");
            assert!(state.short.is_none() && state.fresh.is_none());
            assert!(!state.egress.values().any(|egress| *egress == Egress::Direct));
        } else {
            assert_eq!(state.mode, Mode::BootstrapRecovery, "only a new list ends it");
            assert_eq!(state.fresh.as_ref().unwrap().candidates.len(), 2, "the list is kept");
        }
    }
}

#[test]
fn a_last_pool_that_does_not_work_either_leaves_the_list_at_hand() {
    let mut lab = lab(
        2,
        &ALL[..4],
        &Value::Null,
        &json!({
            "exit_direct_from_cache": true, "bootstrap_strategy_order": ["direct"],
            "hmn_refresh_retry_interval_sec": 3600,
        }),
    );
    lab.step();
    lab.set(&ALL[..4], Endpoint::Dead);
    lab.source = Source::lists(&["e", "f"]);
    until(&mut lab, 12, |played| played.after.mode == Mode::BootstrapRecovery);
    // Testing takes several steps.
    lab.trial_sec = 6;
    for _ in 0..8 {
        lab.later(31);
        let played = lab.step();
        let lists = played.after.fresh.iter().chain(&played.after.short);
        assert!(lists.clone().count() <= 2 && played.after.last_generation <= 2);
        for list in lists {
            assert!(played.after.generations().contains(&list.generation), "its files stay");
        }
    }
    lab.set(&["e", "f"], Endpoint::Alive);
    until(&mut lab, 8, |played| played.after.mode == Mode::Normal);
    assert_eq!(lab.state().pool.as_ref().unwrap().generation, 2, "the list that was kept");
}
