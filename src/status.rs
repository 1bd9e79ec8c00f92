//! What every kind's status begins with, and how it is judged.
//!
//! **Invariant:** a status is made of what the last step wrote; how old that is, is part of it.

mod text;

pub(crate) use text::{clock, closing, columns, listed, opening};

use crate::machine::ReasonText;
use crate::names::PolicyName;
use crate::outcome::Ending;
use crate::record::{LastStep, Record};
use crate::time::Moment;
use jiff::Timestamp;
use serde::Serialize;
use std::borrow::Cow;
use std::time::Duration;

/// The exit codes of `status`, in their order of badness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// 0: as wished.
    AsWished,
    /// 1: served, and not as wished.
    Degraded,
    /// 3: older than three intervals, never stepped, or unreadable.
    Stale,
    /// 2: no protected egress.
    Unprotected,
}

impl Standing {
    /// All of them, the best first.
    pub const ALL: [Self; 4] = [Self::AsWished, Self::Degraded, Self::Stale, Self::Unprotected];

    /// As metrics say it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AsWished => "as-wished",
            Self::Degraded => "degraded",
            Self::Stale => "stale",
            Self::Unprotected => "unprotected",
        }
    }

    /// The exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::AsWished => 0,
            Self::Degraded => 1,
            Self::Unprotected => 2,
            Self::Stale => 3,
        }
    }
}

/// What every kind's status begins with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Head {
    /// The policy.
    pub policy: PolicyName,
    /// Its kind.
    pub kind: String,
    /// Where the machine stands; `null` before its first decision.
    pub state: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Since when a person has paused it.
    pub paused: Option<Timestamp>,
    /// Why it stands there.
    pub reasons: Vec<ReasonText>,
    /// How the last step ended.
    pub last_step: Option<Last>,
}

/// How the last step ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Last {
    /// When it began.
    pub at: Timestamp,
    /// How it ended.
    pub outcome: Ending,
    /// The transition that it made.
    pub transition: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
}

impl From<&LastStep> for Last {
    fn from(last: &LastStep) -> Self {
        Self {
            at: last.at.at,
            outcome: last.outcome,
            transition: last.transition.clone(),
            duration_ms: last.duration_ms,
        }
    }
}

/// Something that is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Next {
    /// What.
    pub what: String,
    /// When.
    pub at: Timestamp,
}

impl Head {
    /// The head of a record's status.
    #[must_use]
    pub fn new<S>(
        policy: &PolicyName,
        kind: &str,
        record: &Record<S>,
        stands: Option<(Cow<'static, str>, &Moment)>,
    ) -> Self {
        Self {
            policy: policy.clone(),
            kind: kind.to_owned(),
            since: stands.as_ref().map(|(_, since)| since.at),
            state: stands.map(|(state, _)| state.into_owned()),
            paused: record.paused.as_ref().map(|paused| paused.at),
            reasons: record.last_step.as_ref().map(|last| last.reasons.clone()).unwrap_or_default(),
            last_step: record.last_step.as_ref().map(Last::from),
        }
    }
}

impl Head {
    /// When all parts were last judged by a step that judges all. `None`: the last one did not come to that,
    /// only undid what another had left, or looked on while a person has paused the policy.
    #[must_use]
    pub fn judged_at(&self) -> Option<Timestamp> {
        let last = self.last_step.as_ref().filter(|_| self.paused.is_none())?;
        match last.outcome {
            Ending::Steady | Ending::Applied | Ending::RolledBack => Some(last.at),
            Ending::Recovered | Ending::Failed | Ending::Busy | Ending::NotDue => None,
        }
    }
}

/// Where an interval of 0 is a measure of time, it counts as this.
const ZERO_INTERVAL: Duration = Duration::from_secs(10);

/// An interval as a measure of time.
#[must_use]
pub fn measured(interval: Duration) -> Duration {
    if interval.is_zero() { ZERO_INTERVAL } else { interval }
}

/// Whether the last step is too long ago to say anything: older than three intervals.
#[must_use]
pub fn is_stale(last: Option<&LastStep>, interval: Duration, now: &Moment) -> bool {
    let interval = measured(interval);
    last.is_none_or(|last| now.since(&last.at) > interval.saturating_mul(3))
}
