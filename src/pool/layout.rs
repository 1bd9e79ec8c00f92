//! What the kernel should look like for a state: the declarative half of every change.
//!
//! **Invariant:** the layout is a function of policy, state and surroundings alone, so that a step
//! that changes nothing in them changes nothing in the kernel.

mod rules;

use super::candidate::Candidate;
use super::families::{addresses, everywhere, families, slot_carries_six};
use super::state::{Egress, PoolState, Slot, Surroundings};
use crate::iproute::{Family, Route, RouteKind};
use crate::kernel::diff::Means;
use crate::kernel::nft::{Layout, Six, SlotLayout};
use crate::kernel::{Ends, GUARD_METRIC, NftTable, Tunnel, World};
use crate::names::{Interface, Mark, PolicyName, Table};
use crate::plan::Backend;
use crate::policy::pool::{Inbound, Ipv6};
use crate::policy::{ClientEntry, ClientKey, PoolPolicy};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// WireGuard's own overhead over IPv6 (40 + 8 + 32 bytes), which is the larger one.
const OVERHEAD: u32 = 80;
/// The MTU that every IPv6 path must carry (RFC 8200), tried before a slot that loses large packets
/// is given up.
pub const SMALL_MTU: u16 = 1_280;

/// The addresses of a host: a literal, or the last good answer of the resolver.
#[must_use]
pub fn addresses_of(state: &PoolState, host: &str) -> Vec<IpAddr> {
    host.parse().map_or_else(
        |_| state.names.get(host).cloned().unwrap_or_default(),
        |literal: IpAddr| vec![literal],
    )
}

/// The literal endpoint of a candidate, if its host is known.
#[must_use]
pub fn endpoint_of(state: &PoolState, candidate: &Candidate) -> Option<SocketAddr> {
    addresses_of(state, &candidate.host)
        .first()
        .map(|address| SocketAddr::new(*address, candidate.port))
}

/// The MTU of a slot filled with a candidate.
#[must_use]
pub fn mtu_of(candidate: &Candidate, surroundings: &Surroundings) -> u16 {
    candidate.mtu.unwrap_or_else(|| widest(surroundings))
}

/// The MTU of a tunnel whose file names none.
#[must_use]
pub fn widest(surroundings: &Surroundings) -> u16 {
    let by_wan = surroundings.wan_mtu.saturating_sub(OVERHEAD).clamp(u32::from(SMALL_MTU), 1_420);
    u16::try_from(by_wan).unwrap_or(1_420)
}

/// The tunnel that a slot should be.
#[must_use]
pub fn tunnel(
    policy: &PoolPolicy,
    state: &PoolState,
    slot: &Slot,
    candidate: &Candidate,
    surroundings: &Surroundings,
) -> Tunnel {
    let tunnel = plain_tunnel(policy, state, candidate, surroundings);
    let mtu = if slot.mtu_lowered { tunnel.mtu.min(SMALL_MTU) } else { tunnel.mtu };
    Tunnel { mtu, ..tunnel }
}

/// The tunnel that a candidate describes.
#[must_use]
pub fn plain_tunnel(
    policy: &PoolPolicy,
    state: &PoolState,
    candidate: &Candidate,
    surroundings: &Surroundings,
) -> Tunnel {
    let ends = Ends { endpoint: endpoint_of(state, candidate), ..candidate.ends.clone() };
    Tunnel {
        config: Some(candidate.config.clone()),
        ends: Some(ends),
        addresses: addresses(policy, candidate),
        answers: true,
        listen_port: None,
        fwmark: None,
        mtu: mtu_of(candidate, surroundings),
        up: true,
    }
}

/// Whether a tunnel carries what the wished one would.
#[must_use]
pub fn is_as_wished(present: &Tunnel, wished: &Tunnel) -> bool {
    let same_ends = match (&present.ends, &wished.ends) {
        (Some(now), Some(then)) => now.same(then),
        (None, _) | (_, None) => false,
    };
    same_ends && present.up && present.addresses == wished.addresses
}

/// The standby tunnel, where it is to be up.
fn standby<'a>(
    policy: &'a PoolPolicy,
    state: &'a PoolState,
) -> Option<(&'a Interface, &'a Candidate)> {
    let standby = state.standby.as_ref().filter(|standby| standby.up)?;
    policy.standby().zip(standby.candidate.as_ref())
}

