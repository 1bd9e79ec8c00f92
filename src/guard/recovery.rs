//! Which members are tried when requests fail, and in which order.
//!
//! **Invariant:** only what the core has measured is tried, the fastest first; what sends requests
//! past every proxy is tried only where the policy names it.

use super::ask;
use super::place::Case;
use super::reason::Reason;
use super::sight::{self, CoreSight};
use super::state::{GuardState, Said};
use crate::observation::{Delay, DelayReading, Observation, Question};
use std::collections::BTreeSet;

/// What can be done.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// More has to be known.
    Ask(Vec<Question>),
    /// There is no time left to know more.
    NoTime,
    /// Nothing.
    None(Reason),
    /// These are selected one after the other until requests pass.
    Tries {
        /// They.
        tries: Vec<String>,
        /// What the next step goes on with.
        rest: Vec<String>,
    },
}

/// Finds what can be tried in place of what is selected.
pub(super) fn way(
    case: Case<'_>,
    seen: &Observation,
    core: CoreSight<'_>,
    state: &mut GuardState,
    may_ask: bool,
) -> Way {
    let (policy, automatic) = (case.subject.policy, &case.place.automatic);
    let at_once = policy.params.candidates_per_step;
    if let Some(list) = &state.list {
        let here = |name: &&String| core.all.contains(*name) && *name != core.now;
        let left: Vec<String> = list.rest.iter().filter(here).cloned().collect();
        if !left.is_empty() {
            let (tries, rest) = left.split_at(at_once.min(left.len()));
            return Way::Tries { tries: tries.to_vec(), rest: rest.to_vec() };
        }
        state.list = None;
    }
    let ask = |questions| if may_ask { Way::Ask(questions) } else { Way::NoTime };
    let others: BTreeSet<String> = core
        .all
        .iter()
        .filter(|name| *name != automatic && *name != core.now && *name != core.uses)
        .filter(|name| policy.members.as_ref().is_none_or(|members| members.contains(name)))
        .cloned()
        .collect();
    let candidates = match (&policy.members, others.is_empty()) {
        (Some(_), _) | (None, true) => others,
        (None, false) => match sight::proxies(seen, &others) {
            Some(proxies) => proxies,
            None => return ask(vec![ask::kinds(case, others)]),
        },
    };
    // Requests fail by our own member: the automatic group is the first to be tried.
    let first = (core.now != automatic).then(|| automatic.clone());
    let members: BTreeSet<String> = candidates.iter().chain(&first).cloned().collect();
    if members.is_empty() {
        return Way::None(Reason::NoCandidate);
    }
    let Some(reading) = ask::measured(seen, &members) else {
        let by = policy.measured_by().into_iter().take(1).collect();
        return ask(vec![ask::delays(case, members, by)]);
    };
    note(state, reading);
    let mut measured: Vec<(u64, String)> = reading
        .members
        .iter()
        .filter_map(|(name, delays)| match sight::best(delays) {
            Delay::Took(delay) => Some((delay, name.clone())),
            Delay::Failed | Delay::Absent | Delay::Unknown(_) => None,
        })
        .collect();
    if measured.is_empty() {
        return Way::None(Reason::NoneMeasured { asked: members.len() });
    }
    measured.sort();
    let mut ordered: Vec<String> = measured.into_iter().map(|(_, name)| name).collect();
    ordered.retain(|name| name != automatic);
    let rest = ordered.split_off(at_once.min(ordered.len()));
    Way::Tries { tries: first.into_iter().chain(ordered).collect(), rest }
}

fn note(state: &mut GuardState, reading: &DelayReading) {
    for (name, delays) in &reading.members {
        let said = Said { delay: sight::best(delays), at: reading.at.clone() };
        state.said.insert(name.clone(), said);
    }
}
