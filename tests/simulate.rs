//! `egressctl simulate`: scripted worlds through the same decisions, without rights and without a network.

use crate::states;

use egressctl::kernel::nft::is_open;
use egressctl::names::PolicyName;
use egressctl::pool::state::Mode;
use egressctl::simulate::packet::{Exit, Layers, new_flow};
use egressctl::simulate::scenario::{PolicySource, Scenario};
use egressctl::simulate::timeline::{Entry, Timeline, Way};
use serde_json::{Value, json};
use states::STATES;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;

fn trial() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/scenarios/full-trial.json")
}

fn timeline(text: &str) -> Timeline {
    let scenario = Scenario::parse(text).unwrap_or_else(|fault| panic!("{fault}"));
    let PolicySource::Inline(policy) = scenario.policy.clone() else { panic!("it is inline") };
    scenario.play(PolicyName::try_from("home".to_owned()).unwrap(), *policy)
}

/// The transitions that the steps made, in their order.
fn transitions(entries: &[Entry]) -> Vec<String> {
    entries.iter().filter_map(|entry| entry.step.as_ref()?.transition()).collect()
}

/// A scenario of two slots, with these events.
fn small(events: &Value, until_sec: u64) -> Value {
    json!({
        "policy": {
            "kind": "pool",
            "slots": { "interfaces": ["vpn1", "vpn2"] },
            "clients": ["10.77.0.11", "10.77.0.12"],
            "lan_interfaces": ["eth1"],
            "wan_interface": "eth0",
            "provider": { "directory": { "path": "/etc/egressctl/endpoints" } },
            "params": { "local_repair_retest_count": 1 },
        },
        "world": { "endpoints": { "a": "up", "b": "up", "c": "up" } },
        "events": events,
        "until_sec": until_sec,
    })
}

