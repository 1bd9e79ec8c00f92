//! The control API of a proxy core, as Clash began it and sing-box and mihomo speak it.
//!
//! **Invariant:** only loopback or a unix socket is asked, names are percent-encoded, and the secret
//! is in no text that leaves this file.

use super::discover;
use super::http::{self, Answer, Ask, AskFailure, Parcel, Verb, Via};
use super::secret::secret;
use crate::clash::discover::Secret;
use crate::clash::{self, Provided, encoded};
use crate::observation::{CoreFault, Delay, Group, GroupFault, Program, Traffic};
use crate::outcome::harmless;
use crate::setting::{Control, Core};
use crate::url::Target;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
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

/// A core as it can be asked now. What it was told is looked at once for all that is asked by this.
pub struct Reached {
    /// Where it listens.
    at: Place,
    /// What the header `Authorization` says, if anything.
    bearer: Option<String>,
}

/// Where a core listens for control.
enum Place {
    Http(Target),
    Unix(PathBuf),
}

impl Reached {
    /// Where it listens.
    #[must_use]
    pub fn control(&self) -> Control {
        match &self.at {
            Place::Http(url) => Control::Http(url.clone()),
            Place::Unix(path) => Control::Unix(path.clone()),
        }
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Place::Http(url) => f.write_str(url.as_str()),
            Place::Unix(path) => f.write_str(&harmless(&path.display().to_string())),
        }
    }
}

/// How a core is asked. What the policy names is taken as it names it.
///
/// # Errors
/// That its secret cannot be read, or why what it was told cannot be found.
pub fn reach(core: &Core) -> Result<Reached, CoreFault> {
    let source = match &core.control {
        Control::Found(source) => Some(source),
        Control::Http(_) | Control::Unix(_) => core.secret_in.as_ref(),
    };
    let found = match source {
        Some(source) => Some(discover::described(source)?),
        None => None,
    };
    let bearer = match (&core.secret_file, &found) {
        (Some(file), _) => {
            let token = secret(file);
            let token = token.map_err(|why| CoreFault::Refused(format!("{core}: {why:#}")))?;
            Some(format!("Bearer {token}"))
        }
        (None, Some(found)) => found.secret.as_ref().map(Secret::bearer),
        (None, None) => None,
    };
    let at = match (&core.control, found) {
        (Control::Http(url), _) => Place::Http(url.clone()),
        (Control::Unix(path), _) => Place::Unix(path.clone()),
        (Control::Found(source), Some(found)) => {
            let read_in = found.outline.read_in;
            match found.outline.control {
                Ok(Control::Http(url)) => Place::Http(url),
                Ok(Control::Unix(path)) => Place::Unix(path),
                Ok(Control::Found(_)) => {
                    return Err(CoreFault::Strange(format!("{source} names no control")));
                }
                Err(why) => return Err(CoreFault::Strange(format!("{read_in}: {why}"))),
            }
        }
        (Control::Found(source), None) => {
            return Err(CoreFault::Strange(format!("{source} was not looked for")));
        }
    };
    Ok(Reached { at, bearer })
}

/// Which program the core is, and its version.
///
/// # Errors
/// Why it cannot be told.
pub fn version(core: &Reached) -> Result<(Program, String), CoreFault> {
    let answer = get(core, "/version")?;
    let version = (answer.status == 200).then(|| clash::version(&answer.body)).flatten();
    version.ok_or_else(|| CoreFault::Strange(format!("what answers at {core} is no proxy core")))
}

/// A group of the core.
///
/// # Errors
/// Why the core tells nothing, and within that why the group cannot be used.
pub fn group(core: &Reached, name: &str) -> Result<Result<Group, GroupFault>, CoreFault> {
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
pub fn traffic(core: &Reached) -> Result<Result<Traffic, String>, CoreFault> {
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
    let shown =
        reach(core).and_then(|reached| group(&reached, name)).map_err(|fault| fault.to_string())?;
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
    let reached = reach(core).map_err(|fault| fault.to_string())?;
    let answer = ask(&reached, Verb::Put, &path, Some(body.as_bytes()), DEADLINE);
    let answer = answer.map_err(|fault| fault.to_string())?;
    match answer.status {
        204 => Ok(()),
        _ => Err(refusal(&reached, &answer)),
    }
}

/// What the providers of mihomo brought. sing-box has none.
///
/// # Errors
/// Why the core does not tell.
pub fn provided(core: &Reached) -> Result<BTreeMap<String, Provided>, CoreFault> {
    let answer = get(core, "/providers/proxies")?;
    Ok(match answer.status {
        200 => clash::provided(&answer.body),
        _ => BTreeMap::new(),
    })
}

/// Lets the core measure a member that a provider brought, which newer mihomo does not show among
/// its proxies.
#[must_use]
pub fn provided_delay(
    core: &Reached,
    (member, of): (&str, &Provided),
    url: &Target,
    told_ms: u16,
    timeout: Duration,
) -> Delay {
    let at =
        format!("/providers/proxies/{}/{}/healthcheck", encoded(&of.provider), encoded(member));
    measured(core, &at, url, told_ms, timeout)
}

/// Lets the core measure a member, or the member that a group of it uses.
#[must_use]
pub fn delay(core: &Reached, member: &str, url: &Target, told_ms: u16, timeout: Duration) -> Delay {
    measured(core, &format!("/proxies/{}/delay", encoded(member)), url, told_ms, timeout)
}

fn measured(core: &Reached, at: &str, url: &Target, told_ms: u16, timeout: Duration) -> Delay {
    let path = format!("{at}?url={}&timeout={told_ms}", encoded(url.as_str()));
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
pub fn close(core: &Reached, flow: &str) -> Result<(), String> {
    let path = format!("/connections/{}", encoded(flow));
    let answer =
        ask(core, Verb::Delete, &path, None, DEADLINE).map_err(|fault| fault.to_string())?;
    match answer.status {
        204 | 404 => Ok(()),
        _ => Err(refusal(core, &answer)),
    }
}

/// Reads a resource whole. The secret is known to the core and its answer came from one that works.
fn get(core: &Reached, path: &str) -> Result<Answer, CoreFault> {
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
/// That it is down or hangs.
pub fn ask(
    core: &Reached,
    verb: Verb,
    path: &str,
    body: Option<&[u8]>,
    timeout: Duration,
) -> Result<Answer, CoreFault> {
    let (url, via, addresses) = match &core.at {
        Place::Http(url) => {
            // Only loopback is let through; a name of it is not asked of anybody.
            let address = url.address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            (format!("{}{path}", url.as_str().trim_end_matches('/')), Via::Main, [address])
        }
        Place::Unix(socket) => (
            format!("http://localhost{path}"),
            Via::Unix(socket),
            [IpAddr::V4(Ipv4Addr::LOCALHOST)],
        ),
    };
    let mut headers = Vec::new();
    headers.extend(core.bearer.as_deref().map(|bearer| ("Authorization", bearer)));
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
pub fn refusal(core: &Reached, answer: &Answer) -> String {
    let said = serde_json::from_slice(&answer.body)
        .map_or_else(|_| String::new(), |Message { message }| format!(" ({message})"));
    let hint = match answer.status {
        401 => ": its secret is another one, see secret_file or the core's configuration",
        _ => "",
    };
    harmless(&format!("{core} answers {}{said}{hint}", answer.status))
}
