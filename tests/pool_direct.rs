//! The last resort and the way back, and a person's own choices, on what clients see.

use crate::lab;

use lab::pool::Pool;
use lab::space::wait_until;
use lab::{Lab, names};
use serde_json::{Value, json};
use std::time::Duration;

/// Two slots, so that few steps lead to the end.
fn two_slots(policy: &mut Value) {
    policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
    policy["params"]["direct_grace_sec"] = json!(0);
    policy["params"]["bootstrap_retry_interval_sec"] = json!(0);
    policy["params"]["hmn_refresh_retry_interval_sec"] = json!(3600);
}

/// Steps until the machine stands there.
fn until(pool: &Pool<'_>, state: &str) {
    for _ in 0..12 {
        let step = pool.step();
        if step.word("to") == state {
            return;
        }
    }
    panic!("{state} was not reached: {:#}", pool.status());
}

fn wan() -> String {
    names::WAN.to_string()
}

#[test]
fn with_nothing_left_clients_go_direct_and_direct_ends_with_a_proven_set_and_its_open_flows() {
    let lab = Lab::builder().clients(3).endpoints(2).masquerade().start();
    let pool = Pool::up(&lab, two_slots);
    pool.nothing_leaked();
    lab.drop(1);
    lab.drop(2);
    until(&pool, "DIRECT_EMERGENCY");
    assert_eq!(lab.client(1).exit(), Some(wan()), "clients are online, by the WAN");
    assert_eq!(pool.asked().0, Some(2), "status says that nobody is protected");
    pool.goes("DIRECT_EMERGENCY", "BOOTSTRAP_RECOVERY");
    assert_eq!(pool.step().word("to"), "BOOTSTRAP_RECOVERY", "nothing works yet");
    assert_eq!(lab.client(2).exit(), Some(wan()));

    let (mut tcp, mut udp) = (lab.client(1).tcp_flow().unwrap(), lab.client(2).udp_flow());
    let download = lab.client(3).download().unwrap();
    assert!(tcp.ping().is_ok() && udp.ping().is_some());
    lab.heal(1);
    lab.heal(2);
    until(&pool, "NORMAL");
    // What the server still sends to the WAN's own address is answered by the gateway itself, with a
    // reset, which is how the server learns that this flow is over. It is no packet of a client's.
    let over = wait_until(Duration::from_secs(20), || !lab.web_owes(names::WAN));
    assert!(over, "the server of the download learns that it has ended");
    let mark = lab.capture.mark();
    assert!(tcp.ping().is_err(), "an open connection does not go on by the WAN");
    assert_ne!(udp.ping(), Some(wan()), "an open UDP flow goes by a slot");
    pool.serves(2);
    drop(download);
    assert_eq!(lab.capture.leaks_since(mark), [], "Direct has ended for every packet");
    assert_eq!(pool.asked().0, Some(0));
}

#[test]
fn where_nothing_may_go_direct_clients_are_closed_in_from_the_first_step_on() {
    let lab = Lab::builder().clients(2).endpoints(2).start();
    let pool = Pool::new(&lab, |policy| {
        two_slots(policy);
        policy["params"]["direct_failopen_enabled"] = json!(false);
    });
    let mark = lab.capture.mark();
    lab.drop(1);
    lab.drop(2);
    assert_eq!(pool.step().word("to"), "FULL_POOL_REFRESH", "no candidate passed");
    assert_eq!(lab.exits(), [None, None], "closed in although no set was ever proven");
    lab.heal(1);
    lab.heal(2);
    until(&pool, "NORMAL");
    pool.serves(2);
    lab.drop(1);
    lab.drop(2);
    until(&pool, "BOOTSTRAP_RECOVERY");
    assert_eq!(lab.exits(), [None, None], "None in place of Direct");
    lab.heal(1);
    lab.heal(2);
    until(&pool, "NORMAL");
    pool.serves(2);
    assert_eq!(lab.capture.leaks_since(mark), []);
}

