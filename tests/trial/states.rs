//! The states that the full trial goes through, each noted when it was entered.
//!
//! **Invariant:** the trial on real tunnels and the trial in a scripted world go through the same ones.

/// The states in their order. The points of the trial that bring no new state stand beside the one
/// that they happen in.
pub(crate) const STATES: [&str; 19] = [
    "NORMAL",             // the first run: the list by HTTP, tested and loaded
    "LOCAL_REPAIR",       // 1: one VPN fails
    "NORMAL",             // 2, 3: local repair, quarantine
    "LOCAL_REPAIR",       // 4: repeated failures
    "NORMAL",             //
    "LOCAL_REPAIR",       //
    "FULL_POOL_REFRESH",  // the threshold of three repairs
    "NORMAL",             // 5: a full refresh over HTTP
    "LOCAL_REPAIR",       // 6: a new series of failures
    "NORMAL",             //
    "LOCAL_REPAIR",       //
    "NORMAL",             //
    "LOCAL_REPAIR",       //
    "FULL_POOL_REFRESH",  //
    "DEGRADED_POOL",      // 7, 8: the provider is unavailable, service goes on with the rest
    "SLOT_EXHAUSTED", // 9, 10, 11: no candidate is left, consolidation, one tunnel after the other dies
    "DIRECT_EMERGENCY", // 11, 12: the last one died, clients in Direct
    "BOOTSTRAP_RECOVERY", // 12 to 15: the cached pool, the standby tunnel, a new list through it
    "NORMAL",         // 16, 17: five slots, clients back on VPN
];
