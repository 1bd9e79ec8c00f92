//! The web API of a gost.
//!
//! **Invariant:** a chain is never written, since gost takes it away before it puts it back and dials
//! directly meanwhile; what was written is read back and compared field by field, and what was stored
//! otherwise is put back; the credentials are in no text that leaves this file.

use super::http::{self, Answer, Ask, AskFailure, Parcel, Verb, Via};
use super::secret::secret;
use super::setting::Refusal;
use super::{clock, core};
use crate::clash::encoded;
use crate::gost;
use crate::observation::{CoreFault, GostQuestion, GostReading, GostSeen, Life};
use crate::outcome::harmless;
use crate::setting::{Control, Gost};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// It is near by: what takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(3);
/// A service of a thousand forwards takes a tenth of it.
const MAX_BODY: usize = 4 * 1024 * 1024;

/// How gost says no.
#[derive(Deserialize)]
struct Message {
    msg: String,
}

/// Looks.
///
/// # Errors
/// When the clock cannot be read.
pub fn look(question: &GostQuestion) -> anyhow::Result<GostReading> {
    let gost = seen(question);
    Ok(GostReading { at: clock::now()?, gost })
}

fn seen(question: &GostQuestion) -> Result<GostSeen, CoreFault> {
    let at = &question.gost;
    let strange = |why: String| CoreFault::Strange(format!("{at}: {why}"));
    let chain = object(at, "chains", &question.chain)?;
    let mut hops = BTreeMap::new();
    for name in &question.hops {
        let found = object(at, "hops", name)?;
        hops.insert(name.clone(), found.as_ref().map(gost::hop));
    }
    let answer = get(at, "/config/services")?;
    let services = gost::list(&answer.body).map_err(strange)?;
    let control = Control::Http(at.url.clone());
    Ok(GostSeen {
        life: Life { process: core::process(&control, question.process.as_ref()), totals: None },
        chain: chain.as_ref().map(gost::chain),
        hops,
        services: services.iter().filter_map(|one| gost::service(one, &question.chain)).collect(),
    })
}

/// The node that a hop tries first.
///
/// # Errors
/// Why it cannot be told.
pub fn first(at: &Gost, hop: &str) -> Result<String, String> {
    let found = object(at, "hops", hop).map_err(|fault| fault.to_string())?;
    let nodes = found.as_ref().map(gost::hop).map(|hop| hop.nodes).unwrap_or_default();
    nodes.into_iter().next().ok_or_else(|| format!("hop {} of {at} has no nodes", harmless(hop)))
}

/// How often a service tries again.
///
/// # Errors
/// Why it cannot be told.
pub fn retries(at: &Gost, service: &str) -> Result<u64, String> {
    let found = object(at, "services", service).map_err(|fault| fault.to_string())?;
    let found = found.ok_or_else(|| format!("{at} has no service {}", harmless(service)))?;
    Ok(found.pointer("/handler/retries").and_then(Value::as_u64).unwrap_or(0))
}

/// Puts a node of a hop in front.
///
/// # Errors
/// What speaks against it.
pub fn put_first(at: &Gost, hop: &str, node: &str) -> Result<(), Refusal> {
    let stands = there(at, "hops", hop)?;
    let wanted = gost::with_first(&stands, node).map_err(Refusal::new)?;
    put(at, "hops", hop, &stands, &wanted)
}

/// Lets a service try again so often.
///
/// # Errors
/// What speaks against it.
pub fn set_retries(at: &Gost, service: &str, retries: u64) -> Result<(), Refusal> {
    let stands = there(at, "services", service)?;
    let wanted = gost::with_retries(&stands, retries).map_err(Refusal::new)?;
    put(at, "services", service, &gost::without_status(&stands), &wanted)
}

fn there(at: &Gost, of: &str, name: &str) -> Result<Value, Refusal> {
    let found = object(at, of, name).map_err(|fault| Refusal::new(fault.to_string()))?;
    found.ok_or_else(|| Refusal::new(format!("{at} has nothing of the name {}", harmless(name))))
}

