//! Our own end of tunnels, where a list holds only the other ends.
//!
//! **Invariant:** keys are named by their files.

use ipnet::IpNet;
use serde::Deserialize;
use std::net::IpAddr;
use std::path::PathBuf;

/// Our own end of every tunnel, where a list holds only the other ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// A file with our private key.
    pub private_key_file: PathBuf,
    /// A file with a preshared key for every server.
    #[serde(default)]
    pub preshared_key_file: Option<PathBuf>,
    /// Our addresses in the tunnels.
    #[serde(default)]
    pub address: Vec<OwnAddress>,
}

/// An address of ours, with or without a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct OwnAddress(pub IpNet);

impl TryFrom<String> for OwnAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let net = text.parse::<IpAddr>().map(IpNet::from).or_else(|_| text.parse::<IpNet>());
        net.map(Self).map_err(|_| format!("{text:?} is no address: write it like 10.64.0.2/32"))
    }
}
