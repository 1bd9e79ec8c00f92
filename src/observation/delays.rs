//! How long members of a proxy core take by its own measure.
//!
//! **Invariant:** members are measured one by one: asking for a whole group would take a person's
//! fixed choice from it in mihomo.

use crate::setting::Core;
use crate::time::Moment;
use crate::url::Target;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Members that the core shall measure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DelayQuestion {
    /// Which time this is asked in this run, from 0.
    pub turn: u32,
    /// The core.
    pub core: Core,
    /// The members, groups among them.
    pub members: BTreeSet<String>,
    /// The pages by which they are measured.
    pub urls: Vec<Target>,
    /// How long one measure may take; the API takes 1 to 32767.
    pub timeout_ms: u16,
}

/// What the core measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayReading {
    /// When the last of it was said.
    pub at: Moment,
    /// By member, a measure a page in their order.
    pub members: BTreeMap<String, Vec<Delay>>,
}

/// One measure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delay {
    /// It answered after so many milliseconds.
    Took(u64),
    /// It did not answer in time, or at all.
    Failed,
    /// The core has nothing of that name to be measured.
    Absent,
    /// Nobody said anything of it.
    Unknown(String),
}
