//! What is looked at: the reference before and after, the nodes, and the records.
//!
//! **Invariant:** a node is asked at its own address, whatever its host names' records say.

use super::name::HostName;
use super::record::Zone;
use super::state::DnsState;
use crate::observation::{
    AnyOrAll, Asker, Expect, NodeCheck, Observation, Page, Pages, PagesReading, Question, Way,
};
use crate::policy::DnsPolicy;
use crate::policy::dns::{Host, Node};
use crate::setting::Setting;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// References are near and small, and two of them stand between a dead node and its record.
const REFERENCE_TIMEOUT_MS: u64 = 3_000;
/// What pages that tell of being online answer. A portal redirects.
const REFERENCE_STATUS: [u16; 2] = [200, 204];

/// What to ask next. `None`: all is there, or the reference has said that the rest is no use.
pub(super) fn next(
    policy: &DnsPolicy,
    state: &DnsState,
    paused: bool,
    seen: &Observation,
) -> Option<Vec<Question>> {
    let names: BTreeSet<String> = reference_hosts(policy);
    let resolved = seen.names();
    if names.iter().any(|name| !resolved.contains_key(name.as_str())) {
        return Some(vec![Question::Names(names)]);
    }
    let addresses = addresses(policy, state, seen);
    match reference(seen, 0) {
        None => return Some(vec![ask_reference(policy, &addresses, 0)]),
        Some(false) => return None,
        Some(true) => {}
    }
    if seen.nodes().is_none() {
        let records = policy.hosts.keys().filter_map(|host| record(policy, host));
        let records = records.map(|setting| Question::Setting(Box::new(setting)));
        // Under a pause nobody is interested in them.
        let records = records.filter(|_| !paused);
        return Some(std::iter::once(Question::Nodes(checks(policy))).chain(records).collect());
    }
    reference(seen, 1).is_none().then(|| vec![ask_reference(policy, &addresses, 1)])
}

/// The hosts of the reference that have to be resolved.
fn reference_hosts(policy: &DnsPolicy) -> BTreeSet<String> {
    let hosts = policy.reference.urls.iter().filter(|url| url.address().is_none());
    hosts.map(|url| url.host().to_owned()).collect()
}

/// The addresses of the reference's hosts: those of this run, else the last good ones.
pub(super) fn addresses(
    policy: &DnsPolicy,
    state: &DnsState,
    seen: &Observation,
) -> BTreeMap<String, Vec<IpAddr>> {
    let resolved = seen.names();
    let of = |host: String| {
        let now = resolved.get(host.as_str()).and_then(|found| found.as_ref().ok()).cloned();
        let known = now.or_else(|| state.addresses.get(&host).cloned())?;
        Some((host, known))
    };
    reference_hosts(policy).into_iter().filter_map(of).collect()
}

/// Who asks for the reference, as a report names it.
pub const REFERENCE: &str = "reference";

/// Who asks for the reference.
pub(super) fn asker() -> Asker {
    Asker::Named(REFERENCE.to_owned())
}

fn ask_reference(
    policy: &DnsPolicy,
    addresses: &BTreeMap<String, Vec<IpAddr>>,
    turn: u32,
) -> Question {
    let page = |url: &crate::url::Target| Page {
        url: url.clone(),
        addresses: addresses.get(url.host()).cloned().unwrap_or_default(),
    };
    Question::Pages(Pages {
        asker: asker(),
        turn,
        way: Way::Main,
        pages: policy.reference.urls.iter().map(page).collect(),
        require: AnyOrAll::Any,
        expect: Expect::Status(REFERENCE_STATUS.to_vec()),
        timeout_ms: REFERENCE_TIMEOUT_MS,
        patience: None,
    })
}

/// Whether the reference answered the `turn`-th time. `None`: it was not asked.
pub(super) fn reference(seen: &Observation, turn: u32) -> Option<bool> {
    let answers = seen.pages(&asker());
    let answer: &(&Pages, &PagesReading) = answers.iter().find(|(pages, _)| pages.turn == turn)?;
    Some(answer.1.passes(answer.0))
}

/// All checks of a round.
pub(super) fn checks(policy: &DnsPolicy) -> BTreeSet<NodeCheck> {
    let own = policy.nodes.values().map(own_check);
    let serving = policy.hosts.iter().flat_map(|(name, host)| {
        let nodes = policy.order(name, host).into_iter().skip(1);
        nodes.filter_map(|node| serving_check(policy, host, policy.nodes.get(node)?))
    });
    own.chain(serving).collect()
}

/// A node's own check.
#[must_use]
pub fn own_check(node: &Node) -> NodeCheck {
    NodeCheck {
        address: node.address,
        how: node.check.handshake(),
        timeout_ms: node.check.timeout_sec().saturating_mul(1_000),
    }
}

/// What shows that a node serves in place of a host's native. `None`: its own check does.
#[must_use]
pub fn serving_check(policy: &DnsPolicy, host: &Host, node: &Node) -> Option<NodeCheck> {
    let native = policy.nodes.get(&host.native)?;
    let how = native.check.in_its_place();
    let timeout_ms = native.check.timeout_sec().saturating_mul(1_000);
    (node.check.in_its_place() != how).then_some(NodeCheck {
        address: node.address,
        how,
        timeout_ms,
    })
}

/// The record of a host.
pub(super) fn record(policy: &DnsPolicy, host: &HostName) -> Option<Setting> {
    let zone: Zone = policy.zone()?;
    Some(Setting::Records { zone, host: host.clone() })
}
