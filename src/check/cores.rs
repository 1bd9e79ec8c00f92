//! What a proxy core lacks.
//!
//! **Invariant:** only what a step saw of the core is judged.

use super::{Code, Finding};
use crate::observation::{ConfigReading, Observation, Outline, Program};
use crate::outcome::harmless;
use crate::setting::Core;

/// What proxy cores lack.
pub(super) fn findings(seen: &Observation) -> Vec<Finding> {
    let mut found = Vec::new();
    for (source, outline) in seen.outlines() {
        match outline {
            Ok(outline) => found.extend(told(outline)),
            Err(fault) => {
                let what = format!("{source}: {fault}");
                let mend = "start it, or correct driver.clash in the policy";
                found.push(Finding::new(Code::CoreSilent, what, mend));
            }
        }
    }
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
                let what = format!("group {}: {fault}", harmless(group));
                let mend = "name a selector of the core in the policy";
                found.push(Finding::new(Code::CoreGroup, what, mend));
            }
        }
        if core.config != ConfigReading::Unasked && !core.keeps_choices() {
            found.push(forgets(core.program, &asked.core.to_string()));
        }
    }
    // Its files may have been read by two ways.
    let mut is_told = false;
    found.retain(|finding| {
        finding.code != Code::ChoicesForgotten || !std::mem::replace(&mut is_told, true)
    });
    found
}

fn forgets(program: Program, who: &str) -> Finding {
    let mend = match program {
        Program::SingBox => "set experimental.cache_file.enabled to true",
        Program::Mihomo => "set store-selected to true below profile",
        Program::Other => "let it keep what was selected in a file",
    };
    Finding::new(
        Code::ChoicesForgotten,
        format!("{program} at {who} keeps no choice over a restart"),
        mend,
    )
}

/// What is wrong with what a core was told.
fn told(outline: &Outline) -> Vec<Finding> {
    let forgets = (!outline.keeps_choices).then(|| forgets(outline.program, &outline.read_in));
    exposed(outline).into_iter().chain(forgets).collect()
}

/// That others can steer the core.
pub(super) fn exposed(outline: &Outline) -> Option<Finding> {
    let key = match outline.program {
        Program::SingBox => "experimental.clash_api.external_controller",
        Program::Mihomo | Program::Other => "external-controller",
    };
    let exposed = outline.exposed.as_ref().filter(|_| !outline.has_secret)?;
    Some(Finding::new(
        Code::CoreOpen,
        format!("{} listens for control at {exposed} without a secret", outline.program),
        format!("in {}: {key} 127.0.0.1:PORT; or set a secret", outline.read_in),
    ))
}

/// What is wrong with what a core was told that no step looks at.
pub(super) fn unlooked(core: &Core, told: &Result<Outline, String>) -> Vec<Finding> {
    told.as_ref().map_or_else(|why| vec![unseen(core, why)], self::told)
}

/// That nothing can be said of what a core was told.
pub(super) fn unseen(core: &Core, why: &str) -> Finding {
    Finding::new(
        Code::CoreUnseen,
        format!("what {core} was told cannot be read: {}", harmless(why)),
        "check as root, or as the user that the core runs as",
    )
}
