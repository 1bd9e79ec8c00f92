//! What Prometheus is given: sound to its own tool, of every kind; and alerts and panels that ask for
//! nothing else.

use crate::chain_world;
use crate::dns_world;
use crate::guard_world;
use crate::selector_world;
use crate::world;

use egressctl::chain::Chain;
use egressctl::day::Day;
use egressctl::dns::Dns;
use egressctl::guard::Guard;
use egressctl::machine::{Machine, ReasonText};
use egressctl::measure::{Family, Samples, text};
use egressctl::names::PolicyName;
use egressctl::outcome::Ending;
use egressctl::page::{Health, Row};
use egressctl::pool::Pool;
use egressctl::publish::{Published, documents};
use egressctl::record::{LastStep, Record};
use egressctl::selector::Selector;
use egressctl::time::Moment;
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use world::Steps as _;

/// What a policy shows after a step, and the same some time later, in which nothing happened.
struct Shown {
    name: PolicyName,
    samples: Samples,
    published: Published,
    later: Published,
}

fn shown<M: Machine>(
    name: &str,
    policy: &M::Policy,
    state: Option<M::State>,
    now: &Moment,
) -> Shown {
    let name = PolicyName::try_from(name.to_owned()).unwrap();
    let last_step = Some(LastStep {
        at: now.clone(),
        outcome: Ending::Applied,
        transition: None,
        duration_ms: 1_041,
        reasons: vec![ReasonText::new("x", "y")],
    });
    let record = Record { machine: state, last_step, ..Record::default() };
    let (status, _) = M::status(&name, policy, &record, now);
    let after = now.after(Duration::from_secs(7_200));
    let (later, _) = M::status(&name, policy, &record, &after);
    // All was well for two quarters of an hour, and then it was as it is.
    let mut day = Day::default();
    let mut rows: Vec<Row> =
        M::shown(&status).groups.into_iter().flat_map(|group| group.rows).collect();
    let is: Vec<Health> = rows.iter().map(|row| row.health).collect();
    for row in rows.iter_mut().filter(|row| row.health == Health::Bad) {
        row.health = Health::Good;
    }
    for minutes in [30, 15] {
        day.count(now.at - SignedDuration::from_mins(minutes), &rows);
    }
    for (row, health) in rows.iter_mut().zip(is) {
        row.health = health;
    }
    day.count(now.at, &rows);
    Shown {
        samples: M::measured(&status),
        published: M::published(&status).with(&day, now.at),
        later: M::published(&later).with(&day, after.at),
        name,
    }
}

/// A policy of every kind, in trouble: names of strangers are as bad as they can be.
fn all_kinds() -> Vec<Shown> {
    let mut all = Vec::new();
    let mut lab = world::lab_of(world::policy(2, 3, &json!({})), &["a\"b\\c", "b", "c", "d"]);
    for dead in [&[][..], &["b"], &["b"]] {
        lab.set(dead, world::Endpoint::Dead);
        lab.step();
        lab.later(10);
    }
    all.push(shown::<Pool>("home", &lab.policy, lab.state.clone(), &lab.now));
    let policy = selector_world::policy(&json!({}), "none");
    let mut play = selector_world::Play::new(&policy);
    play.step();
    play.world.primary = selector_world::Answer::Dead;
    for _ in 0..4 {
        play.after(60);
    }
    all.push(shown::<Selector>("channels", &policy, play.state.clone(), &play.world.now));
    let policy = guard_world::policy(&json!({}));
    let mut play = guard_world::Play::new(&policy);
    play.step();
    play.world.passes.remove(play.world.uses);
    for _ in 0..3 {
        play.after(30);
    }
    all.push(shown::<Guard>("group", &policy, play.state.clone(), &play.world.now));
    let policy = chain_world::policy(&chain_world::two_by_two(), &json!({}));
    let mut play = chain_world::Play::new(&policy);
    play.step();
    play.world.dead = ["b1"].into();
    play.after(15);
    all.push(shown::<Chain>("path", &policy, play.state.clone(), &play.world.now));
    let hosts = json!({ "fi.example.org": { "native": "fi", "fallbacks": ["de"] } });
    let mut lab = dns_world::Lab::new(dns_world::policy(2, &hosts, &json!({})));
    for life in [dns_world::Life::Alive, dns_world::Life::Dead, dns_world::Life::Dead] {
        lab.set(&["fi"], life);
        lab.next(30);
    }
    all.push(shown::<Dns>("names", &lab.policy, lab.state.clone(), &lab.now));
    all
}

fn promtool(args: &[&str], stdin: &str) -> (bool, String) {
    let mut child = Command::new("promtool")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is in Debian's package prometheus; tests/packages brings it");
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said.into_owned())
}

