//! What `init` makes a policy of: links, routes, neighbours, and a folder of configurations.
//!
//! **Invariant:** nothing is sent into the network: neighbours are those that the kernel knows.

use super::machine::{has_link_type, links, missing, nft_rules, ways};
use crate::host::apply::MAX_CONFIG;
use crate::host::environment;
use crate::host::exec::{self, Call};
use crate::host::files::read_bounded;
use crate::init::{Core, Here, parse_neighbours};
use crate::names::PolicyName;
use crate::policy::Policy;
use crate::wireguard::{TunnelConfig, parse_bytes};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The kernel answers at once.
const DEADLINE: Duration = Duration::from_secs(5);

/// A configuration with a thousand servers has 1 MiB.
const MAX_CORE_CONFIG: usize = 16 * 1024 * 1024;

/// Looks around.
#[must_use]
pub fn here(
    configs: &Path,
    core_config: Option<&Path>,
    policies: Vec<(PolicyName, Policy)>,
) -> Here {
    // A policy has no folder of its own, so its paths are whole.
    let configs = std::path::absolute(configs).unwrap_or_else(|_| configs.to_owned());
    let (files, no_files) = match files(&configs) {
        Ok(files) => (files, None),
        Err(why) => (BTreeMap::new(), Some(why.to_string())),
    };
    let links = links();
    let (rules, routes) = ways();
    Here {
        rules,
        routes,
        ruleset: nft_rules(),
        neighbours: neighbours(),
        login: environment::login(),
        configs,
        files,
        no_files,
        has_kernel_wireguard: has_link_type("wireguard", &links),
        missing: missing(),
        core: core_config.map(core),
        policies,
        links,
    }
}

fn core(path: &Path) -> Core {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text = read_bounded(&path, MAX_CORE_CONFIG).map_err(|why| why.to_string());
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Core { path, text }
}

fn neighbours() -> Vec<(IpAddr, String)> {
    let Ok(output) = exec::run(&Call::new("ip", &["-j", "neigh", "show"], DEADLINE)) else {
        return Vec::new();
    };
    let listing: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    parse_neighbours(&listing)
}

fn files(folder: &Path) -> io::Result<BTreeMap<String, Result<TunnelConfig, String>>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if !name.ends_with(b".conf") || name.starts_with(b".") || path.is_dir() {
            continue;
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let file = read_bounded(&path, MAX_CONFIG).map_err(|why| why.to_string());
        let config = file.and_then(|bytes| {
            parse_bytes(&bytes)
                .map(|parsed| parsed.config)
                .map_err(|problems| problems.first().map(ToString::to_string).unwrap_or_default())
        });
        files.insert(stem, config);
    }
    Ok(files)
}
