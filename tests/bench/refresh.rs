//! A list of 300 candidates of which one in ten works, tested 16 at a time over real WireGuard in the lab.
//!
//! `cargo bench --bench refresh` measures the release build and prints a table. With `-- --short` the list has 40, which shows
//! that the benchmark still works. The dead ones do not answer at all: each is given up after 3 s without a handshake.
//!
//! **Invariant:** what is counted is what a timer would do: one step after the other, each as long as it takes.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark prints, and ends at the first thing that is not as it should be"
)]

#[path = "../lab/mod.rs"]
mod lab;

use lab::pool::Pool;
use lab::source::{Says, by_http};
use lab::{Lab, provider};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// One in so many works.
const ONE_IN: usize = 10;
/// So many are tested side by side.
const PARALLEL: usize = 16;

fn main() {
    let short = std::env::args().any(|arg| arg == "--short");
    let listed = if short { 40 } else { 300 };
    let living = listed / ONE_IN;
    let slots = living.min(5);
    // One more endpoint, at whose address the dead ones are: nothing that is sent there arrives.
    let lab = Lab::builder().clients(5).endpoints(living + 1).start();
    lab.drop(living + 1);
    let entry = |n: usize| match n % ONE_IN {
        0 => {
            json!({ "name": format!("p{}", n / ONE_IN + 1), "config": provider::config(n / ONE_IN + 1) })
        }
        _ => json!({ "name": format!("dead{n}"), "config": provider::dead(n, living + 1) }),
    };
    let list = Value::from((0..listed).map(entry).collect::<Vec<_>>()).to_string();
    lab.source.says(Says::Text(list));
    let pool = Pool::new(&lab, |policy| {
        let interfaces: Vec<String> = (1..=slots).map(|n| format!("vpn{n}")).collect();
        policy["slots"]["interfaces"] = interfaces.into();
        policy["provider"] = by_http();
        policy["test"] = json!({ "parallel": PARALLEL });
        policy["params"] = json!({ "health_check_interval_sec": 10 });
    });
    let build = if cfg!(debug_assertions) { "UNOPTIMISED" } else { "release" };
    println!("\n{listed} candidates, {living} work, {PARALLEL} at a time, {build} build\n");
    println!("| {:<40} | {:>6} | {:>8} | {:>12} |", "", "steps", "seconds", "longest step");
    println!("|{:-<42}|{:->8}|{:->10}|{:->14}|", "", ":", ":", ":");
    row("first run, to the first set", || until(&lab, 1));
    pool.serves(slots);
    assert_eq!(lab.gw().egressctl(&["refresh", "home"]).code, Some(0));
    row("full refresh, clients in service", || until(&lab, 2));
    pool.serves(slots);
    assert_eq!(lab.capture.leaks(), [], "in service no packet of a client leaves in clear");
}

fn row(what: &str, work: impl FnOnce() -> (usize, Duration)) {
    let begun = Instant::now();
    let (steps, longest) = work();
    let (all, longest) = (begun.elapsed().as_secs_f64(), longest.as_secs_f64());
    println!("| {what:<40} | {steps:>6} | {all:>8.1} | {longest:>12.1} |");
}

/// Steps until the pool is of this generation and complete; how many, and how long the longest took.
fn until(lab: &Lab, generation: u64) -> (usize, Duration) {
    let mut longest = Duration::ZERO;
    for steps in 1..=40 {
        let begun = Instant::now();
        let step = lab.gw().egressctl(&["step", "home", "--now", "--json"]);
        longest = longest.max(begun.elapsed());
        assert_eq!(step.code, Some(0), "{} {}", step.stdout, step.stderr);
        let status = lab.gw().egressctl(&["status", "home", "--json"]).stdout;
        let status: Value = serde_json::from_str(&status).unwrap();
        if status["state"] == "NORMAL" && status["pool"]["generation"].as_u64() >= Some(generation)
        {
            return (steps, longest);
        }
    }
    panic!("generation {generation} did not come");
}
