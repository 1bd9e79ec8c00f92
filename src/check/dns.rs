//! What is wrong with a policy of host names: files, records, nodes, and how fast a move can be.
//!
//! **Invariant:** only what a step saw is judged; nothing is asked here, and no record is tried.

mod records;

use super::any::Stepped;
use super::provider::File;
use super::{Code, Finding, Needs, Probe, ProbeResult, any, provider};
use crate::dns::name::{HostName, NodeName};
use crate::dns::state::DnsState;
use crate::dns::{own_check, serving_check};
use crate::names::PolicyName;
use crate::observation::{NodeCheck, NodeReading};
use crate::policy::DnsPolicy;
use crate::policy::dns::{Cloudflare, Driver, Host, Node};
use std::time::Duration;

/// Cloudflare takes 1,200 requests in this time, those of people at its dashboard included.
const API_WINDOW_SEC: u64 = 300;
/// So many leave people a sixth of them.
const API_REQUESTS: u64 = 1_000;

/// All that was collected of it.
pub struct DnsFacts<'a> {
    /// The policy as a step of it would find it.
    pub stepped: Stepped<'a, DnsState>,
    /// The policy.
    pub policy: &'a DnsPolicy,
    /// Files that the policy names.
    pub files: Vec<File>,
}

/// What it needs of the machine.
#[must_use]
pub fn needs(name: &PolicyName, policy: &DnsPolicy, interval: Duration) -> Needs {
    let tools = match &policy.driver {
        Driver::Cloudflare(_) => None,
        Driver::Rfc2136(server) => Some(server.tool.program()),
    };
    Needs {
        tools: tools.into_iter().collect(),
        interval: Some(interval),
        policies: vec![name.to_string()],
        ..Needs::default()
    }
}

/// What is wrong with it.
#[must_use]
pub fn findings(facts: &DnsFacts<'_>) -> Vec<Finding> {
    let mut found = any::findings(&facts.stepped);
    found.extend(provider::files(&facts.files));
    found.extend(pace(facts.policy));
    found.extend(rate(facts.policy));
    found.extend(nodes(facts));
    found.extend(records::findings(facts));
    found
}

/// What was probed: the reference, then each node.
#[must_use]
pub fn probes(facts: &DnsFacts<'_>) -> Vec<Probe> {
    let node = |(name, node): (&NodeName, &Node)| {
        let (result, text) = match reading(facts, &own_check(node))? {
            NodeReading::Passed { elapsed_ms } => {
                (ProbeResult::Passed, format!("it serves, in {elapsed_ms} ms"))
            }
            NodeReading::Failed(why) => (ProbeResult::Failed, why.clone()),
            NodeReading::Unknown(why) => (ProbeResult::Unknown, why.clone()),
        };
        Some(Probe { probe: name.to_string(), result, text })
    };
    let nodes = facts.policy.nodes.iter().filter_map(node);
    any::probes(facts.stepped.seen).into_iter().chain(nodes).collect()
}

fn reading<'a>(facts: &DnsFacts<'a>, check: &NodeCheck) -> Option<&'a NodeReading> {
    facts.stepped.seen.nodes()?.checks.get(check)
}

/// How fast clients follow a move, and whether a host name moves again before they have.
fn pace(policy: &DnsPolicy) -> Vec<Finding> {
    let params = &policy.params;
    let mut found = Vec::new();
    for (name, host) in &policy.hosts {
        let stay = u64::from(host.ttl).saturating_mul(2);
        if params.minimum_stay_sec < stay {
            found.push(Finding::new(
                Code::StayShort,
                format!(
                    "minimum_stay_sec {} is less than twice the ttl {} of {name}",
                    params.minimum_stay_sec, host.ttl
                ),
                format!("write \"minimum_stay_sec\": {stay} into params, or a smaller ttl"),
            ));
        }
        if host.fallbacks_of(name).is_empty() {
            found.push(Finding::new(
                Code::NoFallback,
                format!("{name} has no fallback"),
                format!("name nodes in hosts.\"{name}\".fallbacks, or leave the host out"),
            ));
        }
    }
    let slow = policy.hosts.iter().filter(|(_, host)| u64::from(host.ttl) > seconds(policy));
    if let Some((name, host)) = slow.max_by_key(|(_, host)| host.ttl) {
        let checks = seconds(policy).saturating_mul(u64::from(params.fall));
        found.push(Finding::new(
            Code::TtlSlow,
            format!(
                "the ttl {} of {name} is longer than the interval: a client may stay on a dead node for {checks} s of checks and {} s more",
                host.ttl, host.ttl
            ),
            format!("write \"ttl\": {} into hosts.\"{name}\", where the zone takes it", least_ttl(policy)),
        ));
    }
    found
}

