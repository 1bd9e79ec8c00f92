//! Bringing one slot back.
//!
//! **Invariant:** a repair touches one slot, the lowest for which a row can act now, and no other
//! slot's tunnel.

use super::candidate::Candidate;
use super::health::{Failure, Health};
use super::layout::{self, SMALL_MTU};
use super::reason::Reason;
use super::spread::least_shared;
use super::state::{Mode, Slot};
use super::turn::Turn;
use crate::names::Interface;
use crate::observation::Question;
use std::collections::BTreeSet;
use std::net::IpAddr;

impl Turn<'_> {
    /// Acts on the lowest failed or empty slot for which a row can act now. True when it did, or
    /// when it has to ask first.
    pub(super) fn repair(&mut self) -> bool {
        for interface in self.slots() {
            if self.state.serves(interface) || self.stopped.contains(interface) {
                continue;
            }
            if self.lower_mtu(interface) {
                return true;
            }
            if !self.ready(interface) {
                continue;
            }
            if !self.can_verify() {
                self.say(Reason::NothingToVerifyWith);
                return false;
            }
            match self.next_candidate(interface) {
                Next::Ask => return true,
                Next::Candidate(candidate) => {
                    self.fill(interface, &candidate);
                    self.after_repair();
                    return true;
                }
                Next::Nothing => {
                    if self.exhaust(interface) {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Loads a slot alone, which counts, and quarantines what was in it.
    pub(super) fn fill(&mut self, interface: &Interface, candidate: &Candidate) {
        self.load(interface, candidate, true);
        self.state.repair_events_since_full_refresh =
            self.state.repair_events_since_full_refresh.saturating_add(1);
        self.say(Reason::Repaired { slot: interface.clone(), name: candidate.name.clone() });
    }

    /// Whether a candidate could be verified: with no page to ask for, every one would seem to fail.
    pub(super) fn can_verify(&self) -> bool {
        let known = |host: &str| !layout::addresses_of(&self.state, host).is_empty();
        self.policy.probe.urls.iter().any(|url| known(url.host()))
    }

    /// Empty, or failed with its retests done.
    pub(super) fn ready(&self, interface: &Interface) -> bool {
        self.state.slots.get(interface).is_some_and(|slot| {
            slot.is_empty()
                || slot.loaded().is_some_and(|candidate| {
                    self.state.is_quarantined(candidate)
                        || (slot.failed
                            && slot.retests_failed >= self.policy.params.local_repair_retest_count)
                })
        })
    }

    /// A slot that loses large packets gets a smaller MTU once before its endpoint is given up.
    pub(super) fn lower_mtu(&mut self, interface: &Interface) -> bool {
        let loses_large =
            matches!(self.sight.health.get(interface), Some(Health::Failed(Failure::Mtu)));
        let Some(slot) = self.state.slots.get_mut(interface) else { return false };
        let large = slot
            .loaded()
            .is_some_and(|candidate| layout::mtu_of(candidate, self.surroundings) > SMALL_MTU);
        if !loses_large || !slot.failed || slot.mtu_lowered || !large {
            return false;
        }
        slot.mtu_lowered = true;
        slot.retests_failed = 0;
        slot.retests_passed = 0;
        self.say(Reason::MtuLowered { slot: interface.clone() });
        true
    }

    /// The best of the reserve whose host has a known address.
    fn next_candidate(&mut self, slot: &Interface) -> Next {
        let reserve: Vec<Candidate> = self.state.reserve().into_iter().cloned().collect();
        let known = |c: &&Candidate| layout::endpoint_of(&self.state, c).is_some();
        let known = reserve.iter().filter(known);
        if let Some(candidate) = least_shared(self.policy, &self.state, slot, known) {
            return Next::Candidate(Box::new(candidate.clone()));
        }
        if self.ask_names(&reserve) { Next::Ask } else { Next::Nothing }
    }

    /// Asks for the addresses of candidates' hosts that were not asked for in this run.
    pub(super) fn ask_names(&mut self, candidates: &[Candidate]) -> bool {
        let asked = self.seen.names();
        let names: BTreeSet<String> = candidates
            .iter()
            .map(|candidate| candidate.host.clone())
            .filter(|host| host.parse::<IpAddr>().is_err() && !asked.contains_key(host.as_str()))
            .collect();
        if names.is_empty() || !self.may_ask {
            return false;
        }
        self.asks.push(Question::Names(names));
        true
    }

    /// No candidate is left for a slot: its endpoint is quarantined and it is emptied. False when
    /// that had been done already.
    fn exhaust(&mut self, interface: &Interface) -> bool {
        let mode = self.state.mode;
        let empty = self.state.slots.get(interface).is_none_or(Slot::is_empty);
        match mode {
            Mode::LocalRepair | Mode::DegradedPool => {}
            Mode::SlotExhausted if !empty => {}
            // A running refresh is what will fill the slot.
            Mode::SlotExhausted
            | Mode::Normal
            | Mode::FullPoolRefresh
            | Mode::DirectEmergency
            | Mode::BootstrapRecovery => return false,
        }
        if !empty {
            self.quarantine(interface, None);
            self.empty(interface);
        }
        self.say(Reason::NoCandidateLeft { slot: interface.clone() });
        self.enter(Mode::SlotExhausted);
        true
    }

    /// Where the plan goes once a slot was brought back.
    pub(super) fn after_repair(&mut self) {
        let incomplete = self.any_failed_or_empty();
        match self.state.mode {
            Mode::LocalRepair if !incomplete => {
                let repairs = self.state.repair_events_since_full_refresh;
                if repairs >= self.policy.params.full_refresh_after_repairs {
                    self.say(Reason::RepairsReached { repairs });
                    self.state.refresh_asked = Some(self.now.clone());
                    self.enter(Mode::FullPoolRefresh);
                } else {
                    // A list whose refresh a repair overtook is not carried on later.
                    if self.state.refresh_asked.is_none() {
                        self.state.fresh = None;
                    }
                    self.enter(Mode::Normal);
                }
            }
            Mode::SlotExhausted if !incomplete => self.enter(Mode::DegradedPool),
            Mode::LocalRepair
            | Mode::SlotExhausted
            | Mode::Normal
            | Mode::FullPoolRefresh
            | Mode::DegradedPool
            | Mode::DirectEmergency
            | Mode::BootstrapRecovery => {}
        }
    }
}

/// What there is to fill a slot with.
enum Next {
    /// Nothing.
    Nothing,
    /// It has to be asked where the candidates are.
    Ask,
    /// This.
    Candidate(Box<Candidate>),
}
