//! One slot: what fills it, and what was counted of it.
//!
//! **Invariant:** a slot with something new in it has nothing of the old one's counts.

use super::candidate::Candidate;
use crate::observation::Counters;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// One slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// What fills it.
    pub content: Content,
    /// Since when.
    pub since: Moment,
    /// Failed checks in a row.
    pub failures: u32,
    /// From too many failures until the retests have all passed.
    pub failed: bool,
    /// Retests that failed in a row since then.
    pub retests_failed: u32,
    /// Retests that passed in a row since then.
    pub retests_passed: u32,
    /// When retests brought it back without a repair.
    pub false_alarms: Vec<Moment>,
    /// The endpoint that was here before one after the other failed in its place while no slot
    /// served; it is quarantined when one of them works.
    pub replaced: Option<Candidate>,
    /// Whether the MTU was lowered to see whether large packets are eaten.
    pub mtu_lowered: bool,
    /// Steps in a row in which a timeout was put down to load.
    pub saturated: u32,
    /// Steps in a row in which nothing could be said.
    pub unknown: u32,
    /// What the last check said.
    pub verdict: Verdict,
    /// Why, for people.
    pub why: String,
    /// The fastest good answer of the last healthy check.
    pub latency_ms: Option<u64>,
    /// How fast its checks are answered, in milliseconds, smoothed over them: silence is judged by it.
    #[serde(default)]
    pub smoothed_ms: Option<u64>,
    /// The address that its clients are seen with.
    pub exit_ip: Option<IpAddr>,
    /// When that was last asked.
    pub exit_ip_at: Option<Moment>,
    /// What it had carried at the last look.
    pub counters: Counters,
}

/// What fills a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Nothing.
    Empty,
    /// An endpoint.
    Loaded(Candidate),
    /// An endpoint that is tried as a way to the provider; it carries no client.
    Lent(Candidate),
}

/// What the last check of a slot said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Requests are carried.
    Healthy,
    /// They are not.
    Failed,
    /// It could not be said.
    Unknown,
}

impl Slot {
    /// A slot with this in it, as new.
    #[must_use]
    pub fn new(content: Content, now: &Moment) -> Self {
        Self {
            content,
            since: now.clone(),
            failures: 0,
            failed: false,
            retests_failed: 0,
            retests_passed: 0,
            false_alarms: Vec::new(),
            replaced: None,
            mtu_lowered: false,
            saturated: 0,
            unknown: 0,
            verdict: Verdict::Unknown,
            why: String::new(),
            latency_ms: None,
            smoothed_ms: None,
            exit_ip: None,
            exit_ip_at: None,
            counters: Counters::default(),
        }
    }

    /// The endpoint in it, lent or not.
    #[must_use]
    pub fn candidate(&self) -> Option<&Candidate> {
        match &self.content {
            Content::Loaded(candidate) | Content::Lent(candidate) => Some(candidate),
            Content::Empty => None,
        }
    }

    /// The endpoint that it is loaded with.
    #[must_use]
    pub fn loaded(&self) -> Option<&Candidate> {
        match &self.content {
            Content::Loaded(candidate) => Some(candidate),
            Content::Empty | Content::Lent(_) => None,
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content == Content::Empty
    }
}
