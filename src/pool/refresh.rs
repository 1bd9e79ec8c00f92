//! A new list: when it is asked for, whether it is believed, and how far its test has come.
//!
//! **Invariant:** a list that is not believed, or that came to nothing, takes nothing from those that
//! work.

use super::candidate::{Candidate, List, Rejected};
use super::fetch::Fetched;
use super::reason::Reason;
use super::state::{Mode, ShortList, is_later};
use super::turn::Turn;
use crate::observation::Validators;
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
    pub(super) fn last_pool(&self) -> Option<List> {
        let allowed = self.state.mode.is_direct() && self.policy.params.exit_direct_from_cache;
        let pool = self.state.pool.as_ref().filter(|_| allowed)?;
        let usable = pool.candidates.iter().filter(|listed| !self.state.is_quarantined(listed));
        let candidates: Vec<Candidate> = usable.cloned().collect();
        (!candidates.is_empty())
            .then(|| List::new(pool.generation, pool.fetched_at.clone(), candidates))
    }

    /// Tests the last pool in the place of a list.
    pub(super) fn try_last_pool(&mut self, last: List) {
        self.state.fresh = Some(last);
        if let Progress::Tested = self.test_fresh() {
            self.load_fresh();
        }
    }

    /// Whether a list is the last pool tested anew.
    pub(super) fn is_last_pool(&self, fresh: &List) -> bool {
        self.state.pool.as_ref().is_some_and(|pool| pool.generation == fresh.generation)
    }

    /// The refresh came to nothing: service goes on with what works, and why is told until a refresh
    /// comes to something.
    pub(super) fn refresh_failed(&mut self, why: String) {
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
}
