//! Every transition of a dns, for pictures of it.
//!
//! **Invariant:** the walk over all states of a dns meets each of these and no other.

use super::state::Mode;
use Mode::{Fallback, Native, NativeFailing, NativeQuarantined, NativeRecovering, Stranded};

/// From where, to where, and the reasons that tell of it; `resume` is the command.
pub(super) const EDGES: &[(Option<Mode>, Mode, &[&str])] = &[
    (None, Native, &["adopted", "foreign"]),
    (None, Fallback, &["adopted"]),
    (Some(Native), NativeFailing, &["check-failed"]),
    (Some(Native), Fallback, &["moved-away", "persons-choice", "adopted"]),
    (Some(Native), NativeQuarantined, &["quarantined"]),
    (Some(Native), Stranded, &["stranded"]),
    (Some(NativeFailing), Native, &["false-alarm"]),
    (Some(NativeFailing), Fallback, &["moved-away", "persons-choice"]),
    (Some(NativeFailing), NativeQuarantined, &["quarantined"]),
    (Some(NativeFailing), Stranded, &["stranded"]),
    (Some(Fallback), NativeRecovering, &["recovering"]),
    (Some(Fallback), Native, &["returned", "adopted"]),
    (Some(Fallback), Stranded, &["stranded"]),
    (Some(NativeRecovering), Native, &["returned"]),
    (Some(NativeRecovering), Fallback, &["failed-again", "moved-away", "persons-choice"]),
    (Some(NativeRecovering), Stranded, &["stranded"]),
    (Some(NativeQuarantined), NativeRecovering, &["quarantine-over"]),
    (Some(NativeQuarantined), Fallback, &["quarantine-over"]),
    (Some(NativeQuarantined), Native, &["returned"]),
    (Some(NativeQuarantined), Stranded, &["stranded"]),
    (Some(Stranded), Native, &["up-again", "returned"]),
    (Some(Stranded), Fallback, &["up-again", "moved-away", "persons-choice", "adopted"]),
    (Some(Stranded), NativeQuarantined, &["up-again"]),
];
