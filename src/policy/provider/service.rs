//! Lists over HTTP, and services that publish one list for all.
//!
//! **Invariant:** where a policy names no place, it is the one where the service has its list.

use super::identity::Identity;
use super::remote::{fetch_timeout, remote_source, several, targets};
use crate::url::Target;
use std::num::NonZeroU16;
use std::path::PathBuf;

remote_source! {
    /// A list over HTTP.
    Http, default timeout "fetch_timeout",
    /// Where it is.
    #[serde(default)]
    url: Option<Target>,
    /// Where it is, several places that are tried in order.
    #[serde(default)]
    urls: Vec<Target>,
    /// What entries lack of our own end.
    #[serde(default)]
    identity: Option<Identity>,
    /// A file with the token that is sent as `Authorization: Bearer`.
    #[serde(default)]
    token_file: Option<PathBuf>,
}

remote_source! {
    /// A service with one public list for all and a key of the subscriber's own.
    Service, default timeout "fetch_timeout",
    /// Where the list is, several places that are tried in order; none: where the service has it.
    #[serde(default)]
    urls: Vec<Target>,
    /// Our own end.
    identity: Identity,
    /// The port of every endpoint; none: the usual one.
    #[serde(default)]
    port: Option<NonZeroU16>,
}

remote_source! {
    /// NordVPN: its public list, and our own end by its key or by an access token.
    NordVpn, default timeout "fetch_timeout",
    /// Where the list is, several places that are tried in order; none: where the service has it.
    #[serde(default)]
    urls: Vec<Target>,
    /// Our own end.
    #[serde(default)]
    identity: Option<Identity>,
    /// A file with an access token, by which our key is asked for instead.
    #[serde(default)]
    token_file: Option<PathBuf>,
    /// Where our key is asked for; none: where the service has it.
    #[serde(default)]
    credentials_url: Option<Target>,
    /// The port of every endpoint; none: the usual one.
    #[serde(default)]
    port: Option<NonZeroU16>,
}

remote_source! {
    /// The servers file of gluetun, of which one provider's servers are taken.
    Gluetun, default timeout "fetch_timeout",
    /// Whose servers, as the file calls them.
    provider: String,
    /// The file, when it is on this machine.
    #[serde(default)]
    path: Option<PathBuf>,
    /// Where it is.
    #[serde(default)]
    url: Option<Target>,
    /// Where it is, several places that are tried in order.
    #[serde(default)]
    urls: Vec<Target>,
    /// Our own end.
    identity: Identity,
    /// The port of every endpoint; none: the one that gluetun uses.
    #[serde(default)]
    port: Option<NonZeroU16>,
}

impl Http {
    /// Where the list is.
    pub(super) fn places(&self) -> Vec<Target> {
        several(self.url.as_ref(), &self.urls)
    }
}

impl NordVpn {
    /// Where our key is asked for.
    #[must_use]
    pub fn credentials(&self) -> Option<Target> {
        let usual = "https://api.nordvpn.com/v1/users/services/credentials";
        self.credentials_url.clone().or_else(|| targets(&[usual]).pop())
    }
}

impl Gluetun {
    /// Where the file is; `None`: on this machine.
    pub(super) fn places(&self) -> Option<Vec<Target>> {
        if self.path.is_some() {
            return None;
        }
        let urls = several(self.url.as_ref(), &self.urls);
        if !urls.is_empty() {
            return Some(urls);
        }
        Some(targets(&[&format!(
            "https://raw.githubusercontent.com/qdm12/gluetun-servers/refs/heads/main/pkg/servers/{}.json",
            self.provider
        )]))
    }
}
