//! What is wrong with a pool.
//!
//! **Invariant:** what the machine lacks for every policy is told by `machine`, not here.

use super::numbers::Claim;
use super::{Code, Finding, Needs, Probe, ProbeResult, forward, numbers, provider, resolver};
use crate::check::machine::Machine;
use crate::names::{Interface, PolicyName};
use crate::observation::{
    Asker, ListReading, Observation, PageReading, Pages, PagesReading, Realm, Way,
};
use crate::outcome::count;
use crate::policy::pool::SLOT_RULES;
use crate::policy::{ClientEntry, ClientKey, PoolPolicy};
use crate::pool::candidate::Rejected;
use crate::pool::state::{PoolState, Surroundings};
use crate::record::Record;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// WireGuard's own overhead over IPv4: 20 + 8 + 32 bytes. Over IPv6 it is 20 more.
const OVERHEAD: u32 = 60;

/// A cron line steps once a minute, so silence up to this is nobody's fault.
const PATIENCE: Duration = Duration::from_secs(300);

/// More of the same are counted, not told.
const MOST: usize = 20;

/// All that was collected of a pool.
pub struct PoolFacts<'a> {
    /// Its name.
    pub name: &'a PolicyName,
    /// Its file.
    pub path: &'a Path,
    /// The policy.
    pub policy: &'a PoolPolicy,
    /// The machine.
    pub machine: &'a Machine,
    /// What is remembered.
    pub record: &'a Record<PoolState>,
    /// What a step would remember.
    pub decided: Option<&'a PoolState>,
    /// What a step would see.
    pub seen: &'a Observation,
    /// Why the machine cannot serve it.
    pub unable: &'a [crate::machine::ReasonText],
    /// What could not be looked at.
    pub blind: Option<&'a str>,
    /// What is wrong with the state.
    pub damaged: Option<&'a str>,
    /// Why a step would refuse the state.
    pub foreign: Option<&'a str>,
    /// Whether a change is in flight.
    pub is_in_flight: bool,
    /// What is wrong with the state folder.
    pub folder: Option<String>,
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
    let mut needs = Needs {
        tools: ["ip", "nft", policy.wireguard.tool.program()].into(),
        helpful: ["conntrack"].into(),
        forwarding: !policy.client_prefixes().is_empty(),
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
    let mut found = state(facts);
    if let Some(why) = facts.blind {
        found.push(Finding::new(Code::NotSeen, why, "do what it says, and check again"));
    }
    if let Some(kernel) = facts.seen.kernel() {
        found.extend(numbers::taken(&kernel.strangers));
    }
    for reason in facts.unable.iter().filter(|reason| reason.code != "stranger") {
        found.push(Finding::new(
            Code::Unfit,
            reason.text.clone(),
            "correct the policy, or the machine, as it says",
        ));
    }
    let surroundings = facts.decided.and_then(|state| state.surroundings.as_ref()).or(facts
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
    }
    found.extend(endpoints(facts));
    found.extend(provider::files(&facts.files));
    found.extend(provider::keys(&facts.policy.provider, facts.policy.slots.interfaces.len()));
    found.extend(list(facts));
    found.extend(silence(facts));
    found
}

