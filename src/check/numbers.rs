//! Strangers' rules, routes and interfaces that have numbers and names of ours, or come first.
//!
//! **Invariant:** what carries the policy's protocol number within its ranges is its own, and so is
//! what another policy's state records; all else is a stranger's.

use super::{Code, Finding};
use crate::iproute::{Family, Route, RouteKind, Rule, RuleAction};
use crate::names::{Interface, Mark};
use crate::observation::Realm;
use crate::policy::pool::{MARK_BASE, TEST_MARK};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What a policy claims in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its rules and routes.
    pub realm: Realm,
    /// Its first mark.
    pub base: Mark,
    /// What was recorded when its rules and routes, and those of other policies, were made.
    pub recorded: Vec<Realm>,
    /// The first rule that leads clients into slots.
    pub first_slot_rule: u32,
    /// One address of each client entry.
    pub clients: Vec<IpAddr>,
    /// Where clients are.
    pub lan: Vec<Interface>,
}

/// Strangers' rules and routes that are in the way.
#[must_use]
pub fn findings(claim: &Claim, rules: &[Rule], routes: &[Route]) -> Vec<Finding> {
    let mut found = Vec::new();
    let strangers: Vec<&Rule> = rules.iter().filter(|rule| !is_ours(claim, rule)).collect();
    for rule in &strangers {
        found.extend(first(claim, rule, routes));
        found.extend(marked(claim, rule));
        let (from, to) = claim.realm.priorities;
        if (from..=to).contains(&rule.priority) {
            found.push(Finding::new(
                Code::PriorityUsed,
                format!("{} stands among our rules, {from} to {to}", shown(rule)),
                format!("{}; or write another routing.rule_priority", deleted(rule)),
            ));
        }
        if let RuleAction::Lookup(table) = rule.action
            && (claim.realm.tables.0..=claim.realm.tables.1).contains(&table.0)
        {
            found.push(Finding::new(
                Code::TableLooked,
                format!("{} looks into a slot's table", shown(rule)),
                format!("{}; or write another slots.first_table", deleted(rule)),
            ));
        }
    }
    let foreign_route = |route: &&Route| {
        let ours = std::iter::once(&claim.realm).chain(&claim.recorded);
        !ours.clone().any(|realm| realm.has_route(route.protocol, route.table.0))
    };
    // Routes that the kernel makes by itself (protocol 2) come and go with the device.
    let of_kernel = |route: &Route| route.protocol == Some(2);
    let (first, last) = claim.realm.tables;
    let mut tables = BTreeSet::new();
    let mut used = strangers
        .iter()
        .filter(|rule| rule.protocol == Some(claim.realm.protocol))
        .map(|rule| shown(rule))
        .collect::<Vec<_>>();
    for route in routes.iter().filter(foreign_route) {
        if (first..=last).contains(&route.table.0) && !of_kernel(route) {
            tables.insert(route.table);
        }
        if route.protocol == Some(claim.realm.protocol) {
            used.push(format!("route to {} in table {}", route.destination, route.table));
        }
    }
    for table in tables {
        found.push(Finding::new(
            Code::TableUsed,
            format!("table {table} of a slot has routes that are not ours"),
            format!("ip route show table {table}; remove them, or write another slots.first_table"),
        ));
    }
    if let [example, ..] = used.as_slice() {
        found.push(Finding::new(
            Code::ProtocolUsed,
            format!("protocol {} is used by others or left over: {example}", claim.realm.protocol),
            "remove it if nobody needs it, or write another routing.protocol",
        ));
    }
    found
}

fn is_ours(claim: &Claim, rule: &Rule) -> bool {
    let ours = std::iter::once(&claim.realm).chain(&claim.recorded);
    ours.clone().any(|realm| realm.has_rule(rule.protocol, rule.priority))
}

/// A rule that is asked before ours and leads what a client sends elsewhere.
fn first(claim: &Claim, rule: &Rule, routes: &[Route]) -> Option<Finding> {
    if rule.family != Family::V4 || rule.priority >= claim.first_slot_rule || rule.other {
        return None;
    }
    let leads = match &rule.action {
        RuleAction::Unreachable => true,
        // The kernel's own table of local addresses leads nobody away.
        RuleAction::Lookup(table) if table.0 == 255 => false,
        RuleAction::Lookup(table) => routes.iter().any(|route| {
            let longer = |most| route.destination.prefix_len() > most;
            route.table == *table
                && route.family == Family::V4
                && matches!(route.kind, RouteKind::Unicast | RouteKind::Unreachable)
                // A half of everything is as good as everything.
                && route.destination.prefix_len() <= 1
                && rule.suppress_prefixlength.is_none_or(longer)
        }),
        RuleAction::Other(words) => ["6", "8", "blackhole", "prohibit"].contains(&words.as_str()),
    };
    let client = claim.clients.iter().find(|client| takes(claim, rule, **client))?;
    leads.then(|| {
        let mend = if rule.not && rule.fwmark.is_some() {
            // What wg-quick writes for a tunnel that takes everything.
            format!(
                "wg-quick down the tunnel that made it, or set Table = off in its file; or {}",
                deleted(rule)
            )
        } else {
            deleted(rule)
        };
        Finding::new(
            Code::RuleFirst,
            format!(
                "{} takes what {client} sends before our rules at {}",
                shown(rule),
                claim.first_slot_rule
            ),
            mend,
        )
    })
}

