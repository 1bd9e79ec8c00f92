//! A state in a line, for the story of a step that breaks a law.

use egressctl::pool::candidate::{List, Tested};
use egressctl::pool::state::{Content, Egress, PoolState, Slot};
use egressctl::time::Moment;
use std::collections::BTreeMap;

fn list(list: Option<&List>) -> String {
    let Some(list) = list else { return "-".to_owned() };
    let entries: Vec<String> = list
        .candidates
        .iter()
        .map(|candidate| {
            let tested = match list.tested.get(&candidate.name) {
                None => "?",
                Some(Tested::Passed { .. }) => "+",
                Some(Tested::Failed { .. }) => "-",
            };
            let struck = list.struck.get(&candidate.name).copied().unwrap_or(0);
            format!("{}{tested}{}", candidate.name, "!".repeat(struck.min(3) as usize))
        })
        .collect();
    format!("{}:{}", list.generation, entries.concat())
}

fn slot(name: &str, slot: &Slot) -> String {
    let content = match &slot.content {
        Content::Empty => "-".to_owned(),
        Content::Loaded(candidate) => format!("{}.{}", candidate.name, candidate.config.generation),
        Content::Lent(candidate) => format!("lent {}", candidate.name),
    };
    format!(
        "{name}={content} f{} {} -{} +{} unknown{} alarms{} repl{:?}",
        slot.failures,
        if slot.failed { "FAILED" } else { "ok" },
        slot.retests_failed,
        slot.retests_passed,
        slot.unknown,
        slot.false_alarms.len(),
        slot.replaced.as_ref().map(|candidate| &candidate.name),
    )
}

/// The line.
pub fn brief(state: Option<&PoolState>, now: &Moment) -> String {
    let Some(state) = state else { return "nothing known".to_owned() };
    let age = |at: &Option<Moment>| {
        at.as_ref().map_or("never".to_owned(), |at| format!("{}s", now.since(at).as_secs()))
    };
    let slots: Vec<String> =
        state.slots.iter().map(|(name, state)| slot(name.as_str(), state)).collect();
    let mut by: BTreeMap<&Egress, usize> = BTreeMap::new();
    for egress in state.egress.values() {
        *by.entry(egress).or_default() += 1;
    }
    let quarantine: Vec<&String> = state.quarantine.values().map(|q| &q.name).collect();
    format!(
        "{} proven={} settle={} asked={} repairs={} tried={} none={} pool={} fresh={} short={} {} quarantine={quarantine:?} clients={by:?} transport={:?} failed ways={:?}",
        state.mode,
        state.proven,
        state.settle,
        state.refresh_asked.is_some(),
        state.repair_events_since_full_refresh,
        age(&state.refresh_tried_at),
        age(&state.none_serves_since),
        list(state.pool.as_ref()),
        list(state.fresh.as_ref()),
        list(state.short.as_ref()),
        slots.join(" | "),
        state.bootstrap.transport,
        state.bootstrap.failed.iter().map(|f| (&f.way, f.times)).collect::<Vec<_>>(),
    )
}
