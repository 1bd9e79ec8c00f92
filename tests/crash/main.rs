//! Runs that are cut off anywhere, against a world of programs that answer in a millisecond.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::exit,
    clippy::format_push_string,
    clippy::too_many_lines,
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "test code"
)]

mod cut;
#[path = "../fake_core/mod.rs"]
mod fake_core;
mod faults;
mod gateway;
mod judge;
mod left;
#[path = "../lab/names.rs"]
mod names;
#[path = "../lab/space.rs"]
mod space;
mod stories;
mod tracer;
mod web;
mod world;
mod zone;

use judge::Known;
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use stories::{STORIES, Stage};

/// How long cuts are made when nobody says.
const SECONDS: u64 = 60;

/// Where sampling begins when nobody says.
const SEED: u64 = 20_261_130;

/// What is wanted on the command line and in the environment.
struct Wanted {
    all: bool,
    seconds: u64,
    seed: u64,
    /// So many gateways are cut side by side.
    gateways: usize,
    only: Option<String>,
}

impl Wanted {
    fn read(args: impl Iterator<Item = String>) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        // Whoever cuts for a bounded time does so beside other tests; on two cores it leaves them one.
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let gateways = number("CRASH_GATEWAYS").and_then(|number| usize::try_from(number).ok());
        let mut wanted = Self {
            all: false,
            gateways: 0,
            seconds: number("CRASH_SEC").unwrap_or(SECONDS),
            seed: number("CRASH_SEED").unwrap_or(SEED),
            only: None,
        };
        for arg in args {
            match arg.as_str() {
                "--all" => wanted.all = true,
                // Words of the usual harness say how it tells, not what it does.
                word if word.starts_with('-') => {}
                word => wanted.only = Some(word.to_owned()),
            }
        }
        let usual = if wanted.all { cores } else { cores / 2 };
        wanted.gateways = gateways.unwrap_or(usual).max(1);
        wanted
    }

    fn wants(&self, what: &str) -> bool {
        self.only.as_deref().is_none_or(|only| what.contains(only))
    }
}

/// Does work with each gateway, side by side, until nothing is left of it.
fn side_by_side<T: Send, R: Send>(
    gateways: &[gateway::Gateway],
    work: VecDeque<T>,
    until: Option<Instant>,
    each: impl Fn(&gateway::Gateway, T) -> R + Sync,
) -> Vec<R> {
    let (work, done) = (Mutex::new(work), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for gateway in gateways {
            let (work, done, each) = (&work, &done, &each);
            scope.spawn(move || {
                while until.is_none_or(|until| Instant::now() < until) {
                    let Some(item) = work.lock().expect("no thread panicked").pop_front() else {
                        break;
                    };
                    let result = each(gateway, item);
                    done.lock().expect("no thread panicked").push(result);
                }
            });
        }
    });
    done.into_inner().expect("no thread panicked")
}

