//! A folder of wg-quick files.
//!
//! **Invariant:** nothing in the folder is changed, whatever its files are called or hold; a file
//! that is not wholly understood gives no candidate and one reason.

use crate::host::apply::MAX_CONFIG;
use crate::host::files;
use crate::kernel::{ConfigRef, Ends, read};
use crate::observation::{ListQuestion, ListReading};
use crate::policy::pool::Directory;
use crate::pool::candidate::{Candidate, Rejected};
use crate::wireguard::{Dialect, Host, PresharedKey, Problem, TunnelConfig, parse_bytes, wg_quick};
use anyhow::{Context as _, bail};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;

/// The largest list known is NordVPN's with some 8,000 endpoints.
const MAX_FILES: usize = 10_000;

/// The longest name of a candidate, in characters; a file's name may have 255 bytes.
const LONGEST_NAME: usize = 80;

/// The longest name that is taken for a file as it is.
const LONGEST_FILE: usize = 64;

/// Reads the folder; the candidates' files are put into the pool below `folder`, if there is one.
pub(super) fn list(
    directory: &Directory,
    question: &ListQuestion,
    folder: Option<&Path>,
) -> anyhow::Result<ListReading> {
    let source = &directory.path;
    let names = names(source)?;
    let pool = match folder {
        None => None,
        Some(folder) => {
            let pool = folder.join("pool");
            files::private_folder(&pool)?;
            let pool = pool.join(question.generation.to_string());
            files::private_folder(&pool)?;
            Some(pool)
        }
    };
    let mut listing = Listing::default();
    for (name, place) in names.iter().zip(0..) {
        let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
        let stem = shown(&stem);
        let config = if place < MAX_FILES {
            config(&source.join(name), question.amnezia)
        } else {
            Err(format!("it comes after {MAX_FILES} others, which are as many as are read"))
        };
        match config {
            Ok(config) => listing.take(&stem, &config, question.generation, pool.as_deref())?,
            Err(why) => listing.rejected.push(Rejected { name: stem, why }),
        }
    }
    Ok(ListReading::Listed { candidates: listing.candidates, rejected: listing.rejected })
}

