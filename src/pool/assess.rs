//! What the readings of a run amount to: whether the WAN is up, and how each slot is.
//!
//! **Invariant:** asking and deciding both rest on this one judgement, so that no question is asked
//! for another reason than the decision will have.

use super::families::slot_carries_six;
use super::health::{Evidence, Health, judge};
use super::layout;
use super::patience::check;
use super::standby::StandbySight;
use super::state::{PoolState, Surroundings};
use super::surroundings::{has_moved, surroundings};
use crate::iproute::Family;
use crate::kernel::Tunnel;
use crate::names::{Interface, Table};
use crate::observation::{
    Asker, KernelReading, ListReading, Observation, PageReading, Question, Reading, TrialResult,
};
use crate::policy::PoolPolicy;
use crate::time::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Whether the uplink works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WanVerdict {
    /// A reference, a slot, the standby or a trial answered.
    Up,
    /// Nothing did.
    Down,
    /// Something failed and the WAN has not been asked after it.
    AskAgain,
}

/// What the readings amount to.
#[derive(Clone, Debug)]
pub(super) struct Assessment<'a> {
    /// The kernel.
    pub kernel: &'a KernelReading,
    /// The machine, or why it cannot be served.
    pub surroundings: Result<Surroundings, String>,
    /// The uplink.
    pub wan: WanVerdict,
    /// How each slot is that has something in it.
    pub health: BTreeMap<Interface, Health>,
    /// The standby tunnel, where the policy has one.
    pub standby: Option<StandbySight>,
    /// Slots, and the standby, whose tunnel is not as state says: they are mended and not judged.
    pub drifted: BTreeSet<Interface>,
    /// Exit addresses seen in this run.
    pub exits: BTreeMap<Interface, IpAddr>,
    /// The uplink's exit address, if it was seen in this run.
    pub wan_exit: Option<IpAddr>,
}

/// Judges all readings of a run so far. `None` until the kernel has been looked at.
#[must_use]
pub(super) fn assess<'a>(
    policy: &PoolPolicy,
    state: &PoolState,
    seen: &'a Observation,
) -> Option<Assessment<'a>> {
    let kernel = seen.kernel()?;
    let surroundings = surroundings(policy, state.surroundings.as_ref(), kernel);
    let drifted = drifted(policy, state, kernel, surroundings.as_ref().ok());
    let wan_exit = address(seen, &Asker::WanExit);
    let exits: BTreeMap<Interface, IpAddr> = policy
        .slots
        .interfaces
        .iter()
        .filter_map(|slot| Some((slot.clone(), address(seen, &Asker::SlotExit(slot.clone()))?)))
        .collect();
    let wan = wan(seen);
    let standby = standby(policy, state, seen, &drifted, wan);
    let known_wan_exit = wan_exit.or(state.wan_exit_ip);
    let health = policy
        .slots
        .interfaces
        .iter()
        .filter_map(|interface| {
            let slot = state.slots.get(interface)?;
            slot.candidate()?;
            if drifted.contains(interface) {
                return Some((interface.clone(), Health::Unknown("being mended".to_owned())));
            }
            if !kernel.bindable.contains(interface) {
                let why = "the kernel does not send bound requests out by it".to_owned();
                return Some((interface.clone(), Health::Unknown(why)));
            }
            let counters = kernel.counters.get(interface).copied().unwrap_or_default();
            let exit = exits.get(interface).copied();
            let must_differ = policy.exit_ip.as_ref().is_some_and(|exit| exit.must_differ_from_wan);
            let evidence = Evidence {
                probe: check(seen, interface).decides,
                large: seen.pages(&Asker::SlotLarge(interface.clone())).first().copied(),
                rx_grew: counters.rx.saturating_sub(slot.counters.rx),
                saturated: slot.saturated,
                wan_address: must_differ && exit.is_some() && exit == known_wan_exit,
                wan_up: wan != WanVerdict::Down,
            };
            Some((interface.clone(), judge(&evidence)))
        })
        .collect();
    Some(Assessment { kernel, surroundings, wan, health, standby, drifted, exits, wan_exit })
}

impl Assessment<'_> {
    /// Whether there is a tunnel to be judged on an interface, of a slot or the standby's.
    pub(super) fn is_up(&self, interface: &Interface) -> bool {
        let standby = self.standby.as_ref().filter(|standby| standby.interface == *interface);
        self.health.contains_key(interface)
            || standby.is_some_and(|standby| standby.health.is_some())
    }
}

/// What is seen of the standby tunnel.
fn standby(
    policy: &PoolPolicy,
    state: &PoolState,
    seen: &Observation,
    drifted: &BTreeSet<Interface>,
    wan: WanVerdict,
) -> Option<StandbySight> {
    let interface = policy.standby()?.clone();
    let kernel = seen.kernel()?;
    let described = seen.standby().map(|reading| reading.described.clone());
    let described = described.unwrap_or_else(|| Err("its file was not read yet".to_owned()));
    let present = kernel.world.tunnels.get(&interface).cloned();
    let is_up = state.standby.as_ref().is_some_and(|standby| standby.up);
    let health = if drifted.contains(&interface) {
        Some(Health::Unknown("being mended".to_owned()))
    } else if !is_up {
        None
    } else if kernel.bindable.contains(&interface) {
        Some(judge(&Evidence {
            probe: seen.pages(&Asker::Slot(interface.clone())).first().copied(),
            large: None,
            rx_grew: 0,
            saturated: 0,
            wan_address: false,
            wan_up: wan != WanVerdict::Down,
        }))
    } else {
        Some(Health::Unknown("the kernel does not send bound requests out by it".to_owned()))
    };
    let strange = kernel.strangers.contains(&interface);
    Some(StandbySight { interface, described, health, strange, present })
}

