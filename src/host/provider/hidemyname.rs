//! HideMyName: a list of servers, then one configuration a request.
//!
//! What is known of these requests comes from clients that others wrote; the service documents none.
//!
//! **Invariant:** a configuration that is at hand and whose server did not change is not asked for
//! again; requests are paced; an answer counts by what it holds, whatever its status says.

use super::entry::{Offer, wg_quick_text};
use super::fetch::{Fetch, unread};
use super::shape::{self, Keyed, Loose, Raws, text};
use super::{NoList, Offers, Trouble};
use crate::host::apply::MAX_CONFIG;
use crate::host::http::{Parcel, Verb};
use crate::host::secret::secret;
use crate::host::{clock, files};
use crate::kernel::read::sha256;
use crate::observation::ListQuestion;
use crate::policy::provider::{HideMyName, Place};
use crate::pool::candidate::{Candidate, Rejected};
use crate::url::Target;
use crate::wireguard::TunnelConfig;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// What a known client gives one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(35);

/// So many failures in a row are the site's and not a server's.
const FAILURES: u32 = 3;

/// A plan only has to show what a step would do.
const PLANNED: usize = 5;

/// One server of the list.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry<'a> {
    id: Option<Loose>,
    name: Option<Loose>,
    name_en: Option<Loose>,
    country_code: Option<Loose>,
    #[serde(borrow)]
    services: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Services {
    wg: Option<Wg>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wg {
    ip: Option<Loose>,
    port: Option<Loose>,
}

/// A server that speaks `WireGuard`.
struct Server {
    id: u64,
    name: String,
    place: Place,
    ip: IpAddr,
    /// All that its configuration depends on.
    origin: String,
}

/// What the service offers.
pub(super) fn offers(
    site: &HideMyName,
    question: &ListQuestion,
    folder: &Path,
    may_write: bool,
) -> Result<Offers, NoList> {
    let code = secret(&site.code_file)?;
    let fetch = Fetch::new(question, None)?;
    let form = format!("code={}", encoded(&code));
    let (base, servers) = fetch.try_each(|base, end| {
        let url = below(base, &site.list_path)?;
        let answer = post(&fetch, &url, base, &form, end)?;
        let servers = servers(&answer, site.awg).map_err(|why| unread(&url, &why))?;
        Ok((base.clone(), servers))
    })?;
    let wanted = |server: &Server| question.wanted.takes(&server.name, &server.place);
    let all = servers.len();
    let servers: Vec<Server> = servers.into_iter().filter(wanted).collect();
    if servers.is_empty() {
        let why = format!("none of its {all} servers is wanted: correct candidates");
        return Err(Trouble { why, answered: true, ..Trouble::default() }.into());
    }
    let mut offers = Vec::new();
    let mut missing = Vec::new();
    for server in servers {
        match kept(&server, question, folder) {
            Some(config) => offers.push(offer(&server, Ok(config))),
            None => missing.push(server),
        }
    }
    // Another beginning each time: servers that give nothing do not keep the others waiting.
    let turn = usize::try_from(Timestamp::now().as_second()).unwrap_or(0);
    let begin = turn.checked_rem(missing.len()).unwrap_or(0);
    missing.rotate_left(begin);
    let batch = if may_write { site.batch } else { site.batch.min(PLANNED) };
    let order = Order { site, fetch: &fetch, base: &base, code: &code };
    let trouble = order.ask_for(&missing, batch, &mut offers);
    let good = offers.iter().filter(|offer| offer.config.is_ok()).count();
    if let Some(trouble) = trouble
        && good == 0
    {
        return Err(trouble.into());
    }
    offers.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| a.origin.cmp(&b.origin)));
    let later = missing.len().saturating_sub(batch);
    let note = || Rejected {
        name: format!("({later} more)"),
        why: "are asked for in the next refresh".to_owned(),
    };
    let notes = (later > 0).then(note).into_iter().collect();
    Ok(Offers { entries: offers, notes, validators: None })
}

fn offer(server: &Server, config: Result<TunnelConfig, String>) -> Offer {
    let (name, place) = (server.name.clone(), server.place.clone());
    Offer { name, place, origin: Some(server.origin.clone()), config }
}

/// The configuration that is at hand, if it is still whole.
fn kept(server: &Server, question: &ListQuestion, folder: &Path) -> Option<TunnelConfig> {
    let is_of = |candidate: &&Candidate| candidate.origin.as_ref() == Some(&server.origin);
    let candidate = question.have.iter().find(is_of)?;
    let path = folder.join(candidate.config.path());
    let bytes = files::read_bounded(&path, MAX_CONFIG).ok()?;
    if sha256(&bytes) != candidate.config.sha256 {
        return None;
    }
    wg_quick_text(&bytes).ok()
}

/// A request for configurations.
struct Order<'a> {
    site: &'a HideMyName,
    fetch: &'a Fetch<'a>,
    base: &'a Target,
    code: &'a str,
}

