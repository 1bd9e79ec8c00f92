//! What is wrong with a guard's policy, beside what is wrong with any.
//!
//! **Invariant:** the groups are judged as the core showed them to the step that was not made.

use super::{Code, Finding, cores};
use crate::observation::{Observation, Outline};
use crate::outcome::harmless;
use crate::policy::GuardPolicy;

/// What is wrong with it. `told` is what its core was told, where no step looks at that.
#[must_use]
pub fn findings(
    policy: &GuardPolicy,
    seen: &Observation,
    told: Option<&Result<Outline, String>>,
) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        told.into_iter().flat_map(|told| cores::unlooked(&policy.core, told)).collect();
    if policy.reference.is_none() {
        found.push(Finding::new(
            Code::NoReference,
            "reference is not named",
            "\"reference\": { \"urls\": [\"http://connectivitycheck.gstatic.com/generate_204\", \"http://1.1.1.1/\"] }",
        ));
    }
    // Of the two groups that are looked at, one holds the other.
    let groups = seen.cores().filter_map(|(_, reading)| Some(&reading.core.as_ref().ok()?.groups));
    let Some(groups) = groups.into_iter().next() else { return found };
    let named = groups.iter().filter_map(|(name, group)| Some((name, group.as_ref().ok()?)));
    let named: Vec<_> = named.collect();
    for (name, group) in &named {
        let holder = named.iter().find(|(other, holds)| other != name && holds.all.contains(name));
        let Some((_, holder)) = holder else { continue };
        if group.kind == "Selector" {
            found.push(Finding::new(
                Code::NotAutomatic,
                format!(
                    "group {} is of type Selector and chooses nothing by itself",
                    harmless(name)
                ),
                "\"automatic\": name a member of type urltest, url-test or fallback",
            ));
        }
        if holder.all.len() < 2 {
            found.push(Finding::new(
                Code::CoreGroup,
                format!(
                    "the only member of the group is {}: nothing can stand in for it",
                    harmless(name)
                ),
                "add members to the selector in the core's configuration",
            ));
        }
    }
    found
}
