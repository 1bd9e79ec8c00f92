//! What shows that a channel works, and every threshold of a selector.
//!
//! **Invariant:** every default that is not the operator's is written here, once.

use crate::policy::pool::{self, Require};
use crate::url::Target;
use serde::Deserialize;
use std::time::Duration;

/// What shows that a channel works: pages asked through it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Probe {
    /// The pages.
    pub urls: Vec<Target>,
    /// Whether one good answer is enough.
    pub require: Require,
    /// The only good status codes.
    pub expect_status: Vec<u16>,
    /// How long all of it may take.
    pub timeout_sec: u64,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            urls: pool::Probe::default().urls,
            require: Require::All,
            expect_status: vec![204],
            timeout_sec: 10,
        }
    }
}

/// Every threshold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// A step is due this long after the start of the last; 0: always.
    pub check_interval_sec: u64,
    /// A channel that fails so long, while the other one answers, is left.
    pub failure_window_sec: u64,
    /// The primary answers so long before clients return to it.
    pub recovery_window_sec: u64,
    /// A switch waits for so long a quiet time.
    pub quiet_window_sec: u64,
    /// Less than this is quiet.
    pub active_bytes_per_sec: u64,
    /// Clients stay on the reserve so long at least.
    pub minimum_reserve_sec: u64,
    /// So many failovers in the window end in a quarantine of the primary.
    pub flap_limit: usize,
    /// The window.
    pub flap_window_sec: u64,
    /// How long the primary is not returned to.
    pub quarantine_sec: u64,
    /// Whether a switch waits for a quiet time at all.
    pub traffic_guard: bool,
    /// How long an urgent switch waits for it at most; `null`: without limit.
    pub guard_max_hold_sec: Option<u64>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            check_interval_sec: 60,
            failure_window_sec: 120,
            recovery_window_sec: 900,
            quiet_window_sec: 30,
            active_bytes_per_sec: 32_768,
            minimum_reserve_sec: 600,
            flap_limit: 3,
            flap_window_sec: 86_400,
            quarantine_sec: 21_600,
            traffic_guard: true,
            guard_max_hold_sec: Some(300),
        }
    }
}

/// Where windows are measured in intervals, an interval of 0 counts as this.
const ZERO_INTERVAL: Duration = Duration::from_secs(10);

impl Params {
    /// The check interval as windows measure it.
    #[must_use]
    pub fn interval(&self) -> Duration {
        let interval = Duration::from_secs(self.check_interval_sec);
        if interval.is_zero() { ZERO_INTERVAL } else { interval }
    }
}
