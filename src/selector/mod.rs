//! Kind `selector`: a primary and a reserve, without breaking what runs.
//!
//! `ask` says what is looked at, `sight` judges it, `drive` is the core or the route that is
//! switched, `turn` counts and holds the rows, `activity` tells whether anybody receives something.
//!
//! **Invariant:** only new connections move, and only when the channel that they move to answers;
//! what a person chose elsewhere is never overwritten.

pub mod activity;
mod ask;
mod drive;
pub mod reason;
mod sight;
pub mod state;
pub mod status;
mod turn;

pub use reason::Reason;
pub use state::SelectorState;

use crate::kernel::World;
use crate::machine::{
    Carried, Considered, Decision, Future, Machine, Pausing, Proof, ReasonText, Rhythm, Settled,
    Subject,
};
use crate::names::PolicyName;
use crate::observation::Observation;
use crate::policy::selector::{Channel, ClashDriver, Driver};
use crate::policy::{Kind, SelectorPolicy};
use crate::record::Record;
use crate::setting::{Value, Written};
use crate::status::Standing;
use crate::time::Moment;
use ask::Look;
use drive::Drive;
use sight::{CoreTrouble, Wan};
use state::{Chosen, Verdict, Wish, mode_of};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use turn::{Manner, Turn};

/// What is said of a driver that is read and not there yet.
const NO_ROUTES: &str = "this version does not switch routes: use driver clash";

/// The kind `selector`.
pub enum Selector {}

impl Machine for Selector {
    type Policy = SelectorPolicy;
    type State = SelectorState;
    type Status = status::SelectorStatus;

    const KIND: Kind = Kind::Selector;

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

    fn consider(
        subject: &Subject<'_, Self>,
        seen: &Observation,
        now: &Moment,
        may_ask: bool,
    ) -> Considered<SelectorState> {
        match &subject.policy.driver {
            Driver::Clash(driver) => consider(subject, driver, seen, now, may_ask),
            Driver::Route(_) => unable(&Reason::CoreUnusable { why: NO_ROUTES.to_owned() }),
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
                let future = future(before(), &[Reason::Refused { why }]);
                Proof::Settle(Box::new(future), Settled::RolledBack)
            }
            Written::Overtaken { found: Value::Member(member) } => {
                let future = overtaken(policy, before(), carried.before, member, now);
                Proof::Settle(Box::new(future), Settled::Applied)
            }
            // A group holds a member, whatever another kind of setting holds.
            Written::Overtaken { found: found @ Value::Records(_) } => {
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
        Some(future(Self::without_wish(subject.state?), &[]))
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

fn consider(
    subject: &Subject<'_, Selector>,
    driver: &ClashDriver,
    seen: &Observation,
    now: &Moment,
    may_ask: bool,
) -> Considered<SelectorState> {
    let policy = subject.policy;
    let drive = match Drive::new(driver, seen) {
        Ok(Some(drive)) => drive,
        Ok(None) if may_ask => {
            let core = ask::core(driver, subject.state, Look::First);
            return Considered::Ask(ask::names(policy).into_iter().chain([core]).collect());
        }
        Ok(None) => return unable(&Reason::NoTime),
        Err(CoreTrouble::Unusable(why)) => return unable(&Reason::CoreUnusable { why }),
        Err(CoreTrouble::Down(why)) => {
            let reason = Reason::CoreDown { why };
            return match subject.state {
                Some(state) => {
                    let mut state = state.clone();
                    state.core_down = true;
                    Considered::Decide(Box::new(held(subject, state, reason)))
                }
                None => unable(&reason),
            };
        }
    };
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
    if may_ask && ask::read(seen, &ask::asker(Channel::Primary), 0).is_none() {
        let channels = Channel::ALL.map(|channel| ask::channel(policy, &state, channel, 0));
        return Considered::Ask(channels.into_iter().chain(ask::wan(policy, &state, 0)).collect());
    }
    match sight::wan(policy, seen) {
        Wan::AskAgain if may_ask => {
            return Considered::Ask(ask::wan(policy, &state, 1).into_iter().collect());
        }
        Wan::AskAgain | Wan::Down => {
            return Considered::Decide(Box::new(held(subject, state, Reason::WanDown)));
        }
        Wan::Up => {}
    }
    if may_ask && !drive.has(Look::After) {
        return Considered::Ask(vec![ask::core(driver, subject.state, Look::After)]);
    }
    if drive.is_unclear(known) {
        if may_ask && !drive.has(Look::Config) {
            return Considered::Ask(vec![ask::core(driver, subject.state, Look::Config)]);
        }
        return Considered::Decide(Box::new(held(subject, state, Reason::NoTime)));
    }
    let manner = Manner { paused: subject.paused, may_ask };
    let mut turn = Turn::new(policy, seen, &drive, state, now, manner);
    if known.is_some() {
        turn.run();
    } else {
        turn.begin();
    }
    if may_ask && !turn.asks.is_empty() {
        return Considered::Ask(turn.asks);
    }
    Considered::Decide(Box::new(decided(subject, &drive, turn)))
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

/// A future that changes nothing in the world.
fn future(state: SelectorState, reasons: &[Reason]) -> Future<SelectorState> {
    Future {
        to: state.mode.as_str().to_owned(),
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
    subject: &Subject<'_, Selector>,
    wished: Future<SelectorState>,
    counted: SelectorState,
) -> Decision<SelectorState> {
    Decision {
        from: subject.state.map(|state| state.mode.as_str().to_owned()),
        wished,
        standing: None,
        checks: Vec::new(),
        held: counted.clone(),
        undone: counted,
        references: Vec::new(),
    }
}

/// The core or the uplink is down.
fn held(
    subject: &Subject<'_, Selector>,
    mut state: SelectorState,
    reason: Reason,
) -> Decision<SelectorState> {
    state.settle = true;
    state.recovery_since = None;
    state.waits = false;
    let counted = Selector::without_wish(&state);
    decision(subject, future(state, &[reason]), counted)
}

fn decided(
    subject: &Subject<'_, Selector>,
    drive: &Drive<'_>,
    turn: Turn<'_>,
) -> Decision<SelectorState> {
    let mut state = turn.state;
    let (mut settings, mut cuts) = (BTreeMap::new(), Vec::new());
    if let Some(goal) = &turn.goal {
        (settings, cuts) = drive.write(goal);
        state.confirmed = Some(drive.confirmed(&goal.target));
    }
    let wished = Future { settings, cuts, pauses: turn.pauses, ..future(state, &turn.reasons) };
    decision(subject, wished, turn.counted)
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
        && let Ok(Some(drive)) = Drive::new(driver, seen)
    {
        let chosen = drive.of(member);
        state.confirmed = Some(drive.confirmed(member));
        state.take_over(&chosen, now);
        let reason = Reason::PersonsChoice { chosen };
        return Future { pauses: true, ..future(state, &[reason]) };
    }
    future(state, &[])
}
