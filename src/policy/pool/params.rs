//! Every threshold of the recovery plan.
//!
//! **Invariant:** a number that the plan waits or counts by is one of these, with its default.

use crate::names::Interface;
use serde::Deserialize;

/// A way in which the provider is asked from Direct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Candidates of the last pool, one after the other, in the lent slot.
    CachedPool,
    /// The standby tunnel.
    Wireguard,
    /// The uplink itself.
    Direct,
}

/// Every threshold, named after the plan it comes from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// A step is due so long after the start of the last; 0: always.
    pub health_check_interval_sec: u64,
    /// Failed checks in a row before a slot stops serving.
    pub health_failures_before_down: u32,
    /// Retests, one a step, that must all fail before the endpoint is quarantined.
    pub local_repair_retest_count: u32,
    /// Repairs that lead to a full refresh.
    pub full_refresh_after_repairs: u32,
    /// Between refresh attempts.
    pub hmn_refresh_retry_interval_sec: u64,
    /// Between bootstrap attempts.
    pub bootstrap_retry_interval_sec: u64,
    /// Tries of one cached candidate in one pass.
    pub bootstrap_candidate_retry_count: u32,
    /// The slot lent to the cached-pool strategy; none given: the first.
    pub bootstrap_slot: Option<Interface>,
    /// The order of the ways out of Direct.
    pub bootstrap_strategy_order: Vec<Strategy>,
    /// How long one test of a candidate may take.
    pub candidate_test_timeout_sec: u64,
    /// How often a test is tried again.
    pub candidate_test_retries: u32,
    /// So many verified slots end Direct; none given: all.
    pub min_healthy_slots_to_exit_direct: Option<usize>,
    /// With no slot serving but reserve left, repair goes on so long before Direct.
    pub direct_grace_sec: u64,
    /// Whether the last resort is Direct; otherwise None.
    pub direct_failopen_enabled: bool,
    /// Whether clients move to Direct without a person's consent.
    pub emergency_commit_enabled: bool,
    /// Whether verified endpoints of the last pool may end Direct.
    pub exit_direct_from_cache: bool,
    /// Fewer usable entries than this share of the last good list: refused.
    pub refresh_min_ratio: f64,
    /// False alarms of a slot in the window that count as failed retests.
    pub flap_limit: usize,
    /// The window of false alarms.
    pub flap_window_sec: u64,
    /// The whole run's deadline.
    pub step_budget_sec: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            health_check_interval_sec: 10,
            health_failures_before_down: 2,
            local_repair_retest_count: 2,
            full_refresh_after_repairs: 5,
            hmn_refresh_retry_interval_sec: 900,
            bootstrap_retry_interval_sec: 30,
            bootstrap_candidate_retry_count: 1,
            bootstrap_slot: None,
            bootstrap_strategy_order: vec![
                Strategy::CachedPool,
                Strategy::Wireguard,
                Strategy::Direct,
            ],
            candidate_test_timeout_sec: 8,
            candidate_test_retries: 1,
            min_healthy_slots_to_exit_direct: None,
            direct_grace_sec: 30,
            direct_failopen_enabled: true,
            emergency_commit_enabled: true,
            exit_direct_from_cache: false,
            refresh_min_ratio: 0.5,
            flap_limit: 3,
            flap_window_sec: 1_800,
            step_budget_sec: 60,
        }
    }
}
