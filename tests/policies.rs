//! Policies: the examples are good, and what is wrong with a bad one is said in one line.

use egressctl::policy::{Policy, Site};
use serde_json::{Value, json};

fn good() -> Value {
    json!({
        "kind": "pool",
        "slots": { "interfaces": ["vpn1", "vpn2"] },
        "clients": ["10.77.0.11"],
        "provider": { "directory": { "path": "/etc/egressctl/endpoints" } },
    })
}

/// What is said of the good policy with `value` at `path`.
fn fault_at(path: &str, value: Value) -> String {
    let mut policy = good();
    let mut place = &mut policy;
    for key in path.split('.') {
        place = &mut place[key];
    }
    *place = value;
    fault(&policy.to_string())
}

fn fault(text: &str) -> String {
    let Err(fault) = Policy::parse(text) else { panic!("it was taken for a good policy") };
    let line = fault.to_string();
    assert!(!line.contains('\n'), "{line:?} is more than one line");
    line
}

#[test]
fn every_example_is_a_good_policy() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/policies");
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // What belongs to a proxy core is no policy.
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        if is_json && !path.display().to_string().ends_with(".sing-box.json") {
            let text = std::fs::read_to_string(&path).unwrap();
            if Site::is_meant(&text) {
                Site::parse(&text).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
                continue;
            }
            Policy::parse(&text).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
            found += 1;
        }
    }
    assert!(found > 0, "no example in {folder}");
}

#[test]
fn the_four_required_keys_are_enough() {
    Policy::parse(&good().to_string()).unwrap();
    for key in ["slots", "clients", "provider"] {
        let mut policy = good();
        policy.as_object_mut().unwrap().remove(key);
        assert_eq!(
            fault(&policy.to_string()).split(" at line").next(),
            Some(format!("missing field `{key}`").as_str())
        );
    }
}

#[test]
fn an_unknown_key_is_named_with_its_place_and_the_nearest_key() {
    let text = "{\n  \"kind\": \"pool\",\n  \"client\": [\"10.77.0.11\"]\n}";
    assert_eq!(
        fault(text),
        "unknown key \"client\" at line 3 column 10; did you mean \"clients\"?"
    );
    let text = "{ \"kind\": \"pool\",\n  \"params\": { \"direct_grace\": 3 } }";
    assert_eq!(
        fault(text),
        "unknown key \"direct_grace\" at line 2 column 28; did you mean \"direct_grace_sec\"?"
    );
    let text = "{ \"kind\": \"pool\",\n  \"slots\": { \"zzz\": 3 } }";
    assert_eq!(
        fault(text),
        "unknown key \"zzz\" at line 2 column 18; known here: interfaces, first_table"
    );
    let text =
        "{ \"kind\": \"pool\",\n  \"clients\": [{\"prefix\": \"10.0.0.0/24\", \"sprad\": true}] }";
    assert_eq!(fault(text), "unknown key \"sprad\" at line 2 column 47; did you mean \"spread\"?");
}

#[test]
fn a_text_that_is_no_policy_is_told_from_one_that_is_wrong() {
    let empty = "the file is empty: write a policy into it";
    for (text, said) in [
        ("", empty),
        ("  \n\t\n", empty),
        ("{}", "it has no \"kind\": write one of pool, selector, guard, dns, chain"),
        ("{\"clients\": []}", "it has no \"kind\": write one of pool, selector, guard, dns, chain"),
        ("{\n \"kind\": \"pol\"}", "unknown kind \"pol\" at line 2; did you mean \"pool\"?"),
        (
            "{\"kind\": \"vpn\"}",
            "unknown kind \"vpn\" at line 1; known: pool, selector, guard, dns, chain",
        ),
        ("[1, 2]", "a policy is an object, {\"kind\": …}: this is another value"),
        ("kind = pool", "it is not JSON: expected value at line 1 column 1"),
        ("{\"kind\": \"pool\",}", "it is not JSON: trailing comma at line 1 column 17"),
        ("{\"kind\": \"pool\"", "it is not JSON: EOF while parsing an object at line 1 column 15"),
        ("{\"kind\": \"pool\"} x", "it is not JSON: trailing characters at line 1 column 18"),
        ("{\"kind\": 3}", "\"kind\" is not a text: write one of pool, selector, guard, dns, chain"),
        ("{\"kind\": null}", "it has no \"kind\": write one of pool, selector, guard, dns, chain"),
    ] {
        assert_eq!(fault(text), said, "{text:?}");
    }
}

