//! Endpoints that may fill a slot, and the lists that they come in.
//!
//! **Invariant:** nothing here holds a key that opens anything; the keys stay in the pool's files.

use crate::kernel::{ConfigRef, Ends};
use crate::observation::Validators;
use crate::time::Moment;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// One endpoint as a provider offered it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name, unique within its list.
    pub name: String,
    /// Its file in the pool.
    pub config: ConfigRef,
    /// The keys at both ends; the endpoint in it is unset until the host is resolved.
    pub ends: Ends,
    /// The peer's host, an address or a name.
    pub host: String,
    /// The peer's port.
    pub port: u16,
    /// Its own addresses, each as /32 or /128.
    pub addresses: BTreeSet<IpNet>,
    /// The MTU that its file asks for.
    pub mtu: Option<u16>,
    /// Where it says it is.
    #[serde(default)]
    pub country: Option<String>,
    /// The city there.
    #[serde(default)]
    pub city: Option<String>,
    /// What its file was asked for by, where a provider gives each server a file of its own.
    #[serde(default)]
    pub origin: Option<String>,
}

/// The folder of the pool that holds the copy of the standby's file. Lists are numbered from 1.
pub const STANDBY_GENERATION: u32 = 0;

/// Which endpoint this is, whatever a list calls it: the peer's key and where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EndpointId(String);

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Candidate {
    /// Its own addresses of IPv4, which every tunnel has.
    pub fn addresses4(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.addresses.iter().filter(|net| net.addr().is_ipv4()).copied()
    }

    /// Which endpoint this is.
    #[must_use]
    pub fn endpoint(&self) -> EndpointId {
        EndpointId(format!("{}@{}:{}", self.ends.peer, self.host, self.port))
    }

    /// Whether both are the same endpoint.
    #[must_use]
    pub fn same_endpoint(&self, other: &Self) -> bool {
        // Large lists are compared with every slot, so nothing is written down for it.
        self.ends.peer == other.ends.peer && self.port == other.port && self.host == other.host
    }

    /// Whether both would be up with the same pair of keys, which a server takes for one client
    /// that roams back and forth.
    #[must_use]
    pub fn same_pair(&self, other: &Self) -> bool {
        self.ends.own == other.ends.own && self.ends.peer == other.ends.peer
    }
}

/// An entry of a list that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
}

/// What a test of a candidate showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tested {
    /// It carried requests.
    Passed {
        /// When.
        at: Moment,
        /// The fastest good answer.
        latency_ms: u64,
    },
    /// It did not.
    Failed {
        /// When.
        at: Moment,
        /// Why.
        why: String,
    },
}

/// A provider's list and what is known of its entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// Its folder in the pool.
    pub generation: u32,
    /// When it was fetched.
    pub fetched_at: Moment,
    /// Its usable entries, in the provider's order. Shared, because a step makes several states of
    /// one and a list may have ten thousand.
    pub candidates: Arc<Vec<Candidate>>,
    /// What tells it from a newer one, where its provider says so.
    #[serde(default)]
    pub validators: Option<Validators>,
    /// Entries that cannot be used, as many as are kept for people to read.
    #[serde(default)]
    pub left_out: Vec<Rejected>,
    /// What their tests showed, by name. Shared likewise.
    #[serde(default)]
    pub tested: Arc<BTreeMap<String, Tested>>,
    /// Candidates that passed their test and failed in a slot, and how often; tried after all others.
    #[serde(default)]
    pub struck: BTreeMap<String, u32>,
}

impl List {
    /// A list whose candidates have not been tested.
    #[must_use]
    pub fn new(
        generation: u32,
        fetched_at: Moment,
        candidates: impl Into<Arc<Vec<Candidate>>>,
    ) -> Self {
        let (tested, struck) = (Arc::default(), BTreeMap::new());
        let (validators, left_out, candidates) = (None, Vec::new(), candidates.into());
        Self { generation, fetched_at, candidates, validators, left_out, tested, struck }
    }

    /// Candidates that passed, the best first: the least often struck, then by latency, then
    /// as listed.
    #[must_use]
    pub fn passed(&self) -> Vec<&Candidate> {
        let mut passed: Vec<(u32, u64, &Candidate)> = self
            .candidates
            .iter()
            .filter_map(|candidate| match self.tested.get(&candidate.name)? {
                Tested::Passed { latency_ms, .. } => {
                    let struck = self.struck.get(&candidate.name).copied().unwrap_or(0);
                    Some((struck, *latency_ms, candidate))
                }
                Tested::Failed { .. } => None,
            })
            .collect();
        passed.sort_by_key(|(struck, latency, _)| (*struck, *latency));
        passed.into_iter().map(|(_, _, candidate)| candidate).collect()
    }

    /// Notes what a test showed.
    pub fn note(&mut self, name: String, tested: Tested) {
        Arc::make_mut(&mut self.tested).insert(name, tested);
    }

    /// Notes that a candidate failed in a slot.
    pub fn strike(&mut self, name: &str) {
        let struck = self.struck.entry(name.to_owned()).or_default();
        *struck = struck.saturating_add(1);
    }

    /// Candidates that were not tested yet, as listed.
    #[must_use]
    pub fn untested(&self) -> Vec<&Candidate> {
        self.candidates.iter().filter(|c| !self.tested.contains_key(&c.name)).collect()
    }
}