/// Runs the program, as anybody may, with nothing to be found on its path.
fn run(args: &[&str]) -> Output {
    assert_cmd::Command::cargo_bin("egressctl")
        .unwrap()
        .env_clear()
        .arg("simulate")
        .args(args)
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn complaint(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A scenario in a file.
fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn the_full_trial_goes_through_every_state_and_comes_back() {
    let text = std::fs::read_to_string(trial()).unwrap();
    let entries: Vec<Entry> = timeline(&text).collect();
    let made = transitions(&entries);
    let reached: Vec<&str> = made.iter().map(|made| made.split(" -> ").nth(1).unwrap()).collect();
    assert_eq!(reached, STATES, "as on real tunnels");
    let serving: BTreeSet<usize> = entries.iter().map(|entry| entry.serving.len()).collect();
    assert_eq!(serving, (0..=5).collect(), "it consolidates on fewer and fewer");
    let last = entries.last().unwrap();
    assert!(last.serving.values().all(|name| name.starts_with('r')), "{:?}", last.serving);
    assert!(last.clients.values().all(|way| matches!(way, Way::Slot(_))), "{:?}", last.clients);
    let said = |code: &str| {
        entries.iter().flat_map(|e| &e.step).flat_map(|s| &s.reasons).any(|r| r.code == code)
    };
    assert!(said("lending") && said("standby-raised") && said("standby-lowered"), "13, 14");
    let quarantined = |name: &str| {
        entries
            .iter()
            .flat_map(|e| &e.step)
            .flat_map(|s| &s.reasons)
            .any(|reason| reason.code == "quarantined" && reason.text.starts_with(name))
    };
    assert!(["p1", "p2", "p3", "p4", "p5", "p6"].iter().all(|name| quarantined(name)));
}

#[test]
fn a_reboot_at_any_point_of_the_trial_opens_the_wan_to_nobody_whom_the_machine_had_not_put_there() {
    let text = std::fs::read_to_string(trial()).unwrap();
    let mut timeline = timeline(&text);
    let (mut reboots, mut in_direct, mut before) = (0, 0, None);
    let mut states = BTreeSet::new();
    while let Some(entry) = timeline.next() {
        let lab = timeline.lab();
        if entry.events.iter().any(|event| event.contains("reboot")) {
            reboots += 1;
            assert!(entry.step.is_none(), "it is looked at before the first step");
            let state = lab.state.as_ref().unwrap();
            states.insert(state.mode.as_str());
            assert!(lab.kernel.tunnels.is_empty() && lab.kernel.rules.is_empty());
            let barrier = &lab.kernel.nft.as_ref().expect("the barrier is loaded").text;
            assert_eq!(is_open(barrier), state.mode.is_direct());
            in_direct += usize::from(state.mode.is_direct());
            let closed = if state.mode.is_direct() { Way::Direct } else { Way::Closed };
            assert!(entry.clients.values().all(|way| *way == closed), "{:?}", entry.clients);
            before = Some(state.mode);
        } else if let Some(mode) = before.take() {
            let after = lab.state.as_ref().unwrap().mode;
            let leaves_at_once = (Mode::DirectEmergency, Mode::BootstrapRecovery);
            assert!(
                after == mode || (mode, after) == leaves_at_once,
                "{mode}, then {after}: the next step does not carry on from there"
            );
        }
    }
    assert!(reboots >= 13 && in_direct >= 5, "{reboots} {in_direct}");
    assert_eq!(states.len(), 7, "in every state: {states:?}");
}

#[test]
fn each_layer_closes_the_clients_when_the_other_is_gone_at_every_moment_of_the_trial() {
    let text = std::fs::read_to_string(trial()).unwrap();
    let mut timeline = timeline(&text);
    let mut looked = 0;
    while timeline.next().is_some() {
        let lab = timeline.lab();
        let state = lab.state.as_ref().unwrap();
        for net in lab.policy.client_prefixes() {
            let exit = |layers| new_flow(&lab.kernel, net, "eth0", layers);
            if !lab.kernel.rules.is_empty() {
                assert_eq!(exit(Layers::RulesAlone), Exit::Refused);
                looked += 1;
            }
            if !state.mode.is_direct() {
                assert_eq!(exit(Layers::NftAlone), Exit::Refused);
                assert_ne!(exit(Layers::Both), Exit::Wan);
            }
        }
    }
    assert!(looked > 500, "{looked}");
}

#[test]
fn the_program_plays_the_trial_without_rights_programs_or_places_and_says_the_same_twice() {
    let path = trial();
    let began = std::time::Instant::now();
    let first = run(&[path.to_str().unwrap()]);
    println!(
        "the full trial takes {} ms, the program's start included",
        began.elapsed().as_millis()
    );
    assert_eq!(first.status.code(), Some(0), "{}", complaint(&first));
    let text = out(&first);
    assert_eq!(text, out(&run(&[path.to_str().unwrap()])));
    for said in [
        "* 1: the endpoint of vpn3 dies",
        "full-trial: NORMAL -> LOCAL_REPAIR: vpn3 silent for 2 checks; 1 client moved to vpn4",
        "clients: 7 by the WAN",
        "more steps like it",
    ] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
    let json = out(&run(&[path.to_str().unwrap(), "--json"]));
    let entries: Vec<Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(entries[0]["step"]["policy"], "full-trial");
    assert_eq!(entries[0]["serving"]["vpn1"], "p1");
    assert_eq!(entries[0]["clients"]["10.77.0.11"], "vpn1");
    let reboot = entries.iter().find(|entry| entry["step"].is_null()).unwrap();
    assert!(reboot["events"][0].as_str().unwrap().starts_with("1:"), "{reboot}");
}

#[test]
fn what_a_person_does_is_an_event_too() {
    let events = json!([
        { "at_sec": 15, "switch": "vpn1=c" },
        { "at_sec": 25, "refresh": true },
        { "at_sec": 65, "switch": "direct" },
        { "at_sec": 85, "switch": "auto" },
    ]);
    let entries: Vec<Entry> = timeline(&small(&events, 100).to_string()).collect();
    let at = |sec: u64| entries.iter().find(|entry| entry.at_sec == sec).unwrap();
    assert_eq!(at(10).serving.values().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(at(15).serving.values().collect::<Vec<_>>(), ["c", "b"]);
    assert_eq!(transitions(&entries)[1], "NORMAL -> FULL_POOL_REFRESH");
    assert!(at(65).clients.values().all(|way| *way == Way::Direct));
    let held = &at(75).step.as_ref().unwrap().reasons;
    assert_eq!(held[0].code, "paused");
    assert!(at(85).clients.values().all(|way| matches!(way, Way::Slot(_))), "{:?}", at(85));
}

#[test]
fn a_wan_that_is_down_moves_nothing_and_slow_endpoints_serve() {
    let events = json!([
        { "at_sec": 15, "wan": "down" },
        { "at_sec": 65, "wan": "up" },
        { "at_sec": 75, "endpoints": { "a": "slow", "b": "wrong" } },
    ]);
    let entries: Vec<Entry> = timeline(&small(&events, 110).to_string()).collect();
    let made = transitions(&entries);
    assert_eq!(made, ["none -> NORMAL", "NORMAL -> LOCAL_REPAIR", "LOCAL_REPAIR -> NORMAL"]);
    assert!(entries.iter().filter(|e| e.at_sec < 75).all(|e| e.serving.len() == 2));
    let last: Vec<&String> = entries.last().unwrap().serving.values().collect();
    assert_eq!(last, ["a", "c"]);
}

#[test]
fn a_policy_may_be_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut scenario = small(&json!([]), 20);
    let policy = scenario["policy"].take();
    written(folder.path(), "house.json", &policy.to_string());
    scenario["policy"] = json!("house.json");
    let path = written(folder.path(), "story.json", &scenario.to_string());
    let output = run(&[&path]);
    assert_eq!(output.status.code(), Some(0), "{}", complaint(&output));
    assert!(out(&output).contains("house: none -> NORMAL"), "{}", out(&output));
}

#[test]
fn an_invalid_scenario_is_refused_with_its_place_and_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |text: &str| {
        let output = run(&[&written(folder.path(), "s.json", text)]);
        assert_eq!((output.status.code(), out(&output)), (Some(2), String::new()), "{text}");
        complaint(&output)
    };
    let good =
        serde_json::to_string_pretty(&small(&json!([{ "at_sec": 5, "wan": "up" }]), 9)).unwrap();
    for (old, new, said) in [
        ("until_sec", "until_secs", "unknown key \"until_secs\" at line"),
        ("at_sec", "at_second", "did you mean \"at_sec\"?"),
        ("endpoints\": {", "endpoint\": {", "did you mean \"endpoints\"?"),
        ("wan_interface", "wan_iface", "did you mean \"wan_interface\"?"),
        ("\"wan\": \"up\"", "\"wan\": \"uphill\"", "unknown variant `uphill`"),
        ("\"a\": \"up\"", "\"a\": \"well\"", "unknown variant `well`"),
        ("\"at_sec\": 5", "\"at_sec\": 50", "an event at 50 s is after the end at 9 s"),
        ("\"a\": \"up\"", "\"../a\": \"up\"", "cannot name an endpoint"),
        ("\"kind\": \"pool\"", "\"kind\": \"pol\"", "unknown kind \"pol\""),
        ("[\n        \"vpn1\",", "[\n        \"vpn2\",", "vpn2"),
    ] {
        assert!(good.contains(old), "{old}");
        let complaint = refused(&good.replace(old, new));
        assert!(complaint.contains(said), "{said:?} is not in {complaint:?}");
    }
    let place = refused(&good.replace("wan_interface", "wan_iface"));
    let line = good.lines().position(|line| line.contains("wan_interface")).unwrap() + 1;
    assert!(place.contains(&format!("at line {line} column ")), "{place}");
    let lists =
        good.replace("\"endpoints\": {", "\"provider\": { \"lists\": [\"z\"] }, \"endpoints\": {");
    assert!(refused(&lists).contains("lists \"z\", which is no endpoint"));
    let missing = run(&["/nowhere/s.json"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(complaint(&missing).contains("scenario /nowhere/s.json cannot be read"));
    let mut named = small(&json!([]), 5);
    named["policy"] = json!("gone.json");
    assert!(refused(&named.to_string()).contains("gone.json cannot be read"));
}
