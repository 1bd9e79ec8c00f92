//! Asking and observing in rounds, until a machine has decided.
//!
//! **Invariant:** before a question is asked for which something is made, a journal that takes it away again is
//! on disk; and a run that is told to end has changed nothing.

use super::Run;
use crate::bundle::Look;
use crate::host::observe::{Eyes, observe};
use crate::host::{clock, stop};
use crate::machine::{Considered, Machine};
use crate::observation::{Observation, Question};
use crate::record::Journal;

/// Why nothing was done by a run that was told to end before it had begun to change anything.
pub(super) const TOLD_TO_END: &str = "it was told to end, and nothing was changed: run it again";

impl<M: Machine> Run<'_, M> {
    /// Asks and observes in rounds until the machine has decided.
    pub(super) fn consider(
        &mut self,
        seen: &mut Observation,
    ) -> anyhow::Result<Considered<M::State>> {
        let budget = self.rhythm().budget;
        let (mut testing, mut looks_on) = (false, false);
        loop {
            let now = clock::now()?;
            if stop::is_asked() {
                if testing {
                    self.held.commit(&self.record, &now)?;
                }
                anyhow::bail!(TOLD_TO_END);
            }
            // Half of the budget is left for changing, proving and, if need be, undoing.
            let in_time = now.since(&self.started) < budget / 2;
            let may_ask = in_time && !looks_on;
            let considered = M::consider(&self.subject(), seen, &now, may_ask);
            self.looks.push(Look { now: now.clone(), may_ask });
            let Considered::Ask(questions) = considered else {
                if testing {
                    self.held.commit(&self.record, &now)?;
                }
                return Ok(considered);
            };
            if self.is_paused() && questions.iter().any(Question::changes) {
                if looks_on {
                    return Ok(Considered::Ask(questions));
                }
                // What was asked for is not looked at, so the machine was as if not asked.
                drop(self.looks.pop());
                looks_on = true;
                continue;
            }
            if questions.iter().any(Question::makes) && !testing {
                self.hold = Some(stop::hold()?);
                let kernel = seen.kernel();
                let backup = kernel.map(|kernel| kernel.world.clone()).unwrap_or_default();
                let strangers = kernel.map(|kernel| kernel.strangers.clone()).unwrap_or_default();
                self.held.begin(&Journal {
                    at: now,
                    purpose: "candidates are tested".to_owned(),
                    backup,
                    // Every batch of this run: a later one may be larger than the first.
                    makes: M::scratch(self.order.policy).difference(&strangers).cloned().collect(),
                    settings: Vec::new(),
                    commands: Vec::new(),
                    undone: self.record.clone(),
                })?;
                testing = true;
            }
            crate::host::terminal::progress(self.order.name, &questions);
            seen.readings.extend(observe(questions, &self.eyes())?);
        }
    }

    pub(super) fn eyes(&self) -> Eyes<'_> {
        Eyes { folder: self.folder.path(), hands: &self.hands, may_change: true }
    }
}
