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
    /// `CLOCK_BOOTTIME` in milliseconds; below zero for what was before the boot.
    pub up_ms: i64,
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
            millis(self.up_ms.saturating_sub(earlier.up_ms))
        } else {
            let wall = self.at.as_millisecond().saturating_sub(earlier.at.as_millisecond());
            millis(wall.max(self.up_ms))
        }
    }

    /// The moment `wait` after this one, in the same boot.
    #[must_use]
    pub fn after(&self, wait: Duration) -> Self {
        let ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let at = Timestamp::from_millisecond(self.at.as_millisecond().saturating_add(ms))
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
        let up = self.up_ms.saturating_sub(earlier.up_ms);
        let apart = u128::from(wall.abs_diff(up));
        apart > tolerance.as_millis()
    }
}

/// A length of time, none when it is below zero.
fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// Brings what is remembered of earlier boots into the boot of `now`, where nobody's setting of the
/// clock has a say in it any more. `last` is the last moment of an earlier boot at which both clocks
/// were read.
///
/// Between the two there was as much time as the wall clock says, at least as much as this boot has
/// lasted, and none less than none: a clock that came up behind brings nothing back, and keeps
/// nothing waiting. What was remembered in the boot of `last` is as much older than `last` as that
/// boot's own clock says, whatever somebody did to the wall clock meanwhile.
#[must_use]
pub fn carried_over(moment: &Moment, last: &Moment, now: &Moment) -> Moment {
    if moment.boot == now.boot {
        return moment.clone();
    }
    let wall = |later: &Moment, earlier: &Moment| {
        later.at.as_millisecond().saturating_sub(earlier.at.as_millisecond())
    };
    let between = wall(now, last).max(now.up_ms).max(0);
    let before = if moment.boot == last.boot {
        last.up_ms.saturating_sub(moment.up_ms)
    } else {
        wall(last, moment)
    };
    let ago = before.saturating_add(between).max(0);
    let at = Timestamp::from_millisecond(now.at.as_millisecond().saturating_sub(ago));
    Moment {
        at: at.unwrap_or(Timestamp::MIN),
        boot: Arc::clone(&now.boot),
        up_ms: now.up_ms.saturating_sub(ago),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(boot: &str, at_ms: i64, up_ms: i64) -> Moment {
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
