//! Whether this process may change the network.
//!
//! **Invariant:** rights are looked at and never taken.

use std::fs;

/// Bits of `CapEff` (linux/capability.h).
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;

/// Says what is missing, if anything is.
#[must_use]
pub fn missing() -> Option<String> {
    // Where /proc tells nothing, the first command will.
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    let has = |bit: u32| mask.checked_shr(bit).is_some_and(|mask| mask & 1 == 1);
    (!has(NET_ADMIN) || !has(NET_RAW)).then(|| {
        "changing the network needs CAP_NET_ADMIN and CAP_NET_RAW: run it as root".to_owned()
    })
}
