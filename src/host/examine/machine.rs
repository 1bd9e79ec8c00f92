//! The machine: programs, kernel, rules, resolvers, and what runs beside us.
//!
//! **Invariant:** every program is only asked what it is or what there is.

use super::{proc, services, text};
use crate::check::machine::Machine;
use crate::check::orphans::Left;
use crate::check::resolver::{parse_servers, parse_sockets};
use crate::check::ruleset::{self, Ruleset};
use crate::host::exec::{self, Call};
use crate::host::files::read_bounded;
use crate::host::{clock, environment, rights, side_by_side};
use crate::iproute::{
    Family, Link, Route, Rule, parse_links, parse_routes, parse_rules, split_batch,
};
use crate::machine::Owned;
use crate::names::{PolicyName, Table};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Programs answer in milliseconds.
const DEADLINE: Duration = Duration::from_secs(5);

/// The programs, and how each says its version.
const TOOLS: [(&str, &str); 9] = [
    ("ip", "-V"),
    ("nft", "--version"),
    ("wg", "--version"),
    ("awg", "--version"),
    ("wireguard-go", "--version"),
    ("amneziawg-go", "--version"),
    ("conntrack", "--version"),
    ("knsupdate", "-V"),
    ("nsupdate", "-V"),
];

/// The most that is read of a state, as of the store.
const MAX_STATE: usize = 32 * 1024 * 1024;

/// Collects. `policies` are those whose own timers are looked at.
///
/// # Errors
/// When a clock cannot be read.
pub fn machine(policies: &[PolicyName], left: &States) -> anyhow::Result<Machine> {
    let links = links();
    let (rules, routes) = ways();
    let mut sysctls = BTreeMap::new();
    let conf = |name: &str, key: &str| format!("net/ipv4/conf/{name}/{key}");
    let keys = links.iter().flat_map(|link| {
        ["rp_filter", "src_valid_mark"].into_iter().map(|key| conf(&link.name, key))
    });
    let forwarding = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"].map(str::to_owned);
    for key in keys.chain(forwarding) {
        let value = proc(&format!("/proc/sys/{key}"));
        if !value.is_empty() {
            sysctls.insert(key, value.trim().to_owned());
        }
    }
    let mut resolvers = parse_servers(&text("/etc/resolv.conf"));
    if resolvers.iter().all(std::net::IpAddr::is_loopback) {
        // A stub on this machine asks these.
        resolvers = parse_servers(&text("/run/systemd/resolve/resolv.conf"));
    }
    let sockets = ["/proc/self/net/udp", "/proc/self/net/udp6"];
    Ok(Machine {
        tools: tools(),
        rights: rights::missing(),
        link_types: BTreeMap::from([
            ("wireguard", Some(has_link_type("wireguard", &links))),
            ("amneziawg", Some(has_link_type("amneziawg", &links))),
        ]),
        tun: Path::new("/dev/net/tun").exists(),
        rules,
        routes,
        ruleset: nft_rules(),
        legacy_forward: legacy_forward(),
        sysctls,
        services: services::services(policies),
        resolvers,
        sockets: sockets.iter().flat_map(|path| parse_sockets(&proc(path))).collect(),
        users: users(),
        login: environment::login(),
        now: clock::now()?,
        last_saved: left.last_saved,
        links,
    })
}

/// The first line that a program says of itself.
fn tools() -> BTreeMap<&'static str, Result<String, String>> {
    let asked = side_by_side(&TOOLS, |(program, flag)| {
        let output = exec::run_unchecked(&Call::new(program, &[flag], DEADLINE));
        let said = output.map(|output| {
            let out = String::from_utf8_lossy(&output.stdout).into_owned();
            let whole = if out.trim().is_empty() { output.stderr } else { out };
            whole.lines().next().unwrap_or_default().to_owned()
        });
        said.map_err(|why| why.to_string())
    });
    TOOLS.iter().map(|(program, _)| *program).zip(asked).collect()
}

/// The programs that are missing.
pub(super) fn missing() -> Vec<String> {
    let gone = tools().into_iter().filter(|(_, said)| said.is_err());
    gone.map(|(tool, _)| tool.to_owned()).collect()
}

fn batch(arguments: &[&str], lines: &str) -> Vec<Value> {
    let call = Call::new("ip", arguments, DEADLINE).with_stdin(lines.as_bytes().to_vec());
    let Ok(output) = exec::run(&call) else { return Vec::new() };
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    split_batch(&printed, lines.lines().count()).unwrap_or_default()
}

