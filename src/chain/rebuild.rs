//! The search for nodes that carry, hop by hop from the first broken one on.
//!
//! **Invariant:** a hop that is neither broken nor before a broken one is as it was; no hop has more
//! tries in a step than it has other nodes.

use super::legs::{Break, Legs};
use super::name::NodeName;
use super::state::{ChainState, HopState};
use super::under_way::Seats;
use crate::policy::ChainPolicy;
use crate::policy::chain::{AllFailed, Hop};
use crate::proxy::Verdict;
use crate::time::Moment;
use std::collections::{BTreeSet, VecDeque};

/// A search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// What is kept when nothing more helps: what stood, with what was mended.
    pub kept: Seats,
    /// The broken hop.
    pub broken: usize,
    /// The hop whose nodes are tried: the broken one, or one before it.
    pub suspect: usize,
    queue: VecDeque<NodeName>,
    /// What was tried in this step, by hop.
    pub tried: Vec<BTreeSet<NodeName>>,
    /// Candidates of the broken hop that did not pass. Whose fault that is, is not known yet.
    failed: Vec<NodeName>,
    /// Nodes that were replaced, with the places of their hops.
    pub replaced: Vec<(usize, NodeName)>,
    /// Nodes that were tried and are to blame themselves, with the places of their hops.
    pub blamed: Vec<(usize, NodeName)>,
    /// What the legs showed of what is kept, once something was mended.
    pub proven: Option<Legs>,
    /// The hop of which no node passes.
    pub lost: Option<usize>,
    /// A hop behind the mended ones that broke for the first time, and is waited for.
    pub waits: Option<usize>,
}

/// What a search is made of.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) policy: &'a ChainPolicy,
    pub(super) state: &'a ChainState,
    pub(super) now: &'a Moment,
}

impl<'a> Field<'a> {
    fn hop(&self, place: usize) -> Option<(&'a Hop, &'a HopState)> {
        self.policy.hops.get(place).zip(self.state.hops.get(place))
    }

    /// The other nodes of a hop in the order in which they are tried: those that are not marked, then
    /// the oldest mark; what failed its last test, and what was tried in vain before, comes later.
    pub(super) fn candidates(&self, place: usize, carries: &str) -> Vec<NodeName> {
        let Some((wanted, hop)) = self.hop(place) else { return Vec::new() };
        let others = wanted.nodes.iter().filter(|node| node.member != carries);
        let mut all: Vec<&NodeName> = others.map(|node| &node.name).collect();
        // Marks do not count where nothing passes.
        let mark = |name: &NodeName| {
            let since = if hop.mode.is_down() { None } else { hop.marks.since(name, self.now) };
            since.map(|at| u128::MAX - self.now.since(at).as_millis())
        };
        let fails = |name: &NodeName| {
            hop.shown
                .get(name)
                .is_some_and(|shown| shown.verdict == Verdict::Failed && shown.at >= *self.now)
        };
        all.sort_by_key(|name| (hop.tried.contains(*name), mark(name), fails(name)));
        all.into_iter().cloned().collect()
    }

    /// Whether another node is due for a broken hop that was blamed once more.
    pub(super) fn is_ripe(&self, place: usize, carries: &str, more: u32) -> bool {
        let Some((wanted, hop)) = self.hop(place) else { return false };
        let Some(node) = wanted.of_member(carries) else { return true };
        let blamed = hop.blamed.get(&node.name).copied().unwrap_or(0).saturating_add(more);
        hop.is_new || hop.mode.is_down() || blamed >= self.policy.params.max_fails
    }

    /// Whether what stands in a hop is no node of the policy, and no person's choice either.
    pub(super) fn is_gone(&self, place: usize, seats: &Seats) -> bool {
        !self.is_paused(place) && self.name(place, seats).is_none()
    }

