//! What of host names and nodes is published.
//!
//! **Invariant:** an entry is made of its row of the status and says nothing else.

use super::shown::part;
use super::{DnsStatus, HostRow, NodeRow};
use crate::dns::name::NodeName;
use crate::dns::state::Mode;
use crate::publish::{Failover, Published, Uptime};
use std::net::Ipv4Addr;

impl DnsStatus {
    /// Where each host name leads, and how each node did.
    #[must_use]
    pub fn published(&self) -> Published {
        let failover = |row: &HostRow| (row.host.to_string(), self.failover(row));
        let uptime = |row: &NodeRow| (row.node.to_string(), uptime(row));
        Published {
            failover: self.hosts.iter().map(failover).collect(),
            uptime: self.nodes.iter().map(uptime).collect(),
        }
    }

    pub(super) fn row(&self, node: &NodeName) -> Option<&NodeRow> {
        self.nodes.iter().find(|row| row.node == *node)
    }

    pub(super) fn failover(&self, row: &HostRow) -> Failover {
        let native = self.row(&row.native).map(|node| node.address);
        let native: Option<Ipv4Addr> = native.filter(|native| row.addresses.contains(native));
        let place = |name: &NodeName| {
            let label = self.row(name).and_then(|node| node.label.clone());
            label.unwrap_or_else(|| name.to_string())
        };
        let places: Vec<String> = row.nodes.iter().map(place).collect();
        let temporary = match row.state {
            Some(Mode::Fallback | Mode::NativeRecovering | Mode::NativeQuarantined) => true,
            Some(Mode::Stranded) => !row.nodes.contains(&row.native),
            Some(Mode::Native | Mode::NativeFailing) | None => false,
        };
        let entry = Failover {
            address: native.or_else(|| row.addresses.first().copied()),
            addresses: row.addresses.clone(),
            label: places.join(" "),
            temporary,
            state: row.state.map(|state| state.to_string()),
            why: row.why.clone(),
            since: row.since,
        };
        entry.harmless()
    }
}

fn uptime(row: &NodeRow) -> Uptime {
    Uptime {
        part: part(row),
        label: row.label.clone().unwrap_or_else(|| row.node.to_string()),
        address: Some(row.address),
        health: row.health.as_str(),
        uptime_percent: row.uptime_percent,
        since: row.since,
    }
    .harmless()
}
