//! Moments and the time between them, as values.
//!
//! A one-shot program has no clock of its own across runs. Within one boot the kernel's
//! `CLOCK_BOOTTIME` is right whatever somebody does to the wall clock; across boots only the wall
//! clock is left.
//!
//! **Invariant:** a clock that went backwards or leapt never shortens a window below what really
//! passed within a boot, and never makes an elapsed time negative.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// One moment, on both clocks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment {
    /// Wall clock, UTC.
    pub at: Timestamp,
    /// The kernel's boot id (`/proc/sys/kernel/random/boot_id`); which boot `up_ms` counts in.
    /// Shared, because every test of a long list has a moment.
    pub boot: Arc<str>,
    /// `CLOCK_BOOTTIME` in milliseconds.
    pub up_ms: u64,
}

impl Moment {
    /// The first moment of all, for where no clock can be read.
    #[must_use]
    pub fn epoch() -> Self {
        Self { at: Timestamp::UNIX_EPOCH, boot: Arc::default(), up_ms: 0 }
    }

    /// How long before `self` the moment `earlier` was. Across boots it is at least as long as this
    /// boot has lasted, so that a machine whose clock came up behind does not wait for it.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Duration {
        if self.boot == earlier.boot {
            Duration::from_millis(self.up_ms.saturating_sub(earlier.up_ms))
        } else {
            let wall = self.at.as_millisecond().saturating_sub(earlier.at.as_millisecond());
            Duration::from_millis(u64::try_from(wall).unwrap_or(0).max(self.up_ms))
        }
    }

    /// The moment `wait` after this one, in the same boot.
    #[must_use]
    pub fn after(&self, wait: Duration) -> Self {
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let at = i64::try_from(ms)
            .ok()
            .and_then(|ms| {
                Timestamp::from_millisecond(self.at.as_millisecond().saturating_add(ms)).ok()
            })
            .unwrap_or(Timestamp::MAX);
        Self { at, boot: Arc::clone(&self.boot), up_ms: self.up_ms.saturating_add(ms) }
    }

    /// Whether the wall clock and the boot clock disagree about the time since `earlier` by more
    /// than `tolerance`: somebody set the clock, or the machine has none.
    #[must_use]
    pub fn clock_leapt(&self, earlier: &Self, tolerance: Duration) -> bool {
        let wall = self.at.as_millisecond().saturating_sub(earlier.at.as_millisecond());
        if self.boot != earlier.boot {
            return wall < 0;
        }
        let up = i64::try_from(self.up_ms.saturating_sub(earlier.up_ms)).unwrap_or(i64::MAX);
        let apart = u128::from(wall.abs_diff(up));
        apart > tolerance.as_millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(boot: &str, at_ms: i64, up_ms: u64) -> Moment {
        Moment { at: Timestamp::from_millisecond(at_ms).unwrap(), boot: boot.into(), up_ms }
    }

    #[test]
    fn within_a_boot_the_wall_clock_has_no_say() {
        let start = moment("a", 1_000_000, 5_000);
        let year_later_by_ntp = moment("a", 1_000_000 + 31_536_000_000, 6_000);
        assert_eq!(year_later_by_ntp.since(&start), Duration::from_secs(1));
        assert!(year_later_by_ntp.clock_leapt(&start, Duration::from_secs(5)));
        let backwards = moment("a", 0, 7_000);
        assert_eq!(backwards.since(&start), Duration::from_secs(2));
    }

    #[test]
    fn across_boots_a_clock_that_went_backwards_counts_for_no_more_than_the_boot_has_lasted() {
        let before = moment("a", 2_000_000, 900_000);
        assert_eq!(moment("b", 1_000_000, 10).since(&before), Duration::from_millis(10));
        assert_eq!(moment("b", 1_000_000, 90_000).since(&before), Duration::from_secs(90));
        assert_eq!(moment("b", 2_030_000, 10).since(&before), Duration::from_secs(30));
        assert!(moment("b", 1_000_000, 10).clock_leapt(&before, Duration::from_secs(5)));
    }

    #[test]
    fn after_and_since_are_inverse() {
        let start = moment("a", 1_000_000, 5_000);
        let wait = Duration::from_millis(1_234);
        assert_eq!(start.after(wait).since(&start), wait);
    }
}
