//! Every transition of a pool, for pictures of it.
//!
//! **Invariant:** the walk over all states of a pool meets each of these and no other.

use super::state::Mode;
use Mode::{
    BootstrapRecovery, DegradedPool, DirectEmergency, FullPoolRefresh, LocalRepair, Normal,
    SlotExhausted,
};

/// From where, to where, and the reasons that tell of it; `resume` is the command.
pub(super) const EDGES: &[(Option<Mode>, Mode, &[&str])] = &[
    (None, Normal, &["loaded"]),
    (None, DegradedPool, &["loaded"]),
    (None, FullPoolRefresh, &["none-passed", "bootstrap-failed"]),
    (Some(Normal), LocalRepair, &["stopped-serving"]),
    (Some(Normal), FullPoolRefresh, &["refresh-asked"]),
    (Some(Normal), DirectEmergency, &["to-direct", "to-none", "direct-held"]),
    (Some(LocalRepair), Normal, &["repaired", "false-alarm", "all-serve"]),
    (Some(LocalRepair), FullPoolRefresh, &["repairs-reached"]),
    (Some(LocalRepair), SlotExhausted, &["no-candidate-left"]),
    (Some(LocalRepair), DirectEmergency, &["to-direct", "to-none", "direct-held"]),
    (Some(FullPoolRefresh), Normal, &["loaded", "all-serve"]),
    (
        Some(FullPoolRefresh),
        DegradedPool,
        &["provider-unavailable", "list-refused", "too-few", "loaded"],
    ),
    (Some(FullPoolRefresh), LocalRepair, &["stopped-serving"]),
    (Some(FullPoolRefresh), DirectEmergency, &["to-direct", "to-none", "direct-held"]),
    (Some(DegradedPool), Normal, &["loaded", "all-serve"]),
    (Some(DegradedPool), SlotExhausted, &["no-candidate-left"]),
    (Some(DegradedPool), LocalRepair, &["stopped-serving"]),
    (Some(DegradedPool), FullPoolRefresh, &["refresh-asked"]),
    (Some(DegradedPool), DirectEmergency, &["to-direct"]),
    (Some(SlotExhausted), DegradedPool, &["repaired", "all-serve"]),
    (Some(SlotExhausted), Normal, &["loaded"]),
    (Some(SlotExhausted), LocalRepair, &["stopped-serving"]),
    (Some(SlotExhausted), FullPoolRefresh, &["refresh-asked"]),
    (Some(SlotExhausted), DirectEmergency, &["to-direct"]),
    (Some(DirectEmergency), BootstrapRecovery, &["recovering"]),
    (Some(BootstrapRecovery), Normal, &["loaded"]),
    (Some(BootstrapRecovery), DegradedPool, &["loaded"]),
];
