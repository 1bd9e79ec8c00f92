//! What the kernel should look like for a state: the declarative half of every change.
//!
//! **Invariant:** the layout is a function of policy, state and surroundings alone, so that a step
//! that changes nothing in them changes nothing in the kernel.

use super::candidate::Candidate;
use super::state::{Egress, PoolState, Slot, Surroundings};
use crate::iproute::{Family, Route, RouteKind, Rule, RuleAction};
use crate::kernel::diff::Means;
use crate::kernel::nft::{Layout, SlotLayout};
use crate::kernel::{Ends, NftTable, Tunnel, World};
use crate::names::{Interface, Mark, PolicyName, Table};
use crate::plan::Backend;
use crate::policy::pool::{
    CLOSING_RULES, Inbound, Ipv6, MARK_BASE, SLOT_RULES, SOURCE_RULES, USER_CLOSING_RULES,
    USER_RULES,
};
use crate::policy::{ClientEntry, ClientKey, PoolPolicy};
use ipnet::{IpNet, Ipv4Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// The metric of a table's `unreachable` guard: worse than any that a person or a daemon gives.
pub const GUARD_METRIC: u32 = 4_278_198_272;
/// `rule_priority +` this is Direct's rule.
const DIRECT_RULE: u32 = 2_046;
/// `rule_priority +` this is the rule of flows that the WAN opened.
const INBOUND_RULE: u32 = 2_047;
/// `rule_priority +` this is the first IPv6 closing rule of a LAN interface.
const LAN6_RULES: u32 = 1_024;

/// WireGuard's own overhead over IPv6 (40 + 8 + 32 bytes), which is the larger one.
const OVERHEAD: u32 = 80;
/// The MTU that every IPv6 path must carry (RFC 8200), tried before a slot that loses large packets
/// is given up.
pub const SMALL_MTU: u16 = 1_280;

/// All of IPv4.
const EVERYWHERE: IpNet = IpNet::V4(Ipv4Net::new_assert(std::net::Ipv4Addr::UNSPECIFIED, 0));

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
    let by_wan = surroundings.wan_mtu.saturating_sub(OVERHEAD).clamp(u32::from(SMALL_MTU), 1_420);
    candidate.mtu.unwrap_or_else(|| u16::try_from(by_wan).unwrap_or(1_420))
}

/// The tunnel that a slot should be.
#[must_use]
pub fn tunnel(
    state: &PoolState,
    slot: &Slot,
    candidate: &Candidate,
    surroundings: &Surroundings,
) -> Tunnel {
    let ends = Ends { endpoint: endpoint_of(state, candidate), ..candidate.ends.clone() };
    let mtu = mtu_of(candidate, surroundings);
    Tunnel {
        config: Some(candidate.config.clone()),
        ends: Some(ends),
        addresses: candidate.addresses.clone(),
        answers: true,
        listen_port: None,
        mtu: if slot.mtu_lowered { mtu.min(SMALL_MTU) } else { mtu },
        up: true,
    }
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
            world.tunnels.insert(interface.clone(), tunnel(state, slot, candidate, surroundings));
            for (key, value) in [("rp_filter", "2"), ("src_valid_mark", "1")] {
                world.sysctls.insert(sysctl(interface.as_str(), key), value.to_owned());
            }
            world.routes.insert(slot_route(policy, interface, table));
        }
        if holds_clients(policy, state) || world.tunnels.contains_key(interface) {
            world.routes.insert(guard(policy, table));
        }
    }
    if !holds_clients(policy, state) {
        return world;
    }
    world.sysctls.insert(sysctl(surroundings.wan.as_str(), "src_valid_mark"), "1".to_owned());
    if surroundings.lan.contains(&surroundings.wan) {
        world.sysctls.insert(sysctl(surroundings.wan.as_str(), "send_redirects"), "0".to_owned());
    }
    world.rules = rules(policy, state, surroundings);
    let text = nft_layout(policy, name, state, surroundings).render();
    world.nft = Some(NftTable { name: name.nft_table(), text, listing: None });
    world
}

/// A table's way out: the slot's device.
pub(super) fn slot_route(policy: &PoolPolicy, interface: &Interface, table: Table) -> Route {
    Route {
        family: Family::V4,
        kind: RouteKind::Unicast,
        destination: EVERYWHERE,
        via: None,
        dev: Some(interface.to_string()),
        table,
        metric: None,
        protocol: Some(policy.routing.protocol),
        other: false,
    }
}

