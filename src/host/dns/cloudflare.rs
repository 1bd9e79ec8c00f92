//! Address records at Cloudflare, over the fourth version of its API.
//!
//! **Invariant:** an answer counts as done only where it says so itself, whatever its status is;
//! nothing but content and TTL of a record is changed; an id is never older than the run.

use super::zones;
use crate::dns::name::HostName;
use crate::dns::record::{Record, RecordSet, ZoneKey};
use crate::host::http::{self, Answer, Ask, Parcel, Verb, Via};
use crate::host::resolve::resolve;
use crate::host::retry_after::seconds;
use crate::host::secret::secret;
use crate::host::setting::Refusal;
use crate::outcome::harmless;
use crate::url::Target;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

/// The API answers within a second; a move has to be over in five.
const DEADLINE: Duration = Duration::from_secs(4);
/// A resolver from near by.
const NAMES_DEADLINE: Duration = Duration::from_secs(2);
/// A page of a hundred records has some 50 KB.
const MAX_BODY: usize = 1024 * 1024;
/// As many as are asked for at a time; the API's own default.
const PER_PAGE: u32 = 100;
/// A host name has a few records and an account some hundred zones: more pages are none of this.
const MOST_PAGES: u32 = 50;
/// A record of a name that says the same already is there, so what was wished is.
const IDENTICAL: i64 = 81_058;
/// There is no record of this id: somebody made it anew.
const NO_RECORD: i64 = 81_044;

/// An account's way to its records.
pub(super) struct Account<'a> {
    pub(super) api: &'a Target,
    pub(super) zone: &'a ZoneKey,
    pub(super) token_file: &'a Path,
}

/// What the API answers, whatever was asked.
#[derive(Deserialize)]
struct Envelope {
    success: bool,
    #[serde(default)]
    errors: Vec<Complaint>,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    result_info: Option<Info>,
}

/// What it has against it.
#[derive(Deserialize)]
struct Complaint {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

/// Which page this is.
#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    total_pages: u32,
}

/// A zone.
#[derive(Deserialize)]
struct ZoneEntry {
    id: String,
    name: String,
}

/// A record, as far as it concerns us.
#[derive(Clone, Deserialize)]
struct Entry {
    id: String,
    name: String,
    #[serde(rename = "type")]
    kind: String,
    content: String,
    ttl: u32,
    #[serde(default)]
    proxied: bool,
    #[serde(default)]
    comment: Option<String>,
}

/// What was said against a request.
struct No {
    refusal: Refusal,
    codes: Vec<i64>,
}

impl From<No> for Refusal {
    fn from(no: No) -> Self {
        no.refusal
    }
}

impl No {
    fn new(why: String) -> Self {
        Self { refusal: Refusal::new(why), codes: Vec::new() }
    }
}

/// A record with its id.
type Known = (String, Record);

