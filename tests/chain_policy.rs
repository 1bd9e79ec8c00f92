//! What a policy of kind chain may say, and how a wrong one is refused.

use egressctl::names::PolicyName;
use egressctl::policy::chain::{AllFailed, Driver, Params, Strategy};
use egressctl::policy::{ChainPolicy, Policy, overlap};
use serde_json::{Value, json};

fn usual() -> Value {
    json!({
        "kind": "chain", "driver": { "clash": { "url": "http://127.0.0.1:9090" } },
        "hops": [
            { "name": "entry", "nodes": { "a1": {}, "a2": {} } },
            { "name": "exit", "nodes": { "b1": {} } },
        ],
    })
}

fn parsed(pointer: &str, value: Value) -> Result<ChainPolicy, String> {
    let mut policy = usual();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match policy.pointer_mut(parent).unwrap() {
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
        object => object[key] = value,
    }
    let policy = Policy::parse(&policy.to_string()).map_err(|fault| fault.to_string())?;
    let Policy::Chain(policy) = policy else { panic!("it is a chain") };
    Ok(*policy)
}

#[test]
fn what_is_left_out_has_its_default() {
    let policy = parsed("/description", json!(null)).unwrap();
    let expected = Params {
        check_interval_sec: 15,
        max_fails: 1,
        fail_timeout_sec: 600,
        fail_timeout_max_sec: 7_200,
        rise: 2,
        minimum_stay_sec: 300,
        all_failed: AllFailed::Closed,
        step_budget_sec: 60,
    };
    assert_eq!(policy.params, expected);
    let hop = &policy.hops[0];
    assert_eq!((hop.strategy, hop.group.as_str(), hop.rotate_sec), (Strategy::Fifo, "entry", None));
    assert_eq!((hop.nodes[0].member.as_str(), hop.nodes[0].egress), ("a1", true));
    assert!(policy.wan.is_some(), "the uplink is asked");
    assert_eq!(parsed("/wan", json!(null)).unwrap().wan, None, "unless nobody wants that");
}

