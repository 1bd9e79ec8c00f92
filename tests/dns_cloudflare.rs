//! Records at Cloudflare, against a server that behaves as its documented API does, faults included.

use crate::dns_bench;
use crate::provider_server;

use dns_bench::{LiveNode, Place, Reference, Serves};
use egressctl::dns::name::HostName;
use egressctl::dns::record::{Record, RecordSet, Zone, ZoneKey};
use egressctl::host::dns::{read, write};
use provider_server::{Asked, Reply, Server};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TOKEN: &str = "sekret-token-0123456789";
const ZONE: &str = "023e105f4ecef8ad9ca31a8372d0c353";
const FI: &str = "fi.example.org";

/// What the server does wrong, or what befalls it.
#[derive(Clone, Debug, PartialEq)]
enum Fault {
    None,
    /// It says this to everything.
    Says(u16, &'static str, String),
    /// It says this to every change.
    SaysToChanges(u16, &'static str, String),
    /// Just these bytes, then the end.
    Raw(Vec<u8>),
    Drip,
    /// A change is made and its answer is lost.
    LosesAnswers,
    /// A change is agreed to and not made.
    OnlyAgrees,
    /// A change takes the proxy away, as one that replaces a record would.
    Unproxies,
    /// A change is made, and nobody ever hears of it.
    Stalls,
    /// Somebody makes the record anew between our look and our change, once.
    Renews,
    /// Somebody sets the record to another address right before it is listed the n-th time.
    EditsAtLook(usize),
    /// Each answer takes its time.
    Slow(Duration),
    /// It lists all records, whatever name and type were asked for.
    ListsAll,
}

/// The zone as the provider keeps it.
struct Kept {
    records: Vec<Value>,
    fault: Fault,
    /// So many entries stand on a page at most.
    page: usize,
}

#[derive(Clone)]
struct Api(Arc<Mutex<Kept>>);

fn record(id: &str, name: &str, content: &str) -> Value {
    json!({ "id": id, "zone_id": ZONE, "zone_name": "example.org", "name": name, "type": "A", "content": content,
            "proxiable": true, "proxied": false, "ttl": 120, "comment": null, "tags": [],
            "created_on": "2026-01-01T05:20:00.12345Z", "modified_on": "2026-01-01T05:20:00.12345Z" })
}

fn said(status: u16, body: &Value) -> Reply {
    Reply::Whole(
        status,
        "Content-Type: application/json\r\n".to_owned(),
        body.to_string().into_bytes(),
    )
}

fn no(status: u16, code: i64, message: &str) -> Reply {
    said(
        status,
        &json!({ "success": false, "errors": [{ "code": code, "message": message }], "messages": [], "result": null }),
    )
}

fn done(result: &Value) -> Reply {
    said(200, &json!({ "success": true, "errors": [], "messages": [], "result": result }))
}

impl Api {
    fn new(records: Vec<Value>) -> (Self, Server) {
        let api = Self(Arc::new(Mutex::new(Kept { records, fault: Fault::None, page: 100 })));
        let answering = api.clone();
        (api, Server::new(move |asked| answering.answer(asked)))
    }

    fn fault(&self, fault: Fault) {
        self.0.lock().unwrap().fault = fault;
    }

    fn contents(&self, name: &str) -> Vec<String> {
        let kept = self.0.lock().unwrap();
        let of = |record: &&Value| record["name"] == name;
        kept.records.iter().filter(of).map(|r| r["content"].as_str().unwrap().to_owned()).collect()
    }

    fn answer(&self, asked: &Asked) -> Reply {
        let fault = self.0.lock().unwrap().fault.clone();
        if let Fault::Slow(time) = fault {
            std::thread::sleep(time);
        }
        let mut kept = self.0.lock().unwrap();
        let changes = asked.verb != "GET";
        match &kept.fault {
            Fault::Says(status, head, body) => {
                return Reply::Whole(*status, (*head).to_owned(), body.clone().into_bytes());
            }
            Fault::SaysToChanges(status, head, body) if changes => {
                return Reply::Whole(*status, (*head).to_owned(), body.clone().into_bytes());
            }
            Fault::Raw(bytes) => return Reply::Raw(bytes.clone()),
            Fault::Drip => return Reply::Drip,
            Fault::OnlyAgrees if changes => return done(&json!({})),
            Fault::EditsAtLook(n) if asked.path.contains("/dns_records?") => {
                let left = n - 1;
                if left == 0 {
                    kept.records[0]["content"] = json!("198.51.100.9");
                    kept.fault = Fault::None;
                } else {
                    kept.fault = Fault::EditsAtLook(left);
                }
            }
            Fault::Renews if changes => {
                for record in &mut kept.records {
                    let id = format!("{}e", record["id"].as_str().unwrap());
                    record["id"] = json!(id);
                }
                kept.fault = Fault::None;
            }
            Fault::None
            | Fault::SaysToChanges(..)
            | Fault::LosesAnswers
            | Fault::OnlyAgrees
            | Fault::Unproxies
            | Fault::Stalls
            | Fault::Slow(_)
            | Fault::EditsAtLook(_)
            | Fault::ListsAll
            | Fault::Renews => {}
        }
        if asked.headers.get("authorization").map(String::as_str)
            != Some(&format!("Bearer {TOKEN}"))
        {
            return no(403, 10_000, "Authentication error");
        }
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        let wanted = |key: &str| {
            query
                .split('&')
                .find_map(|pair| pair.strip_prefix(&format!("{key}=")))
                .map(str::to_owned)
        };
        let list = |all: Vec<Value>, page: usize| {
            let number: usize = wanted("page").unwrap().parse().unwrap();
            let per_page = page.min(wanted("per_page").unwrap().parse().unwrap());
            let total = all.len();
            let shown: Vec<Value> =
                all.into_iter().skip((number - 1) * per_page).take(per_page).collect();
            said(
                200,
                &json!({ "success": true, "errors": [], "messages": [], "result": shown,
                "result_info": { "page": number, "per_page": per_page, "count": shown.len(),
                                 "total_count": total, "total_pages": total.div_ceil(per_page) } }),
            )
        };
        let reply = match (asked.verb.as_str(), path.strip_prefix("/client/v4").unwrap_or("")) {
            ("GET", "/zones") => {
                // Others whose names hold this one come first.
                let zone =
                    |name: &str, id: &str| json!({ "id": id, "name": name, "status": "active" });
                list(
                    vec![
                        zone("badexample.org", "0bad"),
                        zone("example.org.net", "1bad"),
                        zone("example.org", ZONE),
                    ],
                    2,
                )
            }
            ("GET", path) if path == format!("/zones/{ZONE}/dns_records") => {
                let (kind, name) = (wanted("type").unwrap(), wanted("name").unwrap());
                let lists_all = kept.fault == Fault::ListsAll;
                let of = |r: &&Value| {
                    lists_all || r["name"] == name.as_str() && r["type"] == kind.as_str()
                };
                let found = kept.records.iter().filter(of).cloned().collect();
                list(found, kept.page)
            }
            ("PATCH", path) => {
                let id = path.rsplit('/').next().unwrap().to_owned();
                let body: Value = serde_json::from_str(&asked.body).unwrap();
                match patch(&mut kept, &id, &body) {
                    Ok(record) => done(&record),
                    Err(reply) => return reply,
                }
            }
            ("POST", path) if path == format!("/zones/{ZONE}/dns_records/batch") => {
                let body: Value = serde_json::from_str(&asked.body).unwrap();
                let before = kept.records.clone();
                for gone in body["deletes"].as_array().unwrap() {
                    kept.records.retain(|record| record["id"] != gone["id"]);
                }
                for change in body["patches"].as_array().unwrap() {
                    if let Err(reply) = patch(&mut kept, change["id"].as_str().unwrap(), change) {
                        kept.records = before;
                        return reply;
                    }
                }
                for new in body["posts"].as_array().unwrap() {
                    let mut made = record(&format!("{}n", kept.records.len()), "", "");
                    made.as_object_mut().unwrap().extend(new.as_object().unwrap().clone());
                    kept.records.push(made);
                }
                done(&json!({}))
            }
            _ => return no(404, 7_003, "Could not route to the path"),
        };
        if changes && kept.fault == Fault::Stalls {
            return Reply::Silence;
        }
        if changes && kept.fault == Fault::LosesAnswers {
            return Reply::Raw(Vec::new());
        }
        reply
    }
}

fn patch(kept: &mut Kept, id: &str, body: &Value) -> Result<Value, Reply> {
    let Some(at) = kept.records.iter().position(|record| record["id"] == id) else {
        return Err(no(404, 81_044, "Record does not exist."));
    };
    let mut new = kept.records[at].clone();
    new.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    if new["ttl"].as_u64().is_none_or(|ttl| ttl != 1 && !(30..=86_400).contains(&ttl)) {
        return Err(no(
            400,
            9_021,
            "Invalid TTL. Must be between 60 and 86400, or 1 for automatic.",
        ));
    }
    let same = |other: &Value| {
        other["id"] != id && other["name"] == new["name"] && other["content"] == new["content"]
    };
    if kept.records.iter().any(same) {
        return Err(no(400, 81_058, "An identical record already exists."));
    }
    if kept.fault == Fault::Unproxies {
        new["proxied"] = json!(false);
    }
    kept.records[at] = new.clone();
    Ok(new)
}

fn host(name: &str) -> HostName {
    HostName::try_from(name.to_owned()).unwrap()
}

fn set(addresses: &[&str]) -> RecordSet {
    let record = |address: &&str| Record {
        address: address.parse().unwrap(),
        ttl: 120,
        proxied: false,
        comment: None,
    };
    RecordSet(addresses.iter().map(record).collect())
}

fn zone(server: &Server, folder: &Path) -> Zone {
    let token_file = folder.join("token");
    std::fs::write(&token_file, format!("{TOKEN}\n")).unwrap();
    Zone::Cloudflare {
        api: server.url("/client/v4").try_into().unwrap(),
        zone: ZoneKey::Name(host("example.org")),
        token_file,
    }
}

/// The changes that were asked for, verb, path below the zone and body.
fn changes(server: &Server) -> Vec<(String, String, Value)> {
    let change = |asked: Asked| {
        let below = asked.path.split_once("/dns_records").unwrap().1.to_owned();
        (asked.verb, below, serde_json::from_str(&asked.body).unwrap())
    };
    server.asked().into_iter().filter(|asked| asked.verb != "GET").map(change).collect()
}

/// Cases C56, C59.
#[test]
fn a_change_names_address_and_ttl_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut proxied = record("b1", "web.example.org", "192.0.2.1");
    proxied["proxied"] = json!(true);
    proxied["ttl"] = json!(1);
    proxied["comment"] = json!("the shop");
    let (api, server) = Api::new(vec![record("a1", FI, "192.0.2.1"), proxied.clone()]);
    let zone = zone(&server, folder.path());
    let found = read(&zone, &host(FI)).unwrap();
    assert_eq!(found, set(&["192.0.2.1"]));
    write(&zone, &host(FI), &found, &found.with(&set(&["192.0.2.2"]).addresses(), 120).unwrap())
        .unwrap();
    assert_eq!(
        changes(&server),
        [("PATCH".to_owned(), "/a1".to_owned(), json!({ "content": "192.0.2.2" }))]
    );
    assert_eq!(read(&zone, &host(FI)).unwrap(), set(&["192.0.2.2"]));

    let name = host("web.example.org");
    let found = read(&zone, &name).unwrap();
    let to = found.with(&set(&["192.0.2.2"]).addresses(), 120).unwrap();
    write(&zone, &name, &found, &to).unwrap();
    proxied["content"] = json!("192.0.2.2");
    assert!(
        api.0.lock().unwrap().records.contains(&proxied),
        "proxy, TTL and comment are as they were"
    );
    let found = read(&zone, &host(FI)).unwrap();
    write(&zone, &host(FI), &found, &found.with(&set(&["192.0.2.1"]).addresses(), 60).unwrap())
        .unwrap();
    assert_eq!(changes(&server)[2].2, json!({ "content": "192.0.2.1", "ttl": 60 }));
}

/// Case C58.
#[test]
fn several_records_change_all_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (api, server) =
        Api::new(vec![record("a1", FI, "192.0.2.1"), record("a2", FI, "192.0.2.2")]);
    // Each on a page of its own.
    api.0.lock().unwrap().page = 1;
    let zone = zone(&server, folder.path());
    let found = read(&zone, &host(FI)).unwrap();
    assert_eq!(found, set(&["192.0.2.1", "192.0.2.2"]));
    write(&zone, &host(FI), &found, &set(&["192.0.2.2"])).unwrap();
    assert_eq!(api.contents(FI), ["192.0.2.2"]);
    let found = read(&zone, &host(FI)).unwrap();
    write(&zone, &host(FI), &found, &set(&["192.0.2.3", "192.0.2.4", "192.0.2.5"])).unwrap();
    assert_eq!(api.contents(FI), ["192.0.2.3", "192.0.2.4", "192.0.2.5"]);
    assert!(changes(&server).iter().all(|(verb, path, _)| verb == "POST" && path == "/batch"));
    // A race is a refusal, and nothing was overwritten.
    let why = write(&zone, &host(FI), &found, &set(&["192.0.2.9"])).unwrap_err().why;
    assert!(why.contains("holds 192.0.2.3"), "{why}");
    // The last record is never removed and the first never made.
    assert!(write(&zone, &host(FI), &set(&["192.0.2.3"]), &RecordSet::default()).is_err());
    assert!(
        write(&zone, &host("no.example.org"), &RecordSet::default(), &set(&["192.0.2.3"])).is_err()
    );
    assert_eq!(read(&zone, &host("no.example.org")).unwrap(), RecordSet::default());
}

