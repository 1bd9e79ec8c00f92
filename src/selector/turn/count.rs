//! What a check adds to what is counted.
//!
//! **Invariant:** a check that does not count, and a channel of which nothing can be said, add to no
//! failing time and clear none.

use super::Turn;
use crate::policy::selector::Channel;
use crate::selector::reason::Reason;
use crate::selector::state::Verdict;
use crate::time::Moment;
use std::time::Duration;

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Turn<'_> {
    /// Counts the check.
    pub(super) fn count(&mut self) {
        // A check is made when it begins: how long it is asked again afterwards is no gap.
        let now = self.seen.started.clone();
        let interval = self.params().interval();
        let settles = std::mem::take(&mut self.state.settle);
        let none = Channel::ALL.into_iter().all(|channel| !self.is_healthy(channel));
        self.counts = !settles && !none;
        if settles {
            self.say(Reason::Settling);
        }
        let since = self.state.checked_at.replace(now.clone()).map(|before| now.since(&before));
        if self.counts {
            let more = since.map_or(0, |since| ms(since.min(interval)));
            for (channel, needed) in [(Channel::Primary, 2), (Channel::Reserve, 1)] {
                let other_is_well = self.is_healthy(channel.other());
                let known = self.state.channel_mut(channel);
                match known.verdict {
                    Verdict::Healthy => {
                        known.healthy_row = known.healthy_row.saturating_add(1).min(needed);
                        if known.healthy_row >= needed {
                            known.failing_ms = None;
                            known.held_since = None;
                        }
                    }
                    Verdict::Unhealthy => {
                        known.healthy_row = 0;
                        if other_is_well {
                            known.failing_ms =
                                Some(known.failing_ms.map_or(0, |ms| ms.saturating_add(more)));
                        }
                    }
                    Verdict::Unknown => {}
                }
            }
        }
        let gap = since.is_none_or(|since| since > interval * 3);
        if !self.counts || !self.is_healthy(Channel::Primary) {
            self.state.recovery_since = None;
        } else if gap || self.state.recovery_since.is_none() {
            self.state.recovery_since = Some(now.clone());
        }
        let window = Duration::from_secs(self.params().flap_window_sec);
        self.state.failovers.retain(|moved| now.since(moved) < window);
        self.state.waits = false;
    }

    /// The quarantine's end, while it runs.
    pub(super) fn quarantined_until(&self) -> Option<Moment> {
        let quarantine = Duration::from_secs(self.params().quarantine_sec);
        let began = self.state.quarantined_at.as_ref()?;
        (self.now.since(began) < quarantine).then(|| began.after(quarantine))
    }

    pub(super) fn failure_window(&self) -> Duration {
        Duration::from_secs(self.params().failure_window_sec)
    }

    pub(super) fn is_ripe(&self, channel: Channel) -> bool {
        self.state.channel(channel).is_ripe(self.failure_window())
    }
}
