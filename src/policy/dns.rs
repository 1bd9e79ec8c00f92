//! The policy of kind `dns`: which nodes, which host names follow them, who keeps the zone, and
//! every threshold.
//!
//! **Invariant:** every default that is not the operator's is written here, once.

mod sound;

use crate::dns::name::{HostName, NodeName};
use crate::dns::record::{Zone, ZoneKey};
use crate::observation::Handshake;
use crate::url::Target;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// Where an interval of 0 is a measure of time, it counts as this.
const ZERO_INTERVAL_SEC: u64 = 10;

/// A whole policy of host names.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DnsPolicy {
    /// The tag, already read.
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "$schema", default)]
    _schema: Option<String>,
    #[serde(rename = "description", default)]
    _description: Option<String>,
    /// Who keeps the zone.
    pub driver: Driver,
    /// What host names can point at.
    pub nodes: BTreeMap<NodeName, Node>,
    /// The host names.
    pub hosts: BTreeMap<HostName, Host>,
    /// What shows that this machine itself is online.
    #[serde(default)]
    pub reference: Reference,
    /// Every threshold.
    #[serde(default)]
    pub params: Params,
}

/// Who keeps the zone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Driver {
    /// Cloudflare.
    Cloudflare(Cloudflare),
    /// A server that takes dynamic updates.
    Rfc2136(Rfc2136),
}

/// A zone at Cloudflare.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cloudflare {
    /// Its name, or its id of 32 hexadecimal digits.
    pub zone: String,
    /// The file with the API token.
    pub token_file: PathBuf,
    /// Where the API is.
    #[serde(default = "api")]
    pub api: String,
}

fn api() -> String {
    "https://api.cloudflare.com/client/v4".to_owned()
}

/// A zone at a server that takes dynamic updates (RFC 2136).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rfc2136 {
    /// The primary server, `HOST` or `HOST:PORT`.
    pub server: String,
    /// The zone's name.
    pub zone: HostName,
    /// The file with the TSIG key, as the tool's `-k` reads it.
    pub key_file: PathBuf,
    /// The program that sends updates.
    #[serde(default)]
    pub tool: Tool,
}

/// The program that sends updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// Knot's.
    #[default]
    Knsupdate,
    /// BIND's.
    Nsupdate,
}

impl Tool {
    /// The program's name.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Knsupdate => "knsupdate",
            Self::Nsupdate => "nsupdate",
        }
    }
}

/// A machine that serves host names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its address.
    pub address: Ipv4Addr,
    /// What people call its place.
    #[serde(default)]
    pub label: Option<String>,
    /// How often it is taken in comparison with others.
    #[serde(default = "one")]
    pub weight: u32,
    /// What shows that it lives.
    pub check: Check,
}

fn one() -> u32 {
    1
}

/// What shows that a node lives.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Check {
    /// It takes a connection.
    Tcp(Tcp),
    /// It shows a good certificate for a name.
    Tls(Tls),
    /// It answers a request.
    Https(Https),
}

/// A check by a connection.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// The port.
    pub port: u16,
    /// How long it may take.
    #[serde(default = "check_timeout")]
    pub timeout_sec: u64,
}

/// A check by a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The port.
    #[serde(default = "https_port")]
    pub port: u16,
    /// The name that the certificate must be for.
    pub name: HostName,
    /// Certificates that it must be signed by; none given: the usual ones.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How long it may take.
    #[serde(default = "check_timeout")]
    pub timeout_sec: u64,
}

/// A check by a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Https {
    /// The port.
    #[serde(default = "https_port")]
    pub port: u16,
    /// The name that is asked for and that the certificate must be for.
    pub name: HostName,
    /// The path with its query.
    #[serde(default = "root")]
    pub path: String,
    /// The only good status codes.
    #[serde(default = "ok")]
    pub expect_status: Vec<u16>,
    /// What the first 64 KiB of the body must hold; none given: anything.
    #[serde(default)]
    pub expect_body: Option<String>,
    /// Certificates that it must be signed by; none given: the usual ones.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How long it may take.
    #[serde(default = "check_timeout")]
    pub timeout_sec: u64,
}

fn check_timeout() -> u64 {
    5
}

fn https_port() -> u16 {
    443
}

fn root() -> String {
    "/".to_owned()
}

fn ok() -> Vec<u16> {
    vec![200]
}

impl Check {
    /// What is done to find out.
    #[must_use]
    pub fn handshake(&self) -> Handshake {
        match self {
            Self::Tcp(tcp) => Handshake::Tcp { port: tcp.port },
            Self::Tls(tls) => Handshake::Tls {
                port: tls.port,
                name: tls.name.clone(),
                ca_file: tls.ca_file.clone(),
            },
            Self::Https(https) => Handshake::Https {
                port: https.port,
                name: https.name.clone(),
                path: https.path.clone(),
                expect_status: https.expect_status.clone(),
                expect_body: https.expect_body.clone(),
                ca_file: https.ca_file.clone(),
            },
        }
    }

