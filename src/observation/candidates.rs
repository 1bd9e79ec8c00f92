//! A provider's list and the trial of a candidate.
//!
//! **Invariant:** whether the provider itself answered is told apart from whether it gave a list.

use super::Pages;
use crate::kernel::ConfigRef;
use crate::kernel::diff::Means;
use crate::names::{Interface, Mark};
use crate::policy::pool::{Provider, Wanted};
use crate::pool::candidate::{Candidate, Rejected};
use crate::time::Moment;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A request for the provider's list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListQuestion {
    /// The source.
    pub provider: Provider,
    /// Which of its entries are wanted.
    pub wanted: Wanted,
    /// The folder that the candidates' files go into.
    pub generation: u32,
    /// Whether the program that configures tunnels understands AmneziaWG.
    pub amnezia: bool,
    /// The way to a source in the network; `None`: as the machine's own packets go.
    pub via: Option<ListVia>,
    /// The last good addresses of the source's hosts; a host that is not among them is resolved
    /// while asking.
    pub names: BTreeMap<String, Vec<IpAddr>>,
    /// What tells the list at hand from a newer one; `None`: there is none at hand.
    pub known: Option<Validators>,
    /// Candidates at hand. Where a source gives each server a file of its own, these are not asked
    /// for again, so what failed its test is left out. A long list is thinned out around them.
    pub have: Arc<Vec<Candidate>>,
}

/// The way to a source in the network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListVia {
    /// The device that requests must leave by.
    pub device: Interface,
    /// The mark that they carry, where the routing rules know one for the device.
    pub mark: Option<Mark>,
}

/// What tells one version of a list from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Validators {
    /// The server's tag of the version.
    pub etag: Option<String>,
    /// When the list was last changed, as the server wrote it.
    pub last_modified: Option<String>,
    /// A hash of where it came from and what was wanted of it. After a change of the policy the
    /// same list gives other candidates.
    pub of: String,
}

/// What the provider said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListReading {
    /// A list.
    Listed {
        /// The usable candidates, in the provider's order, names unique. Shared with the
        /// states that are made of them.
        candidates: Arc<Vec<Candidate>>,
        /// What is unusable, and why.
        rejected: Vec<Rejected>,
        /// To ask next time whether it changed.
        validators: Option<Validators>,
    },
    /// The list at hand is still the newest.
    Unchanged,
    /// No list.
    Unavailable {
        /// Why not, and what to do.
        why: String,
        /// Whether the source itself answered, which proves the way to it.
        answered: bool,
        /// How long the source wishes not to be asked.
        retry_after_sec: Option<u64>,
    },
}

/// A candidate tried on a test interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trial {
    /// The candidate's name.
    pub name: String,
    /// Its file.
    pub config: ConfigRef,
    /// The test interface.
    pub interface: Interface,
    /// How it is made.
    pub means: Means,
    /// Its peer's literal address.
    pub endpoint: SocketAddr,
    /// What its own packets carry, so that rules lead them; `None`: nothing.
    pub fwmark: Option<Mark>,
    /// Its own addresses.
    pub addresses: Vec<IpNet>,
    /// Its MTU.
    pub mtu: u16,
    /// The pages that must answer through it, and how long that may take.
    pub pages: Pages,
    /// A larger page that must answer too.
    pub large: Option<Pages>,
    /// A candidate that has not shaken hands by then is given up.
    pub handshake_ms: u64,
    /// How often it is tried again.
    pub retries: u32,
    /// Whether it is asked once more when it carries, so that no handshake is in its latency.
    pub warm: bool,
}

/// How a trial went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialReading {
    /// When it ended.
    pub at: Moment,
    /// What it showed.
    pub result: TrialResult,
}

/// What a trial showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrialResult {
    /// It carries requests.
    Passed {
        /// The fastest good answer.
        latency_ms: u64,
    },
    /// It does not.
    Failed {
        /// Why.
        why: String,
    },
    /// The machine could not try it, which says nothing about the candidate.
    NotTried {
        /// Why not.
        why: String,
    },
    /// Nothing was tried, because nothing may be changed; the plan assumes that it passes.
    Assumed,
}
