//! The policy of kind `dns`: which nodes, which host names follow them, who keeps the zone, and
//! every threshold.
//!
//! **Invariant:** every default that is not the operator's is written here or in the files beside,
//! once.

mod check;
mod driver;
mod host;
mod sound;

pub use check::{Check, Https, Tcp, Tls};
pub use driver::{Cloudflare, Driver, Rfc2136, Tool};
pub use host::Host;

use crate::dns::name::{HostName, NodeName};
use crate::dns::record::Zone;
use crate::url::Target;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Where an interval of 0 is a measure of time, it counts as this.
const ZERO_INTERVAL_SEC: u64 = 10;

/// A whole policy of host names.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DnsPolicy {
    /// The tag, already read.
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "$schema", default)]
    _schema: Option<String>,
    #[serde(rename = "description", default)]
    _description: Option<String>,
    /// Who keeps the zone.
    pub driver: Driver,
    /// What host names can point at.
    pub nodes: BTreeMap<NodeName, Node>,
    /// The host names.
    pub hosts: BTreeMap<HostName, Host>,
    /// What shows that this machine itself is online.
    #[serde(default)]
    pub reference: Reference,
    /// Every threshold.
    #[serde(default)]
    pub params: Params,
}

/// A machine that serves host names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its address.
    pub address: Ipv4Addr,
    /// What people call its place.
    #[serde(default)]
    pub label: Option<String>,
    /// How often it is taken in comparison with others.
    #[serde(default = "one")]
    pub weight: u32,
    /// What shows that it lives.
    pub check: Check,
}

fn one() -> u32 {
    1
}

/// What shows that this machine itself is online: one good answer of these pages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The pages, which answer 200 or 204.
    pub urls: Vec<Target>,
}

impl Default for Reference {
    fn default() -> Self {
        let urls =
            ["https://www.gstatic.com/generate_204", "https://cp.cloudflare.com/generate_204"];
        let target = |url: &&str| Target::try_from((*url).to_owned()).ok();
        Self { urls: urls.iter().filter_map(target).collect() }
    }
}

/// Every threshold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// A step is due so long after the start of the last; 0: always.
    pub check_interval_sec: u64,
    /// Failed checks in a row before a node is down.
    pub fall: u32,
    /// Passed checks in a row before it is up again.
    pub rise: u32,
    /// How long a host name stays away from its native at least.
    pub minimum_stay_sec: u64,
    /// Moves away from the native in the window that lead to quarantine.
    pub flap_limit: usize,
    /// The window of these moves.
    pub flap_window_sec: u64,
    /// How long a native that flaps is not returned to.
    pub quarantine_sec: u64,
    /// Rounds in a row, in which most nodes fail at once, that are not believed.
    pub mass_rounds: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            check_interval_sec: 30,
            fall: 2,
            rise: 2,
            minimum_stay_sec: 240,
            flap_limit: 3,
            flap_window_sec: 86_400,
            quarantine_sec: 21_600,
            mass_rounds: 3,
        }
    }
}

impl Params {
    /// The interval where it is a measure of time.
    #[must_use]
    pub fn interval(&self) -> Duration {
        let seconds =
            if self.check_interval_sec == 0 { ZERO_INTERVAL_SEC } else { self.check_interval_sec };
        Duration::from_secs(seconds)
    }
}

impl DnsPolicy {
    /// The zone, as a setting of it is named.
    #[must_use]
    pub fn zone(&self) -> Option<Zone> {
        self.driver.zone()
    }

    /// The nodes of a host in the order in which they are taken: the native, then its fallbacks, for
    /// a host of several records the heavier ones first.
    #[must_use]
    pub fn order<'a>(&'a self, name: &HostName, host: &'a Host) -> Vec<&'a NodeName> {
        let mut others: Vec<&NodeName> = host.fallbacks_of(name).iter().collect();
        if host.records > 1 {
            let weight = |node: &&NodeName| self.nodes.get(*node).map_or(0, |node| node.weight);
            others.sort_by_key(|node| std::cmp::Reverse(weight(node)));
        }
        std::iter::once(&host.native).chain(others).collect()
    }

    /// What it asks for that is unwise, a line each.
    pub(super) fn notes(&self) -> Vec<String> {
        let stay = self.params.minimum_stay_sec;
        let short = self.hosts.iter().filter(|(_, host)| stay < 2 * u64::from(host.ttl));
        short
            .map(|(name, host)| {
                format!(
                    "params.minimum_stay_sec {stay} is shorter than twice the ttl {} of {name}: resolvers may not follow that fast",
                    host.ttl
                )
            })
            .collect()
    }
}
