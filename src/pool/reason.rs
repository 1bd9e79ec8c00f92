//! Why a step did what it did, or nothing.
//!
//! **Invariant:** every row of the recovery plan, taken or waited for, has a reason of its own.

use crate::machine::ReasonText;
use crate::names::Interface;
use serde::{Deserialize, Serialize};
use std::fmt;

/// So many endpoints are told in one line; more of them have one cause, and a line has an end.
const TOLD: usize = 20;

/// A typed reason. Its code is stable; its text is for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reason {
    /// Nothing to do.
    AllServe,
    /// Neither a reference nor a slot answers: nothing is counted or moved.
    WanDown,
    /// The first step after the WAN was down only looks.
    Settling,
    /// A slot stopped serving.
    StoppedServing {
        /// The slot.
        slot: Interface,
        /// Checks that failed in a row.
        failures: u32,
        /// What the last one showed.
        why: String,
    },
    /// Clients were moved.
    Moved {
        /// How many.
        clients: usize,
        /// Where to.
        to: Vec<Interface>,
    },
    /// A failed check below the count.
    CheckFailed {
        /// The slot.
        slot: Interface,
        /// Checks that failed in a row.
        failures: u32,
        /// What the last one showed.
        why: String,
    },
    /// The retests of a failed slot go on.
    Retesting {
        /// The slot.
        slot: Interface,
        /// Passed so far in a row.
        passed: u32,
        /// Failed so far in a row.
        failed: u32,
    },
    /// Nothing can be said of a slot.
    Undetermined {
        /// The slot.
        slot: Interface,
        /// Why not.
        why: String,
    },
    /// The retests all passed: a false alarm.
    FalseAlarm {
        /// The slot.
        slot: Interface,
    },
    /// An endpoint serves nobody any more.
    QuarantinedEndpoint {
        /// The slot that it was in.
        slot: Interface,
        /// The endpoint.
        name: String,
        /// Why.
        why: String,
    },
    /// A slot was given another endpoint.
    Repaired {
        /// The slot.
        slot: Interface,
        /// The endpoint.
        name: String,
    },
    /// An endpoint did not carry requests in the slot.
    CandidateFailed {
        /// The slot.
        slot: Interface,
        /// The endpoint.
        name: String,
        /// Why.
        why: String,
    },
    /// Large packets are eaten: the MTU was lowered.
    MtuLowered {
        /// The slot.
        slot: Interface,
    },
    /// Nothing is left to fill a slot with.
    NoCandidateLeft {
        /// The slot.
        slot: Interface,
    },
    /// No page of the probe has a known address, so that no candidate could be verified.
    NothingToVerifyWith,
    /// Fewer slots than wished serve.
    FewerSlots {
        /// Those that serve.
        serving: usize,
        /// All.
        slots: usize,
    },
    /// So many repairs that a full refresh is due.
    RepairsReached {
        /// Repairs since the last full refresh.
        repairs: u32,
    },
    /// A person asked for a full refresh.
    RefreshAsked,
    /// Candidates are being tested.
    Testing {
        /// Tested so far.
        tested: usize,
        /// Passed so far.
        passed: usize,
        /// All.
        listed: usize,
    },
    /// A person put an endpoint into a slot.
    PersonsEndpoint {
        /// The slot.
        slot: Interface,
        /// The endpoint.
        name: String,
    },
    /// A person put all clients on Direct.
    PersonsDirect,
    /// A candidate of the last pool is tried as a way to the provider.
    Lending {
        /// The slot.
        slot: Interface,
        /// The candidate.
        name: String,
    },
    /// A way to the provider failed.
    BootstrapFailed {
        /// Which.
        what: String,
        /// Why.
        why: String,
    },
    /// The standby tunnel is brought up to ask the provider by it.
    StandbyRaised {
        /// Its interface.
        interface: Interface,
    },
    /// It is taken down again.
    StandbyLowered {
        /// Its interface.
        interface: Interface,
    },
    /// It is of no use.
    StandbyUseless {
        /// Its interface.
        interface: Interface,
        /// Why.
        why: String,
    },
    /// After `down` and `resume`.
    ComesBack,
    /// Entries of the list cannot be used.
    LeftOut {
        /// How many.
        entries: usize,
        /// The first of them.
        name: String,
        /// Why.
        why: String,
    },
    /// Candidates could not be tried, for a trouble of this machine.
    NotTried {
        /// How many.
        candidates: usize,
        /// The trouble.
        why: String,
    },
    /// The provider gave no list.
    ProviderUnavailable {
        /// Why.
        why: String,
    },
    /// The provider says that the list at hand is still the newest.
    ListUnchanged {
        /// Which list.
        generation: u32,
    },
    /// The list was refused.
    ListRefused {
        /// Why.
        why: String,
    },
    /// No candidate passed its test.
    NonePassed {
        /// Tested.
        tested: usize,
        /// Why the first of them failed.
        why: String,
    },
    /// Fewer candidates passed than there are slots.
    TooFew {
        /// Passed.
        passed: usize,
        /// All slots.
        slots: usize,
    },
    /// Slots were loaded.
    Loaded {
        /// How many.
        slots: usize,
        /// From which list.
        generation: u32,
    },
    /// A newer list ends the quarantine of the one before. History keeps who was in it, and why.
    QuarantineArchived {
        /// The list that it belonged to.
        generation: u32,
        /// Each endpoint, and why it was quarantined.
        endpoints: Vec<(String, String)>,
    },
    /// A refresh is not due yet.
    RefreshLater {
        /// In how many seconds.
        in_sec: u64,
        /// Why the last one came to nothing, if it did.
        why: Option<String>,
    },
    /// No slot serves: clients were put on the WAN.
    ToDirect,
    /// No slot serves: clients go nowhere.
    ToNone,
    /// No slot serves; clients stay until a person consents.
    DirectHeld,
    /// Direct goes on until a set of slots is proven.
    Recovering,
    /// An interface of our name is a stranger's.
    Stranger {
        /// The interface.
        interface: Interface,
    },
    /// Something about the machine is not known, so nothing can be laid out.
    Unfit {
        /// What.
        why: String,
    },
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
            Self::AllServe => "all-serve",
            Self::WanDown => "wan-down",
            Self::Settling => "settling",
            Self::StoppedServing { .. } => "stopped-serving",
            Self::Moved { .. } => "moved",
            Self::CheckFailed { .. } => "check-failed",
            Self::Retesting { .. } => "retesting",
            Self::Undetermined { .. } => "undetermined",
            Self::FalseAlarm { .. } => "false-alarm",
            Self::QuarantinedEndpoint { .. } => "quarantined",
            Self::Repaired { .. } => "repaired",
            Self::CandidateFailed { .. } => "candidate-failed",
            Self::MtuLowered { .. } => "mtu-lowered",
            Self::NoCandidateLeft { .. } => "no-candidate-left",
            Self::NothingToVerifyWith => "nothing-to-verify-with",
            Self::FewerSlots { .. } => "fewer-slots",
            Self::RepairsReached { .. } => "repairs-reached",
            Self::RefreshAsked => "refresh-asked",
            Self::Testing { .. } => "testing",
            Self::ProviderUnavailable { .. } => "provider-unavailable",
            Self::PersonsEndpoint { .. } => "persons-endpoint",
            Self::PersonsDirect => "persons-direct",
            Self::Lending { .. } => "lending",
            Self::BootstrapFailed { .. } => "bootstrap-failed",
            Self::StandbyRaised { .. } => "standby-raised",
            Self::StandbyLowered { .. } => "standby-lowered",
            Self::StandbyUseless { .. } => "standby-useless",
            Self::ComesBack => "comes-back",
            Self::LeftOut { .. } => "left-out",
            Self::NotTried { .. } => "not-tried",
            Self::ListUnchanged { .. } => "list-unchanged",
            Self::ListRefused { .. } => "list-refused",
            Self::NonePassed { .. } => "none-passed",
            Self::TooFew { .. } => "too-few",
            Self::Loaded { .. } => "loaded",
            Self::QuarantineArchived { .. } => "quarantine-archived",
            Self::RefreshLater { .. } => "refresh-later",
            Self::ToDirect => "to-direct",
            Self::ToNone => "to-none",
            Self::DirectHeld => "direct-held",
            Self::Recovering => "recovering",
            Self::Stranger { .. } => "stranger",
            Self::Unfit { .. } => "unfit",
        }
    }
}

