//! What a person wants of a hop: a node in it, a pause, the way back.
//!
//! **Invariant:** a wish that names no hop or no node of it is refused before anything is done.

use super::name::HopName;
use super::state::{ChainState, HopPause, PauseWhy, Wish};
use crate::machine::PartWish;
use crate::policy::ChainPolicy;
use crate::proxy::Verdict;
use crate::time::Moment;

/// Takes a `switch HOP=NODE`.
pub(super) fn grant(
    policy: &ChainPolicy,
    state: &ChainState,
    target: &str,
    force: bool,
) -> Result<Wish, String> {
    let (hop, node) =
        target.split_once('=').ok_or_else(|| format!("{target} is no target: write HOP=NODE"))?;
    let wanted =
        policy.hops.iter().find(|wanted| wanted.name.as_str() == hop).ok_or_else(|| {
            let known: Vec<&str> = policy.hops.iter().map(|hop| hop.name.as_str()).collect();
            format!("{hop} is no hop of this policy: write one of {}", known.join(", "))
        })?;
    let node = wanted.nodes.iter().find(|known| known.name.as_str() == node).ok_or_else(|| {
        let known: Vec<&str> = wanted.nodes.iter().map(|node| node.name.as_str()).collect();
        format!("{node} is no node of {hop}: write one of {}", known.join(", "))
    })?;
    let known = state.hops.iter().find(|known| known.name == wanted.name);
    let shown = known.and_then(|known| known.shown.get(&node.name));
    if !force && shown.is_none_or(|shown| shown.verdict != Verdict::Passed) {
        return Err(format!("{} of {hop} is not confirmed to pass: say --force", node.name));
    }
    Ok(Wish { hop: wanted.name.clone(), node: node.name.clone() })
}

/// Pauses or resumes one hop.
pub(super) fn part(
    state: &ChainState,
    part: &str,
    wish: PartWish,
    now: &Moment,
) -> Result<ChainState, String> {
    let name = HopName::try_from(part.to_owned())?;
    let mut state = state.clone();
    let known: Vec<String> = state.hops.iter().map(|hop| hop.name.to_string()).collect();
    let hop = state.hops.iter_mut().find(|hop| hop.name == name).ok_or_else(|| {
        format!("{name} is no hop of this policy: write one of {}", known.join(", "))
    })?;
    match wish {
        PartWish::Pause => {
            hop.paused = Some(HopPause { why: PauseWhy::Person, at: now.clone() });
        }
        PartWish::Resume if hop.paused.is_none() => return Err(format!("{name} is not paused")),
        PartWish::Resume => hop.paused = None,
    }
    hop.begin_anew(now);
    state.restate(now);
    Ok(state)
}

/// The state after a pause of all of it. Hops that are paused by themselves stay so.
pub(super) fn resumed(state: &ChainState, now: &Moment) -> ChainState {
    let mut state = ChainState { wish: None, path_failures: 0, place: 0, ..state.clone() };
    for hop in &mut state.hops {
        hop.begin_anew(now);
    }
    state.restate(now);
    state
}
