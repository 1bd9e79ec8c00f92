//! Looks as a step would, for `check`: everything that a step asks, and nothing changed.
//!
//! **Invariant:** no lock, no folder, no file and no interface is made.

use super::Order;
use crate::host::apply::Hands;
use crate::host::clock;
use crate::host::observe::{Eyes, observe};
use crate::host::store::{Folder, Loaded, ReadOnly, read_only};
use crate::machine::{Considered, Machine, ReasonText, Subject};
use crate::observation::Observation;
use crate::record::Record;
use std::path::PathBuf;

/// What was seen, and what the state says.
pub struct Survey<S> {
    /// What is remembered.
    pub record: Record<S>,
    /// Why the last state could not be read, if it could not.
    pub damaged: Option<String>,
    /// Why a step would refuse the state, if it would.
    pub foreign: Option<String>,
    /// Whether a change is in flight, or was when a run died.
    pub is_in_flight: bool,
    /// What was seen.
    pub seen: Observation,
    /// What a step would remember, as far as it would decide.
    pub decided: Option<S>,
    /// Why the machine cannot serve the policy, if it cannot.
    pub unable: Vec<ReasonText>,
    /// What could not be looked at, if anything.
    pub blind: Option<String>,
}

/// Observes like a step.
///
/// # Errors
/// When a clock cannot be read.
pub fn survey<M: Machine>(order: &Order<'_, M>) -> anyhow::Result<Survey<M::State>> {
    let folder = Folder::new(order.state_dir, order.name.clone());
    let mut survey = Survey {
        record: Record::default(),
        damaged: None,
        foreign: None,
        is_in_flight: false,
        seen: Observation::new(clock::now()?),
        decided: None,
        unable: Vec::new(),
        blind: None,
    };
    match read_only::<Record<M::State>>(&folder, M::KIND.as_str()) {
        ReadOnly::Newer { found, known } => {
            survey.foreign = Some(format!(
                "its state has format version {found}, newer than {known}: use the newer egressctl"
            ));
        }
        ReadOnly::Seen { loaded, about, is_in_flight } => {
            survey.is_in_flight = is_in_flight;
            survey.damaged = match &loaded {
                Loaded::Nothing | Loaded::Good(_) => None,
                Loaded::FromBackup { why, .. } | Loaded::Lost { why } => Some(why.clone()),
            };
            survey.foreign = about.filter(|about| about.path != order.path).map(|about| {
                let (ours, theirs): (PathBuf, PathBuf) = (order.path.to_owned(), about.path);
                format!("its state belongs to {}, not to {}", theirs.display(), ours.display())
            });
            survey.record = loaded.body().cloned().unwrap_or_default();
        }
    }
    let subject = Subject::<M> {
        name: order.name,
        policy: order.policy,
        state: survey.record.machine.as_ref(),
        paused: false,
        owned: &survey.record.owned,
    };
    let hands = Hands::new(folder.path().to_owned());
    let eyes = Eyes { folder: folder.path(), hands: &hands, may_change: false };
    let budget = M::rhythm(order.policy, survey.record.machine.as_ref()).budget;
    loop {
        let now = clock::now()?;
        let in_time = now.since(&survey.seen.started) < budget / 2;
        match M::consider(&subject, &survey.seen, &now, in_time) {
            Considered::Ask(questions) => match observe(questions, &eyes) {
                Ok(readings) => survey.seen.readings.extend(readings),
                Err(why) => {
                    survey.blind = Some(format!("{why:#}"));
                    break;
                }
            },
            Considered::Unable(reasons) => {
                survey.unable = reasons;
                break;
            }
            Considered::Decide(decision) => {
                survey.decided = Some(decision.wished.state);
                break;
            }
        }
    }
    Ok(survey)
}
