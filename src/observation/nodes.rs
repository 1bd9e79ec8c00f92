//! Nodes asked whether they live, and what they showed.
//!
//! **Invariant:** only a node's own doing is a failure; what this machine could not do itself is
//! unknown.

use crate::dns::name::HostName;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// One thing to ask one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeCheck {
    /// The node's address, whatever a record says.
    pub address: Ipv4Addr,
    /// What is done.
    pub how: Handshake,
    /// How long all of it may take.
    pub timeout_ms: u64,
}

/// What is done to find out whether a node lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Handshake {
    /// A connection is made.
    Tcp {
        /// The port.
        port: u16,
    },
    /// A certificate is looked at.
    Tls {
        /// The port.
        port: u16,
        /// The name that it must be for.
        name: HostName,
        /// Certificates that it must be signed by; none: the usual ones.
        ca_file: Option<PathBuf>,
    },
    /// A page is asked for.
    Https {
        /// The port.
        port: u16,
        /// The name that is asked for and that the certificate must be for.
        name: HostName,
        /// The path with its query.
        path: String,
        /// The only good status codes.
        expect_status: Vec<u16>,
        /// What the body must hold.
        expect_body: Option<String>,
        /// Certificates that it must be signed by; none: the usual ones.
        ca_file: Option<PathBuf>,
    },
}

impl Handshake {
    /// The port that is spoken to.
    #[must_use]
    pub fn port(&self) -> u16 {
        match self {
            Self::Tcp { port } | Self::Tls { port, .. } | Self::Https { port, .. } => *port,
        }
    }

    /// The name that a certificate must be for, where one is looked at.
    #[must_use]
    pub fn name(&self) -> Option<&HostName> {
        match self {
            Self::Tcp { .. } => None,
            Self::Tls { name, .. } | Self::Https { name, .. } => Some(name),
        }
    }
}

/// What nodes showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesReading {
    /// When the last of them was seen.
    pub at: Moment,
    /// One a check.
    #[serde(with = "pairs")]
    pub checks: BTreeMap<NodeCheck, NodeReading>,
}

/// What a node showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeReading {
    /// It lives.
    Passed {
        /// How long it took.
        elapsed_ms: u64,
    },
    /// It does not, or not as it should.
    Failed(String),
    /// It could not be asked.
    Unknown(String),
}

/// A map as a list of pairs: JSON has no keys but text.
mod pairs {
    use super::{BTreeMap, NodeCheck, NodeReading};
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        checks: &BTreeMap<NodeCheck, NodeReading>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(checks)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<NodeCheck, NodeReading>, D::Error> {
        Ok(Vec::<(NodeCheck, NodeReading)>::deserialize(from)?.into_iter().collect())
    }
}
