//! One turn of a guard: what stands in the core, and whose choice it is.
//!
//! **Invariant:** the same observation gives the same turn, so that what follows a write is worked
//! out again from what was seen before it; moments are those at which the run began.

use super::Guard;
use super::ask::{self, Look};
use super::place::{self, Case, Place, Sought};
use super::reason::Reason;
use super::round::Round;
use super::sight::{self, CoreSight};
use super::state::{GuardState, Mode};
use crate::clash::choice::{Choice, Confirmed, judge};
use crate::machine::Subject;
use crate::observation::{Life, Observation, Question};
use crate::time::Moment;

/// What a turn comes to.
#[derive(Clone, Debug)]
pub(super) enum Turn {
    /// More has to be known.
    Ask(Vec<Question>),
    /// The policy cannot be served.
    Unable(Reason),
    /// Nothing is written.
    Stays(Box<GuardState>, Vec<Reason>),
    /// Something is.
    Writes(Box<Intent>),
}

/// What is to be written, and why.
#[derive(Clone, Debug)]
pub(super) struct Intent {
    /// Where the group is.
    pub(super) place: Place,
    /// What is counted, whatever becomes of the write.
    pub(super) counted: GuardState,
    /// What stands there now.
    pub(super) stands: String,
    /// The core's run in which that was seen.
    pub(super) life: Life,
    /// Members to select, one after the other until one is proven. Never empty.
    pub(super) tries: Vec<String>,
    /// What for.
    pub(super) purpose: Purpose,
    /// Why, beside what comes of it.
    pub(super) reasons: Vec<Reason>,
}

/// What something is written for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Our choice was lost in a restart.
    Again,
    /// A person wants it.
    Switch {
        /// Whether it is kept though no request passes.
        force: bool,
    },
    /// The automatic group gets control back if a request passes.
    GiveBack,
    /// Requests fail.
    Recovery {
        /// What is left for the next step when none of the tries passes.
        rest: Vec<String>,
    },
}

/// Looks at what was seen so far and either asks for more or says which row applies.
pub(super) fn turn(subject: &Subject<'_, Guard>, seen: &Observation, may_ask: bool) -> Turn {
    match place::find(subject.policy, seen) {
        Sought::Here(place) => of_place(Case { subject, place: &place }, seen, may_ask),
        Sought::Ask(question) if may_ask => Turn::Ask(vec![question]),
        Sought::Ask(_) => held_or_unable(subject, Reason::NoTime),
        Sought::Trouble(reason) => core_trouble(subject, reason),
    }
}

/// The same, once it is known where the group is.
fn of_place(case: Case<'_>, seen: &Observation, may_ask: bool) -> Turn {
    let Case { subject, place } = case;
    let now = &seen.started;
    let core = match sight::core(place, seen, Look::First) {
        Some(Ok(core)) => core,
        None if may_ask => return Turn::Ask(vec![ask::core(case, Look::First)]),
        None => return held_or_unable(subject, Reason::NoTime),
        Some(Err(reason)) => return core_trouble(subject, reason),
    };
    let names = [place.group.clone(), place.automatic.clone()];
    let Some(known) = subject.state.filter(|state| state.names == names) else {
        return begun(case, core, names, now);
    };
    let mut state = known.clone();
    state.core_trouble = None;
    state.uses = Some(core.uses.to_owned());
    state.looked_at = now.clone();
    state.keep_only(core.all);
    if known.confirmed.life.ended_before(&core.seen.life) {
        state.settle = true;
    }
    if let Some(wish) = &state.wish {
        // It is a person's last word, whatever was chosen or lost before.
        let (target, force) = (wish.target.clone(), wish.force);
        return switched(case, state, core, target, force);
    }
    let with_config = sight::core(place, seen, Look::Config).and_then(Result::ok);
    let ours_is_gone = !core.all.contains(&known.confirmed.member);
    let looked = with_config.unwrap_or(core);
    match choice(known, ours_is_gone, &place.group, looked) {
        Choice::Unclear if may_ask && with_config.is_none() => {
            return Turn::Ask(vec![ask::core(case, Look::Config)]);
        }
        Choice::Unclear => return Turn::Stays(Box::new(known.clone()), vec![Reason::NoTime]),
        Choice::Persons(member) => return persons(case, state, core, member),
        Choice::Lost => {
            let round = Round { case, seen, may_ask, core, now };
            return round.lost(state, ours_is_gone);
        }
        Choice::Ours => confirm(&mut state, core),
    }
    Round { case, seen, may_ask, core, now }.judged(state)
}