    /// Whether a hop is left alone.
    pub(super) fn is_paused(&self, place: usize) -> bool {
        self.hop(place).is_some_and(|(_, hop)| hop.paused.is_some())
    }

    /// What stands when no node of these hops passes.
    pub(super) fn at_rest(&self, kept: &Seats, is_lost: impl Fn(usize) -> bool) -> Seats {
        let seat = |(place, seat): (usize, &String)| match self.policy.params.all_failed {
            AllFailed::LastResort if is_lost(place) && !self.is_paused(place) => {
                let preferred = self.hop(place).and_then(|(wanted, hop)| hop.preferred(wanted));
                preferred.map_or_else(|| seat.clone(), |node| node.member.clone())
            }
            AllFailed::LastResort | AllFailed::Closed => seat.clone(),
        };
        kept.iter().enumerate().map(seat).collect()
    }

    fn member(&self, place: usize, name: &NodeName) -> Option<String> {
        let (wanted, _) = self.hop(place)?;
        wanted.node(name).map(|node| node.member.clone())
    }

    fn name(&self, place: usize, seats: &Seats) -> Option<NodeName> {
        let (wanted, _) = self.hop(place)?;
        wanted.of_member(seats.get(place)?).map(|node| node.name.clone())
    }

    /// Whether requests may leave by what stands there.
    fn has_leg(&self, place: usize, seats: &Seats) -> bool {
        let node = self.hop(place).zip(seats.get(place));
        node.and_then(|((wanted, _), member)| wanted.of_member(member))
            .is_none_or(|node| node.egress)
    }
}

/// What a search comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This is put in place and asked.
    Try(Seats),
    /// It is over, and this is to stand.
    Over(Seats),
}

impl Rebuild {
    /// Begins at a broken hop.
    pub(super) fn begin(field: Field<'_>, broken: usize, stands: &Seats) -> (Self, Next) {
        let mut rebuild = Self {
            kept: stands.clone(),
            broken,
            suspect: broken,
            queue: VecDeque::new(),
            tried: vec![BTreeSet::new(); stands.len()],
            failed: Vec::new(),
            replaced: Vec::new(),
            blamed: Vec::new(),
            proven: None,
            lost: None,
            waits: None,
        };
        let next = rebuild.broke(field, broken);
        (rebuild, next)
    }

    /// Goes on at this broken hop.
    fn broke(&mut self, field: Field<'_>, broken: usize) -> Next {
        (self.broken, self.suspect) = (broken, broken);
        self.failed.clear();
        if field.is_paused(broken) {
            self.lost = Some(broken);
            return Next::Over(self.kept.clone());
        }
        self.queue = self.queue_of(field, broken);
        self.next(field)
    }

    fn queue_of(&self, field: Field<'_>, place: usize) -> VecDeque<NodeName> {
        let carries = self.kept.get(place).map(String::as_str).unwrap_or_default();
        let tried = self.tried.get(place);
        let mut queue = field.candidates(place, carries);
        let others = queue.len();
        queue.retain(|name| tried.is_none_or(|tried| !tried.contains(name)));
        queue.truncate(others.saturating_sub(tried.map_or(0, BTreeSet::len)));
        queue.into()
    }

    /// The next try, or the end.
    fn next(&mut self, field: Field<'_>) -> Next {
        loop {
            if let Some(name) = self.queue.pop_front() {
                let Some(member) = field.member(self.suspect, &name) else { continue };
                if let Some(tried) = self.tried.get_mut(self.suspect) {
                    tried.insert(name);
                }
                let mut seats = self.kept.clone();
                if self.suspect != self.broken {
                    set(&mut seats, self.broken, self.base(field));
                }
                if field.state.hindrance(field.policy, &seats, self.suspect, &member).is_some() {
                    continue;
                }
                set(&mut seats, self.suspect, member);
                return Next::Try(seats);
            }
            let Some(before) = self.before(field) else {
                self.lost = Some(self.broken);
                return Next::Over(field.at_rest(&self.kept, |place| place == self.broken));
            };
            self.suspect = before;
            self.queue = self.queue_of(field, before);
        }
    }

