//! Kind `pool`: many tunnels, many clients.
//!
//! The recovery plan as a pure machine: `assess` judges what was seen, `turn` counts it, `decide`
//! holds the guards, `repair` and `refresh` the rows, `layout` says what the kernel should look
//! like, `ask` what is to be looked at.
//!
//! **Invariant:** nothing in this folder has an effect; all of it is values from values.

mod ask;
mod assess;
pub mod candidate;
mod decide;
pub mod health;
pub mod layout;
pub mod placement;
pub mod reason;
mod rebuild;
mod refresh;
mod repair;
pub mod state;
pub mod status;
mod turn;

pub use reason::Reason;
pub use state::PoolState;

use crate::kernel::diff::Means;
use crate::machine::{Considered, Decision, Future, Machine, ReasonText, Rhythm, Subject};
use crate::names::Interface;
use crate::observation::{KernelReading, KernelScope, Observation, Question};
use crate::policy::PoolPolicy;
use crate::time::Moment;
use assess::{WanVerdict, assess};
use candidate::Candidate;
use state::{Content, Egress, Slot};
use std::collections::BTreeMap;
use std::time::Duration;
use turn::Turn;

/// The kind `pool`.
pub enum Pool {}

impl Machine for Pool {
    type Policy = PoolPolicy;
    type State = PoolState;

    fn stands(state: &PoolState) -> (&'static str, &Moment) {
        (state.mode.as_str(), &state.since)
    }

    fn consider(
        subject: &Subject<'_, Self>,
        seen: &Observation,
        now: &Moment,
        may_ask: bool,
    ) -> Considered<PoolState> {
        let policy = subject.policy;
        let blank = PoolState::new(now);
        let known = subject.state.unwrap_or(&blank);
        let Some(sight) = assess(policy, known, seen) else {
            let kernel = Question::Kernel(Box::new(Self::scope(subject, 0)));
            return Considered::Ask(
                std::iter::once(kernel).chain(ask::names(policy, subject.state)).collect(),
            );
        };
        let stranger =
            sight.kernel.strangers.iter().find(|name| policy.slots.interfaces.contains(name));
        if let Some(interface) = stranger {
            let reason = Reason::Stranger { interface: interface.clone() };
            return Considered::Unable(vec![ReasonText::from(&reason)]);
        }
        let surroundings = match &sight.surroundings {
            Ok(surroundings) => surroundings.clone(),
            Err(why) => {
                let reason = Reason::Unfit { why: why.clone() };
                return Considered::Unable(vec![ReasonText::from(&reason)]);
            }
        };
        let mut turn = Turn::new(subject, seen, &sight, &surroundings, now, may_ask);
        let wan_turn = ask::next_wan_turn(seen);
        let wan = ask::wan(policy, &turn.state, &surroundings, wan_turn);
        if wan_turn == 0 {
            let judgeable: Vec<Interface> = policy
                .slots
                .interfaces
                .iter()
                .filter(|slot| {
                    sight.health.contains_key(*slot)
                        && !sight.drifted.contains(*slot)
                        && sight.kernel.bindable.contains(*slot)
                })
                .cloned()
                .collect();
            let asks = ask::health(policy, &turn.state, &surroundings, &judgeable, now);
            return Considered::Ask(asks);
        }
        match sight.wan {
            WanVerdict::AskAgain if may_ask => return Considered::Ask(vec![wan]),
            WanVerdict::AskAgain | WanVerdict::Down => turn.hold(),
            WanVerdict::Up => turn.guards(),
        }
        if may_ask && !turn.asks.is_empty() {
            return Considered::Ask(turn.asks);
        }
        Considered::Decide(Box::new(turn.finish(Some(wan))))
    }

