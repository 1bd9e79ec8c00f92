//! The status of a chain as one screen of text.
//!
//! **Invariant:** nothing is said that the JSON does not hold, and no control character gets through.

use super::{ChainStatus, Health, HopRow, NodeRow};
use crate::chain::state::PauseWhy;
use crate::outcome::harmless;
use jiff::Timestamp;
use std::fmt;

fn clock(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

fn latency(ms: Option<u64>) -> String {
    ms.map(|ms| format!("{ms} ms")).unwrap_or_default()
}

fn hop_cells(row: &HopRow) -> Vec<String> {
    let paused = match row.paused {
        Some(PauseWhy::Person) => "paused by a person",
        Some(PauseWhy::Chosen) => "a person chose its node",
        None => "",
    };
    vec![
        row.hop.to_string(),
        row.state.map_or_else(|| "-".to_owned(), |state| state.to_string()),
        row.node.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        String::new(),
        row.since.map(|since| format!("since {}", clock(since))).unwrap_or_default(),
        paused.to_owned(),
    ]
}

fn node_cells(row: &NodeRow) -> Vec<String> {
    let marked = row.marked_until.map(|at| format!("not returned to until {}", clock(at)));
    let why = if row.health == Health::Healthy { String::new() } else { harmless(&row.why) };
    let said: Vec<String> =
        [Some(why), marked].into_iter().flatten().filter(|said| !said.is_empty()).collect();
    vec![
        format!("  {} {}", if row.carries { "*" } else { " " }, row.node),
        row.health.as_str().to_owned(),
        latency(row.latency_ms),
        String::new(),
        String::new(),
        said.join("; "),
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

impl fmt::Display for ChainStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = &self.head;
        let stands = match (&head.state, &head.last_step) {
            (Some(state), _) => state.as_str(),
            (None, Some(_)) => "nothing was seen yet",
            (None, None) => "never stepped",
        };
        write!(f, "{} (chain)  {stands}", head.policy)?;
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
        let path = &self.path;
        write!(f, "\n  whole path {}", path.health.as_str())?;
        if let Some(ms) = path.latency_ms {
            write!(f, " in {ms} ms")?;
        }
        if let Some(hop) = &path.breaks_at {
            write!(f, ", breaks at {hop}")?;
        }
        if !path.why.is_empty() {
            write!(f, ": {}", harmless(&path.why))?;
        }
        let mut rows = Vec::new();
        for row in &self.hops {
            rows.push(hop_cells(row));
            rows.extend(row.nodes.iter().map(node_cells));
        }
        for line in table(&rows) {
            write!(f, "\n  {line}")?;
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
