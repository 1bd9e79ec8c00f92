//! What must hold of every step, whatever was answered, on what is remembered before and after it.
//!
//! The numbers are those of the invariants of the recovery plan. 8, 14 and 17, and half of 6, are of the
//! kernel: `kernel.rs`. 10 is of the source: `laws.rs`. A core has no open flows, processes or disks; what
//! it leaves of the invariants to the shell is shown in the lab: undo by real commands that fail or are
//! cut short (8) in `pool_faults.rs` and `pool_crash.rs`, flows that live on or end (16, 17) in `pool_story.rs`,
//! `pool_direct.rs` and `pool_leaks.rs`.

use super::canon::{FOREVER, UNKNOWN_STEPS, later};
use super::oracle::{End, Leaf};
use super::trace::brief;
use egressctl::machine::Cut;
use egressctl::names::Interface;
use egressctl::observation::{ListReading, Question, Reading};
use egressctl::plan::Check;
use egressctl::policy::PoolPolicy;
use egressctl::pool::candidate::{Candidate, List, Tested};
use egressctl::pool::state::{Content, Egress, Mode, PoolState, Slot, Transport, Way};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Transitions that have a row in the plan.
fn has_a_row(from: Mode, to: Mode) -> bool {
    use Mode::{
        BootstrapRecovery, DegradedPool, DirectEmergency, FullPoolRefresh, LocalRepair, Normal,
        SlotExhausted,
    };
    from == to
        || match from {
            Normal => matches!(to, LocalRepair | FullPoolRefresh | DirectEmergency),
            LocalRepair => {
                matches!(to, Normal | FullPoolRefresh | SlotExhausted | DirectEmergency)
            }
            FullPoolRefresh => matches!(to, Normal | DegradedPool | LocalRepair | DirectEmergency),
            DegradedPool => matches!(
                to,
                Normal | SlotExhausted | LocalRepair | FullPoolRefresh | DirectEmergency
            ),
            SlotExhausted => matches!(
                to,
                Normal | DegradedPool | LocalRepair | FullPoolRefresh | DirectEmergency
            ),
            DirectEmergency => to == BootstrapRecovery,
            BootstrapRecovery => matches!(to, Normal | DegradedPool),
        }
}

pub fn serving(state: &PoolState) -> BTreeSet<Interface> {
    state.slots.keys().filter(|slot| state.serves(slot)).cloned().collect()
}

fn in_direct(state: &PoolState) -> bool {
    state.egress.values().any(|egress| *egress == Egress::Direct)
}

fn lists(state: &PoolState) -> impl Iterator<Item = &List> {
    state.pool.iter().chain(&state.fresh).chain(&state.short)
}

/// Breaks the test with the story of the step that breaks a law.
macro_rules! law {
    ($leaf:expr, $holds:expr, $number:literal $(, $($more:tt)*)?) => {
        if !$holds {
            $crate::walk::law::broken(
                $leaf,
                &format!(concat!("law ", $number, ": {}"), format!($($($more)*)?)),
            );
        }
    };
}

pub(super) fn broken(leaf: &Leaf<'_>, law: &str) -> ! {
    let answers: Vec<String> = leaf
        .seen
        .readings
        .iter()
        .filter_map(|(question, reading)| match question {
            Question::Pages(pages) => {
                Some(format!("{:?}.{}: {reading:?}", pages.asker, pages.turn))
            }
            Question::List(list) => {
                let via = list.via.as_ref().map(|via| via.device.to_string());
                Some(format!(
                    "list by {via:?}: {}",
                    match reading {
                        Reading::List { list: ListReading::Listed { candidates, .. }, .. } => {
                            format!("{} candidates", candidates.len())
                        }
                        other => format!("{other:?}"),
                    }
                ))
            }
            Question::Trial(trial) => Some(format!("trial of {}: {reading:?}", trial.name)),
            _ => None,
        })
        .collect();
    panic!(
        "{law}\nbefore  {}\nanswers {}\nended   {:?} {:?}\nreasons {:?}\nafter   {}",
        brief(leaf.before, &leaf.now),
        answers.join("\n        "),
        leaf.end,
        leaf.failed,
        leaf.future().unwrap_or(&leaf.decision.wished).reasons,
        brief(Some(leaf.after()), &leaf.now),
    );
}

