//! Where candidates come from, as a policy says it.
//!
//! **Invariant:** only here and in `host/provider` does the program know a source by name; a secret
//! is named by its file and never stands in a policy.

mod sound;
mod wanted;

pub use wanted::{Place, SpreadBy, Wanted};

use crate::url::Target;
use ipnet::IpNet;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where candidates come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Provider {
    /// A folder or a zip of wg-quick files.
    Directory(Directory),
    /// A list in the common shape, or a zip of wg-quick files, over HTTP.
    Http(Http),
    /// A program that prints a list in the common shape.
    Exec(Exec),
    /// HideMyName, by access code.
    HideMyName(HideMyName),
    /// Mullvad's public list of relays.
    Mullvad(Service),
    /// IVPN's public list of servers.
    Ivpn(Service),
    /// NordVPN's public list of servers.
    NordVpn(NordVpn),
    /// The servers file of gluetun.
    Gluetun(Gluetun),
}

/// A folder of wg-quick files, `*.conf`, or a zip of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// The folder or the zip.
    pub path: PathBuf,
}

/// A list over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Where it is.
    #[serde(default)]
    pub url: Option<Target>,
    /// Where it is, several places that are tried in order.
    #[serde(default)]
    pub urls: Vec<Target>,
    /// What entries lack of our own end.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// A file with the token that is sent as `Authorization: Bearer`.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Certificates that the server's must be signed by, instead of the usual ones.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How long a fetch may take.
    #[serde(default = "fetch_timeout")]
    pub timeout_sec: u64,
    /// Whether the uplink is no way to ask.
    #[serde(default)]
    pub via: Option<AskedBy>,
    /// Whether endpoints may lie on this machine.
    #[serde(default)]
    pub allow_loopback: bool,
}

/// A program that prints a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// The program.
    pub path: PathBuf,
    /// Its arguments, which every user of the machine can read.
    #[serde(default)]
    pub args: Vec<String>,
    /// What entries lack of our own end.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// How long it may take.
    #[serde(default = "fetch_timeout")]
    pub timeout_sec: u64,
}

/// A service with one public list for all and a key of the subscriber's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Where the list is, several places that are tried in order; none: where the service has it.
    #[serde(default)]
    pub urls: Vec<Target>,
    /// Our own end.
    pub identity: Identity,
    /// The port of every endpoint; none: the usual one.
    #[serde(default)]
    pub port: Option<NonZeroU16>,
    /// Certificates that the server's must be signed by, instead of the usual ones.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How long a fetch may take.
    #[serde(default = "fetch_timeout")]
    pub timeout_sec: u64,
    /// Whether the uplink is no way to ask.
    #[serde(default)]
    pub via: Option<AskedBy>,
    /// Whether endpoints may lie on this machine.
    #[serde(default)]
    pub allow_loopback: bool,
}

/// NordVPN: its public list, and our own end by its key or by an access token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NordVpn {
    /// Where the list is, several places that are tried in order; none: where the service has it.
    #[serde(default)]
    pub urls: Vec<Target>,
    /// Our own end.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// A file with an access token, by which our key is asked for instead.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Where our key is asked for; none: where the service has it.
    #[serde(default)]
    pub credentials_url: Option<Target>,
    /// The port of every endpoint; none: the usual one.
    #[serde(default)]
    pub port: Option<NonZeroU16>,
    /// Certificates that the server's must be signed by, instead of the usual ones.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How long a fetch may take.
    #[serde(default = "fetch_timeout")]
    pub timeout_sec: u64,
    /// Whether the uplink is no way to ask.
    #[serde(default)]
    pub via: Option<AskedBy>,
    /// Whether endpoints may lie on this machine.
    #[serde(default)]
    pub allow_loopback: bool,
}

