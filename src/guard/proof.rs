//! What follows once a member was selected: a request through it decides.
//!
//! **Invariant:** a member that no request has passed by is not left selected, but where a person
//! forced it, where our own choice from before a restart is made again, or where nothing is left but
//! the automatic group; what somebody selected meanwhile stays.

use super::place::{Case, Place};
use super::reason::Reason;
use super::state::{GuardState, List, Mode};
use super::turn::{Intent, Purpose, Turn, turn};
use super::{Guard, ask, sight};
use crate::clash::choice::Confirmed;
use crate::machine::{Carried, Decision, Future, Machine as _, Proof, Settled, Subject};
use crate::observation::Question;
use crate::proxy::{Shown, Verdict};
use crate::setting::{Edit, Setting, Value, Written};
use crate::time::Moment;
use std::collections::BTreeMap;

/// The selection of the policy's group.
fn setting(place: &Place) -> Setting {
    Setting::Selected { core: place.core.clone(), group: place.group.clone() }
}

/// A selection of `to` where `stands` is selected; none where it is already.
fn write(place: &Place, stands: &str, to: &str) -> BTreeMap<Setting, Edit> {
    let member = |name: &str| Value::Member(name.to_owned());
    let edit = Edit { expected: member(stands), to: member(to) };
    (stands != to).then(|| (setting(place), edit)).into_iter().collect()
}

/// What comes true when `to` is proven.
pub(super) fn wished(
    subject: &Subject<'_, Guard>,
    intent: &Intent,
    stands: &str,
    to: &str,
    now: &Moment,
) -> Future<GuardState> {
    let (policy, place) = (subject.policy, &intent.place);
    let mut state = intent.counted.clone();
    state.confirmed = Confirmed { member: to.to_owned(), life: intent.life.clone() };
    let is_automatic = to == place.automatic;
    let reason = match &intent.purpose {
        Purpose::Again => None,
        Purpose::Switch { .. } => {
            state.hand_over(&place.automatic, now);
            Some(Reason::Switched { target: to.to_owned() })
        }
        Purpose::GiveBack | Purpose::Recovery { .. } if is_automatic => {
            state.give_back(now);
            Some(Reason::GivenBack)
        }
        Purpose::GiveBack | Purpose::Recovery { .. } => {
            state.take_over(&policy.params, now);
            Some(Reason::TookOver { member: to.to_owned() })
        }
    };
    let reasons: Vec<Reason> = intent.reasons.iter().cloned().chain(reason).collect();
    // What stands there already is asked for all the same: a request is to prove it.
    let mut settings = write(place, stands, to);
    if settings.is_empty() {
        let member = Value::Member(to.to_owned());
        settings.insert(setting(place), Edit { expected: member.clone(), to: member });
    }
    Future { settings, ..Future::of::<Guard>(state, &reasons) }
}

/// Says what follows from a selection.
pub(super) fn prove(
    subject: &Subject<'_, Guard>,
    decided: &Decision<GuardState>,
    carried: &Carried<'_>,
) -> Proof<GuardState> {
    let applied = |future: Future<GuardState>| Proof::Settle(Box::new(future), Settled::Applied);
    let now = &carried.before.started;
    let Turn::Writes(mut intent) = turn(subject, carried.before, false) else {
        return applied(decided.wished.clone());
    };
    // What the tries before this one showed is remembered with what comes of them.
    intent.counted.shown.clone_from(&decided.undone.shown);
    let place = &intent.place;
    let setting = setting(place);
    let edit = decided.wished.settings.get(&setting);
    let (Some(edit), Some(written)) = (edit, carried.written.get(&setting)) else {
        return applied(decided.wished.clone());
    };
    let (Value::Member(to), Value::Member(expected)) = (&edit.to, &edit.expected) else {
        return applied(decided.wished.clone());
    };
    let attempt = Attempt { subject, intent: &intent, carried, now };
    match written {
        Written::Unreadable { why } => Proof::Unknown(format!("{setting}: {why}")),
        // A group holds a member and nothing else.
        Written::Overtaken { found: Value::Count(_) | Value::Records(_) } => {
            Proof::Unknown(format!("{setting} reads back as records"))
        }
        Written::Overtaken { found: Value::Member(found) } => {
            let mut state = intent.counted.clone();
            state.confirmed = Confirmed { member: found.clone(), life: intent.life.clone() };
            state.hand_over(&place.automatic, now);
            let reason = if *found == place.automatic {
                Reason::HandedBack
            } else {
                Reason::PersonsChoice { member: found.clone() }
            };
            applied(Future::of::<Guard>(state, &[reason]))
        }
        Written::Refused { why, .. } => {
            attempt.failed(expected, Failure::Refused(format!("{setting}: {why}")))
        }
        Written::Done => {
            if !needs_proof(&intent, to) {
                return applied(decided.wished.clone());
            }
            match sight::round(carried.seen, 1 + carried.tries) {
                None if carried.may_ask => {
                    Proof::Ask(vec![ask::round(attempt.case(), 1 + carried.tries)])
                }
                None => attempt.failed(to, Failure::NoTime),
                Some(shown) if shown.verdict == Verdict::Passed => {
                    let mut future = decided.wished.clone();
                    future.state.shown.insert(to.clone(), shown);
                    applied(future)
                }
                Some(shown) => attempt.failed(to, Failure::Shown(shown)),
            }
        }
    }
}