pub(super) use law;

/// Asserts what must hold of every step.
pub fn lawful(policy: &PoolPolicy, leaf: &Leaf<'_>) {
    let after = leaf.after();
    let blank = PoolState::new(&leaf.now);
    let before = leaf.before.unwrap_or(&blank);
    let (from, to) = (before.mode, after.mode);
    law!(leaf, has_a_row(from, to), "of the table", "{from} -> {to} has no row");
    law!(leaf, !leaf.decision.wished.reasons.is_empty(), "of reasons", "there is none");
    untouched(policy, leaf, before, after);
    quarantined(leaf, before, after);
    direct(policy, leaf, before, after);
    counted(policy, leaf, before, after);
    waited(policy, leaf, before, after);
    one_contract(policy, leaf, before, after);
    kept(leaf, after);
    held(leaf, before, after);
    if leaf.end == End::Undone {
        law!(leaf, from == to && before.egress == after.egress, "of undoing", "something stayed");
    } else {
        placed(policy, leaf, before, after);
    }
}

/// 1, 3: a tunnel whose own probe passes is changed by nothing but a list that does not hold it, one
/// slot a step.
fn untouched(policy: &PoolPolicy, leaf: &Leaf<'_>, before: &PoolState, after: &PoolState) {
    let mut replaced = 0;
    for slot in &policy.slots.interfaces {
        let Some(old) = before.slots.get(slot).and_then(Slot::loaded) else { continue };
        if !before.serves(slot) || !leaf.passed(slot) {
            continue;
        }
        let now = after.slots.get(slot).and_then(Slot::loaded);
        if now.is_some_and(|now| now.endpoint() == old.endpoint()) {
            law!(leaf, after.serves(slot), "1", "{slot} passes and does not serve any more");
            continue;
        }
        replaced += 1;
        let newest = lists(after).max_by_key(|list| list.generation);
        let listed = newest.is_some_and(|list| {
            list.candidates.iter().any(|candidate| candidate.endpoint() == old.endpoint())
        });
        law!(leaf, !listed && now.is_some(), "1", "{slot} passes and was changed");
    }
    law!(leaf, replaced <= 1, "3", "{replaced} working slots were replaced in one step");
}

/// 2: nothing quarantined serves, and quarantine ends with a younger list; what comes out of it into
/// a slot has passed a test in that list after it.
fn quarantined(leaf: &Leaf<'_>, before: &PoolState, after: &PoolState) {
    for (slot, state) in &after.slots {
        if let Some(candidate) = state.loaded()
            && after.is_quarantined(candidate)
        {
            let hosts = after.egress.values().any(|e| *e == Egress::Slot(slot.clone()));
            let any = !serving(after).is_empty();
            law!(leaf, !hosts || !any, "2", "{slot} carries clients with a quarantined endpoint");
        }
    }
    // While no slot serves, the uplink is as likely the cause.
    if leaf.end == End::Refused && serving(&leaf.decision.undone).is_empty() {
        let more = after.quarantine.keys().find(|id| !before.quarantine.contains_key(id));
        law!(leaf, more.is_none(), "2", "{more:?} is quarantined while nothing serves");
    }
    let known = || lists(after).chain(lists(before)).chain(lists(&leaf.decision.undone));
    for (endpoint, quarantined) in &before.quarantine {
        if after.quarantine.contains_key(endpoint) {
            continue;
        }
        let younger = |list: &&List| later(&list.fetched_at, &quarantined.since);
        law!(leaf, known().any(|list| younger(&list)), "2", "{endpoint} is free without a list");
        let loaded = after.slots.values().filter_map(Slot::loaded);
        if loaded.into_iter().any(|candidate| candidate.endpoint() == *endpoint) {
            let passed = |list: &List| {
                let entry = list.candidates.iter().find(|c| c.endpoint() == *endpoint);
                entry.and_then(|entry| list.tested.get(&entry.name)).is_some_and(|t| match t {
                    Tested::Passed { at, .. } => later(at, &quarantined.since),
                    Tested::Failed { .. } => false,
                })
            };
            let good = known().any(|list| younger(&list) && passed(list));
            law!(leaf, good, "2", "{endpoint} is loaded without a new test");
        }
    }
}

