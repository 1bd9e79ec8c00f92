//! A pool made from a folder of configurations and what the network looks like.
//!
//! **Invariant:** nobody becomes a client whose way back may be cut: not the gateway, not who is
//! logged in, not the router behind the uplink.

mod file;
mod numbers;

use super::{Draft, Here};
use crate::check::pool::around;
use crate::iproute::{Family, Link, RouteKind};
use crate::names::{Interface, PolicyName, Table};
use crate::outcome::count;
use crate::policy::{Policy, overlap};
use crate::wireguard::{Dialect, TunnelConfig};
use file::{Client, WireGuard, write};
use ipnet::{IpNet, Ipv4Net};
use numbers::Numbers;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// As many slots as the example of a plan has; more files become the reserve.
const MOST_SLOTS: usize = 5;

/// With fewer usable files than this every one is a slot.
const WITH_RESERVE: usize = 3;

/// A prefix from this length on holds few enough addresses to be one client.
const FEW: u8 = 29;

/// So many sets of numbers are tried beside policies that are there.
const ATTEMPTS: u32 = 3;

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

#[cfg(test)]
mod tests;
