//! IPv6 of clients by slots: by those that carry it, by the WAN only on Direct, and otherwise not at all.

use crate::lab;

use lab::pool::{Pool, differences};
use lab::{Lab, names, provider};
use serde_json::json;
use std::net::SocketAddr;

/// The endpoint by which the web sees client `k` over IPv6.
fn by(lab: &Lab, k: usize) -> Option<usize> {
    let seen = lab.client(k).get6()?;
    (1..=9).find(|k| seen == names::exit6(*k).to_string())
}

/// A gateway of three slots whose first endpoints, by number, carry IPv6 too. Three clients have IPv4,
/// and the first two of them IPv6 as well.
fn start(lab: &Lab, six: usize) -> Pool<'_> {
    for k in 1..=six {
        let path = lab.provider_dir().join(format!("p{k}.conf"));
        std::fs::write(path, provider::config6(k)).unwrap();
    }
    Pool::new(lab, |policy| {
        policy["slots"]["interfaces"] = json!(["vpn1", "vpn2", "vpn3"]);
        policy["routing"] = json!({ "ipv6": "tunnel" });
        let four = (1..=3).map(|k| names::client(k).to_string());
        let six = (1..=2).map(|k| names::client6(k).to_string());
        let user = ["user:nobody".to_owned()];
        policy["clients"] = four.chain(six).chain(user).collect();
    })
}

/// The endpoint by which the web sees a local user over IPv6.
fn user_by(lab: &Lab) -> Option<usize> {
    let page = lab.gw().get_as("nobody", &names::target6(9).to_string(), "/ip")?;
    (1..=9).find(|k| page.text() == names::exit6(*k).to_string())
}

/// Where the status says that client `k` leaves over IPv6.
fn told(pool: &Pool<'_>, k: usize) -> String {
    told_of(pool, &names::client6(k).to_string())
}

fn told_of(pool: &Pool<'_>, name: &str) -> String {
    let status = pool.status();
    let row = status["clients"].as_array().unwrap().iter().find(|row| row["client"] == name);
    row.unwrap()["egress"].as_str().unwrap().to_owned()
}

#[test]
fn clients_have_ipv6_by_their_slots_through_a_repair_and_direct_and_never_around_them() {
    let lab = Lab::builder().clients(3).endpoints(5).start();
    let before = Pool { lab: &lab }.kernel();
    let pool = start(&lab, 5);
    let first = pool.step();
    assert_eq!(first.went(), (Some(0), "-", "NORMAL"), "{first:#?}");

    let home = pool.endpoints();
    let slots = [told(&pool, 1), told(&pool, 2)];
    for (k, slot) in (1..).zip(&slots) {
        assert_eq!(by(&lab, k), Some(home[slot]), "client {k} is on {slot}");
    }
    assert_eq!(user_by(&lab), Some(home[&told_of(&pool, "user:nobody")]));
    assert_eq!(lab.client(3).get6(), None, "it has no IPv6 in the policy");
    assert!(lab.client(3).ping("fd77::1".parse().unwrap()), "the LAN goes on");
    assert!(lab.client(1).ping(names::client6(3).into()));
    let at = SocketAddr::new(names::target6(1).into(), 80);
    let big = lab.client(1).get(&format!("http://{at}/big")).map(|page| page.body.len());
    assert_eq!(big, Some(lab::web::BIG), "large packets pass");

    // Each layer is closed without the other.
    lab.gw().delete_rules();
    assert_eq!((lab.client(1).get6(), user_by(&lab)), (None, None));
    assert!(pool.step().word("to") == "NORMAL" && by(&lab, 1) == Some(home[&slots[0]]));
    lab.gw().flush_nft();
    assert_eq!(lab.client(1).get6(), None);
    assert!(pool.step().word("to") == "NORMAL" && by(&lab, 1) == Some(home[&slots[0]]));
    // So is a slot's table without its way out.
    lab.gw().ip(&format!(
        "-6 route del default dev {} table {}",
        slots[0],
        100 + &slots[0][3..].parse::<u32>().unwrap()
    ));
    assert_eq!(lab.client(1).get6(), None);
    pool.goes("NORMAL", "NORMAL");
    assert_eq!(by(&lab, 1), Some(home[&slots[0]]));

    // An endpoint dies, and its client leaves by another one, then by the slot's new one.
    lab.drop(home[&slots[0]]);
    pool.goes("NORMAL", "NORMAL");
    pool.goes("NORMAL", "LOCAL_REPAIR");
    let guest = told(&pool, 1);
    assert_ne!(guest, slots[0]);
    assert_eq!(by(&lab, 1), Some(home[&guest]));
    pool.goes("LOCAL_REPAIR", "NORMAL");
    assert_eq!(
        (told(&pool, 1), by(&lab, 1)),
        (slots[0].clone(), Some(pool.endpoints()[&slots[0]]))
    );
    pool.nothing_leaked();

    // Taken down, nothing of it is left.
    assert_eq!(lab.gw().egressctl(&["down", "home"]).code, Some(0));
    assert_eq!(differences(&before, &pool.kernel()), [""; 0]);
    assert_eq!(lab.client(1).get6(), Some(names::client6(1).to_string()));
}