/// The interval where it is a measure of time, in seconds.
fn seconds(policy: &DnsPolicy) -> u64 {
    policy.params.interval().as_secs()
}

/// The shortest TTL that is of use.
fn least_ttl(policy: &DnsPolicy) -> u64 {
    match &policy.driver {
        Driver::Cloudflare(_) => seconds(policy).max(60),
        Driver::Rfc2136(_) => seconds(policy),
    }
}

/// Whether looking at records alone is more than the provider takes.
fn rate(policy: &DnsPolicy) -> Option<Finding> {
    let Driver::Cloudflare(Cloudflare { .. }) = &policy.driver else { return None };
    let hosts = u64::try_from(policy.hosts.len()).unwrap_or(u64::MAX);
    let a_round = hosts.saturating_add(u64::from(policy.driver.is_by_name()));
    let in_window = a_round.saturating_mul(API_WINDOW_SEC) / seconds(policy).max(1);
    (in_window > API_REQUESTS).then(|| {
        let least = a_round.saturating_mul(API_WINDOW_SEC).div_ceil(API_REQUESTS);
        Finding::new(
            Code::ApiRate,
            format!("{in_window} requests in five minutes look at records alone"),
            format!("write \"check_interval_sec\": {least} into params"),
        )
    })
}

/// Nodes that do not live, and fallbacks that live and do not serve.
fn nodes(facts: &DnsFacts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, node) in &facts.policy.nodes {
        match reading(facts, &own_check(node)) {
            Some(NodeReading::Failed(why)) => found.push(Finding::new(
                Code::NodeSilent,
                format!("node {name} at {}: {why}", node.address),
                format!(
                    "mend the node, or correct nodes.{name}; egressctl status {}",
                    facts.stepped.name
                ),
            )),
            Some(NodeReading::Unknown(why)) => found.push(Finding::new(
                Code::NodeUnjudged,
                format!("node {name} at {}: {why}", node.address),
                format!("mend what it says, or correct nodes.{name}.check"),
            )),
            Some(NodeReading::Passed { .. }) | None => {}
        }
    }
    for (name, host) in &facts.policy.hosts {
        found.extend(
            host.fallbacks_of(name).iter().filter_map(|node| unfit(facts, name, host, node)),
        );
    }
    found
}

/// That a fallback lives and does not serve in the native's place.
fn unfit(
    facts: &DnsFacts<'_>,
    name: &HostName,
    host: &Host,
    fallback: &NodeName,
) -> Option<Finding> {
    let node = facts.policy.nodes.get(fallback)?;
    let NodeReading::Passed { .. } = reading(facts, &own_check(node))? else { return None };
    let check = serving_check(facts.policy, host, node)?;
    let (NodeReading::Failed(why) | NodeReading::Unknown(why)) = reading(facts, &check)? else {
        return None;
    };
    let what = format!("{fallback} does not serve {name} in place of {}: {why}", host.native);
    let mend = match check.how.name() {
        Some(asked) => format!(
            "give {fallback} a certificate for {asked}, and check again: openssl s_client -connect {}:{} -servername {asked}",
            node.address,
            check.how.port()
        ),
        None => format!("let {fallback} listen at {}:{}", node.address, check.how.port()),
    };
    Some(Finding::new(Code::FallbackUnfit, what, mend))
}
