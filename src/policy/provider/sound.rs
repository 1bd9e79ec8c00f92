//! What a policy must not say of a provider.
//!
//! **Invariant:** whatever passes can be asked, as far as the policy alone shows it.

use super::{Gluetun, HideMyName, Http, NordVpn, Provider};
use crate::policy::PolicyFault;
use crate::url::Target;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Providers whose port gluetun knows.
const PORTS: [(&str, u16); 8] = [
    ("airvpn", 1637),
    ("fastestvpn", 51_820),
    ("ivpn", 58_237),
    ("mullvad", 51_820),
    ("nordvpn", 51_820),
    ("protonvpn", 51_820),
    ("surfshark", 51_820),
    ("windscribe", 1194),
];

/// More in one refresh than fits into the longest step.
const LARGEST_BATCH: usize = 500;

impl Provider {
    /// The key that a policy names it by.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::Directory(_) => "directory",
            Self::Http(_) => "http",
            Self::Exec(_) => "exec",
            Self::HideMyName(_) => "hidemyname",
            Self::Mullvad(_) => "mullvad",
            Self::Ivpn(_) => "ivpn",
            Self::NordVpn(_) => "nordvpn",
            Self::Gluetun(_) => "gluetun",
        }
    }

    /// Refuses what contradicts itself. `amnezia`: the program that configures tunnels is `awg`.
    pub(in crate::policy) fn validate(&self, amnezia: bool) -> Result<(), PolicyFault> {
        let key = self.key();
        for (name, path) in self.files() {
            if !path.is_absolute() {
                return fault(format!(
                    "provider.{key}.{name} \"{}\" is not absolute: a timer has no folder of its own",
                    path.display()
                ));
            }
        }
        if let Some(identity) = self.identity()
            && !identity.address.iter().any(|address| address.0.addr().is_ipv4())
            && !self.has_usual_address()
        {
            return fault(format!(
                "provider.{key}.identity.address has no IPv4 address: write the one that the provider gave you with the key"
            ));
        }
        match self {
            Self::Directory(_) | Self::Mullvad(_) | Self::Ivpn(_) => {}
            Self::NordVpn(nord) => nord_is_sound(nord)?,
            Self::Http(http) => http_is_sound(http)?,
            Self::Exec(exec) => {
                if exec.path.as_os_str().as_encoded_bytes().contains(&b'=') {
                    return fault("provider.exec.path has a =: rename the program".to_owned());
                }
                if exec.timeout_sec == 0 {
                    return fault(format!(
                        "provider.{key}.timeout_sec is 0: it must be at least 1"
                    ));
                }
            }
            Self::HideMyName(site) => site_is_sound(site, amnezia)?,
            Self::Gluetun(gluetun) => gluetun_is_sound(gluetun)?,
        }
        if self.asking().is_some_and(|asking| asking.timeout.is_zero()) {
            return fault(format!("provider.{key}.timeout_sec is 0: it must be at least 1"));
        }
        Ok(())
    }

    /// The files that it names, each by the key that names it.
    #[must_use]
    pub fn files(&self) -> Vec<(&'static str, &Path)> {
        let mut files: Vec<(&'static str, &PathBuf)> = Vec::new();
        match self {
            Self::Directory(directory) => files.push(("path", &directory.path)),
            Self::Exec(exec) => files.push(("path", &exec.path)),
            Self::Http(http) => {
                files.extend(http.token_file.as_ref().map(|path| ("token_file", path)));
            }
            Self::HideMyName(site) => files.push(("code_file", &site.code_file)),
            Self::Gluetun(gluetun) => {
                files.extend(gluetun.path.as_ref().map(|path| ("path", path)));
            }
            Self::NordVpn(nord) => {
                files.extend(nord.token_file.as_ref().map(|path| ("token_file", path)));
            }
            Self::Mullvad(_) | Self::Ivpn(_) => {}
        }
        if let Some(identity) = self.identity() {
            files.push(("identity.private_key_file", &identity.private_key_file));
            let preshared = identity.preshared_key_file.as_ref();
            files.extend(preshared.map(|path| ("identity.preshared_key_file", path)));
        }
        let mut files: Vec<_> =
            files.into_iter().map(|(name, path)| (name, path.as_path())).collect();
        let ca_file = self.asking().and_then(|asking| asking.ca_file);
        files.extend(ca_file.map(|path| ("ca_file", path)));
        files
    }

    /// Whether every subscriber has the same address.
    fn has_usual_address(&self) -> bool {
        match self {
            // Entries of the first two may bring their own.
            Self::Http(_) | Self::Exec(_) | Self::NordVpn(_) => true,
            Self::Directory(_)
            | Self::HideMyName(_)
            | Self::Mullvad(_)
            | Self::Ivpn(_)
            | Self::Gluetun(_) => false,
        }
    }
}

