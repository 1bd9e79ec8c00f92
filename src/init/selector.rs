//! A selector made from a sing-box configuration: a group whose members have a diagnostic inbound each.
//!
//! **Invariant:** no secret of the configuration gets into the policy, a guess or an error.

use super::{Core, Draft, Here};
use crate::clash::channels::{Selector, default_way, inbounds, selectors};
use crate::clash::config::plain;
use crate::names::PolicyName;
use crate::observation::Inbound;
use crate::outcome::harmless;
use crate::policy::{Policy, overlap};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Where the secret of the control API is to be written.
const SECRET_FILE: &str = "/etc/egressctl/sing-box.secret";

/// The policy's file, its keys in the order that a person reads.
#[derive(Serialize)]
struct File<'a> {
    kind: &'static str,
    description: String,
    driver: Driver<'a>,
    primary: Channel<'a>,
    reserve: Channel<'a>,
}

#[derive(Serialize)]
struct Driver<'a> {
    clash: Clash<'a>,
}

#[derive(Serialize)]
struct Clash<'a> {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_file: Option<&'static str>,
    selector: &'a str,
}

#[derive(Clone, Serialize)]
struct Channel<'a> {
    member: &'a str,
    proxy: String,
}

/// A group that can be made a policy of, with those of its members that have a diagnostic inbound.
struct Fit<'a> {
    group: &'a Selector,
    channels: Vec<(&'a str, &'a Inbound)>,
}

/// Makes the policy.
pub(super) fn draft(here: &Here) -> Result<Draft, String> {
    let Some(core) = &here.core else {
        return Err(
            "name sing-box's own configuration with --core-config, such as /etc/sing-box/config.json"
                .to_owned(),
        );
    };
    let mut guesses = Vec::new();
    let config = parsed(core)?;
    let (url, has_secret) = controller(core, &config, &mut guesses)?;
    let configs = [config];
    let (groups, local) = (selectors(&configs), inbounds(&configs));
    let fit = fit(core, &configs, &groups, &local, &mut guesses)?;
    let (primary, reserve) = channels(&fit, &mut guesses)?;
    if has_secret {
        let file = core.path.display();
        guesses.push(format!(
            "the control API has a secret, which is read from {SECRET_FILE}: jq -j .experimental.clash_api.secret {file} | install -m 600 /dev/stdin {SECRET_FILE}"
        ));
    }
    faults(&configs, fit.group, &mut guesses);
    let file = File {
        kind: "selector",
        description: "Made by egressctl init; read it before the first step.".to_owned(),
        driver: Driver {
            clash: Clash {
                url,
                secret_file: has_secret.then_some(SECRET_FILE),
                selector: &fit.group.tag,
            },
        },
        primary,
        reserve,
    };
    let text = serde_json::to_string_pretty(&file)
        .map_err(|why| format!("the policy cannot be written: {why}"))?;
    let policy = Policy::parse(&text)
        .map_err(|fault| format!("what was found makes no policy: {fault}: write one by hand"))?;
    let name = PolicyName::try_from("init".to_owned())?;
    for (there, other) in &here.policies {
        if let Some(what) = overlap((&name, &policy), (there, other)) {
            return Err(format!(
                "policy {there} claims {what}: a second one would take it for a person"
            ));
        }
    }
    Ok(Draft { text, guesses })
}

fn parsed(core: &Core) -> Result<Value, String> {
    let file = core.path.display();
    let text = core.text.as_ref().map_err(|why| format!("{file} cannot be read ({why})"))?;
    let config: Value = serde_json::from_str(&plain(text)).map_err(|why| {
        format!(
            "{file} is no JSON in line {}, column {}: init selector reads the configuration of sing-box",
            why.line(),
            why.column()
        )
    })?;
    if config.is_object() {
        Ok(config)
    } else {
        Err(format!("{file} is no object: init selector reads the configuration of sing-box"))
    }
}

/// Where the core is controlled, and whether that wants a secret.
fn controller(
    core: &Core,
    config: &Value,
    guesses: &mut Vec<String>,
) -> Result<(String, bool), String> {
    let word = |at: &str| config.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let listens = word("/experimental/clash_api/external_controller");
    let file = core.path.display();
    let what = "set experimental.clash_api.external_controller to \"127.0.0.1:9090\", and restart the core";
    if listens.is_empty() {
        return Err(format!("{file} has no control API, so nothing can be selected: {what}"));
    }
    let wrong = || {
        let listens = harmless(listens);
        format!(
            "{file}: the control API listens on {listens}, which is not on this machine alone: {what}"
        )
    };
    let (host, port) = listens.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_everywhere = |address: &IpAddr| address.is_unspecified();
    let address: Option<IpAddr> = match host {
        "" => None,
        "localhost" => Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
        _ => Some(host.parse().map_err(|_| wrong())?),
    };
    let url = match address {
        Some(IpAddr::V6(address)) if address.is_loopback() => format!("http://[{address}]:{port}"),
        Some(address) if address.is_loopback() => format!("http://{address}:{port}"),
        Some(address) if !is_everywhere(&address) => return Err(wrong()),
        Some(_) | None => {
            guesses.push(format!(
                "the control API listens on every address of the machine ({}): better {what}",
                harmless(listens)
            ));
            format!("http://127.0.0.1:{port}")
        }
    };
    Ok((url, !word("/experimental/clash_api/secret").is_empty()))
}

