//! mihomo's configuration, as far as it tells how the core is reached and used.
//!
//! **Invariant:** what is not understood is passed over, where nothing depends on it; no secret
//! gets into an error.

use super::discover::{Described, Secret, at, control};
use crate::observation::{Outline, Program};
use crate::proxy::{Proxy, Speaks};
use crate::setting::Control;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

/// What of the file matters here. What is written as a number where a text is meant is that text.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Config {
    external_controller: Option<String>,
    external_controller_unix: Option<String>,
    secret: Option<String>,
    mixed_port: Option<u32>,
    port: Option<u32>,
    socks_port: Option<u32>,
    allow_lan: Option<bool>,
    bind_address: Option<String>,
    authentication: Option<Vec<IgnoredAny>>,
    skip_auth_prefixes: Option<Vec<String>>,
    profile: Option<Profile>,
    proxy_groups: Option<Vec<Group>>,
    rules: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Profile {
    store_selected: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Group {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    proxies: Option<Vec<String>>,
}

/// What the core's arguments say over its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `-ext-ctl`.
    pub controller: Option<String>,
    /// `-ext-ctl-unix`.
    pub controller_unix: Option<String>,
    /// `-secret`.
    pub secret: Option<Secret>,
}

/// Reads a configuration. Relative paths begin at `home`.
///
/// # Errors
/// Where it is not understood.
pub fn mihomo(
    read_in: String,
    (path, text): (&str, &str),
    home: &Path,
    over: &Overrides,
) -> Result<Described, String> {
    let config = config(text).map_err(|why| format!("{path} {why}"))?;
    let secret = match &over.secret {
        Some(secret) => Some(secret.clone()),
        None => Secret::new(config.secret.as_deref().unwrap_or_default())
            .map_err(|why| format!("{read_in}: {why}"))?,
    };
    let written = over.controller.as_ref().or(config.external_controller.as_ref());
    let written = written.map(String::as_str).unwrap_or_default();
    let (by_http, exposed) = control("external-controller", written);
    let socket = over.controller_unix.as_ref().or(config.external_controller_unix.as_ref());
    let socket = socket.filter(|path| !path.is_empty());
    // A secret is wanted over HTTP alone; whoever may open the socket may steer.
    let control = match (by_http, socket) {
        (Ok(control), _) => Ok(control),
        (Err(_), Some(socket)) => Ok(Control::Unix(home.join(socket))),
        (Err(why), None) => Err(why),
    };
    let (proxies, other_proxies) = proxies(&config);
    let groups = config.proxy_groups.unwrap_or_default();
    let of_type = |group: &&Group, kinds: &[&str]| kinds.contains(&group.kind.as_str());
    let selectors: BTreeMap<String, Vec<String>> = groups
        .iter()
        .filter(|group| of_type(group, &["select"]))
        .map(|group| (group.name.clone(), group.proxies.clone().unwrap_or_default()))
        .collect();
    let automatic: BTreeSet<String> = groups
        .iter()
        .filter(|group| of_type(group, &["url-test", "fallback", "load-balance"]))
        .map(|group| group.name.clone())
        .collect();
    let last = config.rules.as_ref().and_then(|rules| rules.last());
    let default_way = last.and_then(|rule| {
        let mut words = rule.split(',').map(str::trim);
        (words.next() == Some("MATCH")).then(|| words.next().map(str::to_owned)).flatten()
    });
    let outline = Outline {
        program: Program::Mihomo,
        read_in,
        control,
        exposed,
        has_secret: secret.is_some(),
        keeps_choices: config.profile.and_then(|it| it.store_selected).unwrap_or(true),
        proxies,
        other_proxies,
        selectors,
        automatic,
        default_way,
    };
    Ok(Described { outline, secret })
}

/// The parts of the file that matter. A group's anchor may be used by each of a hundred groups.
fn config(text: &str) -> Result<Config, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 4_000_000,
            max_nodes: 1_000_000,
            enforce_alias_anchor_ratio: false,
        },
    };
    let read: Result<Option<Config>, _> = serde_saphyr::from_str_with_options(text, options);
    // The parser's own words hold lines of the file.
    read.map(Option::unwrap_or_default).map_err(|why| match why.location() {
        Some(at) => format!("is not understood in line {}, column {}", at.line(), at.column()),
        None => "is not understood".to_owned(),
    })
}

/// Proxies on this machine, and those that cannot be used.
fn proxies(config: &Config) -> (Vec<Proxy>, Vec<String>) {
    let bound = match (config.allow_lan, &config.bind_address) {
        (Some(true), Some(address)) => address.trim_start_matches('[').trim_end_matches(']'),
        (_, _) => "",
    };
    let names = config.skip_auth_prefixes.iter().flatten();
    let is_open = config.authentication.as_ref().is_none_or(Vec::is_empty)
        || names.clone().any(|prefix| prefix.starts_with("127.") || prefix == "0.0.0.0/0");
    let ports = [
        ("mixed-port", config.mixed_port, Speaks::Http),
        ("port", config.port, Speaks::Http),
        ("socks-port", config.socks_port, Speaks::Socks5),
    ];
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for (key, port, speaks) in ports {
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
        let Some(port) = port else { continue };
        match at(bound, port).here {
            None => others.push(format!("{key} does not listen on loopback")),
            Some(_) if !is_open => others.push(format!("{key} asks for a password")),
            Some(address) => found.push(Proxy { speaks, at: SocketAddr::new(address, port) }),
        }
    }
    (found, others)
}
