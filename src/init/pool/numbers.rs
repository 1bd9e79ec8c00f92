//! Names and numbers for a new pool.
//!
//! **Invariant:** what the kernel shows and what other policies claim is not given out again.

use crate::init::{Here, free_names};
use crate::iproute::RuleAction;
use crate::names::{Interface, Mark};
use crate::policy::Policy;
use crate::policy::pool::{MARK_BASE, PRIORITIES};
use std::collections::BTreeSet;

/// Names and numbers that nobody has.
pub(super) struct Numbers {
    pub(super) interfaces: Vec<Interface>,
    pub(super) tests: &'static str,
    pub(super) first_table: u32,
    pub(super) rule_priority: u32,
    pub(super) protocol: u8,
    pub(super) first_mark: Mark,
    pub(super) guesses: Vec<String>,
}

impl Numbers {
    /// The usual ones, or others where these are taken. Each attempt gives wholly other ones.
    pub(super) fn free(here: &Here, slots: usize, attempt: u32) -> Self {
        let claimed: BTreeSet<&str> = here
            .policies
            .iter()
            .flat_map(|(_, policy)| match policy {
                Policy::Pool(pool) => pool.slots.interfaces.as_slice(),
                Policy::Selector(_) | Policy::Guard(_) | Policy::Dns(_) | Policy::Chain(_) => &[],
            })
            .map(Interface::as_str)
            .collect();
        let taken = |name: &Interface| {
            claimed.contains(name.as_str())
                || here.links.iter().any(|link| link.name == name.as_str())
        };
        let interfaces = free_names("vpn", slots, taken);
        let tests = match attempt {
            0 => "vpnt",
            1 => "vpnu",
            _ => "vpnv",
        };
        let length = u32::try_from(slots).unwrap_or(u32::MAX);
        let is_used = |table: &u32| {
            let range = *table..table.saturating_add(length);
            let looked = here.rules.iter().any(|rule| match rule.action {
                RuleAction::Lookup(table) => range.contains(&table.0),
                RuleAction::Unreachable | RuleAction::Other(_) => false,
            });
            looked || here.routes.iter().any(|route| range.contains(&route.table.0))
        };
        let offered = (0..100_u32).map(|n| 101 + (n + attempt) * 1_000);
        let first_table = offered.clone().find(|table| !is_used(table)).unwrap_or(101);
        let room = |first: &u32| {
            let range = *first..first.saturating_add(PRIORITIES);
            !here.rules.iter().any(|rule| range.contains(&rule.priority))
        };
        let mut bands = (0..6_u32)
            .map(|n| 20_000 - (n + attempt) % 5 * PRIORITIES + if n == 5 { PRIORITIES } else { 0 });
        let rule_priority = bands.find(room).unwrap_or(20_000);
        let has = |protocol: &u8| {
            here.rules.iter().any(|rule| rule.protocol == Some(*protocol))
                || here.routes.iter().any(|route| route.protocol == Some(*protocol))
        };
        let protocol = (201..=250).find(|protocol| !has(protocol)).unwrap_or(201);
        let selected = |mark: &Mark| {
            here.rules.iter().filter_map(|rule| rule.fwmark).any(|(value, mask)| {
                value & mask != 0
                    && mark.0 & mask & MARK_BASE == value & mask & MARK_BASE
                    && mask & MARK_BASE != 0
            }) || !crate::check::forward::marks(&here.ruleset, *mark).is_empty()
        };
        let mut marks = (0..100_u32).map(|n| Mark(0x4547_0000 + (n + attempt) * 0x1_0000));
        let first_mark = marks.find(|mark| !selected(mark)).unwrap_or(Mark(0x4547_0000));
        let mut guesses = Vec::new();
        if interfaces.first().is_some_and(|first| first.as_str() != "vpn1") || first_table != 101 {
            guesses.push(format!(
                "slots begin at {} and table {first_table}: what comes before is taken",
                interfaces.first().map_or("vpn1", Interface::as_str)
            ));
        }
        Self { interfaces, tests, first_table, rule_priority, protocol, first_mark, guesses }
    }
}