/// Whether a rule takes what a client sends far away with a mark of ours.
fn takes(claim: &Claim, rule: &Rule, client: IpAddr) -> bool {
    let marks = rule.fwmark.is_none_or(|(value, mask)| claim.base.0 & mask == value & mask);
    let from = rule.from.is_none_or(|net| net.contains(&client));
    let to = rule.to.is_none_or(|net| net.prefix_len() <= 1);
    let iif = rule.iif.as_ref().is_none_or(|iif| claim.lan.iter().any(|lan| lan.as_str() == iif));
    // What is forwarded belongs to no socket.
    let all = marks && from && to && iif && rule.oif.is_none() && rule.uid_range.is_none();
    all != rule.not
}

/// A rule that selects marks of ours.
fn marked(claim: &Claim, rule: &Rule) -> Option<Finding> {
    let (value, mask) = rule.fwmark?;
    if mask == 0 || rule.not || value & mask == 0 {
        return None;
    }
    let base = claim.base.0 & MARK_BASE;
    let meets = (0..=TEST_MARK).any(|more| (base | more) & mask == value & mask);
    meets.then(|| {
        Finding::new(
            Code::MarkUsed,
            format!("{} selects marks like {}", shown(rule), claim.base),
            "write another routing.first_mark into the policy, such as \"0x45480000\"",
        )
    })
}

/// Interfaces with names of ours that were not made by us.
#[must_use]
pub fn taken(interfaces: &BTreeSet<Interface>) -> Vec<Finding> {
    interfaces
        .iter()
        .map(|name| {
            Finding::new(
                Code::InterfaceTaken,
                format!("interface {name} is there and was not made for this policy"),
                format!("ip link delete dev {name}, if nobody needs it; or write another name into the policy"),
            )
        })
        .collect()
}

/// A rule as a person knows it.
fn shown(rule: &Rule) -> String {
    let six = if rule.family == Family::V6 { " of IPv6" } else { "" };
    let mut words = format!("rule {}{six}", rule.priority);
    let mut word = |text: String| {
        words.push(' ');
        words.push_str(&text);
    };
    if rule.not {
        word("not".to_owned());
    }
    let net = |net: &IpNet| net.to_string();
    word(format!("from {}", rule.from.as_ref().map_or("all".to_owned(), net)));
    if let Some(to) = &rule.to {
        word(format!("to {to}"));
    }
    if let Some((value, mask)) = rule.fwmark {
        word(format!("fwmark {value:#x}/{mask:#x}"));
    }
    if let Some(iif) = &rule.iif {
        word(format!("iif {iif}"));
    }
    match &rule.action {
        RuleAction::Lookup(table) => word(format!("lookup {table}")),
        RuleAction::Unreachable => word("unreachable".to_owned()),
        RuleAction::Other(_) => {}
    }
    words
}

