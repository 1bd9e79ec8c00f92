//! Kind `selector`: a primary and a reserve, without breaking what runs.
//!
//! `ask` says what is looked at, `sight` judges it, `consider` goes from the one to the other, `drive` is
//! the core or the route that is switched, `layout` how the kernel looks for a route, `turn` counts and
//! holds the rows, `proof` tells what came of a switch, `activity` whether anybody receives something.
//!
//! **Invariant:** only new connections move, and only when the channel that they move to answers;
//! what a person chose elsewhere is never overwritten.

pub mod activity;
mod ask;
mod consider;
mod drive;
mod edges;
mod layout;
mod proof;
pub mod reason;
mod sight;
pub mod state;
pub mod status;
mod turn;

pub use reason::Reason;
pub use state::SelectorState;

use crate::graph::Edge;
use crate::machine::{
    Carried, Considered, Decision, Future, Machine, Pausing, Proof, Rhythm, Subject,
};
use crate::measure::Samples;
use crate::names::PolicyName;
use crate::observation::{KernelScope, Observation, Realm};
use crate::page::Shown;
use crate::policy::selector::{Channel, Driver};
use crate::policy::{Kind, SelectorPolicy};
use crate::publish::Published;
use crate::record::Record;
use crate::status::Standing;
use crate::time::Moment;
use drive::Made;
use state::{Chosen, Verdict, Wish, mode_of};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

/// The kind `selector`.
pub enum Selector {}

impl Machine for Selector {
    type Policy = SelectorPolicy;
    type State = SelectorState;
    type Status = status::SelectorStatus;

    const KIND: Kind = Kind::Selector;

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

    fn stands(state: &SelectorState) -> (Cow<'static, str>, &Moment) {
        (state.mode.as_str().into(), &state.since)
    }

    fn status(
        name: &PolicyName,
        policy: &SelectorPolicy,
        record: &Record<SelectorState>,
        now: &Moment,
    ) -> (status::SelectorStatus, Standing) {
        let status = status::status(name, policy, record, now);
        let standing = status.standing;
        (status, standing)
    }

    fn published(status: &status::SelectorStatus) -> Published {
        status.published()
    }

    fn measured(status: &status::SelectorStatus) -> Samples {
        status.measured()
    }

    fn consider(
        subject: &Subject<'_, Self>,
        seen: &Observation,
        now: &Moment,
        may_ask: bool,
    ) -> Considered<SelectorState> {
        consider::consider(subject, seen, now, may_ask)
    }

    fn prove(
        subject: &Subject<'_, Self>,
        decision: &Decision<SelectorState>,
        carried: &Carried<'_>,
        now: &Moment,
    ) -> Proof<SelectorState> {
        proof::prove(subject, decision, carried, now)
    }

    fn switch(
        subject: &Subject<'_, Self>,
        target: &str,
        force: bool,
    ) -> Result<(SelectorState, Pausing), String> {
        let state = subject.state.ok_or("the policy was never stepped: step it first")?;
        let is_well = Channel::ALL.into_iter().any(|channel| {
            status::target(subject.policy, channel) == target
                && state.channel(channel).verdict == Verdict::Healthy
        });
        if !is_well && !force {
            return Err(format!(
                "{} is not confirmed healthy: say --force to choose it all the same",
                crate::outcome::harmless(target)
            ));
        }
        let wish = Wish { target: target.to_owned(), force };
        Ok((SelectorState { wish: Some(wish), ..state.clone() }, Pausing::Pause))
    }

    fn has_wish(state: &SelectorState) -> bool {
        state.wish.is_some()
    }

    fn without_wish(state: &SelectorState) -> SelectorState {
        SelectorState { wish: None, ..state.clone() }
    }

    fn retire(subject: &Subject<'_, Self>, _: &Moment) -> Option<Future<SelectorState>> {
        Some(consider::future(Self::without_wish(subject.state?), Made::default(), &[]))
    }

    fn resumed(state: &SelectorState, now: &Moment) -> Result<SelectorState, String> {
        let mut state = Self::without_wish(state);
        if let Chosen::Third(member) = &state.chosen {
            return Err(format!(
                "{} is selected, which is neither the primary nor the reserve: select one of them first, such as by `switch`",
                crate::outcome::harmless(member)
            ));
        }
        let mut mode = mode_of(&state.chosen);
        if mode == state::Mode::OnReserve && state.quarantined_at.is_some() {
            // Whether it still runs, the next step says.
            mode = state::Mode::PrimaryQuarantined;
        }
        if state.mode != mode {
            state.mode = mode;
            state.since = now.clone();
        }
        state.clear_times(now);
        Ok(state)
    }

    fn scope(subject: &Subject<'_, Self>, turn: u32) -> KernelScope {
        let driver = match &subject.policy.driver {
            Driver::Clash(_) => None,
            Driver::Route(driver) => Some(driver),
        };
        layout::scope(subject.name, driver, subject.owned, turn)
    }

    fn realms(policy: &SelectorPolicy) -> BTreeSet<Realm> {
        match &policy.driver {
            Driver::Clash(_) => BTreeSet::new(),
            Driver::Route(driver) => layout::realms(driver),
        }
    }

    fn remembers_under_pause(_: &SelectorPolicy) -> bool {
        // Nothing moves under a pause, so what is remembered says nothing new of the kernel.
        true
    }

    fn rhythm(policy: &SelectorPolicy, state: Option<&SelectorState>) -> Rhythm {
        let params = &policy.params;
        let interval = Duration::from_secs(params.check_interval_sec);
        let quick = Duration::from_secs(params.quiet_window_sec) / 3;
        let waits = state.is_some_and(|state| state.waits);
        Rhythm {
            interval: if waits { interval.min(quick) } else { interval },
            // Twice asking the channels and the core fits into its half.
            budget: Duration::from_secs(policy.probe.timeout_sec.saturating_mul(4))
                + Duration::from_secs(40),
        }
    }
}
