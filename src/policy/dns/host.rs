//! A host name, and the nodes that it may point at.
//!
//! **Invariant:** the region of a host name is told by the name itself.

use crate::dns::name::{HostName, NodeName};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A host name and what it may point at.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The node that it belongs to.
    pub native: NodeName,
    /// The nodes that it goes to while that one is down, in their order.
    #[serde(default)]
    pub fallbacks: Vec<NodeName>,
    /// Fallbacks for host names of a region, in place of `fallbacks`.
    #[serde(default)]
    pub fallbacks_by_region: BTreeMap<String, Vec<NodeName>>,
    /// How long resolvers keep the record.
    #[serde(default = "ttl")]
    pub ttl: u32,
    /// How many addresses are published at a time.
    #[serde(default = "records")]
    pub records: usize,
    /// After how long other nodes take their turn; none given: they do not.
    #[serde(default)]
    pub rotate_sec: Option<u64>,
}

fn ttl() -> u32 {
    120
}

fn records() -> usize {
    1
}

impl Host {
    /// Its fallbacks: those of the region that its name tells, or the usual ones.
    #[must_use]
    pub fn fallbacks_of(&self, name: &HostName) -> &[NodeName] {
        let region = self.fallbacks_by_region.iter().find(|(region, _)| is_of(name, region));
        region.map_or(&self.fallbacks, |(_, nodes)| nodes)
    }
}

/// Whether a host name is of a region: a label of it, or a part of one between hyphens, is called so.
pub(super) fn is_of(name: &HostName, region: &str) -> bool {
    let is = |part: &str| part.eq_ignore_ascii_case(region);
    name.labels().any(|label| is(label) || label.split('-').any(is))
}
