//! A small world for the pure core: endpoints that live and die, a provider, an uplink, a clock, and
//! a kernel that is a value. It plays a step as the shell does, without the shell.
//!
//! `answers` says what the world answers, `kernel` what a command does to it, `packet` where a
//! client's packet goes in it, `play` makes a step, `scenario` reads a script, `timeline` plays one, and
//! `report` and `lines` tell what came of it.
//!
//! **Invariant:** nothing here has an effect or a clock; the same script gives the same timeline, byte
//! for byte.

mod answers;
mod kernel;
pub mod lines;
pub mod packet;
mod play;
mod report;
pub mod scenario;
pub mod timeline;

pub use answers::candidate;
pub use kernel::{apply, same_world};
pub use play::Proof;

use crate::kernel::{Ends, NftTable, World};
use crate::machine::{Decision, Future, Owned, ReasonText, Subject};
use crate::names::{Interface, PolicyName};
use crate::observation::Observation;
use crate::plan::Step;
use crate::policy::PoolPolicy;
use crate::pool::{Pool, PoolState};
use crate::time::Moment;
use jiff::Timestamp;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// When every world begins: a round moment, so that a timeline is easily read.
const BEGINNING: Timestamp = Timestamp::constant(1_767_225_600, 0);
/// How long the machine has been up then.
const UP_MS: i64 = 1_000_000;

/// What the endpoint is called that the standby's file describes. No endpoint of a scenario is: a
/// colon is in no name.
const STANDBY: &str = "standby:";

/// How an endpoint behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endpoint {
    /// It carries requests.
    #[serde(rename = "up")]
    Alive,
    /// It carries requests, and takes two seconds for each.
    Slow,
    /// Nothing comes back.
    #[serde(rename = "down")]
    Dead,
    /// Another page answers in place of the asked one.
    #[serde(rename = "wrong")]
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

impl Endpoint {
    /// How long a request by it takes; `None`: it is never answered as it should be.
    fn latency_ms(self) -> Option<u64> {
        match self {
            Self::Alive | Self::SmallOnly => Some(20),
            Self::Slow => Some(2_000),
            Self::Dead | Self::Portal | Self::TrialOnly | Self::Untried | Self::Broken => None,
        }
    }

    /// Whether a small request by it is answered within so long.
    #[must_use]
    pub fn carries(self, timeout_ms: u64) -> bool {
        self.latency_ms().is_some_and(|latency| latency <= timeout_ms)
    }
}

/// How the uplink behaves in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uplink {
    /// It works.
    Up,
    /// It does not.
    Down,
    /// The references do not answer; tunnels work.
    ReferencesDown,
    /// It works until a change is being proven, and again in the next step.
    FallsAtProof,
}

/// What the provider does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// It lists these.
    Lists(Vec<String>),
    /// It does not answer.
    Unavailable,
    /// It lists these, and is reached through a tunnel that works and no other way.
    ByTunnel(Vec<String>),
    /// It lists these to those who come by this tunnel, as long as that works.
    By(Interface, Vec<String>),
    /// It answers that it wants to be left alone for so many seconds.
    Refuses(u64),
}

impl Source {
    /// A provider that lists these.
    #[must_use]
    pub fn lists(names: &[&str]) -> Self {
        Self::Lists(names.iter().map(|name| (*name).to_owned()).collect())
    }

    /// One that lists these, and is reached through a tunnel alone.
    #[must_use]
    pub fn by_tunnel(names: &[&str]) -> Self {
        Self::ByTunnel(names.iter().map(|name| (*name).to_owned()).collect())
    }
}

/// The world, and what is remembered of it.
#[derive(Clone, Debug)]
pub struct Lab {
    /// What the operator wants.
    pub policy: PoolPolicy,
    /// The policy's name.
    pub name: PolicyName,
    /// What the machine remembers.
    pub state: Option<PoolState>,
    /// What it has made.
    pub owned: Owned,
    /// Our own objects in the kernel.
    pub kernel: World,
    /// The nft text that was loaded last and its listing.
    pub loaded: Option<(String, String)>,
    /// What would close the clients at boot.
    pub barrier: Option<String>,
    /// The pool's files: which ends a file is for, by generation and name.
    pub files: BTreeMap<(u32, String), Ends>,
    /// How each endpoint behaves.
    pub endpoints: BTreeMap<String, Endpoint>,
    /// How the uplink behaves.
    pub uplink: Uplink,
    /// What the provider does.
    pub source: Source,
    /// Which endpoint the file of the standby describes, or why none.
    pub standby: Result<String, String>,
    /// Its peer's host, where that has a name.
    pub standby_host: Option<String>,
    /// What the resolver knows of names beside those that it makes up.
    pub names: BTreeMap<String, IpAddr>,
    /// What the provider calls this version of its list.
    pub tag: Option<String>,
    /// In which country an endpoint says that it is.
    pub countries: BTreeMap<String, String>,
    /// Whether probes cannot be made.
    pub blind: bool,
    /// Whether host names are resolved.
    pub resolver: bool,
    /// The moment that it is.
    pub now: Moment,
    /// Seconds that a trial takes.
    pub trial_sec: u64,
    /// Bytes that tunnels have received since they were made, by their counters.
    pub received: BTreeMap<Interface, u64>,
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

/// Why no step came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The policy cannot be served on this machine as it is.
    Unable(Vec<ReasonText>),
    /// The program contradicts itself or the kernel, which is a fault of this program.
    Contradiction(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unable(why) => {
                let why: Vec<&str> = why.iter().map(|reason| reason.text.as_str()).collect();
                f.write_str(&why.join("; "))
            }
            Self::Contradiction(why) => write!(f, "a fault of this program: {why}"),
        }
    }
}

