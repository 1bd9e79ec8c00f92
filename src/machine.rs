//! The contract of every kind of policy: values in, one decision out.
//!
//! **Invariant:** a machine has no effect and no clock; what it wants to know it asks for, and what
//! it wants changed it says.

mod decision;

pub use decision::{Carried, Considered, Cut, Decision, Future, Proof, ReasonText, Settled};

use crate::graph::{Edge, Place};
use crate::kernel::World;
use crate::kernel::diff::Means;
use crate::measure::Samples;
use crate::moments::Moments;
use crate::names::PolicyName;
use crate::observation::{KernelReading, KernelScope, Observation, Realm};
use crate::page::Shown;
use crate::plan::Backend;
use crate::policy::Kind;
use crate::pool::candidate::Candidate;
use crate::publish::Published;
use crate::record::Record;
use crate::status::Standing;
use crate::time::Moment;
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
    type State: Clone + PartialEq + Moments + Serialize + DeserializeOwned;
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
