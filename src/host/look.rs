//! Looks at the kernel, as far as it concerns one policy.
//!
//! **Invariant:** a tunnel counts as dead only when its tool said so of that tunnel; a tool that is
//! missing, refused or unreadable is an error, because it would else look like the end of them all.

use super::exec::{self, Call, CommandError, Output};
use super::users;
use crate::iproute::{
    Family, parse_links, parse_route_get, parse_routes, parse_rules, split_batch,
};
use crate::kernel::read::{self, Printed};
use crate::names::{Interface, Table};
use crate::observation::{KernelReading, KernelScope};
use crate::wireguard::dump::{DumpedTunnel, parse_all_dump};
use anyhow::{Context as _, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// What takes milliseconds when it works.
const DEADLINE: Duration = Duration::from_secs(5);

/// For all tunnels: 100 take 0.1 s.
const ALL_DEADLINE: Duration = Duration::from_secs(3);

/// For one tunnel when the listing of all of them hung: a healthy daemon answers in 2 ms.
const ONE_DEADLINE: Duration = Duration::from_secs(2);

/// Looks.
///
/// # Errors
/// When a program is missing, refused, hangs or prints what is not understood.
pub fn kernel(scope: &KernelScope) -> anyhow::Result<KernelReading> {
    let mut printed = Printed {
        sysctls: sysctls(&scope.sysctls)?,
        users: users::numbers(&scope.users)?,
        ..Printed::default()
    };
    // These two run beside the others: 13 ms instead of 19 on two busy cores.
    let (six, nft) = (ask_six(), ask_nft(&scope.nft_table));
    let (six_runs, nft_runs) = (exec::start(&six)?, exec::start(&nft)?);
    // The tunnels come first: the questions about bound requests are put for those alone.
    printed.tunnels = tunnels(scope)?;
    let listed = four(scope, &printed.tunnels)?;
    let six = rules_of_six(&six, &exec::checked(&six, six_runs.finish()?)?)?;
    printed.nft = table(&nft, &nft_runs.finish()?)?;
    let [links, rules, defaults, routes @ ..] = listed.listings.as_slice() else {
        bail!("the batch of ip printed too few listings");
    };
    let (routes, watched) = routes.split_at(protocols(scope).len().min(routes.len()));
    printed.links = parse_links(links).context("reading ip addr show")?;
    printed.rules = parse_rules(rules, Family::V4).context("reading ip rule show")?;
    printed.rules.extend(parse_rules(&six, Family::V6).context("reading ip -6 rule show")?);
    for (routes, protocol) in routes.iter().zip(protocols(scope)) {
        let mut routes =
            parse_routes(routes, Table::MAIN).context("reading ip route show table all")?;
        for route in &mut routes {
            // `ip` leaves out what it was asked to select by.
            route.protocol.get_or_insert(protocol);
        }
        printed.routes.extend(routes);
    }
    for (routes, table) in watched.iter().zip(&scope.watched) {
        printed.watched.extend(parse_routes(routes, *table).context("reading ip route show")?);
    }
    printed.defaults = parse_routes(defaults, Table::MAIN).context("reading ip route show")?;
    printed.bindable = listed.bindable;
    Ok(read::reading(scope, printed))
}

/// `wg show all dump`, where there may be a tunnel of ours: a machine without any need not have `wg`.
fn tunnels(scope: &KernelScope) -> anyhow::Result<BTreeMap<Interface, DumpedTunnel>> {
    if scope.interfaces.is_empty() {
        return Ok(BTreeMap::new());
    }
    let call = Call::new(&scope.tool, &["show", "all", "dump"], ALL_DEADLINE);
    let text = match exec::run_unchecked(&call) {
        Ok(output) => {
            accepted(&call, &output)?;
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        // One daemon that hangs keeps the listing of all from ending.
        Err(CommandError::TimedOut { .. }) => one_by_one(scope)?,
        Err(error) => return Err(error.into()),
    };
    parse_all_dump(&text)
        .or_else(|_| {
            // A stranger's interface may be of a kind that is not known here; ours are.
            let ours = |line: &&str| {
                let name = line.split('\t').next().unwrap_or_default();
                scope.interfaces.iter().any(|ours| ours.as_str() == name)
            };
            let lines: String = text.split_inclusive('\n').filter(ours).collect();
            parse_all_dump(&lines)
        })
        .with_context(|| format!("reading {}", call.argv()))
}

/// Refuses what is neither whole nor short of single interfaces only. A socket without a daemon
/// makes the tool complain about that interface, print all others, and end with rc 1.
fn accepted(call: &Call, output: &Output) -> anyhow::Result<()> {
    let refused = ["Operation not permitted", "Permission denied"];
    if refused.iter().any(|words| output.stderr.contains(words)) {
        bail!("{}: {}: run as root", call.argv(), output.stderr);
    }
    if output.code != 0 && !output.stderr.contains("Unable to access interface") {
        bail!("{}: exit code {}: {}", call.argv(), output.code, output.stderr);
    }
    Ok(())
}

/// The dump of each of our tunnels that answers, with its name in front as in the dump of all.
fn one_by_one(scope: &KernelScope) -> anyhow::Result<String> {
    let mut text = String::new();
    for interface in &scope.owned {
        let call = Call::new(&scope.tool, &["show", interface.as_str(), "dump"], ONE_DEADLINE);
        match exec::run_unchecked(&call) {
            Ok(output) if output.code == 0 => {
                for line in String::from_utf8_lossy(&output.stdout).lines() {
                    text.extend([interface.as_str(), "\t", line, "\n"]);
                }
            }
            Ok(output) => accepted(&call, &output)?,
            // This is the one that hangs.
            Err(CommandError::TimedOut { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(text)
}

/// The protocol numbers of our routes, each once.
fn protocols(scope: &KernelScope) -> BTreeSet<u8> {
    scope.realms.iter().map(|realm| realm.protocol).collect()
}

/// What the batch of both families printed.
struct Listed {
    listings: Vec<Value>,
    bindable: BTreeSet<Interface>,
}

fn four(
    scope: &KernelScope,
    tunnels: &BTreeMap<Interface, DumpedTunnel>,
) -> anyhow::Result<Listed> {
    let mut listings = "addr show\nrule show\nroute show default\n".to_owned();
    for protocol in protocols(scope) {
        listings.extend(["route show table all protocol ", &protocol.to_string(), "\n"]);
    }
    for table in &scope.watched {
        listings.extend(["route show table ", &table.0.to_string(), "\n"]);
    }
    let asked = listings.lines().count();
    let bound: Vec<&(IpAddr, Interface)> =
        scope.bound.iter().filter(|(_, interface)| tunnels.contains_key(interface)).collect();
    let mut lines = vec![listings.clone()];
    lines.extend(bound.iter().map(|(to, by)| format!("route get {to} oif {by}\n")));
    let ip = ["-N", "-j", "-d", "-batch", "-"];
    let call = Call::new("ip", &ip, DEADLINE).with_stdin(lines.concat().into_bytes());
    let output = exec::run_unchecked(&call)?;
    if output.code == 0 {
        let mut printed = split(&call, &output, asked + bound.len())?;
        let answers = printed.split_off(asked.min(printed.len()));
        let bindable = bound
            .iter()
            .zip(answers)
            .filter(|((_, by), answer)| leaves_by(&answer.to_string(), by))
            .map(|((_, by), _)| by.clone())
            .collect();
        return Ok(Listed { listings: printed, bindable });
    }
    // A question without an answer ends the batch, so each is put alone.
    let call = Call::new("ip", &ip, DEADLINE).with_stdin(listings.into_bytes());
    let listings = split(&call, &exec::run(&call)?, asked)?;
    let mut bindable = BTreeSet::new();
    for (to, by) in bound {
        let to = to.to_string();
        let get = ["-N", "-j", "route", "get", &to, "oif", by.as_str()];
        let output = exec::run_unchecked(&Call::new("ip", &get, DEADLINE))?;
        if output.code == 0 && leaves_by(&String::from_utf8_lossy(&output.stdout), by) {
            bindable.insert(by.clone());
        }
    }
    Ok(Listed { listings, bindable })
}

fn leaves_by(answer: &str, device: &Interface) -> bool {
    parse_route_get(answer).is_ok_and(|way| way.dev.as_deref() == Some(device.as_str()))
}

/// Asks for the IPv6 rules, which a batch of the other family does not show.
fn ask_six() -> Call {
    Call::new("ip", &["-N", "-j", "-6", "-batch", "-"], DEADLINE)
        .with_stdin(b"rule show\n".to_vec())
}

fn rules_of_six(call: &Call, output: &Output) -> anyhow::Result<Value> {
    let mut listings = split(call, output, 1)?;
    listings.pop().with_context(|| format!("{} printed nothing", call.argv()))
}

fn split(call: &Call, output: &Output, commands: usize) -> anyhow::Result<Vec<Value>> {
    split_batch(&String::from_utf8_lossy(&output.stdout), commands)
        .with_context(|| format!("reading {}", call.argv()))
}

/// Asks for the listing of our table.
fn ask_nft(table: &str) -> Call {
    Call::new("nft", &["list", "table", "inet", table], DEADLINE)
}

/// The listing of our table; `None` when there is none.
fn table(call: &Call, output: &Output) -> anyhow::Result<Option<String>> {
    match output.code {
        0 => Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned())),
        1 if output.stderr.contains("No such file or directory") => Ok(None),
        code => bail!("{}: exit code {code}: {}", call.argv(), output.stderr),
    }
}

/// Values below `/proc/sys`; those of a device that is not there are absent.
pub fn sysctls(paths: &BTreeSet<String>) -> anyhow::Result<BTreeMap<String, String>> {
    let mut values = BTreeMap::new();
    for path in paths {
        match std::fs::read_to_string(Path::new("/proc/sys").join(path)) {
            Ok(value) => {
                values.insert(path.clone(), value.trim().to_owned());
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            Err(why) => return Err(why).with_context(|| format!("reading /proc/sys/{path}")),
        }
    }
    Ok(values)
}
