//! A selector's steps by the real binary, against a core that misbehaves as told.

use crate::fake_core;
use crate::ran;

use fake_core::proxy::{FakeProxy, Way};
use fake_core::{Core, FakeCore, Fault};
use ran::Run;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const GROUP: &str = "out 🌍/all";
const PRIMARY: &str = "fast/one";
const RESERVE: &str = "slow two";
const THIRD: &str = "third";

fn went(code: i32, from: &str, to: &str, outcome: &str) -> (i32, String, String, String) {
    (code, from.to_owned(), to.to_owned(), outcome.to_owned())
}

/// A policy on loopback, with windows of no time, whose core and channels a test has in hand.
struct Bench {
    folder: TempDir,
    core: FakeCore,
    primary: FakeProxy,
    reserve: FakeProxy,
}

impl Bench {
    fn with(core: Core, change: impl FnOnce(&mut Value)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (primary, reserve) = (FakeProxy::start(), FakeProxy::start());
        let core = FakeCore::start(core);
        let mut policy = json!({
            "kind": "selector",
            "driver": { "clash": { "url": core.url(), "selector": GROUP } },
            "primary": { "member": PRIMARY, "proxy": primary.url() },
            "reserve": { "member": RESERVE, "proxy": reserve.url() },
            "probe": { "urls": ["http://probe.example/generate_204"], "timeout_sec": 2 },
            "params": { "check_interval_sec": 0, "failure_window_sec": 0, "recovery_window_sec": 0,
                        "minimum_reserve_sec": 0, "traffic_guard": false }
        });
        change(&mut policy);
        std::fs::create_dir(folder.path().join("policies")).unwrap();
        std::fs::write(folder.path().join("policies/home.json"), policy.to_string()).unwrap();
        Self { folder, core, primary, reserve }
    }

    fn new() -> Self {
        Self::with(Core::sing_box(GROUP, &[PRIMARY, RESERVE, THIRD]), |_| {})
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::here(self.folder.path(), args)
    }

    fn step(&self) -> Run {
        self.run(&["step", "home", "--json"])
    }

    fn status(&self) -> (i32, Value) {
        let run = self.run(&["status", "home", "--json"]);
        (run.code, run.report())
    }

    /// What new connections take.
    fn selected(&self) -> String {
        self.core.core().now(GROUP)
    }

    /// The selections that the core was asked to make.
    fn selections(&self) -> usize {
        self.core.core().asked.iter().filter(|asked| asked.starts_with("PUT")).count()
    }

    /// On the reserve, the primary failing.
    fn fails_over(&self) {
        assert_eq!(self.step().way(), went(0, "-", "ON_PRIMARY", "steady"));
        self.primary.answers(Way::Portal);
        assert_eq!(self.step().way(), went(0, "ON_PRIMARY", "PRIMARY_FAILING", "steady"));
        let run = self.step();
        assert_eq!(run.way(), went(0, "PRIMARY_FAILING", "ON_RESERVE", "applied"), "{run:?}");
        assert_eq!(self.selected(), RESERVE);
    }
}

#[test]
fn new_connections_move_to_the_reserve_and_back_and_status_and_history_tell_it() {
    let bench = Bench::new();
    bench.fails_over();
    let (code, status) = bench.status();
    assert_eq!(
        (code, &status["state"], &status["selected"]),
        (1, &json!("ON_RESERVE"), &json!(RESERVE))
    );
    assert_eq!(status["channels"][0]["health"], "unhealthy");
    assert_eq!(status["channels"][0]["why"], "probe.example answers 200 with 7 bytes");
    assert_eq!(status["channels"][1]["selected"], true);
    let schema = bench.run(&["schema", "status"]).report();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&status), "{status}");
    bench.primary.answers(Way::Well);
    assert_eq!(bench.step().way(), went(0, "ON_RESERVE", "PRIMARY_RECOVERING", "steady"));
    assert_eq!(bench.step().way(), went(0, "PRIMARY_RECOVERING", "ON_PRIMARY", "applied"));
    assert_eq!((bench.selected().as_str(), bench.selections()), (PRIMARY, 2));
    assert_eq!(bench.step().codes(), ["all-well"]);
    assert_eq!(bench.status().0, 0);
    let history = bench.run(&["history", "home", "--json"]).out;
    for transition in ["\"to\":\"ON_RESERVE\"", "primary-recovered", "primary-failed"] {
        assert!(history.contains(transition), "{history}");
    }
    let text = bench.run(&["status", "home"]).out;
    assert!(text.starts_with("home (selector)  ON_PRIMARY since "), "{text}");
    assert!(text.contains("*  primary  healthy  fast/one  by http://127.0.0.1:"), "{text}");
}

