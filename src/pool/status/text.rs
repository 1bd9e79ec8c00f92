//! A pool's status as one screen of text.
//!
//! **Invariant:** nothing is said that the JSON does not hold, and no control character gets through.

use super::{PoolStatus, SlotHealth, SlotRow, StandbyRow};
use crate::outcome::{count, harmless};
use crate::status::{clock, closing, columns, listed, opening};
use std::collections::BTreeMap;
use std::fmt;

/// So many clients, or unusable entries, are named where there are more: with five slots a status fits one screen.
const NAMED: usize = 4;

/// With more slots than this their clients are not named at all, for the same reason.
const SLOTS_WITH_NAMES: usize = 8;

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
                slot.carries_ipv6
                    .filter(|carries| !carries)
                    .map(|_| "IPv4 alone".to_owned())
                    .unwrap_or_default(),
                format!("since {}", clock(slot.since)),
                why(slot),
            ]
        };
        let (shown, others) = listed(&self.slots, has_something_to_tell);
        let mut lines = columns(&shown.into_iter().map(cells).collect::<Vec<_>>());
        let mut more: BTreeMap<&str, usize> = BTreeMap::new();
        for slot in others {
            *more.entry(slot.health.as_str()).or_default() += 1;
        }
        let more: Vec<_> = more.iter().map(|(health, slots)| format!("{slots} {health}")).collect();
        if !more.is_empty() {
            lines.push(format!("and more slots: {}", more.join(", ")));
        }
        lines
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
            let shown = egresses.iter().take(SLOTS_WITH_NAMES);
            let slots: Vec<_> = shown.map(|(to, buckets)| format!("{to} {buckets}")).collect();
            let more = match egresses.len() - slots.len() {
                0 => String::new(),
                more => format!(", and by {more} more"),
            };
            format!("{prefix} is spread, by buckets: {}{more}", slots.join(", "))
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

/// Whether a slot of many is worth a line of its own.
fn has_something_to_tell(slot: &SlotRow) -> bool {
    slot.health != SlotHealth::Healthy || slot.failures > 0
}

/// How the tunnel is that the provider may be asked through.
fn standby_line(standby: &StandbyRow) -> String {
    let endpoint = standby.endpoint.as_deref().map(|name| format!(": {}", harmless(name)));
    let latency = standby.latency_ms.map(|latency| format!("  {latency} ms"));
    let why = Some(&standby.why).filter(|why| !why.is_empty());
    [
        Some(format!("standby {} {}", standby.interface, standby.health.as_str())),
        endpoint,
        latency,
        Some(format!("  since {}", clock(standby.since))),
        why.map(|why| format!("  {}", harmless(why))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl fmt::Display for PoolStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = opening(&self.head, self.is_stale, "nothing was made yet");
        lines.extend(self.slot_rows());
        lines.extend(self.client_lines());
        lines.extend(self.standby.as_ref().map(standby_line));
        if let Some(pool) = &self.pool {
            lines.push(format!(
                "list {} of {}: {} in reserve, {} quarantined; {} since the last full refresh",
                pool.generation,
                clock(pool.fetched_at),
                pool.reserve,
                pool.quarantined,
                count(
                    usize::try_from(self.repair_events_since_full_refresh).unwrap_or(usize::MAX),
                    "repair"
                )
            ));
        }
        for entry in self.left_out.iter().take(NAMED) {
            let (name, why) = (harmless(&entry.name), harmless(&entry.why));
            lines.push(format!("unusable, and so left out: {name}: {why}"));
        }
        let more = self.left_out.len().saturating_sub(NAMED);
        if more > 0 {
            lines.push(format!("and at least {more} more of the list"));
        }
        lines.extend(closing(&self.next, self.now));
        f.write_str(&lines.join("\n  "))
    }
}
