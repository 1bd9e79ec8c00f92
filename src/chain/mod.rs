//! Kind `chain`: several hops one behind the other, each with its backups.
//!
//! `ask` says what is looked at, `drive` is what the hops are made of, `sight` and `legs` judge where
//! the path breaks, `turn` and `rows` hold the machine of a hop, `rebuild` and `combos` search for nodes
//! that carry, `proof` and `settle` say what is kept of what was tried; `tunnels` and `lanes` are a
//! chain of WireGuard tunnels and how it lies in the kernel.
//!
//! **Invariant:** a hop is changed only if it is broken or the cause of the break, but for one return,
//! turn or faster node in a step; no node and no change leads past the chain.

mod ask;
pub mod combos;
mod drive;
mod edges;
mod lanes;
pub mod legs;
pub mod marks;
pub mod name;
mod proof;
pub mod reason;
pub mod rebuild;
mod rebuilt;
mod rows;
mod settle;
mod sight;
pub mod state;
pub mod status;
pub mod tunnels;
mod turn;
pub mod under_way;
mod wish;

pub use reason::Reason;
pub use state::ChainState;

use crate::clash::choice::Confirmed;
use crate::graph::{Edge, Place};
use crate::kernel::World;
use crate::kernel::diff::Means;
use crate::machine::{
    Carried, Considered, Decision, Future, Machine, PartWish, Pausing, Proof, ReasonText, Rhythm,
    Subject,
};
use crate::measure::Samples;
use crate::names::{Interface, PolicyName};
use crate::observation::{KernelReading, KernelScope, Observation, Realm};
use crate::page::Shown;
use crate::policy::{ChainPolicy, Kind};
use crate::pool::candidate::Candidate;
use crate::publish::Published;
use crate::record::Record;
use crate::status::Standing;
use crate::time::Moment;
use std::borrow::Cow;
use std::collections::BTreeSet;
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

    fn edges() -> Vec<Edge> {
        let edge =
            |(from, to, codes): &(Option<state::Mode>, state::Mode, &'static [&'static str])| {
                Edge { from: from.map(state::Mode::as_str), to: to.as_str(), codes }
            };
        edges::EDGES.iter().map(edge).collect()
    }

    fn places(state: &ChainState) -> Vec<Place> {
        let place = |hop: &state::HopState| Place {
            part: Some(hop.name.to_string()),
            state: hop.mode.as_str().to_owned(),
        };
        state.hops.iter().map(place).collect()
    }

    fn shown(status: &Self::Status) -> Shown {
        status.shown()
    }

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
            Turn::Stays(mut state, reasons) => {
                state.open_or_close(&seen.started);
                let counted = Self::without_wish(&state);
                let wished = future(subject, *state, &reasons);
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

    fn whole(subject: &Subject<'_, Self>, decision: &Decision<ChainState>) -> World {
        let state = &decision.wished.state;
        let is_part = state.under_way.as_ref().is_some_and(|way| !way.stages.is_empty());
        if !is_part {
            return decision.wished.world.clone();
        }
        lanes::laid(subject.policy, subject.name, state).world
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
        let mut state = Self::without_wish(subject.state?);
        if let Some(tunnels) = &mut state.tunnels {
            (tunnels.built, tunnels.open) = (false, false);
        }
        Some(future(subject, state, &[]))
    }

    fn scope(subject: &Subject<'_, Self>, turn: u32) -> KernelScope {
        lanes::scope(subject, turn)
    }

    fn rebuild(
        subject: &Subject<'_, Self>,
        kernel: &KernelReading,
        stored: &[Candidate],
        now: &Moment,
    ) -> Option<ChainState> {
        rebuilt::rebuild(subject.policy, kernel, stored, now)
    }

    fn realms(policy: &ChainPolicy) -> BTreeSet<Realm> {
        let driver = tunnels::driver(policy).into_iter();
        driver.map(|driver| crate::pool::ask::realm(&driver.lanes)).collect()
    }

    fn scratch(policy: &ChainPolicy) -> BTreeSet<Interface> {
        let driver = tunnels::driver(policy).into_iter();
        driver.flat_map(|driver| driver.lanes.test.interfaces()).collect()
    }

    fn means(policy: &ChainPolicy) -> Means {
        lanes::means(policy)
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

/// A future with everything that follows from its state. It writes nothing elsewhere.
fn future(
    subject: &Subject<'_, Chain>,
    state: ChainState,
    reasons: &[Reason],
) -> Future<ChainState> {
    let laid = lanes::laid(subject.policy, subject.name, &state);
    Future {
        cuts: lanes::cuts(subject.policy, subject.state, &state),
        world: laid.world,
        barrier: laid.barrier,
        generations: laid.generations,
        ..Future::of::<Chain>(state, reasons)
    }
}

fn decision(
    subject: &Subject<'_, Chain>,
    wished: Future<ChainState>,
    counted: ChainState,
) -> Decision<ChainState> {
    let before = subject.state.filter(|state| state.tunnels.as_ref().is_some_and(|t| t.built));
    Decision {
        standing: before.map(|state| lanes::laid(subject.policy, subject.name, state).world),
        ..Decision::of(subject, wished, counted)
    }
}

/// What puts the next try of something under way in place.
fn decision_of(subject: &Subject<'_, Chain>, way: UnderWay, now: &Moment) -> Decision<ChainState> {
    let policy = subject.policy;
    let settings = match &way.purpose {
        Purpose::Retries(retries) => drive::retry_edits(policy, retries),
        Purpose::Again
        | Purpose::Build
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
        && way.stands == way.tries
        && !way.builds
    {
        // It carries already: there is nothing to prove.
        let (mut state, reason) = proof::switched(policy, &way, hop, now);
        state.restate(now);
        reasons.extend(reason);
        return decision(subject, future(subject, state, &reasons), counted);
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
    let (first, checks) = (way.stages.first().cloned(), way.checks.clone());
    state.under_way = Some(Box::new(way));
    let mut wished = Future { settings, ..future(subject, state, &reasons) };
    match first {
        // Clients are looked after once all of it stands.
        Some(first) => {
            wished.world = first;
            decision(subject, wished, counted)
        }
        None => Decision { checks, ..decision(subject, wished, counted) },
    }
}
