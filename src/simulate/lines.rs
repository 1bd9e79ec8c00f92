//! A timeline as people read it.
//!
//! **Invariant:** what is not shown was like the moment before, and is counted.

use super::timeline::{Entry, Way};
use crate::outcome::{Ending, count, harmless};
use std::collections::BTreeMap;

/// The lines of a timeline for people: what is like the moment before is counted and not shown again.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    last: Option<Entry>,
    alike: usize,
}

impl Lines {
    /// The lines of one more moment.
    pub fn of(&mut self, entry: Entry) -> Vec<String> {
        let mut lines = Vec::new();
        if self.last.as_ref().is_some_and(|last| is_like(last, &entry)) {
            self.alike = self.alike.saturating_add(1);
            self.last = Some(entry);
            return lines;
        }
        lines.extend(self.rest());
        let at = clock(entry.at_sec);
        for event in &entry.events {
            lines.push(format!("{at}  * {}", harmless(event)));
        }
        if let Some(report) = &entry.step {
            lines.push(format!("{at}  {report}"));
        }
        let last = self.last.as_ref();
        let moved =
            last.is_none_or(|last| last.serving != entry.serving || last.clients != entry.clients);
        if moved {
            lines.push(format!("{:10}{}", "", ways(&entry)));
        }
        self.last = Some(entry);
        lines
    }

    /// What is left to say.
    pub fn rest(&mut self) -> Option<String> {
        let alike = std::mem::take(&mut self.alike);
        (alike > 0).then(|| format!("{:10}{} like it", "", count(alike, "more step")))
    }
}

/// Whether a moment tells nothing that the one before did not tell.
fn is_like(last: &Entry, entry: &Entry) -> bool {
    let codes = |entry: &Entry| -> Vec<String> {
        let reasons = entry.step.iter().flat_map(|step| &step.reasons);
        reasons.map(|reason| reason.code.clone()).collect()
    };
    let quiet = |entry: &Entry| {
        entry.step.as_ref().is_some_and(|s| s.outcome == Ending::Steady && s.from == s.to)
    };
    entry.events.is_empty()
        && quiet(entry)
        && quiet(last)
        && codes(last) == codes(entry)
        && last.serving == entry.serving
        && last.clients == entry.clients
}

/// `h:mm:ss`.
fn clock(seconds: u64) -> String {
    format!("{:2}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Who serves, and how many clients leave by which way.
fn ways(entry: &Entry) -> String {
    let serving: Vec<String> =
        entry.serving.iter().map(|(slot, name)| format!("{slot}={name}")).collect();
    let mut by: BTreeMap<&Way, usize> = BTreeMap::new();
    for way in entry.clients.values() {
        let n = by.entry(way).or_default();
        *n = n.saturating_add(1);
    }
    let by: Vec<String> = by
        .iter()
        .map(|(way, n)| match way {
            Way::Slot(slot) => format!("{n} by {slot}"),
            Way::Direct => format!("{n} by the WAN"),
            Way::Closed => format!("{n} closed in"),
            Way::Main => format!("{n} as before"),
        })
        .collect();
    let serving = if serving.is_empty() { "no slot serves".to_owned() } else { serving.join(" ") };
    format!("{serving}; clients: {}", by.join(", "))
}
