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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::pool::state::Content;
    use crate::simulate::candidate;
    use crate::time::Moment;
    use serde_json::{Value, json};

    fn policy(spread_by: &Value) -> PoolPolicy {
        let text = json!({
            "kind": "pool", "slots": { "interfaces": ["vpn1", "vpn2", "vpn3"] },
            "clients": ["10.77.0.11"], "provider": { "directory": { "path": "/e" } },
            "candidates": { "spread_by": spread_by },
        });
        let Policy::Pool(policy) = Policy::parse(&text.to_string()).unwrap() else {
            panic!("it is a pool")
        };
        *policy
    }

    fn at(name: &str, country: &str, city: Option<&str>) -> Candidate {
        Candidate {
            country: Some(country.to_owned()),
            city: city.map(str::to_owned),
            ..candidate(name, 1).unwrap()
        }
    }

    #[test]
    fn a_slot_takes_the_best_of_the_place_that_the_others_have_least() {
        let now = Moment::epoch();
        let mut state = PoolState::new(&now);
        let slot = |name: &str| Interface::try_from(name.to_owned()).unwrap();
        let loaded = Slot::new(Content::Loaded(at("a", "Sweden", Some("Malmö"))), &now);
        state.slots.insert(slot("vpn1"), loaded);
        let list = [
            at("b", "SWEDEN", Some("malmö")),
            at("c", "sweden", Some("Gothenburg")),
            at("d", "Norway", None),
            candidate("e", 1).unwrap(),
        ];
        for (spread_by, wished) in
            [(Value::Null, "b"), (json!("city"), "c"), (json!("country"), "d")]
        {
            let best = least_shared(&policy(&spread_by), &state, &slot("vpn2"), list.iter());
            assert_eq!(best.unwrap().name, wished, "{spread_by}");
        }
        // A city that nobody names is told from others by its country; who says nothing is nobody's
        // neighbour; and what a slot itself has keeps it from nothing.
        let put = |state: &mut PoolState, name: &str, candidate| {
            state.slots.insert(slot(name), Slot::new(Content::Loaded(candidate), &now));
        };
        put(&mut state, "vpn2", at("y", "norway", None));
        put(&mut state, "vpn3", candidate("z", 1).unwrap());
        let best = |slot_name, from: &[Candidate]| {
            let best = least_shared(&policy(&json!("city")), &state, &slot(slot_name), from.iter());
            best.unwrap().name.clone()
        };
        assert_eq!(best("vpn1", &[list[2].clone(), list[3].clone()]), "e");
        assert_eq!(best("vpn2", &[list[2].clone(), list[3].clone()]), "d");
    }
}
