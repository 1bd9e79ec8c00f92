//! The control API of a proxy core, as Clash began it and sing-box and mihomo speak it.
//!
//! **Invariant:** only loopback or a unix socket is asked, names are percent-encoded, and the secret
//! is in no text that leaves this file.

use super::http::{self, Answer, Ask, Parcel, Verb, Via};
use super::secret::secret;
use crate::setting::{Control, Core};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The core is on this machine: what takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(3);
/// A thousand members with their histories take half of it.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// What the core shows of a group.
#[derive(Deserialize)]
struct Group {
    now: Option<String>,
}

/// How the core says no.
#[derive(Deserialize)]
struct Message {
    message: String,
}

/// The member that a group has selected.
///
/// # Errors
/// Why it cannot be told.
pub fn selected(core: &Core, group: &str) -> Result<String, String> {
    let shown: Group = read(core, &format!("/proxies/{}", encoded(group)))?;
    shown.now.ok_or_else(|| format!("{group} of {core} is no group: name a selector"))
}

/// Selects a member of a group.
///
/// # Errors
/// What the core said against it.
pub fn select(core: &Core, group: &str, member: &str) -> Result<(), String> {
    let body = serde_json::json!({ "name": member }).to_string();
    let path = format!("/proxies/{}", encoded(group));
    let answer = ask(core, Verb::Put, &path, Some(body.as_bytes()), DEADLINE)?;
    match answer.status {
        204 => Ok(()),
        _ => Err(refusal(core, &answer)),
    }
}

/// Reads a resource of the core.
///
/// # Errors
/// Why there is none, or why it is not understood.
pub fn read<T: DeserializeOwned>(core: &Core, path: &str) -> Result<T, String> {
    let answer = ask(core, Verb::Get, path, None, DEADLINE)?;
    if answer.status != 200 {
        return Err(refusal(core, &answer));
    }
    let body = answer.into_whole_body().map_err(|failure| format!("{core}{path}: {failure}"))?;
    serde_json::from_slice(&body)
        .map_err(|why| format!("{core}{path} is not what a proxy core says: {why}"))
}

/// Asks the core. A status is no error here.
///
/// # Errors
/// That it is down, hangs, or that its secret cannot be read.
pub fn ask(
    core: &Core,
    verb: Verb,
    path: &str,
    body: Option<&[u8]>,
    timeout: Duration,
) -> Result<Answer, String> {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let (url, via) = match &core.control {
        Control::Http(url) => (format!("{}{path}", url.as_str().trim_end_matches('/')), Via::Main),
        Control::Unix(socket) => (format!("http://localhost{path}"), Via::Unix(socket)),
    };
    let token = match &core.secret_file {
        Some(file) => Some(secret(file).map_err(|why| format!("{why:#}"))?),
        None => None,
    };
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut headers = Vec::new();
    headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
    headers.extend(body.map(|_| ("Content-Type", "application/json")));
    let asked = Ask { url: &url, via, timeout, max_body: MAX_BODY, addresses: &loopback };
    http::send(&asked, &Parcel { verb, headers: &headers, body })
        .map_err(|failure| format!("{core}: {failure}"))
}

/// What the core said against it.
#[must_use]
pub fn refusal(core: &Core, answer: &Answer) -> String {
    let said = serde_json::from_slice(&answer.body)
        .map_or_else(|_| String::new(), |Message { message }| format!(" ({message})"));
    let hint = match answer.status {
        401 => ": its secret is another one, see secret_file",
        _ => "",
    };
    crate::outcome::harmless(&format!("{core} answers {}{said}{hint}", answer.status))
}

/// A name as a part of a path. The core unescapes once more, so a name with a literal `%XX` cannot
/// be said to it.
#[must_use]
pub fn encoded(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(path, "%{byte:02X}").is_ok();
        }
    }
    path
}
