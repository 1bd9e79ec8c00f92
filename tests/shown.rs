//! What is shown of a policy of every kind.

use crate::every_kind;
use crate::guard_world;

use egressctl::guard::Guard;
use egressctl::guard::state::Said;
use egressctl::machine::Machine;
use egressctl::names::PolicyName;
use egressctl::observation::Delay;
use egressctl::outcome::Ending;
use egressctl::page::{Health, Row, render};
use egressctl::publish::documents;
use egressctl::record::{LastStep, Record};
use egressctl::time::Moment;
use every_kind::all_kinds;
use guard_world::{AUTO, FAST, SLOW};
use serde_json::{Value, json};

fn name() -> PolicyName {
    PolicyName::try_from("home".to_owned()).unwrap()
}

/// A record after a step that began then and ended so.
fn record<S: Clone>(state: Option<&S>, at: &Moment, outcome: Ending) -> Record<S> {
    let last_step = LastStep {
        at: at.clone(),
        outcome,
        transition: None,
        duration_ms: 20,
        reasons: Vec::new(),
    };
    Record { machine: state.cloned(), last_step: Some(last_step), ..Record::default() }
}

/// The rows of a policy's page.
fn rows<M: Machine>(policy: &M::Policy, record: &Record<M::State>, now: &Moment) -> Vec<Row> {
    let (status, _) = M::status(&name(), policy, record, now);
    M::shown(&status).groups.into_iter().flat_map(|group| group.rows).collect()
}

#[test]
fn the_page_shows_what_is_the_matter_with_a_policy_of_every_kind() {
    let mut all = String::new();
    for shown in all_kinds() {
        let page = render(&[shown.panel], &[], shown.now.at).unwrap();
        let (_, rest) = page.split_once("<main>").unwrap();
        all += rest.split_once("</main>").unwrap().0;
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("page_of_every_kind", all));
    for badge in [
        "temporarily through channel-reserve",
        "temporarily through fi1",
        "exit temporarily through b2",
        "fi.example.org temporarily through DE",
    ] {
        assert!(all.contains(&format!("<span class=\"chip badge\">{badge}</span>")), "{badge}");
    }
}

#[test]
fn a_core_that_cannot_tell_says_nothing_against_a_member() {
    let policy = guard_world::policy(&json!({}));
    let mut play = guard_world::Play::new(&policy);
    play.step();
    play.after(30);
    let now = play.world.now.clone();
    let mut state = play.state.clone().unwrap();
    let said = |delay: Delay| Said { delay, at: now.clone() };
    state.said.insert(FAST.to_owned(), said(Delay::Unknown("the core did not answer".to_owned())));
    state.said.insert(SLOW.to_owned(), said(Delay::Failed));
    let record = record(Some(&state), &now, Ending::Steady);
    let health = |member: &str| {
        let rows = rows::<Guard>(&policy, &record, &now);
        let row = rows.iter().find(|row| row.name == member).unwrap();
        (row.health, row.why.clone())
    };
    assert_eq!(health(FAST), (Health::Unknown, "the core did not answer".to_owned()));
    assert_eq!(health(SLOW), (Health::Bad, "no answer".to_owned()));
    let (status, _) = Guard::status(&name(), &policy, &record, &now);
    let published = Guard::published(&status);
    let health = |member: &str| published.uptime[&format!("home/{member}")].health;
    assert_eq!((health(AUTO), health(FAST), health(SLOW)), ("healthy", "unknown", "failed"));
    let status = serde_json::to_value(&status).unwrap();
    let row = |member: &str| {
        let all = status["members"].as_array().unwrap();
        all.iter().find(|row| row["member"] == member).unwrap()["core"]["health"].clone()
    };
    assert_eq!((row(FAST), row(SLOW)), (json!("unknown"), json!("failed")));
}

#[test]
fn a_member_that_was_not_asked_yet_stays_in_the_documents() {
    let policy = guard_world::policy(&json!({}));
    let mut play = guard_world::Play::new(&policy);
    play.step();
    let mut state = play.state.clone().unwrap();
    state.said.clear();
    state.shown.clear();
    let record = record(Some(&state), &play.world.now, Ending::Steady);
    let (status, _) = Guard::status(&name(), &policy, &record, &play.world.now);
    let all = [(name(), Guard::published(&status))].into();
    let uptime: Value = serde_json::from_str(&documents(&all).unwrap()[1].1).unwrap();
    assert_eq!(uptime[format!("home/{AUTO}")]["health"], "unknown", "{uptime}");
}
