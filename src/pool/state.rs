//! What a pool remembers from one run to the next.
//!
//! **Invariant:** the state alone, with the policy, says what the kernel should look like.

use super::candidate::{Candidate, EndpointId, List, Tested};
pub use super::slot::{Content, Slot, Verdict};
use super::standby::Standby;
use super::taken::Taken;
use super::wish::Wish;
use crate::names::Interface;
use crate::policy::ClientKey;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// Where the recovery plan stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// Every slot serves.
    Normal,
    /// A slot is being brought back.
    LocalRepair,
    /// A new pool is being fetched, tested and loaded.
    FullPoolRefresh,
    /// Fewer good endpoints than wished; service goes on with those that work.
    DegradedPool,
    /// Nothing is left to fill an empty slot with; the rest carries all clients.
    SlotExhausted,
    /// No slot serves: clients were put where the policy says.
    DirectEmergency,
    /// Clients are there, and the way back is being looked for.
    BootstrapRecovery,
}

impl Mode {
    /// As written in state, reports and the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "NORMAL",
            Self::LocalRepair => "LOCAL_REPAIR",
            Self::FullPoolRefresh => "FULL_POOL_REFRESH",
            Self::DegradedPool => "DEGRADED_POOL",
            Self::SlotExhausted => "SLOT_EXHAUSTED",
            Self::DirectEmergency => "DIRECT_EMERGENCY",
            Self::BootstrapRecovery => "BOOTSTRAP_RECOVERY",
        }
    }

    /// Whether the pool has given its clients up for now.
    #[must_use]
    pub fn is_direct(self) -> bool {
        match self {
            Self::DirectEmergency | Self::BootstrapRecovery => true,
            Self::Normal
            | Self::LocalRepair
            | Self::FullPoolRefresh
            | Self::DegradedPool
            | Self::SlotExhausted => false,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// All that a pool remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolState {
    /// Where the recovery plan stands.
    pub mode: Mode,
    /// Since when.
    pub since: Moment,
    /// Whether a set of slots was ever verified, which is when the clients were taken over.
    pub proven: bool,
    /// The next step only looks: the WAN was down or a step was undone for it.
    pub settle: bool,
    /// A person took everything down: nothing is in the kernel, and all else is as it was.
    #[serde(default)]
    pub retired: bool,
    /// The list that the slots are filled from.
    pub pool: Option<List>,
    /// A newer list that is being tested and loaded.
    pub fresh: Option<List>,
    /// A newer list that gave too few to end Direct, while the last pool is tried in its place.
    #[serde(default)]
    pub short: Option<List>,
    /// The highest generation that was ever fetched.
    pub last_generation: u32,
    /// The slots.
    pub slots: BTreeMap<Interface, Slot>,
    /// Endpoints that serve nobody without a new list and a new test.
    pub quarantine: BTreeMap<EndpointId, Quarantined>,
    /// Where each client belongs; given once.
    pub homes: BTreeMap<ClientKey, Interface>,
    /// Where each client is.
    pub egress: BTreeMap<ClientKey, Egress>,
    /// Successful loads by a repair since the last full refresh.
    pub repair_events_since_full_refresh: u32,
    /// When the provider was last asked or its list last tried.
    pub refresh_tried_at: Option<Moment>,
    /// What a person asked for, until the next step.
    #[serde(default)]
    pub wish: Option<Wish>,
    /// When a person, or the plan itself, asked for a full refresh.
    pub refresh_asked: Option<Moment>,
    /// Since when no slot serves.
    pub none_serves_since: Option<Moment>,
    /// The last step in which that was so.
    #[serde(default)]
    pub none_serves_seen: Option<Moment>,
    /// The last list that was refused for being short, and how often it came.
    #[serde(default)]
    pub short_list: Option<ShortList>,
    /// Why the last refresh came to nothing; `None` once one came to something.
    #[serde(default)]
    pub refresh_failed: Option<String>,
    /// Devices by which nobody answered in the refresh that runs.
    #[serde(default)]
    pub ways_failed: BTreeSet<Interface>,
    /// How often the provider refused in a row.
    #[serde(default)]
    pub refusals: u32,
    /// How long it is left alone since it was last tried.
    #[serde(default)]
    pub refusal_wait_sec: Option<u64>,
    /// The way out of Direct.
    pub bootstrap: Bootstrap,
    /// The standby tunnel, where the policy has one.
    #[serde(default)]
    pub standby: Option<Standby>,
    /// What was last found out about the machine, for when it cannot be seen.
    pub surroundings: Option<Surroundings>,
    /// The last good answers of the resolver.
    pub names: BTreeMap<String, Vec<IpAddr>>,
    /// The uplink's own exit address.
    pub wan_exit_ip: Option<IpAddr>,
}

/// An endpoint that serves nobody for now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// Its name when it was quarantined.
    pub name: String,
    /// Since when.
    pub since: Moment,
    /// Why.
    pub why: String,
}