/// How the policy's tunnels are made.
#[must_use]
pub fn means(policy: &PoolPolicy) -> Means {
    let tool = policy.wireguard.tool;
    let backend = match policy.wireguard.userspace {
        Some(userspace) => Backend::Userspace(userspace.program().to_owned()),
        None => Backend::Kernel(tool.link_type().to_owned()),
    };
    Means { backend, tool: tool.program().to_owned() }
}

/// Whether the clients are in our hands: once a set was proven, or from the start where the policy
/// says that nothing may ever go direct.
#[must_use]
pub fn holds_clients(policy: &PoolPolicy, state: &PoolState) -> bool {
    !state.retired && (state.proven || !policy.params.direct_failopen_enabled)
}

/// The whole world that a state calls for.
#[must_use]
pub fn world(
    policy: &PoolPolicy,
    name: &PolicyName,
    state: &PoolState,
    surroundings: &Surroundings,
) -> World {
    let mut world = World::default();
    if state.retired {
        return world;
    }
    for (index, interface) in (0..).zip(&policy.slots.interfaces) {
        let table = policy.table(index);
        if let Some(slot) = state.slots.get(interface)
            && let Some(candidate) = slot.candidate()
        {
            let tunnel = tunnel(policy, state, slot, candidate, surroundings);
            insert_tunnel(&mut world, interface, tunnel);
            world.routes.insert(way_out(policy, interface, table, Family::V4));
            if slot_carries_six(policy, state, interface) {
                world.routes.insert(way_out(policy, interface, table, Family::V6));
            }
        }
        if holds_clients(policy, state) || world.tunnels.contains_key(interface) {
            let guards = families(policy).iter().map(|family| guard(policy, table, *family));
            world.routes.extend(guards);
        }
    }
    if let Some((interface, candidate)) = standby(policy, state) {
        let table = policy.standby_table();
        let tunnel = plain_tunnel(policy, state, candidate, surroundings);
        insert_tunnel(&mut world, interface, tunnel);
        world.routes.extend([
            way_out(policy, interface, table, Family::V4),
            guard(policy, table, Family::V4),
        ]);
        world.rules.extend(rules::of_standby(policy, candidate));
    }
    if !holds_clients(policy, state) {
        // Its provider has no business inside the gateway, whoever the clients are with.
        if standby(policy, state).is_some() {
            let layout = without_clients(nft_layout(policy, name, state, surroundings));
            world.nft =
                Some(NftTable { name: layout.table.clone(), text: layout.render(), listing: None });
        }
        return world;
    }
    world.sysctls.insert(sysctl(surroundings.wan.as_str(), "src_valid_mark"), "1".to_owned());
    if surroundings.lan.contains(&surroundings.wan) {
        world.sysctls.insert(sysctl(surroundings.wan.as_str(), "send_redirects"), "0".to_owned());
    }
    world.rules.extend(rules::all(policy, state, surroundings));
    let text = nft_layout(policy, name, state, surroundings).render();
    world.nft = Some(NftTable { name: name.nft_table(), text, listing: None });
    world
}

/// Puts a tunnel into a world, with the settings that its packets need.
fn insert_tunnel(world: &mut World, interface: &Interface, tunnel: Tunnel) {
    world.tunnels.insert(interface.clone(), tunnel);
    for (key, value) in [("rp_filter", "2"), ("src_valid_mark", "1")] {
        world.sysctls.insert(sysctl(interface.as_str(), key), value.to_owned());
    }
}

/// A layout that touches no client.
fn without_clients(layout: Layout) -> Layout {
    Layout {
        clients: Vec::new(),
        placement: BTreeMap::new(),
        spread: BTreeMap::new(),
        users: BTreeMap::new(),
        block_ipv6: false,
        six: None,
        keep_inbound: false,
        ..layout
    }
}

/// A table's way out: its tunnel's device.
pub(super) fn way_out(
    policy: &PoolPolicy,
    interface: &Interface,
    table: Table,
    family: Family,
) -> Route {
    Route {
        family,
        kind: RouteKind::Unicast,
        destination: everywhere(family),
        via: None,
        dev: Some(interface.to_string()),
        table,
        metric: None,
        protocol: Some(policy.routing.protocol),
        other: false,
    }
}

/// What a table says when its way out is gone. Without it the lookup would go on to main.
fn guard(policy: &PoolPolicy, table: Table, family: Family) -> Route {
    Route {
        kind: RouteKind::Unreachable,
        dev: None,
        metric: Some(GUARD_METRIC),
        family,
        destination: everywhere(family),
        via: None,
        table,
        protocol: Some(policy.routing.protocol),
        other: false,
    }
}

