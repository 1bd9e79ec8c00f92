//! Why a step did what it did, or nothing.
//!
//! **Invariant:** every row of the selector's table, taken or waited for, has a reason of its own.

use super::state::Chosen;
use crate::machine::ReasonText;
use crate::outcome::harmless;
use crate::policy::selector::Channel;
use jiff::Timestamp;
use std::fmt;
use std::time::Duration;

/// A typed reason. Its code is stable; its text is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Clients are where they belong and both channels answer.
    AllWell,
    /// The core is down or restarting: nothing is counted or moved.
    CoreDown {
        /// What was seen.
        why: String,
    },
    /// The core answers, and not as the policy needs it.
    CoreUnusable {
        /// What was seen.
        why: String,
    },
    /// A stranger's default route is in the way of ours.
    RouteTaken {
        /// Which, and what to do.
        what: String,
    },
    /// The references of the uplink do not answer: nothing is counted or moved.
    WanDown,
    /// The first check after that only looks.
    Settling,
    /// No channel is healthy, which may be this machine's own fault: nothing moves.
    NoneHealthy,
    /// What was found at the first run.
    Found {
        /// What.
        chosen: Chosen,
    },
    /// Somebody has chosen elsewhere.
    PersonsChoice {
        /// What.
        chosen: Chosen,
    },
    /// A person chose by `switch`.
    Switched {
        /// What.
        target: String,
    },
    /// A person's `switch` cannot be carried out.
    SwitchRefused {
        /// What.
        target: String,
        /// Why not.
        why: String,
    },
    /// The core has forgotten our choice, which is written again.
    ChoiceLost {
        /// The choice.
        member: String,
    },
    /// The core has forgotten our choice, which is not written again now.
    ChoiceLostWaits {
        /// The choice.
        member: String,
        /// Why not.
        why: String,
    },
    /// A channel could not be checked.
    Undetermined {
        /// The channel.
        channel: Channel,
        /// Why not.
        why: String,
    },
    /// A channel fails, the other one answers.
    Failing {
        /// The channel.
        channel: Channel,
        /// What the check showed.
        why: String,
        /// For how long so far.
        failing: Duration,
        /// How long it may.
        window: Duration,
    },
    /// The primary answered twice in a row: no failover.
    FalseAlarm,
    /// The primary has failed for long enough, and the reserve fails too.
    BothUnhealthy,
    /// The primary has failed for long enough, and nobody can tell of the reserve.
    ReserveUnknown {
        /// Why not.
        why: String,
    },
    /// A switch waits for a quiet time.
    Waiting {
        /// What flows, in bytes in a second; `None`: unknown.
        rate: Option<u64>,
        /// Since when it waits.
        since: Option<Timestamp>,
        /// Until when at the latest; `None`: without limit.
        until: Option<Timestamp>,
    },
    /// Right before the switch its cause was gone.
    NotSoAnyMore,
    /// Clients were moved to the reserve.
    FailedOver {
        /// What the primary's check showed.
        why: String,
    },
    /// The primary came and went so often that it is not returned to for a while.
    Quarantined {
        /// Failovers within the window.
        failovers: usize,
        /// Until when.
        until: Timestamp,
    },
    /// The primary answers again.
    PrimaryAnswers,
    /// The primary does not answer every check.
    PrimaryUnsteady,
    /// The primary has to answer for longer, or clients have to stay for longer.
    Recovering {
        /// For how long it answers.
        healthy: Duration,
        /// How long it must.
        window: Duration,
        /// For how long clients stay at least from now on.
        stay_left: Duration,
    },
    /// Clients were moved back.
    PrimaryRecovered,
    /// The reserve failed, so clients were moved back at once.
    ReserveFailed {
        /// What its check showed.
        why: String,
    },
    /// The quarantine goes on.
    QuarantineRuns {
        /// Until when.
        until: Timestamp,
    },
    /// The quarantine is over.
    QuarantineOver,
    /// The switch was refused, or did not take.
    Refused {
        /// What was said against it.
        why: String,
    },
    /// There was no time left to look.
    NoTime,
}

impl From<&Reason> for ReasonText {
    fn from(reason: &Reason) -> Self {
        Self { code: reason.code().to_owned(), text: reason.to_string() }
    }
}