pub(super) fn links() -> Vec<Link> {
    let listed = batch(&["-N", "-j", "-d", "-batch", "-"], "addr show\n");
    listed.first().and_then(|listing| parse_links(listing).ok()).unwrap_or_default()
}

pub(super) fn ways() -> (Vec<Rule>, Vec<Route>) {
    let four = batch(&["-N", "-j", "-d", "-batch", "-"], "rule show\nroute show table all\n");
    let six = batch(&["-N", "-j", "-d", "-6", "-batch", "-"], "rule show\n");
    let of = |listing: Option<&Value>, family| {
        listing.and_then(|listing| parse_rules(listing, family).ok()).unwrap_or_default()
    };
    let mut rules = of(four.first(), Family::V4);
    rules.extend(of(six.first(), Family::V6));
    let routes = four.get(1).and_then(|listing| parse_routes(listing, Table::MAIN).ok());
    (rules, routes.unwrap_or_default())
}

pub(super) fn nft_rules() -> Ruleset {
    // Without the elements of named sets, which may be ten thousand.
    let call = Call::new("nft", &["-j", "-t", "list", "ruleset"], DEADLINE);
    let listed = exec::run(&call).ok();
    let listing = listed.and_then(|output| serde_json::from_slice::<Value>(&output.stdout).ok());
    listing.as_ref().map(ruleset::parse).unwrap_or_default()
}

/// The forward chain of the kernel's older tables. Asking them would load them, so they are asked
/// only where they are in use.
fn legacy_forward() -> Option<String> {
    let in_use = proc("/proc/self/net/ip_tables_names");
    if !in_use.lines().any(|name| name == "filter") {
        return None;
    }
    let output = exec::run(&Call::new("iptables-legacy", &["-S", "FORWARD"], DEADLINE)).ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether the kernel has a link type: as a module in use, as one that can be loaded, or built in.
pub(super) fn has_link_type(name: &str, links: &[Link]) -> bool {
    if links.iter().any(|link| link.kind.as_deref() == Some(name))
        || Path::new("/sys/module").join(name).exists()
    {
        return true;
    }
    let release = proc("/proc/sys/kernel/osrelease");
    let file = format!("/{name}.ko");
    let lists = |list: &str| {
        text(&format!("/lib/modules/{}/{list}", release.trim()))
            .lines()
            .any(|line| line.contains(&file))
    };
    if lists("modules.dep") || lists("modules.builtin") {
        return true;
    }
    // What is built in without a list of it shows by the names of its functions.
    name == "wireguard" && proc("/proc/kallsyms").contains(" wg_newlink")
}

/// Names of users, of this machine's own list.
fn users() -> BTreeMap<u32, String> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((fields.nth(1)?.parse().ok()?, name))
    };
    let mut users = BTreeMap::new();
    for (number, name) in text("/etc/passwd").lines().filter_map(entry) {
        // The first entry of a number is the one that the system shows.
        users.entry(number).or_insert(name);
    }
    users
}

/// What lies in the state folder.
#[derive(Clone, Debug, Default)]
pub struct States {
    /// What each policy has made.
    pub left: Vec<Left>,
    /// When a state was last written.
    pub last_saved: Option<Timestamp>,
}

/// Reads all states below the state folder, of whatever kind.
#[must_use]
pub fn states(state_dir: &Path) -> States {
    #[derive(Deserialize)]
    struct Envelope {
        policy: PolicyName,
        path: PathBuf,
        saved_at: Timestamp,
        body: Body,
    }
    #[derive(Deserialize)]
    struct Body {
        owned: Owned,
    }
    let mut states = States::default();
    let folders = std::fs::read_dir(state_dir).into_iter().flatten().flatten();
    for folder in folders {
        let file = folder.path().join("state.json");
        let Ok(bytes) = read_bounded(&file, MAX_STATE) else { continue };
        let Ok(Envelope { policy, path, saved_at, body }) = serde_json::from_slice(&bytes) else {
            continue;
        };
        states.last_saved = states.last_saved.max(Some(saved_at));
        let has_policy = path.exists();
        states.left.push(Left { policy, path, has_policy, owned: body.owned });
    }
    states.left.sort_by(|a, b| a.policy.cmp(&b.policy));
    states
}
