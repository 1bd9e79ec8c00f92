//! A pool's status, for people and machines.
//!
//! **Invariant:** a row a slot in the policy's order, a row a client in the policy's order.

mod measure;
mod publish;
mod shown;
mod standby;
mod text;

pub use standby::{StandbyHealth, StandbyRow};

use super::Pool;
use super::candidate::Rejected;
use super::families::slot_carries_six;
use super::state::{Content, Egress, Mode, PoolState, Slot, Verdict};
use crate::machine::Machine as _;
use crate::names::{Interface, PolicyName};
use crate::policy::pool::Ipv6;
use crate::policy::{ClientKey, PoolPolicy};
use crate::record::Record;
use crate::status::{Head, Next, Standing, is_stale};
use crate::time::Moment;
use ipnet::IpNet;
use jiff::Timestamp;
use serde::Serialize;
use std::net::IpAddr;
use std::time::Duration;

/// A pool's status.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolStatus {
    /// What every status begins with.
    #[serde(flatten)]
    pub head: Head,
    /// A row a slot.
    pub slots: Vec<SlotRow>,
    /// A row a client.
    pub clients: Vec<ClientRow>,
    /// The standby tunnel; absent where the policy has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standby: Option<StandbyRow>,
    /// The list that slots are filled from.
    pub pool: Option<PoolRow>,
    /// Repairs since the last full refresh.
    pub repair_events_since_full_refresh: u32,
    /// What is due next.
    pub next: Vec<Next>,
    /// Entries of the list that cannot be used.
    #[serde(skip)]
    pub left_out: Vec<Rejected>,
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

/// One slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotRow {
    /// Its interface.
    pub interface: Interface,
    /// What fills it.
    pub endpoint: Option<String>,
    /// How it is.
    pub health: SlotHealth,
    /// Why.
    pub why: String,
    /// Failed checks in a row.
    pub failures: u32,
    /// How many clients leave by it.
    pub clients: usize,
    /// The address that they are seen with.
    pub exit_ip: Option<IpAddr>,
    /// Whether it carries the IPv6 of clients, where the policy sends it through slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carries_ipv6: Option<bool>,
    /// The fastest good answer of its last healthy check.
    pub latency_ms: Option<u64>,
    /// Since when it is filled so.
    pub since: Timestamp,
}

/// How a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotHealth {
    /// It serves.
    Healthy,
    /// It does not, or its retests have not passed yet.
    Failed,
    /// It could not be told.
    Unknown,
    /// Nothing is in it.
    Empty,
    /// It is tried as a way to the provider.
    Lent,
}

impl SlotHealth {
    fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Empty => "empty",
            Self::Lent => "lent",
        }
    }
}

/// One client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientRow {
    /// As in the policy; a spread prefix has a row a bucket.
    pub client: String,
    /// `vpn1`, `direct` or `none`; before the first placement `direct`, since main carries it.
    pub egress: String,
}

/// The list that slots are filled from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolRow {
    /// Which list.
    pub generation: u32,
    /// Tested candidates that are neither active nor quarantined.
    pub reserve: usize,
    /// Endpoints that serve nobody.
    pub quarantined: usize,
    /// When the list was fetched.
    pub fetched_at: Timestamp,
}

/// Makes a pool's status.
#[must_use]
pub fn status(
    name: &PolicyName,
    policy: &PoolPolicy,
    record: &Record<PoolState>,
    now: &Moment,
) -> PoolStatus {
    let state = record.machine.as_ref();
    let head = Head::new(name, "pool", record, state.map(Pool::stands));
    let interval = Duration::from_secs(policy.params.health_check_interval_sec);
    let is_stale = is_stale(record.last_step.as_ref(), interval, now);
    let Some(state) = state else {
        return PoolStatus {
            head,
            slots: Vec::new(),
            clients: Vec::new(),
            standby: None,
            pool: None,
            repair_events_since_full_refresh: 0,
            next: Vec::new(),
            left_out: Vec::new(),
            standing: if record.last_step.is_none() {
                Standing::Stale
            } else {
                Standing::Unprotected
            },
            is_stale,
            now: now.at,
        };
    };
    let slots = policy
        .slots
        .interfaces
        .iter()
        .filter_map(|interface| {
            Some(slot_row(policy, interface, state.slots.get(interface)?, state))
        })
        .collect();
    let clients = policy
        .client_keys()
        .iter()
        .map(|client| ClientRow {
            client: client.to_string(),
            egress: match state.egress.get(client) {
                // Rejected until it carries IPv6 again.
                Some(Egress::Slot(slot))
                    if matches!(client, ClientKey::Prefix(IpNet::V6(_)))
                        && !slot_carries_six(policy, state, slot) =>
                {
                    "none".to_owned()
                }
                Some(Egress::Slot(slot)) => slot.to_string(),
                Some(Egress::None) => "none".to_owned(),
                Some(Egress::Direct) | None => "direct".to_owned(),
            },
        })
        .collect();
    PoolStatus {
        head,
        slots,
        clients,
        standby: standby::row(policy, state),
        pool: state.pool.as_ref().map(|pool| PoolRow {
            generation: pool.generation,
            reserve: state.reserve().len(),
            quarantined: state.quarantine.len(),
            fetched_at: pool.fetched_at.at,
        }),
        repair_events_since_full_refresh: state.repair_events_since_full_refresh,
        next: next(policy, state, record, now),
        left_out: state
            .fresh
            .iter()
            .chain(&state.pool)
            .take(1)
            .flat_map(|list| list.left_out.clone())
            .collect(),
        standing: standing(policy, state, is_stale),
        is_stale,
        now: now.at,
    }
}

