//! What the state file and the journal hold beside the machine's own state.
//!
//! **Invariant:** all that was made in the kernel is named here before it is made: in the record
//! once it is proven, in the journal until then.

use crate::kernel::World;
use crate::machine::{Owned, ReasonText};
use crate::names::Interface;
use crate::outcome::Ending;
use crate::setting::Flight;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The body of a state file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record<S> {
    /// The machine's own state; `None` until its first decision.
    pub machine: Option<S>,
    /// A person's pause.
    pub paused: Option<Moment>,
    /// What was made in the kernel.
    pub owned: Owned,
    /// The nft table as it was last loaded.
    pub nft: Option<LoadedNft>,
    /// How the last step ended.
    pub last_step: Option<LastStep>,
}

impl<S> Default for Record<S> {
    fn default() -> Self {
        Self { machine: None, paused: None, owned: Owned::default(), nft: None, last_step: None }
    }
}

/// Which text was loaded and what the kernel shows for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedNft {
    /// SHA-256 of the text.
    pub text: String,
    /// SHA-256 of the listing.
    pub listing: String,
}

/// How the last step ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastStep {
    /// When it began.
    pub at: Moment,
    /// How it ended.
    pub outcome: Ending,
    /// The transition that it made.
    pub transition: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
    /// Why.
    pub reasons: Vec<ReasonText>,
}

/// What is on disk while a change is in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Journal<S> {
    /// When the change began.
    pub at: Moment,
    /// What the change is for.
    pub purpose: String,
    /// Our own objects from before.
    pub backup: World,
    /// Interfaces that the change makes, test interfaces included.
    pub makes: BTreeSet<Interface>,
    /// What is being written where other programs keep it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Flight>,
    /// The commands, for people.
    pub commands: Vec<String>,
    /// What is remembered when the change is undone.
    pub undone: Record<S>,
}
