//! One story for each row of the pool's plan: what was, why, what is done, and how it may end.

use crate::world;

use egressctl::machine::{Considered, Machine as _, Pausing, Subject};
use egressctl::observation::Observation;
use egressctl::pool::Pool;
use egressctl::pool::state::Mode;
use serde_json::{Value, json};
use world::{Endpoint, Lab, Played, Source, Steps as _, Uplink, lab_of, policy, story};

const ALL: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A world of so many slots whose endpoints are called so, some `params` laid over.
fn lab(slots: usize, names: &[&'static str], params: &Value) -> Lab {
    let mut all = json!({ "local_repair_retest_count": 1, "hmn_refresh_retry_interval_sec": 900 });
    for (key, value) in params.as_object().unwrap() {
        all[key] = value.clone();
    }
    lab_of(policy(slots, 4, &all), names)
}

/// The same after its first run.
fn normal(slots: usize, names: &[&'static str], params: &Value) -> Lab {
    let mut lab = lab(slots, names, params);
    lab.step();
    assert_eq!(lab.state().mode, Mode::Normal);
    lab
}

/// Steps until the mode is reached, and gives the step that reached it.
fn until(lab: &mut Lab, mode: Mode) -> Played {
    for _ in 0..20 {
        lab.later(10);
        let played = lab.step();
        if played.after.mode == mode {
            return played;
        }
    }
    panic!("{mode} was not reached");
}

fn next(lab: &mut Lab) -> Played {
    lab.later(10);
    lab.step()
}

fn tell(name: &str, lab: &Lab, played: &Played) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, story(lab, played)));
}

#[test]
fn first_run() {
    let mut full = lab(2, &ALL[..3], &json!({}));
    let played = full.step();
    tell("first_run_full", &full, &played);

    let mut few = lab(2, &ALL[..1], &json!({}));
    let played = few.step();
    tell("first_run_with_fewer_candidates_than_slots", &few, &played);

    let mut none = lab(2, &ALL[..2], &json!({}));
    none.set(&ALL[..2], Endpoint::Dead);
    let played = none.step();
    tell("first_run_none_passes", &none, &played);

    let mut alone = lab(2, &ALL[..2], &json!({ "direct_failopen_enabled": false }));
    alone.source = Source::Unavailable;
    let played = alone.step();
    tell("first_run_provider_unavailable_closed", &alone, &played);

    let mut down = lab(2, &ALL[..2], &json!({}));
    down.uplink = Uplink::Down;
    let played = down.step();
    tell("first_run_wan_down", &down, &played);

    let mut liar = lab(2, &ALL[..3], &json!({}));
    liar.set(&["a"], Endpoint::TrialOnly);
    let played = liar.step();
    tell("first_run_a_slot_fails_its_verification", &liar, &played);
}

#[test]
fn what_cannot_be_used_or_tried_is_told() {
    let mut broken = lab(2, &ALL[..3], &json!({}));
    broken.set(&["b"], Endpoint::Broken);
    let played = broken.step();
    tell("first_run_with_an_unusable_entry", &broken, &played);

    let mut untried = lab(2, &ALL[..2], &json!({}));
    untried.set(&["a"], Endpoint::Untried);
    let played = untried.step();
    tell("first_run_with_a_candidate_that_cannot_be_tried", &untried, &played);
}

