//! One run in order: the only place where the pure core and the host meet.
//!
//! ```text
//! lock ─► load state ─► journal left over? ─► undo it, say recovered, exit
//!                           │ no
//!                           ▼
//! ask (pure) ─► observe ─► decide (pure) ─► diff (pure) ─► plan
//!                                                            │
//!    commit the future that came true ◄─ verify ◄─ apply ◄─ journal on disk ◄─ lint
//! ```
//!
//! **Invariant:** a run makes at most one transition, and ends with the world and the state file in
//! agreement, or with a journal on disk that the next run undoes.

mod attempt;
mod commit;
mod consider;
mod control;
mod end;
mod look;
mod on_trial;
mod preview;
mod recover;
mod settings;
mod survey;
mod transact;
mod undo;
mod witness;

pub use control::{down, part, pause, refresh, resume, switch};
pub use on_trial::{confirm, give_up, try_out};
pub use preview::{preview, preview_down};
pub use survey::{Survey, survey};
pub use witness::witnessed;

use crate::bundle::{Look, Witness};
use crate::host::apply::Hands;
use crate::host::store::{Folder, Held, Loaded, Opened, open_locked};
use crate::host::{clock, stop};
use crate::machine::{Considered, Decision, Machine, ReasonText, Rhythm, Subject};
use crate::moments::Moments;
use crate::names::PolicyName;
use crate::observation::Observation;
use crate::outcome::{Ending, Exit, Report};
use crate::record::{Journal, Record};
use crate::time::{Moment, carried_over};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// NTP slews by less than this between two steps, and steps the clock by more.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(30);

/// Which policy is stepped, and how.
pub struct Order<'a, M: Machine> {
    /// Its name.
    pub name: &'a PolicyName,
    /// Its file.
    pub path: &'a Path,
    /// The policy.
    pub policy: &'a M::Policy,
    /// The folder of all state.
    pub state_dir: &'a Path,
    /// Whether the file may have moved since the last run.
    pub adopt: bool,
    /// Whether it is stepped although it is not due.
    pub now: bool,
}

/// A run that holds the lock.
struct Run<'a, M: Machine> {
    order: &'a Order<'a, M>,
    folder: Folder,
    held: Held<Record<M::State>, Journal<M::State>>,
    record: Record<M::State>,
    hands: Hands,
    started: Moment,
    /// Whether a step was made, which is what the record of the last one tells of.
    stepped: bool,
    /// Whether the policy is paused with what comes true: all is taken down, or a person has chosen.
    pausing: bool,
    /// Whether a person has just chosen, which a pause does not keep from being done.
    commanded: bool,
    /// How long what is changed is on trial.
    wait: Option<on_trial::Wait>,
    /// What the report says beside the machine's reasons.
    notes: Vec<ReasonText>,
    /// What is told of the decision, where that is wanted.
    witness: Wanted,
    /// When the machine was asked.
    looks: Vec<Look>,
    /// The lists that are needed once the state is written, where one came and nothing was changed.
    lists: Option<BTreeSet<u32>>,
    /// While something is in flight, or was in this run, signals wait.
    hold: Option<stop::Hold>,
}

/// Whether it is told what a decision was made of.
enum Wanted {
    No,
    Yes,
    Told(Box<Witness>),
}

/// Steps one policy. What goes wrong is in the report.
#[must_use]
pub fn step<M: Machine>(order: &Order<'_, M>) -> Report {
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method alone has one lifetime, and every one is wanted"
    )]
    holding_the_lock(order, rights(order), |run| run.step())
}

/// The rights that are missing, where the policy touches the kernel.
fn rights<M: Machine>(order: &Order<'_, M>) -> Option<String> {
    let touches = !M::realms(order.policy).is_empty();
    touches.then(crate::host::rights::missing).flatten()
}

