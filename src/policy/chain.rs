//! The policy of kind `chain`: hops one behind the other, the nodes of each, and every threshold.
//!
//! **Invariant:** every default that is not the operator's is written here, once; nodes keep the
//! order in which they are written, since the first one is preferred.

mod sound;
mod wireguard;
mod written;

pub use wireguard::WireguardDriver;

use super::pool::{Require, Wan};
use crate::chain::name::{HopName, NodeName};
use crate::proxy::Proxy;
use crate::setting::{Core, Gost};
use crate::url::Target;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// A whole chain policy.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainPolicy {
    /// What the hops are made of.
    pub driver: Driver,
    /// The hops, the one nearest to the clients first.
    pub hops: Vec<Hop>,
    /// What shows that requests pass.
    pub probe: Probe,
    /// What shows that the uplink works, if that is asked.
    pub wan: Option<Wan>,
    /// Every threshold.
    pub params: Params,
}

/// What the hops are made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Driver {
    /// Groups of a proxy core: a group a hop, whose members go out by the group before.
    Clash(ClashDriver),
    /// Hops of a gost.
    Gost(GostDriver),
    /// Tunnels of this machine, each one inside the one before.
    Wireguard(WireguardDriver),
}

impl Driver {
    /// Whether a hop can be asked by itself.
    #[must_use]
    pub fn has_legs(&self) -> bool {
        match self {
            Self::Clash(_) | Self::Wireguard(_) => true,
            // gost asks nothing on its own, and one hop of it cannot be asked alone.
            Self::Gost(_) => false,
        }
    }
}

/// A proxy core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClashDriver {
    /// The core.
    pub core: Core,
    /// Its proxy that goes out by the last hop, if requests are to prove the whole path.
    pub proxy: Option<Proxy>,
}

/// A gost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GostDriver {
    /// The gost.
    pub gost: Gost,
    /// The chain that its services go out by.
    pub chain: String,
    /// A service of it that goes out by the chain; requests by it prove the whole path.
    pub proxy: Proxy,
    /// What keeps a direct dial from leaving.
    pub pin: Pin,
}

/// What a service is pinned to, so that what it dials directly goes nowhere else.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pin {
    /// A device.
    Interface(String),
    /// A mark that routing rules know.
    Mark(u32),
}

/// One hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its name.
    pub name: HopName,
    /// What the driver calls it.
    pub group: String,
    /// Which node is preferred.
    pub strategy: Strategy,
    /// How long a node carries before the next one does; `round` only.
    pub rotate_sec: Option<u64>,
    /// Its nodes, in order. Never empty.
    pub nodes: Vec<Node>,
}

/// Which node of a hop is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The first one.
    Fifo,
    /// The one that carries.
    Round,
    /// The one that was the fastest for long enough.
    LowestLatency,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// What the driver calls it.
    pub member: String,
    /// Whether requests may leave by it, so that it can be asked by itself.
    pub egress: bool,
    /// The wg-quick file that describes it; driver `wireguard` alone has them.
    pub config: Option<PathBuf>,
}

impl Hop {
    /// The node that is called so.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == *name)
    }

    /// The node that the driver calls so.
    #[must_use]
    pub fn of_member(&self, member: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.member == member)
    }
}

/// What shows that requests pass: pages asked through the hops.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Probe {
    /// The pages.
    pub urls: Vec<Target>,
    /// Whether one good answer is enough.
    pub require: Require,
    /// The only good status codes of a request by the proxy; the core's own measures look at none.
    pub expect_status: Vec<u16>,
    /// How long one request may take.
    pub timeout_sec: u64,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            urls: super::pool::Probe::default().urls,
            require: Require::Any,
            expect_status: vec![204],
            timeout_sec: 5,
        }
    }
}

/// What becomes of a hop of which no node passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllFailed {
    /// It is closed until one does.
    Closed,
    /// The preferred one stays in place until another passes.
    LastResort,
}

/// Every threshold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// A step is due this long after the start of the last; 0: always.
    pub check_interval_sec: u64,
    /// A node that is blamed so often in a row is replaced.
    pub max_fails: u32,
    /// So long a replaced node is not returned to.
    pub fail_timeout_sec: u64,
    /// The longest of these times.
    pub fail_timeout_max_sec: u64,
    /// The preferred node passes so often in a row before it is returned to.
    pub rise: u32,
    /// Clients stay on a backup so long at least.
    pub minimum_stay_sec: u64,
    /// What becomes of a hop of which no node passes.
    pub all_failed: AllFailed,
    /// The whole run's deadline.
    pub step_budget_sec: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            check_interval_sec: 15,
            max_fails: 1,
            fail_timeout_sec: 600,
            fail_timeout_max_sec: 7_200,
            rise: 2,
            minimum_stay_sec: 300,
            all_failed: AllFailed::Closed,
            step_budget_sec: 60,
        }
    }
}

impl Params {
    /// The check interval.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.check_interval_sec)
    }
}

impl ChainPolicy {
    /// The pages that a core is told to measure by: those over https where there are some, since
    /// sing-box takes a page of its own in place of one over http.
    #[must_use]
    pub fn measured_by(&self) -> Vec<Target> {
        let all = &self.probe.urls;
        let https: Vec<Target> = all.iter().filter(|url| url.is_https()).cloned().collect();
        if https.is_empty() { all.clone() } else { https }
    }
}
