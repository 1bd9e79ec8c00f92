//! Ends open flows.
//!
//! **Invariant:** only flows that match the cut are ended, and having nothing to end is success.

use super::clash;
use super::exec::{self, Call, CommandError};
use crate::machine::Cut;
use crate::names::Mark;
use crate::setting::Core;
use anyhow::{anyhow, bail};
use ipnet::IpNet;
use std::time::Duration;

/// The table of a busy gateway has 100,000 flows, which are gone in a second.
const DEADLINE: Duration = Duration::from_secs(10);

/// A flow that ends by itself while it is being deleted stops the program, and so does a listing
/// of what was deleted that is larger than we take; the rest is then still there.
const ATTEMPTS: u32 = 5;

/// What became of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutResult {
    /// So many flows were ended.
    Ended(u64),
    /// The program is not installed. The flows end by themselves.
    NoTool,
}

/// Ends the flows of one cut.
///
/// # Errors
/// When `conntrack` fails for another reason than that it found none.
pub fn cut(cut: &Cut) -> anyhow::Result<CutResult> {
    match cut {
        Cut::Marked(mark) => delete_all(&marked(*mark)),
        Cut::Unmarked(net) => delete_all(&unmarked(net)),
        Cut::Through { core, names } => close(core, names),
    }
}

/// Closes connections of a proxy core, each by itself: closing all resets a core's whole network.
fn close(core: &Core, names: &[String]) -> anyhow::Result<CutResult> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let core = clash::reach(core).map_err(|fault| anyhow!("{fault}"))?;
    let traffic = clash::traffic(&core).map_err(|fault| anyhow!("{fault}"))?;
    let mut ended = 0_u64;
    for flow in traffic.map_err(|why| anyhow!(why))?.flows {
        if flow.goes_through(&names) {
            clash::close(&core, &flow.id).map_err(|why| anyhow!(why))?;
            ended = ended.saturating_add(1);
        }
    }
    Ok(CutResult::Ended(ended))
}

/// Several deletions, as one.
fn delete_all(deletions: &[Vec<String>]) -> anyhow::Result<CutResult> {
    let mut all = 0_u64;
    for args in deletions {
        match delete(args)? {
            CutResult::Ended(flows) => all = all.saturating_add(flows),
            CutResult::NoTool => return Ok(CutResult::NoTool),
        }
    }
    Ok(CutResult::Ended(all))
}

/// One deletion, repeated while it is stopped by a flow that ends by itself.
fn delete(args: &[String]) -> anyhow::Result<CutResult> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let call = Call::new("conntrack", &args, DEADLINE);
    let mut ended = 0_u64;
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match exec::run_unchecked(&call) {
            Ok(output) => match deleted(&output.stderr) {
                Some(count) => return Ok(CutResult::Ended(ended.saturating_add(count))),
                None if output.code == 0 => return Ok(CutResult::Ended(ended)),
                None => {
                    let lines = output.stdout.split(|&byte| byte == b'\n');
                    let seen = lines.filter(|line| !line.is_empty()).count();
                    ended = ended.saturating_add(u64::try_from(seen).unwrap_or(u64::MAX));
                    last = format!("exit code {}: {}", output.code, output.stderr);
                }
            },
            Err(CommandError::NotFound { .. }) => return Ok(CutResult::NoTool),
            Err(error @ CommandError::Io { .. }) => last = error.to_string(),
            Err(error @ (CommandError::TimedOut { .. } | CommandError::Exit { .. })) => {
                return Err(error.into());
            }
        }
    }
    bail!("{}: {last}", call.argv())
}

/// The deletion of flows by their mark.
fn marked(mark: Mark) -> Vec<Vec<String>> {
    vec![["-D", "-m", &mark.to_string()].map(str::to_owned).into()]
}

/// The deletions of a client's flows from before it was taken over.
///
/// A flow of a client that was opened before it was taken over is deleted where its next packet is
/// bound to become a flow of the client's again: with an address translation, since what the server
/// still sends then ends at the gateway, and TCP, since only a SYN opens a flow from the WAN. Any
/// other flow without translation is left to the barrier, which closes what has no mark: deleted, it
/// could be opened anew from the WAN's side by whatever the server still sends.
fn unmarked(net: &IpNet) -> Vec<Vec<String>> {
    let family = if net.addr().is_ipv4() { "ipv4" } else { "ipv6" };
    let net = net.to_string();
    let unmarked = ["-D", "-f", family, "-s", &net, "-m", "0"].map(str::to_owned);
    let only = |filter: &[&str]| {
        unmarked.iter().cloned().chain(filter.iter().map(|w| (*w).to_owned())).collect()
    };
    vec![only(&["--src-nat"]), only(&["-p", "tcp"])]
}

/// The count in `conntrack v1.4.7 (conntrack-tools): 2 flow entries have been deleted.`, which is
/// there with rc 0 and, when it is 0, with rc 1.
fn deleted(stderr: &str) -> Option<u64> {
    let (before, _) = stderr.split_once(" flow entries have been deleted")?;
    before.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_and_other_words_are_none() {
        let said = "conntrack v1.4.7 (conntrack-tools): 12 flow entries have been deleted.";
        assert_eq!(deleted(said), Some(12));
        assert_eq!(deleted("conntrack v1.4.7 (conntrack-tools): Operation failed"), None);
    }

    #[test]
    fn a_cut_names_just_its_flows() {
        let marked = marked(Mark(0x4547_0001));
        assert_eq!(marked, [["-D", "-m", "0x45470001"]]);
        let unmarked = unmarked(&"10.77.0.16/29".parse().unwrap());
        let unmarked: Vec<String> = unmarked.iter().map(|args| args.join(" ")).collect();
        assert_eq!(
            unmarked,
            [
                "-D -f ipv4 -s 10.77.0.16/29 -m 0 --src-nat",
                "-D -f ipv4 -s 10.77.0.16/29 -m 0 -p tcp"
            ]
        );
    }
}
