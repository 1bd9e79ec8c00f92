//! What others write never makes us panic, takes long, tells a secret, or says more than a line: every parser of
//! the fuzzer, over its corpus, over spoilt copies of it, and over input as long as a list can be.
//!
//! `EGRESSCTL_SEED=N cargo test --test local parsers` repeats a run, and `EGRESSCTL_SPOIL_SEC=N` gives each target so many
//! seconds; `CONTRIBUTING.md` says how to look with a fuzzer.
#![allow(clippy::default_trait_access, unreachable_pub, reason = "test code")]

use crate::mutate;
use crate::targets;

use mutate::{Dice, spoilt};
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use targets::ALL;

/// How long each target is given spoilt input.
const SPOILING: Duration = Duration::from_millis(1_500);

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus")
}

/// The inputs of a target, by the names of their files.
fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = corpus().join(target);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let mut all: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        })
        .collect();
    all.sort();
    all
}

/// Runs a target, and says with which input when it does not hold.
fn holds(target: &str, parse: fn(&[u8]), input: &[u8], of: &str) {
    if catch_unwind(AssertUnwindSafe(|| parse(input))).is_err() {
        let kept = std::env::temp_dir().join(format!("egressctl-{target}-broken"));
        std::fs::write(&kept, input).unwrap();
        panic!("{target} does not keep its promises with {of}: the input is in {}", kept.display());
    }
}

#[test]
fn every_input_that_was_ever_of_interest_keeps_the_promises() {
    for (target, parse) in ALL {
        let inputs = inputs(target);
        assert!(!inputs.is_empty(), "{target} has no corpus");
        for (name, input) in inputs {
            holds(target, parse, &input, &format!("{target}/{name}"));
        }
    }
    let targets: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
    for entry in std::fs::read_dir(corpus()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(targets.contains(&name.as_str()), "the corpus {name} is of no target");
    }
    let fuzzers = std::fs::read_to_string(corpus().join("../Cargo.toml")).unwrap();
    for target in targets {
        assert!(fuzzers.contains(&format!("name = \"{target}\"")), "{target} has no fuzzer");
    }
}

#[test]
fn spoilt_input_keeps_the_promises() {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let seed = std::env::var("EGRESSCTL_SEED").map_or(clock, |seed| seed.parse().unwrap());
    let long = std::env::var("EGRESSCTL_SPOIL_SEC");
    let spoiling = long.map_or(SPOILING, |sec| Duration::from_secs(sec.parse().unwrap()));
    println!("EGRESSCTL_SEED={seed}");
    for (target, parse) in ALL {
        let inputs = inputs(target);
        let mut dice = Dice::new(seed);
        let end = Instant::now() + spoiling;
        let mut tried = 0;
        while Instant::now() < end || tried < 20 {
            let (of, input) = &inputs[dice.below(inputs.len())];
            let (_, other) = &inputs[dice.below(inputs.len())];
            let input = spoilt(input, other, &mut dice);
            holds(
                target,
                parse,
                &input,
                &format!("a copy of {target}/{of} (EGRESSCTL_SEED={seed})"),
            );
            tried += 1;
        }
        println!("{target}: {tried} inputs");
    }
}

/// Far more than any of it takes, and far less than what grows with the square of its input.
const LONG: Duration = Duration::from_secs(10);

/// So many entries a machine or a stranger may well show.
const MANY: usize = 20_000;

fn takes_no_time(what: &str, work: impl FnOnce()) {
    let begun = Instant::now();
    work();
    assert!(begun.elapsed() < LONG, "{what} took {:?}", begun.elapsed());
}

#[test]
fn a_list_as_long_as_can_be_takes_no_time() {
    let many = |each: &dyn Fn(usize) -> serde_json::Value| -> serde_json::Value {
        (0..MANY).map(each).collect::<Vec<_>>().into()
    };
    let parse = |target: &str| ALL.iter().find(|(name, _)| *name == target).unwrap().1;
    let objects = many(&|n| match n % 2 {
        0 => json!({ "chain": { "family": "ip", "table": "nat", "name": format!("KUBE-{n}") } }),
        _ => json!({ "rule": { "family": "ip", "table": "nat", "chain": format!("KUBE-{}", n - 1),
                               "expr": [{ "accept": null }] } }),
    });
    takes_no_time("a ruleset with a chain for each service", || {
        parse("nft")(json!({ "nftables": objects }).to_string().as_bytes());
    });
    let flows = many(&|n| json!({ "id": n.to_string(), "chains": ["a", "select"], "download": n }));
    let traffic = json!({ "downloadTotal": 1, "connections": flows });
    takes_no_time("connections", || parse("clash")(traffic.to_string().as_bytes()));
    let rules = many(&|n| json!({ "priority": n, "src": "10.0.0.1", "table": "101" }));
    takes_no_time("rules", || {
        let rules = egressctl::iproute::parse_rules(&rules, egressctl::iproute::Family::V4);
        assert_eq!(rules.unwrap().len(), MANY);
    });
    let lines = "\tx\ty\tz\n".repeat(MANY);
    takes_no_time("a dump", || parse("wg_dump")(format!("vpn1{lines}").as_bytes()));
    let text = format!("nameserver 192.0.2.1\nId=x\n\n{}", " a: b c\n".repeat(MANY));
    takes_no_time("texts of this machine", || parse("machine")(text.as_bytes()));
    let outbounds =
        many(&|n| json!({ "type": "selector", "tag": n.to_string(), "outbounds": ["auto"] }));
    let core = json!({ "outbounds": outbounds }).to_string();
    takes_no_time("a core of many groups", || {
        let file = ("c".to_owned(), core);
        drop(egressctl::clash::sing_box::sing_box("c".to_owned(), std::slice::from_ref(&file)));
    });
}