fn slot_row(policy: &PoolPolicy, interface: &Interface, slot: &Slot, state: &PoolState) -> SlotRow {
    let health = match (&slot.content, slot.verdict) {
        (Content::Empty, _) => SlotHealth::Empty,
        (Content::Lent(_), _) => SlotHealth::Lent,
        (Content::Loaded(_), _) if state.retired => SlotHealth::Unknown,
        (Content::Loaded(_), _) if slot.failed => SlotHealth::Failed,
        (Content::Loaded(_), Verdict::Healthy) => SlotHealth::Healthy,
        (Content::Loaded(_), Verdict::Failed) => SlotHealth::Failed,
        (Content::Loaded(_), Verdict::Unknown) => SlotHealth::Unknown,
    };
    let here = Egress::Slot(interface.clone());
    let why = match (health, slot.why.as_str()) {
        (SlotHealth::Unknown, _) if state.retired => "taken down by a person".to_owned(),
        (SlotHealth::Unknown, "") => "not checked yet".to_owned(),
        (_, why) => why.to_owned(),
    };
    SlotRow {
        interface: interface.clone(),
        endpoint: slot.candidate().map(|candidate| candidate.name.clone()),
        health,
        why,
        failures: slot.failures,
        clients: state.egress.values().filter(|egress| **egress == here).count(),
        exit_ip: slot.exit_ip.filter(|_| !state.retired),
        carries_ipv6: (policy.routing.ipv6 == Ipv6::Tunnel && slot.candidate().is_some())
            .then(|| slot_carries_six(policy, state, interface)),
        latency_ms: slot.latency_ms.filter(|_| !state.retired),
        since: slot.since.at,
    }
}

/// How a pool is judged.
fn standing(policy: &PoolPolicy, state: &PoolState, is_stale: bool) -> Standing {
    let serving = policy.slots.interfaces.iter().filter(|slot| state.serves(slot)).count();
    let unprotected = state.egress.is_empty()
        || state.egress.values().any(|egress| match egress {
            Egress::Slot(slot) => !state.serves(slot),
            Egress::Direct | Egress::None => true,
        });
    if !state.proven || state.retired || serving == 0 || unprotected {
        Standing::Unprotected
    } else if is_stale {
        Standing::Stale
    } else if serving == policy.slots.interfaces.len() && state.mode == Mode::Normal {
        Standing::AsWished
    } else {
        Standing::Degraded
    }
}

/// What is due next, the next first; what is overdue is due now. A paused policy waits for a person.
fn next(
    policy: &PoolPolicy,
    state: &PoolState,
    record: &Record<PoolState>,
    now: &Moment,
) -> Vec<Next> {
    if record.paused.is_some() {
        return Vec::new();
    }
    let params = &policy.params;
    let due = |what: &str, since: &Moment, wait: u64| Next {
        what: what.to_owned(),
        at: since.after(Duration::from_secs(wait)).at.max(now.at),
    };
    let mut all = Vec::new();
    let last = record.last_step.as_ref();
    all.extend(last.map(|last| due("check", &last.at, params.health_check_interval_sec)));
    let wait = match state.mode {
        Mode::DegradedPool | Mode::SlotExhausted => params.hmn_refresh_retry_interval_sec,
        Mode::FullPoolRefresh if state.proven => params.hmn_refresh_retry_interval_sec,
        Mode::FullPoolRefresh | Mode::BootstrapRecovery => params.bootstrap_retry_interval_sec,
        Mode::Normal | Mode::LocalRepair | Mode::DirectEmergency => return all,
    };
    // A provider that refused is left alone for longer.
    let wait = wait.max(state.refusal_wait_sec.unwrap_or(0));
    all.extend(state.refresh_tried_at.as_ref().map(|tried| due("refresh", tried, wait)));
    all.sort_by_key(|next| next.at);
    all
}
