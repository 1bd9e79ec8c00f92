use super::*;
use serde_json::json;
use std::path::PathBuf;

fn example() -> Value {
    let text = include_str!("../../../policies/selector-clash.sing-box.json");
    serde_json::from_str(text).unwrap()
}

fn here(text: Result<String, String>) -> Here {
    let path = PathBuf::from("/etc/sing-box/config.json");
    Here { core: Some(Core { path, text }), ..Here::default() }
}

fn made(config: &Value) -> Result<(Value, Vec<String>), String> {
    let draft = draft(&here(Ok(config.to_string())))?;
    for said in std::iter::once(&draft.text).chain(&draft.guesses) {
        assert!(!said.contains("WRITE-A-SECRET"), "{said}");
    }
    Ok((serde_json::from_str(&draft.text).unwrap(), draft.guesses))
}

fn refused(config: &Value) -> String {
    made(config).unwrap_err()
}

/// A change of the example.
fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut config = example();
    change(&mut config);
    config
}

#[test]
fn the_example_of_a_core_gives_the_example_of_a_policy() {
    let (policy, guesses) = made(&example()).unwrap();
    let text = include_str!("../../../policies/selector-clash.json");
    let wished: Value = serde_json::from_str(text).unwrap();
    for key in ["kind", "primary", "reserve"] {
        assert_eq!(policy[key], wished[key], "{key}");
    }
    let clash = &policy["driver"]["clash"];
    for key in ["url", "secret_file", "selector"] {
        assert_eq!(clash[key], wished["driver"]["clash"][key], "{key}");
    }
    assert_eq!(
        guesses,
        [
            "the group is channel-selector: it is what no rule leads elsewhere",
            "the primary is channel-primary, the group's default; it is asked by inbound diagnose-primary",
            "the reserve is channel-reserve, the next member with a diagnostic inbound; it is asked by inbound diagnose-reserve",
            "the control API has a secret, which is read from /etc/egressctl/sing-box.secret: jq -j .experimental.clash_api.secret /etc/sing-box/config.json | install -m 600 /dev/stdin /etc/egressctl/sing-box.secret",
        ]
    );
}

#[test]
fn every_guess_is_told() {
    let config = with(|config| {
        let group = &mut config["outbounds"][0];
        group["outbounds"] = json!(["slow", "channel-reserve", "channel-primary"]);
        group["default"] = json!("slow");
        group["interrupt_exist_connections"] = json!(true);
        config["route"]["final"] = json!("slow");
        let rules = config["route"]["rules"].as_array_mut().unwrap();
        rules.insert(0, json!({ "ip_is_private": true, "outbound": "slow" }));
        config["experimental"] = json!({ "clash_api": { "external_controller": ":9090" } });
    });
    let (policy, guesses) = made(&config).unwrap();
    let members = [&policy["primary"]["member"], &policy["reserve"]["member"]];
    assert_eq!(members, ["channel-reserve", "channel-primary"]);
    assert_eq!(policy["driver"]["clash"]["url"], "http://127.0.0.1:9090");
    assert_eq!(policy["driver"]["clash"].get("secret_file"), None);
    let shared = "route rule 1 stands before that of inbound";
    for part in [
        "the control API listens on every address of the machine (:9090)",
        "it is the only one with two members that have a diagnostic inbound",
        "the primary is channel-reserve, the group's first",
        "left out, being neither: slow",
        shared,
        "set its interrupt_exist_connections to false",
        "set experimental.cache_file.enabled to true",
    ] {
        assert!(guesses.iter().any(|guess| guess.contains(part)), "{part}: {guesses:#?}");
    }
    assert_eq!(guesses.iter().filter(|guess| guess.contains(shared)).count(), 2);
}

#[test]
fn what_is_missing_is_told_with_what_to_write() {
    let none = draft(&Here::default()).unwrap_err();
    assert!(none.starts_with("name sing-box's own configuration with --core-config"), "{none}");
    let unread = draft(&here(Err("permission denied".to_owned()))).unwrap_err();
    assert_eq!(unread, "/etc/sing-box/config.json cannot be read (permission denied)");
    let yaml = draft(&here(Ok("mixed-port: 7890\n".to_owned()))).unwrap_err();
    assert!(yaml.contains("is no JSON in line 1"), "{yaml}");
    let no_rule = with(|config| drop(config["route"]["rules"].as_array_mut().unwrap().pop()));
    for (config, said) in [
        (json!([]), "is no object"),
        (with(|config| config["experimental"] = json!({})), "has no control API"),
        (
            with(|config| {
                config["experimental"]["clash_api"]["external_controller"] =
                    json!("192.0.2.1:9090");
            }),
            "listens on 192.0.2.1:9090, which is not on this machine alone",
        ),
        (with(|config| config["outbounds"] = json!([])), "has no outbound of type selector"),
        (no_rule, "{\"inbound\": \"diagnose-channel-reserve\", \"outbound\": \"channel-reserve\"}"),
        (
            with(|config| config["inbounds"][3]["users"] = json!([{ "username": "u" }])),
            "channel-selector lacks one for channel-reserve",
        ),
    ] {
        let why = refused(&config);
        assert!(why.contains(said), "{said}: {why}");
    }
    let mut taken = here(Ok(example().to_string()));
    let text = include_str!("../../../policies/selector-clash.json");
    let name = PolicyName::try_from("home".to_owned()).unwrap();
    taken.policies.push((name, Policy::parse(text).unwrap()));
    let why = draft(&taken).unwrap_err();
    assert!(why.contains("policy home claims group channel-selector"), "{why}");
}