/// Where the flows that a client opens go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Egress {
    /// By a slot.
    Slot(Interface),
    /// By the WAN.
    Direct,
    /// Nowhere.
    None,
}

/// What was found out about the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The uplink.
    pub wan: Interface,
    /// Its MTU.
    pub wan_mtu: u32,
    /// Where clients are.
    pub lan: BTreeSet<Interface>,
    /// What clients reach without a slot.
    pub local4: Vec<ipnet::Ipv4Net>,
    /// The LAN's IPv6 prefixes.
    pub local6: Vec<ipnet::Ipv6Net>,
    /// The gateway's own addresses, which are nobody's client.
    pub own: BTreeSet<IpAddr>,
    /// The WAN's own subnet, where a neighbour may be.
    pub wan_net: Option<ipnet::Ipv4Net>,
    /// Local users by number.
    pub users: BTreeMap<String, u32>,
}

/// A list that was refused for being short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortList {
    /// Its endpoints.
    pub endpoints: BTreeSet<EndpointId>,
    /// How often it came.
    pub times: u32,
}

/// The way out of Direct.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// The way through which the provider was last reached.
    pub transport: Option<Transport>,
    /// Ways that failed since the last set was proven.
    pub failed: Vec<FailedWay>,
}

/// A way through which the provider answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// A slot, in place or lent.
    Slot(Interface),
    /// The standby tunnel.
    Standby(Interface),
    /// The uplink itself.
    Wan,
}

/// A way that can be tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// A slot whose own probe passes, where it is.
    InPlace(Interface),
    /// A candidate of the last pool, by its name, in the lent slot.
    Cached(String),
    /// The standby tunnel.
    Standby(Interface),
    /// The uplink itself.
    Wan,
}

/// A way that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedWay {
    /// Which.
    pub way: Way,
    /// When last.
    pub at: Moment,
    /// Why.
    pub why: String,
    /// How often.
    pub times: u32,
}

impl PoolState {
    /// Nothing known yet: the first run.
    #[must_use]
    pub fn new(now: &Moment) -> Self {
        Self {
            mode: Mode::FullPoolRefresh,
            since: now.clone(),
            proven: false,
            settle: false,
            retired: false,
            pool: None,
            fresh: None,
            short: None,
            last_generation: 0,
            slots: BTreeMap::new(),
            quarantine: BTreeMap::new(),
            homes: BTreeMap::new(),
            egress: BTreeMap::new(),
            repair_events_since_full_refresh: 0,
            refresh_tried_at: None,
            wish: None,
            refresh_asked: None,
            none_serves_since: None,
            none_serves_seen: None,
            short_list: None,
            refresh_failed: None,
            ways_failed: BTreeSet::new(),
            refusals: 0,
            refusal_wait_sec: None,
            bootstrap: Bootstrap::default(),
            standby: None,
            surroundings: None,
            names: BTreeMap::new(),
            wan_exit_ip: None,
        }
    }

