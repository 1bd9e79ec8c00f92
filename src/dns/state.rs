//! What is remembered of nodes and host names from one run to the next.
//!
//! **Invariant:** what is published is what was last written or adopted, never what is wished; a
//! write that nobody could read back is kept apart until it shows.

use super::name::{HostName, NodeName};
use super::uptime::Uptime;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Where a host name stands: whether its record holds its native.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// It does.
    Native,
    /// It does, and the native fails checks.
    NativeFailing,
    /// It does not.
    Fallback,
    /// It does not, and the native passes checks again.
    NativeRecovering,
    /// It does not, and will not for a time: the native failed too often.
    NativeQuarantined,
    /// No node is eligible: the record stays as it is.
    Stranded,
}

impl Mode {
    /// As written in state, reports and the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "NATIVE",
            Self::NativeFailing => "NATIVE_FAILING",
            Self::Fallback => "FALLBACK",
            Self::NativeRecovering => "NATIVE_RECOVERING",
            Self::NativeQuarantined => "NATIVE_QUARANTINED",
            Self::Stranded => "STRANDED",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// All that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsState {
    /// Where all hosts stand, in words.
    pub stands: String,
    /// Since when.
    pub since: Moment,
    /// Rounds in a row that were not believed because most nodes failed in them.
    pub discarded: u32,
    /// The nodes.
    pub nodes: BTreeMap<NodeName, Node>,
    /// The host names whose records were ever seen.
    pub hosts: BTreeMap<HostName, Host>,
    /// The last good addresses of the reference's hosts.
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
    /// What a person asked for, until the next step.
    pub wish: Option<Wish>,
}

/// A person's `switch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// The host name.
    pub host: HostName,
    /// The node.
    pub node: NodeName,
    /// Whether it is taken although it does not serve.
    pub force: bool,
}

/// What the last check of a node showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It lives.
    Passed,
    /// It does not.
    Failed,
    /// Nobody knows.
    Unknown,
}

/// Checks in a row, of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streak {
    /// What the last round showed.
    pub verdict: Verdict,
    /// Failed checks in a row.
    pub failures: u32,
    /// Passed checks in a row.
    pub passes: u32,
    /// When a check was last counted.
    pub counted_at: Option<Moment>,
    /// What the last check showed, for people.
    pub why: String,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The address that it was checked at.
    pub address: Ipv4Addr,
    /// Whether it counts as living.
    pub up: bool,
    /// Since when.
    pub since: Moment,
    /// Its own checks.
    pub checks: Streak,
    /// How long its last passed check took.
    pub latency_ms: Option<u64>,
    /// How often it passed.
    pub uptime: Uptime,
}

/// Why a host name is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PauseWhy {
    /// Its record was none of ours when it was first seen, or cannot be one.
    Foreign,
    /// Somebody else changed its record.
    Edited,
    /// A person said so.
    Person,
}

/// That a host name is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPause {
    /// Why.
    pub why: PauseWhy,
    /// Since when.
    pub at: Moment,
}

/// How a record is taken up at the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Adopt {
    /// As on the first run.
    Look,
    /// A record that is none of ours is replaced: a person said `resume` of this host.
    Replace,
}

/// A wish to be left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    /// When it was said.
    pub at: Moment,
    /// For how long.
    pub sec: u64,
}

/// The last move of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// When it was decided.
    pub at: Moment,
    /// Why.
    pub why: String,
}

/// What is remembered of a fallback of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Whether it serves in the native's place; `None`: its own check says that as well.
    pub serves: Option<Streak>,
    /// When it left a record of several addresses because it failed, within the window.
    pub left: Vec<Moment>,
    /// Since when it is passed over.
    pub quarantined: Option<Moment>,
    /// How far it is from its next turn.
    pub credit: i64,
}

