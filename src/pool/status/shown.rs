//! What the page shows of a pool.
//!
//! **Invariant:** a row a slot, by its interface; clients are counted and not named, for a page may be
//! read by others.

use super::{PoolStatus, SlotHealth, SlotRow, StandbyHealth, StandbyRow};
use crate::outcome::count;
use crate::page::{Group, Health, Row, Shown};

impl PoolStatus {
    /// What the page shows.
    #[must_use]
    pub fn shown(&self) -> Shown {
        let mut groups =
            vec![Group { title: "Slots", rows: self.slots.iter().map(slot).collect() }];
        if let Some(row) = &self.standby {
            groups.push(Group { title: "Standby", rows: vec![standby(row)] });
        }
        let seen = self.head.judged_at();
        for row in groups.iter_mut().flat_map(|group| &mut group.rows) {
            row.seen = seen;
        }
        let on =
            |egress: &str| self.clients.iter().filter(|client| client.egress == egress).count();
        let mut badges = Vec::new();
        if on("direct") > 0 && self.head.state.is_some() {
            badges.push(format!("{} temporarily by the WAN", count(on("direct"), "client")));
        }
        if on("none") > 0 {
            badges.push(format!("{} closed in", count(on("none"), "client")));
        }
        let mut facts = vec![count(self.clients.len(), "client")];
        if let Some(pool) = &self.pool {
            facts.push(format!("list {}", pool.generation));
            facts.push(format!("{} in reserve", pool.reserve));
            facts.push(format!("{} quarantined", pool.quarantined));
        }
        if self.repair_events_since_full_refresh > 0 {
            let repairs = self.repair_events_since_full_refresh;
            facts.push(format!("{repairs} repaired since the last full refresh"));
        }
        Shown { groups, badges, facts, next: self.next.clone() }
    }
}

fn slot(row: &SlotRow) -> Row {
    let mut facts = Vec::new();
    if row.clients > 0 {
        facts.push(count(row.clients, "client"));
    }
    facts.extend(row.latency_ms.map(|ms| format!("{ms} ms")));
    facts.extend(row.exit_ip.map(|address| address.to_string()));
    if row.carries_ipv6 == Some(false) {
        facts.push("IPv4 alone".to_owned());
    }
    let (health, word) = match row.health {
        SlotHealth::Healthy => (Health::Good, ""),
        SlotHealth::Failed => (Health::Bad, ""),
        SlotHealth::Unknown => (Health::Unknown, ""),
        SlotHealth::Empty => (Health::Idle, "empty"),
        SlotHealth::Lent => (Health::Idle, "lent, to reach the provider"),
    };
    let why = [word, row.why.as_str()].into_iter().filter(|part| !part.is_empty());
    Row {
        part: part(row),
        health,
        seen: None,
        name: row.interface.to_string(),
        note: row.endpoint.clone().unwrap_or_default(),
        in_use: false,
        why: why.collect::<Vec<_>>().join(": "),
        facts,
    }
}

fn standby(row: &StandbyRow) -> Row {
    let health = match row.health {
        StandbyHealth::Healthy => Health::Good,
        StandbyHealth::Failed => Health::Bad,
        StandbyHealth::Unknown => Health::Unknown,
        StandbyHealth::Down => Health::Idle,
    };
    Row {
        part: format!("standby {}", row.interface),
        health,
        seen: None,
        name: row.interface.to_string(),
        note: row.endpoint.clone().unwrap_or_default(),
        in_use: false,
        why: row.why.clone(),
        facts: row.latency_ms.map(|ms| format!("{ms} ms")).into_iter().collect(),
    }
}

/// What the 24 hours of a row are kept under.
pub(super) fn part(row: &SlotRow) -> String {
    format!("slot {}", row.interface)
}
