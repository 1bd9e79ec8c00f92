//! What a policy of kind guard may say, and how a wrong one is refused.

use egressctl::names::PolicyName;
use egressctl::policy::guard::Params;
use egressctl::policy::{GuardPolicy, Policy, overlap};
use egressctl::setting::{Control, Core, Source};
use egressctl::url::Target;
use serde_json::{Value, json};

fn usual() -> Value {
    json!({
        "kind": "guard", "driver": { "clash": { "url": "http://127.0.0.1:9090" } },
        "group": "select", "automatic": "auto", "proxy": "http://127.0.0.1:2080",
    })
}

fn parsed(change: &Value) -> Result<GuardPolicy, String> {
    let mut policy = usual();
    for (key, value) in change.as_object().unwrap() {
        policy[key] = value.clone();
    }
    let policy = Policy::parse(&policy.to_string()).map_err(|fault| fault.to_string())?;
    let Policy::Guard(policy) = policy else { panic!("it is a guard") };
    Ok(*policy)
}

#[test]
fn what_is_left_out_has_its_default() {
    let policy = parsed(&json!({})).unwrap();
    let urls: Vec<&str> = policy.probe.urls.iter().map(Target::as_str).collect();
    assert_eq!(
        urls,
        ["https://www.gstatic.com/generate_204", "https://cp.cloudflare.com/generate_204"]
    );
    assert_eq!(
        (policy.probe.timeout_sec, policy.probe.expect_status.as_slice()),
        (8, [204].as_slice())
    );
    let expected = Params {
        check_interval_sec: 30,
        failures_before_recovery: 2,
        observe_passes: 3,
        candidates_per_step: 5,
        delay_timeout_ms: 5_000,
        backoff_min_sec: 30,
        backoff_max_sec: 600,
        give_back_max_sec: 3_600,
    };
    assert_eq!((policy.params, policy.members, policy.reference), (expected, None, None));
}

#[test]
fn every_contradiction_is_refused_with_what_to_write_instead() {
    for (change, told) in [
        (
            json!({ "driver": { "clash": { "url": "http://192.0.2.1:9090" } } }),
            "leaves this machine",
        ),
        (
            json!({ "driver": { "clash": { "url": "http://127.0.0.1:9090", "secret_file": "s" } } }),
            "begins with /",
        ),
        (json!({ "proxy": "http://192.0.2.1:2080" }), "127.0.0.1"),
        (json!({ "proxy": null }), "proxy is missing: name it, or name driver.clash.config"),
        (json!({ "group": null }), "group is missing"),
        (json!({ "automatic": null }), "automatic is missing"),
        (
            json!({ "driver": { "clash": { "config": "/c.json", "process": "sing-box" } } }),
            "names config and process",
        ),
        (json!({ "driver": { "clash": { "config": "c.json" } } }), "begins with /"),
        (
            json!({ "driver": { "clash": { "config": "/c.json", "secret_file": "s" } } }),
            "secret_file",
        ),
        (
            json!({ "driver": { "clash": { "process": "/usr/bin/sing-box" } } }),
            "belongs into config",
        ),
        (json!({ "driver": { "clash": { "process": "" } } }), "is no name of a program"),
        (
            json!({ "driver": { "clash": { "url": "http://192.0.2.1:9090", "config": "/c.json" } } }),
            "leaves this machine",
        ),
        (json!({ "driver": { "clash": { "confg": "/c.json" } } }), "did you mean \"config\"?"),
        (json!({ "group": "" }), "group or automatic is empty"),
        (json!({ "automatic": "select" }), "automatic is a member of group"),
        (json!({ "members": [] }), "leave it out for all"),
        (json!({ "members": ["a", "auto"] }), "holds the automatic group"),
        (json!({ "probe": { "urls": [] } }), "probe.urls is empty"),
        (json!({ "probe": { "expect_status": [] } }), "probe.expect_status is empty"),
        (json!({ "probe": { "timeout_sec": 0 } }), "probe.timeout_sec is not 1 to 20"),
        (json!({ "probe": { "timeout_sec": 21 } }), "probe.timeout_sec is not 1 to 20"),
        (json!({ "reference": { "urls": [] } }), "leave reference out"),
        (json!({ "reference": {} }), "missing field `urls`"),
        (json!({ "params": { "failures_before_recovery": 0 } }), "failures_before_recovery is 0"),
        (json!({ "params": { "observe_passes": 0 } }), "observe_passes is 0"),
        (json!({ "params": { "candidates_per_step": 0 } }), "candidates_per_step is 0"),
        (json!({ "params": { "delay_timeout_ms": 32_768 } }), "not 1 to 32767"),
        (json!({ "params": { "backoff_min_sec": 601 } }), "more than params.backoff_max_sec"),
        (json!({ "params": { "give_back_max_sec": 1 } }), "more than params.give_back_max_sec"),
        (json!({ "params": { "observe_pases": 1 } }), "did you mean \"observe_passes\"?"),
        (json!({ "grup": "x" }), "did you mean \"group\"?"),
    ] {
        let why = parsed(&change).unwrap_err();
        assert!(why.contains(told), "{change}: {why}");
    }
}

