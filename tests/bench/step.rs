//! What a step costs in a world where nothing is to be done: 5 slots, 30 clients, probes answered over plain HTTP in the lab.
//!
//! `cargo bench --bench step` measures the release build and prints two tables: a step, and an hour beside what people use
//! otherwise. With `-- --short` few steps are taken, which shows that the benchmark still works. It fails when a step changes something or starts more processes than allowed.
//!
//! **Invariant:** what is measured is egressctl itself: a small process beside it, in the same namespaces, starts it and reads the kernel's clocks.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
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
use lab::{Lab, gateway, names, space};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::ClockId;
use nix::unistd::Pid;
use rivals::ByHand;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How many slots and clients the policy has.
const SLOTS: usize = 5;
const CLIENTS: usize = 30;
/// At most so many processes read the world in a steady step.
const PROCESSES: usize = 4;
/// What a steady step should stay under: its own CPU time in milliseconds, and its memory in MB.
const CPU_MS: f64 = 5.0;
const MEMORY_MB: f64 = 8.0;
/// At most so many times as long as its commands alone should a step take.
const WALL: f64 = 1.25;
/// What it should stay under with its children: CPU time in milliseconds.
const ALL_MS: f64 = 12.0;
/// The script of the commands of a steady step, beside the scripts that count them.
const BARE: &str = "bare.sh";
/// The first argument by which this program becomes the process that measures.
const MEASURE: &str = "--measure";

/// What one run of a program cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    wall_ms: f64,
    own_ms: f64,
    all_ms: f64,
    memory_mb: f64,
}

fn main() {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(|arg| arg == MEASURE) {
        measure(&args[1..]);
        return;
    }
    let short = frame::is_short();
    let runs = if short { 5 } else { 100 };
    let lab = Lab::builder().clients(1).endpoints(SLOTS + 3).start();
    settle(&lab);
    let started = processes(&lab);
    let bare: Vec<f64> = (0..runs).map(|_| bare(&lab).wall_ms).collect();
    let costs: Vec<Cost> = (0..runs).map(|_| cost(&lab, "step")).collect();
    let plans: Vec<Cost> = (0..runs.min(20)).map(|_| cost(&lab, "plan")).collect();
    print(&costs, &plans, &started, &bare);
    let down = lab.gw().egressctl(&["down", "home"]);
    assert_eq!(down.code, Some(0), "{} {}", down.stdout, down.stderr);
    hours(&lab, &costs, Duration::from_millis(if short { 300 } else { 60_000 }));
    assert!(started.len() <= PROCESSES, "a steady step starts {} processes", started.len());
}

/// Writes the policy, and steps until nothing is to be done any more.
fn settle(lab: &Lab) {
    let mut policy = lab.pool_policy();
    let clients: Vec<String> = (1..=CLIENTS).map(|k| names::client(k).to_string()).collect();
    policy["clients"] = clients.into();
    lab.gw().policy("home", &policy);
    let first = lab.gw().egressctl(&["step", "home", "--json"]);
    assert!(first.stdout.contains("\"to\":\"NORMAL\""), "{} {}", first.stdout, first.stderr);
    for _ in 0..3 {
        let step = lab.gw().egressctl(&["step", "home"]);
        assert_eq!(step.code, Some(0), "{} {}", step.stdout, step.stderr);
    }
}

