//! Makes a list of offers: usable, wanted, each tunnel once, each name once, with a file each.
//!
//! **Invariant:** names and reasons are one line each without a character that moves a cursor, and
//! no name that somebody else chose is ever a path.

use super::entry::Offer;
use crate::host::apply::MAX_CONFIG;
use crate::host::files;
use crate::kernel::{ConfigRef, Ends, read};
use crate::observation::ListQuestion;
use crate::outcome::is_unfit;
use crate::policy::provider::{Place, Provider};
use crate::pool::candidate::{Candidate, Rejected};
use crate::wireguard::{Dialect, Host, PresharedKey, TunnelConfig, wg_quick};
use anyhow::Context as _;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

/// The most entries of a list that are looked at. The largest list known has some 8,000.
pub(super) const MAX_ENTRIES: usize = 10_000;

/// The most candidates that a list in the network gives: twelve times what is tested by default.
/// State and the pool's files are written for each.
const MAX_KEPT: usize = 256;

/// The longest name of a candidate, in characters; a file's name may have 255 bytes.
const LONGEST_NAME: usize = 80;

/// The longest reason, in characters.
const LONGEST_LINE: usize = 400;

/// The longest name that is taken for a file as it is.
const LONGEST_FILE: usize = 64;

/// What was taken so far.
pub(super) struct Listing<'a> {
    question: &'a ListQuestion,
    taken: Vec<Taken>,
    rejected: Vec<Rejected>,
    /// How many entries were looked at.
    seen: usize,
    names: Names,
    /// Which tunnel has which name, to find the second entry of one.
    tunnels: BTreeMap<(String, String, String, u16), String>,
}

struct Taken {
    name: String,
    place: Place,
    origin: Option<String>,
    ends: Ends,
    host: String,
    config: TunnelConfig,
}

impl<'a> Listing<'a> {
    pub(super) fn new(question: &'a ListQuestion) -> Self {
        let (taken, rejected) = (Vec::new(), Vec::new());
        let (names, tunnels) = (Names::new(), BTreeMap::new());
        Self { question, taken, rejected, seen: 0, names, tunnels }
    }

    /// Whether all that was seen is not wanted.
    pub(super) fn is_unwanted(&self) -> bool {
        self.taken.is_empty() && self.rejected.is_empty()
    }

    /// Takes an offer, or notes why not. What is not wanted is passed over in silence.
    pub(super) fn take(&mut self, offer: Offer) {
        let name = shown(&offer.name, LONGEST_NAME);
        let name = if name.trim().is_empty() { "(no name)".to_owned() } else { name };
        self.seen = self.seen.saturating_add(1);
        if self.seen > MAX_ENTRIES {
            let why = format!("it comes after {MAX_ENTRIES} others, which are as many as are read");
            self.rejected.push(Rejected { name, why });
            return;
        }
        if !self.question.wanted.takes(&name, &offer.place) {
            return;
        }
        let usable = offer.config.and_then(|config| self.usable(config));
        if let Err(why) = usable.map(|config| self.enter(&name, offer.place, offer.origin, config))
        {
            self.rejected.push(Rejected { name, why: line(&why) });
        }
    }

    /// A tunnel that this machine can use, or why it cannot.
    fn usable(&self, config: TunnelConfig) -> Result<TunnelConfig, String> {
        match &config.dialect {
            Dialect::Plain => {}
            Dialect::Amnezia(_) if self.question.amnezia => {}
            Dialect::Amnezia(_) => {
                return Err("needs AmneziaWG: set wireguard.tool to awg".to_owned());
            }
        }
        if !config.addresses.iter().any(|net| net.addr().is_ipv4()) {
            return Err("has no IPv4 address, and clients have no other".to_owned());
        }
        let is_ours = match &config.peer.endpoint.host {
            Host::Ip(address) => stays_here(*address),
            Host::Name(name) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                name == "localhost" || name.ends_with(".localhost")
            }
        };
        if is_ours && !self.question.provider.allows_loopback() {
            return Err(format!(
                "the endpoint {} is on this machine or link: refused unless allow_loopback is true",
                config.peer.endpoint
            ));
        }
        Ok(config)
    }

    fn enter(&mut self, wish: &str, place: Place, origin: Option<String>, config: TunnelConfig) {
        let (own, peer) = (config.private_key.public(), config.peer.public_key);
        let host = match &config.peer.endpoint.host {
            Host::Ip(address) => address.to_string(),
            Host::Name(name) => name.clone(),
        };
        let port = config.peer.endpoint.port.get();
        let tunnel = (own.to_string(), peer.to_string(), host.to_ascii_lowercase(), port);
        if let Some(first) = self.tunnels.get(&tunnel) {
            let why = format!("is the same tunnel as {first}");
            self.rejected.push(Rejected { name: wish.to_owned(), why });
            return;
        }
        let name = unique(&mut self.names, wish);
        self.tunnels.insert(tunnel, name.clone());
        let ends = Ends {
            own,
            peer,
            endpoint: None,
            allowed_ips: config.peer.allowed_ips.iter().copied().collect(),
            keepalive: config.peer.persistent_keepalive.map_or(0, std::num::NonZero::get),
            preshared: config.peer.preshared_key.as_ref().map(PresharedKey::fingerprint),
        };
        self.taken.push(Taken { name, place, origin, ends, host, config });
    }

    /// The list, the files of its candidates written into the pool below `folder`, if there is one.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn finish(
        mut self,
        folder: Option<&Path>,
    ) -> anyhow::Result<(Vec<Candidate>, Vec<Rejected>)> {
        match self.question.provider {
            Provider::Directory(_) => {}
            Provider::Http(_)
            | Provider::Exec(_)
            | Provider::HideMyName(_)
            | Provider::Mullvad(_)
            | Provider::Ivpn(_)
            | Provider::NordVpn(_)
            | Provider::Gluetun(_) => spread(&mut self.taken, &self.question.have),
        }
        let generation = self.question.generation;
        let pool = match folder.filter(|_| !self.taken.is_empty()) {
            None => None,
            Some(folder) => {
                let pool = folder.join("pool");
                files::private_folder(&pool)?;
                let pool = pool.join(generation.to_string());
                files::private_folder(&pool)?;
                Some(pool)
            }
        };
        let mut files = Names::new();
        let mut candidates = Vec::new();
        for Taken { name, place, origin, ends, host, config } in self.taken {
            let file = format!("{}.conf", unique(&mut files, &file_name(&name)));
            let text = wg_quick(&config);
            let bytes = text.reveal().as_bytes();
            if let Some(pool) = &pool {
                keep(&pool.join(&file), bytes).context("keeping the list")?;
            }
            let clean = |text: String| shown(&text, LONGEST_NAME);
            candidates.push(Candidate {
                name,
                config: ConfigRef { generation, file, sha256: read::sha256(bytes) },
                ends,
                host,
                port: config.peer.endpoint.port.get(),
                // A wider prefix would become a route in main.
                addresses: config.addresses.iter().map(IpNet::addr).map(IpNet::from).collect(),
                mtu: config.mtu,
                country: place.country.or(place.country_code).map(clean),
                city: place.city.or(place.city_code).map(clean),
                origin,
            });
        }
        Ok((candidates, self.rejected))
    }
}