/// The servers file of gluetun, of which one provider's servers are taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gluetun {
    /// Whose servers, as the file calls them.
    pub provider: String,
    /// The file, when it is on this machine.
    #[serde(default)]
    pub path: Option<PathBuf>,
    /// Where it is.
    #[serde(default)]
    pub url: Option<Target>,
    /// Where it is, several places that are tried in order.
    #[serde(default)]
    pub urls: Vec<Target>,
    /// Our own end.
    pub identity: Identity,
    /// The port of every endpoint; none: the one that gluetun uses.
    #[serde(default)]
    pub port: Option<NonZeroU16>,
    /// Certificates that the server's must be signed by, instead of the usual ones.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How long a fetch may take.
    #[serde(default = "fetch_timeout")]
    pub timeout_sec: u64,
    /// Whether the uplink is no way to ask.
    #[serde(default)]
    pub via: Option<AskedBy>,
    /// Whether endpoints may lie on this machine.
    #[serde(default)]
    pub allow_loopback: bool,
}

/// HideMyName: a list of servers, and a configuration for each that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HideMyName {
    /// A file with the access code.
    pub code_file: PathBuf,
    /// The sites, tried in order.
    #[serde(default = "hide_my_name_sites")]
    pub urls: Vec<Target>,
    /// The path of the list on them.
    #[serde(default = "hide_my_name_list")]
    pub list_path: String,
    /// The path of the configurations on them.
    #[serde(default = "hide_my_name_config")]
    pub config_path: String,
    /// Which protocol is asked for: 0 is WireGuard, 1 and 4 are AmneziaWG 1.0 and 2.0.
    #[serde(default)]
    pub awg: u8,
    /// How long to wait between two requests for a configuration.
    #[serde(default = "hide_my_name_pause")]
    pub pause_ms: u64,
    /// So many configurations are asked for in one refresh; the next goes on.
    #[serde(default = "hide_my_name_batch")]
    pub batch: usize,
    /// Certificates that the sites' must be signed by, instead of the usual ones.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How long all of it may take.
    #[serde(default = "hide_my_name_timeout")]
    pub timeout_sec: u64,
    /// Whether the uplink is no way to ask.
    #[serde(default)]
    pub via: Option<AskedBy>,
    /// Whether endpoints may lie on this machine.
    #[serde(default)]
    pub allow_loopback: bool,
}

/// The only ways to ask for a list, where not every way is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AskedBy {
    /// Through a tunnel.
    Tunnel,
}

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

/// A list of a few megabytes over a slow uplink.
fn fetch_timeout() -> u64 {
    30
}

/// The sites that clients of the service were seen to use; they change.
fn hide_my_name_sites() -> Vec<Target> {
    targets(&["https://hide-my-name.cloud", "https://hide-my-name.net", "https://hidethis.app"])
}

fn hide_my_name_list() -> String {
    "/api/serverlist.php?out=js&wg".to_owned()
}

fn hide_my_name_config() -> String {
    "/api/vpn_get_config_wg.php".to_owned()
}

/// What a known client waits.
fn hide_my_name_pause() -> u64 {
    1_000
}

/// As many as are tested by default, and with the pauses they fit into a step.
fn hide_my_name_batch() -> usize {
    20
}

/// The list and a batch with its pauses, within a step's default of 60 s.
fn hide_my_name_timeout() -> u64 {
    45
}

