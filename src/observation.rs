//! What can be asked of the world, and what was seen.
//!
//! A machine asks in rounds: it is shown what has been seen so far and names what it still wants to
//! know, until it wants nothing more. Trouble is a value here: a page that does not answer is a
//! reading like any other.
//!
//! **Invariant:** asking the same question twice in a run gives one reading; a question that must be
//! asked again carries another turn.

use crate::iproute::Link;
use crate::kernel::diff::Means;
use crate::kernel::{ConfigRef, Ends, World};
use crate::names::{Interface, Mark};
use crate::policy::pool::{Provider, Require, Wanted};
use crate::pool::candidate::{Candidate, Rejected};
use crate::time::Moment;
use crate::url::Target;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// One thing to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// The kernel, as far as it concerns one policy.
    Kernel(Box<KernelScope>),
    /// The addresses of host names.
    Names(BTreeSet<String>),
    /// Pages, side by side.
    Pages(Pages),
    /// The provider's list.
    List(Box<ListQuestion>),
    /// A candidate, tried on a test interface.
    Trial(Box<Trial>),
}

/// What was seen of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// The kernel.
    Kernel(Box<KernelReading>),
    /// Addresses, or why there are none.
    Names(BTreeMap<String, Result<Vec<IpAddr>, String>>),
    /// One reading a page, in their order; a page that did not have to be asked has none.
    Pages(PagesReading),
    /// The list.
    List(ListReading),
    /// How the trial went.
    Trial(TrialReading),
}

/// All that was seen in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// When the run began to look.
    pub started: Moment,
    /// Readings by question.
    pub readings: BTreeMap<Question, Reading>,
}

impl Observation {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(started: Moment) -> Self {
        Self { started, readings: BTreeMap::new() }
    }

    /// The reading of the kernel, once there is one.
    #[must_use]
    pub fn kernel(&self) -> Option<&KernelReading> {
        self.readings.values().find_map(|reading| match reading {
            Reading::Kernel(kernel) => Some(kernel.as_ref()),
            Reading::Names(_) | Reading::Pages(_) | Reading::List(_) | Reading::Trial(_) => None,
        })
    }

    /// The readings of pages asked by `asker`, by turn.
    #[must_use]
    pub fn pages(&self, asker: &Asker) -> Vec<(&Pages, &PagesReading)> {
        self.readings
            .iter()
            .filter_map(|(question, reading)| match (question, reading) {
                (Question::Pages(pages), Reading::Pages(seen)) if pages.asker == *asker => {
                    Some((pages, seen))
                }
                _ => None,
            })
            .collect()
    }

    /// The addresses that were resolved in this run.
    #[must_use]
    pub fn names(&self) -> BTreeMap<&str, &Result<Vec<IpAddr>, String>> {
        self.readings
            .values()
            .filter_map(|reading| match reading {
                Reading::Names(names) => Some(names),
                Reading::Kernel(_) | Reading::Pages(_) | Reading::List(_) | Reading::Trial(_) => {
                    None
                }
            })
            .flatten()
            .map(|(name, addresses)| (name.as_str(), addresses))
            .collect()
    }

    /// What the provider said, by the way that it was asked.
    pub fn lists(&self) -> impl Iterator<Item = (&ListQuestion, &ListReading)> {
        self.readings.iter().filter_map(|(question, reading)| match (question, reading) {
            (Question::List(list), Reading::List(seen)) => Some((list.as_ref(), seen)),
            _ => None,
        })
    }

    /// The trials so far.
    pub fn trials(&self) -> impl Iterator<Item = (&Trial, &TrialReading)> {
        self.readings.iter().filter_map(|(question, reading)| match (question, reading) {
            (Question::Trial(trial), Reading::Trial(seen)) => Some((trial.as_ref(), seen)),
            _ => None,
        })
    }
}

/// Who asks for pages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Asker {
    /// The uplink, for its references.
    Wan,
    /// The uplink, for its exit address.
    WanExit,
    /// A slot, for its health.
    Slot(Interface),
    /// A slot, for a page of more than one packet.
    SlotLarge(Interface),
    /// A slot, for its exit address.
    SlotExit(Interface),
}

/// Pages to ask for, through one device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pages {
    /// Who asks.
    pub asker: Asker,
    /// Which time this is asked in this run, from 0.
    pub turn: u32,
    /// The device that the request must leave by.
    pub device: Interface,
    /// The mark that it carries, where the routing rules know one for the device.
    pub mark: Option<Mark>,
    /// The pages.
    pub pages: Vec<Page>,
    /// Whether one good answer is enough.
    pub require: AnyOrAll,
    /// What a good answer is.
    pub expect: Expect,
    /// How long all of it may take.
    pub timeout_ms: u64,
}

/// Whether one good answer is enough. The policy's word, in a form that can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AnyOrAll {
    /// One is enough.
    Any,
    /// All must be good.
    All,
}

impl From<Require> for AnyOrAll {
    fn from(require: Require) -> Self {
        match require {
            Require::Any => Self::Any,
            Require::All => Self::All,
        }
    }
}

/// One page and where its host is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Page {
    /// The page.
    pub url: Target,
    /// The host's addresses; none: it cannot be asked.
    pub addresses: Vec<IpAddr>,
}

/// What a good answer is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Expect {
    /// Any answer: somebody is there.
    AnyAnswer,
    /// Just these statuses, and nothing in the body of a 204.
    Status(Vec<u16>),
    /// Status 200 and at least so many bytes.
    Bytes(usize),
    /// Status 200 and an address as the body.
    Address,
}

