//! Kind `chain`: several hops one behind the other, each with its backups.
//!
//! `ask` says what is looked at, `drive` is what the hops are made of, `sight` and `legs` judge where
//! the path breaks, `turn` and `rows` hold the machine of a hop, `rebuild` and `combos` search for nodes
//! that carry, `proof` and `settle` say what is kept of what was tried.
//!
//! **Invariant:** a hop is changed only if it is broken or the cause of the break, but for one return,
//! turn or faster node in a step; no node and no change leads past the chain.

mod ask;
pub mod combos;
mod drive;
pub mod legs;
pub mod marks;
pub mod name;
mod proof;
pub mod reason;
pub mod rebuild;
mod rows;
mod settle;
mod sight;
pub mod state;
pub mod status;
mod turn;
pub mod under_way;
mod wish;

pub use reason::Reason;
pub use state::ChainState;

use crate::clash::choice::Confirmed;
use crate::kernel::World;
use crate::machine::{
    Carried, Considered, Decision, Future, Machine, PartWish, Pausing, Proof, ReasonText, Rhythm,
    Subject,
};
use crate::measure::Samples;
use crate::names::PolicyName;
use crate::observation::Observation;
use crate::policy::{ChainPolicy, Kind};
use crate::publish::Published;
use crate::record::Record;
use crate::status::Standing;
use crate::time::Moment;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use turn::Turn;
use under_way::{Purpose, UnderWay};

/// The kind `chain`.
pub enum Chain {}

impl Machine for Chain {
    type Policy = ChainPolicy;
    type State = ChainState;
    type Status = status::ChainStatus;

    const KIND: Kind = Kind::Chain;

    fn stands(state: &ChainState) -> (Cow<'static, str>, &Moment) {
        (state.stands.clone().into(), &state.since)
    }

    fn status(
        name: &PolicyName,
        policy: &ChainPolicy,
        record: &Record<ChainState>,
        now: &Moment,
    ) -> (status::ChainStatus, Standing) {
        let status = status::status(name, policy, record, now);
        let standing = status.standing;
        (status, standing)
    }

    fn published(status: &status::ChainStatus) -> Published {
        status.published()
    }

    fn measured(status: &status::ChainStatus) -> Samples {
        status.measured()
    }

    fn consider(
        subject: &Subject<'_, Self>,
        seen: &Observation,
        _: &Moment,
        may_ask: bool,
    ) -> Considered<ChainState> {
        match turn::turn(subject, seen, may_ask) {
            Turn::Ask(questions) => Considered::Ask(questions),
            Turn::Unable(reason) => Considered::Unable(vec![ReasonText::from(&reason)]),
            Turn::Stays(state, reasons) => {
                let counted = Self::without_wish(&state);
                let wished = future(*state, &reasons);
                Considered::Decide(Box::new(decision(subject, wished, counted)))
            }
            Turn::Tries(way) => {
                Considered::Decide(Box::new(decision_of(subject, *way, &seen.started)))
            }
        }
    }

    fn prove(
        subject: &Subject<'_, Self>,
        decision: &Decision<ChainState>,
        carried: &Carried<'_>,
        _: &Moment,
    ) -> Proof<ChainState> {
        proof::prove(subject, decision, carried)
    }

    fn switch(
        subject: &Subject<'_, Self>,
        target: &str,
        force: bool,
    ) -> Result<(ChainState, Pausing), String> {
        let state = subject.state.ok_or("it was never stepped: step it first")?;
        let wish = wish::grant(subject.policy, state, target, force)?;
        Ok((ChainState { wish: Some(wish), ..state.clone() }, Pausing::Keep))
    }

    fn has_wish(state: &ChainState) -> bool {
        state.wish.is_some()
    }

    fn without_wish(state: &ChainState) -> ChainState {
        ChainState { wish: None, ..state.clone() }
    }

    fn retire(subject: &Subject<'_, Self>, _: &Moment) -> Option<Future<ChainState>> {
        Some(future(Self::without_wish(subject.state?), &[]))
    }

    fn resumed(state: &ChainState, now: &Moment) -> Result<ChainState, String> {
        Ok(wish::resumed(state, now))
    }

    fn part(
        subject: &Subject<'_, Self>,
        part: &str,
        wish: PartWish,
        now: &Moment,
    ) -> Result<ChainState, String> {
        let state = subject.state.ok_or("it was never stepped: step it first")?;
        wish::part(state, part, wish, now)
    }

    fn rhythm(policy: &ChainPolicy, _: Option<&ChainState>) -> Rhythm {
        Rhythm {
            interval: policy.params.interval(),
            budget: Duration::from_secs(policy.params.step_budget_sec),
        }
    }
}

/// A future that changes nothing in the world.
fn future(state: ChainState, reasons: &[Reason]) -> Future<ChainState> {
    Future {
        to: state.stands.clone(),
        state,
        world: World::default(),
        settings: BTreeMap::new(),
        pauses: false,
        barrier: None,
        cuts: Vec::new(),
        generations: BTreeSet::new(),
        reasons: reasons.iter().map(ReasonText::from).collect(),
    }
}

fn decision(
    subject: &Subject<'_, Chain>,
    wished: Future<ChainState>,
    counted: ChainState,
) -> Decision<ChainState> {
    Decision {
        from: subject.state.map(|state| state.stands.clone()),
        wished,
        standing: None,
        checks: Vec::new(),
        held: counted.clone(),
        undone: counted,
        references: Vec::new(),
    }
}

/// What puts the next try of something under way in place.
fn decision_of(subject: &Subject<'_, Chain>, way: UnderWay, now: &Moment) -> Decision<ChainState> {
    let policy = subject.policy;
    let settings = match &way.purpose {
        Purpose::Retries(retries) => drive::retry_edits(policy, retries),
        Purpose::Again
        | Purpose::Switch { .. }
        | Purpose::Return(_)
        | Purpose::Rotation(_)
        | Purpose::Faster(_)
        | Purpose::Rebuild(_)
        | Purpose::Combos(_) => drive::edits(policy, &way.stands, &way.tries),
    };
    let mut reasons = way.said.clone();
    let counted = way.base.clone();
    if let Purpose::Switch { hop } = way.purpose
        && settings.is_empty()
    {
        // It carries already: there is nothing to prove.
        let (mut state, reason) = proof::switched(policy, &way, hop, now);
        state.restate(now);
        reasons.extend(reason);
        return decision(subject, future(state, &reasons), counted);
    }
    // As it is if that carries.
    let mut state = counted.clone();
    for (place, (seat, stood)) in way.tries.iter().zip(&way.before).enumerate() {
        let hop = policy.hops.get(place).zip(state.hops.get_mut(place));
        if let Some((wanted, hop)) = hop.filter(|_| seat != stood) {
            let confirmed = Confirmed { member: seat.clone(), life: way.life.clone() };
            hop.put(wanted, confirmed, now);
        }
    }
    state.restate(now);
    state.under_way = Some(Box::new(way));
    let wished = Future { settings, ..future(state, &reasons) };
    decision(subject, wished, counted)
}
