//! Every transition of a chain, for pictures of it.
//!
//! **Invariant:** the walk over all states of a chain meets each of these and no other.

use super::state::Mode;
use Mode::{Backup, Closed, LastResort, Preferred, Returning};

/// From where, to where, and the reasons that tell of it; `resume` is the command.
pub(super) const EDGES: &[(Option<Mode>, Mode, &[&str])] = &[
    (None, Preferred, &["all-well", "replaced"]),
    (None, Backup, &["replaced"]),
    (None, Returning, &["returning"]),
    (None, Closed, &["closed"]),
    (None, LastResort, &["last-resort"]),
    (Some(Preferred), Backup, &["replaced", "persons-choice"]),
    (Some(Preferred), Closed, &["closed"]),
    (Some(Preferred), LastResort, &["last-resort"]),
    (Some(Backup), Returning, &["returning"]),
    (Some(Backup), Preferred, &["replaced", "switched"]),
    (Some(Backup), Closed, &["closed"]),
    (Some(Backup), LastResort, &["last-resort"]),
    (Some(Returning), Preferred, &["returned", "replaced"]),
    (Some(Returning), Backup, &["test-failed", "return-failed"]),
    (Some(Returning), Closed, &["closed"]),
    (Some(Returning), LastResort, &["last-resort"]),
    (Some(Closed), Preferred, &["reopened", "replaced", "switched"]),
    (Some(Closed), Backup, &["reopened", "replaced", "persons-choice"]),
    (Some(Closed), Returning, &["reopened"]),
    (Some(LastResort), Preferred, &["reopened", "replaced"]),
    (Some(LastResort), Backup, &["replaced"]),
];
