//! A pool's status as one screen of text.
//!
//! **Invariant:** nothing is said that the JSON does not hold, and no control character gets through.

use super::{PoolStatus, SlotRow};
use crate::outcome::{count, harmless};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;

/// So many clients, or unusable entries, are named where there are more: with five slots a status fits one screen.
const NAMED: usize = 4;

/// With more slots than this their clients are not named at all, for the same reason.
const SLOTS_WITH_NAMES: usize = 8;

fn clock(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

impl PoolStatus {
    /// The clients that leave by `egress`, and how many buckets of spread prefixes do.
    fn leaving(&self, egress: &str) -> (Vec<&str>, usize) {
        let here = self.clients.iter().filter(|row| row.egress == egress);
        let (buckets, clients): (Vec<&str>, Vec<&str>) =
            here.map(|row| row.client.as_str()).partition(|client| client.contains('#'));
        (clients, buckets.len())
    }

    /// `2 clients`, `51 buckets`, or both.
    fn how_many(&self, egress: &str) -> String {
        let (clients, buckets) = self.leaving(egress);
        match (clients.len(), buckets) {
            (clients, 0) => count(clients, "client"),
            (0, buckets) => count(buckets, "bucket"),
            (clients, buckets) => {
                format!("{}, {}", count(clients, "client"), count(buckets, "bucket"))
            }
        }
    }

    /// The names of those clients, folded.
    fn names(&self, egress: &str) -> String {
        let (clients, _) = self.leaving(egress);
        let more = clients.len().saturating_sub(NAMED);
        let names = clients.into_iter().take(NAMED).collect::<Vec<_>>().join(" ");
        if more > 0 { format!("{names} and {more} more") } else { names }
    }

    /// A row a slot, in columns.
    fn slot_rows(&self) -> Vec<String> {
        let cells = |slot: &SlotRow| {
            [
                slot.interface.to_string(),
                slot.health.as_str().to_owned(),
                slot.endpoint.as_deref().map_or_else(|| "-".to_owned(), harmless),
                self.how_many(slot.interface.as_str()),
                slot.latency_ms.map(|latency| format!("{latency} ms")).unwrap_or_default(),
                slot.exit_ip.map(|exit| format!("exit {exit}")).unwrap_or_default(),
                format!("since {}", clock(slot.since)),
                why(slot),
            ]
        };
        let rows: Vec<_> = self.slots.iter().map(cells).collect();
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

    /// Who leaves where.
    fn client_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (egress, one, many) in [
            ("direct", "leaves by the WAN, unprotected", "leave by the WAN, unprotected"),
            ("none", "is closed in", "are closed in"),
        ] {
            let (clients, buckets) = self.leaving(egress);
            if clients.len() + buckets > 0 {
                let words = if clients.len() + buckets == 1 { one } else { many };
                let names = Some(self.names(egress)).filter(|names| !names.is_empty());
                let names = names.map(|names| format!(": {names}")).unwrap_or_default();
                lines.push(format!("{} {words}{names}", self.how_many(egress)));
            }
        }
        if self.slots.len() <= SLOTS_WITH_NAMES {
            for slot in &self.slots {
                let names = self.names(slot.interface.as_str());
                if !names.is_empty() {
                    lines.push(format!("{} carries {names}", slot.interface));
                }
            }
        }
        lines.extend(self.spread_lines());
        lines
    }

    /// How the buckets of each spread prefix are spread.
    fn spread_lines(&self) -> Vec<String> {
        let mut prefixes: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        for row in &self.clients {
            if let Some((prefix, _)) = row.client.split_once('#') {
                let egresses = prefixes.entry(prefix).or_default();
                *egresses.entry(row.egress.as_str()).or_default() += 1;
            }
        }
        let line = |(prefix, egresses): (&str, BTreeMap<&str, usize>)| {
            let slots: Vec<_> = egresses.iter().map(|(to, n)| format!("{to} {n}")).collect();
            format!("{prefix} is spread, by buckets: {}", slots.join(", "))
        };
        prefixes.into_iter().map(line).collect()
    }
}

/// Why a slot is as it is, with what was counted.
fn why(slot: &SlotRow) -> String {
    let why = harmless(&slot.why);
    match (why.as_str(), usize::try_from(slot.failures).unwrap_or(usize::MAX)) {
        (_, 0) => why,
        ("", failures) => count(failures, "failed check"),
        (_, failures) => format!("{why} ({})", count(failures, "failed check")),
    }
}

impl fmt::Display for PoolStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = &self.head;
        let stands = match (&head.state, &head.last_step) {
            (Some(state), _) => state.as_str(),
            (None, Some(_)) => "nothing was made yet",
            (None, None) => "never stepped",
        };
        write!(f, "{} (pool)  {stands}", head.policy)?;
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
        for line in self.slot_rows().iter().chain(&self.client_lines()) {
            write!(f, "\n  {line}")?;
        }
        if let Some(standby) = &self.standby {
            write!(f, "\n  standby {} {}", standby.interface, standby.health.as_str())?;
            if let Some(endpoint) = &standby.endpoint {
                write!(f, ": {}", harmless(endpoint))?;
            }
            if let Some(latency) = standby.latency_ms {
                write!(f, "  {latency} ms")?;
            }
            write!(f, "  since {}", clock(standby.since))?;
            if !standby.why.is_empty() {
                write!(f, "  {}", harmless(&standby.why))?;
            }
        }
        if let Some(pool) = &self.pool {
            write!(
                f,
                "\n  list {} of {}: {} in reserve, {} quarantined; {} since the last full refresh",
                pool.generation,
                clock(pool.fetched_at),
                pool.reserve,
                pool.quarantined,
                count(
                    usize::try_from(self.repair_events_since_full_refresh).unwrap_or(usize::MAX),
                    "repair"
                )
            )?;
        }
        for entry in self.left_out.iter().take(NAMED) {
            let (name, why) = (harmless(&entry.name), harmless(&entry.why));
            write!(f, "\n  unusable, and so left out: {name}: {why}")?;
        }
        let more = self.left_out.len().saturating_sub(NAMED);
        if more > 0 {
            write!(f, "\n  and at least {more} more of the list")?;
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
