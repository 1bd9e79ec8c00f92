//! Laws that hold in every reachable state of a small pool, found by walking all of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stdout,
    missing_docs,
    reason = "test code"
)]

mod world;

use egressctl::policy::PoolPolicy;
use egressctl::pool::state::Mode;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use world::{
    APART, Input, Lab, NAMES, Steps as _, few_inputs, inputs, key, lab_of, lawful, policy, serving,
};

/// Seconds between steps of a liveness run: more than every interval and window below.
const LONG: u64 = 100;
/// A well world brings every state to NORMAL in so many steps.
const BOUND: usize = 10;

/// Windows of a few steps, so that a walk sees both sides of each.
fn small_policy(slots: usize, from_cache: bool) -> PoolPolicy {
    let params = serde_json::json!({
        "health_check_interval_sec": 10,
        "health_failures_before_down": 2,
        "local_repair_retest_count": 1,
        "full_refresh_after_repairs": 2,
        "hmn_refresh_retry_interval_sec": 25,
        "bootstrap_retry_interval_sec": 15,
        "direct_grace_sec": 15,
        "flap_limit": 2,
        "flap_window_sec": 35,
        "exit_direct_from_cache": from_cache,
    });
    policy(slots, 3, &params)
}

/// From here on the world is well: so many steps to NORMAL, and nothing to do then.
fn steps_to_normal(lab: &Lab) -> usize {
    let mut lab = lab.clone();
    let well = &inputs()[0];
    let slots = lab.policy.slots.interfaces.len();
    let mut told = Vec::new();
    for n in 0..=BOUND {
        let there = lab.state.as_ref().is_some_and(|state| {
            state.mode == Mode::Normal && serving(state).len() == slots && !state.settle
        });
        if there {
            well.put(&mut lab);
            lab.step();
            lab.later(APART);
            let quiet = lab.step();
            assert_eq!(quiet.plan, vec![], "a settled state does something: {}", key(&lab));
            assert!(quiet.decision.checks.is_empty(), "a settled state proves something");
            return n;
        }
        lab.later(LONG);
        well.put(&mut lab);
        let played = lab.step();
        lawful(&lab, well, &played);
        told.push((played.transition(), played.codes()));
    }
    panic!("not NORMAL after {BOUND} steps: {told:#?}\n{}", key(&lab));
}

/// Walks breadth-first from nothing, at most so many states.
fn walk(name: &str, slots: usize, alphabet: &[Input], from_cache: bool, most: usize) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut queue: VecDeque<Lab> = VecDeque::new();
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    let (mut edges, mut bound) = (0_usize, 0_usize);
    let start = lab_of(small_policy(slots, from_cache), &NAMES);
    seen.insert(key(&start));
    queue.push_back(start);
    let mut whole = true;
    while let Some(lab) = queue.pop_front() {
        bound = bound.max(steps_to_normal(&lab));
        for input in alphabet {
            let mut next = lab.clone();
            next.later(APART);
            input.put(&mut next);
            let played = next.step();
            edges += 1;
            lawful(&next, input, &played);
            let (from, to) = played.transition();
            *rows.entry(format!("{} -> {to}", from.unwrap_or_default())).or_default() += 1;
            let key = key(&next);
            if seen.contains(&key) {
                continue;
            }
            if seen.len() < most {
                seen.insert(key);
                queue.push_back(next);
            } else {
                whole = false;
            }
        }
    }
    println!(
        "{name}: {} states{}, {edges} edges, {} transitions, NORMAL in {bound} steps at most",
        seen.len(),
        if whole { ", all there are" } else { " looked at, there are more" },
        rows.len(),
    );
    println!("{rows:#?}");
}

/// How many states are looked at; `LAWS_STATES=50000` walks on to the end.
fn most(otherwise: usize) -> usize {
    std::env::var("LAWS_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn one_slot_is_lawful_in_every_state_walked_and_comes_back() {
    walk("1 slot", 1, &few_inputs(), false, most(400));
}

#[test]
fn two_slots_are_lawful_while_endpoints_provider_and_uplink_come_and_go() {
    walk("2 slots", 2, &few_inputs(), false, most(500));
}

#[test]
fn two_slots_are_lawful_whatever_happens() {
    walk("2 slots, all inputs", 2, &inputs(), true, most(350));
}