#[test]
fn clients_that_contradict_each_other_are_refused() {
    let overlap = |a: &str, b: &str| {
        format!(
            "clients {a} and {b} overlap: an address must belong to one entry, so change one of them"
        )
    };
    for (clients, said) in [
        (json!([]), "clients is empty: name at least one".to_owned()),
        (json!(["10.77.0.16/29", "10.77.0.17"]), overlap("10.77.0.16/29", "10.77.0.17")),
        (json!(["10.77.0.11", "10.77.0.11"]), overlap("10.77.0.11", "10.77.0.11")),
        (
            json!(["10.77.3.9", "10.77.0.5", {"prefix": "10.77.0.0/16", "spread": true}]),
            overlap("10.77.0.0/16", "10.77.0.5"),
        ),
        (
            json!(["user:unbound", "user:unbound"]),
            "client user:unbound stands twice: remove one of them".to_owned(),
        ),
        (
            json!(["fd00::1"]),
            "client fd00::1 is IPv6, which routing.ipv6 \"block\" and \"off\" do not carry: remove it, or write \"tunnel\""
                .to_owned(),
        ),
    ] {
        assert_eq!(fault_at("clients", clients.clone()), said, "{clients}");
    }
    let six = |clients: Value| {
        let mut policy = good();
        policy["routing"] = json!({ "ipv6": "tunnel" });
        policy["clients"] = clients;
        Policy::parse(&policy.to_string()).map(|_| ()).map_err(|fault| fault.to_string())
    };
    assert_eq!(six(json!(["10.77.0.11", "fd77::11", "fd77:1::/64"])), Ok(()));
    let said = six(json!(["fd77::11", "fd77::/64"])).unwrap_err();
    assert!(said.contains(&overlap("fd77::/64", "fd77::11")), "{said}");
}

#[test]
fn a_client_that_is_not_one_is_refused_where_it_stands() {
    for (client, said) in [
        (
            json!("10.77.0.17/29"),
            "client 10.77.0.17/29 has host bits: write 10.77.0.17 or 10.77.0.16/29",
        ),
        (json!("10.77.0"), "\"10.77.0\" is not a client: write an address, a prefix, or user:NAME"),
        (
            json!("user:"),
            "\"\" is not the name of a user: write user:NAME with a name or number of /etc/passwd",
        ),
        (
            json!("user:a b"),
            "\"a b\" is not the name of a user: write user:NAME with a name or number of /etc/passwd",
        ),
        (
            json!("10.77.0.0/24#3"),
            "\"10.77.0.0/24#3\" is not a client: buckets are not named, write the prefix",
        ),
        (
            json!({"prefix": "fd00::/64", "spread": true}),
            "fd00::/64 cannot be spread, only IPv4 can: remove it",
        ),
        (json!({"spread": true}), "missing field `prefix`"),
    ] {
        let line = fault_at("clients", json!([client.clone()]));
        assert!(line.starts_with(&format!("{said} at line 1 column ")), "{client}: {line}");
    }
}