/// What a table says when its way out is gone. Without it the lookup would go on to main.
fn guard(policy: &PoolPolicy, table: Table) -> Route {
    Route {
        kind: RouteKind::Unreachable,
        dev: None,
        metric: Some(GUARD_METRIC),
        family: Family::V4,
        destination: EVERYWHERE,
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

/// All rules, by the numbers of the kernel layout.
fn rules(policy: &PoolPolicy, state: &PoolState, surroundings: &Surroundings) -> BTreeSet<Rule> {
    let base = policy.routing.rule_priority;
    let main = || RuleAction::Lookup(Table::MAIN);
    let rule = |offset: u32, index: u32, family, action| Rule {
        priority: base.saturating_add(offset).saturating_add(index),
        family,
        from: None,
        to: None,
        not: false,
        fwmark: None,
        iif: None,
        oif: None,
        uid_range: None,
        action,
        suppress_prefixlength: None,
        protocol: Some(policy.routing.protocol),
        other: false,
    };
    let near = |index, net: IpNet| Rule {
        to: Some(net),
        // Not main's default, nor a /1 that stands for it.
        suppress_prefixlength: Some(1),
        ..rule(0, index, Family::of(net.addr()), main())
    };
    let marked = |offset, index, mark: Mark, action| Rule {
        fwmark: Some((mark.0, u32::MAX)),
        ..rule(offset, index, Family::V4, action)
    };
    let mut rules = BTreeSet::new();
    let clients = closing_prefixes(policy);
    let local: BTreeSet<Ipv4Net> =
        surroundings.local4.iter().chain(&policy.client_prefixes()).copied().collect();
    let local: Vec<Ipv4Net> = Ipv4Net::aggregate(&local.into_iter().collect::<Vec<_>>());
    for (index, net) in (0..).zip(&local) {
        rules.insert(near(index, IpNet::V4(*net)));
    }
    for (index, _) in (0..).zip(&policy.slots.interfaces) {
        let action = RuleAction::Lookup(policy.table(index));
        rules.insert(marked(SLOT_RULES, index, policy.mark(index), action));
    }
    // What the kernel sends by itself from a tunnel's address, a reset for late data, goes back into
    // a tunnel and not out by the WAN in clear, also when the nft table is gone.
    for (index, interface) in (0..).zip(&policy.slots.interfaces) {
        let candidate = state.slots.get(interface).and_then(Slot::candidate);
        for address in candidate.into_iter().flat_map(|candidate| &candidate.addresses) {
            if Family::of(address.addr()) == Family::V4 {
                rules.insert(Rule {
                    from: Some(*address),
                    fwmark: Some((0, MARK_BASE)),
                    ..rule(SOURCE_RULES, index, Family::V4, RuleAction::Lookup(policy.table(index)))
                });
            }
        }
    }
    rules.insert(marked(DIRECT_RULE, 0, policy.direct_mark(), main()));
    rules.insert(marked(INBOUND_RULE, 0, policy.inbound_mark(), main()));
    for (index, user) in (0..).zip(policy.users()) {
        let Some(uid) = surroundings.users.get(user) else { continue };
        let key = ClientKey::User(user.to_owned());
        let table = match state.egress.get(&key) {
            Some(Egress::Slot(slot)) => policy.index_of(slot).map(|slot| policy.table(slot)),
            Some(Egress::Direct) => Some(Table::MAIN),
            Some(Egress::None) | None => None,
        };
        if let Some(table) = table {
            rules.insert(Rule {
                uid_range: Some((*uid, *uid)),
                ..rule(USER_RULES, index, Family::V4, RuleAction::Lookup(table))
            });
        }
        for family in [Family::V4, Family::V6] {
            rules.insert(Rule {
                uid_range: Some((*uid, *uid)),
                ..rule(USER_CLOSING_RULES, index, family, RuleAction::Unreachable)
            });
        }
    }
    for (index, net) in (0..).zip(&clients) {
        rules.insert(Rule {
            from: Some(IpNet::V4(*net)),
            ..rule(CLOSING_RULES, index, Family::V4, RuleAction::Unreachable)
        });
    }
    if policy.routing.ipv6 == Ipv6::Block {
        for (index, net) in (0..).zip(&surroundings.local6) {
            rules.insert(near(index, IpNet::V6(*net)));
        }
        for (index, lan) in (0..).zip(&surroundings.lan) {
            rules.insert(Rule {
                iif: Some(lan.to_string()),
                ..rule(LAN6_RULES, index, Family::V6, RuleAction::Unreachable)
            });
        }
    }
    rules
}

/// The clients' prefixes, aggregated: what is closed unless a mark opens it.
fn closing_prefixes(policy: &PoolPolicy) -> Vec<Ipv4Net> {
    let mut clients = Ipv4Net::aggregate(&policy.client_prefixes());
    clients.sort_unstable();
    clients
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
    let mark = |key: &ClientKey| state.egress.get(key).and_then(|egress| mark_of(policy, egress));
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
            ClientEntry::Prefix(IpNet::V6(_)) => {}
            ClientEntry::Spread(net) => {
                spread.insert(*net, entry.keys().iter().map(mark).collect());
            }
            ClientEntry::User(user) => {
                if let Some(uid) = surroundings.users.get(user) {
                    users.insert(*uid, mark(&ClientKey::User(user.clone())));
                }
            }
        }
    }
    let slots = (0..)
        .zip(&policy.slots.interfaces)
        .map(|(index, interface)| {
            let tunnel = state
                .slots
                .get(interface)
                .and_then(|slot| Some(tunnel(state, slot, slot.candidate()?, surroundings)));
            let addresses = tunnel.iter().flat_map(|tunnel| &tunnel.addresses);
            let addresses = addresses
                .filter_map(|net| match net {
                    IpNet::V4(net) => Some(net.addr()),
                    IpNet::V6(_) => None,
                })
                .collect();
            let mtu = tunnel.as_ref().map(|tunnel| tunnel.mtu);
            (interface.clone(), SlotLayout { mark: policy.mark(index), mtu, addresses })
        })
        .collect();
    let standby = policy.bootstrap.wireguard.iter().map(|standby| standby.interface.clone());
    Layout {
        table: name.nft_table(),
        base: policy.routing.first_mark,
        slots,
        other_tunnels: policy.test.interfaces().into_iter().chain(standby).collect(),
        lan: surroundings.lan.clone(),
        wan: surroundings.wan.clone(),
        local: surroundings.local4.clone(),
        local6: surroundings.local6.clone(),
        clients: policy.client_prefixes(),
        placement,
        spread,
        users,
        block_ipv6: policy.routing.ipv6 == Ipv6::Block,
        keep_inbound: policy.routing.inbound == Inbound::Keep,
        masquerade: policy.routing.masquerade,
    }
}
