//! What a machine decides, and what follows from it.
//!
//! **Invariant:** all of it is values: a decision names the world that it wishes, and what is remembered
//! in each way in which it may end.

use super::{Machine, Subject};
use crate::kernel::World;
use crate::names::Mark;
use crate::observation::{Observation, Question};
use crate::plan::Check;
use crate::setting::{Core, Edit, Setting, Written};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A machine's answer to what was seen so far.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Considered<S> {
    /// More has to be known.
    Ask(Vec<Question>),
    /// Enough is known.
    Decide(Box<Decision<S>>),
    /// The policy cannot be served on this machine as it is.
    Unable(Vec<ReasonText>),
}

/// What should come true, and what to remember in each case.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Decision<S> {
    /// Where the machine stood; `None` on the first run.
    pub from: Option<String>,
    /// What is wished.
    pub wished: Future<S>,
    /// What the remembered state calls for; what differs from it was changed by somebody else.
    /// `None` on the first run.
    pub standing: Option<World>,
    /// What must be true of it, beside the world being as wished.
    pub checks: Vec<Check>,
    /// What to remember when a command failed and all was undone.
    pub undone: S,
    /// What to remember when the uplink turned out to be down and all was undone.
    pub held: S,
    /// Asked when a check says no, to tell a dead tunnel from a dead uplink.
    pub references: Vec<Question>,
}

/// One way in which a run may end.
#[derive(Clone, Debug, PartialEq)]
pub struct Future<S> {
    /// What is remembered.
    pub state: S,
    /// Where the machine then stands.
    pub to: String,
    /// Our own objects.
    pub world: World,
    /// What is written where other programs keep it. What is not named here is left alone.
    pub settings: BTreeMap<Setting, Edit>,
    /// Whether automation pauses itself: a person has chosen elsewhere.
    pub pauses: bool,
    /// What closes the clients at boot.
    pub barrier: Option<String>,
    /// Flows that are ended once the world is as wished.
    pub cuts: Vec<Cut>,
    /// Folders of the pool that are still needed.
    pub generations: BTreeSet<u32>,
    /// Why.
    pub reasons: Vec<ReasonText>,
}

impl<S> Future<S> {
    /// One in which nothing is made, written or ended: what is, is added to it.
    #[must_use]
    pub fn of<M: Machine<State = S>>(
        state: S,
        reasons: impl IntoIterator<Item = impl Into<ReasonText>>,
    ) -> Self {
        Self {
            to: M::stands(&state).0.into_owned(),
            state,
            world: World::default(),
            settings: BTreeMap::new(),
            pauses: false,
            barrier: None,
            cuts: Vec::new(),
            generations: BTreeSet::new(),
            reasons: reasons.into_iter().map(Into::into).collect(),
        }
    }
}

impl<S: Clone> Decision<S> {
    /// One that is proven by what is written alone. `counted` is remembered if nothing comes of it.
    pub fn of<M: Machine<State = S>>(
        subject: &Subject<'_, M>,
        wished: Future<S>,
        counted: S,
    ) -> Self {
        Self {
            from: subject.state.map(|state| M::stands(state).0.into_owned()),
            wished,
            standing: None,
            checks: Vec::new(),
            held: counted.clone(),
            undone: counted,
            references: Vec::new(),
        }
    }
}

/// Flows to end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cut {
    /// All that carry a mark.
    Marked(Mark),
    /// All of a client that carry none: they were opened before it was taken over.
    Unmarked(IpNet),
    /// Connections of a proxy core that go through all of these, members or groups.
    Through {
        /// The core.
        core: Core,
        /// The names.
        names: Vec<String>,
    },
}

/// A reason as reports carry it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonText {
    /// The stable code.
    pub code: String,
    /// For people.
    pub text: String,
}

impl ReasonText {
    /// A reason that belongs to no machine.
    pub fn new(code: &str, text: impl Into<String>) -> Self {
        Self { code: code.to_owned(), text: text.into() }
    }
}

/// What became of a decision that was carried out.
#[derive(Clone, Copy, Debug)]
pub struct Carried<'a> {
    /// What was seen before.
    pub before: &'a Observation,
    /// What was asked since, of this decision alone.
    pub seen: &'a Observation,
    /// What became of each setting that was to be written.
    pub written: &'a BTreeMap<Setting, Written>,
    /// How many decisions of this run were tried before this one.
    pub tries: u32,
    /// With false there is no time left to ask or to try another.
    pub may_ask: bool,
}

/// What follows from a decision that was carried out.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Proof<S> {
    /// More has to be known.
    Ask(Vec<Question>),
    /// Another decision is carried out from here, in the same transaction.
    Next(Box<Decision<S>>),
    /// Nobody can tell what came true: the journal stays, and the next run takes back what is ours.
    Unknown(String),
    /// This future is made true, where it is not yet, and remembered.
    Settle(Box<Future<S>>, Settled),
}

/// How a transaction is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// What was wished came true.
    Applied,
    /// Some of it did not, and was taken back.
    RolledBack,
}
