//! A small world for the pure core: endpoints that live and die, a provider, an uplink, a clock, and
//! a kernel that is a value. It plays a step as the shell does, without the shell.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::format_push_string,
    clippy::too_many_lines,
    missing_docs,
    unreachable_pub,
    reason = "test code, and not every test uses all of it"
)]

mod answers;
mod input;
mod kernel;
mod law;
mod play;
mod story;

use egressctl::kernel::World;
use egressctl::machine::{Decision, Future, Owned, Subject};
use egressctl::names::{Interface, PolicyName};
use egressctl::observation::{Observation, Question};
use egressctl::plan::Step;
use egressctl::policy::{Policy, PoolPolicy};
use egressctl::pool::{Pool, PoolState};
use egressctl::time::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use answers::candidate;
pub use input::{Input, NAMES, few_inputs, inputs};
pub use kernel::{apply, same_world};
pub use law::{APART, key, lawful, serving};
pub use story::story;

/// How an endpoint behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// It carries requests.
    Alive,
    /// Nothing comes back.
    Dead,
    /// Another page answers in place of the asked one.
    Portal,
    /// Packets larger than 1280 bytes are eaten.
    SmallOnly,
    /// It answers its trial and nothing in its slot.
    TrialOnly,
    /// The machine cannot make the interface to try it on.
    Untried,
    /// Its file is not understood.
    Broken,
}

/// How the uplink behaves in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Uplink {
    /// It works.
    Up,
    /// It does not.
    Down,
    /// The references do not answer; tunnels work.
    ReferencesDown,
    /// It works until a change is being proven.
    FallsAtProof,
}

