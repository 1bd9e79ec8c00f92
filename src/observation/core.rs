//! A proxy core, as its control API and its process show it.
//!
//! **Invariant:** whether the core was restarted since it was last seen is judged here, from its
//! process and from totals that only a restart lets fall, and nowhere else.

use crate::proxy::Proxy;
use crate::setting::Core;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A look at a core.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoreQuestion {
    /// Which time this is asked in this run, from 0.
    pub turn: u32,
    /// The core.
    pub core: Core,
    /// The groups that are looked at.
    pub groups: BTreeSet<String>,
    /// Whether open connections and totals are asked for.
    pub traffic: bool,
    /// Whether its own configuration is read, for what the API does not tell.
    pub config: bool,
    /// The process that it was before, which is looked at first.
    pub process: Option<Process>,
}

/// How a look at a core went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreReading {
    /// When it was seen.
    pub at: Moment,
    /// What was seen, or why nothing was.
    pub core: Result<CoreSeen, CoreFault>,
}

/// Why nothing is seen of a core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoreFault {
    /// Nobody listens, or nobody answers: it is down or restarting.
    Down(String),
    /// It does not know our secret, or we do not.
    Refused(String),
    /// What answers is no proxy core.
    Strange(String),
}

/// A core that answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreSeen {
    /// Which program it is.
    pub program: Program,
    /// Its version, as it says it.
    pub version: String,
    /// What tells it from itself after a restart.
    pub life: Life,
    /// The groups that were asked for.
    pub groups: BTreeMap<String, Result<Group, GroupFault>>,
    /// What flows, if it was asked for.
    pub traffic: Option<Result<Traffic, String>>,
    /// What its configuration says.
    pub config: ConfigReading,
}

/// How a look at a core's own configuration went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigReading {
    /// It was not asked for.
    Unasked,
    /// It cannot be read: the core's process is not seen, or its files are not understood.
    Unread(String),
    /// What it says.
    Read(CoreConfig),
}

/// Which program a core is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// sing-box.
    SingBox,
    /// mihomo, which was Clash.Meta.
    Mihomo,
    /// Another one that speaks the API.
    Other,
}

/// What tells a core from itself after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Life {
    /// The process that listens for control, if that can be seen.
    pub process: Option<Process>,
    /// Bytes received and sent since it began, if they were asked for.
    pub totals: Option<(u64, u64)>,
}

/// A process, told from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// The kernel's boot id.
    pub boot: String,
    /// Its number.
    pub pid: u32,
    /// When it began, in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub began: u64,
}

/// A group of a core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its type, such as `Selector`.
    pub kind: String,
    /// The member that it has selected.
    pub now: String,
    /// Its members, in their order.
    pub all: Vec<String>,
}

/// Why nothing is known of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupFault {
    /// The core has nothing of that name.
    Missing,
    /// It is a member and no group.
    NoGroup {
        /// Its type.
        kind: String,
    },
    /// It has no members: what it is asked to carry goes nowhere, or goes out directly.
    Empty,
    /// The core said something else against it.
    Unread(String),
}

/// What flows through a core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes received since it began.
    pub received: u64,
    /// Bytes sent since it began.
    pub sent: u64,
    /// Open connections.
    pub flows: Vec<Flow>,
}

/// An open connection of a core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Its name for the core.
    pub id: String,
    /// What it goes through, from the member that carries it to the outermost group.
    pub chains: Vec<String>,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
}

/// What a core's own configuration says and its API does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreConfig {
    /// Whether it keeps what was selected over a restart.
    pub keeps_choices: bool,
    /// The member that a group begins with, where that is written down.
    pub defaults: BTreeMap<String, String>,
    /// Groups that cut their open connections when another member is selected.
    pub interrupting: BTreeSet<String>,
    /// Proxies on this machine, by their ports, where the configuration tells of them.
    pub inbounds: BTreeMap<u16, Inbound>,
}

/// A proxy of a core on this machine, and where its rules lead what comes in there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inbound {
    /// Its name.
    pub tag: String,
    /// How it is reached.
    pub proxy: Proxy,
    /// Whether it wants a password.
    pub needs_password: bool,
    /// The outbound that all of it is led to; `None`: it is refused, or led nowhere.
    pub way: Option<String>,
    /// Whether a rule leads it there by its name, and it does not just go where all goes.
    pub is_named: bool,
    /// The numbers, from 1, of the rules before that one which may take some of it.
    pub before: Vec<usize>,
}

impl Life {
    /// Whether `later` is of another run of the core. Its configuration read anew, as on SIGHUP,
    /// counts too: the process stays and its totals begin anew, as its choices may.
    #[must_use]
    pub fn ended_before(&self, later: &Self) -> bool {
        let other = |(mine, theirs): (&Process, &Process)| mine != theirs;
        let fell =
            |(mine, theirs): ((u64, u64), (u64, u64))| theirs.0 < mine.0 || theirs.1 < mine.1;
        self.process.as_ref().zip(later.process.as_ref()).is_some_and(other)
            || self.totals.zip(later.totals).is_some_and(fell)
    }
}

impl CoreSeen {
    /// Whether what was selected outlives a restart: as its configuration says, or else as the
    /// program has it when nothing is written (mihomo keeps choices, sing-box does not).
    #[must_use]
    pub fn keeps_choices(&self) -> bool {
        match (&self.config, self.program) {
            (ConfigReading::Read(config), _) => config.keeps_choices,
            (ConfigReading::Unasked | ConfigReading::Unread(_), Program::Mihomo) => true,
            (
                ConfigReading::Unasked | ConfigReading::Unread(_),
                Program::SingBox | Program::Other,
            ) => false,
        }
    }

    /// The member that `group` begins with: as written, or else the first one.
    #[must_use]
    pub fn default_of(&self, group: &str) -> Option<&str> {
        let written = match &self.config {
            ConfigReading::Read(config) => config.defaults.get(group),
            ConfigReading::Unasked | ConfigReading::Unread(_) => None,
        };
        let first = || self.groups.get(group)?.as_ref().ok()?.all.first();
        written.or_else(first).map(String::as_str)
    }
}

impl Flow {
    /// Whether it goes through all of these, be they members or groups.
    #[must_use]
    pub fn goes_through(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.chains.iter().any(|link| link == name))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SingBox => "sing-box",
            Self::Mihomo => "mihomo",
            Self::Other => "an unknown core",
        })
    }
}

impl fmt::Display for CoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down(why) | Self::Refused(why) | Self::Strange(why) => f.write_str(why),
        }
    }
}

impl fmt::Display for GroupFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the core has no group of that name"),
            Self::NoGroup { kind } => {
                write!(f, "it is of type {} and no group", crate::outcome::harmless(kind))
            }
            Self::Empty => f.write_str("it has no members, so nothing can be selected"),
            Self::Unread(why) => f.write_str(why),
        }
    }
}
