//! Whether two policies would claim the same things.
//!
//! **Invariant:** policies that do not overlap can be stepped side by side in any order.

use super::pool::{MARK_BASE, PRIORITIES, PoolPolicy};
use super::selector::{Channel, Driver, FLOW_MARKS, RouteDriver, SelectorPolicy};
use super::{ChainPolicy, ClientKey, Policy, chain};
use crate::names::{PolicyName, Table};
use crate::setting::Core;
use ipnet::IpNet;

/// What two policies both claim, in words, if they do.
#[must_use]
pub fn overlap(a: (&PolicyName, &Policy), b: (&PolicyName, &Policy)) -> Option<String> {
    let ((a_name, a), (b_name, b)) = (a, b);
    if a_name.nft_table() == b_name.nft_table() {
        return Some(format!("the nft table {}", a_name.nft_table()));
    }
    match (a, b) {
        (Policy::Pool(a), Policy::Pool(b)) => pools(a, b),
        (Policy::Selector(a), Policy::Selector(b)) => selectors(a, b),
        (Policy::Guard(a), Policy::Guard(b)) => {
            same_group((&a.core, a.group.as_deref()), (&b.core, b.group.as_deref()))
        }
        (Policy::Guard(guard), Policy::Selector(selector))
        | (Policy::Selector(selector), Policy::Guard(guard)) => match &selector.driver {
            Driver::Clash(clash) => same_group(
                (&guard.core, guard.group.as_deref()),
                (&clash.core, Some(clash.selector.as_str())),
            ),
            Driver::Route(_) => None,
        },
        (Policy::Pool(pool), Policy::Selector(selector))
        | (Policy::Selector(selector), Policy::Pool(pool)) => pool_and_selector(pool, selector),
        // The same name at two providers, one for the LAN and one for the world, is two records.
        (Policy::Dns(a), Policy::Dns(b)) => {
            let same = a.zone().zip(b.zone()).is_some_and(|(a, b)| a.is_where(&b));
            let both = a.hosts.keys().find(|host| same && b.hosts.contains_key(*host));
            both.map(|host| format!("the record of {host}"))
        }
        (Policy::Chain(a), Policy::Chain(b)) => {
            let same = |ours| groups(b).find_map(|theirs| same_group(ours, theirs));
            let tunnels = || lanes(a).zip(lanes(b)).and_then(|(a, b)| pools(a, b));
            groups(a).find_map(same).or_else(|| same_chain(a, b)).or_else(tunnels)
        }
        (Policy::Chain(chain), Policy::Pool(pool)) | (Policy::Pool(pool), Policy::Chain(chain)) => {
            lanes(chain).and_then(|lanes| pools(lanes, pool))
        }
        (Policy::Chain(chain), Policy::Guard(guard))
        | (Policy::Guard(guard), Policy::Chain(chain)) => {
            groups(chain).find_map(|ours| same_group(ours, (&guard.core, guard.group.as_deref())))
        }
        (Policy::Chain(chain), Policy::Selector(selector))
        | (Policy::Selector(selector), Policy::Chain(chain)) => match &selector.driver {
            Driver::Clash(clash) => groups(chain)
                .find_map(|ours| same_group(ours, (&clash.core, Some(clash.selector.as_str())))),
            Driver::Route(_) => lanes(chain).and_then(|lanes| pool_and_selector(lanes, selector)),
        },
        (Policy::Pool(_), Policy::Guard(_))
        | (Policy::Guard(_), Policy::Pool(_))
        | (
            Policy::Pool(_) | Policy::Selector(_) | Policy::Guard(_) | Policy::Chain(_),
            Policy::Dns(_),
        )
        | (
            Policy::Dns(_),
            Policy::Pool(_) | Policy::Selector(_) | Policy::Guard(_) | Policy::Chain(_),
        ) => None,
    }
}

/// The groups of a proxy core in which a chain selects.
fn groups(chain: &ChainPolicy) -> impl Iterator<Item = (&Core, Option<&str>)> {
    let core = match &chain.driver {
        chain::Driver::Clash(driver) => Some(&driver.core),
        chain::Driver::Gost(_) | chain::Driver::Wireguard(_) => None,
    };
    core.into_iter()
        .flat_map(|core| chain.hops.iter().map(move |hop| (core, Some(hop.group.as_str()))))
}

/// What a chain of tunnels claims of the kernel: the same as a pool.
fn lanes(chain: &ChainPolicy) -> Option<&PoolPolicy> {
    match &chain.driver {
        chain::Driver::Wireguard(driver) => Some(&driver.lanes),
        chain::Driver::Clash(_) | chain::Driver::Gost(_) => None,
    }
}

/// Two policies that order one hop of gost, or the services of one chain.
fn same_chain(a: &ChainPolicy, b: &ChainPolicy) -> Option<String> {
    let (chain::Driver::Gost(ours), chain::Driver::Gost(theirs)) = (&a.driver, &b.driver) else {
        return None;
    };
    if ours.gost.url != theirs.gost.url {
        return None;
    }
    if ours.chain == theirs.chain {
        return Some(format!("chain {} of {}", ours.chain, ours.gost));
    }
    let both = a.hops.iter().find(|hop| b.hops.iter().any(|other| other.group == hop.group));
    both.map(|hop| format!("hop {} of {}", hop.group, ours.gost))
}

