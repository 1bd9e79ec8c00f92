//! The standby tunnel's row of a pool's status.
//!
//! **Invariant:** one that is down although it should be up has failed, and says why.

use crate::names::Interface;
use crate::policy::PoolPolicy;
use crate::pool::state::{PoolState, Verdict};
use jiff::Timestamp;
use serde::Serialize;

/// The standby tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StandbyRow {
    /// Its interface.
    pub interface: Interface,
    /// What it leads to.
    pub endpoint: Option<String>,
    /// How it is.
    pub health: StandbyHealth,
    /// Why.
    pub why: String,
    /// The fastest good answer of its last healthy check.
    pub latency_ms: Option<u64>,
    /// Since when it is up, or down.
    pub since: Timestamp,
}

/// How the standby tunnel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StandbyHealth {
    /// Requests are carried.
    Healthy,
    /// They are not, or it cannot be made.
    Failed,
    /// It could not be told.
    Unknown,
    /// It is down until it is needed.
    Down,
}

impl StandbyHealth {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Down => "down",
        }
    }
}

/// Its row, where the policy has one and a step has looked at it.
pub(super) fn row(policy: &PoolPolicy, state: &PoolState) -> Option<StandbyRow> {
    let (interface, standby) = policy.standby().zip(state.standby.as_ref())?;
    let is_up = standby.up && !state.retired;
    let health = match (is_up, standby.verdict, standby.why.as_str()) {
        (true, Verdict::Healthy, _) => StandbyHealth::Healthy,
        (true, Verdict::Unknown, _) => StandbyHealth::Unknown,
        (false, _, "") => StandbyHealth::Down,
        (false, _, _) if state.retired => StandbyHealth::Down,
        (true, Verdict::Failed, _) | (false, _, _) => StandbyHealth::Failed,
    };
    let why = match (health, standby.why.as_str()) {
        (StandbyHealth::Down, _) if state.retired => "taken down by a person",
        (StandbyHealth::Down, _) => "until it is needed",
        (StandbyHealth::Unknown, "") => "not checked yet",
        (StandbyHealth::Healthy | StandbyHealth::Failed | StandbyHealth::Unknown, why) => why,
    };
    Some(StandbyRow {
        interface: interface.clone(),
        endpoint: standby.candidate.as_ref().map(|candidate| candidate.name.clone()),
        health,
        why: why.to_owned(),
        latency_ms: standby.latency_ms.filter(|_| health == StandbyHealth::Healthy),
        since: standby.since.at,
    })
}
