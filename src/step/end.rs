//! The end of a run: how it went is told to history and remembered with the state.
//!
//! **Invariant:** a run that leaves a journal behind writes no state over it.

use super::Run;
use crate::host::{clock, provider};
use crate::machine::Machine;
use crate::outcome::{Ending, Exit, Report};
use crate::record::LastStep;
use std::collections::BTreeSet;

impl<M: Machine> Run<'_, M> {
    /// Remembers how the step ended, and tells history.
    pub(super) fn end(&mut self, mut report: Report) -> Report {
        let Ok(now) = clock::now() else { return report };
        report.duration_ms =
            u64::try_from(now.since(&self.started).as_millis()).unwrap_or(u64::MAX);
        if !self.stepped {
            return report;
        }
        match report.outcome {
            // Nothing was looked at, so nothing is remembered; a stuck run keeps its journal.
            Ending::NotDue | Ending::Busy => return report,
            Ending::Steady
            | Ending::Applied
            | Ending::RolledBack
            | Ending::Recovered
            | Ending::Failed => {}
        }
        if report.is_news()
            && let Ok(line) = serde_json::to_string(&report)
            && let Err(error) = self.held.remember(&line)
        {
            // Telling history is a service, not a duty: the step has done its work.
            report = report.because("history", format!("history was not written: {error:#}"));
        }
        if report.exit == Exit::Stuck || self.held.is_in_flight() {
            return report;
        }
        // A state that was lost must not be followed by one that knows nothing and looks whole.
        if self.record.machine.is_none() && report.outcome == Ending::Failed {
            return report;
        }
        self.record.last_step = Some(LastStep {
            at: self.started.clone(),
            outcome: report.outcome,
            transition: report.transition(),
            duration_ms: report.duration_ms,
            reasons: report.reasons.clone(),
        });
        if report.is_news() {
            let (_, standing) = M::status(self.order.name, self.order.policy, &self.record, &now);
            report.standing = Some(standing);
        }
        if let Err(error) = self.held.commit(&self.record, &now) {
            return report
                .because("state", format!("{error:#}"))
                .ended(Ending::Failed, Exit::Failed);
        }
        if let Some(lists) = &self.lists {
            self.forget(lists);
        }
        report
    }

    /// Forgets pool folders that nothing needs any more. A failure is no trouble: the next run tries
    /// again.
    pub(super) fn forget(&self, keep: &BTreeSet<u32>) {
        drop(provider::forget(self.folder.path(), keep));
    }
}
