//! Whose choice a group's selected member is.
//!
//! The API does not say who chose. What stands there is ours while it is what was last confirmed; a
//! restart may have lost it; anything else somebody has chosen.
//!
//! **Invariant:** a choice is called lost only where a restart explains it: the core began anew, it
//! does not keep choices, and what stands there is what it begins with.

use crate::observation::{ConfigReading, CoreSeen, Life};
use serde::{Deserialize, Serialize};

/// The last choice that was read back, and the run of the core in which it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Confirmed {
    /// The member.
    pub member: String,
    /// The core's run.
    pub life: Life,
}

/// Whose choice it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// What was confirmed still stands.
    Ours,
    /// The core has forgotten it in a restart.
    Lost,
    /// Somebody has chosen this member.
    Persons(String),
    /// A restart or a person: the core's configuration would tell, and was not asked for yet.
    Unclear,
}

/// Whose choice the selected member `now` of `group` is.
#[must_use]
pub fn judge(confirmed: &Confirmed, group: &str, now: &str, seen: &CoreSeen) -> Choice {
    if confirmed.member == now {
        return Choice::Ours;
    }
    if !confirmed.life.ended_before(&seen.life) {
        return Choice::Persons(now.to_owned());
    }
    if seen.config == ConfigReading::Unasked {
        return Choice::Unclear;
    }
    if !seen.keeps_choices() && seen.default_of(group) == Some(now) {
        Choice::Lost
    } else {
        Choice::Persons(now.to_owned())
    }
}
