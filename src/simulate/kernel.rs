//! The kernel as a value: what each command of a plan does to it.
//!
//! **Invariant:** a command that the kernel would refuse, or that would harm what it does not name, is
//! a contradiction here.

use crate::kernel::{Ends, NftTable, Tunnel, World};
use crate::names::Interface;
use crate::plan::Action;
use crate::policy::PoolPolicy;
use std::collections::{BTreeMap, BTreeSet};

/// Settings that each tunnel has.
const PER_TUNNEL: [&str; 2] = ["rp_filter", "src_valid_mark"];
/// The uplink of a policy that names none.
const WAN: &str = "eth0";

/// The device of the uplink.
pub(super) fn wan(policy: &PoolPolicy) -> String {
    policy.wan_interface.as_ref().map_or_else(|| WAN.to_owned(), ToString::to_string)
}

/// A kernel without anything of ours.
pub(super) fn bare(policy: &PoolPolicy) -> World {
    let mut world = World::default();
    let wan = wan(policy);
    world.sysctls.insert(format!("net/ipv4/conf/{wan}/src_valid_mark"), "0".to_owned());
    world.sysctls.insert(format!("net/ipv4/conf/{wan}/send_redirects"), "1".to_owned());
    world
}

/// Does one command.
///
/// # Errors
/// Why the kernel would not do it.
pub fn apply(
    world: &mut World,
    action: &Action,
    files: &BTreeMap<(u32, String), Ends>,
) -> Result<(), String> {
    match action {
        Action::CreateTunnel { interface, .. } => create(world, interface),
        Action::RemoveTunnel { interface, .. } => {
            world.tunnels.remove(interface);
            without_device(world, interface);
        }
        Action::Configure { interface, config, endpoint, fwmark, .. } => {
            let ends = files
                .get(&(config.generation, config.file.clone()))
                .ok_or_else(|| format!("there is no file {} any more", config.path()))?;
            let tunnel = present(world, interface)?;
            tunnel.config = Some(config.clone());
            tunnel.fwmark = *fwmark;
            tunnel.ends = Some(Ends { endpoint: Some(*endpoint), ..ends.clone() });
        }
        Action::AddAddress { interface, address } => {
            present(world, interface)?.addresses.insert(*address);
        }
        Action::RemoveAddress { interface, address } => {
            let tunnel = present(world, interface)?;
            tunnel.addresses.remove(address);
            if tunnel.addresses.is_empty() {
                return Err(format!("the last address of {interface} takes its routes with it"));
            }
        }
        Action::Aim { interface, .. } => {
            let _there = present(world, interface)?;
        }
        Action::LinkUp { interface, mtu } => {
            let tunnel = present(world, interface)?;
            tunnel.mtu = *mtu;
            tunnel.up = true;
        }
        Action::Sysctl { path, value } => {
            let old = world.sysctls.insert(path.clone(), value.clone());
            old.ok_or_else(|| format!("there is no setting {path}"))?;
        }
        Action::ReplaceRoute(route) => {
            if let Some(dev) = &route.dev
                && !world.tunnels.iter().any(|(name, t)| name.as_str() == dev && t.up)
            {
                return Err(format!("a route by {dev}, which is not up"));
            }
            world.routes.retain(|other| {
                other.table != route.table
                    || other.destination != route.destination
                    || other.metric != route.metric
            });
            world.routes.insert(route.clone());
        }
        Action::DeleteRoute(route) => {
            if !world.routes.remove(route) {
                return Err(format!("there is no such route: {route:?}"));
            }
        }
        Action::AddRule(rule) => {
            if !world.rules.insert(rule.clone()) {
                return Err(format!("that rule stands already: {rule:?}"));
            }
        }
        Action::DeleteRule(rule) => {
            if !world.rules.remove(rule) {
                return Err(format!("there is no such rule: {rule:?}"));
            }
        }
        Action::LoadNft { table, text } => {
            world.nft = Some(NftTable {
                name: table.clone(),
                listing: Some(text.clone()),
                text: text.clone(),
            });
        }
        Action::DropNft { table } => {
            world.nft.take().ok_or_else(|| format!("there is no table {table} to drop"))?;
        }
    }
    Ok(())
}

/// A tunnel that is there.
fn present<'a>(world: &'a mut World, interface: &Interface) -> Result<&'a mut Tunnel, String> {
    world.tunnels.get_mut(interface).ok_or_else(|| format!("there is no {interface}"))
}

/// Makes a tunnel, unless one that works stands there.
fn create(world: &mut World, interface: &Interface) {
    if world.tunnels.get(interface).is_some_and(|tunnel| tunnel.answers) {
        return;
    }
    without_device(world, interface);
    for key in PER_TUNNEL {
        world.sysctls.insert(format!("net/ipv4/conf/{interface}/{key}"), "0".to_owned());
    }
    world.tunnels.insert(
        interface.clone(),
        Tunnel {
            config: None,
            answers: true,
            ends: None,
            listen_port: None,
            fwmark: None,
            addresses: BTreeSet::new(),
            mtu: 1_420,
            up: false,
        },
    );
}

/// What goes with a device.
fn without_device(world: &mut World, interface: &Interface) {
    world.routes.retain(|route| route.dev.as_deref() != Some(interface.as_str()));
    for key in PER_TUNNEL {
        world.sysctls.remove(&format!("net/ipv4/conf/{interface}/{key}"));
    }
}

/// Whether a world is another, as far as a diff compares them.
///
/// # Errors
/// The first difference.
pub fn same_world(actual: &World, wished: &World) -> Result<(), String> {
    let names = |world: &World| world.tunnels.keys().cloned().collect::<Vec<_>>();
    if !actual.tunnels.keys().eq(wished.tunnels.keys()) {
        return Err(format!("tunnels {:?}, not {:?}", names(actual), names(wished)));
    }
    for ((name, actual), wished) in actual.tunnels.iter().zip(wished.tunnels.values()) {
        let same_ends = match (&actual.ends, &wished.ends) {
            (Some(a), Some(b)) => a.same(b),
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
        };
        if !same_ends
            || actual.addresses != wished.addresses
            || actual.mtu != wished.mtu
            || actual.up != wished.up
            || actual.answers != wished.answers
        {
            return Err(format!("{name} is {actual:?}, not {wished:?}"));
        }
    }
    if actual.rules != wished.rules {
        return Err(format!("rules {:?}, not {:?}", actual.rules, wished.rules));
    }
    if actual.routes != wished.routes {
        return Err(format!("routes {:?}, not {:?}", actual.routes, wished.routes));
    }
    for (path, value) in &wished.sysctls {
        if actual.sysctls.get(path) != Some(value) {
            return Err(format!("{path} is {:?}, not {value}", actual.sysctls.get(path)));
        }
    }
    match (&actual.nft, &wished.nft) {
        (None, None) => Ok(()),
        (Some(a), Some(b)) if a.text == b.text => Ok(()),
        (a, b) => Err(format!("nft table {a:?}, not {b:?}")),
    }
}
