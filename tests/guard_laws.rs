//! The laws of a guard, over every state that it can reach in a small world with short waits.

use crate::edges;
use crate::guard_world;

use edges::Transitions;
use egressctl::guard::Guard;
use egressctl::guard::state::{GuardState, Mode, Wait};
use egressctl::machine::Settled;
use egressctl::policy::GuardPolicy;
use egressctl::proxy::Verdict;
use guard_world::{AUTO, FAST, PICK, Play, SLOW, SLOWEST, Write, policy};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Seconds between two checks; all waits are multiples of it.
const STEP: u64 = 10;
/// The longest waits of the policy.
const BACKOFF_MAX: u64 = 20;
const GIVE_BACK_MAX: u64 = 40;

fn short() -> GuardPolicy {
    policy(&json!({
        "check_interval_sec": STEP, "failures_before_recovery": 2, "observe_passes": 2,
        "candidates_per_step": 1, "backoff_min_sec": STEP, "backoff_max_sec": BACKOFF_MAX,
        "give_back_max_sec": GIVE_BACK_MAX
    }))
}

/// What happens in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Requests pass by these members.
    Passes(&'static [&'static str]),
    /// The same, while the core measures just these.
    Measures(&'static [&'static str], &'static [&'static str]),
    /// What is written becomes this, while requests pass by these.
    Writes(Write, &'static [&'static str]),
    CoreDown,
    WanDown,
    /// The uplink falls while something is tried; requests pass by these before.
    WanFalls(&'static [&'static str]),
    /// The core's proxy is gone while something is tried.
    ProxyFalls,
    ProxyDown,
    /// The core begins anew and forgets.
    Forgets,
    /// The same, with the uplink down.
    ForgetsOffline,
    /// It begins anew and keeps what was selected.
    Restarts,
    Selects(&'static str),
    /// Our member is no longer in the group, and the core falls back on its default.
    Loses,
    Switch(&'static str),
    Pause,
    Resume,
}

const ALL: &[&str] = &[PICK, FAST, SLOW];

fn events() -> Vec<Event> {
    let some: [&'static [&'static str]; 5] = [ALL, &[FAST, SLOW], &[SLOW], &[PICK], &[]];
    let mut all: Vec<Event> = some.into_iter().map(Event::Passes).collect();
    all.extend([
        Event::Measures(&[], &[]),
        Event::Measures(&[SLOW], &[SLOW, PICK]),
        Event::Measures(ALL, &[FAST, SLOW]),
    ]);
    for passes in some {
        all.extend(
            [Write::Refused, Write::Overtaken(SLOW), Write::Overtaken(AUTO)]
                .map(|write| Event::Writes(write, passes)),
        );
    }
    all.extend([
        Event::CoreDown,
        Event::WanDown,
        Event::WanFalls(&[]),
        Event::WanFalls(ALL),
        Event::ProxyFalls,
        Event::ProxyDown,
        Event::Forgets,
        Event::ForgetsOffline,
    ]);
    all.extend([Event::Restarts, Event::Loses, Event::Pause, Event::Resume]);
    all.extend([AUTO, FAST, SLOW].map(Event::Selects));
    all.extend([AUTO, SLOW].map(Event::Switch));
    all
}

/// All that a later step can tell of a state. What was a moment is how long ago it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    mode: Mode,
    paused: bool,
    confirmed: String,
    selected: String,
    forgot: bool,
    settle: bool,
    failed: u32,
    backoff: Option<(u64, u64)>,
    list: Option<Vec<String>>,
    passes: u32,
    give_back: Option<(u64, u64)>,
    rules: Option<u64>,
}

fn key(play: &Play<'_>) -> Option<Key> {
    let state: &GuardState = play.state.as_ref()?;
    let now = &play.world.now;
    let wait =
        |wait: &Option<Wait>| wait.as_ref().map(|wait| (wait.seconds, wait.left(now).as_secs()));
    Some(Key {
        mode: state.mode,
        paused: play.paused,
        confirmed: state.confirmed.member.clone(),
        selected: play.world.selected.clone(),
        forgot: state.confirmed.life.process.as_ref()?.began != play.world.began,
        settle: state.settle,
        failed: state.failed_rounds,
        backoff: wait(&state.backoff),
        list: state.list.as_ref().map(|list| list.rest.clone()),
        passes: state.passes,
        give_back: wait(&state.give_back),
        rules: state.rules_since.as_ref().map(|at| now.since(at).as_secs().min(GIVE_BACK_MAX)),
    })
}

