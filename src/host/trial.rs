//! Tries candidates on test interfaces.
//!
//! A dead candidate takes seconds and a living one milliseconds, so an interface that is free takes the next
//! one and does not wait for those beside it.
//!
//! **Invariant:** the test interfaces are gone when a round is over, however it went; trouble of this
//! machine is never held against a candidate.

use super::apply::{self, Hands};
use super::exec::{self, Call};
use super::{clock, pages, stop};
use crate::observation::{PageReading, Pages, PagesReading, Trial, TrialReading, TrialResult};
use crate::plan::Action;
use anyhow::{Context as _, bail};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// What takes milliseconds when it works.
const DEADLINE: Duration = Duration::from_secs(5);

/// Tries, as many side by side as there are test interfaces among them: each takes the one that names
/// it and then the next of those that nobody has begun. What nobody begins because enough is known has
/// no reading.
///
/// # Errors
/// When a test interface stays, when no thread can be started, or when the clock cannot be read.
pub fn round(trials: &[&Trial], hands: &Hands) -> anyhow::Result<Vec<Option<TrialReading>>> {
    let (mut firsts, mut others) = (Vec::new(), VecDeque::new());
    let mut named = BTreeSet::new();
    for numbered in trials.iter().copied().enumerate() {
        if named.insert(&numbered.1.interface) {
            firsts.push(numbered);
        } else {
            others.push_back(numbered);
        }
    }
    let queue =
        Queue { others: Mutex::new(others), passed: AtomicUsize::new(0), since: Instant::now() };
    let done: Vec<anyhow::Result<Vec<Numbered>>> = std::thread::scope(|threads| {
        // The last interface is worked on here: a thread less.
        let Some((last, others)) = firsts.split_last() else { return Vec::new() };
        let work = |first: &(usize, &Trial)| work(*first, &queue, hands);
        let started: Vec<_> = others
            .iter()
            .map(|first| Builder::new().spawn_scoped(threads, move || work(first)))
            .collect();
        let last = work(last);
        let join = |thread: io::Result<ScopedJoinHandle<'_, _>>| {
            let thread = thread.context("starting a thread")?;
            thread.join().unwrap_or_else(|_| bail!("a thread that tried panicked"))
        };
        started.into_iter().map(join).chain([last]).collect()
    });
    let mut readings: Vec<Option<TrialReading>> = trials.iter().map(|_| None).collect();
    for (number, reading) in done.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat() {
        if let Some(place) = readings.get_mut(number) {
            *place = Some(reading);
        }
    }
    Ok(readings)
}

/// A reading and the place of its trial in the round.
type Numbered = (usize, TrialReading);

/// What is still to be tried in a round.
struct Queue<'a> {
    others: Mutex<VecDeque<(usize, &'a Trial)>>,
    passed: AtomicUsize,
    since: Instant,
}

impl<'a> Queue<'a> {
    /// The next one, if any is to be begun.
    fn next(&self) -> Option<(usize, &'a Trial)> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let until = others.front()?.1.until;
        let is_enough = self.passed.load(Ordering::SeqCst) >= until.passed
            || self.since.elapsed() >= Duration::from_millis(until.millis)
            || stop::is_asked();
        if is_enough { None } else { others.pop_front() }
    }
}

/// Tries on one interface until nothing is to be tried any more.
fn work(first: (usize, &Trial), queue: &Queue<'_>, hands: &Hands) -> anyhow::Result<Vec<Numbered>> {
    let own = first.1;
    let mut device = Device { own, last: None, hands };
    let (mut done, mut next) = (Vec::new(), Some(first));
    while let Some((number, trial)) = next {
        let trial = moved(trial, own);
        let result = device.load(&trial).and_then(|()| try_it(&trial));
        let result = match result {
            Ok(result) => result,
            Err(why) => {
                // What failed half way is made anew.
                device.remove()?;
                TrialResult::NotTried { why: format!("{why:#}") }
            }
        };
        if matches!(result, TrialResult::Passed { .. }) {
            queue.passed.fetch_add(1, Ordering::SeqCst);
        }
        done.push((number, TrialReading { at: clock::now()?, result }));
        next = queue.next();
    }
    // Removed before anything is told: the same keys may be wanted in a slot at once. An interface that
    // stays is the whole step's trouble: its journal stays too, and the next undoes.
    device.remove()?;
    Ok(done)
}

