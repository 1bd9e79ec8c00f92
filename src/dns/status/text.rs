//! The status of host names as one screen of text.
//!
//! **Invariant:** nothing is said that the JSON does not hold, and no control character gets through.

use super::{DnsStatus, HostRow, NodeRow};
use crate::outcome::{count, harmless};
use crate::status::{clock, closing, columns, listed, opening};
use jiff::Timestamp;
use std::fmt;

fn since(at: Option<Timestamp>) -> String {
    at.map(|at| format!("since {}", clock(at))).unwrap_or_default()
}

fn host_cells(row: &HostRow) -> [String; 7] {
    let names: Vec<&str> = row.nodes.iter().map(super::NodeName::as_str).collect();
    let addresses: Vec<String> = row.addresses.iter().map(ToString::to_string).collect();
    [
        row.host.to_string(),
        row.state.map_or_else(|| "-".to_owned(), |state| state.to_string()),
        if names.is_empty() { "-".to_owned() } else { names.join(" ") },
        addresses.join(" "),
        row.ttl.map(|ttl| format!("ttl {ttl}")).unwrap_or_default(),
        since(row.since),
        harmless(&row.why),
    ]
}

fn node_cells(row: &NodeRow) -> [String; 8] {
    let why = match (harmless(&row.why), usize::try_from(row.failures).unwrap_or(usize::MAX)) {
        (why, 0) => why,
        (why, failures) => format!("{why} ({})", count(failures, "failed check")),
    };
    [
        row.node.to_string(),
        row.label.as_deref().map(harmless).unwrap_or_default(),
        row.health.as_str().to_owned(),
        row.address.to_string(),
        row.latency_ms.map(|latency| format!("{latency} ms")).unwrap_or_default(),
        row.uptime_percent.map(|uptime| format!("{uptime} % of 24 h")).unwrap_or_default(),
        since(row.since),
        why,
    ]
}

impl fmt::Display for DnsStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = opening(&self.head, self.is_stale, "nothing was seen yet");
        let hosts: Vec<_> = self.hosts.iter().map(host_cells).collect();
        lines.extend(columns(&hosts));
        let (shown, others) = listed(&self.nodes, |row: &NodeRow| !row.why.is_empty());
        lines.extend(columns(&shown.into_iter().map(node_cells).collect::<Vec<_>>()));
        let bad = others.iter().filter(|row| !row.why.is_empty()).count();
        if bad > 0 {
            lines.push(format!("and {} with something to tell", count(bad, "more node")));
        }
        if others.len() > bad {
            let of = count(others.len() - bad, "node");
            lines.push(format!("and {of} of which nothing is to be said"));
        }
        lines.extend(closing(&self.next, self.now));
        f.write_str(&lines.join("\n  "))
    }
}
