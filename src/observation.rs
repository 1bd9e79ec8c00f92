//! What can be asked of the world, and what was seen.
//!
//! A machine asks in rounds: it is shown what has been seen so far and names what it still wants to
//! know, until it wants nothing more. Trouble is a value here: a page that does not answer is a
//! reading like any other.
//!
//! **Invariant:** asking the same question twice in a run gives one reading; a question that must be
//! asked again carries another turn.

mod candidates;
mod carried;
mod core;
mod delays;
mod gost;
mod kernel;
mod nodes;
mod outline;
mod pages;
mod standby;
mod tunnels;

pub use candidates::{
    ListQuestion, ListReading, ListVia, Trial, TrialReading, TrialResult, Validators,
};
pub use carried::{CarriedQuestion, CarriedReading};
pub use core::{
    ConfigReading, CoreConfig, CoreFault, CoreQuestion, CoreReading, CoreSeen, Flow, Group,
    GroupFault, Inbound, Life, Process, Program, Traffic,
};
pub use delays::{Delay, DelayQuestion, DelayReading};
pub use gost::{GostHop, GostQuestion, GostReading, GostSeen, GostService};
pub use kernel::{Counters, KernelReading, KernelScope, Keys, Realm};
pub use nodes::{Handshake, NodeCheck, NodeReading, NodesReading};
pub use outline::Outline;
pub use pages::{
    AnyOrAll, Asker, Expect, Page, PageReading, Pages, PagesReading, Patience, Silence, Way,
};
pub use standby::{StandbyQuestion, StandbyReading};
pub use tunnels::{TunnelsQuestion, TunnelsReading};

use crate::setting::{Setting, Source, Value};
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// One thing to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// The kernel, as far as it concerns one policy.
    Kernel(Box<KernelScope>),
    /// The addresses of host names.
    Names(BTreeSet<String>),
    /// Pages, side by side.
    Pages(Pages),
    /// The provider's list.
    List(Box<ListQuestion>),
    /// A candidate, tried on a test interface.
    Trial(Box<Trial>),
    /// The file of the standby tunnel.
    Standby(Box<StandbyQuestion>),
    /// Files of single tunnels.
    Tunnels(Box<TunnelsQuestion>),
    /// A proxy core.
    Core(Box<CoreQuestion>),
    /// What a proxy core was told, as its own files say.
    Outline(Source),
    /// How long members of a proxy core take.
    Delays(Box<DelayQuestion>),
    /// A gost.
    Gost(Box<GostQuestion>),
    /// Nodes, side by side.
    Nodes(BTreeSet<NodeCheck>),
    /// What another program keeps.
    Setting(Box<Setting>),
    /// What devices have received.
    Carried(CarriedQuestion),
    /// Nothing but the time: what is asked in the next round is that much later.
    Wait {
        /// Which time this is asked in this run, from 0.
        turn: u32,
        /// How long.
        millis: u64,
    },
}

impl Question {
    /// Whether asking changes something, be it a file of the state folder.
    #[must_use]
    pub fn changes(&self) -> bool {
        match self {
            Self::List(_) | Self::Trial(_) => true,
            // A copy of an operator's file is nobody's but ours.
            Self::Tunnels(_)
            | Self::Kernel(_)
            | Self::Names(_)
            | Self::Pages(_)
            | Self::Standby(_)
            | Self::Core(_)
            | Self::Outline(_)
            | Self::Delays(_)
            | Self::Gost(_)
            | Self::Nodes(_)
            | Self::Setting(_)
            | Self::Carried(_)
            | Self::Wait { .. } => false,
        }
    }

    /// Whether asking makes something in the kernel, which a journal has to name before.
    #[must_use]
    pub fn makes(&self) -> bool {
        match self {
            Self::Trial(_) => true,
            Self::Tunnels(_)
            | Self::Kernel(_)
            | Self::Names(_)
            | Self::Pages(_)
            | Self::List(_)
            | Self::Standby(_)
            | Self::Core(_)
            | Self::Outline(_)
            | Self::Delays(_)
            | Self::Gost(_)
            | Self::Nodes(_)
            | Self::Setting(_)
            | Self::Carried(_)
            | Self::Wait { .. } => false,
        }
    }
}

/// What was seen of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reading {
    /// The kernel.
    Kernel(Box<KernelReading>),
    /// Addresses, or why there are none.
    Names(BTreeMap<String, Result<Vec<IpAddr>, String>>),
    /// One reading a page, in their order; a page that did not have to be asked has none.
    Pages(PagesReading),
    /// The list.
    List {
        /// When it was over.
        at: Moment,
        /// What came.
        list: ListReading,
    },
    /// How the trial went.
    Trial(TrialReading),
    /// The tunnel that the file describes.
    Standby(Box<StandbyReading>),
    /// The tunnels that the files describe.
    Tunnels(Box<TunnelsReading>),
    /// The core.
    Core(Box<CoreReading>),
    /// What it was told, or why nobody knows.
    Outline(Box<Result<Outline, CoreFault>>),
    /// What it measured.
    Delays(DelayReading),
    /// The gost.
    Gost(Box<GostReading>),
    /// What the nodes showed.
    Nodes(NodesReading),
    /// What stands there, or why it cannot be read.
    Setting(Result<Value, String>),
    /// What they have received.
    Carried(CarriedReading),
    /// The time is over.
    Waited,
}

