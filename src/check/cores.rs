//! What a proxy core lacks.
//!
//! **Invariant:** only what a step saw of the core is judged.

use super::{Code, Finding};
use crate::observation::{ConfigReading, Observation};

/// What proxy cores lack.
pub(super) fn findings(seen: &Observation) -> Vec<Finding> {
    let mut found = Vec::new();
    for (asked, reading) in seen.cores() {
        let core = match &reading.core {
            Ok(core) => core,
            Err(fault) => {
                let what = format!("proxy core {}: {fault}", asked.core);
                let mend = "start it, or correct driver.clash in the policy";
                found.push(Finding::new(Code::CoreSilent, what, mend));
                continue;
            }
        };
        // Where nothing that flows is asked for, members are looked at for their kinds.
        for (group, fault) in core.groups.iter().filter(|_| asked.traffic) {
            if let Err(fault) = fault {
                let what = format!("group {}: {fault}", crate::outcome::harmless(group));
                let mend = "name a selector of the core in the policy";
                found.push(Finding::new(Code::CoreGroup, what, mend));
            }
        }
        if core.config != ConfigReading::Unasked && !core.keeps_choices() {
            found.push(Finding::new(
                Code::ChoicesForgotten,
                format!("{} at {} keeps no choice over a restart", core.program, asked.core),
                "set experimental.cache_file.enabled (sing-box), or profile.store-selected (mihomo)",
            ));
        }
    }
    found
}
