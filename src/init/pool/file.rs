//! The file of a new pool, as text.
//!
//! **Invariant:** the keys stand in the order in which a person reads them, and defaults are left out.

use super::Files;
use super::numbers::Numbers;
use crate::init::Here;
use crate::iproute::Link;
use crate::names::{Interface, Mark};
use serde::Serialize;
use std::path::Path;

/// The policy's file, its keys in the order that a person reads.
#[derive(Serialize)]
struct File<'a> {
    kind: &'static str,
    description: String,
    slots: Slots<'a>,
    clients: &'a [Client],
    lan_interfaces: Vec<&'a Interface>,
    wan_interface: &'a Interface,
    provider: Provider<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidates: Option<Wanted<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<Test<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    routing: Option<Routing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wireguard: Option<WireGuard>,
}

#[derive(Serialize)]
struct Slots<'a> {
    interfaces: &'a [Interface],
    first_table: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Client {
    One(String),
    Spread { prefix: String, spread: bool },
}

#[derive(Serialize)]
struct Provider<'a> {
    directory: Directory<'a>,
}

#[derive(Serialize)]
struct Directory<'a> {
    path: &'a Path,
}

#[derive(Serialize)]
struct Wanted<'a> {
    exclude: &'a [String],
}

#[derive(Serialize)]
struct Test<'a> {
    interface_prefix: &'a str,
}

#[derive(Serialize)]
struct Routing {
    rule_priority: u32,
    protocol: u8,
    first_mark: Mark,
}

#[derive(Serialize)]
pub(super) struct WireGuard {
    pub(super) tool: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) userspace: Option<&'static str>,
}

/// Writes the policy.
pub(super) fn write(
    here: &Here,
    files: &Files,
    wan: &Interface,
    lan: &[(&Link, Interface)],
    clients: &[Client],
    numbers: &Numbers,
) -> Result<String, String> {
    let usual = crate::policy::pool::Routing::default();
    let is_usual = numbers.rule_priority == usual.rule_priority
        && numbers.protocol == usual.protocol
        && numbers.first_mark == usual.first_mark;
    let file = File {
        kind: "pool",
        description: "Made by egressctl init; read it before the first step.".to_owned(),
        slots: Slots { interfaces: &numbers.interfaces, first_table: numbers.first_table },
        clients,
        lan_interfaces: lan.iter().map(|(_, name)| name).collect(),
        wan_interface: wan,
        provider: Provider { directory: Directory { path: &here.configs } },
        candidates: (!files.exclude.is_empty()).then_some(Wanted { exclude: &files.exclude }),
        test: (numbers.tests != "vpnt").then_some(Test { interface_prefix: numbers.tests }),
        routing: (!is_usual).then_some(Routing {
            rule_priority: numbers.rule_priority,
            protocol: numbers.protocol,
            first_mark: numbers.first_mark,
        }),
        wireguard: files
            .wireguard
            .as_ref()
            .map(|w| WireGuard { tool: w.tool, userspace: w.userspace }),
    };
    serde_json::to_string_pretty(&file)
        .map_err(|why| format!("the policy cannot be written: {why}"))
}