    /// Whether an endpoint is quarantined.
    #[must_use]
    pub fn is_quarantined(&self, candidate: &Candidate) -> bool {
        !self.quarantine.is_empty() && self.quarantine.contains_key(&candidate.endpoint())
    }

    /// Whether a slot carries clients: loaded, not quarantined, not failed.
    #[must_use]
    pub fn serves(&self, interface: &Interface) -> bool {
        self.slots.get(interface).is_some_and(|slot| {
            !slot.failed && slot.loaded().is_some_and(|candidate| !self.is_quarantined(candidate))
        })
    }

    /// Whether an endpoint, or its pair of keys, is up on any slot or as the standby.
    #[must_use]
    pub fn is_active(&self, candidate: &Candidate) -> bool {
        if self.standby_holds(candidate) {
            return true;
        }
        self.slots
            .values()
            .filter_map(Slot::candidate)
            .any(|active| active.same_endpoint(candidate) || active.same_pair(candidate))
    }

    /// Whether an endpoint is up in another slot than this one.
    #[must_use]
    pub fn is_elsewhere(&self, interface: &Interface, candidate: &Candidate) -> bool {
        self.slots
            .iter()
            .filter(|(other, _)| *other != interface)
            .filter_map(|(_, slot)| slot.candidate())
            .any(|active| active.same_endpoint(candidate))
    }

    /// Everything that is up in a slot, or is the standby's: what [`Self::is_active`] says of one,
    /// for asking it of many.
    pub(super) fn active(&self) -> Taken<'_> {
        let standby = self.standby.iter().filter(|standby| standby.up || standby.reserves);
        let standby = standby.filter_map(|standby| standby.candidate.as_ref());
        self.slots.values().filter_map(Slot::candidate).chain(standby).collect()
    }

    /// Tested candidates of this generation, neither active nor quarantined, the best first.
    #[must_use]
    pub fn reserve(&self) -> Vec<&Candidate> {
        let active = self.active();
        self.pool
            .iter()
            .flat_map(List::passed)
            .filter(|candidate| !active.holds(candidate) && !self.is_quarantined(candidate))
            .collect()
    }

    /// Candidates of a list whose pass counts, the best first: a quarantined endpoint needs a list
    /// and a test that are younger than its quarantine.
    #[must_use]
    pub fn good<'a>(&self, list: &'a List) -> Vec<&'a Candidate> {
        let counts = |candidate: &&Candidate| {
            let Some(quarantined) = self.quarantine.get(&candidate.endpoint()) else { return true };
            is_later(&list.fetched_at, &quarantined.since)
                && list.tested.get(&candidate.name).is_some_and(|tested| match tested {
                    Tested::Passed { at, .. } => is_later(at, &quarantined.since),
                    Tested::Failed { .. } => false,
                })
        };
        list.passed().into_iter().filter(counts).collect()
    }

    /// Takes the time since the last look out of the time for which no slot serves.
    pub(super) fn stand_still(&mut self, now: &Moment) {
        if let (Some(since), Some(seen)) = (&mut self.none_serves_since, &self.none_serves_seen) {
            *since = since.after(now.since(seen));
            self.none_serves_seen = Some(now.clone());
        }
    }

    /// Every generation whose files are still needed.
    #[must_use]
    pub fn generations(&self) -> BTreeSet<u32> {
        let slots = self.slots.values().filter_map(Slot::candidate);
        let all = || self.pool.iter().chain(&self.fresh).chain(&self.short);
        let lists = all().flat_map(|list| list.candidates.iter());
        let folders = all().map(|list| list.generation);
        let standby = self.standby.iter().filter_map(|standby| standby.candidate.as_ref());
        slots
            .chain(lists)
            .chain(standby)
            .map(|candidate| candidate.config.generation)
            .chain(folders)
            .collect()
    }
}

/// Whether one moment is after another, on the clock that both know.
pub(super) fn is_later(one: &Moment, other: &Moment) -> bool {
    if one.boot == other.boot { one.up_ms > other.up_ms } else { one.at > other.at }
}
