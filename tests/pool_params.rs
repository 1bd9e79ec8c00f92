//! Parameters of the way into Direct and out of it, and of lists that cannot be believed, on what clients see.

use crate::lab;

use lab::pool::{Pool, Step};
use lab::source::{By, Says, by_http, endpoints};
use lab::{Lab, names, provider, space};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Two slots whose candidates come over HTTP, so that few steps lead to the end.
fn two_slots(policy: &mut Value) {
    policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
    policy["provider"] = by_http();
    policy["params"]["direct_grace_sec"] = json!(0);
    policy["params"]["bootstrap_retry_interval_sec"] = json!(0);
    policy["params"]["hmn_refresh_retry_interval_sec"] = json!(3600);
    policy["params"]["candidate_test_timeout_sec"] = json!(1);
}

/// Writes the policy anew, with one parameter more; the state is kept.
fn edit(lab: &Lab, key: &str, value: Value) {
    let _again = Pool::new(lab, |policy| {
        two_slots(policy);
        policy["params"][key] = value;
    });
}

/// Steps until the machine stands there.
fn until(pool: &Pool<'_>, state: &str) {
    for _ in 0..16 {
        if pool.step().word("to") == state {
            return;
        }
    }
    panic!("{state} was not reached: {:#}", pool.status());
}

/// The WAN's address, once for each client.
fn by_wan(lab: &Lab) -> Vec<Option<String>> {
    lab.clients().iter().map(|_| Some(names::WAN.to_string())).collect()
}

fn addresses(lab: &Lab) -> Vec<Option<String>> {
    lab.clients().iter().map(lab::client::Client::exit).collect()
}

/// Everything dies and nobody lists anything: clients are in Direct.
fn in_direct(lab: &Lab) -> Pool<'_> {
    let pool = Pool::up(lab, two_slots);
    (1..=4).for_each(|k| lab.drop(k));
    lab.source.says(Says::Hangs);
    until(&pool, "BOOTSTRAP_RECOVERY");
    assert_eq!(addresses(lab), by_wan(lab));
    pool
}

#[test]
fn the_last_pool_ends_direct_only_where_the_policy_lets_it() {
    let lab = Lab::builder().clients(3).endpoints(4).start();
    let pool = in_direct(&lab);
    lab.heal(3);
    lab.heal(4);
    pool.steps(8);
    assert_eq!(pool.status()["state"], "BOOTSTRAP_RECOVERY", "the plan asks for a new list");
    assert_eq!(addresses(&lab), by_wan(&lab));
    let asked: BTreeSet<By> = lab.source.asked().into_iter().collect();
    assert!(asked.contains(&By::Wan), "{asked:?}");
    let before = pool.status();

    edit(&lab, "exit_direct_from_cache", json!(true));
    until(&pool, "DEGRADED_POOL");
    let mark = lab.capture.mark();
    let exits = pool.serves(2).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(exits, [3, 4].into());
    let after = pool.status();
    for kept in ["/pool/generation", "/pool/quarantined", "/repair_events_since_full_refresh"] {
        assert_eq!(before.pointer(kept), after.pointer(kept), "{kept}");
    }
    // A new list is still what the plan wants.
    lab.source.says(Says::Lists(endpoints(3, 4)));
    assert_eq!(lab.gw().egressctl(&["refresh", "home"]).code, Some(0));
    until(&pool, "NORMAL");
    assert_eq!(pool.status()["pool"]["generation"], 2);
    assert_eq!(pool.serves(2).into_iter().collect::<BTreeSet<_>>(), exits);
    assert_eq!(lab.capture.leaks_since(mark), []);
}

#[test]
fn fewer_slots_than_all_end_direct_where_the_policy_says_so() {
    let lab = Lab::builder().clients(3).endpoints(4).start();
    let pool = in_direct(&lab);
    lab.source.says(Says::Lists(endpoints(1, 4)));
    lab.heal(2);
    pool.steps(6);
    assert_eq!(pool.status()["state"], "BOOTSTRAP_RECOVERY", "one slot is not all slots");
    assert_eq!(addresses(&lab), by_wan(&lab));

    edit(&lab, "min_healthy_slots_to_exit_direct", json!(1));
    until(&pool, "DEGRADED_POOL");
    let mark = lab.capture.mark();
    assert_eq!(lab.exits(), [Some(2); 3], "all clients on the one that works");
    lab.heal(3);
    assert_eq!(lab.gw().egressctl(&["refresh", "home"]).code, Some(0));
    until(&pool, "NORMAL");
    pool.serves(2);
    assert_eq!(lab.capture.leaks_since(mark), []);
}

