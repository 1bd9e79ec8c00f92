//! `egressctl schema`: an editor that goes by it says what the parser says.
//!
//! Every object of the policies below is walked beside its schema, and changed key by key: what is
//! held to the parser is its behaviour, not its source.

use crate::chain_world;
use crate::dns_world;
use crate::world;

use egressctl::outcome::Ending;
use egressctl::policy::{Policy, PolicyFault, Site};
use egressctl::pool::status::status;
use egressctl::record::{LastStep, LoadedNft, Record};
use jsonschema::Validator;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::process::Command;
use world::{Endpoint, Steps as _};

/// A schema as the program prints it.
fn schema(what: &str) -> Value {
    let output =
        Command::new(env!("CARGO_BIN_EXE_egressctl")).args(["schema", what]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What judges by it. That it is a schema of its draft is checked on the way.
fn judge(schema: &Value) -> Validator {
    jsonschema::validator_for(schema).unwrap()
}

/// Reads what a file of the policy folder may hold; a site is no policy.
fn read(text: &str) -> Result<Option<Policy>, PolicyFault> {
    if Site::is_meant(text) {
        Site::parse(text).map(|_| None)
    } else {
        Policy::parse(text).map(Some)
    }
}

/// A site with all that it may hold.
fn whole_site() -> Value {
    json!({ "$schema": "/usr/share/egressctl/policy.schema.json", "kind": "site", "description": "all of it",
            "page": "/var/www/egress/index.html",
            "publish_dir": "/var/www/egress", "textfile_dir": "/var/lib/prometheus/node-exporter",
            "notify": [
                { "exec": ["/usr/local/bin/tell", "-a"] },
                { "webhook": { "url_file": "/u", "template": "telegram", "chat": "-100",
                               "ca_file": "/ca", "timeout_sec": 6 } },
                { "webhook": { "url_file": "/u", "template": "gotify", "token_file": "/t" } }
            ] })
}

fn complaints(judge: &Validator, value: &Value) -> Vec<String> {
    judge.iter_errors(value).map(|e| format!("{} at {}", e, e.instance_path())).collect()
}

/// Policies that between them hold every object that a policy may hold.
fn whole_policies() -> Vec<Value> {
    let pool = json!({
        "$schema": "/usr/share/egressctl/policy.schema.json",
        "kind": "pool",
        "description": "all of it",
        "slots": { "interfaces": ["vpn1", "vpn2"], "first_table": 101 },
        "clients": ["10.77.0.11", { "prefix": "10.78.0.0/22", "spread": true }, "user:unbound"],
        "lan_interfaces": ["eth1"],
        "wan_interface": "eth0",
        "provider": { "directory": { "path": "/etc/egressctl/endpoints" } },
        "candidates": { "country": [], "city": [], "name": [], "exclude": [], "spread_by": "city" },
        "probe": { "urls": ["http://192.0.2.1/"], "require": "all", "expect_status": [200], "timeout_sec": 3,
                   "large": { "url": "http://192.0.2.1/large", "bytes": 1400 } },
        "exit_ip": { "url": "http://192.0.2.1/ip", "interval_sec": 60, "must_differ_from_wan": false },
        "wan": { "urls": ["http://192.0.2.1/"], "require": "all", "timeout_sec": 4 },
        "test": { "interface_prefix": "t", "parallel": 2, "enough": 3 },
        "routing": { "rule_priority": 10000, "protocol": 202, "first_mark": "0x11110000", "local": ["10.0.0.0/8"],
                     "ipv6": "off", "masquerade": false, "barrier": false, "inbound": "block", "cut": "none" },
        "wireguard": { "tool": "wg", "userspace": "wireguard-go" },
        "bootstrap": { "wireguard": { "interface": "vpnboot", "config": "/etc/egressctl/bootstrap.conf", "keep": "down" } },
        "params": {
            "health_check_interval_sec": 11, "health_failures_before_down": 3, "local_repair_retest_count": 3,
            "full_refresh_after_repairs": 6, "hmn_refresh_retry_interval_sec": 901, "bootstrap_retry_interval_sec": 31,
            "bootstrap_candidate_retry_count": 2, "bootstrap_slot": "vpn2", "bootstrap_strategy_order": ["direct"],
            "candidate_test_timeout_sec": 9, "candidate_test_retries": 2, "min_healthy_slots_to_exit_direct": 1,
            "direct_grace_sec": 31, "direct_failopen_enabled": false, "emergency_commit_enabled": false,
            "exit_direct_from_cache": true, "refresh_min_ratio": 0.4, "flap_limit": 4, "flap_window_sec": 1801,
            "step_budget_sec": 61
        }
    });
    let identity = json!({ "private_key_file": "/k", "preshared_key_file": "/p", "address": ["10.64.0.2/32"] });
    let url = "https://198.51.100.1/list";
    let net = |more: Value| {
        let mut all =
            json!({ "ca_file": "/ca", "timeout_sec": 31, "via": "tunnel", "allow_loopback": true });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let service = net(json!({ "urls": [url], "identity": identity, "port": 51821 }));
    let providers = [
        json!({ "http": net(json!({ "url": url, "urls": [url], "identity": identity, "token_file": "/t" })) }),
        json!({ "exec": { "path": "/usr/local/bin/list", "args": ["-a"], "identity": identity, "timeout_sec": 31 } }),
        json!({ "hidemyname": net(json!({ "code_file": "/c", "urls": [url], "list_path": "/l", "config_path": "/c",
                                          "awg": 0, "pause_ms": 1, "batch": 2 })) }),
        json!({ "mullvad": service }),
        json!({ "ivpn": service }),
        json!({ "nordvpn": service }),
        json!({ "gluetun": net(json!({ "provider": "airvpn", "url": url, "urls": [url], "identity": identity, "port": 1637 })) }),
    ];
    let with = |provider: &Value| {
        let mut policy = pool.clone();
        policy["provider"] = provider.clone();
        policy
    };
    let pools = std::iter::once(pool.clone()).chain(providers.iter().map(with));
    let others = [whole_guard(), whole_chain(), whole_gost(), whole_tunnels(), whole_site()];
    pools.chain(whole_selectors()).chain(others).chain(dns_policies()).collect()
}

/// The same of a selector, with each driver.
fn whole_selectors() -> [Value; 2] {
    let clash = json!({
        "$schema": "/usr/share/egressctl/policy.schema.json",
        "kind": "selector",
        "description": "all of it",
        "driver": { "clash": { "url": "http://127.0.0.1:9090", "secret_file": "/s", "selector": "out", "cut": "dead" } },
        "primary": { "member": "a", "proxy": "http://127.0.0.1:2081" },
        "reserve": { "member": "b", "proxy": "http://127.0.0.1:2082" },
        "probe": { "urls": ["http://192.0.2.1/"], "require": "any", "expect_status": [200], "timeout_sec": 3 },
        "wan": { "urls": ["http://192.0.2.2/"], "require": "all", "timeout_sec": 4 },
        "params": {
            "check_interval_sec": 61, "failure_window_sec": 121, "recovery_window_sec": 901, "quiet_window_sec": 31,
            "active_bytes_per_sec": 1, "minimum_reserve_sec": 601, "flap_limit": 4, "flap_window_sec": 86_401,
            "quarantine_sec": 21_601, "traffic_guard": false, "guard_max_hold_sec": 301
        }
    });
    let mut route = clash.clone();
    route["driver"] = json!({ "route": { "table": 120, "metric": 5, "protocol": 202, "first_table": 130, "first_mark": "0x45530000", "rule_priority": 600, "cut": "dead" } });
    route["primary"] = json!({ "interface": "eth0", "gateway": "192.0.2.1" });
    route["reserve"] = json!({ "interface": "eth1", "gateway": "192.0.2.65" });
    [clash, route]
}

/// The same of a guard.
fn whole_guard() -> Value {
    json!({
        "$schema": "/usr/share/egressctl/policy.schema.json",
        "kind": "guard",
        "description": "all of it",
        "driver": { "clash": { "config": "/c.json", "url": "unix:///run/core.sock", "secret_file": "/s" } },
        "group": "select", "automatic": "auto", "members": ["a", "b"], "proxy": "socks5h://127.0.0.1:1080",
        "probe": { "urls": ["https://192.0.2.1/"], "require": "all", "expect_status": [200], "timeout_sec": 3 },
        "reference": { "urls": ["http://192.0.2.2/"] },
        "params": {
            "check_interval_sec": 31, "failures_before_recovery": 3, "observe_passes": 4, "candidates_per_step": 6,
            "delay_timeout_ms": 5_001, "backoff_min_sec": 31, "backoff_max_sec": 601, "give_back_max_sec": 3_601
        }
    })
}

/// The same of a chain.
fn whole_chain() -> Value {
    json!({
        "$schema": "/usr/share/egressctl/policy.schema.json",
        "kind": "chain",
        "description": "all of it",
        "driver": { "clash": { "url": "unix:///run/core.sock", "secret_file": "/s", "proxy": "http://127.0.0.1:2080" } },
        "hops": [
            { "name": "entry", "group": "hop 1", "strategy": "round", "rotate_sec": null,
              "nodes": { "a1": { "member": "a 1", "egress": false } } },
            { "name": "exit", "group": "hop 2", "strategy": "fifo", "rotate_sec": null, "nodes": { "b1": { "member": "b 1", "egress": true } } }
        ],
        "probe": { "urls": ["https://192.0.2.1/"], "require": "all", "expect_status": [200], "timeout_sec": 3 },
        "wan": { "urls": ["http://192.0.2.2/"], "require": "all", "timeout_sec": 4 },
        "params": {
            "check_interval_sec": 16, "max_fails": 2, "fail_timeout_sec": 601, "fail_timeout_max_sec": 7_201, "rise": 3,
            "minimum_stay_sec": 301, "all_failed": "last_resort", "step_budget_sec": 61
        }
    })
}

/// The same with gost.
fn whole_gost() -> Value {
    let mut policy = whole_chain();
    policy["driver"] = json!({ "gost": {
        "url": "http://127.0.0.1:18080/api", "credentials_file": "/c", "chain": "out",
        "proxy": "http://127.0.0.1:1080", "pin": { "interface": "vpn1" }, "allow_remote": true
    } });
    policy["hops"][0]["nodes"]["a1"]["egress"] = json!(true);
    policy
}

/// The same with tunnels.
fn whole_tunnels() -> Value {
    let mut policy = whole_chain();
    policy["driver"] = json!({ "wireguard": {
        "interfaces": "hop{hop}", "test": "hop{hop}t", "first_table": 150, "clients": ["10.77.0.40", "user:unbound"],
        "lan_interfaces": ["eth1"], "wan_interface": "eth0", "tool": "wg", "userspace": "wireguard-go",
        "routing": { "rule_priority": 10000, "protocol": 202, "first_mark": "0x11110000", "local": ["10.0.0.0/8"],
                     "ipv6": "off", "masquerade": false, "barrier": false, "inbound": "block", "cut": "none" }
    } });
    for (hop, node) in [(0, "a1"), (1, "b1")] {
        policy["hops"][hop].as_object_mut().unwrap().remove("group");
        policy["hops"][hop]["nodes"][node] = json!({ "egress": true, "config": "/a.conf" });
    }
    policy
}

/// The same of host names.
fn dns_policies() -> Vec<Value> {
    let node = |last: u8, check: Value| json!({ "address": format!("192.0.2.{last}"), "label": "HEL", "weight": 2, "check": check });
    let mut dns = json!({
        "$schema": "/usr/share/egressctl/policy.schema.json",
        "kind": "dns",
        "description": "all of it",
        "driver": { "cloudflare": { "zone": "example.org", "token_file": "/t", "api": "https://192.0.2.9/v4" } },
        "nodes": {
            "a": node(1, json!({ "tcp": { "port": 80, "timeout_sec": 4 } })),
            "b": node(2, json!({ "tls": { "port": 8443, "name": "b.example.org", "ca_file": "/ca", "timeout_sec": 4 } })),
            "c": node(3, json!({ "https": { "port": 8443, "name": "c.example.org", "path": "/x", "expect_status": [204], "expect_body": "y",
                                            "ca_file": "/ca", "timeout_sec": 4 } })),
        },
        "hosts": { "a.example.org": { "native": "a", "fallbacks": ["b"], "fallbacks_by_region": { "ru": ["c"] }, "ttl": 60, "records": 2,
                                      "rotate_sec": 600 } },
        "reference": { "urls": ["http://192.0.2.1/"] },
        "params": { "check_interval_sec": 31, "fall": 3, "rise": 3, "minimum_stay_sec": 241, "flap_limit": 4, "flap_window_sec": 86401,
                    "quarantine_sec": 21601, "mass_rounds": 4 }
    });
    let cloudflare = dns.clone();
    dns["driver"] = json!({ "rfc2136": { "server": "192.0.2.53", "zone": "example.org", "key_file": "/k", "tool": "nsupdate" } });
    vec![cloudflare, dns]
}

/// The schema that stands at the end of references.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let one = |list: &'a Value| {
        list.as_array().and_then(|all| all.iter().find(|s| s.get("$ref").is_some()))
    };
    let target = schema.get("$ref").or_else(|| {
        let inner = schema.get("allOf").or_else(|| schema.get("anyOf")).and_then(one)?;
        inner.get("$ref")
    });
    match target {
        Some(target) => {
            resolved(root, root.pointer(target.as_str().unwrap().trim_start_matches('#')).unwrap())
        }
        None => schema,
    }
}

/// An object of a policy, by its pointer, and the schema of it.
struct Place<'a> {
    pointer: String,
    schema: &'a Value,
}

