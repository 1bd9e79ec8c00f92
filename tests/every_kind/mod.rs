//! A policy of every kind in trouble, as its status shows it in each of the ways in which it is shown.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of it")]

use crate::chain_world;
use crate::dns_world;
use crate::guard_world;
use crate::selector_world;
use crate::world;

use egressctl::chain::Chain;
use egressctl::day::Day;
use egressctl::dns::Dns;
use egressctl::graph::Graph;
use egressctl::guard::Guard;
use egressctl::machine::{Machine, ReasonText};
use egressctl::measure::Samples;
use egressctl::names::PolicyName;
use egressctl::outcome::Ending;
use egressctl::page::{Health, Panel, Row};
use egressctl::pool::Pool;
use egressctl::publish::Published;
use egressctl::record::{LastStep, Record};
use egressctl::selector::Selector;
use egressctl::status::Head;
use egressctl::time::Moment;
use jiff::SignedDuration;
use serde_json::json;
use std::time::Duration;
use world::Steps as _;

/// What a policy shows after a step, and the same some time later, in which nothing happened.
pub struct Shown {
    pub name: PolicyName,
    pub samples: Samples,
    pub published: Published,
    pub later: Published,
    /// What the page shows of it.
    pub panel: Panel,
    /// The picture of its machine.
    pub graph: Graph,
    /// When it was stepped.
    pub now: Moment,
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
    let (status, standing) = M::status(&name, policy, &record, now);
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
    let panel = Panel {
        head: Head::new(&name, M::KIND.as_str(), &record, record.machine.as_ref().map(M::stands)),
        standing,
        shown: M::shown(&status),
        day: day.clone(),
        history: Vec::new(),
    };
    Shown {
        panel,
        graph: Graph {
            title: M::KIND.as_str().to_owned(),
            edges: M::edges(),
            places: record.machine.as_ref().map(M::places).unwrap_or_default(),
        },
        now: now.clone(),
        samples: M::measured(&status),
        published: M::published(&status).with(&day, now.at),
        later: M::published(&later).with(&day, after.at),
        name,
    }
}

/// A policy of every kind, in trouble: names of strangers are as bad as they can be.
pub fn all_kinds() -> Vec<Shown> {
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