fn targets(urls: &[&str]) -> Vec<Target> {
    urls.iter().filter_map(|url| Target::try_from((*url).to_owned()).ok()).collect()
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

impl NordVpn {
    /// Where our key is asked for.
    #[must_use]
    pub fn credentials(&self) -> Option<Target> {
        let usual = "https://api.nordvpn.com/v1/users/services/credentials";
        self.credentials_url.clone().or_else(|| targets(&[usual]).pop())
    }
}

impl Provider {
    /// How it is asked; `None`: it is on this machine.
    #[must_use]
    pub fn asking(&self) -> Option<Asking<'_>> {
        let several = |url: &Option<Target>, urls: &[Target]| {
            url.iter().chain(urls).cloned().collect::<Vec<_>>()
        };
        let (urls, ca_file, timeout_sec, via) = match self {
            Self::Directory(_) | Self::Exec(_) => return None,
            Self::Http(http) => {
                (several(&http.url, &http.urls), &http.ca_file, http.timeout_sec, http.via)
            }
            Self::HideMyName(site) => {
                (site.urls.clone(), &site.ca_file, site.timeout_sec, site.via)
            }
            Self::Mullvad(service) | Self::Ivpn(service) => (
                self.urls_or_usual(&service.urls),
                &service.ca_file,
                service.timeout_sec,
                service.via,
            ),
            Self::NordVpn(nord) => {
                (self.urls_or_usual(&nord.urls), &nord.ca_file, nord.timeout_sec, nord.via)
            }
            Self::Gluetun(gluetun) => {
                if gluetun.path.is_some() {
                    return None;
                }
                let mut urls = several(&gluetun.url, &gluetun.urls);
                if urls.is_empty() {
                    urls = targets(&[&format!(
                        "https://raw.githubusercontent.com/qdm12/gluetun-servers/refs/heads/main/pkg/servers/{}.json",
                        gluetun.provider
                    )]);
                }
                (urls, &gluetun.ca_file, gluetun.timeout_sec, gluetun.via)
            }
        };
        let (ca_file, timeout) = (ca_file.as_deref(), Duration::from_secs(timeout_sec));
        Some(Asking { urls, ca_file, timeout, via })
    }

    fn urls_or_usual(&self, named: &[Target]) -> Vec<Target> {
        if named.is_empty() { targets(self.usual_urls()) } else { named.to_vec() }
    }

    /// Where the services have their lists.
    fn usual_urls(&self) -> &'static [&'static str] {
        match self {
            Self::Mullvad(_) => &[
                "https://api.mullvad.net/app/v1/relays",
                "https://api.mullvad.net/public/relays/wireguard/v2",
            ],
            Self::Ivpn(_) => &["https://api.ivpn.net/v5/servers.json"],
            // The first is the shorter one, because it names each place and technology once.
            Self::NordVpn(_) => &[
                "https://api.nordvpn.com/v2/servers?limit=0",
                "https://api.nordvpn.com/v1/servers?limit=5000&filters%5Bservers_technologies%5D%5Bidentifier%5D=wireguard_udp",
            ],
            Self::Directory(_)
            | Self::Http(_)
            | Self::Exec(_)
            | Self::HideMyName(_)
            | Self::Gluetun(_) => &[],
        }
    }

    /// Whether it is on this machine, so that no way to it has to be found.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.asking().is_none()
    }

    /// Whether it must be asked through a tunnel.
    #[must_use]
    pub fn needs_tunnel(&self) -> bool {
        self.asking().is_some_and(|asking| asking.via == Some(AskedBy::Tunnel))
    }

    /// The host names that must be resolved to ask it; none for literal addresses.
    #[must_use]
    pub fn hosts(&self) -> Vec<String> {
        let urls = self.asking().map(|asking| asking.urls).unwrap_or_default();
        let names = urls.iter().filter(|url| url.address().is_none());
        let names: BTreeSet<String> = names.map(|url| url.host().to_owned()).collect();
        names.into_iter().collect()
    }

    /// Our own end, where lists lack it.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Directory(_) | Self::HideMyName(_) => None,
            Self::Http(http) => http.identity.as_ref(),
            Self::Exec(exec) => exec.identity.as_ref(),
            Self::Mullvad(service) | Self::Ivpn(service) => Some(&service.identity),
            Self::NordVpn(nord) => nord.identity.as_ref(),
            Self::Gluetun(gluetun) => Some(&gluetun.identity),
        }
    }

    /// Whether endpoints may lie on this machine. What the operator wrote himself may, for a
    /// wrapper around WireGuard listens there.
    #[must_use]
    pub fn allows_loopback(&self) -> bool {
        match self {
            Self::Directory(_) | Self::Exec(_) => true,
            Self::Http(http) => http.allow_loopback,
            Self::HideMyName(site) => site.allow_loopback,
            Self::Mullvad(service) | Self::Ivpn(service) => service.allow_loopback,
            Self::NordVpn(nord) => nord.allow_loopback,
            Self::Gluetun(gluetun) => gluetun.allow_loopback,
        }
    }
}
