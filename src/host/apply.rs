//! Carries out one action.
//!
//! **Invariant:** an action that is done already, or whose object is gone already, succeeds; nothing
//! but the named object is touched; no key is in an argument or an error.

mod tunnel;

use super::exec::{self, Call, CommandError, Output};
use super::files;
use crate::iproute::{RouteGet, parse_route_get};
use crate::kernel::{ConfigRef, read};
use crate::names::Interface;
use crate::plan::{Action, RouteQuery};
use crate::wireguard::{self, Outside};
use anyhow::{Context as _, bail, ensure};
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What takes milliseconds when it works.
const DEADLINE: Duration = Duration::from_secs(5);

/// A table of 10,000 clients loads in 0.1 s on a good machine.
const NFT_DEADLINE: Duration = Duration::from_secs(10);

/// The largest file of a tunnel; the parser takes no more.
pub(super) const MAX_CONFIG: usize = 64 * 1024;

/// What `ip` says of an object that is not there: a rule, a route, a table or its family, an
/// address, a device.
const GONE: [&str; 7] = [
    "No such file or directory",
    "No such process",
    "FIB table does not exist",
    "Address not found",
    "Cannot assign requested address",
    "Cannot find device",
    "Address family not supported",
];

/// What actions are carried out with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hands {
    /// The policy's state folder, which holds the pool's files.
    pub folder: PathBuf,
    /// Whether systemd runs here and keeps daemons.
    pub systemd: bool,
}

impl Hands {
    /// For the policy whose state folder this is, on this machine.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        // The test of sd_booted(3).
        Self { folder, systemd: Path::new("/run/systemd/system").is_dir() }
    }
}

/// Carries out `action`.
///
/// # Errors
/// When it did not come about; the error names the object.
pub fn apply(action: &Action, hands: &Hands) -> anyhow::Result<()> {
    match action {
        Action::CreateTunnel { interface, backend } => tunnel::create(interface, backend, hands),
        Action::RemoveTunnel { interface, backend } => tunnel::remove(interface, backend, hands),
        Action::Configure { interface, config, endpoint, listen_port, fwmark, tool } => {
            let outside =
                Outside { endpoint: *endpoint, listen_port: *listen_port, fwmark: *fwmark };
            configure(interface, config, outside, tool, hands)
        }
        Action::Aim { interface, peer, endpoint, tool } => {
            let (peer, endpoint) = (peer.to_string(), endpoint.to_string());
            let args = ["set", interface.as_str(), "peer", &peer, "endpoint", &endpoint];
            settled(&Call::new(tool, &args, DEADLINE), &[])
        }
        Action::AddAddress { interface, address } => {
            let address = address.to_string();
            ip(&["address", "replace", &address, "dev", interface.as_str()], &[])
        }
        Action::RemoveAddress { interface, address } => {
            let address = address.to_string();
            ip(&["address", "delete", &address, "dev", interface.as_str()], &GONE)
        }
        Action::LinkUp { interface, mtu } => {
            let mtu = mtu.to_string();
            ip(&["link", "set", "dev", interface.as_str(), "mtu", &mtu, "up"], &[])
        }
        Action::Sysctl { path, value } => sysctl(path, value),
        Action::ReplaceRoute(route) => modelled(route.replace_args(), &[]),
        Action::DeleteRoute(route) => modelled(route.del_args(), &GONE),
        Action::AddRule(rule) => modelled(rule.add_args(), &["File exists"]),
        Action::DeleteRule(rule) => modelled(rule.del_args(), &GONE),
        Action::LoadNft { table, text } => {
            let call = Call::new("nft", &["-f", "-"], NFT_DEADLINE);
            exec::run(&call.with_stdin(text.clone().into_bytes()))
                .with_context(|| format!("loading nft table inet {table}"))?;
            Ok(())
        }
        Action::DropNft { table } => {
            let call = Call::new("nft", &["delete", "table", "inet", table], NFT_DEADLINE);
            settled(&call, &["No such file or directory"])
        }
    }
}

