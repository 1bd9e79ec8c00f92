//! Why a step changed a hop, or did not.
//!
//! **Invariant:** every row of the machine, taken or waited for, has a reason of its own.

use super::name::{HopName, NodeName};
use crate::machine::ReasonText;
use crate::outcome::{count, harmless};
use std::fmt;

/// A typed reason. Its code is stable; its text is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the text of each says what its fields are")]
pub enum Reason {
    /// Every hop is on its preferred node, and the whole path passes.
    AllWell,
    /// The whole path passes.
    NothingNew,
    /// What the hops are made of is down or restarting.
    CoreDown { why: String },
    /// It answers, and not as the policy needs it.
    CoreUnusable { why: String },
    /// The uplink does not work.
    Offline,
    /// Nobody can say where the path breaks.
    Undetermined { why: String },
    /// There was no time to ask.
    NoTime,
    /// The first check after a pause in which nothing was counted.
    Settling,
    /// All legs pass, and what clients use does not.
    Drift { why: String },
    /// A node is blamed.
    Failing { hop: HopName, node: NodeName, failures: u32, limit: u32, why: String },
    /// The whole path fails where no hop can be blamed for it.
    PathFails { failures: u32, limit: u32, why: String },
    /// What carries is no node of the policy, or not there any more.
    NodeGone { hop: HopName, member: String },
    /// Another node carries.
    Replaced { hop: HopName, from: Option<NodeName>, to: NodeName },
    /// No node of a hop passes.
    Closed { hop: HopName, tried: usize, paused: bool },
    /// No node of a hop passes, and the preferred one stays.
    LastResort { hop: HopName, node: Option<NodeName> },
    /// A hop of which no node passed carries again.
    Reopened { hop: HopName, node: NodeName },
    /// There was no time for every node.
    NotFinished { hop: Option<HopName>, tried: usize },
    /// The preferred node is not returned to yet.
    Marked { hop: HopName, node: NodeName, sec: u64 },
    /// The preferred node was tested and does not pass.
    TestFailed { hop: HopName, node: NodeName, sec: u64, why: String },
    /// The preferred node could not be tested.
    Untested { hop: HopName, node: NodeName, why: String },
    /// The preferred node passes again.
    Returning { hop: HopName, node: NodeName, passes: u32, rise: u32, left_sec: u64 },
    /// The preferred node carries again.
    Returned { hop: HopName, from: Option<NodeName>, node: NodeName },
    /// It did not carry.
    ReturnFailed { hop: HopName, node: NodeName, sec: u64, why: String },
    /// The next node's turn has come.
    Rotated { hop: HopName, from: Option<NodeName>, node: NodeName },
    /// It did not carry.
    RotationFailed { hop: HopName, node: NodeName, sec: u64, why: String },
    /// A faster node carries.
    Faster {
        hop: HopName,
        from: Option<NodeName>,
        node: NodeName,
        was_ms: Option<u64>,
        is_ms: Option<u64>,
    },
    /// It did not carry.
    FasterFailed { hop: HopName, node: NodeName, why: String },
    /// Somebody chose elsewhere.
    PersonsChoice { hop: HopName, member: String },
    /// Tunnels were made that were missing or not as they should be.
    Built { hops: Vec<HopName> },
    /// A node cannot stand where it is wanted.
    Hindered { hop: HopName, node: NodeName, why: String },
    /// A person's `switch`.
    Switched { hop: HopName, member: String },
    /// A restart has forgotten a choice.
    ChoiceLost { hop: HopName, member: String },
    /// The same, and the policy is paused.
    LostWaits,
    /// A service of a gost tries again more or less often than it should.
    Retries { service: String, from: u64, to: u64 },
    /// A change was refused.
    Refused { why: String },
}

impl Reason {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::AllWell => "all-well",
            Self::NothingNew => "nothing-new",
            Self::CoreDown { .. } => "core-down",
            Self::CoreUnusable { .. } => "core-unusable",
            Self::Offline => "offline",
            Self::Undetermined { .. } => "undetermined",
            Self::NoTime => "no-time",
            Self::Settling => "settling",
            Self::Drift { .. } => "drift",
            Self::Failing { .. } => "failing",
            Self::PathFails { .. } => "path-fails",
            Self::NodeGone { .. } => "node-gone",
            Self::Replaced { .. } => "replaced",
            Self::Closed { .. } => "closed",
            Self::LastResort { .. } => "last-resort",
            Self::Reopened { .. } => "reopened",
            Self::NotFinished { .. } => "not-finished",
            Self::Marked { .. } => "marked",
            Self::TestFailed { .. } => "test-failed",
            Self::Untested { .. } => "untested",
            Self::Returning { .. } => "returning",
            Self::Returned { .. } => "returned",
            Self::ReturnFailed { .. } => "return-failed",
            Self::Rotated { .. } => "rotated",
            Self::RotationFailed { .. } => "rotation-failed",
            Self::Faster { .. } => "faster",
            Self::FasterFailed { .. } => "faster-failed",
            Self::PersonsChoice { .. } => "persons-choice",
            Self::Built { .. } => "built",
            Self::Hindered { .. } => "hindered",
            Self::Switched { .. } => "switched",
            Self::ChoiceLost { .. } => "choice-lost",
            Self::LostWaits => "lost-waits",
            Self::Retries { .. } => "retries",
            Self::Refused { .. } => "refused",
        }
    }
}

/// A node, or that there was none.
fn name(node: Option<&NodeName>) -> String {
    node.map_or_else(|| "what is no node of the policy".to_owned(), ToString::to_string)
}

fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {}", harmless(why)) }
}

