//! A step that undoes itself unless a person confirms it in time.
//!
//! What stood before is written down before the change begins, and stays after it was proven: until
//! it is confirmed no step changes anything, and once the time is up the next run puts it all back
//! and pauses the policy, whoever starts that run. A boot that came in between makes no difference.
//!
//! **Invariant:** from the first command of a change on trial until it is confirmed or undone,
//! `trial.json` holds what has to be put back.

use super::undo::stuck;
use super::{Order, Run, holding_the_lock, rights, settings};
use crate::host::{clock, files};
use crate::machine::Machine;
use crate::outcome::{Ending, Exit, Report};
use crate::record::Journal;
use crate::time::Moment;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most that is read of it; a journal has the same bound.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// What has to be put back.
#[derive(Serialize, Deserialize)]
struct Trial<S> {
    /// Since when the change waits to be confirmed.
    since: Moment,
    /// How long it waits, in seconds.
    wait_sec: u64,
    /// What closed the clients at boot before.
    barrier: Option<String>,
    /// The world and the record from before.
    journal: Journal<S>,
}

impl<S> Trial<S> {
    /// How long it still waits. A boot ends the wait: nobody is left who could be cut off by it.
    fn left(&self, now: &Moment) -> Duration {
        if now.boot == self.since.boot {
            Duration::from_secs(self.wait_sec).saturating_sub(now.since(&self.since))
        } else {
            Duration::ZERO
        }
    }
}

/// How long a step is on trial, and what closed the clients at boot before it.
pub(super) struct Wait {
    sec: u64,
    barrier: Option<String>,
}

/// Steps a policy, and leaves what it changes on trial for `wait`.
#[must_use]
pub fn try_out<M: Machine>(order: &Order<'_, M>, wait: Duration) -> Report {
    holding_the_lock(order, rights(order), |run| {
        if run.is_on_trial() {
            return run.on_trial();
        }
        let barrier = files::text_if_there(&run.barrier_file())?;
        run.wait = Some(Wait { sec: wait.as_secs(), barrier });
        let stepped = run.step();
        let applied = stepped.as_ref().is_ok_and(|report| report.outcome == Ending::Applied);
        if !applied {
            run.end_trial()?;
            let none = "nothing was changed, so nothing waits to be confirmed";
            return stepped.map(|report| report.because("on-trial", none));
        }
        // The time counts from here: what was proven meanwhile took some of it.
        let mut trial = run.trial()?;
        trial.since = clock::now()?;
        run.write_trial(&trial)?;
        let words = format!(
            "undone in {} s unless somebody says: egressctl confirm {}",
            wait.as_secs(),
            run.order.name
        );
        stepped.map(|report| report.because("on-trial", words))
    })
}

/// Keeps what is on trial.
#[must_use]
pub fn confirm<M: Machine>(order: &Order<'_, M>) -> Report {
    holding_the_lock(order, None, |run| {
        run.stepped = false;
        if !run.is_on_trial() {
            let why = "nothing waits to be confirmed";
            return Ok(run.blank().because("refused", why).ended(Ending::Failed, Exit::Invalid));
        }
        run.end_trial()?;
        Ok(run.blank().because("control", "confirmed"))
    })
}

/// Undoes what was on trial for too long, or what a run that died had begun. `None`: there is no
/// such thing. An outcome of `NotDue` says that there is time left.
#[must_use]
pub fn give_up<M: Machine>(order: &Order<'_, M>) -> Option<Report> {
    let mut is_over = false;
    let report = holding_the_lock(order, rights(order), |run| {
        if run.held.journal().is_some() {
            return run.recover();
        }
        if run.is_on_trial() {
            return run.on_trial();
        }
        run.stepped = false;
        is_over = true;
        Ok(run.blank())
    });
    (!is_over).then_some(report)
}

impl<M: Machine> Run<'_, M> {
    /// Whether a change waits to be confirmed.
    pub(super) fn is_on_trial(&self) -> bool {
        self.folder.trial().exists()
    }

    fn trial(&self) -> anyhow::Result<Trial<M::State>> {
        let path = self.folder.trial();
        let read = || format!("reading {}: `egressctl confirm` forgets it", path.display());
        let bytes = files::read_bounded(&path, MAX_BYTES).with_context(read)?;
        serde_json::from_slice(&bytes).with_context(read)
    }

    fn write_trial(&self, trial: &Trial<M::State>) -> anyhow::Result<()> {
        files::write_atomically(&self.folder.trial(), &serde_json::to_vec(trial)?, 0o600)
    }

    /// Writes down what has to be put back, before it is changed. Nothing where nothing is tried.
    pub(super) fn begin_trial(&mut self, journal: &Journal<M::State>) -> anyhow::Result<()> {
        let Some(wait) = &self.wait else { return Ok(()) };
        let mut journal = journal.clone();
        // Otherwise the next step would make the same change again.
        journal.undone.paused.get_or_insert_with(|| self.started.clone());
        let barrier = wait.barrier.clone();
        self.write_trial(&Trial { since: clock::now()?, wait_sec: wait.sec, barrier, journal })
    }

    /// Forgets what was on trial: it was confirmed, or is no more.
    pub(super) fn end_trial(&self) -> anyhow::Result<()> {
        files::keep_in_step(&self.folder.trial(), None, 0o600)
    }

    /// Waits for the confirmation, or undoes what did not get it.
    pub(super) fn on_trial(&mut self) -> anyhow::Result<Report> {
        let trial = self.trial()?;
        let left = trial.left(&clock::now()?);
        if !left.is_zero() {
            let words = format!(
                "undone in {} s unless somebody says: egressctl confirm {}",
                left.as_secs().max(1),
                self.order.name
            );
            return Ok(self.blank().because("on-trial", words).ended(Ending::NotDue, Exit::Fine));
        }
        let mut report = self.blank();
        self.record = trial.journal.undone.clone();
        // A machine that was started anew meanwhile has another clock.
        super::of_this_boot(&mut self.record, &self.started);
        report.to = self.record.machine.as_ref().map(|state| M::stands(state).0.into_owned());
        let restored = self
            .restore(&trial.journal.backup, &trial.journal.makes)
            .and_then(|()| settings::put_back(&trial.journal.settings));
        if let Err(why) = restored {
            return Ok(stuck(report, &why));
        }
        self.barrier(trial.barrier.as_deref())?;
        self.held.commit(&self.record, &clock::now()?)?;
        self.end_trial()?;
        Ok(report
            .because(
                "not-confirmed",
                "not confirmed in time, so it was undone; paused until `resume`",
            )
            .ended(Ending::RolledBack, Exit::RolledBack))
    }
}
