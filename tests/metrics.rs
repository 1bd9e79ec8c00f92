//! What Prometheus is given: sound to its own tool, of every kind; and alerts and panels that ask for
//! nothing else.

use crate::every_kind;
use crate::world;

use egressctl::machine::Machine as _;
use egressctl::measure::{Family, text};
use egressctl::names::PolicyName;
use egressctl::pool::Pool;
use egressctl::publish::{Published, documents};
use egressctl::record::Record;
use every_kind::{Shown, all_kinds};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