/// The names that end in `.conf`, in order. Hidden ones are what editors and copies leave.
fn names(source: &Path) -> anyhow::Result<Vec<OsString>> {
    let mend = "put the provider's *.conf files there, or correct provider.directory.path";
    let reading = || format!("reading the folder {} ({mend})", source.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(source).with_context(reading)? {
        let name = entry.with_context(reading)?.file_name();
        let is_folder = || std::fs::metadata(source.join(&name)).is_ok_and(|seen| seen.is_dir());
        let bytes = name.as_encoded_bytes();
        if bytes.ends_with(b".conf") && !bytes.starts_with(b".") && !is_folder() {
            names.push(name);
        }
    }
    if names.is_empty() {
        bail!("the folder {} has no *.conf file: {mend}", source.display());
    }
    names.sort();
    Ok(names)
}

/// A tunnel, or why the file describes none that can be used.
fn config(path: &Path, amnezia: bool) -> Result<TunnelConfig, String> {
    let bytes = files::read_bounded(path, MAX_CONFIG).map_err(|why| why.to_string())?;
    let config = parse_bytes(&bytes).map_err(|problems| in_short(&problems))?.config;
    match &config.dialect {
        Dialect::Plain => {}
        Dialect::Amnezia(_) if amnezia => {}
        Dialect::Amnezia(_) => {
            return Err("needs AmneziaWG: set wireguard.tool to awg".to_owned());
        }
    }
    if !config.addresses.iter().any(|net| net.addr().is_ipv4()) {
        return Err("has no IPv4 address, and clients have no other".to_owned());
    }
    Ok(config)
}

/// The first problem and how many more there are.
fn in_short(problems: &[Problem]) -> String {
    // What stands on a line is easier found than what stands nowhere.
    let first = problems.iter().find(|problem| problem.line > 0).or_else(|| problems.first());
    let first = first.map(ToString::to_string).unwrap_or_default();
    match problems.len().saturating_sub(1) {
        0 => first,
        1 => format!("{first} and 1 more problem"),
        more => format!("{first} and {more} more problems"),
    }
}

/// A name fit for a line of a log.
fn shown(stem: &str) -> String {
    let clean = stem.chars().map(|c| if c.is_control() { '_' } else { c });
    clean.take(LONGEST_NAME).collect()
}

#[derive(Default)]
struct Listing {
    candidates: Vec<Candidate>,
    rejected: Vec<Rejected>,
    /// Names and files that are taken, in lower case: some file systems know no other.
    names: BTreeSet<String>,
    files: BTreeSet<String>,
    /// Which tunnel has which name, to find the second file of one.
    tunnels: BTreeMap<(String, String, String, u16), String>,
}

impl Listing {
    fn take(
        &mut self,
        stem: &str,
        config: &TunnelConfig,
        generation: u32,
        pool: Option<&Path>,
    ) -> anyhow::Result<()> {
        let (own, peer) = (config.private_key.public(), config.peer.public_key);
        let host = match &config.peer.endpoint.host {
            Host::Ip(address) => address.to_string(),
            Host::Name(name) => name.clone(),
        };
        let port = config.peer.endpoint.port.get();
        let tunnel = (own.to_string(), peer.to_string(), host.to_ascii_lowercase(), port);
        if let Some(first) = self.tunnels.get(&tunnel) {
            let why = format!("is the same tunnel as {first}");
            self.rejected.push(Rejected { name: stem.to_owned(), why });
            return Ok(());
        }
        let name = unique(&mut self.names, stem);
        let file = unique(&mut self.files, &file_name(&name));
        let text = wg_quick(config);
        let bytes = text.reveal().as_bytes();
        let file = format!("{file}.conf");
        if let Some(pool) = pool {
            keep(&pool.join(&file), bytes)?;
        }
        self.tunnels.insert(tunnel, name.clone());
        self.candidates.push(Candidate {
            name,
            config: ConfigRef { generation, file, sha256: read::sha256(bytes) },
            ends: Ends {
                own,
                peer,
                endpoint: None,
                allowed_ips: config.peer.allowed_ips.iter().copied().collect(),
                keepalive: config.peer.persistent_keepalive.map_or(0, std::num::NonZero::get),
                preshared: config.peer.preshared_key.as_ref().map(PresharedKey::fingerprint),
            },
            host,
            port,
            // A wider prefix would become a route in main. IPv6 is closed to clients.
            addresses: config
                .addresses
                .iter()
                .map(IpNet::addr)
                .filter(std::net::IpAddr::is_ipv4)
                .map(IpNet::from)
                .collect(),
            mtu: config.mtu,
        });
        Ok(())
    }
}

/// Writes a file of the pool, unless a step that was cut short has written it already.
fn keep(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if files::read_bounded(path, MAX_CONFIG).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    files::write_atomically(path, bytes, 0o600)
}

/// `wish`, or with a number behind when that is taken.
fn unique(taken: &mut BTreeSet<String>, wish: &str) -> String {
    let mut name = wish.to_owned();
    let mut number = 2_u32;
    while !taken.insert(name.to_lowercase()) {
        name = format!("{wish}-{number}");
        number = number.saturating_add(1);
    }
    name
}

/// A name that is safe in a path, on any file system and in a shell.
fn file_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_safe = (1..=LONGEST_FILE).contains(&name.len())
        && name.chars().all(plain)
        && !name.starts_with('.');
    if is_safe {
        return name.to_owned();
    }
    let slug: String = name
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .skip_while(|c| *c == '.')
        .take(LONGEST_FILE / 2)
        .collect();
    let hash: String = read::sha256(name.as_bytes()).chars().take(8).collect();
    if slug.is_empty() { hash } else { format!("{slug}-{hash}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_becomes_a_harmless_file() {
        assert_eq!(file_name("NL-1.home_x"), "NL-1.home_x");
        let long = "x".repeat(200);
        let hostile =
            ["", ".", "..", "../../etc/cron", "a b", "-rf;`id`", "Пример", "\u{202e}", &long];
        let files: BTreeSet<String> = hostile.iter().map(|name| file_name(name)).collect();
        assert_eq!(files.len(), hostile.len());
        for file in &files {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            assert!(file.chars().all(plain) && file.len() <= 64, "{file}");
            assert!(!file.is_empty() && !file.starts_with('.'), "{file}");
        }
    }

    #[test]
    fn names_that_differ_by_case_alone_stay_apart() {
        let mut taken = BTreeSet::new();
        let named = ["nl", "NL", "Nl", "nl-2"].map(|name| unique(&mut taken, name));
        assert_eq!(named, ["nl", "NL-2", "Nl-3", "nl-2-2"]);
    }
}
