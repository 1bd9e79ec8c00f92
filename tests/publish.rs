//! What a web server is given: whole documents, in a place that the site names, and no more writes
//! than changes.

use crate::dns_bench;

use dns_bench::server::{NameServer, Server};
use dns_bench::{LiveNode, Place, Reference, Serves};
use egressctl::host::publish::{publish, unusable};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

const FI: &str = "fi.example.org";

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn a_document_is_replaced_whole_when_it_changes_and_left_alone_when_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    let write = |text: &str| publish("publish_dir", folder.path(), &[("a.json", text.to_owned())]);
    write("1").unwrap();
    let (first, mode) = (inode(&path), fs::metadata(&path).unwrap().permissions().mode());
    assert_eq!(mode & 0o777, 0o644, "whatever the umask is");
    write("1").unwrap();
    assert_eq!(inode(&path), first, "it says that already");
    // Who reads it meanwhile reads the old one to its end.
    let mut reader = fs::File::open(&path).unwrap();
    write("2").unwrap();
    assert_ne!(inode(&path), first);
    assert_eq!(std::io::read_to_string(&mut reader).unwrap(), "1");
    assert_eq!(fs::read_to_string(&path).unwrap(), "2");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
}

#[test]
fn what_others_put_in_its_place_is_replaced_and_leads_nowhere() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let write = |name: &str| publish("publish_dir", folder.path(), &[(name, "2".to_owned())]);
    let victim = elsewhere.path().join("victim");
    fs::write(&victim, "1").unwrap();
    std::os::unix::fs::symlink(&victim, folder.path().join("link")).unwrap();
    write("link").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "1", "a link is not followed");
    assert!(fs::symlink_metadata(folder.path().join("link")).unwrap().is_file());
    let fifo = folder.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    write("fifo").unwrap();
    assert_eq!(fs::read_to_string(&fifo).unwrap(), "2", "nobody waits for a writer");
    let why = publish("publish_dir", &elsewhere.path().join("none"), &[("a", String::new())])
        .unwrap_err();
    assert!(format!("{why:#}").contains("there is no such folder: make it"), "{why:#}");
}

#[test]
fn a_folder_that_nobody_can_read_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("www");
    let told =
        |path: &Path| unusable("publish_dir", path).map(|(_, mend)| mend).unwrap_or_default();
    assert_eq!(told(&place), format!("install -d -m 755 {}", place.display()));
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(told(&place), "");
    fs::set_permissions(&place, fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(told(&place), format!("chmod 755 {}", place.display()));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(told(&file).starts_with("install -d"), "{}", told(&file));
}

/// A host name at a real server, two nodes, and what is published of them.
struct Story {
    place: Place,
    server: NameServer,
    native: LiveNode,
    _fallback: LiveNode,
    _reference: Reference,
}

impl Story {
    fn new() -> Self {
        let (place, server) = (Place::new(), NameServer::new(Server::Knot));
        let native = LiveNode::new(41, 0, Serves::Tcp);
        let fallback = LiveNode::new(46, native.port, Serves::Tcp);
        let reference = Reference::new();
        let check = json!({ "tcp": { "port": native.port } });
        place.write(&json!({
            "kind": "dns",
            "driver": { "rfc2136": { "server": server.at().to_string(), "zone": "example.org",
                                     "key_file": server.folder.path().join("key") } },
            "nodes": { "fi": { "address": "127.0.0.41", "label": "HEL", "check": check },
                       "de": { "address": "127.0.0.46", "label": "FRA", "check": check } },
            "hosts": { FI: { "native": "fi", "fallbacks": ["de"], "ttl": 60 } },
            "reference": { "urls": [reference.url()] },
            "params": { "check_interval_sec": 0, "minimum_stay_sec": 600 },
        }));
        Self { place, server, native, _fallback: fallback, _reference: reference }
    }

    fn site(&self, name: &str, text: &Value) {
        fs::write(self.place.path(&format!("policies/{name}.json")), text.to_string()).unwrap();
    }

