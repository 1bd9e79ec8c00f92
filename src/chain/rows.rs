//! The rows of hops that carry: the way back to the preferred node, a faster one, the next one's turn.
//!
//! **Invariant:** nothing that carries is touched before its successor has passed where it can be
//! asked by itself, and one hop at most is changed in a step.

use super::legs::Legs;
use super::marks::Fault;
use super::name::NodeName;
use super::reason::Reason;
use super::state::{Better, ChainState, HopState, Mode};
use super::under_way::{Change, Purpose};
use crate::policy::ChainPolicy;
use crate::policy::chain::{Hop, Node, Params, Strategy};
use crate::proxy::Verdict;
use crate::time::Moment;
use std::time::Duration;

/// A node is faster if it is so by this much, in milliseconds and in hundredths of the other's time.
const ADVANTAGE_MS: u64 = 20;
const ADVANTAGE_PERCENT: u64 = 15;
/// In so many rounds in a row.
const ADVANTAGE_ROUNDS: u32 = 3;
/// And so long after the last change, or the last one that failed.
const COOLDOWN: Duration = Duration::from_secs(30);

/// The node that is tested in a hop before it is returned to.
pub(super) fn tested<'a>(wanted: &'a Hop, hop: &HopState, now: &Moment) -> Option<&'a Node> {
    let waits = match hop.mode {
        Mode::Backup | Mode::Returning => hop.paused.is_none(),
        Mode::Preferred | Mode::LastResort | Mode::Closed => false,
    };
    let preferred = hop.preferred(wanted).filter(|_| waits)?;
    let is_free = hop.marks.until(&preferred.name, now).is_none();
    (preferred.egress && is_free).then_some(preferred)
}

/// The nodes of a hop that are tried on their own in this step, where that makes something that
/// goes again: the preferred one that is waited for, those that may be faster, and the one that
/// nobody has tried for longest.
pub(super) fn trials<'a>(
    wanted: &'a Hop,
    hop: &HopState,
    params: &Params,
    now: &Moment,
) -> Vec<&'a Node> {
    if hop.paused.is_some() || hop.mode.is_down() {
        return Vec::new();
    }
    let free = |node: &&Node| {
        let carries = node.member == hop.confirmed.member;
        node.egress && !carries && hop.marks.until(&node.name, now).is_none()
    };
    let mut nodes: Vec<&Node> = tested(wanted, hop, now).into_iter().collect();
    let others = wanted.nodes.iter().filter(free);
    if wanted.strategy == Strategy::LowestLatency && hop.mode == Mode::Preferred {
        nodes.extend(others);
        return nodes;
    }
    let long = Duration::from_secs(params.fail_timeout_sec);
    let age = |node: &&Node| {
        hop.shown.get(&node.name).map_or(Duration::MAX, |shown| now.since(&shown.at))
    };
    let oldest = others.filter(|node| age(node) >= long).max_by_key(age);
    nodes.extend(oldest.filter(|node| !nodes.contains(node)));
    nodes
}

/// Hops of which no node passed, and whose leg passes now.
pub(super) fn reopen(
    policy: &ChainPolicy,
    state: &mut ChainState,
    legs: &Legs,
    now: &Moment,
    reasons: &mut Vec<Reason>,
) {
    let all_pass = legs.passes();
    // Up to the last leg that passes before one that does not, since a hop without a leg is proven by
    // the one behind it.
    let fails = (0..state.hops.len())
        .find(|place| matches!(legs.verdict(*place), Some(Verdict::Failed | Verdict::Unknown)));
    let proven = (0..fails.unwrap_or(state.hops.len()))
        .rev()
        .find(|place| legs.verdict(*place) == Some(Verdict::Passed));
    for (place, (wanted, hop)) in policy.hops.iter().zip(&mut state.hops).enumerate() {
        if !all_pass && proven.is_none_or(|proven| place > proven) {
            break;
        }
        hop.is_new = false;
        hop.tried.clear();
        let Some(node) = hop.node(wanted) else { continue };
        hop.blamed.remove(&node.name);
        if hop.mode.is_down() {
            hop.down_steps = 0;
            hop.marks.returned(&node.name, now);
            let mode = hop.carried_mode(wanted);
            hop.enter(mode, now);
            hop.stay = (mode == Mode::Backup).then(|| now.clone());
            let (hop, node) = (hop.name.clone(), node.name.clone());
            reasons.push(Reason::Reopened { hop, node });
        } else {
            hop.marks.passes(&node.name, &policy.params, now);
        }
    }
}