#[test]
fn a_zone_may_be_named_by_its_id_and_is_never_another() {
    let folder = tempfile::tempdir().unwrap();
    let (_, server) = Api::new(vec![record("a1", FI, "192.0.2.1")]);
    let Zone::Cloudflare { api, token_file, .. } = zone(&server, folder.path()) else { panic!() };
    let by_id = Zone::Cloudflare {
        api: api.clone(),
        zone: ZoneKey::Id(ZONE.to_owned()),
        token_file: token_file.clone(),
    };
    assert_eq!(read(&by_id, &host(FI)).unwrap(), set(&["192.0.2.1"]));
    assert_eq!(server.asked().len(), 1, "nothing is looked up");
    let other = Zone::Cloudflare { api, zone: ZoneKey::Name(host("ample.org")), token_file };
    let why = read(&other, &host("fi.ample.org")).unwrap_err();
    assert!(why.contains("knows no zone ample.org"), "{why}");
}

#[test]
fn a_record_of_another_name_or_type_is_never_taken() {
    let folder = tempfile::tempdir().unwrap();
    let mut six = record("a6", FI, "2001:db8::1");
    six["type"] = json!("AAAA");
    let others = [record("b1", "x.fi.example.org", "192.0.2.7"), six];
    let (api, server) = Api::new([vec![record("a1", FI, "192.0.2.1")], others.to_vec()].concat());
    let zone = zone(&server, folder.path());
    api.fault(Fault::ListsAll);
    assert_eq!(read(&zone, &host(FI)).unwrap(), set(&["192.0.2.1"]));
    write(&zone, &host(FI), &set(&["192.0.2.1"]), &set(&["192.0.2.2"])).unwrap();
    assert_eq!(api.contents(FI), ["192.0.2.2", "2001:db8::1"]);
    assert_eq!(api.contents("x.fi.example.org"), ["192.0.2.7"]);
}

