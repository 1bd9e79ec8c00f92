//! What a chain remembers.
//!
//! **Invariant:** a hop's node is what was last read back, never what is wished; hops stand in the
//! order of the policy.

use super::marks::Marks;
use super::name::{HopName, NodeName};
use super::tunnels::Tunnels;
use super::under_way::{Seats, UnderWay};
use crate::clash::choice::Confirmed;
use crate::policy::chain::{self as policy, Strategy};
use crate::proxy::Shown;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// Where a hop stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// The preferred node carries.
    Preferred,
    /// Another one does.
    Backup,
    /// Another one does, and the preferred one passes again.
    Returning,
    /// No node passes, and the preferred one stays in place.
    LastResort,
    /// No node passes.
    Closed,
}

impl Mode {
    /// As written in state, reports and the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Preferred => "PREFERRED",
            Self::Backup => "BACKUP",
            Self::Returning => "RETURNING",
            Self::LastResort => "LAST_RESORT",
            Self::Closed => "CLOSED",
        }
    }

    /// Whether no node passes.
    #[must_use]
    pub fn is_down(self) -> bool {
        match self {
            Self::LastResort | Self::Closed => true,
            Self::Preferred | Self::Backup | Self::Returning => false,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A node that was measured faster than the one that carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Better {
    /// The node.
    pub node: NodeName,
    /// In how many rounds in a row.
    pub rounds: u32,
}

/// Why a hop is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PauseWhy {
    /// A person said so.
    Person,
    /// A person chose a node.
    Chosen,
}

/// That a hop is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopPause {
    /// Why.
    pub why: PauseWhy,
    /// Since when.
    pub at: Moment,
}

/// A hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopState {
    /// Its name.
    pub name: HopName,
    /// What the driver calls it.
    pub group: String,
    /// Where it stands.
    pub mode: Mode,
    /// Since when.
    pub since: Moment,
    /// Whether it was never seen to pass: nothing is waited for until then.
    pub is_new: bool,
    /// What was last read back.
    pub confirmed: Confirmed,
    /// How often in a row each node was blamed.
    pub blamed: BTreeMap<NodeName, u32>,
    /// How often in a row the preferred node passed its test while another carries.
    pub passes: u32,
    /// Since when another node than the preferred one carries.
    pub stay: Option<Moment>,
    /// Nodes that are not returned to.
    pub marks: Marks,
    /// Nodes that a search which had to stop has tried.
    pub tried: BTreeSet<NodeName>,
    /// In how many steps in a row no node passed.
    pub down_steps: u32,
    /// The fastest node, where that is the preferred one.
    pub winner: Option<NodeName>,
    /// A faster one.
    pub better: Option<Better>,
    /// When a node was put in place, or could not be.
    pub changed: Option<Moment>,
    /// What each node showed when it was last asked.
    pub shown: BTreeMap<NodeName, Shown>,
    /// Why it is left alone.
    pub paused: Option<HopPause>,
}

/// A person's `switch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// The hop.
    pub hop: HopName,
    /// The node.
    pub node: NodeName,
}

/// All that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainState {
    /// Where all hops stand, in words.
    pub stands: String,
    /// Since when.
    pub since: Moment,
    /// The hops.
    pub hops: Vec<HopState>,
    /// What the whole path showed when it was last asked.
    pub path: Option<Shown>,
    /// How often in a row the whole path failed where no hop can be blamed for it.
    pub path_failures: u32,
    /// How far a search over combinations has come.
    pub place: usize,
    /// When a service refused to be told how often to try again.
    pub retries_refused: Option<Moment>,
    /// Whether the next check counts nothing.
    pub settle: bool,
    /// Why what the hops are made of could not be used at the last look.
    pub trouble: Option<String>,
    /// The last good addresses of the uplink's references.
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
    /// The tunnels, where the chain is made of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnels: Option<Tunnels>,
    /// What a person asked for, until the next step.
    pub wish: Option<Wish>,
    /// What is being tried, within a run.
    #[serde(skip)]
    pub under_way: Option<Box<UnderWay>>,
}