#[test]
fn a_persons_choice_is_carried_out_or_refused() {
    let subject = |lab: &Lab| {
        let (name, policy) = (lab.name.clone(), lab.policy.clone());
        let (state, owned) = (lab.state.clone(), lab.owned.clone());
        move |target: &str, force: bool| {
            let state = state.as_ref();
            let subject = Subject::<Pool> {
                name: &name,
                policy: &policy,
                state,
                paused: false,
                owned: &owned,
            };
            Pool::switch(&subject, target, force)
        }
    };
    let mut lab = normal(2, &ALL[..4], &json!({}));
    let ask = subject(&lab);
    for (target, why) in [
        ("direct", "say --force"),
        ("vpn9=c", "is no slot"),
        ("vpn1=zebra", "is not in the pool's list"),
        ("vpn1=b", "is already in vpn2"),
        ("vpn1", "is no target"),
    ] {
        let refused = ask(target, false).expect_err(target);
        assert!(refused.contains(why), "{target}: {refused}");
    }
    let (state, pauses) = ask("vpn1=d", false).unwrap();
    assert_eq!(pauses, Pausing::Keep);
    lab.state = Some(state);
    let played = next(&mut lab);
    tell("switch_an_endpoint", &lab, &played);
    assert_eq!(lab.state().reserve().len(), 2, "what it replaced is in the reserve again");

    let (state, pauses) = subject(&lab)("direct", true).unwrap();
    assert_eq!(pauses, Pausing::Pause);
    lab.state = Some(state);
    let played = next(&mut lab);
    tell("switch_to_direct", &lab, &played);

    let mut held = normal(1, &ALL[..1], &json!({ "emergency_commit_enabled": false }));
    held.set(&ALL[..1], Endpoint::Dead);
    until(&mut held, Mode::DirectEmergency);
    let (state, pauses) = subject(&held)("direct", false).unwrap();
    assert_eq!(pauses, Pausing::Keep, "a consent is no pause");
    held.state = Some(state);
    let played = next(&mut held);
    tell("switch_consents_to_direct", &held, &played);
}

#[test]
fn what_was_taken_down_comes_back_as_it_was() {
    let mut lab = normal(2, &ALL[..3], &json!({}));
    let subject = Subject::<Pool> {
        name: &lab.name,
        policy: &lab.policy,
        state: lab.state.as_ref(),
        paused: false,
        owned: &lab.owned,
    };
    let retired = Pool::retire(&subject, &lab.now).unwrap();
    assert_eq!(retired.world, egressctl::kernel::World::default());
    assert_eq!(retired.barrier, None);
    let before = lab.kernel.clone();
    lab.state = Some(Pool::resumed(&retired.state, &lab.now).unwrap());
    // Settings of a device go with it; those of the uplink are back to what they were.
    lab.kernel = retired.world;
    lab.kernel.sysctls.insert("net/ipv4/conf/eth0/src_valid_mark".to_owned(), "0".to_owned());
    lab.owned = egressctl::machine::Owned::default();
    let played = next(&mut lab);
    tell("normal_after_down_and_resume", &lab, &played);
    assert_eq!(lab.kernel.tunnels, before.tunnels);
    assert_eq!(lab.kernel.rules, before.rules);
}

#[test]
fn a_slot_fails_and_is_brought_back() {
    let mut lab = normal(2, &ALL[..4], &json!({ "local_repair_retest_count": 2 }));
    let played = next(&mut lab);
    tell("normal_all_serve", &lab, &played);
    lab.set(&["a"], Endpoint::Dead);
    let played = next(&mut lab);
    tell("normal_check_failed_below_the_count", &lab, &played);
    let played = next(&mut lab);
    tell("normal_to_local_repair", &lab, &played);
    let played = next(&mut lab);
    tell("local_repair_retest_undecided", &lab, &played);
    let mut alarm = lab.clone();
    let played = next(&mut lab);
    tell("local_repair_candidate_works", &lab, &played);
    alarm.set(&["a"], Endpoint::Alive);
    next(&mut alarm);
    let played = next(&mut alarm);
    tell("local_repair_false_alarm", &alarm, &played);
}

#[test]
fn a_slot_that_answers_wrongly_flaps_and_is_replaced() {
    let mut lab = normal(2, &ALL[..3], &json!({ "flap_limit": 2 }));
    for endpoint in [Endpoint::Portal, Endpoint::Alive, Endpoint::Portal, Endpoint::Alive] {
        lab.set(&["a"], endpoint);
        let mode = if endpoint == Endpoint::Alive { Mode::Normal } else { Mode::LocalRepair };
        let played = until(&mut lab, mode);
        if endpoint == Endpoint::Alive && lab.state().quarantine.len() == 1 {
            return tell("local_repair_flapping_endpoint_is_replaced", &lab, &played);
        }
    }
    panic!("it was never replaced");
}