impl Account<'_> {
    /// The address records of a host.
    pub(super) fn read(&self, host: &HostName) -> Result<RecordSet, Refusal> {
        let zone = self.zone_id()?;
        let known = self.records(&zone, host)?;
        Ok(RecordSet(known.into_iter().map(|(_, record)| record).collect()))
    }

    /// Makes them what they are to be, if they are as expected.
    pub(super) fn write(
        &self,
        host: &HostName,
        expected: &RecordSet,
        to: &RecordSet,
    ) -> Result<(), Refusal> {
        let zone = self.zone_id()?;
        let mut again = true;
        loop {
            let known = self.records(&zone, host)?;
            let found = RecordSet(known.iter().map(|(_, record)| record.clone()).collect());
            if found != *expected || known.len() != found.0.len() {
                return Err(Refusal::new(format!(
                    "{host} holds {found} by now and not {expected}"
                )));
            }
            match self.change(&zone, host, &known, to) {
                Ok(()) => return Ok(()),
                Err(no) if no.codes.contains(&IDENTICAL) => return Ok(()),
                Err(no) if no.codes.contains(&NO_RECORD) && again => again = false,
                Err(no) => return Err(no.refusal),
            }
        }
    }

    /// One record by a change of its own; more of them, or more or fewer, all at once or not at all.
    fn change(
        &self,
        zone: &str,
        host: &HostName,
        known: &[Known],
        to: &RecordSet,
    ) -> Result<(), No> {
        let Edits { patches, posts, deletes } = edits(host, known, to);
        let records = format!("/zones/{zone}/dns_records");
        if let ([(id, patch)], [], []) = (patches.as_slice(), posts.as_slice(), deletes.as_slice())
        {
            self.ask(Verb::Patch, &format!("{records}/{id}"), Some(patch))?;
            return Ok(());
        }
        let with_id = |(id, patch): &(String, Value)| {
            let mut patch = patch.clone();
            if let Some(object) = patch.as_object_mut() {
                object.insert("id".to_owned(), json!(id));
            }
            patch
        };
        let batch = json!({
            "deletes": deletes.iter().map(|id| json!({ "id": id })).collect::<Vec<_>>(),
            "patches": patches.iter().map(with_id).collect::<Vec<_>>(),
            "posts": posts,
        });
        self.ask(Verb::Post, &format!("{records}/batch"), Some(&batch))?;
        Ok(())
    }

    /// The zone's id, looked up once a run where the policy names it.
    fn zone_id(&self) -> Result<String, Refusal> {
        match self.zone {
            ZoneKey::Id(id) => Ok(id.clone()),
            ZoneKey::Name(name) => {
                let api = self.api.as_str().to_owned();
                let key = (api, name.to_string(), self.token_file.to_owned());
                zones::id_of(key, || self.look_up(name))
            }
        }
    }

    /// The id of a zone by its name. The API may find other zones by that.
    fn look_up(&self, name: &HostName) -> Result<String, Refusal> {
        let found: Vec<ZoneEntry> = self.all(&format!("/zones?name={name}"))?;
        let same = found.into_iter().find(|zone| zone.name.eq_ignore_ascii_case(name.as_str()));
        let zone = same.ok_or_else(|| {
            Refusal::new(format!(
                "{self} knows no zone {name}: is it of this account, and may the token read zones?"
            ))
        })?;
        // It becomes a part of a path.
        if zone.id.is_empty() || !zone.id.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(Refusal::new(format!("{self} gives zone {name} an id that is none")));
        }
        Ok(zone.id)
    }

    /// The address records of a host, with their ids.
    fn records(&self, zone: &str, host: &HostName) -> Result<Vec<Known>, Refusal> {
        let found: Vec<Entry> =
            self.all(&format!("/zones/{zone}/dns_records?type=A&name={host}"))?;
        let same =
            |entry: &Entry| entry.kind == "A" && entry.name.eq_ignore_ascii_case(host.as_str());
        let known = |entry: Entry| {
            let address: Ipv4Addr = entry.content.parse().map_err(|_| {
                Refusal::new(format!("{self} gives {host} an address that is none"))
            })?;
            if entry.id.is_empty() || !entry.id.bytes().all(|b| b.is_ascii_alphanumeric()) {
                return Err(Refusal::new(format!("{self} gives {host} an id that is none")));
            }
            let comment = entry.comment.filter(|comment| !comment.is_empty());
            let (ttl, proxied) = (entry.ttl, entry.proxied);
            Ok((entry.id, Record { address, ttl, proxied, comment }))
        };
        found.into_iter().filter(same).map(known).collect()
    }

    /// All pages of a list.
    fn all<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, Refusal> {
        let mut all = Vec::new();
        for page in 1..=MOST_PAGES {
            let path = format!("{path}&page={page}&per_page={PER_PAGE}");
            let envelope = self.ask(Verb::Get, &path, None)?;
            let list: Vec<T> = serde_json::from_value(envelope.result).map_err(|why| {
                Refusal::new(format!("{self} lists what is not understood: {why}"))
            })?;
            all.extend(list);
            if envelope.result_info.is_none_or(|info| page >= info.total_pages) {
                return Ok(all);
            }
        }
        Err(Refusal::new(format!("{self} lists more than {MOST_PAGES} pages")))
    }

    /// Asks the API, and takes no answer that does not say that it was done.
    fn ask(&self, verb: Verb, path: &str, body: Option<&Value>) -> Result<Envelope, No> {
        let token = secret(self.token_file).map_err(|why| No::new(format!("{why:#}")))?;
        let bearer = format!("Bearer {token}");
        let url = format!("{}{path}", self.api.as_str().trim_end_matches('/'));
        let addresses = if let Some(address) = self.api.address() {
            vec![address]
        } else {
            let mut found = resolve(&[self.api.host().to_owned()], NAMES_DEADLINE);
            let found = found.pop_first().map_or_else(|| Ok(Vec::new()), |(_, found)| found);
            found.map_err(|why| No::new(format!("{self} has no address: {why}")))?
        };
        let body = body.map(Value::to_string);
        let mut headers = vec![("Authorization", bearer.as_str()), ("Accept", "application/json")];
        headers.extend(body.as_ref().map(|_| ("Content-Type", "application/json")));
        let asked = Ask {
            url: &url,
            via: Via::Main,
            timeout: DEADLINE,
            max_body: MAX_BODY,
            addresses: &addresses,
        };
        let parcel = Parcel { verb, headers: &headers, body: body.as_deref().map(str::as_bytes) };
        let answer =
            http::send(&asked, &parcel).map_err(|why| No::new(format!("{self}: {why}")))?;
        self.judge(&answer)
    }

    /// What an answer is worth.
    fn judge(&self, answer: &Answer) -> Result<Envelope, No> {
        let status = answer.status;
        let envelope: Option<Envelope> =
            serde_json::from_slice(&answer.body).ok().filter(|_| answer.is_whole);
        let said = envelope.as_ref().map(|envelope| envelope.errors.as_slice()).unwrap_or_default();
        let codes: Vec<i64> = said.iter().map(|complaint| complaint.code).collect();
        let words: Vec<String> = said
            .iter()
            .map(|complaint| format!("{} (code {})", complaint.message, complaint.code))
            .collect();
        let said = if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) };
        let no = |why: String, retry_after_sec: Option<u64>| {
            let refusal = Refusal { retry_after_sec, ..Refusal::new(harmless(&why)) };
            Err(No { refusal, codes: codes.clone() })
        };
        match (status, envelope) {
            (429, _) => no(format!("{self} is asked too often{said}"), seconds(answer)),
            (401 | 403, _) => no(
                format!(
                    "{self} refuses the token in {} ({status}){said}",
                    self.token_file.display()
                ),
                None,
            ),
            (200..=299, Some(envelope)) if envelope.success => Ok(envelope),
            (_, Some(_)) => no(
                format!("{self} answers {status} and that it was not done{said}"),
                seconds(answer),
            ),
            (_, None) => no(
                format!("{self} answers {status} with what is no answer of its API"),
                seconds(answer),
            ),
        }
    }
}