impl HopState {
    /// A hop that was never seen to pass.
    #[must_use]
    pub fn new(wanted: &policy::Hop, confirmed: Confirmed, now: &Moment) -> Self {
        let mut hop = Self {
            name: wanted.name.clone(),
            group: wanted.group.clone(),
            mode: Mode::Preferred,
            since: now.clone(),
            is_new: true,
            winner: None,
            confirmed,
            blamed: BTreeMap::new(),
            passes: 0,
            stay: None,
            marks: Marks::default(),
            tried: BTreeSet::new(),
            down_steps: 0,
            better: None,
            changed: None,
            shown: BTreeMap::new(),
            paused: None,
        };
        // The first one that is seen is the fastest one as far as anybody knows.
        hop.winner = hop.node(wanted).map(|node| node.name.clone());
        hop.mode = hop.carried_mode(wanted);
        hop.stay = (hop.mode == Mode::Backup).then(|| now.clone());
        hop
    }

    /// The node that carries; `None`: what carries is no node of the policy.
    #[must_use]
    pub fn node<'a>(&self, wanted: &'a policy::Hop) -> Option<&'a policy::Node> {
        wanted.of_member(&self.confirmed.member)
    }

    /// The preferred node. `None`: whichever carries.
    #[must_use]
    pub fn preferred<'a>(&self, wanted: &'a policy::Hop) -> Option<&'a policy::Node> {
        let first = wanted.nodes.first();
        match wanted.strategy {
            Strategy::Fifo => first,
            Strategy::Round => self.node(wanted).or(first),
            Strategy::LowestLatency => {
                self.winner.as_ref().and_then(|name| wanted.node(name)).or(first)
            }
        }
    }

    /// Where it stands if what is in place carries.
    #[must_use]
    pub fn carried_mode(&self, wanted: &policy::Hop) -> Mode {
        let (node, preferred) = (self.node(wanted), self.preferred(wanted));
        if node.is_some() && node == preferred { Mode::Preferred } else { Mode::Backup }
    }

    /// Changes where it stands.
    pub fn enter(&mut self, mode: Mode, now: &Moment) {
        if self.mode != mode {
            self.mode = mode;
            self.since = now.clone();
        }
    }

    /// Another node is in place, and carries.
    pub fn put(&mut self, wanted: &policy::Hop, confirmed: Confirmed, now: &Moment) {
        self.confirmed = confirmed;
        let mode = self.carried_mode(wanted);
        self.enter(mode, now);
        self.stay = (mode == Mode::Backup).then(|| now.clone());
        self.passes = 0;
        self.down_steps = 0;
        self.tried.clear();
        self.better = None;
        self.changed = Some(now.clone());
        if let Some(node) = self.node(wanted) {
            self.blamed.remove(&node.name);
            self.marks.returned(&node.name, now);
        }
    }

    /// Counters and windows begin anew; history and marks stay.
    pub fn begin_anew(&mut self, now: &Moment) {
        self.blamed.clear();
        self.passes = 0;
        self.tried.clear();
        self.better = None;
        self.stay = self.stay.is_some().then(|| now.clone());
        if self.mode == Mode::Returning {
            self.enter(Mode::Backup, now);
        }
    }
}

impl ChainState {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(now: &Moment) -> Self {
        Self {
            stands: stands(&[]),
            since: now.clone(),
            hops: Vec::new(),
            path: None,
            path_failures: 0,
            place: 0,
            retries_refused: None,
            settle: false,
            trouble: None,
            addresses: BTreeMap::new(),
            tunnels: None,
            wish: None,
            under_way: None,
        }
    }

    /// The same with this in the hops' places.
    #[must_use]
    pub fn seated(&self, seats: &Seats) -> Self {
        let mut state = self.clone();
        for (hop, seat) in state.hops.iter_mut().zip(seats) {
            hop.confirmed.member.clone_from(seat);
        }
        state
    }

    /// Says anew where all hops stand.
    pub fn restate(&mut self, now: &Moment) {
        let stands = stands(&self.hops);
        if stands != self.stands {
            self.stands = stands;
            self.since = now.clone();
        }
    }
}

/// Where all hops stand, in words: of one hop its state, of several each with its name.
#[must_use]
pub fn stands(hops: &[HopState]) -> String {
    let all: Vec<String> = match hops {
        [] => return "UNSEEN".to_owned(),
        [one] => vec![one.mode.to_string()],
        several => several.iter().map(|hop| format!("{} {}", hop.name, hop.mode)).collect(),
    };
    all.join(", ")
}
