//! The program with a policy of kind chain, against a core that behaves as told.

use crate::fake_core;
use crate::ran;

use fake_core::proxy::{FakeProxy, Way};
use fake_core::{Core, FakeCore, Fault};
use ran::{Run, went};
use serde_json::{Value, json};
use tempfile::TempDir;

const ENTRY: &str = "entry 🌍/1";
const EXIT: &str = "exit";
const NODES: [&str; 4] = ["a/1", "a 2", "b1", "b2"];

/// A policy on loopback without waits, whose core a test has in hand.
struct Bench {
    folder: TempDir,
    core: FakeCore,
    _uplink: FakeProxy,
}

impl Bench {
    fn with(change: impl FnOnce(&mut Value)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut core = Core::sing_box(ENTRY, &NODES[..2]);
        let all: Vec<String> = NODES[2..].iter().map(|name| (*name).to_owned()).collect();
        core.groups.insert(EXIT.to_owned(), (all.clone(), all[0].clone()));
        for member in NODES {
            core.odd.insert(member.to_owned(), json!({ "type": "Shadowsocks", "name": member }));
            core.delays.insert(member.to_owned(), 20);
        }
        core.detours = all.into_iter().map(|member| (member, ENTRY.to_owned())).collect();
        let core = FakeCore::start(core);
        // Whatever answers shows that the uplink works, be it a refusal.
        let uplink = FakeProxy::start();
        uplink.answers(Way::Refuses);
        let mut policy = json!({
            "kind": "chain",
            "driver": { "clash": { "url": core.url() } },
            "hops": [
                { "name": "entry", "group": ENTRY, "nodes": { "a1": { "member": NODES[0] }, "a2": { "member": NODES[1] } } },
                { "name": EXIT, "nodes": { "b1": {}, "b2": {} } },
            ],
            "probe": { "urls": ["https://probe.example/generate_204"], "timeout_sec": 1 },
            "wan": { "urls": [uplink.url()] },
            "params": { "check_interval_sec": 0, "minimum_stay_sec": 0, "fail_timeout_sec": 1 }
        });
        change(&mut policy);
        std::fs::create_dir(folder.path().join("policies")).unwrap();
        std::fs::write(folder.path().join("policies/path.json"), policy.to_string()).unwrap();
        Self { folder, core, _uplink: uplink }
    }

    fn new() -> Self {
        Self::with(|_| {})
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::here(self.folder.path(), args)
    }

    fn step(&self) -> (i32, String, String) {
        self.run(&["step", "path", "--json"]).stands()
    }

    fn status(&self) -> (i32, Value) {
        let run = self.run(&["status", "path", "--json"]);
        (run.code, run.report())
    }

    fn dies(&self, members: &[&str]) {
        let mut core = self.core.core();
        for member in NODES {
            if members.contains(&member) {
                core.delays.remove(member);
            } else {
                core.delays.insert(member.to_owned(), 20);
            }
        }
    }

    fn selected(&self) -> (String, String) {
        let core = self.core.core();
        (core.now(ENTRY), core.now(EXIT))
    }

    /// The selections that the core was asked to make.
    fn selections(&self) -> Vec<String> {
        let asked = self.core.core().asked.clone();
        asked.into_iter().filter(|line| line.starts_with("PUT")).collect()
    }
}

fn both(entry: &str, exit: &str) -> (String, String) {
    (entry.to_owned(), exit.to_owned())
}

