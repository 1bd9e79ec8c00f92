//! What follows from a state: where clients are, what the kernel should look like, which flows end,
//! and what has to be true of it.
//!
//! **Invariant:** two equal states have equal futures.

use super::Pool;
use super::candidate::Candidate;
use super::families::slot_carries_six;
use super::layout;
use super::placement;
use super::reason::Reason;
use super::state::{Egress, PoolState, Slot, Surroundings};
use crate::iproute::Link;
use crate::machine::{Cut, Future};
use crate::names::{Interface, PolicyName};
use crate::plan::{Check, RouteQuery};
use crate::policy::pool::Cut as CutPolicy;
use crate::policy::{ClientEntry, ClientKey, PoolPolicy};
use ipnet::{IpNet, Ipv4Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A slot of which nothing could be said for so many steps hosts no client while another serves.
pub(super) const UNKNOWN_STEPS: u32 = 10;
/// At most so many moved clients are checked by asking the kernel.
const CHECKED_CLIENTS: usize = 64;
/// An address that is nobody's (RFC 5737), asked for in route checks.
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

/// The same of IPv6 (RFC 3849).
const FAR6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// Computes homes and places anew, where the plan lets clients be placed.
pub(super) fn replace_clients(policy: &PoolPolicy, state: &mut PoolState) {
    if state.retired {
        state.egress.clear();
        return;
    }
    let clients = policy.client_keys();
    let slots = &policy.slots.interfaces;
    if !state.proven && policy.params.direct_failopen_enabled {
        state.egress.clear();
        return;
    }
    let wanted: BTreeSet<&ClientKey> = clients.iter().collect();
    state.egress.retain(|client, _| wanted.contains(client));
    if !state.proven {
        state.egress = clients.into_iter().map(|client| (client, Egress::None)).collect();
        return;
    }
    state.homes = placement::homes(&clients, slots, &state.homes);
    if state.mode.is_direct() {
        // A client that came into the policy since goes where the others are.
        let direct = state.egress.values().any(|egress| *egress == Egress::Direct);
        for client in clients {
            let egress = if direct { Egress::Direct } else { Egress::None };
            state.egress.entry(client).or_insert(egress);
        }
        return;
    }
    let mut serving: Vec<Interface> =
        slots.iter().filter(|slot| state.serves(slot)).cloned().collect();
    let known =
        |slot: &Interface| state.slots.get(slot).is_some_and(|slot| slot.unknown < UNKNOWN_STEPS);
    if serving.iter().any(known) {
        serving.retain(known);
    }
    state.egress = placement::place(&clients, slots, &serving, &state.homes, &state.egress);
}

/// A future with everything that follows from its state.
pub(super) fn future(
    policy: &PoolPolicy,
    name: &PolicyName,
    state: PoolState,
    surroundings: &Surroundings,
    reasons: &[Reason],
) -> Future<PoolState> {
    let world = layout::world(policy, name, &state, surroundings);
    let barrier = (policy.routing.barrier && layout::holds_clients(policy, &state))
        .then(|| layout::nft_layout(policy, name, &state, surroundings).at_boot().render());
    let generations = state.generations();
    Future { world, barrier, generations, ..Future::of::<Pool>(state, reasons) }
}

/// Which open flows end with the change.
pub(super) fn cuts(policy: &PoolPolicy, old: Option<&PoolState>, new: &PoolState) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let Some(old) = old.filter(|old| !old.egress.is_empty()) else {
        // First placement: flows from before carry no mark and would go on by the WAN.
        if !new.egress.is_empty() {
            cuts.extend(unmarked(&policy.client_prefixes()));
            cuts.extend(policy.client_prefixes6().into_iter().map(|n| Cut::Unmarked(IpNet::V6(n))));
        }
        return cuts;
    };
    // A client that came into the policy since was carried by main until now.
    let is_new = |key: &ClientKey| !old.egress.contains_key(key) && new.egress.contains_key(key);
    let come = policy.clients.iter().filter_map(|entry| match entry {
        ClientEntry::Prefix(IpNet::V4(net)) => {
            is_new(&ClientKey::Prefix(IpNet::V4(*net))).then_some(*net)
        }
        ClientEntry::Spread(net) => is_new(&ClientKey::Bucket(*net, 0)).then_some(*net),
        ClientEntry::Prefix(IpNet::V6(_)) | ClientEntry::User(_) => None,
    });
    cuts.extend(unmarked(&come.collect::<Vec<_>>()));
    let come6 = policy.client_prefixes6().into_iter().map(IpNet::V6);
    cuts.extend(come6.filter(|net| is_new(&ClientKey::Prefix(*net))).map(Cut::Unmarked));
    let (hosts_old, hosts_new) = (hosts(old), hosts(new));
    for (index, interface) in (0..).zip(&policy.slots.interfaces) {
        let hosted = hosts_old.contains(interface);
        let stopped = !new.serves(interface) && hosted && !hosts_new.contains(interface);
        // With no slot serving its clients had stayed; their flows bear the dead endpoint's address.
        let endpoint = |state: &PoolState| {
            state.slots.get(interface).and_then(Slot::candidate).map(Candidate::endpoint)
        };
        let replaced = !old.serves(interface) && hosted && endpoint(old) != endpoint(new);
        if (stopped || replaced) && policy.routing.cut == CutPolicy::Dead {
            cuts.push(Cut::Marked(policy.mark(index)));
        }
    }
    let direct = |state: &PoolState| state.egress.values().any(|egress| *egress == Egress::Direct);
    if direct(old) && !direct(new) {
        cuts.push(Cut::Marked(policy.direct_mark()));
    }
    cuts
}

