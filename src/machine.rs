//! The contract of every kind of policy: values in, one decision out.
//!
//! **Invariant:** a machine has no effect and no clock; what it wants to know it asks for, and what
//! it wants changed it says.

use crate::graph::{Edge, Place};
use crate::kernel::World;
use crate::kernel::diff::Means;
use crate::measure::Samples;
use crate::names::{Mark, PolicyName};
use crate::observation::{KernelReading, KernelScope, Observation, Question, Realm};
use crate::page::Shown;
use crate::plan::{Backend, Check};
use crate::policy::Kind;
use crate::pool::candidate::Candidate;
use crate::publish::Published;
use crate::record::Record;
use crate::setting::{Core, Edit, Setting, Written};
use crate::status::Standing;
use crate::time::Moment;
use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// A kind of policy: a name for its functions.
///
/// What a kind has no use for it leaves as it is here: one that touches no kernel names no realms,
/// one that writes no settings is proven by its checks.
pub trait Machine {
    /// Its tag.
    const KIND: Kind;
    /// What the operator wants.
    type Policy;
    /// What is remembered.
    type State: Clone + PartialEq + Serialize + DeserializeOwned;
    /// What `status` shows: an object for machines, one screen for people.
    type Status: Serialize + fmt::Display;

    /// Every transition that it makes, for pictures of it.
    fn edges() -> Vec<Edge>;

    /// Who stands where, for the same.
    fn places(state: &Self::State) -> Vec<Place> {
        vec![Place { part: None, state: Self::stands(state).0.into_owned() }]
    }

    /// What the status page shows of a status.
    fn shown(status: &Self::Status) -> Shown;