#[test]
fn a_record_that_was_made_anew_is_found_again_and_an_identical_one_is_success() {
    let folder = tempfile::tempdir().unwrap();
    let (api, server) = Api::new(vec![record("a1", FI, "192.0.2.1")]);
    let zone = zone(&server, folder.path());
    api.fault(Fault::Renews);
    write(&zone, &host(FI), &set(&["192.0.2.1"]), &set(&["192.0.2.2"])).unwrap();
    assert_eq!(api.contents(FI), ["192.0.2.2"]);
    let identical = json!({ "success": false, "errors": [{ "code": 81_058, "message": "An identical record already exists." }] });
    api.fault(Fault::SaysToChanges(400, "", identical.to_string()));
    write(&zone, &host(FI), &set(&["192.0.2.2"]), &set(&["192.0.2.1"])).unwrap();
}

/// Case C59.
#[test]
fn what_is_no_success_is_told_without_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let (api, server) = Api::new(vec![record("a1", FI, "192.0.2.1")]);
    let zone = zone(&server, folder.path());
    let error = |code: i64, message: &str| {
        json!({ "success": false, "errors": [{ "code": code, "message": message }] }).to_string()
    };
    for (fault, said, retry) in [
        (Fault::Says(429, "Retry-After: 77\r\n", error(971, "Please wait")), "too often: Please wait (code 971)", Some(77)),
        (Fault::Says(429, "", "<html>slow down</html>".to_owned()), "too often", None),
        (Fault::Says(200, "", error(9_022, "Invalid TTL")), "not done: Invalid TTL (code 9022)", None),
        (Fault::Says(401, "", error(10_000, "Authentication error")), "refuses the token in", None),
        (Fault::Says(403, "", error(9_109, "Invalid access token")), "code 9109", None),
        (Fault::Says(200, "", "<!doctype html><title>portal</title>".to_owned()), "no answer of its API", None),
        (Fault::Says(503, "Retry-After: 5\r\n", "busy".to_owned()), "answers 503", Some(5)),
        (Fault::Says(302, "Location: http://127.0.0.1:1/\r\n", String::new()), "answers 302", None),
        (Fault::Says(200, "", "{\"success\": true, \"result\": {\"a\": 1}}".to_owned()), "not understood", None),
        (Fault::Says(200, "", "{\"success\": true, \"result\": [{\"id\": \"../../x\", \"name\": \"example.org\"}]}".to_owned()), "id that is none", None),
        (Fault::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{\"success\": true".to_vec()), "", None),
        (Fault::Raw(b"SSH-2.0-x\r\n".to_vec()), "", None),
        (Fault::Drip, "", None),
    ] {
        api.fault(fault.clone());
        let begun = Instant::now();
        let refusal = write(&zone, &host(FI), &set(&["192.0.2.1"]), &set(&["192.0.2.2"])).unwrap_err();
        assert!(refusal.why.contains(said), "{fault:?}: {}", refusal.why);
        assert_eq!(refusal.retry_after_sec, retry, "{fault:?}");
        // What drips is waited for once: reading begins as writing does.
        let drips = fault == Fault::Drip;
        let why =
            if drips { refusal.why.clone() } else { read(&zone, &host(FI)).unwrap_err() };
        assert!(!why.contains("sekret") && !refusal.why.contains("sekret"), "{why}");
        assert!(!why.contains('\n'));
        assert!(begun.elapsed() < Duration::from_secs(10), "{fault:?}");
    }
    std::fs::write(folder.path().join("token"), "").unwrap();
    assert!(read(&zone, &host(FI)).unwrap_err().contains("does not hold one secret"));
    assert_eq!(api.contents(FI), ["192.0.2.1"], "nothing was changed by any of it");
}

