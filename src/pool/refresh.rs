//! A new pool: fetched, tested, loaded, proven.
//!
//! **Invariant:** the old pool outlives the proof of the new one, and a serving endpoint that is in
//! the new list and passed is not touched.

use super::ask;
use super::candidate::{Candidate, List, Tested};
use super::health::Health;
use super::layout;
use super::reason::Reason;
use super::state::{Mode, Slot};
use super::turn::Turn;
use crate::names::Interface;
use crate::observation::{ListQuestion, ListReading, Question, TrialResult};
use crate::policy::pool::Tool;
use crate::time::Moment;
use std::time::Duration;

/// Where an interval of 0 is a measure of time, it counts as this.
const ZERO_INTERVAL: Duration = Duration::from_secs(10);

/// How far a list has come.
enum Progress {
    /// Not finished in this step.
    Unfinished,
    /// No list, or a refused one.
    NoList(Reason),
    /// Tested: there is a list, and its results are known.
    Tested,
}

impl Turn<'_> {
    /// When the next refresh is due: `None` at once, else in so long.
    pub(super) fn refresh_wait(&self) -> Option<Duration> {
        let wait = if self.state.proven && !self.state.mode.is_direct() {
            Duration::from_secs(self.policy.params.hmn_refresh_retry_interval_sec)
        } else {
            Duration::from_secs(self.policy.params.bootstrap_retry_interval_sec)
        };
        let tried = self.state.refresh_tried_at.as_ref()?;
        wait.checked_sub(self.now.since(tried)).filter(|left| !left.is_zero())
    }

    /// Carries the refresh on.
    pub(super) fn refresh(&mut self) {
        if self.state.fresh.is_none()
            && !self.state.refresh_asked
            && let Some(left) = self.refresh_wait()
        {
            self.say(Reason::RefreshLater { in_sec: left.as_secs().max(1) });
            return;
        }
        match self.list_progress() {
            Progress::Unfinished => {}
            Progress::NoList(reason) => {
                self.say(reason);
                self.refresh_failed();
            }
            Progress::Tested => self.load_fresh(),
        }
    }

    /// The refresh came to nothing: service goes on with what works.
    fn refresh_failed(&mut self) {
        self.state.refresh_asked = false;
        self.state.refresh_tried_at = Some(self.now.clone());
        let Some(fresh) = self.state.fresh.take() else {
            return self.degrade();
        };
        // What passed joins the reserve of this generation and so leaves quarantine.
        let passed: Vec<(Candidate, Option<Tested>)> = fresh
            .passed()
            .into_iter()
            .map(|candidate| (candidate.clone(), fresh.tested.get(&candidate.name).cloned()))
            .collect();
        for (candidate, tested) in passed {
            self.state.quarantine.remove(&candidate.endpoint());
            if let Some(pool) = &mut self.state.pool {
                let endpoint = candidate.endpoint();
                pool.candidates
                    .retain(|old| old.endpoint() != endpoint && old.name != candidate.name);
                pool.struck.remove(&candidate.name);
                if let Some(tested) = tested {
                    pool.tested.insert(candidate.name.clone(), tested);
                }
                pool.candidates.push(candidate);
            }
        }
        self.degrade();
    }

    fn degrade(&mut self) {
        match self.state.mode {
            Mode::FullPoolRefresh if self.state.proven => self.enter(Mode::DegradedPool),
            Mode::FullPoolRefresh
            | Mode::Normal
            | Mode::LocalRepair
            | Mode::DegradedPool
            | Mode::SlotExhausted
            | Mode::DirectEmergency
            | Mode::BootstrapRecovery => {}
        }
    }

    /// Fetches the list and tests it, as far as this step goes.
    fn list_progress(&mut self) -> Progress {
        if self.state.fresh.is_none() {
            match self.seen.list() {
                None if self.may_ask => {
                    self.asks.push(Question::List(ListQuestion {
                        provider: self.policy.provider.clone(),
                        generation: self.state.last_generation.saturating_add(1),
                        amnezia: match self.policy.wireguard.tool {
                            Tool::Awg => true,
                            Tool::Wg => false,
                        },
                    }));
                    return Progress::Unfinished;
                }
                None => return Progress::Unfinished,
                Some(ListReading::Unavailable { why }) => {
                    return Progress::NoList(Reason::ProviderUnavailable { why: why.clone() });
                }
                Some(ListReading::Listed { candidates, rejected }) => {
                    if candidates.is_empty() {
                        let why = rejected.first().map_or_else(
                            || "it has no entries".to_owned(),
                            |first| format!("no entry is usable; {}: {}", first.name, first.why),
                        );
                        return Progress::NoList(Reason::ListRefused { why });
                    }
                    if let Some(why) = self.too_short(candidates.len()) {
                        return Progress::NoList(Reason::ListRefused { why });
                    }
                    let generation = self.state.last_generation.saturating_add(1);
                    self.state.last_generation = generation;
                    self.state.fresh =
                        Some(List::new(generation, self.now.clone(), candidates.clone()));
                }
            }
        }
        self.test_fresh()
    }

    /// Why a list is too short to be believed, if it is.
    fn too_short(&self, usable: usize) -> Option<String> {
        let last = self.state.pool.as_ref()?.candidates.len();
        if self.serving().is_empty() {
            return None;
        }
        let ratio = self.policy.params.refresh_min_ratio;
        let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        (count(usable) < ratio * count(last))
            .then(|| format!("it has {usable} usable entries and the last good one had {last}"))
    }

    /// Records what trials and the slots' own probes showed, and asks for the next batch.
    fn test_fresh(&mut self) -> Progress {
        let Some(mut fresh) = self.state.fresh.take() else { return Progress::Unfinished };
        for (trial, reading) in self.seen.trials() {
            let tested = match &reading.result {
                TrialResult::Passed { latency_ms } => {
                    Tested::Passed { at: reading.at.clone(), latency_ms: *latency_ms }
                }
                TrialResult::Failed { why } => {
                    Tested::Failed { at: reading.at.clone(), why: why.clone() }
                }
                TrialResult::Assumed => Tested::Passed { at: reading.at.clone(), latency_ms: 0 },
                TrialResult::NotTried { why } => {
                    Tested::Failed { at: reading.at.clone(), why: format!("not tried: {why}") }
                }
            };
            if trial.config.generation == fresh.generation {
                fresh.tested.insert(trial.name.clone(), tested);
            }
        }
        self.test_by_slots(&mut fresh);
        let batch = self.next_batch(&fresh);
        let (tested, passed) = (fresh.tested.len(), fresh.passed().len());
        let listed = fresh.candidates.len();
        self.state.fresh = Some(fresh);
        if batch.is_empty() {
            return Progress::Tested;
        }
        if self.may_ask && self.time_left() {
            self.asks.extend(batch);
        }
        self.say(Reason::Testing { tested, passed, listed });
        Progress::Unfinished
    }

    /// An endpoint that is up in a slot is tested by that slot's own probe.
    fn test_by_slots(&self, fresh: &mut List) {
        for interface in self.slots() {
            let Some(active) = self.state.slots.get(interface).and_then(Slot::loaded) else {
                continue;
            };
            let tested = match self.sight.health.get(interface) {
                Some(Health::Healthy { latency_ms, .. }) if self.state.serves(interface) => {
                    Tested::Passed { at: self.now.clone(), latency_ms: latency_ms.unwrap_or(0) }
                }
                Some(Health::Healthy { .. } | Health::Failed(_)) => {
                    Tested::Failed { at: self.now.clone(), why: "failing in its slot".to_owned() }
                }
                Some(Health::Unknown(_)) | None => continue,
            };
            let same: Vec<String> = fresh
                .candidates
                .iter()
                .filter(|c| c.endpoint() == active.endpoint() || c.same_pair(active))
                .map(|candidate| candidate.name.clone())
                .collect();
            for name in same {
                fresh.tested.entry(name).or_insert_with(|| tested.clone());
            }
        }
    }

    /// Testing takes at most the time until the next check is due, and one batch at least.
    fn time_left(&self) -> bool {
        let interval = match self.policy.params.health_check_interval_sec {
            0 => ZERO_INTERVAL,
            seconds => Duration::from_secs(seconds),
        };
        let spent = self.now.since(&self.seen.started);
        self.seen.trials().next().is_none() || spent < interval
    }

    /// The next trials, side by side. Empty when nothing is left to test or enough have passed.
    fn next_batch(&mut self, fresh: &List) -> Vec<Question> {
        if fresh.passed().len() >= self.policy.test.enough.max(self.slots().len()) {
            return Vec::new();
        }
        let untested: Vec<Candidate> = fresh
            .untested()
            .into_iter()
            .filter(|candidate| !self.state.is_active(candidate))
            .cloned()
            .collect();
        let mut batch: Vec<Candidate> = Vec::new();
        let interfaces = self.policy.test.interfaces();
        for candidate in &untested {
            if batch.len() < interfaces.len() && !batch.iter().any(|b| b.same_pair(candidate)) {
                batch.push(candidate.clone());
            }
        }
        if self.ask_names(&batch) {
            return Vec::new();
        }
        batch
            .iter()
            .zip(&interfaces)
            .filter_map(|(candidate, interface)| {
                ask::trial(self.policy, &self.state, self.surroundings, candidate, interface)
            })
            .collect()
    }

    /// Loads what passed, the working slots last and one at a time.
    fn load_fresh(&mut self) {
        if !self.asks.is_empty() {
            return;
        }
        let Some(fresh) = self.state.fresh.clone() else { return };
        let passed: Vec<Candidate> = fresh
            .passed()
            .into_iter()
            .filter(|candidate| !fresh.struck.contains_key(&candidate.name))
            .cloned()
            .collect();
        let slots = self.slots().len();
        let wanted = if self.state.mode.is_direct() {
            self.policy.min_slots_to_exit_direct()
        } else if self.state.proven {
            slots
        } else {
            1
        };
        if passed.len() < wanted {
            let why = fresh
                .tested
                .values()
                .find_map(|tested| match tested {
                    Tested::Failed { why, .. } => Some(why.clone()),
                    Tested::Passed { .. } => None,
                })
                .unwrap_or_else(|| "too few".to_owned());
            if passed.is_empty() {
                self.say(Reason::NonePassed { tested: fresh.tested.len(), why });
            } else {
                self.say(Reason::FewerSlots { serving: passed.len(), slots });
            }
            return self.refresh_failed();
        }
        let keeps = |turn: &Self, slot: &Interface| {
            turn.state.serves(slot)
                && turn.state.slots.get(slot).and_then(Slot::loaded).is_some_and(|active| {
                    passed.iter().any(|candidate| candidate.endpoint() == active.endpoint())
                })
        };
        let idle: Vec<Interface> =
            self.slots().iter().filter(|slot| !self.state.serves(slot)).cloned().collect();
        let working: Vec<Interface> = self
            .slots()
            .iter()
            .filter(|slot| self.state.serves(slot) && !keeps(self, slot))
            .cloned()
            .collect();
        let now: Vec<Interface> =
            if idle.is_empty() { working.iter().take(1).cloned().collect() } else { idle };
        let mut filled = 0;
        for slot in &now {
            let free = passed.iter().find(|candidate| {
                !self.state.is_active(candidate)
                    && layout::endpoint_of(&self.state, candidate).is_some()
            });
            if let Some(candidate) = free.cloned() {
                self.load(slot, &candidate, false);
                filled += 1;
            } else if !self.state.serves(slot) {
                self.empty(slot);
            }
        }
        if filled > 0 {
            self.say(Reason::Loaded { slots: filled, generation: fresh.generation });
        }
        let left = working.iter().filter(|slot| !now.contains(slot)).count();
        if left == 0 {
            self.adopt(fresh);
        }
    }

    /// The new list becomes the pool.
    fn adopt(&mut self, fresh: List) {
        let complete = self
            .slots()
            .iter()
            .all(|slot| self.state.slots.get(slot).is_some_and(|s| s.loaded().is_some()));
        let was_direct = self.state.mode.is_direct();
        self.state.fresh = None;
        self.state.pool = Some(fresh);
        self.state.proven = true;
        self.state.refresh_asked = false;
        self.state.refresh_tried_at = Some(self.now.clone());
        self.state.none_serves_since = None;
        self.state.bootstrap = super::state::Bootstrap::default();
        if complete {
            self.state.repair_events_since_full_refresh = 0;
            self.state.quarantine.clear();
            self.enter(Mode::Normal);
        } else {
            if !was_direct {
                self.state.quarantine.clear();
            }
            let serving = self.serving().len();
            self.say(Reason::FewerSlots { serving, slots: self.slots().len() });
            self.enter(Mode::DegradedPool);
        }
    }

    /// Whether a moment lies less than `wait` back.
    pub(super) fn within(&self, since: &Moment, wait: Duration) -> bool {
        self.now.since(since) < wait
    }
}
