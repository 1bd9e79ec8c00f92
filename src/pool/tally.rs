//! Counting: what was seen of every slot becomes what is remembered of it.
//!
//! **Invariant:** a step counts each slot once, and nothing at all while the WAN is down.

use super::health::Health;
use super::patience::{check, smoothed_ms};
use super::reason::Reason;
use super::state::{Slot, Verdict};
use super::turn::Turn;
use crate::observation::Asker;
use std::time::Duration;

impl Turn<'_> {
    pub(super) fn remember_counters(&mut self) {
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
            let check = check(self.seen, &interface);
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
                    if let Some(latency_ms) = latency_ms {
                        let sample_ms = latency_ms.saturating_add(check.waited_ms);
                        slot.smoothed_ms = Some(smoothed_ms(slot.smoothed_ms, sample_ms));
                    }
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
                            continue;
                        }
                    }
                    let (passed, failed) = (slot.retests_passed, slot.retests_failed);
                    self.reasons.push(Reason::Retesting { slot: interface, passed, failed });
                }
                Health::Failed(failure) => {
                    slot.verdict = Verdict::Failed;
                    slot.why = failure.describe();
                    slot.unknown = 0;
                    slot.failures = slot.failures.saturating_add(1).saturating_add(check.repeated);
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
                    slot.why.clone_from(&why);
                    slot.unknown = slot.unknown.saturating_add(1);
                    self.reasons.push(Reason::Undetermined { slot: interface, why });
                }
            }
        }
        self.note_whether_any_serves();
        self.counted = self.state.clone();
    }

    /// Since when no slot serves, less the time in which nothing could be said of any.
    fn note_whether_any_serves(&mut self) {
        if !self.state.proven || self.state.mode.is_direct() || !self.serving().is_empty() {
            self.state.none_serves_since = None;
            self.state.none_serves_seen = None;
        } else if self.state.none_serves_since.is_none() {
            self.state.none_serves_since = Some(self.now.clone());
            self.state.none_serves_seen = Some(self.now.clone());
        } else if self.all_unknown() {
            self.state.stand_still(self.now);
        } else {
            self.state.none_serves_seen = Some(self.now.clone());
        }
    }

    /// Whether something is loaded and nothing could be said of any of it.
    pub(super) fn all_unknown(&self) -> bool {
        let mut loaded =
            self.state.slots.values().filter(|slot| slot.loaded().is_some()).peekable();
        loaded.peek().is_some() && loaded.all(|slot| slot.verdict == Verdict::Unknown)
    }
}