/// A gateway whose host names are at the server: two nodes, one reference.
struct Story {
    place: Place,
    native: LiveNode,
    fallback: LiveNode,
    reference: Reference,
    api: Api,
    server: Server,
}

impl Story {
    fn new(records: Vec<Value>, hosts: &Value) -> Self {
        let place = Place::new();
        let native = LiveNode::new(31, 0, Serves::Tcp);
        let fallback = LiveNode::new(32, native.port, Serves::Tcp);
        let reference = Reference::new();
        let (api, server) = Api::new(records);
        std::fs::write(place.path("token"), TOKEN).unwrap();
        let check = json!({ "tcp": { "port": native.port, "timeout_sec": 1 } });
        place.write(&json!({
            "kind": "dns",
            "driver": { "cloudflare": { "zone": "example.org", "token_file": place.path("token"), "api": server.url("/client/v4") } },
            "nodes": { "fi": { "address": "127.0.0.31", "label": "HEL", "check": check }, "de": { "address": "127.0.0.32", "label": "FRA", "check": check } },
            "hosts": hosts,
            "reference": { "urls": [reference.url()] },
            "params": { "check_interval_sec": 0, "minimum_stay_sec": 0 },
        }));
        Self { place, native, fallback, reference, api, server }
    }
}

fn one_host() -> Value {
    json!({ FI: { "native": "fi", "fallbacks": ["de"] } })
}

