//! Kind `selector`: a primary and a reserve, without breaking what runs.
//!
//! `ask` says what is looked at, `sight` judges it, `drive` is the core or the route that is
//! switched, `layout` how the kernel looks for a route, `turn` counts and holds the rows, `activity`
//! tells whether anybody receives something.
//!
//! **Invariant:** only new connections move, and only when the channel that they move to answers;
//! what a person chose elsewhere is never overwritten.

pub mod activity;
mod ask;
mod drive;
mod edges;
mod layout;
pub mod reason;
mod sight;
pub mod state;
pub mod status;
mod turn;

pub use reason::Reason;
pub use state::SelectorState;

use crate::graph::Edge;
use crate::machine::{
    Carried, Considered, Decision, Future, Machine, Pausing, Proof, ReasonText, Rhythm, Settled,
    Subject,
};
use crate::measure::Samples;
use crate::names::PolicyName;
use crate::observation::{KernelScope, Observation, Question, Realm};
use crate::page::Shown;
use crate::policy::selector::{Channel, ClashDriver, Driver, RouteDriver};
use crate::policy::{Kind, SelectorPolicy};
use crate::publish::Published;
use crate::record::Record;
use crate::setting::{Value, Written};
use crate::status::Standing;
use crate::time::Moment;
use ask::Look;
use drive::clash::ClashDrive;
use drive::route::RouteDrive;
use drive::{Drive, Made};
use sight::{CoreTrouble, Wan};
use state::{Chosen, Verdict, Wish, mode_of};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;
use turn::{Manner, Turn};

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
        match &subject.policy.driver {
            Driver::Clash(driver) => by_core(subject, driver, seen, now, may_ask),
            Driver::Route(driver) => by_route(subject, driver, seen, now, may_ask),
        }
    }

    fn prove(
        subject: &Subject<'_, Self>,
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
        Some(future(Self::without_wish(subject.state?), Made::default(), &[]))
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

fn unable(reason: &Reason) -> Considered<SelectorState> {
    Considered::Unable(vec![ReasonText::from(reason)])
}

fn by_core(
    subject: &Subject<'_, Selector>,
    driver: &ClashDriver,
    seen: &Observation,
    now: &Moment,
    may_ask: bool,
) -> Considered<SelectorState> {
    match ClashDrive::new(subject.policy, driver, seen, subject.state) {
        Ok(Some(drive)) => consider(subject, &drive, seen, now, may_ask),
        Ok(None) if may_ask => {
            let core = ask::core(driver, subject.state, Look::First);
            Considered::Ask(ask::names(subject.policy).into_iter().chain([core]).collect())
        }
        Ok(None) => unable(&Reason::NoTime),
        Err(CoreTrouble::Unusable(why)) => unable(&Reason::CoreUnusable { why }),
        Err(CoreTrouble::Down(why)) => {
            let reason = Reason::CoreDown { why };
            let Some(state) = subject.state else { return unable(&reason) };
            let mut state = state.clone();
            state.core_down = true;
            Considered::Decide(Box::new(held(subject, None, state, reason)))
        }
    }
}

fn by_route(
    subject: &Subject<'_, Selector>,
    driver: &RouteDriver,
    seen: &Observation,
    now: &Moment,
    may_ask: bool,
) -> Considered<SelectorState> {
    match RouteDrive::new(subject, driver, seen) {
        Some(drive) => match drive.in_the_way() {
            Some(what) => unable(&Reason::RouteTaken { what }),
            None => consider(subject, &drive, seen, now, may_ask),
        },
        None if may_ask => {
            let kernel = Question::Kernel(Box::new(Selector::scope(subject, 0)));
            let first = [kernel, ask::carried(driver, Look::First)];
            Considered::Ask(ask::names(subject.policy).into_iter().chain(first).collect())
        }
        None => unable(&Reason::NoTime),
    }
}

fn consider(
    subject: &Subject<'_, Selector>,
    drive: &dyn Drive,
    seen: &Observation,
    now: &Moment,
    may_ask: bool,
) -> Considered<SelectorState> {
    let policy = subject.policy;
    let names = status::names(policy);
    let known = subject.state.filter(|state| state.names == names);
    let mut state =
        known.cloned().unwrap_or_else(|| begun(subject.state, drive.chosen(), now, names));
    state.core_down = false;
    for (name, addresses) in seen.names() {
        if let Ok(addresses) = addresses
            && !addresses.is_empty()
        {
            state.addresses.insert(name.to_owned(), addresses.clone());
        }
    }
    let unasked = |channel: &Channel| drive.health(*channel, 0).is_none();
    let channels: Vec<Question> = Channel::ALL
        .into_iter()
        .filter(unasked)
        .map(|channel| ask::channel(policy, &state, channel, 0))
        .chain(ask::wan(policy, &state, 0).filter(|_| !sight::was_wan_asked(seen)))
        .collect();
    if may_ask && !channels.is_empty() {
        return Considered::Ask(channels);
    }
    match sight::wan(policy, seen) {
        Wan::AskAgain if may_ask => {
            return Considered::Ask(ask::wan(policy, &state, 1).into_iter().collect());
        }
        Wan::AskAgain | Wan::Down => {
            return Considered::Decide(Box::new(held(
                subject,
                Some(drive),
                state,
                Reason::WanDown,
            )));
        }
        Wan::Up => {}
    }
    if may_ask && let Some(look) = drive.look_after() {
        return Considered::Ask(vec![look]);
    }
    if let Some(look) = drive.look_closer(known) {
        if may_ask && !seen.readings.contains_key(&look) {
            return Considered::Ask(vec![look]);
        }
        return Considered::Decide(Box::new(held(subject, Some(drive), state, Reason::NoTime)));
    }
    let manner = Manner { paused: subject.paused, may_ask };
    let mut turn = Turn::new(policy, seen, drive, state, now, manner);
    if known.is_some() {
        turn.run();
    } else {
        turn.begin();
    }
    if may_ask && !turn.asks.is_empty() {
        return Considered::Ask(turn.asks);
    }
    Considered::Decide(Box::new(decided(subject, drive, turn)))
}

/// The state of a first run, or of one with other channels than before.
fn begun(
    before: Option<&SelectorState>,
    chosen: Chosen,
    now: &Moment,
    names: [String; 3],
) -> SelectorState {
    let mut state = SelectorState::new(chosen, names, now);
    if let Some(before) = before {
        state.failovers.clone_from(&before.failovers);
        state.addresses.clone_from(&before.addresses);
        state.wish.clone_from(&before.wish);
    }
    state
}

/// A future in which `made` is so.
fn future(state: SelectorState, made: Made, reasons: &[Reason]) -> Future<SelectorState> {
    Future {
        to: state.mode.as_str().to_owned(),
        state,
        world: made.world,
        settings: made.settings,
        pauses: false,
        barrier: None,
        cuts: made.cuts,
        generations: BTreeSet::new(),
        reasons: reasons.iter().map(ReasonText::from).collect(),
    }
}

fn decision(
    subject: &Subject<'_, Selector>,
    drive: Option<&dyn Drive>,
    wished: Future<SelectorState>,
    counted: SelectorState,
) -> Decision<SelectorState> {
    Decision {
        from: subject.state.map(|state| state.mode.as_str().to_owned()),
        wished,
        standing: subject.state.zip(drive).and_then(|(state, drive)| drive.standing(state)),
        checks: Vec::new(),
        held: counted.clone(),
        undone: counted,
        references: Vec::new(),
    }
}

/// The core or the uplink is down.
fn held(
    subject: &Subject<'_, Selector>,
    drive: Option<&dyn Drive>,
    mut state: SelectorState,
    reason: Reason,
) -> Decision<SelectorState> {
    state.settle = true;
    state.recovery_since = None;
    state.waits = false;
    let counted = Selector::without_wish(&state);
    let made = drive.map(|drive| drive.make(&mut state, None)).unwrap_or_default();
    decision(subject, drive, future(state, made, &[reason]), counted)
}

fn decided(
    subject: &Subject<'_, Selector>,
    drive: &dyn Drive,
    turn: Turn<'_>,
) -> Decision<SelectorState> {
    let mut state = turn.state;
    let made = drive.make(&mut state, turn.goal.as_ref());
    let wished = Future { pauses: turn.pauses, ..future(state, made, &turn.reasons) };
    decision(subject, Some(drive), wished, turn.counted)
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
