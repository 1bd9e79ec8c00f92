//! Laws that hold in every reachable state of a pool, found by walking all of them.
//!
//! What the world may do has many dimensions: probes by each slot pass, fail, or tell nothing; the
//! uplink is up, down, at the edge (it falls within the step) or its references alone are down; the
//! provider answers by the WAN, by a tunnel alone, with a part of the list, or not; trials pass, fail, or
//! cannot be made; what is loaded passes its verification or not; commands fail; windows are due or not;
//! the machine reboots; a person asks for a refresh. All of them at once are beyond reach for more
//! than one slot, so there are slices. In a slice some dimensions are free, in every step and in every
//! combination, and the others well; every slice is walked to its end.
//!
//! Whole is one slot with one endpoint: probes that pass or fail, the uplink, the provider, trials and
//! verifications are free at once there (not so waits, reboots, persons and commands that fail). Two
//! slots with three endpoints have each other dimension free beside the probes; where probes tell
//! nothing, they have two endpoints. Three slots with three endpoints have partial lists, with four the
//! probes alone. This covers the table, for its rows look at one of these things each beside the slots: at the
//! uplink (guard a), at what serves and is left (b, c), at the list (d), at a proof. What needs two of them
//! at once and more than one slot is not walked; the stories of `decisions.rs`, `bootstrap.rs` and
//! `world_changes.rs` are told of some of it, and `standby.rs` goes through more of it by chance. A
//! standby is in no slice.
//!
//! Of time a walk knows whether a window is over, not when. States that differ only in how an endpoint is
//! called, in the order of a list, or in how often the same failed beyond what is told apart, are one.

use crate::edges;
use crate::walk;
use crate::world;

use edges::Transitions;
use egressctl::policy::PoolPolicy;
use egressctl::pool::Pool;
use egressctl::pool::state::Mode;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use walk::canon::{APART, BRIEF, LENGTHY};
use walk::oracle::{Menu, Probe, Says, Tried};
use walk::rows::{Sight, codes, missing};
use walk::{Found, Slice};
use world::policy_by;

const ABC: [&str; 3] = ["a", "b", "c"];
const ABCD: [&str; 4] = ["a", "b", "c", "d"];

/// A policy whose every count is one and whose waits are told apart by a walk.
fn policy(slots: usize, clients: usize, local: bool, params: &Value) -> PoolPolicy {
    let mut all = json!({
        "health_check_interval_sec": APART,
        "health_failures_before_down": 1,
        "local_repair_retest_count": 1,
        "full_refresh_after_repairs": 2,
        "hmn_refresh_retry_interval_sec": LENGTHY,
        "bootstrap_retry_interval_sec": BRIEF,
        "direct_grace_sec": BRIEF,
        "flap_limit": 1000,
        "flap_window_sec": LENGTHY,
    });
    for (name, value) in params.as_object().unwrap() {
        all[name] = value.clone();
    }
    let provider = if local {
        json!({ "directory": { "path": "/etc/egressctl/endpoints" } })
    } else {
        json!({ "http": { "url": "https://192.0.2.70/list.json" } })
    };
    let mut policy = policy_by(slots, clients, &all, &provider);
    policy.probe.large = None;
    policy
}