#[test]
fn a_dead_node_is_replaced_alone_and_returned_to() {
    let bench = Bench::new();
    assert_eq!(bench.step(), went(0, "entry PREFERRED, exit PREFERRED steady", "all-well"));
    assert_eq!(bench.status().0, 0);
    bench.dies(&["b1"]);
    assert_eq!(bench.step(), went(0, "entry PREFERRED, exit BACKUP applied", "replaced"));
    assert_eq!(bench.selected(), both("a/1", "b2"));
    assert_eq!(
        bench.selections(),
        ["PUT /proxies/exit {\"name\":\"b2\"}"],
        "no other hop is touched"
    );
    let (code, status) = bench.status();
    assert_eq!((code, &status["path"]["health"]), (1, &json!("healthy")));
    let exit = &status["hops"][1];
    assert_eq!((&exit["node"], &exit["preferred"]), (&json!("b2"), &json!("b1")));
    assert_eq!(exit["nodes"][0]["health"], "failed");
    let text = bench.run(&["status", "path"]).out;
    assert!(text.starts_with("path (chain)  entry PREFERRED, exit BACKUP since "), "{text}");
    assert!(text.contains("whole path healthy in 40 ms"), "{text}");
    assert!(text.contains("* b2  healthy"), "{text}");
    bench.dies(&[]);
    // The mark of a second, two tests, and the way back.
    let begun = std::time::Instant::now();
    while bench.step() != went(0, "entry PREFERRED, exit PREFERRED applied", "returned") {
        assert!(begun.elapsed().as_secs() < 20, "{:?}", bench.status());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(bench.selected(), both("a/1", "b1"));
    let history = bench.run(&["history", "path", "--json"]).out;
    assert!(history.contains("\"replaced\"") && history.contains("\"returned\""), "{history}");
}

#[test]
fn a_hop_of_which_no_node_passes_is_closed_and_tried_again_in_every_step() {
    let bench = Bench::new();
    bench.step();
    bench.dies(&["b1", "b2"]);
    for _ in 0..2 {
        assert_eq!(bench.step(), went(3, "entry PREFERRED, exit CLOSED rolled-back", "closed"));
        assert_eq!(bench.selected(), both("a/1", "b1"));
    }
    let (code, status) = bench.status();
    assert_eq!((code, &status["path"]["breaks_at"]), (2, &json!("exit")));
    let text = bench.run(&["status", "path"]).out;
    assert!(text.contains("whole path failed, breaks at exit: no answer through it"), "{text}");
    bench.dies(&["b1"]);
    assert_eq!(bench.step(), went(0, "entry PREFERRED, exit BACKUP applied", "replaced"));
    assert_eq!(bench.status().0, 1);
}

#[test]
fn nothing_is_tried_while_the_uplink_is_down() {
    let bench = Bench::with(|policy| {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        policy["wan"]["urls"] = json!([format!("http://{}/", silent.local_addr().unwrap())]);
    });
    bench.step();
    bench.dies(&NODES);
    for _ in 0..3 {
        assert_eq!(bench.step(), went(0, "entry PREFERRED, exit PREFERRED steady", "offline"));
    }
    assert_eq!((bench.selections().len(), bench.status().0), (0, 2));
}

#[test]
fn a_persons_choice_is_left_alone_until_the_hop_is_resumed() {
    let bench = Bench::new();
    bench.step();
    bench.core.core().select(EXIT, "b2");
    assert_eq!(bench.step().0, 0);
    bench.dies(&["b2"]);
    assert_eq!(bench.step(), went(0, "entry PREFERRED, exit CLOSED steady", "closed"));
    assert_eq!((bench.selections().len(), bench.status().0), (0, 2));
    assert_eq!(bench.status().1["hops"][1]["paused"], "chosen");
    assert_eq!(bench.run(&["resume", "path", "exit"]).code, 0);
    assert_eq!(bench.step(), went(0, "entry PREFERRED, exit PREFERRED applied", "replaced"));
    assert_eq!(bench.selected(), both("a/1", "b1"));
    assert_eq!(bench.run(&["switch", "path", "exit=b2"]).code, 2, "it does not pass");
    assert_eq!(bench.run(&["switch", "path", "exit=b2", "--force"]).code, 0);
    assert_eq!(bench.selected(), both("a/1", "b2"));
    assert_eq!(bench.run(&["switch", "path", "entry=a2"]).code, 0);
    assert_eq!(bench.selected(), both("a 2", "b2"));
    assert_eq!(bench.run(&["switch", "path", "exit=b9", "--force"]).code, 2);
    assert_eq!(bench.run(&["pause", "path", "nowhere"]).code, 2);
}

#[test]
fn what_a_restart_forgot_is_put_in_place_again() {
    let mut bench = Bench::new();
    bench.step();
    bench.dies(&["b1"]);
    bench.step();
    bench.core.down();
    assert_eq!(bench.step(), went(0, "entry PREFERRED, exit BACKUP steady", "core-down"));
    assert_eq!(bench.status().0, 2);
    bench.core.core().restart();
    bench.core.up();
    assert_eq!(bench.selected(), both("a/1", "b1"));
    assert_eq!(bench.step(), went(0, "entry PREFERRED, exit BACKUP applied", "choice-lost"));
    assert_eq!(bench.selected(), both("a/1", "b2"));
}

#[test]
fn a_refused_selection_is_told_and_one_that_nobody_can_tell_is_taken_back() {
    let mut bench = Bench::new();
    bench.step();
    bench.dies(&["b1"]);
    for fault in [Fault::RefusesSelections(400, "Must be a Selector"), Fault::IgnoresSelections] {
        bench.core.core().fault = Some(fault);
        let run = bench.run(&["step", "path", "--json"]);
        assert!(run.code == 3 && run.out.contains("\"refused\""), "{run:?}");
        assert_eq!(bench.selected(), both("a/1", "b1"));
    }
    bench.core.core().fault = Some(Fault::DiesAtSelections);
    assert_eq!(bench.step().0, 4);
    bench.core.core().fault = None;
    bench.core.down();
    bench.core.up();
    assert_eq!(bench.selected(), both("a/1", "b2"));
    assert_eq!(bench.step().0, 5);
    assert_eq!(bench.selected(), both("a/1", "b1"));
}

#[test]
fn what_the_core_lacks_is_told_and_nothing_is_written() {
    type Change = fn(&mut Core);
    let cases: [(Change, &str); 4] = [
        (|core| core.secret = Some("s".into()), "401"),
        (|core| drop(core.groups.remove(EXIT)), "no group of that name"),
        (
            |core| {
                let own = json!({ "type": "URLTest", "now": "b1", "all": ["b1", "b2"] });
                core.odd.insert(EXIT.into(), own);
            },
            "chooses by itself",
        ),
        (
            |core| drop(core.odd.insert("b2".into(), json!({ "type": "Direct", "name": "b2" }))),
            "leads past the chain",
        ),
    ];
    for (change, told) in cases {
        let bench = Bench::new();
        bench.step();
        bench.dies(&["b1"]);
        change(&mut bench.core.core());
        let run = bench.run(&["step", "path", "--json"]);
        let (code, _, reason) = run.stands();
        assert_eq!((code, reason.as_str()), (1, "core-unusable"), "{run:?}");
        assert!(run.out.contains(told), "{told}: {run:?}");
        assert!(bench.selections().is_empty());
        let check = bench.run(&["check", "path"]);
        assert!(check.out.contains(told), "{told}: {check:?}");
    }
}

#[test]
fn a_plan_and_a_pause_write_nothing_and_check_names_what_breaks() {
    let bench = Bench::new();
    bench.step();
    bench.dies(&["b1"]);
    let plan = bench.run(&["plan", "path", "--json"]).report();
    assert_eq!(plan["to"], "entry PREFERRED, exit BACKUP");
    let steps = plan["steps"][0].to_string();
    assert!(steps.contains("select b2 in exit of http://127.0.0.1:"), "{steps}");
    let check = bench.run(&["check", "path"]);
    assert!(!check.out.contains("is of type Shadowsocks"), "members are no groups: {check:?}");
    assert_eq!(bench.run(&["pause", "path"]).code, 0);
    for _ in 0..3 {
        bench.step();
    }
    assert!(bench.selections().is_empty());
    assert_eq!(bench.run(&["resume", "path"]).code, 0);
    assert_eq!(bench.step().0, 0);
    assert_eq!(bench.selected(), both("a/1", "b2"));
}

#[test]
fn requests_by_the_cores_proxy_prove_the_whole_path_where_one_is_named() {
    let proxy = FakeProxy::deciding(|told| told);
    let url = proxy.url();
    let bench = Bench::with(|policy| {
        policy["driver"]["clash"]["proxy"] = json!(url);
        policy["probe"]["urls"] = json!(["http://probe.example/generate_204"]);
    });
    assert_eq!(bench.step(), went(0, "entry PREFERRED, exit PREFERRED steady", "all-well"));
    proxy.answers(Way::Portal);
    assert_eq!(bench.step(), went(0, "entry PREFERRED, exit PREFERRED steady", "drift"));
    let (code, status) = bench.status();
    assert_eq!(
        (code, &status["path"]["health"], &status["path"]["breaks_at"]),
        (2, &json!("failed"), &Value::Null)
    );
    assert!(bench.selections().is_empty());
    proxy.answers(Way::Well);
    assert_eq!(bench.step(), went(0, "entry PREFERRED, exit PREFERRED steady", "all-well"));
}

#[test]
fn a_recorded_step_is_decided_again_with_the_nodes_in_the_order_of_the_policy() {
    let bench = Bench::new();
    let file = bench.folder.path().join("policies/path.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let other_order = text.replace(r#""b1":{},"b2":{}"#, r#""b2":{},"b1":{}"#);
    assert_ne!(other_order, text);
    std::fs::write(&file, other_order).unwrap();
    let bundle = bench.folder.path().join("why.json").display().to_string();
    for _ in 0..2 {
        let step = bench.run(&["step", "path", "--record", &bundle]);
        assert_eq!(step.code, 0, "{step:?}");
    }
    assert_eq!(bench.selected(), both("a/1", "b2"), "the one that is written first");
    let again = bench.run(&["replay", &bundle]);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.out.contains("the decision is the recorded one"), "{again:?}");
}
