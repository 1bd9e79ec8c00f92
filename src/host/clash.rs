//! The control API of a proxy core, as Clash began it and sing-box and mihomo speak it.
//!
//! **Invariant:** only loopback or a unix socket is asked, names are percent-encoded, and the secret
//! is in no text that leaves this file.

use super::http::{self, Answer, Ask, AskFailure, Parcel, Verb, Via};
use super::secret::secret;
use crate::clash::{self, encoded};
use crate::observation::{CoreFault, Delay, Group, GroupFault, Program, Traffic};
use crate::outcome::harmless;
use crate::setting::{Control, Core};
use crate::url::Target;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The core is on this machine: what takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(3);
/// Ten thousand open connections take half of it.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// How the core says no.
#[derive(Deserialize)]
struct Message {
    message: String,
}

/// Which program the core is, and its version.
///
/// # Errors
/// Why it cannot be told.
pub fn version(core: &Core) -> Result<(Program, String), CoreFault> {
    let answer = get(core, "/version")?;
    let version = (answer.status == 200).then(|| clash::version(&answer.body)).flatten();
    version.ok_or_else(|| CoreFault::Strange(format!("what answers at {core} is no proxy core")))
}

/// A group of the core.
///
/// # Errors
/// Why the core tells nothing, and within that why the group cannot be used.
pub fn group(core: &Core, name: &str) -> Result<Result<Group, GroupFault>, CoreFault> {
    let answer = get(core, &format!("/proxies/{}", encoded(name)))?;
    Ok(match answer.status {
        200 => clash::group(&answer.body),
        404 => Err(GroupFault::Missing),
        _ => Err(GroupFault::Unread(refusal(core, &answer))),
    })
}

/// What flows through the core.
///
/// # Errors
/// Why the core tells nothing, and within that why what it tells is not understood.
pub fn traffic(core: &Core) -> Result<Result<Traffic, String>, CoreFault> {
    let answer = get(core, "/connections")?;
    Ok(match answer.status {
        200 => clash::traffic(&answer.body)
            .ok_or_else(|| format!("{core} does not tell what flows as a proxy core does")),
        _ => Err(refusal(core, &answer)),
    })
}

/// The member that a group has selected.
///
/// # Errors
/// Why it cannot be told.
pub fn selected(core: &Core, name: &str) -> Result<String, String> {
    let shown = group(core, name).map_err(|fault| fault.to_string())?;
    let group = shown.map_err(|fault| format!("group {} of {core}: {fault}", harmless(name)))?;
    Ok(group.now)
}

/// Selects a member of a group.
///
/// # Errors
/// What the core said against it.
pub fn select(core: &Core, group: &str, member: &str) -> Result<(), String> {
    let body = serde_json::json!({ "name": member }).to_string();
    let path = format!("/proxies/{}", encoded(group));
    let answer = ask(core, Verb::Put, &path, Some(body.as_bytes()), DEADLINE);
    let answer = answer.map_err(|fault| fault.to_string())?;
    match answer.status {
        204 => Ok(()),
        _ => Err(refusal(core, &answer)),
    }
}

/// Lets the core measure a member, or the member that a group of it uses.
pub fn delay(core: &Core, member: &str, url: &Target, told_ms: u16, timeout: Duration) -> Delay {
    let (member, url) = (encoded(member), encoded(url.as_str()));
    let path = format!("/proxies/{member}/delay?url={url}&timeout={told_ms}");
    match ask(core, Verb::Get, &path, None, timeout) {
        Err(fault) => Delay::Unknown(fault.to_string()),
        Ok(answer) => match answer.status {
            200 => clash::delay(&answer.body).map_or(Delay::Failed, Delay::Took),
            // 408 is what older cores say for 504, 503 that the request through it failed.
            408 | 503 | 504 => Delay::Failed,
            404 => Delay::Absent,
            _ => Delay::Unknown(refusal(core, &answer)),
        },
    }
}

/// Ends an open connection. One that is gone already is no fault.
///
/// # Errors
/// What the core said against it.
pub fn close(core: &Core, flow: &str) -> Result<(), String> {
    let path = format!("/connections/{}", encoded(flow));
    let answer =
        ask(core, Verb::Delete, &path, None, DEADLINE).map_err(|fault| fault.to_string())?;
    match answer.status {
        204 | 404 => Ok(()),
        _ => Err(refusal(core, &answer)),
    }
}

/// Reads a resource whole. The secret is known to the core and its answer came from one that works.
fn get(core: &Core, path: &str) -> Result<Answer, CoreFault> {
    let answer = ask(core, Verb::Get, path, None, DEADLINE)?;
    match answer.status {
        401 | 403 => Err(CoreFault::Refused(refusal(core, &answer))),
        500.. => Err(CoreFault::Down(refusal(core, &answer))),
        _ if !answer.is_whole => Err(CoreFault::Strange(format!(
            "{core}{path}: the answer is longer than {MAX_BODY} bytes"
        ))),
        _ => Ok(answer),
    }
}

/// Asks the core. A status is no fault here.
///
/// # Errors
/// That it is down, hangs, or that its secret cannot be read.
pub fn ask(
    core: &Core,
    verb: Verb,
    path: &str,
    body: Option<&[u8]>,
    timeout: Duration,
) -> Result<Answer, CoreFault> {
    let (url, via, addresses) = match &core.control {
        Control::Http(url) => {
            // The policy lets only loopback through; a name of it is not asked of anybody.
            let address = url.address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            (format!("{}{path}", url.as_str().trim_end_matches('/')), Via::Main, [address])
        }
        Control::Unix(socket) => (
            format!("http://localhost{path}"),
            Via::Unix(socket),
            [IpAddr::V4(Ipv4Addr::LOCALHOST)],
        ),
    };
    let token = match &core.secret_file {
        Some(file) => {
            Some(secret(file).map_err(|why| CoreFault::Refused(format!("{core}: {why:#}")))?)
        }
        None => None,
    };
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut headers = Vec::new();
    headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
    headers.extend(body.map(|_| ("Content-Type", "application/json")));
    let asked = Ask { url: &url, via, timeout, max_body: MAX_BODY, addresses: &addresses };
    http::send(&asked, &Parcel { verb, headers: &headers, body }).map_err(|failure| match failure {
        AskFailure::Timeout
        | AskFailure::Refused(_)
        | AskFailure::Unreachable(_)
        | AskFailure::NotBindable(_)
        | AskFailure::NoProxy(_)
        | AskFailure::Protocol(_) => CoreFault::Down(format!("{core}: {failure}")),
        AskFailure::BadUrl(_) | AskFailure::Tls(_) => {
            CoreFault::Strange(format!("{core}: {failure}"))
        }
    })
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
    harmless(&format!("{core} answers {}{said}{hint}", answer.status))
}
