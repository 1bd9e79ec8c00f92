//! How egressctl grows: from 5 slots to 250, from 30 clients to 10,000, listed and spread, from 8 candidates to 10,000.
//!
//! `cargo bench --bench growth` measures the release build, prints tables, and takes a few minutes. With `-- --plot FILE` it draws
//! them into an SVG as well. With `-- --short`
//! the small sizes are measured once, which shows that the benchmark still works. It fails where something of ours grows faster
//! than n log n.
//!
//! **Invariant:** each size is measured by a process of its own, so that the memory of one is not another's.

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
mod vast;

use frame::{Line, Table};
use lab::client::Client;
use lab::pool::{Pool, Step};
use lab::{Lab, gateway, names, space};
use serde_json::json;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};
use vast::{Bench, Size, interface, median, slot};

/// The first argument by which this program becomes the process that measures one size.
const POINT: &str = "--point";
/// The smallest of each: a home.
const HOME: Size = Size { slots: 5, clients: 30, candidates: 8, spread: false };
/// So much slower than n log n may look by chance. A square would show as ten from one size to the next but one.
const CHANCE: f64 = 2.0;
/// Loading the map anew should take at most this.
const TRANSACTION_MS: f64 = 150.0;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = args.iter().position(|arg| arg == POINT) {
        return point(&args[at + 1..]);
    }
    let short = frame::is_short();
    let plot = frame::named("--plot");
    let lab = Lab::builder().clients(2).endpoints(8).start();
    let up_to = |most: usize, all: &[usize]| -> Vec<usize> {
        all.iter().copied().filter(|n| !short || *n <= most).collect()
    };
    let many = up_to(100, &[30, 100, 300, 1_000, 3_000, 10_000]);
    let slots = up_to(10, &[5, 10, 25, 50, 100, 250]);
    let candidates = up_to(100, &[8, 30, 100, 300, 1_000, 3_000, 10_000]);
    let (mut steep, mut panels) = (Vec::new(), Vec::new());
    let sizes = |all: &[usize], of: &dyn Fn(usize) -> Size| -> Vec<(usize, Size)> {
        all.iter().map(|n| (*n, of(*n))).collect()
    };
    // A slot of its own for each candidate, and some more.
    let by_slots = |n: usize| Size { slots: n, candidates: n + 3, ..HOME };
    for (what, sizes) in [
        ("slots", sizes(&slots, &by_slots)),
        ("clients, listed", sizes(&many, &|n| Size { clients: n, ..HOME })),
        ("clients, spread", sizes(&many, &|n| Size { clients: n, spread: true, ..HOME })),
        ("candidates", sizes(&candidates, &|n| Size { candidates: n, ..HOME })),
    ] {
        let (grows, lines) = series(&lab, what, &sizes);
        steep.extend(grows);
        panels.push((what, lines));
    }
    if let Some(file) = plot {
        let title = format!("what grows with a pool, {}", frame::build());
        fs::write(&file, frame::plot(&title, &panels)).expect("the plot can be written");
    }
    moving(&lab, if short { 100 } else { 10_000 });
    if !short {
        throughput(&lab);
    }
    assert!(steep.is_empty() || short, "faster than n log n: {steep:?}");
}

/// What one size costs: CPU milliseconds of a steady decision, of one that moves the clients of a slot and of the plan for
/// it; milliseconds of loading it; and megabytes.
#[derive(Clone, Copy)]
struct Cost([f64; 5]);

const COSTS: [&str; 5] =
    ["decide, steady", "decide, move", "diff, move", "apply, move", "memory, MB"];

