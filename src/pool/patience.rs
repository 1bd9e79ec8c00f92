//! How long a check waits for a slot, and when it is repeated before it counts.
//!
//! A policy that repeats failed checks (`probe.confirm`) need not wait for the whole of `timeout_sec` before
//! it does: a tunnel that has answered in 20 ms and from which nothing at all comes for ten times as long is
//! asked again, and dead if it is silent again. One from which anything comes keeps its whole time.
//!
//! **Invariant:** without `probe.confirm` a check has its whole time and is asked once.

use super::ask;
use super::assess::{Assessment, WanVerdict};
use super::health::{Failure, Health};
use super::state::Slot;
use super::turn::Turn;
use crate::names::Interface;
use crate::observation::{
    Asker, Counters, Observation, Pages, PagesReading, Patience, Question, Reading,
};
use crate::policy::PoolPolicy;

/// Shorter than this a busy machine or a lost packet looks like silence.
const LEAST_SILENT_MS: u64 = 200;

/// Silence is told from slowness by this factor: a queue that fills up makes a path several times as slow.
const TIMES: u64 = 6;

/// Between a failed check and its repetition. A silence has been waited for already; this is for what was
/// refused at once.
const PAUSE_MS: u64 = 20;

/// The smoothed latency after one more sample, in milliseconds. It follows what is slower at once and what is
/// faster slowly, so that a path that loses packets is soon waited for as long as it takes to send them again.
pub(super) fn smoothed_ms(before: Option<u64>, sample_ms: u64) -> u64 {
    match before {
        None => sample_ms,
        Some(before) if sample_ms > before => before + (sample_ms - before).div_ceil(2),
        Some(before) => before - (before - sample_ms) / 8,
    }
}

/// How long a slot's silence is waited for; `None`: the whole time.
pub(super) fn patience(
    policy: &PoolPolicy,
    slot: &Slot,
    now: Option<&Counters>,
) -> Option<Patience> {
    if policy.probe.confirm == 0 {
        return None;
    }
    let whole_ms = policy.probe.timeout_sec.saturating_mul(1_000);
    let silent_ms = slot
        .smoothed_ms?
        .saturating_mul(TIMES)
        .clamp(LEAST_SILENT_MS, whole_ms.max(LEAST_SILENT_MS));
    let unanswered_ms = silent_ms / 2;
    let pages = u64::try_from(policy.probe.urls.len()).unwrap_or(u64::MAX).max(1);
    let beside = u64::from(policy.probe.large.is_some()) + u64::from(policy.exit_ip.is_some());
    Some(Patience {
        // The last page, too, has half of the shorter time.
        next_page_ms: unanswered_ms / pages,
        unanswered_ms,
        silent_ms: if is_unanswered(slot, now) { unanswered_ms } else { silent_ms },
        // Each request begins with one packet, and goes on when that is answered.
        own_packets: pages.saturating_add(beside),
    })
}

/// Whether a tunnel has sent since the last step and received nothing.
fn is_unanswered(slot: &Slot, now: Option<&Counters>) -> bool {
    now.is_some_and(|now| now.tx > slot.counters.tx && now.rx == slot.counters.rx)
}

/// The check of one slot in this run, repetitions included.
pub(super) struct Check<'a> {
    /// The one that decides: the first that passed, or else the last.
    pub(super) decides: Option<(&'a Pages, &'a PagesReading)>,
    /// How often it was repeated.
    pub(super) repeated: u32,
    /// How long those before the deciding one were waited for.
    pub(super) waited_ms: u64,
}

/// What was asked through a slot whether it works.
pub(super) fn check<'a>(seen: &'a Observation, interface: &Interface) -> Check<'a> {
    let first = seen.pages(&Asker::Slot(interface.clone())).first().copied();
    let again = seen.pages(&Asker::SlotAgain(interface.clone()));
    let (mut decides, mut repeated, mut waited_ms) = (first, 0, 0_u64);
    for repetition in again {
        let Some((before, reading)) = decides else { break };
        if reading.passes(before) {
            break;
        }
        let patience_ms = before.patience.map(|patience| patience.silent_ms);
        waited_ms = waited_ms.saturating_add(patience_ms.unwrap_or(before.timeout_ms));
        repeated += 1;
        decides = Some(repetition);
    }
    Check { decides, repeated, waited_ms }
}

