//! A guard's status as one screen of text.
//!
//! **Invariant:** nothing is said that the JSON does not hold, and no control character gets through.

use super::{GuardStatus, MemberRow, Verdict};
use crate::outcome::harmless;
use jiff::Timestamp;
use std::fmt;

fn clock(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// How long ago a moment was, for people.
fn age(now: Timestamp, at: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(at.as_second()).max(0);
    match seconds {
        0..=119 => format!("{seconds} s ago"),
        120..=7_199 => format!("{} min ago", seconds / 60),
        _ => format!("at {}", clock(at)),
    }
}

fn core(row: &MemberRow, now: Timestamp) -> String {
    let Some(said) = &row.core else { return String::new() };
    let what = match said.delay_ms {
        Some(delay) => format!("{delay} ms"),
        None => harmless(&said.why),
    };
    format!("core: {what} {}", age(now, said.at))
}

fn request(row: &MemberRow, now: Timestamp) -> String {
    let Some(showed) = &row.request else { return String::new() };
    let verdict = match showed.health {
        Verdict::Passed => "passed",
        Verdict::Failed => "failed",
        Verdict::Unknown => "unknown",
    };
    let latency = showed.latency_ms.map(|ms| format!(" in {ms} ms")).unwrap_or_default();
    let why =
        if showed.why.is_empty() { String::new() } else { format!(": {}", harmless(&showed.why)) };
    format!("request: {verdict}{latency} {}{why}", age(now, showed.at))
}

/// A row a member, in columns.
fn rows(members: &[MemberRow], now: Timestamp) -> Vec<String> {
    let cells = |row: &MemberRow| {
        [
            if row.selected { "*" } else { " " }.to_owned(),
            harmless(&row.member),
            core(row, now),
            request(row, now),
        ]
    };
    let rows: Vec<[String; 4]> = members.iter().map(cells).collect();
    let width = |place: usize| {
        let cell = |row: &[String; 4]| row.get(place).map_or(0, |cell| cell.chars().count());
        rows.iter().map(cell).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..4).map(width).collect();
    let line = |row: &[String; 4]| {
        let columns = row.iter().zip(&widths).filter(|(_, width)| **width > 0);
        let padded = columns.map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

impl fmt::Display for GuardStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = &self.head;
        let stands = match (&head.state, &head.last_step) {
            (Some(state), _) => state.as_str(),
            (None, Some(_)) => "nothing was seen yet",
            (None, None) => "never stepped",
        };
        write!(f, "{} (guard)  {stands}", head.policy)?;
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
        for line in rows(&self.members, self.now) {
            write!(f, "\n  {line}")?;
        }
        if let Some(uses) = &self.uses {
            let (member, age) = (harmless(&uses.member), age(self.now, uses.at));
            write!(f, "\n  the automatic group uses {member}, as the core said {age}")?;
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
