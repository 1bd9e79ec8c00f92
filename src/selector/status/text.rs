//! A selector's status as one screen of text.
//!
//! **Invariant:** nothing is said that the JSON does not hold, and no control character gets through.

use super::{ChannelRow, SelectorStatus, Verdict};
use crate::outcome::{count, harmless};
use crate::status::{clock, closing, columns, opening};
use std::fmt;

fn health(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Healthy => "healthy",
        Verdict::Unhealthy => "unhealthy",
        Verdict::Unknown => "unknown",
    }
}

/// Why a channel is as it is, with what was counted.
fn why(row: &ChannelRow) -> String {
    let why = harmless(&row.why);
    match (why.as_str(), row.failing_sec) {
        (_, 0) => why,
        ("", seconds) => format!("failed for {seconds} s"),
        (_, seconds) => format!("{why} (for {seconds} s)"),
    }
}

/// A row a channel, in columns.
fn rows(channels: &[ChannelRow]) -> Vec<String> {
    let cells = |row: &ChannelRow| {
        [
            if row.selected { "*" } else { " " }.to_owned(),
            row.channel.to_string(),
            health(row.health).to_owned(),
            harmless(&row.member),
            row.via.as_ref().map(|via| format!("by {via}")).unwrap_or_default(),
            row.latency_ms.map(|latency| format!("{latency} ms")).unwrap_or_default(),
            format!("since {}", clock(row.since)),
            why(row),
        ]
    };
    columns(&channels.iter().map(cells).collect::<Vec<_>>())
}

impl fmt::Display for SelectorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = opening(&self.head, self.is_stale, "nothing was seen yet");
        lines.extend(rows(&self.channels));
        let is_third = !self.channels.is_empty() && !self.channels.iter().any(|row| row.selected);
        if let Some(selected) = self.selected.as_deref().filter(|_| is_third) {
            lines.push(format!("* {}, which is neither of them", harmless(selected)));
        }
        if let Some(rate) = self.received_per_sec {
            lines.push(format!("{rate} bytes/s are received"));
        }
        if self.failovers > 0 {
            lines.push(format!("{} within the window", count(self.failovers, "failover")));
        }
        lines.extend(closing(&self.next, self.now));
        f.write_str(&lines.join("\n  "))
    }
}