/// What the provider does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// It lists these.
    Lists(Vec<&'static str>),
    /// It does not answer.
    Unavailable,
    /// It lists these, and is reached through a tunnel that works and no other way.
    ByTunnel(Vec<&'static str>),
    /// It lists these to those who come by this tunnel, as long as that works.
    By(&'static str, Vec<&'static str>),
    /// It answers that it wants to be left alone for so long.
    Refuses(u64),
}

/// The world and what is remembered of it.
#[derive(Clone, Debug)]
pub struct Lab {
    pub policy: PoolPolicy,
    pub name: PolicyName,
    pub state: Option<PoolState>,
    pub owned: Owned,
    pub kernel: World,
    /// The nft text that was loaded last and its listing.
    pub loaded: Option<(String, String)>,
    pub endpoints: BTreeMap<String, Endpoint>,
    pub uplink: Uplink,
    pub source: Source,
    /// What the file of the standby describes, or why nothing.
    pub standby: Result<String, String>,
    /// Its peer's host, where that has a name.
    pub standby_host: Option<String>,
    /// What the resolver knows.
    pub names: BTreeMap<String, std::net::IpAddr>,
    /// What the provider calls this version of its list.
    pub tag: Option<String>,
    /// In which country an endpoint says that it is.
    pub countries: BTreeMap<String, String>,
    /// Whether probes cannot be made.
    pub blind: bool,
    pub now: Moment,
    /// Seconds that a trial takes.
    pub trial_sec: u64,
    /// Interfaces of our names that are not ours.
    pub strangers: BTreeSet<Interface>,
    /// The n-th command of the next plan fails.
    pub fail_at: Option<usize>,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing had to be done.
    Steady,
    /// Done and proven.
    Applied,
    /// These slots did not carry requests; the other future came true.
    Refused(BTreeMap<Interface, String>),
    /// The uplink fell; all was undone.
    Held,
    /// A command failed; all was undone.
    Undone,
}

/// A step as it was played.
#[derive(Clone, Debug)]
pub struct Played {
    pub before: Option<PoolState>,
    pub decision: Decision<PoolState>,
    /// What became of it when a slot did not carry requests.
    pub refused: Option<Future<PoolState>>,
    pub plan: Vec<Step>,
    pub outcome: Outcome,
    pub after: PoolState,
    /// The world before and after.
    pub was: World,
    pub is: World,
    pub seen: Observation,
}

impl Played {
    /// Where the machine stood and where it stands.
    pub fn transition(&self) -> (Option<String>, String) {
        (self.decision.from.clone(), self.after.mode.as_str().to_owned())
    }

    /// Codes of the reasons of the future that came true.
    pub fn codes(&self) -> Vec<String> {
        let future = self.refused.as_ref().unwrap_or(&self.decision.wished);
        future.reasons.iter().map(|reason| reason.code.clone()).collect()
    }
}

pub fn interface(name: &str) -> Interface {
    Interface::try_from(name.to_owned()).unwrap()
}

/// A policy of so many slots and clients, with `params` laid over.
pub fn policy(slots: usize, clients: usize, params: &serde_json::Value) -> PoolPolicy {
    policy_by(
        slots,
        clients,
        params,
        &serde_json::json!({ "directory": { "path": "/etc/egressctl/endpoints" } }),
    )
}

/// The same with another provider.
pub fn policy_by(
    slots: usize,
    clients: usize,
    params: &serde_json::Value,
    provider: &serde_json::Value,
) -> PoolPolicy {
    let interfaces: Vec<String> = (1..=slots).map(|n| format!("vpn{n}")).collect();
    let clients: Vec<String> = (1..=clients).map(|n| format!("10.77.0.{}", 10 + n)).collect();
    let text = serde_json::json!({
        "kind": "pool",
        "slots": { "interfaces": interfaces },
        "clients": clients,
        "lan_interfaces": ["eth1"],
        "wan_interface": "eth0",
        "provider": provider,
        "probe": { "urls": ["http://192.0.2.80/generate_204"],
                   "large": { "url": "http://192.0.2.80/large", "bytes": 1400 } },
        "wan": { "urls": ["http://192.0.2.90/"] },
        "test": { "parallel": 2 },
        "params": params,
    });
    let Policy::Pool(policy) = Policy::parse(&text.to_string()).expect("a good policy");
    policy
}

impl Lab {
    /// A world where every endpoint of the list lives.
    pub fn new(policy: PoolPolicy, names: &[&'static str]) -> Self {
        Self {
            policy,
            name: PolicyName::try_from("home".to_owned()).unwrap(),
            state: None,
            owned: Owned::default(),
            kernel: kernel::bare(),
            loaded: None,
            endpoints: names.iter().map(|name| ((*name).to_owned(), Endpoint::Alive)).collect(),
            uplink: Uplink::Up,
            source: Source::Lists(names.to_vec()),
            standby: Err("there is no file".to_owned()),
            standby_host: None,
            names: BTreeMap::new(),
            tag: None,
            countries: BTreeMap::new(),
            blind: false,
            now: Moment {
                at: "2026-01-01T00:00:00Z".parse().unwrap(),
                boot: "boot".to_owned(),
                up_ms: 1_000_000,
            },
            trial_sec: 0,
            strangers: BTreeSet::new(),
            fail_at: None,
        }
    }

    pub fn set(&mut self, names: &[&str], endpoint: Endpoint) {
        for name in names {
            self.endpoints.insert((*name).to_owned(), endpoint);
        }
    }

    pub fn later(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }

    pub fn tick(&mut self) {
        self.now = self.now.after(Duration::from_millis(1));
    }

    pub fn state(&self) -> &PoolState {
        self.state.as_ref().expect("stepped before")
    }

    fn subject(&self) -> Subject<'_, Pool> {
        Subject {
            name: &self.name,
            policy: &self.policy,
            state: self.state.as_ref(),
            paused: false,
            owned: &self.owned,
        }
    }

    /// The candidates that were tried.
    pub fn trials(played: &Played) -> BTreeSet<String> {
        played
            .seen
            .readings
            .keys()
            .filter_map(|question| {
                let Question::Trial(trial) = question else { return None };
                Some(trial.name.clone())
            })
            .collect()
    }
}
