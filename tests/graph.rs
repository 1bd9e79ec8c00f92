//! Pictures of the machines: what the binary prints, as Graphviz, Markdown and a browser read it.

use crate::dns_bench;
use crate::every_kind;

use dns_bench::server::{NameServer, Server};
use dns_bench::{LiveNode, Place, Reference, Serves};
use egressctl::chain::Chain;
use egressctl::dns::Dns;
use egressctl::graph::{Edge, Format, Graph, Place as Stands};
use egressctl::guard::Guard;
use egressctl::machine::Machine;
use egressctl::pool::Pool;
use egressctl::selector::Selector;
use every_kind::all_kinds;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// What a program says to what it is given.
fn filtered(program: &str, args: &[&str], text: &str) -> String {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn all() -> Vec<(&'static str, Vec<Edge>)> {
    vec![
        ("pool", Pool::edges()),
        ("selector", Selector::edges()),
        ("guard", Guard::edges()),
        ("dns", Dns::edges()),
        ("chain", Chain::edges()),
    ]
}

/// Every code that the program's source has for a kind.
fn codes(kind: &str) -> BTreeSet<String> {
    let file = format!("{}/src/{kind}/reason.rs", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(file).unwrap();
    let (_, rest) = source.split_once("pub fn code(&self)").unwrap();
    let (body, _) = rest.split_once("\n    }\n").unwrap();
    body.lines().filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

#[test]
fn each_transition_is_in_its_table_once_and_is_told_by_reasons_that_the_kind_knows() {
    for (kind, edges) in all() {
        let known = codes(kind);
        let mut seen = BTreeSet::new();
        for edge in &edges {
            assert!(seen.insert((edge.from, edge.to)), "{kind}: {edge:?} is there twice");
            assert!(!edge.codes.is_empty() && edge.from != Some(edge.to), "{kind}: {edge:?}");
            for code in edge.codes {
                assert!(known.contains(*code) || *code == "resume", "{kind} never says {code}");
            }
        }
        assert!(edges.len() > 10 && edges.iter().any(|edge| edge.from.is_none()), "{kind}");
    }
}

#[test]
fn every_picture_has_every_state_and_transition_and_is_read_by_who_reads_such() {
    let place = Place::new();
    for (kind, edges) in all() {
        let ran = place.run(&["graph", kind]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stdout.starts_with("stateDiagram-v2\n"), "{}", ran.stdout);
        for edge in &edges {
            let from = edge.from.unwrap_or("[*]");
            let line = format!("    {from} --> {}: {}\n", edge.to, edge.codes.join(", "));
            assert!(ran.stdout.contains(&line), "{line}{}", ran.stdout);
        }
        assert_eq!(ran.stdout.matches("-->").count(), edges.len(), "and no other");

        let dot = place.run(&["graph", kind, "--format", "dot"]).stdout;
        let plain = filtered("dot", &["-Tplain"], &dot);
        let drawn = plain.lines().filter(|line| line.starts_with("edge ")).count();
        assert_eq!(drawn, edges.len(), "{plain}");

        let svg = place.run(&["graph", kind, "--format", "svg"]).stdout;
        let count = "import sys,xml.etree.ElementTree as e;print(len(e.fromstring(sys.stdin.read()).findall('{*}circle')))";
        assert_eq!(filtered("python3", &["-c", count], &svg).trim(), edges.len().to_string());
        for word in ["<script", "href", "url("] {
            assert!(!svg.contains(word), "{word}");
        }
    }
    let ran = place.run(&["graph", "nothing"]);
    assert!(ran.code == 2 && ran.stderr.contains("nothing.json"), "{ran:?}");
}

#[test]
fn names_of_parts_do_nothing_to_a_picture() {
    let evil = "a\"]; b [label=\"<script>&\\:x;\u{1b}[2J\"";
    let part = |part: Option<&str>, state: &str| Stands {
        part: part.map(str::to_owned),
        state: state.to_owned(),
    };
    let places = vec![part(Some(evil), "FALLBACK"), part(Some("two"), "FALLBACK")];
    let graph = Graph { title: "x".to_owned(), edges: Dns::edges(), places };
    let dot = graph.draw(Format::Dot);
    let plain = filtered("dot", &["-Tplain"], &dot);
    // Where it begins, and the states.
    assert_eq!(
        plain.lines().filter(|line| line.starts_with("node ")).count(),
        1 + graph.states().len()
    );
    let said = "\"FALLBACK\\na\\\"]; b [label=\\\"<script>&\\\\:x;\u{fffd}[2J\\\"\\ntwo\"";
    assert!(dot.contains(said), "each part is on a line of its own, with its own quotes: {dot}");
    let svg = graph.draw(Format::Svg);
    let text = "import sys,xml.etree.ElementTree as e;print(len(e.fromstring(sys.stdin.read()).findall('{*}script')))";
    assert_eq!(filtered("python3", &["-c", text], &svg).trim(), "0");
    let mermaid = graph.draw(Format::Mermaid);
    let note = mermaid.lines().find(|line| line.contains("note right of FALLBACK")).unwrap();
    assert_eq!(note.matches(':').count(), 1, "{note}");
    assert!(!mermaid.contains('\u{1b}') && !svg.contains('\u{1b}') && !dot.contains('\u{1b}'));
}

#[test]
fn of_every_kind_the_state_in_which_each_part_stands_is_marked_and_no_other() {
    let stands: [(&str, &[(&str, &str)]); 5] = [
        ("pool", &[("", "LOCAL_REPAIR")]),
        ("selector", &[("", "ON_RESERVE")]),
        ("guard", &[("", "OBSERVING")]),
        ("chain", &[("entry", "PREFERRED"), ("exit", "BACKUP")]),
        ("dns", &[("fi.example.org", "FALLBACK")]),
    ];
    let all = all_kinds();
    assert_eq!(all.len(), stands.len());
    for (shown, (kind, stands)) in all.iter().zip(stands) {
        let graph = &shown.graph;
        let (mermaid, dot, svg) =
            (graph.draw(Format::Mermaid), graph.draw(Format::Dot), graph.draw(Format::Svg));
        assert_eq!(graph.title, kind);
        assert_eq!(mermaid.matches("    class ").count(), stands.len(), "{mermaid}");
        assert_eq!(dot.matches("fillcolor=\"#2563eb\"").count(), stands.len(), "{dot}");
        assert_eq!(svg.matches("class=\"card here\"").count(), stands.len(), "{svg}");
        for (part, state) in stands {
            assert!(mermaid.contains(&format!("    class {state} here\n")), "{mermaid}");
            let label = if part.is_empty() {
                (*state).to_owned()
            } else {
                let note = format!("    note right of {state} : {part}\n");
                assert!(mermaid.contains(&note), "{mermaid}");
                format!("{state}\\n{part}")
            };
            let mark = format!("    \"{state}\" [label=\"{label}\", fillcolor=\"#2563eb\"");
            assert!(dot.contains(&mark), "{mark}: {dot}");
            let who = if part.is_empty() { "here" } else { part };
            assert!(svg.contains(&format!(">{state}  \u{25cf} {who}</text>")), "{svg}");
        }
    }
}

#[test]
fn of_a_policy_the_state_of_each_host_is_marked() {
    let (place, server, reference) =
        (Place::new(), NameServer::new(Server::Knot), Reference::new());
    let native = LiveNode::new(51, 0, Serves::Tcp);
    let check = json!({ "tcp": { "port": native.port } });
    place.write(&json!({
        "kind": "dns",
        "driver": { "rfc2136": { "server": server.at().to_string(), "zone": "example.org",
                                 "key_file": server.folder.path().join("key") } },
        "nodes": { "fi": { "address": "127.0.0.41", "check": check }, "de": { "address": "127.0.0.51", "check": check } },
        "hosts": { "fi.example.org": { "native": "fi", "fallbacks": ["de"], "ttl": 60 } },
        "reference": { "urls": [reference.url()] },
        "params": { "check_interval_sec": 0, "fall": 3 },
    }));
    let before = place.run(&["graph", "names"]);
    assert!(before.code == 0 && !before.stdout.contains("class "), "never stepped: {before:?}");
    let to = place.step().report()["to"].as_str().unwrap().to_owned();
    let shown = place.run(&["graph", "names"]).stdout;
    assert!(shown.contains("%% names (dns)"), "{shown}");
    assert!(shown.contains(&format!("class {to} here")), "{to}: {shown}");
    assert!(shown.contains(&format!("note right of {to} : fi.example.org")), "{shown}");
    let svg = place.run(&["graph", "names", "--format", "svg"]).stdout;
    assert!(svg.contains(&format!("{to}  \u{25cf} fi.example.org")), "{svg}");
    let dot = place.run(&["graph", "names", "--format", "dot"]).stdout;
    assert!(dot.contains(&format!("\"{to}\" [label=\"{to}\\nfi.example.org\"")), "{dot}");
}
