//! What was seen, as a chain judges it.
//!
//! **Invariant:** what could not be determined is unknown, and never a failure.

use super::ask;
use super::legs::Legs;
use super::name::{HopName, NodeName};
use super::state::ChainState;
use super::tunnels::{self, key};
use super::under_way::Seats;
use crate::names::Interface;
use crate::observation::{
    Asker, Delay, DelayReading, Observation, PageReading, Pages, PagesReading, Question,
    TrialResult,
};
use crate::outcome::harmless;
use crate::policy::ChainPolicy;
use crate::policy::chain::{Hop, WireguardDriver};
use crate::policy::pool::Require;
use crate::proxy::{Shown, Verdict};

/// What a member showed, as last asked. `None`: it was not.
pub(super) fn member(policy: &ChainPolicy, seen: &Observation, member: &str) -> Option<Shown> {
    let readings = seen.delays().filter(|(_, reading)| reading.members.contains_key(member));
    let (_, last) = readings.max_by_key(|(asked, _)| asked.turn)?;
    let delays = last.members.get(member)?;
    Some(measured(policy.probe.require, delays, last))
}

fn measured(require: Require, delays: &[Delay], reading: &DelayReading) -> Shown {
    let took: Vec<u64> = delays
        .iter()
        .filter_map(|delay| match delay {
            Delay::Took(took) => Some(*took),
            Delay::Failed | Delay::Absent | Delay::Unknown(_) => None,
        })
        .collect();
    let passes = match require {
        Require::Any => !took.is_empty(),
        Require::All => !took.is_empty() && took.len() == delays.len(),
    };
    let unknown = delays.iter().find_map(|delay| match delay {
        Delay::Unknown(why) => Some(why.clone()),
        Delay::Absent => Some("the core has nothing of that name".to_owned()),
        Delay::Took(_) | Delay::Failed => None,
    });
    let (verdict, why) = match (passes, unknown) {
        (true, _) => (Verdict::Passed, String::new()),
        (false, Some(why)) => (Verdict::Unknown, why),
        (false, None) => (Verdict::Failed, "no answer through it".to_owned()),
    };
    let latency_ms = took.into_iter().min().filter(|_| passes);
    Shown { verdict, why: harmless(&why), latency_ms, at: reading.at.clone() }
}

/// What the pages showed that were asked through all hops. `None`: they were not asked.
pub(super) fn path(seen: &Observation) -> Option<Shown> {
    let asker = ask::asker();
    let (pages, reading) = ask::read(seen, &asker, 1).or_else(|| ask::read(seen, &asker, 0))?;
    Some(answered(&pages, &reading))
}

fn answered(pages: &Pages, reading: &PagesReading) -> Shown {
    let shown = |verdict, why: String, latency_ms| Shown {
        verdict,
        why: harmless(&why),
        latency_ms,
        at: reading.at.clone(),
    };
    if reading.passes(pages) {
        return shown(Verdict::Passed, String::new(), reading.latency_ms(pages));
    }
    let bad: Vec<_> = pages
        .pages
        .iter()
        .zip(&reading.pages)
        .filter_map(|(page, seen)| Some((page, seen.as_ref()?)))
        .filter(|(_, seen)| !pages.expect.accepts(seen))
        .collect();
    if let Some(why) = bad.iter().find_map(|(_, seen)| seen.unasked()) {
        return shown(Verdict::Unknown, why, None);
    }
    let Some((page, seen)) = bad.first() else {
        return shown(Verdict::Unknown, "nothing was asked".to_owned(), None);
    };
    let what = match seen {
        PageReading::Answer { status, bytes, .. } => format!("answers {status} with {bytes} bytes"),
        PageReading::TimedOut => "does not answer".to_owned(),
        PageReading::Broken(why) | PageReading::NotBindable(why) | PageReading::NoProxy(why) => {
            why.clone()
        }
        PageReading::NoAddress => "has no address".to_owned(),
    };
    shown(Verdict::Failed, format!("{} {what}", page.url.host()), None)
}

/// What a request through the tunnel of a device showed, as last asked. `None`: it was not.
pub(super) fn leg(seen: &Observation, device: &Interface) -> Option<Shown> {
    let asker = Asker::Slot(device.clone());
    let (pages, reading) = ask::read(seen, &asker, 1).or_else(|| ask::read(seen, &asker, 0))?;
    Some(answered(&pages, &reading))
}

/// What the test of a node showed that does not carry. `None`: it was not tested.
pub(super) fn tested(seen: &Observation, hop: &HopName, node: &NodeName) -> Option<Shown> {
    let name = key(hop, node);
    let (_, reading) = seen.trials().find(|(trial, _)| trial.name == name)?;
    let (verdict, why, latency_ms) = match &reading.result {
        TrialResult::Passed { latency_ms } => (Verdict::Passed, String::new(), Some(*latency_ms)),
        TrialResult::Assumed => (Verdict::Passed, String::new(), None),
        TrialResult::Failed { why } => (Verdict::Failed, why.clone(), None),
        TrialResult::NotTried { why } => (Verdict::Unknown, why.clone(), None),
    };
    Some(Shown { verdict, why: harmless(&why), latency_ms, at: reading.at.clone() })
}

/// What the legs of tunnels showed. A hop in which none can stand does not pass.
fn of_tunnels(
    policy: &ChainPolicy,
    driver: &WireguardDriver,
    state: &ChainState,
    seen: &Observation,
    seats: &Seats,
) -> Legs {
    let shown = |(place, (hop, seat)): (usize, (&Hop, &String))| {
        let node = hop.of_member(seat)?;
        if let Err(why) = state.tunnel(policy, place, seat) {
            let at = seen.started.clone();
            return Some(Shown { verdict: Verdict::Failed, why, latency_ms: None, at });
        }
        driver.device(place).filter(|_| node.egress).and_then(|device| leg(seen, device))
    };
    let legs: Vec<Option<Shown>> = policy.hops.iter().zip(seats).enumerate().map(shown).collect();
    let path = legs.last().cloned().flatten();
    Legs { legs, path }
}

/// What the legs of `seats` and the whole path showed.
pub(super) fn legs(
    policy: &ChainPolicy,
    state: &ChainState,
    seen: &Observation,
    seats: &Seats,
) -> Legs {
    if let Some(driver) = tunnels::driver(policy) {
        return of_tunnels(policy, driver, state, seen, seats);
    }
    let leg = |(hop, seat): (&Hop, &String)| {
        let has_leg = hop.of_member(seat).is_none_or(|node| node.egress);
        if has_leg { member(policy, seen, seat) } else { None }
    };
    let legs: Vec<Option<Shown>> = policy.hops.iter().zip(seats).map(leg).collect();
    // The last leg is the whole path, unless a client's own way is asked.
    let asked = path(seen);
    let known = asked.clone().filter(|path| path.verdict != Verdict::Unknown);
    let path = known.or_else(|| legs.last().cloned().flatten()).or(asked);
    Legs { legs, path }
}

/// Whether anything was asked of the hops.
pub(super) fn was_asked(seen: &Observation) -> bool {
    let by_device = |question: &Question| {
        matches!(question, Question::Pages(Pages { asker: Asker::Slot(_), .. }))
    };
    seen.delays().next().is_some() || path(seen).is_some() || seen.readings.keys().any(by_device)
}

/// Whether the uplink's references answer. `None`: they were not asked.
pub(super) fn wan(seen: &Observation) -> Option<bool> {
    ask::read(seen, &Asker::Wan, 0).map(|(pages, read)| read.passes(&pages))
}
