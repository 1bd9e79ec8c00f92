//! The kernel, as far as it concerns one policy.
//!
//! **Invariant:** what is ours is told by names and numbers that are recorded, never by looks.

use crate::iproute::{Link, Route};
use crate::kernel::{ConfigRef, Ends, World};
use crate::names::{Interface, Table};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What of the kernel concerns a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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
    /// Tables in which routes of ours stand beside those of strangers, which are wanted too.
    pub watched: BTreeSet<Table>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Routes of others in the watched tables.
    pub foreign: Vec<Route>,
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