/// A host name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Where it stands.
    pub mode: Mode,
    /// Since when.
    pub since: Moment,
    /// The node that it belongs to, as the policy said when this was written.
    pub native: NodeName,
    /// The nodes in the record, each with its address there.
    pub published: BTreeMap<NodeName, Ipv4Addr>,
    /// The addresses that were last written or adopted. Anything else is somebody else's.
    pub ours: BTreeSet<Ipv4Addr>,
    /// The record's TTL as last seen.
    pub ttl: Option<u32>,
    /// Why the record could not be read the last time.
    pub unreadable: Option<String>,
    /// Whether it is left alone.
    pub paused: Option<HostPause>,
    /// How its record is taken up at the next step.
    pub adopt: Option<Adopt>,
    /// When its stay away from the native began.
    pub stay: Option<Moment>,
    /// When the record left the native, within the window.
    pub left: Vec<Moment>,
    /// Since when the native is not returned to.
    pub quarantined: Option<Moment>,
    /// That no write is wished for a time.
    pub leave: Option<Leave>,
    /// What was written and could not be read back.
    pub unproven: Option<Box<Host>>,
    /// The fallbacks.
    pub members: BTreeMap<NodeName, Member>,
    /// When nodes last took turns, or the record was last taken up.
    pub rotated: Option<Moment>,
    /// The last move.
    pub moved: Option<Moved>,
}

impl Streak {
    /// Nothing counted.
    #[must_use]
    pub fn new() -> Self {
        Self {
            verdict: Verdict::Unknown,
            failures: 0,
            passes: 0,
            counted_at: None,
            why: String::new(),
        }
    }

    /// Counts a check. One that is further from the last than `apart` begins a new row; an unknown
    /// one adds and clears nothing.
    pub fn count(&mut self, verdict: Verdict, why: &str, now: &Moment, apart: Duration) {
        self.verdict = verdict;
        why.clone_into(&mut self.why);
        if self.counted_at.as_ref().is_none_or(|at| now.since(at) > apart) {
            self.begin_anew();
        }
        match verdict {
            Verdict::Passed => {
                self.passes = self.passes.saturating_add(1);
                self.failures = 0;
            }
            Verdict::Failed => {
                self.failures = self.failures.saturating_add(1);
                self.passes = 0;
            }
            Verdict::Unknown => return,
        }
        self.counted_at = Some(now.clone());
    }

    /// No check is in a row any more.
    pub fn begin_anew(&mut self) {
        self.failures = 0;
        self.passes = 0;
    }
}

impl Default for Streak {
    fn default() -> Self {
        Self::new()
    }
}

impl Node {
    /// A node that was never checked: it is not down until checks say so.
    #[must_use]
    pub fn new(address: Ipv4Addr, now: &Moment) -> Self {
        Self {
            address,
            up: true,
            since: now.clone(),
            checks: Streak::new(),
            latency_ms: None,
            uptime: Uptime::default(),
        }
    }
}

impl Host {
    /// A host name whose record is about to be taken up.
    #[must_use]
    pub fn new(native: &NodeName, now: &Moment) -> Self {
        Self {
            mode: Mode::Native,
            since: now.clone(),
            native: native.clone(),
            published: BTreeMap::new(),
            ours: BTreeSet::new(),
            ttl: None,
            unreadable: None,
            paused: None,
            adopt: Some(Adopt::Look),
            stay: None,
            left: Vec::new(),
            quarantined: None,
            leave: None,
            unproven: None,
            members: BTreeMap::new(),
            rotated: None,
            moved: None,
        }
    }

    /// Whether its record holds its native.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.published.contains_key(&self.native)
    }

    /// Changes where it stands.
    pub fn enter(&mut self, mode: Mode, now: &Moment) {
        if self.mode != mode {
            self.mode = mode;
            self.since = now.clone();
        }
    }

    /// What the names of its published nodes are, for people.
    #[must_use]
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.published.keys().map(NodeName::as_str).collect();
        names.join(" ")
    }
}

impl DnsState {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(now: &Moment) -> Self {
        Self {
            stands: stands(&BTreeMap::new()),
            since: now.clone(),
            discarded: 0,
            nodes: BTreeMap::new(),
            hosts: BTreeMap::new(),
            addresses: BTreeMap::new(),
            wish: None,
        }
    }

    /// Says anew where all hosts stand.
    pub fn restate(&mut self, now: &Moment) {
        let stands = stands(&self.hosts);
        if stands != self.stands {
            self.stands = stands;
            self.since = now.clone();
        }
    }
}

/// Where all hosts stand, in words: of one host its state, of several each with its name.
#[must_use]
pub fn stands(hosts: &BTreeMap<HostName, Host>) -> String {
    let all: Vec<String> = match hosts.len() {
        0 => return "UNREAD".to_owned(),
        1 => hosts.values().map(|host| host.mode.to_string()).collect(),
        _ => hosts.iter().map(|(name, host)| format!("{name} {}", host.mode)).collect(),
    };
    all.join(", ")
}
