//! Policies made of machines that are made up, each parsed by the program's own parser.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use super::*;
use crate::iproute::{parse_links, parse_routes, parse_rules};
use crate::names::Mark;
use crate::policy::PoolPolicy;
use crate::wireguard::parse_bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

fn key(kind: u8, n: u8) -> String {
    let mut bytes = [kind; 32];
    bytes[1] = n;
    STANDARD.encode(bytes)
}

fn config(own: u8, peer: u8, more: &str) -> TunnelConfig {
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.64.{peer}.2/32\n{more}[Peer]\nPublicKey = {}\nAllowedIPs = 0.0.0.0/0\nEndpoint = 198.51.100.{peer}:51820\n",
        key(1, own),
        key(2, peer)
    );
    parse_bytes(text.as_bytes()).unwrap().config
}

fn link(name: &str, kind: Option<&str>, addresses: &[&str]) -> Value {
    let address = |text: &&str| {
        let (local, length) = text.split_once('/').unwrap();
        json!({ "family": "inet", "local": local, "prefixlen": length.parse::<u8>().unwrap(), "scope": "0" })
    };
    json!({
        "ifindex": 7, "ifname": name, "flags": ["UP", "LOWER_UP"], "mtu": 1500,
        "linkinfo": { "info_kind": kind },
        "addr_info": addresses.iter().map(address).collect::<Vec<_>>(),
    })
}

