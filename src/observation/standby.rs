//! The file of the standby tunnel.
//!
//! **Invariant:** what is wrong with the file is a reading, and holds no key.

use crate::kernel::ConfigRef;
use crate::pool::candidate::Candidate;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Which file describes the standby tunnel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StandbyQuestion {
    /// The wg-quick file.
    pub file: PathBuf,
    /// Whether the program that configures tunnels understands AmneziaWG.
    pub amnezia: bool,
    /// The copy that the tunnel was made from, which is kept beside a new one.
    pub keep: Option<ConfigRef>,
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyReading {
    /// The tunnel that it describes, or why it describes none.
    pub described: Result<Candidate, String>,
}
