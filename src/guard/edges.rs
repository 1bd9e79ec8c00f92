//! Every transition of a guard, for pictures of it.
//!
//! **Invariant:** the walk over all states of a guard meets each of these and no other.

use super::state::Mode;
use Mode::{Auto, Manual, Observing, Suspect, Temporary};

/// From where, to where, and the reasons that tell of it; `resume` is the command.
pub(super) const EDGES: &[(Option<Mode>, Mode, &[&str])] = &[
    (None, Auto, &["found"]),
    (None, Manual, &["found"]),
    (Some(Auto), Suspect, &["round-fails"]),
    (Some(Auto), Manual, &["persons-choice", "switched"]),
    (Some(Suspect), Auto, &["passes-again", "handed-back", "switched"]),
    (Some(Suspect), Temporary, &["took-over"]),
    (Some(Suspect), Manual, &["persons-choice", "switched"]),
    (Some(Temporary), Observing, &["group-answers"]),
    (Some(Temporary), Auto, &["given-back", "member-gone", "handed-back", "switched"]),
    (Some(Temporary), Suspect, &["no-member-passes"]),
    (Some(Temporary), Manual, &["persons-choice", "switched"]),
    (Some(Observing), Auto, &["given-back", "member-gone", "handed-back", "switched"]),
    (Some(Observing), Temporary, &["group-fails", "trial-failed", "round-fails"]),
    (Some(Observing), Suspect, &["no-member-passes"]),
    (Some(Observing), Manual, &["persons-choice", "switched"]),
    (Some(Manual), Auto, &["handed-back", "switched"]),
];
