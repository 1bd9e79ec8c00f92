//! What the page shows of a chain.
//!
//! **Invariant:** the path has a row of its own: a hop's failed backup is no failed chain.

use super::{ChainStatus, Health as Shows, HopRow, NodeRow};
use crate::chain::state::Mode;
use crate::page::{Group, Health, Row, Shown};

impl From<Shows> for Health {
    fn from(shows: Shows) -> Self {
        match shows {
            Shows::Healthy => Self::Good,
            Shows::Failed => Self::Bad,
            Shows::Unknown => Self::Unknown,
        }
    }
}

impl ChainStatus {
    /// What the page shows.
    #[must_use]
    pub fn shown(&self) -> Shown {
        let breaks = self.path.breaks_at.as_ref().map(|hop| format!("breaks at {hop}"));
        let path = Row {
            part: "path".to_owned(),
            health: self.path.health.into(),
            seen: self.path.at,
            name: self
                .hops
                .iter()
                .map(|hop| hop.hop.to_string())
                .collect::<Vec<_>>()
                .join(" \u{2192} "),
            note: String::new(),
            in_use: false,
            why: self.path.why.clone(),
            facts: self
                .path
                .latency_ms
                .map(|ms| format!("{ms} ms"))
                .into_iter()
                .chain(breaks)
                .collect(),
        };
        let nodes = |hop: &HopRow| hop.nodes.iter().map(|row| node(hop, row)).collect::<Vec<_>>();
        Shown {
            groups: vec![
                Group { title: "Path", rows: vec![path] },
                Group { title: "Hops", rows: self.hops.iter().flat_map(nodes).collect() },
            ],
            badges: self.hops.iter().filter_map(badge).collect(),
            facts: Vec::new(),
            next: self.next.clone(),
        }
    }
}

fn badge(hop: &HopRow) -> Option<String> {
    let node = hop.node.as_ref().map(ToString::to_string).unwrap_or_default();
    match hop.state? {
        Mode::Preferred => None,
        Mode::Backup | Mode::Returning => Some(format!("{} temporarily through {node}", hop.hop)),
        Mode::LastResort => Some(format!("{} as a last resort through {node}", hop.hop)),
        Mode::Closed => Some(format!("{} closed", hop.hop)),
    }
}

fn node(hop: &HopRow, row: &NodeRow) -> Row {
    let mut facts: Vec<String> = Vec::new();
    if let Some(state) = hop.state.filter(|_| row.carries) {
        facts.push(state.as_str().to_owned());
    }
    facts.extend(row.latency_ms.map(|ms| format!("{ms} ms")));
    if let Some(until) = row.marked_until {
        facts.push(format!("not returned to until {}", until.strftime("%H:%M UTC")));
    }
    Row {
        part: part(hop, row),
        // What stands by is seldom asked.
        health: if row.at.is_none() { Health::Idle } else { row.health.into() },
        seen: row.at,
        name: row.node.to_string(),
        note: hop.hop.to_string(),
        in_use: row.carries,
        why: row.why.clone(),
        facts,
    }
}

/// What the 24 hours of a node in a hop are kept under.
pub(super) fn part(hop: &HopRow, row: &NodeRow) -> String {
    format!("hop {} {}", hop.hop, row.node)
}
