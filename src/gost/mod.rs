//! What gost says of its chains, hops and services, read from its bodies, and what it is told.
//!
//! gost passes over a body that it does not understand, in whole or in part, and stores what is left of
//! it. So an object is changed as it was read, with nothing added, and compared field by field with what
//! is read back.
//!
//! **Invariant:** nothing here reads a file or asks a gost; a time is never written in another form than
//! the whole nanoseconds that gost reads.

use crate::observation::{GostHop, GostService};
use serde_json::{Map, Value};

/// Keys that hold a time.
const TIMES: [&str; 7] =
    ["failTimeout", "timeout", "interval", "maxLatency", "period", "ttl", "delay"];

/// What a body says under `data`. `None`: gost has nothing of that name.
///
/// # Errors
/// That it is no answer of gost's.
pub fn data(body: &[u8]) -> Result<Option<Value>, String> {
    let body: Value = serde_json::from_slice(body).map_err(|_| "its answer is not JSON")?;
    let data = body.get("data").ok_or("its answer has no data, as gost's have")?;
    Ok(if data.is_null() { None } else { Some(data.clone()) })
}

/// The objects of a list.
///
/// # Errors
/// That it is no list of gost's.
pub fn list(body: &[u8]) -> Result<Vec<Value>, String> {
    let Some(data) = data(body)? else { return Ok(Vec::new()) };
    match data.get("list") {
        Some(Value::Array(items)) => Ok(items.clone()),
        // An empty list is null.
        Some(Value::Null) | None if data.get("count").is_some() => Ok(Vec::new()),
        Some(_) | None => Err("its answer is no list".to_owned()),
    }
}

/// A hop.
#[must_use]
pub fn hop(object: &Value) -> GostHop {
    let strategy = object.pointer("/selector/strategy").and_then(Value::as_str);
    GostHop {
        name: text(object, "name"),
        strategy: strategy.unwrap_or_default().to_owned(),
        nodes: items(object, "nodes").iter().map(|node| text(node, "name")).collect(),
    }
}

/// The hops of a chain, which are references where they have no nodes.
#[must_use]
pub fn chain(object: &Value) -> Vec<GostHop> {
    items(object, "hops").iter().map(hop).collect()
}

