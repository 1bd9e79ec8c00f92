//! Asking the provider for its list, and by which way.
//!
//! **Invariant:** a provider is asked by one way at a time, each way at most once in a refresh, and
//! one that refused is left alone for as long as it wished and for longer each time.

use super::candidate::{Candidate, List, Rejected};
use super::future::UNKNOWN_STEPS;
use super::reason::Reason;
use super::standby::{Need, Readiness};
use super::state::Transport;
use super::turn::Turn;
use crate::names::Interface;
use crate::observation::{ListQuestion, ListReading, ListVia, Question, Validators};
use crate::policy::pool::Tool;
use crate::time::Moment;
use std::sync::Arc;
use std::time::Duration;

/// A refusal doubles the wait, at most so often: sixteen times 15 minutes is four hours.
const DOUBLINGS: u32 = 4;

/// What came of asking.
pub(super) enum Fetched {
    /// Nothing yet; the next round or the next step goes on.
    Pending,
    /// No list.
    Nothing(Reason),
    /// A list.
    List {
        /// Its usable entries.
        candidates: Arc<Vec<Candidate>>,
        /// Its unusable ones.
        rejected: Vec<Rejected>,
        /// What tells it from a newer one.
        validators: Option<Validators>,
    },
}

/// What one way gave.
pub(super) enum By {
    /// It was not asked in this run.
    NotAsked,
    /// A list.
    List(Fetched),
    /// The provider answered, and gave none.
    Refused(Reason),
    /// Nobody answered.
    Silent(String),
}

