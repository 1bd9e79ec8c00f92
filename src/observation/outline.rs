//! How a proxy core is reached and used, as its own configuration says.
//!
//! **Invariant:** whether there is a secret is told, and no byte of it.

use super::Program;
use crate::proxy::Proxy;
use crate::setting::Control;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What a core was told, as far as it matters to who steers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// Which program it is for.
    pub program: Program,
    /// Where it was read, for people.
    pub read_in: String,
    /// Where it listens for control, or why it cannot be steered from here.
    pub control: Result<Control, String>,
    /// Where it listens for control beyond this machine, as written.
    pub exposed: Option<String>,
    /// Whether control wants a secret.
    pub has_secret: bool,
    /// Whether it keeps what was selected over a restart.
    pub keeps_choices: bool,
    /// Its proxies on this machine that ask for no password, the best first: what speaks both, then
    /// HTTP, then SOCKS.
    pub proxies: Vec<Proxy>,
    /// Proxies of it that cannot be used, and why, a line each.
    pub other_proxies: Vec<String>,
    /// Groups in which a member can be selected, by name, with the members that are written down.
    pub selectors: BTreeMap<String, Vec<String>>,
    /// Groups that choose by themselves.
    pub automatic: BTreeSet<String>,
    /// The outbound or group of what no rule leads elsewhere, where that is written down.
    pub default_way: Option<String>,
}
