//! What is wrong with a pool.
//!
//! **Invariant:** what the machine lacks for every policy is told by `machine`, not here.

mod list;

pub use list::endpoints_of;

use super::any::Stepped;
use super::numbers::Claim;
use super::{Code, Finding, Needs, Probe, any, forward, numbers, provider, resolver};
use crate::check::machine::Machine;
use crate::iproute::Family;
use crate::names::{Interface, PolicyName};
use crate::observation::{ListReading, Realm};
use crate::outcome::count;
use crate::policy::pool::SLOT_RULES;
use crate::policy::{ClientEntry, ClientKey, PoolPolicy};
use crate::pool::candidate::Rejected;
use crate::pool::state::{PoolState, Surroundings};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// WireGuard's own overhead over IPv4: 20 + 8 + 32 bytes. Over IPv6 it is 20 more.
const OVERHEAD: u32 = 60;

/// All that was collected of a pool.
pub struct PoolFacts<'a> {
    /// The policy as a step of it would find it.
    pub stepped: Stepped<'a, PoolState>,
    /// The policy.
    pub policy: &'a PoolPolicy,
    /// The machine.
    pub machine: &'a Machine,
    /// What a step would remember.
    pub decided: Option<&'a PoolState>,
    /// By which device each address of interest is reached.
    pub ways: BTreeMap<IpAddr, String>,
    /// Which of them are endpoints, with their names.
    pub endpoints: BTreeMap<IpAddr, String>,
    /// Files that the policy names.
    pub files: Vec<provider::File>,
    /// What the provider on this machine lists, where a step does not ask it now.
    pub listed: Option<ListReading>,
    /// Every problem of the provider's files, where they are a folder.
    pub problems: Vec<Rejected>,
    /// What other policies have recorded.
    pub recorded: Vec<Realm>,
}

/// What a pool needs of the machine.
#[must_use]
pub fn needs(name: &PolicyName, policy: &PoolPolicy) -> Needs {
    let clients = [
        (Family::V4, policy.client_prefixes().is_empty()),
        (Family::V6, policy.client_prefixes6().is_empty()),
    ];
    let forwarding = clients.into_iter().filter(|(_, none)| !none).map(|(family, _)| family);
    let mut needs = Needs {
        tools: ["ip", "nft", policy.wireguard.tool.program()].into(),
        helpful: ["conntrack"].into(),
        forwarding: forwarding.collect(),
        interfaces: tunnels(policy),
        barrier: policy.routing.barrier,
        interval: Some(Duration::from_secs(policy.params.health_check_interval_sec)),
        policies: vec![name.to_string()],
        ..Needs::default()
    };
    match policy.wireguard.userspace {
        None => drop(needs.link_types.insert(policy.wireguard.tool.link_type())),
        Some(daemon) => {
            needs.tools.insert(daemon.program());
            needs.tun = true;
        }
    }
    needs
}

fn tunnels(policy: &PoolPolicy) -> Vec<Interface> {
    let standby = policy.bootstrap.wireguard.iter().map(|standby| standby.interface.clone());
    let tests = policy.test.interfaces();
    policy.slots.interfaces.iter().cloned().chain(tests).chain(standby).collect()
}

/// What is wrong with it.
#[must_use]
pub fn findings(facts: &PoolFacts<'_>) -> Vec<Finding> {
    let mut found = any::findings(&facts.stepped);
    let surroundings = facts.decided.and_then(|state| state.surroundings.as_ref()).or(facts
        .stepped
        .record
        .machine
        .as_ref()
        .and_then(|state| state.surroundings.as_ref()));
    found.extend(clients(facts));
    if let Some(claim) = claim(facts, surroundings) {
        found.extend(numbers::findings(&claim, &facts.machine.rules, &facts.machine.routes));
    }
    found.extend(forward::marks(&facts.machine.ruleset, facts.policy.routing.first_mark));
    found.extend(forward::offload(&facts.machine.ruleset));
    if let Some(surroundings) = surroundings {
        found.extend(forward::drops(&facts.machine.ruleset, &ways(facts.policy, surroundings)));
        if let (Some(listing), Some(lan)) =
            (&facts.machine.legacy_forward, surroundings.lan.first())
        {
            found.extend(forward::legacy(listing, lan));
        }
        found.extend(settings(facts, surroundings));
        found.extend(resolvers(facts, surroundings));
        found.extend(mtu(facts, surroundings));
        found.extend(mss(facts, surroundings));
    }
    found.extend(endpoints(facts));
    found.extend(provider::files(&facts.files));
    found.extend(provider::keys(&facts.policy.provider, facts.policy.slots.interfaces.len()));
    found.extend(list::findings(facts));
    found
}

