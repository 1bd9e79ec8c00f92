//! Routes: `ip -N -j route show table all`, of one family or of both.
//!
//! **Invariant:** a route is written only when all of it is modelled.

use super::Family;
use super::batch::ListingError;
use super::raw::{Fields, argument, everything, objects};
use crate::names::Table;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::IpAddr;

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Route {
    /// The family.
    pub family: Family,
    /// What happens to the packets it takes.
    pub kind: RouteKind,
    /// The destinations; the default route is `0.0.0.0/0` or `::/0`.
    pub destination: IpNet,
    /// The next machine on the way.
    pub via: Option<IpAddr>,
    /// The device. `None` for an unreachable route, also where the kernel shows `lo` (IPv6).
    pub dev: Option<String>,
    /// The table that it is in.
    pub table: Table,
    /// Its rank among routes to the same destination, lower is better. `None` is what the kernel gives
    /// by itself: 0 in IPv4, 1024 in IPv6.
    pub metric: Option<u32>,
    /// Who made it. `None` is boot (3), which `ip` gives when nobody says and shows only with `-d`.
    pub protocol: Option<u8>,
    /// Whether it has something that is not modelled here, so that it cannot be ours.
    pub other: bool,
}

/// What a route does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteKind {
    /// Sends.
    Unicast,
    /// Refuses the packet with an ICMP error.
    Unreachable,
    /// Anything else, in the words of `ip`.
    Other(String),
}

/// The metric of an IPv6 route that was added without one (`IP6_RT_PRIO_USER`, `linux/ipv6_route.h`).
const IPV6_METRIC: u32 = 1024;

/// `RTPROT_BOOT` of linux/rtnetlink.h.
const BOOT: u8 = 3;

/// Reads a listing of routes. `asked` is the table of `route show table N`, which `ip` then leaves out.
pub fn parse_routes(listing: &Value, asked: Table) -> Result<Vec<Route>, ListingError> {
    let mut routes = Vec::new();
    for mut fields in objects("route", listing)? {
        routes.push(route(&mut fields, asked)?);
    }
    Ok(routes)
}

/// The kind behind a `type`, which `-N` leaves as a number of linux/rtnetlink.h and which is left out
/// for unicast unless `-d` is given.
pub(super) fn kind(fields: &mut Fields) -> Result<RouteKind, ListingError> {
    Ok(match fields.text("type")?.as_deref() {
        None | Some("1" | "unicast") => RouteKind::Unicast,
        Some("7" | "unreachable") => RouteKind::Unreachable,
        Some(other) => RouteKind::Other(other.to_owned()),
    })
}

fn route(fields: &mut Fields, asked: Table) -> Result<Route, ListingError> {
    let kind = kind(fields)?;
    // The kernel sends the preference with each IPv6 route and with no IPv4 route.
    let six = fields.has("pref");
    let preferred = fields.text("pref")?.is_none_or(|pref| pref == "medium" || pref == "0");
    let destination = fields.text("dst")?.ok_or_else(|| fields.wrong("destination"))?;
    let destination = match destination.as_str() {
        "default" => everything(if six { Family::V6 } else { Family::V4 }),
        text => text
            .parse::<IpNet>()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
            .map_err(|_| fields.wrong("destination"))?,
    };
    let family = Family::of(destination.addr());
    let dev = fields.text("dev")?;
    let metric = fields.number("metric")?;
    let scope = fields.number::<u8>("scope")?;
    let flags = fields.value("flags").unwrap_or_default();
    let via = fields.address("gateway")?;
    Ok(Route {
        family,
        destination,
        via,
        dev: dev.filter(|_| kind != RouteKind::Unreachable),
        table: fields.table("table")?.unwrap_or(asked),
        metric: metric.filter(|metric| *metric != default_metric(family)),
        protocol: fields.number("protocol")?.filter(|protocol| *protocol != BOOT),
        other: !preferred
            || !is_usual_scope(scope, family, &kind, via)
            || has_lasting_flag(&flags)
            || fields.has_more_than(&[]),
        kind,
    })
}

fn default_metric(family: Family) -> u32 {
    match family {
        Family::V4 => 0,
        Family::V6 => IPV6_METRIC,
    }
}

