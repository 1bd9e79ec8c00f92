//! Slots that should not fall together: places of endpoints spread over the slots.
//!
//! **Invariant:** spreading reorders what is good and never leaves it out: with one place to choose
//! from, all slots are filled from it.

use super::candidate::Candidate;
use super::state::{PoolState, Slot};
use crate::names::Interface;
use crate::policy::PoolPolicy;
use crate::policy::provider::SpreadBy;

/// Where a candidate is, as far as the policy tells places apart. What does not say is a place of
/// its own.
fn place(policy: &PoolPolicy, candidate: &Candidate) -> Option<String> {
    let named = match policy.candidates.spread_by? {
        SpreadBy::Country => candidate.country.as_ref(),
        SpreadBy::City => candidate.city.as_ref().or(candidate.country.as_ref()),
    };
    named.map(|name| name.to_lowercase())
}

/// The candidate whose place fewest other slots have, the first of those: the order of `candidates`
/// is by how good they are.
pub(super) fn least_shared<'a>(
    policy: &PoolPolicy,
    state: &PoolState,
    slot: &Interface,
    candidates: impl Iterator<Item = &'a Candidate>,
) -> Option<&'a Candidate> {
    let others: Vec<Option<String>> = state
        .slots
        .iter()
        .filter(|(interface, _)| *interface != slot)
        .filter_map(|(_, other)| Slot::candidate(other))
        .map(|candidate| place(policy, candidate))
        .collect();
    candidates.min_by_key(|candidate| {
        let here = place(policy, candidate);
        others.iter().filter(|other| here.is_some() && **other == here).count()
    })
}
