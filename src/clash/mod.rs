//! What a proxy core with a Clash API says, read from its bodies.
//!
//! sing-box and mihomo answer alike and not the same: what is missing, null or of another shape
//! where nothing depends on it is passed over.
//!
//! **Invariant:** nothing here reads a file or asks a core; a text that is understood is understood
//! alike for both programs.

pub mod channels;
pub mod choice;
pub mod config;
pub mod discover;
pub mod mihomo;
pub mod running;
pub mod sing_box;

use crate::observation::{Flow, Group, GroupFault, Program, Traffic};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What mihomo shows as the only member of a group that has none; it sends everything out directly.
const COMPATIBLE: &str = "COMPATIBLE";

/// The program and its version, from `/version`. `None`: it is no proxy core's.
#[must_use]
pub fn version(body: &[u8]) -> Option<(Program, String)> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let version = body.get("version")?.as_str()?.to_owned();
    let meta = body.get("meta").and_then(Value::as_bool).unwrap_or(false);
    let program = match version.split_once(' ') {
        Some(("sing-box", _)) => Program::SingBox,
        Some(_) | None if meta => Program::Mihomo,
        Some(_) | None => Program::Other,
    };
    Some((program, version))
}

/// A group, from `/proxies/NAME`.
///
/// # Errors
/// Why it cannot be used as one.
pub fn group(body: &[u8]) -> Result<Group, GroupFault> {
    let unread = |why: &str| GroupFault::Unread(why.to_owned());
    let body: Value =
        serde_json::from_slice(body).map_err(|_| unread("the core's answer is not JSON"))?;
    let kind = body.get("type").and_then(Value::as_str);
    let kind = kind.ok_or_else(|| unread("the core's answer is no proxy"))?.to_owned();
    let Some(all) = body.get("all") else { return Err(GroupFault::NoGroup { kind }) };
    let all: Vec<String> = texts(all);
    if all.iter().all(|member| member == COMPATIBLE) {
        return Err(GroupFault::Empty);
    }
    let now = body.get("now").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(Group { kind, now, all })
}

/// A member that a provider of mihomo brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provided {
    /// The provider.
    pub provider: String,
    /// Its type, such as `Vless`.
    pub kind: String,
}

/// What providers brought, by the member's name, from `/providers/proxies`. Of two that bring the
/// same name the first one counts.
#[must_use]
pub fn provided(body: &[u8]) -> BTreeMap<String, Provided> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let providers = body.get("providers").and_then(Value::as_object);
    let mut found = BTreeMap::new();
    for (provider, shown) in providers.into_iter().flatten() {
        let members = shown.get("proxies").and_then(Value::as_array);
        for member in members.into_iter().flatten() {
            let word = |key: &str| member.get(key).and_then(Value::as_str).map(str::to_owned);
            let (Some(name), Some(kind)) = (word("name"), word("type")) else { continue };
            let of = Provided { provider: provider.clone(), kind };
            found.entry(name).or_insert(of);
        }
    }
    found
}

/// A delay in milliseconds, from `/proxies/NAME/delay`. `None`: it says none, or 0, which is what a
/// failed measure leaves in mihomo.
#[must_use]
pub fn delay(body: &[u8]) -> Option<u64> {
    let body: Value = serde_json::from_slice(body).ok()?;
    body.get("delay").and_then(Value::as_u64).filter(|delay| *delay > 0)
}

/// What flows, from `/connections`. `None`: it is not that.
#[must_use]
pub fn traffic(body: &[u8]) -> Option<Traffic> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let flows = match body.get("connections") {
        Some(Value::Array(flows)) => flows.iter().filter_map(flow).collect(),
        // mihomo writes null where there are none.
        Some(_) | None => Vec::new(),
    };
    let received = number(body.get("downloadTotal")?)?;
    let sent = body.get("uploadTotal").and_then(number).unwrap_or(0);
    Some(Traffic { received, sent, flows })
}

fn flow(flow: &Value) -> Option<Flow> {
    let bytes = |key: &str| flow.get(key).and_then(number).unwrap_or(0);
    Some(Flow {
        id: flow.get("id")?.as_str()?.to_owned(),
        chains: flow.get("chains").map(texts).unwrap_or_default(),
        received: bytes("download"),
        sent: bytes("upload"),
    })
}

/// The texts of a list; anything else has none.
fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A count of bytes; a negative one is nothing.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_i64().map(|_| 0))
}

/// A name as a part of a path. The core unescapes once more, so a name with a literal `%XX` cannot
/// be said to it.
#[must_use]
pub fn encoded(name: &str) -> String {
    name.bytes().fold(String::new(), |mut path, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(path, "%{byte:02X}").is_ok();
        }
        path
    })
}
