//! One turn of a guard: what is counted, and which row of its table applies.
//!
//! **Invariant:** the same observation gives the same turn, so that what follows a write is worked
//! out again from what was seen before it; moments are those at which the run began.

use super::ask::{self, Look};
use super::reason::Reason;
use super::recovery::{self, Way};
use super::sight::{self, CoreSight};
use super::state::{GuardState, Mode, Said, Verdict, Wait};
use super::{Guard, status};
use crate::clash::choice::{Choice, Confirmed, judge};
use crate::machine::Subject;
use crate::observation::{Life, Observation, Question};
use crate::time::Moment;
use std::collections::BTreeSet;
use std::time::Duration;

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
    let policy = subject.policy;
    let now = &seen.started;
    let core = match sight::core(policy, seen, Look::First) {
        Some(Ok(core)) => core,
        None if may_ask => return Turn::Ask(vec![ask::core(subject, Look::First)]),
        None => return held_or_unable(subject, Reason::NoTime),
        Some(Err(reason)) => return core_trouble(subject, reason),
    };
    let names = status::names(policy);
    let Some(known) = subject.state.filter(|state| state.names == names) else {
        return begun(subject, core, names, now);
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
        return switched(subject, state, core, target, force);
    }
    let with_config = sight::core(policy, seen, Look::Config).and_then(Result::ok);
    let ours_is_gone = !core.all.contains(&known.confirmed.member);
    let looked = with_config.unwrap_or(core);
    match choice(known, ours_is_gone, &policy.group, looked) {
        Choice::Unclear if may_ask && with_config.is_none() => {
            return Turn::Ask(vec![ask::core(subject, Look::Config)]);
        }
        Choice::Unclear => return Turn::Stays(Box::new(known.clone()), vec![Reason::NoTime]),
        Choice::Persons(member) => return persons(subject, state, core, member),
        Choice::Lost => {
            let round = Round { subject, seen, may_ask, core, now };
            return round.lost(state, ours_is_gone);
        }
        Choice::Ours => confirm(&mut state, core),
    }
    Round { subject, seen, may_ask, core, now }.judged(state)
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

fn confirm(state: &mut GuardState, core: CoreSight<'_>) {
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
fn begun(
    subject: &Subject<'_, Guard>,
    core: CoreSight<'_>,
    names: [String; 2],
    now: &Moment,
) -> Turn {
    let policy = subject.policy;
    let mode = if core.now == policy.automatic { Mode::Auto } else { Mode::Manual };
    let confirmed = Confirmed { member: core.now.to_owned(), life: core.seen.life.clone() };
    let mut state = GuardState::new(mode, names, confirmed, now);
    state.uses = Some(core.uses.to_owned());
    state.wish = subject.state.and_then(|before| before.wish.clone());
    Turn::Stays(Box::new(state), vec![Reason::Found { member: core.now.to_owned() }])
}

fn persons(
    subject: &Subject<'_, Guard>,
    mut state: GuardState,
    core: CoreSight<'_>,
    member: String,
) -> Turn {
    confirm(&mut state, core);
    state.hand_over(&subject.policy.automatic, &state.looked_at.clone());
    let reason = if member == subject.policy.automatic {
        Reason::HandedBack
    } else {
        Reason::PersonsChoice { member }
    };
    Turn::Stays(Box::new(state), vec![reason])
}

fn switched(
    subject: &Subject<'_, Guard>,
    state: GuardState,
    core: CoreSight<'_>,
    target: String,
    force: bool,
) -> Turn {
    if !core.all.contains(&target) {
        let why = format!("it is no member of {}", crate::outcome::harmless(&subject.policy.group));
        return Turn::Stays(Box::new(state), vec![Reason::SwitchRefused { target, why }]);
    }
    let counted = GuardState { wish: None, ..state };
    Turn::Writes(Box::new(Intent {
        counted,
        stands: core.now.to_owned(),
        life: core.seen.life.clone(),
        tries: vec![target],
        purpose: Purpose::Switch { force },
        reasons: Vec::new(),
    }))
}

/// A turn in which no person has chosen.
struct Round<'a> {
    subject: &'a Subject<'a, Guard>,
    seen: &'a Observation,
    may_ask: bool,
    core: CoreSight<'a>,
    now: &'a Moment,
}