/// A trial on the interface of another one.
fn moved(trial: &Trial, own: &Trial) -> Trial {
    let mut moved = trial.clone();
    moved.interface.clone_from(&own.interface);
    moved.pages.way.clone_from(&own.pages.way);
    if let Some(large) = &mut moved.large {
        large.way.clone_from(&own.pages.way);
    }
    moved
}

/// A test interface.
struct Device<'a> {
    own: &'a Trial,
    /// What was last loaded, while the interface may be there.
    last: Option<Trial>,
    hands: &'a Hands,
}

impl Device<'_> {
    /// Makes the interface, or gives the one there is other keys: a daemon that starts takes longer than
    /// most answers.
    fn load(&mut self, trial: &Trial) -> anyhow::Result<()> {
        let last = self.last.replace(trial.clone());
        let actions = match &last {
            Some(last) if may_follow(last, trial) => changed(last, trial),
            Some(_) | None => made(trial),
        };
        actions.iter().try_for_each(|action| apply::apply(action, self.hands))
    }

    fn remove(&mut self) -> anyhow::Result<()> {
        let Some(last) = self.last.take() else { return Ok(()) };
        let interface = self.own.interface.clone();
        let backend = last.means.backend;
        apply::apply(&Action::RemoveTunnel { interface, backend }, self.hands)
    }
}

/// Whether loading one after another leaves nothing of the first: `wg setconf` replaces all that WireGuard
/// has, and what AmneziaWG has beside it may stay.
fn may_follow(last: &Trial, trial: &Trial) -> bool {
    last.means == trial.means && trial.means.tool == "wg"
}

/// What makes a test interface.
fn made(trial: &Trial) -> Vec<Action> {
    let interface = &trial.interface;
    // Making it removes what a killed run left under this name.
    let mut actions = vec![
        Action::CreateTunnel { interface: interface.clone(), backend: trial.means.backend.clone() },
        configure(trial),
    ];
    actions.extend(
        trial
            .addresses
            .iter()
            .map(|address| Action::AddAddress { interface: interface.clone(), address: *address }),
    );
    // Answers to a bound request come in by a device that no route names.
    actions.extend([("rp_filter", "2"), ("src_valid_mark", "1")].map(|(key, value)| {
        Action::Sysctl { path: format!("net/ipv4/conf/{interface}/{key}"), value: value.to_owned() }
    }));
    actions.push(Action::LinkUp { interface: interface.clone(), mtu: trial.mtu });
    actions
}

/// What makes a test interface of one trial that of the next.
fn changed(last: &Trial, trial: &Trial) -> Vec<Action> {
    let interface = &trial.interface;
    let mut actions = vec![configure(trial)];
    let gone = last.addresses.iter().filter(|address| !trial.addresses.contains(address));
    actions.extend(
        gone.map(|address| Action::RemoveAddress {
            interface: interface.clone(),
            address: *address,
        }),
    );
    let new = trial.addresses.iter().filter(|address| !last.addresses.contains(address));
    actions.extend(
        new.map(|address| Action::AddAddress { interface: interface.clone(), address: *address }),
    );
    if last.mtu != trial.mtu {
        actions.push(Action::LinkUp { interface: interface.clone(), mtu: trial.mtu });
    }
    actions
}

fn configure(trial: &Trial) -> Action {
    Action::Configure {
        interface: trial.interface.clone(),
        config: trial.config.clone(),
        endpoint: trial.endpoint,
        listen_port: None,
        fwmark: trial.fwmark,
        tool: trial.means.tool.clone(),
    }
}

