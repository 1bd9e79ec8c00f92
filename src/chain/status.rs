//! The status of a chain, for people and machines.
//!
//! **Invariant:** a row a hop in the order of the path, a row a node in the order of the policy; where
//! the path breaks is said once.

mod measure;
mod publish;
mod shown;
mod text;

use super::Chain;
use super::name::{HopName, NodeName};
use super::state::{ChainState, HopState, Mode, PauseWhy};
use crate::machine::Machine as _;
use crate::names::PolicyName;
use crate::outcome::Ending;
use crate::policy::ChainPolicy;
use crate::policy::chain::{self as policy};
use crate::proxy::{Shown, Verdict};
use crate::record::Record;
use crate::status::{Head, Next, Standing, is_stale};
use crate::time::Moment;
use jiff::Timestamp;
use serde::Serialize;
use std::time::Duration;

/// The status of a chain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainStatus {
    /// What every status begins with.
    #[serde(flatten)]
    pub head: Head,
    /// The whole path.
    pub path: Path,
    /// A row a hop.
    pub hops: Vec<HopRow>,
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

/// Whether requests pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// They do.
    Healthy,
    /// They do not.
    Failed,
    /// Nobody knows.
    Unknown,
}

/// The whole path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Path {
    /// Whether requests pass all hops.
    pub health: Health,
    /// Why not.
    pub why: String,
    /// The hop at which it breaks; `null`: it does not, or nobody can say.
    pub breaks_at: Option<HopName>,
    /// How long the fastest good answer took.
    pub latency_ms: Option<u64>,
    /// When it was asked.
    pub at: Option<Timestamp>,
}

/// One hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HopRow {
    /// Its name.
    pub hop: HopName,
    /// Where it stands; `null`: it was never seen.
    pub state: Option<Mode>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// The node that carries; `null`: it is none of the policy's.
    pub node: Option<NodeName>,
    /// The node that is preferred; `null`: it was never seen.
    pub preferred: Option<NodeName>,
    /// Why it is left alone; `null`: it is not.
    pub paused: Option<PauseWhy>,
    /// How often in a row the preferred node passed its test while another carries.
    pub passes: u32,
    /// A row a node.
    pub nodes: Vec<NodeRow>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeRow {
    /// Its name.
    pub node: NodeName,
    /// Whether it carries.
    pub carries: bool,
    /// What its own leg showed: a request through the hops before it, and it.
    pub health: Health,
    /// Why it does not pass.
    pub why: String,
    /// How often in a row it was blamed.
    pub failures: u32,
    /// How long the fastest good answer took.
    pub latency_ms: Option<u64>,
    /// Until when it is not returned to; `null`: it may be.
    pub marked_until: Option<Timestamp>,
    /// When it was asked.
    pub at: Option<Timestamp>,
}

impl From<Verdict> for Health {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Passed => Self::Healthy,
            Verdict::Failed => Self::Failed,
            Verdict::Unknown => Self::Unknown,
        }
    }
}

