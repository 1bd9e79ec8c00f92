//! A state made anew from what the kernel shows, where its file was lost.
//!
//! **Invariant:** every tunnel that is recognised stays as it is, and every client where it is.

use super::state::{ChainState, HopState};
use super::tunnels::{self, Described, Tunnels, key};
use crate::clash::choice::Confirmed;
use crate::kernel::nft::placement_in;
use crate::observation::{KernelReading, Life};
use crate::policy::ChainPolicy;
use crate::pool::candidate::Candidate;
use crate::pool::surroundings::surroundings;
use crate::time::Moment;
use std::collections::BTreeMap;

/// The state that fits what the kernel shows. `None`: nobody was taken over, or a hop is not known.
pub(super) fn rebuild(
    policy: &ChainPolicy,
    kernel: &KernelReading,
    stored: &[Candidate],
    now: &Moment,
) -> Option<ChainState> {
    let driver = tunnels::driver(policy)?;
    let nft = kernel.world.nft.as_ref()?;
    let surroundings = surroundings(&driver.lanes, None, kernel).ok()?;
    let mut state = ChainState::new(now);
    let mut nodes = BTreeMap::new();
    for (place, hop) in policy.hops.iter().enumerate() {
        let up = kernel.world.tunnels.get(driver.device(place)?).and_then(|up| up.ends.as_ref());
        let mut described = BTreeMap::new();
        let mut carries = String::new();
        for node in &hop.nodes {
            // The copy's name is the node's with a hash behind.
            let prefix = format!("{}-", key(&hop.name, &node.name));
            let mut copies = stored.iter().filter(|copy| copy.name.starts_with(&prefix));
            let same = |copy: &&Candidate| {
                up.is_some_and(|up| up.own == copy.ends.own && up.peer == copy.ends.peer)
            };
            if let Some(copy) = copies.find(same) {
                carries.clone_from(&node.member);
                let tunnel = Some(copy.clone());
                described.insert(node.name.clone(), Described { tunnel, trouble: String::new() });
            }
        }
        let confirmed = Confirmed { member: carries, life: Life::default() };
        let mut known = HopState::new(hop, confirmed, now);
        known.is_new = known.node(hop).is_none();
        state.hops.push(known);
        nodes.insert(hop.name.clone(), described);
    }
    if state.hops.iter().all(|hop| hop.is_new) {
        return None;
    }
    let open = !placement_in(&nft.text).is_empty();
    state.tunnels = Some(Tunnels { nodes, surroundings, open, built: true });
    state.restate(now);
    Some(state)
}