    /// The state's name and since when, as reports say it.
    fn stands(state: &Self::State) -> (Cow<'static, str>, &Moment);

    /// How things are, from what the last step wrote.
    fn status(
        name: &PolicyName,
        policy: &Self::Policy,
        record: &Record<Self::State>,
        now: &Moment,
    ) -> (Self::Status, Standing);

    /// What of a status is published.
    fn published(status: &Self::Status) -> Published;

    /// What of a status is measured.
    fn measured(status: &Self::Status) -> Samples;

    /// Looks at what was seen so far and either asks for more or decides.
    ///
    /// With `may_ask` false there is no time left to ask and the decision is due on what there is; at most
    /// it is still asked whether the uplink is the cause of what failed last.
    fn consider(
        subject: &Subject<'_, Self>,
        seen: &Observation,
        now: &Moment,
        may_ask: bool,
    ) -> Considered<Self::State>;

    /// What follows once a decision was carried out: more is asked, another is tried in its place, or
    /// a future has come true. Checks of the decision have passed by then.
    fn prove(
        subject: &Subject<'_, Self>,
        decision: &Decision<Self::State>,
        carried: &Carried<'_>,
        now: &Moment,
    ) -> Proof<Self::State> {
        let _ = (subject, carried, now);
        Proof::Settle(Box::new(decision.wished.clone()), Settled::Applied)
    }

    /// The world that a decision leads to, for those who only want to know: where it is made in
    /// parts, what it wishes is the first of them.
    fn whole(subject: &Subject<'_, Self>, decision: &Decision<Self::State>) -> World {
        let _ = subject;
        decision.wished.world.clone()
    }

    /// The future in which some of what a decision wished did not carry requests, by interface, while
    /// the uplink worked. `None`: all is undone.
    fn refuse(
        subject: &Subject<'_, Self>,
        decision: &Decision<Self::State>,
        failed: &BTreeMap<crate::names::Interface, String>,
        now: &Moment,
    ) -> Option<Future<Self::State>> {
        let _ = (subject, decision, failed, now);
        None
    }

    /// The state with a person's `switch` in it, and what becomes of the pause by it.
    ///
    /// # Errors
    /// Why the target is refused, and what would be done instead.
    fn switch(
        subject: &Subject<'_, Self>,
        target: &str,
        force: bool,
    ) -> Result<(Self::State, Pausing), String>;

    /// Whether a person's `switch` is still waiting to be carried out.
    fn has_wish(state: &Self::State) -> bool;

    /// The state with no `switch` in it.
    fn without_wish(state: &Self::State) -> Self::State;

    /// The state with a person's `refresh` in it. `None` where the kind has none.
    fn refresh(state: &Self::State, now: &Moment) -> Option<Self::State> {
        let _ = (state, now);
        None
    }

    /// Whether a pause would leave clients unprotected.
    fn is_unprotected(state: &Self::State) -> bool {
        let _ = state;
        false
    }

    /// The future in which all of the policy's objects are gone. `None`: nothing was ever made.
    fn retire(subject: &Subject<'_, Self>, now: &Moment) -> Option<Future<Self::State>>;

    /// What of the kernel concerns the policy in its state.
    #[must_use]
    fn scope(subject: &Subject<'_, Self>, turn: u32) -> KernelScope {
        let _ = (subject, turn);
        KernelScope::default()
    }

    /// A state made anew from what the kernel shows, when the file is gone and the kernel is not.
    /// `None` when nothing of the policy's is there.
    #[must_use]
    fn rebuild(
        subject: &Subject<'_, Self>,
        kernel: &KernelReading,
        stored: &[Candidate],
        now: &Moment,
    ) -> Option<Self::State> {
        let _ = (subject, kernel, stored, now);
        None
    }

    /// The state after a pause: counters and windows begin anew, history and marks stay.
    ///
    /// # Errors
    /// Why automation cannot go on from here, and what to do first.
    fn resumed(state: &Self::State, now: &Moment) -> Result<Self::State, String>;

    /// The state with one host or hop of the policy paused or resumed.
    ///
    /// # Errors
    /// That there is no such part, or that the kind has none.
    fn part(
        subject: &Subject<'_, Self>,
        part: &str,
        wish: PartWish,
        now: &Moment,
    ) -> Result<Self::State, String> {
        let _ = (subject, wish, now);
        Err(format!("a {} has no parts such as {part}: name the policy alone", Self::KIND))
    }

    /// How often a step is due, and how long one may take.
    fn rhythm(policy: &Self::Policy, state: Option<&Self::State>) -> Rhythm;

    /// What tells the policy's rules and routes from a stranger's. None: it touches no kernel, needs
    /// no rights there, and is never looked for there.
    fn realms(policy: &Self::Policy) -> BTreeSet<Realm> {
        let _ = policy;
        BTreeSet::new()
    }

    /// Whether what is seen under a pause is remembered, and not only told. A kind whose state says
    /// how the kernel should be must not move on while nothing there may be changed.
    fn remembers_under_pause(policy: &Self::Policy) -> bool {
        Self::realms(policy).is_empty()
    }

    /// Interfaces that are made and removed again within a run.
    fn scratch(policy: &Self::Policy) -> BTreeSet<crate::names::Interface> {
        let _ = policy;
        BTreeSet::new()
    }

    /// How the policy's tunnels are made.
    fn means(policy: &Self::Policy) -> Means {
        let _ = policy;
        Means { backend: Backend::Kernel("wireguard".to_owned()), tool: "wg".to_owned() }
    }
}

/// What a person's `switch` does to the pause of its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pausing {
    /// The choice is the person's from now on: nothing is changed until `resume`.
    Pause,
    /// The choice is given back: a pause ends.
    Lift,
    /// Automation goes on from the choice; refused while paused.
    Keep,
}

/// What a person wants of one host or hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartWish {
    /// Nothing is changed there.
    Pause,
    /// Automation goes on there.
    Resume,
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

/// How often a step is due, and how long one may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    /// From the start of one step to the start of the next; zero: always due.
    pub interval: Duration,
    /// The whole run's deadline.
    pub budget: Duration,
}

/// What a machine is asked about.
pub struct Subject<'a, M: Machine + ?Sized> {
    /// The policy's name.
    pub name: &'a PolicyName,
    /// The policy.
    pub policy: &'a M::Policy,
    /// What is remembered; `None` on the first run.
    pub state: Option<&'a M::State>,
    /// Whether a person has paused it: it is looked at, and nothing is written.
    pub paused: bool,
    /// What the policy has made in the kernel.
    pub owned: &'a Owned,
}

/// What a policy has made or changed in the kernel, so that it can be told from a stranger's and
/// taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owned {
    /// Interfaces that it made.
    pub interfaces: BTreeSet<crate::names::Interface>,
    /// Values below `/proc/sys` from before it changed them.
    pub sysctls: BTreeMap<String, String>,
    /// Under which numbers its rules and routes were made, for when the policy has others since.
    #[serde(default)]
    pub realms: BTreeSet<Realm>,
}

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
