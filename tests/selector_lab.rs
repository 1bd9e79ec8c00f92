//! A selector with a real sing-box and two real tunnels: what a client sees.

use crate::lab;
use crate::real_core;

use lab::pool::Step;
use lab::{Lab, names};
use real_core::SingBox;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// No story here takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// As a client sees that a request left by endpoint `k`.
#[expect(clippy::unnecessary_wraps, reason = "a client sees an exit or none")]
fn exit(k: usize) -> Option<String> {
    Some(names::exit(k).to_string())
}

fn lab() -> Lab {
    Lab::builder().clients(1).endpoints(2).start()
}

fn step(lab: &Lab) -> Step {
    Step::of(lab.gw().egressctl(&["step", "home", "--json"]))
}

fn code_of(step: &Step) -> Vec<String> {
    let reasons = step.report["reasons"].as_array().cloned().unwrap_or_default();
    reasons.iter().map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
}

/// Steps, as a timer of a second does, until the machine stands there; all that was said meanwhile.
#[track_caller]
fn until(lab: &Lab, state: &str) -> Vec<String> {
    let begun = Instant::now();
    let mut said = Vec::new();
    loop {
        let step = step(lab);
        assert!(matches!(step.code, Some(0 | 3)), "{step:#?}");
        said.extend(code_of(&step));
        if step.word("to") == state {
            return said;
        }
        assert!(begun.elapsed() < LIMIT, "not {state}: {step:#?}\n{said:?}");
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// The pages of the probe are out of reach by endpoint 1, and nothing else is.
fn blind(lab: &Lab, blind: bool) {
    let rule = if blind {
        format!(
            "table ip blind {{ chain f {{ type filter hook forward priority -5; policy accept;\n\
             ip saddr {} ip daddr {} reject\n}}\n}}\n",
            names::exit(1),
            names::PROBE
        )
    } else {
        "delete table ip blind\n".to_owned()
    };
    lab.spaces().isp.nft(&rule);
}

fn policy(lab: &Lab, core: &SingBox<'_>, change: impl FnOnce(&mut Value)) {
    let mut policy = core.policy();
    change(&mut policy);
    lab.gw().policy("home", &policy);
}

#[test]
fn new_connections_move_and_return_while_open_ones_go_on() {
    let lab = lab();
    let mut core = SingBox::start(&lab, |_| {});
    policy(&lab, &core, |_| {});
    let (client, pid) = (lab.client(1), core.pid());
    until(&lab, "ON_PRIMARY");
    assert_eq!(client.exit(), exit(1), "{}", core.log());
    let mut tcp = client.tcp_flow().unwrap();
    let mut udp = client.udp_flow();
    assert_eq!((tcp.ping().ok(), udp.ping()), (exit(1), exit(1)));
    let download = client.download().unwrap();
    assert!(download.grows(Duration::from_secs(2)));
    // The primary's checks fail. What is received holds the switch up, and not for ever.
    blind(&lab, true);
    let begun = Instant::now();
    let said = until(&lab, "ON_RESERVE");
    assert!(said.contains(&"traffic-guard".to_owned()), "{said:?}");
    assert!(begun.elapsed() >= Duration::from_secs(6), "{said:?}");
    assert_eq!(client.exit(), exit(2));
    // What was open is where it was, and goes on.
    assert!(download.grows(Duration::from_secs(2)));
    assert_eq!((tcp.ping().ok(), udp.ping()), (exit(1), exit(1)));
    assert_eq!(client.udp_flow().ping(), exit(2));
    assert!(core.lives() && core.pid() == pid);
    // The old download lives on the primary, so it does not hold the way back.
    blind(&lab, false);
    let begun = Instant::now();
    let said = until(&lab, "ON_PRIMARY");
    assert!(begun.elapsed() >= Duration::from_secs(3), "{said:?}");
    assert_eq!(said.last().map(String::as_str), Some("primary-recovered"));
    assert_eq!(client.exit(), exit(1));
    assert!(download.grows(Duration::from_secs(2)) && core.lives());
    let history = lab.gw().egressctl(&["history", "home"]).stdout;
    assert!(history.contains("ON_RESERVE") && history.contains("ON_PRIMARY"), "{history}");
}

#[test]
fn a_download_holds_the_way_back_up_as_long_as_it_lasts() {
    let lab = lab();
    let core = SingBox::start(&lab, |_| {});
    policy(&lab, &core, |_| {});
    let client = lab.client(1);
    until(&lab, "ON_PRIMARY");
    blind(&lab, true);
    until(&lab, "ON_RESERVE");
    let download = client.download().unwrap();
    assert!(download.grows(Duration::from_secs(2)));
    blind(&lab, false);
    until(&lab, "PRIMARY_RECOVERING");
    let begun = Instant::now();
    let mut held = 0;
    while begun.elapsed() < Duration::from_secs(9) {
        let step = step(&lab);
        assert_eq!((step.code, step.word("to")), (Some(0), "PRIMARY_RECOVERING"), "{step:#?}");
        held += usize::from(code_of(&step).contains(&"traffic-guard".to_owned()));
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(held > 2, "held {held} times");
    drop(download);
    until(&lab, "ON_PRIMARY");
    assert_eq!(client.exit(), exit(1));
}

#[test]
fn a_dead_primary_is_left_its_connections_are_closed_where_wished_and_flapping_is_quarantined() {
    let lab = lab();
    let core = SingBox::start(&lab, |_| {});
    policy(&lab, &core, |policy| {
        policy["driver"]["clash"]["cut"] = json!("dead");
        policy["params"]["flap_limit"] = json!(1);
        policy["params"]["quarantine_sec"] = json!(8);
    });
    let client = lab.client(1);
    until(&lab, "ON_PRIMARY");
    let mut tcp = client.tcp_flow().unwrap();
    assert_eq!(tcp.ping().ok(), exit(1));
    lab.drop(1);
    let begun = Instant::now();
    until(&lab, "PRIMARY_QUARANTINED");
    let quarantined = Instant::now();
    eprintln!("on the reserve after {:?}", begun.elapsed());
    assert_eq!(client.exit(), exit(2));
    let ended = tcp.ping().unwrap_err();
    assert!(
        matches!(ended, std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::UnexpectedEof),
        "{ended:?}"
    );
    let status = lab.gw().egressctl(&["status", "home", "--json"]);
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["next"][1]["what"], "end of the quarantine", "{status:#}");
    lab.heal(1);
    until(&lab, "PRIMARY_RECOVERING");
    assert!(quarantined.elapsed() >= Duration::from_secs(7));
    until(&lab, "ON_PRIMARY");
    assert_eq!(client.exit(), exit(1));
}

#[test]
fn a_restart_that_forgets_is_mended_once_and_a_persons_choice_outlives_one_that_does_not() {
    let lab = lab();
    let mut core = SingBox::start(&lab, |config| {
        config["experimental"]["cache_file"]["enabled"] = json!(false);
    });
    policy(&lab, &core, |_| {});
    let client = lab.client(1);
    until(&lab, "ON_PRIMARY");
    blind(&lab, true);
    until(&lab, "ON_RESERVE");
    core.kill();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(code_of(&step(&lab)), ["core-down"]);
    core.up();
    assert_eq!(core.selected(), "channel-primary");
    let begun = Instant::now();
    while core.selected() != "channel-reserve" {
        step(&lab);
        assert!(begun.elapsed() < LIMIT);
    }
    assert_eq!(client.exit(), exit(2));
    let history = lab.gw().egressctl(&["history", "home"]).stdout;
    assert_eq!(history.matches("forgot its selection").count(), 1, "{history}");
    drop(core);
    // With a cache the core keeps what a person selected, so a change over a restart is a person's.
    let mut core = SingBox::start_again(&lab, |_| {});
    core.select("channel-primary");
    let begun = Instant::now();
    while !code_of(&step(&lab)).contains(&"persons-choice".to_owned()) {
        assert!(begun.elapsed() < LIMIT, "{}", lab.gw().egressctl(&["status", "home"]).stdout);
        std::thread::sleep(Duration::from_millis(300));
    }
    core.kill();
    core.up();
    std::thread::sleep(Duration::from_secs(1));
    assert!(code_of(&step(&lab)).contains(&"paused".to_owned()));
    assert_eq!((core.selected().as_str(), client.exit()), ("channel-primary", exit(1)));
}

#[test]
fn a_person_switches_by_hand_and_gives_back() {
    let lab = lab();
    let core = SingBox::start(&lab, |_| {});
    policy(&lab, &core, |_| {});
    let client = lab.client(1);
    until(&lab, "ON_PRIMARY");
    let said = lab.gw().egressctl(&["switch", "home", "channel-reserve"]);
    assert_eq!((said.code, client.exit()), (Some(0), exit(2)), "{said:?}");
    // Both answer for longer than any window, and nothing moves.
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(1_100));
        let step = step(&lab);
        assert_eq!((step.word("to"), code_of(&step)), ("ON_RESERVE", vec!["paused".to_owned()]));
    }
    assert_eq!(client.exit(), exit(2));
    assert_eq!(lab.gw().egressctl(&["resume", "home"]).code, Some(0));
    until(&lab, "ON_PRIMARY");
    assert_eq!(client.exit(), exit(1));
    lab.drop(2);
    std::thread::sleep(Duration::from_secs(1));
    step(&lab);
    let refused = lab.gw().egressctl(&["switch", "home", "channel-reserve"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("--force"), "{refused:?}");
}
