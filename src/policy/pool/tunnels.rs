//! What tunnels are made with, the one that stands by, and those that candidates are tried on.
//!
//! **Invariant:** a program is named by a word of ours, never by a path of the policy's.

use crate::names::Interface;
use serde::Deserialize;
use std::path::PathBuf;

/// The WireGuard implementation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WireGuard {
    /// The program that configures tunnels.
    pub tool: Tool,
    /// The userspace implementation; none given: the kernel's.
    pub userspace: Option<Userspace>,
}

impl Default for WireGuard {
    fn default() -> Self {
        Self { tool: Tool::Wg, userspace: None }
    }
}

/// The program that configures tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// WireGuard's own.
    Wg,
    /// AmneziaWG's.
    Awg,
}

impl Tool {
    /// The program's name.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Wg => "wg",
            Self::Awg => "awg",
        }
    }

    /// The kernel's link type.
    #[must_use]
    pub fn link_type(self) -> &'static str {
        match self {
            Self::Wg => "wireguard",
            Self::Awg => "amneziawg",
        }
    }
}

/// A userspace implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Userspace {
    /// The reference one, in Go.
    #[serde(rename = "wireguard-go")]
    WireguardGo,
    /// AmneziaWG's fork of it.
    #[serde(rename = "amneziawg-go")]
    AmneziawgGo,
}

impl Userspace {
    /// The program's name.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::WireguardGo => "wireguard-go",
            Self::AmneziawgGo => "amneziawg-go",
        }
    }
}

/// How the pool gets out of Direct.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bootstrap {
    /// The standby tunnel.
    pub wireguard: Option<Standby>,
}

/// The standby tunnel, by which the provider is asked when nothing else does it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standby {
    /// Its interface.
    pub interface: Interface,
    /// Its wg-quick file.
    pub config: PathBuf,
    /// Whether it stays up while it is not needed.
    #[serde(default)]
    pub keep: Keep,
}

/// Whether the standby tunnel stays up while it is not needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// It stays up.
    #[default]
    Standby,
    /// It is made when needed.
    Down,
}

/// How candidates are tried out before they enter the pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Test {
    /// Test interfaces are this and a number from 1.
    pub interface_prefix: String,
    /// How many candidates are tried side by side.
    pub parallel: u16,
    /// So many good ones end the testing of a list.
    pub enough: usize,
    /// Their names, where no prefix and number give them; never written.
    #[serde(skip)]
    pub(crate) named: Vec<Interface>,
}

impl Default for Test {
    fn default() -> Self {
        Self { interface_prefix: "vpnt".to_owned(), parallel: 4, enough: 20, named: Vec::new() }
    }
}

impl Test {
    /// The test interfaces, in order.
    #[must_use]
    pub fn interfaces(&self) -> Vec<Interface> {
        if !self.named.is_empty() {
            return self.named.clone();
        }
        (1..=self.parallel)
            .filter_map(|n| Interface::try_from(format!("{}{n}", self.interface_prefix)).ok())
            .collect()
    }
}
