//! Files that an operator wrote, a tunnel each.
//!
//! **Invariant:** what is wrong with a file is a reading, and holds no key.

use crate::kernel::ConfigRef;
use crate::pool::candidate::Candidate;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Which files describe which tunnels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TunnelsQuestion {
    /// The wg-quick files, by the names of what they describe.
    pub files: BTreeMap<String, PathBuf>,
    /// The folder of the pool that their copies go into.
    pub generation: u32,
    /// Whether the program that configures tunnels understands AmneziaWG.
    pub amnezia: bool,
    /// Copies that tunnels were made from, which are kept beside new ones.
    pub keep: BTreeSet<ConfigRef>,
}

/// What the files say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelsReading {
    /// The tunnel that each describes, or why it describes none.
    pub described: BTreeMap<String, Result<Candidate, String>>,
}