/// What was met on the walk.
#[derive(Default)]
struct Met {
    rows: BTreeSet<(&'static str, &'static str, String)>,
    reasons: BTreeSet<String>,
    transitions: Transitions,
}

/// Takes one edge, and holds it to every invariant. `None`: nothing of the kind can happen here.
fn edge(before: &Play<'static>, event: Event, met: &mut Met) -> Option<Play<'static>> {
    let mut play = before.clone();
    let state = before.state.as_ref().unwrap();
    let world = &mut play.world;
    world.writes.clear();
    world.asked.clear();
    world.later(STEP);
    (world.core_up, world.wan, world.proxy, world.write) = (true, true, true, Write::Takes);
    world.all = [AUTO, PICK, FAST, SLOW, SLOWEST, "DIRECT"].map(str::to_owned).into();
    (world.keeps, world.wan_falls, world.proxy_falls) = (false, false, false);
    let set = |members: &[&'static str]| members.iter().copied().collect::<BTreeSet<_>>();
    (world.passes, world.unmeasured) = (set(ALL), BTreeSet::new());
    let mut persons = None;
    match event {
        Event::Passes(passes) => world.passes = set(passes),
        Event::Measures(measured, passes) => {
            world.passes = set(passes);
            world.unmeasured = &set(&[PICK, FAST, SLOW, SLOWEST]) - &set(measured);
        }
        Event::Writes(write, passes) => (world.write, world.passes) = (write, set(passes)),
        Event::CoreDown => world.core_up = false,
        Event::WanDown => (world.wan, world.passes) = (false, set(&[])),
        Event::WanFalls(passes) => (world.wan_falls, world.passes) = (true, set(passes)),
        Event::ProxyFalls => (world.proxy_falls, world.passes) = (true, set(&[])),
        Event::ProxyDown => world.proxy = false,
        Event::Forgets => world.restart(),
        Event::ForgetsOffline => {
            (world.wan, world.passes) = (false, set(&[]));
            world.restart();
        }
        Event::Restarts => {
            world.keeps = true;
            world.restart();
        }
        Event::Selects(member) => {
            persons = (member != world.selected).then_some(member);
            member.clone_into(&mut world.selected);
        }
        Event::Loses => {
            if world.selected == AUTO || state.mode == Mode::Manual {
                return None;
            }
            let gone = world.selected.clone();
            world.all.retain(|member| *member != gone);
            AUTO.clone_into(&mut world.selected);
        }
        Event::Switch(_) | Event::Pause | Event::Resume => {}
    }
    if event == Event::Pause && std::mem::replace(&mut play.paused, true) {
        return None;
    }
    let (mode, was_paused, stood) = (state.mode, play.paused, play.world.selected.clone());
    let step = match event {
        Event::Switch(target) => play.switch(target, true)?,
        Event::Resume if !was_paused => return None,
        Event::Resume => {
            play.resume();
            play.step()
        }
        _ => play.step(),
    };
    let say = || {
        format!(
            "{event:?} from {:#?}\nwith {:#?}\nto {:#?}\nwith {:#?}\nby {:?}",
            before.state, before.world, play.state, play.world, step.reasons
        )
    };
    let state = play.state.as_ref().unwrap();
    let writes = &play.world.writes;
    let by_person = matches!(event, Event::Switch(_));
    // In MANUAL, offline, with the core down, and under a pause nothing is written.
    let still = mode == Mode::Manual
        || matches!(event, Event::CoreDown | Event::WanDown | Event::ForgetsOffline)
        || (was_paused && event != Event::Resume);
    let again = step.codes().contains(&"choice-lost");
    assert!(!still || by_person || writes.is_empty(), "{}", say());
    // With the proxy gone nothing can be proven, so only what was lost is written again.
    assert!(event != Event::ProxyDown || again || writes.is_empty(), "{}", say());
    // What is tried while the uplink falls shows nothing: it is put back and not counted.
    let falls = matches!(event, Event::WanFalls(_) | Event::ProxyFalls);
    if falls && !writes.is_empty() && !again {
        let was = before.state.as_ref().unwrap();
        assert_eq!(play.world.selected, stood, "{}", say());
        assert_eq!(
            (state.mode, state.failed_rounds, &state.backoff, &state.give_back, &state.list),
            (was.mode, was.failed_rounds, &was.backoff, &was.give_back, &was.list),
            "{}",
            say()
        );
        let why = if event == Event::ProxyFalls { "undetermined" } else { "offline" };
        assert_eq!(step.codes(), [why], "{}", say());
    }
    // Nothing is written when nothing was measured.
    assert!(!step.codes().contains(&"none-measured") || writes.is_empty(), "{}", say());
    // What sends requests past every proxy is never selected, nor what the group uses.
    assert!(writes.iter().all(|to| to != "DIRECT" && to != PICK), "{}", say());
    // A person's choice stands.
    if let Some(member) =
        persons.filter(|member| *member != before.state.as_ref().unwrap().confirmed.member)
    {
        let manual = if member == AUTO { Mode::Auto } else { Mode::Manual };
        assert_eq!((play.world.selected.as_str(), state.mode), (member, manual), "{}", say());
        assert!(writes.is_empty(), "{}", say());
    }
    if let Event::Writes(Write::Overtaken(member), _) = event
        && !writes.is_empty()
    {
        assert_eq!(play.world.selected, member, "{}", say());
    }
    // A request stands behind every choice that is kept.
    let changed = stood != play.world.selected && play.world.write == Write::Takes;
    if changed && !by_person && !again {
        let left = ["no-member-passes", "member-gone"];
        let left =
            play.world.selected == AUTO && step.codes().iter().any(|code| left.contains(code));
        assert!(play.world.is_served() || left, "{}", say());
        assert!(left || step.settled == Some(Settled::Applied), "{}", say());
    }
    // A trial whose request failed leaves our member selected.
    if step.codes().contains(&"trial-failed") && play.world.write == Write::Takes {
        assert_eq!(
            (play.world.selected.as_str(), state.mode),
            (stood.as_str(), Mode::Temporary),
            "{}",
            say()
        );
    }
    // The state follows what was read back.
    let put_back = step.settled == Some(Settled::RolledBack);
    // What was lost is still ours while the core refuses it.
    let told = play.world.write == Write::Takes || (play.world.write == Write::Refused && !again);
    let knows = play.world.core_up && (told || !put_back);
    if knows && !was_paused && !step.codes().contains(&"offline") {
        assert_eq!(state.confirmed.member, play.world.selected, "{}", say());
        assert_eq!(state.mode.is_automatic(), play.world.selected == AUTO, "{}", say());
    }
    // The wait before a give-back is over when the group is tried.
    if step.codes().contains(&"given-back") && matches!(mode, Mode::Observing) {
        let at_the_count = before.state.as_ref().unwrap().failed_rounds > 0;
        let wait = before.state.as_ref().unwrap().give_back.as_ref().unwrap();
        assert!(at_the_count || wait.left(&play.world.now).is_zero(), "{}", say());
    }
    for code in step.codes() {
        met.reasons.insert(code.to_owned());
    }
    met.transitions.note(Some(mode.as_str()), state.mode.as_str(), step.codes());
    if mode != state.mode || !writes.is_empty() {
        let why = step.codes().last().copied().unwrap_or_default().to_owned();
        met.rows.insert((mode.as_str(), state.mode.as_str(), why));
    }
    Some(play)
}

fn leaked() -> &'static GuardPolicy {
    Box::leak(Box::new(short()))
}

#[test]
fn every_reachable_state_keeps_the_laws_and_leads_to_service() {
    let policy = leaked();
    let mut met = Met::default();
    let mut plays = Vec::new();
    let mut places = BTreeMap::new();
    for selected in [AUTO, FAST] {
        let mut play = Play::new(policy);
        selected.clone_into(&mut play.world.selected);
        let step = play.step();
        met.reasons.extend(step.codes().into_iter().map(str::to_owned));
        met.transitions.note(None, play.stands(), step.codes());
        places.insert(key(&play).unwrap(), plays.len());
        plays.push(play);
    }
    let mut next = BTreeMap::new();
    let mut at = 0;
    while at < plays.len() {
        for event in events() {
            let Some(play) = edge(&plays[at].clone(), event, &mut met) else { continue };
            let place = *places.entry(key(&play).unwrap()).or_insert_with(|| {
                plays.push(play);
                plays.len() - 1
            });
            next.insert((at, event), place);
        }
        at += 1;
        assert!(at < 60_000, "the states have no end");
    }
    eprintln!("{} states, {} edges, {} rows", plays.len(), next.len(), met.rows.len());

    // Liveness, from every state in which it is promised.
    let leads = |from: usize, event: Event, limit: usize, there: &dyn Fn(&Play<'_>) -> bool| {
        let mut at = from;
        (0..=limit).any(|_| {
            let is_there = there(&plays[at]);
            at = next[&(at, event)];
            is_there
        })
    };
    let stands = |mode: Mode| move |play: &Play<'_>| play.state.as_ref().unwrap().mode == mode;
    let served_by = |members: &'static [&'static str]| {
        move |play: &Play<'_>| {
            let leaf = if play.world.selected == AUTO { PICK } else { &play.world.selected };
            members.contains(&leaf)
        }
    };
    for (from, play) in plays.iter().enumerate() {
        let state = play.state.as_ref().unwrap();
        let began = state.confirmed.life.process.as_ref().unwrap().began;
        let is_unseen = state.confirmed.member != play.world.selected && began == play.world.began;
        // A person has chosen, be it since the last look.
        if play.paused || state.mode == Mode::Manual || is_unseen {
            continue;
        }
        let steps = |seconds: u64| usize::try_from(seconds.div_ceil(STEP)).unwrap();
        let left = |wait: &Option<Wait>| {
            wait.as_ref().map_or(0, |wait| wait.left(&play.world.now).as_secs())
        };
        // A restart costs the check in which the choice is written again, and the one that settles.
        let settles = 2;
        let limit = 2 + 1 + steps(left(&state.give_back)) + settles;
        assert!(leads(from, Event::Passes(ALL), limit, &stands(Mode::Auto)), "all well: {play:#?}");
        let limit = 2 + 2 + 1 + steps(left(&state.backoff)) + settles;
        let few: [&'static [&'static str]; 3] = [&[FAST, SLOW], &[SLOW], &[PICK]];
        for passes in few {
            // A list from before is tried to its end, and waited for, before there is a new one.
            let old_list =
                state.list.as_ref().map_or(0, |list| list.rest.len() + steps(BACKOFF_MAX));
            let served = served_by(passes);
            assert!(
                leads(from, Event::Passes(passes), limit + old_list, &served),
                "{passes:?}: {play:#?}"
            );
        }
    }
    for row in [
        ("AUTO", "SUSPECT", "round-fails"),
        ("SUSPECT", "AUTO", "passes-again"),
        ("SUSPECT", "TEMPORARY", "took-over"),
        ("SUSPECT", "SUSPECT", "no-member-passes"),
        ("SUSPECT", "SUSPECT", "not-finished"),
        ("TEMPORARY", "OBSERVING", "group-answers"),
        ("OBSERVING", "TEMPORARY", "group-fails"),
        ("OBSERVING", "AUTO", "given-back"),
        ("OBSERVING", "TEMPORARY", "trial-failed"),
        ("OBSERVING", "TEMPORARY", "round-fails"),
        ("TEMPORARY", "AUTO", "given-back"),
        ("TEMPORARY", "TEMPORARY", "took-over"),
        ("TEMPORARY", "TEMPORARY", "choice-lost"),
        ("OBSERVING", "OBSERVING", "choice-lost"),
        ("TEMPORARY", "TEMPORARY", "not-finished"),
        ("TEMPORARY", "SUSPECT", "no-member-passes"),
        ("TEMPORARY", "AUTO", "member-gone"),
        ("OBSERVING", "AUTO", "member-gone"),
        ("TEMPORARY", "MANUAL", "persons-choice"),
        ("SUSPECT", "MANUAL", "persons-choice"),
        ("OBSERVING", "MANUAL", "persons-choice"),
        ("MANUAL", "AUTO", "handed-back"),
        ("MANUAL", "AUTO", "switched"),
        ("AUTO", "MANUAL", "switched"),
    ] {
        let row = (row.0, row.1, row.2.to_owned());
        assert!(met.rows.contains(&row), "{row:?} was not met in {:#?}", met.rows);
    }
    for reason in [
        "all-well",
        "core-down",
        "offline",
        "settling",
        "found",
        "persons-choice",
        "handed-back",
        "persons-member",
        "persons-member-fails",
        "switched",
        "choice-lost",
        "choice-lost-waits",
        "member-gone",
        "undetermined",
        "round-fails",
        "passes-again",
        "backs-off",
        "none-measured",
        "took-over",
        "no-member-passes",
        "not-finished",
        "group-fails",
        "group-answers",
        "given-back",
        "trial-failed",
    ] {
        assert!(met.reasons.contains(reason), "{reason} was not met in {:?}", met.reasons);
    }
    // With two failures in a row a member is doubted before it is left: that row has a test of its own.
    let elsewhere = |from: Option<&str>, to: &str| (from, to) == (Some("OBSERVING"), "SUSPECT");
    met.transitions.are_those_of::<Guard>(|from, to, _| !elsewhere(from, to));
}

