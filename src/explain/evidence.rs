//! What was seen in a run, in words: a line for each thing that was asked.
//!
//! **Invariant:** each question has words of its own, so that nothing which was looked at is left out
//! of an explanation but the time that was waited.

use crate::observation::{
    Asker, CoreFault, Delay, Handshake, ListReading, NodeCheck, NodeReading, Observation,
    PageReading, Question, Reading, TrialResult, TunnelsReading,
};
use crate::outcome::count;
use crate::pool::candidate::Candidate;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What was seen, in the order of the questions.
#[must_use]
pub fn evidence(seen: &Observation) -> Vec<String> {
    seen.readings.iter().flat_map(|(question, reading)| lines(question, reading)).collect()
}

/// What a question asks.
#[must_use]
pub fn asked(question: &Question) -> String {
    match question {
        Question::Kernel(_) => "the kernel".to_owned(),
        Question::Names(names) => {
            format!(
                "addresses of {}",
                names.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
            )
        }
        Question::Pages(pages) => format!("pages of {}", who(&pages.asker)),
        Question::List(list) => match &list.via {
            Some(via) => format!("the provider's list by {}", via.device),
            None => "the provider's list".to_owned(),
        },
        Question::Trial(trial) => format!("trial of {}", trial.name),
        Question::Standby(standby) => format!("standby {}", standby.file.display()),
        Question::Tunnels(tunnels) => format!("{} of nodes", count(tunnels.files.len(), "file")),
        Question::Core(core) => format!("core {}", core.core),
        Question::Outline(source) => source.to_string(),
        Question::Delays(delays) => format!("delays of members of {}", delays.core),
        Question::Gost(gost) => format!("gost {}", gost.gost),
        Question::Nodes(nodes) => format!("{} to nodes", count(nodes.len(), "check")),
        Question::Setting(setting) => setting.to_string(),
        Question::Carried(_) => "what devices have received".to_owned(),
        Question::Wait { millis, .. } => format!("a wait of {millis} ms"),
    }
}

fn who(asker: &Asker) -> &str {
    match asker {
        Asker::Wan => "the WAN",
        Asker::WanExit => "the WAN's exit address",
        Asker::Slot(slot)
        | Asker::SlotAgain(slot)
        | Asker::SlotLarge(slot)
        | Asker::SlotExit(slot) => slot.as_str(),
        Asker::Named(name) => name,
    }
}

fn page(reading: &PageReading) -> String {
    match reading {
        PageReading::Answer { status, elapsed_ms, bytes, .. } => {
            format!("answered {status} with {} in {elapsed_ms} ms", count(*bytes, "byte"))
        }
        PageReading::TimedOut => "did not answer in time".to_owned(),
        PageReading::Broken(why) => format!("failed: {why}"),
        PageReading::NoAddress => "has no known address".to_owned(),
        PageReading::NotBindable(why) | PageReading::NoProxy(why) => format!("not asked: {why}"),
    }
}

fn node(check: &NodeCheck, reading: &NodeReading) -> String {
    let how = match &check.how {
        Handshake::Tcp { port } => format!("tcp {port}"),
        Handshake::Tls { port, name, .. } => format!("tls {port} as {name}"),
        Handshake::Https { port, name, path, .. } => format!("https {port} {name}{path}"),
    };
    let what = match reading {
        NodeReading::Passed { elapsed_ms } => format!("passed in {elapsed_ms} ms"),
        NodeReading::Failed(why) => format!("failed: {why}"),
        NodeReading::Unknown(why) => format!("not asked: {why}"),
    };
    format!("node {} ({how}) {what}", check.address)
}

fn fault(fault: &CoreFault) -> String {
    fault.to_string()
}

fn files(tunnels: &TunnelsReading) -> Vec<String> {
    let line = |(name, described): (&String, &Result<Candidate, String>)| match described {
        Ok(candidate) => format!("the file of {name}: {}:{}", candidate.host, candidate.port),
        Err(why) => format!("the file of {name}: {why}"),
    };
    tunnels.described.iter().map(line).collect()
}

fn addresses(names: &BTreeMap<String, Result<Vec<IpAddr>, String>>) -> Vec<String> {
    let line = |(name, found): (&String, &Result<Vec<IpAddr>, String>)| match found {
        Ok(all) => {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("{name} is {}", all.join(" "))
        }
        Err(why) => format!("{name} has no address: {why}"),
    };
    names.iter().map(line).collect()
}