#[test]
fn what_is_published_tells_how_each_channel_was() {
    let bench = Bench::new();
    let www = bench.folder.path().join("www");
    std::fs::create_dir(&www).unwrap();
    let site = json!({ "kind": "site", "publish_dir": www });
    std::fs::write(bench.folder.path().join("policies/site.json"), site.to_string()).unwrap();
    bench.step();
    bench.primary.answers(Way::Portal);
    bench.step();
    let text = std::fs::read_to_string(www.join("uptime.json")).unwrap();
    let shown: Value = serde_json::from_str(&text).unwrap();
    let (primary, reserve) = (&shown["home/primary"], &shown["home/reserve"]);
    assert_eq!((&primary["health"], &primary["uptime_percent"]), (&json!("failed"), &json!(50.0)));
    assert_eq!(
        (&reserve["health"], &reserve["uptime_percent"]),
        (&json!("healthy"), &json!(100.0))
    );
}

#[test]
fn a_refused_selection_is_told_and_changes_nothing() {
    let faults = [
        Fault::RefusesSelections(400, "Must be a Selector"),
        Fault::RefusesSelections(401, "Unauthorized"),
        Fault::RefusesSelections(404, "Resource not found"),
        Fault::IgnoresSelections,
    ];
    for fault in faults {
        let bench = Bench::new();
        bench.step();
        bench.primary.answers(Way::Portal);
        bench.step();
        bench.core.core().fault = Some(fault.clone());
        for _ in 0..2 {
            let run = bench.step();
            let failing = went(3, "PRIMARY_FAILING", "PRIMARY_FAILING", "rolled-back");
            assert_eq!(run.way(), failing, "{fault:?}: {run:?}");
            assert_eq!(run.codes(), ["refused"], "{fault:?}");
        }
        assert_eq!(bench.selected(), PRIMARY, "{fault:?}");
        bench.core.core().fault = None;
        assert_eq!(bench.step().way(), went(0, "PRIMARY_FAILING", "ON_RESERVE", "applied"));
    }
}

#[test]
fn a_third_choice_that_comes_between_is_a_persons() {
    let bench = Bench::new();
    bench.step();
    bench.primary.answers(Way::Portal);
    bench.step();
    bench.core.core().fault = Some(Fault::SelectsInstead(THIRD));
    let run = bench.step();
    assert_eq!(run.way().2, "ON_RESERVE", "{run:?}");
    assert_eq!(run.codes(), ["persons-choice"]);
    bench.core.core().fault = None;
    let (_, status) = bench.status();
    assert_eq!((&status["selected"], status["paused"].is_string()), (&json!(THIRD), true));
    let refused = bench.run(&["resume", "home"]);
    assert!(
        refused.code == 2 && refused.err.contains("neither the primary nor the reserve"),
        "{refused:?}"
    );
    bench.step();
    assert_eq!(bench.selected(), THIRD);
}

#[test]
fn a_core_that_dies_at_the_selection_leaves_a_journal_that_the_next_run_takes_back() {
    let mut bench = Bench::new();
    bench.step();
    bench.primary.answers(Way::Portal);
    bench.step();
    bench.core.core().fault = Some(Fault::DiesAtSelections);
    let run = bench.step();
    assert_eq!((run.code, run.way().3.as_str()), (4, "failed"), "{run:?}");
    bench.core.down();
    assert_eq!(bench.step().code, 4);
    bench.core.core().fault = None;
    bench.core.up();
    assert_eq!(bench.selected(), RESERVE);
    assert_eq!(bench.step().way().3, "recovered");
    assert_eq!(bench.selected(), PRIMARY);
    assert_eq!(bench.step().way(), went(0, "PRIMARY_FAILING", "ON_RESERVE", "applied"));
}

