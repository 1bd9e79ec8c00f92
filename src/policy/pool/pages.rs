//! The pages that are asked: by a tunnel whether it works and as whom it is seen, and past them whether
//! the uplink works.
//!
//! **Invariant:** without a word of the operator's, no page of one company decides alone.

use crate::url::Target;
use serde::Deserialize;
use std::time::Duration;

/// So long the uplink may take to answer at most: it is asked twice in a step, which has 60 s.
pub(crate) const MAX_WAN_TIMEOUT_SEC: u64 = 20;

/// So often a failed check may be repeated at most: a step has other things to do, and what was silent
/// for four checks in a row is silent.
pub(crate) const MAX_CONFIRM: u32 = 3;

/// Whether one of several pages is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Require {
    /// One good answer is enough.
    Any,
    /// Every page must answer well.
    All,
}

/// What shows that a tunnel works: pages asked through it.
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
    /// A failed check is repeated so often in the same step; then silence is not waited for so long.
    pub confirm: u32,
    /// A page of more than one packet, which shows a path that eats large ones.
    pub large: Option<Large>,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            urls: targets(&[
                "https://www.gstatic.com/generate_204",
                "https://cp.cloudflare.com/generate_204",
            ]),
            require: Require::Any,
            expect_status: vec![204],
            timeout_sec: 5,
            confirm: 0,
            large: None,
        }
    }
}

impl Probe {
    /// How long a probe may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_sec)
    }
}

/// A page of more than one packet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Large {
    /// The page.
    pub url: Target,
    /// At least so many bytes must arrive.
    pub bytes: usize,
}

/// How the exit address of a slot is learned.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExitIp {
    /// A page whose body is the caller's address.
    pub url: Target,
    /// How often.
    #[serde(default = "exit_interval")]
    pub interval_sec: u64,
    /// Whether a slot that leaves by the uplink's own address has failed.
    #[serde(default = "yes")]
    pub must_differ_from_wan: bool,
}

fn exit_interval() -> u64 {
    600
}

fn yes() -> bool {
    true
}

/// What shows that the uplink works: any answer of these pages does.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wan {
    /// The pages.
    pub urls: Vec<Target>,
    /// Whether one answer is enough.
    pub require: Require,
    /// How long they may take together.
    pub timeout_sec: u64,
}

impl Default for Wan {
    fn default() -> Self {
        Self {
            urls: targets(&[
                "http://connectivitycheck.gstatic.com/generate_204",
                "http://1.1.1.1/",
            ]),
            require: Require::Any,
            // They are near and small, but what a lost packet delays comes a second later.
            timeout_sec: 3,
        }
    }
}

impl Wan {
    /// How long its pages may take together, in milliseconds.
    #[must_use]
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_sec.saturating_mul(1_000)
    }

    /// Whether it may take so long: a step waits for it, and has other things to wait for.
    pub(crate) fn is_in_time(&self) -> bool {
        (1..=MAX_WAN_TIMEOUT_SEC).contains(&self.timeout_sec)
    }
}

/// Targets that are known to be well formed.
fn targets(urls: &[&str]) -> Vec<Target> {
    urls.iter().filter_map(|url| Target::try_from((*url).to_owned()).ok()).collect()
}
