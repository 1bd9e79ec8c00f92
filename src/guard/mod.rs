//! Kind `guard`: help for an automatic group of a proxy core over its blind spots.
//!
//! `place` finds where the group is, `ask` says what is looked at, `sight` judges it, `turn` tells whose choice stands, `round` counts
//! and holds the rows, `recovery` says what is tried in which order, `proof` what follows once it was
//! selected.
//!
//! **Invariant:** nothing but the selected member of one group is ever written; a request through
//! the core's proxy stands behind every choice of ours that is kept, and a person's is never
//! overwritten.

mod ask;
mod edges;
mod place;
mod proof;
pub mod reason;
mod recovery;
mod round;
mod sight;
pub mod state;
pub mod status;
mod turn;

pub use reason::Reason;
pub use state::GuardState;

use crate::graph::Edge;
use crate::machine::{
    Carried, Considered, Decision, Future, Machine, Pausing, Proof, ReasonText, Rhythm, Subject,
};
use crate::measure::Samples;
use crate::names::PolicyName;
use crate::observation::Observation;
use crate::page::Shown;
use crate::policy::{GuardPolicy, Kind};
use crate::publish::Published;
use crate::record::Record;
use crate::status::Standing;
use crate::time::Moment;
use state::Wish;
use std::borrow::Cow;
use std::time::Duration;
use turn::Turn;

/// The kind `guard`.
pub enum Guard {}

/// A step is over before the 90 s of the shipped unit are: members that could not be tried by then
/// are tried in the next one.
const BUDGET: Duration = Duration::from_secs(80);

impl Machine for Guard {
    type Policy = GuardPolicy;
    type State = GuardState;
    type Status = status::GuardStatus;

    const KIND: Kind = Kind::Guard;

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

    fn stands(state: &GuardState) -> (Cow<'static, str>, &Moment) {
        (state.mode.as_str().into(), &state.since)
    }

    fn status(
        name: &PolicyName,
        policy: &GuardPolicy,
        record: &Record<GuardState>,
        now: &Moment,
    ) -> (status::GuardStatus, Standing) {
        let status = status::status(name, policy, record, now);
        let standing = status.standing;
        (status, standing)
    }

    fn published(status: &status::GuardStatus) -> Published {
        status.published()
    }

    fn measured(status: &status::GuardStatus) -> Samples {
        status.measured()
    }

    fn consider(
        subject: &Subject<'_, Self>,
        seen: &Observation,
        _: &Moment,
        may_ask: bool,
    ) -> Considered<GuardState> {
        match turn::turn(subject, seen, may_ask) {
            Turn::Ask(questions) => Considered::Ask(questions),
            Turn::Unable(reason) => Considered::Unable(vec![ReasonText::from(&reason)]),
            Turn::Stays(state, reasons) => {
                let counted = Self::without_wish(&state);
                let wished = Future::of::<Self>(*state, &reasons);
                Considered::Decide(Box::new(Decision::of(subject, wished, counted)))
            }
            Turn::Writes(intent) => {
                let first = intent.tries.first().cloned().unwrap_or_default();
                let wished = proof::wished(subject, &intent, &intent.stands, &first, &seen.started);
                Considered::Decide(Box::new(Decision::of(subject, wished, intent.counted)))
            }
        }
    }

    fn prove(
        subject: &Subject<'_, Self>,
        decision: &Decision<GuardState>,
        carried: &Carried<'_>,
        _: &Moment,
    ) -> Proof<GuardState> {
        proof::prove(subject, decision, carried)
    }

    fn switch(
        subject: &Subject<'_, Self>,
        target: &str,
        force: bool,
    ) -> Result<(GuardState, Pausing), String> {
        let state = subject.state.ok_or("the policy was never stepped: step it first")?;
        let wish = Wish { target: target.to_owned(), force };
        let [_, automatic] = &state.names;
        let is_automatic = target == automatic;
        let pausing = if is_automatic { Pausing::Lift } else { Pausing::Pause };
        Ok((GuardState { wish: Some(wish), ..state.clone() }, pausing))
    }

    fn has_wish(state: &GuardState) -> bool {
        state.wish.is_some()
    }

    fn without_wish(state: &GuardState) -> GuardState {
        GuardState { wish: None, ..state.clone() }
    }

    fn retire(subject: &Subject<'_, Self>, _: &Moment) -> Option<Future<GuardState>> {
        Some(Future::of::<Self>(Self::without_wish(subject.state?), None::<&Reason>))
    }

    fn resumed(state: &GuardState, _: &Moment) -> Result<GuardState, String> {
        let mut state = Self::without_wish(state);
        state.clear_counters();
        Ok(state)
    }

    fn rhythm(policy: &GuardPolicy, _: Option<&GuardState>) -> Rhythm {
        Rhythm { interval: policy.params.interval(), budget: BUDGET }
    }
}
