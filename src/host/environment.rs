//! What the environment says.
//!
//! **Invariant:** read once, by name, here.

use std::path::PathBuf;

/// Where state is kept when nobody says: systemd's `STATE_DIRECTORY`, of which a unit may name
/// several and the first is ours, else the usual place.
#[must_use]
pub fn state_dir() -> PathBuf {
    std::env::var_os("STATE_DIRECTORY")
        .and_then(|named| std::env::split_paths(&named).next())
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| PathBuf::from("/var/lib/egressctl"))
}
