//! What of a chain is published.
//!
//! **Invariant:** an entry is made of the status and of nothing that passes with time alone.

use super::shown::part;
use super::{ChainStatus, Health, HopRow, NodeRow};
use crate::chain::state::Mode;
use crate::publish::{Failover, Published, Uptime};
use std::collections::BTreeMap;

impl ChainStatus {
    /// Which node carries each hop, and how each node is.
    #[must_use]
    pub fn published(&self) -> Published {
        let name = &self.head.policy;
        let failover = |row: &HopRow| (format!("{name}/{}", row.hop), self.failover(row));
        let mut uptimes = BTreeMap::new();
        for hop in &self.hops {
            let node =
                |row: &NodeRow| (format!("{name}/{}/{}", hop.hop, row.node), uptime(hop, row));
            uptimes.extend(hop.nodes.iter().map(node));
        }
        Published { failover: self.hops.iter().map(failover).collect(), uptime: uptimes }
    }

    fn failover(&self, row: &HopRow) -> Failover {
        let node = row.node.as_ref().map(ToString::to_string).unwrap_or_default();
        let why = match row.state {
            None => "it was not seen yet".to_owned(),
            Some(Mode::Preferred) if self.path.breaks_at.as_ref() == Some(&row.hop) => {
                format!("the path breaks here: {}", self.path.why)
            }
            Some(Mode::Preferred) => String::new(),
            Some(Mode::Backup | Mode::Returning) => format!("temporarily through {node}"),
            Some(Mode::LastResort | Mode::Closed) => "no node passes".to_owned(),
        };
        Failover {
            address: None,
            addresses: Vec::new(),
            temporary: row.node.is_some() && row.node != row.preferred,
            label: node,
            state: row.state.map(|state| state.to_string()),
            why,
            since: row.since,
        }
        .harmless()
    }
}

/// When it was asked passes with time, and since when it is so is not known.
fn uptime(hop: &HopRow, row: &NodeRow) -> Uptime {
    Uptime {
        part: part(hop, row),
        label: row.node.to_string(),
        address: None,
        health: match row.health {
            Health::Healthy => "healthy",
            Health::Failed => "failed",
            Health::Unknown => "unknown",
        },
        uptime_percent: None,
        since: None,
    }
    .harmless()
}
