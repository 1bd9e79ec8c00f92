//! Kind `dns`: host names that follow living nodes.
//!
//! `ask` says what is looked at, `round` judges and counts it, `seat` and `rows` hold the machine of
//! one host name, `turn` all of them in one decision.
//!
//! **Invariant:** nothing in this folder has an effect; all of it is values from values.

mod ask;
mod edges;
pub mod name;
pub mod reason;
pub mod record;
mod round;
mod rows;
mod seat;
pub mod state;
pub mod status;
mod turn;
pub mod uptime;
mod wish;

pub use ask::{REFERENCE, own_check, serving_check};
pub use reason::Reason;
pub use state::DnsState;

use crate::graph::{Edge, Place};
use crate::machine::{
    Carried, Considered, Decision, Future, Machine, PartWish, Pausing, Proof, ReasonText, Rhythm,
    Subject,
};
use crate::measure::Samples;
use crate::names::PolicyName;
use crate::observation::Observation;
use crate::page::Shown;
use crate::policy::{DnsPolicy, Kind};
use crate::publish::Published;
use crate::record::Record;
use crate::status::Standing;
use crate::time::Moment;
use std::borrow::Cow;
use std::time::Duration;
use turn::Turn;

/// The whole run's deadline: half of it is more than the slowest round, which is names (2 s), two
/// references (3 s each) and the slowest check (10 s).
const BUDGET: Duration = Duration::from_secs(60);

/// The kind `dns`.
pub enum Dns {}

impl Machine for Dns {
    type Policy = DnsPolicy;
    type State = DnsState;
    type Status = status::DnsStatus;

    const KIND: Kind = Kind::Dns;

    fn edges() -> Vec<Edge> {
        let edge =
            |(from, to, codes): &(Option<state::Mode>, state::Mode, &'static [&'static str])| {
                Edge { from: from.map(state::Mode::as_str), to: to.as_str(), codes }
            };
        edges::EDGES.iter().map(edge).collect()
    }

    fn places(state: &DnsState) -> Vec<Place> {
        let place = |(host, known): (&name::HostName, &state::Host)| Place {
            part: Some(host.to_string()),
            state: known.mode.as_str().to_owned(),
        };
        state.hosts.iter().map(place).collect()
    }

    fn shown(status: &Self::Status) -> Shown {
        status.shown()
    }

    fn stands(state: &DnsState) -> (Cow<'static, str>, &Moment) {
        (state.stands.clone().into(), &state.since)
    }

    fn status(
        name: &PolicyName,
        policy: &DnsPolicy,
        record: &Record<DnsState>,
        now: &Moment,
    ) -> (status::DnsStatus, Standing) {
        let status = status::status(name, policy, record, now);
        let standing = status.standing;
        (status, standing)
    }

    fn published(status: &status::DnsStatus) -> Published {
        status.published()
    }

    fn measured(status: &status::DnsStatus) -> Samples {
        status.measured()
    }

    fn consider(
        subject: &Subject<'_, Self>,
        seen: &Observation,
        now: &Moment,
        may_ask: bool,
    ) -> Considered<DnsState> {
        let blank = DnsState::new(now);
        let state = subject.state.unwrap_or(&blank);
        let next = ask::next(subject.policy, state, subject.paused, seen).filter(|_| may_ask);
        match next {
            Some(questions) => Considered::Ask(questions),
            None => Considered::Decide(Box::new(Turn::play(subject, seen).decision())),
        }
    }

    fn prove(
        subject: &Subject<'_, Self>,
        decision: &Decision<DnsState>,
        carried: &Carried<'_>,
        _: &Moment,
    ) -> Proof<DnsState> {
        if decision.wished.settings.is_empty() {
            return Proof::Settle(
                Box::new(decision.wished.clone()),
                crate::machine::Settled::Applied,
            );
        }
        let (future, settled) = Turn::play(subject, carried.before).settle(carried.written);
        Proof::Settle(Box::new(future), settled)
    }

    fn switch(
        subject: &Subject<'_, Self>,
        target: &str,
        force: bool,
    ) -> Result<(DnsState, Pausing), String> {
        let state = subject.state.ok_or("it was never stepped: step it first")?;
        let wish = wish::grant(subject.policy, state, target, force)?;
        Ok((DnsState { wish: Some(wish), ..state.clone() }, Pausing::Keep))
    }

    fn has_wish(state: &DnsState) -> bool {
        state.wish.is_some()
    }

    fn without_wish(state: &DnsState) -> DnsState {
        DnsState { wish: None, ..state.clone() }
    }

    fn retire(subject: &Subject<'_, Self>, now: &Moment) -> Option<Future<DnsState>> {
        let mut state = subject.state?.clone();
        let hosts = std::mem::take(&mut state.hosts);
        let reasons = hosts.into_iter().map(|(host, old)| {
            let addresses = seat::words(&old.ours);
            ReasonText::from(&Reason::Forgotten { host, addresses })
        });
        let reasons: Vec<ReasonText> = reasons.collect();
        state.restate(now);
        Some(Future::of::<Self>(state, reasons))
    }

    fn resumed(state: &DnsState, _: &Moment) -> Result<DnsState, String> {
        Ok(wish::resumed(state))
    }

    fn part(
        subject: &Subject<'_, Self>,
        part: &str,
        wish: PartWish,
        now: &Moment,
    ) -> Result<DnsState, String> {
        let state = subject.state.ok_or("it was never stepped: step it first")?;
        wish::part(state, part, wish, now)
    }

    fn rhythm(policy: &DnsPolicy, _: Option<&DnsState>) -> Rhythm {
        Rhythm { interval: Duration::from_secs(policy.params.check_interval_sec), budget: BUDGET }
    }
}
