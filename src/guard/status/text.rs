//! A guard's status as one screen of text.
//!
//! **Invariant:** nothing is said that the JSON does not hold, and no control character gets through.

use super::{GuardStatus, MemberRow, Verdict};
use crate::outcome::{count, harmless};
use crate::status::{clock, closing, columns, listed, opening};
use jiff::Timestamp;
use std::fmt;

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
fn rows(members: &[&MemberRow], now: Timestamp) -> Vec<String> {
    let cells = |row: &&MemberRow| {
        [
            if row.selected { "*" } else { " " }.to_owned(),
            harmless(&row.member),
            core(row, now),
            request(row, now),
        ]
    };
    columns(&members.iter().map(cells).collect::<Vec<_>>())
}

impl fmt::Display for GuardStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = opening(&self.head, self.is_stale, "nothing was seen yet");
        let tells = |row: &MemberRow| row.selected || row.request.is_some();
        let (shown, others) = listed(&self.members, tells);
        lines.extend(rows(&shown, self.now));
        if !others.is_empty() {
            lines.push(format!("and {}", count(others.len(), "more member")));
        }
        if let Some(uses) = &self.uses {
            let (member, age) = (harmless(&uses.member), age(self.now, uses.at));
            lines.push(format!("the automatic group uses {member}, as the core said {age}"));
        }
        lines.extend(closing(&self.next, self.now));
        f.write_str(&lines.join("\n  "))
    }
}
