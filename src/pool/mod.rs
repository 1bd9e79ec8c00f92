//! Kind `pool`: many tunnels, many clients.
//!
//! The recovery plan as a pure machine: `surroundings` finds out where it is, `assess` judges what was
//! seen, `turn` counts it, `decide` holds the guards, `repair`, `refresh` and `adopt` the rows, `layout`
//! says what the kernel should look like, `ask` what is to be looked at.
//!
//! **Invariant:** nothing in this folder has an effect; all of it is values from values.

mod adopt;
pub(crate) mod ask;
pub(crate) mod assess;
mod bootstrap;
pub mod candidate;
mod decide;
mod edges;
pub(crate) mod families;
mod fetch;
pub(crate) mod future;
pub mod health;
pub mod layout;
mod patience;
pub mod placement;
pub mod reason;
mod rebuild;
mod refresh;
mod refuse;
mod repair;
mod rescue;
mod slot;
mod spread;
pub mod standby;
pub mod state;
pub mod status;
pub(crate) mod surroundings;
mod taken;
mod tally;
mod testing;
mod turn;
pub mod wish;

pub use reason::Reason;
pub use state::PoolState;

use crate::graph::Edge;
use crate::kernel::diff::Means;
use crate::machine::{Considered, Decision, Future, Machine, Pausing, ReasonText, Rhythm, Subject};
use crate::measure::Samples;
use crate::names::{Interface, PolicyName};
use crate::observation::{KernelReading, KernelScope, Observation, Question, Realm};
use crate::page::Shown;
use crate::policy::{Kind, PoolPolicy};
use crate::publish::Published;
use crate::record::Record;
use crate::status::Standing;
use crate::time::Moment;
use assess::{WanVerdict, assess};
use candidate::Candidate;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use turn::Turn;

/// The kind `pool`.
pub enum Pool {}

impl Machine for Pool {
    type Policy = PoolPolicy;
    type State = PoolState;
    type Status = status::PoolStatus;

    const KIND: Kind = Kind::Pool;

    fn edges() -> Vec<Edge> {
        let edge =
            |(from, to, codes): &(Option<state::Mode>, state::Mode, &'static [&'static str])| {
                Edge { from: from.map(state::Mode::as_str), to: to.as_str(), codes }
            };
        edges::EDGES.iter().map(edge).collect()
    }

    fn shown(status: &Self::Status) -> Shown {
        status.shown()
    }

    fn stands(state: &PoolState) -> (Cow<'static, str>, &Moment) {
        (state.mode.as_str().into(), &state.since)
    }

    fn status(
        name: &PolicyName,
        policy: &PoolPolicy,
        record: &Record<PoolState>,
        now: &Moment,
    ) -> (status::PoolStatus, Standing) {
        let status = status::status(name, policy, record, now);
        let standing = status.standing;
        (status, standing)
    }

    fn published(status: &status::PoolStatus) -> Published {
        status.published()
    }

    fn measured(status: &status::PoolStatus) -> Samples {
        status.measured()
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
            if !may_ask {
                let why = "there was no time to look at the kernel".to_owned();
                return Considered::Unable(vec![ReasonText::from(&Reason::Unfit { why })]);
            }
            let kernel = Question::Kernel(Box::new(Self::scope(subject, 0)));
            return Considered::Ask(
                std::iter::once(kernel)
                    .chain(ask::names(policy, subject.state))
                    .chain(ask::standby(policy, subject.state))
                    .collect(),
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
        let mut references = vec![ask::wan(policy, &turn.state, &surroundings, wan_turn)];
        references.extend(ask::witnesses(policy, &turn.state, &sight, wan_turn));
        if wan_turn == 0 && may_ask {
            let judgeable: Vec<Interface> = policy
                .slots
                .interfaces
                .iter()
                .chain(policy.standby())
                .filter(|slot| {
                    sight.is_up(slot)
                        && !sight.drifted.contains(*slot)
                        && sight.kernel.bindable.contains(*slot)
                })
                .cloned()
                .collect();
            let mut asks = ask::health(policy, &turn.state, &sight, &surroundings, &judgeable, now);
            asks.extend(turn.standby_names());
            return Considered::Ask(asks);
        }
        let doubts = turn.to_confirm();
        if may_ask && !doubts.is_empty() {
            return Considered::Ask(doubts);
        }
        match sight.wan {
            // Also when the time is over: else what failed last would pass for an uplink that is down, and
            // a step that runs out of time would forget each time what it has learned.
            WanVerdict::AskAgain => return Considered::Ask(references),
            WanVerdict::Down => turn.hold(),
            WanVerdict::Up => turn.guards(),
        }
        if may_ask && !turn.asks.is_empty() {
            return Considered::Ask(turn.asks);
        }
        Considered::Decide(Box::new(turn.finish(references)))
    }

    fn refuse(
        subject: &Subject<'_, Self>,
        decision: &Decision<PoolState>,
        failed: &BTreeMap<Interface, String>,
        now: &Moment,
    ) -> Option<Future<PoolState>> {
        Some(refuse::refuse(subject, decision, failed, now))
    }

    fn switch(
        subject: &Subject<'_, Self>,
        target: &str,
        force: bool,
    ) -> Result<(PoolState, Pausing), String> {
        let granted = wish::grant(subject.policy, subject.state, target, force)?;
        let state = subject.state.ok_or("the policy was never stepped: step it first")?;
        Ok((PoolState { wish: Some(granted.wish), ..state.clone() }, granted.pausing))
    }

    fn has_wish(state: &PoolState) -> bool {
        state.wish.is_some()
    }

    fn without_wish(state: &PoolState) -> PoolState {
        PoolState { wish: None, ..state.clone() }
    }

    fn refresh(state: &PoolState, now: &Moment) -> Option<PoolState> {
        let mut state = state.clone();
        state.refresh_asked = Some(now.clone());
        state.refresh_tried_at = None;
        state.refusal_wait_sec = None;
        Some(state)
    }

    fn is_unprotected(state: &PoolState) -> bool {
        state.mode.is_direct()
    }

    fn retire(subject: &Subject<'_, Self>, now: &Moment) -> Option<Future<PoolState>> {
        let mut state = resumed(subject.state?, now);
        state.retired = true;
        state.egress.clear();
        Some(Future {
            to: state.mode.as_str().to_owned(),
            world: crate::kernel::World::default(),
            barrier: None,
            settings: BTreeMap::new(),
            pauses: false,
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

    fn resumed(state: &PoolState, now: &Moment) -> Result<PoolState, String> {
        Ok(resumed(state, now))
    }

    fn rhythm(policy: &PoolPolicy, _: Option<&PoolState>) -> Rhythm {
        Rhythm {
            interval: Duration::from_secs(policy.params.health_check_interval_sec),
            budget: Duration::from_secs(policy.params.step_budget_sec),
        }
    }

    fn realms(policy: &PoolPolicy) -> BTreeSet<Realm> {
        BTreeSet::from([ask::realm(policy)])
    }

    fn scratch(policy: &PoolPolicy) -> BTreeSet<Interface> {
        policy.test.interfaces().into_iter().collect()
    }

    fn means(policy: &PoolPolicy) -> Means {
        layout::means(policy)
    }
}

/// The state after a pause.
fn resumed(state: &PoolState, now: &Moment) -> PoolState {
    let mut state = Pool::without_wish(state);
    state.none_serves_since = None;
    state.none_serves_seen = None;
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