/// Whether the scope is the one that `ip route` gives when none is asked for: link (253) for a route to
/// a device alone, global (0) for the others; IPv6 has none. It is printed only when it is not global,
/// or with `-d`.
fn is_usual_scope(
    scope: Option<u8>,
    family: Family,
    kind: &RouteKind,
    via: Option<IpAddr>,
) -> bool {
    let usual = match (family, kind, via) {
        (Family::V4, RouteKind::Unicast, None) => 253,
        (Family::V4 | Family::V6, _, _) => 0,
    };
    scope.unwrap_or(0) == usual
}

/// Whether there is a flag that someone wrote. These come and go with the device.
fn has_lasting_flag(flags: &Value) -> bool {
    let passing = ["dead", "linkdown", "offload", "trap", "rt_offload", "rt_trap"];
    let of_device = |flag: &Value| flag.as_str().is_some_and(|flag| passing.contains(&flag));
    flags.as_array().is_some_and(|flags| !flags.iter().all(of_device))
}

impl Route {
    /// The arguments after `ip` that make this route true in one step, whatever of the same destination,
    /// table and metric was there; `None` when it is not wholly modelled.
    #[must_use]
    pub fn replace_args(&self) -> Option<Vec<String>> {
        self.args("replace", self.metric)
    }

    /// The arguments after `ip` that delete this route; `None` when it is not wholly modelled. The kernel
    /// deletes the first route that has all of these, so [`Route::deletes`] tells which one that is.
    #[must_use]
    pub fn del_args(&self) -> Option<Vec<String>> {
        let metric = self.metric.unwrap_or_else(|| default_metric(self.family));
        self.args("del", Some(metric))
    }

    /// The route of a listing that the kernel would delete on [`Route::del_args`], if any. Anything but an
    /// equal route is a stranger's, and nothing is to be deleted.
    ///
    /// The kernel does not compare what the request does not name; in IPv4 it takes metric 0 for any
    /// metric (and tries lower metrics first), in IPv6 it does not compare the kind.
    #[must_use]
    pub fn deletes<'a>(&self, listing: &'a [Route]) -> Option<&'a Route> {
        let takes = |route: &&Route| {
            let kind = match self.family {
                Family::V4 => {
                    self.kind == route.kind
                        && self.metric.is_none_or(|_| self.metric == route.metric)
                }
                // An IPv6 route that refuses is on `lo`, and the request says so.
                Family::V6 if self.kind == RouteKind::Unreachable => {
                    self.metric == route.metric
                        && (route.kind == RouteKind::Unreachable
                            || route.dev.as_deref() == Some("lo"))
                }
                Family::V6 => self.metric == route.metric,
            };
            kind && self.family == route.family
                && self.table == route.table
                && self.destination == route.destination
                && (self.dev.is_none() || self.dev == route.dev)
                && (self.via.is_none() || self.via == route.via)
                && (self.protocol.is_none() || self.protocol == route.protocol)
        };
        listing.iter().filter(takes).min_by_key(|route| route.metric)
    }

    fn args(&self, verb: &str, metric: Option<u32>) -> Option<Vec<String>> {
        let deleting = verb == "del";
        let mut args: Vec<String> = [self.family.flag(), "route", verb].map(str::to_owned).into();
        match &self.kind {
            // `ip` means unicast by itself only when it adds.
            RouteKind::Unicast if deleting => args.push("unicast".to_owned()),
            RouteKind::Unicast => {}
            RouteKind::Unreachable => args.push("unreachable".to_owned()),
            RouteKind::Other(_) => return None,
        }
        if self.other {
            return None;
        }
        args.push(if self.destination.prefix_len() == 0 {
            "default".to_owned()
        } else {
            argument(self.destination)
        });
        let mut pair = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                args.extend([name.to_owned(), value]);
            }
        };
        pair("via", self.via.map(|via| via.to_string()));
        let refuses_in_6 = self.kind == RouteKind::Unreachable && self.family == Family::V6;
        let lo = (deleting && refuses_in_6).then(|| "lo".to_owned());
        pair("dev", self.dev.clone().or(lo));
        pair("table", Some(self.table.to_string()));
        pair("metric", metric.map(|metric| metric.to_string()));
        pair("protocol", self.protocol.map(|protocol| protocol.to_string()));
        Some(args)
    }
}

#[cfg(test)]
mod tests;
