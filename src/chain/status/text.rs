//! The status of a chain as one screen of text.
//!
//! **Invariant:** nothing is said that the JSON does not hold, and no control character gets through.

use super::{ChainStatus, Health, HopRow, NodeRow, Path};
use crate::chain::state::PauseWhy;
use crate::outcome::{count, harmless};
use crate::status::{clock, closing, columns, listed, opening};
use std::fmt;

fn latency(ms: Option<u64>) -> String {
    ms.map(|ms| format!("{ms} ms")).unwrap_or_default()
}

fn hop_cells(row: &HopRow) -> [String; 6] {
    let paused = match row.paused {
        Some(PauseWhy::Person) => "paused by a person",
        Some(PauseWhy::Chosen) => "a person chose its node",
        None => "",
    };
    [
        row.hop.to_string(),
        row.state.map_or_else(|| "-".to_owned(), |state| state.to_string()),
        row.node.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        String::new(),
        row.since.map(|since| format!("since {}", clock(since))).unwrap_or_default(),
        paused.to_owned(),
    ]
}

fn node_cells(row: &NodeRow) -> [String; 6] {
    let marked = row.marked_until.map(|at| format!("not returned to until {}", clock(at)));
    let why = if row.health == Health::Healthy { String::new() } else { harmless(&row.why) };
    let said: Vec<String> =
        [Some(why), marked].into_iter().flatten().filter(|said| !said.is_empty()).collect();
    [
        format!("  {} {}", if row.carries { "*" } else { " " }, row.node),
        row.health.as_str().to_owned(),
        latency(row.latency_ms),
        String::new(),
        String::new(),
        said.join("; "),
    ]
}

fn whole_path(path: &Path) -> String {
    let latency = path.latency_ms.map(|ms| format!(" in {ms} ms"));
    let breaks = path.breaks_at.as_ref().map(|hop| format!(", breaks at {hop}"));
    let why = Some(&path.why).filter(|why| !why.is_empty());
    [
        Some(format!("whole path {}", path.health.as_str())),
        latency,
        breaks,
        why.map(|why| format!(": {}", harmless(why))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl fmt::Display for ChainStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = opening(&self.head, self.is_stale, "nothing was seen yet");
        lines.push(whole_path(&self.path));
        let mut rows = Vec::new();
        for row in &self.hops {
            rows.push(hop_cells(row));
            let (shown, others) = listed(&row.nodes, |row| row.carries || !row.why.is_empty());
            rows.extend(shown.into_iter().map(node_cells));
            if !others.is_empty() {
                let more = format!("    and {}", count(others.len(), "more node"));
                rows.push([
                    more,
                    String::new(),
                    String::new(),
                    String::new(),
                    String::new(),
                    String::new(),
                ]);
            }
        }
        lines.extend(columns(&rows));
        lines.extend(closing(&self.next, self.now));
        f.write_str(&lines.join("\n  "))
    }
}