/// Case C53.
#[test]
fn a_core_that_is_down_or_restarts_is_waited_for_and_its_lost_choice_is_made_again_once() {
    let mut bench = Bench::new();
    bench.fails_over();
    bench.core.down();
    for _ in 0..2 {
        let run = bench.step();
        assert_eq!(
            (run.way(), run.codes()),
            (went(0, "ON_RESERVE", "ON_RESERVE", "steady"), vec!["core-down".to_owned()])
        );
    }
    assert_eq!(bench.status().0, 2);
    bench.core.core().restart();
    bench.core.up();
    let run = bench.step();
    assert_eq!(run.way(), went(0, "ON_RESERVE", "ON_RESERVE", "applied"), "{run:?}");
    assert_eq!(run.codes()[0], "choice-lost");
    assert_eq!((bench.selected().as_str(), bench.selections()), (RESERVE, 2));
    bench.step();
    assert_eq!(bench.selections(), 2);
}

#[test]
fn a_choice_that_is_not_ours_stops_automation_until_resume() {
    let bench = Bench::new();
    bench.step();
    bench.core.core().select(GROUP, RESERVE);
    let run = bench.step();
    assert_eq!(
        (run.way(), run.codes()),
        (went(0, "ON_PRIMARY", "ON_RESERVE", "steady"), vec!["persons-choice".to_owned()])
    );
    for _ in 0..4 {
        assert!(bench.step().codes().contains(&"paused".to_owned()));
    }
    assert_eq!((bench.selected().as_str(), bench.selections()), (RESERVE, 0));
    assert_eq!(bench.run(&["resume", "home"]).code, 0);
    bench.step();
    assert_eq!(bench.step().way(), went(0, "PRIMARY_RECOVERING", "ON_PRIMARY", "applied"));
}

#[test]
fn a_person_switches_and_what_is_not_healthy_wants_force() {
    let bench = Bench::new();
    bench.step();
    let run = bench.run(&["switch", "home", RESERVE]);
    assert_eq!((run.code, bench.selected().as_str()), (0, RESERVE), "{run:?}");
    assert!(bench.status().1["paused"].is_string());
    bench.primary.answers(Way::Portal);
    bench.step();
    for (target, code) in [(PRIMARY, 2), (THIRD, 2), ("nobody", 2)] {
        let run = bench.run(&["switch", "home", target]);
        assert!(run.code == code && run.err.contains("--force"), "{run:?}");
    }
    assert_eq!(bench.run(&["switch", "home", "nobody", "--force"]).code, 1);
    assert_eq!(bench.selected(), RESERVE);
    for target in [THIRD, PRIMARY] {
        assert_eq!(bench.run(&["switch", "home", target, "--force"]).code, 0);
        assert_eq!(bench.selected(), target);
    }
    bench.core.core().fault = Some(Fault::IgnoresSelections);
    assert_eq!(bench.run(&["switch", "home", RESERVE]).code, 3);
    assert_eq!(bench.selected(), PRIMARY);
}

#[test]
fn what_the_core_lacks_is_told_and_nothing_is_written() {
    type Change = fn(&mut Core);
    let cases: [(Change, &str); 5] = [
        (|core| core.secret = Some("s".into()), "401"),
        (|core| core.groups.clear(), "no group of that name"),
        (
            |core| core.groups.get_mut(GROUP).unwrap().0.retain(|member| member != RESERVE),
            "slow two is no member of it",
        ),
        (
            |core| {
                let empty =
                    json!({ "type": "Selector", "now": "COMPATIBLE", "all": ["COMPATIBLE"] });
                core.odd.insert(GROUP.into(), empty);
            },
            "no members",
        ),
        (|core| core.fault = Some(Fault::Says(200, "<html>")), "no proxy core"),
    ];
    for (change, told) in cases {
        let bench = Bench::new();
        bench.step();
        bench.primary.answers(Way::Portal);
        bench.step();
        change(&mut bench.core.core());
        let run = bench.step();
        assert_eq!(run.way(), went(1, "PRIMARY_FAILING", "PRIMARY_FAILING", "failed"), "{run:?}");
        assert_eq!(run.codes(), ["core-unusable"]);
        assert!(run.out.contains(told), "{told}: {run:?}");
        assert_eq!(bench.selections(), 0);
    }
}