/// Readings of pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagesReading {
    /// When the last of them was seen.
    pub at: Moment,
    /// One a page; `None`: it did not have to be asked.
    pub pages: Vec<Option<PageReading>>,
}

/// How one page answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageReading {
    /// It answered.
    Answer {
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: String,
        /// How many bytes the body had.
        bytes: usize,
        /// How long it took.
        elapsed_ms: u64,
    },
    /// No answer in time.
    TimedOut,
    /// A refusal, a reset, an answer that is not HTTP, a wrong certificate.
    Broken(String),
    /// No address of the host was ever known.
    NoAddress,
    /// The request cannot be bound to its device.
    NotBindable(String),
}

impl Expect {
    /// Whether an answer is a good one.
    #[must_use]
    pub fn accepts(&self, reading: &PageReading) -> bool {
        let PageReading::Answer { status, body, bytes, .. } = reading else { return false };
        match self {
            Self::AnyAnswer => true,
            Self::Status(wished) => wished.contains(status) && (*status != 204 || *bytes == 0),
            Self::Bytes(least) => *status == 200 && bytes >= least,
            Self::Address => *status == 200 && body.trim().parse::<IpAddr>().is_ok(),
        }
    }
}

impl PagesReading {
    /// Whether the pages answered as required.
    #[must_use]
    pub fn passes(&self, question: &Pages) -> bool {
        let good = |page: &Option<PageReading>| {
            page.as_ref().is_some_and(|page| question.expect.accepts(page))
        };
        match question.require {
            AnyOrAll::Any => self.pages.iter().any(good),
            AnyOrAll::All => !self.pages.is_empty() && self.pages.iter().all(good),
        }
    }

    /// How long the fastest good answer took.
    #[must_use]
    pub fn latency_ms(&self, question: &Pages) -> Option<u64> {
        self.pages
            .iter()
            .flatten()
            .filter(|page| question.expect.accepts(page))
            .filter_map(|page| match page {
                PageReading::Answer { elapsed_ms, .. } => Some(*elapsed_ms),
                PageReading::TimedOut
                | PageReading::Broken(_)
                | PageReading::NoAddress
                | PageReading::NotBindable(_) => None,
            })
            .min()
    }
}

/// What of the kernel concerns a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelScope {
    /// Which look at the kernel this is in one run, from 0.
    pub turn: u32,
    /// Interfaces that may be ours.
    pub interfaces: BTreeSet<Interface>,
    /// Interfaces that state says we made; others of these names are a stranger's.
    pub owned: BTreeSet<Interface>,
    /// What state expects on an interface.
    pub expected: BTreeMap<Interface, (ConfigRef, Keys)>,
    /// What tells our rules and routes from a stranger's: as the policy says it now, and as it said
    /// it when what is recorded was made.
    pub realms: BTreeSet<Realm>,
    /// The nft table in family `inet`.
    pub nft_table: String,
    /// Paths below `/proc/sys`.
    pub sysctls: BTreeSet<String>,
    /// The program that shows tunnels.
    pub tool: String,
    /// Users whose number is wanted.
    pub users: BTreeSet<String>,
    /// Whether the kernel sends what is bound to a device out by it.
    pub bound: Vec<(IpAddr, Interface)>,
}

/// Numbers that tell a policy's rules and routes from a stranger's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Realm {
    /// The protocol number of rules and routes.
    pub protocol: u8,
    /// The first and last priority of rules.
    pub priorities: (u32, u32),
    /// The first and last table of routes.
    pub tables: (u32, u32),
}

impl Realm {
    /// Whether a rule is of this realm.
    #[must_use]
    pub fn has_rule(&self, protocol: Option<u8>, priority: u32) -> bool {
        let (first, last) = self.priorities;
        protocol == Some(self.protocol) && (first..=last).contains(&priority)
    }

    /// Whether a route is of this realm.
    #[must_use]
    pub fn has_route(&self, protocol: Option<u8>, table: u32) -> bool {
        let (first, last) = self.tables;
        protocol == Some(self.protocol) && (first..=last).contains(&table)
    }
}

/// The two public keys that tell one tunnel from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keys {
    /// Our own.
    pub own: String,
    /// The peer's.
    pub peer: String,
}

impl From<&Ends> for Keys {
    fn from(ends: &Ends) -> Self {
        Self { own: ends.own.to_string(), peer: ends.peer.to_string() }
    }
}

/// The kernel, as far as it concerns one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelReading {
    /// Our own objects.
    pub world: World,
    /// All links, ours and strangers'.
    pub links: Vec<Link>,
    /// The device of main's default route with the lowest metric.
    pub default_device: Option<Interface>,
    /// Counters of our tunnels.
    pub counters: BTreeMap<Interface, Counters>,
    /// Interfaces that have our names and are not ours.
    pub strangers: BTreeSet<Interface>,
    /// Users and their numbers.
    pub users: BTreeMap<String, u32>,
    /// Devices that a bound request leaves by.
    pub bindable: BTreeSet<Interface>,
}

/// What a tunnel has carried since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes received.
    pub rx: u64,
    /// Bytes sent.
    pub tx: u64,
    /// The last handshake in seconds since 1970; 0: none yet.
    pub handshake: u64,
}

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
    pub have: Vec<Candidate>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListReading {
    /// A list.
    Listed {
        /// The usable candidates, in the provider's order, names unique.
        candidates: Vec<Candidate>,
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
}

/// How a trial went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialReading {
    /// When it ended.
    pub at: Moment,
    /// What it showed.
    pub result: TrialResult,
}

/// What a trial showed.
#[derive(Clone, Debug, PartialEq, Eq)]
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
