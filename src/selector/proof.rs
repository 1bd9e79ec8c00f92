//! What came of a switch, by what the core was seen to hold after it.
//!
//! **Invariant:** what a person chose while ours was being written stays, and is told as that person's choice.

use super::consider::future;
use super::drive::Made;
use super::drive::clash::ClashDrive;
use super::{Reason, Selector, SelectorState};
use crate::machine::{Carried, Decision, Future, Proof, Settled, Subject};
use crate::observation::Observation;
use crate::policy::SelectorPolicy;
use crate::policy::selector::Driver;
use crate::setting::{Value, Written};
use crate::time::Moment;

/// Settles a decision by what was written.
pub(super) fn prove(
    subject: &Subject<'_, Selector>,
    decision: &Decision<SelectorState>,
    carried: &Carried<'_>,
    now: &Moment,
) -> Proof<SelectorState> {
    let Some((setting, written)) = carried.written.first_key_value() else {
        return Proof::Settle(Box::new(decision.wished.clone()), Settled::Applied);
    };
    let policy = subject.policy;
    let before = || decision.undone.clone();
    match written {
        Written::Done => Proof::Settle(Box::new(decision.wished.clone()), Settled::Applied),
        Written::Refused { why, .. } => {
            let why = format!("{setting}: {why}");
            let future = future(before(), Made::default(), &[Reason::Refused { why }]);
            Proof::Settle(Box::new(future), Settled::RolledBack)
        }
        Written::Overtaken { found: Value::Member(member) } => {
            let future = overtaken(policy, before(), carried.before, member, now);
            Proof::Settle(Box::new(future), Settled::Applied)
        }
        // A group holds a member, whatever another kind of setting holds.
        Written::Overtaken { found: found @ (Value::Count(_) | Value::Records(_)) } => {
            Proof::Unknown(format!("{setting}: it holds {found}"))
        }
        Written::Unreadable { why } => Proof::Unknown(format!("{setting}: {why}")),
    }
}

/// Somebody chose a third member while ours was being written.
fn overtaken(
    policy: &SelectorPolicy,
    before: SelectorState,
    seen: &Observation,
    member: &str,
    now: &Moment,
) -> Future<SelectorState> {
    let mut state = before;
    if let Driver::Clash(driver) = &policy.driver
        && let Ok(Some(drive)) = ClashDrive::new(policy, driver, seen, None)
    {
        let chosen = drive.of(member);
        state.confirmed = Some(drive.confirmed(member));
        state.take_over(&chosen, now);
        let reason = Reason::PersonsChoice { chosen };
        return Future { pauses: true, ..future(state, Made::default(), &[reason]) };
    }
    future(state, Made::default(), &[])
}
