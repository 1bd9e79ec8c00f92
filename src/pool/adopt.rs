//! A list that was tested: loaded, and made the pool.
//!
//! **Invariant:** the old pool outlives the proof of the new one, and a serving endpoint that is in
//! the new list and passed is not touched.

use super::ask;
use super::candidate::{Candidate, EndpointId, List, Tested};
use super::reason::Reason;
use super::spread::least_shared;
use super::state::{Bootstrap, Content, Mode, Slot, is_later};
use super::taken::Taken;
use super::testing::is_same;
use super::turn::Turn;
use crate::names::Interface;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Turn<'_> {
    /// What passed joins the reserve of this generation and so leaves quarantine.
    pub(super) fn join(&mut self, fresh: &List) {
        let mut endpoints: BTreeSet<EndpointId> = BTreeSet::new();
        let good = self.state.good(fresh).into_iter();
        let good: Vec<Candidate> =
            good.filter(|candidate| endpoints.insert(candidate.endpoint())).cloned().collect();
        self.state.quarantine.retain(|endpoint, _| !endpoints.contains(endpoint));
        let Some(pool) = &mut self.state.pool else { return };
        let names: BTreeSet<&str> = good.iter().map(|candidate| candidate.name.as_str()).collect();
        let candidates = Arc::make_mut(&mut pool.candidates);
        candidates.retain(|old| {
            !names.contains(old.name.as_str()) && !endpoints.contains(&old.endpoint())
        });
        for candidate in &good {
            pool.struck.remove(&candidate.name);
            if let Some(struck) = fresh.struck.get(&candidate.name) {
                pool.struck.insert(candidate.name.clone(), *struck);
            }
            if let Some(tested) = fresh.tested.get(&candidate.name) {
                pool.note(candidate.name.clone(), tested.clone());
            }
        }
        Arc::make_mut(&mut pool.candidates).extend(good);
    }

    /// Loads what passed, the working slots last and one at a time.
    pub(super) fn load_fresh(&mut self) {
        if !self.asks.is_empty() {
            return;
        }
        let Some(fresh) = self.state.fresh.clone() else { return };
        let loadable = self.loadable(&fresh);
        let (listed, active) = (loadable.iter().collect::<Taken<'_>>(), self.state.active());
        let kept = |slot: &Interface| {
            let slot_of = self.state.slots.get(slot);
            let active = slot_of.and_then(Slot::candidate);
            // A lent slot that answers is of the new set too, if its endpoint is listed.
            let lent = slot_of.is_some_and(|slot| matches!(slot.content, Content::Lent(_)));
            (self.state.serves(slot) || (lent && self.answers(slot)))
                && active.is_some_and(|active| listed.holds(active))
        };
        let (keeps, rest): (Vec<Interface>, Vec<Interface>) =
            self.slots().iter().cloned().partition(kept);
        let mut free = loadable.iter().filter(|c| !active.holds(c)).cloned().collect::<Vec<_>>();
        let wanted = if self.state.mode.is_direct() {
            self.policy.min_slots_to_exit_direct()
        } else if self.state.proven {
            self.slots().len()
        } else {
            1
        };
        let found = keeps.len().saturating_add(free.len());
        if found < wanted {
            let reason = self.too_few(&fresh, found);
            let why = reason.to_string();
            self.say(reason);
            match self.last_pool().filter(|_| !self.is_last_pool(&fresh)) {
                Some(last) => {
                    self.counted.short = Some(fresh.clone());
                    self.state.short = Some(fresh);
                    self.try_last_pool(last);
                }
                None => self.refresh_failed(why),
            }
            return;
        }
        self.take_back(&keeps, &loadable);
        let (working, idle): (Vec<Interface>, Vec<Interface>) =
            rest.into_iter().partition(|slot| self.state.serves(slot));
        let one_at_a_time = idle.is_empty();
        let mut filled = 0;
        for slot in &idle {
            if let Some(candidate) = self.pick(slot, &mut free) {
                self.load_new(slot, &candidate);
                filled += 1;
            } else {
                self.empty(slot);
            }
        }
        let mut waiting = working.len().min(free.len());
        if one_at_a_time
            && let Some(slot) = working.first()
            && let Some(candidate) = self.pick(slot, &mut free)
        {
            self.load_new(slot, &candidate);
            filled += 1;
            waiting = waiting.saturating_sub(1);
        }
        if filled > 0 {
            self.say(Reason::Loaded { slots: filled, generation: fresh.generation });
        }
        if waiting == 0 {
            self.adopt(fresh);
        }
    }

    /// Takes the best for a slot out of what is free.
    fn pick(&self, slot: &Interface, free: &mut Vec<Candidate>) -> Option<Candidate> {
        let best = least_shared(self.policy, &self.state, slot, free.iter())?.clone();
        free.retain(|candidate| *candidate != best);
        Some(best)
    }

    /// A lent slot that is kept is loaded from now on, and must carry a request like any other.
    fn take_back(&mut self, keeps: &[Interface], loadable: &[Candidate]) {
        for interface in keeps {
            let Some(slot) = self.state.slots.get_mut(interface) else { continue };
            if let Content::Lent(lent) = &slot.content
                && let Some(listed) = loadable.iter().find(|c| is_same(c, lent))
            {
                let listed = listed.clone();
                slot.content = Content::Loaded(listed.clone());
                self.state.quarantine.remove(&listed.endpoint());
                self.loaded.push(interface.clone());
            }
        }
    }

    /// Direct ends on slots that were seen to carry requests in this very step: one that serves and
    /// did not answer, as when it cannot be judged, is proven like a new one.
    fn prove_unseen(&mut self) {
        for slot in self.serving() {
            if !self.answers(&slot) && !self.loaded.contains(&slot) {
                self.loaded.push(slot);
            }
        }
    }

    /// Loads what passed a new test in a new list, and so is no longer quarantined.
    fn load_new(&mut self, slot: &Interface, candidate: &Candidate) {
        self.state.quarantine.remove(&candidate.endpoint());
        self.load(slot, candidate, false);
    }

    /// Why a list does not do.
    fn too_few(&self, fresh: &List, found: usize) -> Reason {
        if found > 0 {
            return Reason::TooFew { passed: found, slots: self.slots().len() };
        }
        let failed = fresh.tested.values().find_map(|tested| match tested {
            Tested::Failed { why, .. } => Some(why.clone()),
            Tested::Passed { .. } => None,
        });
        let why = failed.unwrap_or_else(|| "all that passed had failed in a slot".to_owned());
        Reason::NonePassed { tested: fresh.tested.len(), why }
    }

    /// Of the old quarantine only what is younger than the new list stays. What ends with it is told,
    /// and so stands in history.
    fn archive_quarantine(&mut self, fresh: &List) {
        self.state.quarantine.retain(|_, q| !is_later(&fresh.fetched_at, &q.since));
        let Some(generation) = self.state.pool.as_ref().map(|pool| pool.generation) else { return };
        let before = self.counted.quarantine.iter();
        let over = before.filter(|(endpoint, _)| !self.state.quarantine.contains_key(*endpoint));
        let endpoints: Vec<(String, String)> =
            over.map(|(_, q)| (q.name.clone(), q.why.clone())).collect();
        if !endpoints.is_empty() {
            self.say(Reason::QuarantineArchived { generation, endpoints });
        }
    }

    /// The new list becomes the pool, or, where it does not fill every slot, joins the one there is.
    fn adopt(&mut self, fresh: List) {
        // What was in the pool before is no full refresh, however many slots it fills.
        let complete = !self.any_failed_or_empty() && !self.is_last_pool(&fresh);
        self.state.fresh = None;
        self.state.short = None;
        self.state.refresh_asked = None;
        self.state.refresh_failed = None;
        self.state.refresh_tried_at = Some(self.now.clone());
        self.state.bootstrap = Bootstrap::default();
        self.state.proven = true;
        let ends_direct = self.state.mode.is_direct();
        if complete || self.state.pool.is_none() {
            self.archive_quarantine(&fresh);
            self.state.pool = Some(fresh);
        } else {
            self.join(&fresh);
        }
        self.forget_names();
        if ends_direct {
            self.prove_unseen();
        }
        if complete {
            self.state.repair_events_since_full_refresh = 0;
            self.enter(Mode::Normal);
        } else {
            let serving = self.serving().len();
            self.say(Reason::FewerSlots { serving, slots: self.slots().len() });
            self.enter(Mode::DegradedPool);
        }
    }

    /// Forgets the addresses of hosts that nothing names any more, or lists that come and go would fill
    /// the state.
    fn forget_names(&mut self) {
        let mut kept = ask::hosts(self.policy, Some(&self.state));
        let lists = [&self.state.pool, &self.state.fresh, &self.state.short];
        let listed = lists.into_iter().flatten().flat_map(|list| list.candidates.iter());
        kept.extend(listed.map(|candidate| candidate.host.clone()));
        self.state.names.retain(|host, _| kept.contains(host));
    }
}