/// 4, 5, 6, 7: into Direct, in it, and out of it.
fn direct(policy: &PoolPolicy, leaf: &Leaf<'_>, before: &PoolState, after: &PoolState) {
    if !in_direct(before) && in_direct(after) {
        law!(leaf, serving(after).is_empty(), "4", "Direct while a slot serves");
        law!(leaf, after.mode == Mode::DirectEmergency, "4", "Direct in {}", after.mode);
    }
    if after.mode == Mode::DirectEmergency && before.mode != Mode::DirectEmergency {
        law!(leaf, serving(after).is_empty(), "4", "an emergency while a slot serves");
    }
    // 5: an attempt that is due is made, or goes on.
    let tried = before.refresh_tried_at.as_ref();
    let due = tried.is_none_or(|tried| leaf.now.since(tried).as_secs() >= FOREVER);
    if before.mode == Mode::BootstrapRecovery && due && !before.settle && !leaf.is_held() {
        let wished = &leaf.decision.wished.state;
        let asked = leaf.seen.lists().next().is_some() || leaf.seen.trials().next().is_some();
        let mended = leaf.seen.kernel().is_some_and(|kernel| kernel.world.rules.is_empty());
        let cannot = before.slots.keys().any(|slot| leaf.cannot_be_judged(slot));
        let moved = before.bootstrap != wished.bootstrap
            || before.fresh != wished.fresh
            || before.standby != wished.standby
            || before.mode != wished.mode
            || before.refresh_tried_at != wished.refresh_tried_at;
        law!(
            leaf,
            asked || moved || mended || cannot,
            "5",
            "an attempt was due, and nothing was tried"
        );
    }
    for (slot, state) in &after.slots {
        if matches!(state.content, Content::Lent(_)) {
            let hosts = after.egress.values().any(|e| *e == Egress::Slot(slot.clone()));
            law!(leaf, !hosts, "6", "{slot} is lent and carries clients");
            law!(leaf, after.mode.is_direct(), "6", "{slot} is lent in {}", after.mode);
        }
    }
    if before.mode.is_direct() && !after.mode.is_direct() {
        law!(leaf, leaf.end == End::True, "7", "Direct ends without a proof");
        let slots = serving(after);
        law!(
            leaf,
            slots.len() >= policy.min_slots_to_exit_direct(),
            "7",
            "on {} slots",
            slots.len()
        );
        for slot in &slots {
            let proven =
                leaf.decision.checks.iter().any(
                    |check| matches!(check, Check::Answer { interface, .. } if interface == slot),
                );
            law!(leaf, proven || leaf.passed(slot), "7", "{slot} was not verified");
        }
    }
}

/// 9: waits are the policy's: grace before Direct, and the time between attempts.
fn waited(policy: &PoolPolicy, leaf: &Leaf<'_>, before: &PoolState, after: &PoolState) {
    let params = &policy.params;
    let age = |at: &egressctl::time::Moment| leaf.now.since(at);
    if after.mode == Mode::DirectEmergency && before.mode != Mode::DirectEmergency {
        let grace = Duration::from_secs(params.direct_grace_sec);
        let since = after.none_serves_since.as_ref();
        let over = since.is_some_and(|since| age(since) >= grace);
        law!(
            leaf,
            over || after.reserve().is_empty(),
            "9",
            "Direct within grace, with reserve left"
        );
    }
    let fetched = leaf.seen.lists().next().is_some();
    if fetched && before.refresh_asked.is_none() && before.fresh.is_none() && before.proven {
        let wait = if before.mode.is_direct() {
            params.bootstrap_retry_interval_sec
        } else {
            params.hmn_refresh_retry_interval_sec
        };
        let wait = Duration::from_secs(wait.max(before.refusal_wait_sec.unwrap_or(0)));
        let due = before.refresh_tried_at.as_ref().is_none_or(|tried| age(tried) >= wait);
        law!(
            leaf,
            due || after.refresh_asked.is_some(),
            "9",
            "a list was fetched before it was due"
        );
    }
}