/// The commands that a steady step starts, seen by scripts that stand before the real programs on PATH.
fn processes(lab: &Lab) -> Vec<String> {
    let folder = lab.folder().join("counted");
    fs::create_dir_all(&folder).expect("a folder can be made");
    let log = folder.join("log");
    for program in ["ip", "nft", "wg", "conntrack", "sysctl", "systemctl", "wireguard-go"] {
        let real = space::PATH.split(':').map(|dir| Path::new(dir).join(program));
        let Some(real) = real.into_iter().find(|path| path.exists()) else { continue };
        let path = folder.join(program);
        // What it reads is kept beside what it is asked, so that it can be asked again.
        let script = format!(
            "#!/bin/sh\necho {program} \"$@\" >>{}\ncat >{folder}/in.$$\n\
             echo \"{real} $* <{folder}/in.$$ >/dev/null 2>&1\" >>{folder}/{BARE}\nexec {real} \"$@\" <{folder}/in.$$\n",
            log.display(),
            folder = folder.display(),
            real = real.display()
        );
        fs::write(&path, script).expect("a script can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode can be set");
    }
    let mut command = lab.gw().egressctl_command(&["step", "home", "--json"]);
    command.env("PATH", gateway::path_with(&folder));
    let outcome = lab.gw().finish(command);
    assert!(outcome.stdout.contains("\"outcome\":\"steady\""), "{}", outcome.stdout);
    fs::read_to_string(log).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// The commands of a steady step one after the other, as a script would ask the same things.
fn bare(lab: &Lab) -> Cost {
    let script = lab.folder().join("counted").join(BARE);
    measured(lab, &["/bin/sh".to_owned(), script.display().to_string()])
}

/// What an hour costs, from a minute of each: egressctl from its steps, the others from what they used.
fn hours(lab: &Lab, costs: &[Cost], minute: Duration) {
    println!("\nan hour, from {:.1} s of each; five tunnels are watched\n", minute.as_secs_f64());
    let table = Table::begin("", 34, &["CPU, s at 1 s", "CPU, s at 10 s", "resident, MB"]);
    let of_one = quantile(costs, 0.5, |cost| cost.all_ms) / 1000.0;
    let peak = quantile(costs, 0.5, |cost| cost.memory_mb);
    hour(
        &table,
        "egressctl, with its children",
        of_one * 3_600.0,
        of_one * 360.0,
        &format!("0, {peak:.1} in a step"),
    );
    let watch = |start: &dyn Fn(u64) -> u32, every: u64| {
        let pid = start(every);
        // It has begun before it is measured.
        std::thread::sleep(Duration::from_secs(2).min(minute * 2));
        let before = rivals::used(pid);
        std::thread::sleep(minute);
        let after = rivals::used(pid);
        ((after.cpu_sec - before.cpu_sec) * 3_600.0 / minute.as_secs_f64(), after.resident_mb)
    };
    let _hands = ByHand::up(lab);
    let running = std::cell::RefCell::new(None);
    for (name, start) in [
        ("a loop by hand", rivals::by_loop as fn(&Lab, u64) -> rivals::Runs),
        ("keepalived with a script a tunnel", rivals::by_keepalived),
    ] {
        let begin = |every: u64| {
            drop(running.take());
            let runs = start(lab, every);
            let pid = runs.child.id();
            running.replace(Some(runs));
            pid
        };
        let ((often, resident), (seldom, _)) = (watch(&begin, 1), watch(&begin, 10));
        drop(running.take());
        hour(&table, name, often, seldom, &format!("{resident:.1}"));
    }
    ByHand::down(lab);
    let core = std::cell::RefCell::new(None);
    let begin = |every: u64| {
        if core.take().is_some() {
            rivals::forget_sing_box(lab);
        }
        let runs = rivals::by_sing_box(lab, every);
        // It watches what is used.
        let _answer = lab.client(1).endpoint();
        let pid = runs.pid();
        core.replace(Some(runs));
        pid
    };
    let ((often, resident), (seldom, _)) = (watch(&begin, 1), watch(&begin, 10));
    hour(&table, "sing-box, urltest, its own WireGuard", often, seldom, &format!("{resident:.1}"));
}

fn hour(table: &Table, what: &str, often: f64, seldom: f64, resident: &str) {
    table.row(what, &[format!("{often:.0}"), format!("{seldom:.0}"), resident.to_owned()]);
}

/// Runs egressctl once by a process that measures.
fn cost(lab: &Lab, what: &str) -> Cost {
    let folder = |path: &Path| path.display().to_string();
    let gw = lab.gw();
    let words = ["--policy-dir", &folder(gw.policy_dir()), "--state-dir", &folder(gw.state_dir())];
    let words = words.into_iter().chain([what, "home"]).map(str::to_owned);
    measured(lab, &std::iter::once(gateway::program()).chain(words).collect::<Vec<_>>())
}

/// Runs a program once by a process that measures.
fn measured(lab: &Lab, argv: &[String]) -> Cost {
    let own = std::env::current_exe().expect("a process has a file");
    let mut command = lab.gw().command(own.to_str().expect("the path is text"));
    command.arg(MEASURE).args(argv);
    let outcome = lab.gw().finish(command);
    assert_eq!(outcome.code, Some(0), "{} {}", outcome.stdout, outcome.stderr);
    let numbers: Vec<f64> =
        outcome.stdout.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    let [wall_ms, own_ms, all_ms, memory_mb] = numbers[..] else {
        panic!("four numbers, not {:?}", outcome.stdout)
    };
    Cost { wall_ms, own_ms, all_ms, memory_mb }
}

/// Starts a program, waits for it, and prints what it cost: milliseconds of wall, own CPU and CPU with children, megabytes.
fn measure(argv: &[OsString]) {
    let begun = Instant::now();
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().expect("the program starts");
    let raw = i32::try_from(child.id()).expect("a pid is small");
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(raw)).expect("a child has a clock");
    let pid = rustix::process::Pid::from_raw(raw).expect("a pid is above zero");
    let status = format!("/proc/{raw}/status");
    let mut peak = 0.0_f64;
    // The clock of a process can be read until its parent has taken it away, its memory only while it lives.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    while waitid(WaitId::Pid(pid), ended).expect("a child can be waited for").is_none() {
        peak = peak.max(peak_mb(&status).unwrap_or(0.0));
        std::thread::sleep(Duration::from_micros(300));
    }
    let wall = begun.elapsed().as_secs_f64() * 1000.0;
    let own = Duration::from(clock.now().expect("a zombie has a clock")).as_secs_f64() * 1000.0;
    let code = child.wait().expect("a child can be waited for");
    assert!(code.success(), "{code}");
    let used = getrusage(UsageWho::RUSAGE_CHILDREN).expect("own children are known");
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let all = (seconds(used.user_time()) + seconds(used.system_time())) * 1000.0;
    println!("{wall} {own} {all} {peak}");
}