    /// What another node must do to serve in this one's place: take the connection and, where one is
    /// checked here, show a certificate for the same name.
    #[must_use]
    pub fn in_its_place(&self) -> Handshake {
        match self {
            Self::Tcp(_) | Self::Tls(_) => self.handshake(),
            Self::Https(https) => Handshake::Tls {
                port: https.port,
                name: https.name.clone(),
                ca_file: https.ca_file.clone(),
            },
        }
    }

    /// How long it may take.
    #[must_use]
    pub fn timeout_sec(&self) -> u64 {
        match self {
            Self::Tcp(tcp) => tcp.timeout_sec,
            Self::Tls(tls) => tls.timeout_sec,
            Self::Https(https) => https.timeout_sec,
        }
    }
}

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

/// What shows that this machine itself is online: one good answer of these pages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The pages, which answer 200 or 204.
    pub urls: Vec<Target>,
}

impl Default for Reference {
    fn default() -> Self {
        let urls =
            ["https://www.gstatic.com/generate_204", "https://cp.cloudflare.com/generate_204"];
        let target = |url: &&str| Target::try_from((*url).to_owned()).ok();
        Self { urls: urls.iter().filter_map(target).collect() }
    }
}

/// Every threshold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// A step is due so long after the start of the last; 0: always.
    pub check_interval_sec: u64,
    /// Failed checks in a row before a node is down.
    pub fall: u32,
    /// Passed checks in a row before it is up again.
    pub rise: u32,
    /// How long a host name stays away from its native at least.
    pub minimum_stay_sec: u64,
    /// Moves away from the native in the window that lead to quarantine.
    pub flap_limit: usize,
    /// The window of these moves.
    pub flap_window_sec: u64,
    /// How long a native that flaps is not returned to.
    pub quarantine_sec: u64,
    /// Rounds in a row, in which most nodes fail at once, that are not believed.
    pub mass_rounds: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            check_interval_sec: 30,
            fall: 2,
            rise: 2,
            minimum_stay_sec: 240,
            flap_limit: 3,
            flap_window_sec: 86_400,
            quarantine_sec: 21_600,
            mass_rounds: 3,
        }
    }
}

impl Params {
    /// The interval where it is a measure of time.
    #[must_use]
    pub fn interval(&self) -> Duration {
        let seconds =
            if self.check_interval_sec == 0 { ZERO_INTERVAL_SEC } else { self.check_interval_sec };
        Duration::from_secs(seconds)
    }
}

impl DnsPolicy {
    /// The zone, as a setting of it is named.
    #[must_use]
    pub fn zone(&self) -> Option<Zone> {
        Some(match &self.driver {
            Driver::Cloudflare(cloudflare) => Zone::Cloudflare {
                api: Target::try_from(cloudflare.api.clone()).ok()?,
                zone: cloudflare.key()?,
                token_file: cloudflare.token_file.clone(),
            },
            Driver::Rfc2136(server) => {
                let (host, port) = server.place()?;
                Zone::Rfc2136 {
                    server: host,
                    port,
                    zone: server.zone.clone(),
                    key_file: server.key_file.clone(),
                    tool: server.tool.program().to_owned(),
                }
            }
        })
    }

    /// The nodes of a host in the order in which they are taken: the native, then its fallbacks, for
    /// a host of several records the heavier ones first.
    #[must_use]
    pub fn order<'a>(&'a self, name: &HostName, host: &'a Host) -> Vec<&'a NodeName> {
        let mut others: Vec<&NodeName> = host.fallbacks_of(name).iter().collect();
        if host.records > 1 {
            let weight = |node: &&NodeName| self.nodes.get(*node).map_or(0, |node| node.weight);
            others.sort_by_key(|node| std::cmp::Reverse(weight(node)));
        }
        std::iter::once(&host.native).chain(others).collect()
    }

    /// What it asks for that is unwise, a line each.
    pub(super) fn notes(&self) -> Vec<String> {
        let stay = self.params.minimum_stay_sec;
        let short = self.hosts.iter().filter(|(_, host)| stay < 2 * u64::from(host.ttl));
        short
            .map(|(name, host)| {
                format!(
                    "params.minimum_stay_sec {stay} is shorter than twice the ttl {} of {name}: resolvers may not follow that fast",
                    host.ttl
                )
            })
            .collect()
    }
}

impl Cloudflare {
    /// How the zone is named.
    fn key(&self) -> Option<ZoneKey> {
        if self.zone.len() == 32 && self.zone.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Some(ZoneKey::Id(self.zone.to_ascii_lowercase()));
        }
        HostName::try_from(self.zone.clone()).ok().map(ZoneKey::Name)
    }
}

impl Rfc2136 {
    /// Host and port of the server.
    fn place(&self) -> Option<(String, u16)> {
        let target = Target::try_from(format!("http://{}/", self.server)).ok()?;
        let plain = target.path() == "/" && !self.server.contains('/');
        let has_port = self
            .server
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
        let port = if has_port { target.port() } else { 53 };
        plain.then(|| (target.host().to_owned(), port))
    }
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
fn is_of(name: &HostName, region: &str) -> bool {
    let is = |part: &str| part.eq_ignore_ascii_case(region);
    name.labels().any(|label| is(label) || label.split('-').any(is))
}
