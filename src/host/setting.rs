//! Reads and writes what other programs keep: one driver a kind of setting.
//!
//! **Invariant:** whatever goes wrong, the text of it holds no secret.

use crate::setting::{Edit, Setting, Value};

/// Why a write was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// In one line.
    pub why: String,
    /// When to try again at the earliest, if that was said, in seconds.
    pub retry_after_sec: Option<u64>,
}

/// What stands there.
///
/// # Errors
/// Why it cannot be read.
pub fn read(setting: &Setting) -> Result<Value, String> {
    match setting {
        Setting::Selected { core, group } => super::clash::selected(core, group).map(Value::Member),
    }
}

/// Writes it. Whether it was taken is seen by reading it back.
///
/// # Errors
/// What the other program said against it.
pub fn write(setting: &Setting, edit: &Edit) -> Result<(), Refusal> {
    match (setting, &edit.to) {
        (Setting::Selected { core, group }, Value::Member(member)) => {
            super::clash::select(core, group, member)
                .map_err(|why| Refusal { why, retry_after_sec: None })
        }
    }
}