/// `1 client`, `2 clients`.
fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn times(n: u32, what: &str) -> String {
    count(usize::try_from(n).unwrap_or(usize::MAX), what)
}

/// Whose quarantine is over, the first of many.
fn over(
    f: &mut fmt::Formatter<'_>,
    generation: u32,
    endpoints: &[(String, String)],
) -> fmt::Result {
    let first = endpoints.iter().take(TOLD).map(|(name, why)| format!("{name} ({why})"));
    let first = first.collect::<Vec<_>>().join(", ");
    write!(f, "the quarantine of list {generation} is over: {first}")?;
    match endpoints.len().checked_sub(TOLD) {
        Some(more) if more > 0 => write!(f, " and {more} more"),
        Some(_) | None => Ok(()),
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllServe => f.write_str("all slots serve"),
            Self::WanDown => f.write_str("the WAN is down; nothing is counted or moved"),
            Self::Settling => f.write_str("the WAN was down; this step only looks"),
            Self::StoppedServing { slot, failures, why } => {
                write!(f, "{slot} {why} for {}", times(*failures, "check"))
            }
            Self::Moved { clients, to } => {
                let names: Vec<&str> = to.iter().map(Interface::as_str).collect();
                write!(f, "{} moved to {}", count(*clients, "client"), names.join(" "))
            }
            Self::CheckFailed { slot, failures, why } => {
                write!(f, "{slot} {why} ({})", times(*failures, "failed check"))
            }
            Self::Retesting { slot, passed, failed } => {
                write!(f, "{slot} retested: {failed} failed in a row")?;
                if *passed > 0 { write!(f, ", {passed} passed") } else { Ok(()) }
            }
            Self::Undetermined { slot, why } => write!(f, "{slot} cannot be judged: {why}"),
            Self::FalseAlarm { slot } => write!(f, "{slot} passed its retests: a false alarm"),
            Self::QuarantinedEndpoint { slot, name, why } => {
                write!(f, "{name} of {slot} is quarantined: {why}")
            }
            Self::Repaired { slot, name } => write!(f, "{slot} is now on {name}"),
            Self::CandidateFailed { slot, name, why } => {
                write!(f, "{name} failed its verification in {slot}: {why}")
            }
            Self::MtuLowered { slot } => {
                write!(f, "{slot} loses large packets; its MTU is now 1280")
            }
            Self::NoCandidateLeft { slot } => write!(f, "no candidate is left for {slot}"),
            Self::NothingToVerifyWith => f.write_str(
                "no page of the probe has a known address; no candidate can be verified",
            ),
            Self::FewerSlots { serving, slots } => write!(f, "{serving} of {slots} slots serve"),
            Self::RepairsReached { repairs } => {
                write!(f, "{} since the last full refresh", times(*repairs, "repair"))
            }
            Self::RefreshAsked => f.write_str("a full refresh was asked for"),
            Self::Testing { tested, passed, listed } => {
                write!(f, "{tested} of {listed} candidates tested, {passed} passed")
            }
            Self::PersonsEndpoint { slot, name } => {
                write!(f, "a person put {name} into {slot}")
            }
            Self::PersonsDirect => f.write_str("a person put all clients on the WAN"),
            Self::Lending { slot, name } => {
                write!(f, "{slot} is lent to {name}, to see whether the provider answers by it")
            }
            Self::BootstrapFailed { what, why } => {
                write!(f, "the provider was not reached by {what}: {why}")
            }
            Self::StandbyRaised { interface } => {
                write!(f, "the standby {interface} is brought up, to ask the provider by it")
            }
            Self::StandbyLowered { interface } => {
                write!(f, "the standby {interface} is taken down again")
            }
            Self::StandbyUseless { interface, why } => {
                write!(f, "the standby {interface} is of no use: {why}")
            }
            Self::ComesBack => f.write_str("the slots come back as they were before `down`"),
            Self::LeftOut { entries, name, why } => {
                let what = if *entries == 1 { "entry" } else { "entries" };
                write!(f, "{entries} unusable {what} left out: {name}: {why}")
            }
            Self::NotTried { candidates, why } => {
                write!(f, "{} could not be tried: {why}", count(*candidates, "candidate"))
            }
            Self::ProviderUnavailable { why } => write!(f, "the provider gave no list: {why}"),
            Self::ListUnchanged { generation } => {
                write!(f, "list {generation} is still the newest")
            }
            Self::ListRefused { why } => write!(f, "the list was refused: {why}"),
            Self::NonePassed { tested, why } => {
                write!(f, "none of {} passed: {why}", count(*tested, "candidate"))
            }
            Self::TooFew { passed, slots } => {
                write!(f, "{} passed, for {}", count(*passed, "candidate"), count(*slots, "slot"))
            }
            Self::Loaded { slots, generation } => {
                write!(f, "{} loaded from list {generation}", count(*slots, "slot"))
            }
            Self::QuarantineArchived { generation, endpoints } => over(f, *generation, endpoints),
            Self::RefreshLater { in_sec, why } => {
                write!(f, "the next refresh is due in {in_sec} s")?;
                why.iter().try_for_each(|why| write!(f, "; the last came to nothing: {why}"))
            }
            Self::ToDirect => f.write_str("no slot serves; clients leave by the WAN"),
            Self::ToNone => f.write_str("no slot serves; clients are closed in"),
            Self::DirectHeld => {
                f.write_str("no slot serves; clients stay until `switch NAME direct` consents")
            }
            Self::Recovering => f.write_str("looking for a way to the provider"),
            Self::Stranger { interface } => write!(
                f,
                "interface {interface} exists and was not made by this policy: remove it, or name another in slots.interfaces"
            ),
            Self::Unfit { why } => f.write_str(why),
        }
    }
}