#[test]
fn what_is_named_stands_and_the_rest_is_found_where_the_policy_says() {
    let core = |clash: Value| {
        let found = json!({ "driver": { "clash": clash }, "group": null, "automatic": null, "proxy": null });
        let policy = parsed(&found).unwrap();
        (policy.core, policy.source)
    };
    let file = Source::File("/c.json".into());
    let (found, source) = core(json!({ "config": "/c.json" }));
    let whole = Core {
        control: Control::Found(file.clone()),
        secret_file: None,
        secret_in: Some(file.clone()),
    };
    assert_eq!((found, source), (whole, Some(file.clone())));
    let (named, _) = core(json!({ "config": "/c.json", "url": "http://127.0.0.1:9090" }));
    let url = Target::try_from("http://127.0.0.1:9090".to_owned()).unwrap();
    assert_eq!((named.control, named.secret_in), (Control::Http(url), Some(file)));
    let (named, _) = core(json!({ "config": "/c.json", "secret_file": "/s" }));
    assert_eq!((named.secret_file, named.secret_in), (Some("/s".into()), None));
    for (clash, shown) in [
        (json!({ "config": "/c.json" }), "the core of /c.json"),
        (json!({ "process": "verge-mihomo" }), "the running verge-mihomo"),
        (json!({}), "the running core"),
    ] {
        assert_eq!(core(clash).0.to_string(), shown);
    }
}

#[test]
fn the_core_measures_by_pages_over_https_where_there_are_some() {
    let by = |urls: Value| {
        let policy = parsed(&json!({ "probe": { "urls": urls } })).unwrap();
        let by: Vec<String> = policy.measured_by().into_iter().map(String::from).collect();
        (by, policy.notes().len())
    };
    let (http, https) = ("http://192.0.2.1/", "https://192.0.2.1/");
    assert_eq!(by(json!([http, https])), (vec![https.to_owned()], 0));
    assert_eq!(by(json!([http])), (vec![http.to_owned()], 1));
}

#[test]
fn two_policies_do_not_select_in_one_group() {
    let selector = json!({
        "kind": "selector",
        "driver": { "clash": { "url": "http://127.0.0.1:9090", "selector": "select" } },
        "primary": { "member": "a", "proxy": "http://127.0.0.1:2081" },
        "reserve": { "member": "b", "proxy": "http://127.0.0.1:2082" },
    });
    let name = |name: &str| PolicyName::try_from(name.to_owned()).unwrap();
    let (a, b) = (name("a"), name("b"));
    let guard = Policy::parse(&usual().to_string()).unwrap();
    let group = Some("group select of http://127.0.0.1:9090".to_owned());
    for other in [Policy::parse(&selector.to_string()).unwrap(), guard.clone()] {
        assert_eq!(overlap((&a, &guard), (&b, &other)), group);
        assert_eq!(overlap((&a, &other), (&b, &guard)), group);
    }
    let mut elsewhere = usual();
    elsewhere["group"] = json!("other");
    assert_eq!(overlap((&a, &guard), (&b, &Policy::parse(&elsewhere.to_string()).unwrap())), None);
    // A group that is found may be the other's.
    let seeking = |group: Option<&str>| {
        let policy = json!({ "kind": "guard", "driver": { "clash": { "config": "/c.json" } }, "group": group });
        Policy::parse(&policy.to_string()).unwrap()
    };
    let any = Some("a group of the core of /c.json: name group in both".to_owned());
    assert_eq!(overlap((&a, &seeking(None)), (&b, &seeking(Some("x")))), any);
    assert_eq!(overlap((&a, &seeking(Some("y"))), (&b, &seeking(Some("x")))), None);
    assert_eq!(overlap((&a, &seeking(None)), (&b, &guard)), None);
}