impl Turn<'_> {
    /// What is still to be asked of slots whose check has failed and that carry clients: first for a pause,
    /// then for the check once more.
    pub(super) fn to_confirm(&self) -> Vec<Question> {
        if self.state.retired || self.state.settle || self.sight.wan == WanVerdict::Down {
            return Vec::new();
        }
        let repeated = |interface: &Interface| check(self.seen, interface).repeated;
        let doubted: Vec<&Interface> = self
            .slots()
            .iter()
            .filter(|slot| self.state.serves(slot) && fails(self.sight, slot))
            .filter(|slot| repeated(slot) < self.policy.probe.confirm)
            .collect();
        let Some(turn) = doubted.iter().map(|slot| repeated(slot)).max() else { return Vec::new() };
        let pause = Question::Wait { turn, millis: PAUSE_MS };
        if !matches!(self.seen.readings.get(&pause), Some(Reading::Waited)) {
            return vec![pause];
        }
        let again = doubted.into_iter().filter_map(|slot| {
            let patience = patience(self.policy, self.state.slots.get(slot)?, None);
            let pages = ask::again(self.policy, &self.state, slot, turn);
            Some(Question::Pages(Pages { patience, ..pages }))
        });
        again.collect()
    }
}

/// Whether a slot's own check failed in a way that may be chance.
fn fails(sight: &Assessment<'_>, interface: &Interface) -> bool {
    match sight.health.get(interface) {
        Some(Health::Failed(Failure::Silent | Failure::WrongAnswer(_))) => true,
        Some(
            Health::Failed(Failure::Mtu | Failure::WanAddress)
            | Health::Healthy { .. }
            | Health::Unknown(_),
        )
        | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{patience, smoothed_ms};
    use crate::observation::Counters;
    use crate::policy::{Policy, PoolPolicy};
    use crate::pool::state::{Content, Slot};
    use crate::time::Moment;

    fn policy(confirm: u32) -> PoolPolicy {
        let text = format!(
            r#"{{"kind": "pool", "slots": {{"interfaces": ["vpn1"]}}, "clients": ["10.77.0.11"],
                "provider": {{"directory": {{"path": "/e"}}}}, "probe": {{"confirm": {confirm}}}}}"#
        );
        let Policy::Pool(policy) = Policy::parse(&text).unwrap() else { panic!("a pool") };
        *policy
    }

    fn slot(smoothed_ms: Option<u64>) -> Slot {
        let counters = Counters { rx: 1_000, tx: 1_000, handshake: 0 };
        Slot { smoothed_ms, counters, ..Slot::new(Content::Empty, &Moment::epoch()) }
    }

    #[test]
    fn silence_is_waited_for_by_what_the_slot_usually_takes() {
        let silent = |confirm, usual, rx, tx| {
            let now = Counters { rx, tx, handshake: 0 };
            let patience = patience(&policy(confirm), &slot(usual), Some(&now));
            patience.map(|patience| (patience.unanswered_ms, patience.silent_ms))
        };
        let same = 1_000;
        assert_eq!(silent(0, Some(20), same, same), None, "no check is repeated");
        assert_eq!(silent(1, None, same, same), None, "nobody knows what is usual");
        assert_eq!(silent(1, Some(5), same, same), Some((100, 200)), "the least");
        assert_eq!(silent(1, Some(100), same, same), Some((300, 600)));
        assert_eq!(silent(1, Some(3_000), same, same), Some((2_500, 5_000)), "timeout_sec");
        // Since the last step it has sent and received nothing.
        assert_eq!(silent(1, Some(100), same, 1_001), Some((300, 300)));
        assert_eq!(silent(1, Some(100), 1_001, 1_001), Some((300, 600)));
    }

    #[test]
    fn what_is_slower_is_followed_at_once_and_what_is_faster_slowly() {
        assert_eq!(smoothed_ms(None, 20), 20);
        assert_eq!(smoothed_ms(Some(20), 220), 120);
        assert_eq!(smoothed_ms(Some(120), 20), 108);
        assert_eq!(smoothed_ms(Some(20), 21), 21);
        assert_eq!(smoothed_ms(Some(20), 20), 20);
        // A path that loses every other check is waited for as long as its packets need to be sent again.
        let mut latency = 5;
        for _ in 0..4 {
            latency = smoothed_ms(Some(latency), latency.saturating_mul(6).max(200) + 5);
        }
        assert!(latency * 6 > 3_000, "{latency} ms");
    }
}