#[test]
fn nodes_keep_the_order_in_which_they_are_written() {
    let text = usual().to_string().replace(r#""a1":{},"a2":{}"#, r#""z":{},"m":{},"a":{}"#);
    let Policy::Chain(policy) = Policy::parse(&text).unwrap() else { panic!("it is a chain") };
    let names: Vec<&str> = policy.hops[0].nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["z", "m", "a"]);
    let twice = text.replace(r#""m":{}"#, r#""z":{}"#);
    let fault = Policy::parse(&twice).unwrap_err().to_string();
    assert!(fault.contains("z stands twice: remove one"), "{fault}");
}

#[test]
fn every_contradiction_is_refused_with_what_to_write_instead() {
    let one = |node: Value| json!({ "name": "entry", "nodes": { "a1": node } });
    for (pointer, value, said) in [
        ("/hops", json!([]), "hops names 0: name 1 to 8"),
        ("/hops/1/name", json!("entry"), "hop entry stands twice"),
        ("/hops/1/name", json!("a b"), "is not a hop's name"),
        ("/hops/1/name", json!("a=b"), "is not a hop's name"),
        ("/hops/1/group", json!("entry"), "another hop's: give each its own"),
        ("/hops/1/group", json!(""), "which is empty"),
        ("/hops/1/nodes", json!({}), "hop exit has no nodes"),
        ("/hops/1/nodes", json!({ "a=b": {} }), "is not a node's name"),
        ("/hops/1/nodes", json!({ "b1": { "member": "a1" } }), "another node's"),
        ("/hops/1/nodes", json!({ "b1": { "member": "" } }), "which is empty"),
        ("/hops/1/nodes", json!({ "b1": { "member": "entry" } }), "a group and a member"),
        ("/hops/1/nodes", json!({ "b1": { "egress": false } }), "leave by the last hop"),
        ("/hops/1/nodes", json!({ "b1": { "membr": "x" } }), "did you mean \"member\"?"),
        ("/hops/0/rotate_sec", json!(60), "for strategy round alone"),
        (
            "/hops/0",
            json!({ "name": "entry", "strategy": "round", "rotate_sec": 0, "nodes": { "a1": {} } }),
            "at least 1",
        ),
        (
            "/hops/0",
            {
                let mut hop = one(json!({ "egress": false }));
                hop["strategy"] = json!("lowest_latency");
                hop
            },
            "use fifo or round",
        ),
        ("/hops/0/strategy", json!("random"), "unknown variant"),
        ("/probe", json!({ "urls": [] }), "probe.urls is empty"),
        ("/probe", json!({ "expect_status": [] }), "probe.expect_status is empty"),
        ("/probe", json!({ "timeout_sec": 0 }), "probe.timeout_sec is not 1 to 20"),
        ("/probe", json!({ "timeout_sec": 21 }), "probe.timeout_sec is not 1 to 20"),
        ("/wan", json!({ "urls": [] }), "wan.urls is empty"),
        ("/wan", json!({ "timeout_sec": 21 }), "wan.timeout_sec is not 1 to 20"),
        ("/params", json!({ "max_fails": 0 }), "params.max_fails is 0"),
        ("/params", json!({ "rise": 0 }), "params.rise is 0"),
        ("/params", json!({ "fail_timeout_sec": 0 }), "params.fail_timeout_sec is 0"),
        ("/params", json!({ "fail_timeout_sec": 9_000 }), "more than params.fail_timeout_max_sec"),
        ("/params", json!({ "step_budget_sec": 9 }), "not 10 to 80"),
        ("/params", json!({ "step_budget_sec": 81 }), "not 10 to 80"),
        ("/params", json!({ "max_fail": 1 }), "did you mean \"max_fails\"?"),
        ("/driver", json!({ "clash": { "url": "http://192.0.2.1:9090" } }), "leaves this machine"),
        (
            "/driver",
            json!({ "clash": { "url": "http://127.0.0.1:9090", "proxy": "http://192.0.2.1:1" } }),
            "is no local proxy",
        ),
        ("/driver", json!({}), "expected"),
    ] {
        let fault = parsed(pointer, value.clone()).unwrap_err();
        assert!(fault.contains(said), "{pointer} = {value}: {fault}");
    }
}

fn gost(change: &Value) -> Result<ChainPolicy, String> {
    let mut driver = json!({
        "url": "http://127.0.0.1:18080", "credentials_file": "/etc/egressctl/gost.credentials",
        "chain": "out", "proxy": "http://127.0.0.1:1080", "pin": { "mark": 119 },
    });
    for (key, value) in change.as_object().unwrap() {
        driver[key] = value.clone();
    }
    parsed("/driver", json!({ "gost": driver }))
}

#[test]
fn a_gost_is_controlled_on_this_machine_and_pinned() {
    gost(&json!({})).unwrap();
    for (change, said) in [
        (json!({ "url": "http://192.0.2.1:18080" }), "or allow_remote true"),
        (json!({ "url": "http://gost.example:18080", "allow_remote": true }), "write its address"),
        (json!({ "credentials_file": "secret" }), "no absolute path"),
        (json!({ "chain": "" }), "chain is empty"),
        (json!({ "pin": { "interface": "" } }), "pin is empty"),
        (json!({ "pin": { "mark": 0 } }), "pin is empty"),
        (json!({ "pin": {} }), "expected"),
    ] {
        let fault = gost(&change).unwrap_err();
        assert!(fault.contains(said), "{change}: {fault}");
    }
    let remote = gost(&json!({ "url": "http://192.0.2.1:18080", "allow_remote": true })).unwrap();
    assert!(remote.notes()[0].contains("in clear"), "{:?}", remote.notes());
    for (pointer, value, said) in [
        ("/hops/0/strategy", json!("lowest_latency"), "cannot be measured alone"),
        ("/hops/0/nodes/a1/egress", json!(false), "the whole path alone is asked"),
    ] {
        let mut policy = usual();
        policy["driver"] = json!({ "gost": {
            "url": "http://127.0.0.1:1", "credentials_file": "/c", "chain": "out",
            "proxy": "http://127.0.0.1:2", "pin": { "interface": "vpn1" } } });
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        policy.pointer_mut(parent).unwrap()[key] = value;
        let fault = Policy::parse(&policy.to_string()).unwrap_err().to_string();
        assert!(fault.contains(said), "{pointer}: {fault}");
    }
}

/// Two hops of tunnels, changed at a pointer.
fn tunnels(pointer: &str, value: Value) -> Result<ChainPolicy, String> {
    let node = |name: &str| json!({ "config": format!("/etc/egressctl/{name}.conf") });
    let mut policy = json!({
        "kind": "chain",
        "driver": { "wireguard": { "clients": ["10.77.0.40", "user:unbound"] } },
        "hops": [
            { "name": "entry", "nodes": { "a": node("a"), "b": node("b") } },
            { "name": "exit", "nodes": { "a": node("c") } },
        ],
    });
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match policy.pointer_mut(parent).unwrap() {
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
        object => object[key] = value,
    }
    let policy = Policy::parse(&policy.to_string()).map_err(|fault| fault.to_string())?;
    let Policy::Chain(policy) = policy else { panic!("it is a chain") };
    Ok(*policy)
}

#[test]
fn the_tunnels_of_a_chain_are_lanes_with_numbers_of_their_own() {
    let policy = tunnels("/description", json!(null)).unwrap();
    let Driver::Wireguard(driver) = &policy.driver else { panic!("it has tunnels") };
    let devices: Vec<&str> = (0..2).map(|n| driver.device(n).unwrap().as_str()).collect();
    let tests: Vec<&str> = (0..2).map(|n| driver.test_device(n).unwrap().as_str()).collect();
    assert_eq!((devices, tests), (vec!["ch1", "ch2"], vec!["ch1t", "ch2t"]));
    let marks = [driver.outer_mark(0), driver.outer_mark(1)];
    assert_eq!(marks, [None, Some(driver.mark(0))], "a tunnel is led into the one before");
    let lanes = &driver.lanes;
    assert_eq!(lanes.table(1).0, 141);
    assert_eq!((lanes.routing.rule_priority, lanes.routing.first_mark.0), (25_000, 0x4548_0000));
    assert!(!lanes.params.direct_failopen_enabled, "nobody ever goes direct");
    assert_eq!(policy.hops[1].nodes[0].name.as_str(), "a", "hops may call their nodes alike");
    let notes = policy.notes();
    assert_eq!(notes, ["hop exit has one node: nothing stands in for it"]);
}

#[test]
fn every_contradiction_of_tunnels_is_refused_with_what_to_write_instead() {
    let at = |key: &str| format!("/driver/wireguard/{key}");
    for (pointer, value, said) in [
        (at("clients"), json!([]), "clients is empty"),
        (at("clients"), json!([{ "prefix": "10.77.0.0/24", "spread": true }]), "the prefix alone"),
        (at("clients"), json!(["10.77.0.1", "10.77.0.0/24"]), "overlap"),
        (at("clients"), json!(["2001:db8::1"]), "is IPv6"),
        (at("interfaces"), json!("ch"), "has no {hop}"),
        (at("interfaces"), json!("a-name-too-long{hop}"), "is not an interface name"),
        (at("test"), json!("ch{hop}"), "name them apart"),
        (at("wan_interface"), json!("ch1"), "give ch1 twice"),
        (at("first_table"), json!(252), "table that the kernel uses itself"),
        (at("first_table"), json!(0), "table that the kernel uses itself"),
        (at("routing"), json!({ "first_mark": "0x1" }), "upper 16 bits"),
        (at("routing"), json!({ "rule_priority": 0 }), "routing.rule_priority"),
        (at("routing"), json!({ "protocol": 3 }), "routing.protocol"),
        (at("client"), json!([]), "did you mean \"clients\"?"),
        ("/hops/0/nodes/a".to_owned(), json!({}), "name its wg-quick file"),
        ("/hops/0/nodes/a".to_owned(), json!({ "config": "a.conf" }), "not absolute"),
        ("/hops/0/nodes/a".to_owned(), json!({ "config": "/a", "member": "x" }), "has member"),
        ("/hops/0/group".to_owned(), json!("x"), "has group"),
        ("/hops/1/nodes/a".to_owned(), json!({ "config": "/a", "egress": false }), "last hop"),
        (
            "/hops/1".to_owned(),
            json!({ "name": "entry", "nodes": { "x": { "config": "/x" } } }),
            "stands twice",
        ),
        (
            "/hops".to_owned(),
            json!([{ "name": "a", "nodes": { "a": { "config": "/a" } } }]),
            "2 to 4 hops",
        ),
    ] {
        let fault = tunnels(&pointer, value.clone()).unwrap_err();
        assert!(fault.contains(said), "{pointer} = {value}: {fault}");
    }
    let hop = |n: usize| json!({ "name": format!("h{n}"), "nodes": { "a": { "config": "/a" } } });
    assert!(tunnels("/hops", (0..4).map(hop).collect()).is_ok());
    let fault = tunnels("/hops", (0..5).map(hop).collect()).unwrap_err();
    assert!(fault.contains("2 to 4 hops"), "{fault}");
    assert!(tunnels("/driver/wireguard/lan_interfaces", json!(["eth0"])).is_ok());
    let fault = parsed("/hops/1/nodes", json!({ "b1": { "config": "/b" } })).unwrap_err();
    assert!(fault.contains("which is for driver wireguard"), "{fault}");
}

#[test]
fn a_chain_of_tunnels_claims_of_the_kernel_what_a_pool_does() {
    let name = |name: &str| PolicyName::try_from(name.to_owned()).unwrap();
    let chain = Policy::Chain(Box::new(tunnels("/description", json!(null)).unwrap()));
    let meets = |other: &Value| {
        let other = Policy::parse(&other.to_string()).unwrap();
        let one = overlap((&name("a"), &chain), (&name("b"), &other));
        assert_eq!(one, overlap((&name("b"), &other), (&name("a"), &chain)));
        one
    };
    let mut pool = json!({
        "kind": "pool", "slots": { "interfaces": ["vpn1", "vpn2"] }, "clients": ["10.77.0.11"],
        "provider": { "directory": { "path": "/etc/egressctl/endpoints" } },
    });
    assert_eq!(meets(&pool), None, "a pool beside it, both as they come");
    pool["clients"] = json!(["10.77.0.32/27"]);
    assert_eq!(meets(&pool).as_deref(), Some("client 10.77.0.40"));
    pool["clients"] = json!(["10.77.0.11"]);
    pool["slots"]["first_table"] = json!(141);
    assert_eq!(meets(&pool).as_deref(), Some("routing tables from 141"));
    pool["slots"] = json!({ "interfaces": ["ch2t"] });
    assert_eq!(meets(&pool).as_deref(), Some("interface ch2t"));
    let mut route = json!({
        "kind": "selector", "driver": { "route": { "table": 120 } },
        "primary": { "interface": "eth0", "gateway": "192.0.2.1" },
        "reserve": { "interface": "eth1", "gateway": "198.51.100.1" },
    });
    assert_eq!(meets(&route), None);
    route["driver"]["route"]["table"] = json!(140);
    assert_eq!(meets(&route).as_deref(), Some("routing table 140"));
    assert!(meets(&usual()).is_none(), "groups of a core are something else");
}

#[test]
fn what_nothing_stands_in_for_is_noted() {
    let notes = parsed("/hops/0/group", json!("x")).unwrap().notes();
    assert_eq!(notes, ["hop exit has one node: nothing stands in for it"]);
    let notes = parsed("/probe", json!({ "urls": ["http://192.0.2.1/"] })).unwrap().notes();
    assert!(notes[0].contains("no page over https"), "{notes:?}");
}

#[test]
fn two_policies_select_in_no_group_together() {
    let name = |name: &str| PolicyName::try_from(name.to_owned()).unwrap();
    let parse = |policy: &Value| Policy::parse(&policy.to_string()).unwrap();
    let chain = parse(&usual());
    let meets = |other: &Value| {
        let other = parse(other);
        let one = overlap((&name("a"), &chain), (&name("b"), &other));
        assert_eq!(one, overlap((&name("b"), &other), (&name("a"), &chain)));
        one
    };
    let mut other = usual();
    other["hops"] = json!([{ "name": "other", "nodes": { "c1": {} } }]);
    assert_eq!(meets(&other), None);
    other["hops"][0]["group"] = json!("exit");
    assert_eq!(meets(&other).as_deref(), Some("group exit of http://127.0.0.1:9090"));
    other["driver"]["clash"]["url"] = json!("http://127.0.0.1:9091");
    assert_eq!(meets(&other), None);
    let mut guard = json!({
        "kind": "guard", "driver": { "clash": { "url": "http://127.0.0.1:9090" } },
        "group": "entry", "automatic": "auto", "proxy": "http://127.0.0.1:2080",
    });
    assert!(meets(&guard).is_some());
    guard["group"] = json!("select");
    assert_eq!(meets(&guard), None);
    let selector = |group: &str| {
        json!({
            "kind": "selector", "driver": { "clash": { "url": "http://127.0.0.1:9090", "selector": group } },
            "primary": { "member": "p", "proxy": "http://127.0.0.1:2081" },
            "reserve": { "member": "r", "proxy": "http://127.0.0.1:2082" },
        })
    };
    assert!(meets(&selector("exit")).is_some());
    assert_eq!(meets(&selector("channel")), None);
}
