//! Where a gateway stands: its uplink, its LAN, what is local, and who its local users are.
//!
//! **Invariant:** what cannot be seen now is taken from the last look, so that a carrier that is lost for a
//! moment opens nothing and moves nobody.

use super::state::Surroundings;
use crate::names::Interface;
use crate::observation::KernelReading;
use crate::policy::PoolPolicy;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

/// Whether the uplink has another address than the last step saw: a daemon goes on from the old one for
/// a quarter of a minute, so what its tunnel shows until it was told says nothing.
pub(super) fn has_moved(known: Option<&Surroundings>, now: &Surroundings) -> bool {
    let address = |seen: &Surroundings| seen.wan_net.map(|net| net.addr());
    address(now).is_some() && known.is_some_and(|known| address(known) != address(now))
}

/// Whether an interface is one of our own, which is neither LAN nor WAN.
fn is_tunnel(policy: &PoolPolicy, interface: &Interface) -> bool {
    policy.slots.interfaces.contains(interface)
        || policy.test.interfaces().contains(interface)
        || policy.standby() == Some(interface)
}

/// Finds the WAN, the LAN and what is local. What cannot be seen now is taken from the last look.
pub(crate) fn surroundings(
    policy: &PoolPolicy,
    known: Option<&Surroundings>,
    kernel: &KernelReading,
) -> Result<Surroundings, String> {
    let link = |name: &Interface| kernel.links.iter().find(|link| link.name == name.as_str());
    let wan = policy
        .wan_interface
        .clone()
        .or_else(|| {
            // A default route into one of our own tunnels is not the uplink.
            kernel.default_device.clone().filter(|device| !is_tunnel(policy, device))
        })
        .or_else(|| known.map(|known| known.wan.clone()))
        .ok_or(
            "no uplink was found: main has no default route; name wan_interface in the policy",
        )?;
    let (prefixes, prefixes6) = (policy.client_prefixes(), policy.client_prefixes6());
    let lan: BTreeSet<Interface> = match &policy.lan_interfaces {
        Some(named) => named.iter().cloned().collect(),
        None => kernel
            .links
            .iter()
            .filter(|link| {
                link.addresses.iter().any(|address| match address.local {
                    IpNet::V4(net) => prefixes.iter().any(|client| {
                        net.trunc().contains(client) || client.contains(&net.trunc())
                    }),
                    IpNet::V6(net) => prefixes6.iter().any(|client| {
                        net.trunc().contains(client) || client.contains(&net.trunc())
                    }),
                })
            })
            .filter_map(|link| Interface::try_from(link.name.clone()).ok())
            .filter(|name| !is_tunnel(policy, name))
            .collect(),
    };
    let lan = match (lan.is_empty(), known) {
        (true, Some(known)) if policy.lan_interfaces.is_none() => known.lan.clone(),
        (true, None) if !(prefixes.is_empty() && prefixes6.is_empty()) => {
            return Err(
                "no LAN was found: no interface carries an address of the clients' subnets; name lan_interfaces in the policy"
                    .to_owned(),
            );
        }
        // One of several that has lost its address with its carrier is still a LAN, and still closed.
        (false, Some(known)) if policy.lan_interfaces.is_none() => {
            let bare = |name: &&Interface| {
                link(name).is_none_or(|link| {
                    !link.addresses.iter().any(|address| address.local.addr().is_ipv4())
                })
            };
            lan.iter().chain(known.lan.iter().filter(bare)).cloned().collect()
        }
        (true, Some(_) | None) | (false, _) => lan,
    };
    let mut local4: Vec<ipnet::Ipv4Net> = Vec::new();
    let mut local6 = Vec::new();
    for address in lan.iter().filter_map(link).flat_map(|link| &link.addresses) {
        match address.local {
            IpNet::V4(net) => local4.push(net.trunc()),
            // Link-local prefixes are on every link and lead nowhere else.
            IpNet::V6(net) if net.addr().is_unicast_link_local() => {}
            IpNet::V6(net) => local6.push(net.trunc()),
        }
    }
    if let Some(named) = &policy.routing.local {
        local4.clone_from(named);
    } else if local4.is_empty()
        && let Some(known) = known
    {
        local4.clone_from(&known.local4);
    }
    local4 = ipnet::Ipv4Net::aggregate(&local4);
    local4.sort_unstable();
    local6.sort_unstable();
    local6.dedup();
    let own = kernel
        .links
        .iter()
        .flat_map(|link| &link.addresses)
        .map(|address| address.local.addr())
        .collect();
    let wan_link = link(&wan);
    let wan_net = wan_link.and_then(|link| {
        link.addresses.iter().find_map(|address| match address.local {
            IpNet::V4(net) => Some(net),
            IpNet::V6(_) => None,
        })
    });
    let mut users = BTreeMap::new();
    for name in policy.users() {
        let uid = kernel
            .users
            .get(name)
            .copied()
            .or_else(|| known.and_then(|known| known.users.get(name).copied()))
            .ok_or_else(|| format!("client user:{name}: there is no such user on this machine"))?;
        users.insert(name.to_owned(), uid);
    }
    let wan_mtu =
        wan_link.map(|link| link.mtu).or(known.map(|known| known.wan_mtu)).unwrap_or(1_500);
    Ok(Surroundings { wan, wan_mtu, lan, local4, local6, own, wan_net, users })
}