fn try_it(trial: &Trial) -> anyhow::Result<TrialResult> {
    // The first request makes the tunnel shake hands. It is given just the time for that: most of
    // a list's dead candidates cost no more, and a candidate that shook hands gets the rest.
    let begin =
        Pages { timeout_ms: trial.handshake_ms.min(trial.pages.timeout_ms), ..trial.pages.clone() };
    let mut seen = pages::ask(&begin)?;
    if !seen.passes(&begin) {
        if let Some(why) = local(&seen) {
            return Ok(TrialResult::NotTried { why });
        }
        if !has_shaken_hands(trial)? {
            let why = format!("no handshake within {} ms", begin.timeout_ms);
            return Ok(TrialResult::Failed { why });
        }
        let left = trial.pages.timeout_ms.saturating_sub(begin.timeout_ms);
        if is_silent(&seen) && left > 0 && !stop::is_asked() {
            seen = pages::ask(&Pages { timeout_ms: left, ..trial.pages.clone() })?;
        }
    }
    let mut result = judge(trial, &seen)?;
    for _ in 0..trial.retries {
        match result {
            TrialResult::Failed { .. } if !stop::is_asked() => {
                result = judge(trial, &pages::ask(&trial.pages)?)?;
            }
            TrialResult::Failed { .. }
            | TrialResult::Passed { .. }
            | TrialResult::NotTried { .. }
            | TrialResult::Assumed => break,
        }
    }
    if trial.warm && matches!(result, TrialResult::Passed { .. }) {
        result = judge(trial, &pages::ask(&trial.pages)?)?;
    }
    Ok(result)
}

/// What the pages showed, the large one asked only after the others were good.
fn judge(trial: &Trial, seen: &PagesReading) -> anyhow::Result<TrialResult> {
    if !seen.passes(&trial.pages) {
        return Ok(not_passed(&trial.pages, seen));
    }
    if let Some(large) = &trial.large {
        let seen = pages::ask(large)?;
        if !seen.passes(large) {
            return Ok(not_passed(large, &seen));
        }
    }
    Ok(TrialResult::Passed { latency_ms: seen.latency_ms(&trial.pages).unwrap_or(0) })
}

fn not_passed(question: &Pages, seen: &PagesReading) -> TrialResult {
    match local(seen) {
        Some(why) => TrialResult::NotTried { why },
        None => TrialResult::Failed { why: why_not(question, seen) },
    }
}

/// Why nothing could be asked at all, if so.
fn local(seen: &PagesReading) -> Option<String> {
    let mut whys = seen.pages.iter().flatten().map(PageReading::unasked);
    let first = whys.next()??;
    whys.all(|why| why.is_some()).then_some(first)
}

/// Whether some page may yet answer when it is given more time.
fn is_silent(seen: &PagesReading) -> bool {
    seen.pages.iter().any(|page| match page {
        Some(PageReading::TimedOut) | None => true,
        Some(
            PageReading::Answer { .. }
            | PageReading::Broken(_)
            | PageReading::NoAddress
            | PageReading::NotBindable(_)
            | PageReading::NoProxy(_),
        ) => false,
    })
}

/// The first page that was not good, in words.
fn why_not(question: &Pages, seen: &PagesReading) -> String {
    question
        .pages
        .iter()
        .zip(&seen.pages)
        .filter_map(|(page, reading)| Some((page, reading.as_ref()?)))
        .filter(|(_, reading)| !question.expect.accepts(reading))
        .map(|(page, reading)| match reading {
            PageReading::Answer { status, bytes, .. } => {
                format!("{} answered {status} with {bytes} bytes", page.url)
            }
            PageReading::TimedOut => format!("{} did not answer in time", page.url),
            PageReading::Broken(why)
            | PageReading::NotBindable(why)
            | PageReading::NoProxy(why) => {
                format!("{}: {why}", page.url)
            }
            PageReading::NoAddress => format!("no address of {} is known", page.url.host()),
        })
        .next()
        .unwrap_or_else(|| "nothing was asked".to_owned())
}

fn has_shaken_hands(trial: &Trial) -> anyhow::Result<bool> {
    let interface = trial.interface.as_str();
    let call = Call::new(&trial.means.tool, &["show", interface, "latest-handshakes"], DEADLINE);
    let output = exec::run(&call).context("asking for the handshake")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let times = text.lines().filter_map(|line| line.split('\t').nth(1)?.parse::<u64>().ok());
    Ok(times.max().unwrap_or(0) > 0)
}
