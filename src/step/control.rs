//! A person's pause, resume and down.
//!
//! **Invariant:** a pause changes the record alone; `down` is a transaction like any other.

use super::{Order, Run, holding_the_lock, rights};
use crate::host::clock;
use crate::machine::{Decision, Machine, PartWish, Pausing};
use crate::observation::Observation;
use crate::outcome::{Ending, Exit, Report};
use crate::record::Record;

/// Changes nothing until `resume`. Where clients are unprotected that stops the way back, so it
/// wants `force`.
#[must_use]
pub fn pause<M: Machine>(order: &Order<'_, M>, force: bool) -> Report {
    edit(order, |record, run| {
        if !force && record.machine.as_ref().is_some_and(M::is_unprotected) {
            return Err(
                "clients are unprotected and a pause stops the way back: say --force".into()
            );
        }
        record.paused.get_or_insert_with(|| run.started.clone());
        Ok("paused; nothing is changed until `resume`")
    })
}

/// Goes on after a pause: counters and windows begin anew.
#[must_use]
pub fn resume<M: Machine>(order: &Order<'_, M>) -> Report {
    edit(order, |record, run| {
        if record.paused.take().is_none() {
            return Ok("was not paused");
        }
        record.machine =
            record.machine.as_ref().map(|state| M::resumed(state, &run.started)).transpose()?;
        Ok("resumed")
    })
}

/// Pauses or resumes one host or hop.
#[must_use]
pub fn part<M: Machine>(order: &Order<'_, M>, part: &str, wish: PartWish) -> Report {
    edit(order, |record, run| {
        record.machine = Some(M::part(&run.subject(), part, wish, &run.started)?);
        Ok(match wish {
            PartWish::Pause => "paused there; the rest goes on",
            PartWish::Resume => "resumed there",
        })
    })
}

/// Asks the next step for a full refresh.
#[must_use]
pub fn refresh<M: Machine>(order: &Order<'_, M>) -> Report {
    edit(order, |record, run| {
        let state = record.machine.as_ref().ok_or("it was never stepped: step it first")?;
        let asked =
            M::refresh(state, &run.started).ok_or("this kind of policy has nothing to refresh")?;
        record.machine = Some(asked);
        Ok("the next step begins a full refresh")
    })
}

/// Writes the record as `change` leaves it, or says why it is left as it was (exit 2).
fn edit<M: Machine>(
    order: &Order<'_, M>,
    change: impl FnOnce(&mut Record<M::State>, &Run<'_, M>) -> Result<&'static str, String>,
) -> Report {
    holding_the_lock(order, None, |run| {
        run.stepped = false;
        if run.held.journal().is_some() {
            anyhow::bail!("a run died; step it first, so that it is undone");
        }
        if run.record.machine.is_none() {
            let why = "it was never stepped, or its state was lost: step it first";
            return Ok(run.blank().because("refused", why).ended(Ending::Failed, Exit::Invalid));
        }
        let mut record = run.record.clone();
        Ok(match change(&mut record, run) {
            Err(why) => run.blank().because("refused", why).ended(Ending::Failed, Exit::Invalid),
            Ok(said) => {
                run.record = record;
                run.held.commit(&run.record, &clock::now()?)?;
                run.blank().because("control", said)
            }
        })
    })
}

/// Carries a person's choice out, in a step of its own.
#[must_use]
pub fn switch<M: Machine>(order: &Order<'_, M>, target: &str, force: bool) -> Report {
    holding_the_lock(order, rights(order), |run| {
        if run.held.journal().is_some() {
            return run.recover();
        }
        let refused = |run: &mut Run<'_, M>, why: String| {
            run.stepped = false;
            Ok(run.blank().because("refused", why).ended(Ending::Failed, Exit::Invalid))
        };
        let (state, pausing) = match M::switch(&run.subject(), target, force) {
            Ok(granted) => granted,
            Err(why) => return refused(run, why),
        };
        match pausing {
            Pausing::Keep if run.record.paused.is_some() => {
                return refused(run, "the policy is paused: resume it first".to_owned());
            }
            Pausing::Keep | Pausing::Pause | Pausing::Lift => run.commanded = true,
        }
        // In the write that remembers the choice: automation must not take back what a person chose
        // because the run died in between.
        run.pausing = pausing == Pausing::Pause;
        let paused = run.record.paused.clone();
        let before = run.record.machine.replace(state);
        let stepped = run.step();
        let waits = run.record.machine.as_ref().is_some_and(M::has_wish);
        if stepped.is_err() || waits {
            run.record.paused = paused;
            // A wish that was not carried out now must not come true some other day.
            run.record.machine =
                run.record.machine.as_ref().map(M::without_wish).or(before.clone());
        }
        let report = stepped?;
        if waits {
            let why = "nothing can be chosen now: say it again when the uplink works";
            return Ok(report.because("refused", why).ended(Ending::Failed, Exit::Failed));
        }
        match report.outcome {
            Ending::Applied | Ending::Steady => match pausing {
                Pausing::Pause => {
                    run.record.paused.get_or_insert_with(|| run.started.clone());
                }
                Pausing::Lift => run.record.paused = None,
                Pausing::Keep => {}
            },
            Ending::RolledBack | Ending::Recovered => {}
            Ending::Failed | Ending::Busy | Ending::NotDue => run.record.machine = before,
        }
        Ok(report)
    })
}

/// Gives the clients back to main, removes all that was made, keeps the state, and pauses.
#[must_use]
pub fn down<M: Machine>(order: &Order<'_, M>) -> Report {
    holding_the_lock(order, rights(order), |run| {
        if run.held.journal().is_some() {
            return run.recover();
        }
        run.rebuild()?;
        run.go_down()
    })
}

impl<M: Machine> Run<'_, M> {
    /// Whether a `down` died when all was removed but what closes the clients in at boot, which would do
    /// so until somebody says `resume`.
    pub(super) fn is_half_down(&self) -> bool {
        let owned = &self.record.owned;
        self.is_paused()
            && self.record.nft.is_none()
            && owned.interfaces.is_empty()
            && owned.sysctls.is_empty()
            && self.barrier_file().exists()
    }

    /// Removes all that was made, and pauses.
    pub(super) fn go_down(&mut self) -> anyhow::Result<Report> {
        let now = clock::now()?;
        let Some(future) = M::retire(&self.subject(), &now) else {
            self.record.paused = Some(now);
            return Ok(self.blank().because("down", "nothing was made yet; paused"));
        };
        self.pausing = true;
        let undone = self.record.machine.clone().unwrap_or_else(|| future.state.clone());
        let decision = Decision::of(&self.subject(), future, undone);
        let report = self.transact(&Observation::new(now.clone()), &decision)?;
        match report.outcome {
            Ending::Applied | Ending::Steady => {
                self.end_trial()?;
                Ok(report
                    .because("down", "everything is removed and paused; `resume` brings it back"))
            }
            Ending::RolledBack
            | Ending::Recovered
            | Ending::Failed
            | Ending::Busy
            | Ending::NotDue => Ok(report),
        }
    }
}
