//! A selector's status as one screen of text.
//!
//! **Invariant:** nothing is said that the JSON does not hold, and no control character gets through.

use super::{ChannelRow, SelectorStatus, Verdict};
use crate::outcome::{count, harmless};
use jiff::Timestamp;
use std::fmt;

fn clock(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

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
    let rows: Vec<[String; 8]> = channels.iter().map(cells).collect();
    let width = |place: usize| {
        let cell = |row: &[String; 8]| row.get(place).map_or(0, |cell| cell.chars().count());
        rows.iter().map(cell).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..8).map(width).collect();
    let line = |row: &[String; 8]| {
        let columns = row.iter().zip(&widths).filter(|(_, width)| **width > 0);
        let padded = columns.map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

impl fmt::Display for SelectorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = &self.head;
        let stands = match (&head.state, &head.last_step) {
            (Some(state), _) => state.as_str(),
            (None, Some(_)) => "nothing was seen yet",
            (None, None) => "never stepped",
        };
        write!(f, "{} (selector)  {stands}", head.policy)?;
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
        for line in rows(&self.channels) {
            write!(f, "\n  {line}")?;
        }
        let is_third = !self.channels.is_empty() && !self.channels.iter().any(|row| row.selected);
        if let Some(selected) = self.selected.as_deref().filter(|_| is_third) {
            write!(f, "\n  * {}, which is neither of them", harmless(selected))?;
        }
        if let Some(rate) = self.received_per_sec {
            write!(f, "\n  {rate} bytes/s are received")?;
        }
        if self.failovers > 0 {
            write!(f, "\n  {} within the window", count(self.failovers, "failover"))?;
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
