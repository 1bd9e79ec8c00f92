//! One step of the plan while it is being thought through.
//!
//! **Invariant:** a turn begins with what was remembered, counts what was seen exactly once, and
//! ends as one decision.

use super::assess::Assessment;
use super::candidate::{Candidate, List};
use super::future;
use super::layout;
use super::reason::Reason;
use super::standby::Need;
use super::state::{Content, Egress, Mode, PoolState, Quarantined, Slot, Surroundings, Verdict};
use super::surroundings::has_moved;
use crate::machine::{Decision, Future, Subject};
use crate::names::{Interface, PolicyName};
use crate::observation::{Asker, Observation, Question};
use crate::plan::Check;
use crate::policy::{ClientKey, PoolPolicy};
use crate::time::Moment;
use std::collections::BTreeSet;
use std::time::Duration;

/// Where an interval of 0 is a measure of time, it counts as this.
pub(super) const ZERO_INTERVAL: Duration = Duration::from_secs(10);

/// One step while it is being thought through.
pub(super) struct Turn<'a> {
    pub(super) policy: &'a PoolPolicy,
    pub(super) name: &'a PolicyName,
    pub(super) seen: &'a Observation,
    pub(super) sight: &'a Assessment<'a>,
    pub(super) surroundings: &'a Surroundings,
    pub(super) now: &'a Moment,
    pub(super) may_ask: bool,
    /// What was remembered; `None` on the first run.
    old: Option<&'a PoolState>,
    /// What was remembered, with what was found out about the machine.
    begun: PoolState,
    /// The same with what was counted and tested: what stays when a change is taken back.
    pub(super) counted: PoolState,
    /// What will be remembered.
    pub(super) state: PoolState,
    /// Whether the uplink is down, so that nobody is placed anew.
    held: bool,
    /// Whether a person said where clients are.
    pub(super) by_hand: bool,
    /// What the standby is needed for.
    pub(super) standby: Need,
    /// Slots that stopped serving in this step.
    pub(super) stopped: Vec<Interface>,
    /// Slots whose content is new and must carry a request.
    pub(super) loaded: Vec<Interface>,
    pub(super) reasons: Vec<Reason>,
    pub(super) asks: Vec<Question>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(
        subject: &Subject<'a, super::Pool>,
        seen: &'a Observation,
        sight: &'a Assessment<'a>,
        surroundings: &'a Surroundings,
        now: &'a Moment,
        may_ask: bool,
    ) -> Self {
        let mut state = subject.state.cloned().unwrap_or_else(|| PoolState::new(now));
        state.surroundings = Some(surroundings.clone());
        for (name, addresses) in seen.names() {
            if let Ok(addresses) = addresses
                && !addresses.is_empty()
            {
                state.names.insert(name.to_owned(), addresses.clone());
            }
        }
        for interface in &subject.policy.slots.interfaces {
            state.slots.entry(interface.clone()).or_insert_with(|| Slot::new(Content::Empty, now));
        }
        state.slots.retain(|interface, _| subject.policy.slots.interfaces.contains(interface));
        if let (Some(sight), Some(wished)) = (&sight.standby, &subject.policy.bootstrap.wireguard) {
            state.standby = Some(sight.begin(state.standby.take(), wished.keep, now));
        }
        Self {
            policy: subject.policy,
            name: subject.name,
            seen,
            sight,
            surroundings,
            now,
            may_ask,
            old: subject.state,
            begun: state.clone(),
            counted: state.clone(),
            state,
            held: false,
            by_hand: false,
            standby: Need::Nothing,
            stopped: Vec::new(),
            loaded: Vec::new(),
            reasons: Vec::new(),
            asks: Vec::new(),
        }
    }

    /// The slots in the order of the policy.
    pub(super) fn slots(&self) -> &'a [Interface] {
        &self.policy.slots.interfaces
    }

    /// Slots that carry clients.
    pub(super) fn serving(&self) -> Vec<Interface> {
        self.slots().iter().filter(|slot| self.state.serves(slot)).cloned().collect()
    }

    /// Interfaces that candidates may be tried on: those of the policy that are not a stranger's.
    pub(super) fn test_interfaces(&self) -> Vec<Interface> {
        let mut interfaces = self.policy.test.interfaces();
        interfaces.retain(|interface| !self.sight.kernel.strangers.contains(interface));
        interfaces
    }

    /// Whether any slot is failed or empty.
    pub(super) fn any_failed_or_empty(&self) -> bool {
        self.slots().iter().any(|slot| !self.state.serves(slot))
    }

    pub(super) fn say(&mut self, reason: Reason) {
        self.reasons.push(reason);
    }

    pub(super) fn enter(&mut self, mode: Mode) {
        if self.state.mode != mode {
            self.state.mode = mode;
            self.state.since = self.now.clone();
        }
    }

    /// The WAN is down: nothing is counted, and the next step only looks.
    pub(super) fn hold(&mut self) {
        hold(&mut self.state, self.now);
        self.counted = self.state.clone();
        self.held = true;
        self.say(Reason::WanDown);
    }

    /// The first step after that only looks.
    pub(super) fn settle(&mut self) {
        self.state.settle = false;
        self.state.stand_still(self.now);
        if self.state.standby.as_ref().is_some_and(|standby| standby.up) {
            self.standby = Need::Fetch;
        }
        self.remember_counters();
        self.counted = self.state.clone();
        self.say(Reason::Settling);
    }

    /// Fills a slot with an endpoint; the one that it replaces is quarantined.
    pub(super) fn load(&mut self, interface: &Interface, candidate: &Candidate, quarantine: bool) {
        if quarantine {
            self.quarantine(interface, Some(candidate));
        }
        let mut slot = Slot::new(Content::Loaded(candidate.clone()), self.now);
        slot.counters = self.sight.kernel.counters.get(interface).copied().unwrap_or_default();
        self.state.slots.insert(interface.clone(), slot);
        self.loaded.push(interface.clone());
    }

    /// Quarantines what is in a slot, and what was in it before candidates failed in its place,
    /// unless that is what is put there again, or it has found another slot.
    pub(super) fn quarantine(&mut self, interface: &Interface, again: Option<&Candidate>) {
        let Some(slot) = self.state.slots.get(interface) else { return };
        let why = if slot.why.is_empty() { "failed".to_owned() } else { slot.why.clone() };
        let endpoints: Vec<Candidate> =
            slot.candidate().into_iter().chain(&slot.replaced).cloned().collect();
        for candidate in endpoints {
            if again.is_some_and(|again| again.endpoint() == candidate.endpoint())
                || self.state.is_elsewhere(interface, &candidate)
            {
                continue;
            }
            quarantine(&mut self.state, &candidate, &why, self.now);
            self.reasons.push(Reason::QuarantinedEndpoint {
                slot: interface.clone(),
                name: candidate.name,
                why: why.clone(),
            });
        }
    }

    pub(super) fn empty(&mut self, interface: &Interface) {
        self.state.slots.insert(interface.clone(), Slot::new(Content::Empty, self.now));
    }

    /// Remembers how far a list has come, also for when the change is taken back: what a test
    /// showed stays true.
    pub(super) fn keep_progress(&mut self, list: List) {
        self.counted.last_generation = self.state.last_generation;
        self.counted.fresh = Some(list.clone());
        self.state.fresh = Some(list);
    }

    /// Whether a moment lies less than `wait` back.
    pub(super) fn within(&self, since: &Moment, wait: Duration) -> bool {
        self.now.since(since) < wait
    }

    /// Testing takes at most the time until the next check is due, and one batch at least.
    pub(super) fn time_left(&self) -> bool {
        let interval = match self.policy.params.health_check_interval_sec {
            0 => ZERO_INTERVAL,
            seconds => Duration::from_secs(seconds),
        };
        let spent = self.now.since(&self.seen.started);
        self.seen.trials().next().is_none() || spent < interval
    }

    /// Makes the decision that this turn amounts to.
    pub(super) fn finish(mut self, mut references: Vec<Question>) -> Decision<PoolState> {
        if !self.held && !self.by_hand {
            future::replace_clients(self.policy, &mut self.state);
        }
        if self.reasons.is_empty() {
            let (serving, slots) = (self.serving().len(), self.slots().len());
            let all = serving == slots;
            self.say(if all { Reason::AllServe } else { Reason::FewerSlots { serving, slots } });
        }
        if !self.held {
            self.settle_standby();
        }
        let before = self.old.map(|old| &old.egress);
        let moved: Vec<(&ClientKey, &Egress)> = self
            .state
            .egress
            .iter()
            .filter(|(client, egress)| before.and_then(|b| b.get(client)) != Some(egress))
            .collect();
        let to: BTreeSet<Interface> = moved
            .iter()
            .filter_map(|(_, egress)| match egress {
                Egress::Slot(slot) => Some(slot.clone()),
                Egress::Direct | Egress::None => None,
            })
            .collect();
        if !to.is_empty() {
            let to = self.slots().iter().filter(|slot| to.contains(slot)).cloned().collect();
            let clients = moved.len();
            self.reasons.push(Reason::Moved { clients, to });
        }
        let mut checks = Vec::new();
        for interface in &self.loaded {
            if let Some(ask) = super::ask::verification(self.policy, &self.state, interface) {
                let params = &self.policy.params;
                let lent = self
                    .state
                    .slots
                    .get(interface)
                    .is_some_and(|slot| matches!(slot.content, Content::Lent(_)));
                let attempts = if lent {
                    params.bootstrap_candidate_retry_count.max(1)
                } else {
                    params.candidate_test_retries.saturating_add(1)
                };
                checks.extend(future::outside_check(self.policy, &self.state, interface));
                checks.push(Check::Answer { interface: interface.clone(), ask, attempts });
            }
        }
        let touched = future::Touched { moved: &moved, loaded: &self.loaded };
        checks.extend(future::route_checks(
            self.policy,
            self.surroundings,
            &self.sight.kernel.links,
            &self.state,
            &touched,
        ));
        let from = self.old.map(|old| old.mode.as_str().to_owned());
        let cuts = future::cuts(self.policy, self.old, &self.state);
        let mut held = self.begun;
        hold(&mut held, self.now);
        let standing =
            self.old.map(|old| layout::world(self.policy, self.name, old, self.surroundings));
        let wished =
            future::future(self.policy, self.name, self.state, self.surroundings, &self.reasons);
        let mut wished = Future { cuts, ..wished };
        let known = self.old.and_then(|old| old.surroundings.as_ref());
        if has_moved(known, self.surroundings) {
            wished.world.aims = wished.world.tunnels.keys().cloned().collect();
        }
        // What is to be proven is no witness.
        let is_loaded = |question: &Question| {
            let Question::Pages(pages) = question else { return false };
            matches!(&pages.asker, Asker::Slot(slot) if self.loaded.contains(slot))
        };
        references.retain(|question| !is_loaded(question));
        Decision { from, standing, wished, checks, undone: self.counted, held, references }
    }
}

/// What an uplink that is down leaves of what was counted.
fn hold(state: &mut PoolState, now: &Moment) {
    state.settle = true;
    state.stand_still(now);
    for slot in state.slots.values_mut() {
        slot.verdict = Verdict::Unknown;
        "the WAN is down".clone_into(&mut slot.why);
        if slot.failed {
            slot.retests_failed = 0;
            slot.retests_passed = 0;
        } else {
            slot.failures = 0;
        }
    }
}

/// Quarantines one endpoint.
pub(super) fn quarantine(state: &mut PoolState, candidate: &Candidate, why: &str, now: &Moment) {
    state.quarantine.entry(candidate.endpoint()).or_insert_with(|| Quarantined {
        name: candidate.name.clone(),
        since: now.clone(),
        why: why.to_owned(),
    });
}
