//! The small pieces of an nft text, and the placement read back from one.
//!
//! **Invariant:** an interface's name is always quoted, since it may be a keyword of nft.

use crate::names::{Interface, Mark};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

pub(super) fn element(net: impl Into<IpNet>) -> String {
    let net = net.into();
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
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

/// Whether a table holds any client, by what `nft list table` prints or by a rendered text.
#[must_use]
pub fn holds_clients(text: &str) -> bool {
    ["set clients {", "set clients6 {"].into_iter().any(|head| {
        let body = text.split_once(head).map_or("", |(_, after)| after);
        let elements = body.find("elements = {");
        // A set without elements ends before the next one begins.
        elements.is_some_and(|at| !body.get(..at).unwrap_or_default().contains('}'))
    })
}

/// Reads the placement back, from what `nft list table` prints or from a rendered text: each element
/// of `client_mark` and `client_mark6`.
#[must_use]
pub fn placement_in(text: &str) -> BTreeMap<IpNet, Mark> {
    let mut placement = BTreeMap::new();
    for head in ["map client_mark {", "map client_mark6 {"] {
        let Some((_, after)) = text.split_once(head) else { continue };
        // What stands next is the set of clients, in both.
        let body = after.split_once("set clients").map_or(after, |(body, _)| body);
        let Some((_, elements)) = body.split_once("elements = {") else { continue };
        let elements = elements.split_once('}').map_or(elements, |(elements, _)| elements);
        placement.extend(elements.split(',').filter_map(|element| {
            let (net, mark) = element.trim().split_once(" : ")?;
            let net =
                net.parse::<IpNet>().or_else(|_| net.parse::<IpAddr>().map(IpNet::from)).ok()?;
            Some((net, Mark::try_from(mark.trim().to_owned()).ok()?))
        }));
    }
    placement
}
