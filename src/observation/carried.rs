//! What devices have received since they were made.
//!
//! **Invariant:** a device that is not there has no number, rather than none received.

use crate::names::Interface;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A look at the counters of devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CarriedQuestion {
    /// Which look this is in one run, from 0.
    pub turn: u32,
    /// The devices.
    pub devices: BTreeSet<Interface>,
}

/// What they have received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedReading {
    /// When it was looked.
    pub at: Moment,
    /// Bytes by device.
    pub received: BTreeMap<Interface, u64>,
}