/// Nothing is waited for but grace.
fn due(params: &Value) -> Value {
    let mut all = json!({ "hmn_refresh_retry_interval_sec": 0, "bootstrap_retry_interval_sec": 0,
        "local_repair_retest_count": 0 });
    for (name, value) in params.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

/// Endpoints that come and go; all else is well.
fn menu(names: &[&'static str]) -> Menu {
    Menu {
        probes: vec![Probe::Passes, Probe::Fails],
        provider: vec![Says::Lists(names.to_vec())],
        trials: vec![Tried::Passes],
        trial_sec: 0,
        proofs_fail: false,
        wan_falls: false,
        commands_fail: false,
    }
}

fn slice(name: &'static str, policy: PoolPolicy, names: &[&'static str], menu: Menu) -> Slice {
    Slice { name, policy, menu, names: names.to_vec(), reboots: false, asks: false }
}

fn slices() -> Vec<Slice> {
    let abc = || menu(&ABC);
    let ab = || menu(&ABC[..2]);
    let at_once = || json!({ "full_refresh_after_repairs": 1, "direct_grace_sec": 0 });
    let with = |mut params: Value, name: &str, value: Value| {
        params[name] = value;
        params
    };
    let unit = || json!({ "full_refresh_after_repairs": 1 });
    let two =
        |name, params: Value, menu| slice(name, policy(2, 3, true, &due(&params)), &ABC, menu);
    let one =
        |name, params: Value, menu| slice(name, policy(1, 1, true, &due(&params)), &ABC[..2], menu);
    let silent = || vec![Says::Lists(ABC.to_vec()), Says::Silent];
    let uncertain = || vec![Probe::Passes, Probe::Fails, Probe::Unknown];
    vec![
        two(
            "2x3, checks and retests",
            json!({ "health_failures_before_down": 2, "local_repair_retest_count": 1,
                "full_refresh_after_repairs": 1 }),
            abc(),
        ),
        two("2x3, repairs to the threshold", json!({ "full_refresh_after_repairs": 2 }), abc()),
        two(
            "2x3, false alarms",
            json!({ "full_refresh_after_repairs": 1, "flap_limit": 2,
                "local_repair_retest_count": 1 }),
            abc(),
        ),
        two("2x3, uplink", unit(), Menu { wan_falls: true, provider: silent(), ..abc() }),
        two("2x3, verifications", at_once(), Menu { proofs_fail: true, ..abc() }),
        two("2x3, tests", unit(), Menu { trials: vec![Tried::Passes, Tried::Fails], ..abc() }),
        slice(
            "2x2, probes that tell nothing",
            policy(2, 3, true, &due(&at_once())),
            &ABC[..2],
            Menu { probes: uncertain(), ..ab() },
        ),
        slice(
            "2x3, ways to the provider",
            policy(2, 3, false, &due(&at_once())),
            &ABC,
            Menu { provider: silent(), ..abc() },
        ),
        two(
            "2x3, partial lists",
            at_once(),
            Menu { provider: vec![Says::Lists(ABC.to_vec()), Says::Lists(vec!["b"])], ..abc() },
        ),
        slice(
            "2x3, waits",
            policy(2, 3, true, &unit()),
            &ABC,
            Menu { provider: silent(), ..abc() },
        ),
        Slice {
            asks: true,
            ..two("2x3, a person asks", unit(), Menu { provider: silent(), ..abc() })
        },
        Slice { reboots: true, ..two("2x3, reboots", at_once(), abc()) },
        two("2x3, commands that fail", at_once(), Menu { commands_fail: true, ..abc() }),
        two(
            "2x3, out of Direct by the last pool",
            with(
                with(at_once(), "exit_direct_from_cache", json!(true)),
                "min_healthy_slots_to_exit_direct",
                json!(1),
            ),
            Menu { provider: silent(), ..abc() },
        ),
        slice("3x4, endpoints", policy(3, 3, true, &due(&unit())), &ABCD, menu(&ABCD)),
        slice(
            "3x3, partial lists",
            policy(3, 3, true, &due(&at_once())),
            &ABC,
            Menu {
                provider: vec![Says::Lists(ABC.to_vec()), Says::Lists(vec!["a", "b"])],
                ..abc()
            },
        ),
        Slice {
            asks: true,
            ..slice(
                "2x4, lists that have nothing in common",
                policy(2, 3, true, &due(&at_once())),
                &ABCD,
                Menu {
                    probes: vec![Probe::Passes],
                    provider: vec![Says::Lists(vec!["a", "b"]), Says::Lists(vec!["c", "d"])],
                    ..menu(&ABCD)
                },
            )
        },
        one("1x2, verifications within grace", unit(), Menu { proofs_fail: true, ..ab() }),
        one("1x2, None", with(unit(), "direct_failopen_enabled", json!(false)), ab()),
        one("1x2, Direct held", with(unit(), "emergency_commit_enabled", json!(false)), ab()),
        {
            let lossy = vec![Probe::Passes, Probe::Fails, Probe::SmallOnly];
            let mut slice = one("1x2, large packets", unit(), Menu { probes: lossy, ..ab() });
            let large = json!({ "url": "http://192.0.2.80/large", "bytes": 1400 });
            slice.policy.probe.large = Some(serde_json::from_value(large).unwrap());
            slice
        },
        one(
            "1x2, what cannot be used, tried or made",
            at_once(),
            Menu {
                provider: vec![Says::Lists(ABC[..2].to_vec()), Says::ListsAllBut("a", vec!["b"])],
                trials: vec![Tried::Passes, Tried::Fails, Tried::Untried],
                commands_fail: true,
                ..ab()
            },
        ),
        {
            let uncertain = Menu { probes: uncertain(), trial_sec: APART + 1, ..abc() };
            let mut slice = one(
                "1x3, tests that take several steps, probes that tell nothing",
                at_once(),
                uncertain,
            );
            slice.names = ABC.to_vec();
            slice.policy.test.parallel = 1;
            slice
        },
        slice(
            "1x1, everything at once",
            policy(1, 1, false, &due(&unit())),
            &ABC[..1],
            Menu {
                provider: vec![Says::Lists(ABC[..1].to_vec()), Says::Silent, Says::Refuses],
                trials: vec![Tried::Passes, Tried::Fails],
                proofs_fail: true,
                wan_falls: true,
                ..menu(&[])
            },
        ),
    ]
}

/// Reasons that cannot arise in a walk, why, and the test that shows each.
const ELSEWHERE: &[(&[&str], &str, &str, &str)] = &[
    (
        &["persons-direct", "persons-endpoint"],
        "nobody switches",
        include_str!("decisions.rs"),
        "a_persons_choice_is_carried_out_or_refused",
    ),
    (
        &["comes-back"],
        "nobody takes it down",
        include_str!("decisions.rs"),
        "what_was_taken_down_comes_back_as_it_was",
    ),
    (
        &["nothing-to-verify-with"],
        "pages are asked by address",
        include_str!("decisions.rs"),
        "with_no_page_to_ask_for_no_candidate_is_put_to_the_proof",
    ),
    (
        &["stranger", "unfit"],
        "the machine itself is as it should be, and these make no decision",
        include_str!("decisions.rs"),
        "what_cannot_be_served_is_said_and_left_alone",
    ),
    (
        &["list-unchanged"],
        "the provider gives its lists no version",
        include_str!("bootstrap.rs"),
        "a_list_that_has_not_changed_is_fetched_with_its_version_and_counts_as_fetched",
    ),
    (
        &["standby-raised", "standby-lowered", "standby-useless"],
        "there is no standby; by chance and not exhaustively these are walked",
        include_str!("standby.rs"),
        "whatever_happens_the_laws_hold_beside_a_standby_and_a_well_world_ends_in_normal",
    ),
];

#[test]
fn every_reachable_state_is_lawful_and_comes_back_and_every_row_and_reason_is_reached() {
    // For whoever looks for a fault: `LAWS_ONLY=uplink` walks the slices that have it in their names.
    let only = std::env::var("LAWS_ONLY").ok();
    let slices = slices();
    let chosen = slices.iter().filter(|s| only.as_ref().is_none_or(|only| s.name.contains(only)));
    let found: Vec<Found> = chosen.map(Slice::walk).collect();
    let sum = |count: fn(&Found) -> u64| found.iter().map(count).sum::<u64>();
    println!(
        "together: {} states, {} edges; NORMAL in {} steps at most",
        sum(|found| found.states),
        sum(|found| found.edges),
        found.iter().map(|found| found.bound).max().unwrap_or(0),
    );
    let sights: BTreeSet<Sight> = found.into_iter().flat_map(|found| found.sights).collect();
    let mut transitions = Transitions::default();
    for sight in &sights {
        let from = sight.from.map(Mode::as_str);
        transitions.note(from, sight.to.as_str(), sight.codes.iter().map(String::as_str));
    }
    let said: BTreeSet<&str> =
        sights.iter().flat_map(|sight| sight.codes.iter().map(String::as_str)).collect();
    transitions.are_those_of::<Pool>(|_, _, _| only.is_none());
    let known = codes();
    assert!(known.len() > 40 && said.is_subset(&known), "reasons are read wrongly: {known:?}");
    let mut unsaid: BTreeSet<&str> = known.difference(&said).copied().collect();
    if only.is_some() {
        return println!("not reached: {:#?} {unsaid:?}", missing(&sights));
    }
    for (codes, why, file, test) in ELSEWHERE {
        assert!(file.contains(&format!("\nfn {test}()")), "{test} is gone: {codes:?}");
        for code in *codes {
            assert!(unsaid.remove(code), "{code} is reached, although {why}");
        }
    }
    assert_eq!((missing(&sights), unsaid), (Vec::new(), BTreeSet::new()), "not reached");
}

/// Invariant 10.
#[test]
fn no_vendor_is_named_outside_what_is_the_providers() {
    const VENDORS: [&str; 5] = ["hidemyname", "mullvad", "ivpn", "nordvpn", "gluetun"];
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut looked_at = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.starts_with("provider") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap().to_lowercase();
                let named: Vec<_> = VENDORS.iter().filter(|name| text.contains(**name)).collect();
                assert!(named.is_empty(), "{} names {named:?}", path.display());
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 100, "the sources are not here: {looked_at}");
}