/// 11: whatever the strategy, the way by which the provider answered is the transport, and one by which
/// nobody did is a way that failed.
fn one_contract(policy: &PoolPolicy, leaf: &Leaf<'_>, before: &PoolState, after: &PoolState) {
    let searching = before.mode == Mode::BootstrapRecovery || !before.proven;
    if !searching || leaf.is_held() || after.mode != before.mode || after.proven != before.proven {
        return;
    }
    for (question, reading) in leaf.seen.lists() {
        let Some(via) = &question.via else { continue };
        let slot = after.slots.contains_key(&via.device);
        let answered = match reading {
            ListReading::Listed { .. } | ListReading::Unchanged => true,
            ListReading::Unavailable { answered, .. } => *answered,
        };
        let standby = policy.standby() == Some(&via.device);
        let transport = match (slot, standby) {
            (true, _) => Transport::Slot(via.device.clone()),
            (false, true) => Transport::Standby(via.device.clone()),
            (false, false) => Transport::Wan,
        };
        let is_it = after.bootstrap.transport.as_ref() == Some(&transport);
        // A proof that failed dropped a lent slot again.
        let dropped = leaf.end == End::Refused && after.bootstrap.transport.is_none();
        law!(leaf, is_it == answered || dropped, "11", "{transport:?} {answered}");
        if !answered {
            let times = |state: &PoolState| -> u32 {
                let of_slot = |way: &Way| match way {
                    Way::InPlace(place) => *place == via.device,
                    Way::Cached(_) => slot,
                    Way::Wan => !slot && !standby,
                    Way::Standby(_) => standby,
                };
                let ways = state.bootstrap.failed.iter().filter(|failed| of_slot(&failed.way));
                ways.map(|failed| failed.times).sum()
            };
            law!(leaf, times(after) > times(before), "11", "{transport:?} did not fail");
        }
    }
}

/// 9, 12: thresholds are the policy's, and the counter is reset by a full refresh alone.
fn counted(policy: &PoolPolicy, leaf: &Leaf<'_>, before: &PoolState, after: &PoolState) {
    let params = &policy.params;
    let (was, is) =
        (before.repair_events_since_full_refresh, after.repair_events_since_full_refresh);
    if is < was {
        let generation = |state: &PoolState| state.pool.as_ref().map(|pool| pool.generation);
        law!(leaf, after.mode == Mode::Normal, "12", "reset in {}", after.mode);
        law!(leaf, generation(after) > generation(before), "12", "reset without a new list");
        law!(leaf, serving(after).len() == policy.slots.interfaces.len(), "12", "reset half done");
    }
    let repaired = leaf.says("repaired") && leaf.end == End::True;
    law!(leaf, is <= was + u32::from(repaired), "12", "{is} is counted, and was {was}");
    law!(leaf, !repaired || is == was + 1, "12", "a repair is not counted");
    if (before.mode, after.mode) == (Mode::LocalRepair, Mode::FullPoolRefresh)
        && before.refresh_asked.is_none()
        && before.proven
    {
        law!(leaf, is >= params.full_refresh_after_repairs, "9", "{is} repairs are the threshold");
    }
    for (name, slot) in &after.slots {
        let Some(old) = before.slots.get(name) else { continue };
        if slot.failed && !old.failed {
            let least = params.health_failures_before_down;
            law!(leaf, slot.failures >= least, "9", "{name} failed after {}", slot.failures);
        }
        if !slot.failed && old.failed && slot.loaded().is_some() && slot.content == old.content {
            let least = params.local_repair_retest_count.max(1);
            law!(leaf, old.retests_passed + 1 >= least && leaf.passed(name), "9", "{name} is back");
        }
    }
}

/// 13: the files of all that may still be needed are kept, and the old list until the new is proven.
fn kept(leaf: &Leaf<'_>, after: &PoolState) {
    let Some(future) = leaf.future() else { return };
    let slots = after.slots.values().filter_map(Slot::candidate);
    let all = slots.chain(lists(after).flat_map(|list| list.candidates.iter()));
    for Candidate { name, config, .. } in all {
        let kept = future.generations.contains(&config.generation);
        law!(leaf, kept, "13", "the file of {name} is forgotten");
    }
    if leaf.end == End::Refused {
        let generation = |state: &PoolState| state.pool.as_ref().map(|pool| pool.generation);
        let before = leaf.before.and_then(generation);
        law!(leaf, generation(after) == before, "13", "a list that was not proven is the pool");
    }
}

