//! A pool made from a folder of configurations and what the network looks like.
//!
//! **Invariant:** nobody becomes a client whose way back may be cut: not the gateway, not who is
//! logged in, not the router behind the uplink.

use super::{Draft, Here, free_names};
use crate::check::pool::around;
use crate::iproute::{Family, Link, RouteKind};
use crate::names::{Interface, Mark, PolicyName, Table};
use crate::outcome::count;
use crate::policy::pool::{MARK_BASE, PRIORITIES};
use crate::policy::{Policy, overlap};
use crate::wireguard::{Dialect, TunnelConfig};
use ipnet::{IpNet, Ipv4Net};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

/// As many slots as the example of a plan has; more files become the reserve.
const MOST_SLOTS: usize = 5;

/// With fewer usable files than this every one is a slot.
const WITH_RESERVE: usize = 3;

/// A prefix from this length on holds few enough addresses to be one client.
const FEW: u8 = 29;

/// So many sets of numbers are tried beside policies that are there.
const ATTEMPTS: u32 = 3;

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
enum Client {
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
struct WireGuard {
    tool: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    userspace: Option<&'static str>,
}

/// Makes the policy.
pub(super) fn draft(here: &Here) -> Result<Draft, String> {
    let mut guesses = Vec::new();
    let files = files(here, &mut guesses)?;
    let wan = wan(here, &mut guesses)?;
    let lan = lan(here, &wan, &mut guesses)?;
    let clients = clients(here, &lan, &mut guesses)?;
    let amount = match files.usable {
        n if n < WITH_RESERVE => n,
        n => (n - 1).min(MOST_SLOTS),
    };
    guesses.push(format!(
        "{}, with {} in reserve, for {}",
        count(amount, "slot"),
        files.usable - amount,
        count(files.usable, "usable configuration")
    ));
    let mut clash = None;
    for attempt in 0..ATTEMPTS {
        let numbers = Numbers::free(here, amount, attempt);
        let text = write(here, &files, &wan, &lan, &clients, &numbers)?;
        let policy = Policy::parse(&text).map_err(|fault| {
            format!("what was found makes no policy: {fault}: write one by hand")
        })?;
        let name = PolicyName::try_from("init".to_owned())?;
        let clashes = |(there, other): &&(PolicyName, Policy)| {
            overlap((&name, &policy), (there, other)).is_some()
        };
        let Some((there, other)) = here.policies.iter().find(clashes) else {
            guesses.extend(numbers.guesses);
            return Ok(Draft { text, guesses });
        };
        clash =
            overlap((&name, &policy), (there, other)).map(|what| format!("{there} claims {what}"));
    }
    Err(format!(
        "policy {}: what is left makes no other pool: add to that one",
        clash.unwrap_or_default()
    ))
}

/// The files, judged.
struct Files {
    usable: usize,
    exclude: Vec<String>,
    wireguard: Option<WireGuard>,
}

fn files(here: &Here, guesses: &mut Vec<String>) -> Result<Files, String> {
    let folder = here.configs.display();
    let what = "put the provider's wg-quick files into a folder, and name it with --configs";
    if let Some(why) = &here.no_files {
        return Err(format!("the folder {folder} cannot be read ({why}): {what}"));
    }
    if here.files.is_empty() {
        return Err(format!("the folder {folder} holds no *.conf: {what}"));
    }
    let mut exclude = Vec::new();
    let mut good: Vec<(&String, &TunnelConfig)> = Vec::new();
    for (name, file) in &here.files {
        if here.links.iter().any(|link| link.name == *name) {
            guesses.push(format!(
                "{name} is left out: an interface of that name is up, and one pair of keys must not be up twice"
            ));
            exclude.push(name.clone());
            continue;
        }
        match file {
            Ok(config) => good.push((name, config)),
            Err(why) => guesses.push(format!("{name} cannot be used: {why}")),
        }
    }
    let is_plain = |config: &TunnelConfig| match config.dialect {
        Dialect::Plain => true,
        Dialect::Amnezia(_) => false,
    };
    let plain = good.iter().filter(|(_, config)| is_plain(config)).count();
    // `awg` configures both; `wg` only one.
    let needs_awg = plain < good.len();
    let has_awg = !here.missing.iter().any(|tool| tool == "awg");
    if needs_awg && !has_awg {
        for (name, _) in good.iter().filter(|(_, config)| !is_plain(config)) {
            guesses.push(format!("{name} is left out: it is for AmneziaWG, and awg is missing"));
        }
        good.retain(|(_, config)| is_plain(config));
    }
    let mut pairs: BTreeMap<(String, String), &String> = BTreeMap::new();
    let mut own_keys = BTreeSet::new();
    for (name, config) in &good {
        let own = config.private_key.public().to_string();
        own_keys.insert(own.clone());
        match pairs.get(&(own.clone(), config.peer.public_key.to_string())) {
            Some(first) => guesses.push(format!(
                "{name} has the keys of {first}: both are one endpoint, and it counts once"
            )),
            None => drop(pairs.insert((own, config.peer.public_key.to_string()), *name)),
        }
    }
    if pairs.is_empty() {
        let whys =
            if guesses.is_empty() { String::new() } else { format!(" ({})", guesses.join("; ")) };
        return Err(format!("no file of {folder} can be used{whys}: {what}"));
    }
    if own_keys.len() == 1 && pairs.len() > 1 {
        guesses.push(
            "all configurations have one key of ours: see whether the provider's terms allow it on several servers at once"
                .to_owned(),
        );
    }
    let (tool, daemon) =
        if needs_awg && has_awg { ("awg", "amneziawg-go") } else { ("wg", "wireguard-go") };
    let userspace = (tool == "awg" || !here.has_kernel_wireguard).then_some(daemon);
    if let Some(daemon) = userspace {
        guesses.push(format!(
            "tunnels are made by {daemon}: the kernel shows no WireGuard for {tool}"
        ));
    }
    for program in [Some(tool), userspace, Some("ip"), Some("nft")].into_iter().flatten() {
        if here.missing.iter().any(|missing| missing == program) {
            guesses.push(format!("{program} is missing: install it before the first step"));
        }
    }
    let wireguard = (tool == "awg" || userspace.is_some()).then_some(WireGuard { tool, userspace });
    guesses.push(format!("the provider is the folder {folder}"));
    Ok(Files { usable: pairs.len(), exclude, wireguard })
}

fn wan(here: &Here, guesses: &mut Vec<String>) -> Result<Interface, String> {
    let default = here
        .routes
        .iter()
        .filter(|route| {
            route.table == Table::MAIN
                && route.family == Family::V4
                && route.kind == RouteKind::Unicast
                && route.destination.prefix_len() == 0
        })
        .filter(|route| {
            let device = route.dev.as_deref().unwrap_or_default();
            !here.links.iter().any(|link| link.name == device && is_tunnel(link))
        })
        .min_by_key(|route| route.metric.unwrap_or(0));
    let device = default
        .and_then(|route| route.dev.clone())
        .ok_or("no uplink was found: table main has no default route; connect the gateway first")?;
    guesses.push(format!("WAN is {device}, the device of main's default route"));
    Interface::try_from(device)
}

fn is_tunnel(link: &Link) -> bool {
    let kind = link.kind.as_deref().unwrap_or_default();
    ["wireguard", "amneziawg", "tun", "ppp"].contains(&kind)
}

/// Links that containers and virtual machines are behind.
fn is_of_guests(link: &Link) -> bool {
    ["docker", "br-", "virbr", "veth", "lxc", "lxdbr", "podman", "cni"]
        .iter()
        .any(|begin| link.name.starts_with(begin))
}

/// Prefixes of a link that clients may be in.
fn prefixes(link: &Link) -> Vec<Ipv4Net> {
    let of = |net: &IpNet| match net {
        IpNet::V4(net) if net.addr().is_private() && net.prefix_len() <= 30 => Some(*net),
        IpNet::V4(_) | IpNet::V6(_) => None,
    };
    link.addresses.iter().filter_map(|address| of(&address.local)).collect()
}

fn lan<'a>(
    here: &'a Here,
    wan: &Interface,
    guesses: &mut Vec<String>,
) -> Result<Vec<(&'a Link, Interface)>, String> {
    let mut lan = Vec::new();
    let mut guests = Vec::new();
    for link in &here.links {
        if link.name == wan.as_str() || link.name == "lo" || is_tunnel(link) || !link.up {
            continue;
        }
        if prefixes(link).is_empty() {
            continue;
        }
        if is_of_guests(link) {
            guests.push(link.name.as_str());
            continue;
        }
        if let Ok(name) = Interface::try_from(link.name.clone()) {
            lan.push((link, name));
        }
    }
    if !guests.is_empty() {
        guesses.push(format!(
            "{} left out of the LAN: containers or virtual machines are behind",
            guests.join(" ")
        ));
    }
    if lan.is_empty() {
        let link = here.links.iter().find(|link| link.name == wan.as_str());
        let one_armed = link.filter(|link| !prefixes(link).is_empty());
        let link = one_armed.ok_or(
            "no LAN was found: no interface but the uplink has a private address; give the LAN's interface its address first",
        )?;
        guesses.push(format!("LAN is {wan} too: no other interface has a private address"));
        return Ok(vec![(link, wan.clone())]);
    }
    let names: Vec<&str> = lan.iter().map(|(link, _)| link.name.as_str()).collect();
    guesses.push(format!("LAN is {}, which has a private address", names.join(" ")));
    Ok(lan)
}