/// Every object of a policy. Those that differ in their provider only are not walked elsewhere again.
fn places<'a>(root: &'a Value, policy: &Value) -> Vec<Place<'a>> {
    fn walk<'a>(
        root: &'a Value,
        schema: &'a Value,
        value: &Value,
        at: &str,
        into: &mut Vec<Place<'a>>,
    ) {
        let schema = resolved(root, schema);
        match value {
            Value::Object(object) => {
                let schema = if schema.get("properties").is_some()
                    || schema.get("additionalProperties").is_some()
                {
                    schema
                } else {
                    // One of several shapes: the one of an object.
                    let shapes =
                        schema["anyOf"].as_array().unwrap_or_else(|| panic!("{at}: no object"));
                    shapes.iter().find(|shape| shape["type"] == "object").unwrap()
                };
                if schema.get("properties").is_some() {
                    into.push(Place { pointer: at.to_owned(), schema });
                }
                for (key, value) in object {
                    // What is named by the operator has one schema for all names.
                    let inner = schema["properties"]
                        .get(key)
                        .or_else(|| {
                            schema.get("additionalProperties").filter(|any| any.is_object())
                        })
                        .unwrap_or_else(|| panic!("{at}/{key} is not described"));
                    walk(root, inner, value, &format!("{at}/{}", key.replace('/', "~1")), into);
                }
            }
            Value::Array(items) => {
                for (n, item) in items.iter().enumerate() {
                    if item.is_object() {
                        walk(root, &schema["items"], item, &format!("{at}/{n}"), into);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut all = Vec::new();
    let kind = policy["kind"].as_str().unwrap();
    walk(root, &root["definitions"][kind], policy, "", &mut all);
    if policy["provider"].get("directory").is_none() && kind == "pool" {
        all.retain(|place| place.pointer.starts_with("/provider"));
    }
    all
}

fn object<'a>(policy: &'a mut Value, pointer: &str) -> &'a mut Map<String, Value> {
    policy.pointer_mut(pointer).unwrap().as_object_mut().unwrap()
}

/// The keys that the parser knows at a place, as it says them when it meets one that it does not know.
fn known_to_the_parser(policy: &Value, place: &Place<'_>) -> BTreeSet<String> {
    let mut policy = policy.clone();
    let here = object(&mut policy, &place.pointer);
    let one_of_several = place.schema.get("maxProperties").is_some();
    if one_of_several {
        here.clear();
    }
    here.insert("zzzz".to_owned(), json!({}));
    let said = read(&policy.to_string()).unwrap_err().to_string();
    assert!(said.contains("zzzz"), "{}: {said}", place.pointer);
    if let Some((_, known)) = said.split_once("known here: ") {
        return known.split(", ").map(str::to_owned).collect();
    }
    // `unknown variant `zzzz`, expected one of `a`, `b``
    said.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_example_is_a_policy_to_an_editor_too() {
    let judge = judge(&schema("policy"));
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/policies");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // What belongs to a proxy core is no policy.
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        if !is_json || path.display().to_string().ends_with(".sing-box.json") {
            continue;
        }
        let policy: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(complaints(&judge, &policy), [""; 0], "{}", path.display());
        seen += 1;
    }
    assert!(seen > 0);
}

#[test]
fn the_schema_and_the_parser_know_the_same_keys_at_every_place() {
    let root = schema("policy");
    let judge = judge(&root);
    let mut walked = BTreeSet::new();
    for policy in whole_policies() {
        read(&policy.to_string()).unwrap_or_else(|fault| panic!("{fault}: {policy}"));
        assert_eq!(complaints(&judge, &policy), [""; 0]);
        for place in places(&root, &policy) {
            let described: BTreeSet<String> =
                place.schema["properties"].as_object().unwrap().keys().cloned().collect();
            assert_eq!(described, known_to_the_parser(&policy, &place), "at {:?}", place.pointer);
            assert_eq!(place.schema["additionalProperties"], false, "{}", place.pointer);
            let mut unknown = policy.clone();
            object(&mut unknown, &place.pointer).insert("zzzz".to_owned(), json!(1));
            assert!(!judge.is_valid(&unknown), "an editor takes any key at {:?}", place.pointer);
            walked.insert(std::ptr::from_ref(place.schema));
        }
    }
    let mut all = 0;
    for_each_schema(&root["definitions"], &mut |schema| {
        let described = schema.get("properties").and_then(Value::as_object);
        if schema.get("additionalProperties").is_some() && described.is_some() {
            assert!(walked.contains(&std::ptr::from_ref(schema)), "no policy here holds {schema}");
            all += 1;
        }
    });
    assert!(all > 20, "only {all} objects");
}

/// Calls `tell` with every object of a schema, itself first.
fn for_each_schema<'a>(schema: &'a Value, tell: &mut impl FnMut(&'a Value)) {
    match schema {
        Value::Object(object) => {
            tell(schema);
            // What a condition looks at is described where it stands.
            let inner = object.iter().filter(|(key, _)| *key != "if");
            inner.for_each(|(_, inner)| for_each_schema(inner, tell));
        }
        Value::Array(items) => items.iter().for_each(|inner| for_each_schema(inner, tell)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_default_is_what_the_parser_takes_where_the_key_is_left_out() {
    let root = schema("policy");
    let mut seen = 0;
    for policy in whole_policies() {
        for place in places(&root, &policy) {
            for (key, inner) in place.schema["properties"].as_object().unwrap() {
                let Some(default) = inner.get("default") else { continue };
                let (mut with, mut without) = (policy.clone(), policy.clone());
                object(&mut with, &place.pointer).insert(key.clone(), default.clone());
                object(&mut without, &place.pointer).remove(key);
                let parse = |policy: &Value| {
                    read(&policy.to_string())
                        .unwrap_or_else(|fault| panic!("{}/{key}: {fault}", place.pointer))
                };
                assert_eq!(parse(&with), parse(&without), "{}/{key}", place.pointer);
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "only {seen} defaults");
}

#[test]
fn a_key_that_may_be_left_out_and_one_that_may_not_are_told_apart() {
    let root = schema("policy");
    let judge = judge(&root);
    for policy in whole_policies() {
        for place in places(&root, &policy) {
            let keys: Vec<String> =
                object(&mut policy.clone(), &place.pointer).keys().cloned().collect();
            for key in keys {
                let mut without = policy.clone();
                object(&mut without, &place.pointer).remove(&key);
                let parsed = read(&without.to_string());
                let missing = parsed.as_ref().is_err_and(|fault| {
                    let said = fault.to_string();
                    ["missing field", "has no \"kind\"", "has neither identity"]
                        .iter()
                        .any(|words| said.contains(words))
                });
                let refused = !judge.is_valid(&without);
                let empty_choice = place.schema.get("maxProperties").is_some();
                assert_eq!(refused, missing || empty_choice, "{}/{key}: {parsed:?}", place.pointer);
            }
        }
    }
}

#[test]
fn what_a_guard_must_name_depends_on_where_the_rest_is_found() {
    let judge = judge(&schema("policy"));
    let url = json!({ "url": "http://127.0.0.1:9090" });
    let named = json!({ "group": "g", "automatic": "a", "proxy": "http://127.0.0.1:2080" });
    let guard = |clash: &Value, without: &[&str], null: &[&str]| {
        let mut policy = json!({ "kind": "guard", "driver": { "clash": clash } });
        let policy_keys = policy.as_object_mut().unwrap();
        policy_keys.extend(named.as_object().unwrap().clone());
        policy_keys.retain(|key, _| !without.contains(&key.as_str()));
        policy_keys.extend(null.iter().map(|key| ((*key).to_owned(), Value::Null)));
        policy
    };
    let with = |more: Value| {
        let mut clash = url.clone();
        clash.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        clash
    };
    let (config, process) = (json!({ "config": "/c.json" }), json!({ "process": "sing-box" }));
    let all = ["group", "automatic", "proxy"];
    let mut cases = vec![(guard(&url, &[], &[]), true)];
    for key in &all {
        cases.push((guard(&url, &[key], &[]), false));
        cases.push((guard(&url, &[], &[key]), false));
        cases.push((guard(&with(json!({ "config": null, "process": null })), &[key], &[]), false));
    }
    for found in [json!({}), json!({ "url": null }), config.clone(), process.clone()] {
        cases.push((guard(&found, &all, &[]), true));
    }
    cases.push((guard(&with(config), &all, &all), true));
    cases.push((guard(&with(process), &all, &all), true));
    cases.push((guard(&json!({ "config": "/c.json", "process": null }), &all, &[]), true));
    cases.push((guard(&json!({ "config": "/c.json", "process": "x" }), &all, &[]), false));
    cases.push((guard(&json!({ "config": "c.json" }), &all, &[]), false));
    for (policy, is_good) in cases {
        let both = [judge.is_valid(&policy), read(&policy.to_string()).is_ok()];
        assert_eq!(both, [is_good; 2], "schema and parser of {policy}");
    }
}

/// Values of which most are wrong at any key.
fn values() -> [Value; 14] {
    [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(70_000),
        json!("x"),
        json!(""),
        json!([]),
        json!(["x"]),
        json!([1]),
        json!({}),
        json!({ "zzzz": 1 }),
    ]
}

#[test]
fn an_editor_never_refuses_what_the_parser_takes_and_knows_a_wrong_type() {
    let root = schema("policy");
    let judge = judge(&root);
    let mut seen = 0;
    let mut apart = BTreeSet::new();
    for policy in whole_policies() {
        for place in places(&root, &policy) {
            for (key, inner) in place.schema["properties"].as_object().unwrap() {
                let is_object = resolved(&root, inner).get("properties").is_some();
                for value in values() {
                    // The parser takes a list for an object, in the order of its keys. Nobody writes that.
                    if is_object && value.is_array() {
                        continue;
                    }
                    let mut changed = policy.clone();
                    object(&mut changed, &place.pointer).insert(key.clone(), value.clone());
                    let parsed = read(&changed.to_string());
                    let said = parsed.as_ref().err().map(ToString::to_string).unwrap_or_default();
                    let wrong_type =
                        said.contains("invalid type") || said.contains("unknown variant");
                    let at = format!("{}/{key} = {value}", place.pointer);
                    match (judge.is_valid(&changed), parsed.is_ok()) {
                        (false, true) => {
                            apart.insert(format!("{at}: refused by the schema, a good policy"));
                        }
                        (true, false) if wrong_type => {
                            apart.insert(format!("{at}: taken by the schema, {said}"));
                        }
                        (true, _) | (false, false) => {}
                    }
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 1000, "{seen}");
    assert!(apart.is_empty(), "{apart:#?}");
}

#[test]
fn every_key_is_described_and_one_that_holds_a_value_with_its_unit_and_default() {
    for what in ["policy", "state", "status"] {
        let root = schema(what);
        let mut seen = 0;
        for_each_schema(&root, &mut |schema| {
            let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
                return;
            };
            for (key, inner) in properties {
                if inner.get("const").is_some() && inner.get("description").is_none() {
                    // What a condition looks at.
                    continue;
                }
                let described =
                    inner.get("description").or_else(|| resolved(&root, inner).get("description"));
                let described =
                    described.and_then(Value::as_str).unwrap_or_else(|| panic!("{what}: {key}"));
                assert!(
                    !described.is_empty() && described.ends_with('.'),
                    "{what}: {key}: {described:?}"
                );
                let is_value = resolved(&root, inner).get("properties").is_none()
                    && inner.get("$ref").is_none();
                if what == "policy" && is_value && described != "The kind of policy." {
                    let has_default =
                        described.contains("Default: ") || described.contains("Required");
                    let is_named =
                        described.contains("Value: ") || inner.get("maxProperties").is_some();
                    assert!(has_default && is_named, "{key}: {described:?}");
                }
                seen += 1;
            }
        });
        assert!(seen > 10, "{what}");
    }
}

#[test]
fn what_a_pool_remembers_and_what_status_prints_are_as_described() {
    let (state, shown) = (judge(&schema("state")), judge(&schema("status")));
    let mut lab = world::lab_of(world::policy(2, 3, &json!({})), &["a", "b", "c", "d"]);
    let mut statuses = Vec::new();
    let record = Record::default();
    statuses.push(serde_json::to_value(status(&lab.name, &lab.policy, &record, &lab.now)).unwrap());
    for dead in [
        &[][..],
        &["a"],
        &["a"],
        &["a", "b", "c", "d"],
        &["a", "b", "c", "d"],
        &["a", "b", "c", "d"],
    ] {
        lab.set(dead, Endpoint::Dead);
        let played = lab.step();
        let record = Record {
            machine: Some(played.after.clone()),
            paused: Some(lab.now.clone()),
            owned: lab.owned.clone(),
            nft: Some(LoadedNft { text: "0".to_owned(), listing: "1".to_owned() }),
            last_step: Some(LastStep {
                at: lab.now.clone(),
                outcome: Ending::RolledBack,
                transition: Some("NORMAL -> LOCAL_REPAIR".to_owned()),
                duration_ms: 41,
                reasons: played.decision.wished.reasons.clone(),
            }),
        };
        let file = json!({ "version": 1, "kind": "pool", "policy": "home", "path": "/etc/egressctl/home.json",
                           "generation": 7, "saved_at": lab.now.at, "body": record });
        assert_eq!(complaints(&state, &file), [""; 0]);
        statuses
            .push(serde_json::to_value(status(&lab.name, &lab.policy, &record, &lab.now)).unwrap());
        lab.later(40);
    }
    lab.policy.bootstrap = serde_json::from_value(
        json!({ "wireguard": { "interface": "vpnboot", "config": "/etc/egressctl/boot.conf" } }),
    )
    .unwrap();
    for standby in [Err("there is no file".to_owned()), Ok("boot".to_owned())] {
        lab.standby = standby;
        let machine = Some(lab.step().after);
        let record = Record { machine, ..Record::default() };
        let shown = status(&lab.name, &lab.policy, &record, &lab.now);
        assert!(shown.standby.is_some());
        statuses.push(serde_json::to_value(shown).unwrap());
        lab.later(40);
    }
    for status in &statuses {
        assert_eq!(complaints(&shown, status), [""; 0], "{status}");
    }
    assert_eq!(complaints(&shown, &json!(statuses)), [""; 0]);
    assert!(!shown.is_valid(&json!({})));
    assert!(!state.is_valid(&json!({})));
}

#[test]
fn what_a_chain_remembers_and_what_status_prints_are_as_described() {
    use chain_world::{Play, policy, two_by_two};
    let (state, shown) = (judge(&schema("state")), judge(&schema("status")));
    let policy = policy(&two_by_two(), &json!({}));
    let mut play = Play::new(&policy);
    let name = egressctl::names::PolicyName::try_from("path".to_owned()).unwrap();
    let status = |play: &Play<'_>, record: &Record<egressctl::chain::ChainState>| {
        let status = egressctl::chain::status::status(&name, play.policy, record, &play.world.now);
        serde_json::to_value(status).unwrap()
    };
    let mut statuses = vec![status(&play, &Record::default())];
    for dead in [&[][..], &["b1"], &["b1", "b2"]] {
        play.world.dead = dead.iter().copied().collect();
        play.after(15);
        let record = Record { machine: play.state.clone(), ..Record::default() };
        let file = json!({ "version": 1, "kind": "chain", "policy": "path", "path": "/etc/egressctl/path.json",
                           "generation": 7, "saved_at": play.world.now.at, "body": record });
        assert_eq!(complaints(&state, &file), [""; 0]);
        statuses.push(status(&play, &record));
    }
    assert_eq!(statuses[2]["hops"][1]["node"], "b2");
    assert!(statuses[2]["hops"][1]["nodes"][0]["marked_until"].is_string(), "{}", statuses[2]);
    assert_eq!(statuses[3]["path"]["breaks_at"], "exit", "{}", statuses[3]);
    for status in &statuses {
        assert_eq!(complaints(&shown, status), [""; 0], "{status}");
    }
}

#[test]
fn what_host_names_remember_and_what_status_prints_are_as_described() {
    use dns_world::{Life, policy};
    let (state, shown) = (judge(&schema("state")), judge(&schema("status")));
    let hosts = json!({ "fi.example.org": { "native": "fi", "fallbacks": ["de"] } });
    let mut lab = dns_world::Lab::new(policy(2, &hosts, &json!({ "flap_limit": 1 })));
    let status = |lab: &dns_world::Lab, record: &Record<egressctl::dns::DnsState>| {
        let status = egressctl::dns::status::status(&lab.name, &lab.policy, record, &lab.now);
        serde_json::to_value(status).unwrap()
    };
    let mut statuses = vec![status(&lab, &Record::default())];
    for (life, edit) in [
        (Life::Alive, None),
        (Life::Dead, None),
        (Life::Dead, None),
        (Life::Unseen, Some("198.51.100.9")),
    ] {
        lab.set(&["fi"], life);
        if let Some(edit) = edit {
            lab.edit("fi.example.org", &[edit]);
        }
        lab.next(30);
        let record = Record { machine: lab.state.clone(), ..Record::default() };
        let file = json!({ "version": 1, "kind": "dns", "policy": "names", "path": "/etc/egressctl/names.json",
                           "generation": 7, "saved_at": lab.now.at, "body": record });
        assert_eq!(complaints(&state, &file), [""; 0]);
        statuses.push(status(&lab, &record));
    }
    assert_eq!(statuses[3]["hosts"][0]["state"], "NATIVE_QUARANTINED");
    assert_eq!(statuses[4]["hosts"][0]["paused"], "edited");
    for status in &statuses {
        assert_eq!(complaints(&shown, status), [""; 0], "{status}");
    }
}
