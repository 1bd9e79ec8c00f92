//! Makes one decision come true, or takes it back.
//!
//! **Invariant:** only from here is anything committed or undone; whatever way a change goes, the
//! world is read back before the state is written.

use super::attempt::Trouble;
use super::commit::cut_all;
use super::undo::{Before, stuck};
use super::{Run, settings};
use crate::explain::complete;
use crate::host::observe::observe;
use crate::host::{clock, stop};
use crate::kernel::World;
use crate::kernel::diff::diff;
use crate::machine::{Carried, Decision, Future, Machine, Proof, Settled};
use crate::names::Interface;
use crate::observation::Observation;
use crate::outcome::{Ending, Exit, Report};
use crate::plan::{Step, lint};
use crate::record::{Journal, Record};
use crate::setting::{Edit, Setting, Written};
use std::collections::{BTreeMap, BTreeSet};

/// What became of a decision that was carried out.
struct Done<'a, S> {
    decision: &'a Decision<S>,
    world: &'a World,
    written: &'a BTreeMap<Setting, Written>,
    changes: usize,
}

impl<M: Machine> Run<'_, M> {
    pub(super) fn transact(
        &mut self,
        seen: &Observation,
        decision: &Decision<M::State>,
    ) -> anyhow::Result<Report> {
        let mut report = self.blank();
        report.from.clone_from(&decision.from);
        report.to = Some(decision.wished.to.clone());
        report.reasons.extend(decision.wished.reasons.iter().cloned());
        let desired = complete(&self.record, decision.wished.world.clone());
        let makes: BTreeSet<Interface> = desired.tunnels.keys().cloned().collect();
        let backup = self.backup(seen, &desired, &makes)?;
        let steps = self.steps(&backup, &desired)?;
        if steps.is_empty() && decision.checks.is_empty() && decision.wished.settings.is_empty() {
            // The end of the run writes the state; once is enough when nothing was in flight.
            self.barrier(decision.wished.barrier.as_deref())?;
            self.adopt(&decision.wished, &desired, &backup, &backup);
            // The files of a list that was refused hold keys, and nobody needs them.
            self.lists = seen.lists().next().map(|_| decision.wished.generations.clone());
            return Ok(report.ended(Ending::Steady, Exit::Fine));
        }
        if let Some(standing) = &decision.standing {
            let standing = complete(&self.record, standing.clone());
            let drift = diff(&backup, &standing, &M::means(self.order.policy));
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
        let before = Before { backup, makes, flights: Vec::new() };
        self.carry_out(seen, decision, steps, before, report)
    }

    /// Carries out a decision and those that follow from what is seen of it, in one transaction. What
    /// this run cannot bring to its end, because a file cannot be written or the kernel cannot be read, it
    /// takes back itself: the next one may be long in coming.
    fn carry_out(
        &mut self,
        seen: &Observation,
        first: &Decision<M::State>,
        steps: Vec<Step>,
        mut before: Before,
        report: Report,
    ) -> anyhow::Result<Report> {
        let mut decision = first.clone();
        match self.go_through(seen, &mut decision, steps, &mut before, report.clone()) {
            Err(error) if self.held.is_open() => {
                let undone = self.with(decision.undone);
                self.undo(&before, undone, report, &format!("{error:#}"))
            }
            done => done,
        }
    }

    /// Goes from one decision to the next until one is committed or undone.
    fn go_through(
        &mut self,
        seen: &Observation,
        decision: &mut Decision<M::State>,
        mut steps: Vec<Step>,
        before: &mut Before,
        mut report: Report,
    ) -> anyhow::Result<Report> {
        let held = decision.held.clone();
        let undone = decision.undone.clone();
        let mut changes = 0;
        for tries in 0.. {
            let desired = complete(&self.record, decision.wished.world.clone());
            before.makes.extend(desired.tunnels.keys().cloned());
            settings::in_flight(&mut before.flights, &decision.wished.settings);
            self.begin(before, &report, &steps, decision)?;
            let actual = match self.attempt(&steps, &decision.checks, &desired, &before.makes) {
                Ok(actual) => actual,
                Err(Trouble::Change(why)) => {
                    return self.undo(before, self.with(undone), report, &why);
                }
                Err(Trouble::Answer(failed)) => {
                    if self.uplink_answers(&decision.references)? {
                        return self.refused(decision, &failed, before, report);
                    }
                    let why = "the WAN went down while the change was being proven";
                    return self.undo(before, self.with(held), report, why);
                }
            };
            let written = settings::write_all(&decision.wished.settings);
            changes += steps.len() + written.values().filter(|w| **w == Written::Done).count();
            match self.proof(decision, seen, &written, tries)? {
                Proof::Ask(_) => anyhow::bail!("the machine asks without end"),
                Proof::Next(next) => {
                    let desired = complete(&self.record, next.wished.world.clone());
                    steps = self.steps(&actual, &desired)?;
                    report.reasons.retain(|said| !decision.wished.reasons.contains(said));
                    report.reasons.extend(next.wished.reasons.iter().cloned());
                    report.to = Some(next.wished.to.clone());
                    *decision = *next;
                }
                Proof::Settle(future, settled) => {
                    let done = Done { decision, world: &actual, written: &written, changes };
                    return self.settle(&future, settled, &done, before, report);
                }
                Proof::Unknown(why) => return Ok(stuck(report, &why)),
            }
        }
        anyhow::bail!("the machine tries without end")
    }

    /// Writes the journal of what is about to be done.
    fn begin(
        &mut self,
        before: &Before,
        report: &Report,
        steps: &[Step],
        decision: &Decision<M::State>,
    ) -> anyhow::Result<()> {
        if stop::is_asked() && !self.held.is_in_flight() {
            anyhow::bail!(super::consider::TOLD_TO_END);
        }
        if self.hold.is_none() {
            self.hold = Some(stop::hold()?);
        }
        let writes = decision.wished.settings.iter();
        let writes = writes.map(|(setting, edit)| setting.command(&edit.to));
        let journal = Journal {
            at: clock::now()?,
            purpose: report.to_string(),
            backup: before.backup.clone(),
            makes: before.makes.clone(),
            settings: before.flights.clone(),
            commands: steps.iter().map(|step| step.action.command()).chain(writes).collect(),
            undone: self.with(decision.undone.clone()),
        };
        self.begin_trial(&journal)?;
        // What follows from a decision belongs to the change that it began.
        if self.held.is_in_flight() { self.held.go_on(&journal) } else { self.held.begin(&journal) }
    }

    /// Asks the machine what follows, and the world what the machine asks.
    fn proof(
        &self,
        decision: &Decision<M::State>,
        before: &Observation,
        written: &BTreeMap<Setting, Written>,
        tries: u32,
    ) -> anyhow::Result<Proof<M::State>> {
        let mut seen = Observation::new(clock::now()?);
        let budget = self.rhythm().budget;
        loop {
            let now = clock::now()?;
            // A quarter of the budget is left for taking it all back.
            let in_time = now.since(&self.started) < budget.saturating_mul(3) / 4;
            let may_ask = in_time && !stop::is_asked();
            let carried = Carried { before, seen: &seen, written, tries, may_ask };
            match M::prove(&self.subject(), decision, &carried, &now) {
                Proof::Ask(questions) if may_ask => {
                    seen.readings.extend(observe(questions, &self.eyes())?);
                }
                proof
                @ (Proof::Ask(_) | Proof::Next(_) | Proof::Unknown(_) | Proof::Settle(..)) => {
                    return Ok(proof);
                }
            }
        }
    }

    /// Makes a future true, where it is not yet, and remembers it.
    fn settle(
        &mut self,
        future: &Future<M::State>,
        settled: Settled,
        done: &Done<'_, M::State>,
        before: &mut Before,
        mut report: Report,
    ) -> anyhow::Result<Report> {
        report.to = Some(future.to.clone());
        if future.reasons != done.decision.wished.reasons {
            report.reasons.retain(|said| !done.decision.wished.reasons.contains(said));
            report.reasons.extend(future.reasons.iter().cloned());
        }
        report.changes = done.changes;
        let desired = complete(&self.record, future.world.clone());
        let mut actual = done.world.clone();
        if future.world != done.decision.wished.world {
            let steps = self.steps(&actual, &desired)?;
            actual = match self.attempt(&steps, &[], &desired, &before.makes) {
                Ok(actual) => actual,
                Err(Trouble::Change(why)) => {
                    let undone = self.with(done.decision.undone.clone());
                    return self.undo(before, undone, report, &why);
                }
                Err(Trouble::Answer(failed)) => {
                    let undone = self.with(done.decision.undone.clone());
                    let why = failed.into_values().next().unwrap_or_default();
                    return self.undo(before, undone, report, &why);
                }
            };
        }
        let stands = |setting: &Setting, edit: &Edit| {
            done.written.get(setting) == Some(&Written::Done)
                && done.decision.wished.settings.get(setting).is_some_and(|was| was.to == edit.to)
        };
        let mut left = future.settings.clone();
        left.retain(|setting, edit| !stands(setting, edit));
        if !left.is_empty() {
            settings::in_flight(&mut before.flights, &left);
            self.begin(before, &report, &[], done.decision)?;
            for (setting, written) in settings::write_all(&left) {
                match written {
                    Written::Done | Written::Overtaken { .. } => {}
                    Written::Refused { why, .. } | Written::Unreadable { why } => {
                        return Ok(stuck(report, &format!("{setting}: {why}")));
                    }
                }
            }
        }
        self.pausing &= settled == Settled::Applied;
        let notes = cut_all(&future.cuts);
        self.commit(future, &desired, &actual, &before.backup)?;
        // A packet that was under way meanwhile may have made an entry anew.
        drop(cut_all(&future.cuts));
        for note in notes {
            report = report.because("cut", note);
        }
        Ok(match settled {
            Settled::Applied => report.ended(Ending::Applied, Exit::Fine),
            Settled::RolledBack => report.ended(Ending::RolledBack, Exit::RolledBack),
        })
    }

    /// The way from one world to another.
    fn steps(&self, actual: &World, desired: &World) -> anyhow::Result<Vec<Step>> {
        let steps = diff(actual, desired, &M::means(self.order.policy));
        match lint(&steps).first() {
            Some(note) => {
                anyhow::bail!("the plan contradicts itself, nothing was touched: {note}")
            }
            None => Ok(steps),
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

    /// What was loaded does not carry requests: the future for that case is made true instead.
    fn refused(
        &mut self,
        decision: &Decision<M::State>,
        failed: &BTreeMap<Interface, String>,
        before: &Before,
        mut report: Report,
    ) -> anyhow::Result<Report> {
        self.pausing = false;
        let undone = self.with(decision.undone.clone());
        let refused = M::refuse(&self.subject(), decision, failed, &clock::now()?);
        let Some(future) = refused else {
            let why = failed.values().next().cloned().unwrap_or_default();
            return self.undo(before, undone, report, &why);
        };
        report.to = Some(future.to.clone());
        report.reasons.clone_from(&future.reasons);
        let desired = complete(&self.record, future.world.clone());
        let steps = match self.look(&desired, &before.makes) {
            Ok(now) => diff(&now, &desired, &M::means(self.order.policy)),
            Err(error) => return self.undo(before, undone, report, &format!("{error:#}")),
        };
        match self.attempt(&steps, &[], &desired, &before.makes) {
            Ok(actual) => {
                report.changes = steps.len();
                let notes = cut_all(&future.cuts);
                self.commit(&future, &desired, &actual, &before.backup)?;
                drop(cut_all(&future.cuts));
                for note in notes {
                    report = report.because("cut", note);
                }
                Ok(report.ended(Ending::RolledBack, Exit::RolledBack))
            }
            Err(Trouble::Change(why)) => self.undo(before, undone, report, &why),
            // A second spoilt file: the next step comes to it.
            Err(Trouble::Answer(failed)) => {
                let why = failed.into_values().next().unwrap_or_default();
                self.undo(before, undone, report, &why)
            }
        }
    }
}

fn count(n: usize) -> String {
    if n == 1 { "1 object".to_owned() } else { format!("{n} objects") }
}
