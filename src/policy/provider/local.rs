//! Sources on this machine.
//!
//! **Invariant:** they are where an operator put them, so that no way to them has to be found.

use super::identity::Identity;
use super::remote::fetch_timeout;
use serde::Deserialize;
use std::path::PathBuf;

/// A folder of wg-quick files, `*.conf`, or a zip of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// The folder or the zip.
    pub path: PathBuf,
}

/// A program that prints a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// The program.
    pub path: PathBuf,
    /// Its arguments, which every user of the machine can read.
    #[serde(default)]
    pub args: Vec<String>,
    /// What entries lack of our own end.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// How long it may take.
    #[serde(default = "fetch_timeout")]
    pub timeout_sec: u64,
}
