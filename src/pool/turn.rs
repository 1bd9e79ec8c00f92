//! One step of the plan while it is being thought through.
//!
//! **Invariant:** a turn begins with what was remembered, counts what was seen exactly once, and
//! ends as one decision.

use super::assess::Assessment;
use super::candidate::Candidate;
use super::health::Health;
use super::layout;
use super::placement;
use super::reason::Reason;
use super::state::{Content, Egress, Mode, PoolState, Quarantined, Slot, Surroundings, Verdict};
use crate::machine::{Cut, Decision, Future, ReasonText, Subject};
use crate::names::{Interface, PolicyName};
use crate::observation::{Asker, Observation, Question};
use crate::plan::{Check, RouteQuery};
use crate::policy::pool::Cut as CutPolicy;
use crate::policy::{ClientKey, PoolPolicy};
use crate::time::Moment;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// A slot of which nothing could be said for so many steps hosts no client while another serves.
const UNKNOWN_STEPS: u32 = 10;
/// At most so many moved clients are checked by asking the kernel.
const CHECKED_CLIENTS: usize = 64;
/// An address that is nobody's (RFC 5737), asked for in route checks.
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

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
    /// What was remembered with what was counted.
    counted: PoolState,
    /// What will be remembered.
    pub(super) state: PoolState,
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
        Self {
            policy: subject.policy,
            name: subject.name,
            seen,
            sight,
            surroundings,
            now,
            may_ask,
            old: subject.state,
            counted: state.clone(),
            state,
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
        self.state.settle = true;
        for slot in self.state.slots.values_mut() {
            slot.verdict = Verdict::Unknown;
            "the WAN is down".clone_into(&mut slot.why);
            if slot.failed {
                slot.retests_failed = 0;
                slot.retests_passed = 0;
            } else {
                slot.failures = 0;
            }
        }
        self.counted = self.state.clone();
        self.say(Reason::WanDown);
    }

    /// The first step after that only looks.
    pub(super) fn settle(&mut self) {
        self.state.settle = false;
        self.remember_counters();
        self.counted = self.state.clone();
        self.say(Reason::Settling);
    }

    fn remember_counters(&mut self) {
        for (interface, slot) in &mut self.state.slots {
            if let Some(counters) = self.sight.kernel.counters.get(interface) {
                slot.counters = *counters;
            }
            if let Some(exit) = self.sight.exits.get(interface) {
                slot.exit_ip = Some(*exit);
            }
            if !self.seen.pages(&Asker::SlotExit(interface.clone())).is_empty() {
                slot.exit_ip_at = Some(self.now.clone());
            }
        }
        if self.sight.wan_exit.is_some() {
            self.state.wan_exit_ip = self.sight.wan_exit;
        }
    }

    /// Counts what was seen of every slot.
    pub(super) fn count(&mut self) {
        self.remember_counters();
        let params = &self.policy.params;
        let reserve_left = !self.state.reserve().is_empty();
        let window = Duration::from_secs(params.flap_window_sec);
        for interface in self.policy.slots.interfaces.clone() {
            let Some(health) = self.sight.health.get(&interface).cloned() else { continue };
            let quarantined = self
                .state
                .slots
                .get(&interface)
                .and_then(Slot::loaded)
                .is_some_and(|candidate| self.state.is_quarantined(candidate));
            let Some(slot) = self.state.slots.get_mut(&interface) else { continue };
            match health {
                Health::Healthy { latency_ms, saturated } => {
                    slot.verdict = Verdict::Healthy;
                    slot.why.clear();
                    if saturated {
                        "busy: the probe timed out under traffic".clone_into(&mut slot.why);
                    }
                    slot.saturated = if saturated { slot.saturated.saturating_add(1) } else { 0 };
                    slot.latency_ms = latency_ms.or(slot.latency_ms);
                    slot.unknown = 0;
                    if !slot.failed {
                        slot.failures = 0;
                        continue;
                    }
                    slot.retests_failed = 0;
                    slot.retests_passed = slot.retests_passed.saturating_add(1);
                    if slot.retests_passed >= params.local_repair_retest_count.max(1)
                        && !quarantined
                    {
                        slot.false_alarms.retain(|at| self.now.since(at) <= window);
                        slot.false_alarms.push(self.now.clone());
                        if slot.false_alarms.len() >= params.flap_limit.max(1) && reserve_left {
                            slot.retests_failed = params.local_repair_retest_count;
                            "failing again and again".clone_into(&mut slot.why);
                        } else {
                            slot.failed = false;
                            slot.failures = 0;
                            slot.retests_passed = 0;
                            self.reasons.push(Reason::FalseAlarm { slot: interface });
                        }
                    }
                }
                Health::Failed(failure) => {
                    slot.verdict = Verdict::Failed;
                    slot.why = failure.describe();
                    slot.saturated = 0;
                    slot.unknown = 0;
                    slot.failures = slot.failures.saturating_add(1);
                    if slot.failed {
                        slot.retests_passed = 0;
                        slot.retests_failed = slot.retests_failed.saturating_add(1);
                        let (passed, failed) = (slot.retests_passed, slot.retests_failed);
                        self.reasons.push(Reason::Retesting { slot: interface, passed, failed });
                    } else if slot.failures >= params.health_failures_before_down {
                        slot.failed = true;
                        slot.retests_failed = 0;
                        slot.retests_passed = 0;
                        let (failures, why) = (slot.failures, slot.why.clone());
                        self.stopped.push(interface.clone());
                        self.reasons.push(Reason::StoppedServing {
                            slot: interface,
                            failures,
                            why,
                        });
                    } else {
                        let (failures, why) = (slot.failures, slot.why.clone());
                        self.reasons.push(Reason::CheckFailed { slot: interface, failures, why });
                    }
                }
                Health::Unknown(why) => {
                    slot.verdict = Verdict::Unknown;
                    slot.why = why;
                    slot.unknown = slot.unknown.saturating_add(1);
                }
            }
        }
        self.counted = self.state.clone();
    }

    /// Fills a slot with an endpoint; the one that it replaces is quarantined.
    pub(super) fn load(&mut self, interface: &Interface, candidate: &Candidate, quarantine: bool) {
        if quarantine {
            self.quarantine(interface);
        }
        let mut slot = Slot::new(Content::Loaded(candidate.clone()), self.now);
        slot.counters = self.sight.kernel.counters.get(interface).copied().unwrap_or_default();
        self.state.slots.insert(interface.clone(), slot);
        self.loaded.push(interface.clone());
    }

    /// Quarantines what is in a slot, and what was in it before candidates failed in its place.
    pub(super) fn quarantine(&mut self, interface: &Interface) {
        let Some(slot) = self.state.slots.get(interface) else { return };
        let why = if slot.why.is_empty() { "failed".to_owned() } else { slot.why.clone() };
        let endpoints: Vec<Candidate> =
            slot.candidate().into_iter().chain(&slot.replaced).cloned().collect();
        for candidate in endpoints {
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

    /// Makes the decision that this turn amounts to.
    pub(super) fn finish(mut self, reference: Option<Question>) -> Decision<PoolState> {
        replace_clients(self.policy, &mut self.state);
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
                let attempts = self.policy.params.candidate_test_retries.saturating_add(1);
                checks.push(Check::Answer { interface: interface.clone(), ask, attempts });
            }
        }
        checks.extend(route_checks(self.policy, self.surroundings, self.sight, &moved));
        let from = self.old.map(|old| old.mode.as_str().to_owned());
        let cuts = cuts(self.policy, self.old, &self.state);
        let mut undone = self.counted.clone();
        let mut held = self.old.cloned().unwrap_or_else(|| self.counted.clone());
        held.settle = true;
        // A plan that was undone has made nobody's home; what was learned about names stays.
        undone.names.clone_from(&self.state.names);
        let standing =
            self.old.map(|old| layout::world(self.policy, self.name, old, self.surroundings));
        let wished = future(self.policy, self.name, self.state, self.surroundings, &self.reasons);
        Decision {
            from,
            standing,
            wished: Future { cuts, ..wished },
            checks,
            undone,
            held,
            reference,
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

/// Computes homes and places anew, where the plan lets clients be placed.
pub(super) fn replace_clients(policy: &PoolPolicy, state: &mut PoolState) {
    let clients = policy.client_keys();
    let slots = &policy.slots.interfaces;
    if !state.proven && policy.params.direct_failopen_enabled {
        state.egress.clear();
        return;
    }
    state.egress.retain(|client, _| clients.contains(client));
    if !state.proven {
        state.egress = clients.into_iter().map(|client| (client, Egress::None)).collect();
        return;
    }
    state.homes = placement::homes(&clients, slots, &state.homes);
    if state.mode.is_direct() {
        return;
    }
    let mut serving: Vec<Interface> =
        slots.iter().filter(|slot| state.serves(slot)).cloned().collect();
    let known =
        |slot: &Interface| state.slots.get(slot).is_some_and(|slot| slot.unknown < UNKNOWN_STEPS);
    if serving.iter().any(known) {
        serving.retain(known);
    }
    state.egress = placement::place(&clients, slots, &serving, &state.homes, &state.egress);
}

/// A future with everything that follows from its state.
pub(super) fn future(
    policy: &PoolPolicy,
    name: &PolicyName,
    state: PoolState,
    surroundings: &Surroundings,
    reasons: &[Reason],
) -> Future<PoolState> {
    let world = layout::world(policy, name, &state, surroundings);
    let barrier = (policy.routing.barrier && layout::holds_clients(policy, &state))
        .then(|| layout::nft_layout(policy, name, &state, surroundings).at_boot().render());
    Future {
        to: state.mode.as_str().to_owned(),
        world,
        barrier,
        cuts: Vec::new(),
        generations: state.generations(),
        reasons: reasons.iter().map(ReasonText::from).collect(),
        state,
    }
}

/// Which open flows end with the change.
fn cuts(policy: &PoolPolicy, old: Option<&PoolState>, new: &PoolState) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let Some(old) = old.filter(|old| !old.egress.is_empty()) else {
        // First placement: flows from before carry no mark and would go on by the WAN.
        if !new.egress.is_empty() {
            cuts.extend(policy.client_prefixes().into_iter().map(|n| Cut::Unmarked(IpNet::V4(n))));
        }
        return cuts;
    };
    for (index, interface) in (0..).zip(&policy.slots.interfaces) {
        let hosts = |state: &PoolState| {
            state.egress.values().any(|egress| *egress == Egress::Slot(interface.clone()))
        };
        let stopped = !new.serves(interface) && hosts(old) && !hosts(new);
        if stopped && policy.routing.cut == CutPolicy::Dead {
            cuts.push(Cut::Marked(policy.mark(index)));
        }
    }
    let direct = |state: &PoolState| state.egress.values().any(|egress| *egress == Egress::Direct);
    if direct(old) && !direct(new) {
        cuts.push(Cut::Marked(policy.direct_mark()));
    }
    cuts
}

/// Asks the kernel where packets of moved clients go.
fn route_checks(
    policy: &PoolPolicy,
    surroundings: &Surroundings,
    sight: &Assessment<'_>,
    moved: &[(&ClientKey, &Egress)],
) -> Vec<Check> {
    let mut checks = Vec::new();
    // The kernel answers for a LAN that is up only; one that is down has no packets to send astray.
    let up = |lan: &&Interface| {
        sight.kernel.links.iter().any(|link| link.up && link.name == lan.as_str())
    };
    let lan = surroundings.lan.iter().find(up);
    // A neighbour in the WAN's own subnet is what a careless `lookup main` would leak to.
    let neighbour = surroundings.wan_net.and_then(|net| {
        let local = |host: &Ipv4Addr| surroundings.local4.iter().any(|net| net.contains(host));
        net.hosts().find(|host| *host != net.addr() && !local(host)).map(IpAddr::V4)
    });
    for (client, egress) in moved.iter().take(CHECKED_CLIENTS) {
        let device = match egress {
            Egress::Slot(slot) => slot.clone(),
            Egress::Direct | Egress::None => continue,
        };
        let Some(mark) = layout::mark_of(policy, egress) else { continue };
        let (from, uid) = match client {
            ClientKey::Prefix(IpNet::V4(net)) => {
                // Not the gateway's own address, for which the kernel refuses the question.
                let address =
                    net.hosts().map(IpAddr::V4).find(|address| !surroundings.own.contains(address));
                let Some((address, iif)) = address.zip(lan) else {
                    continue;
                };
                (Some((address, iif.clone())), None)
            }
            ClientKey::User(user) => match surroundings.users.get(user) {
                Some(uid) => (None, Some(*uid)),
                None => continue,
            },
            ClientKey::Bucket(..) | ClientKey::Prefix(IpNet::V6(_)) => continue,
        };
        for to in std::iter::once(FAR).chain(neighbour) {
            checks.push(Check::Route {
                client: (*client).clone(),
                query: RouteQuery { to, from: from.clone(), mark, uid },
                device: device.clone(),
            });
        }
    }
    checks
}