/// Writes an object and compares it with what is stored then. What was stored otherwise is put back.
fn put(at: &Gost, of: &str, name: &str, stands: &Value, wanted: &Value) -> Result<(), Refusal> {
    let told = write(at, of, name, wanted);
    let found = object(at, of, name).map_err(|fault| Refusal::doubtful(fault.to_string()))?;
    let found = gost::without_status(&found.unwrap_or_default());
    let Some(place) = gost::difference(wanted, &found) else { return Ok(()) };
    if gost::difference(stands, &found).is_none() {
        let why = "it was accepted and reads back as before".to_owned();
        return Err(Refusal::new(told.err().unwrap_or(why)));
    }
    let why = format!("{at} stored {} otherwise than it was told, at {place}", harmless(name));
    let again = write(at, of, name, stands);
    let found = object(at, of, name).ok().flatten().map(|found| gost::without_status(&found));
    match found {
        Some(found) if gost::difference(stands, &found).is_none() => {
            Err(Refusal::new(format!("{why}; it is as before again")))
        }
        Some(_) | None => {
            let said = again.err().map(|said| format!(": {said}")).unwrap_or_default();
            Err(Refusal::spoilt(format!("{why}, and it could not be put back{said}")))
        }
    }
}

fn write(at: &Gost, of: &str, name: &str, object: &Value) -> Result<(), String> {
    let path = format!("/config/{of}/{}", encoded(name));
    let body = object.to_string();
    let answer = ask(at, Verb::Put, &path, Some(body.as_bytes()));
    let answer = answer.map_err(|fault| fault.to_string())?;
    if answer.status == 200 { Ok(()) } else { Err(refusal(at, &answer)) }
}

/// An object by its name. `None`: there is none, which gost answers with 200 and no data.
fn object(at: &Gost, of: &str, name: &str) -> Result<Option<Value>, CoreFault> {
    let answer = get(at, &format!("/config/{of}/{}", encoded(name)))?;
    gost::data(&answer.body).map_err(|why| CoreFault::Strange(format!("{at}: {why}")))
}

fn get(at: &Gost, path: &str) -> Result<Answer, CoreFault> {
    let answer = ask(at, Verb::Get, path, None)?;
    match answer.status {
        200 if answer.is_whole => Ok(answer),
        200 => Err(CoreFault::Strange(format!("{at}: the answer is longer than {MAX_BODY} bytes"))),
        401 | 403 => Err(CoreFault::Refused(refusal(at, &answer))),
        500.. => Err(CoreFault::Down(refusal(at, &answer))),
        _ => Err(CoreFault::Strange(refusal(at, &answer))),
    }
}

fn ask(at: &Gost, verb: Verb, path: &str, body: Option<&[u8]>) -> Result<Answer, CoreFault> {
    // The policy names an address, or this machine.
    let address = at.url.address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let url = format!("{}{path}", at.url.as_str().trim_end_matches('/'));
    let credentials =
        secret(&at.credentials_file).map_err(|why| CoreFault::Refused(format!("{at}: {why:#}")))?;
    let basic = format!("Basic {}", STANDARD.encode(credentials));
    let mut headers = vec![("Authorization", basic.as_str())];
    headers.extend(body.map(|_| ("Content-Type", "application/json")));
    let addresses = [address];
    let asked = Ask {
        url: &url,
        via: Via::Main,
        timeout: DEADLINE,
        max_body: MAX_BODY,
        addresses: &addresses,
    };
    http::send(&asked, &Parcel { verb, headers: &headers, body }).map_err(|failure| match failure {
        AskFailure::Timeout
        | AskFailure::Refused(_)
        | AskFailure::Unreachable(_)
        | AskFailure::NotBindable(_)
        | AskFailure::NoProxy(_)
        | AskFailure::Protocol(_) => CoreFault::Down(format!("{at}: {failure}")),
        AskFailure::BadUrl(_) | AskFailure::Tls(_) => {
            CoreFault::Strange(format!("{at}: {failure}"))
        }
    })
}

/// What gost said against it.
fn refusal(at: &Gost, answer: &Answer) -> String {
    let said = serde_json::from_slice(&answer.body)
        .map_or_else(|_| String::new(), |Message { msg }| format!(" ({msg})"));
    let hint = match answer.status {
        401 => ": its user or password is another one, see credentials_file",
        _ => "",
    };
    harmless(&format!("{at} answers {}{said}{hint}", answer.status))
}
