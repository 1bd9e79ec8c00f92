//! The status of host names as one screen of text.
//!
//! **Invariant:** nothing is said that the JSON does not hold, and no control character gets through.

use super::{DnsStatus, HostRow, NodeRow};
use crate::outcome::{count, harmless};
use jiff::Timestamp;
use std::fmt;

/// More nodes than this are counted and not listed, so that a status fits one screen; those that
/// fail are always listed.
const LISTED: usize = 12;

fn clock(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

fn since(at: Option<Timestamp>) -> String {
    at.map(|at| format!("since {}", clock(at))).unwrap_or_default()
}

fn host_cells(row: &HostRow) -> Vec<String> {
    let names: Vec<&str> = row.nodes.iter().map(super::NodeName::as_str).collect();
    let addresses: Vec<String> = row.addresses.iter().map(ToString::to_string).collect();
    vec![
        row.host.to_string(),
        row.state.map_or_else(|| "-".to_owned(), |state| state.to_string()),
        if names.is_empty() { "-".to_owned() } else { names.join(" ") },
        addresses.join(" "),
        row.ttl.map(|ttl| format!("ttl {ttl}")).unwrap_or_default(),
        since(row.since),
        harmless(&row.why),
    ]
}

fn node_cells(row: &NodeRow) -> Vec<String> {
    let why = match (harmless(&row.why), usize::try_from(row.failures).unwrap_or(usize::MAX)) {
        (why, 0) => why,
        (why, failures) => format!("{why} ({})", count(failures, "failed check")),
    };
    vec![
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

/// Rows in columns; a column that is empty everywhere takes no room.
fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |place: usize| {
        let cell = |row: &Vec<String>| row.get(place).map_or(0, |cell| cell.chars().count());
        rows.iter().map(cell).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).filter(|(_, width)| **width > 0);
        let padded = cells.map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

impl fmt::Display for DnsStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = &self.head;
        let stands = match (&head.state, &head.last_step) {
            (Some(state), _) => state.as_str(),
            (None, Some(_)) => "nothing was seen yet",
            (None, None) => "never stepped",
        };
        write!(f, "{} (dns)  {stands}", head.policy)?;
        if let Some(since) = head.since {
            write!(f, " since {}", clock(since))?;
        }
        if let Some(paused) = head.paused {
            write!(f, ", paused by a person since {}", clock(paused))?;
        }
        if let Some(last) = head.last_step.as_ref().filter(|_| self.is_stale) {
            write!(f, "\n  out of date: the last step began at {}", clock(last.at))?;
        }
        for reason in &head.reasons {
            write!(f, "\n  {}", harmless(&reason.text))?;
        }
        let hosts: Vec<_> = self.hosts.iter().map(host_cells).collect();
        let listed = |row: &&NodeRow| self.nodes.len() <= LISTED || !row.why.is_empty();
        let nodes: Vec<_> = self.nodes.iter().filter(listed).map(node_cells).collect();
        for line in table(&hosts).iter().chain(&table(&nodes)) {
            write!(f, "\n  {line}")?;
        }
        let more = self.nodes.len() - nodes.len();
        if more > 0 {
            write!(f, "\n  and {} of which nothing is to be said", count(more, "node"))?;
        }
        for next in &self.next {
            if next.at > self.now {
                write!(f, "\n  next {} at {}", next.what, clock(next.at))?;
            } else {
                write!(f, "\n  next {} at once", next.what)?;
            }
        }
        Ok(())
    }
}
