//! The routing rules of a pool, by the numbers of the kernel layout.
//!
//! **Invariant:** every rule has an explicit priority of its own and carries the policy's protocol.

use crate::iproute::{Family, Rule, RuleAction};
use crate::names::{Mark, Table};
use crate::policy::pool::{
    CLOSING_RULES, Ipv6, LAN6_CLOSING_RULES, MARK_BASE, SLOT_RULES, SOURCE_RULES, STANDBY_RULE,
    STANDBY_SOURCE_RULE, USER_CLOSING_RULES, USER_RULES,
};
use crate::policy::{ClientKey, PoolPolicy};
use crate::pool::candidate::Candidate;
use crate::pool::families::slot_carries_six;
use crate::pool::state::{Egress, PoolState, Slot, Surroundings};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeSet;

/// `rule_priority +` this is Direct's rule.
const DIRECT_RULE: u32 = 2_046;
/// `rule_priority +` this is the rule of flows that the WAN opened.
const INBOUND_RULE: u32 = 2_047;
/// `rule_priority +` this is the first IPv6 closing rule of a LAN interface.
const LAN6_RULES: u32 = 1_024;

/// A rule of the policy's that everything meets.
fn rule_at(policy: &PoolPolicy, offset: u32, family: Family, action: RuleAction) -> Rule {
    Rule {
        priority: policy.routing.rule_priority.saturating_add(offset),
        family,
        from: None,
        to: None,
        not: false,
        fwmark: None,
        iif: None,
        oif: None,
        uid_range: None,
        action,
        suppress_prefixlength: None,
        protocol: Some(policy.routing.protocol),
        other: false,
    }
}

/// The rules of the standby tunnel: of the gateway's own requests through it, and of what the
/// kernel sends by itself from its address, which never leaves by the WAN in clear.
pub(super) fn of_standby(policy: &PoolPolicy, candidate: &Candidate) -> Vec<Rule> {
    let lookup = || RuleAction::Lookup(policy.standby_table());
    let marked = Rule {
        fwmark: Some((policy.standby_mark().0, u32::MAX)),
        ..rule_at(policy, STANDBY_RULE, Family::V4, lookup())
    };
    let from = candidate.addresses4().map(|address| Rule {
        from: Some(address),
        fwmark: Some((0, MARK_BASE)),
        ..rule_at(policy, STANDBY_SOURCE_RULE, Family::V4, lookup())
    });
    std::iter::once(marked).chain(from).collect()
}

/// All rules but the standby's, by the numbers of the kernel layout.
pub(super) fn all(
    policy: &PoolPolicy,
    state: &PoolState,
    surroundings: &Surroundings,
) -> BTreeSet<Rule> {
    let main = || RuleAction::Lookup(Table::MAIN);
    let rule = |offset: u32, index: u32, family, action| {
        rule_at(policy, offset.saturating_add(index), family, action)
    };
    let near = |index, net: IpNet| Rule {
        to: Some(net),
        // Not main's default, nor a /1 that stands for it.
        suppress_prefixlength: Some(1),
        ..rule(0, index, Family::of(net.addr()), main())
    };
    let marked = |offset, index, family, mark: Mark, action| Rule {
        fwmark: Some((mark.0, u32::MAX)),
        ..rule(offset, index, family, action)
    };
    let mut rules = BTreeSet::new();
    let families = super::families(policy);
    let clients = closing_prefixes(policy);
    let local: BTreeSet<Ipv4Net> =
        surroundings.local4.iter().chain(&policy.client_prefixes()).copied().collect();
    let local: Vec<Ipv4Net> = Ipv4Net::aggregate(&local.into_iter().collect::<Vec<_>>());
    for (index, net) in (0..).zip(&local) {
        rules.insert(near(index, IpNet::V4(*net)));
    }
    for family in families {
        for (index, _) in (0..).zip(&policy.slots.interfaces) {
            let action = RuleAction::Lookup(policy.table(index));
            rules.insert(marked(SLOT_RULES, index, *family, policy.mark(index), action));
        }
        rules.insert(marked(DIRECT_RULE, 0, *family, policy.direct_mark(), main()));
        rules.insert(marked(INBOUND_RULE, 0, *family, policy.inbound_mark(), main()));
    }
    // What the kernel sends by itself from a tunnel's address, a reset for late data, goes back into
    // a tunnel and not out by the WAN in clear, also when the nft table is gone.
    for (index, interface) in (0..).zip(&policy.slots.interfaces) {
        let candidate = state.slots.get(interface).and_then(Slot::candidate);
        for address in candidate.into_iter().flat_map(|candidate| &candidate.addresses) {
            let family = Family::of(address.addr());
            if family == Family::V4 || slot_carries_six(policy, state, interface) {
                rules.insert(Rule {
                    from: Some(*address),
                    fwmark: Some((0, MARK_BASE)),
                    ..rule(SOURCE_RULES, index, family, RuleAction::Lookup(policy.table(index)))
                });
            }
        }
    }
    for (index, user) in (0..).zip(policy.users()) {
        let Some(uid) = surroundings.users.get(user) else { continue };
        let key = ClientKey::User(user.to_owned());
        let table = match state.egress.get(&key) {
            Some(Egress::Slot(slot)) => policy.index_of(slot).map(|slot| policy.table(slot)),
            Some(Egress::Direct) => Some(Table::MAIN),
            Some(Egress::None) | None => None,
        };
        if let Some(table) = table {
            rules.extend(families.iter().map(|family| Rule {
                uid_range: Some((*uid, *uid)),
                ..rule(USER_RULES, index, *family, RuleAction::Lookup(table))
            }));
        }
        for family in [Family::V4, Family::V6] {
            rules.insert(Rule {
                uid_range: Some((*uid, *uid)),
                ..rule(USER_CLOSING_RULES, index, family, RuleAction::Unreachable)
            });
        }
    }
    for (index, net) in (0..).zip(&clients) {
        rules.insert(Rule {
            from: Some(IpNet::V4(*net)),
            ..rule(CLOSING_RULES, index, Family::V4, RuleAction::Unreachable)
        });
    }
    let closes_lan6 = match policy.routing.ipv6 {
        Ipv6::Block => LAN6_RULES,
        Ipv6::Tunnel => LAN6_CLOSING_RULES,
        Ipv6::Off => return rules,
    };
    let clients = policy.client_prefixes6();
    let local: BTreeSet<Ipv6Net> = surroundings.local6.iter().chain(&clients).copied().collect();
    for (index, net) in (0..).zip(&Ipv6Net::aggregate(&local.into_iter().collect::<Vec<_>>())) {
        rules.insert(near(index, IpNet::V6(*net)));
    }
    for (index, lan) in (0..).zip(&surroundings.lan) {
        rules.insert(Rule {
            iif: Some(lan.to_string()),
            ..rule(closes_lan6, index, Family::V6, RuleAction::Unreachable)
        });
    }
    for (index, net) in (0..).zip(&Ipv6Net::aggregate(&clients)) {
        rules.insert(Rule {
            from: Some(IpNet::V6(*net)),
            ..rule(CLOSING_RULES, index, Family::V6, RuleAction::Unreachable)
        });
    }
    rules
}

/// The clients' prefixes, aggregated: what is closed unless a mark opens it.
fn closing_prefixes(policy: &PoolPolicy) -> Vec<Ipv4Net> {
    let mut clients = Ipv4Net::aggregate(&policy.client_prefixes());
    clients.sort_unstable();
    clients
}
