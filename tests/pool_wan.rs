//! The WAN falls in the middle of a step, at one moment after the other: nothing is counted, quarantined or moved.

use crate::lab;

use lab::pool::{Pool, Step};
use lab::source::{By, Says, by_http, endpoints};
use lab::{Lab, names, space};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

fn three_slots(policy: &mut Value) {
    policy["slots"]["interfaces"] = json!(["vpn1", "vpn2", "vpn3"]);
    policy["provider"] = by_http();
    policy["params"]["bootstrap_retry_interval_sec"] = json!(0);
    policy["params"]["hmn_refresh_retry_interval_sec"] = json!(3600);
    policy["params"]["candidate_test_timeout_sec"] = json!(1);
    policy["params"]["candidate_test_retries"] = json!(0);
}

/// When the WAN falls.
#[derive(Clone, Debug)]
enum When {
    /// Before the step.
    Before,
    /// When a page of a host is asked for so many times, by anybody.
    Asked(Ipv4Addr, usize),
    /// When the probe is asked through one of these endpoints for the nth time.
    Through(BTreeSet<usize>, usize),
    /// When the list is asked for.
    Listing,
}

/// What must not move: what is counted, and which ways to the provider have failed.
fn remembered(pool: &Pool<'_>) -> (Value, Value) {
    let state = pool.lab.gw().state("home").unwrap();
    (pool.counted(), state["body"]["machine"]["bootstrap"]["failed"].clone())
}

/// One step in which the WAN falls, one without it, and the first one with it again.
fn falls(pool: &Pool<'_>, when: &When) -> Step {
    let lab = pool.lab;
    let (before, tunnels) = (remembered(pool), pool.endpoints());
    let silent = || {
        let faults = lab.faults().clone();
        move || faults.wan_silent()
    };
    match when {
        When::Before => lab.wan_silent(),
        When::Asked(host, nth) => lab.traps().set(*host, None, *nth, silent()),
        When::Through(endpoints, nth) => {
            for k in endpoints {
                lab.traps().set(names::PROBE, Some(names::exit(*k)), *nth, silent());
            }
        }
        When::Listing => lab.source.when_asked(silent()),
    }
    let step = pool.step();
    assert!(lab.wan_is_silent(), "{when:?}: the moment did not come: {step:#?}");
    let _left = lab.traps().clear();
    assert!(matches!(step.code, Some(0 | 3)), "{when:?}: {step:#?}");
    assert_eq!(remembered(pool), before, "{when:?}: {step:#?}");
    assert_eq!(pool.endpoints(), tunnels, "{when:?}: {step:#?}");
    let dark = pool.step();
    assert_eq!((dark.code, &dark.report["changes"]), (Some(0), &json!(0)), "{when:?}: {dark:#?}");
    assert_eq!(remembered(pool), before, "{when:?}: {dark:#?}");
    lab.wan_heal();
    let first = pool.step();
    assert_eq!(
        (first.code, &first.report["changes"]),
        (Some(0), &json!(0)),
        "{when:?}: {first:#?}"
    );
    assert_eq!(remembered(pool), before, "{when:?}: the first step with it again: {first:#?}");
    step
}

fn until(pool: &Pool<'_>, state: &str) {
    for _ in 0..12 {
        if pool.step().word("to") == state {
            return;
        }
    }
    panic!("{state} was not reached: {:#}", pool.status());
}

/// Endpoints that are in no slot.
fn idle(pool: &Pool<'_>, all: usize) -> BTreeSet<usize> {
    let active: BTreeSet<usize> = pool.endpoints().into_values().collect();
    (1..=all).filter(|k| !active.contains(k)).collect()
}

#[test]
fn while_all_is_well() {
    let lab = Lab::builder().clients(3).endpoints(5).start();
    let pool = Pool::up(&lab, three_slots);
    let (homes, tunnels) = (pool.serves(3), pool.tunnels());
    let probes = (1..=3).map(|nth| When::Asked(names::PROBE, nth));
    let reference = When::Asked(names::WAN_PROBE, 1);
    for when in probes.chain([When::Before, reference]) {
        falls(&pool, &when);
        assert_eq!(pool.serves(3), homes, "{when:?}");
        assert!(pool.step().is_steady(), "{when:?}");
    }
    pool.others_go_on(&tunnels, &[]);
    pool.nothing_leaked();
}

