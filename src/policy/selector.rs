//! The policy of kind `selector`: what is switched, and between which two channels.
//!
//! `written` reads it, `sound` refuses what contradicts itself, `thresholds` holds the numbers.
//!
//! **Invariant:** channels are named in the terms of their driver.

mod sound;
mod thresholds;
mod written;

pub use thresholds::{Params, Probe};

use super::pool::{Cut, Wan};
use crate::names::{Interface, Table};
use crate::proxy::Proxy;
use crate::setting::Core;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;

/// One of the two channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// Where clients belong.
    Primary,
    /// Where they go while the primary does not work.
    Reserve,
}

impl Channel {
    /// Both, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::Primary, Self::Reserve];

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Primary => Self::Reserve,
            Self::Reserve => Self::Primary,
        }
    }

    /// As policies and reports name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Reserve => "reserve",
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A whole selector policy.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectorPolicy {
    /// What is switched, and between what.
    pub driver: Driver,
    /// What shows that a channel works.
    pub probe: Probe,
    /// What shows that the uplink works, if that is asked.
    pub wan: Option<Wan>,
    /// Every threshold.
    pub params: Params,
}

/// What is switched, and between what.
#[derive(Clone, Debug, PartialEq)]
pub enum Driver {
    /// The selected member of a proxy core's group.
    Clash(ClashDriver),
    /// A default route.
    Route(RouteDriver),
}

/// The selected member of a proxy core's group.
#[derive(Clone, Debug, PartialEq)]
pub struct ClashDriver {
    /// The core.
    pub core: Core,
    /// The group.
    pub selector: String,
    /// Which open connections are closed by an urgent switch.
    pub cut: Cut,
    /// Where clients belong.
    pub primary: Member,
    /// Where they go meanwhile.
    pub reserve: Member,
}

/// A channel that is a member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name in the core.
    pub member: String,
    /// The diagnostic proxy that leaves by it and by nothing else.
    pub proxy: Proxy,
}

/// A default route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteDriver {
    /// The table that it is in.
    pub table: Table,
    /// Its metric: in a table of our own the usual one, in main lower than anybody's.
    pub metric: u32,
    /// The protocol number that tells it from a stranger's.
    pub protocol: u8,
    /// Where clients belong.
    pub primary: Uplink,
    /// Where they go meanwhile.
    pub reserve: Uplink,
}

/// A channel that is an uplink.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uplink {
    /// Its device.
    pub interface: Interface,
    /// The next hop; none given: the device leads to one end only.
    #[serde(default)]
    pub gateway: Option<Ipv4Addr>,
}

impl ClashDriver {
    /// The member that a channel is.
    #[must_use]
    pub fn member(&self, channel: Channel) -> &Member {
        match channel {
            Channel::Primary => &self.primary,
            Channel::Reserve => &self.reserve,
        }
    }

    /// The channel that a member is; `None`: another member of the group.
    #[must_use]
    pub fn channel(&self, member: &str) -> Option<Channel> {
        Channel::ALL.into_iter().find(|channel| self.member(*channel).member == member)
    }
}

impl RouteDriver {
    /// The uplink that a channel is.
    #[must_use]
    pub fn uplink(&self, channel: Channel) -> &Uplink {
        match channel {
            Channel::Primary => &self.primary,
            Channel::Reserve => &self.reserve,
        }
    }
}

impl SelectorPolicy {
    /// What it asks for and this version does not do, a line each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        match self.driver {
            Driver::Clash(_) => Vec::new(),
            Driver::Route(_) => vec!["driver.route is read and has no effect yet".to_owned()],
        }
    }
}
