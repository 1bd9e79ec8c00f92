//! A step that says why, its bundle, and the page, by the real binary at a real name server.

use crate::dns_bench;

use dns_bench::server::{NameServer, SECRET, Server};
use dns_bench::{LiveNode, Place, Reference, Serves};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

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
        let fallback = LiveNode::new(47, native.port, Serves::Tcp);
        let reference = Reference::new();
        let check = json!({ "tcp": { "port": native.port } });
        place.write(&json!({
            "kind": "dns",
            "driver": { "rfc2136": { "server": server.at().to_string(), "zone": "example.org",
                                     "key_file": server.folder.path().join("key") } },
            "nodes": { "fi": { "address": "127.0.0.41", "label": "HEL", "check": check },
                       "de": { "address": "127.0.0.47", "label": "<b>FRA</b>", "check": check } },
            "hosts": { "fi.example.org": { "native": "fi", "fallbacks": ["de"], "ttl": 60 } },
            "reference": { "urls": [reference.url()] },
            "params": { "check_interval_sec": 0, "fall": 1, "minimum_stay_sec": 600 },
        }));
        Self { place, server, native, _fallback: fallback, _reference: reference }
    }
}

#[test]
fn a_recorded_step_is_decided_again_elsewhere_and_holds_no_secret() {
    let mut story = Story::new();
    story.place.step();
    story.native.die();
    let file = story.place.path("why.json");
    let shown = file.display().to_string();
    let ran = story.place.run(&["step", "names", "--now", "--record", &shown, "--explain"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("names: NATIVE -> FALLBACK: "), "{ran:?}");
    let seen = lines.iter().find(|line| line.starts_with("  seen  node 127.0.0.41 ")).unwrap();
    assert!(seen.contains("failed: "), "{seen}");
    assert!(lines.contains(&"  rule  NATIVE -> FALLBACK: moved-away"), "{ran:?}");
    assert!(
        lines.last().unwrap().starts_with("  do    set fi.example.org in zone example.org"),
        "{ran:?}"
    );

    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!text.contains(SECRET), "the key of the zone is in it");
    assert_eq!(text.lines().count(), 1);

    // Elsewhere: no policy, no state, no name server.
    let elsewhere = Place::new();
    drop(story);
    fs::write(elsewhere.path("why.json"), &text).unwrap();
    let bundle = elsewhere.path("why.json").display().to_string();
    let ran = elsewhere.run(&["replay", &bundle]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    for said in [
        "names: NATIVE -> FALLBACK\n",
        "  rule  NATIVE -> FALLBACK: moved-away\n",
        "  do    set fi.example.org in zone example.org",
        "the decision is the recorded one\n",
        "what became of it then: names: NATIVE -> FALLBACK: ",
    ] {
        assert!(ran.stdout.contains(said), "{said}: {}", ran.stdout);
    }

    let tampered = text.replace("\"to\":\"FALLBACK\"", "\"to\":\"STRANDED\"");
    assert_ne!(tampered, text);
    fs::write(elsewhere.path("why.json"), tampered).unwrap();
    let ran = elsewhere.run(&["replay", &elsewhere.path("why.json").display().to_string()]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stdout.contains("  to: recorded \"STRANDED\", decided now \"FALLBACK\""),
        "{ran:?}"
    );
    let ran = elsewhere.run(&["replay", "nothing.json"]);
    assert!(ran.code == 2 && ran.stderr.contains("nothing.json cannot be read"), "{ran:?}");
}

#[test]
fn a_secret_that_stands_where_none_should_is_blank_and_the_decision_is_the_same() {
    let story = Story::new();
    let file = story.place.path("policies/names.json");
    let mut policy: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    policy["description"] = json!(format!("somebody wrote {SECRET} here"));
    policy["nodes"]["de"]["label"] = json!(SECRET);
    fs::write(&file, policy.to_string()).unwrap();
    let bundle = story.place.path("why.json").display().to_string();
    let ran = story.place.run(&["step", "--now", "--record", &bundle]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let text = fs::read_to_string(&bundle).unwrap();
    assert!(!text.contains(SECRET) && text.contains("somebody wrote BLANKED here"), "{text}");
    let ran = story.place.run(&["replay", &bundle]);
    assert!(ran.code == 0 && ran.stdout.contains("is the recorded one"), "{ran:?}");
}

#[test]
fn a_plan_explains_where_that_is_asked_for() {
    let mut story = Story::new();
    story.place.step();
    story.native.die();
    let plain = story.place.run(&["plan", "names", "--json"]).report();
    assert!(plain.get("explain").is_none(), "{plain}");
    let explained =
        story.place.run(&["plan", "names", "--json", "--explain"]).report()["explain"].clone();
    assert_eq!(explained["transition"], "NATIVE -> FALLBACK");
    assert_eq!(explained["rule"], json!(["moved-away"]));
    let told = explained["evidence"].to_string();
    assert!(told.contains("node 127.0.0.41") && told.contains("node 127.0.0.47"), "{told}");
    assert!(explained["commands"][0].as_str().unwrap().starts_with("set fi.example.org"));
    let ran = story.place.run(&["plan", "names", "--explain"]);
    assert!(ran.stdout.contains("\n  rule  NATIVE -> FALLBACK: moved-away\n"), "{}", ran.stdout);
    let ran = story.place.run(&["step", "names", "--now", "--json", "--explain"]);
    assert_eq!(ran.report()["explain"]["transition"], "NATIVE -> FALLBACK", "{ran:?}");
    let history = story.place.run(&["history", "names", "--json"]).stdout;
    assert!(!history.contains("evidence"), "history is short: {history}");
    assert_eq!(story.server.sees("fi.example.org").len(), 1);
}

#[test]
fn a_step_writes_the_page_and_what_goes_wrong_with_it_fails_nothing() {
    let mut story = Story::new();
    let page = story.place.path("www/index.html");
    let site = json!({ "kind": "site", "page": &page });
    fs::write(story.place.path("policies/site.json"), site.to_string()).unwrap();
    let ran = story.place.step();
    assert_eq!((ran.code, ran.report()["to"].as_str()), (0, Some("NATIVE")), "{ran:?}");
    assert!(
        ran.stderr.contains("there is no folder") && ran.stderr.lines().count() == 1,
        "{ran:?}"
    );
    fs::create_dir(story.place.path("www")).unwrap();
    let ran = story.place.step();
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert_eq!(fs::metadata(&page).unwrap().permissions().mode() & 0o777, 0o644);
    let shown = fs::read_to_string(&page).unwrap();
    assert!(
        shown.contains("Everything is as wished") && shown.contains("<span>100 %</span>"),
        "{shown}"
    );
    story.native.die();
    story.place.step();
    let shown = fs::read_to_string(&page).unwrap();
    for said in [
        "fi.example.org temporarily through &#60;b&#62;FRA&#60;/b&#62;",
        "NATIVE -&#62; FALLBACK",
        "Everyone is served, not all is as wished",
    ] {
        assert!(shown.contains(said), "{said}: {shown}");
    }
    assert!(!shown.contains("<b>FRA"), "{shown}");
    assert_eq!(
        fs::read_dir(story.place.path("www")).unwrap().count(),
        1,
        "nothing else is left there"
    );
    let day = fs::read_to_string(story.place.path("state/names/day.json")).unwrap();
    assert!(day.contains("\"node fi\"") && day.len() < 1_000, "{day}");
    // One who cannot be shown is said, and the others are shown.
    fs::write(story.place.path("policies/other.json"), "{").unwrap();
    story.place.step();
    let shown = fs::read_to_string(&page).unwrap();
    assert!(shown.contains("other.json") && shown.contains("id=\"names\""), "{shown}");
}