fn links(listing: &[Value]) -> Vec<Link> {
    parse_links(&Value::from(listing.to_vec())).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A gateway with eth0 to the world, eth1 to two neighbours, and so many files.
fn here(files: u8) -> Here {
    let routes = json!([
        { "dst": "default", "gateway": "203.0.113.1", "dev": "eth0", "flags": [] },
        { "dst": "10.77.0.0/24", "dev": "eth1", "scope": "253", "prefsrc": "10.77.0.1", "flags": [] },
    ]);
    Here {
        links: links(&[
            link("lo", None, &["127.0.0.1/8"]),
            link("eth0", None, &["203.0.113.2/24"]),
            link("eth1", None, &["10.77.0.1/24"]),
        ]),
        routes: parse_routes(&routes, Table::MAIN).unwrap(),
        neighbours: vec![
            (ip("10.77.0.11"), "eth1".to_owned()),
            (ip("10.77.0.12"), "eth1".to_owned()),
            // The gateway itself, as a neighbour of its other port sees it.
            (ip("10.77.0.1"), "eth1".to_owned()),
            (ip("203.0.113.1"), "eth0".to_owned()),
            (ip("10.99.0.1"), "eth1".to_owned()),
            (ip("fe80::1"), "eth1".to_owned()),
        ],
        configs: "/etc/wireguard".into(),
        files: (1..=files).map(|n| (format!("p{n}"), Ok(config(n, n, "")))).collect(),
        has_kernel_wireguard: true,
        ..Here::default()
    }
}

fn made(here: &Here) -> (Value, PoolPolicy, String) {
    let Draft { text, guesses } = draft(here).unwrap();
    let Policy::Pool(policy) = Policy::parse(&text).unwrap() else { panic!("{text}") };
    (serde_json::from_str(&text).unwrap(), *policy, guesses.join("\n"))
}

#[test]
fn neighbours_of_the_lan_are_clients_and_the_files_are_slots() {
    let (text, policy, guesses) = made(&here(8));
    assert_eq!(text["clients"], json!(["10.77.0.11", "10.77.0.12"]));
    assert_eq!(text["lan_interfaces"], json!(["eth1"]));
    assert_eq!(text["wan_interface"], json!("eth0"));
    assert_eq!(
        text["slots"],
        json!({ "interfaces": ["vpn1", "vpn2", "vpn3", "vpn4", "vpn5"], "first_table": 101 })
    );
    assert_eq!(text.get("wireguard"), None);
    assert_eq!(
        policy.provider,
        crate::policy::provider::Provider::Directory(crate::policy::provider::Directory {
            path: "/etc/wireguard".into()
        })
    );
    for guess in ["WAN is eth0", "LAN is eth1", "2 neighbours", "5 slots, with 3 in reserve"] {
        assert!(guesses.contains(guess), "{guess}: {guesses}");
    }
}

#[test]
fn few_files_leave_one_in_reserve_if_they_can() {
    for (files, slots) in [(1, 1), (2, 2), (3, 2), (4, 3), (6, 5), (20, 5)] {
        assert_eq!(made(&here(files)).1.slots.interfaces.len(), slots, "{files}");
    }
}

#[test]
fn an_empty_lan_is_taken_whole_but_for_the_gateway_and_this_login() {
    let mut here = here(3);
    here.neighbours.clear();
    let (text, policy, guesses) = made(&here);
    assert_eq!(text["clients"][0], json!("10.77.0.2/31"));
    assert_eq!(text["clients"][3], json!({ "prefix": "10.77.0.16/28", "spread": true }));
    let holds = |policy: &PoolPolicy, address: &str| {
        policy.client_prefixes().iter().any(|net| IpNet::V4(*net).contains(&ip(address)))
    };
    assert!(holds(&policy, "10.77.0.2") && holds(&policy, "10.77.0.254"));
    assert!(!holds(&policy, "10.77.0.1") && guesses.contains("all of 10.77.0.0/24"), "{guesses}");
    here.login = Some(ip("10.77.0.20"));
    let (_, policy, guesses) = made(&here);
    assert!(!holds(&policy, "10.77.0.20") && holds(&policy, "10.77.0.21"));
    assert!(guesses.contains("10.77.0.20 is left out of the clients"), "{guesses}");
}

#[test]
fn who_is_logged_in_is_no_client() {
    let here = Here { login: Some(ip("10.77.0.11")), ..here(3) };
    assert_eq!(made(&here).0["clients"], json!(["10.77.0.12"]));
}

#[test]
fn guests_and_tunnels_are_no_lan() {
    let mut here = here(3);
    here.links.extend(links(&[
        link("docker0", Some("bridge"), &["172.17.0.1/16"]),
        link("wg0", Some("wireguard"), &["10.9.0.2/24"]),
        link("eth2", None, &["192.168.9.1/24"]),
    ]));
    let (text, _, guesses) = made(&here);
    assert_eq!(text["lan_interfaces"], json!(["eth1", "eth2"]));
    assert!(guesses.contains("docker0 left out of the LAN"), "{guesses}");
}

#[test]
fn the_uplink_is_the_default_route_of_the_lowest_metric_and_never_a_tunnel() {
    let mut here = here(3);
    here.links.extend(links(&[
        link("eth2", None, &["198.51.100.2/24"]),
        link("wg0", Some("wireguard"), &["10.9.0.2/24"]),
    ]));
    let route = |device: &str, metric: u32| json!({ "dst": "default", "dev": device, "metric": metric, "flags": [] });
    let routes = json!([route("eth0", 200), route("eth2", 100), route("wg0", 50)]);
    here.routes = parse_routes(&routes, Table::MAIN).unwrap();
    assert_eq!(made(&here).0["wan_interface"], json!("eth2"));
}

#[test]
fn one_arm_is_both_lan_and_wan() {
    let mut here = here(3);
    here.links = links(&[link("eth0", None, &["10.77.0.2/24"])]);
    here.routes = parse_routes(
        &json!([{ "dst": "default", "gateway": "10.77.0.1", "dev": "eth0", "flags": [] }]),
        Table::MAIN,
    )
    .unwrap();
    here.neighbours = ["10.77.0.1", "10.77.0.11"].map(|a| (ip(a), "eth0".to_owned())).into();
    let (text, _, _) = made(&here);
    assert_eq!(text["lan_interfaces"], json!(["eth0"]));
    assert_eq!(text["clients"], json!(["10.77.0.11"]), "the router is no client");
}

#[test]
fn names_and_numbers_that_are_taken_are_not_used() {
    let mut here = here(3);
    here.links.extend(links(&[link("vpn1", Some("wireguard"), &[])]));
    here.routes.extend(
        parse_routes(
            &json!([{ "dst": "10.9.0.0/24", "dev": "eth0", "table": "102", "protocol": "201", "scope": "253", "flags": [] }]),
            Table::MAIN,
        )
        .unwrap(),
    );
    here.rules = parse_rules(
        &json!([
            { "priority": 20_500, "src": "all", "fwmark": "0x45470001", "table": "7" },
            { "priority": 32_766, "src": "all", "table": "254" },
        ]),
        Family::V4,
    )
    .unwrap();
    let (text, policy, guesses) = made(&here);
    assert_eq!(text["slots"]["interfaces"], json!(["vpn2", "vpn3"]));
    assert_eq!(policy.slots.first_table, 1_101);
    assert_eq!(policy.routing.protocol, 202);
    assert_eq!(policy.routing.first_mark, Mark(0x4548_0000));
    assert_ne!(policy.routing.rule_priority, 20_000);
    assert!(guesses.contains("slots begin at vpn2"), "{guesses}");
}

#[test]
fn a_second_policy_claims_nothing_of_the_first() {
    let first = made(&here(4)).1;
    let mut second = here(4);
    second.neighbours = vec![(ip("10.77.0.33"), "eth1".to_owned())];
    let name = PolicyName::try_from("home".to_owned()).unwrap();
    second.policies = vec![(name.clone(), Policy::Pool(Box::new(first.clone())))];
    let (_, policy, _) = made(&second);
    let other = PolicyName::try_from("guests".to_owned()).unwrap();
    let clash =
        overlap((&name, &Policy::Pool(Box::new(first))), (&other, &Policy::Pool(Box::new(policy))));
    assert_eq!(clash, None);
    second.neighbours = here(4).neighbours;
    let why = draft(&second).unwrap_err();
    assert!(why.contains("home claims client 10.77.0.11"), "{why}");
}

#[test]
fn files_are_judged_one_by_one() {
    let mut here = here(3);
    here.files.insert("bad".to_owned(), Err("line 2: PrivateKey is not a key".to_owned()));
    here.files.insert("twin".to_owned(), Ok(config(1, 1, "")));
    here.files.insert("eth1".to_owned(), Ok(config(9, 9, "")));
    here.files.insert("junk".to_owned(), Ok(config(8, 8, "Jc = 4\nJmin = 40\nJmax = 70\n")));
    here.missing = vec!["awg".to_owned(), "wireguard-go".to_owned()];
    here.has_kernel_wireguard = false;
    let (text, policy, guesses) = made(&here);
    assert_eq!(policy.slots.interfaces.len(), 2, "three are usable");
    assert_eq!(text["candidates"], json!({ "exclude": ["eth1"] }));
    assert_eq!(text["wireguard"], json!({ "tool": "wg", "userspace": "wireguard-go" }));
    for guess in [
        "bad cannot be used: line 2",
        "twin has the keys of p1",
        "eth1 is left out: an interface of that name is up",
        "junk is left out: it is for AmneziaWG",
        "wireguard-go is missing: install it",
    ] {
        assert!(guesses.contains(guess), "{guess}: {guesses}");
    }
}

#[test]
fn one_key_for_all_is_told() {
    let mut here = here(0);
    here.files = (1..=4).map(|n| (format!("p{n}"), Ok(config(1, n, "")))).collect();
    assert!(made(&here).2.contains("all configurations have one key of ours"));
}

#[test]
fn without_files_uplink_or_lan_there_is_nothing_to_make() {
    let refused = |change: &dyn Fn(&mut Here)| {
        let mut here = here(3);
        change(&mut here);
        draft(&here).unwrap_err()
    };
    for (why, part) in [
        (refused(&|here| here.files.clear()), "/etc/wireguard holds no *.conf"),
        (refused(&|here| here.no_files = Some("x".to_owned())), "cannot be read (x)"),
        (
            refused(&|here| here.files = BTreeMap::from([("a".to_owned(), Err("bad".to_owned()))])),
            "can be used (a cannot be used: bad)",
        ),
        (refused(&|here| here.routes.clear()), "no uplink was found"),
        (refused(&|here| drop(here.links.pop())), "no LAN was found"),
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
}
