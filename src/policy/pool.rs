//! The policy of kind `pool`: which slots, which clients, where tunnels come from, and what every
//! number is counted from.
//!
//! **Invariant:** every default that is not the operator's is written here or in a file of this folder, once.

mod pages;
mod params;
mod routing;
mod tunnels;

use super::clients::{ClientEntry, ClientKey};
pub use super::provider::{Directory, Provider, Wanted};
use crate::names::{Interface, Mark, Table};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
pub use pages::{ExitIp, Large, Probe, Require, Wan};
pub(crate) use pages::{MAX_CONFIRM, MAX_WAN_TIMEOUT_SEC};
pub use params::{Params, Strategy};
pub use routing::{
    CLOSING_RULES, Cut, DIRECT_MARK, INBOUND_MARK, Inbound, Ipv6, LAN6_CLOSING_RULES, MARK_BASE,
    PRIORITIES, Routing, SLOT_RULES, SOURCE_RULES, STANDBY_MARK, STANDBY_RULE, STANDBY_SOURCE_RULE,
    TEST_MARK, USER_CLOSING_RULES, USER_RULES,
};
use serde::Deserialize;
use std::path::PathBuf;
pub use tunnels::{Bootstrap, Keep, Standby, Test, Tool, Userspace, WireGuard};

/// A whole pool policy.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolPolicy {
    /// The tag, already read.
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "$schema", default)]
    _schema: Option<String>,
    #[serde(rename = "description", default)]
    _description: Option<String>,
    /// The tunnels' places.
    pub slots: Slots,
    /// Who is served.
    pub clients: Vec<ClientEntry>,
    /// Where clients are; none given: every interface that carries an address of their subnets.
    #[serde(default)]
    pub lan_interfaces: Option<Vec<Interface>>,
    /// The uplink; none given: the device of main's default route.
    #[serde(default)]
    pub wan_interface: Option<Interface>,
    /// Where candidates come from.
    pub provider: Provider,
    /// Which of them are wanted.
    #[serde(default)]
    pub candidates: Wanted,
    /// What shows that a tunnel works.
    #[serde(default)]
    pub probe: Probe,
    /// How the exit address of a slot is learned.
    #[serde(default)]
    pub exit_ip: Option<ExitIp>,
    /// What shows that the uplink works.
    #[serde(default)]
    pub wan: Wan,
    /// How candidates are tried out.
    #[serde(default)]
    pub test: Test,
    /// The kernel layout.
    #[serde(default)]
    pub routing: Routing,
    /// The WireGuard implementation.
    #[serde(default)]
    pub wireguard: WireGuard,
    /// How the pool gets out of Direct.
    #[serde(default)]
    pub bootstrap: Bootstrap,
    /// Every threshold.
    #[serde(default)]
    pub params: Params,
}

/// The tunnels' places: an interface and a routing table each.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slots {
    /// One interface a slot, in the order that ties are broken by.
    pub interfaces: Vec<Interface>,
    /// Slot `i`, from 0, has table `first_table + i`.
    #[serde(default = "first_table")]
    pub first_table: u32,
}

fn first_table() -> u32 {
    101
}

impl PoolPolicy {
    /// Tunnels that no provider fills, and clients that never leave by the uplink.
    pub(super) fn of_tunnels(
        slots: Slots,
        clients: Vec<ClientEntry>,
        test: Test,
        routing: Routing,
        wireguard: WireGuard,
    ) -> Self {
        Self {
            _kind: "pool".to_owned(),
            _schema: None,
            _description: None,
            slots,
            clients,
            lan_interfaces: None,
            wan_interface: None,
            provider: Provider::Directory(Directory { path: PathBuf::from("/") }),
            candidates: Wanted::default(),
            probe: Probe::default(),
            exit_ip: None,
            wan: Wan::default(),
            test,
            routing,
            wireguard,
            bootstrap: Bootstrap::default(),
            params: Params { direct_failopen_enabled: false, ..Params::default() },
        }
    }

    /// The place of a slot among the slots, from 0.
    #[must_use]
    pub fn index_of(&self, interface: &Interface) -> Option<u32> {
        self.slots
            .interfaces
            .iter()
            .position(|i| i == interface)
            .and_then(|i| u32::try_from(i).ok())
    }

