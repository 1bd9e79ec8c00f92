//! What a step would do, found out without changing or creating anything.
//!
//! **Invariant:** no lock, no folder, no file and no interface is made; candidates that a step would
//! test are taken to pass.

use super::Order;
use crate::host::apply::Hands;
use crate::host::clock;
use crate::host::observe::{Eyes, observe};
use crate::host::store::{Folder, ReadOnly, read_only};
use crate::kernel::World;
use crate::kernel::diff::diff;
use crate::kernel::read::sha256;
use crate::machine::{Considered, Machine, ReasonText, Subject};
use crate::names::PolicyName;
use crate::observation::{Observation, TrialResult};
use crate::outcome::harmless;
use crate::plan::{Action, Check, Step};
use crate::record::Record;
use serde::Serialize;
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
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The commands that make it.
    #[serde(rename = "do")]
    pub forward: Vec<String>,
    /// The commands that take it back.
    pub undo: Vec<String>,
}

impl Change {
    /// Steps as commands. A setting of an interface that the steps make goes with the interface.
    fn all(steps: &[Step]) -> Vec<Self> {
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

/// What the state file says, without the lock.
fn record<M: Machine>(order: &Order<'_, M>) -> anyhow::Result<(Folder, Record<M::State>)> {
    let folder = Folder::new(order.state_dir, order.name.clone());
    match read_only::<Record<M::State>>(&folder, M::KIND.as_str()) {
        ReadOnly::Newer { found, known } => anyhow::bail!(
            "state of {} has format version {found}, newer than {known}: use the newer egressctl",
            order.name
        ),
        ReadOnly::Seen { is_in_flight: true, .. } => anyhow::bail!(
            "a run of {} died or is running; the next step undoes what it left",
            order.name
        ),
        ReadOnly::Seen { loaded, .. } => {
            let record = loaded.body().cloned().unwrap_or_default();
            Ok((folder, record))
        }
    }
}

/// Observes and decides like a step, and says what would be changed.
///
/// # Errors
/// When the state cannot be read or the kernel cannot be looked at.
pub fn preview<M: Machine>(order: &Order<'_, M>) -> anyhow::Result<Preview> {
    let (folder, record) = record(order)?;
    let subject = Subject::<M> {
        name: order.name,
        policy: order.policy,
        state: record.machine.as_ref(),
        paused: false,
        owned: &record.owned,
    };
    let hands = Hands::new(folder.path().to_owned());
    let eyes = Eyes { folder: folder.path(), hands: &hands, may_change: false };
    let mut seen = Observation::new(clock::now()?);
    let budget = M::rhythm(order.policy, record.machine.as_ref()).budget;
    let mut preview = Preview {
        policy: order.name.clone(),
        from: record.machine.as_ref().map(|state| M::stands(state).0.into_owned()),
        to: record.machine.as_ref().map(|state| M::stands(state).0.into_owned()),
        reasons: Vec::new(),
        steps: Vec::new(),
        checks: Vec::new(),
    };
    if let Some(paused) = &record.paused {
        let since = paused.at.strftime("%Y-%m-%d %H:%M:%SZ");
        let text = format!("paused by a person since {since}; nothing is changed until `resume`");
        preview.reasons.push(ReasonText::new("paused", text));
        return Ok(preview);
    }
    let decision = loop {
        let now = clock::now()?;
        let in_time = now.since(&seen.started) < budget / 2;
        match M::consider(&subject, &seen, &now, in_time) {
            Considered::Ask(questions) => seen.readings.extend(observe(questions, &eyes)?),
            Considered::Unable(reasons) => {
                preview.reasons = reasons;
                return Ok(preview);
            }
            Considered::Decide(decision) => break decision,
        }
    };
    let mut actual = match seen.kernel() {
        Some(kernel) => kernel.world.clone(),
        None => own_world(&subject)?,
    };
    let desired = complete(&record, M::whole(&subject, &decision));
    let missing = desired.sysctls.keys().filter(|path| !actual.sysctls.contains_key(*path));
    actual.sysctls.extend(crate::host::look::sysctls(&missing.cloned().collect())?);
    preview.from = decision.from;
    preview.to = Some(decision.wished.to);
    preview.reasons = decision.wished.reasons;
    preview.reasons.extend(assumed(&seen));
    let steps = diff(&actual, &desired, &M::means(order.policy));
    preview.steps = Change::all(&steps);
    preview.steps.extend(decision.wished.settings.iter().map(|(setting, edit)| Change {
        forward: vec![setting.command(&edit.to)],
        undo: vec![setting.command(&edit.expected)],
    }));
    preview.checks = decision.checks.iter().map(Check::describe).collect();
    Ok(preview)
}

/// That candidates were taken to pass, if any was.
fn assumed(seen: &Observation) -> Option<ReasonText> {
    let assumed = seen.trials().filter(|(_, seen)| seen.result == TrialResult::Assumed).count();
    let candidates = if assumed == 1 { "candidate passes its" } else { "candidates pass their" };
    let text = format!("assumed: {assumed} {candidates} test, since a plan changes nothing");
    (assumed > 0).then(|| ReasonText::new("assumed", text))
}

/// What `down` would do.
///
/// # Errors
/// As [`preview`].
pub fn preview_down<M: Machine>(order: &Order<'_, M>) -> anyhow::Result<Preview> {
    let (_, record) = record(order)?;
    let subject = Subject::<M> {
        name: order.name,
        policy: order.policy,
        state: record.machine.as_ref(),
        paused: false,
        owned: &record.owned,
    };
    let actual = own_world(&subject)?;
    let wished = M::retire(&subject, &clock::now()?).map(|future| future.world).unwrap_or_default();
    let desired = complete(&record, wished);
    let steps = diff(&actual, &desired, &M::means(order.policy));
    let stands = record.machine.as_ref().map(|state| M::stands(state).0.into_owned());
    Ok(Preview {
        policy: order.name.clone(),
        from: stands.clone(),
        to: stands,
        reasons: vec![ReasonText::new("down", "all that was made would be removed")],
        steps: Change::all(&steps),
        checks: Vec::new(),
    })
}

/// What there is in the kernel of a policy's own, of what it made as another one, too.
fn own_world<M: Machine>(subject: &Subject<'_, M>) -> anyhow::Result<World> {
    if M::realms(subject.policy).is_empty() && subject.owned.realms.is_empty() {
        return Ok(World::default());
    }
    let mut scope = M::scope(subject, 0);
    scope.sysctls.extend(subject.owned.sysctls.keys().cloned());
    scope.bound.clear();
    Ok(crate::host::look::kernel(&scope)?.world)
}

/// The wished world with what only the record knows.
pub(super) fn complete<S>(record: &Record<S>, mut desired: World) -> World {
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
