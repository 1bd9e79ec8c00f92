//! What of the kernel belongs to a policy, as a value: tunnels, rules, routes, sysctls and the nft
//! table.
//!
//! **Invariant:** a `World` holds our own objects only, and no key that opens anything.

pub mod diff;
pub mod nft;
pub mod read;
pub mod uplinks;

use crate::iproute::{Route, Rule};
use crate::names::{Interface, Mark};
use crate::wireguard::PublicKey;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU16;

/// The metric of a table's `unreachable` guard: worse than any that a person or a daemon gives.
pub const GUARD_METRIC: u32 = 4_278_198_272;

/// Our own objects, as they are or as they should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct World {
    /// Tunnels by interface.
    pub tunnels: BTreeMap<Interface, Tunnel>,
    /// Policy routing rules of both families.
    pub rules: BTreeSet<Rule>,
    /// Routes in our tables.
    pub routes: BTreeSet<Route>,
    /// Values by path below `/proc/sys`.
    pub sysctls: BTreeMap<String, String>,
    /// The nft table.
    pub nft: Option<NftTable>,
    /// Tunnels that are to look once more for the way to their peer, since where it began is gone. The
    /// kernel shows nothing of it, so a world that was read has none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub aims: BTreeSet<Interface>,
}

/// One tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// The file that it is configured from. An observed tunnel has one when its keys are those that
    /// state expects there.
    pub config: Option<ConfigRef>,
    /// Whether its implementation answers; a daemon that died leaves a device or a socket behind.
    pub answers: bool,
    /// Who is at both ends; `None` when it has no peer, or several.
    pub ends: Option<Ends>,
    /// The port that it listens on, which a change keeps. It is not compared.
    pub listen_port: Option<NonZeroU16>,
    /// What its own packets carry, so that rules lead them; `None`: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fwmark: Option<Mark>,
    /// The addresses, always as /32 or /128.
    pub addresses: BTreeSet<IpNet>,
    /// The MTU.
    pub mtu: u16,
    /// Whether the link is up.
    pub up: bool,
}

/// Names a file in the policy's pool folder, which holds the keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConfigRef {
    /// The folder: which list it came with.
    pub generation: u32,
    /// The file.
    pub file: String,
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
}

/// The two ends of a tunnel, without anything secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ends {
    /// Our own public key.
    pub own: PublicKey,
    /// The peer's public key.
    pub peer: PublicKey,
    /// Where the peer was last seen or is expected. A peer may roam, so a difference here alone is
    /// no difference.
    pub endpoint: Option<SocketAddr>,
    /// What goes to the peer.
    pub allowed_ips: BTreeSet<IpNet>,
    /// Seconds between keepalives; 0: none.
    pub keepalive: u16,
    /// A fingerprint of the preshared key.
    pub preshared: Option<String>,
}

impl Ends {
    /// Whether both describe the same tunnel, wherever the peer has roamed to.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.own == other.own
            && self.peer == other.peer
            && self.allowed_ips == other.allowed_ips
            && self.keepalive == other.keepalive
            && self.preshared == other.preshared
    }
}

/// The nft table: a text that loads it and, once it was loaded, what the kernel shows for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NftTable {
    /// Its name in family `inet`.
    pub name: String,
    /// What `nft -f -` reads.
    pub text: String,
    /// SHA-256 of the listing. nft rewrites what it was given, but its listing is the same after
    /// each load, so this tells whether somebody changed the table.
    pub listing: Option<String>,
}

impl NftTable {
    /// Whether the kernel holds just what is wished.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.name == other.name && self.listing.is_some() && self.listing == other.listing
    }
}
