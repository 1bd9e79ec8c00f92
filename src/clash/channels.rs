//! Where sing-box's own configuration leads what comes in by each of its local proxies.
//!
//! **Invariant:** a proxy counts as leading somewhere only when a rule says so of all that comes in
//! by it; what stands before that rule and may take some of it is told by its number.

use crate::observation::Inbound;
use crate::proxy::{Proxy, Speaks};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A group in which a member can be selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Its name.
    pub tag: String,
    /// Its members, in their order.
    pub members: Vec<String>,
    /// The member that it begins with, where that is written down.
    pub default: Option<String>,
    /// Whether it cuts open connections when another member is selected.
    pub interrupts: bool,
}

/// What of a rule says what it does, and not to whom.
const DOING: [&str; 3] = ["inbound", "outbound", "action"];
/// Actions behind which the rules go on.
const PASSING: [&str; 3] = ["sniff", "resolve", "route-options"];

fn list<'a>(configs: &'a [Value], at: &'a str) -> impl Iterator<Item = &'a Value> {
    configs.iter().filter_map(move |config| config.pointer(at)?.as_array()).flatten()
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

/// The groups of a configuration in which a member can be selected.
#[must_use]
pub fn selectors(configs: &[Value]) -> Vec<Selector> {
    let outbounds = list(configs, "/outbounds");
    let selectors = outbounds.filter(|outbound| text(outbound, "type") == Some("selector"));
    let one = |outbound: &Value| {
        let interrupts = outbound.get("interrupt_exist_connections").and_then(Value::as_bool);
        Some(Selector {
            tag: text(outbound, "tag")?.to_owned(),
            members: texts(outbound, "outbounds").into_iter().map(str::to_owned).collect(),
            default: text(outbound, "default").map(str::to_owned),
            interrupts: interrupts.unwrap_or(false),
        })
    };
    selectors.filter_map(one).collect()
}

/// Where what no rule leads elsewhere goes: `route.final`, else the first outbound.
#[must_use]
pub fn default_way(configs: &[Value]) -> Option<String> {
    let last = configs.iter().find_map(|config| config.pointer("/route/final")?.as_str());
    let first = || list(configs, "/outbounds").next().and_then(|outbound| text(outbound, "tag"));
    last.or_else(first).map(str::to_owned)
}

/// The local proxies of a configuration, by their ports.
#[must_use]
pub fn inbounds(configs: &[Value]) -> BTreeMap<u16, Inbound> {
    let mut found = BTreeMap::new();
    for inbound in list(configs, "/inbounds") {
        let Some(proxy) = proxy(inbound) else { continue };
        let tag = text(inbound, "tag").unwrap_or_default();
        let (way, is_named, before) = led(configs, tag);
        let needs_password =
            inbound.get("users").and_then(Value::as_array).is_some_and(|users| !users.is_empty());
        let inbound = Inbound { tag: tag.to_owned(), proxy, needs_password, way, is_named, before };
        found.insert(proxy.at.port(), inbound);
    }
    found
}

/// How an inbound is reached from this machine; `None`: it is no proxy, or is not reached.
fn proxy(inbound: &Value) -> Option<Proxy> {
    let speaks = match text(inbound, "type")? {
        "mixed" | "http" => Speaks::Http,
        "socks" => Speaks::Socks5,
        _ => return None,
    };
    let port = inbound.get("listen_port").and_then(Value::as_u64)?;
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    let listens: IpAddr = text(inbound, "listen").unwrap_or("::").parse().ok()?;
    let here = match listens {
        IpAddr::V4(address) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        // A socket of both families, unless the machine says otherwise.
        IpAddr::V6(address) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        address if address.is_loopback() => address,
        IpAddr::V4(_) | IpAddr::V6(_) => return None,
    };
    Some(Proxy { speaks, at: SocketAddr::new(here, port) })
}

/// Where all that comes in by an inbound goes (`None`: it is refused, or goes nowhere), whether a rule
/// says so of this inbound, and the numbers, from 1, of the rules before that which may take some.
fn led(configs: &[Value], tag: &str) -> (Option<String>, bool, Vec<usize>) {
    let mut before = Vec::new();
    for (number, rule) in (1..).zip(list(configs, "/route/rules")) {
        let inbounds = texts(rule, "inbound");
        let is_others = rule.get("inbound").is_some() && !inbounds.contains(&tag);
        let action = text(rule, "action").unwrap_or("route");
        if is_others || PASSING.contains(&action) {
            continue;
        }
        let conditions = rule.as_object().into_iter().flatten();
        if conditions.map(|(key, _)| key.as_str()).any(|key| !DOING.contains(&key)) {
            before.push(number);
            continue;
        }
        return (text(rule, "outbound").map(str::to_owned), !inbounds.is_empty(), before);
    }
    (default_way(configs), false, before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_inbound_leads_where_the_first_rule_without_conditions_says() {
        let config = json!({
            "inbounds": [
                { "type": "mixed", "tag": "a", "listen": "127.0.0.1", "listen_port": 1 },
                { "type": "socks", "tag": "b", "listen": "0.0.0.0", "listen_port": 2, "users": [{}] },
                { "type": "http", "tag": "c", "listen": "::", "listen_port": 3 },
                { "type": "http", "tag": "lan", "listen": "192.168.1.1", "listen_port": 4 },
                { "type": "tproxy", "tag": "t", "listen": "127.0.0.1", "listen_port": 5 },
            ],
            "outbounds": [{ "type": "direct", "tag": "first" }],
            "route": { "rules": [
                { "action": "sniff" },
                { "protocol": "dns", "action": "hijack-dns" },
                { "inbound": ["a", "x"], "outbound": "one" },
                { "inbound": "b", "network": "udp", "outbound": "two" },
                { "inbound": "b", "action": "reject" },
            ] },
        });
        let found = inbounds(&[json!({}), config]);
        let of = |port: u16| {
            let inbound = &found[&port];
            let way = inbound.way.as_deref().unwrap_or("-");
            let named = if inbound.is_named { "by name" } else { "as all" };
            let password = if inbound.needs_password { ", password" } else { "" };
            format!(
                "{} {} {way} {named} {:?}{password}",
                inbound.tag, inbound.proxy, inbound.before
            )
        };
        assert_eq!(
            found.keys().map(|port| of(*port)).collect::<Vec<_>>(),
            [
                "a http://127.0.0.1:1 one by name [2]",
                "b socks5h://127.0.0.1:2 - by name [2, 4], password",
                "c http://[::1]:3 first as all [2]",
            ]
        );
    }
}
