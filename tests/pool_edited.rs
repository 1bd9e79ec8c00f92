//! A policy that is edited while its pool is up: the next step brings the kernel in step, whole.

use crate::lab;

use lab::pool::{Pool, differences};
use lab::{Lab, names, space};
use serde_json::{Value, json};

/// What `Pool::new` writes, so that an edit changes what it means to change and nothing else.
fn edited(lab: &Lab, change: impl FnOnce(&mut Value)) {
    let _pool = Pool::new(lab, change);
}

/// The rules that are not the kernel's own three of each family.
fn rules(lab: &Lab) -> Vec<String> {
    let listed = format!("{}{}", lab.gw().ip("rule show"), lab.gw().ip("-6 rule show"));
    let own = ["0:", "32766:", "32767:"];
    listed
        .lines()
        .filter(|line| !own.iter().any(|number| line.starts_with(number)))
        .map(str::to_owned)
        .collect()
}

#[test]
fn other_numbers_leave_no_orphan_and_no_leak() {
    let lab = Lab::builder().clients(4).endpoints(6).strict().start();
    let bare = Pool::new(&lab, |_| {}).kernel();
    let pool = Pool::up(&lab, |_| {});
    let (endpoints, homes) = (pool.endpoints(), pool.serves(4));
    let before = rules(&lab).len();
    edited(&lab, |policy| {
        policy["routing"]["protocol"] = json!(77);
        policy["routing"]["rule_priority"] = json!(9_000);
        policy["routing"]["first_mark"] = json!("0x51230000");
        policy["slots"]["first_table"] = json!(901);
    });
    let step = pool.step();
    assert_eq!(step.went(), (Some(0), "NORMAL", "NORMAL"), "{step:#?}");
    let now = rules(&lab);
    assert_eq!(now.len(), before, "{now:#?}");
    assert!(now.iter().all(|rule| rule.contains("proto 77")), "{now:#?}");
    let routes = lab.gw().ip("route show table all");
    assert!(!routes.contains("table 101") && routes.contains("table 901"), "{routes}");
    assert_eq!((pool.endpoints(), pool.serves(4)), (endpoints, homes));
    assert!(pool.step().is_steady());
    pool.nothing_leaked();
    assert_eq!(lab.gw().egressctl(&["down", "home"]).code, Some(0));
    assert_eq!(differences(&bare, &pool.kernel()), Vec::<String>::new());
}

/// Case C36.
#[test]
fn a_strangers_route_and_rule_with_our_number_elsewhere_are_left_alone() {
    let lab = Lab::builder().clients(2).endpoints(5).start();
    let space = lab.gw().space();
    space.batch("route add 192.0.2.200/32 via 203.0.113.1 table 77 proto 201");
    space.batch("rule add priority 15000 from 10.77.0.99 lookup 77 proto 201");
    let pool = Pool::up(&lab, |_| {});
    pool.goes("NORMAL", "NORMAL");
    assert_eq!(lab.gw().egressctl(&["down", "home"]).code, Some(0));
    assert!(lab.gw().ip("route show table 77").contains("192.0.2.200"));
    assert!(rules(&lab).iter().any(|rule| rule.starts_with("15000:")));
}

#[test]
fn slots_and_clients_come_and_go_and_the_others_stay() {
    let lab = Lab::builder().clients(5).endpoints(8).start();
    let pool = Pool::up(&lab, |policy| {
        policy["clients"].as_array_mut().unwrap().pop();
    });
    // The fifth client is nobody's yet and leaves by the WAN.
    let (tunnels, homes) = (pool.tunnels(), lab.exits());
    let mark = lab.capture.mark();
    edited(&lab, |policy| {
        policy["slots"]["interfaces"] = json!(["vpn1", "vpn2", "vpn3", "vpn4", "vpn9"]);
    });
    pool.settles(8);
    let now = pool.tunnels();
    assert!(!now.contains_key("vpn5") && now.contains_key("vpn9"), "{:?}", now.keys());
    for slot in ["vpn1", "vpn2", "vpn3", "vpn4"] {
        assert!(now[slot].goes_on_from(&tunnels[slot]), "{slot} was touched");
    }
    assert!(!lab.gw().devices().iter().any(|device| device == "vpn5"));
    let exits = lab.exits();
    assert!(exits.iter().all(Option::is_some), "{exits:?}");
    assert_eq!(exits[..4], homes[..4], "the fifth client is new, nobody else was moved");
    assert_eq!(lab.capture.leaks_since(mark), []);

    edited(&lab, |policy| policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]));
    pool.settles(8);
    assert_eq!(pool.endpoints().len(), 2);
    pool.serves(2);
    assert!(pool.step().is_steady());
}

