//! Why a guard does what it does, or nothing.
//!
//! **Invariant:** every decision has a reason; that the core cannot be reached and that no member
//! passes are two.

use crate::machine::ReasonText;
use crate::outcome::{count, harmless};
use std::fmt;
use std::time::Duration;

/// A typed reason. Its code is stable; its text is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The automatic group chooses and requests pass.
    AllWell,
    /// The core is down or restarting: nothing is counted or written.
    CoreDown {
        /// What was seen.
        why: String,
    },
    /// The core has no such group now: nothing is counted or written.
    GroupMissing {
        /// What was seen.
        why: String,
    },
    /// The core answers, and not as the policy needs it.
    CoreUnusable {
        /// What was seen.
        why: String,
    },
    /// The references do not answer past the proxy either: nothing is counted or written.
    Offline,
    /// The references do not answer any more once something was tried: it shows nothing.
    FellOffline,
    /// The first round after the core was down or restarted only looks.
    Settling,
    /// What was found at the first run.
    Found {
        /// What is selected.
        member: String,
    },
    /// Somebody has selected another member.
    PersonsChoice {
        /// Which.
        member: String,
    },
    /// Somebody has handed the choice back to the automatic group.
    HandedBack,
    /// A person's member, left alone.
    PersonsMember {
        /// Which.
        member: String,
    },
    /// A person's member does not pass requests; it is not replaced.
    PersonsMemberFails {
        /// Which.
        member: String,
        /// What the round showed.
        why: String,
    },
    /// A person's `switch` was carried out.
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
    },
    /// Our member is no longer in the group.
    MemberGone {
        /// The member.
        member: String,
    },
    /// Nothing can be said of the round.
    Undetermined {
        /// Why not.
        why: String,
    },
    /// The round failed.
    RoundFails {
        /// What it showed.
        why: String,
        /// Failed rounds in a row.
        failed: u32,
        /// How many allow another choice.
        limit: u32,
    },
    /// Requests pass again.
    PassesAgain,
    /// The last recovery did not help, and the next one waits.
    BacksOff {
        /// How much longer.
        left: Duration,
    },
    /// The group has no other member that could be tried.
    NoCandidate,
    /// The core could measure no member: nothing was written.
    NoneMeasured {
        /// How many it tried.
        asked: usize,
    },
    /// A member was selected in the group's place, and requests pass.
    TookOver {
        /// Which.
        member: String,
    },
    /// Requests pass by no member that was measured.
    NoMemberPasses {
        /// How many were tried.
        tried: usize,
    },
    /// Not all could be tried in this step.
    NotFinished {
        /// How many were tried.
        tried: usize,
        /// How many are left.
        left: usize,
    },
    /// Our member passes, and the automatic group does not answer the core.
    GroupFails {
        /// What the core said.
        why: String,
    },
    /// The automatic group answers the core.
    GroupAnswers {
        /// How often in a row.
        passes: u32,
        /// How often it must.
        enough: u32,
        /// How long it is not tried yet.
        wait: Duration,
    },
    /// The automatic group was selected, and requests pass.
    GivenBack,
    /// The automatic group was selected, and requests failed: our member is selected again.
    TrialFailed {
        /// What the request showed.
        why: String,
    },
    /// A selection was refused, or did not take.
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
            Self::GroupMissing { .. } => "group-missing",
            Self::CoreUnusable { .. } => "core-unusable",
            Self::Offline | Self::FellOffline => "offline",
            Self::Settling => "settling",
            Self::Found { .. } => "found",
            Self::PersonsChoice { .. } => "persons-choice",
            Self::HandedBack => "handed-back",
            Self::PersonsMember { .. } => "persons-member",
            Self::PersonsMemberFails { .. } => "persons-member-fails",
            Self::Switched { .. } => "switched",
            Self::SwitchRefused { .. } => "switch-refused",
            Self::ChoiceLost { .. } => "choice-lost",
            Self::ChoiceLostWaits { .. } => "choice-lost-waits",
            Self::MemberGone { .. } => "member-gone",
            Self::Undetermined { .. } => "undetermined",
            Self::RoundFails { .. } => "round-fails",
            Self::PassesAgain => "passes-again",
            Self::BacksOff { .. } => "backs-off",
            Self::NoCandidate => "no-candidate",
            Self::NoneMeasured { .. } => "none-measured",
            Self::TookOver { .. } => "took-over",
            Self::NoMemberPasses { .. } => "no-member-passes",
            Self::NotFinished { .. } => "not-finished",
            Self::GroupFails { .. } => "group-fails",
            Self::GroupAnswers { .. } => "group-answers",
            Self::GivenBack => "given-back",
            Self::TrialFailed { .. } => "trial-failed",
            Self::Refused { .. } => "refused",
            Self::NoTime => "no-time",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllWell => f.write_str("the automatic group chooses and requests pass"),
            Self::CoreDown { why } => write!(f, "the core is down or restarting: {why}"),
            Self::GroupMissing { why } | Self::CoreUnusable { why } => f.write_str(why),
            Self::Offline => f.write_str(
                "the references do not answer past the proxy either; nothing is counted or written",
            ),
            Self::FellOffline => f.write_str(
                "the references do not answer past the proxy any more; what was tried counts for nothing",
            ),
            Self::Settling => f.write_str("the core is back; this round only looks"),
            Self::Found { member } => write!(f, "found with {} selected", harmless(member)),
            Self::PersonsChoice { member } => write!(
                f,
                "somebody selected {}; it stays until the automatic group is selected again",
                harmless(member)
            ),
            Self::HandedBack => f.write_str("somebody selected the automatic group again"),
            Self::PersonsMember { member } => {
                write!(f, "{} was selected by a person, and requests pass", harmless(member))
            }
            Self::PersonsMemberFails { member, why } => write!(
                f,
                "{} was selected by a person and fails: {why}; select another, or the automatic group",
                harmless(member)
            ),
            Self::Switched { target } => write!(f, "a person chose {}", harmless(target)),
            Self::SwitchRefused { target, why } => {
                write!(f, "{} is not chosen: {why}", harmless(target))
            }
            Self::ChoiceLost { member } => {
                write!(f, "the core forgot its selection in a restart; {} again", harmless(member))
            }
            Self::ChoiceLostWaits { member } => write!(
                f,
                "the core forgot its selection in a restart; {} is not selected again while paused",
                harmless(member)
            ),
            Self::MemberGone { member } => write!(
                f,
                "{} is no member of the group any more; the automatic group chooses",
                harmless(member)
            ),
            Self::Undetermined { why } => write!(f, "nothing can be said of the round: {why}"),
            Self::RoundFails { why, failed: 0, .. } => write!(f, "the round failed: {why}"),
            Self::RoundFails { why, failed, limit } => {
                write!(f, "{} of {limit} failed: {why}", count_rounds(*failed))
            }
            Self::PassesAgain => f.write_str("requests pass again"),
            Self::BacksOff { left } => {
                write!(f, "nothing else is tried for {} s", left.as_secs())
            }
            Self::NoCandidate => f.write_str("the group has no other member that could be tried"),
            Self::NoneMeasured { asked } => write!(
                f,
                "the core measured none of {}; nothing was written",
                count(*asked, "member")
            ),
            Self::TookOver { member } => {
                write!(f, "{} was selected, and requests pass by it", harmless(member))
            }
            Self::NoMemberPasses { tried } => write!(
                f,
                "the core answers, and requests pass by none of {} that it measured",
                count(*tried, "member")
            ),
            Self::NotFinished { tried, left } => write!(
                f,
                "requests pass by none of {}; {left} more in the next step",
                count(*tried, "member")
            ),
            Self::GroupFails { why } => {
                write!(f, "requests pass; the automatic group does not answer the core: {why}")
            }
            Self::GroupAnswers { passes, enough, wait } => {
                write!(f, "the automatic group answered the core {passes} of {enough} times")?;
                match wait.as_secs() {
                    0 => Ok(()),
                    left => write!(f, "; it is not tried for {left} s"),
                }
            }
            Self::GivenBack => {
                f.write_str("the automatic group was selected again, and requests pass")
            }
            Self::TrialFailed { why } => {
                write!(f, "the automatic group was selected, and requests failed: {why}")
            }
            Self::Refused { why } => write!(f, "nothing was selected: {why}"),
            Self::NoTime => f.write_str("there was no time left to look"),
        }
    }
}

fn count_rounds(failed: u32) -> String {
    count(usize::try_from(failed).unwrap_or(usize::MAX), "round")
}
