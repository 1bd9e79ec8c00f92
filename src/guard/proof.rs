//! What follows once a member was selected: a request through it decides.
//!
//! **Invariant:** a member that no request has passed by is not left selected, but where a person
//! forced it, where our own choice from before a restart is made again, or where nothing is left but
//! the automatic group; what somebody selected meanwhile stays.

use super::reason::Reason;
use super::state::{GuardState, List, Mode, Shown, Verdict};
use super::turn::{Intent, Purpose, Turn, turn};
use super::{Guard, ask, decision, future, sight};
use crate::clash::choice::Confirmed;
use crate::machine::{Carried, Decision, Future, Machine as _, Proof, Settled, Subject};
use crate::policy::GuardPolicy;
use crate::setting::{Edit, Setting, Value, Written};
use crate::time::Moment;
use std::collections::BTreeMap;

/// The selection of the policy's group.
fn setting(policy: &GuardPolicy) -> Setting {
    Setting::Selected { core: policy.core.clone(), group: policy.group.clone() }
}

/// A selection of `to` where `stands` is selected; none where it is already.
fn write(policy: &GuardPolicy, stands: &str, to: &str) -> BTreeMap<Setting, Edit> {
    let member = |name: &str| Value::Member(name.to_owned());
    let edit = Edit { expected: member(stands), to: member(to) };
    (stands != to).then(|| (setting(policy), edit)).into_iter().collect()
}

/// What comes true when `to` is proven.
pub(super) fn wished(
    subject: &Subject<'_, Guard>,
    intent: &Intent,
    stands: &str,
    to: &str,
    now: &Moment,
) -> Future<GuardState> {
    let policy = subject.policy;
    let mut state = intent.counted.clone();
    state.confirmed = Confirmed { member: to.to_owned(), life: intent.life.clone() };
    let is_automatic = to == policy.automatic;
    let reason = match &intent.purpose {
        Purpose::Again => None,
        Purpose::Switch { .. } => {
            state.hand_over(&policy.automatic, now);
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
    let mut settings = write(policy, stands, to);
    if settings.is_empty() {
        let member = Value::Member(to.to_owned());
        settings.insert(setting(policy), Edit { expected: member.clone(), to: member });
    }
    Future { settings, ..future(state, &reasons) }
}

/// Says what follows from a selection.
pub(super) fn prove(
    subject: &Subject<'_, Guard>,
    decided: &Decision<GuardState>,
    carried: &Carried<'_>,
) -> Proof<GuardState> {
    let applied = |future: Future<GuardState>| Proof::Settle(Box::new(future), Settled::Applied);
    let policy = subject.policy;
    let now = &carried.before.started;
    let setting = setting(policy);
    let edit = decided.wished.settings.get(&setting);
    let (Some(edit), Some(written)) = (edit, carried.written.get(&setting)) else {
        return applied(decided.wished.clone());
    };
    let Turn::Writes(intent) = turn(subject, carried.before, false) else {
        return applied(decided.wished.clone());
    };
    let (Value::Member(to), Value::Member(expected)) = (&edit.to, &edit.expected) else {
        return applied(decided.wished.clone());
    };
    let attempt = Attempt { subject, intent: &intent, tries: carried.tries, now };
    match written {
        Written::Unreadable { why } => Proof::Unknown(format!("{setting}: {why}")),
        // A group holds a member and nothing else.
        Written::Overtaken { found: Value::Count(_) | Value::Records(_) } => {
            Proof::Unknown(format!("{setting} reads back as records"))
        }
        Written::Overtaken { found: Value::Member(found) } => {
            let mut state = intent.counted.clone();
            state.confirmed = Confirmed { member: found.clone(), life: intent.life.clone() };
            state.hand_over(&policy.automatic, now);
            let reason = if *found == policy.automatic {
                Reason::HandedBack
            } else {
                Reason::PersonsChoice { member: found.clone() }
            };
            applied(future(state, &[reason]))
        }
        Written::Refused { why, .. } => {
            attempt.failed(expected, Failure::Refused(format!("{setting}: {why}")), carried.may_ask)
        }
        Written::Done => {
            if !needs_proof(&intent, to, policy) {
                return applied(decided.wished.clone());
            }
            match sight::round(carried.seen, 1 + carried.tries) {
                None if carried.may_ask => Proof::Ask(vec![ask::round(policy, 1 + carried.tries)]),
                None => attempt.failed(to, Failure::NoTime, false),
                Some(shown) if shown.verdict == Verdict::Passed => {
                    let mut future = decided.wished.clone();
                    future.state.shown.insert(to.clone(), shown);
                    applied(future)
                }
                Some(shown) => attempt.failed(to, Failure::Shown(shown), carried.may_ask),
            }
        }
    }
}

/// Whether a request has to pass by `to` before it is kept.
fn needs_proof(intent: &Intent, to: &str, policy: &GuardPolicy) -> bool {
    match &intent.purpose {
        Purpose::Again => false,
        // Who hands the choice back does not vouch for what the group does with it.
        Purpose::Switch { force } => !force && to != policy.automatic,
        Purpose::GiveBack | Purpose::Recovery { .. } => true,
    }
}

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
    tries: u32,
    now: &'a Moment,
}

impl Attempt<'_> {
    /// The next member, or what is left when there is none. `stands` is selected now.
    fn failed(&self, stands: &str, failure: Failure, may_try: bool) -> Proof<GuardState> {
        let policy = self.subject.policy;
        let mut intent = self.intent.clone();
        let place = usize::try_from(self.tries).unwrap_or(usize::MAX);
        let next = place.saturating_add(1);
        if let (Failure::Shown(shown), Some(tried)) = (&failure, intent.tries.get(place)) {
            intent.counted.shown.insert(tried.clone(), shown.clone());
        }
        if let Some(member) = intent.tries.get(next).filter(|_| may_try) {
            let wished = wished(self.subject, &intent, stands, member, self.now);
            return Proof::Next(Box::new(decision(self.subject, wished, intent.counted.clone())));
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
                if rest.is_empty() {
                    if !state.mode.is_automatic() {
                        to.clone_from(&policy.automatic);
                        state.confirmed.member.clone_from(&to);
                        state.rules_since = Some(self.now.clone());
                        state.enter(Mode::Suspect, self.now);
                    }
                    state.back_off(&policy.params, self.now);
                    match failure {
                        Failure::Refused(why) => Reason::Refused { why },
                        Failure::Shown(_) | Failure::NoTime => Reason::NoMemberPasses { tried },
                    }
                } else {
                    let left = rest.len();
                    state.list = Some(List { rest });
                    Reason::NotFinished { tried, left }
                }
            }
        };
        let reasons: Vec<Reason> = intent.reasons.iter().cloned().chain([reason]).collect();
        let future = Future { settings: write(policy, stands, &to), ..future(state, &reasons) };
        Proof::Settle(Box::new(future), Settled::RolledBack)
    }
}

/// The state as it was before a person's `switch` that is not carried out.
fn before(subject: &Subject<'_, Guard>, counted: GuardState) -> GuardState {
    subject.state.map_or(counted, Guard::without_wish)
}
