//! Why a step moved records, or did not.
//!
//! **Invariant:** every row of the machine, taken or waited for, has a reason of its own.

use super::name::{HostName, NodeName};
use crate::machine::ReasonText;
use std::fmt;

/// What is the matter with a record that is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stranger {
    /// It points at none of the host's nodes.
    Elsewhere,
    /// There is none.
    Missing,
    /// It holds more addresses than the policy publishes.
    Several {
        /// How many that are.
        records: usize,
    },
}

/// A typed reason. Its code is stable; its text is for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Every host is on its native, and nothing is to be done.
    AllNative,
    /// Nothing is to be done where not every host is on its native.
    NothingNew,
    /// The reference does not answer: this machine is offline, and the round tells nothing.
    Offline {
        /// Whether nodes were asked before.
        after: bool,
    },
    /// There was no time to ask everybody.
    NoTime,
    /// Most nodes failed at once, which is more likely this machine's fault.
    MassFailure {
        /// Nodes that failed.
        failed: usize,
        /// Nodes that were up before.
        up: usize,
        /// Which such round in a row.
        round: u32,
        /// How many of them are not believed.
        limit: u32,
    },
    /// It lasted, so it is believed.
    MassBelieved {
        /// Nodes that failed.
        failed: usize,
    },
    /// A record was taken up.
    Adopted {
        /// The host.
        host: HostName,
        /// What it points at.
        nodes: String,
    },
    /// A record is none of ours.
    Foreign {
        /// The host.
        host: HostName,
        /// What stands there.
        found: String,
        /// What is the matter with it.
        stranger: Stranger,
    },
    /// Somebody else changed a record.
    Edited {
        /// The host.
        host: HostName,
        /// What stands there.
        found: String,
        /// What was ours.
        ours: String,
    },
    /// A record is ours again.
    OursAgain {
        /// The host.
        host: HostName,
    },
    /// A record cannot be read.
    Unreadable {
        /// The host.
        host: HostName,
        /// Why.
        why: String,
    },
    /// A published node fails its checks.
    CheckFailed {
        /// The host.
        host: HostName,
        /// The node.
        node: NodeName,
        /// Failed checks in a row.
        failures: u32,
        /// What the last one showed.
        why: String,
    },
    /// Nobody knows how the native is.
    CheckUnknown {
        /// The host.
        host: HostName,
        /// The node.
        node: NodeName,
        /// Why.
        why: String,
    },
    /// The native passes again, before it was down.
    FalseAlarm {
        /// The host.
        host: HostName,
    },
    /// A record moves away from what is down.
    MovedAway {
        /// The host.
        host: HostName,
        /// Where it pointed.
        from: String,
        /// Where it points.
        to: String,
        /// Why.
        why: String,
    },
    /// A record moves back to its native.
    Returned {
        /// The host.
        host: HostName,
        /// Where it pointed.
        from: String,
    },
    /// The native failed too often.
    Quarantined {
        /// The host.
        host: HostName,
        /// How often it was left in the window.
        times: usize,
        /// How long it is not returned to, in seconds.
        sec: u64,
    },
    /// That time is over.
    QuarantineOver {
        /// The host.
        host: HostName,
    },
    /// No node is eligible: the record stays.
    Stranded {
        /// The host.
        host: HostName,
        /// Where it points.
        at: String,
    },
    /// What the record points at is up again.
    UpAgain {
        /// The host.
        host: HostName,
        /// Where it points.
        at: String,
    },
    /// The native passes checks again.
    Recovering {
        /// The host.
        host: HostName,
        /// Passed checks in a row.
        passes: u32,
        /// How much of the stay is left, in seconds.
        left_sec: u64,
    },
    /// The native failed again before it was returned to.
    FailedAgain {
        /// The host.
        host: HostName,
    },
    /// The addresses of a record of several change.
    SetChanged {
        /// The host.
        host: HostName,
        /// Where it pointed.
        from: String,
        /// Where it points.
        to: String,
        /// Why.
        why: String,
    },
    /// Others take their turn.
    Rotated {
        /// The host.
        host: HostName,
        /// Who.
        to: String,
    },
    /// The policy gave a published node another address.
    Followed {
        /// The host.
        host: HostName,
        /// The nodes.
        nodes: String,
    },
    /// The policy gave a host another native.
    NativeChanged {
        /// The host.
        host: HostName,
        /// The new one.
        native: NodeName,
    },
    /// The provider wants to be left alone.
    Waiting {
        /// The host.
        host: HostName,
        /// For how long still, in seconds.
        sec: u64,
    },
    /// A write was refused.
    Refused {
        /// The host.
        host: HostName,
        /// Why.
        why: String,
    },
    /// A write could not be read back.
    Unproven {
        /// The host.
        host: HostName,
        /// Why.
        why: String,
    },
    /// A write that could not be read back shows after all, or does not.
    Settled {
        /// The host.
        host: HostName,
        /// Whether it shows.
        done: bool,
    },
    /// A write changed more than it should have.
    Altered {
        /// The host.
        host: HostName,
        /// What stood there.
        was: String,
        /// What was to be written.
        wished: String,
        /// What stands there.
        is: String,
    },
    /// A person chose a node.
    PersonsChoice {
        /// The host.
        host: HostName,
        /// The node.
        node: NodeName,
    },
    /// A person's choice cannot be carried out.
    ChoiceWaits {
        /// The host.
        host: HostName,
        /// Why.
        why: String,
    },
    /// A host is not in the policy any more.
    Forgotten {
        /// The host.
        host: HostName,
        /// Where its record points.
        addresses: String,
    },
    /// Resolvers keep a record longer than the policy wants.
    LongTtl {
        /// The host.
        host: HostName,
        /// Its TTL in seconds.
        ttl: u32,
        /// The policy's.
        wished: u32,
    },
}

