//! Policies made from what is here: a beginning that a person reads before it is used.
//!
//! **Invariant:** every guess is told; what cannot be guessed is refused with what to do, and what is
//! given is a policy that parses.

pub mod pool;
pub mod selector;

use crate::check::ruleset::Ruleset;
use crate::iproute::{Link, Route, Rule};
use crate::names::{Interface, PolicyName};
use crate::policy::{Kind, Policy};
use crate::wireguard::TunnelConfig;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

/// The kinds that a policy can be made of.
pub const KINDS: [Kind; 2] = [Kind::Pool, Kind::Selector];

/// What is here.
#[derive(Clone, Debug, Default)]
pub struct Here {
    /// All links.
    pub links: Vec<Link>,
    /// All rules.
    pub rules: Vec<Rule>,
    /// All routes of all tables.
    pub routes: Vec<Route>,
    /// All nft rules.
    pub ruleset: Ruleset,
    /// Who was seen on which link.
    pub neighbours: Vec<(IpAddr, String)>,
    /// Where this login comes from.
    pub login: Option<IpAddr>,
    /// Where the provider's files are.
    pub configs: PathBuf,
    /// What each of them holds, by its name, or why it is of no use.
    pub files: BTreeMap<String, Result<TunnelConfig, String>>,
    /// Why the folder cannot be read, if it cannot.
    pub no_files: Option<String>,
    /// Whether the kernel has plain WireGuard.
    pub has_kernel_wireguard: bool,
    /// Programs that are missing.
    pub missing: Vec<String>,
    /// The own configuration of a proxy core, where one was named.
    pub core: Option<Core>,
    /// Policies that are there already.
    pub policies: Vec<(PolicyName, Policy)>,
}

/// The own configuration of a proxy core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// Its file.
    pub path: PathBuf,
    /// What it holds, or why it cannot be read.
    pub text: Result<String, String>,
}

/// A policy and what was guessed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The policy, as the text of its file.
    pub text: String,
    /// What was guessed, a line each.
    pub guesses: Vec<String>,
}

/// Makes a policy of a kind.
///
/// # Errors
/// Why there is nothing to make it of, and what to do.
pub fn draft(kind: &str, here: &Here) -> Result<Draft, String> {
    let known = KINDS.map(Kind::as_str).join(", ");
    match serde_json::from_value::<Kind>(Value::String(kind.to_owned())) {
        Ok(Kind::Pool) => pool::draft(here),
        Ok(Kind::Selector) => selector::draft(here),
        Ok(Kind::Guard | Kind::Dns | Kind::Chain) => {
            Err(format!("a policy of kind {kind} is written by hand: init can make {known}"))
        }
        Err(_) => Err(format!("init knows no kind {kind:?}: it can make {known}")),
    }
}

/// Reads `ip -j neigh show`: who answered on a link at some time, dead entries left out.
#[must_use]
pub fn parse_neighbours(listing: &Value) -> Vec<(IpAddr, String)> {
    let one = |entry: &Value| {
        let address = entry.get("dst")?.as_str()?.parse().ok()?;
        let device = entry.get("dev")?.as_str()?.to_owned();
        let dead = ["FAILED", "INCOMPLETE", "NOARP", "NONE"];
        let states = entry.get("state").and_then(Value::as_array)?;
        let lives = !states.iter().any(|state| state.as_str().is_some_and(|s| dead.contains(&s)));
        lives.then_some((address, device))
    };
    let mut found: Vec<_> = listing.as_array().into_iter().flatten().filter_map(one).collect();
    found.sort();
    found
}

/// Names with a number that nothing has yet: `vpn1`, `vpn2`, ….
fn free_names(begin: &str, count: usize, taken: impl Fn(&Interface) -> bool) -> Vec<Interface> {
    (1..10_000)
        .filter_map(|n| Interface::try_from(format!("{begin}{n}")).ok())
        .filter(|name| !taken(name))
        .take(count)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_cannot_be_made_is_told_with_those_that_can() {
        for kind in ["", "pol", "tunnel"] {
            let why = draft(kind, &Here::default()).unwrap_err();
            assert_eq!(why, format!("init knows no kind {kind:?}: it can make pool, selector"));
        }
        let why = draft("dns", &Here::default()).unwrap_err();
        assert_eq!(why, "a policy of kind dns is written by hand: init can make pool, selector");
    }

    #[test]
    fn neighbours_are_those_who_answered() {
        // As iproute2 6.1 prints them.
        let text = r#"[{"dst":"10.77.0.12","dev":"eth1","lladdr":"02:00:00:00:00:02","state":["STALE"]},
            {"dst":"10.77.0.11","dev":"eth1","lladdr":"02:00:00:00:00:01","state":["REACHABLE"]},
            {"dst":"10.77.0.13","dev":"eth1","state":["FAILED"]},{"dst":"x","dev":"eth1","state":[]},{}]"#;
        let found = parse_neighbours(&serde_json::from_str(text).unwrap());
        let shown: Vec<String> = found.iter().map(|(a, d)| format!("{a} {d}")).collect();
        assert_eq!(shown, ["10.77.0.11 eth1", "10.77.0.12 eth1"]);
    }
}
