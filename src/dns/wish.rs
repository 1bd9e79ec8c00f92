//! What a person wants of a host name: a node in its record, a pause, the way back.
//!
//! **Invariant:** a wish that names no host or no node of it is refused before anything is done.

use super::name::{HostName, NodeName};
use super::state::{Adopt, DnsState, Host, HostPause, PauseWhy, Verdict, Wish};
use crate::machine::PartWish;
use crate::policy::DnsPolicy;
use crate::time::Moment;

/// Takes a `switch HOST=NODE`.
pub(super) fn grant(
    policy: &DnsPolicy,
    state: &DnsState,
    target: &str,
    force: bool,
) -> Result<Wish, String> {
    let (host, node) =
        target.split_once('=').ok_or_else(|| format!("{target} is no target: write HOST=NODE"))?;
    let host = host_name(host)?;
    let wanted = policy.hosts.get(&host).ok_or_else(|| {
        let known: Vec<&str> = policy.hosts.keys().map(HostName::as_str).collect();
        format!("{host} is no host of this policy: write one of {}", known.join(", "))
    })?;
    let order = policy.order(&host, wanted);
    let node = order.iter().find(|name| name.as_str() == node).ok_or_else(|| {
        let known: Vec<&str> = order.iter().map(|name| name.as_str()).collect();
        format!("{node} is no node of {host}: write one of {}", known.join(", "))
    })?;
    if !force && !seems_fit(state, &host, node) {
        return Err(format!("{node} is not confirmed to serve {host}: say --force"));
    }
    Ok(Wish { host, node: (*node).clone(), force })
}

/// Whether a node served a host when it was last looked at.
fn seems_fit(state: &DnsState, host: &HostName, node: &NodeName) -> bool {
    let member = state.hosts.get(host).and_then(|host| host.members.get(node));
    let serves = member.and_then(|member| member.serves.as_ref());
    let serves = serves.is_none_or(|serves| serves.verdict == Verdict::Passed);
    let node = state.nodes.get(node);
    serves && node.is_some_and(|node| node.up && node.checks.verdict == Verdict::Passed)
}

fn host_name(text: &str) -> Result<HostName, String> {
    HostName::try_from(text.to_owned())
}

/// Pauses or resumes one host.
pub(super) fn part(
    state: &DnsState,
    part: &str,
    wish: PartWish,
    now: &Moment,
) -> Result<DnsState, String> {
    let name = host_name(part)?;
    let mut state = state.clone();
    let known: Vec<String> = state.hosts.keys().map(ToString::to_string).collect();
    let Some(host) = state.hosts.get_mut(&name) else {
        return Err(match known.as_slice() {
            [] => format!("no record was read yet, so there is no {name} to pause: step first"),
            known => format!("{name} is no host of this policy: write one of {}", known.join(", ")),
        });
    };
    match wish {
        PartWish::Pause => {
            host.paused = Some(HostPause { why: PauseWhy::Person, at: now.clone() });
            host.adopt = None;
        }
        PartWish::Resume if host.paused.is_none() => {
            return Err(format!("{name} is not paused"));
        }
        PartWish::Resume => {
            begin_anew(host);
            host.paused = None;
            host.adopt = Some(Adopt::Replace);
        }
    }
    Ok(state)
}

/// The state after a pause of all of it. Hosts that were paused by themselves stay so, and a record
/// that somebody has set meanwhile is not replaced: nobody has spoken of that one.
pub(super) fn resumed(state: &DnsState) -> DnsState {
    let mut state = DnsState { wish: None, discarded: 0, ..state.clone() };
    for node in state.nodes.values_mut() {
        node.checks.begin_anew();
    }
    for host in state.hosts.values_mut().filter(|host| host.paused.is_none()) {
        begin_anew(host);
        host.adopt = Some(Adopt::Look);
    }
    state
}

/// Counters and windows begin anew; history, quarantine and what was seen stay.
fn begin_anew(host: &mut Host) {
    host.stay = None;
    host.leave = None;
    for member in host.members.values_mut() {
        if let Some(serves) = &mut member.serves {
            serves.begin_anew();
        }
    }
}
