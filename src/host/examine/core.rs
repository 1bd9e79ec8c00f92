//! What a proxy core that answers was told: the files of whoever listens for control.
//!
//! **Invariant:** the files are read and never written, and the secret in them stays there.

use crate::host::{clash, core, discover};
use crate::observation::{Outline, Program};
use crate::setting::Core;

/// What the core was told, or why it cannot be seen. `None`: it does not answer, which a step says
/// itself.
#[must_use]
pub fn outline(core: &Core) -> Option<Result<Outline, String>> {
    let reached = clash::reach(core).ok()?;
    let (program, _) = clash::version(&reached).ok()?;
    Some(of_listener(&reached, program))
}

fn of_listener(reached: &clash::Reached, program: Program) -> Result<Outline, String> {
    if program == Program::Other {
        return Err("what its files mean is not known of this program".to_owned());
    }
    let process = core::process(&reached.control(), None);
    let process = process.ok_or("the process that listens there is not shown to this user")?;
    discover::outline_of(process.pid, program).map_err(|fault| fault.to_string())
}