fn lines(question: &Question, reading: &Reading) -> Vec<String> {
    let what = asked(question);
    match (question, reading) {
        (_, Reading::Waited) => Vec::new(),
        (_, Reading::Kernel(kernel)) => {
            let world = &kernel.world;
            let device = kernel.default_device.as_ref().map_or("nothing", |device| device.as_str());
            vec![format!(
                "{what}: {}, {}, {} of ours; the default route is by {device}",
                count(world.tunnels.len(), "tunnel"),
                count(world.rules.len(), "rule"),
                count(world.routes.len(), "route"),
            )]
        }
        (_, Reading::Names(names)) => addresses(names),
        (Question::Pages(pages), Reading::Pages(seen)) => pages
            .pages
            .iter()
            .zip(&seen.pages)
            .filter_map(|(asked, seen)| {
                let seen = page(seen.as_ref()?);
                Some(format!("{}: {} {seen}", who(&pages.asker), asked.url.as_str()))
            })
            .collect(),
        (_, Reading::Pages(seen)) => seen.pages.iter().flatten().map(page).collect(),
        (_, Reading::List { list, .. }) => vec![match list {
            ListReading::Listed { candidates, rejected, .. } => format!(
                "{what}: {}, {} left out",
                count(candidates.len(), "candidate"),
                rejected.len()
            ),
            ListReading::Unchanged => format!("{what}: unchanged"),
            ListReading::Unavailable { why, .. } => format!("{what}: none: {why}"),
        }],
        (_, Reading::Trial(trial)) => vec![match &trial.result {
            TrialResult::Passed { latency_ms } => format!("{what}: passed in {latency_ms} ms"),
            TrialResult::Failed { why } => format!("{what}: failed: {why}"),
            TrialResult::NotTried { why } => format!("{what}: not tried: {why}"),
            TrialResult::Assumed => format!("{what}: taken to pass"),
        }],
        (_, Reading::Standby(standby)) => vec![match &standby.described {
            Ok(candidate) => format!("{what}: {}:{}", candidate.host, candidate.port),
            Err(why) => format!("{what}: {why}"),
        }],
        (_, Reading::Tunnels(tunnels)) => files(tunnels),
        (_, Reading::Core(core)) => match &core.core {
            Ok(seen) => seen
                .groups
                .iter()
                .map(|(name, group)| match group {
                    Ok(group) => format!("{what}: group {name} has selected {}", group.now),
                    Err(why) => format!("{what}: group {name}: {why}"),
                })
                .collect(),
            Err(why) => vec![format!("{what}: {}", fault(why))],
        },
        (_, Reading::Outline(outline)) => vec![match outline.as_ref() {
            Ok(outline) => format!("{what}: read in {}", outline.read_in),
            Err(why) => format!("{what}: {}", fault(why)),
        }],
        (_, Reading::Delays(delays)) => delays
            .members
            .iter()
            .map(|(member, all)| {
                let all: Vec<String> = all.iter().map(delay).collect();
                format!("{member} measured by the core: {}", all.join(", "))
            })
            .collect(),
        (_, Reading::Gost(gost)) => match &gost.gost {
            Ok(seen) => seen
                .hops
                .iter()
                .map(|(name, hop)| match hop {
                    Some(hop) => format!("{what}: hop {name} tries {}", hop.nodes.join(", then ")),
                    None => format!("{what}: there is no hop {name}"),
                })
                .collect(),
            Err(why) => vec![format!("{what}: {}", fault(why))],
        },
        (_, Reading::Nodes(nodes)) => {
            nodes.checks.iter().map(|(check, seen)| node(check, seen)).collect()
        }
        (_, Reading::Setting(value)) => vec![match value {
            Ok(value) => format!("{what} is {value}"),
            Err(why) => format!("{what} cannot be read: {why}"),
        }],
        (_, Reading::Carried(carried)) => carried
            .received
            .iter()
            .map(|(device, bytes)| format!("{device} has received {bytes} bytes"))
            .collect(),
    }
}

fn delay(delay: &Delay) -> String {
    match delay {
        Delay::Took(ms) => format!("{ms} ms"),
        Delay::Failed => "no answer".to_owned(),
        Delay::Absent => "not there".to_owned(),
        Delay::Unknown(why) => why.clone(),
    }
}
