//! Reads both clocks.

use crate::time::Moment;
use anyhow::Context as _;
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, OnceLock};

/// The present moment.
///
/// # Errors
/// When the kernel's boot id cannot be read, which means that `/proc` is not mounted.
pub fn now() -> anyhow::Result<Moment> {
    let up = clock_gettime(ClockId::Boottime);
    let up_ms = up.tv_sec.saturating_mul(1_000).saturating_add(up.tv_nsec / 1_000_000);
    Ok(Moment { at: Timestamp::now(), boot: boot()?, up_ms })
}

/// The kernel's boot id. It is read once: a process does not live through a boot, and a dozen reads
/// were 3 % of a steady step's CPU.
fn boot() -> anyhow::Result<Arc<str>> {
    static BOOT: OnceLock<Arc<str>> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(Arc::clone(boot));
    }
    let path = "/proc/sys/kernel/random/boot_id";
    let boot = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    Ok(Arc::clone(BOOT.get_or_init(|| boot.trim().into())))
}

/// Waits. For the rare place where nothing tells when the world has come to rest.
pub fn pause(time: std::time::Duration) {
    std::thread::sleep(time);
}
