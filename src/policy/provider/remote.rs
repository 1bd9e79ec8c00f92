//! What all sources in the network have in common.
//!
//! **Invariant:** each has the same four keys, with the same meaning; they are written down once.

use crate::url::Target;
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;

/// Declares a source in the network: its own keys, and those that all have. They are keys of the
/// same object, and an unknown one beside them is told with the nearest of all; serde's `flatten`
/// does not do that.
macro_rules! remote_source {
    (
        $(#[$about:meta])*
        $name:ident, default timeout $timeout:literal,
        $($(#[$meaning:meta])* $key:ident: $kind:ty,)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$meaning])* pub $key: $kind,)*
            /// Certificates that the server's must be signed by, instead of the usual ones.
            #[serde(default)]
            pub ca_file: Option<std::path::PathBuf>,
            /// How long all of it may take.
            #[serde(default = $timeout)]
            pub timeout_sec: u64,
            /// Whether the uplink is no way to ask.
            #[serde(default)]
            pub via: Option<$crate::policy::provider::AskedBy>,
            /// Whether endpoints may lie on this machine.
            #[serde(default)]
            pub allow_loopback: bool,
        }

        impl $name {
            /// The keys that all have.
            pub(super) fn remote(&self) -> $crate::policy::provider::remote::Remote<'_> {
                $crate::policy::provider::remote::Remote {
                    ca_file: self.ca_file.as_deref(),
                    timeout_sec: self.timeout_sec,
                    via: self.via,
                    allow_loopback: self.allow_loopback,
                }
            }
        }
    };
}
pub(super) use remote_source;

/// The keys that all sources in the network have.
pub(super) struct Remote<'a> {
    /// Certificates that the server's must be signed by.
    pub(super) ca_file: Option<&'a Path>,
    /// How long all of it may take.
    pub(super) timeout_sec: u64,
    /// Whether the uplink is no way to ask.
    pub(super) via: Option<AskedBy>,
    /// Whether endpoints may lie on this machine.
    pub(super) allow_loopback: bool,
}

/// The only ways to ask for a list, where not every way is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AskedBy {
    /// Through a tunnel.
    Tunnel,
}

/// How a source in the network is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking<'a> {
    /// The places, in order.
    pub urls: Vec<Target>,
    /// Certificates that the server's must be signed by.
    pub ca_file: Option<&'a Path>,
    /// How long all of it may take.
    pub timeout: Duration,
    /// Whether the uplink is no way to ask.
    pub via: Option<AskedBy>,
}

/// A list of a few megabytes over a slow uplink.
pub(super) fn fetch_timeout() -> u64 {
    30
}

/// The places of a list that is written in the program.
pub(super) fn targets(urls: &[&str]) -> Vec<Target> {
    urls.iter().filter_map(|url| Target::try_from((*url).to_owned()).ok()).collect()
}

/// The places that a policy names, the single one first.
pub(super) fn several(url: Option<&Target>, urls: &[Target]) -> Vec<Target> {
    url.into_iter().chain(urls).cloned().collect()
}