#[test]
fn a_spoilt_pool_file_costs_its_own_slot_and_no_other() {
    let lab = Lab::builder().clients(5).endpoints(7).start();
    let pool = Pool::up(&lab, |_| {});
    let spoilt = pool.endpoints()["vpn2"];
    let file = lab.gw().state_dir().join(format!("home/pool/1/p{spoilt}.conf"));
    std::fs::write(&file, "[Interface]\n").unwrap();
    lab.gw().reboot();
    let _reboot = pool.step();
    pool.settles(10);
    assert!(pool.endpoints()["vpn2"] != spoilt, "the slot has another endpoint");
    pool.serves(5);
    pool.nothing_leaked();
}

#[test]
fn a_lost_state_is_made_anew_by_a_step_and_spoilt_by_no_other_command() {
    let lab = Lab::builder().clients(3).endpoints(5).start();
    let pool = Pool::up(&lab, |_| {});
    let (tunnels, exits) = (pool.tunnels(), lab.exits());
    for name in ["state.json", "state.json.bak"] {
        std::fs::write(lab.gw().state_dir().join("home").join(name), "{").unwrap();
    }
    for command in ["pause", "refresh"] {
        let refused = lab.gw().egressctl(&[command, "home"]);
        assert_eq!(refused.code, Some(2), "{command}: {}{}", refused.stdout, refused.stderr);
    }
    let step = pool.step();
    assert_eq!((step.code, step.word("to")), (Some(0), "NORMAL"), "{step:#?}");
    for (slot, now) in pool.tunnels() {
        assert!(now.goes_on_from(&tunnels[&slot]), "{slot} was touched");
    }
    assert_eq!(lab.exits(), exits, "nobody was moved");
    pool.nothing_leaked();
}

#[test]
fn c19_a_reserve_that_is_led_into_another_slot_is_never_loaded() {
    let lab = Lab::builder().clients(2).endpoints(4).start();
    let pool = Pool::up(&lab, |policy| policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]));
    let (own, other) = (pool.endpoints()["vpn1"], pool.endpoints()["vpn2"]);
    let reserve: Vec<usize> = (1..=4).filter(|k| ![own, other].contains(k)).collect();
    let before = pool.tunnels();
    for k in &reserve {
        lab.gw().space().batch(&format!("route add {}/32 dev vpn2", names::endpoint(*k)));
    }
    lab.drop(own);
    for _ in 0..8 {
        drop(pool.step());
        let filled = pool.endpoints().get("vpn1").copied();
        assert!(!reserve.iter().any(|k| filled == Some(*k)), "{:#}", pool.status());
    }
    let told = lab.gw().egressctl(&["history", "home"]).stdout;
    assert!(told.contains("its endpoint is led into vpn2"), "{told}");
    pool.others_go_on(&before, &["vpn1"]);
    assert_eq!(pool.serves(1).len(), 2);
    pool.nothing_leaked();
}

#[test]
fn c19_an_endpoint_that_is_led_into_its_own_tunnel_loses_its_clients_and_floods_nobody() {
    let lab = Lab::builder().clients(2).endpoints(3).start();
    let pool = Pool::up(&lab, |policy| policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]));
    let (own, other) = (pool.endpoints()["vpn1"], pool.endpoints()["vpn2"]);
    let left = (1..=3).find(|k| ![own, other].contains(k)).unwrap();
    let at = names::endpoint(own);
    lab.spaces().isp.nft(&format!(
        "table inet seen {{\nchain past {{ type filter hook forward priority filter - 10; policy accept;\n\
         ip daddr {at} counter\n}}\n}}\n"
    ));
    let before = pool.tunnels();
    lab.gw().space().batch(&format!("route add {at}/32 dev vpn1"));
    let told = lab.gw().egressctl(&["check", "home"]);
    assert!(told.stdout.contains("endpoint-in-slot"), "{told:?}");
    for _ in 0..6 {
        drop(pool.step());
    }
    // It is given up as any that carries nothing, and the other one is not touched for it.
    let endpoints = pool.endpoints();
    assert_eq!((endpoints["vpn1"], endpoints["vpn2"]), (left, other), "{:#}", pool.status());
    pool.others_go_on(&before, &["vpn1"]);
    assert_eq!(pool.serves(2).len(), 2);
    let seen = lab.spaces().isp.inside(|| {
        space::run(std::process::Command::new("nft").args(["list", "table", "inet", "seen"]), "")
    });
    let count = seen.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next());
    let count: u64 = count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{seen}"));
    assert!(count < 500, "{count} packets went to an endpoint that nobody reached");
    pool.nothing_leaked();
}
