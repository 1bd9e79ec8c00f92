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
use crate::names::{Interface, Mark, Table};
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

    /// Its place in numbers that are counted from the first.
    fn place(self) -> u32 {
        match self {
            Self::Primary => 0,
            Self::Reserve => 1,
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
    Clash(Box<ClashDriver>),
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
    /// The table of the primary's own way; the reserve's is the next one.
    pub first_table: u32,
    /// What marks flows and probes of the primary; the reserve's and those of answers are the next.
    pub first_mark: Mark,
    /// The priority of the primary's rule; the reserve's is the next one.
    pub rule_priority: u32,
    /// Which open flows are ended by an urgent switch.
    pub cut: Cut,
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

/// So many marks follow the first one: a channel for what it opens and for what it answers.
pub const FLOW_MARKS: u32 = 4;

impl RouteDriver {
    /// The uplink that a channel is.
    #[must_use]
    pub fn uplink(&self, channel: Channel) -> &Uplink {
        match channel {
            Channel::Primary => &self.primary,
            Channel::Reserve => &self.reserve,
        }
    }

    /// The table that holds nothing but the way out by a channel.
    #[must_use]
    pub fn own_table(&self, channel: Channel) -> Table {
        Table(self.first_table.saturating_add(channel.place()))
    }

    /// The priority of the rule that leads a channel's mark to its table.
    #[must_use]
    pub fn priority(&self, channel: Channel) -> u32 {
        self.rule_priority.saturating_add(channel.place())
    }

    /// What leads packets out by a channel, whatever is chosen.
    #[must_use]
    pub fn mark(&self, channel: Channel) -> Mark {
        Mark(self.first_mark.0.saturating_add(channel.place()))
    }

    /// The conntrack marks of a channel's flows: of those opened by it, and of those answered by it.
    #[must_use]
    pub fn flow_marks(&self, channel: Channel) -> [Mark; 2] {
        let opened = self.mark(channel);
        [opened, Mark(opened.0.saturating_add(FLOW_MARKS / 2))]
    }
}

impl SelectorPolicy {
    /// What it asks for and this version does not do, a line each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