/// Leaves [`MAX_KEPT`] in their order: those at hand, for a slot may use them, then the first of
/// each place, the second of each, and so on.
fn spread(taken: &mut Vec<Taken>, have: &[Candidate]) {
    if taken.len() <= MAX_KEPT {
        return;
    }
    let at_hand: BTreeSet<_> =
        have.iter().map(|c| (c.ends.peer, c.host.as_str(), c.port)).collect();
    let mut before: BTreeMap<Place, usize> = BTreeMap::new();
    let mut ranked = Vec::with_capacity(taken.len());
    for (at, one) in taken.drain(..).enumerate() {
        let port = one.config.peer.endpoint.port.get();
        let is_new = !at_hand.contains(&(one.ends.peer, one.host.as_str(), port));
        let rank = before.entry(one.place.clone()).or_default();
        ranked.push(((is_new, *rank, at), one));
        *rank += 1;
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.truncate(MAX_KEPT);
    ranked.sort_by_key(|((_, _, at), _)| *at);
    taken.extend(ranked.into_iter().map(|(_, one)| one));
}

/// Whether packets to `address` stay on this machine or its link.
fn stays_here(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_multicast()
                || v4.is_broadcast()
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unicast_link_local()
                || v6.is_unspecified()
                || v6.is_multicast()
        }
    }
}

/// A text fit for a line of a log and for a terminal, at most `longest` characters.
fn shown(text: &str, longest: usize) -> String {
    text.chars().map(|c| if is_unfit(c) { '_' } else { c }).take(longest).collect()
}

/// A reason fit for a line of a log.
pub(super) fn line(why: &str) -> String {
    shown(why, LONGEST_LINE)
}

/// Writes a file of the pool, unless a step that was cut short has written it already.
fn keep(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if files::read_bounded(path, MAX_CONFIG).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    files::write_atomically(path, bytes, 0o600)
}

/// Names that are taken, in lower case, since some file systems know no other, and the number that the next
/// one who wishes for it is tried with: a list may call all its tunnels alike.
type Names = BTreeMap<String, u32>;

/// `wish`, or with a number behind when that is taken.
fn unique(taken: &mut Names, wish: &str) -> String {
    let key = wish.to_lowercase();
    let Some(mut number) = taken.get(&key).copied() else {
        taken.insert(key, 2);
        return wish.to_owned();
    };
    loop {
        let name = format!("{wish}-{number}");
        number = number.saturating_add(1);
        if !taken.contains_key(&name.to_lowercase()) {
            taken.insert(name.to_lowercase(), 2);
            taken.insert(key, number);
            return name;
        }
    }
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
        let mut taken = Names::new();
        let named = ["nl", "NL", "Nl", "nl-2"].map(|name| unique(&mut taken, name));
        assert_eq!(named, ["nl", "NL-2", "Nl-3", "nl-2-2"]);
    }

    #[test]
    fn a_list_of_one_name_takes_no_longer_than_one_of_many() {
        let (begun, mut taken) = (std::time::Instant::now(), Names::new());
        let named: BTreeSet<String> = (0..20_000).map(|_| unique(&mut taken, "NL")).collect();
        assert!(named.len() == 20_000 && named.contains("NL-20000"));
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    }
}