/// Whether a request has to pass by `to` before it is kept.
fn needs_proof(intent: &Intent, to: &str) -> bool {
    match &intent.purpose {
        Purpose::Again => false,
        // Who hands the choice back does not vouch for what the group does with it.
        Purpose::Switch { force } => !force && to != intent.place.automatic,
        Purpose::GiveBack | Purpose::Recovery { .. } => true,
    }
}

/// The references are asked once before anything is tried, and once more after it.
const AGAIN: u32 = 1;

/// Why a member is not kept.
enum Failure {
    /// The core did not select it.
    Refused(String),
    /// No request passed by it.
    Shown(Shown),
    /// There was no time left to make one.
    NoTime,
}

impl Failure {
    fn why(&self) -> String {
        match self {
            Self::Refused(why) => why.clone(),
            Self::Shown(shown) => shown.why.clone(),
            Self::NoTime => "there was no time left for a request".to_owned(),
        }
    }
}

/// One of the tries of an intent.
struct Attempt<'a> {
    subject: &'a Subject<'a, Guard>,
    intent: &'a Intent,
    carried: &'a Carried<'a>,
    now: &'a Moment,
}

impl Attempt<'_> {
    fn case(&self) -> Case<'_> {
        Case { subject: self.subject, place: &self.intent.place }
    }

    /// Asks the references again before anything is concluded: what failed may have been the uplink.
    fn nothing_shown(&self, failure: &Failure) -> Nothing {
        let shown = match (&self.intent.purpose, failure) {
            (Purpose::GiveBack | Purpose::Recovery { .. }, Failure::Shown(shown)) => shown,
            (Purpose::Again | Purpose::Switch { .. }, _)
            | (_, Failure::Refused(_) | Failure::NoTime) => return Nothing::No,
        };
        if shown.verdict == Verdict::Unknown {
            return Nothing::Because(Reason::Undetermined { why: shown.why.clone() });
        }
        let question = ask::reference(self.subject.policy, &self.intent.counted, AGAIN);
        match (sight::reference(self.carried.seen, AGAIN), question) {
            (Some(true), _) | (None, None) => Nothing::No,
            (None, Some(question)) if self.carried.may_ask => Nothing::Ask(question),
            (Some(false), _) | (None, Some(_)) => Nothing::Because(Reason::FellOffline),
        }
    }

    /// Whether the core selected none of the first `count` members, so that none was asked by: what
    /// stands is as it was, and it is tried again at the next check.
    fn all_were_refused(&self, count: usize) -> bool {
        let before = self.subject.state.map(|state| &state.shown);
        let was = |member: &String| before.and_then(|shown| shown.get(member));
        let tried = self.intent.tries.get(..count).unwrap_or_default();
        tried.iter().all(|member| self.intent.counted.shown.get(member) == was(member))
    }

    /// What stood before is selected again, and nothing of this run is counted.
    fn uncounted(&self, stands: &str, reason: Reason) -> Proof<GuardState> {
        let counted = &self.intent.counted;
        let mut state = before(self.subject, counted.clone());
        state.confirmed.clone_from(&counted.confirmed);
        state.addresses.clone_from(&counted.addresses);
        state.said.clone_from(&counted.said);
        state.uses.clone_from(&counted.uses);
        state.looked_at.clone_from(&counted.looked_at);
        if matches!(reason, Reason::Undetermined { .. }) {
            state.passes = 0;
        }
        let settings = write(&self.intent.place, stands, &self.intent.stands);
        let future = Future { settings, ..Future::of::<Guard>(state, &[reason]) };
        Proof::Settle(Box::new(future), Settled::RolledBack)
    }

    /// The next member, or what is left when there is none. `stands` is selected now.
    fn failed(&self, stands: &str, failure: Failure) -> Proof<GuardState> {
        let policy = self.subject.policy;
        let mut intent = self.intent.clone();
        let place = usize::try_from(self.carried.tries).unwrap_or(usize::MAX);
        let next = place.saturating_add(1);
        if let (Failure::Shown(shown), Some(tried)) = (&failure, intent.tries.get(place)) {
            intent.counted.shown.insert(tried.clone(), shown.clone());
        }
        // Without time for a request no other is tried, and none is asked about the uplink.
        let may_try = self.carried.may_ask && !matches!(failure, Failure::NoTime);
        if let Some(member) = intent.tries.get(next).filter(|_| may_try) {
            let wished = wished(self.subject, &intent, stands, member, self.now);
            return Proof::Next(Box::new(Decision::of(
                self.subject,
                wished,
                intent.counted.clone(),
            )));
        }
        match self.nothing_shown(&failure) {
            Nothing::Ask(question) => return Proof::Ask(vec![question]),
            Nothing::Because(reason) => return self.uncounted(stands, reason),
            Nothing::No => {}
        }
        // What there was no time to ask about is asked about in the next step.
        let tried = if matches!(failure, Failure::NoTime) { place } else { next };
        let untried = intent.tries.get(tried..).unwrap_or_default().to_vec();
        let (mut state, mut to) = (intent.counted.clone(), intent.stands.clone());
        let reason = match &intent.purpose {
            Purpose::Again => Reason::Refused { why: failure.why() },
            Purpose::Switch { .. } => {
                state = before(self.subject, state);
                match failure {
                    Failure::Refused(why) => Reason::Refused { why },
                    Failure::Shown(_) | Failure::NoTime => Reason::SwitchRefused {
                        target: intent.tries.first().cloned().unwrap_or_default(),
                        why: format!("{}; --force keeps it all the same", failure.why()),
                    },
                }
            }
            Purpose::GiveBack => {
                state.passes = 0;
                state.enter(Mode::Temporary, self.now);
                state.wait_longer(&policy.params, self.now);
                Reason::TrialFailed { why: failure.why() }
            }
            Purpose::Recovery { rest } => {
                let rest: Vec<String> = untried.iter().chain(rest).cloned().collect();
                if let (Failure::Refused(why), true) = (&failure, self.all_were_refused(next)) {
                    Reason::Refused { why: why.clone() }
                } else if rest.is_empty() {
                    if !state.mode.is_automatic() {
                        to.clone_from(&intent.place.automatic);
                        state.confirmed.member.clone_from(&to);
                        state.rules_since = Some(self.now.clone());
                        state.enter(Mode::Suspect, self.now);
                    }
                    state.back_off(&policy.params, self.now);
                    Reason::NoMemberPasses { tried }
                } else {
                    let left = rest.len();
                    state.list = Some(List { rest });
                    Reason::NotFinished { tried, left }
                }
            }
        };
        let reasons: Vec<Reason> = intent.reasons.iter().cloned().chain([reason]).collect();
        let future = Future {
            settings: write(&intent.place, stands, &to),
            ..Future::of::<Guard>(state, &reasons)
        };
        Proof::Settle(Box::new(future), Settled::RolledBack)
    }
}

/// Whether a request that did not pass shows nothing of the member.
enum Nothing {
    /// That is still to be asked.
    Ask(Question),
    /// It does not.
    Because(Reason),
    /// It does.
    No,
}

/// The state as it was before a person's `switch` that is not carried out.
fn before(subject: &Subject<'_, Guard>, counted: GuardState) -> GuardState {
    subject.state.map_or(counted, Guard::without_wish)
}
