//! What the page shows of a selector.
//!
//! **Invariant:** a row a channel, by whether it is the primary or the reserve.

use super::{ChannelRow, SelectorStatus};
use crate::page::{Group, Health, Row, Shown};
use crate::policy::selector::Channel;
use crate::selector::state::Verdict;

impl SelectorStatus {
    /// What the page shows.
    #[must_use]
    pub fn shown(&self) -> Shown {
        let primary = self.channels.iter().find(|row| row.channel == Channel::Primary);
        let away = self.selected.as_ref().filter(|_| primary.is_some_and(|row| !row.selected));
        let badges = away.map(|member| format!("temporarily through {member}"));
        let mut facts = Vec::new();
        if self.failovers > 0 {
            facts.push(format!(
                "{} within the window",
                crate::outcome::count(self.failovers, "failover")
            ));
        }
        facts.extend(self.received_per_sec.map(|rate| format!("{} KiB/s received", rate / 1_024)));
        Shown {
            groups: vec![Group {
                title: "Channels",
                rows: self.channels.iter().map(|row| self.channel(row)).collect(),
            }],
            badges: badges.into_iter().collect(),
            facts,
            next: self.next.clone(),
        }
    }

    fn channel(&self, row: &ChannelRow) -> Row {
        let health = match row.health {
            Verdict::Healthy => Health::Good,
            Verdict::Unhealthy => Health::Bad,
            Verdict::Unknown => Health::Unknown,
        };
        let latency = row.latency_ms.map(|ms| format!("{ms} ms"));
        let failing = (row.failing_sec > 0).then(|| format!("failing for {} s", row.failing_sec));
        Row {
            part: part(row),
            health,
            seen: self.checked_at,
            name: row.member.clone(),
            note: row.channel.as_str().to_owned(),
            in_use: row.selected,
            why: row.why.clone(),
            facts: latency.into_iter().chain(failing).collect(),
        }
    }
}

/// What the 24 hours of a row are kept under.
pub(super) fn part(row: &ChannelRow) -> String {
    row.channel.as_str().to_owned()
}
