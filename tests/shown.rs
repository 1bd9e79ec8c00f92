//! What is shown of a policy and what of it counts as checked: the page of every kind, and what is only
//! remembered.

use crate::chain_world;
use crate::dns_world;
use crate::every_kind;
use crate::guard_world;
use crate::selector_world;
use crate::world;

use egressctl::chain::Chain;
use egressctl::day::{Day, Quarter};
use egressctl::dns::Dns;
use egressctl::guard::Guard;
use egressctl::guard::state::Said;
use egressctl::machine::Machine;
use egressctl::names::PolicyName;
use egressctl::observation::Delay;
use egressctl::outcome::Ending;
use egressctl::page::{Health, Row, render};
use egressctl::pool::Pool;
use egressctl::publish::documents;
use egressctl::record::{LastStep, Record};
use egressctl::selector::Selector;
use egressctl::time::Moment;
use every_kind::all_kinds;
use guard_world::{AUTO, FAST, SLOW};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use world::Steps as _;

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

/// The parts of which a step that began then and ended so counts anything.
fn counted<M: Machine>(
    policy: &M::Policy,
    record: &Record<M::State>,
    now: &Moment,
) -> BTreeMap<String, Quarter> {
    let rows = rows::<M>(policy, record, now);
    let mut day = Day::default();
    day.count(record.last_step.as_ref().unwrap().at.at, &rows);
    let of = |row: &Row| (row.part.clone(), *day.of(&row.part, now.at).last().unwrap());
    rows.iter().map(of).filter(|(_, quarter)| *quarter != Quarter::Nothing).collect()
}

fn parts(counted: &BTreeMap<String, Quarter>) -> Vec<&str> {
    counted.keys().map(String::as_str).collect()
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
    let counted = counted::<Guard>(&policy, &record, &now);
    assert_eq!(counted[&format!("member {FAST}")], Quarter::Unknown);
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

#[test]
fn a_step_of_a_guard_counts_the_members_that_it_has_asked_and_no_other() {
    let policy = guard_world::policy(&json!({}));
    let mut play = guard_world::Play::new(&policy);
    play.step();
    play.world.passes.remove(play.world.uses);
    for _ in 0..5 {
        if play.stands() != "TEMPORARY" {
            play.after(30);
        }
    }
    assert_eq!(play.stands(), "TEMPORARY");
    // The group was found wanting, so all were measured.
    let at = play.world.now.clone();
    let record_then = record(play.state.as_ref(), &at, Ending::Applied);
    let all = counted::<Guard>(&policy, &record_then, &at);
    assert!(all.contains_key("member fi1") && all.contains_key("member us1"), "{all:?}");
    // The member that stands in is asked at each step, the others once in a while.
    play.after(30);
    let at = play.world.now.clone();
    let state = play.state.as_ref();
    let some = counted::<Guard>(&policy, &record(state, &at, Ending::Steady), &at);
    assert_eq!(parts(&some), ["member auto", "member fi1"], "{some:?}");
    // What it remembers says nothing of a time at which it could not look.
    play.world.later(30);
    let at = play.world.now.clone();
    let none = counted::<Guard>(&policy, &record(play.state.as_ref(), &at, Ending::Failed), &at);
    assert_eq!(parts(&none), [""; 0], "{none:?}");
}

#[test]
fn a_chain_that_nobody_could_ask_counts_nothing() {
    let policy = chain_world::policy(&chain_world::two_by_two(), &json!({}));
    let mut play = chain_world::Play::new(&policy);
    play.step();
    play.world.dead = ["b1"].into();
    play.after(15);
    let at = play.world.now.clone();
    let record_then = record(play.state.as_ref(), &at, Ending::Applied);
    let shown = rows::<Chain>(&policy, &record_then, &at);
    let is = |part: &str| shown.iter().find(|row| row.part == part).unwrap().health;
    assert_eq!((is("hop exit b1"), is("hop exit b2")), (Health::Bad, Health::Good));
    let then = counted::<Chain>(&policy, &record_then, &at);
    assert!(then.contains_key("hop exit b1") && then.contains_key("path"), "{then:?}");
    // While the core is down nobody is asked, and all nodes are shown as they were.
    play.world.core_up = false;
    play.after(15);
    let at = play.world.now.clone();
    let record_now = record(play.state.as_ref(), &at, Ending::Steady);
    let shown = rows::<Chain>(&policy, &record_now, &at);
    assert_eq!(shown.iter().find(|row| row.part == "hop exit b1").unwrap().health, Health::Bad);
    let now = counted::<Chain>(&policy, &record_now, &at);
    assert_eq!(parts(&now), [""; 0], "{now:?}");
}

#[test]
fn a_step_that_did_not_look_counts_nothing_of_any_kind() {
    let looked = [Ending::Steady, Ending::Applied, Ending::RolledBack];
    let did_not = [Ending::Failed, Ending::Recovered];
    let mut lab = world::lab_of(world::policy(2, 3, &json!({})), &["a", "b", "c", "d"]);
    lab.step();
    lab.later(10);
    lab.step();
    let slots = |ending: Ending, paused: Option<Moment>| {
        let record = Record { paused, ..record(lab.state.as_ref(), &lab.now, ending) };
        let counted = counted::<Pool>(&lab.policy, &record, &lab.now);
        parts(&counted).join(" ")
    };
    for ending in looked {
        assert_eq!(slots(ending, None), "slot vpn1 slot vpn2", "{ending:?}");
        assert_eq!(slots(ending, Some(lab.now.clone())), "", "nothing is judged under a pause");
    }
    for ending in did_not {
        assert_eq!(slots(ending, None), "", "{ending:?}");
    }

    let policy = selector_world::policy(&json!({}), "none");
    let mut play = selector_world::Play::new(&policy);
    play.step();
    let at = play.world.now.clone();
    let then = counted::<Selector>(&policy, &record(play.state.as_ref(), &at, Ending::Steady), &at);
    assert_eq!(parts(&then), ["primary", "reserve"]);
    // The core was down: its channels are remembered as they were, and nobody has asked them.
    play.world.core_up = false;
    play.after(60);
    let at = play.world.now.clone();
    let record_now = record(play.state.as_ref(), &at, Ending::Steady);
    assert!(rows::<Selector>(&policy, &record_now, &at).iter().all(|r| r.health == Health::Good));
    let now = counted::<Selector>(&policy, &record_now, &at);
    assert_eq!(parts(&now), [""; 0], "{now:?}");

    let hosts = json!({ "fi.example.org": { "native": "fi", "fallbacks": ["de"] } });
    let mut lab = dns_world::Lab::new(dns_world::policy(2, &hosts, &json!({})));
    lab.next(30);
    let of = |lab: &dns_world::Lab| {
        let record = record(lab.state.as_ref(), &lab.now, Ending::Steady);
        let counted = counted::<Dns>(&lab.policy, &record, &lab.now);
        parts(&counted).join(" ")
    };
    assert_eq!(of(&lab), "host fi.example.org node de node fi");
    // While the machine itself is offline no round counts.
    lab.online = dns_world::Online::No;
    lab.next(30);
    assert_eq!(of(&lab), "");
}
