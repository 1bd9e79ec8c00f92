//! sing-box's configuration, as far as it tells how the core is reached and used.
//!
//! Several files are one configuration: sing-box takes them in the order of their paths, puts lists
//! one after the other and lets the first word on anything else stand (`sing-box merge` shows it).
//!
//! **Invariant:** what is not understood is passed over, where nothing depends on it; no secret
//! gets into an error.

use super::config::plain;
use super::discover::{Described, Secret, at, control};
use crate::observation::{Outline, Program};
use crate::outcome::harmless;
use crate::proxy::{Proxy, Speaks};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Reads the texts of a configuration, each with the path that it was named by.
///
/// # Errors
/// Which file is not understood, and where.
pub fn sing_box(read_in: String, texts: &[(String, String)]) -> Result<Described, String> {
    let mut texts: Vec<&(String, String)> = texts.iter().collect();
    texts.sort_by(|a, b| a.0.cmp(&b.0));
    let mut config = Value::Null;
    for (path, text) in texts {
        let read: Value = serde_json::from_str(&plain(text)).map_err(|why| {
            format!("{path} is not JSON in line {}, column {}", why.line(), why.column())
        })?;
        config = merged(config, read);
    }
    let word = |at: &str| config.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let controller = word("/experimental/clash_api/external_controller");
    let (control, exposed) = control("experimental.clash_api.external_controller", controller);
    let secret = Secret::new(word("/experimental/clash_api/secret"))
        .map_err(|why| format!("{read_in}: {why}"))?;
    let groups = Groups::of(&config);
    let (proxies, other_proxies) = proxies(&config, &groups);
    let keeps = config.pointer("/experimental/cache_file/enabled").and_then(Value::as_bool);
    let outline = Outline {
        program: Program::SingBox,
        read_in,
        control,
        exposed,
        has_secret: secret.is_some(),
        keeps_choices: keeps.unwrap_or(false),
        proxies,
        other_proxies,
        default_way: default_way(&config),
        selectors: groups.selectors,
        automatic: groups.automatic,
    };
    Ok(Described { outline, secret })
}

/// `later` put onto `earlier` as sing-box does it.
fn merged(earlier: Value, later: Value) -> Value {
    match (earlier, later) {
        (Value::Null, later) => later,
        (Value::Array(mut all), Value::Array(more)) => {
            all.extend(more);
            Value::Array(all)
        }
        (Value::Object(mut all), Value::Object(more)) => {
            for (key, value) in more {
                let value = match all.remove(&key) {
                    Some(before) => merged(before, value),
                    None => value,
                };
                all.insert(key, value);
            }
            Value::Object(all)
        }
        (earlier, _) => earlier,
    }
}

fn list<'a>(config: &'a Value, at: &str) -> impl Iterator<Item = &'a Value> {
    config.pointer(at).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// A text, or a list of them: sing-box takes one where it takes several.
fn texts<'a>(value: &'a Value, key: &str) -> Vec<&'a str> {
    match value.get(key) {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => Vec::new(),
    }
}

/// The core's groups.
struct Groups {
    selectors: BTreeMap<String, Vec<String>>,
    automatic: BTreeSet<String>,
}

impl Groups {
    fn of(config: &Value) -> Self {
        let (mut selectors, mut automatic) = (BTreeMap::new(), BTreeSet::new());
        for outbound in list(config, "/outbounds") {
            let Some(tag) = text(outbound, "tag") else { continue };
            match text(outbound, "type") {
                Some("selector") => {
                    let members = texts(outbound, "outbounds");
                    let members = members.into_iter().map(str::to_owned).collect();
                    selectors.insert(tag.to_owned(), members);
                }
                Some("urltest") => {
                    automatic.insert(tag.to_owned());
                }
                Some(_) | None => {}
            }
        }
        Self { selectors, automatic }
    }
}

/// Where what no rule leads elsewhere goes: `route.final`, else the first outbound.
fn default_way(config: &Value) -> Option<String> {
    let last = config.pointer("/route/final").and_then(Value::as_str);
    let first = || list(config, "/outbounds").next().and_then(|outbound| text(outbound, "tag"));
    last.or_else(first).map(str::to_owned)
}

/// Proxies on this machine, and those that cannot be used.
fn proxies(config: &Value, groups: &Groups) -> (Vec<Proxy>, Vec<String>) {
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for inbound in list(config, "/inbounds") {
        let (rank, speaks) = match text(inbound, "type") {
            Some("mixed") => (0, Speaks::Http),
            Some("http") => (1, Speaks::Http),
            Some("socks") => (2, Speaks::Socks5),
            Some(_) | None => continue,
        };
        let port = inbound.get("listen_port").and_then(Value::as_u64);
        let Some(port) = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0)
        else {
            continue;
        };
        let host = text(inbound, "listen").unwrap_or_default();
        let tag = text(inbound, "tag").unwrap_or_default();
        let mut cannot = |why: &str| {
            let name = if tag.is_empty() { format!("port {port}") } else { harmless(tag) };
            others.push(format!("{name} {why}"));
        };
        let Some(address) = at(host, port).here else {
            cannot("does not listen on loopback");
            continue;
        };
        let has =
            |key: &str| inbound.get(key).and_then(Value::as_array).is_some_and(|a| !a.is_empty());
        if has("users") {
            cannot("asks for a password");
        } else if inbound.pointer("/tls/enabled").and_then(Value::as_bool) == Some(true) {
            cannot("is reached by TLS");
        } else if let Some(way) = led_to(config, groups, tag) {
            cannot(&format!("is led to {}", harmless(&way)));
        } else {
            found.push((rank, Proxy { speaks, at: SocketAddr::new(address, port) }));
        }
    }
    found.sort_by_key(|(rank, _)| *rank);
    (found.into_iter().map(|(_, proxy)| proxy).collect(), others)
}

/// The outbound that a rule leads all of an inbound to, where that is no group that is selected in:
/// requests by it tell nothing of what clients see.
fn led_to(config: &Value, groups: &Groups, tag: &str) -> Option<String> {
    let leads = |rule: &&Value| !tag.is_empty() && texts(rule, "inbound").contains(&tag);
    let way = list(config, "/route/rules").filter(leads).find_map(|rule| text(rule, "outbound"))?;
    (!groups.selectors.contains_key(way)).then(|| way.to_owned())
}
