//! The program with a policy of kind chain and driver gost, against a gost that behaves as documented.

use crate::fake_core;
use crate::fake_gost;
use crate::ran;

use fake_core::proxy::{FakeProxy, Way};
use fake_gost::{FakeGost, Fault, Gost};
use ran::{Run, went};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const SECRET: &str = "operator:hunter2";
/// The same in base64.
const BASIC: &str = "Basic b3BlcmF0b3I6aHVudGVyMg==";

const PREFERRED: &str = "entry PREFERRED, exit PREFERRED steady";

/// A gost of two hops whose nodes a test has in hand.
struct Bench {
    folder: TempDir,
    gost: FakeGost,
    /// Nodes that forward nothing though they take connections, so that gost does not pass over them.
    dead: Arc<Mutex<BTreeSet<&'static str>>>,
    _service: FakeProxy,
    _uplink: FakeProxy,
}

impl Bench {
    fn gost() -> Gost {
        let hop = |name: &str, nodes: [&str; 2]| {
            let node = |node: &str| {
                json!({ "name": node, "addr": "192.0.2.1:8443",
                "connector": { "type": "relay", "metadata": { "nodelay": true } }, "dialer": { "type": "tls" } })
            };
            json!({ "name": name, "selector": { "strategy": "fifo", "maxFails": 1, "failTimeout": 600_000_000_000_u64 },
                    "nodes": nodes.map(node) })
        };
        let service = json!({
            "name": "local", "addr": "127.0.0.1:1080",
            "handler": { "type": "socks5", "chain": "out", "retries": 2 }, "listener": { "type": "tcp" },
            "metadata": { "interface": "vpn1" }, "status": { "state": "ready", "createTime": 7 }
        });
        let other = json!({ "name": "other", "addr": ":80", "handler": { "type": "tcp" }, "listener": { "type": "tcp" } });
        Gost {
            authorization: BASIC.to_owned(),
            chains: [(
                "out".to_owned(),
                json!({ "name": "out", "hops": [{ "name": "entry" }, { "name": "exit" }] }),
            )]
            .into(),
            hops: [("entry", ["a1", "a2"]), ("exit", ["b1", "b2"])]
                .map(|(name, nodes)| (name.to_owned(), hop(name, nodes)))
                .into(),
            services: [("local".to_owned(), service), ("other".to_owned(), other)].into(),
            fault: None,
            asked: Vec::new(),
        }
    }

    fn with(gost: Gost, change: impl FnOnce(&mut Value)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let gost = FakeGost::start(gost);
        let dead: Arc<Mutex<BTreeSet<&'static str>>> = Arc::default();
        let (shared, nodes) = (gost.shared(), Arc::clone(&dead));
        let service = FakeProxy::deciding(move |told| {
            let gost = shared.lock().unwrap();
            let dead = nodes.lock().unwrap();
            let passes =
                ["entry", "exit"].iter().all(|hop| !dead.contains(gost.first(hop).as_str()));
            if passes { told } else { Way::Portal }
        });
        let uplink = FakeProxy::start();
        uplink.answers(Way::Refuses);
        std::fs::write(folder.path().join("credentials"), format!("{SECRET}\n")).unwrap();
        let mut policy = json!({
            "kind": "chain",
            "driver": { "gost": {
                "url": gost.url(), "credentials_file": folder.path().join("credentials"),
                "chain": "out", "proxy": service.url(), "pin": { "interface": "vpn1" }
            } },
            "hops": [
                { "name": "entry", "nodes": { "a1": {}, "a2": {} } },
                { "name": "exit", "nodes": { "b1": {}, "b2": {} } },
            ],
            "probe": { "urls": ["http://probe.example/generate_204"], "timeout_sec": 2 },
            "wan": { "urls": [uplink.url()] },
            "params": { "check_interval_sec": 0, "minimum_stay_sec": 0, "fail_timeout_sec": 1 }
        });
        change(&mut policy);
        std::fs::create_dir(folder.path().join("policies")).unwrap();
        std::fs::write(folder.path().join("policies/path.json"), policy.to_string()).unwrap();
        Self { folder, gost, dead, _service: service, _uplink: uplink }
    }