fn state(facts: &PoolFacts<'_>) -> Vec<Finding> {
    let name = facts.name;
    let mut found = Vec::new();
    if let Some(why) = &facts.folder {
        found.push(Finding::new(Code::StateFolder, why.clone(), "give it to root alone: chown root: and chmod 700, on a file system that can be written"));
    }
    if let Some(why) = facts.foreign {
        let mend = format!(
            "egressctl step --adopt {}, if the policy has moved; else rename one of them",
            facts.path.display()
        );
        found.push(Finding::new(Code::StateForeign, why, mend));
    }
    if let Some(why) = facts.damaged {
        found.push(Finding::new(Code::StateDamaged, why, format!("egressctl step {name}")));
    }
    if facts.is_in_flight {
        found.push(Finding::new(
            Code::JournalLeft,
            format!("a journal of {name} is there"),
            format!("egressctl step {name}, once no other run goes on"),
        ));
    }
    if let Some(paused) = &facts.record.paused {
        let since = paused.at.strftime("%Y-%m-%d %H:%M:%SZ");
        found.push(Finding::new(
            Code::Paused,
            format!("paused by a person since {since}"),
            format!("egressctl resume {name}"),
        ));
    } else if let Some(last) = &facts.record.last_step {
        let interval = Duration::from_secs(facts.policy.params.health_check_interval_sec.max(10));
        let silent = facts.machine.now.since(&last.at);
        if silent > (interval * 3).max(PATIENCE) {
            found.push(Finding::new(
                Code::NotStepped,
                format!("the last step of {name} was {} s ago", silent.as_secs()),
                "systemctl enable --now egressctl.timer; or a line of cron that runs egressctl step",
            ));
        }
    }
    found
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
    let own = facts.record.owned.realms.iter().copied();
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
    <crate::pool::Pool as crate::machine::Machine>::realm(policy)
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
            format!("egressctl step --now {}; and in /etc/sysctl.d let nothing set net.ipv4.conf.*.rp_filter to 1", facts.name),
        ));
    }
    let is_up = facts.record.machine.as_ref().is_some_and(|state| state.proven && !state.retired);
    if is_up && value(&surroundings.wan, "src_valid_mark") == Some("0") {
        found.push(Finding::new(
            Code::SrcValidMark,
            format!("net.ipv4.conf.{}.src_valid_mark is 0", surroundings.wan),
            format!("egressctl step --now {}", facts.name),
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

/// What the list lacks.
fn list(facts: &PoolFacts<'_>) -> Vec<Finding> {
    let slots = facts.policy.slots.interfaces.len();
    let known = facts.record.machine.as_ref().and_then(|state| state.pool.as_ref());
    let seen = facts.seen.lists().next().map(|(_, reading)| reading).or(facts.listed.as_ref());
    let mut found = Vec::new();
    let usable = match seen {
        Some(ListReading::Listed { candidates, rejected, .. }) => {
            let told = if facts.problems.is_empty() { rejected } else { &facts.problems };
            found.extend(unusable(told));
            let passed = known.map(|list| list.passed().len());
            Some(passed.map_or(candidates.len(), |passed| passed.min(candidates.len())))
        }
        Some(ListReading::Unavailable { why, .. }) => {
            found.extend(unusable(&facts.problems));
            found.push(Finding::new(
                Code::ProviderSilent,
                why.clone(),
                format!("when it is mended: egressctl refresh {}", facts.name),
            ));
            known.map(|list| list.passed().len())
        }
        Some(ListReading::Unchanged) | None => known.map(|list| list.passed().len()),
    };
    match usable {
        Some(usable) if usable < slots => found.push(Finding::new(
            Code::PoolSmall,
            format!("{} for {}", count(usable, "usable endpoint"), count(slots, "slot")),
            format!("let the provider list more, or name fewer slots.interfaces; then egressctl refresh {}", facts.name),
        )),
        Some(usable) if usable == slots => found.push(Finding::new(
            Code::NoReserve,
            format!("{} for {}", count(usable, "usable endpoint"), count(slots, "slot")),
            format!("let the provider list more; then egressctl refresh {}", facts.name),
        )),
        Some(_) | None => {}
    }
    found
}

fn unusable(rejected: &[Rejected]) -> Vec<Finding> {
    let mend = "correct the entry, or remove it from the list";
    let one = |entry: &Rejected| {
        Finding::new(Code::EntryUnusable, format!("entry {}: {}", entry.name, entry.why), mend)
    };
    let mut found: Vec<Finding> = rejected.iter().take(MOST).map(one).collect();
    if rejected.len() > MOST {
        let what = format!("{} more entries cannot be used", rejected.len() - MOST);
        found.push(Finding::new(Code::EntryUnusable, what, mend));
    }
    found
}

/// Probes that were not answered.
fn silence(facts: &PoolFacts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, answer) in facts.seen.names() {
        if let Err(why) = answer {
            found.push(Finding::new(
                Code::NameUnknown,
                format!("{name}: {why}"),
                format!(
                    "getent hosts {name}; mend /etc/resolv.conf, or correct the name in the policy"
                ),
            ));
        }
    }
    let wan = facts.seen.pages(&Asker::Wan);
    if let [.., (pages, reading)] = wan.as_slice()
        && !reading.passes(pages)
    {
        let others = probed(facts.policy, facts.seen).into_iter().any(|probe| {
            probe.probe != "wan" && probe.probe != "provider" && probe.result == ProbeResult::Passed
        });
        if !others {
            found.push(Finding::new(
                Code::WanSilent,
                format!("{}: {}", way(&pages.way), answers(pages, reading)),
                "mend the uplink; or, where it blocks these pages, name others in wan.urls",
            ));
        }
    }
    for probe in probed(facts.policy, facts.seen) {
        let is_slot = facts.policy.slots.interfaces.iter().any(|slot| slot.as_str() == probe.probe);
        if is_slot && probe.result == ProbeResult::Failed {
            found.push(Finding::new(
                Code::SlotSilent,
                format!("{}: {}", probe.probe, probe.text),
                format!("egressctl status {}; steps repair it", facts.name),
            ));
        }
    }
    found
}

/// What was probed.
#[must_use]
pub fn probes(facts: &PoolFacts<'_>) -> Vec<Probe> {
    let mut probes = probed(facts.policy, facts.seen);
    let list = facts.seen.lists().next().map(|(_, reading)| reading).or(facts.listed.as_ref());
    if let Some(list) = list {
        let (result, text) = match list {
            ListReading::Listed { candidates, rejected, .. } => {
                let left = if rejected.is_empty() {
                    String::new()
                } else {
                    format!(", {} left out", rejected.len())
                };
                let result =
                    if candidates.is_empty() { ProbeResult::Failed } else { ProbeResult::Passed };
                (result, format!("lists {}{left}", count(candidates.len(), "usable endpoint")))
            }
            ListReading::Unchanged => (ProbeResult::Passed, "its list has not changed".to_owned()),
            ListReading::Unavailable { why, .. } => (ProbeResult::Failed, why.clone()),
        };
        probes.push(Probe { probe: "provider".to_owned(), result, text });
    }
    probes
}

/// The uplink and each slot, as far as they were asked.
fn probed(policy: &PoolPolicy, seen: &Observation) -> Vec<Probe> {
    let wan = std::iter::once(("wan".to_owned(), Asker::Wan));
    let slots = policy.slots.interfaces.iter();
    let askers = wan.chain(slots.map(|slot| (slot.to_string(), Asker::Slot(slot.clone()))));
    askers
        .filter_map(|(probe, asker)| {
            let (pages, reading) = seen.pages(&asker).pop()?;
            let result = if reading.passes(pages) {
                ProbeResult::Passed
            } else if reading.pages.iter().flatten().all(cannot_be_asked) {
                ProbeResult::Unknown
            } else {
                ProbeResult::Failed
            };
            Some(Probe { probe, result, text: answers(pages, reading) })
        })
        .collect()
}

/// A way as a person knows it.
fn way(way: &Way) -> String {
    match way {
        Way::Main => "the main table".to_owned(),
        Way::Device { device, .. } => device.to_string(),
        Way::Proxy(_) => "the proxy".to_owned(),
    }
}

fn cannot_be_asked(page: &PageReading) -> bool {
    match page {
        PageReading::NoAddress | PageReading::NotBindable(_) | PageReading::NoProxy(_) => true,
        PageReading::Answer { .. } | PageReading::TimedOut | PageReading::Broken(_) => false,
    }
}

/// How the pages answered, in short.
fn answers(asked: &Pages, reading: &PagesReading) -> String {
    let one = |(page, seen): (&crate::observation::Page, &Option<PageReading>)| {
        let how = match seen.as_ref()? {
            PageReading::Answer { status, elapsed_ms, .. } => {
                format!("{status} in {elapsed_ms} ms")
            }
            PageReading::TimedOut => "no answer in time".to_owned(),
            PageReading::Broken(why) | PageReading::NoProxy(why) => why.clone(),
            PageReading::NoAddress => "no address is known".to_owned(),
            PageReading::NotBindable(why) => format!("not bound to the device: {why}"),
        };
        Some(format!("{}: {how}", page.url.host()))
    };
    asked.pages.iter().zip(&reading.pages).filter_map(one).collect::<Vec<_>>().join("; ")
}

/// Endpoints of interest: what slots hold, and the beginning of the list.
#[must_use]
pub fn endpoints_of(
    state: Option<&PoolState>,
    list: Option<&ListReading>,
) -> BTreeMap<IpAddr, String> {
    let slots = state
        .into_iter()
        .flat_map(|state| state.slots.values())
        .filter_map(|slot| slot.candidate());
    let listed = match list {
        Some(ListReading::Listed { candidates, .. }) => candidates.as_slice(),
        Some(ListReading::Unchanged | ListReading::Unavailable { .. }) | None => &[],
    };
    let mut found = BTreeMap::new();
    for candidate in slots.chain(listed.iter().take(MOST)) {
        let known = state.and_then(|state| state.names.get(&candidate.host)).cloned();
        let addresses =
            candidate.host.parse().map_or(known.unwrap_or_default(), |address| vec![address]);
        for address in addresses {
            found.insert(address, candidate.name.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests;
