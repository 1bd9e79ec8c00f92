//! The status of host names, for people and machines.
//!
//! **Invariant:** a row a host and a row a node, in the order of their names.

mod measure;
mod publish;
mod shown;
mod text;

use super::Dns;
use super::name::{HostName, NodeName};
use super::state::{DnsState, Host, Mode, Node, PauseWhy, Verdict};
use crate::machine::Machine as _;
use crate::names::PolicyName;
use crate::policy::DnsPolicy;
use crate::policy::dns as policy;
use crate::record::Record;
use crate::status::{Head, Next, Standing, is_stale};
use crate::time::Moment;
use jiff::Timestamp;
use serde::Serialize;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The status of host names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DnsStatus {
    /// What every status begins with.
    #[serde(flatten)]
    pub head: Head,
    /// A row a host.
    pub hosts: Vec<HostRow>,
    /// A row a node.
    pub nodes: Vec<NodeRow>,
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

/// One host name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostRow {
    /// Its name.
    pub host: HostName,
    /// Where it stands; `null`: its record was never read.
    pub state: Option<Mode>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// The node that it belongs to.
    pub native: NodeName,
    /// The nodes in its record.
    pub nodes: Vec<NodeName>,
    /// The addresses in its record, as last written or adopted.
    pub addresses: Vec<Ipv4Addr>,
    /// Its TTL in seconds, as last seen.
    pub ttl: Option<u32>,
    /// Why it stands there, for people.
    pub why: String,
    /// Why it is left alone; `null`: it is not.
    pub paused: Option<PauseWhy>,
    /// How often it left its native within the window.
    pub moves: usize,
    /// Until when its native is not returned to; `null`: it may be.
    pub quarantined_until: Option<Timestamp>,
}

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeHealth {
    /// It is up.
    Healthy,
    /// It is down.
    Failed,
    /// It was not checked yet.
    Unknown,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeRow {
    /// Its name.
    pub node: NodeName,
    /// What people call its place.
    pub label: Option<String>,
    /// Its address.
    pub address: Ipv4Addr,
    /// How it is.
    pub health: NodeHealth,
    /// What its last check showed, for people.
    pub why: String,
    /// Failed checks in a row.
    pub failures: u32,
    /// How long its last passed check took, in milliseconds.
    pub latency_ms: Option<u64>,
    /// Passed checks of the last 24 hours, in percent.
    pub uptime_percent: Option<f64>,
    /// Since when it is up or down.
    pub since: Option<Timestamp>,
    /// When a check of it was last counted.
    #[serde(skip)]
    pub counted_at: Option<Timestamp>,
}

impl NodeHealth {
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

/// How the host names are, from what the last step wrote.
#[must_use]
pub fn status(
    name: &PolicyName,
    policy: &DnsPolicy,
    record: &Record<DnsState>,
    now: &Moment,
) -> DnsStatus {
    let state = record.machine.as_ref();
    let interval = Duration::from_secs(policy.params.check_interval_sec);
    let is_stale = is_stale(record.last_step.as_ref(), interval, now);
    let host = |(host, wanted): (&HostName, &policy::Host)| host_row(policy, state, host, wanted);
    let node = |(node, wanted): (&NodeName, &policy::Node)| node_row(state, node, wanted, now);
    DnsStatus {
        head: Head::new(name, Dns::KIND.as_str(), record, state.map(Dns::stands)),
        hosts: policy.hosts.iter().map(host).collect(),
        nodes: policy.nodes.iter().map(node).collect(),
        next: next(policy, state, record, now),
        standing: standing(policy, state, is_stale),
        is_stale,
        now: now.at,
    }
}

fn host_row(
    policy: &DnsPolicy,
    state: Option<&DnsState>,
    name: &HostName,
    wanted: &policy::Host,
) -> HostRow {
    let known = state.and_then(|state| state.hosts.get(name));
    let quarantine = Duration::from_secs(policy.params.quarantine_sec);
    HostRow {
        host: name.clone(),
        state: known.map(|host| host.mode),
        since: known.map(|host| host.since.at),
        native: wanted.native.clone(),
        nodes: known.map(|host| host.published.keys().cloned().collect()).unwrap_or_default(),
        addresses: known.map(|host| host.ours.iter().copied().collect()).unwrap_or_default(),
        ttl: known.and_then(|host| host.ttl),
        why: known
            .map_or_else(|| "its record was not read yet".to_owned(), |host| why(policy, host)),
        paused: known.and_then(|host| host.paused.as_ref()).map(|paused| paused.why),
        moves: known.map_or(0, |host| host.left.len()),
        quarantined_until: known
            .and_then(|host| host.quarantined.as_ref())
            .map(|at| at.after(quarantine).at),
    }
}

/// Why a host stands where it stands. One on a fallback is reached through another place, which is
/// what its users notice, so that is said by the place's name.
fn why(policy: &DnsPolicy, host: &Host) -> String {
    if let Some(why) = &host.unreadable {
        return format!("its record cannot be read: {why}");
    }
    if host.unproven.is_some() {
        return "its last write could not be read back yet".to_owned();
    }
    let through = host.published.keys().map(|name| place(policy, name)).collect::<Vec<_>>();
    let through = format!("temporarily through {}", through.join(" "));
    match host.paused.as_ref().map(|paused| paused.why) {
        Some(PauseWhy::Foreign) => {
            return "its record is missing, holds too many or is somebody else's: mend it and resume, or switch it".to_owned();
        }
        Some(PauseWhy::Edited) => {
            return "somebody else set its record: resume or switch it".to_owned();
        }
        Some(PauseWhy::Person) if host.is_native() || host.published.is_empty() => {
            return "a person left it so: resume it".to_owned();
        }
        Some(PauseWhy::Person) => return format!("{through}: a person left it so: resume it"),
        None => {}
    }
    let moved = host.moved.as_ref().map(|moved| format!(": {}", moved.why)).unwrap_or_default();
    match host.mode {
        Mode::Native => String::new(),
        Mode::NativeFailing => "its native fails checks".to_owned(),
        Mode::Fallback | Mode::NativeRecovering | Mode::NativeQuarantined => {
            format!("{through}{moved}")
        }
        Mode::Stranded => "no node serves it".to_owned(),
    }
}

/// What people call the place of a node.
fn place(policy: &DnsPolicy, name: &NodeName) -> String {
    let label = policy.nodes.get(name).and_then(|node| node.label.clone());
    label.unwrap_or_else(|| name.to_string())
}

fn node_row(
    state: Option<&DnsState>,
    name: &NodeName,
    wanted: &policy::Node,
    now: &Moment,
) -> NodeRow {
    let known = state.and_then(|state| state.nodes.get(name));
    let known = known.filter(|node| node.address == wanted.address);
    let health = |node: &Node| match (node.up, &node.checks.counted_at) {
        (_, None) => NodeHealth::Unknown,
        (true, Some(_)) => NodeHealth::Healthy,
        (false, Some(_)) => NodeHealth::Failed,
    };
    let why = |node: &Node| match node.checks.verdict {
        Verdict::Passed => String::new(),
        Verdict::Failed | Verdict::Unknown => node.checks.why.clone(),
    };
    NodeRow {
        node: name.clone(),
        label: wanted.label.clone(),
        address: wanted.address,
        health: known.map_or(NodeHealth::Unknown, health),
        why: known.map_or_else(|| "not checked yet".to_owned(), why),
        failures: known.map_or(0, |node| node.checks.failures),
        latency_ms: known.and_then(|node| node.latency_ms),
        uptime_percent: known.and_then(|node| node.uptime.percent(now.at)),
        since: known.map(|node| node.since.at),
        counted_at: known.and_then(|node| node.checks.counted_at.as_ref()).map(|at| at.at),
    }
}

/// How they are judged, by the worst of them.
fn standing(policy: &DnsPolicy, state: Option<&DnsState>, is_stale: bool) -> Standing {
    let Some(state) = state else { return Standing::Stale };
    let host = |name: &HostName| {
        let Some(host) = state.hosts.get(name) else { return Standing::Stale };
        if host.unreadable.is_some() && host.mode != Mode::Stranded {
            return Standing::Stale;
        }
        match host.mode {
            Mode::Stranded => Standing::Unprotected,
            Mode::Native | Mode::NativeFailing
                if host.paused.is_none() && host.unproven.is_none() =>
            {
                Standing::AsWished
            }
            Mode::Native
            | Mode::NativeFailing
            | Mode::Fallback
            | Mode::NativeRecovering
            | Mode::NativeQuarantined => Standing::Degraded,
        }
    };
    let worst = policy.hosts.keys().map(host).max().unwrap_or(Standing::AsWished);
    if is_stale { worst.max(Standing::Stale) } else { worst }
}

/// What is due next, the next first; what is overdue is due now.
fn next(
    policy: &DnsPolicy,
    state: Option<&DnsState>,
    record: &Record<DnsState>,
    now: &Moment,
) -> Vec<Next> {
    if record.paused.is_some() {
        return Vec::new();
    }
    let params = &policy.params;
    let due = |what: String, since: &Moment, wait: u64| Next {
        what,
        at: since.after(Duration::from_secs(wait)).at.max(now.at),
    };
    let mut all = Vec::new();
    let last = record.last_step.as_ref();
    all.extend(last.map(|last| due("check".to_owned(), &last.at, params.check_interval_sec)));
    for (name, host) in state.into_iter().flat_map(|state| &state.hosts) {
        if host.paused.is_some() {
            continue;
        }
        let wait = match host.mode {
            Mode::NativeQuarantined => {
                host.quarantined.as_ref().map(|at| (at, params.quarantine_sec))
            }
            Mode::Fallback | Mode::NativeRecovering => {
                host.stay.as_ref().map(|at| (at, params.minimum_stay_sec))
            }
            Mode::Native | Mode::NativeFailing | Mode::Stranded => None,
        };
        all.extend(
            wait.map(|(at, sec)| due(format!("return of {name} if its native serves"), at, sec)),
        );
    }
    all.sort_by_key(|next| next.at);
    all
}