#[test]
fn interfaces_tables_marks_and_priorities_that_collide_are_refused() {
    let marks = |mark: &str| {
        format!(
            "routing.first_mark {mark}: this and the next 0x1003 marks must share their upper 16 bits, which are not 0: write one like 0x45470000"
        )
    };
    for (path, value, said) in [
        (
            "slots.interfaces",
            json!(["vpn1", "vpn1"]),
            "interface vpn1 is used twice by this policy, by slots, tests or the standby: name another for one of them".to_owned(),
        ),
        (
            "slots.interfaces",
            json!(["vpnt1", "vpn2"]),
            "interface vpnt1 is used twice by this policy, by slots, tests or the standby: name another for one of them".to_owned(),
        ),
        ("slots.interfaces", json!([]), "slots.interfaces names 0 interfaces: name 1 to 512".to_owned()),
        (
            "wan_interface",
            json!("vpn2"),
            "interface vpn2 is a tunnel and also LAN or WAN: name another for one of them".to_owned(),
        ),
        (
            "lan_interfaces",
            json!(["eth1", "vpnt4"]),
            "interface vpnt4 is a tunnel and also LAN or WAN: name another for one of them".to_owned(),
        ),
        ("lan_interfaces", json!([]), "lan_interfaces is empty: name one, or leave it out".to_owned()),
        (
            "slots.first_table",
            json!(252),
            "slots.first_table 252 and 2 slots reach a table that the kernel uses itself (0, 253 to 255): write another first table, such as 101"
                .to_owned(),
        ),
        ("routing", json!({"first_mark": "0x4547f000"}), marks("0x4547f000")),
        ("routing", json!({"first_mark": "0x00000100"}), marks("0x00000100")),
        (
            "routing",
            json!({"rule_priority": 30000}),
            "routing.rule_priority 30000: write 1 to 28670, so that all our rules come before main's"
                .to_owned(),
        ),
        (
            "routing",
            json!({"protocol": 2}),
            "routing.protocol 2: 0 to 4 belong to the kernel and to ip, write 5 to 255".to_owned(),
        ),
        (
            "test",
            json!({"interface_prefix": "a-long-prefix-x"}),
            "test.interface_prefix \"a-long-prefix-x\" and a number up to 4 is no interface name: write a prefix that leaves room for the number within 15 characters"
                .to_owned(),
        ),
    ] {
        assert_eq!(fault_at(path, value.clone()), said, "{path} {value}");
    }
    let line = fault_at("slots.interfaces", json!(["eth0/1"]));
    let said = "\"eth0/1\" is not an interface name: it has 1 to 15 letters, digits or _=+.-, and does not begin with - at line 1 column ";
    assert!(line.starts_with(said), "{line}");
}

#[test]
fn thresholds_that_make_no_sense_are_refused() {
    for (path, value, said) in [
        ("probe", json!({"urls": []}), "probe.urls is empty: name at least one page"),
        (
            "probe",
            json!({"expect_status": []}),
            "probe.expect_status is empty: name at least one status",
        ),
        ("probe", json!({"timeout_sec": 0}), "probe.timeout_sec is 0: it must be at least 1"),
        ("probe", json!({"confirm": 4}), "probe.confirm is not 0 to 3"),
        ("wan", json!({"urls": []}), "wan.urls is empty: name at least one page"),
        ("wan", json!({"timeout_sec": 0}), "wan.timeout_sec is not 1 to 20"),
        ("test", json!({"parallel": 0}), "test.parallel is 0: it must be at least 1"),
        (
            "params",
            json!({"health_failures_before_down": 0}),
            "params.health_failures_before_down is 0: it must be at least 1",
        ),
        (
            "params",
            json!({"refresh_min_ratio": 1.5}),
            "params.refresh_min_ratio is 1.5: write a share from 0 to 1",
        ),
        (
            "params",
            json!({"bootstrap_slot": "vpn9"}),
            "params.bootstrap_slot vpn9 is none of slots.interfaces: name one of them, or leave it out",
        ),
        (
            "params",
            json!({"min_healthy_slots_to_exit_direct": 3}),
            "params.min_healthy_slots_to_exit_direct is 3: it must be from 1 to 2",
        ),
        (
            "params",
            json!({"bootstrap_strategy_order": ["direct", "direct"]}),
            "params.bootstrap_strategy_order names a way twice: name each once",
        ),
        (
            "provider",
            json!({"directory": {"path": "endpoints"}}),
            "provider.directory.path \"endpoints\" is not absolute: a timer has no folder of its own",
        ),
    ] {
        assert_eq!(fault_at(path, value.clone()), said, "{path} {value}");
    }
}

#[test]
fn more_prefixes_than_there_are_rule_priorities_are_refused() {
    let scattered: Vec<String> =
        (0..1_000).map(|n| format!("10.{}.{}.1", n / 250, n % 250)).collect();
    assert_eq!(
        fault_at("clients", json!(scattered)),
        "clients make 1000 separate prefixes, and there is room for 896: write larger prefixes"
    );
    let side_by_side: Vec<String> =
        (0..10_240).map(|n| format!("10.9.{}.{}", n / 256, n % 256)).collect();
    let mut policy = good();
    policy["clients"] = json!(side_by_side);
    Policy::parse(&policy.to_string()).unwrap();
}