#[test]
fn while_a_slot_is_repaired() {
    let lab = Lab::builder().clients(3).endpoints(5).start();
    let pool = Pool::up(&lab, three_slots);
    let dead = pool.endpoints()["vpn2"];
    lab.drop(dead);
    pool.goes("NORMAL", "NORMAL");
    pool.goes("NORMAL", "LOCAL_REPAIR");
    let (guests, tunnels) = (pool.serves(2), pool.tunnels());
    let idle = idle(&pool, 5);
    for when in [
        When::Before,
        When::Asked(names::PROBE, 1),
        When::Asked(names::WAN_PROBE, 1),
        When::Through(idle.clone(), 1),
    ] {
        falls(&pool, &when);
        assert_eq!(pool.endpoints()["vpn2"], dead, "{when:?}: retests begin anew");
        assert_eq!(pool.serves(2), guests, "{when:?}");
    }
    pool.goes("LOCAL_REPAIR", "NORMAL");
    assert!(idle.contains(&pool.endpoints()["vpn2"]));
    pool.serves(3);
    assert_eq!(pool.status()["pool"]["quarantined"], 1);
    pool.others_go_on(&tunnels, &["vpn2"]);
    pool.nothing_leaked();
}

#[test]
fn while_a_new_pool_is_fetched_tested_and_loaded() {
    let lab = Lab::builder().clients(3).endpoints(7).start();
    lab.source.says(Says::Lists(endpoints(1, 5)));
    let pool = Pool::up(&lab, three_slots);
    let (homes, tunnels) = (pool.serves(3), pool.tunnels());
    // One of the slots has to be loaded anew, and nothing in reserve is listed any more.
    let gone = pool.endpoints()["vpn1"];
    let listed: BTreeSet<usize> =
        pool.endpoints().into_values().filter(|k| *k != gone).chain([6, 7]).collect();
    lab.source.says(Says::Lists(listed));
    assert_eq!(lab.gw().egressctl(&["refresh", "home"]).code, Some(0));
    pool.goes("NORMAL", "FULL_POOL_REFRESH");
    let new: BTreeSet<usize> = [6, 7].into();
    for when in [
        When::Before,
        When::Asked(names::PROBE, 2),
        When::Listing,
        When::Through(new.clone(), 1),
        When::Through(new, 2),
    ] {
        falls(&pool, &when);
        // A tunnel that was put back while the WAN was silent shakes hands again within five seconds.
        let served = || lab.exits().into_iter().collect::<Option<Vec<_>>>() == Some(homes.clone());
        assert!(space::wait_until(Duration::from_secs(8), served), "{when:?}: {:?}", lab.exits());
        pool.others_go_on(&tunnels, &["vpn1"]);
    }
    until(&pool, "NORMAL");
    assert_eq!(pool.status()["pool"]["generation"].as_u64().map(|n| n > 1), Some(true));
    pool.others_go_on(&tunnels, &["vpn1"]);
    pool.serves(3);
    pool.nothing_leaked();
}

#[test]
fn while_candidates_are_tried_and_no_slot_serves() {
    let lab = Lab::builder().clients(3).endpoints(6).start();
    let pool = Pool::up(&lab, |policy| {
        three_slots(policy);
        policy["params"]["direct_grace_sec"] = json!(600);
    });
    let reserve = idle(&pool, 6);
    for k in pool.endpoints().into_values() {
        lab.drop(k);
    }
    until(&pool, "LOCAL_REPAIR");
    for when in [When::Before, When::Through(reserve.clone(), 1), When::Asked(names::WAN_PROBE, 1)]
    {
        falls(&pool, &when);
    }
    until(&pool, "NORMAL");
    assert_eq!(pool.serves_some(), reserve);
    pool.nothing_leaked();
}