#[test]
fn a_list_that_is_too_short_is_believed_when_it_came_three_times_and_a_broken_one_never() {
    let lab = Lab::builder().clients(4).endpoints(6).start();
    let pool = Pool::up(&lab, two_slots);
    let (homes, tunnels) = (pool.serves(2), pool.tunnels());
    let refresh = |says: Says, to: &str| {
        lab.source.says(says);
        assert_eq!(lab.gw().egressctl(&["refresh", "home"]).code, Some(0));
        until(&pool, "FULL_POOL_REFRESH");
        until(&pool, to);
    };
    let used: BTreeSet<usize> = pool.endpoints().into_values().collect();
    for broken in [
        Says::Breaks(endpoints(1, 6)),
        Says::Text("<html>please sign in</html>".to_owned()),
        Says::Text("[]".to_owned()),
    ] {
        refresh(broken, "DEGRADED_POOL");
        assert_eq!(
            (pool.serves(2), &pool.status()["pool"]["generation"]),
            (homes.clone(), &json!(1))
        );
    }
    for times in 1..=3 {
        let to = if times == 3 { "NORMAL" } else { "DEGRADED_POOL" };
        refresh(Says::Lists(used.clone()), to);
        let generation = pool.status()["pool"]["generation"].as_u64().unwrap();
        assert_eq!(generation > 1, times == 3, "{times}: {generation}");
        assert_eq!(pool.serves(2), homes, "{times}");
    }
    refresh(Says::Zips(endpoints(1, 6)), "NORMAL");
    assert_eq!(pool.serves(2), homes);
    assert_eq!(pool.status()["pool"]["reserve"], 4);
    pool.others_go_on(&tunnels, &[]);
    pool.nothing_leaked();
}

/// Case C50.
#[test]
fn a_provider_that_refuses_is_left_alone_for_as_long_as_it_wishes() {
    let lab = Lab::builder().clients(2).endpoints(4).start();
    let pool = Pool::up(&lab, two_slots);
    edit(&lab, "hmn_refresh_retry_interval_sec", json!(0));
    let homes = pool.serves(2);
    lab.source.says(Says::Refuses(4));
    assert_eq!(lab.source.asked(), [By::Wan]);
    assert_eq!(lab.gw().egressctl(&["refresh", "home"]).code, Some(0));
    until(&pool, "DEGRADED_POOL");
    let refused = std::time::Instant::now();
    assert_eq!(lab.source.asked(), [By::Wan], "a refusal is an answer: no slot asks after it");
    lab.source.says(Says::Lists(endpoints(1, 4)));
    let again = space::wait_until(Duration::from_secs(20), || {
        pool.step();
        !lab.source.asked().is_empty()
    });
    let waited = refused.elapsed();
    assert!(again && waited > Duration::from_millis(3500), "asked again after {waited:?}");
    assert_eq!((pool.status()["state"].clone(), pool.serves(2)), (json!("NORMAL"), homes));
    pool.nothing_leaked();
}

#[test]
fn a_step_asks_for_half_of_its_budget_and_the_next_one_goes_on() {
    let lab = Lab::builder().clients(1).endpoints(2).start();
    // Four are tried side by side, and the dead ones are given up after three seconds.
    lab.drop(2);
    let dead =
        (1..=4).map(|n| json!({ "name": format!("dead{n}"), "config": provider::dead(n, 2) }));
    let good = json!({ "name": "p1", "config": provider::config(1) });
    let list = Value::from(dead.chain([good]).collect::<Vec<_>>()).to_string();
    lab.source.says(Says::Text(list));
    let pool = Pool::new(&lab, |policy| {
        two_slots(policy);
        policy["slots"]["interfaces"] = json!(["vpn1"]);
        policy["test"] = json!({ "parallel": 4 });
        policy["params"]["health_check_interval_sec"] = json!(60);
        policy["params"]["candidate_test_timeout_sec"] = json!(4);
        policy["params"]["step_budget_sec"] = json!(6);
    });
    let step = || Step::of(lab.gw().egressctl(&["step", "home", "--now", "--json"]));
    let first = step();
    assert_eq!(first.went(), (Some(0), "-", "FULL_POOL_REFRESH"), "{first:#?}");
    assert!(first.report.to_string().contains("4 of 5 candidates tested"), "{first:#?}");
    assert_eq!(step().word("to"), "NORMAL", "{:#}", pool.status());
    pool.serves(1);
}

#[test]
fn a_death_is_acted_upon_in_the_step_that_sees_it_where_failed_checks_are_repeated() {
    let lab = Lab::builder().clients(3).endpoints(4).start();
    let pool = Pool::up(&lab, |policy| {
        policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
        policy["probe"]["timeout_sec"] = json!(5);
        policy["probe"]["confirm"] = json!(1);
    });
    let usual = || {
        let state = lab.gw().state("home").expect("it was stepped");
        state.pointer("/body/machine/slots/vpn1/smoothed_ms").and_then(Value::as_u64)
    };
    assert!(pool.steps(2).is_steady());
    let before = usual().expect("it was checked");
    let client = &lab.clients()[0];
    let first = client.endpoint().expect("it is served");

    // One packet is lost: the check is repeated at once, and nobody is moved for it.
    lab.lose_one(first);
    let step = pool.step();
    assert!(step.is_steady(), "{step:#?}");
    assert!(usual().unwrap() >= before + 50, "{before} ms before, {:?} ms after", usual());
    assert_eq!(client.endpoint(), Some(first));

    lab.drop(first);
    let step = pool.goes("NORMAL", "LOCAL_REPAIR");
    let took = step.report["duration_ms"].as_u64().unwrap();
    assert!(took < 5_000, "two silences were waited for, not two timeouts: {took} ms");
    let other = client.endpoint();
    assert!(other.is_some_and(|other| other != first), "{other:?}");
}