/// The path of an interface's IPv4 setting below `/proc/sys`.
fn sysctl(interface: &str, key: &str) -> String {
    format!("net/ipv4/conf/{interface}/{key}")
}

/// The mark of an egress.
#[must_use]
pub fn mark_of(policy: &PoolPolicy, egress: &Egress) -> Option<Mark> {
    match egress {
        Egress::Slot(slot) => policy.index_of(slot).map(|index| policy.mark(index)),
        Egress::Direct => Some(policy.direct_mark()),
        Egress::None => None,
    }
}

/// The nft table that a state calls for.
#[must_use]
pub fn nft_layout(
    policy: &PoolPolicy,
    name: &PolicyName,
    state: &PoolState,
    surroundings: &Surroundings,
) -> Layout {
    let marks: BTreeMap<&Interface, Mark> =
        (0..).zip(&policy.slots.interfaces).map(|(n, slot)| (slot, policy.mark(n))).collect();
    let mark = |key: &ClientKey| match state.egress.get(key)? {
        Egress::Slot(slot) => marks.get(slot).copied(),
        Egress::Direct => Some(policy.direct_mark()),
        Egress::None => None,
    };
    // Where the slot carries no IPv6, what is sent by it is rejected.
    let by_six = |key: &ClientKey| match state.egress.get(key)? {
        Egress::Slot(slot) if !slot_carries_six(policy, state, slot) => None,
        Egress::Slot(_) | Egress::Direct | Egress::None => mark(key),
    };
    let mut six = Six { clients: policy.client_prefixes6(), ..Six::default() };
    let mut placement = BTreeMap::new();
    let mut spread = BTreeMap::new();
    let mut users = BTreeMap::new();
    for entry in &policy.clients {
        match entry {
            ClientEntry::Prefix(net @ IpNet::V4(v4)) => {
                if let Some(mark) = mark(&ClientKey::Prefix(*net)) {
                    placement.insert(*v4, mark);
                }
            }
            ClientEntry::Prefix(net @ IpNet::V6(v6)) => {
                if let Some(mark) = by_six(&ClientKey::Prefix(*net)) {
                    six.placement.insert(*v6, mark);
                }
            }
            ClientEntry::Spread(net) => {
                spread.insert(*net, entry.keys().iter().map(mark).collect());
            }
            ClientEntry::User(user) => {
                if let Some(uid) = surroundings.users.get(user) {
                    let key = ClientKey::User(user.clone());
                    users.insert(*uid, mark(&key));
                    six.users.insert(*uid, by_six(&key));
                }
            }
        }
    }
    let slots = (0..)
        .zip(&policy.slots.interfaces)
        .map(|(index, interface)| {
            let tunnel = state.slots.get(interface).and_then(|slot| {
                Some(tunnel(policy, state, slot, slot.candidate()?, surroundings))
            });
            let (mut addresses, mut addresses6) = (BTreeSet::new(), BTreeSet::new());
            for net in tunnel.iter().flat_map(|tunnel| &tunnel.addresses) {
                match net {
                    IpNet::V4(net) => drop(addresses.insert(net.addr())),
                    IpNet::V6(net) if slot_carries_six(policy, state, interface) => {
                        addresses6.insert(net.addr());
                    }
                    IpNet::V6(_) => {}
                }
            }
            let mtu = tunnel.as_ref().map(|tunnel| tunnel.mtu);
            (interface.clone(), SlotLayout { mark: policy.mark(index), mtu, addresses, addresses6 })
        })
        .collect();
    let other_addresses = standby(policy, state)
        .into_iter()
        .flat_map(|(_, candidate)| candidate.addresses4())
        .filter_map(|net| match net {
            IpNet::V4(net) => Some(net.addr()),
            IpNet::V6(_) => None,
        })
        .collect();
    Layout {
        table: name.nft_table(),
        base: policy.routing.first_mark,
        slots,
        other_tunnels: policy
            .test
            .interfaces()
            .into_iter()
            .chain(policy.standby().cloned())
            .collect(),
        other_addresses,
        lan: surroundings.lan.clone(),
        wan: surroundings.wan.clone(),
        local: surroundings.local4.clone(),
        local6: surroundings.local6.clone(),
        clients: policy.client_prefixes(),
        placement,
        spread,
        users,
        block_ipv6: matches!(policy.routing.ipv6, Ipv6::Block | Ipv6::Tunnel),
        six: (policy.routing.ipv6 == Ipv6::Tunnel).then_some(six),
        keep_inbound: policy.routing.inbound == Inbound::Keep,
        masquerade: policy.routing.masquerade,
        inside: BTreeSet::new(),
    }
}
