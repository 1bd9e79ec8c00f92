//! A step as a person reads it.

use super::{Lab, Played};
use egressctl::machine::Machine as _;
use egressctl::machine::{Cut, Future, Owned, Subject};
use egressctl::plan::Check;
use egressctl::pool::Pool;
use egressctl::pool::state::{Content, Egress, PoolState, Slot};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The whole story of a step.
pub fn story(lab: &Lab, played: &Played) -> String {
    let mut out = String::new();
    let decision = &played.decision;
    match &played.before {
        Some(state) => {
            let _ = writeln!(out, "before    {}\n          {}", slots(state), clients(state));
        }
        None => {
            out.push_str("before    nothing known: the first run\n          clients untouched\n");
        }
    }
    let from = decision.from.as_deref().unwrap_or("(none)");
    let _ = writeln!(out, "decision  {from} -> {}", decision.wished.to);
    for reason in &decision.wished.reasons {
        let _ = writeln!(out, "reason    {}: {}", reason.code, reason.text);
    }
    for step in &played.plan {
        let phase = format!("{:?}", step.phase).to_lowercase();
        let _ = writeln!(out, "{phase:<9} {}", step.action.command());
        for undo in &step.undo {
            let _ = writeln!(out, "            undo {}", undo.command());
        }
    }
    for check in &decision.checks {
        let _ = writeln!(out, "check     {}", check.describe());
    }
    future(&mut out, "applied", &decision.wished);
    if !played.plan.is_empty() || !decision.checks.is_empty() {
        let _ = writeln!(
            out,
            "undone    {}\n          {}",
            slots(&decision.undone),
            clients(&decision.undone)
        );
    }
    let failed: BTreeMap<_, _> = decision
        .checks
        .iter()
        .filter_map(|check| match check {
            Check::Answer { interface, .. } => Some((interface.clone(), "no answer".to_owned())),
            Check::Route { .. } | Check::Outside { .. } => None,
        })
        .collect();
    if !failed.is_empty() {
        let owned = Owned::default();
        let subject = Subject {
            name: &lab.name,
            policy: &lab.policy,
            state: played.before.as_ref(),
            paused: false,
            owned: &owned,
        };
        let refused = Pool::refuse(&subject, decision, &failed, &lab.now).unwrap();
        for reason in &refused.reasons {
            let _ = writeln!(out, "refused   {}: {}", reason.code, reason.text);
        }
        future(&mut out, "refused", &refused);
    }
    let _ = writeln!(out, "came true {}", format!("{:?}", played.outcome).to_lowercase());
    out
}

fn future(out: &mut String, name: &str, future: &Future<PoolState>) {
    let _ =
        writeln!(out, "{name:<9} {}\n          {}", slots(&future.state), clients(&future.state));
    for cut in &future.cuts {
        let _ = match cut {
            Cut::Marked(mark) => writeln!(out, "          flows with mark {mark} end"),
            Cut::Through { names, .. } => writeln!(out, "          flows through {names:?} end"),
            Cut::Unmarked(net) => writeln!(out, "          flows of {net} without a mark end"),
        };
    }
}

fn slots(state: &PoolState) -> String {
    let one = |(name, slot): (&_, &Slot)| {
        let what = match &slot.content {
            Content::Empty => "empty".to_owned(),
            Content::Lent(candidate) => format!("{} lent", candidate.name),
            Content::Loaded(candidate) if state.serves(name) && slot.failures > 0 => {
                format!("{} serves, {} failed", candidate.name, slot.failures)
            }
            Content::Loaded(candidate) if state.serves(name) => {
                format!("{} serves", candidate.name)
            }
            Content::Loaded(candidate) => format!(
                "{} failed, retests {}-/{}+",
                candidate.name, slot.retests_failed, slot.retests_passed
            ),
        };
        format!("{name} {what}")
    };
    let slots: Vec<String> = state.slots.iter().map(one).collect();
    let mut quarantine: Vec<&str> = state.quarantine.values().map(|q| q.name.as_str()).collect();
    quarantine.sort_unstable();
    let mut line = format!("{}: {}", state.mode, slots.join(" · "));
    let reserve: Vec<&str> = state.reserve().iter().map(|c| c.name.as_str()).collect();
    let _ =
        write!(line, " · reserve [{}] · quarantine [{}]", reserve.join(" "), quarantine.join(" "));
    if let Some(fresh) = &state.fresh {
        let struck: Vec<&str> = fresh.struck.keys().map(String::as_str).collect();
        let _ = write!(
            line,
            " · new list {} ({} of {} tested, struck [{}])",
            fresh.generation,
            fresh.tested.len(),
            fresh.candidates.len(),
            struck.join(" ")
        );
    }
    if let Some(standby) = &state.standby {
        let _ = write!(line, " · standby {}", if standby.up { "up" } else { "down" });
    }
    if state.settle {
        line.push_str(" · settles next");
    }
    line
}

fn clients(state: &PoolState) -> String {
    let mut by: BTreeMap<String, usize> = BTreeMap::new();
    for egress in state.egress.values() {
        let place = match egress {
            Egress::Slot(slot) => slot.to_string(),
            Egress::Direct => "Direct".to_owned(),
            Egress::None => "None".to_owned(),
        };
        *by.entry(place).or_default() += 1;
    }
    let places: Vec<String> = by.iter().map(|(place, n)| format!("{n} on {place}")).collect();
    let places = if places.is_empty() { "untouched".to_owned() } else { places.join(", ") };
    format!("clients {places} · repairs {}", state.repair_events_since_full_refresh)
}
