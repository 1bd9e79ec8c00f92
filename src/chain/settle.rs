//! What is remembered of what was tried.
//!
//! **Invariant:** a node is marked only for its own fault: it was replaced, or failed while what is
//! before it passed.

use super::legs::Legs;
use super::marks::Fault;
use super::name::NodeName;
use super::reason::Reason;
use super::rows;
use super::state::{ChainState, HopState, Mode};
use super::under_way::{Change, Purpose, Seats, UnderWay};
use crate::clash::choice::Confirmed;
use crate::machine::Settled;
use crate::policy::ChainPolicy;
use crate::policy::chain::{AllFailed, Hop};
use crate::time::Moment;

/// What the last try of a search showed.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdicts {
    pub(super) legs: Legs,
    /// Whether the search came to its end.
    pub(super) finished: bool,
}

fn hop_at<'a>(
    policy: &'a ChainPolicy,
    state: &'a mut ChainState,
    place: usize,
) -> Option<(&'a Hop, &'a mut HopState)> {
    policy.hops.get(place).zip(state.hops.get_mut(place))
}

/// Blames what carries in a broken hop, and says how often it was.
pub(super) fn blame(
    policy: &ChainPolicy,
    state: &mut ChainState,
    place: usize,
    legs: &Legs,
) -> Option<Reason> {
    let limit = policy.params.max_fails;
    let (wanted, hop) = hop_at(policy, state, place)?;
    let Some(node) = hop.node(wanted).map(|node| node.name.clone()) else {
        let (hop, member) = (hop.name.clone(), hop.confirmed.member.clone());
        return Some(Reason::NodeGone { hop, member });
    };
    let blamed = hop.blamed.entry(node.clone()).or_insert(0);
    *blamed = blamed.saturating_add(1).min(limit);
    let (hop, failures, why) = (hop.name.clone(), *blamed, legs.why(place));
    Some(Reason::Failing { hop, node, failures, limit, why })
}

/// The change of one hop came true.
pub(super) fn changed(
    policy: &ChainPolicy,
    way: &UnderWay,
    legs: &Legs,
    now: &Moment,
) -> (ChainState, Option<Reason>) {
    let mut state = way.base.clone();
    state.path.clone_from(&legs.path);
    let (Purpose::Return(change) | Purpose::Rotation(change) | Purpose::Faster(change)) =
        &way.purpose
    else {
        return (state, None);
    };
    let Some((wanted, hop)) = hop_at(policy, &mut state, change.hop) else { return (state, None) };
    let latency = |name: &NodeName| hop.shown.get(name).and_then(|shown| shown.latency_ms);
    let was_ms = change.from.as_ref().and_then(latency);
    let is_ms = latency(&change.to);
    let (name, to) = (hop.name.clone(), change.to.clone());
    if matches!(way.purpose, Purpose::Faster(_)) {
        hop.winner = Some(to.clone());
    }
    if let Some(member) = way.tries.get(change.hop) {
        let confirmed = Confirmed { member: member.clone(), life: way.life.clone() };
        hop.put(wanted, confirmed, now);
    }
    let from = change.from.clone();
    let reason = match &way.purpose {
        Purpose::Return(_) => Reason::Returned { hop: name, from, node: to },
        Purpose::Rotation(_) => Reason::Rotated { hop: name, from, node: to },
        Purpose::Faster(_)
        | Purpose::Again
        | Purpose::Build
        | Purpose::Switch { .. }
        | Purpose::Retries(_)
        | Purpose::Rebuild(_)
        | Purpose::Combos(_) => Reason::Faster { hop: name, from, node: to, was_ms, is_ms },
    };
    (state, Some(reason))
}

