//! What the environment says.
//!
//! **Invariant:** read once, by name, here.

use std::path::PathBuf;

/// Whether nobody has asked for text without colours, by `NO_COLOR` (any text but an empty one) or
/// by a terminal that says that it has none.
#[must_use]
pub fn wants_colour() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|text| !text.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Where state is kept when nobody says: systemd's `STATE_DIRECTORY`, of which a unit may name
/// several and the first is ours, else the usual place.
#[must_use]
pub fn state_dir() -> PathBuf {
    std::env::var_os("STATE_DIRECTORY")
        .and_then(|named| std::env::split_paths(&named).next())
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| PathBuf::from("/var/lib/egressctl"))
}