impl fmt::Display for Reason {
    #[expect(clippy::too_many_lines, reason = "an arm a reason")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllWell => f.write_str("every hop is on its preferred node, and the path passes"),
            Self::NothingNew => f.write_str("the path passes"),
            Self::CoreDown { why } => {
                write!(f, "{}: nothing is counted or changed until it answers", harmless(why))
            }
            Self::CoreUnusable { why } => f.write_str(&harmless(why)),
            Self::Offline => f.write_str(
                "the uplink does not answer: nothing is counted, marked, closed or tried",
            ),
            Self::Undetermined { why } => {
                write!(f, "nobody can say where the path breaks{}", because(why))
            }
            Self::NoTime => f.write_str("there was no time to ask"),
            Self::Settling => {
                f.write_str("this check only looks, since the one before could not be counted")
            }
            Self::Drift { why } => write!(
                f,
                "every leg passes and what clients use does not, so no node is blamed{}",
                because(why)
            ),
            Self::Failing { hop, node, failures, limit, why } => write!(
                f,
                "the path breaks at {hop}: {node} failed {failures} of {limit} checks in a row{}",
                because(why)
            ),
            Self::PathFails { failures, limit, why } => {
                write!(f, "the path failed {failures} of {limit} checks in a row{}", because(why))
            }
            Self::NodeGone { hop, member } => {
                write!(
                    f,
                    "{} of {hop} is no node of the policy any more, or not there",
                    harmless(member)
                )
            }
            Self::Replaced { hop, from, to } => {
                write!(f, "{to} carries at {hop} in place of {}", name(from.as_ref()))
            }
            Self::Closed { hop, paused: true, .. } => {
                write!(f, "{hop} does not pass and is paused: it is closed until it does")
            }
            Self::Closed { hop, tried, paused: false } => write!(
                f,
                "no node of {hop} passes, {} tried: it is closed until one does",
                count(*tried, "other")
            ),
            Self::LastResort { hop, node } => {
                write!(f, "no node of {hop} passes: {} stays until one does", name(node.as_ref()))
            }
            Self::Reopened { hop, node } => write!(f, "{node} of {hop} passes again"),
            Self::NotFinished { hop: Some(hop), tried } => {
                write!(f, "{} of {hop} tried in vain: the next step goes on", count(*tried, "node"))
            }
            Self::NotFinished { hop: None, tried } => {
                write!(f, "{} tried in vain: the next step goes on", count(*tried, "replacement"))
            }
            Self::Marked { hop, node, sec } => {
                write!(f, "{node} of {hop} is not returned to for {sec} s")
            }
            Self::TestFailed { hop, node, sec, why } => {
                write!(
                    f,
                    "{node} of {hop} does not pass yet, and is tested in {sec} s again{}",
                    because(why)
                )
            }
            Self::Untested { hop, node, why } => {
                write!(f, "{node} of {hop} could not be tested{}", because(why))
            }
            Self::Returning { hop, node, passes, rise, left_sec: 0 } => {
                write!(f, "{node} of {hop} passed {passes} of {rise} tests")
            }
            Self::Returning { hop, node, passes, rise, left_sec } => write!(
                f,
                "{node} of {hop} passed {passes} of {rise} tests; {left_sec} s of the stay are left"
            ),
            Self::Returned { hop, from, node } => {
                write!(f, "{hop} returned from {} to {node}", name(from.as_ref()))
            }
            Self::ReturnFailed { hop, node, sec, why } => write!(
                f,
                "{node} of {hop} did not carry when it was returned to, and is left alone for {sec} s{}",
                because(why)
            ),
            Self::Rotated { hop, from, node } => {
                write!(f, "it is the turn of {node} at {hop}, after {}", name(from.as_ref()))
            }
            Self::RotationFailed { hop, node, sec, why } => write!(
                f,
                "{node} of {hop} did not carry when its turn had come, and is left alone for {sec} s{}",
                because(why)
            ),
            Self::Faster { hop, from, node, was_ms, is_ms } => {
                let ms = |ms: &Option<u64>| ms.map_or_else(|| "?".to_owned(), |ms| ms.to_string());
                let (was, is) = (ms(was_ms), ms(is_ms));
                write!(
                    f,
                    "{node} at {hop} is faster than {}: {is} ms, not {was} ms",
                    name(from.as_ref())
                )
            }
            Self::FasterFailed { hop, node, why } => {
                write!(f, "{node} of {hop} was measured faster and did not carry{}", because(why))
            }
            Self::PersonsChoice { hop, member } => write!(
                f,
                "somebody chose {} for {hop}: it is left alone until `resume` of it",
                harmless(member)
            ),
            Self::Built { hops } => {
                let hops: Vec<&str> = hops.iter().map(HopName::as_str).collect();
                write!(f, "tunnels were made: {}", hops.join(" "))
            }
            Self::Hindered { hop, node, why } => {
                write!(f, "{node} cannot stand in {hop}: {}", harmless(why))
            }
            Self::Switched { hop, member } => write!(
                f,
                "a person chose {} for {hop}: it is left alone until `resume` of it",
                harmless(member)
            ),
            Self::ChoiceLost { hop, member } => {
                write!(
                    f,
                    "a restart has forgotten {} of {hop}: it is put in place again",
                    harmless(member)
                )
            }
            Self::LostWaits => {
                f.write_str("what a restart has forgotten is put in place after `resume`")
            }
            Self::Retries { service, from, to } => write!(
                f,
                "service {} tries again {to} times, not {from}, so that a dead node of each hop is not seen",
                harmless(service)
            ),
            Self::Refused { why } => write!(f, "it was refused: {}", harmless(why)),
        }
    }
}

impl From<&Reason> for ReasonText {
    fn from(reason: &Reason) -> Self {
        Self::new(reason.code(), reason.to_string())
    }
}
