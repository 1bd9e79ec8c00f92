//! The address records of one host name, and the zone that they stand in.
//!
//! **Invariant:** a zone names the files of its secrets and holds none; what is written keeps all
//! that an address record says beside its address and its TTL.

use super::name::HostName;
use crate::url::Target;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// What Cloudflare calls automatic; a proxied record has no other.
pub const AUTOMATIC_TTL: u32 = 1;

/// A zone and who keeps it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Zone {
    /// Cloudflare, over its API.
    Cloudflare {
        /// Where its API is.
        api: Target,
        /// The zone's name or its id.
        zone: ZoneKey,
        /// The file with the API token.
        token_file: PathBuf,
    },
    /// A server that takes dynamic updates (RFC 2136).
    Rfc2136 {
        /// The primary server: a name or an address.
        server: String,
        /// Its port.
        port: u16,
        /// The zone's name.
        zone: HostName,
        /// The file with the TSIG key, as the tool's `-k` reads it.
        key_file: PathBuf,
        /// The program that sends updates.
        tool: String,
    },
}

/// How a zone is named to Cloudflare.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ZoneKey {
    /// By its name, which is looked up.
    Name(HostName),
    /// By its id, 32 hexadecimal digits.
    Id(String),
}

impl Zone {
    /// Whether `other` is the same zone at the same place, with whatever key.
    #[must_use]
    pub fn is_where(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Cloudflare { api, zone, .. },
                Self::Cloudflare { api: its_api, zone: its_zone, .. },
            ) => api == its_api && zone == its_zone,
            (
                Self::Rfc2136 { server, port, zone, .. },
                Self::Rfc2136 { server: its_server, port: its_port, zone: its_zone, .. },
            ) => server == its_server && port == its_port && zone == its_zone,
            (Self::Cloudflare { .. }, Self::Rfc2136 { .. })
            | (Self::Rfc2136 { .. }, Self::Cloudflare { .. }) => false,
        }
    }
}

impl fmt::Display for ZoneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Id(id) => f.write_str(id),
        }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cloudflare { api, zone, .. } => write!(f, "zone {zone} at {}", api.host()),
            Self::Rfc2136 { server, zone, .. } => write!(f, "zone {zone} at {server}"),
        }
    }
}

/// One address record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    /// The address.
    pub address: Ipv4Addr,
    /// How long resolvers keep it, in seconds.
    pub ttl: u32,
    /// Whether the provider puts itself between, where it can.
    pub proxied: bool,
    /// A person's comment, where the provider keeps one.
    pub comment: Option<String>,
}

/// All address records (type A) of one host name. Empty: there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordSet(pub BTreeSet<Record>);

impl RecordSet {
    /// The addresses.
    #[must_use]
    pub fn addresses(&self) -> BTreeSet<Ipv4Addr> {
        self.0.iter().map(|record| record.address).collect()
    }

    /// The longest of the TTLs, in seconds.
    #[must_use]
    pub fn ttl(&self) -> Option<u32> {
        self.0.iter().map(|record| record.ttl).max()
    }

    /// The set with other addresses. Records keep what they say beside address and TTL; what is
    /// added is as one that stands there. `None`: there is none to go by.
    #[must_use]
    pub fn with(&self, addresses: &BTreeSet<Ipv4Addr>, ttl: u32) -> Option<Self> {
        let pattern = self.0.first()?;
        let mut free = self.0.iter().filter(|record| !addresses.contains(&record.address));
        let record = |address: &Ipv4Addr| {
            let same = self.0.iter().find(|record| record.address == *address);
            let old = same.or_else(|| free.next()).unwrap_or(pattern);
            let ttl = if old.proxied { AUTOMATIC_TTL } else { ttl };
            Record { address: *address, ttl, ..old.clone() }
        };
        Some(Self(addresses.iter().map(record).collect()))
    }
}

impl fmt::Display for RecordSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<String> = self.addresses().iter().map(ToString::to_string).collect();
        if addresses.is_empty() {
            f.write_str("no address")
        } else {
            f.write_str(&addresses.join(" "))
        }
    }
}

/// What a set of records says beside its addresses, for a report of what changed there.
#[must_use]
pub fn details(set: &RecordSet) -> String {
    let one = |record: &Record| {
        let proxied = if record.proxied { " proxied" } else { "" };
        let comment = record.comment.as_deref().filter(|comment| !comment.is_empty());
        let comment = comment.map(|comment| format!(" comment {comment:?}")).unwrap_or_default();
        format!("{} ttl {}{proxied}{comment}", record.address, record.ttl)
    };
    let all: Vec<String> = set.0.iter().map(one).collect();
    if all.is_empty() { "no address".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(address: &str, ttl: u32, proxied: bool, comment: Option<&str>) -> Record {
        let comment = comment.map(str::to_owned);
        Record { address: address.parse().unwrap(), ttl, proxied, comment }
    }

    fn addresses(all: &[&str]) -> BTreeSet<Ipv4Addr> {
        all.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn an_address_changes_and_the_rest_of_its_record_stays() {
        let was = RecordSet([record("192.0.2.1", 1, true, Some("web"))].into());
        let is = was.with(&addresses(&["192.0.2.2"]), 120).unwrap();
        assert_eq!(is, RecordSet([record("192.0.2.2", 1, true, Some("web"))].into()));
        let was = RecordSet([record("192.0.2.1", 3600, false, None)].into());
        let is = was.with(&addresses(&["192.0.2.2"]), 120).unwrap();
        assert_eq!(is, RecordSet([record("192.0.2.2", 120, false, None)].into()));
    }

    #[test]
    fn a_set_shrinks_and_grows_and_nothing_comes_of_nothing() {
        let was = RecordSet(
            [record("192.0.2.1", 60, false, Some("a")), record("192.0.2.2", 60, false, Some("b"))]
                .into(),
        );
        let is = was.with(&addresses(&["192.0.2.2"]), 60).unwrap();
        assert_eq!(is, RecordSet([record("192.0.2.2", 60, false, Some("b"))].into()));
        let is = was.with(&addresses(&["192.0.2.2", "192.0.2.3", "192.0.2.4"]), 60).unwrap();
        assert_eq!(is.addresses(), addresses(&["192.0.2.2", "192.0.2.3", "192.0.2.4"]));
        assert_eq!(RecordSet::default().with(&addresses(&["192.0.2.2"]), 60), None);
    }
}