/// The change of one hop did not carry.
pub(super) fn failed(
    policy: &ChainPolicy,
    way: &UnderWay,
    legs: &Legs,
    now: &Moment,
) -> (ChainState, Option<Reason>) {
    let mut state = way.base.clone();
    let (Purpose::Return(change) | Purpose::Rotation(change) | Purpose::Faster(change)) =
        &way.purpose
    else {
        return (state, None);
    };
    let Change { hop: place, to: node, .. } = change.clone();
    let why = legs.path.as_ref().map(|path| path.why.clone()).unwrap_or_default();
    let Some((_, hop)) = hop_at(policy, &mut state, place) else { return (state, None) };
    let name = hop.name.clone();
    hop.changed = Some(now.clone());
    hop.better = None;
    let reason = match &way.purpose {
        Purpose::Return(_) => {
            let sec = hop.marks.mark(&node, Fault::Return, &policy.params, now);
            hop.passes = 0;
            hop.enter(Mode::Backup, now);
            Reason::ReturnFailed { hop: name, node, sec, why }
        }
        Purpose::Rotation(_) => {
            let sec = hop.marks.mark(&node, Fault::Blamed, &policy.params, now);
            Reason::RotationFailed { hop: name, node, sec, why }
        }
        Purpose::Faster(_)
        | Purpose::Again
        | Purpose::Build
        | Purpose::Switch { .. }
        | Purpose::Retries(_)
        | Purpose::Rebuild(_)
        | Purpose::Combos(_) => Reason::FasterFailed { hop: name, node, why },
    };
    (state, Some(reason))
}

/// A search is over.
pub(super) fn over(
    policy: &ChainPolicy,
    way: &UnderWay,
    seats: &Seats,
    verdicts: &Verdicts,
    now: &Moment,
) -> (ChainState, Vec<Reason>, Settled) {
    let mut end = End { policy, way, now, state: way.base.clone(), reasons: Vec::new() };
    let mended = match &way.purpose {
        Purpose::Rebuild(rebuild) => {
            end.put(seats, rebuild.lost);
            for (place, node) in &rebuild.replaced {
                end.mark(*place, node, seats);
            }
            for (place, node) in &rebuild.blamed {
                end.blame(*place, node, seats);
            }
            if let Some(legs) = &rebuild.proven {
                end.state.path.clone_from(&legs.path);
                rows::reopen(policy, &mut end.state, legs, now, &mut Vec::new());
            }
            if let Some(place) = rebuild.lost {
                let tried = rebuild.tried.get(place).map_or(0, std::collections::BTreeSet::len);
                end.lose(place, seats, tried);
            } else if !verdicts.finished
                && let Some((_, hop)) = hop_at(policy, &mut end.state, rebuild.broken)
            {
                let tried = rebuild.tried.get(rebuild.broken).cloned().unwrap_or_default();
                let count = tried.len();
                hop.tried.extend(tried);
                let hop = hop.name.clone();
                end.reasons.push(Reason::NotFinished { hop: Some(hop), tried: count });
            }
            if let Some(place) = rebuild.waits {
                end.waits(place, &verdicts.legs);
            }
            rebuild.proven.is_some()
        }
        Purpose::Combos(combos) => {
            end.state.place = combos.place;
            if !combos.mended.is_empty() {
                end.put(seats, None);
                end.state.path.clone_from(&verdicts.legs.path);
                end.state.path_failures = 0;
                for (place, _) in &combos.mended {
                    let member = way.before.get(*place);
                    let old = policy.hops.get(*place).zip(member);
                    let old = old.and_then(|(hop, member)| hop.of_member(member));
                    if let Some(old) = old {
                        end.mark(*place, &old.name, seats);
                    }
                }
                rows::reopen(policy, &mut end.state, &verdicts.legs, now, &mut Vec::new());
            } else if combos.is_lost {
                for place in 0..seats.len() {
                    end.lose(place, seats, 0);
                }
            } else {
                end.reasons.push(Reason::NotFinished { hop: None, tried: combos.place });
            }
            !combos.mended.is_empty()
        }
        Purpose::Again
        | Purpose::Build
        | Purpose::Switch { .. }
        | Purpose::Retries(_)
        | Purpose::Return(_)
        | Purpose::Rotation(_)
        | Purpose::Faster(_) => false,
    };
    end.state.restate(now);
    let settled = if mended { Settled::Applied } else { Settled::RolledBack };
    (end.state, end.reasons, settled)
}

