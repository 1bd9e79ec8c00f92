//! Whether anybody is receiving something on the channel in use.
//!
//! A core's totals grow by all that it receives. What a run of ours asked for itself is received
//! between its own two looks, before and after its probes, so most of it is told apart by time; the
//! rest of that short span is judged with an allowance for each request.
//!
//! **Invariant:** bytes that flowed are never missed: what cannot be told from a client's is a
//! client's, and what cannot be measured is unknown.

use crate::observation::Life;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What one request of a probe receives at most: a TLS handshake with its certificates, a head.
const REQUEST_BYTES: u64 = 16 * 1024;
/// So many connections on the other channel are remembered one by one, the largest; what the rest
/// receives counts as activity.
const REMEMBERED: usize = 2_000;

/// What flowed on the channel in use, as far as it was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Activity {
    /// The last measure, which the next sample begins at.
    pub base: Option<Measure>,
    /// How long it has been quiet, without a break.
    pub quiet_ms: u64,
    /// The last sample's bytes in a second; `None`: there is none.
    pub rate: Option<u64>,
}

/// What was received until a moment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Measure {
    /// The moment.
    pub at: Moment,
    /// The run of the core; empty for devices, whose counters fall when they are made anew.
    pub life: Life,
    /// Bytes received in all.
    pub received: u64,
    /// Bytes received by each open connection on the other channel.
    pub elsewhere: BTreeMap<String, u64>,
}

/// How a sample is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Less than this is quiet.
    pub active_bytes_per_sec: u64,
    /// A sample spans no more than this.
    pub longest: Duration,
}

/// Whether it is quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiet {
    /// For the whole window.
    Yes,
    /// Something flows.
    Active {
        /// Bytes in a second.
        rate: u64,
    },
    /// It was not measured for the whole window.
    Unknown,
}

impl Measure {
    /// Keeps the largest connections only.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if self.elsewhere.len() > REMEMBERED {
            let mut all: Vec<(String, u64)> = self.elsewhere.into_iter().collect();
            all.sort_by_key(|(_, received)| std::cmp::Reverse(*received));
            all.truncate(REMEMBERED);
            self.elsewhere = all.into_iter().collect();
        }
        self
    }

    /// What was received on the channel in use since `earlier`; `None`: it cannot be told.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<u64> {
        if earlier.life.ended_before(&self.life) {
            return None;
        }
        let grown = self.received.checked_sub(earlier.received)?;
        let elsewhere = self.elsewhere.iter().map(|(id, received)| {
            received.saturating_sub(earlier.elsewhere.get(id).copied().unwrap_or(0))
        });
        Some(grown.saturating_sub(elsewhere.fold(0, u64::saturating_add)))
    }
}

impl Activity {
    /// Nothing measured counts any more.
    pub fn restart(&mut self) {
        *self = Self::default();
    }

    /// Takes a sample: what flowed since the last one until `before`, and until `after` while this
    /// run sent `requests` of its own.
    pub fn sample(&mut self, before: &Measure, after: &Measure, requests: u64, limits: Limits) {
        let base = self.base.replace(after.clone());
        let own = REQUEST_BYTES.saturating_mul(requests);
        let Some((span, bytes)) = base.and_then(|base| {
            let between = after.since(before)?.saturating_sub(own);
            let bytes = before.since(&base)?.saturating_add(between);
            Some((after.at.since(&base.at).min(limits.longest), bytes))
        }) else {
            self.quiet_ms = 0;
            self.rate = None;
            return;
        };
        let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        if span_ms == 0 {
            return;
        }
        let rate = bytes.saturating_mul(1_000) / span_ms;
        self.rate = Some(rate);
        if rate < limits.active_bytes_per_sec {
            self.quiet_ms = self.quiet_ms.saturating_add(span_ms);
        } else {
            self.quiet_ms = 0;
        }
    }

    /// Whether it has been quiet for `window`.
    #[must_use]
    pub fn quiet_for(&self, window: Duration, limits: Limits) -> Quiet {
        match self.rate {
            Some(rate) if rate >= limits.active_bytes_per_sec => Quiet::Active { rate },
            Some(_) if Duration::from_millis(self.quiet_ms) >= window => Quiet::Yes,
            Some(_) | None => Quiet::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { active_bytes_per_sec: 1_000, longest: Duration::from_secs(120) };

    fn measure(second: i64, received: u64, elsewhere: &[(&str, u64)]) -> Measure {
        Measure {
            at: Moment { at: jiff::Timestamp::UNIX_EPOCH, boot: "b".into(), up_ms: second * 1_000 },
            life: Life { process: None, totals: Some((received, 0)) },
            received,
            elsewhere: elsewhere.iter().map(|(id, n)| ((*id).to_owned(), *n)).collect(),
        }
    }

    /// The rates and quiet times of samples taken at these measures, with two requests each.
    fn samples(looks: &[(i64, u64)]) -> Vec<(Option<u64>, u64)> {
        let mut activity = Activity::default();
        looks
            .iter()
            .map(|(second, received)| {
                let look = measure(*second, *received, &[]);
                activity.sample(&look, &look, 2, LIMITS);
                (activity.rate, activity.quiet_ms)
            })
            .collect()
    }

    #[test]
    fn a_burst_between_two_looks_counts_though_its_connection_is_gone() {
        assert_eq!(
            samples(&[(0, 5_000), (60, 6_000), (120, 600_000), (180, 600_100), (400, 800_000)]),
            [
                (None, 0),
                (Some(16), 60_000),
                (Some(9_900), 0),
                (Some(1), 60_000),
                // A long gap dilutes nothing.
                (Some(1_665), 0),
            ]
        );
    }

    #[test]
    fn after_a_restart_nothing_is_known() {
        assert_eq!(
            samples(&[(0, 5_000), (60, 10), (120, 20)])[1..],
            [(None, 0), (Some(0), 60_000)]
        );
    }

    #[test]
    fn what_flows_on_the_other_channel_and_what_we_ask_for_is_no_activity() {
        let mut activity = Activity::default();
        let start = measure(0, 0, &[("old", 500)]);
        activity.sample(&start, &start, 2, LIMITS);
        let before = measure(10, 900_000, &[("old", 400_500), ("new", 500_000)]);
        let after = measure(12, 930_000, &[("old", 400_500), ("new", 500_000)]);
        activity.sample(&before, &after, 2, LIMITS);
        assert_eq!((activity.rate, activity.quiet_ms), (Some(0), 12_000));
        let late = measure(22, 1_200_000, &[]);
        activity.sample(&late, &late, 2, LIMITS);
        assert_eq!(activity.rate, Some(27_000));
    }

    #[test]
    fn quiet_is_what_was_measured_for_the_whole_window() {
        let window = Duration::from_secs(30);
        let quiet =
            |quiet_ms, rate| Activity { base: None, quiet_ms, rate }.quiet_for(window, LIMITS);
        assert_eq!(quiet(29_999, Some(0)), Quiet::Unknown);
        assert_eq!(quiet(30_000, Some(999)), Quiet::Yes);
        assert_eq!(quiet(0, Some(1_000)), Quiet::Active { rate: 1_000 });
        assert_eq!(quiet(0, None), Quiet::Unknown);
    }
}
