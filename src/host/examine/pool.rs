//! What a pool names: files of its provider, its state folder, and the ways to its endpoints.
//!
//! **Invariant:** of a secret's file only its mode is looked at.

use crate::check::provider::{CONFIGURATION, File};
use crate::host::apply::MAX_CONFIG;
use crate::host::exec::{self, Call};
use crate::host::files::read_bounded;
use crate::host::provider;
use crate::iproute::parse_route_get;
use crate::observation::{ListQuestion, ListReading};
use crate::policy::PoolPolicy;
use crate::policy::pool::{Provider, Tool};
use crate::pool::candidate::Rejected;
use crate::wireguard::parse_bytes;
use rustix::fs::{Access, access};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The kernel answers at once.
const DEADLINE: Duration = Duration::from_secs(2);

/// Bytes that a state and its backup take on a small flash chip, with room to spare.
const LEAST_FREE: u64 = 4 * 1024 * 1024;

/// By which device each address is reached. One that is not reached at all is absent.
#[must_use]
pub fn ways(addresses: &BTreeSet<IpAddr>) -> BTreeMap<IpAddr, String> {
    let device = |address: &IpAddr| {
        let to = address.to_string();
        let output =
            exec::run(&Call::new("ip", &["-N", "-j", "route", "get", &to], DEADLINE)).ok()?;
        let way = parse_route_get(&String::from_utf8_lossy(&output.stdout)).ok()?;
        Some((*address, way.dev?))
    };
    addresses.iter().filter_map(device).collect()
}

/// The files that the provider needs.
#[must_use]
pub fn files(policy: &PoolPolicy) -> Vec<File> {
    let key = policy.provider.key();
    let named = policy.provider.files();
    let mut files: Vec<File> = named
        .into_iter()
        .map(|(name, path)| {
            // A zip holds the keys of all its files.
            let is_zip = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("zip"));
            let is_secret =
                (name.ends_with("_file") && name != "ca_file") || (is_zip && path.is_file());
            let key = format!("provider.{key}.{name}");
            File { key, path: path.to_owned(), is_secret, seen: seen(path, is_secret) }
        })
        .collect();
    if let Some(standby) = &policy.bootstrap.wireguard {
        let (key, path) = ("bootstrap.wireguard.config".to_owned(), standby.config.clone());
        let seen = seen(&path, true);
        files.push(File { key, path, is_secret: true, seen });
    }
    if let Provider::Directory(directory) = &policy.provider {
        for path in configs(&directory.path) {
            let seen = seen(&path, true);
            // One that cannot be read is told with what the list leaves out.
            if seen.is_ok() {
                files.push(File { key: CONFIGURATION.to_owned(), path, is_secret: true, seen });
            }
        }
    }
    files
}

/// The mode of a file, or why it is of no use.
pub(super) fn seen(path: &Path, is_secret: bool) -> Result<u32, String> {
    let meta = std::fs::metadata(path).map_err(|why| {
        if why.kind() == io::ErrorKind::NotFound {
            "there is no such file".to_owned()
        } else {
            why.to_string()
        }
    })?;
    if is_secret && !meta.is_file() {
        return Err("it is not a file".to_owned());
    }
    if is_secret && meta.len() == 0 {
        return Err("it is empty".to_owned());
    }
    access(path, Access::READ_OK).map_err(|why| why.to_string())?;
    Ok(meta.mode())
}

/// The configurations of a folder, in order.
fn configs(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            name.ends_with(b".conf") && !name.starts_with(b".") && path.is_file()
        })
        .collect();
    paths.sort();
    paths
}

/// Every problem of every configuration in the provider's folder, where it is one.
#[must_use]
pub fn problems(policy: &PoolPolicy) -> Vec<Rejected> {
    let Provider::Directory(directory) = &policy.provider else { return Vec::new() };
    let mut found = Vec::new();
    for path in configs(&directory.path) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let why = match read_bounded(&path, MAX_CONFIG) {
            Err(why) => why.to_string(),
            Ok(bytes) => match parse_bytes(&bytes) {
                Ok(_) => continue,
                Err(problems) => {
                    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
                    all.join("; ")
                }
            },
        };
        found.push(Rejected { name, why });
    }
    found
}

/// What a provider on this machine lists, which changes nothing. A program is run by steps alone,
/// and so is what is in the network.
#[must_use]
pub fn listed(policy: &PoolPolicy, folder: &Path) -> Option<ListReading> {
    if !policy.provider.is_read_from_files() {
        return None;
    }
    let question = ListQuestion {
        provider: policy.provider.clone(),
        wanted: policy.candidates.clone(),
        generation: 0,
        amnezia: match policy.wireguard.tool {
            Tool::Awg => true,
            Tool::Wg => false,
        },
        via: None,
        names: BTreeMap::new(),
        known: None,
        have: Arc::default(),
    };
    Some(provider::list(&question, folder, false))
}

/// What is wrong with the folder of a policy's state, or with where it will be made.
#[must_use]
pub fn folder(path: &Path) -> Option<String> {
    // What is not there yet is made in the first folder above that is.
    let there = path.ancestors().find(|path| std::fs::symlink_metadata(path).is_ok())?;
    let shown = there.display();
    let meta = std::fs::symlink_metadata(there).ok()?;
    if there == path && meta.is_symlink() {
        return Some(format!("{shown} is a symbolic link: a real folder is needed"));
    }
    if !std::fs::metadata(there).ok()?.is_dir() {
        return Some(format!("{shown} is not a folder"));
    }
    let me = rustix::process::geteuid().as_raw();
    if there == path && meta.uid() != me {
        return Some(format!("{shown} belongs to user {}, not to {me}", meta.uid()));
    }
    if there == path && meta.mode() & 0o077 != 0 {
        return Some(format!(
            "{shown} has mode {:03o}: others may look into it",
            meta.mode() & 0o777
        ));
    }
    if let Err(why) = access(there, Access::WRITE_OK) {
        return Some(format!("{shown} cannot be written: {why}"));
    }
    let free = rustix::fs::statvfs(there).ok().map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize))?;
    (free < LEAST_FREE).then(|| format!("{shown} has {free} bytes left"))
}
