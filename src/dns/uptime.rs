//! How often a node passed its checks in the last 24 hours.
//!
//! **Invariant:** what is kept is bounded whatever the interval is: a bucket each half hour.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A bucket is half an hour.
const BUCKET_SEC: i64 = 1_800;
/// So many of them are 24 hours.
const BUCKETS: i64 = 48;

/// Checks of the last 24 hours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uptime(Vec<Bucket>);

/// Checks of half an hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Bucket {
    /// Which half hour since 1970, by the wall clock.
    half_hour: i64,
    /// Checks that passed.
    passed: u32,
    /// All counted checks.
    checks: u32,
}

fn half_hour(at: Timestamp) -> i64 {
    at.as_second().div_euclid(BUCKET_SEC)
}

impl Uptime {
    /// Counts a check.
    pub fn count(&mut self, passed: bool, at: Timestamp) {
        let now = half_hour(at);
        // What a clock that was ahead has left would never grow old.
        self.0.retain(|bucket| (now - BUCKETS + 1..=now).contains(&bucket.half_hour));
        if self.0.last().is_none_or(|bucket| bucket.half_hour != now) {
            self.0.push(Bucket { half_hour: now, passed: 0, checks: 0 });
        }
        if let Some(bucket) = self.0.last_mut() {
            bucket.passed = bucket.passed.saturating_add(u32::from(passed));
            bucket.checks = bucket.checks.saturating_add(1);
        }
    }

    /// Passed checks of all counted ones in the last 24 hours, in percent, two decimals. `None`:
    /// none was counted.
    #[must_use]
    pub fn percent(&self, at: Timestamp) -> Option<f64> {
        let now = half_hour(at);
        let recent = self.0.iter().filter(|bucket| bucket.half_hour > now - BUCKETS);
        let (passed, checks) = recent.fold((0_u64, 0_u64), |(passed, checks), bucket| {
            (passed + u64::from(bucket.passed), checks + u64::from(bucket.checks))
        });
        let hundredths = u32::try_from((passed * 10_000).checked_div(checks)?).ok()?;
        Some(f64::from(hundredths) / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(half_hours: i64) -> Timestamp {
        Timestamp::from_second(1_000 * BUCKET_SEC + half_hours * BUCKET_SEC).unwrap()
    }

    #[test]
    fn a_day_is_remembered_and_no_more() {
        let mut uptime = Uptime::default();
        assert_eq!(uptime.percent(at(0)), None);
        for n in 0..96 {
            for _ in 0..60 {
                uptime.count(n >= 60, at(n));
            }
        }
        assert_eq!(uptime.0.len(), 48);
        assert_eq!(uptime.percent(at(95)), Some(75.0));
        assert_eq!(uptime.percent(at(119)), Some(100.0), "half a day later without a check");
        assert_eq!(uptime.percent(at(1_000)), None);
    }

    #[test]
    fn a_clock_that_was_ahead_is_forgotten() {
        let mut uptime = Uptime::default();
        uptime.count(false, at(5_000));
        uptime.count(true, at(0));
        assert_eq!(uptime.percent(at(0)), Some(100.0));
        assert_eq!(uptime.0.len(), 1);
    }
}