/// The command that removes it.
fn deleted(rule: &Rule) -> String {
    match rule.del_args() {
        Some(args) => format!("ip {}", args.join(" ")),
        None => format!("ip {} rule del priority {}", rule.family.flag(), rule.priority),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iproute::{parse_routes, parse_rules, split_batch};
    use crate::names::Table;

    /// Rules and routes as `ip -N -j -d -batch` prints them.
    fn listed(rules: &str, routes: &str) -> (Vec<Rule>, Vec<Route>) {
        let text = format!("{rules}\n{routes}\n").replace("\n ", " ");
        let listings = split_batch(&text, 2).unwrap();
        (
            parse_rules(&listings[0], Family::V4).unwrap(),
            parse_routes(&listings[1], Table::MAIN).unwrap(),
        )
    }

    fn claim() -> Claim {
        Claim {
            realm: Realm { protocol: 201, priorities: (20_000, 24_095), tables: (101, 105) },
            base: Mark(0x4547_0000),
            recorded: Vec::new(),
            first_slot_rule: 21_024,
            clients: vec![IpAddr::from([10, 77, 0, 11])],
            lan: vec![Interface::try_from("eth1".to_owned()).unwrap()],
        }
    }

    fn codes(rules: &str, routes: &str) -> Vec<&'static str> {
        let (rules, routes) = listed(rules, routes);
        findings(&claim(), &rules, &routes).iter().map(|found| found.code.as_str()).collect()
    }

    const KERNEL: &str =
        r#"{"priority":0,"src":"all","table":"255"},{"priority":32766,"src":"all","table":"254"}"#;
    const MAIN: &str = r#"{"dst":"default","gateway":"203.0.113.1","dev":"eth0","flags":[]}"#;

    #[test]
    fn the_kernels_own_rules_and_ours_are_in_nobodys_way() {
        let ours = r#"{"priority":21024,"src":"all","fwmark":"0x45470000","table":"101","protocol":"201"}"#;
        let route = r#"{"dst":"default","dev":"vpn1","table":"101","protocol":"201","scope":"253","flags":[]}"#;
        assert_eq!(codes(&format!("[{KERNEL},{ours}]"), &format!("[{MAIN},{route}]")), [""; 0]);
    }

    #[test]
    fn a_rule_before_ours_counts_when_its_table_leads_away() {
        let rule = |more: &str| format!(r#"[{KERNEL},{{"priority":100,{more}}}]"#);
        let away = format!(
            r#"[{MAIN},{{"dst":"0.0.0.0/1","dev":"eth0","table":"7","scope":"253","flags":[]}}]"#
        );
        let of_lan = r#""src":"10.77.0.0","srclen":24,"table":"7""#;
        assert_eq!(codes(&rule(of_lan), &away), ["rule-first"]);
        assert_eq!(codes(&rule(of_lan), &format!("[{MAIN}]")), [""; 0], "the table is empty");
        let quick = r#""not":null,"src":"all","fwmark":"0xca6c","table":"7""#;
        assert_eq!(codes(&rule(quick), &away), ["rule-first"]);
        for harmless in [
            r#""src":"10.99.0.0","srclen":24,"table":"7""#,
            r#""src":"all","iif":"eth9","table":"7""#,
            r#""src":"all","fwmark":"0x1","table":"7""#,
            r#""src":"all","dst":"10.0.0.0","dstlen":8,"table":"7""#,
            r#""src":"all","table":"254","suppress_prefixlen":0"#,
        ] {
            assert_eq!(codes(&rule(harmless), &away), [""; 0], "{harmless}");
        }
    }

    #[test]
    fn numbers_of_ours_with_strangers_are_told_one_by_one() {
        for (rules, routes, code) in [
            (
                r#"{"priority":20500,"src":"10.99.0.0","srclen":24,"table":"7"}"#,
                "",
                "priority-used",
            ),
            (
                r#"{"priority":32000,"src":"10.99.0.0","srclen":24,"table":"103"}"#,
                "",
                "table-looked-up",
            ),
            (
                r#"{"priority":32000,"src":"all","fwmark":"0x45470002","table":"7"}"#,
                "",
                "mark-used",
            ),
            (
                r#"{"priority":32000,"src":"10.99.0.0","srclen":24,"table":"7","protocol":"201"}"#,
                "",
                "protocol-used",
            ),
            (
                "",
                r#"{"dst":"192.0.2.0/24","dev":"eth0","table":"102","scope":"253","flags":[]}"#,
                "table-used",
            ),
            (
                "",
                r#"{"dst":"192.0.2.0/24","dev":"eth0","table":"77","protocol":"201","scope":"253","flags":[]}"#,
                "protocol-used",
            ),
        ] {
            let rules =
                if rules.is_empty() { KERNEL.to_owned() } else { format!("{KERNEL},{rules}") };
            let routes =
                if routes.is_empty() { MAIN.to_owned() } else { format!("{MAIN},{routes}") };
            assert_eq!(codes(&format!("[{rules}]"), &format!("[{routes}]")), [code]);
        }
    }

    #[test]
    fn what_another_policy_recorded_is_no_strangers() {
        let (rules, routes) = listed(
            &format!(
                r#"[{KERNEL},{{"priority":9500,"src":"all","fwmark":"0x51230000","table":"901","protocol":"201"}}]"#
            ),
            &format!("[{MAIN}]"),
        );
        let other = Realm { protocol: 201, priorities: (9_000, 13_095), tables: (901, 905) };
        let claim = Claim { recorded: vec![other], ..claim() };
        assert_eq!(findings(&claim, &rules, &routes), []);
    }
}