#[test]
fn a_candidate_fails_its_verification() {
    let mut lab = normal(2, &ALL[..3], &json!({}));
    lab.set(&["a"], Endpoint::Dead);
    lab.set(&["c"], Endpoint::TrialOnly);
    until(&mut lab, Mode::LocalRepair);
    let played = next(&mut lab);
    tell("local_repair_candidate_fails_others_serve", &lab, &played);

    let mut none = normal(2, &ALL[..4], &json!({}));
    none.set(&["a", "b"], Endpoint::Dead);
    none.set(&["c"], Endpoint::TrialOnly);
    until(&mut none, Mode::LocalRepair);
    let played = next(&mut none);
    tell("local_repair_candidate_fails_none_serve", &none, &played);
    let played = next(&mut none);
    tell("local_repair_next_candidate_works", &none, &played);
}

#[test]
fn no_slot_serves_and_candidates_are_tried_side_by_side() {
    let mut lab = normal(2, &ALL, &json!({}));
    lab.set(&["a", "b", "c"], Endpoint::Dead);
    let played = until(&mut lab, Mode::LocalRepair);
    tell("normal_no_slot_serves", &lab, &played);
    let played = next(&mut lab);
    assert_eq!(played.trials().len(), 2);
    tell("local_repair_no_slot_serves_candidate_works", &lab, &played);
    let mut dead = normal(2, &ALL, &json!({}));
    dead.set(&ALL, Endpoint::Dead);
    until(&mut dead, Mode::LocalRepair);
    let played = next(&mut dead);
    tell("local_repair_no_slot_serves_none_passes", &dead, &played);
}

#[test]
fn service_consolidates_on_fewer_and_fewer_slots() {
    let mut lab = normal(5, &ALL, &json!({}));
    for (n, name) in [(4, "a"), (3, "b"), (2, "c"), (1, "d")] {
        lab.set(&[name], Endpoint::Dead);
        let mut played = next(&mut lab);
        while lab.state().slots.values().filter(|slot| slot.is_empty()).count() < 5 - n {
            played = next(&mut lab);
        }
        tell(&format!("slot_exhausted_{n}_of_5_left"), &lab, &played);
    }
    lab.set(&["e"], Endpoint::Dead);
    let played = until(&mut lab, Mode::DirectEmergency);
    tell("direct_emergency", &lab, &played);
    let played = next(&mut lab);
    tell("bootstrap_recovery", &lab, &played);
    let played = next(&mut lab);
    tell("bootstrap_recovery_none_passes", &lab, &played);
    lab.set(&ALL, Endpoint::Alive);
    let played = until(&mut lab, Mode::Normal);
    tell("bootstrap_recovery_to_normal", &lab, &played);
}

#[test]
fn clients_go_where_the_policy_says_when_nothing_serves() {
    for (name, params) in [
        ("direct_emergency_failopen_disabled", json!({ "direct_failopen_enabled": false })),
        ("direct_emergency_held", json!({ "emergency_commit_enabled": false })),
    ] {
        let mut lab = normal(2, &ALL[..2], &params);
        lab.set(&ALL[..2], Endpoint::Dead);
        let played = until(&mut lab, Mode::DirectEmergency);
        tell(name, &lab, &played);
    }
    let mut lab = normal(
        2,
        &ALL[..3],
        &json!({ "min_healthy_slots_to_exit_direct": 1, "direct_grace_sec": 0 }),
    );
    lab.set(&ALL[..3], Endpoint::Dead);
    until(&mut lab, Mode::BootstrapRecovery);
    lab.set(&["c"], Endpoint::Alive);
    let played = until(&mut lab, Mode::DegradedPool);
    tell("bootstrap_recovery_to_degraded_pool", &lab, &played);

    for (allowed, mode) in [(false, Mode::BootstrapRecovery), (true, Mode::DegradedPool)] {
        let params = json!({ "exit_direct_from_cache": allowed, "direct_grace_sec": 0 });
        let mut lab = normal(2, &ALL[..3], &params);
        lab.set(&ALL[..3], Endpoint::Dead);
        lab.source = Source::Unavailable;
        until(&mut lab, Mode::BootstrapRecovery);
        next(&mut lab);
        lab.set(&["b", "c"], Endpoint::Alive);
        let played = lab.steps(5, 30).pop().unwrap();
        assert_eq!(played.after.mode, mode);
        if allowed {
            let mut lab = lab.clone();
            lab.source = Source::lists(&ALL[..3]);
            lab.set(&ALL[..3], Endpoint::Alive);
            lab.later(900);
            assert_eq!(lab.step().after.mode, Mode::Normal);
        }
    }
    let params = json!({ "exit_direct_from_cache": true, "direct_grace_sec": 0 });
    let mut lab = normal(2, &ALL[..3], &params);
    lab.set(&ALL[..3], Endpoint::Dead);
    lab.source = Source::Unavailable;
    until(&mut lab, Mode::BootstrapRecovery);
    lab.set(&["b", "c"], Endpoint::Alive);
    let played = until(&mut lab, Mode::DegradedPool);
    tell("bootstrap_recovery_from_the_last_pool", &lab, &played);
}