/// Measures one size, in a process of its own, and prints what it cost and the nft transaction that moves the clients.
fn point(args: &[String]) {
    let numbers: Vec<usize> = args.iter().take(4).map(|n| n.parse().expect("a number")).collect();
    let size = Size {
        slots: numbers[0],
        clients: numbers[1],
        candidates: numbers[2],
        spread: numbers[3] == 1,
    };
    let mut bench = Bench::new(size);
    let (to, _) = bench.step();
    assert_eq!(to, "NORMAL");
    bench.all_tested();
    bench.later(Duration::from_secs(10));
    let repeated = |bench: &Bench| -> (f64, f64, String) {
        let (mut decided, mut planned, mut text) = (Vec::new(), Vec::new(), String::new());
        for _ in 0..5 {
            let mut again = bench.again();
            let (decision, took) = again.decide();
            decided.push(took);
            planned.push(again.plan(&decision).1);
            text = decision.wished.world.nft.map(|table| table.text).unwrap_or_default();
        }
        (median(decided), median(planned), text)
    };
    let (steady, _, _) = repeated(&bench);
    bench.dead.insert(interface(&slot(1)));
    bench.step();
    bench.later(Duration::from_secs(10));
    let (moves, diff, text) = repeated(&bench);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: f64 = line.split_whitespace().next().unwrap().parse().unwrap();
    println!("{steady} {moves} {diff} {}", kib * 1024.0 / 1e6);
    println!("{text}");
}

/// Measures a row of sizes; what of it grows faster than n log n, and the milliseconds for a plot.
fn series(lab: &Lab, what: &str, sizes: &[(usize, Size)]) -> (Vec<String>, Vec<Line<'static>>) {
    let mut costs = Vec::new();
    for (n, size) in sizes {
        let spread = usize::from(size.spread);
        let numbers = [size.slots, size.clients, size.candidates, spread].map(|n| n.to_string());
        let own = std::env::current_exe().expect("a process has a file");
        let said = space::run(Command::new(own).arg(POINT).args(numbers), "");
        let (line, text) = said.split_once('\n').expect("two parts");
        let numbers: Vec<f64> = line.split(' ').map(|n| n.parse().expect("a number")).collect();
        // The quickest of some: whatever else runs on the machine makes it slower.
        let load = |_: usize| {
            let begun = Instant::now();
            lab.gw().space().nft(text);
            let took = begun.elapsed().as_secs_f64() * 1000.0;
            lab.gw().flush_nft();
            took
        };
        let applied = (0..5).map(load).fold(f64::INFINITY, f64::min);
        costs.push((*n, Cost([numbers[0], numbers[1], numbers[2], applied, numbers[3]])));
    }
    println!();
    let table = Table::begin(what, 16, &COSTS);
    for (n, Cost(cost)) in &costs {
        table.row(&n.to_string(), &cost.map(|cost| format!("{cost:.2}")));
    }
    // Memory is no milliseconds.
    let line = |place: usize| -> Line<'static> {
        (COSTS[place], costs.iter().map(|(n, cost)| (*n, cost.0[place])).collect())
    };
    let lines = (0..COSTS.len() - 1).map(line).collect();
    // The larger half of the sizes: below, what a process costs anyhow is larger than what grows.
    let [.., (small, before), _, (large, after)] = costs[..] else { return (Vec::new(), lines) };
    let grown = |n: usize| n as f64 * (n as f64).ln();
    let steep = (0..COSTS.len())
        .filter(|cost| after.0[*cost] / before.0[*cost] > grown(large) / grown(small) * CHANCE)
        .map(|cost| format!("{what}: {} from {small} to {large}", COSTS[cost]))
        .collect();
    (steep, lines)
}

/// A policy of so many clients of which one of five slots has its share; the lab's two are among them.
fn pool(lab: &Lab, clients: usize) -> Pool<'_> {
    let pool = Pool::new(lab, |policy| {
        let base = u32::from(Ipv4Addr::new(10, 78, 0, 0));
        let others = (0..clients - 2).map(|n| Ipv4Addr::from(base + 2 + u32::try_from(n).unwrap()));
        let all = (1..=2).map(names::client).chain(others);
        policy["clients"] = all.map(|client| client.to_string()).collect::<Vec<_>>().into();
        policy["params"]["health_failures_before_down"] = json!(1);
        policy["params"]["full_refresh_after_repairs"] = json!(1_000);
    });
    let first = pool.step();
    assert_eq!(first.word("to"), "NORMAL", "{first:#?}");
    pool.settles(10);
    pool
}