impl std::fmt::Display for Account<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.api.host())
    }
}

/// What makes records others.
struct Edits {
    /// Of ids, what changes.
    patches: Vec<(String, Value)>,
    /// What is added.
    posts: Vec<Value>,
    /// Ids that go.
    deletes: Vec<String>,
}

/// The fewest changes: a record whose address stays keeps its id, one whose address goes takes one
/// that comes.
fn edits(host: &HostName, known: &[Known], to: &RecordSet) -> Edits {
    let mut wished: BTreeMap<Ipv4Addr, &Record> =
        to.0.iter().map(|record| (record.address, record)).collect();
    let mut edits = Edits { patches: Vec::new(), posts: Vec::new(), deletes: Vec::new() };
    let mut free: Vec<&Known> = Vec::new();
    for one in known {
        let (id, record) = one;
        match wished.remove(&record.address) {
            Some(same) if same.ttl == record.ttl => {}
            Some(same) => edits.patches.push((id.clone(), json!({ "ttl": same.ttl }))),
            None => free.push(one),
        }
    }
    let mut free = free.into_iter();
    for (address, record) in wished {
        match free.next() {
            Some((id, old)) => {
                let mut patch = json!({ "content": address });
                if let Some(object) = patch.as_object_mut()
                    && record.ttl != old.ttl
                {
                    object.insert("ttl".to_owned(), json!(record.ttl));
                }
                edits.patches.push((id.clone(), patch));
            }
            None => edits.posts.push(json!({
                "type": "A", "name": host.as_str(), "content": address, "ttl": record.ttl,
                "proxied": record.proxied, "comment": record.comment,
            })),
        }
    }
    edits.deletes.extend(free.map(|(id, _)| id.clone()));
    edits
}
