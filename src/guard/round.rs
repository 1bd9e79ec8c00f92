//! A round of requests in which no person has chosen: what is counted, and which row applies.
//!
//! **Invariant:** nothing is counted while the references do not answer, while a person has paused
//! the policy, or when nothing could be told of the round.

use super::ask;
use super::place::Case;
use super::reason::Reason;
use super::recovery::{self, Way};
use super::sight::{self, CoreSight};
use super::state::{GuardState, Mode, Said, Wait};
use super::turn::{Intent, Purpose, Turn, confirm, persons, stays};
use crate::observation::Observation;
use crate::proxy::Verdict;
use crate::time::Moment;
use std::collections::BTreeSet;
use std::time::Duration;

/// A turn in which no person has chosen.
pub(super) struct Round<'a> {
    pub(super) case: Case<'a>,
    pub(super) seen: &'a Observation,
    pub(super) may_ask: bool,
    pub(super) core: CoreSight<'a>,
    pub(super) now: &'a Moment,
}

impl Round<'_> {
    /// The core has forgotten what was selected.
    pub(super) fn lost(&self, mut state: GuardState, is_gone: bool) -> Turn {
        let (automatic, core) = (&self.case.place.automatic, self.core);
        let member = state.confirmed.member.clone();
        if state.mode == Mode::Manual {
            // Nothing of a person's is written, not even again.
            return persons(self.case, state, core, core.now.to_owned());
        }
        if self.case.subject.paused {
            return stays(state, Reason::ChoiceLostWaits { member });
        }
        self.learn(&mut state);
        if let Some(turn) = self.offline(&state) {
            return turn;
        }
        let (to, reason) = if is_gone {
            state.hand_over(automatic, self.now);
            state.enter(Mode::Auto, self.now);
            (automatic.clone(), Reason::MemberGone { member })
        } else {
            (member.clone(), Reason::ChoiceLost { member })
        };
        if to == core.now {
            confirm(&mut state, core);
            return stays(state, reason);
        }
        state.settle = true;
        Turn::Writes(Box::new(Intent {
            place: self.case.place.clone(),
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
        match (sight::reference(self.seen, 0), ask::reference(self.case.subject.policy, state, 0)) {
            (None, Some(question)) if self.may_ask => Some(Turn::Ask(vec![question])),
            (Some(false), _) | (None, Some(_)) => Some(stays(state.clone(), Reason::Offline)),
            (Some(true), _) | (None, None) => None,
        }
    }

    /// Asks the pages, counts, and says which row applies.
    pub(super) fn judged(&self, mut state: GuardState) -> Turn {
        let policy = self.case.subject.policy;
        let Some(shown) = sight::round(self.seen, 0) else {
            if self.may_ask {
                let names = ask::names(policy);
                return Turn::Ask(names.into_iter().chain([ask::round(self.case, 0)]).collect());
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
        if self.case.subject.paused {
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
        let limit = self.case.subject.policy.params.failures_before_recovery;
        Reason::RoundFails { why, failed: state.failed_rounds, limit }
    }

    fn passes(&self, mut state: GuardState) -> Turn {
        let policy = self.case.subject.policy;
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
        let policy = self.case.subject.policy;
        let automatic = &self.case.place.automatic;
        let group = BTreeSet::from([automatic.clone()]);
        let Some(reading) = ask::measured(self.seen, &group) else {
            if self.may_ask {
                return Turn::Ask(vec![ask::delays(self.case, group, policy.measured_by())]);
            }
            state.passes = 0;
            state.enter(Mode::Temporary, self.now);
            return stays(state, Reason::NoTime);
        };
        let delays = reading.members.get(automatic).map(Vec::as_slice).unwrap_or_default();
        let said = Said { delay: sight::best(delays), at: reading.at.clone() };
        state.said.insert(automatic.clone(), said);
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
            place: self.case.place.clone(),
            counted: state,
            stands: self.core.now.to_owned(),
            life: self.core.seen.life.clone(),
            tries: vec![automatic.clone()],
            purpose: Purpose::GiveBack,
            reasons: Vec::new(),
        }))
    }

    fn failed(&self, mut state: GuardState, why: String) -> Turn {
        let params = &self.case.subject.policy.params;
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
        match recovery::way(self.case, self.seen, self.core, &mut state, self.may_ask) {
            Way::Ask(questions) => Turn::Ask(questions),
            Way::NoTime => Turn::Stays(Box::new(state), vec![fails, Reason::NoTime]),
            Way::None(reason) => {
                state.back_off(params, self.now);
                Turn::Stays(Box::new(state), vec![fails, reason])
            }
            Way::Tries { tries, rest } => Turn::Writes(Box::new(Intent {
                place: self.case.place.clone(),
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