    fn new() -> Self {
        Self::with(Self::gost(), |_| {})
    }

    fn dies(&self, nodes: &[&'static str]) {
        *self.dead.lock().unwrap() = nodes.iter().copied().collect();
    }

    fn run(&self, args: &[&str]) -> Run {
        let run = Run::here(self.folder.path(), args);
        for told in [&run.out, &run.err] {
            assert!(!told.contains("hunter2") && !told.contains("b3BlcmF0b3I6"), "{told}");
        }
        run
    }

    fn step(&self) -> (i32, String, String) {
        self.run(&["step", "path", "--json"]).stands()
    }

    fn firsts(&self) -> [String; 2] {
        let gost = self.gost.gost();
        ["entry", "exit"].map(|hop| gost.first(hop))
    }

    /// What was written, in order.
    fn writes(&self) -> Vec<String> {
        let gost = self.gost.gost();
        let verbs = gost.asked.iter().map(|(verb, _)| verb.clone());
        verbs.filter(|verb| !verb.starts_with("GET ")).collect()
    }
}

#[test]
fn a_node_that_forwards_nothing_is_put_behind_the_others_and_nothing_else_is_written() {
    let bench = Bench::new();
    let before = bench.gost.gost().hops.clone();
    assert_eq!(bench.step(), went(0, PREFERRED, "all-well"));
    bench.dies(&["b1"]);
    assert_eq!(bench.step(), went(0, "entry PREFERRED, exit BACKUP applied", "replaced"));
    assert_eq!(bench.firsts(), ["a1", "b2"]);
    let writes = bench.writes();
    let hops = |line: &String| line.starts_with("PUT /config/hops/");
    assert!(!writes.is_empty() && writes.iter().all(hops), "no chain is ever written: {writes:?}");
    {
        let gost = bench.gost.gost();
        assert_eq!(gost.hops["entry"], before["entry"], "the other hop is as it was");
        assert_eq!(gost.hops["exit"]["selector"], before["exit"]["selector"]);
        assert_eq!(gost.hops["exit"]["nodes"].as_array().unwrap().len(), 2, "never an empty hop");
        let (_, body) = gost.asked.iter().rev().find(|(verb, _)| verb.starts_with("PUT")).unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["selector"]["failTimeout"], 600_000_000_000_u64, "whole nanoseconds");
    }
    let status = bench.run(&["status", "path", "--json"]);
    assert_eq!((status.code, &status.report()["hops"][1]["node"]), (1, &json!("b2")));
    bench.dies(&[]);
    let begun = std::time::Instant::now();
    while bench.step() != went(0, "entry PREFERRED, exit PREFERRED applied", "returned") {
        assert!(begun.elapsed().as_secs() < 20, "{:?}", bench.firsts());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(bench.firsts(), ["a1", "b1"]);
}

#[test]
fn two_dead_nodes_are_found_by_pairs_and_all_dead_close_every_hop() {
    let bench = Bench::new();
    bench.step();
    bench.dies(&["a1", "b1"]);
    assert_eq!(
        bench.step(),
        went(3, "entry PREFERRED, exit PREFERRED rolled-back", "not-finished")
    );
    assert_eq!(bench.firsts(), ["a1", "b1"], "as it was");
    assert_eq!(bench.step(), went(0, "entry BACKUP, exit BACKUP applied", "replaced"));
    assert_eq!(bench.firsts(), ["a2", "b2"]);
    bench.dies(&["a1", "a2", "b1", "b2"]);
    let mut last = bench.step();
    for _ in 0..2 {
        last = bench.step();
    }
    assert!(last.1.starts_with("entry CLOSED, exit CLOSED"), "{last:?}");
    assert_eq!(bench.run(&["status", "path"]).code, 2);
    bench.dies(&["a1", "b1"]);
    assert_eq!((bench.step().0, bench.firsts()), (0, ["a2", "b2"].map(str::to_owned)));
    assert_eq!(bench.run(&["status", "path"]).code, 1, "what stands passes again");
}

#[test]
fn what_would_let_a_client_out_directly_is_refused_and_nothing_is_written() {
    type Change = fn(&mut Gost);
    let cases: [(Change, &str); 9] = [
        (|gost| gost.chains.clear(), "there is no chain out"),
        (|gost| drop(gost.hops.remove("exit")), "there is no hop exit"),
        (|gost| gost.hops.get_mut("exit").unwrap()["nodes"] = json!([]), "hop exit has no nodes"),
        (
            |gost| gost.hops.get_mut("exit").unwrap()["selector"] = json!({}),
            "set selector.strategy to fifo",
        ),
        (
            |gost| gost.services.get_mut("local").unwrap()["metadata"] = json!({}),
            "service local is not pinned",
        ),
        (
            |gost| {
                gost.services.get_mut("local").unwrap()["metadata"] =
                    json!({ "interface": "eth0" });
            },
            "service local is not pinned",
        ),
        (|gost| drop(gost.services.remove("local")), "no service goes out by chain out"),
        (
            |gost| {
                let exit = gost.hops["exit"].clone();
                gost.chains.get_mut("out").unwrap()["hops"][1] = exit;
            },
            "is written inside chain out",
        ),
        (
            |gost| gost.authorization = "Basic other".to_owned(),
            "its user or password is another one",
        ),
    ];
    for (change, told) in cases {
        let bench = Bench::new();
        bench.step();
        bench.dies(&["b1"]);
        change(&mut bench.gost.gost());
        let run = bench.run(&["step", "path", "--json"]);
        let (code, _, reason) = run.stands();
        assert_eq!((code, reason.as_str()), (1, "core-unusable"), "{run:?}");
        assert!(run.out.contains(told), "{told}: {run:?}");
        assert_eq!(bench.writes(), [""; 0]);
    }
}

#[test]
fn a_mark_pins_as_well_as_a_device() {
    let mut gost = Bench::gost();
    gost.services.get_mut("local").unwrap()["metadata"] = json!({ "so_mark": 119 });
    let bench =
        Bench::with(gost, |policy| policy["driver"]["gost"]["pin"] = json!({ "mark": 119 }));
    assert_eq!(bench.step(), went(0, PREFERRED, "all-well"));
}

#[test]
fn what_gost_stored_otherwise_than_it_was_told_is_put_back() {
    let bench = Bench::new();
    bench.step();
    bench.dies(&["b1"]);
    let before = bench.gost.gost().hops.clone();
    for fault in [Fault::Ignores, Fault::Refuses(500, "create failed")] {
        bench.gost.gost().fault = Some(fault);
        let run = bench.run(&["step", "path", "--json"]);
        assert!(run.code == 3 && run.out.contains("\"refused\""), "{run:?}");
        assert_eq!(bench.gost.gost().hops, before);
    }
    bench.gost.gost().fault = Some(Fault::LosesOnce("selector"));
    let run = bench.run(&["step", "path", "--json"]);
    assert_eq!(bench.gost.gost().hops["entry"]["selector"], before["entry"]["selector"], "{run:?}");
    assert_eq!(bench.gost.gost().hops["exit"]["selector"], before["exit"]["selector"], "{run:?}");
}

#[test]
fn a_write_that_nobody_can_tell_is_taken_back_by_the_next_run() {
    let mut bench = Bench::new();
    bench.step();
    bench.dies(&["a1"]);
    bench.gost.gost().fault = Some(Fault::DiesAtWrites);
    assert_eq!(bench.step().0, 4);
    assert_eq!(bench.firsts(), ["a2", "b1"], "it was stored");
    bench.gost.gost().fault = None;
    bench.gost.down();
    bench.gost.up();
    assert_eq!(bench.step().0, 5);
    assert_eq!(bench.firsts(), ["a1", "b1"]);
    assert_eq!(bench.step(), went(0, "entry BACKUP, exit PREFERRED applied", "replaced"));
}

#[test]
fn a_time_in_words_is_never_sent_where_gost_would_read_it_as_none() {
    let mut gost = Bench::gost();
    gost.hops.get_mut("exit").unwrap()["selector"]["failTimeout"] = json!("600s");
    gost.hops.get_mut("entry").unwrap()["selector"]["failTimeout"] = json!("600s");
    let bench = Bench::with(gost, |_| {});
    bench.step();
    bench.dies(&["b1"]);
    let run = bench.run(&["step", "path", "--json"]);
    assert!(run.out.contains("no whole number of nanoseconds"), "{run:?}");
    assert_eq!(bench.writes(), [""; 0]);
}

#[test]
fn services_try_again_once_for_each_other_node_and_not_at_all_for_single_ones() {
    let mut gost = Bench::gost();
    gost.services.get_mut("local").unwrap()["handler"]["retries"] = json!(0);
    let bench = Bench::with(gost, |_| {});
    assert_eq!(bench.step(), went(0, "entry PREFERRED, exit PREFERRED applied", "retries"));
    {
        let gost = bench.gost.gost();
        let local = &gost.services["local"];
        assert_eq!(
            (&local["handler"]["retries"], &local["metadata"]["interface"]),
            (&json!(2), &json!("vpn1"))
        );
        assert!(local.get("status").is_none(), "what gost only tells is not written");
    }
    assert_eq!(bench.step(), went(0, PREFERRED, "all-well"));
    assert_eq!(bench.writes(), ["PUT /config/services/local"], "once");
    let single = Bench::with(Bench::gost(), |policy| {
        policy["hops"] = json!([
            { "name": "entry", "nodes": { "a1": {} } }, { "name": "exit", "nodes": { "b1": {} } },
        ]);
    });
    assert_eq!(single.step().2, "retries");
    assert_eq!(single.gost.gost().services["local"]["handler"]["retries"], 0);
    let bench = Bench::new();
    bench.gost.gost().services.get_mut("local").unwrap()["handler"]["retries"] = json!(7);
    bench.gost.gost().fault = Some(Fault::Loses("metadata"));
    let run = bench.run(&["step", "path", "--json"]);
    assert!(run.code == 4 && run.out.contains("it could not be put back"), "{run:?}");
    assert_eq!(bench.step().0, 5, "the journal has nothing more to put back");
    assert_eq!(
        bench.step(),
        went(1, PREFERRED.replace("steady", "failed").as_str(), "core-unusable")
    );
}

#[test]
fn an_order_that_somebody_else_chose_stands_and_one_that_a_restart_forgot_is_made_again() {
    let mut bench = Bench::new();
    bench.step();
    bench.gost.gost().select("exit", "b2");
    assert_eq!(bench.step().1, "entry PREFERRED, exit BACKUP steady");
    bench.dies(&["b2"]);
    for _ in 0..4 {
        bench.step();
    }
    assert_eq!(bench.firsts()[1], "b2", "never tried out");
    assert_eq!(bench.run(&["resume", "path", "exit"]).code, 0);
    bench.gost.down();
    assert_eq!(bench.step().2, "core-down");
    bench.gost.up();
    let begun = std::time::Instant::now();
    while bench.firsts()[1] != "b1" {
        assert!(begun.elapsed().as_secs() < 20);
        bench.step();
    }
}

#[test]
fn a_gost_that_hangs_is_waited_for_and_the_uplink_is_asked_before_anybody_is_blamed() {
    let bench = Bench::new();
    bench.step();
    bench.gost.gost().fault = Some(Fault::Hangs);
    assert_eq!(bench.step(), went(0, PREFERRED, "core-down"));
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    drop(silent);
    let bench = Bench::with(Bench::gost(), |policy| policy["wan"]["urls"] = json!([url]));
    bench.step();
    bench.dies(&["a1"]);
    for _ in 0..2 {
        assert_eq!(bench.step(), went(0, PREFERRED, "offline"));
    }
    assert_eq!(bench.writes(), [""; 0]);
}
