//! A chain policy as it is written, and what is made of that.
//!
//! **Invariant:** nodes keep the order in which they are written, since the first one is preferred.

use super::wireguard::WrittenWireguard;
use super::{
    ChainPolicy, ClashDriver, Driver, GostDriver, Hop, Node, Params, Pin, Probe, Strategy,
};
use crate::chain::name::{HopName, NodeName};
use crate::in_order::Object;
use crate::policy::clash;
use crate::policy::fault::PolicyFault;
use crate::policy::pool::Wan;
use crate::proxy::Proxy;
use crate::setting::Gost;
use crate::url::Target;
use serde::Deserialize;
use std::path::PathBuf;

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
    Wireguard(WrittenWireguard),
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
    nodes: Object<NodeName, WrittenNode>,
}

fn fifo() -> Strategy {
    Strategy::Fifo
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenNode {
    #[serde(default)]
    member: Option<String>,
    #[serde(default)]
    config: Option<PathBuf>,
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
            config: written.config,
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
    pub(in crate::policy) fn parse(text: &str) -> Result<Self, PolicyFault> {
        let written: Written =
            serde_json::from_str(text).map_err(|e| PolicyFault::from_json(&e))?;
        let driver = match written.driver {
            WrittenDriver::Clash(written) => Driver::Clash(ClashDriver {
                core: clash::core("driver.clash", &written.url, written.secret_file.as_deref())?,
                proxy: written.proxy,
            }),
            WrittenDriver::Gost(written) => Driver::Gost(written.driver()?),
            WrittenDriver::Wireguard(tunnels) => {
                Driver::Wireguard(tunnels.driver(written.hops.len())?)
            }
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
}