fn kept(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    // Another version is no news.
    let text = text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn the_metrics_of_every_kind_are_sound_to_promtool() {
    let samples = all_kinds().into_iter().map(|shown| shown.samples);
    let text = text(samples, "2026-03-01T13:00:00Z".parse().unwrap());
    kept("metrics_of_every_kind", &text);
    let (is_sound, said) = promtool(&["check", "metrics"], &text);
    assert!(is_sound && said.is_empty(), "{said}");
    // node_exporter passes a file over in which a sample has a time stamp.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let values = line
            .rsplit_once('}')
            .map_or_else(|| line.split_once(' ').unwrap().1, |(_, v)| v.trim());
        assert!(values.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn a_policy_that_was_never_stepped_is_told_too() {
    let lab = world::lab_of(world::policy(2, 3, &json!({})), &["a"]);
    let (status, standing) = Pool::status(&lab.name, &lab.policy, &Record::default(), &lab.now);
    assert_eq!(standing.as_str(), "stale");
    let text = text([Pool::measured(&status)], "2026-03-01T13:00:00Z".parse().unwrap());
    let stale = "egressctl_policy_standing{policy=\"home\",kind=\"pool\",standing=\"stale\"} 1";
    assert!(text.contains(stale) && !text.contains("pool_clients"), "{text}");
}

#[test]
fn every_kind_is_in_the_documents_and_they_do_not_change_while_nothing_happens() {
    let all = all_kinds();
    let of = |of: fn(&Shown) -> Published| -> Vec<(&'static str, String)> {
        let all: BTreeMap<PolicyName, Published> =
            all.iter().map(|shown| (shown.name.clone(), of(shown))).collect();
        documents(&all).unwrap()
    };
    let (now, later) = (of(|shown| shown.published.clone()), of(|shown| shown.later.clone()));
    for ((name, text), (_, later)) in now.iter().zip(&later) {
        kept(&format!("{}_of_every_kind", name.trim_end_matches(".json")), text);
        // Hours later fewer checks lie within the last 24 hours; nothing else may move.
        let still = |text: &str| -> Vec<String> {
            text.lines()
                .filter(|line| !line.contains("uptime_percent"))
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(still(text), still(later), "{name}");
    }
    let failover: Value = serde_json::from_str(&now[0].1).unwrap();
    for name in ["home", "channels", "group", "path/entry", "path/exit", "fi.example.org"] {
        assert!(failover[name]["why"].is_string(), "{name}: {failover}");
    }
    // What fails was well before; what nobody knows has no figure.
    let uptime: Value = serde_json::from_str(&now[1].1).unwrap();
    let entries = uptime.as_object().unwrap();
    let mut failed = BTreeSet::new();
    for (name, entry) in entries {
        let percent = entry["uptime_percent"].as_f64();
        match entry["health"].as_str().unwrap() {
            "healthy" => assert_eq!(percent, Some(100.0), "{name}: {uptime}"),
            "failed" => {
                assert!(percent.is_some_and(|p| p > 30.0 && p < 100.0), "{name}: {uptime}");
                failed.insert(entry["policy"].as_str().unwrap());
            }
            _ => assert_eq!(percent, None, "{name}: {uptime}"),
        }
    }
    let expected: BTreeSet<&str> = ["channels", "home", "names", "path"].into();
    assert_eq!(failed, expected, "the guard uses another, of which its core thinks well");
}

fn monitoring() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/monitoring")
}

fn file(name: &str) -> String {
    std::fs::read_to_string(monitoring().join(name)).unwrap()
}

/// The metrics of ours that a text asks for.
fn asked_for(text: &str) -> BTreeSet<&str> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    text.split(word).filter(|name| name.starts_with("egressctl_")).collect()
}

fn is_known(name: &str) -> bool {
    Family::ALL.iter().any(|family| family.name() == name)
}

#[test]
fn the_alerts_are_sound_and_fire_when_they_should() {
    let rules = monitoring().join("alerts.yml");
    let (is_sound, said) = promtool(&["check", "rules", rules.to_str().unwrap()], "");
    assert!(is_sound, "{said}");
    let tests = monitoring().join("alerts.test.yml");
    let (passes, said) = promtool(&["test", "rules", tests.to_str().unwrap()], "");
    assert!(passes, "{said}");
    let (rules, tests) = (file("alerts.yml"), file("alerts.test.yml"));
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(&format!("alertname: {alert}\n")), "{alert} is not tested");
    }
    let asked = asked_for(&rules);
    assert!(asked.len() > 5, "{asked:?}");
    for name in asked {
        assert!(is_known(name), "alerts.yml asks for {name}");
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_are_there() {
    let text = file("dashboard.json");
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut rules = "groups:\n- name: panels\n  rules:\n".to_owned();
    let mut seen = 0;
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
    {
        let expression = target["expr"].as_str().unwrap();
        for name in asked_for(expression) {
            assert!(is_known(name), "a panel asks for {name}");
        }
        // Prometheus' own tool reads each expression as that of a rule.
        let plain = expression.replace("$policy", ".*").replace("$__range", "1h");
        rules += &format!("  - record: panel_{seen}\n    expr: {}\n", json!(plain));
        seen += 1;
    }
    assert!(seen > 8, "{seen}");
    // Where something stands, and what has gone elsewhere, is seen of every kind.
    let asked = asked_for(&text);
    for name in [
        "policy_state",
        "host_state",
        "hop_state",
        "standby_up",
        "selector_failovers",
        "host_moves",
    ] {
        assert!(asked.contains(format!("egressctl_{name}").as_str()), "no panel shows {name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("panels.yml");
    std::fs::write(&path, rules).unwrap();
    let (is_sound, said) = promtool(&["check", "rules", path.to_str().unwrap()], "");
    assert!(is_sound, "{said}");
}
