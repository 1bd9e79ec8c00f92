//! A state made anew from what the kernel shows.
//!
//! **Invariant:** every tunnel that is recognised stays as it is, and every client where it is; whom a
//! table holds, the barrier of a boot too, is not let go because a file was lost.

use super::candidate::{Candidate, List, Tested};
use super::state::{Content, Egress, Mode, PoolState, Slot};
use crate::kernel::nft;
use crate::names::Mark;
use crate::observation::KernelReading;
use crate::policy::{ClientKey, PoolPolicy};
use crate::time::Moment;
use std::sync::Arc;

/// The state that fits what the kernel shows. `None` without a table of ours that holds clients: then nobody was
/// taken over.
pub(super) fn rebuild(
    policy: &PoolPolicy,
    kernel: &KernelReading,
    stored: &[Candidate],
    now: &Moment,
) -> Option<PoolState> {
    let table = kernel.world.nft.as_ref()?;
    let mut state = PoolState::new(now);
    state.proven = true;
    for interface in &policy.slots.interfaces {
        let ends = kernel.world.tunnels.get(interface).and_then(|tunnel| tunnel.ends.as_ref());
        let known = ends.and_then(|ends| {
            stored.iter().find(|c| c.ends.own == ends.own && c.ends.peer == ends.peer)
        });
        let content = known.map_or(Content::Empty, |c| Content::Loaded(c.clone()));
        state.slots.insert(interface.clone(), Slot::new(content, now));
    }
    // A table is there before anybody was taken over when a standby is up, and holds nobody then.
    if state.slots.values().all(Slot::is_empty) && !nft::holds_clients(&table.text) {
        return None;
    }
    let placement = nft::placement_in(&table.text);
    let egress = |mark: Mark| {
        let slot = (0..).zip(&policy.slots.interfaces).find(|(i, _)| policy.mark(*i) == mark);
        match slot {
            Some((_, interface)) => Egress::Slot(interface.clone()),
            None if mark == policy.direct_mark() => Egress::Direct,
            None => Egress::None,
        }
    };
    for client in policy.client_keys() {
        // Buckets and users stand in rules and not in the map; they are placed anew.
        if let ClientKey::Prefix(net) = &client
            && let Some(mark) = placement.get(net)
        {
            let egress = egress(*mark);
            if let Egress::Slot(slot) = &egress {
                state.homes.insert(client.clone(), slot.clone());
            }
            state.egress.insert(client, egress);
        }
    }
    let generation = stored.iter().map(|candidate| candidate.config.generation).max().unwrap_or(0);
    let newest: Vec<Candidate> =
        stored.iter().filter(|c| c.config.generation == generation).cloned().collect();
    state.last_generation = generation;
    // Which of them had passed is lost with the file. They are the reserve, whose entries must carry requests
    // before anybody is moved to them: without one, clients would come to Direct at once.
    let passed = |candidate: &Candidate| {
        (candidate.name.clone(), Tested::Passed { at: now.clone(), latency_ms: 0 })
    };
    let tested = Arc::new(newest.iter().map(passed).collect());
    state.pool = Some(List { tested, ..List::new(generation, now.clone(), newest) });
    let direct = state.egress.values().any(|egress| *egress == Egress::Direct);
    state.mode = if direct {
        Mode::BootstrapRecovery
    } else if state.slots.values().any(Slot::is_empty) {
        Mode::DegradedPool
    } else {
        Mode::Normal
    };
    Some(state)
}