/// A service, if it goes out by the chain.
#[must_use]
pub fn service(object: &Value, chain: &str) -> Option<GostService> {
    let handler = object.get("handler")?;
    let group = handler.pointer("/chainGroup/chains").and_then(Value::as_array);
    let in_group = group.into_iter().flatten().any(|name| name.as_str() == Some(chain));
    if text(handler, "chain") != chain && !in_group {
        return None;
    }
    let metadata = object.get("metadata");
    let of = |key: &str| metadata.and_then(|metadata| metadata.get(key));
    let interface = of("interface").or_else(|| object.get("interface")).and_then(Value::as_str);
    let mark = of("so_mark").or_else(|| object.pointer("/sockopts/mark")).and_then(number);
    Some(GostService {
        name: text(object, "name"),
        retries: handler.get("retries").and_then(Value::as_u64).unwrap_or(0),
        interface: interface.filter(|name| !name.is_empty()).map(str::to_owned),
        mark: mark.filter(|mark| *mark != 0),
    })
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn text(object: &Value, key: &str) -> String {
    object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn items<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The hop with this node in front, all else as it is.
///
/// # Errors
/// Why it cannot be written.
pub fn with_first(hop: &Value, node: &str) -> Result<Value, String> {
    let mut hop = hop.clone();
    let nodes = hop.get_mut("nodes").and_then(Value::as_array_mut);
    let nodes = nodes.ok_or("the hop has no nodes: nothing is written")?;
    let place = nodes.iter().position(|known| text(known, "name") == node);
    let place = place.ok_or_else(|| format!("the hop has no node {node}"))?;
    let first = nodes.remove(place);
    nodes.insert(0, first);
    is_writable(&hop)?;
    Ok(hop)
}

/// The service with so many retries, all else as it is but for what gost only tells.
///
/// # Errors
/// Why it cannot be written.
pub fn with_retries(service: &Value, retries: u64) -> Result<Value, String> {
    let mut service = without_status(service);
    let handler = service.get_mut("handler").and_then(Value::as_object_mut);
    let handler = handler.ok_or("the service has no handler: nothing is written")?;
    handler.insert("retries".to_owned(), retries.into());
    is_writable(&service)?;
    Ok(service)
}

/// A service without what gost only tells of it.
#[must_use]
pub fn without_status(service: &Value) -> Value {
    let mut service = service.clone();
    if let Some(service) = service.as_object_mut() {
        service.remove("status");
    }
    service
}

/// A time that is no whole number would be read as none, and no error be told.
fn is_writable(value: &Value) -> Result<(), String> {
    match value {
        Value::Object(object) => object.iter().try_for_each(|(key, inner)| {
            if TIMES.contains(&key.as_str()) && !inner.is_u64() {
                return Err(format!(
                    "{key} is {inner} and no whole number of nanoseconds: gost would read it as none"
                ));
            }
            is_writable(inner)
        }),
        Value::Array(items) => items.iter().try_for_each(is_writable),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// The first place in which two objects differ. What gost leaves out where it is empty is no difference.
#[must_use]
pub fn difference(wanted: &Value, found: &Value) -> Option<String> {
    apart(&plain(wanted), &plain(found), "")
}

fn apart(wanted: &Value, found: &Value, at: &str) -> Option<String> {
    match (wanted, found) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys());
            keys.into_iter().find_map(|key| {
                let of = |object: &Map<String, Value>| object.get(key).cloned().unwrap_or_default();
                let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                apart(&of(a), &of(b), &at)
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find_map(|(n, (a, b))| apart(a, b, &format!("{at}[{n}]")))
        }
        (a, b) if a == b => None,
        _ => Some(if at.is_empty() { "all of it".to_owned() } else { at.to_owned() }),
    }
}

/// A value without what is empty in it.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let kept = object.iter().map(|(key, inner)| (key.clone(), plain(inner)));
            let kept: Map<String, Value> = kept.filter(|(_, inner)| !is_empty(inner)).collect();
            Value::Object(kept)
        }
        Value::Array(items) => Value::Array(items.iter().map(plain).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(true) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry() -> Value {
        json!({ "name": "entry", "selector": { "strategy": "fifo", "maxFails": 1, "failTimeout": 600_000_000_000_u64 },
                "nodes": [{ "name": "a1", "addr": "192.0.2.1:8443" }, { "name": "a2", "addr": "192.0.2.2:8443" }] })
    }

    #[test]
    fn a_node_is_put_first_and_nothing_else_is_changed() {
        let changed = with_first(&entry(), "a2").unwrap();
        assert_eq!(hop(&changed).nodes, ["a2", "a1"]);
        assert_eq!(changed["selector"], entry()["selector"]);
        assert_eq!(difference(&entry(), &changed).as_deref(), Some("nodes[0].addr"));
        assert!(with_first(&entry(), "a3").is_err());
    }

    #[test]
    fn a_time_in_words_is_never_written() {
        let mut spoilt = entry();
        spoilt["selector"]["failTimeout"] = json!("600s");
        let why = with_first(&spoilt, "a2").unwrap_err();
        assert!(why.contains("failTimeout is \"600s\""), "{why}");
    }

    #[test]
    fn what_gost_leaves_out_is_no_difference_and_what_it_lost_is_one() {
        let told = json!({ "name": "s", "handler": { "type": "socks5", "retries": 0, "chain": "c" }, "metadata": null });
        let kept = json!({ "name": "s", "handler": { "type": "socks5", "chain": "c" } });
        assert_eq!(difference(&told, &kept), None);
        let lost = json!({ "name": "s", "handler": { "type": "socks5" } });
        assert_eq!(difference(&told, &lost).as_deref(), Some("handler.chain"));
    }

    #[test]
    fn a_service_is_read_with_its_pin_in_either_form() {
        let one = json!({ "name": "s", "handler": { "chain": "c", "retries": 1 }, "metadata": { "interface": "vpn1" }, "status": {} });
        let seen = service(&one, "c").unwrap();
        assert_eq!((seen.retries, seen.interface.as_deref(), seen.mark), (1, Some("vpn1"), None));
        let old = json!({ "name": "s", "handler": { "chain": "c" }, "sockopts": { "mark": 119 } });
        assert_eq!(service(&old, "c").unwrap().mark, Some(119));
        assert_eq!(service(&one, "other"), None);
        assert!(with_retries(&one, 2).unwrap().get("status").is_none());
    }

    #[test]
    fn what_gost_does_not_have_is_told_from_what_is_no_answer() {
        assert_eq!(data(br#"{"data":null}"#), Ok(None));
        assert!(data(b"{}").is_err() && data(b"<html>").is_err());
        assert_eq!(list(br#"{"data":{"count":0,"list":null}}"#), Ok(vec![]));
        assert!(list(br#"{"data":{"name":"x"}}"#).is_err());
    }
}
