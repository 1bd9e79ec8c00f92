//! The driver `wireguard` of a chain: a tunnel a hop, each one inside the one before.
//!
//! The hops lie in the kernel as the slots of a pool do, with all clients on the last one and nobody
//! ever on the uplink. So they are written down as that: tables, marks, rules, the barrier and the
//! claims of a policy on them are those of a pool.
//!
//! **Invariant:** a hop's device, table and mark follow from its place; its tunnel's own packets carry
//! the mark of the hop before, and those of the first hop none.

use super::{Hop, Node};
use crate::names::{Interface, Mark};
use crate::policy::clients::ClientEntry;
use crate::policy::fault::PolicyFault;
use crate::policy::pool::{
    Cut, Inbound, Ipv6, PoolPolicy, Routing, Slots, Test, Tool, Userspace, WireGuard,
};
use ipnet::Ipv4Net;
use serde::Deserialize;
use std::collections::BTreeSet;

/// One tunnel is a pool's business, and of more than four nothing is left of a packet.
const HOPS: std::ops::RangeInclusive<usize> = 2..=4;
/// What stands for a hop's number in the name of a device.
const PLACE: &str = "{hop}";

/// Tunnels of this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct WireguardDriver {
    /// The hops as slots of a pool: their devices in order, the clients, and all numbers.
    pub lanes: Box<PoolPolicy>,
}

impl WireguardDriver {
    /// The device of the hop in this place.
    #[must_use]
    pub fn device(&self, place: usize) -> Option<&Interface> {
        self.lanes.slots.interfaces.get(place)
    }

    /// The device that backups of the hop in this place are tested on.
    #[must_use]
    pub fn test_device(&self, place: usize) -> Option<&Interface> {
        self.lanes.test.named.get(place)
    }

    /// The mark that leads into the hop in this place.
    #[must_use]
    pub fn mark(&self, place: usize) -> Mark {
        self.lanes.mark(u32::try_from(place).unwrap_or(u32::MAX))
    }

    /// What the own packets of a tunnel in this place carry.
    #[must_use]
    pub fn outer_mark(&self, place: usize) -> Option<Mark> {
        place.checked_sub(1).map(|before| self.mark(before))
    }
}

/// The driver as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenWireguard {
    #[serde(default = "interfaces")]
    interfaces: String,
    #[serde(default = "test")]
    test: String,
    #[serde(default = "first_table")]
    first_table: u32,
    clients: Vec<ClientEntry>,
    #[serde(default)]
    lan_interfaces: Option<Vec<Interface>>,
    #[serde(default)]
    wan_interface: Option<Interface>,
    #[serde(default = "tool")]
    tool: Tool,
    #[serde(default)]
    userspace: Option<Userspace>,
    #[serde(default)]
    routing: WrittenRouting,
}

fn interfaces() -> String {
    format!("ch{PLACE}")
}

fn test() -> String {
    format!("ch{PLACE}t")
}

fn first_table() -> u32 {
    140
}

fn tool() -> Tool {
    Tool::Wg
}

/// As in a pool, with numbers that a pool beside it does not have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenRouting {
    rule_priority: u32,
    protocol: u8,
    first_mark: Mark,
    local: Option<Vec<Ipv4Net>>,
    ipv6: Ipv6,
    masquerade: bool,
    barrier: bool,
    inbound: Inbound,
    cut: Cut,
}

impl Default for WrittenRouting {
    fn default() -> Self {
        let pool = Routing::default();
        Self {
            rule_priority: 25_000,
            protocol: pool.protocol,
            first_mark: Mark(0x4548_0000),
            local: pool.local,
            ipv6: pool.ipv6,
            masquerade: pool.masquerade,
            barrier: pool.barrier,
            inbound: pool.inbound,
            cut: pool.cut,
        }
    }
}

impl From<WrittenRouting> for Routing {
    fn from(written: WrittenRouting) -> Self {
        let WrittenRouting {
            rule_priority,
            protocol,
            first_mark,
            local,
            ipv6,
            masquerade,
            barrier,
            inbound,
            cut,
        } = written;
        Self { rule_priority, protocol, first_mark, local, ipv6, masquerade, barrier, inbound, cut }
    }
}

