//! `init pool` on a gateway: from a folder of configurations to clients that are served.

use crate::lab;

use lab::pool::{Pool, differences};
use lab::{Lab, names};
use serde_json::{Value, json};
use std::fs;

#[test]
fn from_a_folder_of_configurations_to_served_clients() {
    let lab = Lab::builder().clients(3).endpoints(6).start();
    let gw = lab.gw();
    let pool = Pool { lab: &lab };
    // The LAN shows who has spoken.
    for client in lab.clients() {
        assert!(client.ping("10.77.0.1".parse().unwrap()));
    }
    let bare = pool.kernel();
    let folder = lab.provider_dir();
    let made = gw.egressctl(&["init", "pool", "--configs", folder.to_str().unwrap()]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    for guess in
        ["guess: WAN is eth0", "guess: LAN is eth1", "5 slots, with 1 in reserve", "wireguard-go"]
    {
        assert!(made.stderr.contains(guess), "{guess}: {}", made.stderr);
    }
    assert_eq!(differences(&bare, &pool.kernel()), Vec::<String>::new());
    let mut policy: Value = serde_json::from_str(&made.stdout).unwrap();
    assert_eq!(policy["clients"], json!(["10.77.0.11", "10.77.0.12", "10.77.0.13"]));
    // The lab has no internet, so the pages that are asked are its own.
    policy["probe"] =
        json!({ "urls": [format!("http://{}/generate_204", names::PROBE)], "timeout_sec": 1 });
    policy["wan"] = json!({ "urls": [format!("http://{}/generate_204", names::WAN_PROBE)] });
    policy["params"] = json!({ "health_check_interval_sec": 0 });
    let _path = gw.policy("home", &policy);
    let checked = gw.egressctl(&["check", "home"]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    let step = pool.step();
    assert_eq!(step.went(), (Some(0), "-", "NORMAL"), "{step:#?}");
    let _exits = pool.serves(3);
    pool.nothing_leaked();
}

#[test]
fn with_nothing_to_make_a_policy_of_it_says_what_is_missing() {
    let lab = Lab::builder().clients(1).endpoints(2).start();
    let gw = lab.gw();
    let empty = lab.folder().join("empty");
    fs::create_dir(&empty).unwrap();
    let folder = lab.provider_dir();
    let (empty, good) = (empty.to_str().unwrap(), folder.to_str().unwrap());
    let refused = |args: &[&str], part: &str| {
        let outcome = gw.egressctl(args);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    };
    refused(&["init", "pool", "--configs", empty], "holds no *.conf");
    refused(&["init", "pool", "--configs", "/nowhere"], "the folder /nowhere cannot be read");
    refused(
        &["init", "tunnel", "--configs", good],
        "knows no kind \"tunnel\": it can make pool, selector",
    );
    gw.space().batch("route del default\n");
    refused(&["init", "pool", "--configs", good], "table main has no default route");
}