#[test]
fn a_held_move_waits_for_a_persons_consent() {
    let lab = Lab::builder().clients(2).endpoints(2).masquerade().start();
    let pool = Pool::up(&lab, |policy| {
        two_slots(policy);
        policy["params"]["emergency_commit_enabled"] = json!(false);
    });
    let mark = lab.capture.mark();
    lab.drop(1);
    lab.drop(2);
    until(&pool, "BOOTSTRAP_RECOVERY");
    assert_eq!(lab.exits(), [None, None], "clients stay on what is dead");
    assert_eq!(lab.capture.leaks_since(mark), []);
    let consent = lab.gw().egressctl(&["switch", "home", "direct"]);
    assert_eq!(consent.code, Some(0), "{}{}", consent.stdout, consent.stderr);
    assert_eq!(lab.client(1).exit(), Some(wan()));
    assert_eq!(pool.status()["paused"], Value::Null, "a consent is no pause");
    let pause = lab.gw().egressctl(&["pause", "home"]);
    assert_eq!(pause.code, Some(2), "a pause would stop the way back: {}", pause.stderr);
    lab.heal(1);
    lab.heal(2);
    until(&pool, "NORMAL");
    pool.serves(2);
}

#[test]
fn a_person_chooses_endpoints_and_direct_and_gives_the_choice_back() {
    let lab = Lab::builder().clients(4).endpoints(6).masquerade().start();
    let pool = Pool::up(&lab, |_| {});
    let before = pool.endpoints();
    let free = (1..=6).find(|k| !before.values().any(|used| used == k)).unwrap();
    let target = format!("vpn2=p{free}");
    let switched = lab.gw().egressctl(&["switch", "home", &target]);
    assert_eq!(switched.code, Some(0), "{}{}", switched.stdout, switched.stderr);
    assert_eq!(pool.endpoints()["vpn2"], free);
    pool.serves(4);
    assert_eq!(pool.status()["pool"]["quarantined"], 0, "what it replaced is good");
    assert!(pool.step().is_steady());

    for (target, code) in [("direct", 2), ("vpn9=p1", 2), ("vpn1=nobody", 2), ("sideways", 2)] {
        let before = pool.counted();
        let refused = lab.gw().egressctl(&["switch", "home", target]);
        assert_eq!(refused.code, Some(code), "{target}: {}{}", refused.stdout, refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
        assert_eq!(pool.counted(), before);
    }
    pool.nothing_leaked();

    let direct = lab.gw().egressctl(&["switch", "home", "direct", "--force"]);
    assert_eq!(direct.code, Some(0), "{}{}", direct.stdout, direct.stderr);
    assert_eq!(lab.client(1).exit(), Some(wan()));
    assert!(pool.status()["paused"].is_string() && pool.asked().0 == Some(2));
    assert_eq!(pool.step().report["changes"], 0, "paused");
    let mut tcp = lab.client(1).tcp_flow().unwrap();
    assert!(tcp.ping().is_ok());
    let auto = lab.gw().egressctl(&["switch", "home", "auto"]);
    assert_eq!(auto.code, Some(0), "{}{}", auto.stdout, auto.stderr);
    let mark = lab.capture.mark();
    pool.serves(4);
    assert!(tcp.ping().is_err(), "Direct's flows end with it");
    assert_eq!(lab.capture.leaks_since(mark), []);
    assert_eq!(pool.status()["paused"], Value::Null);
}

#[test]
fn a_refresh_that_is_asked_for_replaces_only_what_is_not_listed_any_more() {
    let lab = Lab::builder().clients(4).endpoints(7).start();
    let pool = Pool::up(&lab, |_| {});
    let before = pool.endpoints();
    let gone = before["vpn3"];
    std::fs::remove_file(lab.provider_dir().join(format!("p{gone}.conf"))).unwrap();
    let tunnels = pool.tunnels();
    let asked = lab.gw().egressctl(&["refresh", "home"]);
    assert_eq!(asked.code, Some(0), "{}{}", asked.stdout, asked.stderr);
    pool.settles(6);
    let after = pool.endpoints();
    assert!(!after.values().any(|used| *used == gone), "{after:?}");
    for (slot, now) in pool.tunnels() {
        assert!(slot == "vpn3" || now.goes_on_from(&tunnels[&slot]), "{slot} was touched");
    }
    assert_eq!(pool.status()["pool"]["generation"], 2);
    pool.serves(4);
    pool.nothing_leaked();
}