#[test]
fn a_standby_that_cannot_be_laid_out_is_refused() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut policy = good();
        policy["bootstrap"] =
            json!({"wireguard": {"interface": "vpnboot", "config": "/etc/boot.conf"}});
        change(&mut policy);
        policy.to_string()
    };
    Policy::parse(&with(&|_| {})).unwrap();
    // Its table is the one after the slots'.
    assert_eq!(
        fault(&with(&|policy| policy["slots"]["first_table"] = json!(251))),
        "slots.first_table 251 and 2 slots and the standby reach a table that the kernel uses itself (0, 253 to 255): write another first table, such as 101"
    );
    assert_eq!(
        fault(&with(&|policy| policy["bootstrap"]["wireguard"]["config"] = json!("boot.conf"))),
        "bootstrap.wireguard.config \"boot.conf\" is not absolute: a timer has no folder of its own"
    );
    for name in ["vpn2", "vpnt1"] {
        let said =
            fault(&with(&|policy| policy["bootstrap"]["wireguard"]["interface"] = json!(name)));
        assert!(said.starts_with(&format!("interface {name} is used twice")), "{said}");
    }
    let said = fault(&with(&|policy| policy["bootstrap"]["wireguard"]["keep"] = json!("always")));
    assert!(said.starts_with("unknown variant `always`"), "{said}");
}

#[test]
fn what_has_no_effect_beside_the_rest_is_noted() {
    let notes = |path: &str, value: Value| {
        let mut policy = good();
        policy[path] = value;
        Policy::parse(&policy.to_string()).unwrap().notes()
    };
    let standby = |keep: &str| {
        let config = "/etc/boot.conf";
        json!({"wireguard": {"interface": "vpnboot", "config": config, "keep": keep}})
    };
    // It says that the uplink works, although a provider on this machine is not asked by it.
    assert_eq!(notes("bootstrap", standby("standby")), [""; 0]);
    assert_eq!(
        notes("bootstrap", standby("down")),
        [
            "bootstrap.wireguard has no effect: the provider is on this machine, so that the tunnel is never needed"
        ]
    );
    assert_eq!(notes("params", json!({"exit_direct_from_cache": true})), [""; 0]);
    assert_eq!(notes("bootstrap", json!({"wireguard": null})), [""; 0]);
}

