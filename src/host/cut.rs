//! Ends open flows.
//!
//! **Invariant:** only flows that match the cut are ended, and having nothing to end is success.

use super::exec::{self, Call, CommandError};
use crate::machine::Cut;
use anyhow::bail;
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
    let mut all = 0_u64;
    for args in arguments(cut) {
        match delete(&args)? {
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

/// The deletions of a cut.
///
/// A flow of a client that was opened before it was taken over is deleted where its next packet is
/// bound to become a flow of the client's again: with an address translation, since what the server
/// still sends then ends at the gateway, and TCP, since only a SYN opens a flow from the WAN. Any
/// other flow without translation is left to the barrier, which closes what has no mark: deleted, it
/// could be opened anew from the WAN's side by whatever the server still sends.
fn arguments(cut: &Cut) -> Vec<Vec<String>> {
    match cut {
        Cut::Marked(mark) => vec![["-D", "-m", &mark.to_string()].map(str::to_owned).into()],
        Cut::Unmarked(net) => {
            let family = if net.addr().is_ipv4() { "ipv4" } else { "ipv6" };
            let net = net.to_string();
            let unmarked = ["-D", "-f", family, "-s", &net, "-m", "0"].map(str::to_owned);
            let only = |filter: &[&str]| {
                unmarked.iter().cloned().chain(filter.iter().map(|w| (*w).to_owned())).collect()
            };
            vec![only(&["--src-nat"]), only(&["-p", "tcp"])]
        }
    }
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
    use crate::names::Mark;

    #[test]
    fn the_count_is_read_and_other_words_are_none() {
        let said = "conntrack v1.4.7 (conntrack-tools): 12 flow entries have been deleted.";
        assert_eq!(deleted(said), Some(12));
        assert_eq!(deleted("conntrack v1.4.7 (conntrack-tools): Operation failed"), None);
    }

    #[test]
    fn a_cut_names_just_its_flows() {
        let marked = arguments(&Cut::Marked(Mark(0x4547_0001)));
        assert_eq!(marked, [["-D", "-m", "0x45470001"]]);
        let unmarked = arguments(&Cut::Unmarked("10.77.0.16/29".parse().unwrap()));
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
