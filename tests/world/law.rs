//! What must hold of every step, whatever the world did.

use super::{Endpoint, Input, Lab, Outcome, Played, Source, Uplink};
use egressctl::kernel::diff::diff;
use egressctl::machine::Machine as _;
use egressctl::pool::Pool;
use egressctl::pool::candidate::{List, Tested};
use egressctl::pool::state::{Content, Egress, Mode, PoolState};
use egressctl::time::Moment;
use std::collections::{BTreeMap, BTreeSet};

/// Seconds between steps of the walk.
pub const APART: u64 = 10;

/// How old a moment is, in steps, as far as that makes a difference.
fn age(now: &Moment, at: Option<&Moment>, most: u64) -> String {
    at.map_or("-".to_owned(), |at| (now.since(at).as_secs() / APART).min(most).to_string())
}

/// A list without moments: which passed, failed, are untested, and how often they were struck.
fn list_key(state: &PoolState, list: Option<&List>) -> String {
    let Some(list) = list else { return "none".to_owned() };
    let good: BTreeSet<_> = state.good(list).iter().map(|c| c.name.clone()).collect();
    let mut entries: Vec<String> = Vec::new();
    for candidate in list.candidates.iter() {
        let tested = match list.tested.get(&candidate.name) {
            Some(Tested::Passed { .. }) if good.contains(&candidate.name) => 'p',
            Some(Tested::Passed { .. }) => 'q',
            Some(Tested::Failed { .. }) => 'f',
            None => '-',
        };
        let struck = list.struck.get(&candidate.name).copied().unwrap_or(0).min(1);
        entries.push(format!("{}{tested}{struck}", candidate.name));
    }
    // Their order only breaks ties.
    entries.sort();
    entries.concat()
}

/// A state without moments and names of generations: what the machine decides on.
pub fn key(lab: &Lab) -> String {
    lab.state.as_ref().map_or_else(|| "blank".to_owned(), |state| brief(state, &lab.now))
}

pub fn brief(state: &PoolState, now: &Moment) -> String {
    let mut text = format!(
        "{} proven={} settle={} asked={} repairs={} tried={} none={} pool={} fresh={} short={:?}",
        state.mode,
        state.proven,
        state.settle,
        state.refresh_asked.is_some(),
        state.repair_events_since_full_refresh.min(2),
        age(now, state.refresh_tried_at.as_ref(), 2),
        age(now, state.none_serves_since.as_ref(), 1),
        list_key(state, state.pool.as_ref()),
        list_key(state, state.fresh.as_ref()),
        state.short_list.as_ref().map(|short| short.times),
    );
    for (name, slot) in &state.slots {
        let content = match &slot.content {
            Content::Empty => "-".to_owned(),
            Content::Loaded(candidate) | Content::Lent(candidate) => candidate.name.clone(),
        };
        let alarms = slot.false_alarms.iter().filter(|at| now.since(at).as_secs() <= 35);
        text += &format!(
            " {name}={content}/{}/{}/{}/{}/{:?}/{}/{}",
            slot.failed,
            slot.failures.min(2),
            slot.retests_failed.min(1),
            slot.retests_passed.min(1),
            slot.replaced.as_ref().map(|c| c.name.clone()),
            slot.mtu_lowered,
            alarms.count().min(2),
        );
    }
    for quarantined in state.quarantine.values() {
        text += &format!(" q:{}", quarantined.name);
    }
    for egress in state.egress.values() {
        text += &format!(" {egress:?}");
    }
    text
}

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

pub fn serving(state: &PoolState) -> BTreeSet<String> {
    state.slots.keys().filter(|slot| state.serves(slot)).map(ToString::to_string).collect()
}