/// Case C29.
#[test]
fn large_packets_are_eaten() {
    let mut lab = normal(2, &ALL[..3], &json!({}));
    lab.set(&["a"], Endpoint::SmallOnly);
    until(&mut lab, Mode::LocalRepair);
    let played = next(&mut lab);
    tell("local_repair_mtu_lowered", &lab, &played);
    let played = next(&mut lab);
    tell("local_repair_lowered_mtu_works", &lab, &played);
}

#[test]
fn the_wan_goes_down_and_comes_back() {
    let mut lab = normal(2, &ALL[..3], &json!({}));
    lab.set(&["a"], Endpoint::Dead);
    until(&mut lab, Mode::LocalRepair);
    let mut proof = lab.clone();
    lab.uplink = Uplink::Down;
    let played = next(&mut lab);
    tell("wan_down_holds", &lab, &played);
    lab.uplink = Uplink::Up;
    let played = next(&mut lab);
    tell("wan_back_settles", &lab, &played);
    proof.uplink = Uplink::FallsAtProof;
    let played = next(&mut proof);
    tell("wan_falls_while_a_candidate_is_proven", &proof, &played);
}

#[test]
fn drift_is_healed_without_a_transition() {
    let mut lab = normal(2, &ALL[..3], &json!({}));
    lab.kernel.rules.pop_first();
    lab.kernel.routes.pop_first();
    lab.kernel.nft = None;
    let tunnel = lab.kernel.tunnels.values_mut().next().unwrap();
    tunnel.addresses.clear();
    let played = next(&mut lab);
    tell("drift", &lab, &played);
    let (kernel, before) = (lab_of(lab.policy.clone(), &ALL).kernel, lab.state.clone());
    lab.kernel = kernel;
    lab.loaded = None;
    let played = next(&mut lab);
    assert_eq!(before.unwrap().egress, played.after.egress);
    tell("reboot", &lab, &played);
    assert!(lab.quiet());
}

#[test]
fn repairs_lead_to_a_full_refresh() {
    let mut lab = normal(2, &ALL, &json!({ "full_refresh_after_repairs": 1 }));
    lab.set(&["a"], Endpoint::Dead);
    let played = until(&mut lab, Mode::FullPoolRefresh);
    tell("local_repair_threshold_reached", &lab, &played);
    let (mut away, mut few, mut liar) = (lab.clone(), lab.clone(), lab.clone());
    lab.source = Source::lists(&["b", "d", "e"]);
    let played = next(&mut lab);
    tell("refresh_replaces_an_endpoint_that_is_not_listed", &lab, &played);
    assert_eq!(played.after.mode, Mode::Normal);

    away.source = Source::Unavailable;
    let played = next(&mut away);
    tell("refresh_provider_unavailable", &away, &played);
    away.source = Source::lists(&ALL);
    let played = next(&mut away);
    tell("degraded_pool_refresh_not_due", &away, &played);
    away.later(900);
    let played = next(&mut away);
    tell("degraded_pool_refresh_full", &away, &played);

    few.set(&["a", "b", "d", "e"], Endpoint::Dead);
    few.source = Source::lists(&["c", "d", "e"]);
    let played = next(&mut few);
    tell("refresh_too_few", &few, &played);

    liar.source = Source::lists(&["b", "d", "e"]);
    liar.set(&["d", "e"], Endpoint::TrialOnly);
    let played = next(&mut liar);
    tell("refresh_slot_fails_its_verification", &liar, &played);
    next(&mut liar);
    let played = next(&mut liar);
    tell("refresh_struck_candidates_leave_too_few", &liar, &played);
}