/// Runs `work` with the lock held, and remembers how it ended.
fn holding_the_lock<M: Machine>(
    order: &Order<'_, M>,
    rights: Option<String>,
    work: impl FnOnce(&mut Run<'_, M>) -> anyhow::Result<Report>,
) -> Report {
    let now = clock::now().unwrap_or_else(|_| Moment::epoch());
    let blank = Report::new(order.name, M::KIND.as_str(), &now);
    if let Some(missing) = rights {
        return blank.because("rights", missing).ended(Ending::Failed, Exit::Failed);
    }
    match begin(order) {
        Ok(Begun::Held(mut run)) => {
            let report = work(&mut run).unwrap_or_else(|error| {
                run.stands(blank)
                    .because("failed", format!("{error:#}"))
                    .ended(Ending::Failed, Exit::Failed)
            });
            run.end(report)
        }
        Ok(Begun::Busy) => {
            blank.because("busy", "another run holds the lock").ended(Ending::Busy, Exit::Busy)
        }
        Err(error) => {
            blank.because("failed", format!("{error:#}")).ended(Ending::Failed, Exit::Failed)
        }
    }
}

/// What became of taking the lock.
enum Begun<'a, M: Machine> {
    Busy,
    Held(Box<Run<'a, M>>),
}

fn begin<'a, M: Machine>(order: &'a Order<'a, M>) -> anyhow::Result<Begun<'a, M>> {
    let started = clock::now()?;
    let folder = Folder::new(order.state_dir, order.name.clone());
    let opened = open_locked(&folder, M::KIND.as_str(), order.path, order.adopt, &started)?;
    let held = match opened {
        Opened::Busy => return Ok(Begun::Busy),
        Opened::Held(held) => held,
        Opened::Newer { found, known } => anyhow::bail!(
            "state of {} has format version {found}, newer than {known}: use the newer egressctl, nothing was touched",
            order.name
        ),
        Opened::OtherPath { recorded } => anyhow::bail!(
            "state of {} belongs to {}, not to {}: say --adopt if the policy has moved",
            order.name,
            recorded.display(),
            order.path.display()
        ),
    };
    let mut record = held.loaded().body().cloned().unwrap_or_default();
    of_this_boot(&mut record, &started);
    let hands = Hands::new(folder.path().to_owned());
    Ok(Begun::Held(Box::new(Run {
        order,
        folder,
        held,
        record,
        hands,
        started,
        stepped: true,
        pausing: false,
        commanded: false,
        wait: None,
        notes: Vec::new(),
        witness: Wanted::No,
        looks: Vec::new(),
        lists: None,
        hold: None,
    })))
}

/// Brings what is remembered of an earlier boot into this one.
fn of_this_boot<S: Moments>(record: &mut Record<S>, now: &Moment) {
    // A first step that was on trial is remembered by its pause alone.
    let last = record.last_step.as_ref().map(|last| last.at.clone()).or(record.paused.clone());
    let Some(last) = last else { return };
    if last.boot == now.boot {
        return;
    }
    let mut carry = |moment: &mut Moment| *moment = carried_over(moment, &last, now);
    record.machine.each_moment(&mut carry);
    record.paused.each_moment(&mut carry);
}

impl<M: Machine> Run<'_, M> {
    fn subject(&self) -> Subject<'_, M> {
        Subject {
            name: self.order.name,
            policy: self.order.policy,
            state: self.record.machine.as_ref(),
            paused: self.is_paused(),
            owned: &self.record.owned,
        }
    }

    /// A report that says where the machine stands.
    fn stands(&self, mut report: Report) -> Report {
        let stands = self.record.machine.as_ref().map(|state| M::stands(state).0.into_owned());
        report.from.clone_from(&stands);
        report.to = stands;
        report
    }

    fn blank(&self) -> Report {
        let report = Report::new(self.order.name, M::KIND.as_str(), &self.started);
        let mut report = self.stands(report);
        for note in self.held.notes() {
            report = report.because("state", note.clone());
        }
        report.reasons.extend(self.notes.iter().cloned());
        report
    }

    fn step(&mut self) -> anyhow::Result<Report> {
        if self.held.journal().is_some() {
            return self.recover();
        }
        if self.is_on_trial() {
            return self.on_trial();
        }
        if self.is_half_down() {
            return self.go_down();
        }
        if !self.order.now && !self.is_due() {
            return Ok(self.blank().ended(Ending::NotDue, Exit::Fine));
        }
        if let Loaded::FromBackup { why, .. } = self.held.loaded() {
            let why = format!("{why}; the state from before was used");
            self.notes.push(ReasonText::new("backup-used", why));
        }
        self.rebuild()?;
        self.look_at_the_clock();
        let mut seen = Observation::new(self.started.clone());
        let considered = self.consider(&mut seen)?;
        self.bear_witness(&seen, &considered)?;
        match considered {
            Considered::Ask(_) => anyhow::bail!("the machine asks without end"),
            Considered::Unable(reasons) => {
                let mut report = self.blank();
                report.reasons.extend(reasons);
                Ok(report.ended(Ending::Failed, Exit::Failed))
            }
            Considered::Decide(decision) if self.is_paused() => self.look_on(&decision),
            Considered::Decide(decision) => self.transact(&seen, &decision),
        }
    }

    /// A clock that was set or came up behind shortens no window, and is told.
    fn look_at_the_clock(&mut self) {
        let last = self.record.last_step.as_ref();
        if last.is_some_and(|last| self.started.clock_leapt(&last.at, CLOCK_TOLERANCE)) {
            let why = "the wall clock leapt since the last step; windows go by the boot's clock";
            self.notes.push(ReasonText::new("clock-leapt", why));
        }
    }

    fn is_due(&self) -> bool {
        let interval = self.rhythm().interval;
        self.record.last_step.as_ref().is_none_or(|last| {
            // A boot has taken everything down, whatever the clock says.
            last.at.boot != self.started.boot || self.started.since(&last.at) >= interval
        })
    }

    /// A paused policy is looked at and not touched. Where the kind wants it, what was seen is
    /// remembered: a choice that a person made meanwhile is not taken for a change after `resume`.
    fn look_on(&mut self, decision: &Decision<M::State>) -> anyhow::Result<Report> {
        if M::remembers_under_pause(self.order.policy) {
            if let Some((setting, _)) = decision.wished.settings.first_key_value() {
                anyhow::bail!("{setting} would be written though the policy is paused");
            }
            self.record.machine = Some(decision.wished.state.clone());
        }
        let mut report = self.blank().because("paused", "paused; nothing is changed");
        report.from.clone_from(&decision.from);
        report.reasons.extend(decision.wished.reasons.iter().cloned());
        Ok(report)
    }

    fn rhythm(&self) -> Rhythm {
        M::rhythm(self.order.policy, self.record.machine.as_ref())
    }

    fn is_paused(&self) -> bool {
        self.record.paused.is_some() && !self.commanded
    }
}
