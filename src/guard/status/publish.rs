//! What of a guard is published.
//!
//! **Invariant:** an entry is made of the status and of nothing that passes with time alone.

use super::{GuardStatus, MemberRow, shown};
use crate::page::Health;
use crate::proxy::Verdict;
use crate::publish::{Failover, Published, Uptime};

impl GuardStatus {
    /// What is selected in the group, and how each member is of which anything is known.
    #[must_use]
    pub fn published(&self) -> Published {
        let name = self.head.policy.to_string();
        let uptime = |row: &MemberRow| (format!("{name}/{}", row.member), uptime(row));
        Published {
            failover: [(name.clone(), self.failover())].into(),
            uptime: self.members.iter().map(uptime).collect(),
        }
    }

    fn failover(&self) -> Failover {
        let selected = self.selected.clone().unwrap_or_default();
        let temporary = self.members.iter().any(|row| row.selected && !row.automatic);
        let failed = |row: &&MemberRow| {
            row.selected && row.request.as_ref().is_some_and(|seen| seen.health == Verdict::Failed)
        };
        let request = self.members.iter().find(failed).and_then(|row| row.request.as_ref());
        let why = match (&self.selected, &self.core_trouble, request) {
            (None, ..) => "it was not stepped yet".to_owned(),
            (Some(_), Some(trouble), _) => trouble.clone(),
            (Some(_), None, Some(seen)) => format!("requests fail: {}", seen.why),
            (Some(_), None, None) if temporary => format!("temporarily through {selected}"),
            (Some(_), None, None) => String::new(),
        };
        Failover {
            address: None,
            addresses: Vec::new(),
            label: selected,
            temporary,
            state: self.head.state.clone(),
            why,
            since: self.head.since,
        }
        .harmless()
    }
}

/// As on the page: by requests through the member in use, by the core's word of another. Since when it is
/// so is not known. Nobody knows how one is that was not asked yet; it is told all the same, for who reads
/// it would take one that is missing for one that is gone.
fn uptime(row: &MemberRow) -> Uptime {
    Uptime {
        part: shown::part(row),
        label: row.member.clone(),
        address: None,
        health: match shown::member(row).health {
            health @ (Health::Good | Health::Bad | Health::Unknown) => health.word(),
            Health::Idle => Health::Unknown.word(),
        },
        uptime_percent: None,
        since: None,
    }
    .harmless()
}