/// What was probed.
#[must_use]
pub fn probes(facts: &PoolFacts<'_>) -> Vec<Probe> {
    any::probes(facts.stepped.seen).into_iter().chain(list::probe(facts)).collect()
}

fn clients(facts: &PoolFacts<'_>) -> Vec<Finding> {
    let own: Vec<(&str, IpAddr)> = facts
        .machine
        .links
        .iter()
        .filter(|link| !facts.policy.slots.interfaces.iter().any(|slot| slot.as_str() == link.name))
        .flat_map(|link| link.addresses.iter().map(|a| (link.name.as_str(), a.local.addr())))
        .collect();
    let mut found = Vec::new();
    for entry in &facts.policy.clients {
        let net = match entry {
            ClientEntry::Prefix(net) => *net,
            ClientEntry::Spread(net) => IpNet::V4(*net),
            ClientEntry::User(_) => continue,
        };
        let shown = ClientKey::Prefix(net);
        if let Some((device, address)) = own.iter().find(|(_, address)| net.contains(address)) {
            found.push(Finding::new(
                Code::ClientOwnAddress,
                format!("client {shown} holds {address}, which is the gateway's own on {device}"),
                without(net, *address),
            ));
        }
        if let Some(login) = facts.machine.login.filter(|login| net.contains(login)) {
            found.push(Finding::new(
                Code::ClientIsLogin,
                format!("client {shown} holds {login}, where this login comes from"),
                format!(
                    "log in from elsewhere for the first step; or for that time {}",
                    without(net, login)
                ),
            ));
        }
    }
    found
}

/// How an entry is written so that it does not hold an address.
fn without(net: IpNet, address: IpAddr) -> String {
    if net.prefix_len() == net.max_prefix_len() {
        return format!("remove {address} from clients");
    }
    let rest = around(net, address);
    let shown: Vec<String> =
        rest.iter().map(|net| format!("\"{}\"", ClientKey::Prefix(*net))).collect();
    format!("write in its place {}", shown.join(", "))
}

/// The prefixes that a prefix without one address is made of, the smallest first.
#[must_use]
pub fn around(net: IpNet, address: IpAddr) -> Vec<IpNet> {
    let mut rest = Vec::new();
    let mut net = net;
    while net.prefix_len() < net.max_prefix_len() {
        let Ok(halves) = net.subnets(net.prefix_len() + 1) else { break };
        let (holds, other): (Vec<IpNet>, Vec<IpNet>) =
            halves.partition(|half| half.contains(&address));
        let (Some(holds), Some(other)) = (holds.first(), other.first()) else { break };
        rest.push(*other);
        net = *holds;
    }
    rest.reverse();
    rest
}

fn claim(facts: &PoolFacts<'_>, surroundings: Option<&Surroundings>) -> Option<Claim> {
    let policy = facts.policy;
    let own = facts.stepped.record.owned.realms.iter().copied();
    let named = policy.lan_interfaces.iter().flatten().cloned();
    let lan = surroundings.map_or_else(|| named.collect(), |s| s.lan.iter().cloned().collect());
    Some(Claim {
        realm: realm(policy)?,
        base: policy.routing.first_mark,
        recorded: own.chain(facts.recorded.iter().copied()).collect(),
        first_slot_rule: policy.routing.rule_priority.saturating_add(SLOT_RULES),
        clients: policy.client_prefixes().iter().map(|net| sample(*net).into()).collect(),
        lan,
    })
}

fn realm(policy: &PoolPolicy) -> Option<Realm> {
    <crate::pool::Pool as crate::machine::Machine>::realms(policy).into_iter().next()
}

/// An address that stands for a client entry: the first one that a host may have.
fn sample(net: ipnet::Ipv4Net) -> std::net::Ipv4Addr {
    net.hosts().next().unwrap_or(net.addr())
}

/// One way a LAN interface and slot that stands for all.
fn ways(policy: &PoolPolicy, surroundings: &Surroundings) -> Vec<forward::Way> {
    let client = policy.client_prefixes().first().map(|net| sample(*net));
    let slots = (0..).zip(&policy.slots.interfaces);
    let lan = surroundings.lan.first();
    client
        .into_iter()
        .flat_map(|client| {
            slots.clone().filter_map(move |(index, slot)| {
                let (lan, slot) = (lan?.clone(), slot.clone());
                Some(forward::Way { lan, client, slot, mark: policy.mark(index) })
            })
        })
        .collect()
}

