//! How soon a client has an answer again after its endpoint fell silent, beside what people use otherwise.
//!
//! `cargo bench --bench detect` measures the release build and prints two tables. With `-- --short` each is tried once, and
//! sing-box is waited for 3 s only, which shows that the benchmark still works.
//!
//! **Invariant:** all are measured by the same client in the same lab: it opens a connection every 50 ms, and what it began
//! before the endpoint fell silent does not count.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark prints, and ends at the first thing that is not as it should be"
)]

mod frame;
#[path = "../lab/mod.rs"]
mod lab;
#[path = "../real_core/mod.rs"]
mod real_core;
mod rivals;

use frame::Table;
use lab::Lab;
use lab::client::Client;
use lab::space::wait_until;
use rivals::{ByHand, TUNNELS};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the client asks.
const EVERY: Duration = Duration::from_millis(50);
/// The timer of egressctl.
const TIMER: Duration = Duration::from_secs(1);

fn main() {
    let short = frame::is_short();
    rivals::required();
    let lab = Lab::builder().clients(1).endpoints(TUNNELS + 3).start();
    let size = Size {
        runs: if short { 1 } else { 20 },
        limit: Duration::from_secs(if short { 3 } else { 60 }),
        rest: Duration::from_secs(if short { 0 } else { 3 }),
        checks: if short { 1 } else { 100 },
    };
    println!("\nan endpoint falls silent, {} runs each, {}\n", size.runs, frame::build());
    let others = ["median, s", "worst, s", "requests lost"];
    let table = Table::begin("to the client's next answer", 34, &others);
    let hands = ByHand::up(&lab);
    let by_loop = rivals::by_loop(&lab, 1);
    let hand = row(&table, "a loop by hand", size, &lab, || settled(&lab, size));
    drop(by_loop);
    let keepalived = rivals::by_keepalived(&lab, 1);
    // Its first checks have to pass before a failed one says anything.
    std::thread::sleep(Duration::from_secs(2));
    row(&table, "keepalived with a script a tunnel", size, &lab, || settled(&lab, size));
    drop((keepalived, hands));
    ByHand::down(&lab);
    let core = rivals::by_sing_box(&lab, 1);
    let sing_box = row(&table, "sing-box, urltest at 1 s", size, &lab, || settled(&lab, size));
    drop(core);
    rivals::forget_sing_box(&lab);
    let mut ours = f64::INFINITY;
    for confirm in [0, 1] {
        policy(&lab, &json!({ "confirm": confirm }), if confirm == 0 { 1 } else { 2 });
        normal(&lab);
        let timer = Timer::start(&lab);
        let what = match confirm {
            0 => "egressctl, one failed check",
            _ => "egressctl, confirm 1",
        };
        ours = row(&table, what, size, &lab, || normal_by_timer(&lab, size));
        timer.stop();
    }
    let of = |other: f64| {
        if other.is_finite() { format!("{:.3}", ours / other) } else { "-".to_owned() }
    };
    // One that never answered took longer than any aim.
    frame::aim(
        &format!("confirm 1 takes half of the loop by hand: {}", of(hand)),
        ours <= hand * 0.5,
    );
    frame::aim(&format!("and a tenth of sing-box: {}", of(sing_box)), ours <= sing_box * 0.1);
    false_alarms(&lab, size);
}

/// How much is measured.
#[derive(Clone, Copy)]
struct Size {
    runs: usize,
    limit: Duration,
    /// How long all is well between two runs.
    rest: Duration,
    checks: usize,
}

/// Five slots for the one client, one second for a check, and no endpoint given up for false alarms.
fn policy(lab: &Lab, probe: &Value, failures: u32) {
    let mut policy = lab.pool_policy();
    policy["probe"]["timeout_sec"] = json!(1);
    policy["probe"].as_object_mut().unwrap().extend(probe.as_object().unwrap().clone());
    policy["params"] = json!({
        "health_check_interval_sec": 0, "candidate_test_timeout_sec": 3,
        "health_failures_before_down": failures, "flap_limit": 1_000_000,
        "full_refresh_after_repairs": 1_000_000, "local_repair_retest_count": 2,
    });
    lab.gw().policy("home", &policy);
}

fn state(lab: &Lab) -> String {
    let status = lab.gw().egressctl(&["status", "home", "--json"]).stdout;
    let status: Value = serde_json::from_str(&status).unwrap_or_default();
    status["state"].as_str().unwrap_or_default().to_owned()
}

/// Steps until every slot serves and is measured.
fn normal(lab: &Lab) {
    let step = || lab.gw().egressctl(&["step", "home"]);
    let came = wait_until(Duration::from_secs(60), || {
        let _said = step();
        state(lab) == "NORMAL"
    });
    assert!(came, "{}", step().stdout);
    (0..3).for_each(|_| drop(step()));
}

fn normal_by_timer(lab: &Lab, size: Size) {
    assert!(wait_until(Duration::from_secs(60), || state(lab) == "NORMAL"), "not NORMAL");
    std::thread::sleep(size.rest);
}

/// A client whose endpoint answers again is asked by a tunnel that has been well for some checks.
fn settled(lab: &Lab, size: Size) {
    std::thread::sleep(size.rest);
    assert!(wait_until(Duration::from_secs(30), || lab.client(1).endpoint().is_some()));
}

