//! What the page shows of host names.
//!
//! **Invariant:** a host is as the nodes in its record are.

use super::{DnsStatus, HostRow, NodeHealth, NodeRow};
use crate::page::{Group, Health, Row, Shown};

impl DnsStatus {
    /// What the page shows.
    #[must_use]
    pub fn shown(&self) -> Shown {
        let badge = |row: &HostRow| {
            let entry = self.failover(row);
            entry.temporary.then(|| format!("{} temporarily through {}", row.host, entry.label))
        };
        Shown {
            groups: vec![
                Group {
                    title: "Hosts",
                    rows: self.hosts.iter().map(|row| self.host(row)).collect(),
                },
                Group { title: "Nodes", rows: self.nodes.iter().map(node).collect() },
            ],
            badges: self.hosts.iter().filter_map(badge).collect(),
            facts: Vec::new(),
            next: self.next.clone(),
        }
    }

    fn host(&self, row: &HostRow) -> Row {
        let nodes: Vec<&NodeRow> = row.nodes.iter().filter_map(|name| self.row(name)).collect();
        let any = |health: NodeHealth| nodes.iter().any(|node| node.health == health);
        let health = if any(NodeHealth::Healthy) {
            Health::Good
        } else if any(NodeHealth::Failed) {
            Health::Bad
        } else {
            Health::Unknown
        };
        let mut facts: Vec<String> = row.state.map(|state| state.to_string()).into_iter().collect();
        facts.extend(row.addresses.iter().map(ToString::to_string));
        if row.moves > 0 {
            facts.push(format!("{} within the window", crate::outcome::count(row.moves, "move")));
        }
        let label = self.failover(row).label;
        Row {
            part: format!("host {}", row.host),
            health,
            seen: nodes.iter().filter_map(|node| node.counted_at).max(),
            name: row.host.to_string(),
            note: if label.is_empty() { label } else { format!("\u{2192} {label}") },
            in_use: false,
            why: row.why.clone(),
            facts,
        }
    }
}

fn node(row: &NodeRow) -> Row {
    let health = match row.health {
        NodeHealth::Healthy => Health::Good,
        NodeHealth::Failed => Health::Bad,
        NodeHealth::Unknown => Health::Unknown,
    };
    let mut facts: Vec<String> = row.latency_ms.map(|ms| format!("{ms} ms")).into_iter().collect();
    facts.push(row.address.to_string());
    Row {
        part: part(row),
        health,
        seen: row.counted_at,
        name: row.label.clone().unwrap_or_else(|| row.node.to_string()),
        note: row.label.as_ref().map(|_| row.node.to_string()).unwrap_or_default(),
        in_use: false,
        why: row.why.clone(),
        facts,
    }
}

/// What the 24 hours of a row are kept under.
pub(super) fn part(row: &NodeRow) -> String {
    format!("node {}", row.node)
}