/// Whose choice stands. A member that is gone cannot be chosen, so its loss is nobody's choice where
/// the core fell back on what it begins with.
fn choice(known: &GuardState, is_gone: bool, group: &str, core: CoreSight<'_>) -> Choice {
    if is_gone && known.confirmed.member != core.now && known.mode != Mode::Manual {
        let asked = core.seen.config != crate::observation::ConfigReading::Unasked;
        return match core.seen.default_of(group) {
            Some(default) if default == core.now && asked => Choice::Lost,
            _ if !asked => Choice::Unclear,
            Some(_) | None => Choice::Persons(core.now.to_owned()),
        };
    }
    judge(&known.confirmed, group, core.now, core.seen)
}

/// What stands there was read back now.
pub(super) fn confirm(state: &mut GuardState, core: CoreSight<'_>) {
    state.confirmed = Confirmed { member: core.now.to_owned(), life: core.seen.life.clone() };
}

fn core_trouble(subject: &Subject<'_, Guard>, reason: Reason) -> Turn {
    match (&reason, subject.state) {
        (Reason::CoreDown { .. } | Reason::GroupMissing { .. }, Some(_)) => {
            held_or_unable(subject, reason)
        }
        _ => Turn::Unable(reason),
    }
}

/// Nothing is counted, and the next round only looks.
fn held_or_unable(subject: &Subject<'_, Guard>, reason: Reason) -> Turn {
    let Some(state) = subject.state else { return Turn::Unable(reason) };
    let mut state = state.clone();
    if reason != Reason::NoTime {
        state.settle = true;
        state.passes = 0;
        state.core_trouble = Some(reason.to_string());
    }
    Turn::Stays(Box::new(state), vec![reason])
}

/// The first run, or the first with other names.
fn begun(case: Case<'_>, core: CoreSight<'_>, names: [String; 2], now: &Moment) -> Turn {
    let mode = if core.now == case.place.automatic { Mode::Auto } else { Mode::Manual };
    let confirmed = Confirmed { member: core.now.to_owned(), life: core.seen.life.clone() };
    let mut state = GuardState::new(mode, names, confirmed, now);
    state.uses = Some(core.uses.to_owned());
    state.wish = case.subject.state.and_then(|before| before.wish.clone());
    Turn::Stays(Box::new(state), vec![Reason::Found { member: core.now.to_owned() }])
}

/// A person has chosen.
pub(super) fn persons(
    case: Case<'_>,
    mut state: GuardState,
    core: CoreSight<'_>,
    member: String,
) -> Turn {
    confirm(&mut state, core);
    state.hand_over(&case.place.automatic, &state.looked_at.clone());
    let reason = if member == case.place.automatic {
        Reason::HandedBack
    } else {
        Reason::PersonsChoice { member }
    };
    Turn::Stays(Box::new(state), vec![reason])
}

fn switched(
    case: Case<'_>,
    state: GuardState,
    core: CoreSight<'_>,
    target: String,
    force: bool,
) -> Turn {
    if !core.all.contains(&target) {
        let why = format!("it is no member of {}", crate::outcome::harmless(&case.place.group));
        return Turn::Stays(Box::new(state), vec![Reason::SwitchRefused { target, why }]);
    }
    let counted = GuardState { wish: None, ..state };
    Turn::Writes(Box::new(Intent {
        place: case.place.clone(),
        counted,
        stands: core.now.to_owned(),
        life: core.seen.life.clone(),
        tries: vec![target],
        purpose: Purpose::Switch { force },
        reasons: Vec::new(),
    }))
}

/// One reason, and nothing written.
pub(super) fn stays(state: GuardState, reason: Reason) -> Turn {
    Turn::Stays(Box::new(state), vec![reason])
}