/// Asserts what must hold of every step.
pub fn lawful(lab: &Lab, input: &Input, played: &Played) {
    let after = &played.after;
    let blank = PoolState::new(&lab.now);
    let before = played.before.as_ref().unwrap_or(&blank);
    let story = || {
        format!(
            "\nbefore {}\ninput {input:?}\noutcome {:?}\nreasons {:?}\nafter {}",
            brief(before, &lab.now),
            played.outcome,
            played.decision.wished.reasons.iter().map(|r| &r.text).collect::<Vec<_>>(),
            brief(after, &lab.now)
        )
    };
    assert!(
        has_a_row(before.mode, after.mode),
        "{} -> {} has no row{}",
        before.mode,
        after.mode,
        story()
    );
    assert!(!played.decision.wished.reasons.is_empty(), "no reason{}", story());
    let means = Pool::means(&lab.policy);
    assert_eq!(diff(&played.is, &played.is, &means), vec![], "diff(x, x)");

    // 1, 3, 13: a tunnel whose own probe passes is changed by nothing but a finished refresh that
    // does not list it.
    for (slot, old) in &before.slots {
        let Some(candidate) = old.loaded() else { continue };
        let was_well = lab.endpoints.get(&candidate.name) == Some(&Endpoint::Alive)
            && before.serves(slot)
            && !input.blind;
        if !was_well || input.uplink == Uplink::Down {
            continue;
        }
        let now = after.slots.get(slot).and_then(|slot| slot.loaded());
        let listed = match &input.source {
            Source::Lists(names) | Source::ByTunnel(names) | Source::By(_, names) => {
                names.contains(&candidate.name)
            }
            Source::Unavailable | Source::Refuses(_) => true,
        };
        if listed {
            assert!(
                now.is_some_and(|now| now.endpoint() == candidate.endpoint()),
                "(1) {slot} served and was changed{}",
                story()
            );
            let tunnel = |world: &egressctl::kernel::World| {
                world.tunnels.get(slot).map(|tunnel| tunnel.config.clone())
            };
            assert_eq!(tunnel(&played.was), tunnel(&played.is), "(1) {slot}{}", story());
        }
    }
    // 2: nothing quarantined serves, and quarantine ends only with a younger list.
    for (slot, state) in &after.slots {
        if let Some(candidate) = state.loaded()
            && after.is_quarantined(candidate)
        {
            assert!(
                !after.egress.values().any(|e| *e == Egress::Slot(slot.clone())),
                "(2){}",
                story()
            );
        }
    }
    for (endpoint, quarantined) in &before.quarantine {
        if !after.quarantine.contains_key(endpoint) {
            let mut lists = after.pool.iter().chain(&after.fresh).chain(&before.fresh);
            assert!(
                // The list came in this step, or it is younger.
                played.seen.lists().next().is_some()
                    || lists.any(|list| list.fetched_at > quarantined.since),
                "(2) {endpoint} left quarantine without a new list{}",
                story()
            );
        }
    }
    // 4, 7: Direct begins when no slot serves, and ends on a verified set.
    let direct = |state: &PoolState| state.egress.values().any(|e| *e == Egress::Direct);
    if !direct(before) && direct(after) {
        assert!(serving(after).is_empty(), "(4){}", story());
        assert_eq!(after.mode, Mode::DirectEmergency, "(4){}", story());
    }
    if direct(before) && !direct(after) {
        assert_eq!(played.outcome, Outcome::Applied, "(7){}", story());
        assert!(serving(after).len() >= lab.policy.min_slots_to_exit_direct(), "(7){}", story());
        let carries =
            |name: &str| lab.endpoints.get(name).is_some_and(|endpoint| endpoint.carries(5_000));
        let verified = after
            .slots
            .values()
            .filter_map(|slot| slot.loaded())
            .filter(|candidate| carries(&candidate.name))
            .count();
        assert!(verified >= lab.policy.min_slots_to_exit_direct(), "(7){}", story());
    }
    // 6: a lent slot carries nobody.
    for (slot, state) in &after.slots {
        if matches!(state.content, Content::Lent(_)) {
            assert!(
                !after.egress.values().any(|e| *e == Egress::Slot(slot.clone())),
                "(6){}",
                story()
            );
        }
    }
    // 8: every command has an undo, and together they lead back (the world asserts that they do).
    assert!(played.plan.iter().all(|step| !step.undo.is_empty()), "(8){}", story());
    // 12: the counter is reset by a successful full refresh alone.
    if after.repair_events_since_full_refresh < before.repair_events_since_full_refresh {
        assert_eq!(after.mode, Mode::Normal, "(12){}", story());
        assert!(
            after.pool.as_ref().map(|p| p.generation) > before.pool.as_ref().map(|p| p.generation),
            "(12){}",
            story()
        );
        assert_eq!(serving(after).len(), lab.policy.slots.interfaces.len(), "(12){}", story());
    }
    // 14: no endpoint and no pair of keys is up twice.
    let up: Vec<_> = played.is.tunnels.values().filter_map(|tunnel| tunnel.ends.as_ref()).collect();
    for (n, one) in up.iter().enumerate() {
        assert!(up[n + 1..].iter().all(|other| other.peer != one.peer), "(14){}", story());
    }
    // 15: with the WAN down nothing is counted, quarantined, moved or tried.
    if input.uplink == Uplink::Down || played.outcome == Outcome::Held {
        assert_eq!(before.mode, after.mode, "(15){}", story());
        assert_eq!(before.quarantine, after.quarantine, "(15){}", story());
        assert_eq!(before.egress, after.egress, "(15){}", story());
        assert_eq!(before.pool, after.pool, "(15){}", story());
        assert_eq!(before.fresh, after.fresh, "(15){}", story());
        assert_eq!(before.refresh_tried_at, after.refresh_tried_at, "(15){}", story());
        assert!(after.settle, "(15){}", story());
        for (name, slot) in &after.slots {
            let old = before.slots.get(name);
            assert_eq!(
                old.map(|s| &s.content),
                Some(&slot.content).filter(|_| old.is_some()),
                "(15){}",
                story()
            );
            assert_eq!(old.is_some_and(|s| s.failed), slot.failed, "(15){}", story());
            assert!(slot.retests_failed == 0 || !slot.failed, "(15){}", story());
            assert!(slot.failures == 0 || slot.failed, "(15){}", story());
        }
        if input.uplink == Uplink::Down {
            assert!(played.trials().is_empty(), "(15){}", story());
        }
    }
    if before.settle && input.uplink != Uplink::Down && played.outcome != Outcome::Held {
        assert_eq!(before.mode, after.mode, "settling{}", story());
        assert_eq!(before.quarantine, after.quarantine, "settling{}", story());
    }
    // An undone step leaves clients where they were, for the next one to place.
    if played.outcome != Outcome::Undone {
        placed(before, after, &story);
    }
    if played.outcome == Outcome::Undone {
        assert_eq!(before.mode, after.mode, "undone{}", story());
        assert_eq!(before.egress, after.egress, "undone{}", story());
    }
}

