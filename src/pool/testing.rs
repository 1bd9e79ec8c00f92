//! Testing a list: on test interfaces, side by side, and by the slots' own probes.
//!
//! **Invariant:** an endpoint that is up in a slot is never tried beside it, and what could not be
//! tried is neither good nor bad.

use super::ask;
use super::candidate::{Candidate, List, Tested};
use super::health::Health;
use super::layout;
use super::reason::Reason;
use super::refresh::Progress;
use super::state::{Content, Slot};
use super::taken::Taken;
use super::turn::Turn;
use crate::names::Interface;
use crate::observation::{Question, TrialResult};
use std::collections::BTreeSet;

impl Turn<'_> {
    /// Records what trials and the slots' own probes showed, and asks for the next batch.
    pub(super) fn test_fresh(&mut self) -> Progress {
        let Some(mut fresh) = self.state.fresh.take() else { return Progress::Unfinished };
        let mut not_tried = BTreeSet::new();
        let mut trouble = None;
        for (trial, reading) in self.seen.trials() {
            let at = reading.at.clone();
            let tested = match &reading.result {
                TrialResult::Passed { latency_ms } => {
                    Tested::Passed { at, latency_ms: *latency_ms }
                }
                TrialResult::Assumed => Tested::Passed { at, latency_ms: 0 },
                TrialResult::Failed { why } => Tested::Failed { at, why: why.clone() },
                TrialResult::NotTried { why } => {
                    trouble.get_or_insert_with(|| why.clone());
                    not_tried.insert(trial.name.clone());
                    continue;
                }
            };
            if fresh.candidates.iter().any(|listed| listed.config == trial.config) {
                fresh.note(trial.name.clone(), tested);
            }
        }
        if let Some(why) = trouble {
            self.say(Reason::NotTried { candidates: not_tried.len(), why });
        }
        self.test_by_slots(&mut fresh);
        let batch = match self.next_batch(&mut fresh, &not_tried) {
            Batch::Done if self.awaits_a_slot(&fresh) => Batch::Ask(Vec::new()),
            batch @ (Batch::Done | Batch::Ask(_)) => batch,
        };
        let (tested, passed) = (fresh.tested.len(), self.state.good(&fresh).len());
        let listed = fresh.candidates.len();
        self.keep_progress(fresh);
        match batch {
            Batch::Done => return Progress::Tested,
            Batch::Ask(questions) if self.may_ask && self.time_left() => {
                self.asks.extend(questions);
            }
            Batch::Ask(_) => {}
        }
        self.say(Reason::Testing { tested, passed, listed });
        Progress::Unfinished
    }

    /// An endpoint that is up in a slot is tested by that slot's own probe.
    fn test_by_slots(&self, fresh: &mut List) {
        let active = self.state.active();
        let listed: Vec<Candidate> =
            fresh.candidates.iter().filter(|listed| active.holds(listed)).cloned().collect();
        for interface in self.slots() {
            let Some(active) = self.state.slots.get(interface).and_then(Slot::candidate) else {
                continue;
            };
            let at = self.now.clone();
            let tested = match self.sight.health.get(interface) {
                Some(Health::Healthy { latency_ms, .. })
                    if self.state.serves(interface) || self.is_lent(interface) =>
                {
                    Tested::Passed { at, latency_ms: latency_ms.unwrap_or(0) }
                }
                Some(Health::Healthy { .. } | Health::Failed(_)) => {
                    Tested::Failed { at, why: "failing in its slot".to_owned() }
                }
                Some(Health::Unknown(_)) | None => continue,
            };
            for listed in listed.iter().filter(|listed| is_same(listed, active)) {
                fresh.note(listed.name.clone(), tested.clone());
            }
        }
    }

    /// Whether a slot that serves has a listed endpoint in it of which nothing could be said yet, as
    /// while it is being mended: the list would seem to have nothing for it.
    fn awaits_a_slot(&self, fresh: &List) -> bool {
        let unjudged = self
            .slots()
            .iter()
            .filter(|interface| self.is_unjudged(interface) && self.state.serves(interface));
        let unjudged: Taken<'_> = unjudged
            .filter_map(|interface| self.state.slots.get(interface).and_then(Slot::candidate))
            .collect();
        fresh.untested().into_iter().any(|listed| unjudged.holds(listed))
    }

    pub(super) fn is_lent(&self, interface: &Interface) -> bool {
        let content = self.state.slots.get(interface).map(|slot| &slot.content);
        matches!(content, Some(Content::Lent(_)))
    }

    /// The next trials, side by side. Done when nothing is left to test or enough have passed.
    fn next_batch(&mut self, fresh: &mut List, not_tried: &BTreeSet<String>) -> Batch {
        let good = self.state.good(fresh);
        let good = good.iter().filter(|c| !fresh.struck.contains_key(&c.name)).count();
        if good >= self.policy.test.enough.max(self.slots().len()) {
            return Batch::Done;
        }
        let interfaces = self.test_interfaces();
        loop {
            let mut batch: Vec<Candidate> = Vec::new();
            for candidate in fresh.untested() {
                if batch.len() < interfaces.len()
                    && !not_tried.contains(&candidate.name)
                    && !self.state.is_active(candidate)
                    && !batch.iter().any(|other| other.same_pair(candidate))
                {
                    batch.push(candidate.clone());
                }
            }
            if batch.is_empty() {
                return Batch::Done;
            }
            if self.ask_names(&batch) {
                return Batch::Ask(Vec::new());
            }
            let mut trials = Vec::new();
            for (candidate, interface) in batch.iter().zip(&interfaces) {
                trials.extend(ask::trial(
                    self.policy,
                    &self.state,
                    self.surroundings,
                    candidate,
                    interface,
                ));
            }
            if !trials.is_empty() || !self.may_ask {
                return Batch::Ask(trials);
            }
            for candidate in &batch {
                let why = format!("no address of {} is known", candidate.host);
                let tested = Tested::Failed { at: self.now.clone(), why };
                fresh.note(candidate.name.clone(), tested);
            }
        }
    }

    /// What has passed and was not struck, one for each endpoint and pair of keys, the best first.
    pub(super) fn loadable(&self, fresh: &List) -> Vec<Candidate> {
        let (mut loadable, mut taken) = (Vec::new(), Taken::default());
        for candidate in self.state.good(fresh) {
            if !fresh.struck.contains_key(&candidate.name)
                && layout::endpoint_of(&self.state, candidate).is_some()
                && !taken.holds(candidate)
            {
                taken.take(candidate);
                loadable.push(candidate);
            }
        }
        loadable.into_iter().cloned().collect()
    }
}

/// Whether two cannot be up at the same time.
pub(super) fn is_same(one: &Candidate, other: &Candidate) -> bool {
    one.same_endpoint(other) || one.same_pair(other)
}

/// What comes next in testing a list.
enum Batch {
    /// Nothing.
    Done,
    /// These questions; none: names are asked for first, or there is no time to ask.
    Ask(Vec<Question>),
}
