//! What deciding and planning cost in the largest pool that is aimed at: 250 slots, 10,000 clients, 10,000 candidates.
//!
//! `cargo bench --bench large` measures the release build and prints a table. With `-- --short` a small pool is
//! measured once, which shows that the benchmark still works. Nothing is asked of a kernel or a network: it is the pure core alone.
//!
//! **Invariant:** each row does all of what a step does for it, with every question answered.

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

mod frame;
mod vast;

use egressctl::machine::Decision;
use egressctl::pool::PoolState;
use egressctl::pool::state::{Content, Mode};
use frame::Table;
use std::time::Duration;
use vast::{Bench, Size, interface, median, slot};

/// The largest that is aimed at.
const LARGE: Size = Size { slots: 250, clients: 10_000, candidates: 10_000, spread: false };
/// Enough to see that the benchmark still works.
const SHORT: Size = Size { slots: 25, clients: 1_000, candidates: 1_000, spread: false };

fn main() {
    let (size, runs) = if frame::is_short() { (SHORT, 1) } else { (LARGE, 15) };
    let Size { slots, clients, candidates, .. } = size;
    println!(
        "\n{slots} slots, {clients} clients, {candidates} candidates, {runs} runs, {}\n",
        frame::build()
    );
    let table = Table::begin("", 44, &["decide, ms", "diff, ms", "commands"]);
    let mut bench = Bench::new(size);
    row(&table, "first run: a list, as many tested as slots", runs.min(3), &bench, |bench| {
        let (decision, took) = bench.decide();
        assert_eq!(decision.wished.to, "NORMAL");
        (decision, took)
    });
    let (to, _) = bench.step();
    assert_eq!((to.as_str(), bench.state.as_ref().unwrap().mode), ("NORMAL", Mode::Normal));
    bench.all_tested();
    bench.later(Duration::from_secs(10));
    row(&table, "steady", runs, &bench, Bench::decide);
    let failing = slot(7);
    bench.dead.insert(interface(&failing));
    bench.step();
    bench.later(Duration::from_secs(10));
    row(&table, "a slot stops serving, its clients move", runs, &bench, |bench| {
        let (decision, took) = bench.decide();
        assert_eq!(decision.wished.to, "LOCAL_REPAIR");
        (decision, took)
    });
    bench.step();
    bench.later(Duration::from_secs(10));
    row(&table, "the slot is repaired", runs, &bench, |bench| {
        let (decision, took) = bench.decide();
        let slot = &decision.wished.state.slots[&interface(&failing)];
        assert!(matches!(slot.content, Content::Loaded(_)) && decision.wished.to == "NORMAL");
        (decision, took)
    });
}

/// Measures one kind of decision from one moment, and the plan for it.
fn row(
    table: &Table,
    what: &str,
    runs: usize,
    from: &Bench,
    decide: impl Fn(&mut Bench) -> (Decision<PoolState>, Duration),
) {
    let (mut decisions, mut plans, mut commands) = (Vec::new(), Vec::new(), 0);
    for _ in 0..runs {
        let mut bench = from.again();
        let (decision, took) = decide(&mut bench);
        let (count, planned) = bench.plan(&decision);
        decisions.push(took);
        plans.push(planned);
        commands = count;
    }
    let (decided, planned) = (median(decisions), median(plans));
    table.row(what, &[format!("{decided:.1}"), format!("{planned:.1}"), commands.to_string()]);
}
