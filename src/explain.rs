//! What a step would do and why, as values for people and machines.
//!
//! **Invariant:** what is told is made of the observation and the decision alone, so that it is the
//! same wherever and whenever it is told again.

mod evidence;

pub use evidence::{asked, evidence};

use crate::kernel::World;
use crate::kernel::diff::diff;
use crate::kernel::read::sha256;
use crate::machine::{Decision, Machine, ReasonText, Subject};
use crate::names::PolicyName;
use crate::outcome::harmless;
use crate::plan::{Action, Check, Step};
use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a step would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Preview {
    /// The policy.
    pub policy: PolicyName,
    /// Where the machine stands; `null` on the first run.
    pub from: Option<String>,
    /// Where it would stand.
    pub to: Option<String>,
    /// Why.
    pub reasons: Vec<ReasonText>,
    /// The changes, in order, each with what takes it back.
    pub steps: Vec<Change>,
    /// What must be true afterwards.
    pub checks: Vec<String>,
    /// Why, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain: Option<Explain>,
}

/// Why a step does what it does, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explain {
    /// What was seen, a line a thing.
    pub evidence: Vec<String>,
    /// The row of the machine's table, or why it stays where it is: codes of reasons.
    pub rule: Vec<String>,
    /// From where to where; `null`: it stays.
    pub transition: Option<String>,
    /// The commands, in order.
    pub commands: Vec<String>,
}

impl Explain {
    /// As it is told beside a report of the step itself.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let commands = self.commands.iter().map(|command| format!("  do    {}", harmless(command)));
        self.seen().into_iter().chain(commands).collect()
    }

    /// The same without the commands.
    fn seen(&self) -> Vec<String> {
        let evidence = self.evidence.iter().map(|line| format!("  seen  {}", harmless(line)));
        let row = self.transition.as_ref().map_or("stays", String::as_str);
        let rule = format!("  rule  {row}: {}", self.rule.join(", "));
        evidence.chain([rule]).collect()
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The commands that make it.
    #[serde(rename = "do")]
    pub forward: Vec<String>,
    /// The commands that take it back.
    pub undo: Vec<String>,
}

impl Change {
    /// Steps as commands. A setting of an interface that the steps make goes with the interface.
    pub(crate) fn all(steps: &[Step]) -> Vec<Self> {
        let goes_with = |path: &str, made: &Step| {
            let Action::CreateTunnel { interface, .. } = &made.action else { return false };
            path.split('/').any(|part| part == interface.as_str())
        };
        let undo = |step: &Step| {
            let Action::Sysctl { path, .. } = &step.action else { return step.undo.clone() };
            let maker = steps.iter().find(|made| goes_with(path, made));
            maker.unwrap_or(step).undo.clone()
        };
        let change = |step: &Step| Self {
            forward: vec![step.action.command()],
            undo: undo(step).iter().map(Action::command).collect(),
        };
        steps.iter().map(change).collect()
    }
}

impl fmt::Display for Preview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |state: &Option<String>| state.clone().unwrap_or_else(|| "none".to_owned());
        if self.from == self.to {
            writeln!(f, "{}: {}", self.policy, name(&self.to))?;
        } else {
            writeln!(f, "{}: {} -> {}", self.policy, name(&self.from), name(&self.to))?;
        }
        for line in self.explain.iter().flat_map(Explain::seen) {
            writeln!(f, "{line}")?;
        }
        for reason in &self.reasons {
            writeln!(f, "  because {}", harmless(&reason.text))?;
        }
        if self.steps.is_empty() {
            write!(f, "  nothing to change")?;
        }
        let mut lines = Vec::new();
        for step in &self.steps {
            lines.extend(step.forward.iter().map(|command| format!("  do    {command}")));
            lines.extend(step.undo.iter().map(|command| format!("    undo  {command}")));
        }
        lines.extend(self.checks.iter().map(|check| format!("  check {check}")));
        if !self.steps.is_empty() || !self.checks.is_empty() {
            write!(f, "{}", lines.join("\n"))?;
        }
        Ok(())
    }
}

/// What was decided, in words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// Where the machine stood; `null` on the first run.
    pub from: Option<String>,
    /// Where it stands if that comes true; `null`: the policy cannot be served.
    pub to: Option<String>,
    /// Why.
    pub reasons: Vec<ReasonText>,
    /// The changes, in order, each with what takes it back.
    pub steps: Vec<Change>,
    /// What must be true afterwards.
    pub checks: Vec<String>,
    /// What is remembered if that comes true.
    pub state: serde_json::Value,
}

impl Decided {
    /// A decision in words; `before` is what there is of the policy's own.
    #[must_use]
    pub fn of<M: Machine>(
        subject: &Subject<'_, M>,
        record: &Record<M::State>,
        before: &World,
        decision: &Decision<M::State>,
    ) -> Self {
        let desired = complete(record, M::whole(subject, decision));
        let mut steps = Change::all(&diff(before, &desired, &M::means(subject.policy)));
        steps.extend(decision.wished.settings.iter().map(|(setting, edit)| Change {
            forward: vec![setting.command(&edit.to)],
            undo: vec![setting.command(&edit.expected)],
        }));
        Self {
            from: decision.from.clone(),
            to: Some(decision.wished.to.clone()),
            reasons: decision.wished.reasons.clone(),
            steps,
            checks: decision.checks.iter().map(Check::describe).collect(),
            state: serde_json::to_value(&decision.wished.state).unwrap_or_default(),
        }
    }

    /// That the policy cannot be served, in the same form.
    pub(crate) fn unable(stands: Option<String>, reasons: Vec<ReasonText>) -> Self {
        let (steps, checks) = (Vec::new(), Vec::new());
        Self { from: stands, to: None, reasons, steps, checks, state: serde_json::Value::Null }
    }

    /// Why it was decided so.
    #[must_use]
    pub fn explain<M: Machine>(&self, evidence: Vec<String>) -> Explain {
        let moved = self.to.as_ref().filter(|to| self.from.as_ref() != Some(*to));
        let from = self.from.as_deref();
        let edges = M::edges();
        let row = moved.and_then(|to| edges.iter().find(|row| row.from == from && row.to == to));
        let codes = || self.reasons.iter().map(|reason| reason.code.as_str());
        // Of a machine of several parts the reasons tell more than one row.
        let told = |code: &&str| row.is_none_or(|row| row.codes.contains(code));
        let mut rule: Vec<String> = codes().filter(told).map(str::to_owned).collect();
        if rule.is_empty() {
            rule = codes().map(str::to_owned).collect();
        }
        rule.dedup();
        Explain {
            evidence,
            rule,
            transition: moved.map(|to| format!("{} -> {to}", from.unwrap_or("none"))),
            commands: self.steps.iter().flat_map(|step| step.forward.iter().cloned()).collect(),
        }
    }
}

/// The wished world with what only the record knows.
pub(crate) fn complete<S>(record: &Record<S>, mut desired: World) -> World {
    if let (Some(table), Some(loaded)) = (&mut desired.nft, &record.nft)
        && loaded.text == sha256(table.text.as_bytes())
    {
        table.listing = Some(loaded.listing.clone());
    }
    for (path, original) in &record.owned.sysctls {
        desired.sysctls.entry(path.clone()).or_insert_with(|| original.clone());
    }
    desired
}
