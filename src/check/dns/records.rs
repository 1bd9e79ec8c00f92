//! What is wrong with the records themselves.
//!
//! **Invariant:** host names whose records cannot be read for one reason are told together.

use super::DnsFacts;
use crate::check::{Code, Finding};
use crate::dns::name::HostName;
use crate::dns::record::{RecordSet, Zone};
use crate::outcome::count;
use crate::policy::dns::Host;
use crate::setting::{Setting, Value};
use std::collections::BTreeMap;

/// What is wrong with them.
pub(super) fn findings(facts: &DnsFacts<'_>) -> Vec<Finding> {
    let Some(zone) = facts.policy.zone() else { return Vec::new() };
    let mut found = Vec::new();
    let mut unread: BTreeMap<&str, Vec<&HostName>> = BTreeMap::new();
    for (name, host) in &facts.policy.hosts {
        let setting = Setting::Records { zone: zone.clone(), host: name.clone() };
        match facts.stepped.seen.setting(&setting) {
            Some(Ok(Value::Records(records))) => found.extend(record(facts, name, host, records)),
            Some(Err(why)) => unread.entry(why).or_default().push(name),
            Some(Ok(Value::Member(_) | Value::Count(_))) | None => {}
        }
    }
    found.extend(unread.into_iter().filter_map(|(why, hosts)| {
        let (first, more) = hosts.split_first()?;
        let all = match more.len() {
            0 => first.to_string(),
            n => format!("{first} and {}", count(n, "host")),
        };
        Some(Finding::new(Code::RecordUnread, format!("{all}: {why}"), mend(&zone, first)))
    }));
    found
}

/// What makes a record readable.
fn mend(zone: &Zone, host: &HostName) -> String {
    match zone {
        Zone::Cloudflare { zone, token_file, .. } => format!(
            "let the token in {} have the permissions Zone DNS Edit and, where the zone is named, Zone Zone Read of {zone}; or correct driver.cloudflare.zone",
            token_file.display()
        ),
        Zone::Rfc2136 { server, port, .. } => format!(
            "kdig +tcp -p {port} @{server} {host} A; name the zone's primary server in driver.rfc2136"
        ),
    }
}

/// What is wrong with one.
fn record(
    facts: &DnsFacts<'_>,
    name: &HostName,
    host: &Host,
    records: &RecordSet,
) -> Option<Finding> {
    let addresses = records.addresses();
    let policy = facts.policy;
    if addresses.is_empty() {
        let native = policy.nodes.get(&host.native)?.address;
        return Some(Finding::new(
            Code::RecordMissing,
            format!("{name} has no record of type A"),
            format!("make one: {name}. {} IN A {native}", host.ttl),
        ));
    }
    if addresses.len() > host.records {
        return Some(Finding::new(
            Code::RecordSeveral,
            format!("{name} holds {records}, and records is {}", host.records),
            format!(
                "remove all but {} of them, or write \"records\": {} into hosts.\"{name}\"; then egressctl resume {} {name}",
                host.records,
                addresses.len(),
                facts.stepped.name
            ),
        ));
    }
    let known = policy.order(name, host);
    let is_known = |address| {
        known.iter().any(|node| policy.nodes.get(*node).is_some_and(|node| node.address == address))
    };
    if !addresses.iter().all(|address| is_known(*address)) {
        return Some(Finding::new(
            Code::RecordForeign,
            format!("{name} holds {records}, which is none of its nodes"),
            format!(
                "egressctl resume {} {name}, which replaces it; or correct nodes",
                facts.stepped.name
            ),
        ));
    }
    // A proxied record has no other, and nobody but the provider keeps its address.
    let is_long = |ttl: &u32| *ttl > host.ttl && !records.0.iter().any(|record| record.proxied);
    let ttl = records.ttl().filter(is_long)?;
    Some(Finding::new(
        Code::TtlLong,
        format!("the record of {name} has ttl {ttl}, and the policy wants {}", host.ttl),
        format!("set it to {} where the zone is kept; else the next move does", host.ttl),
    ))
}