impl Reason {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::AllNative => "all-native",
            Self::NothingNew => "nothing-new",
            Self::Offline { .. } => "offline",
            Self::NoTime => "no-time",
            Self::MassFailure { .. } => "mass-failure",
            Self::MassBelieved { .. } => "mass-believed",
            Self::Adopted { .. } => "adopted",
            Self::Foreign { .. } => "foreign",
            Self::Edited { .. } => "edited",
            Self::OursAgain { .. } => "ours-again",
            Self::Unreadable { .. } => "unreadable",
            Self::CheckFailed { .. } => "check-failed",
            Self::CheckUnknown { .. } => "check-unknown",
            Self::FalseAlarm { .. } => "false-alarm",
            Self::MovedAway { .. } => "moved-away",
            Self::Returned { .. } => "returned",
            Self::Quarantined { .. } => "quarantined",
            Self::QuarantineOver { .. } => "quarantine-over",
            Self::Stranded { .. } => "stranded",
            Self::UpAgain { .. } => "up-again",
            Self::Recovering { .. } => "recovering",
            Self::FailedAgain { .. } => "failed-again",
            Self::SetChanged { .. } => "set-changed",
            Self::Rotated { .. } => "rotated",
            Self::Followed { .. } => "address-followed",
            Self::NativeChanged { .. } => "native-changed",
            Self::Waiting { .. } => "waiting",
            Self::Refused { .. } => "refused",
            Self::Unproven { .. } => "unproven",
            Self::Settled { .. } => "settled",
            Self::Altered { .. } => "altered",
            Self::PersonsChoice { .. } => "persons-choice",
            Self::ChoiceWaits { .. } => "choice-waits",
            Self::Forgotten { .. } => "forgotten",
            Self::LongTtl { .. } => "long-ttl",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllNative => f.write_str("all hosts are on their natives"),
            Self::NothingNew => f.write_str("nothing is to be done"),
            Self::Offline { after: false } => {
                f.write_str("the reference does not answer, so this machine is offline: nothing is counted or written")
            }
            Self::Offline { after: true } => {
                f.write_str("the reference did not answer any more after the round, so the round does not count")
            }
            Self::NoTime => f.write_str("there was no time to ask all nodes, so the round does not count"),
            Self::MassFailure { failed, up, round, limit } => write!(
                f,
                "{failed} of {up} nodes failed at once, which is not believed (round {round} of {limit})"
            ),
            Self::MassBelieved { failed } => {
                write!(f, "{failed} nodes still fail at once, which is believed now")
            }
            Self::Adopted { host, nodes } => write!(f, "{host} points at {nodes}"),
            Self::Foreign { host, found, stranger: Stranger::Elsewhere } => write!(
                f,
                "{host} holds {found}, which is none of its nodes: it is left alone until `resume` or `switch` of it"
            ),
            Self::Foreign { host, stranger: Stranger::Missing, .. } => write!(
                f,
                "{host} has no address record, and none is made: make one, then `resume` it"
            ),
            Self::Foreign { host, found, stranger: Stranger::Several { records } } => write!(
                f,
                "{host} holds {found} and records is {records}: remove some or raise it, then `resume` it"
            ),
            Self::Edited { host, found, ours } => write!(
                f,
                "somebody set {host} to {found}, ours was {ours}: it is left alone until `resume` or `switch` of it"
            ),
            Self::OursAgain { host } => write!(f, "{host} holds ours again: it is kept on"),
            Self::Unreadable { host, why } => write!(f, "{host} cannot be read: {why}"),
            Self::CheckFailed { host, node, failures, why } => {
                write!(f, "{node} of {host} failed {failures} in a row: {why}")
            }
            Self::CheckUnknown { host, node, why } => {
                write!(f, "nobody knows how {node} of {host} is: {why}")
            }
            Self::FalseAlarm { host } => write!(f, "the native of {host} passes again"),
            Self::MovedAway { host, from, to, why } => {
                write!(f, "{host} moved from {from} to {to}: {why}")
            }
            Self::Returned { host, from } => write!(f, "{host} returned from {from} to its native"),
            Self::Quarantined { host, times, sec } => write!(
                f,
                "the native of {host} was left {times} times: it is not returned to for {sec} s"
            ),
            Self::QuarantineOver { host } => {
                write!(f, "the native of {host} may be returned to again")
            }
            Self::Stranded { host, at } => {
                write!(f, "no node serves {host}: its record stays at {at}")
            }
            Self::UpAgain { host, at } => write!(f, "{at} serves {host} again"),
            Self::Recovering { host, passes, left_sec: 0 } => {
                write!(f, "the native of {host} passed {passes} in a row")
            }
            Self::Recovering { host, passes, left_sec } => {
                write!(f, "the native of {host} passed {passes} in a row; {left_sec} s of the stay are left")
            }
            Self::FailedAgain { host } => write!(f, "the native of {host} failed again"),
            Self::SetChanged { host, from, to, why } => {
                write!(f, "{host} changed from {from} to {to}: {why}")
            }
            Self::Rotated { host, to } => write!(f, "{host} took its next turn, to {to}"),
            Self::Followed { host, nodes } => {
                write!(f, "{host} followed {nodes} to the address in the policy")
            }
            Self::NativeChanged { host, native } => {
                write!(f, "the native of {host} is {native} now")
            }
            Self::Waiting { host, sec } => {
                write!(f, "{host} is not written for {sec} s, as its provider wishes")
            }
            Self::Refused { host, why } => write!(f, "{host} was not changed: {why}"),
            Self::Unproven { host, why } => {
                write!(f, "{host} was written and cannot be read back: {why}")
            }
            Self::Settled { host, done: true } => write!(f, "{host} was changed after all"),
            Self::Settled { host, done: false } => write!(f, "{host} was not changed after all"),
            Self::Altered { host, was, wished, is } => write!(
                f,
                "{host} changed more than it should have: it was {was}, was to be {wished} and is {is}"
            ),
            Self::PersonsChoice { host, node } => {
                write!(f, "a person chose {node} for {host}: it is left alone until `resume` of it")
            }
            Self::ChoiceWaits { host, why } => write!(f, "{host} cannot be switched: {why}"),
            Self::Forgotten { host, addresses } => {
                write!(f, "{host} is not kept any more; its record stays at {addresses}")
            }
            Self::LongTtl { host, ttl, wished } => write!(
                f,
                "resolvers keep {host} for {ttl} s and the policy wants {wished}: it is set at the next move"
            ),
        }
    }
}

impl From<&Reason> for ReasonText {
    fn from(reason: &Reason) -> Self {
        Self::new(reason.code(), reason.to_string())
    }
}