impl WrittenWireguard {
    /// The driver of so many hops.
    pub(super) fn driver(self, hops: usize) -> Result<WireguardDriver, PolicyFault> {
        let fault = |why: String| Err(PolicyFault::new(format!("driver.wireguard.{why}")));
        if !HOPS.contains(&hops) {
            return Err(PolicyFault::new(format!(
                "hops names {hops}: tunnels stand one inside the other in {} to {} hops; one tunnel is a pool's",
                HOPS.start(),
                HOPS.end()
            )));
        }
        let (devices, tests) =
            (names("interfaces", &self.interfaces, hops)?, names("test", &self.test, hops)?);
        let mut seen = BTreeSet::new();
        let mut edges = self.wan_interface.iter().chain(self.lan_interfaces.iter().flatten());
        let mut ours = devices.iter().chain(&tests);
        let twice = ours
            .find(|name| !seen.insert(*name))
            .or_else(|| edges.find(|edge| seen.contains(edge)));
        if let Some(twice) = twice {
            return fault(format!(
                "interfaces, test and the names of LAN and WAN give {twice} twice: name them apart"
            ));
        }
        let last =
            u64::from(self.first_table).saturating_add(u64::try_from(hops).unwrap_or(u64::MAX));
        let reaches = |table: u64| (u64::from(self.first_table)..last).contains(&table);
        if self.first_table == 0 || last > u64::from(u32::MAX) || (253..=255).any(reaches) {
            return fault(format!(
                "first_table {} and {hops} hops reach a table that the kernel uses itself (0, 253 to 255): write another one, such as 140",
                self.first_table
            ));
        }
        if let Some(net) = self.clients.iter().find_map(|client| match client {
            ClientEntry::Spread(net) => Some(net),
            ClientEntry::Prefix(_) | ClientEntry::User(_) => None,
        }) {
            return fault(format!(
                "clients has {net} with spread, and all clients leave by the last hop: write the prefix alone"
            ));
        }
        if self.routing.ipv6 == Ipv6::Tunnel {
            return fault(
                "routing.ipv6 \"tunnel\" is a pool's: what goes through several hops is IPv4; write \"block\" or \"off\""
                    .to_owned(),
            );
        }
        let mut lanes = PoolPolicy::of_tunnels(
            Slots { interfaces: devices, first_table: self.first_table },
            self.clients,
            Test {
                parallel: u16::try_from(tests.len()).unwrap_or(u16::MAX),
                named: tests,
                ..Test::default()
            },
            self.routing.into(),
            WireGuard { tool: self.tool, userspace: self.userspace },
        );
        lanes.lan_interfaces = self.lan_interfaces;
        lanes.wan_interface = self.wan_interface;
        lanes.validate()?;
        Ok(WireguardDriver { lanes: Box::new(lanes) })
    }
}

/// The devices of all hops by a template.
fn names(key: &str, template: &str, hops: usize) -> Result<Vec<Interface>, PolicyFault> {
    if !template.contains(PLACE) {
        return Err(PolicyFault::new(format!(
            "driver.wireguard.{key} {template:?} has no {PLACE}, where each hop's number goes: write one like \"ch{PLACE}\""
        )));
    }
    let name = |number: usize| Interface::try_from(template.replace(PLACE, &number.to_string()));
    (1..=hops)
        .map(name)
        .collect::<Result<_, _>>()
        .map_err(|why| PolicyFault::new(format!("driver.wireguard.{key}: {why}")))
}

/// What a hop of tunnels may not say.
pub(super) fn validate_hop(hop: &Hop) -> Result<(), PolicyFault> {
    let fault = |node: &Node, why: &str| {
        Err(PolicyFault::new(format!("node {} of hop {} {why}", node.name, hop.name)))
    };
    if hop.group != hop.name.as_str() {
        return Err(PolicyFault::new(format!(
            "hop {} has group, which tunnels have not: leave it out",
            hop.name
        )));
    }
    for node in &hop.nodes {
        match &node.config {
            None => return fault(node, "has no config: name its wg-quick file"),
            Some(path) if !path.is_absolute() => {
                return fault(
                    node,
                    "has a config that is not absolute: a timer has no folder of its own",
                );
            }
            Some(_) if node.member != node.name.as_str() => {
                return fault(node, "has member, which tunnels have not: leave it out");
            }
            Some(_) => {}
        }
    }
    Ok(())
}