/// The next number of a row that looks like lots (`SplitMix64`).
fn lot(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// All cuts, one of each scene after the other, and in each scene in the order of lots.
fn order(scenes: &[Known], wanted: &Wanted) -> VecDeque<(usize, cut::Cut)> {
    let mut seed = wanted.seed;
    let mut by_scene: Vec<VecDeque<cut::Cut>> = scenes
        .iter()
        .map(|known| {
            let is_wanted = |cut: &cut::Cut| wanted.wants(&label(known, cut));
            let mut cuts: Vec<_> = known.cuts().into_iter().filter(is_wanted).collect();
            cuts.sort_by_cached_key(|_| lot(&mut seed));
            cuts.into()
        })
        .collect();
    let mut all = VecDeque::new();
    while by_scene.iter().any(|cuts| !cuts.is_empty()) {
        for (n, cuts) in by_scene.iter_mut().enumerate() {
            all.extend(cuts.pop_front().map(|cut| (n, cut)));
        }
    }
    all
}

fn label(known: &Known, cut: &cut::Cut) -> String {
    format!("{}, {} {} {:?}", known.name, cut.call, cut.nth, cut.loss)
}

fn main() {
    let mut args = std::env::args();
    let _own_name = args.next();
    let wanted = Wanted::read(args);
    let begun = Instant::now();
    let gateways: Vec<_> = (0..wanted.gateways).map(|_| gateway::Gateway::new()).collect();
    let faults = faults::FAULTS.into_iter().filter(|(name, _)| wanted.wants(name));
    let endings = side_by_side(&gateways, faults.collect(), None, |gateway, (name, fault)| {
        let begun = Instant::now();
        let work = std::panic::AssertUnwindSafe(|| fault(gateway));
        let is_fine = std::panic::catch_unwind(work).is_ok();
        let ending = if is_fine { "ok" } else { "FAILED" };
        println!("test {name} ... {ending} ({:.1} s)", begun.elapsed().as_secs_f64());
        is_fine
    });
    // The time of the faults is their own. A story is played without a cut first, and then each of its
    // scenes; half of the time is for that, by lot where it is short.
    let stories_begun = Instant::now();
    let (half, mut seed) = (stories_begun + Duration::from_secs(wanted.seconds / 2), wanted.seed);
    let until = (!wanted.all).then_some(half);
    let mut told: Vec<_> = STORIES
        .into_iter()
        .filter(|(name, _)| {
            // A part of a scene's name begins with its story, or is in none of them.
            let only = wanted.only.as_deref().and_then(|only| only.split_once(": "));
            only.is_none_or(|(story, _)| story == *name)
        })
        .collect();
    told.sort_by_cached_key(|_| lot(&mut seed));
    let learn = |gateway: &gateway::Gateway, (name, story): (&'static str, stories::Story)| {
        let mut stage = Stage::new(gateway, name);
        story(&mut stage);
        let is_wanted = |scene: &stories::Cuttable| {
            let only = wanted.only.as_deref();
            wanted.wants(&scene.name) || only.is_some_and(|only| only.contains(&scene.name))
        };
        let mut scenes: Vec<_> = stage.scenes.into_iter().filter(is_wanted).collect();
        let (mut seed, found) = (wanted.seed, scenes.len());
        scenes.sort_by_cached_key(|_| lot(&mut seed));
        let in_time = |_: &stories::Cuttable| until.is_none_or(|until| Instant::now() < until);
        let known: Vec<_> = scenes
            .iter()
            .take_while(|scene| in_time(scene))
            .map(|scene| Known::learn(gateway, scene))
            .collect();
        (found, known)
    };
    // What a scene remembers grows old while others are cut, and its windows end: where all are wanted,
    // stories are cut as soon as they are played.
    let stories = told.len();
    let at_once = if wanted.all { gateways.len() } else { stories.max(1) };
    let rounds: Vec<Vec<_>> = told.chunks(at_once).map(<[_]>::to_vec).collect();
    let (mut played, mut found, mut known, mut results) = (0, 0, Vec::new(), Vec::new());
    let (mut total, mut cutting) = (0, Duration::ZERO);
    for round in rounds {
        let learned = side_by_side(&gateways, round.into(), until, learn);
        played += learned.len();
        let mut scenes: Vec<Known> = Vec::new();
        for (of_story, known) in learned {
            found += of_story;
            scenes.extend(known);
        }
        scenes.sort_by(|a, b| a.name.cmp(&b.name));
        let order = order(&scenes, &wanted);
        total += order.len();
        let until = stories_begun + Duration::from_secs(wanted.seconds);
        let (first, cuts_begun) = (known.len(), Instant::now());
        results.extend(side_by_side(
            &gateways,
            order,
            (!wanted.all).then_some(until),
            |gateway, (n, cut)| {
                let judged = scenes[n].cut(gateway, &cut);
                if let Err(why) = &judged.verdict {
                    println!("{}: {why}\n", label(&scenes[n], &cut));
                }
                (first + n, judged)
            },
        ));
        cutting += cuts_begun.elapsed();
        known.extend(scenes);
    }
    println!(
        "{played} of {stories} stories are played, {} of {found} scenes are known",
        known.len()
    );
    let unfit = endings.iter().filter(|is_fine| !**is_fine).count();
    let failed = unfit + results.iter().filter(|(_, judged)| judged.verdict.is_err()).count();
    for (n, known) in known.iter().enumerate() {
        let made = results.iter().filter(|(of, _)| *of == n).count();
        println!("{made} of {} cuts in {}", known.cuts().len(), known.name);
    }
    println!(
        "{} cuts of {total} in {} scenes, {} of them left what another had left; seed {}, {} ms a cut on each of {} gateways",
        results.len(),
        known.len(),
        results.iter().filter(|(_, judged)| judged.is_known).count(),
        wanted.seed,
        cutting.as_millis() * gateways.len() as u128 / results.len().max(1) as u128,
        gateways.len(),
    );
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "test result: {word}. {} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        endings.len() + results.len() - failed,
        begun.elapsed().as_secs_f64()
    );
    // Their namespaces go with them.
    drop(gateways);
    std::process::exit(i32::from(failed > 0) * 101);
}