/// 15: with the uplink down nothing is counted, quarantined, moved or tried, and the next step only
/// looks.
fn held(leaf: &Leaf<'_>, before: &PoolState, after: &PoolState) {
    if leaf.is_held() {
        law!(leaf, before.mode == after.mode, "15", "a transition");
        law!(leaf, before.quarantine == after.quarantine, "15", "something is quarantined");
        law!(leaf, before.egress == after.egress, "15", "clients were moved");
        law!(
            leaf,
            before.pool == after.pool && before.fresh == after.fresh,
            "15",
            "a list changed"
        );
        law!(leaf, before.bootstrap == after.bootstrap, "15", "a way was tried");
        law!(leaf, before.refresh_tried_at == after.refresh_tried_at, "15", "an interval is used");
        law!(leaf, after.settle, "15", "the next step does not only look");
        let answers =
            leaf.seen.readings.iter().any(|(question, reading)| match (question, reading) {
                (Question::Pages(pages), Reading::Pages(answer)) => answer.passes(pages),
                _ => false,
            });
        let tried = leaf.seen.trials().next().is_some() || leaf.seen.lists().next().is_some();
        law!(leaf, answers || !tried, "15", "something was tried");
        for (name, slot) in &after.slots {
            let Some(old) = before.slots.get(name) else { continue };
            law!(leaf, old.content == slot.content, "15", "{name} has something else in it");
            law!(leaf, old.failed == slot.failed, "15", "{name} is counted");
            law!(leaf, slot.retests_failed == 0 || !slot.failed, "15", "a retest counts");
            law!(leaf, slot.failures == 0 || slot.failed, "15", "a failure counts");
        }
    } else if before.settle && leaf.end == End::True {
        law!(leaf, before.mode == after.mode, "15", "a transition in a step that only looks");
        law!(leaf, before.quarantine == after.quarantine, "15", "quarantined in such a step");
        law!(leaf, !after.settle, "15", "it looks on and on");
    }
}

/// 16: whose slot serves is not moved by another's failure; one goes home at most. Loads differ by one
/// at most where nobody is a guest by choice.
fn placed(policy: &PoolPolicy, leaf: &Leaf<'_>, before: &PoolState, after: &PoolState) {
    let mut serving = serving(after);
    let known = |slot: &Interface| after.slots[slot].unknown < UNKNOWN_STEPS;
    if serving.iter().any(&known) {
        serving.retain(|slot| known(slot));
    }
    let slot_of = |egress: &Egress| match egress {
        Egress::Slot(slot) => Some(slot.clone()),
        Egress::Direct | Egress::None => None,
    };
    for (client, old) in &before.egress {
        let (Some(was), Some(is)) = (slot_of(old), after.egress.get(client)) else { continue };
        let home = after.homes.get(client);
        if serving.contains(&was) && slot_of(is).as_ref() != Some(&was) {
            law!(leaf, slot_of(is).as_ref() == home, "16", "{client} was moved for nothing");
        }
    }
    if leaf.is_held() || !after.proven || after.mode.is_direct() || serving.is_empty() {
        return;
    }
    let mut loads: BTreeMap<&Interface, usize> = serving.iter().map(|slot| (slot, 0)).collect();
    for (client, egress) in &after.egress {
        let slot = slot_of(egress);
        let there = slot.as_ref().and_then(|slot| loads.get_mut(slot));
        let Some(load) = there else {
            broken(leaf, &format!("law 16: {client} is not on a slot that serves"))
        };
        *load += 1;
    }
    law!(leaf, after.egress.len() == policy.client_keys().len(), "16", "somebody is not placed");
    let spread = loads.values().max().unwrap() - loads.values().min().unwrap();
    law!(leaf, spread <= 1, "16", "loads {loads:?}");
    let Some(future) = leaf.future() else { return };
    if in_direct(before) && !in_direct(after) {
        let ended = future.cuts.contains(&Cut::Marked(policy.direct_mark()));
        law!(leaf, ended, "16", "flows on Direct live on");
    }
    for cut in &future.cuts {
        for (index, slot) in (0..).zip(&policy.slots.interfaces) {
            if *cut == Cut::Marked(policy.mark(index)) {
                let same = before.slots[slot].content == after.slots[slot].content;
                law!(
                    leaf,
                    !(after.serves(slot) && same && before.serves(slot)),
                    "16",
                    "the flows of {slot}, which serves, are ended"
                );
            }
        }
    }
}
