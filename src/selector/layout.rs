//! What the kernel should look like for a choice between two uplinks.
//!
//! New flows follow the default route of the policy's table. A flow keeps in its conntrack mark by
//! which uplink it leaves, and a rule a mark leads it to the table of that uplink, which holds
//! nothing but the way out by it; so what is open stays where it is when the default moves. The same
//! marks lead the probes of each channel, whatever is chosen.
//!
//! **Invariant:** the layout is a function of policy, choice and devices alone; no route is wished
//! that the kernel would refuse, since its device is there and is up.

use crate::iproute::{Family, Link, Route, RouteKind, Rule, RuleAction};
use crate::kernel::uplinks::{Uplink as Marked, Uplinks};
use crate::kernel::{GUARD_METRIC, NftTable, World};
use crate::machine::Owned;
use crate::names::{Interface, PolicyName, Table};
use crate::observation::{KernelReading, KernelScope, Realm};
use crate::policy::selector::{Channel, RouteDriver, Uplink};
use ipnet::{IpNet, Ipv4Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// All of IPv4.
const EVERYWHERE: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0));
/// The filter of reverse paths that holds for every device which has no stricter one.
const ALL_RP_FILTER: &str = "net/ipv4/conf/all/rp_filter";
/// A client's flow that stays on the uplink that is not the default's gets its answers there, which
/// a strict filter drops; a loose one wants any way back.
const LOOSE: &str = "2";
/// What a strict filter says.
const STRICT: &str = "1";

/// Whether packets can leave by an uplink, as far as the kernel knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Its device is up and reaches the gateway.
    Up,
    /// It does not.
    Down(String),
}

/// Both uplinks in the kernel.
pub(super) struct Ways<'a> {
    name: &'a PolicyName,
    driver: &'a RouteDriver,
    kernel: &'a KernelReading,
    owned: &'a Owned,
}

impl<'a> Ways<'a> {
    pub(super) fn new(
        name: &'a PolicyName,
        driver: &'a RouteDriver,
        kernel: &'a KernelReading,
        owned: &'a Owned,
    ) -> Self {
        Self { name, driver, kernel, owned }
    }

    /// Whether packets can leave by an uplink.
    pub(super) fn line(&self, channel: Channel) -> Line {
        let uplink = self.driver.uplink(channel);
        let device = &uplink.interface;
        let found = self.kernel.links.iter().find(|link| link.name == device.as_str());
        let Some(link) = found else { return Line::Down(format!("{device} is not there")) };
        if !link.up {
            return Line::Down(format!("{device} is down"));
        }
        match uplink.gateway {
            Some(gateway) if !reaches(link, gateway) => Line::Down(format!(
                "{device} has no address in the network of its gateway {gateway}"
            )),
            Some(_) | None => Line::Up,
        }
    }

    /// Whether all stands in the kernel by which a channel is asked.
    pub(super) fn stands(&self, channel: Channel) -> bool {
        let world = &self.kernel.world;
        world.routes.contains(&self.way_out(channel, self.driver.own_table(channel), None))
            && world.rules.contains(&self.rule(channel))
            && self
                .sysctls(channel)
                .iter()
                .all(|(path, value)| world.sysctls.get(path) == Some(value))
    }

    /// The channel that the default route of ours leaves by.
    pub(super) fn chosen(&self) -> Option<Channel> {
        let stands = |channel: &Channel| self.kernel.world.routes.contains(&self.default(*channel));
        Channel::ALL.into_iter().find(stands)
    }

    /// The whole world that a choice calls for.
    pub(super) fn world(&self, chosen: Channel) -> World {
        let mut world = World::default();
        for channel in Channel::ALL {
            let table = self.driver.own_table(channel);
            world.rules.insert(self.rule(channel));
            // A flow never goes on by the other uplink with the address of this one.
            world.routes.insert(Route {
                kind: RouteKind::Unreachable,
                via: None,
                dev: None,
                metric: Some(GUARD_METRIC),
                ..self.way_out(channel, table, None)
            });
            if self.line(channel) == Line::Up {
                world.routes.insert(self.way_out(channel, table, None));
            }
            world.sysctls.extend(self.sysctls(channel));
        }
        if self.line(chosen) == Line::Up {
            world.routes.insert(self.default(chosen));
        }
        let table = self.name.nft_table();
        let text = self.nft(table.clone()).render();
        world.nft = Some(NftTable { name: table, text, listing: None });
        world
    }

    fn interface(&self, channel: Channel) -> &Interface {
        &self.driver.uplink(channel).interface
    }

    /// The settings that answers need which come in by an uplink.
    fn sysctls(&self, channel: Channel) -> BTreeMap<String, String> {
        let device = self.interface(channel);
        // What comes in for the gateway itself is looked up with its mark.
        let mut wished = BTreeMap::from([(src_valid_mark(device), "1".to_owned())]);
        let filter = rp_filter(device);
        if self.is_strict(channel) || self.owned.sysctls.contains_key(&filter) {
            wished.insert(filter, LOOSE.to_owned());
        }
        wished
    }

