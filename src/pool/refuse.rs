//! The future in which slots did not carry requests while the uplink worked.
//!
//! **Invariant:** what was learned is kept, what was wished is not: no slot has anything in it that
//! it did not have before, and none that serves is touched.

use super::Pool;
use super::candidate::Candidate;
use super::future;
use super::reason::Reason;
use super::state::{Content, Mode, PoolState, Slot, Way};
use super::turn::quarantine;
use crate::machine::{Decision, Future, Subject};
use crate::names::Interface;
use crate::time::Moment;
use std::collections::BTreeMap;

/// Makes that future.
pub(super) fn refuse(
    subject: &Subject<'_, Pool>,
    decision: &Decision<PoolState>,
    failed: &BTreeMap<Interface, String>,
    now: &Moment,
) -> Future<PoolState> {
    let policy = subject.policy;
    let wished = &decision.wished.state;
    let mut state = decision.undone.clone();
    let mut reasons = Vec::new();
    match policy.standby().and_then(|standby| failed.get_key_value(standby)) {
        // It was made without a fault, whatever became of the slots.
        None => state.standby.clone_from(&wished.standby),
        Some((interface, why)) => {
            let (interface, why) = (interface.clone(), why.clone());
            reasons.push(Reason::StandbyUseless { interface, why });
        }
    }
    for (slot, why) in failed {
        let Some(candidate) = wished.slots.get(slot).and_then(Slot::candidate) else { continue };
        let (name, why) = (candidate.name.clone(), why.clone());
        reasons.push(Reason::CandidateFailed { slot: slot.clone(), name, why });
    }
    for (slot, why) in failed {
        if let Some(candidate) = wished.slots.get(slot).and_then(Slot::candidate) {
            let new = wished.slots.get(slot);
            reasons.extend(fail(&mut state, slot, new, candidate, why, now));
        }
    }
    let serves = policy.slots.interfaces.iter().any(|slot| state.serves(slot));
    if state.proven && !serves && !state.mode.is_direct() && state.mode != Mode::LocalRepair {
        state.mode = Mode::LocalRepair;
        state.since = now.clone();
    }
    future::replace_clients(policy, &mut state);
    let surroundings = state.surroundings.clone().or_else(|| wished.surroundings.clone());
    let Some(surroundings) = surroundings else {
        // A decision is made with surroundings known, so this only keeps what was.
        return Future { state, ..decision.wished.clone() };
    };
    let cuts = future::cuts(policy, subject.state, &state);
    let refused = future::future(policy, subject.name, state, &surroundings, &reasons);
    Future { cuts, ..refused }
}

/// Records that a candidate did not carry requests in a slot.
fn fail(
    state: &mut PoolState,
    interface: &Interface,
    wished: Option<&Slot>,
    candidate: &Candidate,
    why: &str,
    now: &Moment,
) -> Vec<Reason> {
    // A candidate that was tried as a way to the provider is no more than a way that failed.
    if wished.is_some_and(|slot| matches!(slot.content, Content::Lent(_))) {
        state.bootstrap.transport = None;
        state.bootstrap.fail(&Way::Cached(candidate.name.clone()), why, now);
        state.refresh_asked = None;
        state.refresh_tried_at = Some(now.clone());
        state.slots.insert(interface.clone(), Slot::new(Content::Empty, now));
        return Vec::new();
    }
    // A candidate of a new list is struck from it, and the slot stays as it was.
    if let Some(fresh) = &mut state.fresh
        && fresh.candidates.iter().any(|listed| listed == candidate)
    {
        fresh.strike(&candidate.name);
        return Vec::new();
    }
    if let Some(pool) = &mut state.pool {
        pool.strike(&candidate.name);
    }
    let others = state.slots.keys().any(|other| other != interface && state.serves(other));
    let Some(slot) = state.slots.get(interface) else { return Vec::new() };
    let old: Vec<Candidate> = slot.candidate().into_iter().chain(&slot.replaced).cloned().collect();
    let old_why = if slot.why.is_empty() { "failed".to_owned() } else { slot.why.clone() };
    let mut emptied = Slot::new(Content::Empty, now);
    let mut reasons = Vec::new();
    if others {
        let bad = old.iter().map(|old| (old, old_why.as_str())).chain([(candidate, why)]);
        for (endpoint, why) in bad {
            if state.is_elsewhere(interface, endpoint) {
                continue;
            }
            quarantine(state, endpoint, why, now);
            reasons.push(Reason::QuarantinedEndpoint {
                slot: interface.clone(),
                name: endpoint.name.clone(),
                why: why.to_owned(),
            });
        }
    } else {
        // With no slot serving, the uplink is as likely the cause as the endpoint.
        emptied.replaced = old.into_iter().next();
    }
    state.slots.insert(interface.clone(), emptied);
    reasons
}