/// A slot dies and its share of the clients moves: what that takes, and what a client of another slot loses.
fn moving(lab: &Lab, clients: usize) {
    let _pool = pool(lab, clients);
    let folder = lab.folder().join("timed");
    fs::create_dir_all(&folder).unwrap();
    let log = folder.join("log");
    let script = format!(
        "#!/bin/sh\nbegun=$(date +%s%N)\n/usr/sbin/nft \"$@\"\ncode=$?\n\
         echo \"$(( $(date +%s%N) - begun )) $*\" >>{}\nexit $code\n",
        log.display()
    );
    fs::write(folder.join("nft"), script).unwrap();
    fs::set_permissions(folder.join("nft"), fs::Permissions::from_mode(0o755)).unwrap();
    let (moved, stays) = (lab.client(1), lab.client(2));
    let (dead, lives) = (moved.endpoint().unwrap(), stays.endpoint());
    assert_ne!(Some(dead), lives);
    lab.drop(dead);
    let (lost, sent, step) = counted(&stays, || {
        let mut command = lab.gw().egressctl_command(&["step", "home", "--json"]);
        command.env("PATH", gateway::path_with(&folder));
        Step::of(lab.gw().finish(command))
    });
    assert_eq!(step.word("to"), "LOCAL_REPAIR", "{step:#?}");
    assert_eq!(stays.endpoint(), lives, "it stays where it was");
    assert!(moved.endpoint().is_some_and(|now| now != dead), "it has moved");
    let log = fs::read_to_string(&log).unwrap();
    let loads: Vec<f64> = log
        .lines()
        .filter_map(|line| line.strip_suffix(" -f -")?.parse::<f64>().ok())
        .map(|ns| ns / 1e6)
        .collect();
    let took: f64 = loads.iter().sum();
    println!(
        "\nof {clients} clients those of one slot of five move: {} nft transaction of {took:.0} ms, the whole step {} ms;\n\
         a client of another slot sent {sent} packets meanwhile and lost {lost}",
        loads.len(),
        step.report["duration_ms"]
    );
    let met = loads.len() == 1 && took < TRANSACTION_MS && lost == 0;
    frame::aim(&format!("one, under {TRANSACTION_MS} ms, none lost"), met);
    lab.heal(dead);
    assert_eq!(lab.gw().egressctl(&["down", "home"]).code, Some(0));
    fs::remove_dir_all(lab.gw().state_dir().join("home")).unwrap();
}

/// How many of its packets a client has no answer to while something is done, and how many it has sent.
fn counted<T: Send>(client: &Client, work: impl FnOnce() -> T + Send) -> (u32, u32, T) {
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pinging = scope.spawn(|| {
            let mut flow = client.udp_flow();
            let (mut lost, mut sent) = (0, 0);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                sent += 1;
                lost += u32::from(flow.ping().is_none());
                std::thread::sleep(Duration::from_millis(2));
            }
            (lost, sent)
        });
        let result = work();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let (lost, sent) = pinging.join().expect("no client panics");
        (lost, sent, result)
    })
}

/// What one client can download through the gateway, with few clients in the policy and with many.
fn throughput(lab: &Lab) {
    println!();
    let table = Table::begin("clients in the policy", 28, &["Mbit/s, 5 times          "]);
    for clients in [30, 10_000, 30, 10_000] {
        let _pool = pool(lab, clients);
        let all: Vec<String> = (0..5).map(|_| format!("{:.0}", download(lab))).collect();
        table.row(&clients.to_string(), &[all.join(" ")]);
        assert_eq!(lab.gw().egressctl(&["down", "home"]).code, Some(0));
        fs::remove_dir_all(lab.gw().state_dir().join("home")).unwrap();
    }
}

/// Megabits a second, from the web to client 1, over three seconds.
fn download(lab: &Lab) -> f64 {
    let at = SocketAddr::from((names::target(1), 5_001));
    let listener = lab.spaces().web.inside(|| TcpListener::bind(at)).expect("the web has it");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a client comes");
            let zeros = vec![0_u8; 65_536];
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                if stream.write_all(&zeros).is_err() {
                    break;
                }
            }
        });
        let connect = || TcpStream::connect_timeout(&at, Duration::from_secs(2));
        let mut stream = lab.spaces().clients[0].inside(connect).expect("the web answers");
        let (mut bytes, begun, mut buffer) = (0, Instant::now(), vec![0_u8; 65_536]);
        while begun.elapsed() < Duration::from_secs(3) {
            bytes += stream.read(&mut buffer).expect("the stream goes on");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        bytes as f64 * 8.0 / begun.elapsed().as_secs_f64() / 1e6
    })
}
