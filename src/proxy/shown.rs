//! What requests through a proxy showed, as the kinds remember it that judge by such requests.
//!
//! **Invariant:** a request that could not be made says nothing of what it was to go through.

use crate::time::Moment;
use serde::{Deserialize, Serialize};

/// What a request, or a round of requests, showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It did not.
    Failed,
    /// It could not be made.
    Unknown,
}

/// The same, with when and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shown {
    /// Whether it passed.
    pub verdict: Verdict,
    /// Why not, for people.
    pub why: String,
    /// How long the fastest good answer took, in milliseconds.
    pub latency_ms: Option<u64>,
    /// When.
    pub at: Moment,
}