#[test]
fn give_backs_of_a_group_that_fails_after_each_are_at_least_the_doubled_wait_apart() {
    // So long that no round is left to wait for: what holds control back is the wait alone.
    const MOST: u64 = 640;
    let policy = policy(&json!({
        "check_interval_sec": STEP, "failures_before_recovery": 2, "observe_passes": 2,
        "backoff_min_sec": STEP, "backoff_max_sec": BACKOFF_MAX, "give_back_max_sec": MOST
    }));
    let mut play = Play::new(&policy);
    play.step();
    let mut gave_back = Vec::new();
    for n in 0..1_000_u64 {
        // The pick answers the core always, and requests just as long as nobody uses it.
        let used = play.world.selected == AUTO && !play.stands().starts_with("AUTO");
        play.world.passes = if used { [FAST, SLOW].into() } else { [PICK, FAST, SLOW].into() };
        if play.stands() == "AUTO" {
            play.world.passes.remove(PICK);
        }
        if play.after(STEP).codes().contains(&"given-back") {
            gave_back.push(n * STEP);
        }
    }
    assert!(gave_back.len() > 10, "{gave_back:?}");
    let apart: Vec<u64> = gave_back.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let doubled = std::iter::successors(Some(2 * STEP), |wait| Some((wait * 2).min(MOST)));
    assert!(apart.iter().zip(doubled).all(|(apart, wait)| *apart >= wait), "{apart:?}");
}

