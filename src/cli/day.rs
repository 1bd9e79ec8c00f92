//! The 24 hours of a policy's parts, kept beside its state for what is shown: the page, and what is
//! published.
//!
//! **Invariant:** a step is counted once, whoever shows it first; nothing of a policy depends on it.

use crate::day::Day;
use crate::host::files::{read_bounded, write_atomically};
use crate::host::store::Folder;
use crate::page::Shown;
use anyhow::Context as _;
use jiff::Timestamp;

/// As the rest of the state.
const MODE: u32 = 0o600;
/// A part takes less than 300 bytes of it; this is room for 5,000 of them.
const MAX_BYTES: usize = 1536 * 1024;

/// The day of the policy in `folder`, with what its last step, if there was one, has shown counted in it.
///
/// # Errors
/// When it cannot be written.
pub(super) fn counted(
    folder: &Folder,
    last: Option<Timestamp>,
    shown: &Shown,
) -> anyhow::Result<Day> {
    let file = folder.path().join("day.json");
    // A day that cannot be read begins anew.
    let before: Day = read_bounded(&file, MAX_BYTES)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let Some(last) = last else { return Ok(before) };
    let mut day = before.clone();
    day.count(last, shown.groups.iter().flat_map(|group| &group.rows));
    if day != before {
        let bytes = serde_json::to_vec(&day)?;
        write_atomically(&file, &bytes, MODE).context("the day of a policy")?;
    }
    Ok(day)
}