impl Turn<'_> {
    /// Asks for the list: by the way that the pool's state allows.
    pub(super) fn fetch(&mut self) -> Fetched {
        if self.policy.provider.is_local() {
            return match self.by(None) {
                By::NotAsked => self.ask_by(None),
                By::List(list) => list,
                By::Refused(reason) => Fetched::Nothing(reason),
                By::Silent(why) => Fetched::Nothing(Reason::ProviderUnavailable { why }),
            };
        }
        if self.state.mode.is_direct() || !self.state.proven {
            self.fetch_by_bootstrap()
        } else {
            self.fetch_in_service()
        }
    }

    /// By the WAN, unless the policy forbids it, then by each serving slot, then by the standby.
    fn fetch_in_service(&mut self) -> Fetched {
        let mut latest = "no way to the provider is left".to_owned();
        let mut is_mending = false;
        for via in self.ways_in_service() {
            if self.state.ways_failed.contains(&via.device) {
                continue;
            }
            if self.is_unjudged(&via.device) {
                is_mending = true;
                continue;
            }
            if self.policy.standby() == Some(&via.device) {
                if is_mending {
                    break;
                }
                match self.standby_readiness() {
                    Readiness::Now => {}
                    Readiness::Soon => return self.wait_for_standby(),
                    Readiness::No(why) => {
                        latest = format!("by {}: {why}", via.device);
                        continue;
                    }
                }
            }
            match self.by(Some(&via)) {
                By::NotAsked => return self.ask_by(Some(via)),
                By::List(list) => return list,
                By::Refused(reason) => return Fetched::Nothing(reason),
                By::Silent(why) => {
                    latest = format!("by {}: {why}", via.device);
                    // A slow way is not walked again by the step that carries on.
                    self.counted.ways_failed.insert(via.device.clone());
                    self.state.ways_failed.insert(via.device);
                }
            }
        }
        if is_mending {
            return Fetched::Pending;
        }
        Fetched::Nothing(Reason::ProviderUnavailable { why: latest })
    }

    fn ways_in_service(&self) -> Vec<ListVia> {
        let wan = (!self.policy.provider.needs_tunnel()).then(|| self.via(&Transport::Wan));
        let slots = self.serving().into_iter().map(Transport::Slot);
        let standby = self.policy.standby().cloned().map(Transport::Standby);
        wan.into_iter().chain(slots.chain(standby).map(|tunnel| self.via(&tunnel))).collect()
    }

    /// The device and the mark of a way.
    pub(super) fn via(&self, transport: &Transport) -> ListVia {
        match transport {
            Transport::Wan => ListVia { device: self.surroundings.wan.clone(), mark: None },
            Transport::Standby(interface) => {
                ListVia { device: interface.clone(), mark: Some(self.policy.standby_mark()) }
            }
            Transport::Slot(slot) => ListVia {
                device: slot.clone(),
                mark: self.policy.index_of(slot).map(|index| self.policy.mark(index)),
            },
        }
    }

    /// What a way gave in this run.
    pub(super) fn by(&mut self, via: Option<&ListVia>) -> By {
        let reading = self
            .seen
            .lists()
            .find(|(question, _)| question.via.as_ref() == via)
            .map(|(_, reading)| reading.clone());
        match reading {
            None => By::NotAsked,
            Some(ListReading::Listed { candidates, rejected, validators }) => {
                By::List(Fetched::List { candidates, rejected, validators })
            }
            // The same list came once more: its entries, from the files that are there already.
            Some(ListReading::Unchanged) => match self.state.pool.clone() {
                Some(List { generation, candidates, left_out, validators, .. }) => {
                    self.say(Reason::ListUnchanged { generation });
                    By::List(Fetched::List { candidates, rejected: left_out, validators })
                }
                None => By::Silent("the list is unchanged, and there is none".to_owned()),
            },
            Some(ListReading::Unavailable { why, answered: true, retry_after_sec }) => {
                self.refused(retry_after_sec);
                By::Refused(Reason::ProviderUnavailable { why })
            }
            Some(ListReading::Unavailable { why, answered: false, .. }) => By::Silent(why),
        }
    }

    /// Asks by a way, if there is time.
    pub(super) fn ask_by(&mut self, via: Option<ListVia>) -> Fetched {
        let (tested, passed, listed) = (0, 0, 0);
        self.say(Reason::Testing { tested, passed, listed });
        if via.as_ref().is_some_and(|via| self.policy.standby() == Some(&via.device)) {
            self.standby = Need::Fetch;
        }
        if !self.may_ask {
            return Fetched::Pending;
        }
        let provider = self.policy.provider.clone();
        let names = provider
            .hosts()
            .into_iter()
            .filter_map(|host| Some((host.clone(), self.state.names.get(&host)?.clone())))
            .collect();
        let pool = self.state.pool.as_ref();
        self.asks.push(Question::List(Box::new(ListQuestion {
            provider,
            wanted: self.policy.candidates.clone(),
            generation: self.state.last_generation.saturating_add(1),
            amnezia: match self.policy.wireguard.tool {
                Tool::Awg => true,
                Tool::Wg => false,
            },
            via,
            names,
            known: pool
                .filter(|pool| !pool.candidates.is_empty())
                .and_then(|pool| pool.validators.clone()),
            have: pool.map(|pool| Arc::clone(&pool.candidates)).unwrap_or_default(),
        })));
        Fetched::Pending
    }

    /// The provider answered and gave no list: it is left alone for longer each time, and for as long
    /// as it wished.
    fn refused(&mut self, retry_after_sec: Option<u64>) {
        let base = self.policy.params.hmn_refresh_retry_interval_sec;
        let wait = base.saturating_mul(1 << self.state.refusals.min(DOUBLINGS));
        let wait = wait.saturating_add(jitter(self.now, wait / 10));
        let wait = wait.max(retry_after_sec.unwrap_or(0));
        for state in [&mut self.state, &mut self.counted] {
            state.refusals = state.refusals.saturating_add(1);
            state.refusal_wait_sec = Some(wait);
        }
    }

    /// Whether a way still answers.
    pub(super) fn answers(&self, slot: &Interface) -> bool {
        matches!(self.sight.health.get(slot), Some(super::health::Health::Healthy { .. }))
    }

    /// Whether nothing can be said of a slot for now, as while it is being mended: neither what it
    /// carries nor what it does not.
    pub(super) fn is_unjudged(&self, slot: &Interface) -> bool {
        matches!(self.sight.health.get(slot), Some(super::health::Health::Unknown(_)))
            && self.state.slots.get(slot).is_some_and(|slot| slot.unknown < UNKNOWN_STEPS)
    }

    /// How long the provider wishes to be left alone, if it refused.
    pub(super) fn refusal_wait(&self) -> Option<Duration> {
        self.state.refusal_wait_sec.map(Duration::from_secs)
    }
}

/// From 0 to `most`, another at each moment, so that many gateways do not come back at once. It is
/// taken from the clock's milliseconds, because the core has no other chance.
fn jitter(now: &Moment, most: u64) -> u64 {
    let spread = now.up_ms.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    spread.checked_rem(most.saturating_add(1)).unwrap_or(0)
}