#[test]
fn a_round_that_passes_is_remembered_as_what_a_request_showed() {
    let policy = leaked();
    let mut play = Play::new(policy);
    play.step();
    play.after(STEP);
    let state = play.state.as_ref().unwrap();
    assert_eq!(state.shown[AUTO].verdict, Verdict::Passed);
    assert_eq!(state.uses.as_deref(), Some(PICK));
}

#[test]
fn where_one_failure_is_enough_a_group_that_was_observed_may_be_left_in_charge_of_nothing() {
    let policy = policy(&json!({
        "check_interval_sec": STEP, "failures_before_recovery": 1, "observe_passes": 9,
        "candidates_per_step": 9, "backoff_min_sec": STEP, "backoff_max_sec": BACKOFF_MAX,
        "give_back_max_sec": GIVE_BACK_MAX
    }));
    let mut play = Play::new(&policy);
    play.step();
    play.world.passes = [FAST].into();
    let come_to = |play: &mut Play<'_>, state: &str| {
        let steps = (0..9).take_while(|_| {
            play.after(STEP);
            play.stands() != state
        });
        assert!(steps.count() < 9, "it does not come to {state}: {:?}", play.state);
    };
    come_to(&mut play, "TEMPORARY");
    play.world.passes = [FAST, PICK].into();
    come_to(&mut play, "OBSERVING");
    play.world.passes.clear();
    let step = play.after(BACKOFF_MAX);
    assert!(step.codes().contains(&"no-member-passes"), "{:?}", step.reasons);
    assert_eq!(play.stands(), "SUSPECT");
}
