//! A list of 300 candidates of which one in ten works, tested 16, 32 and 64 at a time over real WireGuard in the lab.
//!
//! `cargo bench --bench refresh` measures the release build and prints a table. With `-- --short` the list has 40 and is tested once, which shows
//! that the benchmark still works. The dead ones do not answer at all: each is given up after 3 s without a handshake.
//!
//! **Invariant:** what is counted is what a timer would do: one step after the other, each as long as it takes.

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

use frame::Table;
use lab::pool::Pool;
use lab::source::{Says, by_http};
use lab::{Lab, provider};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// One in so many works.
const ONE_IN: usize = 10;
/// How long one that does not answer is waited for.
const GIVEN_UP: f64 = 3.0;
/// A refresh should take at most so many times what waiting for the dead ones alone takes.
const MOST: f64 = 1.2;

fn main() {
    let short = frame::is_short();
    let (listed, parallels) = if short { (40, &[32][..]) } else { (300, &[16, 32, 64][..]) };
    let living = listed / ONE_IN;
    println!("\n{listed} candidates, {living} work, {}\n", frame::build());
    let others = ["parallel", "tested", "steps", "seconds", "longest step", "floor, s", "ratio"];
    let table = Table::begin("", 34, &others);
    let mut worst = 0.0_f64;
    for parallel in parallels {
        worst = worst.max(refresh(&table, listed, *parallel, short));
    }
    println!(
        "  floor: the dead that were tested, {GIVEN_UP} s for as many as are tested at a time; the living are free"
    );
    frame::aim(&format!("a ratio of {MOST} at most: {worst:.2}"), worst <= MOST);
}

/// A first run and a full refresh, with so many tested side by side; the larger of their ratios.
fn refresh(table: &Table, listed: usize, parallel: usize, short: bool) -> f64 {
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
    let change = |policy: &mut Value, enough: usize| {
        let interfaces: Vec<String> = (1..=slots).map(|n| format!("vpn{n}")).collect();
        policy["slots"]["interfaces"] = interfaces.into();
        policy["provider"] = by_http();
        policy["test"] = json!({ "parallel": parallel, "enough": enough });
        policy["params"] = json!({ "health_check_interval_sec": 10 });
    };
    let pool = Pool::new(&lab, |policy| change(policy, 20));
    let first = row(table, &lab, "first run, until enough passed", parallel, 1);
    pool.serves(slots);
    if short {
        return first;
    }
    let pool = Pool::new(&lab, |policy| change(policy, listed));
    assert_eq!(lab.gw().egressctl(&["refresh", "home"]).code, Some(0));
    let full = row(table, &lab, "full refresh, all tested, in service", parallel, 2);
    pool.serves(slots);
    assert_eq!(lab.capture.leaks(), [], "in service no packet of a client leaves in clear");
    first.max(full)
}

fn row(table: &Table, lab: &Lab, what: &str, parallel: usize, generation: u64) -> f64 {
    let begun = Instant::now();
    let (steps, longest) = until(lab, generation);
    let (all, longest) = (begun.elapsed().as_secs_f64(), longest.as_secs_f64());
    let state = lab.gw().state("home").expect("it was stepped");
    let tested = state.pointer("/body/machine/pool/tested").and_then(Value::as_object).unwrap();
    let dead = tested.values().filter(|tested| tested.get("failed").is_some()).count();
    let floor = dead.div_ceil(parallel) as f64 * GIVEN_UP;
    let (tested, ratio) = (tested.len(), all / floor);
    let numbers = [
        parallel.to_string(),
        tested.to_string(),
        steps.to_string(),
        format!("{all:.1}"),
        format!("{longest:.1}"),
        format!("{floor:.0}"),
        format!("{ratio:.2}"),
    ];
    table.row(what, &numbers);
    ratio
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
