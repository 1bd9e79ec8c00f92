//! From what was asked to what is decided: the core's answers or the route's, the uplink, the channels, and
//! then one turn of the machine.
//!
//! **Invariant:** while the core or the uplink is down nothing is counted and nothing is switched.

use super::ask::{self, Look};
use super::drive::clash::ClashDrive;
use super::drive::route::RouteDrive;
use super::drive::{Drive, Made};
use super::sight::{self, CoreTrouble, Wan};
use super::state::Chosen;
use super::turn::{Manner, Turn};
use super::{Reason, Selector, SelectorState, status};
use crate::machine::{Considered, Decision, Future, Machine as _, ReasonText, Subject};
use crate::observation::{Observation, Question};
use crate::policy::selector::{Channel, ClashDriver, Driver, RouteDriver};
use crate::time::Moment;

/// Asks for what is not known yet, or decides.
pub(super) fn consider(
    subject: &Subject<'_, Selector>,
    seen: &Observation,
    now: &Moment,
    may_ask: bool,
) -> Considered<SelectorState> {
    match &subject.policy.driver {
        Driver::Clash(driver) => by_core(subject, driver, seen, now, may_ask),
        Driver::Route(driver) => by_route(subject, driver, seen, now, may_ask),
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
        Ok(Some(drive)) => on(subject, &drive, seen, now, may_ask),
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
            None => on(subject, &drive, seen, now, may_ask),
        },
        None if may_ask => {
            let kernel = Question::Kernel(Box::new(Selector::scope(subject, 0)));
            let first = [kernel, ask::carried(driver, Look::First)];
            Considered::Ask(ask::names(subject.policy).into_iter().chain(first).collect())
        }
        None => unable(&Reason::NoTime),
    }
}

fn on(
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
pub(super) fn future(
    state: SelectorState,
    made: Made,
    reasons: &[Reason],
) -> Future<SelectorState> {
    Future {
        world: made.world,
        settings: made.settings,
        cuts: made.cuts,
        ..Future::of::<Selector>(state, reasons)
    }
}

fn decision(
    subject: &Subject<'_, Selector>,
    drive: Option<&dyn Drive>,
    wished: Future<SelectorState>,
    counted: SelectorState,
) -> Decision<SelectorState> {
    Decision {
        standing: subject.state.zip(drive).and_then(|(state, drive)| drive.standing(state)),
        ..Decision::of(subject, wished, counted)
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
