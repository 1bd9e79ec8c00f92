//! A pool's status, for people and machines.
//!
//! **Invariant:** a row a slot in the policy's order, a row a client in the policy's order.

use super::Pool;
use super::candidate::Rejected;
use super::state::{Content, Egress, Mode, PoolState, Slot, Verdict};
use crate::machine::Machine as _;
use crate::names::{Interface, PolicyName};
use crate::outcome::{count, harmless};
use crate::policy::PoolPolicy;
use crate::record::Record;
use crate::status::{Head, Next, Standing, is_stale};
use crate::time::Moment;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
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
        .filter_map(|interface| Some(slot_row(interface, state.slots.get(interface)?, state)))
        .collect();
    let clients = policy
        .client_keys()
        .iter()
        .map(|client| ClientRow {
            client: client.to_string(),
            egress: match state.egress.get(client) {
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

fn slot_row(interface: &Interface, slot: &Slot, state: &PoolState) -> SlotRow {
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
    all.extend(state.refresh_tried_at.as_ref().map(|tried| due("refresh", tried, wait)));
    all.sort_by_key(|next| next.at);
    all
}

/// So many clients, or unusable entries, are named where there are more: with five slots a status fits one screen.
const NAMED: usize = 4;

/// With more slots than this their clients are not named at all, for the same reason.
const SLOTS_WITH_NAMES: usize = 8;

fn clock(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

impl PoolStatus {
    /// The clients that leave by `egress`, and how many buckets of spread prefixes do.
    fn leaving(&self, egress: &str) -> (Vec<&str>, usize) {
        let here = self.clients.iter().filter(|row| row.egress == egress);
        let (buckets, clients): (Vec<&str>, Vec<&str>) =
            here.map(|row| row.client.as_str()).partition(|client| client.contains('#'));
        (clients, buckets.len())
    }

    /// `2 clients`, `51 buckets`, or both.
    fn how_many(&self, egress: &str) -> String {
        let (clients, buckets) = self.leaving(egress);
        match (clients.len(), buckets) {
            (clients, 0) => count(clients, "client"),
            (0, buckets) => count(buckets, "bucket"),
            (clients, buckets) => {
                format!("{}, {}", count(clients, "client"), count(buckets, "bucket"))
            }
        }
    }

    /// The names of those clients, folded.
    fn names(&self, egress: &str) -> String {
        let (clients, _) = self.leaving(egress);
        let more = clients.len().saturating_sub(NAMED);
        let names = clients.into_iter().take(NAMED).collect::<Vec<_>>().join(" ");
        if more > 0 { format!("{names} and {more} more") } else { names }
    }

    /// A row a slot, in columns.
    fn slot_rows(&self) -> Vec<String> {
        let cells = |slot: &SlotRow| {
            [
                slot.interface.to_string(),
                slot.health.as_str().to_owned(),
                slot.endpoint.as_deref().map_or_else(|| "-".to_owned(), harmless),
                self.how_many(slot.interface.as_str()),
                slot.latency_ms.map(|latency| format!("{latency} ms")).unwrap_or_default(),
                slot.exit_ip.map(|exit| format!("exit {exit}")).unwrap_or_default(),
                format!("since {}", clock(slot.since)),
                why(slot),
            ]
        };
        let rows: Vec<_> = self.slots.iter().map(cells).collect();
        let width = |place: usize| {
            let cell = |row: &[String; 8]| row.get(place).map_or(0, |cell| cell.chars().count());
            rows.iter().map(cell).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..8).map(width).collect();
        let line = |row: &[String; 8]| {
            let columns = row.iter().zip(&widths).filter(|(_, width)| **width > 0);
            let padded = columns.map(|(cell, width)| format!("{cell:<width$}"));
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        rows.iter().map(line).collect()
    }

    /// Who leaves where.
    fn client_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (egress, one, many) in [
            ("direct", "leaves by the WAN, unprotected", "leave by the WAN, unprotected"),
            ("none", "is closed in", "are closed in"),
        ] {
            let (clients, buckets) = self.leaving(egress);
            if clients.len() + buckets > 0 {
                let words = if clients.len() + buckets == 1 { one } else { many };
                let names = Some(self.names(egress)).filter(|names| !names.is_empty());
                let names = names.map(|names| format!(": {names}")).unwrap_or_default();
                lines.push(format!("{} {words}{names}", self.how_many(egress)));
            }
        }
        if self.slots.len() <= SLOTS_WITH_NAMES {
            for slot in &self.slots {
                let names = self.names(slot.interface.as_str());
                if !names.is_empty() {
                    lines.push(format!("{} carries {names}", slot.interface));
                }
            }
        }
        lines.extend(self.spread_lines());
        lines
    }

    /// How the buckets of each spread prefix are spread.
    fn spread_lines(&self) -> Vec<String> {
        let mut prefixes: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        for row in &self.clients {
            if let Some((prefix, _)) = row.client.split_once('#') {
                let egresses = prefixes.entry(prefix).or_default();
                *egresses.entry(row.egress.as_str()).or_default() += 1;
            }
        }
        let line = |(prefix, egresses): (&str, BTreeMap<&str, usize>)| {
            let slots: Vec<_> = egresses.iter().map(|(to, n)| format!("{to} {n}")).collect();
            format!("{prefix} is spread, by buckets: {}", slots.join(", "))
        };
        prefixes.into_iter().map(line).collect()
    }
}

/// Why a slot is as it is, with what was counted.
fn why(slot: &SlotRow) -> String {
    let why = harmless(&slot.why);
    match (why.as_str(), usize::try_from(slot.failures).unwrap_or(usize::MAX)) {
        (_, 0) => why,
        ("", failures) => count(failures, "failed check"),
        (_, failures) => format!("{why} ({})", count(failures, "failed check")),
    }
}

impl fmt::Display for PoolStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = &self.head;
        let stands = match (&head.state, &head.last_step) {
            (Some(state), _) => state.as_str(),
            (None, Some(_)) => "nothing was made yet",
            (None, None) => "never stepped",
        };
        write!(f, "{} (pool)  {stands}", head.policy)?;
        if let Some(since) = head.since {
            write!(f, " since {}", clock(since))?;
        }
        if let Some(paused) = head.paused {
            write!(f, ", paused by a person since {}", clock(paused))?;
        }
        if let Some(last) = head.last_step.as_ref().filter(|_| self.is_stale) {
            write!(f, "\n  out of date: the last step began at {}", clock(last.at))?;
        }
        for reason in &head.reasons {
            write!(f, "\n  {}", harmless(&reason.text))?;
        }
        for line in self.slot_rows().iter().chain(&self.client_lines()) {
            write!(f, "\n  {line}")?;
        }
        if let Some(pool) = &self.pool {
            write!(
                f,
                "\n  list {} of {}: {} in reserve, {} quarantined; {} since the last full refresh",
                pool.generation,
                clock(pool.fetched_at),
                pool.reserve,
                pool.quarantined,
                count(
                    usize::try_from(self.repair_events_since_full_refresh).unwrap_or(usize::MAX),
                    "repair"
                )
            )?;
        }
        for entry in self.left_out.iter().take(NAMED) {
            let (name, why) = (harmless(&entry.name), harmless(&entry.why));
            write!(f, "\n  unusable, and so left out: {name}: {why}")?;
        }
        let more = self.left_out.len().saturating_sub(NAMED);
        if more > 0 {
            write!(f, "\n  and at least {more} more of the list")?;
        }
        for next in &self.next {
            if next.at > self.now {
                write!(f, "\n  next {} at {}", next.what, clock(next.at))?;
            } else {
                write!(f, "\n  next {} at once", next.what)?;
            }
        }
        Ok(())
    }
}