    /// Whether answers that come in by an uplink must be on the way of the default route.
    fn is_strict(&self, channel: Channel) -> bool {
        let value = |path: &str| self.kernel.world.sysctls.get(path).map_or("0", String::as_str);
        let own = value(&rp_filter(self.interface(channel))).to_owned();
        [own.as_str(), value(ALL_RP_FILTER)].into_iter().max() == Some(STRICT)
    }

    fn default(&self, channel: Channel) -> Route {
        self.way_out(channel, self.driver.table, Some(self.driver.metric))
    }

    fn way_out(&self, channel: Channel, table: Table, metric: Option<u32>) -> Route {
        let uplink = self.driver.uplink(channel);
        Route {
            family: Family::V4,
            kind: RouteKind::Unicast,
            destination: EVERYWHERE,
            via: uplink.gateway.map(IpAddr::V4),
            dev: Some(uplink.interface.to_string()),
            table,
            // Metric 0 is what the kernel gives by itself.
            metric: metric.filter(|metric| *metric != 0),
            protocol: Some(self.driver.protocol),
            other: false,
        }
    }

    /// What leads a channel's flows and probes to its own table.
    fn rule(&self, channel: Channel) -> Rule {
        Rule {
            priority: self.driver.priority(channel),
            family: Family::V4,
            from: None,
            to: None,
            not: false,
            fwmark: Some((self.driver.mark(channel).0, u32::MAX)),
            iif: None,
            oif: None,
            uid_range: None,
            action: RuleAction::Lookup(self.driver.own_table(channel)),
            suppress_prefixlength: None,
            protocol: Some(self.driver.protocol),
            other: false,
        }
    }

    fn nft(&self, table: String) -> Uplinks {
        let uplink = |channel: Channel| {
            let Uplink { interface, gateway } = self.driver.uplink(channel).clone();
            let [opened, answered] = self.driver.flow_marks(channel);
            Marked { interface, gateway, mark: self.driver.mark(channel), opened, answered }
        };
        Uplinks { table, uplinks: Channel::ALL.map(uplink).into() }
    }
}

/// Whether a device reaches an address in one hop, as far as its own addresses tell. Where one has no
/// network at all, another route may lead to the gateway.
fn reaches(link: &Link, gateway: Ipv4Addr) -> bool {
    link.addresses.iter().any(|address| match address.local {
        IpNet::V4(net) => {
            net.contains(&gateway)
                || net.prefix_len() == 32
                || address.peer == Some(IpAddr::V4(gateway))
        }
        IpNet::V6(_) => false,
    })
}

/// The path of a device's filter of reverse paths below `/proc/sys`.
fn rp_filter(interface: &Interface) -> String {
    format!("net/ipv4/conf/{interface}/rp_filter")
}

/// The path of the setting by which that filter looks a packet up with its mark.
fn src_valid_mark(interface: &Interface) -> String {
    format!("net/ipv4/conf/{interface}/src_valid_mark")
}

/// Whether a route of somebody else goes before ours, or is in its very place.
pub(super) fn is_before(driver: &RouteDriver, route: &Route) -> bool {
    route.table == driver.table
        && route.family == Family::V4
        && route.destination == EVERYWHERE
        && route.metric.unwrap_or(0) <= driver.metric
}

/// What tells the policy's rules and routes from a stranger's.
pub(super) fn realms(driver: &RouteDriver) -> BTreeSet<Realm> {
    let priorities = (driver.priority(Channel::Primary), driver.priority(Channel::Reserve));
    let own = (driver.own_table(Channel::Primary).0, driver.own_table(Channel::Reserve).0);
    let realm = |tables| Realm { protocol: driver.protocol, priorities, tables };
    BTreeSet::from([realm((driver.table.0, driver.table.0)), realm(own)])
}

/// What of the kernel concerns the policy: its own, and what it made when it was another.
pub(super) fn scope(
    name: &PolicyName,
    driver: Option<&RouteDriver>,
    owned: &Owned,
    turn: u32,
) -> KernelScope {
    let mut sysctls: BTreeSet<String> = owned.sysctls.keys().cloned().collect();
    let mut realms = owned.realms.clone();
    let mut watched = BTreeSet::new();
    if let Some(driver) = driver {
        for channel in Channel::ALL {
            let device = &driver.uplink(channel).interface;
            sysctls.extend([rp_filter(device), src_valid_mark(device)]);
        }
        sysctls.insert(ALL_RP_FILTER.to_owned());
        realms.extend(self::realms(driver));
        watched.insert(driver.table);
    }
    KernelScope {
        turn,
        realms,
        watched,
        sysctls,
        nft_table: name.nft_table(),
        ..KernelScope::default()
    }
}
