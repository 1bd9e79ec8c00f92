//! Which families of addresses a pool routes, and which of them the tunnel of an endpoint carries.
//!
//! **Invariant:** IPv6 goes by a slot only where the policy says `"tunnel"`, its endpoint has an address of
//! it, and all of it goes to the peer; whoever lays out rules, routes, marks and addresses asks here.

use super::candidate::Candidate;
use super::state::{PoolState, Slot};
use crate::iproute::Family;
use crate::names::Interface;
use crate::policy::PoolPolicy;
use crate::policy::pool::Ipv6;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeSet;

/// All of a family.
pub(super) fn everywhere(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(Ipv4Net::default()),
        Family::V6 => IpNet::V6(Ipv6Net::default()),
    }
}

/// Whether a tunnel to this endpoint carries IPv6: it has an address of it, and all of it goes to the
/// peer.
fn carries_six(candidate: &Candidate) -> bool {
    candidate.addresses.iter().any(|net| Family::of(net.addr()) == Family::V6)
        && candidate.ends.allowed_ips.contains(&everywhere(Family::V6))
}

/// The addresses of a tunnel to this endpoint: those of IPv6 only where something goes by them, since
/// a kernel without IPv6 takes none.
pub(super) fn addresses(policy: &PoolPolicy, candidate: &Candidate) -> BTreeSet<IpNet> {
    if policy.routing.ipv6 == Ipv6::Tunnel && carries_six(candidate) {
        candidate.addresses.clone()
    } else {
        candidate.addresses4().collect()
    }
}

/// Whether a slot carries the IPv6 of clients.
#[must_use]
pub(crate) fn slot_carries_six(policy: &PoolPolicy, state: &PoolState, slot: &Interface) -> bool {
    policy.routing.ipv6 == Ipv6::Tunnel
        && state.slots.get(slot).and_then(Slot::candidate).is_some_and(carries_six)
}

/// The families that a pool routes.
pub(super) fn families(policy: &PoolPolicy) -> &'static [Family] {
    match policy.routing.ipv6 {
        Ipv6::Tunnel => &[Family::V4, Family::V6],
        Ipv6::Block | Ipv6::Off => &[Family::V4],
    }
}