/// The group that is switched.
fn fit<'a>(
    core: &Core,
    configs: &[Value],
    groups: &'a [Selector],
    local: &'a BTreeMap<u16, Inbound>,
    guesses: &mut Vec<String>,
) -> Result<Fit<'a>, String> {
    let file = core.path.display();
    if groups.is_empty() {
        return Err(format!(
            "{file} has no outbound of type selector, so there is nothing to switch: make one of the two channels"
        ));
    }
    let diagnoses = |member: &str| {
        local.values().find(|inbound| {
            inbound.is_named && !inbound.needs_password && inbound.way.as_deref() == Some(member)
        })
    };
    let all: Vec<Fit<'a>> = groups
        .iter()
        .map(|group| Fit {
            group,
            channels: group
                .members
                .iter()
                .filter_map(|member| Some((member.as_str(), diagnoses(member)?)))
                .collect(),
        })
        .collect();
    let last = default_way(configs);
    let is_last = |fit: &&Fit<'_>| last.as_deref() == Some(fit.group.tag.as_str());
    let fits: Vec<&Fit<'_>> = all.iter().filter(|fit| fit.channels.len() > 1).collect();
    let Some(first) = fits.iter().copied().find(is_last).or(fits.first().copied()) else {
        let best = all.iter().max_by_key(|fit| fit.channels.len());
        let (group, lacks) = best.map_or(("", None), |fit| {
            let has = |member: &&String| !fit.channels.iter().any(|(known, _)| known == member);
            (fit.group.tag.as_str(), fit.group.members.iter().find(has))
        });
        let member = harmless(lacks.map_or("MEMBER", String::as_str));
        return Err(format!(
            "{file}: no selector has two members with a diagnostic inbound each ({} lacks one for {member}): add an inbound {{\"type\": \"mixed\", \"tag\": \"diagnose-{member}\", \"listen\": \"127.0.0.1\", \"listen_port\": PORT}} and, before the other rules, {{\"inbound\": \"diagnose-{member}\", \"outbound\": \"{member}\"}}",
            harmless(group)
        ));
    };
    let why = match (fits.len(), is_last(&first)) {
        (_, true) => "it is what no rule leads elsewhere",
        (1, false) => "it is the only one with two members that have a diagnostic inbound",
        (_, false) => "it is the first with two members that have a diagnostic inbound",
    };
    guesses.push(format!("the group is {}: {why}", harmless(&first.group.tag)));
    Ok(Fit { group: first.group, channels: first.channels.clone() })
}

/// The primary and the reserve.
fn channels<'a>(
    fit: &Fit<'a>,
    guesses: &mut Vec<String>,
) -> Result<(Channel<'a>, Channel<'a>), String> {
    let default = fit.group.default.as_deref();
    let is_default = |(member, _): &&(&str, &Inbound)| Some(*member) == default;
    let primary = fit.channels.iter().find(is_default).or(fit.channels.first());
    let reserve =
        fit.channels.iter().find(|(member, _)| Some(*member) != primary.map(|(name, _)| *name));
    let (Some(primary), Some(reserve)) = (primary, reserve) else {
        return Err("the group has no two members with a diagnostic inbound".to_owned());
    };
    let why = if Some(primary.0) == default { "the group's default" } else { "the group's first" };
    let mut say = |channel: &str, (member, inbound): &(&str, &Inbound), why: &str| {
        let (member, tag) = (harmless(member), harmless(&inbound.tag));
        guesses.push(format!("the {channel} is {member}, {why}; it is asked by inbound {tag}"));
        for rule in &inbound.before {
            guesses.push(format!(
                "route rule {rule} stands before that of inbound {tag} and may lead some of its requests elsewhere: put the rule of {tag} first"
            ));
        }
    };
    say("primary", primary, why);
    say("reserve", reserve, "the next member with a diagnostic inbound");
    let is_left = |member: &&String| **member != primary.0 && **member != reserve.0;
    let left: Vec<String> =
        fit.group.members.iter().filter(is_left).map(|member| harmless(member)).collect();
    if !left.is_empty() {
        guesses.push(format!("left out, being neither: {}", left.join(", ")));
    }
    let channel = |(member, inbound): &(&'a str, &'a Inbound)| Channel {
        member,
        proxy: inbound.proxy.to_string(),
    };
    Ok((channel(primary), channel(reserve)))
}

/// What of the core's configuration works against the policy.
fn faults(configs: &[Value], group: &Selector, guesses: &mut Vec<String>) {
    if group.interrupts {
        guesses.push(format!(
            "group {} cuts open connections at each switch: set its interrupt_exist_connections to false, and restart the core",
            harmless(&group.tag)
        ));
    }
    let keeps = |config: &Value| {
        config.pointer("/experimental/cache_file/enabled").and_then(Value::as_bool) == Some(true)
    };
    if !configs.iter().any(keeps) {
        guesses.push(
            "the core forgets what was selected when it is restarted: set experimental.cache_file.enabled to true".to_owned(),
        );
    }
}

#[cfg(test)]
mod tests;
