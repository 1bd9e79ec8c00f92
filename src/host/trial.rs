//! Tries one candidate on a test interface.
//!
//! **Invariant:** the test interface is gone when a trial is over, however it went; trouble of this
//! machine is never held against the candidate.

use super::apply::{self, Hands};
use super::exec::{self, Call};
use super::{clock, pages, stop};
use crate::observation::{PageReading, Pages, PagesReading, Trial, TrialReading, TrialResult};
use crate::plan::Action;
use anyhow::Context as _;
use std::time::Duration;

/// What takes milliseconds when it works.
const DEADLINE: Duration = Duration::from_secs(5);

/// Tries.
///
/// # Errors
/// When the clock cannot be read.
pub fn trial(trial: &Trial, hands: &Hands) -> anyhow::Result<TrialReading> {
    let result = build(trial, hands).and_then(|()| try_it(trial));
    // Removed before anything else is told: the same keys may be wanted in a slot at once.
    let removed = apply::apply(&remove(trial), hands);
    // An interface that stays is the whole step's trouble: its journal stays too, and the next undoes.
    removed?;
    let result = result.unwrap_or_else(|why| TrialResult::NotTried { why: format!("{why:#}") });
    Ok(TrialReading { at: clock::now()?, result })
}

fn remove(trial: &Trial) -> Action {
    Action::RemoveTunnel {
        interface: trial.interface.clone(),
        backend: trial.means.backend.clone(),
    }
}

fn build(trial: &Trial, hands: &Hands) -> anyhow::Result<()> {
    let interface = &trial.interface;
    // Making it removes what a killed run left under this name.
    let mut actions = vec![
        Action::CreateTunnel { interface: interface.clone(), backend: trial.means.backend.clone() },
        Action::Configure {
            interface: interface.clone(),
            config: trial.config.clone(),
            endpoint: trial.endpoint,
            listen_port: None,
            fwmark: trial.fwmark,
            tool: trial.means.tool.clone(),
        },
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
    actions.iter().try_for_each(|action| apply::apply(action, hands))
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
