//! Which way a packet would take: `ip -N -j route get …`.
//!
//! **Invariant:** an answer is the kernel's, of the routing rules alone: it does not know nft.

use super::batch::ListingError;
use super::raw::objects;
use super::route::{RouteKind, kind};
use crate::names::Table;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::IpAddr;

/// The way that the kernel names. An unreachable destination has none: `ip` fails with rc 2.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RouteGet {
    /// The destination that was asked for.
    pub destination: IpAddr,
    /// What happens to the packet. `local` is `Other("2")`.
    pub kind: RouteKind,
    /// The device that it leaves by.
    pub dev: Option<String>,
    /// The next machine on the way.
    pub via: Option<IpAddr>,
    /// The table whose route was taken.
    pub table: Table,
    /// The source that the kernel would choose.
    pub source: Option<IpAddr>,
}

/// Reads the answer to one question.
pub fn parse_route_get(stdout: &str) -> Result<RouteGet, ListingError> {
    let listing: Value = serde_json::from_str(stdout)
        .map_err(|error| ListingError::new(format!("the answer of route get: {error}")))?;
    let mut answers = objects("way", &listing)?;
    let (Some(mut fields), None) = (answers.pop(), answers.pop()) else {
        return Err(ListingError::new("the answer of route get is not one way"));
    };
    Ok(RouteGet {
        destination: fields.address("dst")?.ok_or_else(|| fields.wrong("destination"))?,
        kind: kind(&mut fields)?,
        dev: fields.text("dev")?,
        via: fields.address("gateway")?,
        // `ip` leaves main out.
        table: fields.table("table")?.unwrap_or(Table::MAIN),
        source: fields.address("prefsrc")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_mark_leads_into_its_table() {
        let text = include_str!("../../tests/fixtures/iproute/route-get-mark.txt");
        let way = parse_route_get(text).unwrap();
        assert_eq!((way.dev.as_deref(), way.table), (Some("vpn1"), Table(101)));
        assert_eq!((way.kind, way.via), (RouteKind::Unicast, None));
        assert_eq!(way.source, Some(ip("10.9.0.2")));
        let forwarded = include_str!("../../tests/fixtures/iproute/route-get-iif.txt");
        let way = parse_route_get(forwarded).unwrap();
        assert_eq!((way.dev.as_deref(), way.table), (Some("vpn1"), Table(101)));
        assert_eq!(way.destination, ip("198.51.100.1"));
    }

    #[test]
    fn main_is_the_table_that_is_not_named() {
        let text = include_str!("../../tests/fixtures/iproute/route-get-main.txt");
        let way = parse_route_get(text).unwrap();
        assert_eq!((way.dev.as_deref(), way.table), (Some("eth1"), Table::MAIN));
        assert_eq!(way.via, Some(ip("10.77.0.254")));
        let six = include_str!("../../tests/fixtures/iproute/route-get-6.txt");
        let way = parse_route_get(six).unwrap();
        assert_eq!((way.via, way.source), (Some(ip("fd77::ff")), Some(ip("fd77::1"))));
    }

    #[test]
    fn the_machine_itself_is_no_way_out() {
        let text = include_str!("../../tests/fixtures/iproute/route-get-local.txt");
        let way = parse_route_get(text).unwrap();
        assert_eq!((way.kind, way.table), (RouteKind::Other("2".to_owned()), Table(255)));
    }

    #[test]
    fn no_answer_is_an_error() {
        let refused = include_str!("../../tests/fixtures/iproute/route-get-blackhole.txt");
        for text in [refused, "[", "[]", "{}", "[{}]", "[1]", r#"[{"dst":"x"}]"#] {
            assert!(parse_route_get(text).is_err(), "{text}");
        }
    }
}
