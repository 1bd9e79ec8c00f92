//! What a person asked of a pool: an endpoint in a slot, Direct, automation again, a full refresh.
//!
//! **Invariant:** a wish is checked before it is remembered, is carried out by the next step in one
//! transaction like any other change, and is forgotten then, whatever became of it.

use super::candidate::{Candidate, Tested};
use super::reason::Reason;
use super::state::{Egress, PoolState, Slot, Verdict};
use super::turn::Turn;
use crate::machine::Pausing;
use crate::names::Interface;
use crate::policy::PoolPolicy;
use serde::{Deserialize, Serialize};

/// A person's wish.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// This endpoint in this slot.
    Load {
        /// The slot.
        slot: Interface,
        /// The endpoint, by its name in the list.
        endpoint: String,
    },
    /// All clients by the WAN.
    Direct,
    /// The machine's own choice again.
    Auto,
}

/// A wish that may be carried out, and whether the policy is paused by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The wish.
    pub wish: Wish,
    /// Whether the machine keeps its hands off afterwards.
    pub pausing: Pausing,
}

/// Reads a `switch` target and checks it against what is known.
///
/// # Errors
/// Why it is not carried out, and what would be.
pub(super) fn grant(
    policy: &PoolPolicy,
    state: Option<&PoolState>,
    target: &str,
    force: bool,
) -> Result<Granted, String> {
    let slots = || {
        let names: Vec<&str> = policy.slots.interfaces.iter().map(Interface::as_str).collect();
        names.join(" ")
    };
    match target {
        "auto" => return Ok(Granted { wish: Wish::Auto, pausing: Pausing::Lift }),
        "direct" => {
            let held = state.is_some_and(|state| state.mode.is_direct());
            return if held || force {
                let pausing = if held { Pausing::Keep } else { Pausing::Pause };
                Ok(Granted { wish: Wish::Direct, pausing })
            } else {
                Err("slots serve; clients would leave by the WAN, unprotected: say --force if that is meant".to_owned())
            };
        }
        _ => {}
    }
    let Some((slot, endpoint)) = target.split_once('=') else {
        return Err(format!("{target:?} is no target: write auto, direct, or SLOT=ENDPOINT"));
    };
    let slot = policy
        .slots
        .interfaces
        .iter()
        .find(|interface| interface.as_str() == slot)
        .ok_or_else(|| format!("{slot:?} is no slot: write one of {}", slots()))?;
    let state = state.filter(|state| state.proven && !state.retired).ok_or_else(|| {
        "no set of slots was proven yet: wait for a step that ends in NORMAL".to_owned()
    })?;
    let candidate = named(state, endpoint)
        .ok_or_else(|| format!("{endpoint:?} is not in the pool's list: see status for names"))?;
    if let Some((other, _)) = holder(state, candidate) {
        return Err(format!("{endpoint} is already in {other}"));
    }
    if state.standby_holds(candidate) {
        return Err(format!("{endpoint} is left to the standby tunnel: name another"));
    }
    let doubt = if state.is_quarantined(candidate) {
        Some("it is quarantined")
    } else {
        let tested = state.pool.as_ref().and_then(|pool| pool.tested.get(&candidate.name));
        match tested {
            Some(Tested::Passed { .. }) => None,
            Some(Tested::Failed { .. }) => Some("it failed its last test"),
            None => Some("it was never tested"),
        }
    };
    match doubt {
        Some(doubt) if !force => {
            Err(format!("{endpoint} is not confirmed healthy, {doubt}: say --force to try it"))
        }
        Some(_) | None => Ok(Granted {
            wish: Wish::Load { slot: slot.clone(), endpoint: endpoint.to_owned() },
            pausing: Pausing::Keep,
        }),
    }
}

/// The candidate of that name.
fn named<'a>(state: &'a PoolState, name: &str) -> Option<&'a Candidate> {
    state.pool.as_ref()?.candidates.iter().find(|candidate| candidate.name == name)
}

/// The slot in which an endpoint is, or one with the same pair of keys.
fn holder<'a>(state: &'a PoolState, candidate: &Candidate) -> Option<(&'a Interface, &'a Slot)> {
    state.slots.iter().find(|(_, slot)| {
        slot.candidate().is_some_and(|active| {
            active.endpoint() == candidate.endpoint() || active.same_pair(candidate)
        })
    })
}

impl Turn<'_> {
    /// Carries a person's wish out. False when there is none, or none that changes anything.
    pub(super) fn grant_wish(&mut self) -> bool {
        let Some(wish) = self.state.wish.take() else { return false };
        self.counted.wish = None;
        match wish {
            Wish::Auto => false,
            Wish::Direct => {
                for client in self.policy.client_keys() {
                    self.state.egress.insert(client, Egress::Direct);
                }
                self.by_hand = true;
                self.say(Reason::PersonsDirect);
                true
            }
            Wish::Load { slot, endpoint } => {
                // The world may have moved on since the wish was checked.
                let candidate = named(&self.state, &endpoint).cloned();
                let Some(candidate) = candidate.filter(|c| !self.state.is_active(c)) else {
                    return false;
                };
                self.state.quarantine.remove(&candidate.endpoint());
                // What it replaces goes back to the reserve, unless it had failed.
                let failed = self
                    .state
                    .slots
                    .get(&slot)
                    .is_some_and(|s| s.failed || s.verdict == Verdict::Failed);
                self.load(&slot, &candidate, failed);
                self.say(Reason::PersonsEndpoint { slot, name: endpoint });
                true
            }
        }
    }
}
