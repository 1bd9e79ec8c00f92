//! A tunnel as its configuration file describes it.
//!
//! **Invariant:** a value made by [`super::parse()`] has one peer with a key, an endpoint and at least one
//! allowed prefix, and at least one address; prefixes in `allowed_ips` have no host bits.

use super::key::{PresharedKey, PublicKey, SecretKey};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;

/// One WireGuard tunnel to one provider endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelConfig {
    /// Our own key.
    pub private_key: SecretKey,
    /// The UDP port that the file asks for. Several slots may come from files that name the same one,
    /// so a slot takes its own.
    pub listen_port: Option<NonZeroU16>,
    /// The mark that the file asks for on the tunnel's own packets: recorded and not used.
    pub fwmark: Option<u32>,
    /// Our addresses in the tunnel, with the prefix lengths of the file.
    pub addresses: Vec<IpNet>,
    /// Resolvers and search domains: recorded and not used.
    pub dns: Vec<String>,
    /// The MTU, when the file sets it.
    pub mtu: Option<u16>,
    /// The other end. A pool candidate has exactly one.
    pub peer: Peer,
    /// Plain WireGuard, or AmneziaWG with its parameters.
    pub dialect: Dialect,
}

/// The other end of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Who it is.
    pub public_key: PublicKey,
    /// The additional symmetric secret, if the provider uses one.
    pub preshared_key: Option<PresharedKey>,
    /// The destinations that go to it, in the order of the file, host bits cleared.
    pub allowed_ips: Vec<IpNet>,
    /// Where to send.
    pub endpoint: Endpoint,
    /// Seconds between keepalives; `None` is off.
    pub persistent_keepalive: Option<NonZeroU16>,
}

/// Where a peer listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Endpoint {
    /// The machine.
    pub host: Host,
    /// Its UDP port.
    pub port: NonZeroU16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            Host::Ip(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// The machine part of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Host {
    /// A literal address, usable as it is.
    Ip(IpAddr),
    /// A DNS name as written, to be resolved by egressctl and never by `wg`.
    Name(String),
}

/// Which program understands the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `wg` does.
    Plain,
    /// Only `awg` does; these are the parameters, in the order of the file.
    Amnezia(Vec<Parameter>),
}

/// The section that a key stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// `[Interface]`: our end.
    Interface,
    /// `[Peer]`: the other end.
    Peer,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interface => "[Interface]",
            Self::Peer => "[Peer]",
        })
    }
}

/// One AmneziaWG parameter. Its value may be a secret (`HeaderProtectionKey`), so `Debug` shows none.
#[derive(Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Where it stands.
    pub section: Section,
    /// Its name as `awg` writes it.
    pub name: &'static str,
    /// Its value as the file has it.
    pub value: String,
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = (hidden)", self.name)
    }
}