/// A step as it was played.
#[derive(Clone, Debug)]
pub struct Played {
    /// What was remembered before it.
    pub before: Option<PoolState>,
    /// What was decided.
    pub decision: Decision<PoolState>,
    /// What became of it when a slot did not carry requests.
    pub refused: Option<Future<PoolState>>,
    /// The commands of what was wished.
    pub plan: Vec<Step>,
    /// The commands of what came true, as many as were carried out.
    pub done: Vec<Step>,
    /// How it ended.
    pub outcome: Outcome,
    /// What is remembered after it.
    pub after: PoolState,
    /// Our own objects before it.
    pub was: World,
    /// Our own objects after it.
    pub is: World,
    /// What was seen.
    pub seen: Observation,
}

impl Played {
    /// Where the machine stood and where it stands.
    #[must_use]
    pub fn transition(&self) -> (Option<String>, String) {
        (self.decision.from.clone(), self.after.mode.as_str().to_owned())
    }

    /// The reasons of the future that came true.
    #[must_use]
    pub fn reasons(&self) -> &[ReasonText] {
        &self.refused.as_ref().unwrap_or(&self.decision.wished).reasons
    }

    /// Their codes.
    #[must_use]
    pub fn codes(&self) -> Vec<String> {
        self.reasons().iter().map(|reason| reason.code.clone()).collect()
    }

    /// The candidates that were tried.
    #[must_use]
    pub fn trials(&self) -> BTreeSet<String> {
        self.seen.trials().map(|(trial, _)| trial.name.clone()).collect()
    }
}

impl Lab {
    /// A world where every endpoint of the list lives.
    #[must_use]
    pub fn new(name: PolicyName, policy: PoolPolicy, names: &[&str]) -> Self {
        Self {
            kernel: kernel::bare(&policy),
            policy,
            name,
            state: None,
            owned: Owned::default(),
            loaded: None,
            barrier: None,
            files: BTreeMap::new(),
            endpoints: names.iter().map(|name| ((*name).to_owned(), Endpoint::Alive)).collect(),
            uplink: Uplink::Up,
            source: Source::lists(names),
            standby: Err("there is no file".to_owned()),
            standby_host: None,
            names: BTreeMap::new(),
            tag: None,
            countries: BTreeMap::new(),
            blind: false,
            resolver: true,
            now: Moment { at: BEGINNING, boot: "boot 1".into(), up_ms: UP_MS },
            trial_sec: 0,
            received: BTreeMap::new(),
            strangers: BTreeSet::new(),
            fail_at: None,
        }
    }

    /// Makes endpoints behave so from now on.
    pub fn set(&mut self, names: &[&str], endpoint: Endpoint) {
        for name in names {
            self.endpoints.insert((*name).to_owned(), endpoint);
        }
    }

    /// Lets the standby's file describe an endpoint that behaves so from now on.
    pub fn set_standby(&mut self, endpoint: Endpoint) {
        self.endpoints.insert(STANDBY.to_owned(), endpoint);
        self.standby = Ok(STANDBY.to_owned());
    }

    /// Lets time pass.
    pub fn later(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }

    /// Lets the shortest time pass that the machine can tell.
    pub fn tick(&mut self) {
        self.now = self.now.after(Duration::from_millis(1));
    }

    /// The machine reboots, and is up again at once: all that was made in the kernel is gone, and what closes the clients at
    /// boot is loaded. What is on disk stays.
    pub fn reboot(&mut self) {
        self.kernel = kernel::bare(&self.policy);
        self.kernel.nft = self.barrier.as_ref().map(|text| NftTable {
            name: self.name.nft_table(),
            text: text.clone(),
            listing: Some(text.clone()),
        });
        let boots = self.now.boot.rsplit(' ').next().and_then(|n| n.parse::<u32>().ok());
        self.now.boot = format!("boot {}", boots.unwrap_or(1).saturating_add(1)).into();
        self.now.up_ms = 0;
    }

    /// What the machine is asked about.
    #[must_use]
    pub fn subject(&self) -> Subject<'_, Pool> {
        Subject {
            name: &self.name,
            policy: &self.policy,
            state: self.state.as_ref(),
            paused: false,
            owned: &self.owned,
        }
    }
}