/// The whole path passes: what is counted, and what is changed then.
pub(super) fn passes(
    policy: &ChainPolicy,
    state: &mut ChainState,
    now: &Moment,
    reasons: &mut Vec<Reason>,
) -> Option<(Change, Purpose)> {
    let legs = Legs { legs: vec![None; state.hops.len()], path: state.path.clone() };
    reopen(policy, state, &legs, now, reasons);
    let mut change: Option<(Change, Purpose)> = None;
    for (place, (wanted, hop)) in policy.hops.iter().zip(&mut state.hops).enumerate() {
        if hop.paused.is_some() {
            continue;
        }
        let has_legs = policy.driver.has_legs();
        let row = Row { params: &policy.params, wanted, now, has_legs };
        let to = match hop.mode {
            Mode::Preferred => row.preferred(hop),
            Mode::Backup | Mode::Returning => row.backup(hop, change.is_none(), reasons),
            Mode::LastResort | Mode::Closed => None,
        };
        if let (Some(to), None) = (to, &change) {
            let from = hop.node(wanted).map(|node| node.name.clone());
            let what = Change { hop: place, from, to: to.node };
            let purpose = match to.why {
                Why::Return => Purpose::Return(what.clone()),
                Why::Turn => Purpose::Rotation(what.clone()),
                Why::Faster => Purpose::Faster(what.clone()),
            };
            change = Some((what, purpose));
        }
    }
    change
}

/// What is to be put in place.
struct To {
    node: NodeName,
    why: Why,
}

/// What for.
enum Why {
    Return,
    Turn,
    Faster,
}

impl To {
    fn of(node: NodeName, why: Why) -> Self {
        Self { node, why }
    }
}

struct Row<'a> {
    params: &'a Params,
    wanted: &'a Hop,
    now: &'a Moment,
    has_legs: bool,
}

