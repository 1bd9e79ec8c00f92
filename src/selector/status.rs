//! A selector's status, for people and machines.
//!
//! **Invariant:** a row a channel, the primary first; nothing is said that was not seen by a step.

mod measure;
mod publish;
mod shown;
mod text;

use super::Selector;
use super::state::{Chosen, Mode, SelectorState, Verdict};
use crate::machine::Machine as _;
use crate::names::PolicyName;
use crate::policy::SelectorPolicy;
use crate::policy::selector::{Channel, Driver};
use crate::record::Record;
use crate::status::{Head, Next, Standing, is_stale};
use crate::time::Moment;
use jiff::Timestamp;
use serde::Serialize;
use std::time::Duration;

/// A selector's status.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SelectorStatus {
    /// What every status begins with.
    #[serde(flatten)]
    pub head: Head,
    /// What new connections take: a channel's member or interface, or another member.
    pub selected: Option<String>,
    /// A row a channel.
    pub channels: Vec<ChannelRow>,
    /// What is received on the channel in use, in bytes in a second; `null`: unknown.
    pub received_per_sec: Option<u64>,
    /// Failovers within the window.
    pub failovers: usize,
    /// What is due next.
    pub next: Vec<Next>,
    /// When a check of the channels was last counted.
    #[serde(skip)]
    pub checked_at: Option<Timestamp>,
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

/// One channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChannelRow {
    /// Which.
    pub channel: Channel,
    /// Its member or interface.
    pub member: String,
    /// Its diagnostic proxy, or its gateway.
    pub via: Option<String>,
    /// Whether new connections take it.
    pub selected: bool,
    /// How it answered the last check.
    pub health: Verdict,
    /// Why.
    pub why: String,
    /// For how long it has failed while the other one answered.
    pub failing_sec: u64,
    /// How long its last healthy check took.
    pub latency_ms: Option<u64>,
    /// Since when it is so.
    pub since: Timestamp,
}

/// The target that a channel is.
#[must_use]
pub fn target(policy: &SelectorPolicy, channel: Channel) -> String {
    match &policy.driver {
        Driver::Clash(driver) => driver.member(channel).member.clone(),
        Driver::Route(driver) => driver.uplink(channel).interface.to_string(),
    }
}

fn via(policy: &SelectorPolicy, channel: Channel) -> Option<String> {
    match &policy.driver {
        Driver::Clash(driver) => Some(driver.member(channel).proxy.to_string()),
        Driver::Route(driver) => driver.uplink(channel).gateway.map(|gateway| gateway.to_string()),
    }
}

/// What tells a state of these channels from one of others.
#[must_use]
pub fn names(policy: &SelectorPolicy) -> [String; 3] {
    let what = match &policy.driver {
        Driver::Clash(driver) => format!("{} of {}", driver.selector, driver.core),
        Driver::Route(driver) => format!("table {}", driver.table),
    };
    [what, target(policy, Channel::Primary), target(policy, Channel::Reserve)]
}

/// Makes a selector's status.
#[must_use]
pub fn status(
    name: &PolicyName,
    policy: &SelectorPolicy,
    record: &Record<SelectorState>,
    now: &Moment,
) -> SelectorStatus {
    let state = record.machine.as_ref();
    let is_stale = is_stale(record.last_step.as_ref(), policy.params.interval(), now);
    let row = |channel: Channel| {
        let state = state?;
        let known = state.channel(channel);
        Some(ChannelRow {
            channel,
            member: target(policy, channel),
            via: via(policy, channel),
            selected: state.chosen == Chosen::Channel(channel),
            health: known.verdict,
            why: known.why.clone(),
            failing_sec: known.failing_ms.unwrap_or(0) / 1_000,
            latency_ms: known.latency_ms,
            since: known.since.at,
        })
    };
    SelectorStatus {
        head: Head::new(name, "selector", record, state.map(Selector::stands)),
        selected: state.map(|state| match &state.chosen {
            Chosen::Channel(channel) => target(policy, *channel),
            Chosen::Third(member) => member.clone(),
        }),
        channels: Channel::ALL.into_iter().filter_map(row).collect(),
        received_per_sec: state.and_then(|state| state.activity.rate),
        failovers: state.map_or(0, |state| state.failovers.len()),
        next: state.map(|state| next(policy, state, record, now)).unwrap_or_default(),
        checked_at: state.and_then(|state| state.checked_at.as_ref()).map(|at| at.at),
        standing: standing(policy, record, is_stale),
        is_stale,
        now: now.at,
    }
}

/// How a selector is judged.
fn standing(policy: &SelectorPolicy, record: &Record<SelectorState>, is_stale: bool) -> Standing {
    let Some(state) = &record.machine else {
        return if record.last_step.is_none() { Standing::Stale } else { Standing::Unprotected };
    };
    let window = Duration::from_secs(policy.params.failure_window_sec);
    let fails = |channel: Channel| state.channel(channel).verdict == Verdict::Unhealthy;
    let in_use_failed = match &state.chosen {
        Chosen::Channel(channel) => state.channel(*channel).is_ripe(window),
        Chosen::Third(_) => false,
    };
    if state.core_down || in_use_failed || Channel::ALL.into_iter().all(fails) {
        Standing::Unprotected
    } else if is_stale {
        Standing::Stale
    } else if state.mode == Mode::OnPrimary && !fails(Channel::Primary) {
        Standing::AsWished
    } else {
        Standing::Degraded
    }
}

/// What is due next, the next first. A paused policy waits for a person.
fn next(
    policy: &SelectorPolicy,
    state: &SelectorState,
    record: &Record<SelectorState>,
    now: &Moment,
) -> Vec<Next> {
    if record.paused.is_some() {
        return Vec::new();
    }
    let params = &policy.params;
    let due = |what: &str, since: &Moment, wait: Duration| Next {
        what: what.to_owned(),
        at: since.after(wait).at.max(now.at),
    };
    let seconds = Duration::from_secs;
    let interval = Selector::rhythm(policy, Some(state)).interval;
    let check = record.last_step.as_ref().map(|last| due("check", &last.at, interval));
    let mut all: Vec<Next> = check.into_iter().collect();
    match state.mode {
        Mode::PrimaryRecovering => {
            let answers = state.recovery_since.as_ref();
            let answers =
                answers.map(|since| due("return", since, seconds(params.recovery_window_sec)));
            let stays = state.stay_since.as_ref();
            let stays =
                stays.map(|since| due("return", since, seconds(params.minimum_reserve_sec)));
            all.extend(answers.into_iter().chain(stays).max_by_key(|next| next.at));
        }
        Mode::PrimaryQuarantined => {
            let began = state.quarantined_at.as_ref();
            all.extend(
                began.map(|began| {
                    due("end of the quarantine", began, seconds(params.quarantine_sec))
                }),
            );
        }
        Mode::PrimaryFailing if state.waits => {
            let limit = params.guard_max_hold_sec.map(seconds);
            let held = state.primary.held_since.as_ref().zip(limit);
            all.extend(held.map(|(since, limit)| due("failover at the latest", since, limit)));
        }
        Mode::OnPrimary | Mode::PrimaryFailing | Mode::OnReserve => {}
    }
    all.sort_by_key(|next| next.at);
    all
}
