//! Reads and writes what other programs keep: one driver a kind of setting.
//!
//! **Invariant:** whatever goes wrong, the text of it holds no secret.

use super::dns;
use crate::setting::{Edit, Setting, Value};

/// Why a write was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// In one line.
    pub why: String,
    /// When to try again at the earliest, if that was said, in seconds.
    pub retry_after_sec: Option<u64>,
    /// Whether it is not to be believed though it reads back as written.
    pub is_doubtful: bool,
    /// Whether something that it does not show was changed and could not be put back.
    pub is_spoilt: bool,
}

impl Refusal {
    /// A refusal.
    #[must_use]
    pub fn new(why: String) -> Self {
        Self { why, retry_after_sec: None, is_doubtful: false, is_spoilt: false }
    }

    /// A write that was taken and of which more should show than does.
    #[must_use]
    pub fn doubtful(why: String) -> Self {
        Self { is_doubtful: true, ..Self::new(why) }
    }

    /// A write that has changed more than it should, which could not be put back.
    #[must_use]
    pub fn spoilt(why: String) -> Self {
        Self { is_spoilt: true, ..Self::new(why) }
    }
}

/// What stands there.
///
/// # Errors
/// Why it cannot be read.
pub fn read(setting: &Setting) -> Result<Value, String> {
    match setting {
        Setting::Selected { core, group } => super::clash::selected(core, group).map(Value::Member),
        Setting::First { gost, hop } => super::gost::first(gost, hop).map(Value::Member),
        Setting::Retries { gost, service } => super::gost::retries(gost, service).map(Value::Count),
        Setting::Records { zone, host } => dns::read(zone, host).map(Value::Records),
    }
}

/// Writes it. Whether it was taken is seen by reading it back.
///
/// # Errors
/// What the other program said against it.
pub fn write(setting: &Setting, edit: &Edit) -> Result<(), Refusal> {
    match (setting, &edit.expected, &edit.to) {
        (Setting::Selected { core, group }, _, Value::Member(member)) => {
            super::clash::select(core, group, member).map_err(Refusal::new)
        }
        (Setting::Records { zone, host }, Value::Records(expected), Value::Records(to)) => {
            dns::write(zone, host, expected, to)
        }
        (Setting::First { gost, hop }, _, Value::Member(node)) => {
            super::gost::put_first(gost, hop, node)
        }
        (Setting::Retries { gost, service }, _, Value::Count(retries)) => {
            super::gost::set_retries(gost, service, *retries)
        }
        (
            Setting::Selected { .. } | Setting::First { .. },
            _,
            Value::Count(_) | Value::Records(_),
        )
        | (Setting::Retries { .. }, _, Value::Member(_) | Value::Records(_))
        | (Setting::Records { .. }, Value::Member(_) | Value::Count(_), _)
        | (Setting::Records { .. }, _, Value::Member(_) | Value::Count(_)) => {
            Err(Refusal::new(format!("{setting} cannot be {}", edit.to)))
        }
    }
}
