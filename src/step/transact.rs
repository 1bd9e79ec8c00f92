//! Makes one decision come true, or takes it back.
//!
//! **Invariant:** this is the only place that commits or undoes; whatever way a change goes, the
//! world is read back before the state is written.

use super::preview::complete;
use super::{Run, loaded_nft, owned_after};
use crate::host::apply::SpoiltConfig;
use crate::host::cut::{CutResult, cut};
use crate::host::observe::{Eyes, observe};
use crate::host::{apply, clock, files};
use crate::kernel::diff::diff;
use crate::kernel::{World, nft};
use crate::machine::{Cut, Decision, Future, Machine};
use crate::names::Interface;
use crate::observation::{Observation, Pages, Question, Reading};
use crate::outcome::{Ending, Exit, Report};
use crate::plan::{Action, Check, Phase, Step, lint};
use crate::record::{Journal, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often an undo is looked at and carried on.
const RESTORE_ROUNDS: u32 = 3;
/// A daemon that a dead run had started makes its device within some 10 ms, on a busy machine 100.
const RESTORE_PAUSE: Duration = Duration::from_millis(200);

/// Why a change was not made.
enum Trouble {
    /// A command failed, or the world was not as wished afterwards.
    Change(String),
    /// Slots do not carry requests.
    Answer(BTreeMap<Interface, String>),
}

impl Trouble {
    /// A spoilt file is its endpoint's fault, any other failure the machine's.
    fn of(error: &anyhow::Error) -> Self {
        match error.downcast_ref::<SpoiltConfig>() {
            Some(spoilt) => {
                Self::Answer(BTreeMap::from([(spoilt.interface.clone(), spoilt.why.clone())]))
            }
            None => Self::Change(format!("{error:#}")),
        }
    }
}

impl<M: Machine> Run<'_, M> {
    pub(super) fn transact(
        &mut self,
        seen: &Observation,
        decision: &Decision<M::State>,
    ) -> anyhow::Result<Report> {
        let means = M::means(self.order.policy);
        let mut report = self.blank();
        report.from.clone_from(&decision.from);
        report.to = Some(decision.wished.to.clone());
        report.reasons.extend(decision.wished.reasons.iter().cloned());
        let desired = complete(&self.record, decision.wished.world.clone());
        let makes: BTreeSet<Interface> = desired.tunnels.keys().cloned().collect();
        let backup = self.backup(seen, &desired, &makes)?;
        let steps = diff(&backup, &desired, &means);
        if let Some(note) = lint(&steps).first() {
            anyhow::bail!("the plan contradicts itself, nothing was touched: {note}");
        }
        if steps.is_empty() && decision.checks.is_empty() {
            // The end of the run writes the state; once is enough when nothing was in flight.
            self.barrier(decision.wished.barrier.as_deref())?;
            self.adopt(&decision.wished, &desired, &backup, &backup);
            return Ok(report.ended(Ending::Steady, Exit::Fine));
        }
        if let Some(standing) = &decision.standing {
            let standing = complete(&self.record, standing.clone());
            let drift = diff(&backup, &standing, &means);
            if let Some(first) = drift.first() {
                report = report.because(
                    "drift",
                    format!(
                        "{} put back that had been removed or changed: {}",
                        count(drift.len()),
                        first.action.command()
                    ),
                );
            }
        }
        self.held.begin(&Journal {
            at: clock::now()?,
            purpose: report.to_string(),
            backup: backup.clone(),
            makes: makes.clone(),
            commands: steps.iter().map(|step| step.action.command()).collect(),
            undone: self.with(decision.undone.clone()),
        })?;
        match self.attempt(&steps, &decision.checks, &desired, &makes) {
            Ok(actual) => {
                report.changes = steps.len();
                let notes = cut_all(&decision.wished.cuts);
                self.commit(&decision.wished, &desired, &actual, &backup)?;
                // A packet that was under way meanwhile may have made an entry anew.
                drop(cut_all(&decision.wished.cuts));
                for note in notes {
                    report = report.because("cut", note);
                }
                Ok(report.ended(Ending::Applied, Exit::Fine))
            }
            Err(Trouble::Change(why)) => {
                let undone = self.with(decision.undone.clone());
                self.undo(&backup, &makes, undone, report, &why)
            }
            Err(Trouble::Answer(failed)) => {
                if self.uplink_answers(decision.reference.as_ref())? {
                    self.refused(decision, &failed, &backup, &makes, report)
                } else {
                    let held = self.with(decision.held.clone());
                    let why = "the WAN went down while the change was being proven";
                    self.undo(&backup, &makes, held, report, why)
                }
            }
        }
    }

    /// Our own objects before the change, with the settings that the change is going to touch.
    fn backup(
        &self,
        seen: &Observation,
        desired: &World,
        makes: &BTreeSet<Interface>,
    ) -> anyhow::Result<World> {
        let Some(kernel) = seen.kernel() else { return self.look(desired, makes) };
        let mut backup = kernel.world.clone();
        let missing: BTreeSet<String> = desired
            .sysctls
            .keys()
            .filter(|path| !backup.sysctls.contains_key(*path))
            .cloned()
            .collect();
        backup.sysctls.extend(crate::host::look::sysctls(&missing)?);
        Ok(backup)
    }

    fn with(&self, state: M::State) -> Record<M::State> {
        Record { machine: Some(state), ..self.record.clone() }
    }

    /// Carries a plan out and proves it. Gives the world as it then is.
    fn attempt(
        &self,
        steps: &[Step],
        checks: &[Check],
        desired: &World,
        makes: &BTreeSet<Interface>,
    ) -> Result<World, Trouble> {
        let phase = |wanted: Phase| {
            steps.iter().filter(move |step| step.phase == wanted).try_for_each(|step| {
                apply::apply(&step.action, &self.hands).map_err(|error| Trouble::of(&error))
            })
        };
        phase(Phase::Build)?;
        self.prove(checks)?;
        phase(Phase::Place)?;
        phase(Phase::Clear)?;
        let change = |error: anyhow::Error| Trouble::Change(format!("{error:#}"));
        let actual = self.look(desired, makes).map_err(change)?;
        let mut wished = desired.clone();
        if let (Some(wished), Some(actual)) = (&mut wished.nft, &actual.nft) {
            let loaded = steps.iter().any(|step| matches!(step.action, Action::LoadNft { .. }));
            // What the kernel shows for a text is known only once it was loaded.
            if loaded {
                wished.listing.clone_from(&actual.listing);
                if nft::placement_in(&actual.text) != nft::placement_in(&wished.text) {
                    return Err(Trouble::Change(
                        "the placement of clients did not read back as it was written".to_owned(),
                    ));
                }
            }
        }
        self.no_difference(&actual, &wished).map_err(Trouble::Change)?;
        for check in checks {
            if let Check::Route { query, device, .. } = check {
                let way = apply::route_get(query).map_err(change)?;
                let named = way.and_then(|way| way.dev);
                if named.as_deref() != Some(device.as_str()) {
                    return Err(Trouble::Change(format!(
                        "{}, but the kernel says {}",
                        check.describe(),
                        named.unwrap_or_else(|| "unreachable".to_owned())
                    )));
                }
            }
        }
        Ok(actual)
    }

    /// Asks through every newly loaded slot, side by side.
    fn prove(&self, checks: &[Check]) -> Result<(), Trouble> {
        let mut open: Vec<(&Interface, &Pages, u32)> = checks
            .iter()
            .filter_map(|check| match check {
                Check::Answer { interface, ask, attempts } => Some((interface, ask, *attempts)),
                Check::Route { .. } => None,
            })
            .collect();
        let mut failed = BTreeMap::new();
        let mut attempt = 0;
        while !open.is_empty() {
            attempt += 1;
            let questions = open
                .iter()
                .map(|(_, ask, _)| Question::Pages(Pages { turn: attempt, ..(*ask).clone() }))
                .collect();
            let eyes = Eyes { folder: self.folder.path(), hands: &self.hands, may_change: true };
            let readings =
                observe(questions, &eyes).map_err(|error| Trouble::Change(format!("{error:#}")))?;
            let mut again = Vec::new();
            for (interface, ask, attempts) in open {
                let passed = readings.iter().any(|(question, reading)| match (question, reading) {
                    (Question::Pages(pages), Reading::Pages(seen)) => {
                        pages.asker == ask.asker && seen.passes(pages)
                    }
                    _ => false,
                });
                if passed {
                    continue;
                }
                if attempt < attempts {
                    again.push((interface, ask, attempts));
                } else {
                    failed.insert(interface.clone(), "no request was answered".to_owned());
                }
            }
            open = again;
        }
        if failed.is_empty() { Ok(()) } else { Err(Trouble::Answer(failed)) }
    }

    /// Tells a dead tunnel from a dead uplink.
    fn uplink_answers(&self, reference: Option<&Question>) -> anyhow::Result<bool> {
        let Some(reference) = reference else { return Ok(true) };
        let eyes = Eyes { folder: self.folder.path(), hands: &self.hands, may_change: true };
        let readings = observe(vec![reference.clone()], &eyes)?;
        Ok(readings.iter().any(|(question, reading)| match (question, reading) {
            (Question::Pages(pages), Reading::Pages(seen)) => seen.passes(pages),
            _ => false,
        }))
    }

    /// What was loaded does not carry requests: the future for that case is made true instead.
    fn refused(
        &mut self,
        decision: &Decision<M::State>,
        failed: &BTreeMap<Interface, String>,
        backup: &World,
        makes: &BTreeSet<Interface>,
        mut report: Report,
    ) -> anyhow::Result<Report> {
        let future = M::refuse(&self.subject(), decision, failed, &clock::now()?);
        report.to = Some(future.to.clone());
        report.reasons.clone_from(&future.reasons);
        let desired = complete(&self.record, future.world.clone());
        let steps = match self.look(&desired, makes) {
            Ok(now) => diff(&now, &desired, &M::means(self.order.policy)),
            Err(error) => {
                let undone = self.with(decision.undone.clone());
                return self.undo(backup, makes, undone, report, &format!("{error:#}"));
            }
        };
        match self.attempt(&steps, &[], &desired, makes) {
            Ok(actual) => {
                report.changes = steps.len();
                let notes = cut_all(&future.cuts);
                self.commit(&future, &desired, &actual, backup)?;
                drop(cut_all(&future.cuts));
                for note in notes {
                    report = report.because("cut", note);
                }
                Ok(report.ended(Ending::RolledBack, Exit::RolledBack))
            }
            Err(Trouble::Change(why)) => {
                let undone = self.with(decision.undone.clone());
                self.undo(backup, makes, undone, report, &why)
            }
            // A second spoilt file: the next step comes to it.
            Err(Trouble::Answer(failed)) => {
                let undone = self.with(decision.undone.clone());
                let why = failed.into_values().next().unwrap_or_default();
                self.undo(backup, makes, undone, report, &why)
            }
        }
    }

    /// Puts the world back and says so. When that fails the journal stays for the next run.
    pub(super) fn undo(
        &mut self,
        backup: &World,
        makes: &BTreeSet<Interface>,
        record: Record<M::State>,
        report: Report,
        why: &str,
    ) -> anyhow::Result<Report> {
        let mut report =
            report.because("undone", format!("the change failed and was undone: {why}"));
        match self.restore(backup, makes) {
            Ok(()) => {
                self.record = record;
                self.held.commit(&self.record, &clock::now()?)?;
                report.to = self.record.machine.as_ref().map(|state| M::stands(state).0.to_owned());
                Ok(report.ended(Ending::RolledBack, Exit::RolledBack))
            }
            Err(failure) => Ok(report
                .because("stuck", format!("undoing failed, the next run tries again: {failure}"))
                .ended(Ending::Failed, Exit::Stuck)),
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

    /// Writes down the future that came true.
    pub(super) fn commit(
        &mut self,
        future: &Future<M::State>,
        desired: &World,
        actual: &World,
        backup: &World,
    ) -> anyhow::Result<()> {
        // What closes more is written before the state that wants it, what opens more after it: a
        // run that dies in between leaves a barrier that is too closed rather than too open.
        let opens = future.barrier.as_deref().is_none_or(nft::is_open);
        if !opens {
            self.barrier(future.barrier.as_deref())?;
        }
        self.adopt(future, desired, actual, backup);
        self.held.commit(&self.record, &clock::now()?)?;
        if opens {
            self.barrier(future.barrier.as_deref())?;
        }
        self.forget(&future.generations);
        Ok(())
    }

    /// Takes the future that came true into the record.
    fn adopt(
        &mut self,
        future: &Future<M::State>,
        desired: &World,
        actual: &World,
        backup: &World,
    ) {
        let owned =
            owned_after(&self.record.owned, &future.world, backup, M::realm(self.order.policy));
        self.record = Record {
            machine: Some(future.state.clone()),
            nft: loaded_nft(desired, actual),
            owned,
            // In the same write, or a run that dies here would be followed by one that builds again.
            paused: if self.retiring {
                Some(self.started.clone())
            } else {
                self.record.paused.clone()
            },
            ..self.record.clone()
        };
    }

    /// Keeps what closes the clients at boot in step with the state.
    fn barrier(&self, text: Option<&str>) -> anyhow::Result<()> {
        let path = self.folder.path().join("barrier.nft");
        files::keep_in_step(&path, text.map(str::as_bytes), 0o600)
    }
}

fn count(n: usize) -> String {
    if n == 1 { "1 object".to_owned() } else { format!("{n} objects") }
}

/// Ends flows. Their failing is told and undoes nothing: the clients are where they belong.
fn cut_all(cuts: &[Cut]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut ended = 0_u64;
    for wanted in cuts {
        match cut(wanted) {
            Ok(CutResult::Ended(flows)) => ended = ended.saturating_add(flows),
            Ok(CutResult::NoTool) => {
                notes.push("open flows were not ended: install conntrack".to_owned());
                break;
            }
            Err(error) => notes.push(format!("open flows were not ended: {error:#}")),
        }
    }
    if ended > 0 {
        notes.push(format!("{ended} open flows ended"));
    }
    notes
}
