//! What of a pool is published.
//!
//! **Invariant:** an entry is made of the status and of nothing that passes with time alone.

use super::shown::part;
use super::{PoolStatus, SlotHealth, SlotRow};
use crate::outcome::count;
use crate::publish::{Failover, Published, Uptime};
use std::collections::BTreeSet;

impl PoolStatus {
    /// By which slots its clients leave, and how each slot is.
    #[must_use]
    pub fn published(&self) -> Published {
        let name = self.head.policy.to_string();
        let uptime = |row: &SlotRow| (format!("{name}/{}", row.interface), uptime(row));
        Published {
            failover: [(name.clone(), self.failover())].into(),
            uptime: self.slots.iter().map(uptime).collect(),
        }
    }

    fn failover(&self) -> Failover {
        let ways: BTreeSet<&str> = self.clients.iter().map(|row| row.egress.as_str()).collect();
        let healthy = self.slots.iter().filter(|row| row.health == SlotHealth::Healthy).count();
        let leaving = |egress: &str| self.clients.iter().filter(|row| row.egress == egress).count();
        let mut why = Vec::new();
        if self.head.state.is_none() {
            why.push("it was not stepped yet".to_owned());
        } else if healthy < self.slots.len() {
            why.push(format!("{healthy} of {} serve", count(self.slots.len(), "slot")));
        }
        for (egress, what) in [("direct", "on the uplink itself"), ("none", "closed in")] {
            let clients = leaving(egress);
            if clients > 0 {
                why.push(format!("{} {what}", count(clients, "client")));
            }
        }
        Failover {
            address: None,
            addresses: Vec::new(),
            label: ways.into_iter().collect::<Vec<_>>().join(" "),
            temporary: !why.is_empty(),
            state: self.head.state.clone(),
            why: why.join("; "),
            since: self.head.since,
        }
        .harmless()
    }
}

fn uptime(row: &SlotRow) -> Uptime {
    Uptime {
        part: part(row),
        label: row.endpoint.clone().unwrap_or_default(),
        address: None,
        health: match row.health {
            SlotHealth::Healthy => "healthy",
            SlotHealth::Failed | SlotHealth::Empty => "failed",
            SlotHealth::Unknown | SlotHealth::Lent => "unknown",
        },
        uptime_percent: None,
        since: Some(row.since),
    }
    .harmless()
}