impl Gluetun {
    /// The port of this provider's endpoints.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        let usual = PORTS.iter().find(|(name, _)| *name == self.provider).map(|(_, port)| *port);
        self.port.map(std::num::NonZero::get).or(usual)
    }
}

fn fault(text: String) -> Result<(), PolicyFault> {
    Err(PolicyFault::new(text))
}

fn http_is_sound(http: &Http) -> Result<(), PolicyFault> {
    if http.url.is_none() && http.urls.is_empty() {
        return fault("provider.http has no url: write \"url\": \"https://…\"".to_owned());
    }
    if http.token_file.is_some()
        && let Some(url) = http.url.iter().chain(&http.urls).find(|url| is_overheard(url))
    {
        return fault(format!(
            "provider.http.token_file would be sent to {} in clear: write https://",
            url.host()
        ));
    }
    Ok(())
}

fn nord_is_sound(nord: &NordVpn) -> Result<(), PolicyFault> {
    match (&nord.identity, &nord.token_file) {
        (None, None) => fault(
            "provider.nordvpn has neither identity nor token_file: write the file of your key, or of an access token"
                .to_owned(),
        ),
        (Some(_), Some(_)) => fault(
            "provider.nordvpn has identity and token_file: write one of them".to_owned(),
        ),
        (None, Some(_)) if nord.credentials().is_some_and(|url| is_overheard(&url)) => fault(
            "provider.nordvpn.token_file would be sent to credentials_url in clear: write https://"
                .to_owned(),
        ),
        (Some(_), None) | (None, Some(_)) => Ok(()),
    }
}

fn site_is_sound(site: &HideMyName, amnezia: bool) -> Result<(), PolicyFault> {
    if site.urls.is_empty() {
        return fault("provider.hidemyname.urls is empty: name a site, or leave it out".to_owned());
    }
    if let Some(url) = site.urls.iter().find(|url| is_overheard(url)) {
        return fault(format!(
            "provider.hidemyname.code_file would be sent to {} in clear: write https://",
            url.host()
        ));
    }
    for (name, path) in [("list_path", &site.list_path), ("config_path", &site.config_path)] {
        let text = format!("https://a.example{path}");
        if !path.starts_with('/') || Target::try_from(text).is_err() {
            return fault(format!("provider.hidemyname.{name} is no path: it begins with /"));
        }
    }
    match site.awg {
        0 => {}
        1 | 4 if amnezia => {}
        1 | 4 => {
            return fault(format!(
                "provider.hidemyname.awg {} needs AmneziaWG: set wireguard.tool to awg",
                site.awg
            ));
        }
        other => {
            return fault(format!("provider.hidemyname.awg is {other}: write 0, 1 or 4"));
        }
    }
    if !(1..=LARGEST_BATCH).contains(&site.batch) {
        return fault(format!("provider.hidemyname.batch must be from 1 to {LARGEST_BATCH}"));
    }
    Ok(())
}

fn gluetun_is_sound(gluetun: &Gluetun) -> Result<(), PolicyFault> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
    if gluetun.provider.is_empty() || !gluetun.provider.bytes().all(plain) {
        return fault(
            "provider.gluetun.provider is none of gluetun's: write mullvad, …".to_owned(),
        );
    }
    if gluetun.path.is_some() && (gluetun.url.is_some() || !gluetun.urls.is_empty()) {
        return fault("provider.gluetun has a path and a url: write one of them".to_owned());
    }
    if gluetun.port().is_none() {
        return fault(format!(
            "provider.gluetun.port is missing: it is not known for {}",
            gluetun.provider
        ));
    }
    Ok(())
}

/// Whether others can read what is sent there.
fn is_overheard(url: &Target) -> bool {
    !url.is_https() && !url.address().as_ref().is_some_and(IpAddr::is_loopback)
}