impl Reason {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::AllWell => "all-well",
            Self::CoreDown { .. } => "core-down",
            Self::CoreUnusable { .. } => "core-unusable",
            Self::RouteTaken { .. } => "route-taken",
            Self::WanDown => "wan-down",
            Self::Settling => "settling",
            Self::NoneHealthy => "none-healthy",
            Self::Found { .. } => "found",
            Self::PersonsChoice { .. } => "persons-choice",
            Self::Switched { .. } => "switched",
            Self::SwitchRefused { .. } => "switch-refused",
            Self::ChoiceLost { .. } => "choice-lost",
            Self::ChoiceLostWaits { .. } => "choice-lost-waits",
            Self::Undetermined { .. } => "undetermined",
            Self::Failing { channel: Channel::Primary, .. } => "primary-failing",
            Self::Failing { channel: Channel::Reserve, .. } => "reserve-failing",
            Self::FalseAlarm => "false-alarm",
            Self::BothUnhealthy => "both-unhealthy",
            Self::ReserveUnknown { .. } => "reserve-unknown",
            Self::Waiting { .. } => "traffic-guard",
            Self::NotSoAnyMore => "not-so-any-more",
            Self::FailedOver { .. } => "primary-failed",
            Self::Quarantined { .. } => "quarantined",
            Self::PrimaryAnswers => "primary-answers",
            Self::PrimaryUnsteady => "primary-unsteady",
            Self::Recovering { .. } => "recovering",
            Self::PrimaryRecovered => "primary-recovered",
            Self::ReserveFailed { .. } => "reserve-failed",
            Self::QuarantineRuns { .. } => "quarantine-runs",
            Self::QuarantineOver => "quarantine-over",
            Self::Refused { .. } => "refused",
            Self::NoTime => "no-time",
        }
    }
}

fn clock(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

fn seconds(time: Duration) -> u64 {
    time.as_secs()
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(channel) => write!(f, "the {channel}"),
            Self::Third(member) => f.write_str(&harmless(member)),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllWell => f.write_str("both channels answer"),
            Self::CoreDown { why } => write!(f, "the core is down or restarting: {why}"),
            Self::CoreUnusable { why } => f.write_str(why),
            Self::RouteTaken { what } => f.write_str(what),
            Self::WanDown => f.write_str("the WAN does not answer; nothing is counted or moved"),
            Self::Settling => f.write_str("back again; this check only looks"),
            Self::NoneHealthy => f.write_str("no channel answers, so nothing is counted or moved"),
            Self::Found { chosen } => write!(f, "found on {chosen}"),
            Self::PersonsChoice { chosen } => {
                write!(f, "somebody chose {chosen}; nothing is switched until `resume`")
            }
            Self::Switched { target } => write!(f, "a person chose {}", harmless(target)),
            Self::SwitchRefused { target, why } => {
                write!(f, "{} is not chosen: {why}", harmless(target))
            }
            Self::ChoiceLost { member } => {
                write!(f, "the core forgot its selection in a restart; {} again", harmless(member))
            }
            Self::ChoiceLostWaits { member, why } => write!(
                f,
                "the core forgot its selection in a restart; {} is not selected again: {why}",
                harmless(member)
            ),
            Self::Undetermined { channel, why } => {
                write!(f, "nothing can be said of the {channel}: {why}")
            }
            Self::Failing { channel, why, failing, window } => write!(
                f,
                "the {channel} fails for {} s of {} s: {why}",
                seconds(*failing),
                seconds(*window)
            ),
            Self::FalseAlarm => f.write_str("the primary answered twice in a row"),
            Self::BothUnhealthy => f.write_str("both channels fail, so nothing moves"),
            Self::ReserveUnknown { why } => {
                write!(f, "the primary fails and nothing can be said of the reserve: {why}")
            }
            Self::Waiting { rate, since, until } => {
                match rate {
                    Some(rate) => write!(f, "{rate} bytes/s flow, so the switch waits")?,
                    None => f.write_str("what flows is not known yet, so the switch waits")?,
                }
                if let Some(since) = since {
                    write!(f, " since {}", clock(*since))?;
                }
                match until {
                    Some(until) => write!(f, ", until {} at the latest", clock(*until)),
                    None => f.write_str(" for a quiet time"),
                }
            }
            Self::NotSoAnyMore => {
                f.write_str("asked again right before the switch: not so any more")
            }
            Self::FailedOver { why } => write!(f, "the primary failed: {why}"),
            Self::Quarantined { failovers, until } => write!(
                f,
                "{} within the window: the primary is not returned to before {}",
                crate::outcome::count(*failovers, "failover"),
                clock(*until)
            ),
            Self::PrimaryAnswers => f.write_str("the primary answers again"),
            Self::PrimaryUnsteady => f.write_str("the primary does not answer every check"),
            Self::Recovering { healthy, window, stay_left } => {
                write!(
                    f,
                    "the primary answers for {} s of {} s",
                    seconds(*healthy),
                    seconds(*window)
                )?;
                match seconds(*stay_left) {
                    0 => Ok(()),
                    left => write!(f, "; clients stay on the reserve for {left} s more"),
                }
            }
            Self::PrimaryRecovered => f.write_str("the primary has answered for long enough"),
            Self::ReserveFailed { why } => write!(f, "the reserve failed: {why}"),
            Self::QuarantineRuns { until } => {
                write!(f, "the primary is quarantined until {}", clock(*until))
            }
            Self::QuarantineOver => f.write_str("the primary's quarantine is over"),
            Self::Refused { why } => write!(f, "nothing was switched: {why}"),
            Self::NoTime => f.write_str("there was no time left to look"),
        }
    }
}
