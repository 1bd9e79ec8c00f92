//! Where candidates come from, as a policy says it.
//!
//! **Invariant:** only here and in `host/provider` does the program know a source by name; a secret
//! is named by its file and never stands in a policy.

mod hidemyname;
mod identity;
mod local;
mod remote;
mod service;
mod sound;
mod wanted;

pub use hidemyname::HideMyName;
pub use identity::{Identity, OwnAddress};
pub use local::{Directory, Exec};
pub use remote::{AskedBy, Asking};
pub use service::{Gluetun, Http, NordVpn, Service};
pub use wanted::{Place, SpreadBy, Wanted};

use crate::url::Target;
use remote::{Remote, targets};
use serde::Deserialize;
use std::collections::BTreeSet;
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

impl Provider {
    /// How it is asked; `None`: it is on this machine.
    #[must_use]
    pub fn asking(&self) -> Option<Asking<'_>> {
        let urls = match self {
            Self::Directory(_) | Self::Exec(_) => return None,
            Self::Http(http) => http.places(),
            Self::HideMyName(site) => site.urls.clone(),
            Self::Mullvad(service) | Self::Ivpn(service) => self.urls_or_usual(&service.urls),
            Self::NordVpn(nord) => self.urls_or_usual(&nord.urls),
            Self::Gluetun(gluetun) => gluetun.places()?,
        };
        let Remote { ca_file, timeout_sec, via, allow_loopback: _ } = self.remote()?;
        Some(Asking { urls, ca_file, timeout: Duration::from_secs(timeout_sec), via })
    }

    /// What it has in common with all that may be asked over the network.
    fn remote(&self) -> Option<Remote<'_>> {
        Some(match self {
            Self::Directory(_) | Self::Exec(_) => return None,
            Self::Http(http) => http.remote(),
            Self::HideMyName(site) => site.remote(),
            Self::Mullvad(service) | Self::Ivpn(service) => service.remote(),
            Self::NordVpn(nord) => nord.remote(),
            Self::Gluetun(gluetun) => gluetun.remote(),
        })
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

    /// Whether its list is read from files of this machine, which runs nothing and asks nobody.
    #[must_use]
    pub fn is_read_from_files(&self) -> bool {
        match self {
            Self::Directory(_) | Self::Gluetun(_) => self.is_local(),
            Self::Http(_)
            | Self::Exec(_)
            | Self::HideMyName(_)
            | Self::Mullvad(_)
            | Self::Ivpn(_)
            | Self::NordVpn(_) => false,
        }
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
        self.remote().is_none_or(|remote| remote.allow_loopback)
    }
}
