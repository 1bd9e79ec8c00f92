//! What policies show to the world: documents for any web server, made of what each policy publishes.
//!
//! Host names and nodes of kind `dns` go by their own names. What other kinds show goes by the policy's
//! name: `POLICY` itself, and below it `POLICY/SLOT`, `POLICY/CHANNEL`, `POLICY/MEMBER`, `POLICY/HOP` and
//! `POLICY/HOP/NODE`.
//!
//! A kind gives a `Published` of its status; `documents` puts those of all policies together, and
//! `host::publish` writes them.
//!
//! **Invariant:** a document holds no time of its own making, so that while nothing happens its bytes
//! stay the same.

use crate::day::Day;
use crate::names::PolicyName;
use crate::outcome::harmless;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Which host name is reached through what, and by what clients leave.
pub const FAILOVER: &str = "failover.json";
/// How each node, slot, channel and member is, and how much of the last 24 hours it passed its checks.
pub const UPTIME: &str = "uptime.json";

/// What one policy publishes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published {
    /// By host name, or by the name of the policy, `POLICY/HOP` in a chain.
    pub failover: BTreeMap<String, Failover>,
    /// By node, or by slot, channel, member or node of a hop, below the policy's name.
    pub uptime: BTreeMap<String, Uptime>,
}

/// Where a host name, or what goes through a policy or a hop, leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failover {
    /// Its address, the native's where it holds that; `null`: not known.
    pub address: Option<Ipv4Addr>,
    /// All its addresses.
    pub addresses: Vec<Ipv4Addr>,
    /// What people call the places that it leads to.
    pub label: String,
    /// Whether that is not where it belongs.
    pub temporary: bool,
    /// Where the machine stands; `null`: its record was never read.
    pub state: Option<String>,
    /// Why it stands there, such as `temporarily through FRA`; empty: all is as wished.
    pub why: String,
    /// Since when.
    pub since: Option<Timestamp>,
}

/// How a node did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Uptime {
    /// What its 24 hours are kept under, as in the rows of the page.
    #[serde(skip)]
    pub part: String,
    /// What people call its place.
    pub label: String,
    /// Its address, where the policy names one.
    pub address: Option<Ipv4Addr>,
    /// `healthy`, `failed` or `unknown`.
    pub health: &'static str,
    /// Passed checks of the last 24 hours, in percent, two decimals; `null`: none was counted.
    pub uptime_percent: Option<f64>,
    /// Since when it is up or down.
    pub since: Option<Timestamp>,
}

/// An entry of a document, and whose it is.
#[derive(Serialize)]
struct Entry<'a, T> {
    policy: &'a PolicyName,
    #[serde(flatten)]
    entry: &'a T,
}

/// The documents by their file names, of all policies.
///
/// # Errors
/// When a value is none that JSON knows.
pub fn documents(
    all: &BTreeMap<PolicyName, Published>,
) -> serde_json::Result<Vec<(&'static str, String)>> {
    Ok(vec![
        (FAILOVER, document(all, |published| &published.failover)?),
        (UPTIME, document(all, |published| &published.uptime)?),
    ])
}

/// One document. Where two policies have an entry of the same name, as zones inside and outside of a
/// network may, the first policy's has the name and each other one's is called `NAME@POLICY`.
fn document<T: Serialize>(
    all: &BTreeMap<PolicyName, Published>,
    of: impl Fn(&Published) -> &BTreeMap<String, T>,
) -> serde_json::Result<String> {
    let mut entries: BTreeMap<String, Entry<'_, T>> = BTreeMap::new();
    for (policy, published) in all {
        for (name, entry) in of(published) {
            let is_taken = entries.contains_key(name);
            let name = if is_taken { format!("{name}@{policy}") } else { name.clone() };
            entries.insert(name, Entry { policy, entry });
        }
    }
    Ok(serde_json::to_string_pretty(&entries)? + "\n")
}

impl Published {
    /// The same with the percentages of a policy's day, where the kind keeps no count of its own.
    #[must_use]
    pub fn with(mut self, day: &Day, now: Timestamp) -> Self {
        for entry in self.uptime.values_mut() {
            entry.uptime_percent = entry.uptime_percent.or_else(|| day.percent(&entry.part, now));
        }
        self
    }
}

impl Failover {
    /// The same without control characters, which texts from elsewhere may hold.
    #[must_use]
    pub fn harmless(self) -> Self {
        Self { label: harmless(&self.label), why: harmless(&self.why), ..self }
    }
}

impl Uptime {
    /// The same without control characters, which texts from elsewhere may hold.
    #[must_use]
    pub fn harmless(self) -> Self {
        Self { label: harmless(&self.label), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(why: &str) -> Published {
        let failover = Failover {
            address: Some(Ipv4Addr::new(198, 51, 100, 2)),
            addresses: vec![Ipv4Addr::new(198, 51, 100, 2)],
            label: "FRA".to_owned(),
            temporary: true,
            state: Some("FALLBACK".to_owned()),
            why: why.to_owned(),
            since: Some("2026-11-30T12:01:00Z".parse().unwrap()),
        };
        let uptime = Uptime {
            part: "node de".to_owned(),
            label: "FRA".to_owned(),
            address: Some(Ipv4Addr::new(198, 51, 100, 2)),
            health: "healthy",
            uptime_percent: Some(99.93),
            since: None,
        };
        Published {
            failover: [("fi.example.org".to_owned(), failover.harmless())].into(),
            uptime: [("de".to_owned(), uptime)].into(),
        }
    }

    fn name(text: &str) -> PolicyName {
        PolicyName::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn names_and_forms_are_stable() {
        let all = [(name("names"), published("temporarily through FRA: \u{1b}[2J"))].into();
        let documents = documents(&all).unwrap();
        let [(failover, text), (uptime, other)] = documents.as_slice() else { panic!() };
        assert_eq!((*failover, *uptime), ("failover.json", "uptime.json"));
        assert_eq!(
            text,
            "{\n  \"fi.example.org\": {\n    \"policy\": \"names\",\n    \"address\": \"198.51.100.2\",\n    \
             \"addresses\": [\n      \"198.51.100.2\"\n    ],\n    \"label\": \"FRA\",\n    \"temporary\": true,\n    \
             \"state\": \"FALLBACK\",\n    \"why\": \"temporarily through FRA: \u{fffd}[2J\",\n    \
             \"since\": \"2026-11-30T12:01:00Z\"\n  }\n}\n"
        );
        assert_eq!(
            other,
            "{\n  \"de\": {\n    \"policy\": \"names\",\n    \"label\": \"FRA\",\n    \
             \"address\": \"198.51.100.2\",\n    \"health\": \"healthy\",\n    \
             \"uptime_percent\": 99.93,\n    \"since\": null\n  }\n}\n"
        );
    }

    #[test]
    fn policies_without_anything_to_show_give_empty_documents() {
        let all = [(name("home"), Published::default())].into();
        let texts: Vec<String> =
            documents(&all).unwrap().into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["{}\n", "{}\n"]);
    }

    #[test]
    fn a_name_that_two_policies_keep_is_in_the_document_twice() {
        let all = [(name("inside"), published("a")), (name("outside"), published("b"))].into();
        let document: serde_json::Value =
            serde_json::from_str(&documents(&all).unwrap()[0].1).unwrap();
        assert_eq!(document["fi.example.org"]["policy"], "inside");
        assert_eq!(document["fi.example.org@outside"]["why"], "b");
        assert_eq!(document.as_object().unwrap().len(), 2);
    }
}