#[test]
fn a_record_follows_its_node_and_comes_back() {
    let mut story = Story::new(vec![record("a1", FI, "127.0.0.31")], &one_host());
    let ran = story.place.step();
    assert_eq!((ran.code, ran.codes()), (0, vec!["adopted".to_owned()]), "{ran:?}");
    story.native.die();
    story.place.step();
    let begun = Instant::now();
    let ran = story.place.step();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.report()["to"], "FALLBACK");
    assert_eq!(ran.report()["changes"], 1);
    assert_eq!(story.api.contents(FI), ["127.0.0.32"]);
    let status = story.place.run(&["status", "names"]);
    assert_eq!(status.code, 1, "served, and not as wished");
    assert!(status.stdout.contains("temporarily through FRA"), "{}", status.stdout);
    let writes = changes(&story.server).len();
    story.place.step();
    story.place.step();
    assert_eq!(changes(&story.server).len(), writes, "a settled record is not written again");
    story.native.live();
    story.place.step();
    let ran = story.place.step();
    assert_eq!(ran.report()["to"], "NATIVE", "{ran:?}");
    assert_eq!(story.api.contents(FI), ["127.0.0.31"]);
    assert_eq!(story.place.run(&["status", "names"]).code, 0);
    let history = story.place.run(&["history", "names"]).stdout;
    assert!(history.contains("NATIVE_FAILING -> FALLBACK"), "{history}");
    assert!(!story.place.state_text().contains("sekret"));
    // With nobody alive the record stays, and the status says that nobody is served.
    story.native.die();
    story.fallback.die();
    story.place.step();
    assert_eq!(story.place.step().report()["to"], "STRANDED");
    let status = story.place.run(&["status", "names"]);
    assert_eq!(status.code, 2, "{status:?}");
    assert!(status.stdout.contains("no node serves it"), "{status:?}");
    assert_eq!(story.api.contents(FI), ["127.0.0.31"]);
}