    fn refuse(
        subject: &Subject<'_, Self>,
        decision: &Decision<PoolState>,
        failed: &BTreeMap<Interface, String>,
        now: &Moment,
    ) -> Future<PoolState> {
        let policy = subject.policy;
        let wished = &decision.wished.state;
        let mut state = decision.undone.clone();
        let mut reasons = Vec::new();
        for (slot, why) in failed {
            let Some(candidate) = wished.slots.get(slot).and_then(Slot::loaded).cloned() else {
                continue;
            };
            let (name, why) = (candidate.name.clone(), why.clone());
            reasons.push(Reason::CandidateFailed { slot: slot.clone(), name, why: why.clone() });
            fail_candidate(&mut state, wished, slot, &candidate, &why, now);
        }
        turn::replace_clients(policy, &mut state);
        let surroundings = state.surroundings.clone().or_else(|| wished.surroundings.clone());
        match surroundings {
            Some(surroundings) => {
                turn::future(policy, subject.name, state, &surroundings, &reasons)
            }
            // A decision is made with surroundings known, so this only keeps what was.
            None => Future { state, ..decision.wished.clone() },
        }
    }

    fn retire(subject: &Subject<'_, Self>, now: &Moment) -> Option<Future<PoolState>> {
        let mut state = subject.state?.clone();
        state.proven = false;
        state.since = now.clone();
        state.egress.clear();
        for slot in state.slots.values_mut() {
            if let Some(candidate) = slot.candidate().cloned() {
                *slot = Slot::new(Content::Empty, now);
                slot.replaced = Some(candidate);
            }
        }
        Some(Future {
            to: state.mode.as_str().to_owned(),
            world: crate::kernel::World::default(),
            barrier: None,
            cuts: Vec::new(),
            generations: state.generations(),
            reasons: Vec::new(),
            state,
        })
    }

    fn scope(subject: &Subject<'_, Self>, turn: u32) -> KernelScope {
        ask::scope(subject.policy, subject.name, subject.state, subject.owned, turn)
    }

    fn rebuild(
        subject: &Subject<'_, Self>,
        kernel: &KernelReading,
        stored: &[Candidate],
        now: &Moment,
    ) -> Option<PoolState> {
        rebuild::rebuild(subject.policy, kernel, stored, now)
    }

    fn resumed(state: &PoolState, now: &Moment) -> PoolState {
        let mut state = state.clone();
        state.none_serves_since = None;
        for slot in state.slots.values_mut() {
            slot.since = now.clone();
            slot.retests_failed = 0;
            slot.retests_passed = 0;
            slot.saturated = 0;
            slot.unknown = 0;
            if !slot.failed {
                slot.failures = 0;
            }
        }
        state
    }

    fn rhythm(policy: &PoolPolicy) -> Rhythm {
        Rhythm {
            interval: Duration::from_secs(policy.params.health_check_interval_sec),
            budget: Duration::from_secs(policy.params.step_budget_sec),
        }
    }

    fn means(policy: &PoolPolicy) -> Means {
        layout::means(policy)
    }
}

/// Records that a candidate did not carry requests in a slot.
fn fail_candidate(
    state: &mut PoolState,
    wished: &PoolState,
    interface: &Interface,
    candidate: &Candidate,
    why: &str,
    now: &Moment,
) {
    // A candidate of a new list is struck from it, and the slot stays as it was.
    let fresh = wished.fresh.as_ref().or(wished.pool.as_ref()).filter(|list| {
        let known = state.pool.as_ref().is_some_and(|pool| pool.generation == list.generation);
        !known && list.candidates.contains(candidate)
    });
    if let Some(list) = fresh {
        let generation = list.generation;
        state.fresh.get_or_insert_with(|| list.clone()).strike(&candidate.name);
        state.last_generation = state.last_generation.max(generation);
        return;
    }
    if let Some(pool) = &mut state.pool {
        pool.strike(&candidate.name);
    }
    let others = state.slots.keys().any(|other| other != interface && state.serves(other));
    let Some(slot) = state.slots.get(interface) else { return };
    let old = slot.candidate().cloned().or_else(|| slot.replaced.clone());
    let mut emptied = Slot::new(Content::Empty, now);
    if others {
        if let Some(old) = &old {
            turn::quarantine(state, old, "failed", now);
        }
        turn::quarantine(state, candidate, why, now);
    } else {
        // With no slot serving, the uplink is as likely the cause as the endpoint.
        emptied.replaced = old;
    }
    state.slots.insert(interface.clone(), emptied);
}

/// Whether a client is anywhere but where its slot serves it.
#[must_use]
pub fn is_protected(egress: &Egress) -> bool {
    match egress {
        Egress::Slot(_) => true,
        Egress::Direct | Egress::None => false,
    }
}