    fn shown(&self, name: &str) -> Value {
        let text = fs::read_to_string(self.place.path("www").join(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

#[test]
fn a_step_and_a_persons_command_publish_and_a_plan_does_not() {
    let mut story = Story::new();
    fs::create_dir(story.place.path("www")).unwrap();
    story.place.step();
    assert_eq!(fs::read_dir(story.place.path("www")).unwrap().count(), 0, "nobody asked for it");
    story.site("site", &json!({ "kind": "site", "publish_dir": story.place.path("www") }));
    for command in [&["plan"][..], &["status"], &["check"]] {
        story.place.run(command);
    }
    assert_eq!(fs::read_dir(story.place.path("www")).unwrap().count(), 0, "these only look");
    let ran = story.place.step();
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let shown = story.shown("failover.json");
    let status = story.place.status();
    assert_eq!(
        shown,
        json!({ FI: { "policy": "names", "address": "127.0.0.41", "addresses": ["127.0.0.41"], "label": "HEL",
                      "temporary": false, "state": "NATIVE", "why": "", "since": status["hosts"][0]["since"] } })
    );
    let shown = story.shown("uptime.json");
    assert_eq!(
        shown["de"],
        json!({ "policy": "names", "label": "FRA", "address": "127.0.0.46", "health": "healthy",
                "uptime_percent": 100.0, "since": status["nodes"][0]["since"] })
    );
    let ran = story.place.run(&["step", "--now"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "a site is no policy: {ran:?}");
    assert_eq!(ran.stdout.lines().count(), 1);
    let before = [
        inode(&story.place.path("www/failover.json")),
        inode(&story.place.path("www/uptime.json")),
    ];
    story.place.step();
    let after = [
        inode(&story.place.path("www/failover.json")),
        inode(&story.place.path("www/uptime.json")),
    ];
    assert_eq!(before, after, "nothing has happened");

    // A person's choice is on the page at once.
    assert_eq!(story.place.run(&["switch", "names", "fi.example.org=de"]).code, 0);
    let shown = story.shown("failover.json");
    assert_eq!(shown[FI]["address"], "127.0.0.46");
    assert_eq!(shown[FI]["why"], "temporarily through FRA: a person left it so: resume it");
    assert_eq!(shown[FI]["temporary"], true);
    story.native.die();
    story.place.step();
    assert_eq!(story.shown("uptime.json")["fi"]["uptime_percent"], 83.33);

    // A policy that is invalid goes on as it was, and is shown so.
    let good = fs::read_to_string(story.place.path("policies/names.json")).unwrap();
    fs::write(story.place.path("policies/names.json"), "{").unwrap();
    story.place.step();
    assert_eq!(story.shown("failover.json")[FI]["address"], "127.0.0.46");
    // One that is gone is gone from the page.
    fs::remove_file(story.place.path("policies/names.json")).unwrap();
    story.site(
        "other",
        &serde_json::from_str(&good.replace("fi.example.org\"", "two.example.org\"")).unwrap(),
    );
    story.place.run(&["step", "other"]);
    let hosts: Vec<String> =
        story.shown("failover.json").as_object().unwrap().keys().cloned().collect();
    assert_eq!(hosts, ["two.example.org"]);
    assert_eq!(story.server.sees(FI).len(), 1);
}

#[test]
fn a_policy_that_never_was_valid_is_told_where_there_is_no_other() {
    let place = Place::new();
    fs::create_dir(place.path("www")).unwrap();
    let site = json!({ "kind": "site", "page": place.path("www/index.html"),
                       "publish_dir": place.path("www"), "textfile_dir": place.path("www") });
    fs::write(place.path("policies/site.json"), site.to_string()).unwrap();
    fs::write(place.path("policies/names.json"), "{").unwrap();
    let ran = place.run(&["step"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    let shown = |name: &str| fs::read_to_string(place.path("www").join(name)).unwrap();
    let metrics = shown("egressctl.prom");
    assert!(metrics.contains("egressctl_policy_valid{policy=\"names\"} 0\n"), "{metrics}");
    let page = shown("index.html");
    assert!(page.contains("<header class=\"unknown\">") && page.contains("names.json"), "{page}");
    assert_eq!((shown("failover.json"), shown("uptime.json")), ("{}\n".into(), "{}\n".into()));
}

#[test]
fn publishing_fails_no_step_and_a_site_that_is_wrong_is_told() {
    let story = Story::new();
    story.site("site", &json!({ "kind": "site", "publish_dir": story.place.path("www") }));
    let ran = story.place.step();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stderr.contains("there is no such folder") && ran.stderr.lines().count() == 1,
        "{ran:?}"
    );
    assert_eq!(ran.report()["to"], "NATIVE");
    fs::create_dir(story.place.path("www")).unwrap();
    story.site("site", &json!({ "kind": "site", "publish_dirs": "x" }));
    let ran = story.place.run(&["step", "--now", "--json"]);
    assert_eq!((ran.code, ran.report()["to"].as_str()), (2, Some("NATIVE")), "{ran:?}");
    assert!(ran.stderr.contains("unknown key \"publish_dirs\""), "{ran:?}");
    story.site("site", &json!({ "kind": "site", "publish_dir": story.place.path("www") }));
    story.site("site2", &json!({ "kind": "site" }));
    let ran = story.place.step();
    assert!(ran.code == 2 && ran.stderr.contains("are both of kind site"), "{ran:?}");
    let ran = story.place.run(&["step", "site"]);
    assert!(ran.code == 2 && ran.stderr.contains("it is a site"), "{ran:?}");
    assert_eq!(fs::read_dir(story.place.path("www")).unwrap().count(), 0);
}
