//! Who keeps a zone, and what it takes to reach him.
//!
//! **Invariant:** secrets are named by their files; nothing here holds one.

use crate::dns::name::HostName;
use crate::dns::record::{Zone, ZoneKey};
use crate::url::Target;
use serde::Deserialize;
use std::path::PathBuf;

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

impl Driver {
    /// Whether the zone is looked up by its name each time.
    #[must_use]
    pub fn is_by_name(&self) -> bool {
        match self {
            Self::Cloudflare(cloudflare) => matches!(cloudflare.key(), Some(ZoneKey::Name(_))),
            Self::Rfc2136(_) => false,
        }
    }

    /// The zone, as a setting of it is named.
    #[must_use]
    pub fn zone(&self) -> Option<Zone> {
        Some(match self {
            Self::Cloudflare(cloudflare) => Zone::Cloudflare {
                api: Target::try_from(cloudflare.api.clone()).ok()?,
                zone: cloudflare.key()?,
                token_file: cloudflare.token_file.clone(),
            },
            Self::Rfc2136(server) => {
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
}

impl Cloudflare {
    /// How the zone is named.
    pub(super) fn key(&self) -> Option<ZoneKey> {
        if self.zone.len() == 32 && self.zone.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Some(ZoneKey::Id(self.zone.to_ascii_lowercase()));
        }
        HostName::try_from(self.zone.clone()).ok().map(ZoneKey::Name)
    }
}

impl Rfc2136 {
    /// Host and port of the server.
    pub(super) fn place(&self) -> Option<(String, u16)> {
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
