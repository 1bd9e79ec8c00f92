//! A person's pause, resume and down.
//!
//! **Invariant:** a pause changes the record alone; `down` is a transaction like any other.

use super::{Begun, Order, Run, begin, holding_the_lock};
use crate::host::clock;
use crate::machine::{Decision, Machine};
use crate::observation::Observation;
use crate::outcome::{Ending, Exit, Report};
use crate::record::Record;

/// Changes nothing until `resume`.
pub fn pause<M: Machine>(order: &Order<'_, M>) -> Report {
    edit(order, |record, run| {
        record.paused.get_or_insert_with(|| run.started.clone());
        "paused; nothing is changed until `resume`"
    })
}

/// Goes on after a pause: counters and windows begin anew.
pub fn resume<M: Machine>(order: &Order<'_, M>) -> Report {
    edit(order, |record, run| {
        if record.paused.take().is_none() {
            return "was not paused";
        }
        record.machine = record.machine.as_ref().map(|state| M::resumed(state, &run.started));
        "resumed"
    })
}

/// Writes the record as `change` leaves it.
fn edit<M: Machine>(
    order: &Order<'_, M>,
    change: impl FnOnce(&mut Record<M::State>, &Run<'_, M>) -> &'static str,
) -> Report {
    let failed = |error: anyhow::Error| {
        let epoch =
            crate::time::Moment { at: jiff::Timestamp::UNIX_EPOCH, boot: String::new(), up_ms: 0 };
        Report::new(order.name, order.kind, &clock::now().unwrap_or(epoch))
            .because("failed", format!("{error:#}"))
            .ended(Ending::Failed, Exit::Failed)
    };
    match begin(order) {
        Ok(Begun::Held(mut run)) => {
            let mut record = run.record.clone();
            let said = change(&mut record, &run);
            let report = run.blank().because("control", said).ended(Ending::Steady, Exit::Fine);
            if run.held.journal().is_some() {
                return report
                    .because("journal", "a run died; step it first, so that it is undone")
                    .ended(Ending::Failed, Exit::Failed);
            }
            run.record = record;
            let written = clock::now().and_then(|now| run.held.commit(&run.record, &now));
            match written {
                Ok(()) => report,
                Err(error) => failed(error),
            }
        }
        Ok(Begun::Busy) => {
            failed(anyhow::anyhow!("another run holds the lock")).ended(Ending::Busy, Exit::Busy)
        }
        Err(error) => failed(error),
    }
}

/// Gives the clients back to main, removes all that was made, keeps the state, and pauses.
pub fn down<M: Machine>(order: &Order<'_, M>, rights: Option<String>) -> Report {
    holding_the_lock(order, rights, |run| {
        if run.held.journal().is_some() {
            return run.recover();
        }
        let now = clock::now()?;
        let Some(future) = M::retire(&run.subject(), &now) else {
            run.record.paused = Some(now);
            return Ok(run.blank().because("down", "nothing was made yet; paused"));
        };
        run.retiring = true;
        let undone = run.record.machine.clone().unwrap_or_else(|| future.state.clone());
        let decision = Decision {
            from: run.record.machine.as_ref().map(|state| M::stands(state).0.to_owned()),
            wished: future,
            standing: None,
            checks: Vec::new(),
            held: undone.clone(),
            undone,
            reference: None,
        };
        let report = run.transact(&Observation::new(now.clone()), decision)?;
        match report.outcome {
            Ending::Applied | Ending::Steady => {
                Ok(report.because("down", "all that was made is removed; paused"))
            }
            Ending::RolledBack
            | Ending::Recovered
            | Ending::Failed
            | Ending::Busy
            | Ending::NotDue => Ok(report),
        }
    })
}