/// Where clients are.
fn placed(before: &PoolState, after: &PoolState, story: &dyn Fn() -> String) {
    let serving = serving(after);
    let slot_of = |egress: &Egress| match egress {
        Egress::Slot(slot) => Some(slot.to_string()),
        Egress::Direct | Egress::None => None,
    };
    // 16: whose slot serves is not moved by another's failure; one goes home at most.
    for (client, old) in &before.egress {
        let (Some(was), Some(is)) = (slot_of(old), after.egress.get(client)) else { continue };
        let home = after.homes.get(client).map(ToString::to_string);
        if serving.contains(&was) && slot_of(is) != Some(was.clone()) {
            assert_eq!(slot_of(is), home, "(16) {client} was moved for nothing{}", story());
        }
    }
    let held = after.settle && before.egress == after.egress;
    if after.proven && !after.mode.is_direct() && !serving.is_empty() && !held {
        let mut loads: BTreeMap<String, usize> = serving.iter().map(|s| (s.clone(), 0)).collect();
        for (client, egress) in &after.egress {
            let slot = slot_of(egress);
            assert!(
                slot.as_ref().is_some_and(|slot| serving.contains(slot)),
                "{client} is not on a serving slot{}",
                story()
            );
            *loads.entry(slot.unwrap_or_default()).or_default() += 1;
        }
        assert_eq!(after.egress.len(), 3, "not everybody is placed{}", story());
        let (least, most) = (loads.values().min(), loads.values().max());
        assert!(most.unwrap() - least.unwrap() <= 1, "loads {loads:?}{}", story());
    }
}
