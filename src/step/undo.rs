//! Takes a change back.
//!
//! **Invariant:** an undo that failed leaves its journal, so that the next run tries again.

use super::{Run, settings};
use crate::host::{apply, clock};
use crate::kernel::World;
use crate::kernel::diff::diff;
use crate::machine::Machine;
use crate::names::Interface;
use crate::outcome::{Ending, Exit, Report};
use crate::record::Record;
use crate::setting::Flight;
use std::collections::BTreeSet;
use std::time::Duration;

/// How often an undo is looked at and carried on.
const RESTORE_ROUNDS: u32 = 3;
/// A daemon that a dead run had started makes its device within some 10 ms, on a busy machine 100.
const RESTORE_PAUSE: Duration = Duration::from_millis(200);

/// What stood before a change.
pub(super) struct Before {
    /// Our own objects.
    pub(super) backup: World,
    /// Interfaces that the change makes.
    pub(super) makes: BTreeSet<Interface>,
    /// What it writes where other programs keep it.
    pub(super) flights: Vec<Flight>,
}

impl<M: Machine> Run<'_, M> {
    /// Puts the world back and says so. When that fails the journal stays for the next run.
    pub(super) fn undo(
        &mut self,
        before: &Before,
        record: Record<M::State>,
        report: Report,
        why: &str,
    ) -> anyhow::Result<Report> {
        let mut report =
            report.because("undone", format!("the change failed and was undone: {why}"));
        let restored = self
            .restore(&before.backup, &before.makes)
            .and_then(|()| settings::put_back(&before.flights));
        match restored {
            Ok(()) => {
                self.record = record;
                report.to =
                    self.record.machine.as_ref().map(|state| M::stands(state).0.into_owned());
                if let Err(error) = self.held.commit(&self.record, &clock::now()?) {
                    // All is as it was, and the journal tells the next run to look whether it still is.
                    report = report.because("state", format!("{error:#}"));
                }
                Ok(report.ended(Ending::RolledBack, Exit::RolledBack))
            }
            Err(failure) => Ok(stuck(report, &failure)),
        }
    }

    /// Makes the world what it was: the difference between now and then.
    ///
    /// It goes on past a failing command, so that as much as can be is put back, and looks whether it
    /// is. A child of a run that died may still be making what was just removed, so a look that finds
    /// a difference is not the last one.
    pub(super) fn restore(
        &self,
        backup: &World,
        makes: &BTreeSet<Interface>,
    ) -> Result<(), String> {
        let say = |error: anyhow::Error| format!("{error:#}");
        let means = M::means(self.order.policy);
        let mut failures = Vec::new();
        for round in 0..RESTORE_ROUNDS {
            let now = self.look(backup, makes).map_err(say)?;
            let steps = diff(&now, backup, &means);
            if steps.is_empty() {
                return Ok(());
            }
            if round > 0 {
                clock::pause(RESTORE_PAUSE);
            }
            for step in &steps {
                if let Err(error) = apply::apply(&step.action, &self.hands) {
                    failures.push(say(error));
                }
            }
        }
        let after = self.look(backup, makes).map_err(say)?;
        self.no_difference(&after, backup)
            .map_err(|difference| failures.first().cloned().unwrap_or(difference))
    }
}

/// Ends a report of an undo that failed.
pub(super) fn stuck(report: Report, failure: &str) -> Report {
    report
        .because("stuck", format!("undoing failed, the next run tries again: {failure}"))
        .ended(Ending::Failed, Exit::Stuck)
}
