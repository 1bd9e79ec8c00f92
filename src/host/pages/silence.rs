//! A device by which nothing has come in since it was asked.
//!
//! **Invariant:** counters that cannot be read are no silence.

use crate::host::carried::{self, Packets};
use crate::names::Interface;
use crate::observation::{Pages, Patience, Silence, Way};
use std::time::{Duration, Instant};

/// What is watched.
pub(super) struct Watch<'a> {
    device: &'a Interface,
    patience: Patience,
    began: Instant,
    before: Packets,
}

impl<'a> Watch<'a> {
    /// `None`: the question wants no such thing, or the device's counters cannot be read.
    pub(super) fn begin(question: &'a Pages, now: Instant) -> Option<Self> {
        let Way::Device { device, .. } = &question.way else { return None };
        let (patience, before) = (question.patience?, carried::packets(device)?);
        Some(Self { device, patience, began: now, before })
    }

    /// When the next look may say something else; never, once it has said all.
    pub(super) fn next(&self, now: Instant) -> Instant {
        let at = |millis| self.began + Duration::from_millis(millis);
        let sooner = at(self.patience.unanswered_ms);
        if sooner > now { sooner } else { at(self.patience.silent_ms) }
    }

    pub(super) fn judge(&self, now: Instant) -> Silence {
        let waited = now.saturating_duration_since(self.began);
        if waited < Duration::from_millis(self.patience.unanswered_ms) {
            return Silence::Lasts;
        }
        // Counters that cannot be read any more say nothing, and the pages have their whole time.
        let Some(packets) = carried::packets(self.device) else { return Silence::Broken };
        self.patience.judge(
            u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            packets.sent.saturating_sub(self.before.sent),
            packets.received.saturating_sub(self.before.received),
        )
    }
}