impl Round<'_> {
    /// The core has forgotten what was selected.
    fn lost(&self, mut state: GuardState, is_gone: bool) -> Turn {
        let (policy, core) = (self.subject.policy, self.core);
        let member = state.confirmed.member.clone();
        if state.mode == Mode::Manual {
            // Nothing of a person's is written, not even again.
            return persons(self.subject, state, core, core.now.to_owned());
        }
        if self.subject.paused {
            return stays(state, Reason::ChoiceLostWaits { member });
        }
        self.learn(&mut state);
        if let Some(turn) = self.offline(&state) {
            return turn;
        }
        let (to, reason) = if is_gone {
            state.hand_over(&policy.automatic, self.now);
            state.enter(Mode::Auto, self.now);
            (policy.automatic.clone(), Reason::MemberGone { member })
        } else {
            (member.clone(), Reason::ChoiceLost { member })
        };
        if to == core.now {
            confirm(&mut state, core);
            return stays(state, reason);
        }
        state.settle = true;
        Turn::Writes(Box::new(Intent {
            counted: state,
            stands: core.now.to_owned(),
            life: core.seen.life.clone(),
            tries: vec![to],
            purpose: Purpose::Again,
            reasons: vec![reason],
        }))
    }

    /// Keeps the addresses of the references.
    fn learn(&self, state: &mut GuardState) {
        for (name, addresses) in self.seen.names() {
            if let Ok(addresses) = addresses
                && !addresses.is_empty()
            {
                state.addresses.insert(name.to_owned(), addresses.clone());
            }
        }
    }

    /// Asks the references, and says so when they do not answer. `None`: the uplink works, or nobody
    /// asks.
    fn offline(&self, state: &GuardState) -> Option<Turn> {
        match (sight::reference(self.seen), ask::reference(self.subject.policy, state)) {
            (None, Some(question)) if self.may_ask => Some(Turn::Ask(vec![question])),
            (Some(false), _) | (None, Some(_)) => Some(stays(state.clone(), Reason::Offline)),
            (Some(true), _) | (None, None) => None,
        }
    }

    fn judged(&self, mut state: GuardState) -> Turn {
        let policy = self.subject.policy;
        let Some(shown) = sight::round(self.seen, 0) else {
            if self.may_ask {
                let names = ask::names(policy);
                return Turn::Ask(names.into_iter().chain([ask::round(policy, 0)]).collect());
            }
            return stays(state, Reason::NoTime);
        };
        self.learn(&mut state);
        state.shown.insert(self.core.now.to_owned(), shown.clone());
        if shown.verdict != Verdict::Passed
            && let Some(turn) = self.offline(&state)
        {
            return turn;
        }
        if self.subject.paused {
            // It is looked at, and nothing is counted.
            let reason = match shown.verdict {
                Verdict::Passed if state.mode == Mode::Manual => {
                    Reason::PersonsMember { member: self.core.now.to_owned() }
                }
                Verdict::Passed => Reason::PassesAgain,
                Verdict::Failed => self.fails(&state, shown.why),
                Verdict::Unknown => Reason::Undetermined { why: shown.why },
            };
            return stays(state, reason);
        }
        match shown.verdict {
            Verdict::Unknown => {
                state.passes = 0;
                stays(state, Reason::Undetermined { why: shown.why })
            }
            Verdict::Passed | Verdict::Failed if state.settle => {
                state.settle = false;
                stays(state, Reason::Settling)
            }
            Verdict::Passed => self.passes(state),
            Verdict::Failed => self.failed(state, shown.why),
        }
    }

    fn fails(&self, state: &GuardState, why: String) -> Reason {
        if state.mode == Mode::Manual {
            return Reason::PersonsMemberFails { member: self.core.now.to_owned(), why };
        }
        let limit = self.subject.policy.params.failures_before_recovery;
        Reason::RoundFails { why, failed: state.failed_rounds, limit }
    }

    fn passes(&self, mut state: GuardState) -> Turn {
        let policy = self.subject.policy;
        state.passed();
        match state.mode {
            Mode::Manual => {
                stays(state, Reason::PersonsMember { member: self.core.now.to_owned() })
            }
            Mode::Suspect => {
                state.enter(Mode::Auto, self.now);
                stays(state, Reason::PassesAgain)
            }
            Mode::Auto => {
                if state.give_back.is_some() {
                    let since = state.rules_since.get_or_insert_with(|| self.now.clone());
                    let long = Duration::from_secs(policy.params.give_back_max_sec);
                    if self.now.since(since) >= long {
                        state.give_back = None;
                        state.rules_since = None;
                    }
                }
                stays(state, Reason::AllWell)
            }
            Mode::Temporary | Mode::Observing => self.observes(state),
        }
    }

    /// Our member passes: is the automatic group well again?
    fn observes(&self, mut state: GuardState) -> Turn {
        let policy = self.subject.policy;
        let group = BTreeSet::from([policy.automatic.clone()]);
        let Some(reading) = ask::measured(self.seen, &group) else {
            if self.may_ask {
                return Turn::Ask(vec![ask::delays(policy, group, policy.measured_by())]);
            }
            state.passes = 0;
            state.enter(Mode::Temporary, self.now);
            return stays(state, Reason::NoTime);
        };
        let delays = reading.members.get(&policy.automatic).map(Vec::as_slice).unwrap_or_default();
        let said = Said { delay: sight::best(delays), at: reading.at.clone() };
        state.said.insert(policy.automatic.clone(), said);
        if let Err(why) = sight::asked_group(policy, delays) {
            state.passes = 0;
            state.enter(Mode::Temporary, self.now);
            return stays(state, Reason::GroupFails { why });
        }
        let enough = policy.params.observe_passes;
        state.passes = state.passes.saturating_add(1).min(enough);
        let wait = state.give_back.as_ref().map_or(Duration::ZERO, |wait| wait.left(self.now));
        if state.mode == Mode::Temporary || state.passes < enough || !wait.is_zero() {
            state.enter(Mode::Observing, self.now);
            let passes = state.passes;
            return stays(state, Reason::GroupAnswers { passes, enough, wait });
        }
        Turn::Writes(Box::new(Intent {
            counted: state,
            stands: self.core.now.to_owned(),
            life: self.core.seen.life.clone(),
            tries: vec![policy.automatic.clone()],
            purpose: Purpose::GiveBack,
            reasons: Vec::new(),
        }))
    }

    fn failed(&self, mut state: GuardState, why: String) -> Turn {
        let params = &self.subject.policy.params;
        let limit = params.failures_before_recovery;
        state.failed_rounds = state.failed_rounds.saturating_add(1).min(limit);
        state.passes = 0;
        let was = state.mode;
        match was {
            Mode::Manual => {
                let reason = self.fails(&state, why);
                return stays(state, reason);
            }
            Mode::Auto => state.enter(Mode::Suspect, self.now),
            Mode::Observing => state.enter(Mode::Temporary, self.now),
            Mode::Suspect | Mode::Temporary => {}
        }
        let fails = self.fails(&state, why);
        if was == Mode::Auto || state.failed_rounds < limit {
            return stays(state, fails);
        }
        let left = state.backoff.as_ref().map_or(Duration::ZERO, |wait: &Wait| wait.left(self.now));
        if !left.is_zero() {
            return Turn::Stays(Box::new(state), vec![fails, Reason::BacksOff { left }]);
        }
        match recovery::way(self.subject, self.seen, self.core, &mut state, self.may_ask) {
            Way::Ask(questions) => Turn::Ask(questions),
            Way::NoTime => Turn::Stays(Box::new(state), vec![fails, Reason::NoTime]),
            Way::None(reason) => {
                state.back_off(params, self.now);
                Turn::Stays(Box::new(state), vec![fails, reason])
            }
            Way::Tries { tries, rest } => Turn::Writes(Box::new(Intent {
                counted: state,
                stands: self.core.now.to_owned(),
                life: self.core.seen.life.clone(),
                tries,
                purpose: Purpose::Recovery { rest },
                reasons: vec![fails],
            })),
        }
    }
}

fn stays(state: GuardState, reason: Reason) -> Turn {
    Turn::Stays(Box::new(state), vec![reason])
}
