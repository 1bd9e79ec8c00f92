//! Where a client's packet goes, by what stands in the kernel: the nft table's marks and barrier, and
//! the routing rules behind them.
//!
//! **Invariant:** this reads the world that is, never the state that it was made from.

use crate::iproute::{Family, RouteKind, Rule, RuleAction};
use crate::kernel::World;
use crate::kernel::nft::placement_in;
use crate::names::{Interface, Mark, Table};
use ipnet::{IpNet, Ipv4Net};
use std::net::{IpAddr, Ipv4Addr};

/// Somewhere far, which is on no link of the gateway (RFC 5737).
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

/// By which way a packet leaves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// By a tunnel.
    Tunnel(Interface),
    /// By the WAN, in clear.
    Wan,
    /// It does not.
    Refused,
}

/// What may be missing when a packet comes, to see whether the other layer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// Nothing.
    Both,
    /// The nft table is gone.
    RulesAlone,
    /// The routing rules are gone.
    NftAlone,
}

/// Where the first packet of a new flow of a client goes.
#[must_use]
pub fn new_flow(world: &World, client: Ipv4Net, wan: &str, layers: Layers) -> Exit {
    let nft = world.nft.as_ref().filter(|_| layers != Layers::RulesAlone);
    let mark = nft.and_then(|table| {
        let placement = placement_in(&table.text);
        placement.iter().find(|(net, _)| net.contains(&IpNet::V4(client))).map(|(_, mark)| *mark)
    });
    let device = if layers == Layers::NftAlone {
        Some(wan.to_owned())
    } else {
        route(world, client.addr(), mark, wan)
    };
    let Some(device) = device else { return Exit::Refused };
    if let Some(table) = nft {
        let way = mark.map(|mark| format!("{mark} . \"{device}\""));
        if !way.is_some_and(|way| set(&table.text, "set way {").contains(&way)) {
            return Exit::Refused;
        }
    }
    if device == wan {
        return Exit::Wan;
    }
    Interface::try_from(device).map_or(Exit::Refused, Exit::Tunnel)
}

/// The line of a set in an nft text.
fn set<'a>(text: &'a str, head: &str) -> &'a str {
    text.split_once(head).and_then(|(_, rest)| rest.lines().next()).unwrap_or("")
}

/// The device that the rules choose; `None`: unreachable.
fn route(world: &World, from: Ipv4Addr, mark: Option<Mark>, wan: &str) -> Option<String> {
    // They are ordered by priority.
    for rule in world.rules.iter().filter(|rule| takes(rule, from, mark)) {
        match &rule.action {
            RuleAction::Unreachable => return None,
            RuleAction::Lookup(Table::MAIN) if rule.suppress_prefixlength.is_none() => {
                return Some(wan.to_owned());
            }
            RuleAction::Lookup(table) => {
                let best = world
                    .routes
                    .iter()
                    .filter(|route| route.table == *table && route.destination.contains(&FAR))
                    .min_by_key(|route| route.metric.unwrap_or(0));
                match best.map(|route| (&route.kind, &route.dev)) {
                    Some((RouteKind::Unicast, Some(dev))) => return Some(dev.clone()),
                    Some(_) => return None,
                    None => {}
                }
            }
            RuleAction::Other(_) => {}
        }
    }
    Some(wan.to_owned())
}

/// Whether a rule takes a forwarded packet of a client that goes far.
fn takes(rule: &Rule, from: Ipv4Addr, mark: Option<Mark>) -> bool {
    let within = |net: Option<IpNet>, ip: IpAddr| net.is_none_or(|net| net.contains(&ip));
    rule.family == Family::V4
        && within(rule.from, IpAddr::V4(from))
        && within(rule.to, FAR)
        && rule.fwmark.is_none_or(|(value, mask)| mark.map_or(0, |m| m.0) & mask == value & mask)
        && rule.uid_range.is_none()
        && rule.iif.is_none()
        && rule.oif.is_none()
}