    /// The routing table of slot `index`.
    #[must_use]
    pub fn table(&self, index: u32) -> Table {
        Table(self.slots.first_table.saturating_add(index))
    }

    /// The mark of slot `index`.
    #[must_use]
    pub fn mark(&self, index: u32) -> Mark {
        Mark(self.routing.first_mark.0.saturating_add(index))
    }

    /// The mark of flows on Direct.
    #[must_use]
    pub fn direct_mark(&self) -> Mark {
        Mark(self.routing.first_mark.0.saturating_add(DIRECT_MARK))
    }

    /// The mark of flows that the WAN opened.
    #[must_use]
    pub fn inbound_mark(&self) -> Mark {
        Mark(self.routing.first_mark.0.saturating_add(INBOUND_MARK))
    }

    /// The mark of requests through test interfaces.
    #[must_use]
    pub fn test_mark(&self) -> Mark {
        Mark(self.routing.first_mark.0.saturating_add(TEST_MARK))
    }

    /// The mark of requests through the standby tunnel.
    #[must_use]
    pub fn standby_mark(&self) -> Mark {
        Mark(self.routing.first_mark.0.saturating_add(STANDBY_MARK))
    }

    /// The interface of the standby tunnel, where there is one.
    #[must_use]
    pub fn standby(&self) -> Option<&Interface> {
        self.bootstrap.wireguard.as_ref().map(|standby| &standby.interface)
    }

    /// How many routing tables are used from the first on: one a slot, and the standby's.
    #[must_use]
    pub fn tables(&self) -> u32 {
        let slots = u32::try_from(self.slots.interfaces.len()).unwrap_or(u32::MAX);
        slots.saturating_add(u32::from(self.standby().is_some()))
    }

    /// The routing table of the standby tunnel: the one after the slots'.
    #[must_use]
    pub fn standby_table(&self) -> Table {
        self.table(u32::try_from(self.slots.interfaces.len()).unwrap_or(u32::MAX))
    }

    /// All that is placed, in the order of the policy.
    #[must_use]
    pub fn client_keys(&self) -> Vec<ClientKey> {
        self.clients.iter().flat_map(ClientEntry::keys).collect()
    }

    /// The IPv4 prefixes of clients, spread ones included, in the order of the policy.
    #[must_use]
    pub fn client_prefixes(&self) -> Vec<Ipv4Net> {
        self.clients
            .iter()
            .filter_map(|entry| match entry {
                ClientEntry::Prefix(IpNet::V4(net)) | ClientEntry::Spread(net) => Some(*net),
                ClientEntry::Prefix(IpNet::V6(_)) | ClientEntry::User(_) => None,
            })
            .collect()
    }

    /// The IPv6 prefixes of clients, in the order of the policy.
    #[must_use]
    pub fn client_prefixes6(&self) -> Vec<Ipv6Net> {
        self.clients
            .iter()
            .filter_map(|entry| match entry {
                ClientEntry::Prefix(IpNet::V6(net)) => Some(*net),
                ClientEntry::Prefix(IpNet::V4(_))
                | ClientEntry::Spread(_)
                | ClientEntry::User(_) => None,
            })
            .collect()
    }

    /// The users among the clients.
    #[must_use]
    pub fn users(&self) -> Vec<&str> {
        self.clients
            .iter()
            .filter_map(|entry| match entry {
                ClientEntry::User(name) => Some(name.as_str()),
                ClientEntry::Prefix(_) | ClientEntry::Spread(_) => None,
            })
            .collect()
    }

    /// Keys that have no effect beside the others. One that says what holds without it is not told.
    pub(super) fn notes(&self) -> Vec<String> {
        let standby = self.bootstrap.wireguard.iter();
        standby
            .filter(|standby| standby.keep == Keep::Down && self.provider.is_local())
            .map(|_| {
                "bootstrap.wireguard has no effect: the provider is on this machine, so that the tunnel is never needed"
                    .to_owned()
            })
            .collect()
    }

    /// So many verified slots end Direct.
    #[must_use]
    pub fn min_slots_to_exit_direct(&self) -> usize {
        self.params.min_healthy_slots_to_exit_direct.unwrap_or(self.slots.interfaces.len())
    }
}