/// The address that a page said, if one was asked and answered.
fn address(seen: &Observation, asker: &Asker) -> Option<IpAddr> {
    seen.pages(asker).into_iter().find_map(|(_, reading)| {
        reading.pages.iter().flatten().find_map(|page| match page {
            PageReading::Answer { status: 200, body, .. } => body.trim().parse().ok(),
            PageReading::Answer { .. }
            | PageReading::TimedOut
            | PageReading::Broken(_)
            | PageReading::NoAddress
            | PageReading::NotBindable(_)
            | PageReading::NoProxy(_) => None,
        })
    })
}

/// Whether the uplink works, from all that was asked in this run.
///
/// After a failure only an answer that came later than the failure proves that the WAN was up, since
/// it may have gone down in between.
fn wan(seen: &Observation) -> WanVerdict {
    let mut failed: Option<&Moment> = None;
    let mut passed: Option<&Moment> = None;
    // Of the references: the latest answer or silence, and the latest of those that were asked again,
    // which tunnels are asked beside.
    let mut reference: Option<&Moment> = None;
    let mut again: Option<&Moment> = None;
    let later = |a: Option<&'_ Moment>, b: &'_ Moment| a.is_none_or(|a| b.up_ms >= a.up_ms);
    for (question, reading) in &seen.readings {
        let (at, ok) = match (question, reading) {
            (Question::Pages(pages), Reading::Pages(r)) => {
                let well = r.passes(pages);
                match pages.asker {
                    Asker::Wan => {
                        if later(reference, &r.at) {
                            reference = Some(&r.at);
                        }
                        if pages.turn > 0 && later(again, &r.at) {
                            again = Some(&r.at);
                        }
                        if well && later(passed, &r.at) {
                            passed = Some(&r.at);
                        }
                        continue;
                    }
                    // A witness that says nothing has nothing to say of a slot; it was judged before.
                    Asker::Slot(_) if !well && pages.turn > 0 => continue,
                    Asker::Slot(_) | Asker::SlotAgain(_) => (&r.at, well),
                    // What fails here alone says nothing about the uplink.
                    Asker::WanExit | Asker::SlotLarge(_) | Asker::SlotExit(_) | Asker::Named(_)
                        if !well =>
                    {
                        continue;
                    }
                    Asker::WanExit | Asker::SlotLarge(_) | Asker::SlotExit(_) | Asker::Named(_) => {
                        (&r.at, true)
                    }
                }
            }
            (Question::Trial(_), Reading::Trial(trial)) => match &trial.result {
                TrialResult::Passed { .. } => (&trial.at, true),
                TrialResult::Failed { .. } => (&trial.at, false),
                TrialResult::NotTried { .. } | TrialResult::Assumed => continue,
            },
            // Nobody answered by that way. A source on this machine has none.
            (
                Question::List(asked),
                Reading::List { at, list: ListReading::Unavailable { answered: false, .. } },
            ) if asked.via.is_some() => (at, false),
            _ => continue,
        };
        if ok {
            if later(passed, at) {
                passed = Some(at);
            }
        } else if later(failed, at) {
            failed = Some(at);
        }
    }
    match (passed, failed, reference) {
        (Some(passed), Some(failed), _) if passed.up_ms >= failed.up_ms => WanVerdict::Up,
        (Some(_), None, _) => WanVerdict::Up,
        // The reference was asked after the last failure and did not answer, and nothing else did.
        (None, Some(failed), Some(reference)) if reference.up_ms >= failed.up_ms => {
            WanVerdict::Down
        }
        // Something had passed before: it was asked once more, too, and did not answer either.
        (Some(_), Some(failed), _) if again.is_some_and(|again| again.up_ms >= failed.up_ms) => {
            WanVerdict::Down
        }
        (None, None, Some(_)) => WanVerdict::Down,
        _ => WanVerdict::AskAgain,
    }
}

/// Slots, and the standby, whose tunnel is not as state says.
fn drifted(
    policy: &PoolPolicy,
    state: &PoolState,
    kernel: &KernelReading,
    surroundings: Option<&Surroundings>,
) -> BTreeSet<Interface> {
    let Some(surroundings) = surroundings else { return BTreeSet::new() };
    let is_off = |interface: &Interface, wished: &Tunnel, table: Table| {
        // A bound request goes by its own table, so its route is part of the way.
        let is_there = |family: Family| {
            let route = layout::way_out(policy, interface, table, family);
            kernel.world.routes.contains(&route)
        };
        let six = slot_carries_six(policy, state, interface);
        !is_there(Family::V4)
            || (six && !is_there(Family::V6))
            || !kernel
                .world
                .tunnels
                .get(interface)
                .is_some_and(|present| layout::is_as_wished(present, wished))
    };
    let is_lost = has_moved(state.surroundings.as_ref(), surroundings);
    let slots = (0..).zip(&policy.slots.interfaces).filter(|(index, interface)| {
        let Some(slot) = state.slots.get(interface) else { return false };
        let Some(candidate) = slot.candidate() else { return false };
        if is_lost {
            return true;
        }
        let wished = layout::tunnel(policy, state, slot, candidate, surroundings);
        is_off(interface, &wished, policy.table(*index))
    });
    let standby = policy.standby().filter(|interface| {
        let standby = state.standby.as_ref().filter(|standby| standby.up);
        standby.and_then(|standby| standby.candidate.as_ref()).is_some_and(|candidate| {
            let wished = layout::plain_tunnel(policy, state, candidate, surroundings);
            is_lost || is_off(interface, &wished, policy.standby_table())
        })
    });
    slots.map(|(_, interface)| interface).chain(standby).cloned().collect()
}
