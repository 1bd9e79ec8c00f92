//! Values that other programs keep and that a person can change there too: the selected member of a
//! proxy core's group, the addresses of a host name.
//!
//! Such a value is a choice, not a possession. It is written once, when a transition wants it, and
//! read back; a difference later is somebody's wish and is read, never healed.
//!
//! **Invariant:** a write names what it expects to stand there, so that a choice which nobody has
//! looked at yet is never overwritten; a key names files of secrets and never a secret.

use crate::dns::name::HostName;
use crate::dns::record::{RecordSet, Zone};
use crate::outcome::harmless;
use crate::url::Target;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

/// Which value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Setting {
    /// The member that a group of a proxy core has selected.
    Selected {
        /// The core.
        core: Core,
        /// The group, as the core names it.
        group: String,
    },
    /// The node that a hop of gost tries first.
    First {
        /// The gost.
        gost: Gost,
        /// The hop, as gost names it.
        hop: String,
    },
    /// How often a service of gost tries again.
    Retries {
        /// The gost.
        gost: Gost,
        /// The service, as gost names it.
        service: String,
    },
    /// The address records of a host name.
    Records {
        /// The zone that they stand in.
        zone: Zone,
        /// The name.
        host: HostName,
    },
}

/// What it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Value {
    /// A member of a group, or a node of a hop.
    Member(String),
    /// How often.
    Count(u64),
    /// Address records.
    Records(RecordSet),
}

/// A proxy core with a Clash API, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Core {
    /// Where it listens.
    pub control: Control,
    /// The file with its secret, if the policy names one.
    pub secret_file: Option<PathBuf>,
    /// Where else its secret is found, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_in: Option<Source>,
}

/// Where what a core was told is found: it is looked at each time, so that a core that began anew at
/// another port or with another secret is the same core.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Source {
    /// In its configuration: a file, or a folder of them.
    File(PathBuf),
    /// Where the running process was told to look, by the process's name; `None`: by any that a
    /// core is known by.
    Process(Option<String>),
}

/// A gost with its web API, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gost {
    /// Where it listens; its host is an address of this machine or another one.
    pub url: Target,
    /// The file with `USER:PASSWORD`.
    pub credentials_file: PathBuf,
}

/// Where a core listens for control.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Control {
    /// HTTP on loopback.
    Http(Target),
    /// HTTP on a unix socket.
    Unix(PathBuf),
    /// Where the core was told to listen.
    Found(Source),
}

/// A write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Edit {
    /// What stands there as far as the machine knows. Anything else is a person's.
    pub expected: Value,
    /// What shall stand there.
    pub to: Value,
}

/// What became of a write, as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It reads back as written.
    Done,
    /// It reads back as before.
    Refused {
        /// Why.
        why: String,
        /// When to try again at the earliest, if that was said, in seconds.
        retry_after_sec: Option<u64>,
    },
    /// A third value stands there: nothing was put back.
    Overtaken {
        /// The value.
        found: Value,
    },
    /// It cannot be read, so nobody knows.
    Unreadable {
        /// Why.
        why: String,
    },
}

/// A write in flight, as the journal keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flight {
    /// Which value.
    pub setting: Setting,
    /// What stood there.
    pub was: Value,
    /// What this run may have written: only that is put back.
    pub ours: BTreeSet<Value>,
}

impl Setting {
    /// The write in words, for the plan and the journal.
    #[must_use]
    pub fn command(&self, to: &Value) -> String {
        match (self, to) {
            (Self::Selected { core, group }, Value::Member(member)) => {
                format!("select {} in {} of {core}", harmless(member), harmless(group))
            }
            (Self::First { gost, hop }, Value::Member(node)) => {
                format!("put {} first in {} of {gost}", harmless(node), harmless(hop))
            }
            (
                Self::Selected { .. }
                | Self::First { .. }
                | Self::Retries { .. }
                | Self::Records { .. },
                value,
            ) => {
                format!("set {self} to {value}")
            }
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Selected { core, group } => write!(f, "group {} of {core}", harmless(group)),
            Self::First { gost, hop } => write!(f, "hop {} of {gost}", harmless(hop)),
            Self::Retries { gost, service } => {
                write!(f, "retries of service {} of {gost}", harmless(service))
            }
            Self::Records { zone, host } => write!(f, "{host} in {zone}"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(member) => f.write_str(&harmless(member)),
            Self::Count(count) => count.fmt(f),
            Self::Records(records) => records.fmt(f),
        }
    }
}

impl fmt::Display for Gost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str())
    }
}

impl fmt::Display for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.control {
            Control::Http(url) => f.write_str(url.as_str()),
            Control::Unix(path) => write!(f, "{}", path.display()),
            Control::Found(source) => source.fmt(f),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the core of {}", harmless(&path.display().to_string())),
            Self::Process(Some(name)) => write!(f, "the running {}", harmless(name)),
            Self::Process(None) => f.write_str("the running core"),
        }
    }
}