#[test]
fn while_the_way_back_from_direct_is_looked_for() {
    let lab = Lab::builder().clients(2).endpoints(4).start();
    let pool = Pool::up(&lab, |policy| {
        three_slots(policy);
        policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
        policy["params"]["direct_grace_sec"] = json!(0);
    });
    lab.source.says(Says::Hangs);
    let [other, way] = idle(&pool, 4).into_iter().collect::<Vec<_>>()[..] else { panic!("two") };
    (1..=4).for_each(|k| lab.drop(k));
    until(&pool, "BOOTSTRAP_RECOVERY");
    // The candidates of the last pool are tried in the lent slot, and one of them works.
    lab.heal(way);
    falls(&pool, &When::Before);
    for _ in 0..8 {
        if pool.endpoints().get("vpn1") == Some(&way) {
            break;
        }
        if pool.status()["slots"][0]["health"] != "lent" && is_next(&pool, way) {
            falls(&pool, &When::Through([way].into(), 1));
        }
        pool.step();
    }
    assert_eq!(pool.status()["slots"][0]["health"], "lent", "{:#}", pool.status());
    falls(&pool, &When::Asked(names::PROBE, 1));
    lab.source.says(Says::Lists(endpoints(1, 4)));
    let _before = lab.source.asked();
    falls(&pool, &When::Listing);
    assert_eq!(lab.source.asked(), [By::Endpoint(way)]);
    lab.heal(other);
    falls(&pool, &When::Through([other].into(), 1));
    falls(&pool, &When::Through([other].into(), 2));
    let wan = Some(names::WAN.to_string());
    assert_eq!(lab.client(1).exit(), wan, "clients are where they were");
    until(&pool, "NORMAL");
    let mark = lab.capture.mark();
    assert_eq!(pool.serves_some(), [other, way].into());
    assert_eq!(lab.capture.leaks_since(mark), []);
}

/// Whether all but this candidate of the last pool have been tried as ways to the provider.
fn is_next(pool: &Pool<'_>, k: usize) -> bool {
    let state = pool.lab.gw().state("home").unwrap();
    let failed = state["body"]["machine"]["bootstrap"]["failed"].as_array().unwrap().clone();
    let tried = |name: String| failed.iter().any(|way| way["way"]["cached"] == name);
    (1..=4).filter(|other| *other != k).all(|other| tried(format!("p{other}")))
}

#[test]
fn a_reference_that_is_dead_alone_freezes_nothing() {
    let lab = Lab::builder().clients(2).endpoints(4).start();
    let second = Ipv4Addr::new(192, 0, 2, 13);
    let pool = Pool::up(&lab, |policy| {
        three_slots(policy);
        policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
        policy["params"]["direct_grace_sec"] = json!(0);
        policy["wan"]["urls"].as_array_mut().unwrap().push(format!("http://{second}/").into());
    });
    lab.reference_dies();
    for slot in ["vpn1", "vpn2"] {
        lab.drop(pool.endpoints()[slot]);
        until(&pool, "LOCAL_REPAIR");
        pool.serves(1);
        until(&pool, "NORMAL");
        pool.serves(2);
    }
    pool.nothing_leaked();
    // With the other one there is still a witness when no tunnel is left.
    (1..=4).for_each(|k| lab.drop(k));
    until(&pool, "DIRECT_EMERGENCY");
    assert_eq!(lab.client(1).exit(), Some(names::WAN.to_string()));
}

#[test]
fn the_only_reference_that_is_dead_freezes_nothing_while_a_tunnel_shows_the_wan() {
    let lab = Lab::builder().clients(2).endpoints(4).start();
    let pool = Pool::up(&lab, |policy| {
        three_slots(policy);
        policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
    });
    lab.reference_dies();
    let (tunnels, dead) = (pool.tunnels(), pool.endpoints()["vpn1"]);
    // The one that is tried first works in its trial and is dead when its turn comes.
    for k in idle(&pool, 4).into_iter().take(1).chain([dead]) {
        lab.drop(k);
    }
    until(&pool, "LOCAL_REPAIR");
    pool.serves(1);
    until(&pool, "NORMAL");
    pool.serves(2);
    pool.others_go_on(&tunnels, &["vpn1"]);
    pool.nothing_leaked();
}
