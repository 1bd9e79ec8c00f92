//! A guard's status, for people and machines.
//!
//! **Invariant:** what the core says and what a request showed stand apart, each with its age.

mod measure;
mod publish;
mod shown;
mod text;

use super::Guard;
use super::state::{GuardState, Mode};
use crate::machine::Machine as _;
use crate::names::PolicyName;
use crate::observation::Delay;
use crate::outcome::Ending;
use crate::policy::GuardPolicy;
use crate::proxy::Verdict;
use crate::record::Record;
use crate::status::{Head, Next, Standing, is_stale};
use crate::time::Moment;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// A guard's status.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GuardStatus {
    /// What every status begins with.
    #[serde(flatten)]
    pub head: Head,
    /// What is selected in the group, as last read back.
    pub selected: Option<String>,
    /// What the automatic group uses.
    pub uses: Option<Uses>,
    /// Why the core could not be used at the last look.
    pub core_trouble: Option<String>,
    /// Failed rounds in a row.
    pub failed_rounds: u32,
    /// How often in a row the automatic group answered the core, while a member stands in for it.
    pub passes: u32,
    /// A row a member of which anything is known, the automatic group first.
    pub members: Vec<MemberRow>,
    /// What is due next.
    pub next: Vec<Next>,
    /// How it is judged.
    #[serde(skip)]
    pub standing: Standing,
    /// Whether the last step is too long ago to say how things are.
    #[serde(skip)]
    pub is_stale: bool,
    /// When it was asked for.
    #[serde(skip)]
    pub now: Timestamp,
}

/// What the automatic group uses, as the core said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Uses {
    /// The member.
    pub member: String,
    /// When it was said.
    pub at: Timestamp,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberRow {
    /// Its name.
    pub member: String,
    /// Whether it is the automatic group.
    pub automatic: bool,
    /// Whether it is selected.
    pub selected: bool,
    /// What the core said.
    pub core: Option<CoreSaid>,
    /// What a request showed.
    pub request: Option<RequestShowed>,
}

/// What the core said of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CoreSaid {
    /// Whether it answered the core; trouble of the core itself says nothing of it.
    pub health: Verdict,
    /// How long it took; `null`: it did not answer, or nobody knows.
    pub delay_ms: Option<u64>,
    /// Why there is no delay.
    pub why: String,
    /// When.
    pub at: Timestamp,
}

/// What a request through a member showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestShowed {
    /// Whether it passed.
    pub health: Verdict,
    /// Why.
    pub why: String,
    /// How long the fastest good answer took.
    pub latency_ms: Option<u64>,
    /// When.
    pub at: Timestamp,
}

/// Makes a guard's status.
#[must_use]
pub fn status(
    name: &PolicyName,
    policy: &GuardPolicy,
    record: &Record<GuardState>,
    now: &Moment,
) -> GuardStatus {
    let state = record.machine.as_ref();
    let is_stale = is_stale(record.last_step.as_ref(), policy.params.interval(), now);
    let uses = |state: &GuardState| {
        let member = state.uses.clone()?;
        Some(Uses { member, at: state.looked_at.at })
    };
    GuardStatus {
        head: Head::new(name, "guard", record, state.map(Guard::stands)),
        selected: state.map(|state| state.confirmed.member.clone()),
        uses: state.and_then(uses),
        core_trouble: state.and_then(|state| state.core_trouble.clone()),
        failed_rounds: state.map_or(0, |state| state.failed_rounds),
        passes: state.map_or(0, |state| state.passes),
        members: state.map(rows).unwrap_or_default(),
        next: state.map(|state| next(policy, state, record, now)).unwrap_or_default(),
        standing: standing(policy, record, is_stale),
        is_stale,
        now: now.at,
    }
}

/// The automatic group first, then what is known of others.
fn rows(state: &GuardState) -> Vec<MemberRow> {
    let [_, automatic] = &state.names;
    let selected = &state.confirmed.member;
    let known: BTreeSet<&String> =
        state.said.keys().chain(state.shown.keys()).chain([selected]).collect();
    let others = known.into_iter().filter(|name| *name != automatic);
    let row = |member: &String| MemberRow {
        member: member.clone(),
        automatic: member == automatic,
        selected: member == selected,
        core: state.said.get(member).map(|said| {
            let (health, delay_ms, why) = match &said.delay {
                Delay::Took(delay) => (Verdict::Passed, Some(*delay), String::new()),
                Delay::Failed => (Verdict::Failed, None, "no answer".to_owned()),
                Delay::Absent => (Verdict::Failed, None, "not known to the core".to_owned()),
                Delay::Unknown(why) => (Verdict::Unknown, None, why.clone()),
            };
            CoreSaid { health, delay_ms, why, at: said.at.at }
        }),
        request: state.shown.get(member).map(|shown| RequestShowed {
            health: shown.verdict,
            why: shown.why.clone(),
            latency_ms: shown.latency_ms,
            at: shown.at.at,
        }),
    };
    [automatic].into_iter().chain(others).map(row).collect()
}

/// How a guard is judged.
fn standing(policy: &GuardPolicy, record: &Record<GuardState>, is_stale: bool) -> Standing {
    let Some(state) = &record.machine else { return Standing::Stale };
    let is_blind = record.last_step.as_ref().is_none_or(|last| last.outcome == Ending::Failed);
    let at_the_count = state.failed_rounds >= policy.params.failures_before_recovery;
    let fails = state
        .shown
        .get(&state.confirmed.member)
        .is_some_and(|shown| shown.verdict == Verdict::Failed);
    let unprotected = match state.mode {
        Mode::Suspect => at_the_count,
        Mode::Manual => fails,
        Mode::Auto | Mode::Temporary | Mode::Observing => false,
    };
    if unprotected || state.core_trouble.is_some() {
        return Standing::Unprotected;
    }
    if is_stale || is_blind {
        return Standing::Stale;
    }
    match state.mode {
        Mode::Auto | Mode::Suspect => Standing::AsWished,
        Mode::Temporary | Mode::Observing | Mode::Manual => Standing::Degraded,
    }
}

/// What is due next, the next first. A paused policy waits for a person.
fn next(
    policy: &GuardPolicy,
    state: &GuardState,
    record: &Record<GuardState>,
    now: &Moment,
) -> Vec<Next> {
    if record.paused.is_some() {
        return Vec::new();
    }
    let due = |what: &str, since: &Moment, wait: Duration| Next {
        what: what.to_owned(),
        at: since.after(wait).at.max(now.at),
    };
    let last = record.last_step.as_ref();
    let mut all: Vec<Next> =
        last.map(|last| due("check", &last.at, policy.params.interval())).into_iter().collect();
    let waits = |what: &str, wait: &super::state::Wait| {
        (!wait.left(now).is_zero())
            .then(|| due(what, &wait.since, Duration::from_secs(wait.seconds)))
    };
    all.extend(state.backoff.as_ref().and_then(|wait| waits("recovery", wait)));
    match state.mode {
        Mode::Temporary | Mode::Observing => {
            all.extend(state.give_back.as_ref().and_then(|wait| waits("give-back", wait)));
        }
        Mode::Auto | Mode::Suspect | Mode::Manual => {}
    }
    all.sort_by_key(|next| next.at);
    all
}
