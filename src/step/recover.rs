//! Undoes the change of a run that died, and makes state anew that was lost.
//!
//! **Invariant:** a working tunnel is never reloaded and no client moved because a file was lost.

use super::Run;
use crate::host::store::Loaded;
use crate::machine::{Machine, ReasonText};
use crate::outcome::{Ending, Exit, Report};

impl<M: Machine> Run<'_, M> {
    /// Undoes the journal. That is this run's one transition.
    pub(super) fn recover(&mut self) -> anyhow::Result<Report> {
        let Some(journal) = self.held.journal().cloned() else {
            anyhow::bail!("there is no journal to undo");
        };
        self.hold = Some(crate::host::stop::hold()?);
        let mut report = self.blank();
        self.record = journal.undone.clone();
        super::of_this_boot(&mut self.record, &self.started);
        let stands = self.record.machine.as_ref().map(|state| M::stands(state).0.into_owned());
        report.to = stands;
        let restored = self
            .restore(&journal.backup, &journal.makes)
            .and_then(|()| super::settings::put_back(&journal.settings));
        match restored {
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
    /// Where nothing was ever made, nothing is found, and the first run begins.
    pub(super) fn rebuild(&mut self) -> anyhow::Result<()> {
        if self.record.machine.is_some() || M::realms(self.order.policy).is_empty() {
            return Ok(());
        }
        let why = match self.held.loaded() {
            Loaded::Lost { why } => why.clone(),
            Loaded::Nothing => "the state file is missing".to_owned(),
            Loaded::Good(_) | Loaded::FromBackup { .. } => "the state knows nothing".to_owned(),
        };
        let mut scope = M::scope(&self.subject(), 0);
        scope.bound.clear();
        // Whose the interfaces are, only our own table can tell now.
        scope.owned.clone_from(&scope.interfaces);
        let kernel = crate::host::look::kernel(&scope)?;
        let stored = crate::host::provider::stored(self.folder.path());
        let now = crate::host::clock::now()?;
        let Some(state) = M::rebuild(&self.subject(), &kernel, &stored, &now) else {
            return Ok(());
        };
        self.record.machine = Some(state);
        self.record.owned.interfaces = kernel.world.tunnels.keys().cloned().collect();
        self.notes.push(ReasonText::new(
            "rebuilt",
            format!("{why}; state was made anew from what the kernel shows"),
        ));
        Ok(())
    }
}