/// What ends the flows of clients from before they were taken over. Neighbours are one: each takes
/// processes of its own, which for ten thousand clients are a minute.
fn unmarked(clients: &[Ipv4Net]) -> impl Iterator<Item = Cut> {
    Ipv4Net::aggregate(&clients.to_vec()).into_iter().map(|net| Cut::Unmarked(IpNet::V4(net)))
}

/// Slots that some client leaves by.
fn hosts(state: &PoolState) -> BTreeSet<&Interface> {
    let slots = state.egress.values().filter_map(|egress| match egress {
        Egress::Slot(slot) => Some(slot),
        Egress::Direct | Egress::None => None,
    });
    slots.collect()
}

/// Whom a change concerns.
pub(crate) struct Touched<'a> {
    /// Clients that leave otherwise than before.
    pub(crate) moved: &'a [(&'a ClientKey, &'a Egress)],
    /// Slots with another endpoint than before.
    pub(crate) loaded: &'a [Interface],
}

impl<'a> Touched<'a> {
    /// The moved clients, as many as are checked, and one client of each slot with another endpoint.
    fn clients(&self, state: &'a PoolState) -> Vec<(&'a ClientKey, &'a Egress)> {
        let mut clients: Vec<_> = self.moved.iter().take(CHECKED_CLIENTS).copied().collect();
        let checked: BTreeSet<&Egress> = clients.iter().map(|(_, egress)| *egress).collect();
        let mut first: BTreeMap<&Egress, (&ClientKey, &Egress)> = BTreeMap::new();
        for entry in state.egress.iter().filter(|(_, egress)| !checked.contains(egress)) {
            first.entry(entry.1).or_insert(entry);
        }
        let loaded = self.loaded.iter().map(|slot| Egress::Slot(slot.clone()));
        clients.extend(loaded.filter_map(|egress| first.get(&egress)));
        clients
    }
}

/// Asks the kernel where the packets go that carry a newly loaded tunnel. `None`: its endpoint has no
/// address, and then nothing carries it.
pub(super) fn outside_check(
    policy: &PoolPolicy,
    state: &PoolState,
    interface: &Interface,
) -> Option<Check> {
    let candidate = state.slots.get(interface)?.candidate()?;
    let to = layout::endpoint_of(state, candidate)?.ip();
    let slots = policy.slots.interfaces.iter().cloned();
    let tunnels = slots.chain(policy.standby().cloned()).collect();
    let query = RouteQuery { to, from: None, mark: None, uid: None };
    Some(Check::Outside { interface: interface.clone(), query, tunnels })
}

/// Asks the kernel where packets of clients go that a change concerns.
pub(crate) fn route_checks(
    policy: &PoolPolicy,
    surroundings: &Surroundings,
    links: &[Link],
    state: &PoolState,
    touched: &Touched<'_>,
) -> Vec<Check> {
    let mut checks = Vec::new();
    // The kernel answers for a LAN that is up only; one that is down has no packets to send astray.
    let up = |lan: &&Interface| links.iter().any(|link| link.up && link.name == lan.as_str());
    let lan = surroundings.lan.iter().find(up);
    // A neighbour in the WAN's own subnet is what a careless `lookup main` would leak to.
    let neighbour = surroundings.wan_net.and_then(|net| {
        let local = |host: &Ipv4Addr| surroundings.local4.iter().any(|net| net.contains(host));
        net.hosts().find(|host| *host != net.addr() && !local(host)).map(IpAddr::V4)
    });
    for (client, egress) in touched.clients(state) {
        let device = match egress {
            Egress::Slot(slot) => slot.clone(),
            Egress::Direct | Egress::None => continue,
        };
        let Some(mark) = layout::mark_of(policy, egress) else { continue };
        // Not the gateway's own address, for which the kernel refuses the question.
        let other = |address: &IpAddr| !surroundings.own.contains(address);
        let (from, uid) = match client {
            ClientKey::Prefix(IpNet::V4(net)) | ClientKey::Bucket(net, _) => {
                let Some((address, iif)) = net.hosts().map(IpAddr::V4).find(other).zip(lan) else {
                    continue;
                };
                (Some((address, iif.clone())), None)
            }
            // The router's anycast address is the gateway's own (RFC 4291, 2.6.1).
            ClientKey::Prefix(IpNet::V6(net)) => {
                let anycast = usize::from(net.prefix_len() < 128);
                let address = net.hosts().skip(anycast).map(IpAddr::V6).find(other);
                let Some((address, iif)) = address.zip(lan) else {
                    continue;
                };
                (Some((address, iif.clone())), None)
            }
            ClientKey::User(user) => match surroundings.users.get(user) {
                Some(uid) => (None, Some(*uid)),
                None => continue,
            },
        };
        let far = match client {
            ClientKey::Prefix(IpNet::V6(_)) if slot_carries_six(policy, state, &device) => {
                vec![FAR6]
            }
            ClientKey::Prefix(IpNet::V6(_)) => continue,
            ClientKey::Prefix(IpNet::V4(_)) | ClientKey::Bucket(..) | ClientKey::User(_) => {
                std::iter::once(FAR).chain(neighbour).collect()
            }
        };
        for to in far {
            checks.push(Check::Route {
                client: (*client).clone(),
                query: RouteQuery { to, from: from.clone(), mark: Some(mark), uid },
                device: device.clone(),
            });
        }
    }
    checks
}