impl Order<'_> {
    /// Asks for as many as there is time for, and says what ended it early.
    fn ask_for(
        &self,
        missing: &[Server],
        batch: usize,
        offers: &mut Vec<Offer>,
    ) -> Option<Trouble> {
        let pause = Duration::from_millis(self.site.pause_ms);
        let mut failures = 0;
        let mut first: Option<Trouble> = None;
        for server in missing.iter().take(batch) {
            if self.fetch.left() <= pause {
                return first;
            }
            clock::pause(pause);
            match self.config(server) {
                Ok(config) => {
                    failures = 0;
                    offers.push(offer(server, config));
                }
                Err(trouble) => {
                    failures += 1;
                    offers.push(offer(server, Err(trouble.why.clone())));
                    let is_over = trouble.is_final || failures == FAILURES;
                    let told = if trouble.is_final { trouble } else { first.unwrap_or(trouble) };
                    first = Some(told);
                    if is_over {
                        return first;
                    }
                }
            }
        }
        first
    }

    fn config(&self, server: &Server) -> Result<Result<TunnelConfig, String>, Trouble> {
        let url = below(self.base, &self.site.config_path)?;
        let (code, ip) = (encoded(self.code), encoded(&server.ip.to_string()));
        let form = format!("code={code}&server={ip}&awg={}", self.site.awg);
        let end = Instant::now().checked_add(self.fetch.left().min(REQUEST_TIMEOUT));
        let body = post(self.fetch, &url, self.base, &form, end.unwrap_or_else(Instant::now))?;
        let mut lines = body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let first = lines.find(|line| !line.is_empty() && !line.starts_with(b"#"));
        let is_config = first.is_some_and(|line| line.eq_ignore_ascii_case(b"[Interface]"))
            && lines.any(|line| line.eq_ignore_ascii_case(b"[Peer]"));
        if !is_config {
            let what =
                if first.is_some_and(|line| line.starts_with(b"<")) { "a page" } else { "a text" };
            // Not what it says: it may repeat the code.
            let why = format!("it gives {what} and no configuration: is the access code valid?");
            return Err(Trouble { answered: true, ..unread(&url, &why) });
        }
        Ok(wg_quick_text(&body))
    }
}

fn post(
    fetch: &Fetch<'_>,
    url: &Target,
    base: &Target,
    form: &str,
    end: Instant,
) -> Result<Vec<u8>, Trouble> {
    let origin = base.as_str().trim_end_matches('/');
    // The page whose script sends these requests.
    let referer = format!("{origin}/vpn/router/");
    let headers = [
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Origin", origin),
        ("Referer", referer.as_str()),
    ];
    let parcel = Parcel { verb: Verb::Post, headers: &headers, body: Some(form.as_bytes()) };
    Fetch::good(url, fetch.ask(url, &parcel, end)?)
}

fn below(base: &Target, path: &str) -> Result<Target, Trouble> {
    let text = format!("{}{path}", base.as_str().trim_end_matches('/'));
    Target::try_from(text).map_err(|why| Trouble::here(format!("{}: {why}", base.host())))
}

/// A value of a form.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut whole, byte| {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            whole.push(char::from(byte));
        } else {
            // Writing into a String cannot fail.
            let _infallible = write!(whole, "%{byte:02X}");
        }
        whole
    })
}

/// The servers of a list as offers, whose configurations are still to be asked for.
pub(super) fn read(body: &[u8], site: &HideMyName) -> Result<Vec<Offer>, String> {
    let missing = || Err("its configuration was not asked for".to_owned());
    Ok(servers(body, site.awg)?.iter().map(|server| offer(server, missing())).collect())
}

/// The servers of a list: an object by number, a list, or either as `data`.
fn servers(body: &[u8], awg: u8) -> Result<Vec<Server>, String> {
    let raws = if body.iter().find(|byte| byte.is_ascii_graphic()) == Some(&b'{') {
        let document: Keyed<'_> = shape::read(body)?;
        match document.0.get("data").and_then(|raw| shape::entry::<Raws<'_>>(raw)) {
            Some(data) => data,
            None => Raws(document.0.into_values().collect()),
        }
    } else {
        shape::read(body)?
    };
    let mut seen = BTreeSet::new();
    let mut servers: Vec<Server> = raws
        .0
        .into_iter()
        .filter_map(|raw| server(raw, awg))
        .filter(|server| seen.insert(server.ip))
        .collect();
    if servers.is_empty() {
        return Err("the list has no WireGuard server: is the access code valid?".to_owned());
    }
    servers.sort_by_key(|server| (server.id, server.ip));
    Ok(servers)
}

/// A server, unless the entry has none that speaks `WireGuard`.
fn server(raw: &RawValue, awg: u8) -> Option<Server> {
    let entry = shape::entry::<Entry<'_>>(raw)?;
    let wg = shape::entry::<Services>(entry.services?)?.wg?;
    let ip: IpAddr = text(wg.ip)?.parse().ok()?;
    let id = text(entry.id).unwrap_or_default();
    let port = text(wg.port).unwrap_or_default();
    let name = text(entry.name_en).or(text(entry.name)).unwrap_or_else(|| ip.to_string());
    let (country, city) = match name.split_once(", ") {
        Some((country, city)) => (Some(country.to_owned()), Some(city.to_owned())),
        None => (None, None),
    };
    let place = Place { country, country_code: text(entry.country_code), city, city_code: None };
    let origin = format!("{id} {ip} {port} awg{awg}");
    Some(Server { id: id.parse().unwrap_or(u64::MAX), name, place, ip, origin })
}