fn names() -> Value {
    let check = json!({ "tls": { "name": "fi.example.org" } });
    json!({
        "kind": "dns",
        "driver": { "cloudflare": { "zone": "example.org", "token_file": "/t" } },
        "nodes": {
            "fi": { "address": "192.0.2.1", "check": check },
            "de": { "address": "192.0.2.2", "check": check },
        },
        "hosts": { "fi.example.org": { "native": "fi", "fallbacks": ["de"] } },
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn host_names_that_contradict_their_policy_are_refused() {
    Policy::parse(&names().to_string()).unwrap();
    let host = |host: Value| json!({ "fi.example.org": host });
    let node = |node: Value| json!({ "fi": node, "de": names()["nodes"]["de"] });
    let tcp = json!({ "tcp": { "port": 443 } });
    for (key, value, said) in [
        ("hosts", json!({}), "hosts is empty: name at least one"),
        (
            "hosts",
            json!({ "fi.badexample.org": { "native": "fi" } }),
            "host fi.badexample.org is not in zone example.org",
        ),
        ("hosts", json!({ "fi": { "native": "fi" } }), "\"fi\" is not a host name"),
        ("hosts", host(json!({ "native": "us" })), "names node us, which is none of nodes"),
        (
            "hosts",
            host(json!({ "native": "fi", "fallbacks": ["de", "de"] })),
            "names node de twice",
        ),
        ("hosts", host(json!({ "native": "fi", "fallbacks": ["fi"] })), "names node fi twice"),
        (
            "hosts",
            host(json!({ "native": "fi", "fallbacks_by_region": { "fi": ["us"] } })),
            "names node us, which",
        ),
        (
            "hosts",
            host(json!({ "native": "fi", "fallbacks_by_region": { "fi": [], "FI": [] } })),
            "a name tells one region",
        ),
        ("hosts", host(json!({ "native": "fi", "records": 0 })), "records is 0: write 1 to 16"),
        (
            "hosts",
            host(json!({ "native": "fi", "rotate_sec": 60 })),
            "rotate_sec needs records of 2 or more",
        ),
        (
            "hosts",
            host(json!({ "native": "fi", "ttl": 20 })),
            "Cloudflare takes 60 (30 for some) to 86400",
        ),
        (
            "nodes",
            node(json!({ "address": "192.0.2.2", "check": tcp })),
            "have the same address 192.0.2.2",
        ),
        ("nodes", node(json!({ "address": "2001:db8::1", "check": tcp })), "invalid IPv4 address"),
        (
            "nodes",
            node(json!({ "address": "192.0.2.1", "weight": 0, "check": tcp })),
            "weight is 0",
        ),
        (
            "nodes",
            node(json!({ "address": "192.0.2.1", "check": { "tcp": { "port": 0 } } })),
            "port is 0",
        ),
        (
            "nodes",
            node(
                json!({ "address": "192.0.2.1", "check": { "tcp": { "port": 1, "timeout_sec": 11 } } }),
            ),
            "timeout_sec is 11: write 1 to 10",
        ),
        (
            "nodes",
            node(
                json!({ "address": "192.0.2.1", "check": { "https": { "name": "a.org", "path": "x" } } }),
            ),
            "is no path",
        ),
        (
            "nodes",
            node(json!({ "address": "192.0.2.1", "check": { "icmp": {} } })),
            "unknown variant `icmp`",
        ),
        (
            "driver",
            json!({ "cloudflare": { "zone": "example.org", "token_file": "t" } }),
            "is not absolute",
        ),
        (
            "driver",
            json!({ "cloudflare": { "zone": "org", "token_file": "/t" } }),
            "neither a zone's name nor its id",
        ),
        (
            "driver",
            json!({ "rfc2136": { "server": "192.0.2.53", "zone": "example.net", "key_file": "/k" } }),
            "is not in zone example.net",
        ),
        (
            "driver",
            json!({ "rfc2136": { "server": "a b", "zone": "example.org", "key_file": "/k" } }),
            "is no server",
        ),
        (
            "driver",
            json!({ "rfc2136": { "server": "2001:db8::53", "zone": "example.org", "key_file": "/k" } }),
            "server",
        ),
        ("reference", json!({ "urls": [] }), "reference.urls is empty"),
        ("params", json!({ "rise": 0 }), "params.rise is 0"),
        ("params", json!({ "minimum_stay": 1 }), "did you mean \"minimum_stay_sec\"?"),
    ] {
        let mut policy = names();
        policy[key] = value.clone();
        let line = fault(&policy.to_string());
        assert!(line.contains(said), "{key} = {value}: {line}");
    }
}

#[test]
fn the_port_of_a_name_server_may_be_named() {
    for (server, port) in
        [("192.0.2.53", 53), ("ns.example.org:5353", 5353), ("[2001:db8::53]:54", 54)]
    {
        let mut policy = names();
        policy["driver"] =
            json!({ "rfc2136": { "server": server, "zone": "example.org", "key_file": "/k" } });
        let Policy::Dns(policy) = Policy::parse(&policy.to_string()).unwrap() else { panic!() };
        let Some(egressctl::dns::record::Zone::Rfc2136 { port: found, .. }) = policy.zone() else {
            panic!()
        };
        assert_eq!(found, port, "{server}");
    }
}

#[test]
fn what_resolvers_cannot_follow_is_noted() {
    let mut policy = names();
    policy["hosts"]["fi.example.org"]["ttl"] = json!(300);
    let notes = Policy::parse(&policy.to_string()).unwrap().notes();
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains("shorter than twice the ttl 300 of fi.example.org"), "{notes:?}");
}

#[test]
fn two_policies_keep_no_record_together() {
    let name = |name: &str| egressctl::names::PolicyName::try_from(name.to_owned()).unwrap();
    let other = |driver: Value, host: &str| {
        let mut policy = names();
        policy["driver"] = driver;
        policy["hosts"] = json!({ host: { "native": "fi" } });
        Policy::parse(&policy.to_string()).unwrap()
    };
    let cloudflare =
        |token: &str| json!({ "cloudflare": { "zone": "example.org", "token_file": token } });
    let lan =
        json!({ "rfc2136": { "server": "192.0.2.53", "zone": "example.org", "key_file": "/k" } });
    let ours = Policy::parse(&names().to_string()).unwrap();
    let both =
        |other: &Policy| egressctl::policy::overlap((&name("a"), &ours), (&name("b"), other));
    assert_eq!(
        both(&other(cloudflare("/u"), "fi.example.org")).as_deref(),
        Some("the record of fi.example.org")
    );
    assert_eq!(both(&other(cloudflare("/u"), "de.example.org")), None);
    assert_eq!(
        both(&other(lan, "fi.example.org")),
        None,
        "the same name of the LAN is another record"
    );
    assert_eq!(both(&Policy::parse(&good().to_string()).unwrap()), None);
}
