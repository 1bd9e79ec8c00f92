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
mod control;
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
use crate::host::observe::{Eyes, observe};
use crate::host::store::{Folder, Held, Loaded, Opened, open_locked};
use crate::host::{clock, provider, stop};
use crate::kernel::World;
use crate::kernel::diff::diff;
use crate::kernel::read::sha256;
use crate::machine::{Considered, Decision, Machine, Owned, ReasonText, Rhythm, Subject};
use crate::names::{Interface, PolicyName};
use crate::observation::{Observation, Question, Realm};
use crate::outcome::{Ending, Exit, Report};
use crate::record::{Journal, LastStep, LoadedNft, Record};
use crate::time::{Moment, carried_over, carry_over};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Why nothing was done by a run that was told to end before it had begun to change anything.
const TOLD_TO_END: &str = "it was told to end, and nothing was changed: run it again";

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
    of_this_boot(&mut record, &started)?;
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
fn of_this_boot<S: Serialize + DeserializeOwned>(
    record: &mut Record<S>,
    now: &Moment,
) -> anyhow::Result<()> {
    let Some(last) = record.last_step.as_ref().map(|last| last.at.clone()) else { return Ok(()) };
    if last.boot == now.boot {
        return Ok(());
    }
    if let Some(state) = &record.machine {
        let mut value = serde_json::to_value(state)?;
        carry_over(&mut value, &last, now);
        record.machine = Some(serde_json::from_value(value)?);
    }
    if let Some(since) = &mut record.paused {
        *since = carried_over(since, &last, now);
    }
    Ok(())
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

    /// Asks and observes in rounds until the machine has decided.
    fn consider(&mut self, seen: &mut Observation) -> anyhow::Result<Considered<M::State>> {
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

    fn eyes(&self) -> Eyes<'_> {
        Eyes { folder: self.folder.path(), hands: &self.hands, may_change: true }
    }

    fn rhythm(&self) -> Rhythm {
        M::rhythm(self.order.policy, self.record.machine.as_ref())
    }

    fn is_paused(&self) -> bool {
        self.record.paused.is_some() && !self.commanded
    }

    /// Remembers how the step ended, and tells history.
    fn end(&mut self, mut report: Report) -> Report {
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

    /// Looks at the kernel again, for the objects of a wished world too.
    fn look(&self, desired: &World, makes: &BTreeSet<Interface>) -> anyhow::Result<World> {
        // What was made before the policy was edited is still there to be removed.
        if M::realms(self.order.policy).is_empty() && self.record.owned.realms.is_empty() {
            return Ok(World::default());
        }
        let mut scope = M::scope(&self.subject(), 1);
        scope.owned.extend(makes.iter().cloned());
        scope.interfaces.extend(makes.iter().cloned());
        scope.sysctls.extend(desired.sysctls.keys().cloned());
        for (interface, tunnel) in &desired.tunnels {
            if let (Some(config), Some(ends)) = (&tunnel.config, &tunnel.ends) {
                scope.expected.insert(interface.clone(), (config.clone(), ends.into()));
            }
        }
        scope.bound.clear();
        Ok(crate::host::look::kernel(&scope)?.world)
    }

    fn no_difference(&self, actual: &World, desired: &World) -> Result<(), String> {
        let means = M::means(self.order.policy);
        match diff(actual, desired, &means).first() {
            None => Ok(()),
            Some(step) => {
                Err(format!("the kernel is not as wished: {} is still due", step.action.command()))
            }
        }
    }

    /// Forgets pool folders that nothing needs any more. A failure is no trouble: the next run tries
    /// again.
    fn forget(&self, keep: &BTreeSet<u32>) {
        drop(provider::forget(self.folder.path(), keep));
    }
}

/// What is remembered of a loaded nft table.
fn loaded_nft(desired: &World, actual: &World) -> Option<LoadedNft> {
    let listing = actual.nft.as_ref()?.listing.clone()?;
    Some(LoadedNft { text: sha256(desired.nft.as_ref()?.text.as_bytes()), listing })
}

/// What the policy owns once a world is proven.
fn owned_after(before: &Owned, desired: &World, backup: &World, realms: BTreeSet<Realm>) -> Owned {
    let interfaces: BTreeSet<Interface> = desired.tunnels.keys().cloned().collect();
    let ours = |path: &str| {
        interfaces.iter().chain(&before.interfaces).any(|name| path.contains(&format!("/{name}/")))
    };
    let sysctls = desired
        .sysctls
        .keys()
        .filter(|path| !ours(path))
        .filter_map(|path| {
            let original = before.sysctls.get(path).or_else(|| backup.sysctls.get(path))?;
            Some((path.clone(), original.clone()))
        })
        .collect();
    // Once a world is proven nothing is left under other numbers.
    Owned { interfaces, sysctls, realms }
}