impl Row<'_> {
    /// The preferred node carries.
    fn preferred(&self, hop: &mut HopState) -> Option<To> {
        // The policy may prefer another one since.
        let mode = hop.carried_mode(self.wanted);
        if mode == Mode::Backup {
            hop.enter(mode, self.now);
            hop.stay = Some(self.now.clone());
            return None;
        }
        match self.wanted.strategy {
            Strategy::Fifo => None,
            Strategy::Round => self.next(hop).map(|to| To::of(to, Why::Turn)),
            Strategy::LowestLatency => self.faster(hop).map(|to| To::of(to, Why::Faster)),
        }
    }

    /// The next node that is not marked, once its turn has come.
    fn next(&self, hop: &HopState) -> Option<NodeName> {
        let long = Duration::from_secs(self.wanted.rotate_sec?);
        if self.now.since(hop.changed.as_ref().unwrap_or(&hop.since)) < long {
            return None;
        }
        let nodes = &self.wanted.nodes;
        let carries = hop.node(self.wanted)?;
        let place = nodes.iter().position(|node| node.name == carries.name)?;
        let after = nodes.iter().skip(place.saturating_add(1));
        let mut turn = after.chain(nodes.iter().take(place));
        let is_free = |node: &&Node| hop.marks.until(&node.name, self.now).is_none();
        turn.find(is_free).map(|node| node.name.clone())
    }

    /// A node that was faster for long enough.
    fn faster(&self, hop: &mut HopState) -> Option<NodeName> {
        let latency = |name: &NodeName| {
            let shown = hop.shown.get(name)?;
            let is_new = shown.verdict == Verdict::Passed && shown.at >= *self.now;
            shown.latency_ms.filter(|_| is_new)
        };
        let carries = hop.node(self.wanted)?;
        let own = latency(&carries.name);
        let free = |node: &&Node| {
            node.name != carries.name && hop.marks.until(&node.name, self.now).is_none()
        };
        let others = self.wanted.nodes.iter().filter(free);
        let best = others.filter_map(|node| Some((latency(&node.name)?, &node.name))).min();
        let better = own.zip(best).and_then(|(own, (best, name))| {
            let least = ADVANTAGE_MS.max(own.saturating_mul(ADVANTAGE_PERCENT) / 100);
            (own.saturating_sub(best) >= least).then(|| name.clone())
        });
        let Some(node) = better else {
            hop.better = None;
            return None;
        };
        let before = hop.better.take().filter(|better| better.node == node);
        let rounds = before.map_or(0, |better| better.rounds).saturating_add(1);
        let rounds = rounds.min(ADVANTAGE_ROUNDS);
        hop.better = Some(Better { node: node.clone(), rounds });
        let rested = hop.changed.as_ref().is_none_or(|at| self.now.since(at) >= COOLDOWN);
        (rounds >= ADVANTAGE_ROUNDS && rested).then_some(node)
    }

    /// Another node than the preferred one carries.
    fn backup(
        &self,
        hop: &mut HopState,
        may_return: bool,
        reasons: &mut Vec<Reason>,
    ) -> Option<To> {
        let name = hop.name.clone();
        let preferred = hop.preferred(self.wanted)?;
        if hop.carried_mode(self.wanted) == Mode::Preferred {
            hop.enter(Mode::Preferred, self.now);
            hop.stay = None;
            return None;
        }
        let node = preferred.name.clone();
        if let Some(until) = hop.marks.until(&node, self.now) {
            hop.enter(Mode::Backup, self.now);
            hop.passes = 0;
            let sec = seconds(until.since(self.now));
            reasons.push(Reason::Marked { hop: name, node, sec });
            return None;
        }
        let has_leg = preferred.egress && self.has_legs;
        let fresh = |shown: &&crate::proxy::Shown| shown.at >= *self.now;
        let shown = hop.shown.get(&node).filter(fresh).filter(|_| has_leg);
        let (verdict, why) = match shown {
            Some(shown) => (shown.verdict, shown.why.clone()),
            // It cannot be asked by itself: the whole path, which passes, says as much as can be known.
            None if !has_leg => (Verdict::Passed, String::new()),
            None => (Verdict::Unknown, "it was not asked".to_owned()),
        };
        match verdict {
            Verdict::Failed => {
                let sec = hop.marks.mark(&node, Fault::Test, self.params, self.now);
                hop.enter(Mode::Backup, self.now);
                hop.passes = 0;
                reasons.push(Reason::TestFailed { hop: name, node, sec, why });
                None
            }
            Verdict::Unknown => {
                hop.passes = 0;
                reasons.push(Reason::Untested { hop: name, node, why });
                None
            }
            Verdict::Passed => {
                let was_returning = hop.mode == Mode::Returning;
                hop.passes = hop.passes.saturating_add(1).min(self.params.rise);
                hop.enter(Mode::Returning, self.now);
                let stay = Duration::from_secs(self.params.minimum_stay_sec);
                let stayed = hop.stay.as_ref().map_or(stay, |since| self.now.since(since));
                let left = stay.saturating_sub(stayed);
                let is_ready = was_returning && hop.passes >= self.params.rise && left.is_zero();
                if is_ready && may_return {
                    return Some(To::of(node, Why::Return));
                }
                let (passes, rise) = (hop.passes, self.params.rise);
                let left_sec = seconds(left);
                reasons.push(Reason::Returning { hop: name, node, passes, rise, left_sec });
                None
            }
        }
    }
}

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
