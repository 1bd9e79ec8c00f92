//! The kernel as a value: what each command of a plan does to it.

use egressctl::kernel::{Ends, NftTable, Tunnel, World};
use egressctl::plan::Action;
use egressctl::pool::candidate::Candidate;
use std::collections::{BTreeMap, BTreeSet};

const PER_TUNNEL: [&str; 2] = ["rp_filter", "src_valid_mark"];

/// A kernel without anything of ours.
pub(super) fn bare() -> World {
    let mut world = World::default();
    world.sysctls.insert("net/ipv4/conf/eth0/src_valid_mark".to_owned(), "0".to_owned());
    world
}

/// Does one command.
pub fn apply(world: &mut World, action: &Action, candidates: &BTreeMap<String, Candidate>) {
    match action {
        Action::CreateTunnel { interface, .. } => {
            if world.tunnels.get(interface).is_some_and(|tunnel| tunnel.answers) {
                return;
            }
            world.routes.retain(|route| route.dev.as_deref() != Some(interface.as_str()));
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
                    addresses: BTreeSet::new(),
                    mtu: 1_420,
                    up: false,
                },
            );
        }
        Action::RemoveTunnel { interface, .. } => {
            world.tunnels.remove(interface);
            world.routes.retain(|route| route.dev.as_deref() != Some(interface.as_str()));
            for key in PER_TUNNEL {
                world.sysctls.remove(&format!("net/ipv4/conf/{interface}/{key}"));
            }
        }
        Action::Configure { interface, config, endpoint, .. } => {
            let candidate = candidates.get(&config.path()).expect("a file of the pool");
            let tunnel = world.tunnels.get_mut(interface).expect("the tunnel is there");
            tunnel.config = Some(config.clone());
            tunnel.ends = Some(Ends { endpoint: Some(*endpoint), ..candidate.ends.clone() });
        }
        Action::AddAddress { interface, address } => {
            world.tunnels.get_mut(interface).expect("there").addresses.insert(*address);
        }
        Action::RemoveAddress { interface, address } => {
            let tunnel = world.tunnels.get_mut(interface).expect("there");
            tunnel.addresses.remove(address);
            assert!(!tunnel.addresses.is_empty(), "{interface}: the last address takes its routes");
        }
        Action::LinkUp { interface, mtu } => {
            let tunnel = world.tunnels.get_mut(interface).expect("there");
            tunnel.mtu = *mtu;
            tunnel.up = true;
        }
        Action::Sysctl { path, value } => {
            assert!(world.sysctls.insert(path.clone(), value.clone()).is_some(), "no {path}");
        }
        Action::ReplaceRoute(route) => {
            if let Some(dev) = &route.dev {
                let tunnel = world.tunnels.iter().find(|(name, _)| name.as_str() == dev);
                assert!(tunnel.is_some_and(|(_, tunnel)| tunnel.up), "{dev} is not up");
            }
            world.routes.retain(|other| {
                other.table != route.table
                    || other.destination != route.destination
                    || other.metric != route.metric
            });
            world.routes.insert(route.clone());
        }
        Action::DeleteRoute(route) => {
            assert!(world.routes.remove(route), "no such route: {route:?}");
        }
        Action::AddRule(rule) => {
            assert!(world.rules.insert(rule.clone()), "that rule stands already: {rule:?}");
        }
        Action::DeleteRule(rule) => {
            assert!(world.rules.remove(rule), "no such rule: {rule:?}");
        }
        Action::LoadNft { table, text } => {
            world.nft = Some(NftTable {
                name: table.clone(),
                listing: Some(text.clone()),
                text: text.clone(),
            });
        }
        Action::DropNft { .. } => {
            assert!(world.nft.take().is_some(), "no table to drop");
        }
    }
}

/// Whether a world is another, as far as a diff compares them.
pub fn same_world(actual: &World, wished: &World) -> Result<(), String> {
    let names = |world: &World| world.tunnels.keys().cloned().collect::<Vec<_>>();
    if names(actual) != names(wished) {
        return Err(format!("tunnels {:?}, not {:?}", names(actual), names(wished)));
    }
    for (name, wished) in &wished.tunnels {
        let actual = &actual.tunnels[name];
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
