//! The policy of kind `chain`: hops one behind the other, the nodes of each, and every threshold.
//!
//! **Invariant:** every default that is not the operator's is written here, once; nodes keep the
//! order in which they are written, since the first one is preferred.

mod nodes;
mod sound;

use super::clash;
use super::fault::PolicyFault;
use super::pool::{Require, Wan};
use crate::chain::name::{HopName, NodeName};
use crate::proxy::Proxy;
use crate::setting::{Core, Gost};
use crate::url::Target;
use nodes::Ordered;
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Groups of a proxy core: a group a hop, whose members go out by the group before.
    Clash(ClashDriver),
    /// Hops of a gost.
    Gost(GostDriver),
}

impl Driver {
    /// Whether a hop can be asked by itself.
    #[must_use]
    pub fn has_legs(&self) -> bool {
        match self {
            Self::Clash(_) => true,
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

/// A policy as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "$schema", default)]
    _schema: Option<String>,
    #[serde(rename = "description", default)]
    _description: Option<String>,
    driver: WrittenDriver,
    hops: Vec<WrittenHop>,
    #[serde(default)]
    probe: Probe,
    #[serde(default = "usual_wan")]
    wan: Option<Wan>,
    #[serde(default)]
    params: Params,
}

/// As in a pool; only a written null leaves the uplink unasked.
#[expect(clippy::unnecessary_wraps, reason = "serde wants the type of the field")]
fn usual_wan() -> Option<Wan> {
    Some(Wan::default())
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenDriver {
    Clash(WrittenClash),
    Gost(WrittenGost),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenClash {
    url: String,
    #[serde(default)]
    secret_file: Option<PathBuf>,
    #[serde(default)]
    proxy: Option<Proxy>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGost {
    url: Target,
    credentials_file: PathBuf,
    chain: String,
    proxy: Proxy,
    pin: Pin,
    #[serde(default)]
    allow_remote: bool,
}

impl WrittenGost {
    fn driver(self) -> Result<GostDriver, PolicyFault> {
        let fault = |why: &str| Err(PolicyFault::new(format!("driver.gost.{why}")));
        let address = self.url.address();
        let is_here = self.url.host() == "localhost" || address.is_some_and(|at| at.is_loopback());
        if !is_here && !self.allow_remote {
            return fault(
                "url leaves this machine, and whoever reaches the API can run commands by it: write http://127.0.0.1:PORT, or allow_remote true",
            );
        }
        if !is_here && address.is_none() {
            return fault("url names a host of the network by a name: write its address");
        }
        if !self.credentials_file.is_absolute() {
            return fault("credentials_file is no absolute path: write one that begins with /");
        }
        if self.chain.is_empty() {
            return fault("chain is empty: name the chain that services go out by");
        }
        if self.pin == Pin::Interface(String::new()) || self.pin == Pin::Mark(0) {
            return fault("pin is empty: name the device, or a mark that is not 0");
        }
        let gost = Gost { url: self.url, credentials_file: self.credentials_file };
        Ok(GostDriver { gost, chain: self.chain, proxy: self.proxy, pin: self.pin })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHop {
    name: HopName,
    #[serde(default)]
    group: Option<String>,
    #[serde(default = "fifo")]
    strategy: Strategy,
    #[serde(default)]
    rotate_sec: Option<u64>,
    nodes: Ordered<WrittenNode>,
}

fn fifo() -> Strategy {
    Strategy::Fifo
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenNode {
    #[serde(default)]
    member: Option<String>,
    #[serde(default = "yes")]
    egress: bool,
}

fn yes() -> bool {
    true
}

impl WrittenHop {
    fn hop(self) -> Hop {
        let node = |(name, written): (NodeName, WrittenNode)| Node {
            member: written.member.unwrap_or_else(|| name.to_string()),
            egress: written.egress,
            name,
        };
        Hop {
            group: self.group.unwrap_or_else(|| self.name.to_string()),
            name: self.name,
            strategy: self.strategy,
            rotate_sec: self.rotate_sec,
            nodes: self.nodes.0.into_iter().map(node).collect(),
        }
    }
}

impl ChainPolicy {
    /// Reads it from the text of its file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, PolicyFault> {
        let named: Option<serde_json::Value> = serde_json::from_str(text).ok();
        let drivers = named.as_ref().and_then(|policy| policy.get("driver"));
        if let Some(driver) = NOT_THERE
            .into_iter()
            .find(|driver| drivers.is_some_and(|drivers| drivers.get(driver).is_some()))
        {
            return Err(not_there(driver));
        }
        let written: Written =
            serde_json::from_str(text).map_err(|e| PolicyFault::from_json(&e))?;
        let driver = match written.driver {
            WrittenDriver::Clash(written) => Driver::Clash(ClashDriver {
                core: clash::core("driver.clash", &written.url, written.secret_file.as_deref())?,
                proxy: written.proxy,
            }),
            WrittenDriver::Gost(written) => Driver::Gost(written.driver()?),
        };
        let policy = Self {
            driver,
            hops: written.hops.into_iter().map(WrittenHop::hop).collect(),
            probe: written.probe,
            wan: written.wan,
            params: written.params,
        };
        policy.validate()?;
        Ok(policy)
    }

    /// The pages that a core is told to measure by: those over https where there are some, since
    /// sing-box takes a page of its own in place of one over http.
    #[must_use]
    pub fn measured_by(&self) -> Vec<Target> {
        let all = &self.probe.urls;
        let https: Vec<Target> = all.iter().filter(|url| url.is_https()).cloned().collect();
        if https.is_empty() { all.clone() } else { https }
    }
}

/// Drivers that the kind is meant to have and this version does not.
const NOT_THERE: [&str; 1] = ["wireguard"];

/// A driver that this version does not have.
fn not_there(driver: &str) -> PolicyFault {
    PolicyFault::new(format!(
        "driver {driver} is not there in this version: a chain is made of groups of a proxy core or of hops of gost, so write driver.clash or driver.gost"
    ))
}