/// The most memory that a living process has had in use.
fn peak_mb(status: &str) -> Option<f64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}

/// One figure of a cost.
type Figure = fn(&Cost) -> f64;

/// The value of one figure below which a share of all lie.
fn quantile(costs: &[Cost], share: f64, of: Figure) -> f64 {
    frame::quantile(&costs.iter().map(of).collect::<Vec<_>>(), share)
}

/// Prints the table that README.md shows.
fn print(costs: &[Cost], plans: &[Cost], started: &[String], bare: &[f64]) {
    let (runs, build) = (costs.len(), frame::build());
    println!("\nsteady step, {SLOTS} slots, {CLIENTS} clients, {runs} runs, {build}\n");
    let table = Table::begin("", 28, &["median", "95 %", "plan, median"]);
    let rows: [(&str, Figure); 4] = [
        ("wall time, ms", |cost| cost.wall_ms),
        ("own CPU, ms", |cost| cost.own_ms),
        ("CPU with children, ms", |cost| cost.all_ms),
        ("peak memory, MB", |cost| cost.memory_mb),
    ];
    for (name, of) in rows {
        let all = [quantile(costs, 0.5, of), quantile(costs, 0.95, of), quantile(plans, 0.5, of)];
        table.row(name, &all.map(|figure| format!("{figure:.1}")));
    }
    let count = started.len();
    table.row("processes started", &[count.to_string(), count.to_string(), String::new()]);
    for command in started {
        println!("  started: {command}");
    }
    let bare = frame::median(bare);
    let [wall, own, all, memory] = rows.map(|(_, of)| quantile(costs, 0.5, of));
    let ratio = wall / bare;
    println!("  the bare commands, one after the other: {bare:.1} ms of wall time");
    frame::aim(&format!("at most {PROCESSES} processes"), count <= PROCESSES);
    frame::aim(&format!("own CPU under {CPU_MS} ms"), own < CPU_MS);
    frame::aim(&format!("CPU with children at most {ALL_MS} ms"), all <= ALL_MS);
    frame::aim(&format!("at most {WALL} times the bare commands: {ratio:.2}"), ratio <= WALL);
    frame::aim(&format!("under {MEMORY_MB} MB"), memory < MEMORY_MB);
}
