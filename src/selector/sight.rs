//! What was seen, as a selector judges it.
//!
//! **Invariant:** what could not be determined is unknown; nothing here looks at what is remembered
//! but the last choice.

use super::activity::Measure;
use super::ask;
use super::state::Verdict;
use crate::observation::{
    Asker, CoreFault, CoreReading, CoreSeen, GroupFault, Observation, PageReading, Pages,
    PagesReading,
};
use crate::policy::SelectorPolicy;
use crate::policy::selector::{Channel, ClashDriver};

/// How a channel answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) verdict: Verdict,
    pub(super) why: String,
    pub(super) latency_ms: Option<u64>,
}

/// Whether the uplink works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wan {
    /// It does, or nobody asked.
    Up,
    /// It did not answer once.
    AskAgain,
    /// It does not.
    Down,
}

/// Judges the `turn`-th answers of a channel. `None`: it was not asked.
pub(super) fn health(seen: &Observation, channel: Channel, turn: u32) -> Option<Health> {
    let (pages, reading) = ask::read(seen, &ask::asker(channel), turn)?;
    Some(judged(&pages, &reading))
}

fn judged(pages: &Pages, reading: &PagesReading) -> Health {
    if reading.passes(pages) {
        let latency_ms = reading.latency_ms(pages);
        return Health { verdict: Verdict::Healthy, why: String::new(), latency_ms };
    }
    let bad = pages.pages.iter().zip(&reading.pages);
    let bad = bad.filter_map(|(page, seen)| Some((page, seen.as_ref()?)));
    let bad: Vec<_> = bad.filter(|(_, seen)| !pages.expect.accepts(seen)).collect();
    if let Some(why) = bad.iter().find_map(|(_, seen)| seen.unasked()) {
        return Health { verdict: Verdict::Unknown, why, latency_ms: None };
    }
    let why = bad.first().map_or_else(
        || "nothing was asked".to_owned(),
        |(page, seen)| {
            let what = match seen {
                PageReading::Answer { status, bytes, .. } => {
                    format!("answers {status} with {bytes} bytes")
                }
                PageReading::TimedOut => "does not answer".to_owned(),
                PageReading::Broken(why)
                | PageReading::NotBindable(why)
                | PageReading::NoProxy(why) => why.clone(),
                PageReading::NoAddress => "has no address".to_owned(),
            };
            format!("{} {what}", page.url.host())
        },
    );
    let verdict = if bad.is_empty() { Verdict::Unknown } else { Verdict::Unhealthy };
    Health { verdict, why: crate::outcome::harmless(&why), latency_ms: None }
}

/// Judges the uplink: twice without an answer is down.
pub(super) fn wan(policy: &SelectorPolicy, seen: &Observation) -> Wan {
    if policy.wan.is_none() {
        return Wan::Up;
    }
    let passes = |turn| ask::read(seen, &Asker::Wan, turn).map(|(pages, read)| read.passes(&pages));
    match (passes(0), passes(1)) {
        (Some(true), _) | (_, Some(true)) => Wan::Up,
        (_, None) => Wan::AskAgain,
        (_, Some(false)) => Wan::Down,
    }
}

/// Whether the references of the uplink were asked once.
pub(super) fn was_wan_asked(seen: &Observation) -> bool {
    ask::read(seen, &Asker::Wan, 0).is_some()
}

/// Why nothing can be done with a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CoreTrouble {
    /// It is down or restarting.
    Down(String),
    /// It answers, and not as the policy needs it.
    Unusable(String),
}

/// A core that answers and has the policy's group and members.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreSight<'a> {
    pub(super) seen: &'a CoreSeen,
    /// The selected member.
    pub(super) now: &'a str,
    /// All members.
    pub(super) all: &'a [String],
}

/// Judges a look at the core.
pub(super) fn core<'a>(
    driver: &ClashDriver,
    reading: &'a CoreReading,
) -> Result<CoreSight<'a>, CoreTrouble> {
    let seen = match &reading.core {
        Ok(seen) => seen,
        Err(CoreFault::Down(why)) => return Err(CoreTrouble::Down(why.clone())),
        Err(CoreFault::Refused(why) | CoreFault::Strange(why)) => {
            return Err(CoreTrouble::Unusable(why.clone()));
        }
    };
    let of = |why: &dyn std::fmt::Display| {
        let group = crate::outcome::harmless(&driver.selector);
        CoreTrouble::Unusable(format!("group {group} of {}: {why}", driver.core))
    };
    let group = match seen.groups.get(&driver.selector) {
        Some(Ok(group)) => group,
        Some(Err(fault)) => return Err(of(fault)),
        None => return Err(of(&GroupFault::Missing)),
    };
    for channel in Channel::ALL {
        let member = &driver.member(channel).member;
        if !group.all.contains(member) {
            let member = crate::outcome::harmless(member);
            return Err(of(&format!(
                "{member} is no member of it: name another as {channel}.member"
            )));
        }
    }
    if group.now.is_empty() {
        return Err(of(&"it does not tell what is selected"));
    }
    Ok(CoreSight { seen, now: &group.now, all: &group.all })
}

impl CoreSight<'_> {
    /// What was received, less what the other channel has.
    pub(super) fn measure(
        &self,
        driver: &ClashDriver,
        reading: &CoreReading,
        in_use: Channel,
    ) -> Option<Measure> {
        let traffic = self.seen.traffic.as_ref()?.as_ref().ok()?;
        let other = driver.member(in_use.other()).member.as_str();
        let elsewhere = traffic.flows.iter().filter(|flow| flow.goes_through(&[other]));
        Some(Measure {
            at: reading.at.clone(),
            life: self.seen.life.clone(),
            received: traffic.received,
            elsewhere: elsewhere.map(|flow| (flow.id.clone(), flow.received)).collect(),
        })
    }
}
