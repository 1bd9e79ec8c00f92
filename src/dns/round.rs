//! Judges and counts a round of checks.
//!
//! **Invariant:** a round in which this machine may be at fault itself counts nothing.

use super::ask;
use super::reason::Reason;
use super::state::{DnsState, Node, Verdict};
use crate::observation::{NodeCheck, NodeReading, NodesReading, Observation};
use crate::policy::DnsPolicy;
use crate::time::Moment;
use std::time::Duration;

/// Fewer nodes that fail at once prove nothing against this machine.
const MASS_LEAST: usize = 3;
/// Two counted checks further apart than so many intervals are not in a row.
const APART_INTERVALS: u32 = 10;

/// What a round is worth.
pub(super) enum Round<'a> {
    /// It counts.
    Counts(&'a NodesReading),
    /// It does not.
    Discarded(Reason),
}

/// What the round is worth, by the reference before and after it.
pub(super) fn round(seen: &Observation) -> Round<'_> {
    match (ask::reference(seen, 0), seen.nodes(), ask::reference(seen, 1)) {
        (Some(false), _, _) => Round::Discarded(Reason::Offline { after: false }),
        (Some(true), Some(_), Some(false)) => Round::Discarded(Reason::Offline { after: true }),
        (Some(true), Some(nodes), Some(true)) => Round::Counts(nodes),
        (None, _, _) | (Some(true), None, _) | (Some(true), Some(_), None) => {
            Round::Discarded(Reason::NoTime)
        }
    }
}

/// What a check showed, why, and how long it took.
pub(super) fn verdict(seen: &NodesReading, check: &NodeCheck) -> (Verdict, String, Option<u64>) {
    match seen.checks.get(check) {
        Some(NodeReading::Passed { elapsed_ms }) => {
            (Verdict::Passed, String::new(), Some(*elapsed_ms))
        }
        Some(NodeReading::Failed(why)) => (Verdict::Failed, why.clone(), None),
        Some(NodeReading::Unknown(why)) => (Verdict::Unknown, why.clone(), None),
        None => (Verdict::Unknown, "it was not asked".to_owned(), None),
    }
}

/// How far apart checks in a row may be.
pub(super) fn apart(policy: &DnsPolicy) -> Duration {
    policy.params.interval().saturating_mul(APART_INTERVALS)
}

/// Takes nodes in and out of the state as the policy says, and begins anew where an address changed.
pub(super) fn keep_nodes(policy: &DnsPolicy, state: &mut DnsState, now: &Moment) {
    state.nodes.retain(|name, _| policy.nodes.contains_key(name));
    for (name, wanted) in &policy.nodes {
        match state.nodes.get_mut(name) {
            Some(node) if node.address == wanted.address => {}
            Some(node) => {
                let uptime = std::mem::take(&mut node.uptime);
                *node = Node { uptime, ..Node::new(wanted.address, now) };
            }
            None => {
                state.nodes.insert(name.clone(), Node::new(wanted.address, now));
            }
        }
    }
}

/// Whether most of the living nodes failed at once, which is not believed at first.
pub(super) fn is_believed(
    policy: &DnsPolicy,
    state: &mut DnsState,
    seen: &NodesReading,
) -> Result<Option<Reason>, Reason> {
    let living = state.nodes.iter().filter(|(_, node)| node.up);
    let verdicts: Vec<Verdict> = living
        .filter_map(|(name, _)| policy.nodes.get(name))
        .map(|node| verdict(seen, &ask::own_check(node)).0)
        .collect();
    let failed = verdicts.iter().filter(|verdict| **verdict == Verdict::Failed).count();
    let up = verdicts.len();
    if failed < MASS_LEAST || failed * 5 < up * 4 {
        state.discarded = 0;
        return Ok(None);
    }
    let limit = policy.params.mass_rounds;
    if state.discarded >= limit {
        return Ok(Some(Reason::MassBelieved { failed }));
    }
    state.discarded += 1;
    Err(Reason::MassFailure { failed, up, round: state.discarded, limit })
}

/// Counts the nodes' own checks.
pub(super) fn count(policy: &DnsPolicy, state: &mut DnsState, seen: &NodesReading, now: &Moment) {
    let (params, apart) = (&policy.params, apart(policy));
    for (name, wanted) in &policy.nodes {
        let Some(node) = state.nodes.get_mut(name) else { continue };
        let (verdict, why, latency_ms) = verdict(seen, &ask::own_check(wanted));
        node.checks.count(verdict, &why, now, apart);
        match verdict {
            Verdict::Passed => {
                node.latency_ms = latency_ms;
                node.uptime.count(true, now.at);
                if !node.up && node.checks.passes >= params.rise {
                    node.up = true;
                    node.since = now.clone();
                }
            }
            Verdict::Failed => {
                node.latency_ms = None;
                node.uptime.count(false, now.at);
                if node.up && node.checks.failures >= params.fall {
                    node.up = false;
                    node.since = now.clone();
                }
            }
            Verdict::Unknown => {}
        }
    }
}
