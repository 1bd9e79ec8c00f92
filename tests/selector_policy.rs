//! Policies of kind selector: what is wrong with one is said in one line.

use egressctl::names::PolicyName;
use egressctl::policy::selector::Driver;
use egressctl::policy::{Policy, overlap};
use egressctl::setting::Control;
use serde_json::{Value, json};

fn clash() -> Value {
    json!({
        "kind": "selector",
        "driver": { "clash": { "url": "http://127.0.0.1:9090", "selector": "out" } },
        "primary": { "member": "a", "proxy": "http://127.0.0.1:2081" },
        "reserve": { "member": "b", "proxy": "http://127.0.0.1:2082" },
    })
}

fn route() -> Value {
    json!({
        "kind": "selector",
        "driver": { "route": { "table": 120 } },
        "primary": { "interface": "eth0", "gateway": "192.0.2.1" },
        "reserve": { "interface": "eth1" },
    })
}

/// The policy with `value` at `path`; `null` takes the key away.
fn with(mut policy: Value, path: &str, value: Value) -> Value {
    let (at, key) = path.rsplit_once('.').unwrap_or(("", path));
    let mut place = &mut policy;
    for part in at.split('.').filter(|part| !part.is_empty()) {
        place = &mut place[part];
    }
    let object = place.as_object_mut().unwrap();
    if value.is_null() {
        object.remove(key);
    } else {
        object.insert(key.to_owned(), value);
    }
    policy
}

fn fault(policy: &Value) -> String {
    let Err(fault) = Policy::parse(&policy.to_string()) else { panic!("a good policy: {policy}") };
    let line = fault.to_string();
    assert!(!line.contains('\n'), "{line:?}");
    line.split(" at line").next().unwrap().to_owned()
}

#[test]
fn what_contradicts_itself_is_refused() {
    let urls = json!([]);
    for (policy, said) in [
        (with(clash(), "driver", json!(null)), "missing field `driver`"),
        (
            with(clash(), "primary.member", json!(null)),
            "primary.member is missing: a channel of driver clash is a member and its diagnostic proxy",
        ),
        (
            with(clash(), "reserve.proxy", json!(null)),
            "reserve.proxy is missing: a channel of driver clash is a member and its diagnostic proxy",
        ),
        (
            with(clash(), "reserve.member", json!("a")),
            "primary and reserve are the same member \"a\": name two",
        ),
        (
            with(clash(), "reserve.proxy", json!("http://127.0.0.1:2081")),
            "primary and reserve have the same proxy http://127.0.0.1:2081: each needs one that leaves by it alone",
        ),
        (
            with(clash(), "primary.interface", json!("eth0")),
            "primary names an interface or a gateway, which driver clash does not know: name member and proxy",
        ),
        (
            with(clash(), "probe", json!({ "urls": urls })),
            "probe.urls is empty: name at least one page",
        ),
        (
            with(clash(), "probe", json!({ "expect_status": [] })),
            "probe.expect_status is empty: name at least one status",
        ),
        (
            with(clash(), "probe", json!({ "timeout_sec": 0 })),
            "probe.timeout_sec is 0: it must be at least 1",
        ),
        (
            with(clash(), "wan", json!({ "urls": urls })),
            "wan.urls is empty: name at least one page, or leave wan out",
        ),
        (
            with(clash(), "params", json!({ "flap_limit": 0 })),
            "params.flap_limit is 0: it must be at least 1",
        ),
        (with(clash(), "params", json!({ "flap_limits": 3 })), "unknown key \"flap_limits\""),
        (
            with(clash(), "driver.clash.selector", json!("")),
            "driver.clash.selector is empty: name the core's group",
        ),
        (
            with(route(), "reserve.interface", json!("eth0")),
            "primary and reserve both leave by eth0: requests bound to a device could not tell them apart, so name two",
        ),
        (
            with(route(), "primary.proxy", json!("http://127.0.0.1:1")),
            "primary names a member or a proxy, which driver route does not know: name interface and gateway",
        ),
        (
            with(route(), "primary.interface", json!(null)),
            "primary.interface is missing: a channel of driver route is an interface and its gateway",
        ),
        (
            with(route(), "driver.route.table", json!(254)),
            "driver.route.table is 254: write \"main\", or the number of a table that the kernel does not use itself (not 0, 253 to 255)",
        ),
        (
            with(route(), "driver.route.first_table", json!(119)),
            "driver.route.first_table is 119: it and the next one must be tables of their own, neither driver.route.table nor one that the kernel uses itself (0, 253 to 255)",
        ),
        (
            with(route(), "driver.route.table", json!(252)),
            "driver.route.first_table is 253: it and the next one must be tables of their own, neither driver.route.table nor one that the kernel uses itself (0, 253 to 255)",
        ),
        (
            with(route(), "driver.route.rule_priority", json!(32_765)),
            "driver.route.rule_priority is 32765: it and the next one must stand before the rule of main, so write a number from 1 to 32764",
        ),
        (
            with(route(), "driver.route.first_mark", json!("0xffffffff")),
            "driver.route.first_mark is 0xffffffff: it and the 3 next ones must be marks, and 0 is none",
        ),
        (
            with(with(route(), "driver.route.table", json!("main")), "wan", json!({})),
            "wan is asked by main's default route, which is what driver route moves: leave it out, since nothing moves anyway while neither channel answers",
        ),
        (
            with(route(), "driver.route.protocol", json!(2)),
            "driver.route.protocol 2 is used by the kernel and the administrator: write a number from 5 to 255",
        ),
    ] {
        assert_eq!(fault(&policy), said, "{policy}");
    }
}

