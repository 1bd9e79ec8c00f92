//! A new pool: fetched, tested, loaded, proven.
//!
//! **Invariant:** the old pool outlives the proof of the new one, and a serving endpoint that is in
//! the new list and passed is not touched.

use super::candidate::{Candidate, EndpointId, List, Rejected, Tested};
use super::fetch::Fetched;
use super::reason::Reason;
use super::spread::least_shared;
use super::state::{Bootstrap, Content, Mode, ShortList, Slot, is_later};
use super::taken::Taken;
use super::testing::is_same;
use super::turn::Turn;
use crate::names::Interface;
use crate::observation::Validators;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The same list so often is believed, however short it is.
const BELIEVED: u32 = 3;

/// So many unusable entries are remembered for people to read; more are of one cause.
const LEFT_OUT: usize = 20;

/// How far a list has come.
pub(super) enum Progress {
    /// Not finished in this step.
    Unfinished,
    /// No list, or a refused one.
    NoList(Reason),
    /// Tested: there is a list, and its results are known.
    Tested,
}

impl Turn<'_> {
    /// When the next attempt is due: `None` at once, else in so long.
    fn refresh_wait(&self) -> Option<Duration> {
        let wait = if self.state.proven && !self.state.mode.is_direct() {
            Duration::from_secs(self.policy.params.hmn_refresh_retry_interval_sec)
        } else {
            Duration::from_secs(self.policy.params.bootstrap_retry_interval_sec)
        };
        let wait = wait.max(self.refusal_wait().unwrap_or(Duration::ZERO));
        let tried = self.state.refresh_tried_at.as_ref()?;
        wait.checked_sub(self.now.since(tried)).filter(|left| !left.is_zero())
    }

    /// Whether a list is being worked on, so that nothing has to be waited for.
    fn is_running(&self) -> bool {
        let tried = self.state.refresh_tried_at.as_ref();
        self.state.fresh.as_ref().is_some_and(|fresh| {
            // A list that gave too few was tried after it had come, and is kept to be tested again.
            !tried.is_some_and(|tried| is_later(tried, &fresh.fetched_at))
                || !fresh.tested.is_empty()
        })
    }

    /// Carries the refresh on.
    pub(super) fn refresh(&mut self) {
        if !self.is_running()
            && self.state.refresh_asked.is_none()
            && let Some(left) = self.refresh_wait()
        {
            let (in_sec, why) = (left.as_secs().max(1), self.state.refresh_failed.clone());
            self.say(Reason::RefreshLater { in_sec, why });
            return;
        }
        match self.list_progress() {
            Progress::Unfinished => {}
            Progress::NoList(reason) => {
                let why = reason.to_string();
                self.say(reason);
                match self.last_pool().filter(|_| self.has_tried_every_way()) {
                    Some(last) => self.try_last_pool(last),
                    None => self.refresh_failed(why),
                }
            }
            Progress::Tested => self.load_fresh(),
        }
    }

    /// The last pool, to be tested anew, where the policy lets it end Direct. What is quarantined
    /// stays so: the list is no younger than it was.
    fn last_pool(&self) -> Option<List> {
        let allowed = self.state.mode.is_direct() && self.policy.params.exit_direct_from_cache;
        let pool = self.state.pool.as_ref().filter(|_| allowed)?;
        let usable = pool.candidates.iter().filter(|listed| !self.state.is_quarantined(listed));
        let candidates: Vec<Candidate> = usable.cloned().collect();
        (!candidates.is_empty())
            .then(|| List::new(pool.generation, pool.fetched_at.clone(), candidates))
    }

    /// Tests the last pool in the place of a list.
    fn try_last_pool(&mut self, last: List) {
        self.state.fresh = Some(last);
        if let Progress::Tested = self.test_fresh() {
            self.load_fresh();
        }
    }

    /// Whether a list is the last pool tested anew.
    fn is_last_pool(&self, fresh: &List) -> bool {
        self.state.pool.as_ref().is_some_and(|pool| pool.generation == fresh.generation)
    }

    /// The refresh came to nothing: service goes on with what works, and why is told until a refresh
    /// comes to something.
    fn refresh_failed(&mut self, why: String) {
        self.state.refresh_failed = Some(why);
        self.state.refresh_asked = None;
        self.state.refresh_tried_at = Some(self.now.clone());
        self.state.ways_failed.clear();
        if self.state.mode.is_direct() {
            // The provider has answered; what it listed is tested again.
            if let Some(short) = self.state.short.take() {
                self.state.fresh = Some(short);
            }
            if let Some(fresh) = &mut self.state.fresh {
                fresh.tested = Arc::default();
                fresh.struck.clear();
            }
            return;
        }
        if let Some(fresh) = self.state.fresh.take() {
            self.join(&fresh);
        }
        if self.state.proven && self.state.mode == Mode::FullPoolRefresh {
            self.enter(Mode::DegradedPool);
        }
    }

    /// What passed joins the reserve of this generation and so leaves quarantine.
    fn join(&mut self, fresh: &List) {
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

    /// Fetches the list and tests it, as far as this step goes.
    fn list_progress(&mut self) -> Progress {
        let interval = Duration::from_secs(self.policy.params.hmn_refresh_retry_interval_sec);
        let stale = self.state.fresh.as_ref().is_some_and(|fresh| {
            let old = !self.within(&fresh.fetched_at, interval) || self.is_last_pool(fresh);
            !self.is_running() && old
        });
        if stale {
            self.state.fresh = self.state.short.take();
        }
        if self.state.fresh.is_some() {
            return self.test_fresh();
        }
        match self.fetch() {
            Fetched::Pending => Progress::Unfinished,
            Fetched::Nothing(reason) => Progress::NoList(reason),
            Fetched::List { candidates, rejected, validators } => {
                self.take_list(candidates, &rejected, validators)
            }
        }
    }

    /// Judges a list that came, and begins to test it.
    fn take_list(
        &mut self,
        candidates: Arc<Vec<Candidate>>,
        rejected: &[Rejected],
        validators: Option<Validators>,
    ) -> Progress {
        if candidates.is_empty() {
            let why = rejected.first().map_or_else(
                || "it has no entries".to_owned(),
                |first| format!("no entry is usable; {}: {}", first.name, first.why),
            );
            return Progress::NoList(Reason::ListRefused { why });
        }
        if let Some(why) = self.too_short(&candidates) {
            return Progress::NoList(Reason::ListRefused { why });
        }
        if let Some(first) = rejected.first() {
            let (name, why) = (first.name.clone(), first.why.clone());
            self.say(Reason::LeftOut { entries: rejected.len(), name, why });
        }
        let generation = self.state.last_generation.saturating_add(1);
        for state in [&mut self.state, &mut self.counted] {
            state.ways_failed.clear();
            state.refusals = 0;
            state.refusal_wait_sec = None;
        }
        self.state.last_generation = generation;
        let left_out = rejected.iter().take(LEFT_OUT).cloned().collect();
        let list = List::new(generation, self.now.clone(), candidates);
        self.state.short = None;
        self.keep_progress(List { validators, left_out, ..list });
        self.test_fresh()
    }

    /// Why a list is too short to be believed, if it is.
    fn too_short(&mut self, candidates: &[Candidate]) -> Option<String> {
        let last = self.state.pool.as_ref()?.candidates.len();
        let usable = candidates.len();
        let ratio = self.policy.params.refresh_min_ratio;
        let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        if self.serving().is_empty() || count(usable) >= ratio * count(last) {
            self.state.short_list = None;
            return None;
        }
        let endpoints = candidates.iter().map(Candidate::endpoint).collect();
        let times = match self.state.short_list.take() {
            Some(known) if known.endpoints == endpoints => known.times.saturating_add(1),
            Some(_) | None => 1,
        };
        if times >= BELIEVED {
            return None;
        }
        self.state.short_list = Some(ShortList { endpoints, times });
        Some(format!("it has {usable} usable entries and the last good one had {last}"))
    }

    /// Loads what passed, the working slots last and one at a time.
    fn load_fresh(&mut self) {
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
}
