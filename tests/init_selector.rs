//! `init selector` and `check` with a real sing-box: from its own configuration to a channel that serves.

use crate::lab;
use crate::real_core;

use lab::pool::Step;
use lab::{Lab, names};
use real_core::SingBox;
use serde_json::{Value, json};
use std::fs;

/// The codes that `check` finds of the core.
fn of_the_core(lab: &Lab) -> Vec<String> {
    let report = lab.gw().egressctl(&["check", "home", "--json"]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let all = report["findings"].as_array().unwrap().iter();
    let codes = all.map(|finding| finding["code"].as_str().unwrap().to_owned());
    codes
        .filter(|code| {
            let begins = ["core-", "choices-", "interrupts", "diagnosis-"];
            begins.iter().any(|begin| code.starts_with(begin))
        })
        .collect()
}

#[test]
fn from_a_cores_configuration_to_a_channel_that_serves_and_what_is_wrong_with_it() {
    let lab = Lab::builder().clients(1).endpoints(2).start();
    let gw = lab.gw();
    let core = SingBox::start(&lab, |_| {});
    let config = lab.folder().join("sing-box.json");
    let made = gw.egressctl(&["init", "selector", "--core-config", config.to_str().unwrap()]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert!(!made.stdout.contains("lab-secret") && !made.stderr.contains("lab-secret"));
    for guess in [
        "guess: the group is channel-selector",
        "guess: the primary is channel-primary",
        "guess: the reserve is channel-reserve",
        "guess: the control API has a secret",
    ] {
        assert!(made.stderr.contains(guess), "{guess}: {}", made.stderr);
    }
    let mut policy: Value = serde_json::from_str(&made.stdout).unwrap();
    // The lab has no /etc of its own and no internet.
    policy["driver"]["clash"]["secret_file"] = json!(lab.folder().join("secret"));
    policy["probe"] =
        json!({ "urls": [format!("http://{}/generate_204", names::PROBE)], "timeout_sec": 2 });
    let _path = gw.policy("home", &policy);
    let step = Step::of(gw.egressctl(&["step", "home", "--json"]));
    assert_eq!(step.went(), (Some(0), "-", "ON_PRIMARY"), "{step:#?}");
    assert_eq!(lab.client(1).exit(), Some(names::exit(1).to_string()));
    assert_eq!(of_the_core(&lab), Vec::<String>::new());
    drop(core);
    // All that can be wrong at once, found in what the core was started with.
    let _core = SingBox::start_again(&lab, |config| {
        config["outbounds"][0]["interrupt_exist_connections"] = json!(true);
        config["experimental"]["cache_file"]["enabled"] = json!(false);
        config["experimental"]["clash_api"] = json!({ "external_controller": "0.0.0.0:9090" });
        config["route"]["rules"][1]["outbound"] = json!("channel-primary");
    });
    let mut found = of_the_core(&lab);
    found.sort();
    assert_eq!(found, ["choices-forgotten", "core-open", "diagnosis-astray", "interrupts"]);
    // A configuration of which no policy can be made is refused with what to write.
    fs::write(&config, "{\"experimental\": {\"clash_api\": {}}}").unwrap();
    let refused = gw.egressctl(&["init", "selector", "--core-config", config.to_str().unwrap()]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("has no control API"), "{}", refused.stderr);
}