/// Settings that somebody changed after a step had made them.
fn settings(facts: &PoolFacts<'_>, surroundings: &Surroundings) -> Vec<Finding> {
    let value = |interface: &Interface, key: &str| {
        let path = format!("net/ipv4/conf/{interface}/{key}");
        facts.machine.sysctls.get(&path).map(String::as_str)
    };
    let mut found = Vec::new();
    let strict: Vec<&Interface> = facts
        .policy
        .slots
        .interfaces
        .iter()
        .filter(|slot| value(slot, "rp_filter") == Some("1"))
        .collect();
    if let [first, ..] = strict.as_slice() {
        found.push(Finding::new(
            Code::RpFilter,
            format!("net.ipv4.conf.{first}.rp_filter is 1, and of {} of {}", strict.len(), count(facts.policy.slots.interfaces.len(), "slot")),
            format!("egressctl step --now {}; and in /etc/sysctl.d let nothing set net.ipv4.conf.*.rp_filter to 1", facts.stepped.name),
        ));
    }
    let is_up =
        facts.stepped.record.machine.as_ref().is_some_and(|state| state.proven && !state.retired);
    if is_up && value(&surroundings.wan, "src_valid_mark") == Some("0") {
        found.push(Finding::new(
            Code::SrcValidMark,
            format!("net.ipv4.conf.{}.src_valid_mark is 0", surroundings.wan),
            format!("egressctl step --now {}", facts.stepped.name),
        ));
    }
    found
}

fn resolvers(facts: &PoolFacts<'_>, surroundings: &Surroundings) -> Vec<Finding> {
    let is_lan =
        |link: &&crate::iproute::Link| surroundings.lan.iter().any(|lan| lan.as_str() == link.name);
    let links = facts.machine.links.iter().filter(is_lan);
    let lan = links.flat_map(|link| &link.addresses).map(|address| address.local.addr()).collect();
    let served = surroundings.users.values().copied().collect();
    resolver::findings(
        &facts.machine.resolvers,
        &facts.ways,
        &facts.policy.slots.interfaces,
        &facts.machine.sockets,
        &lan,
        &served,
        &facts.machine.users,
    )
}

/// Tunnels that are too large for the uplink.
fn mtu(facts: &PoolFacts<'_>, surroundings: &Surroundings) -> Vec<Finding> {
    let most = surroundings.wan_mtu.saturating_sub(OVERHEAD);
    let candidates = facts
        .decided
        .iter()
        .flat_map(|state| state.slots.values())
        .filter_map(|slot| slot.candidate());
    let large: Vec<&str> = candidates
        .filter(|candidate| candidate.mtu.is_some_and(|mtu| u32::from(mtu) > most))
        .map(|candidate| candidate.name.as_str())
        .collect();
    large
        .first()
        .map(|first| {
            Finding::new(
                Code::MtuLarge,
                format!(
                    "the file of {first} and {} more ask for an MTU above {most}, which is what {} (MTU {}) leaves for a tunnel",
                    large.len() - 1,
                    surroundings.wan,
                    surroundings.wan_mtu
                ),
                "remove the MTU line from the files: the uplink's is measured",
            )
        })
        .into_iter()
        .collect()
}

/// An uplink whose packets are smaller than the LAN's, and nobody who says so to clients that leave by
/// it. Through slots our own table does.
fn mss(facts: &PoolFacts<'_>, surroundings: &Surroundings) -> Option<Finding> {
    let machine = facts.machine;
    let leave_by_wan =
        facts.policy.params.direct_failopen_enabled && !facts.policy.client_prefixes().is_empty();
    // Rules of the older tables cannot all be seen here.
    if !leave_by_wan || machine.legacy_forward.is_some() || forward::clamps(&machine.ruleset) {
        return None;
    }
    let lan = machine.links.iter().find(|link| {
        surroundings.lan.iter().any(|lan| lan.as_str() == link.name)
            && link.mtu > surroundings.wan_mtu
    })?;
    let wan = &surroundings.wan;
    Some(Finding::new(
        Code::MssUnclamped,
        format!(
            "{wan} has MTU {}, {} has {}, and no rule sets the maximal segment of what is forwarded",
            surroundings.wan_mtu, lan.name, lan.mtu
        ),
        format!(
            "nft 'add table inet mss; add chain inet mss forward {{ type filter hook forward priority mangle; }}; add rule inet mss forward oifname {wan} tcp flags syn tcp option maxseg size set rt mtu'; and write it into the file that loads your tables"
        ),
    ))
}

fn endpoints(facts: &PoolFacts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (address, name) in &facts.endpoints {
        let Some(device) = facts.ways.get(address) else { continue };
        if facts.policy.slots.interfaces.iter().any(|slot| slot.as_str() == device) {
            found.push(Finding::new(
                Code::EndpointInSlot,
                format!("endpoint {name} at {address} is reached through {device}"),
                format!("ip route get {address}; remove the route or rule that it shows, so that main leads there"),
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests;
