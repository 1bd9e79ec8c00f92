//! What a step would do, found out without changing or creating anything.
//!
//! **Invariant:** no lock, no folder, no file and no interface is made; candidates that a step would
//! test are taken to pass.

use super::Order;
use crate::explain::{Change, Decided, Preview, complete, evidence};
use crate::host::apply::Hands;
use crate::host::clock;
use crate::host::observe::{Eyes, observe};
use crate::host::store::{Folder, ReadOnly, read_only};
use crate::kernel::World;
use crate::kernel::diff::diff;
use crate::machine::{Considered, Decision, Machine, ReasonText, Subject};
use crate::observation::{Observation, TrialResult};
use crate::record::Record;

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
        explain: None,
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
    let before = before(&subject, &record, &seen, &decision)?;
    let decided = Decided::of(&subject, &record, &before, &decision);
    preview.explain = Some(decided.explain::<M>(evidence(&seen)));
    preview.from = decided.from;
    preview.to = decided.to;
    preview.reasons = decided.reasons;
    preview.reasons.extend(assumed(&seen));
    preview.steps = decided.steps;
    preview.checks = decided.checks;
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
        explain: None,
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

/// What there is of a policy's own before a decision is carried out, with the settings that it touches.
///
/// # Errors
/// When the kernel cannot be looked at.
pub(super) fn before<M: Machine>(
    subject: &Subject<'_, M>,
    record: &Record<M::State>,
    seen: &Observation,
    decision: &Decision<M::State>,
) -> anyhow::Result<World> {
    let mut before = match seen.kernel() {
        Some(kernel) => kernel.world.clone(),
        None => own_world(subject)?,
    };
    let desired = complete(record, M::whole(subject, decision));
    let missing = desired.sysctls.keys().filter(|path| !before.sysctls.contains_key(*path));
    before.sysctls.extend(crate::host::look::sysctls(&missing.cloned().collect())?);
    Ok(before)
}
