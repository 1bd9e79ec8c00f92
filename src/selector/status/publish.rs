//! What of a selector is published.
//!
//! **Invariant:** an entry is made of the status and of nothing that passes with time alone.

use super::shown::part;
use super::{ChannelRow, SelectorStatus};
use crate::policy::selector::Channel;
use crate::publish::{Failover, Published, Uptime};
use crate::selector::state::Verdict;

impl SelectorStatus {
    /// Which channel new connections take, and how each channel is.
    #[must_use]
    pub fn published(&self) -> Published {
        let name = self.head.policy.to_string();
        let uptime = |row: &ChannelRow| (format!("{name}/{}", row.channel), uptime(row));
        Published {
            failover: [(name.clone(), self.failover())].into(),
            uptime: self.channels.iter().map(uptime).collect(),
        }
    }

    fn failover(&self) -> Failover {
        let of = |channel: Channel| self.channels.iter().find(|row| row.channel == channel);
        let primary = of(Channel::Primary);
        let temporary = self.selected.is_some() && primary.is_some_and(|row| !row.selected);
        let label = self.selected.clone().unwrap_or_default();
        let why = match primary {
            None => "it was not stepped yet".to_owned(),
            Some(row) if !temporary && row.health == Verdict::Unhealthy => row.why.clone(),
            Some(_) if !temporary => String::new(),
            Some(row) if row.why.is_empty() => format!("temporarily through {label}"),
            Some(row) => format!("temporarily through {label}: {}", row.why),
        };
        Failover {
            address: None,
            addresses: Vec::new(),
            label,
            temporary,
            state: self.head.state.clone(),
            why,
            since: self.head.since,
        }
        .harmless()
    }
}

fn uptime(row: &ChannelRow) -> Uptime {
    Uptime {
        part: part(row),
        label: row.member.clone(),
        address: None,
        health: match row.health {
            Verdict::Healthy => "healthy",
            Verdict::Unhealthy => "failed",
            Verdict::Unknown => "unknown",
        },
        uptime_percent: None,
        since: Some(row.since),
    }
    .harmless()
}
