use super::*;
use crate::clash::config;
use crate::observation::{CoreSeen, Life, Observation, Program};
use crate::policy::Policy;
use crate::time::Moment;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn policy() -> SelectorPolicy {
    let text = include_str!("../../../policies/selector-clash.json");
    let Ok(Policy::Selector(policy)) = Policy::parse(text) else { panic!("it is a selector") };
    *policy
}

/// The codes that are found with the example's core, changed.
fn found(change: impl FnOnce(&mut Value), unit: Option<&CoreUnit>) -> Vec<Finding> {
    let text = include_str!("../../../policies/selector-clash.sing-box.json");
    let mut core: Value = serde_json::from_str(text).unwrap();
    change(&mut core);
    let config = config::read(Program::SingBox, &[core.to_string()]).unwrap();
    let seen = CoreSeen {
        program: Program::SingBox,
        version: "sing-box 1.14.4".to_owned(),
        life: Life::default(),
        groups: BTreeMap::new(),
        traffic: None,
        config: ConfigReading::Read(config),
    };
    let reading = CoreReading { at: Moment::epoch(), core: Ok(seen) };
    let observation = Observation::new(Moment::epoch());
    let facts = Facts { core: Some(&reading), told: None, unit, seen: &observation, decided: None };
    findings(&policy(), &facts)
}

fn codes(found: &[Finding]) -> Vec<&str> {
    found.iter().map(|finding| finding.code.as_str()).collect()
}

#[test]
fn the_example_has_nothing_against_it_and_each_fault_is_found() {
    assert_eq!(codes(&found(|_| {}, None)), Vec::<&str>::new());
    let cuts =
        found(|core| core["outbounds"][0]["interrupt_exist_connections"] = json!(true), None);
    assert_eq!(codes(&cuts), ["interrupts"]);
    let forgets = found(|core| core["experimental"]["cache_file"] = json!({}), None);
    assert_eq!(codes(&forgets), ["choices-forgotten"]);
    let crossed =
        found(|core| core["route"]["rules"][1]["outbound"] = json!("channel-primary"), None);
    assert_eq!(codes(&crossed), ["diagnosis-astray"]);
    assert!(crossed[0].what.contains("diagnose-reserve of the reserve"), "{}", crossed[0].what);
    assert!(crossed[0].what.contains("leads to channel-primary"), "{}", crossed[0].what);
    // Without a rule it follows what is selected, which is the other channel half of the time.
    let selected = found(|core| core["route"]["rules"] = json!([]), None);
    assert_eq!(codes(&selected), ["diagnosis-astray", "diagnosis-astray"]);
    let shared = found(
        |core| {
            let rules = core["route"]["rules"].as_array_mut().unwrap();
            rules.insert(1, json!({ "network": "udp", "outbound": "channel-primary" }));
        },
        None,
    );
    assert_eq!(codes(&shared), ["diagnosis-shared"]);
    assert!(shared[0].what.starts_with("rule 2 of the core"), "{}", shared[0].what);
}

#[test]
fn a_unit_that_is_not_started_again_is_found_with_the_command_that_mends_it() {
    let unit = |restart: &str| CoreUnit {
        name: "sing-box.service".to_owned(),
        restart: restart.to_owned(),
    };
    assert_eq!(codes(&found(|_| {}, Some(&unit("on-failure")))), Vec::<&str>::new());
    let dies = found(|_| {}, Some(&unit("no")));
    assert_eq!(codes(&dies), ["core-not-restarted"]);
    assert!(dies[0].mend.contains("/etc/systemd/system/sing-box.service.d"), "{}", dies[0].mend);
    for (cgroup, unit) in [
        ("0::/system.slice/sing-box.service\n", Some("sing-box.service")),
        ("0::/system.slice/sing-box.service/sub\n", Some("sing-box.service")),
        ("12:pids:/\n1:name=systemd:/system.slice/mihomo.service\n", Some("mihomo.service")),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope\n", None),
        ("0::/\n", None),
    ] {
        assert_eq!(unit_of(cgroup).as_deref(), unit, "{cgroup}");
    }
}
