//! What is judged alike for every kind: the state as a file, and what a step would say.
//!
//! **Invariant:** a kind that adds no judgement of its own still has its probes shown.

use super::{Code, Finding, Probe, ProbeResult};
use crate::machine::ReasonText;
use crate::names::PolicyName;
use crate::observation::{Asker, ConfigReading, Observation, PageReading, Question, Reading};
use std::path::Path;

/// What is known of a policy's state and of a step that would be made now.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The policy's name.
    pub name: &'a PolicyName,
    /// Its file.
    pub path: &'a Path,
    /// Why the last state could not be read, if it could not.
    pub damaged: Option<&'a str>,
    /// Why a step would refuse the state, if it would.
    pub foreign: Option<&'a str>,
    /// What could not be looked at, if anything.
    pub blind: Option<&'a str>,
    /// Whether a change is in flight, or was when a run died.
    pub is_in_flight: bool,
    /// Why a step would do nothing.
    pub unable: &'a [ReasonText],
    /// What was seen.
    pub seen: &'a Observation,
}

/// What is wrong.
#[must_use]
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let name = facts.name;
    let mut found = Vec::new();
    if let Some(why) = facts.foreign {
        let mend = format!(
            "egressctl step --adopt {}, if the policy has moved; else rename one of them",
            facts.path.display()
        );
        found.push(Finding::new(Code::StateForeign, why, mend));
    }
    if let Some(why) = facts.damaged {
        found.push(Finding::new(Code::StateDamaged, why, format!("egressctl step {name}")));
    }
    if facts.is_in_flight {
        found.push(Finding::new(
            Code::JournalLeft,
            format!("a journal of {name} is there"),
            format!("egressctl step {name}, once no other run goes on"),
        ));
    }
    if let Some(why) = facts.blind {
        found.push(Finding::new(Code::NotSeen, why, "do what it says, and check again"));
    }
    for reason in facts.unable {
        let mend = "correct the policy, or the machine, as it says";
        found.push(Finding::new(Code::Unfit, reason.text.clone(), mend));
    }
    found.extend(cores(facts.seen));
    found
}

/// What proxy cores lack.
fn cores(seen: &Observation) -> Vec<Finding> {
    let mut found = Vec::new();
    for (asked, reading) in seen.cores() {
        let core = match &reading.core {
            Ok(core) => core,
            Err(fault) => {
                let what = format!("proxy core {}: {fault}", asked.core);
                let mend = "start it, or correct driver.clash in the policy";
                found.push(Finding::new(Code::CoreSilent, what, mend));
                continue;
            }
        };
        for (group, fault) in &core.groups {
            if let Err(fault) = fault {
                let what = format!("group {}: {fault}", crate::outcome::harmless(group));
                let mend = "name a selector of the core in the policy";
                found.push(Finding::new(Code::CoreGroup, what, mend));
            }
        }
        if core.config != ConfigReading::Unasked && !core.keeps_choices() {
            found.push(Finding::new(
                Code::ChoicesForgotten,
                format!("{} at {} keeps no choice over a restart", core.program, asked.core),
                "set experimental.cache_file.enabled (sing-box), or profile.store-selected (mihomo)",
            ));
        }
    }
    found
}

/// How what was asked has answered.
#[must_use]
pub fn probes(seen: &Observation) -> Vec<Probe> {
    seen.readings
        .iter()
        .filter_map(|(question, reading)| {
            let (Question::Pages(pages), Reading::Pages(answers)) = (question, reading) else {
                return None;
            };
            let probe = match &pages.asker {
                Asker::Named(name) => name.clone(),
                Asker::Wan | Asker::WanExit => "wan".to_owned(),
                Asker::Slot(slot) | Asker::SlotLarge(slot) | Asker::SlotExit(slot) => {
                    slot.to_string()
                }
            };
            let unasked: Vec<String> =
                answers.pages.iter().flatten().filter_map(PageReading::unasked).collect();
            let asked = answers.pages.iter().flatten().count();
            let (result, text) = if answers.passes(pages) {
                (ProbeResult::Passed, "answered as it should".to_owned())
            } else if let (true, Some(why)) = (unasked.len() == asked, unasked.first()) {
                (ProbeResult::Unknown, why.clone())
            } else {
                (ProbeResult::Failed, "no answer as it should be".to_owned())
            };
            Some(Probe { probe, result, text })
        })
        .collect()
}