#[test]
fn a_diagnostic_proxy_that_refuses_says_nothing_of_its_channel() {
    let bench = Bench::new();
    bench.step();
    bench.primary.answers(Way::Refuses);
    for _ in 0..3 {
        let run = bench.step();
        assert_eq!(
            (run.way().2.as_str(), run.codes()),
            ("ON_PRIMARY", vec!["undetermined".to_owned()])
        );
    }
    bench.reserve.answers(Way::Portal);
    bench.primary.answers(Way::Portal);
    for _ in 0..3 {
        assert_eq!(bench.step().codes(), ["none-healthy"]);
    }
    assert_eq!(bench.selections(), 0);
}

#[test]
fn an_urgent_switch_closes_the_connections_through_the_dead_member_where_the_policy_says_so() {
    for (cut, left) in [("dead", vec!["2", "3"]), ("none", vec!["1", "2", "3"])] {
        let core = Core::sing_box(GROUP, &[PRIMARY, RESERVE, THIRD]);
        let bench = Bench::with(core, |policy| policy["driver"]["clash"]["cut"] = json!(cut));
        bench.core.core().flow("1", &[PRIMARY, GROUP], 10);
        bench.core.core().flow("2", &[RESERVE, GROUP], 10);
        bench.core.core().flow("3", &[PRIMARY], 10);
        bench.fails_over();
        let flows = bench.core.core().flows.clone();
        let ids: Vec<&str> = flows.iter().map(|flow| flow["id"].as_str().unwrap()).collect();
        assert_eq!(ids, left, "{cut}");
    }
}

#[test]
fn a_switch_waits_while_something_is_received_and_no_longer_than_it_may() {
    let core = Core::sing_box(GROUP, &[PRIMARY, RESERVE]);
    let bench = Bench::with(core, |policy| {
        policy["params"]["traffic_guard"] = json!(true);
        policy["params"]["active_bytes_per_sec"] = json!(1_000);
        policy["params"]["quiet_window_sec"] = json!(1);
        policy["params"]["guard_max_hold_sec"] = json!(3);
    });
    bench.step();
    bench.primary.answers(Way::Portal);
    bench.step();
    let begun = Instant::now();
    loop {
        // A burst whose connection is gone before anybody looks.
        bench.core.core().received += 10_000_000;
        let run = bench.step();
        if run.way().2 == "ON_RESERVE" {
            break;
        }
        assert_eq!(run.codes(), ["traffic-guard"]);
        assert_eq!(bench.status().0, 2, "what new connections take does not work");
        assert!(begun.elapsed() < Duration::from_secs(20), "{run:?}");
    }
    assert!(begun.elapsed() >= Duration::from_secs(3));
    // The way back waits without limit, for the reserve's traffic and not for what lives on the primary.
    bench.primary.answers(Way::Well);
    bench.step();
    for _ in 0..5 {
        bench.core.core().received += 10_000_000;
        assert_eq!(bench.step().codes(), ["traffic-guard"]);
    }
    let mut received = 0;
    let begun = Instant::now();
    while bench.step().way().2 != "ON_PRIMARY" {
        received += 10_000_000;
        bench.core.core().received += 10_000_000;
        bench.core.core().flow("old", &[PRIMARY, GROUP], received);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn a_plan_and_a_pause_write_nothing() {
    let bench = Bench::new();
    bench.step();
    bench.primary.answers(Way::Portal);
    bench.step();
    let plan = bench.run(&["plan", "home", "--json"]).report();
    assert_eq!(plan["to"], "ON_RESERVE");
    let steps = plan["steps"][0].to_string();
    assert!(steps.contains("select slow two in out 🌍/all of http://127.0.0.1:"), "{steps}");
    assert_eq!(bench.run(&["pause", "home"]).code, 0);
    for _ in 0..2 {
        assert!(bench.step().codes().contains(&"paused".to_owned()));
    }
    assert_eq!((bench.selected().as_str(), bench.selections()), (PRIMARY, 0));
    let down = bench.run(&["down", "home"]);
    assert_eq!((down.code, bench.selections()), (0, 0), "{down:?}");
}
