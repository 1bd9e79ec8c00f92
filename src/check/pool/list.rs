//! What a pool's list lacks, and what its provider says.
//!
//! **Invariant:** what cannot be used is told entry by entry, up to a number.

use super::PoolFacts;
use crate::check::{Code, Finding, Probe, ProbeResult};
use crate::observation::ListReading;
use crate::outcome::count;
use crate::pool::candidate::Rejected;
use crate::pool::state::PoolState;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// More of the same are counted, not told.
pub(super) const MOST: usize = 20;

/// What the list lacks.
pub(super) fn findings(facts: &PoolFacts<'_>) -> Vec<Finding> {
    let slots = facts.policy.slots.interfaces.len();
    let known = facts.stepped.record.machine.as_ref().and_then(|state| state.pool.as_ref());
    let seen =
        facts.stepped.seen.lists().next().map(|(_, reading)| reading).or(facts.listed.as_ref());
    let mut found = Vec::new();
    let usable = match seen {
        Some(ListReading::Listed { candidates, rejected, .. }) => {
            let told = if facts.problems.is_empty() { rejected } else { &facts.problems };
            found.extend(unusable(told));
            let passed = known.map(|list| list.passed().len());
            Some(passed.map_or(candidates.len(), |passed| passed.min(candidates.len())))
        }
        Some(ListReading::Unavailable { why, .. }) => {
            found.extend(unusable(&facts.problems));
            found.push(Finding::new(
                Code::ProviderSilent,
                why.clone(),
                format!("when it is mended: egressctl refresh {}", facts.stepped.name),
            ));
            known.map(|list| list.passed().len())
        }
        Some(ListReading::Unchanged) | None => known.map(|list| list.passed().len()),
    };
    match usable {
        Some(usable) if usable < slots => found.push(Finding::new(
            Code::PoolSmall,
            format!("{} for {}", count(usable, "usable endpoint"), count(slots, "slot")),
            format!("let the provider list more, or name fewer slots.interfaces; then egressctl refresh {}", facts.stepped.name),
        )),
        Some(usable) if usable == slots => found.push(Finding::new(
            Code::NoReserve,
            format!("{} for {}", count(usable, "usable endpoint"), count(slots, "slot")),
            format!("let the provider list more; then egressctl refresh {}", facts.stepped.name),
        )),
        Some(_) | None => {}
    }
    found
}

fn unusable(rejected: &[Rejected]) -> Vec<Finding> {
    let mend = "correct the entry, or remove it from the list";
    let one = |entry: &Rejected| {
        Finding::new(Code::EntryUnusable, format!("entry {}: {}", entry.name, entry.why), mend)
    };
    let mut found: Vec<Finding> = rejected.iter().take(MOST).map(one).collect();
    if rejected.len() > MOST {
        let what = format!("{} more entries cannot be used", rejected.len() - MOST);
        found.push(Finding::new(Code::EntryUnusable, what, mend));
    }
    found
}

/// What the provider said, as a probe.
pub(super) fn probe(facts: &PoolFacts<'_>) -> Option<Probe> {
    let asked = facts.stepped.seen.lists().next().map(|(_, reading)| reading);
    let (result, text) = match asked.or(facts.listed.as_ref())? {
        ListReading::Listed { candidates, rejected, .. } => {
            let left = match rejected.len() {
                0 => String::new(),
                more => format!(", {more} left out"),
            };
            let is_empty = candidates.is_empty();
            let result = if is_empty { ProbeResult::Failed } else { ProbeResult::Passed };
            (result, format!("lists {}{left}", count(candidates.len(), "usable endpoint")))
        }
        ListReading::Unchanged => (ProbeResult::Passed, "its list has not changed".to_owned()),
        ListReading::Unavailable { why, .. } => (ProbeResult::Failed, why.clone()),
    };
    Some(Probe { probe: "provider".to_owned(), result, text })
}

/// Endpoints of interest: what slots hold, and the beginning of the list.
#[must_use]
pub fn endpoints_of(
    state: Option<&PoolState>,
    list: Option<&ListReading>,
) -> BTreeMap<IpAddr, String> {
    let slots = state
        .into_iter()
        .flat_map(|state| state.slots.values())
        .filter_map(|slot| slot.candidate());
    let listed = match list {
        Some(ListReading::Listed { candidates, .. }) => candidates.as_slice(),
        Some(ListReading::Unchanged | ListReading::Unavailable { .. }) | None => &[],
    };
    let mut found = BTreeMap::new();
    for candidate in slots.chain(listed.iter().take(MOST)) {
        let known = state.and_then(|state| state.names.get(&candidate.host)).cloned();
        let addresses =
            candidate.host.parse().map_or(known.unwrap_or_default(), |address| vec![address]);
        for address in addresses {
            found.insert(address, candidate.name.clone());
        }
    }
    found
}
