//! What a decision was made of, for whoever wants to know why.
//!
//! **Invariant:** bearing witness changes neither the decision nor what follows from it.

use super::preview::before;
use super::{Order, Run, Wanted, holding_the_lock, rights};
use crate::bundle::Witness;
use crate::explain::{Decided, evidence};
use crate::kernel::World;
use crate::machine::{Considered, Machine};
use crate::observation::Observation;
use crate::outcome::Report;

/// Steps one policy, and tells what was seen and decided. `None`: nothing was looked at.
#[must_use]
pub fn witnessed<M: Machine>(order: &Order<'_, M>) -> (Report, Option<Witness>) {
    let mut told = None;
    let report = holding_the_lock(order, rights(order), |run| {
        run.witness = Wanted::Yes;
        let report = run.step();
        if let Wanted::Told(witness) = std::mem::replace(&mut run.witness, Wanted::No) {
            told = Some(*witness);
        }
        report
    });
    (report, told)
}

impl<M: Machine> Run<'_, M> {
    /// Keeps what was seen and decided, where somebody wants to know.
    pub(super) fn bear_witness(
        &mut self,
        seen: &Observation,
        considered: &Considered<M::State>,
    ) -> anyhow::Result<()> {
        match self.witness {
            Wanted::No | Wanted::Told(_) => return Ok(()),
            Wanted::Yes => {}
        }
        let (before, decided) = match considered {
            Considered::Ask(_) => return Ok(()),
            Considered::Unable(reasons) => {
                let stands = self.record.machine.as_ref();
                let stands = stands.map(|state| M::stands(state).0.into_owned());
                (World::default(), Decided::unable(stands, reasons.clone()))
            }
            Considered::Decide(decision) => {
                let before = before(&self.subject(), &self.record, seen, decision)?;
                let decided = Decided::of(&self.subject(), &self.record, &before, decision);
                (before, decided)
            }
        };
        self.witness = Wanted::Told(Box::new(Witness {
            at: seen.started.clone(),
            paused: self.is_paused(),
            record: serde_json::to_value(&self.record)?,
            looks: self.looks.clone(),
            readings: seen.readings.clone(),
            before,
            explain: decided.explain::<M>(evidence(seen)),
            decided,
        }));
        Ok(())
    }
}
