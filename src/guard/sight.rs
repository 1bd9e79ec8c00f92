//! What was seen, as a guard judges it.
//!
//! **Invariant:** what could not be determined is unknown; what the core says of a member and what a
//! request through it shows are never mixed.

use super::ask::{self, Look};
use super::place::Place;
use super::reason::Reason;
use crate::observation::{
    Asker, CoreFault, CoreSeen, Delay, Group, GroupFault, Observation, PageReading, Pages,
    PagesReading,
};
use crate::outcome::harmless;
use crate::policy::GuardPolicy;
use crate::proxy::{Shown, Verdict};
use std::collections::BTreeSet;

/// A core that answers and has the policy's groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreSight<'a> {
    pub(super) seen: &'a CoreSeen,
    /// The selected member.
    pub(super) now: &'a str,
    /// All members of the group.
    pub(super) all: &'a [String],
    /// What the automatic group uses.
    pub(super) uses: &'a str,
}

/// Judges a look at the core. `None`: it was not taken.
pub(super) fn core<'a>(
    place: &Place,
    seen: &'a Observation,
    look: Look,
) -> Option<Result<CoreSight<'a>, Reason>> {
    let (_, reading) = seen.cores().find(|(asked, _)| asked.turn == look.turn())?;
    Some(match &reading.core {
        Ok(core) => groups(place, core),
        Err(CoreFault::Down(why)) => Err(Reason::CoreDown { why: why.clone() }),
        Err(CoreFault::Refused(why) | CoreFault::Strange(why)) => {
            Err(Reason::CoreUnusable { why: why.clone() })
        }
    })
}

fn groups<'a>(place: &Place, seen: &'a CoreSeen) -> Result<CoreSight<'a>, Reason> {
    let of = |name: &str, why: &dyn std::fmt::Display| {
        format!("group {} of {}: {why}", harmless(name), place.core)
    };
    let group = |name: &str| -> Result<&'a Group, Reason> {
        match seen.groups.get(name) {
            Some(Ok(group)) => Ok(group),
            Some(Err(fault @ (GroupFault::NoGroup { .. } | GroupFault::Unread(_)))) => {
                Err(Reason::CoreUnusable { why: of(name, fault) })
            }
            Some(Err(fault @ (GroupFault::Missing | GroupFault::Empty))) => {
                Err(Reason::GroupMissing { why: of(name, fault) })
            }
            None => Err(Reason::GroupMissing { why: of(name, &GroupFault::Missing) }),
        }
    };
    let (selected, automatic) = (group(&place.group)?, group(&place.automatic)?);
    let unusable =
        |why: &dyn std::fmt::Display| Err(Reason::CoreUnusable { why: of(&place.group, why) });
    if selected.kind != "Selector" {
        return unusable(&format!(
            "it is of type {} and chooses by itself: name the selector that holds it as group, and it as automatic",
            harmless(&selected.kind)
        ));
    }
    if !selected.all.contains(&place.automatic) {
        let automatic = harmless(&place.automatic);
        return unusable(&format!("{automatic} is no member of it: name another as automatic"));
    }
    if selected.now.is_empty() {
        return unusable(&"it does not tell what is selected");
    }
    Ok(CoreSight { seen, now: &selected.now, all: &selected.all, uses: &automatic.now })
}

/// Types of members that send what they are given out directly, or nowhere.
const NO_WAY_OUT: [&str; 9] =
    ["Direct", "Reject", "RejectDrop", "Block", "Compatible", "Pass", "PassRule", "Dns", "DNS"];

/// The members among `asked` that leave by a proxy and are no groups. `None`: nobody looked.
pub(super) fn proxies(seen: &Observation, asked: &BTreeSet<String>) -> Option<BTreeSet<String>> {
    let (_, reading) = seen.cores().find(|(asked, _)| asked.turn == Look::Kinds.turn())?;
    let Ok(core) = &reading.core else { return Some(BTreeSet::new()) };
    let leaves = |name: &&String| match core.groups.get(*name) {
        Some(Err(GroupFault::NoGroup { kind })) => !NO_WAY_OUT.contains(&kind.as_str()),
        Some(Ok(_) | Err(GroupFault::Missing | GroupFault::Empty | GroupFault::Unread(_)))
        | None => false,
    };
    Some(asked.iter().filter(leaves).cloned().collect())
}

/// Judges the `turn`-th round. `None`: it was not made.
pub(super) fn round(seen: &Observation, turn: u32) -> Option<Shown> {
    let (pages, reading) = ask::read(seen, &ask::asker(), turn)?;
    let shown = |verdict, why: String, latency_ms| Shown {
        verdict,
        why: harmless(&why),
        latency_ms,
        at: reading.at.clone(),
    };
    if reading.passes(&pages) {
        return Some(shown(Verdict::Passed, String::new(), reading.latency_ms(&pages)));
    }
    let asked = || pages.pages.iter().zip(&reading.pages);
    let bad: Vec<_> = asked()
        .filter_map(|(page, seen)| Some((page, seen.as_ref()?)))
        .filter(|(_, seen)| !pages.expect.accepts(seen))
        .collect();
    if let Some(why) = bad.iter().find_map(|(_, seen)| seen.unasked()) {
        return Some(shown(Verdict::Unknown, why, None));
    }
    let Some((page, seen)) = bad.first() else {
        return Some(shown(Verdict::Unknown, "nothing was asked".to_owned(), None));
    };
    let what = match seen {
        PageReading::Answer { status, bytes, .. } => format!("answers {status} with {bytes} bytes"),
        PageReading::TimedOut => "does not answer".to_owned(),
        PageReading::Broken(why) | PageReading::NotBindable(why) | PageReading::NoProxy(why) => {
            why.clone()
        }
        PageReading::NoAddress => "has no address".to_owned(),
    };
    Some(shown(Verdict::Failed, format!("{} {what}", page.url.host()), None))
}

/// Whether the references answer. `None`: they were not asked.
pub(super) fn reference(seen: &Observation, turn: u32) -> Option<bool> {
    let passes = |(pages, read): (Pages, PagesReading)| read.passes(&pages);
    ask::read(seen, &Asker::Wan, turn).map(passes)
}

/// The best of several measures.
pub(super) fn best(delays: &[Delay]) -> Delay {
    delays.iter().min().cloned().unwrap_or_else(|| Delay::Unknown("nothing was asked".to_owned()))
}

/// What the core says of the automatic group, asked by every page of the probe.
pub(super) fn asked_group(policy: &GuardPolicy, delays: &[Delay]) -> Result<(), String> {
    use crate::policy::pool::Require;
    let took = |delay: &Delay| matches!(delay, Delay::Took(_));
    let passes = match policy.probe.require {
        Require::Any => delays.iter().any(took),
        Require::All => !delays.is_empty() && delays.iter().all(took),
    };
    if passes {
        return Ok(());
    }
    Err(match delays.iter().find(|delay| !took(delay)) {
        Some(Delay::Unknown(why)) => why.clone(),
        Some(Delay::Absent) => "the core has nothing of that name".to_owned(),
        Some(Delay::Took(_) | Delay::Failed) | None => "no page answered it in time".to_owned(),
    })
}
