//! The small pieces of an nft text, and the placement read back from one.
//!
//! **Invariant:** an interface's name is always quoted, since it may be a keyword of nft.

use crate::names::{Interface, Mark};
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

pub(super) fn element(net: Ipv4Net) -> String {
    if net.prefix_len() == 32 { net.addr().to_string() } else { net.to_string() }
}

/// A named set or map; nft refuses an empty `elements`.
pub(super) fn named(
    out: &mut String,
    head: &str,
    kind: &str,
    elements: impl Iterator<Item = String>,
) {
    let elements: Vec<String> = elements.collect();
    let _ = if elements.is_empty() {
        writeln!(out, "  {head} {{ {kind} }}")
    } else {
        writeln!(out, "  {head} {{ {kind} elements = {{ {} }}; }}", elements.join(", "))
    };
}

/// One quoted name, or an anonymous set of several.
pub(super) fn names<'a>(interfaces: impl Iterator<Item = &'a Interface>) -> String {
    let all: Vec<String> = interfaces.map(|name| format!("\"{name}\"")).collect();
    match all.as_slice() {
        [one] => one.clone(),
        several => format!("{{ {} }}", several.join(", ")),
    }
}

pub(super) fn names_with<'a>(first: &str, rest: impl Iterator<Item = &'a Interface>) -> String {
    let all: Vec<String> =
        std::iter::once(format!("\"{first}\"")).chain(rest.map(|n| format!("\"{n}\""))).collect();
    format!("{{ {} }}", all.join(", "))
}

/// Whether a barrier's text lets anybody out by the WAN.
#[must_use]
pub fn is_open(text: &str) -> bool {
    text.contains("set way { type mark . ifname; elements = {")
}

/// Reads the placement back, from what `nft list table` prints or from a rendered text: each element
/// of `client_mark`.
#[must_use]
pub fn placement_in(text: &str) -> BTreeMap<Ipv4Net, Mark> {
    let Some((_, after)) = text.split_once("map client_mark {") else {
        return BTreeMap::new();
    };
    // What stands next is the set of clients, in both.
    let body = after.split_once("set clients").map_or(after, |(body, _)| body);
    let Some((_, elements)) = body.split_once("elements = {") else {
        return BTreeMap::new();
    };
    let elements = elements.split_once('}').map_or(elements, |(elements, _)| elements);
    elements
        .split(',')
        .filter_map(|element| {
            let (net, mark) = element.trim().split_once(" : ")?;
            let net = net
                .parse::<Ipv4Net>()
                .or_else(|_| net.parse::<Ipv4Addr>().map(Ipv4Net::from))
                .ok()?;
            Some((net, Mark::try_from(mark.trim().to_owned()).ok()?))
        })
        .collect()
}
