//! The core of a selector: its own configuration, and the unit that it runs as.
//!
//! **Invariant:** the core is asked what it is and nothing is told to it.

use super::text;
use crate::check::selector::{CoreUnit, unit_of};
use crate::host::core;
use crate::host::exec::{self, Call};
use crate::observation::{CoreQuestion, CoreReading};
use crate::policy::selector::ClashDriver;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// systemd answers in milliseconds.
const DEADLINE: Duration = Duration::from_secs(5);

/// Looks at the core with its own configuration.
///
/// # Errors
/// When the clock cannot be read.
pub fn core(driver: &ClashDriver) -> anyhow::Result<CoreReading> {
    core::look(&CoreQuestion {
        turn: 0,
        core: driver.core.clone(),
        groups: BTreeSet::from([driver.selector.clone()]),
        traffic: false,
        config: true,
        process: None,
    })
}

/// The unit of systemd that the core runs as; `None`: it runs as none, or systemd does not say.
#[must_use]
pub fn unit(core: &CoreReading) -> Option<CoreUnit> {
    let process = core.core.as_ref().ok()?.life.process.as_ref()?;
    if !Path::new("/run/systemd/system").is_dir() {
        return None;
    }
    let name = unit_of(&text(&format!("/proc/{}/cgroup", process.pid)))?;
    let asked = ["show", "--property=Restart", "--value", "--", &name];
    let output = exec::run(&Call::new("systemctl", &asked, DEADLINE)).ok()?;
    let restart = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!restart.is_empty()).then_some(CoreUnit { name, restart })
}
