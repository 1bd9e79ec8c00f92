//! What is wrong with a policy of any kind: its state, and what a step of it would see.
//!
//! **Invariant:** nothing here knows one kind from another.

use super::{Code, Finding, Probe, ProbeResult, cores, numbers};
use crate::dns::REFERENCE;
use crate::machine::ReasonText;
use crate::names::PolicyName;
use crate::observation::{
    Asker, Observation, Page, PageReading, Pages, PagesReading, Question, Reading, Way,
};
use crate::record::Record;
use crate::time::Moment;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A cron line steps once a minute, so silence up to this is nobody's fault.
const PATIENCE: Duration = Duration::from_secs(300);

/// An interval of 0 counts as this.
const LEAST_INTERVAL: Duration = Duration::from_secs(10);

/// A policy as a step of it would find it.
pub struct Stepped<'a, S> {
    /// Its name.
    pub name: &'a PolicyName,
    /// Its file.
    pub path: &'a Path,
    /// How often it wishes to be stepped.
    pub interval: Duration,
    /// The present moment.
    pub now: &'a Moment,
    /// What is remembered.
    pub record: &'a Record<S>,
    /// What is wrong with the state.
    pub damaged: Option<&'a str>,
    /// Why a step would refuse the state.
    pub foreign: Option<&'a str>,
    /// Whether a change is in flight.
    pub is_in_flight: bool,
    /// What is wrong with the state folder.
    pub folder: Option<String>,
    /// What a step would see.
    pub seen: &'a Observation,
    /// Why the machine cannot serve it.
    pub unable: &'a [ReasonText],
    /// What could not be looked at.
    pub blind: Option<&'a str>,
}

/// What is wrong with it.
#[must_use]
pub fn findings<S>(stepped: &Stepped<'_, S>) -> Vec<Finding> {
    let mut found = state(stepped);
    if let Some(why) = stepped.blind {
        found.push(Finding::new(Code::NotSeen, why, "do what it says, and check again"));
    }
    if let Some(kernel) = stepped.seen.kernel() {
        found.extend(numbers::taken(&kernel.strangers));
    }
    // A stranger's interface has been told by its name.
    for reason in stepped.unable.iter().filter(|reason| reason.code != "stranger") {
        let mend = "correct the policy, or the machine, as it says";
        found.push(Finding::new(Code::Unfit, reason.text.clone(), mend));
    }
    found.extend(cores::findings(stepped.seen));
    found.extend(silence(stepped));
    found
}

fn state<S>(stepped: &Stepped<'_, S>) -> Vec<Finding> {
    let name = stepped.name;
    let mut found = Vec::new();
    if let Some(why) = &stepped.folder {
        let mend = "give it to root alone: chown root: and chmod 700, on a file system that can be written";
        found.push(Finding::new(Code::StateFolder, why.clone(), mend));
    }
    if let Some(why) = stepped.foreign {
        let mend = format!(
            "egressctl step --adopt {}, if the policy has moved; else rename one of them",
            stepped.path.display()
        );
        found.push(Finding::new(Code::StateForeign, why, mend));
    }
    if let Some(why) = stepped.damaged {
        found.push(Finding::new(Code::StateDamaged, why, format!("egressctl step {name}")));
    }
    if stepped.is_in_flight {
        found.push(Finding::new(
            Code::JournalLeft,
            format!("a journal of {name} is there"),
            format!("egressctl step {name}, once no other run goes on"),
        ));
    }
    if let Some(paused) = &stepped.record.paused {
        let since = paused.at.strftime("%Y-%m-%d %H:%M:%SZ");
        found.push(Finding::new(
            Code::Paused,
            format!("paused by a person since {since}"),
            format!("egressctl resume {name}"),
        ));
    } else if let Some(last) = &stepped.record.last_step {
        let silent = stepped.now.since(&last.at);
        if silent > (stepped.interval.max(LEAST_INTERVAL) * 3).max(PATIENCE) {
            found.push(Finding::new(
                Code::NotStepped,
                format!("the last step of {name} was {} s ago", silent.as_secs()),
                "systemctl enable --now egressctl.timer; or a line of cron that runs egressctl step",
            ));
        }
    }
    found
}