/// All that was seen in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// When the run began to look.
    pub started: Moment,
    /// Readings by question.
    pub readings: BTreeMap<Question, Reading>,
}

impl Observation {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(started: Moment) -> Self {
        Self { started, readings: BTreeMap::new() }
    }

    /// The reading of the kernel, once there is one.
    #[must_use]
    pub fn kernel(&self) -> Option<&KernelReading> {
        self.readings.values().find_map(|reading| {
            let Reading::Kernel(kernel) = reading else { return None };
            Some(kernel.as_ref())
        })
    }

    /// What the file of the standby tunnel says, once it was read.
    #[must_use]
    pub fn standby(&self) -> Option<&StandbyReading> {
        self.readings.values().find_map(|reading| {
            let Reading::Standby(standby) = reading else { return None };
            Some(standby.as_ref())
        })
    }

    /// What files of single tunnels say, once they were read.
    #[must_use]
    pub fn tunnels(&self) -> Option<&TunnelsReading> {
        self.readings.values().find_map(|reading| {
            let Reading::Tunnels(tunnels) = reading else { return None };
            Some(tunnels.as_ref())
        })
    }

    /// The readings of pages asked by `asker`, by turn.
    #[must_use]
    pub fn pages(&self, asker: &Asker) -> Vec<(&Pages, &PagesReading)> {
        // Looked up rather than searched for: a large pool asks this of each slot, several times a step.
        self.readings
            .range(Question::Pages(Pages::least(asker.clone()))..)
            .map_while(|(question, reading)| match (question, reading) {
                (Question::Pages(pages), Reading::Pages(seen)) if pages.asker == *asker => {
                    Some((pages, seen))
                }
                _ => None,
            })
            .collect()
    }

    /// The addresses that were resolved in this run.
    #[must_use]
    pub fn names(&self) -> BTreeMap<&str, &Result<Vec<IpAddr>, String>> {
        self.readings
            .values()
            .filter_map(|reading| {
                let Reading::Names(names) = reading else { return None };
                Some(names)
            })
            .flatten()
            .map(|(name, addresses)| (name.as_str(), addresses))
            .collect()
    }

    /// What the provider said, by the way that it was asked.
    pub fn lists(&self) -> impl Iterator<Item = (&ListQuestion, &ListReading)> {
        self.readings.iter().filter_map(|(question, reading)| match (question, reading) {
            (Question::List(asked), Reading::List { list, .. }) => Some((asked.as_ref(), list)),
            _ => None,
        })
    }

    /// What the nodes showed, once they were asked.
    #[must_use]
    pub fn nodes(&self) -> Option<&NodesReading> {
        self.readings.values().find_map(|reading| {
            let Reading::Nodes(nodes) = reading else { return None };
            Some(nodes)
        })
    }

    /// What stands there, once it was read, or why it cannot be read.
    #[must_use]
    pub fn setting(&self, setting: &Setting) -> Option<&Result<Value, String>> {
        let reading = self.readings.get(&Question::Setting(Box::new(setting.clone())))?;
        let Reading::Setting(value) = reading else { return None };
        Some(value)
    }

    /// The trials so far.
    pub fn trials(&self) -> impl Iterator<Item = (&Trial, &TrialReading)> {
        self.readings.iter().filter_map(|(question, reading)| match (question, reading) {
            (Question::Trial(trial), Reading::Trial(seen)) => Some((trial.as_ref(), seen)),
            _ => None,
        })
    }

    /// What was seen of proxy cores, in the order of their turns.
    pub fn cores(&self) -> impl Iterator<Item = (&CoreQuestion, &CoreReading)> {
        self.readings.iter().filter_map(|(question, reading)| match (question, reading) {
            (Question::Core(core), Reading::Core(seen)) => Some((core.as_ref(), seen.as_ref())),
            _ => None,
        })
    }

    /// What devices had received, by the turn in which that was asked.
    pub fn carried(&self) -> impl Iterator<Item = (u32, &CarriedReading)> {
        self.readings.iter().filter_map(|(question, reading)| match (question, reading) {
            (Question::Carried(asked), Reading::Carried(seen)) => Some((asked.turn, seen)),
            _ => None,
        })
    }

    /// What proxy cores were told.
    pub fn outlines(&self) -> impl Iterator<Item = (&Source, &Result<Outline, CoreFault>)> {
        self.readings.iter().filter_map(|(question, reading)| match (question, reading) {
            (Question::Outline(asked), Reading::Outline(seen)) => Some((asked, seen.as_ref())),
            _ => None,
        })
    }

    /// What was seen of a gost, once it was looked at.
    #[must_use]
    pub fn gost(&self) -> Option<&GostReading> {
        self.readings.values().find_map(|reading| {
            let Reading::Gost(gost) = reading else { return None };
            Some(gost.as_ref())
        })
    }

    /// What proxy cores measured.
    pub fn delays(&self) -> impl Iterator<Item = (&DelayQuestion, &DelayReading)> {
        self.readings.iter().filter_map(|(question, reading)| match (question, reading) {
            (Question::Delays(asked), Reading::Delays(seen)) => Some((asked.as_ref(), seen)),
            _ => None,
        })
    }
}