/// Two policies that select in one group would take each other for a person.
/// A group that is found could be any of the core's.
fn same_group(a: (&Core, Option<&str>), b: (&Core, Option<&str>)) -> Option<String> {
    let ((core, a), (other, b)) = (a, b);
    if core.control != other.control {
        return None;
    }
    match (a, b) {
        (Some(a), Some(b)) => (a == b).then(|| format!("group {a} of {core}")),
        (Some(_) | None, None) | (None, Some(_)) => {
            Some(format!("a group of {core}: name group in both"))
        }
    }
}

fn selectors(a: &SelectorPolicy, b: &SelectorPolicy) -> Option<String> {
    match (&a.driver, &b.driver) {
        (Driver::Clash(a), Driver::Clash(b)) => {
            same_group((&a.core, Some(a.selector.as_str())), (&b.core, Some(b.selector.as_str())))
        }
        (Driver::Route(a), Driver::Route(b)) => routes(a, b),
        (Driver::Clash(_), Driver::Route(_)) | (Driver::Route(_), Driver::Clash(_)) => None,
    }
}

fn pool_and_selector(pool: &PoolPolicy, selector: &SelectorPolicy) -> Option<String> {
    let Driver::Route(route) = &selector.driver else { return None };
    let first = pool.slots.first_table;
    let pools = first..first.saturating_add(pool.tables());
    if let Some(table) = tables(route).into_iter().find(|table| pools.contains(&table.0)) {
        return Some(format!("routing table {table}"));
    }
    if marks(route).contains(&(pool.routing.first_mark.0 & MARK_BASE)) {
        return Some(format!("marks like {}", route.first_mark));
    }
    let first = pool.routing.rule_priority;
    let pools = (first, first.saturating_add(PRIORITIES));
    meet(pools, priorities(route)).then(|| format!("rule priorities from {}", route.rule_priority))
}

/// The upper halves of a route's marks.
fn marks(route: &RouteDriver) -> [u32; 2] {
    let last = route.first_mark.0.saturating_add(FLOW_MARKS - 1);
    [route.first_mark.0 & MARK_BASE, last & MARK_BASE]
}

fn priorities(route: &RouteDriver) -> (u32, u32) {
    (route.rule_priority, route.priority(Channel::Reserve).saturating_add(1))
}

fn tables(route: &RouteDriver) -> [Table; 3] {
    let [primary, reserve] = Channel::ALL.map(|channel| route.own_table(channel));
    [route.table, primary, reserve]
}

fn routes(a: &RouteDriver, b: &RouteDriver) -> Option<String> {
    let theirs = tables(b);
    if let Some(table) = tables(a).into_iter().find(|table| theirs.contains(table)) {
        return Some(format!("routing table {table}"));
    }
    if meet(priorities(a), priorities(b)) {
        return Some(format!("rule priorities from {}", a.rule_priority.max(b.rule_priority)));
    }
    let marks =
        |route: &RouteDriver| (route.first_mark.0, route.first_mark.0.saturating_add(FLOW_MARKS));
    meet(marks(a), marks(b)).then(|| format!("marks like {}", a.first_mark.max(b.first_mark)))
}

fn pools(a: &PoolPolicy, b: &PoolPolicy) -> Option<String> {
    let interfaces = |policy: &PoolPolicy| {
        let standby = policy.standby().cloned();
        let tests = policy.test.interfaces();
        policy.slots.interfaces.iter().cloned().chain(tests).chain(standby).collect::<Vec<_>>()
    };
    let theirs = interfaces(b);
    if let Some(both) = interfaces(a).into_iter().find(|name| theirs.contains(name)) {
        return Some(format!("interface {both}"));
    }
    let tables = |policy: &PoolPolicy| {
        let first = policy.slots.first_table;
        (first, first.saturating_add(policy.tables()))
    };
    if meet(tables(a), tables(b)) {
        return Some(format!("routing tables from {}", tables(a).0.max(tables(b).0)));
    }
    if a.routing.first_mark.0 & MARK_BASE == b.routing.first_mark.0 & MARK_BASE {
        return Some(format!("marks like {}", a.routing.first_mark));
    }
    let priorities = |policy: &PoolPolicy| {
        (policy.routing.rule_priority, policy.routing.rule_priority.saturating_add(PRIORITIES))
    };
    if meet(priorities(a), priorities(b)) {
        return Some(format!("rule priorities from {}", priorities(a).0.max(priorities(b).0)));
    }
    for ours in a.client_prefixes() {
        let meets = |theirs: &ipnet::Ipv4Net| ours.contains(theirs) || theirs.contains(&ours);
        if b.client_prefixes().iter().any(meets) {
            return Some(format!("client {}", ClientKey::Prefix(IpNet::V4(ours))));
        }
    }
    let users = b.users();
    a.users()
        .into_iter()
        .find(|user| users.contains(user))
        .map(|user| format!("client user:{user}"))
}

/// Whether two half-open ranges meet.
fn meet(a: (u32, u32), b: (u32, u32)) -> bool {
    a.0 < b.1 && b.0 < a.1
}
