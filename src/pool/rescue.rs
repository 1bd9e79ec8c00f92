//! No slot serves, and there is reserve: several candidates are tried side by side.
//!
//! **Invariant:** nothing is quarantined before a candidate works, because the uplink is as likely
//! the cause as the endpoints.

use super::ask;
use super::candidate::Candidate;
use super::reason::Reason;
use super::state::Mode;
use super::turn::Turn;
use crate::names::Interface;
use crate::observation::TrialResult;

impl Turn<'_> {
    /// Brings the lowest slot back for which a row can act now.
    pub(super) fn rescue(&mut self) {
        let entered = self.state.mode != Mode::LocalRepair;
        self.enter(Mode::LocalRepair);
        if self.slots().iter().any(|slot| !self.stopped.contains(slot) && self.lower_mtu(slot)) {
            return;
        }
        let ready = |slot: &&Interface| !self.stopped.contains(slot) && self.ready(slot);
        let Some(slot) = self.slots().iter().find(ready) else { return };
        if !self.can_verify() {
            return self.say(Reason::NothingToVerifyWith);
        }
        let reserve: Vec<Candidate> = self.state.reserve().into_iter().cloned().collect();
        let result_of = |candidate: &Candidate| {
            self.seen.trials().find_map(|(trial, reading)| {
                (trial.config == candidate.config).then_some(&reading.result)
            })
        };
        let passes = |candidate: &&Candidate| match result_of(candidate) {
            Some(TrialResult::Passed { .. } | TrialResult::Assumed) => true,
            Some(TrialResult::NotTried { .. } | TrialResult::Failed { .. }) | None => false,
        };
        // Where nothing can be tried beside a slot, the slot itself is the trial.
        let may_pass = |candidate: &&Candidate| match result_of(candidate) {
            Some(TrialResult::NotTried { .. }) => true,
            Some(
                TrialResult::Passed { .. } | TrialResult::Assumed | TrialResult::Failed { .. },
            )
            | None => false,
        };
        let works = reserve.iter().find(passes).or_else(|| reserve.iter().find(may_pass));
        if let Some(candidate) = works {
            self.fill(slot, candidate);
            // Entering was this step's transition.
            if !entered {
                self.after_repair();
            }
            return;
        }
        let (tried, left): (Vec<Candidate>, Vec<Candidate>) =
            reserve.into_iter().partition(|candidate| result_of(candidate).is_some());
        if self.may_ask && self.time_left() && self.ask_trials(&left) {
            return;
        }
        let why = tried.first().and_then(result_of).map_or_else(
            || "no address of its host is known".to_owned(),
            |result| match result {
                TrialResult::Failed { why } | TrialResult::NotTried { why } => why.clone(),
                TrialResult::Passed { .. } | TrialResult::Assumed => String::new(),
            },
        );
        for pool in self.state.pool.iter_mut().chain(&mut self.counted.pool) {
            for candidate in &tried {
                pool.strike(&candidate.name);
            }
        }
        self.say(Reason::NonePassed { tested: tried.len(), why });
    }

    /// Asks for trials of the first of these, as many as go side by side. False when there are none.
    fn ask_trials(&mut self, candidates: &[Candidate]) -> bool {
        let interfaces = self.test_interfaces();
        let mut batch: Vec<Candidate> = Vec::new();
        for candidate in candidates {
            if batch.len() < interfaces.len() && !batch.iter().any(|b| b.same_pair(candidate)) {
                batch.push(candidate.clone());
            }
        }
        if self.ask_names(&batch) {
            return true;
        }
        let trials: Vec<_> = batch
            .iter()
            .zip(&interfaces)
            .filter_map(|(candidate, interface)| {
                ask::trial(self.policy, &self.state, self.surroundings, candidate, interface)
            })
            .collect();
        let some = !trials.is_empty();
        self.asks.extend(trials);
        some
    }
}