struct End<'a> {
    policy: &'a ChainPolicy,
    way: &'a UnderWay,
    now: &'a Moment,
    state: ChainState,
    reasons: Vec<Reason>,
}

impl End<'_> {
    /// What stands now is remembered, hop by hop.
    fn put(&mut self, seats: &Seats, lost: Option<usize>) {
        for (place, (seat, before)) in seats.iter().zip(&self.way.before).enumerate() {
            let confirmed = Confirmed { member: seat.clone(), life: self.way.life.clone() };
            let Some((wanted, hop)) = hop_at(self.policy, &mut self.state, place) else { continue };
            if seat == before || lost == Some(place) {
                hop.confirmed = confirmed;
                continue;
            }
            let from = wanted.of_member(before).map(|node| node.name.clone());
            hop.put(wanted, confirmed, self.now);
            hop.is_new = false;
            if let Some(node) = hop.node(wanted) {
                let (hop, to) = (hop.name.clone(), node.name.clone());
                self.reasons.push(Reason::Replaced { hop, from, to });
            }
        }
    }

    fn carries(&self, place: usize, node: &NodeName, seats: &Seats) -> bool {
        let hop = self.policy.hops.get(place).zip(seats.get(place));
        let carries = hop.and_then(|(hop, seat)| hop.of_member(seat));
        carries.is_some_and(|carries| carries.name == *node)
    }

    /// A node was replaced.
    fn mark(&mut self, place: usize, node: &NodeName, seats: &Seats) {
        if self.carries(place, node, seats) {
            return;
        }
        let params = &self.policy.params;
        let Some((_, hop)) = hop_at(self.policy, &mut self.state, place) else { return };
        hop.marks.mark(node, Fault::Blamed, params, self.now);
        hop.blamed.remove(node);
    }

    /// A node was tried, and failed by itself.
    fn blame(&mut self, place: usize, node: &NodeName, seats: &Seats) {
        let limit = self.policy.params.max_fails;
        let Some((_, hop)) = hop_at(self.policy, &mut self.state, place) else { return };
        let blamed = hop.blamed.entry(node.clone()).or_insert(0);
        *blamed = blamed.saturating_add(1).min(limit);
        if *blamed >= limit {
            self.mark(place, node, seats);
        }
    }

    /// No node of a hop passes.
    fn lose(&mut self, place: usize, seats: &Seats, tried: usize) {
        let all_failed = self.policy.params.all_failed;
        let now = self.now;
        let Some((wanted, hop)) = hop_at(self.policy, &mut self.state, place) else { return };
        if let Some(seat) = seats.get(place) {
            hop.confirmed = Confirmed { member: seat.clone(), life: self.way.life.clone() };
        }
        let name = hop.name.clone();
        let is_paused = hop.paused.is_some();
        let mode = match all_failed {
            AllFailed::LastResort if !is_paused => Mode::LastResort,
            AllFailed::LastResort | AllFailed::Closed => Mode::Closed,
        };
        hop.enter(mode, now);
        hop.is_new = false;
        hop.passes = 0;
        hop.better = None;
        hop.tried.clear();
        hop.down_steps = hop.down_steps.saturating_add(1);
        let node = hop.node(wanted).map(|node| node.name.clone());
        self.reasons.push(match mode {
            Mode::LastResort => Reason::LastResort { hop: name, node },
            Mode::Preferred | Mode::Backup | Mode::Returning | Mode::Closed => {
                Reason::Closed { hop: name, tried, paused: is_paused }
            }
        });
    }

    /// A hop behind what was mended failed for the first time.
    fn waits(&mut self, place: usize, legs: &Legs) {
        self.reasons.extend(blame(self.policy, &mut self.state, place, legs));
    }
}