/// What was not answered.
fn silence<S>(stepped: &Stepped<'_, S>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, answer) in stepped.seen.names() {
        if let Err(why) = answer {
            found.push(Finding::new(
                Code::NameUnknown,
                format!("{name}: {why}"),
                format!(
                    "getent hosts {name}; mend /etc/resolv.conf, or correct the name in the policy"
                ),
            ));
        }
    }
    let asked = asked(stepped.seen);
    let passes = |asker: &Asker, pages: &Pages, reading: &PagesReading| {
        *asker != Asker::Wan && reading.passes(pages)
    };
    let proven = asked.iter().any(|(asker, (pages, reading))| passes(asker, pages, reading));
    for (asker, (pages, reading)) in &asked {
        if result(pages, reading) != ProbeResult::Failed {
            continue;
        }
        match asker {
            // Whatever answered came by the uplink.
            Asker::Wan if proven => {}
            Asker::Wan => found.push(Finding::new(
                Code::WanSilent,
                format!("{}: {}", way(&pages.way), answers(pages, reading)),
                "mend the uplink; or, where it blocks these pages, name others in wan.urls",
            )),
            // One that is asked on the machine's own way, before and after all others.
            Asker::Named(name) if name == REFERENCE => found.push(Finding::new(
                Code::WanSilent,
                format!("the reference: {}", answers(pages, reading)),
                "mend the uplink; or, where it blocks these pages, name others in reference.urls",
            )),
            Asker::Slot(_) | Asker::Named(_) => found.push(Finding::new(
                Code::SlotSilent,
                format!("{}: {}", who(asker).unwrap_or_default(), answers(pages, reading)),
                format!("egressctl status {}; steps repair it", stepped.name),
            )),
            Asker::SlotAgain(_) | Asker::WanExit | Asker::SlotLarge(_) | Asker::SlotExit(_) => {}
        }
    }
    found
}

/// What was probed, and how it went.
#[must_use]
pub fn probes(seen: &Observation) -> Vec<Probe> {
    let probe = |(asker, (pages, reading)): (&Asker, (&Pages, &PagesReading))| {
        let text = answers(pages, reading);
        Some(Probe { probe: who(asker)?, result: result(pages, reading), text })
    };
    asked(seen).into_iter().filter_map(probe).collect()
}

/// The last time that each asked for pages.
fn asked(seen: &Observation) -> BTreeMap<&Asker, (&Pages, &PagesReading)> {
    let mut asked = BTreeMap::new();
    for (question, reading) in &seen.readings {
        if let (Question::Pages(pages), Reading::Pages(reading)) = (question, reading) {
            asked.insert(&pages.asker, (pages, reading));
        }
    }
    // A slot that answered when it was asked once more has answered.
    for (question, reading) in &seen.readings {
        if let (Question::Pages(pages), Reading::Pages(reading)) = (question, reading)
            && let Asker::SlotAgain(slot) = &pages.asker
            && reading.passes(pages)
            && let Some(first) = asked.get_mut(&Asker::Slot(slot.clone()))
        {
            *first = (pages, reading);
        }
    }
    asked
}

/// Who asked, as a report names it.
fn who(asker: &Asker) -> Option<String> {
    match asker {
        Asker::Wan => Some("wan".to_owned()),
        Asker::Slot(interface) => Some(interface.to_string()),
        Asker::Named(name) => Some(name.clone()),
        Asker::SlotAgain(_) | Asker::WanExit | Asker::SlotLarge(_) | Asker::SlotExit(_) => None,
    }
}

fn result(pages: &Pages, reading: &PagesReading) -> ProbeResult {
    if reading.passes(pages) {
        ProbeResult::Passed
    } else if reading.pages.iter().flatten().all(cannot_be_asked) {
        ProbeResult::Unknown
    } else {
        ProbeResult::Failed
    }
}

fn cannot_be_asked(page: &PageReading) -> bool {
    match page {
        PageReading::NoAddress | PageReading::NotBindable(_) | PageReading::NoProxy(_) => true,
        PageReading::Answer { .. } | PageReading::TimedOut | PageReading::Broken(_) => false,
    }
}

/// A way as a person knows it.
fn way(way: &Way) -> String {
    match way {
        Way::Main => "the main table".to_owned(),
        Way::Device { device, .. } => device.to_string(),
        Way::Proxy(_) => "the proxy".to_owned(),
    }
}

/// How the pages answered, in short.
fn answers(asked: &Pages, reading: &PagesReading) -> String {
    let one = |(page, seen): (&Page, &Option<PageReading>)| {
        let how = match seen.as_ref()? {
            PageReading::Answer { status, elapsed_ms, .. } => {
                format!("{status} in {elapsed_ms} ms")
            }
            PageReading::TimedOut => "no answer in time".to_owned(),
            PageReading::Broken(why) | PageReading::NoProxy(why) => why.clone(),
            PageReading::NoAddress => "no address is known".to_owned(),
            PageReading::NotBindable(why) => format!("not bound to the device: {why}"),
        };
        Some(format!("{}: {how}", page.url.host()))
    };
    asked.pages.iter().zip(&reading.pages).filter_map(one).collect::<Vec<_>>().join("; ")
}