#[test]
fn what_a_slot_without_ipv6_is_sent_is_rejected_and_told() {
    let lab = Lab::builder().clients(3).endpoints(3).start();
    let pool = start(&lab, 2);
    let first = pool.step();
    assert_eq!(first.went(), (Some(0), "-", "NORMAL"), "{first:#?}");
    let status = pool.status();
    let home = pool.endpoints();
    let mut carrying = 0;
    for slot in status["slots"].as_array().unwrap() {
        let endpoint = home[slot["interface"].as_str().unwrap()];
        assert_eq!(slot["carries_ipv6"], json!(endpoint <= 2), "{slot}");
    }
    for k in [1, 2] {
        let egress = told(&pool, k);
        let seen = by(&lab, k);
        if egress == "none" {
            assert_eq!(lab.client(k).get6(), None);
        } else {
            assert_eq!(seen, Some(home[&egress]));
            carrying += 1;
        }
    }
    assert!(carrying >= 1, "{status:#}");
    assert!(lab.exits().iter().all(Option::is_some), "IPv4 goes on");

    // With the last endpoint that has IPv6 gone, it is rejected, and goes around nowhere.
    for k in [1, 2] {
        lab.drop(k);
    }
    pool.steps(4);
    for k in [1, 2] {
        assert_eq!((told(&pool, k), lab.client(k).get6()), ("none".to_owned(), None));
    }
    pool.nothing_leaked();
}

#[test]
fn on_direct_ipv6_leaves_by_the_wan_and_comes_back() {
    let lab = Lab::builder().clients(3).endpoints(3).start();
    let pool = start(&lab, 3);
    let first = pool.step();
    assert_eq!(first.went(), (Some(0), "-", "NORMAL"), "{first:#?}");
    (1..=3).for_each(|k| lab.drop(k));
    let mut went = Vec::new();
    while !went.iter().any(|state| state == "DIRECT_EMERGENCY") {
        assert!(went.len() < 12, "{went:?}");
        went.push(pool.step().word("to").to_owned());
    }
    assert_eq!(lab.client(1).get6(), Some("2001:db8:113::2".to_owned()), "the gateway's own");
    assert_eq!(lab.client(3).get6(), None, "it has no IPv6 in the policy");
    (1..=3).for_each(|k| lab.faults().heal(k));
    let mut steps = 0;
    while by(&lab, 1).is_none() {
        steps += 1;
        assert!(steps < 20, "{:#}", pool.status());
        pool.step();
    }
    assert_eq!(
        lab.client(1).get6().as_deref(),
        Some(names::exit6(by(&lab, 1).unwrap()).to_string().as_str())
    );
}