/// Starts a step each second, as a timer does; one that is late is not made up for.
struct Timer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Timer {
    fn start(lab: &Lab) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, mut command) =
            (Arc::clone(&stop), lab.gw().egressctl_command(&["step", "home"]));
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null());
        let thread = std::thread::spawn(move || {
            let mut next = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                let _code = command.status();
                next = (next + TIMER).max(Instant::now());
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        Self { stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the timer does not panic");
    }
}

/// One request of the client.
#[derive(Clone, Copy)]
struct Asked {
    began: Instant,
    ended: Instant,
    answered: bool,
}

/// A client that asks and asks.
struct Asking {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    all: Receiver<Asked>,
}

impl Asking {
    fn start(client: &Client) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, all) = channel();
        let (stopped, client) = (Arc::clone(&stop), client.clone());
        let thread = std::thread::spawn(move || {
            std::thread::scope(|scope| {
                while !stopped.load(Ordering::Relaxed) {
                    let (sender, client) = (sender.clone(), &client);
                    scope.spawn(move || {
                        let began = Instant::now();
                        let answered = client.endpoint().is_some();
                        let ended = Instant::now();
                        sender.send(Asked { began, ended, answered }).expect("it is taken");
                    });
                    std::thread::sleep(EVERY);
                }
            });
        });
        Self { stop, thread, all }
    }
}

/// How it went once: when the client had its next answer, and how many requests had none.
fn run(lab: &Lab, number: usize, limit: Duration) -> (Option<Duration>, usize) {
    let client = lab.client(1);
    let asking = Asking::start(&client);
    // A moment that has nothing to do with any timer, and over all runs is anywhere within a second.
    std::thread::sleep(Duration::from_millis(1_000 + (number as u64 * 618) % 1_000));
    let endpoint = client.endpoint().expect("the client is served");
    lab.drop(endpoint);
    let silent = Instant::now();
    let (mut first, mut lost) = (None, 0);
    let mut take = |asked: Asked| {
        if asked.began < silent {
            return;
        }
        if asked.answered {
            let after = asked.ended - silent;
            first = Some(first.map_or(after, |before: Duration| before.min(after)));
        } else {
            lost += 1;
        }
    };
    let mut answers = false;
    while !answers && silent.elapsed() < limit {
        if let Ok(asked) = asking.all.recv_timeout(EVERY) {
            answers = asked.answered && asked.began >= silent;
            take(asked);
        }
    }
    asking.stop.store(true, Ordering::Relaxed);
    asking.thread.join().expect("no client panics");
    asking.all.try_iter().for_each(take);
    lab.heal(endpoint);
    (first, lost)
}

/// Runs one of them so often and prints how it went; the median in seconds.
fn row(table: &Table, what: &str, size: Size, lab: &Lab, settle: impl Fn()) -> f64 {
    let mut all = Vec::new();
    let mut lost = Vec::new();
    for number in 0..size.runs {
        let (first, without) = run(lab, number, size.limit);
        all.push(first.map_or(f64::INFINITY, |first| first.as_secs_f64()));
        lost.push(without);
        settle();
    }
    lost.sort_unstable();
    let (median, worst) = (frame::median(&all), frame::quantile(&all, 1.0));
    let shown = |seconds: f64| {
        if seconds.is_finite() {
            format!("{seconds:.2}")
        } else {
            format!("> {}", size.limit.as_secs())
        }
    };
    let lost = lost[lost.len() / 2];
    table.row(what, &[shown(median), shown(worst), lost.to_string()]);
    median
}

/// How often a slot that lives loses its clients.
fn false_alarms(lab: &Lab, size: Size) {
    println!("\nfalse alarms of a slot that lives, {} checks each\n", size.checks);
    let table = Table::begin("probe", 34, &["30 % of packets lost", "all cores busy", "idle"]);
    for (what, probe, failures) in [
        ("timeout_sec 5, 2 failures", json!({ "timeout_sec": 5 }), 2),
        ("timeout_sec 1, 1 failure", json!({ "timeout_sec": 1 }), 1),
        ("timeout_sec 1, confirm 1", json!({ "timeout_sec": 1, "confirm": 1 }), 2),
        ("timeout_sec 5, confirm 2", json!({ "timeout_sec": 5, "confirm": 2 }), 3),
    ] {
        policy(lab, &probe, failures);
        normal(lab);
        let idle = alarms(lab, size.checks, None);
        let busy = {
            let _load = Load::start();
            alarms(lab, size.checks, None)
        };
        normal(lab);
        let endpoint = lab.client(1).endpoint().expect("the client is served");
        let lossy = alarms(lab, size.checks, Some(endpoint));
        table.row(what, &[lossy, busy, idle].map(|count| count.to_string()));
    }
}

/// Steps so often, and counts how often a slot stopped serving. It begins anew after each, with the same
/// endpoint losing packets where one does.
fn alarms(lab: &Lab, checks: usize, lossy: Option<usize>) -> usize {
    let begin = || lossy.map(|endpoint| lab.lossy(endpoint));
    let heal = || lossy.map(|endpoint| lab.heal(endpoint));
    let mut count = 0;
    begin();
    for _ in 0..checks {
        let said = lab.gw().egressctl(&["step", "home", "--json"]).stdout;
        let report: Value = serde_json::from_str(&said).unwrap_or_default();
        let reasons = report["reasons"].as_array().cloned().unwrap_or_default();
        if reasons.iter().any(|reason| reason["code"] == "stopped-serving") {
            count += 1;
            heal();
            normal(lab);
            begin();
        }
    }
    heal();
    count
}

/// Threads that compute, two for each core.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Load {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let spin = |_: usize| {
            let stopped = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = Mutex::new((0..cores * 2).map(spin).collect());
        Self { stop, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.lock().expect("nobody panicked").drain(..) {
            let _ended = thread.join();
        }
    }
}