/// Case C48.
#[test]
fn a_short_list_is_refused_until_it_came_three_times() {
    let mut lab = normal(2, &ALL, &json!({ "hmn_refresh_retry_interval_sec": 5 }));
    lab.state.as_mut().unwrap().refresh_asked = Some(lab.now.clone());
    lab.source = Source::lists(&["a", "b"]);
    let played = next(&mut lab);
    tell("refresh_asked", &lab, &played);
    let played = next(&mut lab);
    tell("refresh_list_refused", &lab, &played);
    next(&mut lab);
    let played = next(&mut lab);
    assert_eq!(played.after.mode, Mode::Normal, "{:?}", played.codes());
    assert_eq!(played.after.pool.as_ref().map(|pool| pool.candidates.len()), Some(2));
}

/// Cases C24, C31.
#[test]
fn what_cannot_be_judged_is_neither_failed_nor_healthy() {
    let mut lab = normal(2, &ALL[..3], &json!({}));
    lab.blind = true;
    let played = next(&mut lab);
    tell("nothing_can_be_judged", &lab, &played);
    let played = lab.steps(30, 10).pop().unwrap();
    assert_eq!(played.after.mode, Mode::Normal);
    assert!(played.plan.is_empty());
}

#[test]
fn a_refresh_goes_on_over_several_steps() {
    let eight = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut lab = normal(2, &eight, &json!({ "full_refresh_after_repairs": 1 }));
    lab.set(&["a"], Endpoint::Dead);
    until(&mut lab, Mode::FullPoolRefresh);
    lab.set(&["b"], Endpoint::Dead);
    lab.trial_sec = 6;
    let played = next(&mut lab);
    tell("refresh_not_finished_within_the_slice", &lab, &played);
    next(&mut lab);
    let played = next(&mut lab);
    tell("refresh_a_slot_fails_and_is_repaired_meanwhile", &lab, &played);
}

#[test]
fn with_no_page_to_ask_for_no_candidate_is_put_to_the_proof() {
    let mut lab = normal(2, &ALL[..3], &json!({ "local_repair_retest_count": 0 }));
    lab.resolver = false;
    lab.set(&["a"], Endpoint::Dead);
    until(&mut lab, Mode::LocalRepair);
    let url = "http://never.example/".to_owned().try_into().unwrap();
    lab.policy.probe.urls = vec![url];
    let played = next(&mut lab);
    tell("local_repair_nothing_to_verify_with", &lab, &played);
}

#[test]
fn every_reason_has_its_day() {
    let source = include_str!("../src/pool/reason.rs");
    let codes: Vec<&str> = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Self::")?.split_once("=> \""))
        .map(|(_, rest)| rest.trim_end_matches("\","))
        .collect();
    assert!(codes.len() > 20, "{codes:?}");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots");
    let mut told = String::new();
    #[expect(clippy::disallowed_methods, reason = "a test reads its own stories")]
    for entry in std::fs::read_dir(folder).unwrap() {
        told += &std::fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    // These have a test of their own: no decision is made.
    let apart = ["stranger", "unfit"];
    for code in codes {
        let here = told.contains(&format!("reason    {code}: "))
            || told.contains(&format!("refused   {code}: "));
        assert!(here || apart.contains(&code), "{code} is in no story");
    }
}

#[test]
fn what_cannot_be_served_is_said_and_left_alone() {
    let lab = normal(2, &ALL[..3], &json!({}));
    let subject = Subject::<Pool> {
        name: &lab.name,
        policy: &lab.policy,
        state: lab.state.as_ref(),
        paused: false,
        owned: &lab.owned,
    };
    let seen = Observation::new(lab.now.clone());
    let Considered::Unable(reasons) = Pool::consider(&subject, &seen, &lab.now, false) else {
        panic!("it decided without a look");
    };
    assert_eq!(reasons[0].code, "unfit");

    let mut lab = normal(2, &ALL[..3], &json!({}));
    lab.strangers.insert(world::interface("vpn2"));
    assert_eq!(lab.consider().expect_err("it is a stranger's")[0].code, "stranger");
}