impl Health {
    /// As status says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// How a chain is, from what the last step wrote.
#[must_use]
pub fn status(
    name: &PolicyName,
    policy: &ChainPolicy,
    record: &Record<ChainState>,
    now: &Moment,
) -> ChainStatus {
    let state = record.machine.as_ref();
    let is_stale = is_stale(record.last_step.as_ref(), policy.params.interval(), now);
    let row = |wanted: &policy::Hop| {
        let known = state.and_then(|state| state.hops.iter().find(|hop| hop.name == wanted.name));
        hop_row(wanted, known, policy.driver.has_legs(), now)
    };
    let hops: Vec<HopRow> = policy.hops.iter().map(row).collect();
    ChainStatus {
        head: Head::new(name, Chain::KIND.as_str(), record, state.map(Chain::stands)),
        path: path(state, &hops),
        hops,
        next: next(policy, state, record, now),
        standing: standing(record, is_stale),
        is_stale,
        now: now.at,
    }
}

fn path(state: Option<&ChainState>, hops: &[HopRow]) -> Path {
    let shown = state.and_then(|state| state.path.as_ref());
    let trouble = state.and_then(|state| state.trouble.as_ref());
    let health = match (trouble, shown) {
        (Some(_), _) | (None, None) => Health::Unknown,
        (None, Some(shown)) => shown.verdict.into(),
    };
    let why = match (trouble, shown) {
        (Some(trouble), _) => trouble.clone(),
        (None, Some(shown)) => shown.why.clone(),
        (None, None) => "it was not asked yet".to_owned(),
    };
    let fails =
        |row: &&HopRow| row.nodes.iter().any(|node| node.carries && node.health == Health::Failed);
    let breaks_at = hops.iter().find(fails).filter(|_| health == Health::Failed);
    Path {
        health,
        why,
        breaks_at: breaks_at.map(|row| row.hop.clone()),
        latency_ms: shown.and_then(|shown| shown.latency_ms),
        at: shown.map(|shown| shown.at.at),
    }
}

fn hop_row(wanted: &policy::Hop, known: Option<&HopState>, has_legs: bool, now: &Moment) -> HopRow {
    let carries = known.and_then(|hop| hop.node(wanted)).map(|node| &node.name);
    let node = |node: &policy::Node| {
        let shown: Option<&Shown> = known.and_then(|hop| hop.shown.get(&node.name));
        let why = match (shown, node.egress) {
            (Some(shown), _) => shown.why.clone(),
            (None, _) if !has_legs => "only the whole path can be asked".to_owned(),
            (None, true) => "it was not asked yet".to_owned(),
            (None, false) => "the hop behind it proves it".to_owned(),
        };
        NodeRow {
            node: node.name.clone(),
            carries: carries == Some(&node.name),
            health: shown.map_or(Health::Unknown, |shown| shown.verdict.into()),
            why,
            failures: known.and_then(|hop| hop.blamed.get(&node.name)).copied().unwrap_or(0),
            latency_ms: shown.and_then(|shown| shown.latency_ms),
            marked_until: known
                .and_then(|hop| hop.marks.until(&node.name, now))
                .map(|until| until.at),
            at: shown.map(|shown| shown.at.at),
        }
    };
    HopRow {
        hop: wanted.name.clone(),
        state: known.map(|hop| hop.mode),
        since: known.map(|hop| hop.since.at),
        node: carries.cloned(),
        preferred: known.and_then(|hop| hop.preferred(wanted)).map(|node| node.name.clone()),
        paused: known.and_then(|hop| hop.paused.as_ref()).map(|paused| paused.why),
        passes: known.map_or(0, |hop| hop.passes),
        nodes: wanted.nodes.iter().map(node).collect(),
    }
}

/// One verdict of all of it. A failed backup is no failed chain.
fn standing(record: &Record<ChainState>, is_stale: bool) -> Standing {
    let Some(state) = &record.machine else { return Standing::Stale };
    let is_blind = record.last_step.as_ref().is_none_or(|last| last.outcome == Ending::Failed);
    let fails = state.path.as_ref().is_some_and(|path| path.verdict == Verdict::Failed);
    let is_down = state.hops.iter().any(|hop| hop.mode.is_down());
    if fails || is_down || state.trouble.is_some() {
        return Standing::Unprotected;
    }
    if is_stale || is_blind {
        return Standing::Stale;
    }
    let as_wished = |hop: &HopState| hop.mode == Mode::Preferred && hop.paused.is_none();
    if state.hops.iter().all(as_wished) { Standing::AsWished } else { Standing::Degraded }
}

/// What is due next, the next first; what is overdue is due now.
fn next(
    policy: &ChainPolicy,
    state: Option<&ChainState>,
    record: &Record<ChainState>,
    now: &Moment,
) -> Vec<Next> {
    if record.paused.is_some() {
        return Vec::new();
    }
    let due = |what: String, at: &Moment| Next { what, at: at.at.max(now.at) };
    let last = record.last_step.as_ref();
    let mut all = Vec::new();
    all.extend(last.map(|last| due("check".to_owned(), &last.at.after(policy.params.interval()))));
    let stay = Duration::from_secs(policy.params.minimum_stay_sec);
    for (wanted, hop) in policy.hops.iter().zip(state.into_iter().flat_map(|state| &state.hops)) {
        let waits = match hop.mode {
            Mode::Backup | Mode::Returning => hop.paused.is_none(),
            Mode::Preferred | Mode::LastResort | Mode::Closed => false,
        };
        let Some(preferred) = hop.preferred(wanted).filter(|_| waits) else { continue };
        let marked = hop.marks.until(&preferred.name, now);
        let stayed = hop.stay.as_ref().map(|since| since.after(stay));
        let what = format!("return of {} to {} if it passes", hop.name, preferred.name);
        all.extend(
            marked.into_iter().chain(stayed).max_by_key(|at| at.at).map(|at| due(what, &at)),
        );
    }
    all.sort_by_key(|next| next.at);
    all
}
