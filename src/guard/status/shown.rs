//! What the page shows of a guard.
//!
//! **Invariant:** a row a member, and what the core says of it never stands for what a request showed
//! of the member in use.

use super::{GuardStatus, MemberRow};
use crate::guard::state::Mode;
use crate::page::{Group, Health, Row, Shown};
use crate::proxy::Verdict;

impl From<Verdict> for Health {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Passed => Self::Good,
            Verdict::Failed => Self::Bad,
            Verdict::Unknown => Self::Unknown,
        }
    }
}

impl GuardStatus {
    /// What the page shows.
    #[must_use]
    pub fn shown(&self) -> Shown {
        let state = self.head.state.as_deref();
        let helps = [Mode::Temporary, Mode::Observing].iter().any(|m| state == Some(m.as_str()));
        let mut badges = Vec::new();
        if let Some(member) = self.selected.as_ref().filter(|_| helps) {
            badges.push(format!("temporarily through {member}"));
        }
        if state == Some(Mode::Manual.as_str()) {
            badges.push("a person has chosen".to_owned());
        }
        badges.extend(self.core_trouble.clone());
        let uses = self.uses.as_ref().map(|uses| format!("the group uses {}", uses.member));
        Shown {
            groups: vec![Group {
                title: "Members",
                rows: self.members.iter().map(member).collect(),
            }],
            badges,
            facts: uses.into_iter().collect(),
            next: self.next.clone(),
        }
    }
}

/// The row of a member.
pub(super) fn member(row: &MemberRow) -> Row {
    let request = row.request.as_ref().filter(|_| row.selected);
    let (health, seen, why, latency) = match (request, &row.core) {
        (Some(showed), _) => {
            let latency = showed.latency_ms.map(|ms| format!("{ms} ms"));
            (showed.health.into(), Some(showed.at), showed.why.clone(), latency)
        }
        (None, Some(said)) => {
            let delay = said.delay_ms.map(|ms| format!("{ms} ms by the core"));
            (said.health.into(), Some(said.at), said.why.clone(), delay)
        }
        (None, None) => (Health::Idle, None, String::new(), None),
    };
    Row {
        part: part(row),
        health,
        seen,
        name: row.member.clone(),
        note: if row.automatic { "the automatic group".to_owned() } else { String::new() },
        in_use: row.selected,
        why,
        facts: latency.into_iter().collect(),
    }
}

/// What the 24 hours of a row are kept under.
pub(super) fn part(row: &MemberRow) -> String {
    format!("member {}", row.member)
}
