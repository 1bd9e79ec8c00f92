//! Every transition of a selector, for pictures of it.
//!
//! **Invariant:** the walk over all states of a selector meets each of these and no other.

use super::state::Mode;
use Mode::{OnPrimary, OnReserve, PrimaryFailing, PrimaryQuarantined, PrimaryRecovering};

/// From where, to where, and the reasons that tell of it; `resume` is the command.
pub(super) const EDGES: &[(Option<Mode>, Mode, &[&str])] = &[
    (None, OnPrimary, &["found"]),
    (None, OnReserve, &["found"]),
    (Some(OnPrimary), PrimaryFailing, &["primary-failing"]),
    (Some(OnPrimary), OnReserve, &["persons-choice", "switched"]),
    (Some(PrimaryFailing), OnPrimary, &["false-alarm", "switched"]),
    (Some(PrimaryFailing), OnReserve, &["primary-failed", "persons-choice", "switched"]),
    (Some(PrimaryFailing), PrimaryQuarantined, &["quarantined"]),
    (Some(OnReserve), PrimaryRecovering, &["primary-answers"]),
    (Some(OnReserve), OnPrimary, &["reserve-failed", "persons-choice", "switched"]),
    (Some(OnReserve), PrimaryQuarantined, &["resume"]),
    (
        Some(PrimaryRecovering),
        OnPrimary,
        &["primary-recovered", "reserve-failed", "persons-choice", "switched"],
    ),
    (Some(PrimaryRecovering), OnReserve, &["primary-unsteady", "persons-choice", "switched"]),
    (Some(PrimaryQuarantined), PrimaryRecovering, &["quarantine-over"]),
    (Some(PrimaryQuarantined), OnReserve, &["quarantine-over", "persons-choice", "switched"]),
    (Some(PrimaryQuarantined), OnPrimary, &["reserve-failed", "persons-choice", "switched"]),
];