/// The kernel's way for a packet; `None` when it would refuse it.
///
/// # Errors
/// When the question is wrong, such as one about a device that is not there.
pub fn route_get(query: &RouteQuery) -> anyhow::Result<Option<RouteGet>> {
    let mut args = vec!["-N".to_owned(), "-j".to_owned()];
    args.extend(query.args());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let call = Call::new("ip", &args, DEADLINE);
    let output = exec::run_unchecked(&call)?;
    let refused = ["No route to host", "Network is unreachable", "Permission denied"];
    match output.code {
        0 => {
            let text = String::from_utf8_lossy(&output.stdout);
            let way = parse_route_get(&text).with_context(|| format!("reading {}", call.argv()))?;
            Ok(Some(way))
        }
        2 if refused.iter().any(|words| output.stderr.contains(words)) => Ok(None),
        _ => Err(failed(&call, output).into()),
    }
}

fn ip(args: &[&str], fine: &[&str]) -> anyhow::Result<()> {
    settled(&Call::new("ip", args, DEADLINE), fine)
}

/// `ip` with the arguments of a rule or a route.
fn modelled(args: Option<Vec<String>>, fine: &[&str]) -> anyhow::Result<()> {
    let args = args.context("a rule or route that is not wholly modelled is never ours")?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    ip(&args, fine)
}

/// Runs a command that has also succeeded when it fails with one of the `fine` words.
fn settled(call: &Call, fine: &[&str]) -> anyhow::Result<()> {
    let output = exec::run_unchecked(call)?;
    if output.code == 0 || fine.iter().any(|words| output.stderr.contains(words)) {
        Ok(())
    } else {
        Err(failed(call, output).into())
    }
}

fn failed(call: &Call, output: Output) -> CommandError {
    CommandError::Exit { argv: call.argv(), code: output.code, stderr: output.stderr }
}

/// A file of the pool that is missing, spoilt or not the one that was listed. It speaks of one
/// endpoint alone, where another command's failure speaks of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoiltConfig {
    /// The interface that it was meant for.
    pub interface: Interface,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for SpoiltConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configuring {}: {}", self.interface, self.why)
    }
}

impl std::error::Error for SpoiltConfig {}

fn configure(
    interface: &Interface,
    config: &ConfigRef,
    outside: Outside,
    tool: &str,
    hands: &Hands,
) -> anyhow::Result<()> {
    let path = hands.folder.join(config.path());
    let named = || format!("configuring {interface} from {}", config.path());
    let spoilt = |why: String| SpoiltConfig {
        interface: interface.clone(),
        why: format!("{}: {why}", config.path()),
    };
    let bytes =
        files::read_bounded(&path, MAX_CONFIG).map_err(|error| spoilt(error.to_string()))?;
    if read::sha256(&bytes) != config.sha256 {
        return Err(spoilt("the file is not the one that was listed".to_owned()).into());
    }
    let parsed = wireguard::parse_bytes(&bytes).map_err(|problems| {
        spoilt(problems.first().map(ToString::to_string).unwrap_or_default())
    })?;
    let text = wireguard::setconf(&parsed.config, outside);
    let call = Call::new(tool, &["setconf", interface.as_str(), "/dev/stdin"], DEADLINE)
        .with_stdin(text.reveal().to_owned().into_bytes());
    let output = exec::run_unchecked(&call).with_context(named)?;
    if output.code == 0 {
        return Ok(());
    }
    // About a line that it does not like the tool quotes the line, and with it perhaps a key.
    let telling = "Unable to modify interface";
    let why = if output.stderr.starts_with(telling) { output.stderr } else { String::new() };
    Err(CommandError::Exit { argv: call.argv(), code: output.code, stderr: why })
        .with_context(named)
}

/// Writes a value below `/proc/sys`.
fn sysctl(path: &str, value: &str) -> anyhow::Result<()> {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    ensure!(path.split('/').all(plain), "{path:?} is no path below /proc/sys");
    let write = || OpenOptions::new().write(true).open(Path::new("/proc/sys").join(path));
    let mut file = match write() {
        Ok(file) => file,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            bail!("setting {path}: there is no such setting, its device is gone")
        }
        Err(why) => return Err(why).with_context(|| format!("setting {path}")),
    };
    file.write_all(value.as_bytes()).with_context(|| format!("setting {path} to {value}"))
}
