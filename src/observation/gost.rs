//! A gost, as its web API shows it.
//!
//! **Invariant:** what is missing there is told as that: gost answers 200 for what it does not have.

use super::{CoreFault, Life, Process};
use crate::setting::Gost;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A look at a gost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GostQuestion {
    /// The gost.
    pub gost: Gost,
    /// The chain.
    pub chain: String,
    /// The hops that are looked at.
    pub hops: BTreeSet<String>,
    /// The process that it was before, which is looked at first.
    pub process: Option<Process>,
}

/// How a look at a gost went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GostReading {
    /// When it was seen.
    pub at: Moment,
    /// What was seen, or why nothing was.
    pub gost: Result<GostSeen, CoreFault>,
}

/// A gost that answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GostSeen {
    /// What tells it from itself after a restart.
    pub life: Life,
    /// The hops that the chain refers to, in its order; `None`: there is no such chain.
    pub chain: Option<Vec<GostHop>>,
    /// The hops by themselves; `None`: there is none of that name.
    pub hops: BTreeMap<String, Option<GostHop>>,
    /// The services that go out by the chain.
    pub services: Vec<GostService>,
}

/// A hop of a gost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GostHop {
    /// Its name.
    pub name: String,
    /// How it chooses; empty: as gost does by itself.
    pub strategy: String,
    /// The names of its nodes, in their order.
    pub nodes: Vec<String>,
}

/// A service of a gost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GostService {
    /// Its name.
    pub name: String,
    /// How often it tries again.
    pub retries: u64,
    /// The device that what it dials is bound to.
    pub interface: Option<String>,
    /// The mark of what it dials.
    pub mark: Option<u64>,
}
