//! Collects what `check` judges: the machine, what is left in the state folder, and what a pool
//! names.
//!
//! **Invariant:** nothing is changed or made; what cannot be read is absent, and its absence is what
//! is judged.

pub mod core;
pub mod dns;
pub mod init;
pub mod machine;
pub mod pool;
pub mod selector;
mod services;

use super::files::read_bounded;
use std::path::Path;

/// The most that is read of a file of the system.
const MAX_TEXT: usize = 4 * 1024 * 1024;

/// A file of the system as text; empty when it cannot be read.
fn text(path: &str) -> String {
    let bytes = read_bounded(Path::new(path), MAX_TEXT).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A file below `/proc`, whose length is not known before; empty when it cannot be read.
fn proc(path: &str) -> String {
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}
