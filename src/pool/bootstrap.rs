//! Finding a way to the provider when no slot serves, or before any did.
//!
//! **Invariant:** the strategies share one contract, a way through which the provider answers; a way
//! that failed is tried again after all others; a lent slot carries no client.

use super::candidate::Candidate;
use super::fetch::{By, Fetched};
use super::reason::Reason;
use super::standby::{Need, Readiness};
use super::state::{Content, FailedWay, Slot, Transport, Way};
use super::turn::Turn;
use crate::names::Interface;
use crate::policy::pool::Strategy;

impl Turn<'_> {
    /// Asks by the transport that was found, or looks for one.
    pub(super) fn fetch_by_bootstrap(&mut self) -> Fetched {
        if let Some(transport) = self.state.bootstrap.transport.clone() {
            if let Transport::Slot(slot) = &transport
                && self.is_unjudged(slot)
            {
                return Fetched::Pending;
            }
            match self.readiness(&transport) {
                Readiness::Now => return self.fetch_through(&transport),
                Readiness::Soon => return self.wait_for_standby(),
                Readiness::No(why) => self.way_failed(&way_of(&transport, self), &why),
            }
        }
        let Some(way) = self.next_way() else {
            let why = "no way to the provider is left to try".to_owned();
            return Fetched::Nothing(Reason::ProviderUnavailable { why });
        };
        match way {
            Way::Wan => self.fetch_through(&Transport::Wan),
            Way::InPlace(slot) => self.fetch_through(&Transport::Slot(slot)),
            Way::Cached(name) => self.lend(&name),
            Way::Standby(interface) => match self.standby_readiness() {
                Readiness::Now => self.fetch_through(&Transport::Standby(interface)),
                Readiness::Soon => self.wait_for_standby(),
                Readiness::No(why) => {
                    let what = interface.to_string();
                    self.way_failed(&Way::Standby(interface), &why);
                    Fetched::Nothing(Reason::BootstrapFailed { what, why })
                }
            },
        }
    }

    /// Goes on when the standby is up.
    pub(super) fn wait_for_standby(&mut self) -> Fetched {
        self.standby = Need::Fetch;
        if let Some(interface) = self.policy.standby().cloned() {
            self.say(Reason::StandbyRaised { interface });
        }
        Fetched::Pending
    }

    /// Asks through a transport. The provider's answer proves it, whatever it says.
    fn fetch_through(&mut self, transport: &Transport) -> Fetched {
        let via = self.via(transport);
        match self.by(Some(&via)) {
            By::NotAsked => self.ask_by(Some(via)),
            By::List(list) => {
                self.found(transport);
                list
            }
            By::Refused(reason) => {
                self.found(transport);
                Fetched::Nothing(reason)
            }
            By::Silent(why) => {
                self.way_failed(&way_of(transport, self), &why);
                Fetched::Nothing(Reason::BootstrapFailed { what: via.device.to_string(), why })
            }
        }
    }

    fn found(&mut self, transport: &Transport) {
        for state in [&mut self.state, &mut self.counted] {
            state.bootstrap.transport = Some(transport.clone());
        }
    }

    /// Drops a way: it comes after all that failed less often.
    fn way_failed(&mut self, way: &Way, why: &str) {
        for state in [&mut self.state, &mut self.counted] {
            state.bootstrap.transport = None;
            state.bootstrap.fail(way, why, self.now);
        }
    }

    fn readiness(&self, transport: &Transport) -> Readiness {
        match transport {
            Transport::Wan => Readiness::Now,
            Transport::Slot(slot) if self.answers(slot) => Readiness::Now,
            Transport::Slot(_) => Readiness::No("does not answer any more".to_owned()),
            Transport::Standby(_) => self.standby_readiness(),
        }
    }

    /// All ways, in the order of the policy; before a set was proven the uplink is the first.
    fn ways(&self) -> Vec<Way> {
        let uplink = !self.policy.provider.needs_tunnel();
        let mut ways = Vec::new();
        if !self.state.proven && uplink {
            ways.push(Way::Wan);
        }
        for strategy in &self.policy.params.bootstrap_strategy_order {
            match strategy {
                Strategy::CachedPool => ways.extend(self.cached_ways()),
                Strategy::Direct if uplink && !ways.contains(&Way::Wan) => ways.push(Way::Wan),
                Strategy::Wireguard => {
                    ways.extend(self.policy.standby().cloned().map(Way::Standby));
                }
                Strategy::Direct => {}
            }
        }
        ways
    }

    /// Slots that answer where they are, and only without any the candidates of the last pool. One in
    /// the slot that is lent is a candidate, whose failure leads on to the next.
    fn cached_ways(&self) -> Vec<Way> {
        let answering: Vec<Way> = self
            .slots()
            .iter()
            .filter(|slot| self.answers(slot) && !self.is_lent(slot))
            .map(|slot| Way::InPlace(slot.clone()))
            .collect();
        if !answering.is_empty() || !self.state.proven {
            return answering;
        }
        let all = self.state.pool.iter().flat_map(|pool| pool.candidates.iter());
        let (quarantined, good): (Vec<&Candidate>, Vec<&Candidate>) =
            all.partition(|candidate| self.state.is_quarantined(candidate));
        let known = |candidate: &&&Candidate| {
            super::layout::endpoint_of(&self.state, candidate).is_some()
                && !self.state.standby_holds(candidate)
        };
        good.iter()
            .chain(&quarantined)
            .filter(known)
            .map(|candidate| Way::Cached(candidate.name.clone()))
            .collect()
    }

    /// The way that failed least often, the first in order of those.
    fn next_way(&self) -> Option<Way> {
        self.ways().into_iter().min_by_key(|way| self.state.bootstrap.failures(way))
    }

    /// Whether each way has been tried once and none brought a list.
    pub(super) fn has_tried_every_way(&self) -> bool {
        self.policy.provider.is_local()
            || self.ways().iter().all(|way| self.state.bootstrap.failures(way) > 0)
    }

    /// Tries a candidate of the last pool as a way to the provider, in the slot that is lent.
    fn lend(&mut self, name: &str) -> Fetched {
        let mut pool = self.state.pool.iter().flat_map(|pool| pool.candidates.iter());
        let Some(candidate) = pool.find(|c| c.name == name).cloned() else {
            return Fetched::Pending;
        };
        let lent = self.lent_slot();
        let is_there = self
            .state
            .slots
            .get(&lent)
            .is_some_and(|slot| slot.content == Content::Lent(candidate.clone()));
        if is_there && self.answers(&lent) {
            return self.fetch_through(&Transport::Slot(lent));
        }
        let others: Vec<Interface> = self
            .slots()
            .iter()
            .filter(|slot| {
                **slot != lent
                    && self.state.slots.get(slot).and_then(Slot::candidate).is_some_and(|other| {
                        other.endpoint() == candidate.endpoint() || other.same_pair(&candidate)
                    })
            })
            .cloned()
            .collect();
        for other in others {
            // No pair of keys is ever up on two interfaces.
            self.empty(&other);
        }
        let slot = Slot::new(Content::Lent(candidate), self.now);
        self.state.slots.insert(lent.clone(), slot);
        self.loaded.push(lent.clone());
        self.state.bootstrap.transport = Some(Transport::Slot(lent.clone()));
        self.say(Reason::Lending { slot: lent, name: name.to_owned() });
        Fetched::Pending
    }

    /// The slot that is lent to the cached pool.
    fn lent_slot(&self) -> Interface {
        let first = self.slots().first().cloned();
        self.policy.params.bootstrap_slot.clone().or(first).unwrap_or_else(|| {
            // A policy has at least one slot.
            self.surroundings.wan.clone()
        })
    }
}

/// By which way a transport was found.
fn way_of(transport: &Transport, turn: &Turn<'_>) -> Way {
    match transport {
        Transport::Wan => Way::Wan,
        Transport::Standby(interface) => Way::Standby(interface.clone()),
        Transport::Slot(slot) => match turn.state.slots.get(slot).map(|slot| &slot.content) {
            Some(Content::Lent(candidate)) => Way::Cached(candidate.name.clone()),
            Some(Content::Loaded(_) | Content::Empty) | None => Way::InPlace(slot.clone()),
        },
    }
}

impl super::state::Bootstrap {
    /// How often a way has failed.
    fn failures(&self, way: &Way) -> u32 {
        self.failed.iter().find(|failed| failed.way == *way).map_or(0, |failed| failed.times)
    }

    /// Notes that a way has failed.
    pub(super) fn fail(&mut self, way: &Way, why: &str, now: &crate::time::Moment) {
        let times = self.failures(way).saturating_add(1);
        self.failed.retain(|failed| failed.way != *way);
        self.failed.push(FailedWay {
            way: way.clone(),
            at: now.clone(),
            why: why.to_owned(),
            times,
        });
    }
}