#[test]
fn a_move_is_over_within_five_seconds_where_each_answer_takes_four_tenths_of_one() {
    let two = json!({ FI: { "native": "fi", "fallbacks": ["de"] },
                      "us.example.org": { "native": "fi", "fallbacks": ["de"] } });
    let records = ["a1", "b1"].into_iter().zip([FI, "us.example.org"]);
    let records = records.map(|(id, name)| record(id, name, "127.0.0.31")).collect();
    let mut story = Story::new(records, &two);
    story.place.step();
    story.native.die();
    story.place.step();
    story.api.fault(Fault::Slow(Duration::from_millis(400)));
    let look_ups = || {
        let asked = story.server.asked();
        asked.iter().filter(|asked| asked.path.contains("/zones?")).count()
    };
    let before = look_ups();
    let begun = Instant::now();
    let ran = story.place.step();
    // Its two pages, once for all host names and all that is asked of them.
    assert_eq!(look_ups() - before, 2);
    // The second check failed within this time; the record was read back within it, too.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(ran.report()["to"], "fi.example.org FALLBACK, us.example.org FALLBACK", "{ran:?}");
    assert_eq!(story.api.contents(FI), ["127.0.0.32"]);
}

#[test]
fn a_plan_writes_nothing() {
    let mut story = Story::new(vec![record("a1", FI, "127.0.0.31")], &one_host());
    story.place.step();
    story.native.die();
    story.place.step();
    let ran = story.place.run(&["plan", "names"]);
    assert!(
        ran.stdout
            .contains("do    set fi.example.org in zone example.org at 127.0.0.1 to 127.0.0.32"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout
            .contains("undo  set fi.example.org in zone example.org at 127.0.0.1 to 127.0.0.31")
    );
    assert_eq!(story.api.contents(FI), ["127.0.0.31"]);
}

#[test]
fn a_refusal_is_waited_out_and_says_so() {
    let mut story = Story::new(vec![record("a1", FI, "127.0.0.31")], &one_host());
    story.place.step();
    story.native.die();
    story.place.step();
    let slow = json!({ "success": false, "errors": [{ "code": 971, "message": "Please wait" }] });
    story.api.fault(Fault::SaysToChanges(429, "Retry-After: 3600\r\n", slow.to_string()));
    let ran = story.place.step();
    assert_eq!((ran.code, ran.codes()), (3, vec!["refused".to_owned()]), "{ran:?}");
    assert_eq!(ran.report()["to"], "NATIVE_FAILING");
    story.api.fault(Fault::None);
    let writes = changes(&story.server).len();
    let ran = story.place.step();
    assert_eq!((ran.code, ran.codes()), (0, vec!["waiting".to_owned()]), "{ran:?}");
    assert_eq!(changes(&story.server).len(), writes, "it is left alone as long as it wishes");
    // A person may insist.
    let ran = story.place.run(&["switch", "names", "fi.example.org=de"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(story.api.contents(FI), ["127.0.0.32"]);
    assert_eq!(story.place.status()["hosts"][0]["paused"], "person");
}

#[test]
fn a_write_whose_answer_is_lost_and_one_that_was_only_agreed_to_are_told_apart_by_reading() {
    let mut story = Story::new(vec![record("a1", FI, "127.0.0.31")], &one_host());
    story.place.step();
    story.native.die();
    story.place.step();
    story.api.fault(Fault::OnlyAgrees);
    let ran = story.place.step();
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stdout.contains("accepted and reads back as before"), "{ran:?}");
    story.api.fault(Fault::LosesAnswers);
    let ran = story.place.step();
    assert_eq!((ran.code, ran.report()["to"].clone()), (0, json!("FALLBACK")), "{ran:?}");
}

/// Case C56.
#[test]
fn a_proxy_that_was_lost_is_an_error_with_what_was_there() {
    let mut shop = record("a1", FI, "127.0.0.31");
    shop["proxied"] = json!(true);
    shop["ttl"] = json!(1);
    let mut story = Story::new(vec![shop], &one_host());
    story.place.step();
    story.native.die();
    story.place.step();
    story.api.fault(Fault::Unproxies);
    let ran = story.place.step();
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stdout.contains("it was 127.0.0.31 ttl 1 proxied"), "{ran:?}");
    assert_eq!(ran.report()["to"], "FALLBACK", "it points where it should all the same");
}

#[test]
fn somebody_elses_record_is_left_alone() {
    let mut story = Story::new(vec![record("a1", FI, "127.0.0.31")], &one_host());
    story.place.step();
    story.native.die();
    story.place.step();
    story.api.0.lock().unwrap().records[0]["content"] = json!("198.51.100.9");
    let ran = story.place.step();
    assert_eq!((ran.code, ran.codes()), (0, vec!["edited".to_owned()]), "{ran:?}");
    story.place.step();
    assert_eq!(story.api.contents(FI), ["198.51.100.9"]);
    assert_eq!(changes(&story.server).len(), 0);
    assert_eq!(story.place.run(&["status", "names"]).code, 1);
    let ran = story.place.run(&["resume", "names", "de.example.org"]);
    assert!(ran.code == 2 && ran.stderr.contains("no host of this policy"), "{ran:?}");
    assert_eq!(story.place.run(&["resume", "names", FI]).code, 0);
    story.place.step();
    assert_eq!(story.api.contents(FI), ["127.0.0.32"]);
}

#[test]
fn somebody_who_edits_while_we_decide_is_not_overwritten() {
    // A step looks to decide, to compare, and right before it writes.
    for look in 1..=3 {
        let mut story = Story::new(vec![record("a1", FI, "127.0.0.31")], &one_host());
        story.place.step();
        story.native.die();
        story.place.step();
        story.api.fault(Fault::EditsAtLook(look));
        let ran = story.place.step();
        assert_eq!((ran.code, ran.codes()), (0, vec!["edited".to_owned()]), "{look}: {ran:?}");
        assert_eq!(story.api.contents(FI), ["198.51.100.9"]);
        assert_eq!(changes(&story.server).len(), 0, "{look}");
    }
}

#[test]
fn a_host_of_several_records_is_left_alone_unless_the_policy_says_so() {
    let both = || vec![record("a1", FI, "127.0.0.31"), record("a2", FI, "127.0.0.32")];
    let mut story = Story::new(both(), &one_host());
    let ran = story.place.step();
    assert_eq!((ran.code, ran.codes()), (0, vec!["foreign".to_owned()]), "{ran:?}");
    story.native.die();
    story.place.step();
    story.place.step();
    assert_eq!(changes(&story.server).len(), 0);
    assert_eq!(story.place.status()["hosts"][0]["paused"], "foreign");
    let two = json!({ FI: { "native": "fi", "fallbacks": ["de"], "records": 2 } });
    let mut story = Story::new(both(), &two);
    assert_eq!(story.place.step().codes(), ["adopted"]);
    story.native.die();
    story.place.step();
    assert_eq!(story.place.step().report()["to"], "FALLBACK");
    assert_eq!(story.api.contents(FI), ["127.0.0.32"], "fewer, as fewer serve");
    story.native.live();
    story.place.step();
    assert_eq!(story.place.step().report()["to"], "NATIVE");
    assert_eq!(story.api.contents(FI).len(), 2);
}

#[test]
fn one_host_that_is_refused_holds_no_other_and_a_watcher_offline_writes_nothing() {
    let (a, b) = ("a.example.org", "b.example.org");
    let both = json!({ a: { "native": "fi", "fallbacks": ["de"] }, b: { "native": "fi", "fallbacks": ["de"] } });
    let mut story =
        Story::new(vec![record("a1", a, "127.0.0.31"), record("b1", b, "127.0.0.31")], &both);
    story.place.step();
    story.native.die();
    story.reference.answers(false);
    for _ in 0..4 {
        let ran = story.place.step();
        assert_eq!(ran.codes(), ["offline"], "{ran:?}");
    }
    story.reference.answers_only(1);
    assert_eq!(story.place.step().codes(), ["offline"], "it went offline during the round");
    story.reference.answers(true);
    assert_eq!(
        story.place.step().report()["to"],
        "a.example.org NATIVE_FAILING, b.example.org NATIVE_FAILING"
    );
    story.place.run(&["pause", "names", a]);
    let ran = story.place.step();
    assert_eq!(
        ran.report()["to"],
        "a.example.org NATIVE_FAILING, b.example.org FALLBACK",
        "{ran:?}"
    );
    assert_eq!(
        (story.api.contents(a), story.api.contents(b)),
        (vec!["127.0.0.31".to_owned()], vec!["127.0.0.32".to_owned()])
    );
    let ran = story.place.run(&["down", "names"]);
    assert!(ran.stdout.contains("its record stays at 127.0.0.32"), "{ran:?}");
    assert_eq!(story.api.contents(b), ["127.0.0.32"]);
}

#[test]
fn a_policy_sends_a_token_in_clear_to_this_machine_only() {
    let policy = |api: &str| {
        json!({ "kind": "dns", "driver": { "cloudflare": { "zone": "example.org", "token_file": "/t", "api": api } },
                "nodes": { "fi": { "address": "192.0.2.1", "check": { "tcp": { "port": 1 } } } },
                "hosts": { FI: { "native": "fi" } } })
        .to_string()
    };
    egressctl::policy::Policy::parse(&policy("http://127.0.0.1:8080/client/v4")).unwrap();
    egressctl::policy::Policy::parse(&policy("https://api.example.net/v4")).unwrap();
    for bad in
        ["http://192.0.2.1/v4", "http://localhost/v4", "ftp://x", "https://api.example.net/v4?x"]
    {
        assert!(egressctl::policy::Policy::parse(&policy(bad)).is_err(), "{bad}");
    }
}

#[test]
fn a_run_that_is_killed_in_the_middle_of_a_write_is_undone_by_the_next() {
    let mut story = Story::new(vec![record("a1", FI, "127.0.0.31")], &one_host());
    story.place.step();
    story.native.die();
    story.place.step();
    story.api.fault(Fault::Stalls);
    let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_egressctl"))
        .args(["step", "names", "--now"])
        .env("EGRESSCTL_POLICY_DIR", story.place.path("policies"))
        .env("EGRESSCTL_STATE_DIR", story.place.path("state"))
        .spawn()
        .unwrap();
    dns_bench::until("the record is written", || story.api.contents(FI) == ["127.0.0.32"]);
    run.kill().unwrap();
    run.wait().unwrap();
    story.api.fault(Fault::None);
    let ran = story.place.step();
    assert_eq!((ran.code, ran.report()["to"].clone()), (5, json!("NATIVE_FAILING")), "{ran:?}");
    assert_eq!(story.api.contents(FI), ["127.0.0.31"]);
    let ran = story.place.step();
    assert_eq!(ran.report()["to"], "FALLBACK", "{ran:?}");
    assert_eq!(story.api.contents(FI), ["127.0.0.32"]);
}