#[test]
fn a_core_is_controlled_on_this_machine_only() {
    let control = |url: &str| {
        let Ok(Policy::Selector(policy)) =
            Policy::parse(&with(clash(), "driver.clash.url", json!(url)).to_string())
        else {
            return None;
        };
        let Driver::Clash(driver) = policy.driver else { panic!("it is clash") };
        Some(driver.core.control)
    };
    for here in ["http://127.0.0.1:9090", "http://localhost:9090/", "http://[::1]:9090"] {
        assert!(matches!(control(here), Some(Control::Http(_))), "{here}");
    }
    assert!(matches!(control("unix:///run/core.sock"), Some(Control::Unix(_))));
    for there in [
        "http://192.0.2.1:9090",
        "http://0.0.0.0:9090",
        "http://core.example:9090",
        "https://127.0.0.1:9090",
        "http://127.0.0.1:9090/api",
        "http://u:p@127.0.0.1:9090",
        "unix://run/core.sock",
        "127.0.0.1:9090",
        "",
    ] {
        assert_eq!(control(there), None, "{there}");
        let said = fault(&with(clash(), "driver.clash.url", json!(there)));
        assert!(said.starts_with("driver.clash.url "), "{said}");
    }
    let relative = with(clash(), "driver.clash.secret_file", json!("secret"));
    assert!(fault(&relative).starts_with("driver.clash.secret_file is no absolute path"));
}

#[test]
fn two_policies_do_not_share_a_group_or_a_table() {
    let both = |a: &Value, b: &Value| {
        let parse = |policy: &Value| Policy::parse(&policy.to_string()).unwrap();
        let name = |name: &str| PolicyName::try_from(name.to_owned()).unwrap();
        overlap((&name("a"), &parse(a)), (&name("b"), &parse(b)))
    };
    let pool = json!({
        "kind": "pool", "slots": { "interfaces": ["vpn1", "vpn2"], "first_table": 119 },
        "clients": ["10.77.0.11"], "provider": { "directory": { "path": "/e" } },
    });
    assert_eq!(both(&clash(), &clash()).as_deref(), Some("group out of http://127.0.0.1:9090"));
    assert_eq!(both(&clash(), &with(clash(), "driver.clash.selector", json!("in"))), None);
    assert_eq!(both(&route(), &route()).as_deref(), Some("routing table 120"));
    let pool_from = |table: u32| with(pool.clone(), "slots.first_table", json!(table));
    assert_eq!(both(&pool, &route()).as_deref(), Some("routing table 120"));
    assert_eq!(both(&route(), &pool_from(122)).as_deref(), Some("routing table 122"));
    assert_eq!(both(&route(), &pool_from(123)), None);
    let marked = with(route(), "driver.route.first_mark", json!("0x4546fffe"));
    assert_eq!(both(&marked, &pool_from(123)).as_deref(), Some("marks like 0x4546fffe"));
    let inside = with(route(), "driver.route.rule_priority", json!(19_999));
    let said = both(&inside, &pool_from(123));
    assert_eq!(said.as_deref(), Some("rule priorities from 19999"));
    let main = with(route(), "driver.route.table", json!("main"));
    assert_eq!(both(&route(), &main).as_deref(), Some("rule priorities from 500"));
    let apart = with(main, "driver.route.rule_priority", json!(502));
    assert_eq!(both(&route(), &apart).as_deref(), Some("marks like 0x45520000"));
    let apart = with(apart, "driver.route.first_mark", json!("0x45520004"));
    assert_eq!(both(&route(), &apart), None);
    assert_eq!(both(&clash(), &pool), None);
}
