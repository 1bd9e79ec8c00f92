//! Puts together what `wg`, `ip` and `nft` printed into one reading.
//!
//! **Invariant:** what is not ours, or not wholly understood, is not in the world that comes out.

use super::{Ends, NftTable, Tunnel, World};
use crate::iproute::{Link, Route, Rule};
use crate::names::{Interface, Mark};
use crate::observation::{Counters, KernelReading, KernelScope, Keys};
use crate::wireguard::dump::DumpedTunnel;
use ipnet::IpNet;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

/// What the programs printed, parsed.
#[derive(Clone, Debug, Default)]
pub struct Printed {
    /// `wg show all dump`.
    pub tunnels: BTreeMap<Interface, DumpedTunnel>,
    /// `ip addr show`.
    pub links: Vec<Link>,
    /// `ip rule show`, both families.
    pub rules: Vec<Rule>,
    /// `ip route show table all protocol P`.
    pub routes: Vec<Route>,
    /// `ip route show default`.
    pub defaults: Vec<Route>,
    /// `ip route show table N` of each watched table.
    pub watched: Vec<Route>,
    /// `nft list table`; `None`: there is no such table.
    pub nft: Option<String>,
    /// Values below `/proc/sys`.
    pub sysctls: BTreeMap<String, String>,
    /// Users and their numbers.
    pub users: BTreeMap<String, u32>,
    /// Devices that the kernel sends bound requests out by.
    pub bindable: BTreeSet<Interface>,
}

/// SHA-256 of a text, in hex.
#[must_use]
pub fn sha256(text: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(text).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The kernel as it concerns one policy.
#[must_use]
pub fn reading(scope: &KernelScope, printed: Printed) -> KernelReading {
    let mut world = World { sysctls: printed.sysctls, ..World::default() };
    let mut strangers = BTreeSet::new();
    for link in &printed.links {
        let Ok(name) = Interface::try_from(link.name.clone()) else { continue };
        if !scope.interfaces.contains(&name) {
            continue;
        }
        if scope.owned.contains(&name) {
            let tunnel = tunnel(scope, &name, link, printed.tunnels.get(&name));
            world.tunnels.insert(name, tunnel);
        } else {
            strangers.insert(name);
        }
    }
    // A daemon may die between two looks: what was read of a device that is gone is of no world.
    world.sysctls.retain(|path, _| {
        let of = |name: &&Interface| path.contains(&format!("/{name}/"));
        scope.interfaces.iter().find(of).is_none_or(|name| world.tunnels.contains_key(name))
    });
    world.rules = printed
        .rules
        .into_iter()
        .filter(|rule| {
            scope.realms.iter().any(|realm| realm.has_rule(rule.protocol, rule.priority))
                && rule.del_args().is_some()
        })
        .collect();
    let is_ours = |route: &Route| {
        scope.realms.iter().any(|realm| realm.has_route(route.protocol, route.table.0))
            && route.del_args().is_some()
    };
    world.routes = printed.routes.into_iter().filter(is_ours).collect();
    let foreign = printed.watched.into_iter().filter(|route| !is_ours(route)).collect();
    world.nft = printed.nft.map(|listing| NftTable {
        name: scope.nft_table.clone(),
        listing: Some(sha256(listing.as_bytes())),
        text: replacing(&scope.nft_table, &listing),
    });
    let default_device = printed
        .defaults
        .iter()
        .min_by_key(|route| route.metric.unwrap_or(0))
        .and_then(|route| route.dev.clone())
        .and_then(|device| Interface::try_from(device).ok());
    let counters = printed
        .tunnels
        .iter()
        .filter(|(name, _)| scope.interfaces.contains(*name))
        .map(|(name, dumped)| (name.clone(), counters(dumped)))
        .collect();
    KernelReading {
        world,
        links: printed.links,
        default_device,
        counters,
        strangers,
        users: printed.users,
        bindable: printed.bindable,
        foreign,
    }
}

/// A text that puts a listed table in the place of whatever table is there.
#[must_use]
pub fn replacing(table: &str, listing: &str) -> String {
    format!("table inet {table} {{ }}\ndelete table inet {table}\n{listing}")
}

fn tunnel(
    scope: &KernelScope,
    name: &Interface,
    link: &Link,
    dumped: Option<&DumpedTunnel>,
) -> Tunnel {
    let ends = dumped.and_then(ends);
    let config = scope
        .expected
        .get(name)
        .filter(|(_, keys)| ends.as_ref().is_some_and(|ends| Keys::from(ends) == *keys))
        .map(|(config, _)| config.clone());
    Tunnel {
        config,
        answers: dumped.is_some(),
        ends,
        listen_port: dumped.and_then(|dumped| NonZeroU16::new(dumped.listen_port)),
        fwmark: dumped.and_then(|dumped| dumped.fwmark).map(Mark),
        // A userspace device gets a link-local address by itself; it is nobody's doing.
        addresses: link
            .addresses
            .iter()
            .map(|address| address.local)
            .filter(|address| match address {
                IpNet::V4(_) => true,
                IpNet::V6(net) => !net.addr().is_unicast_link_local(),
            })
            .collect(),
        mtu: u16::try_from(link.mtu).unwrap_or(u16::MAX),
        up: link.up,
    }
}

/// The two ends of a tunnel with just one peer.
fn ends(dumped: &DumpedTunnel) -> Option<Ends> {
    let [peer] = dumped.peers.as_slice() else { return None };
    Some(Ends {
        own: dumped.public_key?,
        peer: peer.public_key,
        endpoint: peer.endpoint,
        allowed_ips: peer.allowed_ips.iter().copied().collect(),
        keepalive: peer.keepalive.unwrap_or(0),
        preshared: peer.preshared_key.as_ref().map(crate::wireguard::PresharedKey::fingerprint),
    })
}

fn counters(dumped: &DumpedTunnel) -> Counters {
    let sum = |value: fn(&crate::wireguard::dump::DumpedPeer) -> u64| {
        dumped.peers.iter().map(value).fold(0_u64, u64::saturating_add)
    };
    Counters {
        rx: sum(|peer| peer.rx),
        tx: sum(|peer| peer.tx),
        handshake: dumped.peers.iter().filter_map(|peer| peer.latest_handshake).max().unwrap_or(0),
    }
}