fn clients(
    here: &Here,
    lan: &[(&Link, Interface)],
    guesses: &mut Vec<String>,
) -> Result<Vec<Client>, String> {
    let own: BTreeSet<IpAddr> =
        here.links.iter().flat_map(|link| &link.addresses).map(|a| a.local.addr()).collect();
    let routers: BTreeSet<IpAddr> = here.routes.iter().filter_map(|route| route.via).collect();
    let is_spared = |address: &IpAddr| {
        own.contains(address) || routers.contains(address) || here.login == Some(*address)
    };
    let nets: Vec<Ipv4Net> = lan.iter().flat_map(|(link, _)| prefixes(link)).collect();
    let is_here = |address: Ipv4Addr| nets.iter().any(|net| net.contains(&address));
    if let Some(IpAddr::V4(login)) = here.login
        && is_here(login)
    {
        guesses.push(format!(
            "{login} is left out of the clients: this login comes from there; add it when all works"
        ));
    }
    let seen: BTreeSet<Ipv4Addr> = here
        .neighbours
        .iter()
        .filter(|(address, device)| {
            lan.iter().any(|(link, _)| link.name == *device) && !is_spared(address)
        })
        .filter_map(|(address, _)| match address {
            IpAddr::V4(address) if is_here(*address) => Some(*address),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        })
        .collect();
    if !seen.is_empty() {
        guesses.push(format!(
            "clients are {} that the LAN shows now; who is asleep is not among them: add addresses, or a prefix",
            count(seen.len(), "neighbour")
        ));
        return Ok(seen.iter().map(|address| Client::One(address.to_string())).collect());
    }
    let mut clients = Vec::new();
    for net in &nets {
        let whole = IpNet::V4(net.trunc());
        let mut parts = vec![whole];
        for spared in own.iter().chain(&routers).chain(&here.login) {
            parts = parts
                .into_iter()
                .flat_map(
                    |part| if part.contains(spared) { around(part, *spared) } else { vec![part] },
                )
                .collect();
        }
        let ends = [IpAddr::V4(net.network()), IpAddr::V4(net.broadcast())];
        parts.retain(|part| part.prefix_len() < 32 || !ends.contains(&part.addr()));
        parts.sort();
        clients.extend(parts.iter().map(client));
        guesses.push(format!(
            "clients are all of {whole} but the gateway, spread over the slots: the LAN shows nobody now"
        ));
    }
    if clients.is_empty() {
        return Err("no client was found: the LAN's prefix has no other address".to_owned());
    }
    Ok(clients)
}

fn client(net: &IpNet) -> Client {
    match net.prefix_len() {
        32 => Client::One(net.addr().to_string()),
        FEW.. => Client::One(net.to_string()),
        _ => Client::Spread { prefix: net.to_string(), spread: true },
    }
}

/// Names and numbers that nobody has.
struct Numbers {
    interfaces: Vec<Interface>,
    tests: &'static str,
    first_table: u32,
    rule_priority: u32,
    protocol: u8,
    first_mark: Mark,
    guesses: Vec<String>,
}

impl Numbers {
    /// The usual ones, or others where these are taken. Each attempt gives wholly other ones.
    fn free(here: &Here, slots: usize, attempt: u32) -> Self {
        let claimed: BTreeSet<&str> = here
            .policies
            .iter()
            .flat_map(|(_, policy)| match policy {
                Policy::Pool(pool) => pool.slots.interfaces.as_slice(),
                Policy::Selector(_) => &[],
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
                crate::iproute::RuleAction::Lookup(table) => range.contains(&table.0),
                crate::iproute::RuleAction::Unreachable | crate::iproute::RuleAction::Other(_) => {
                    false
                }
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

fn write(
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

#[cfg(test)]
mod tests;
