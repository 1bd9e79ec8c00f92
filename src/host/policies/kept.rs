//! The last good text of each policy, beside its state.
//!
//! A policy that was edited into something invalid says nothing about what is wished, and its
//! tunnels still have to be kept up: the step goes on with the text from before, and says so.
//!
//! **Invariant:** what is kept was a whole policy when it was stepped.

use super::{Found, Unusable};
use crate::host::files::{keep_in_step, read_bounded};
use crate::names::PolicyName;
use crate::policy::Policy;
use std::path::{Path, PathBuf};

fn place(state_dir: &Path, name: &PolicyName) -> PathBuf {
    state_dir.join(name.as_str()).join("policy.json")
}

/// Keeps the text of a policy that was stepped.
///
/// # Errors
/// When it cannot be written, as in a state folder that is not there.
pub fn keep(state_dir: &Path, found: &Found) -> anyhow::Result<()> {
    keep_in_step(&place(state_dir, &found.name), Some(found.text.as_bytes()), 0o600)
}

/// What was last stepped in the place of a policy that cannot be used, if anything was. A state of
/// another file of the same name is told apart when it is opened.
#[must_use]
pub fn last_good(state_dir: &Path, unusable: &Unusable) -> Option<Found> {
    let (name, path) = unusable.policy.clone()?;
    let bytes = read_bounded(&place(state_dir, &name), super::MAX_BYTES).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let policy = Policy::parse(&text).ok()?;
    Some(Found { name, path, policy, text })
}