    /// The hop before, whose nodes may be the cause; further back where that one has no leg to show it.
    fn before(&self, field: Field<'_>) -> Option<usize> {
        if self.suspect != self.broken && field.has_leg(self.suspect, &self.kept) {
            return None;
        }
        let before = self.suspect.checked_sub(1)?;
        (!field.is_paused(before)).then_some(before)
    }

    /// What stands at the broken hop while nodes of the hop before it are tried: as it was, and where
    /// that did not help before, one after the other, since both may have a dead node.
    fn base(&self, field: Field<'_>) -> String {
        let kept = self.kept.get(self.broken).cloned().unwrap_or_default();
        let Some((wanted, hop)) = field.hop(self.broken) else { return kept };
        let steps = usize::try_from(hop.down_steps).unwrap_or(usize::MAX);
        let stands = wanted.nodes.iter().position(|node| node.member == kept);
        let place = match stands {
            Some(place) => place.wrapping_add(steps),
            None => steps,
        };
        let node = place.checked_rem(wanted.nodes.len()).and_then(|place| wanted.nodes.get(place));
        node.map_or(kept, |node| node.member.clone())
    }

    /// Judges what was put in place.
    pub(super) fn judged(&mut self, field: Field<'_>, tries: &Seats, legs: &Legs) -> Next {
        // A hop without a leg is judged by the next one that has one.
        let shown = (self.broken..tries.len()).find_map(|place| legs.verdict(place));
        if !legs.passes() && shown != Some(Verdict::Passed) {
            let failed = legs.verdict(self.broken) == Some(Verdict::Failed);
            if failed && self.suspect == self.broken {
                self.failed.extend(field.name(self.broken, tries));
            }
            return self.next(field);
        }
        let old = field.name(self.suspect, &self.kept);
        self.replaced.extend(old.map(|name| (self.suspect, name)));
        if self.suspect == self.broken {
            let failed = std::mem::take(&mut self.failed);
            self.blamed.extend(failed.into_iter().map(|name| (self.broken, name)));
        }
        self.kept.clone_from(tries);
        self.proven = Some(legs.clone());
        match legs.breaks(|place| field.is_gone(place, tries)) {
            Break::At(broken) => {
                let carries = tries.get(broken).map(String::as_str).unwrap_or_default();
                if broken > self.broken && !field.is_ripe(broken, carries, 1) {
                    self.waits = Some(broken);
                    return Next::Over(self.kept.clone());
                }
                self.broke(field, broken)
            }
            Break::Nowhere | Break::Outside(_) | Break::Unknown(_) => Next::Over(self.kept.clone()),
        }
    }

    /// There is no time to go on to what is untried: what was mended stays. A hop of which every node
    /// was tried, in this step or those before, has none that passes.
    pub(super) fn stop(&mut self, field: Field<'_>, untried: &Seats) -> Seats {
        if let (Some(tried), Some(name)) =
            (self.tried.get_mut(self.suspect), field.name(self.suspect, untried))
        {
            tried.remove(&name);
        }
        let carries = self.kept.get(self.broken).map(String::as_str).unwrap_or_default();
        let before = field.hop(self.broken).map(|(_, hop)| &hop.tried);
        let is_tried = |name: &NodeName| {
            self.tried.get(self.broken).is_some_and(|tried| tried.contains(name))
                || before.is_some_and(|before| before.contains(name))
        };
        if field.candidates(self.broken, carries).iter().all(is_tried) {
            self.lost = Some(self.broken);
            return field.at_rest(&self.kept, |place| place == self.broken);
        }
        self.kept.clone()
    }
}

fn set(seats: &mut Seats, place: usize, member: String) {
    if let Some(seat) = seats.get_mut(place) {
        *seat = member;
    }
}
