//! The laws of a chain, over every state that it can reach in a small world with short times.

use crate::chain_world;
use crate::edges;

use chain_world::{Play, World, Write, policy, two_by_two};
use edges::Transitions;
use egressctl::chain::Chain;
use egressctl::chain::name::NodeName;
use egressctl::chain::state::{ChainState, HopState, Mode};
use egressctl::machine::{PartWish, Settled};
use egressctl::policy::ChainPolicy;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// Seconds between two checks; all times are multiples of it.
const STEP: u64 = 10;
/// A mark outlasts one check, and does not grow here: that is a story of its own below.
const FAIL_TIMEOUT: u64 = 20;
const STAY: u64 = 10;

fn short(more: &Json) -> &'static ChainPolicy {
    let mut params = json!({
        "check_interval_sec": STEP, "fail_timeout_sec": FAIL_TIMEOUT,
        "fail_timeout_max_sec": FAIL_TIMEOUT, "rise": 1, "minimum_stay_sec": STAY
    });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Box::leak(Box::new(policy(&two_by_two(), &params)))
}

/// What happens in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// These nodes are dead, and these forward nothing.
    World(&'static [&'static str], &'static [&'static str]),
    /// What is written becomes this, while these nodes are dead.
    Writes(Write, &'static [&'static str]),
    CoreDown,
    WanDown,
    /// The core begins anew and forgets.
    Forgets,
    Selects(&'static str, &'static str),
    Switch(&'static str),
    Pause(&'static str),
    Resume(&'static str),
}

const WELL: Event = Event::World(&[], &[]);

/// Worlds in which some combination of nodes carries, one dead node or one that forwards nothing.
const ONE_FAULT: [Event; 5] = [
    Event::World(&["a1"], &[]),
    Event::World(&["b1"], &[]),
    Event::World(&["a2"], &[]),
    Event::World(&["b2"], &[]),
    Event::World(&[], &["a1"]),
];

/// One such node in each of the two hops.
const TWO_FAULTS: [Event; 3] = [
    Event::World(&["a1", "b1"], &[]),
    Event::World(&["b1"], &["a1"]),
    Event::World(&["b2"], &["a1"]),
];

/// What happens by itself.
fn events() -> Vec<Event> {
    let mut all = vec![WELL];
    all.extend(ONE_FAULT);
    all.extend(TWO_FAULTS);
    all.extend([
        Event::World(&["b1", "b2"], &[]),
        Event::World(&["a1", "a2"], &[]),
        Event::CoreDown,
        Event::WanDown,
        Event::Writes(Write::Refused, &["b1"]),
    ]);
    all
}

/// What people and restarts do, beside a few of these.
fn persons() -> Vec<Event> {
    let mut all = vec![WELL, Event::World(&["b1", "b2"], &[]), Event::CoreDown, Event::WanDown];
    all.extend(ONE_FAULT.into_iter().take(2));
    all.extend([
        Event::Forgets,
        Event::Writes(Write::Overtaken("exit", "b1"), &["b2"]),
        Event::Selects("exit", "b2"),
        Event::Switch("exit=b1"),
        Event::Pause("exit"),
        Event::Resume("exit"),
    ]);
    all
}

/// All that a later step can tell of a hop. What was a moment is how long ago it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HopKey {
    mode: Mode,
    confirmed: String,
    selected: String,
    forgot: bool,
    blamed: Vec<(NodeName, u32)>,
    passes: u32,
    stay: u64,
    marks: Vec<(NodeName, u64)>,
    down_steps: u32,
    paused: bool,
}

type Key = (bool, Vec<HopKey>);

fn key(play: &Play<'_>) -> Key {
    let state = play.state.as_ref().unwrap();
    let now = &play.world.now;
    let ago = |at: &egressctl::time::Moment, most: u64| now.since(at).as_secs().min(most);
    let hop = |(hop, seat): (&HopState, String)| HopKey {
        mode: hop.mode,
        confirmed: hop.confirmed.member.clone(),
        selected: seat,
        forgot: hop.confirmed.life.process.as_ref().unwrap().began != play.world.began,
        blamed: hop.blamed.iter().map(|(name, n)| (name.clone(), *n)).collect(),
        passes: hop.passes,
        stay: hop.stay.as_ref().map_or(STAY, |at| ago(at, STAY)),
        marks: hop
            .marks
            .marks
            .keys()
            .filter_map(|name| {
                let until = hop.marks.until(name, now)?;
                Some((name.clone(), until.since(now).as_secs()))
            })
            .collect(),
        down_steps: hop.down_steps % 2,
        paused: hop.paused.is_some(),
    };
    (state.settle, state.hops.iter().zip(play.world.seats()).map(hop).collect())
}

/// How many tests walk, first runs included.
const WALKS: usize = 4;

/// What was met on the walk.
#[derive(Default)]
struct Met {
    rows: BTreeSet<(Mode, Mode, String)>,
    reasons: BTreeSet<String>,
    transitions: Transitions,
}

/// The two hops, what carries there, and what else there is.
fn is_at_fault(world: &World, node: &str) -> bool {
    world.dead.contains(node) || world.blocks.iter().any(|(from, _)| *from == node)
}

/// Takes one edge, and holds it to every invariant. `None`: nothing of the kind can happen here.
fn edge(before: &Play<'static>, event: Event, met: &mut Met) -> Option<Play<'static>> {
    let mut play = before.clone();
    let old = before.state.as_ref().unwrap();
    let world = &mut play.world;
    world.writes.clear();
    world.later(STEP);
    (world.core_up, world.wan, world.write) = (true, true, Write::Takes);
    world.dead.clear();
    world.blocks.clear();
    match event {
        Event::World(dead, blocks) => {
            world.dead = dead.iter().copied().collect();
            let all = blocks.iter().flat_map(|from| ["b1", "b2"].map(|to| (*from, to)));
            world.blocks = all.collect();
        }
        Event::Writes(write, dead) => {
            (world.write, world.dead) = (write, dead.iter().copied().collect());
        }
        Event::CoreDown => world.core_up = false,
        Event::WanDown => world.wan = false,
        Event::Forgets => world.restart(),
        Event::Selects(group, member) => world.select(group, member),
        Event::Switch(_) | Event::Pause(_) | Event::Resume(_) => {}
    }
    let stood = play.world.seats();
    let served = play.world.is_served();
    let step = match event {
        Event::Switch(target) => play.switch(target, true)?,
        Event::Pause(hop) => {
            if old.hops.iter().any(|known| known.name.as_str() == hop && known.paused.is_some()) {
                return None;
            }
            play.part(hop, PartWish::Pause).unwrap();
            play.step()
        }
        Event::Resume(hop) => {
            play.part(hop, PartWish::Resume).ok()?;
            play.step()
        }
        Event::World(..)
        | Event::Writes(..)
        | Event::CoreDown
        | Event::WanDown
        | Event::Forgets
        | Event::Selects(..) => play.step(),
    };
    let state = play.state.as_ref().unwrap();
    let seats = play.world.seats();
    let say = || {
        format!(
            "{event:?} from {:#?}\nwith {stood:?}\nto {:#?}\nwith {seats:?}\nby {:?}\nwrites {:?}",
            old, state, step.reasons, play.world.writes
        )
    };
    // Nothing but a node of the same hop is ever selected.
    for (group, member) in &play.world.writes {
        let hop = play.policy.hops.iter().find(|hop| hop.group == *group).unwrap();
        assert!(hop.of_member(member).is_some(), "{}", say());
    }
    // With the uplink or the core down nothing is counted, marked, closed or tried.
    if matches!(event, Event::CoreDown | Event::WanDown) && !step.codes().contains(&"choice-lost") {
        let modes = |state: &ChainState| -> Vec<_> {
            let hops = state.hops.iter();
            hops.map(|hop| (hop.mode, hop.marks.clone(), hop.blamed.clone())).collect()
        };
        assert!(play.world.writes.is_empty() && modes(old) == modes(state), "{}", say());
    }
    // What the state says carries is what is selected.
    if play.world.core_up && play.world.write == Write::Takes {
        for (hop, seat) in state.hops.iter().zip(&seats) {
            assert_eq!(hop.confirmed.member, *seat, "{}", say());
        }
    }
    let by_person = matches!(event, Event::Switch(_));
    let again = step.codes().contains(&"choice-lost");
    let changed: Vec<usize> = (0..2).filter(|place| stood[*place] != seats[*place]).collect();
    if !by_person && !again && play.world.write == Write::Takes {
        // Before a hop is changed it was broken, or the cause; else one is returned to.
        if served {
            assert!(changed.len() <= 1, "{}", say());
            assert!(changed.is_empty() || step.codes().contains(&"returned"), "{}", say());
            assert!(play.world.is_served(), "{}", say());
        } else {
            for place in &changed {
                let was_down = old.hops[*place].mode.is_down();
                let is_rest = state.hops[*place].mode == Mode::LastResort;
                let fault = is_at_fault(&play.world, &stood[*place]);
                assert!(fault || was_down || is_rest, "{}", say());
            }
        }
        // What another person's pause protects is not changed.
        for (place, hop) in old.hops.iter().enumerate() {
            let resumed = matches!(event, Event::Resume(_));
            let chosen = matches!(event, Event::Selects(..));
            if hop.paused.is_some() && !resumed && !chosen {
                assert!(!changed.contains(&place), "{}", say());
            }
        }
    }
    // A hop is closed only when none of its nodes passes; one that passes is not left closed. A step
    // in which nobody looked at the legs tells nothing.
    let unseen = ["settling", "core-down", "offline", "choice-lost", "switched"];
    if !step.codes().iter().any(|code| unseen.contains(code)) {
        for (place, hop) in state.hops.iter().enumerate() {
            if hop.mode.is_down() && play.world.write == Write::Takes {
                let known = &play.policy.hops[place].nodes;
                let passes = known.iter().any(|node| play.world.leg(&node.member));
                let before_passes = place == 0 || play.world.leg(&seats[place - 1]);
                let tried = hop.paused.is_none() && before_passes;
                assert!(!passes || !tried, "{}", say());
            }
        }
    }
    // Nobody is marked for another's fault.
    for (hop, was) in state.hops.iter().zip(&old.hops) {
        for (name, mark) in &hop.marks.marks {
            let is_new = was.marks.marks.get(name) != Some(mark);
            let fault = is_at_fault(&play.world, name.as_str());
            assert!(!is_new || fault, "{name} of {}: {}", hop.name, say());
        }
    }
    for code in step.codes() {
        met.reasons.insert(code.to_owned());
    }
    for (hop, was) in state.hops.iter().zip(&old.hops) {
        met.transitions.note(Some(was.mode.as_str()), hop.mode.as_str(), step.codes());
        let why = step.codes().last().copied().unwrap_or_default().to_owned();
        if hop.mode != was.mode || !changed.is_empty() {
            met.rows.insert((was.mode, hop.mode, why));
        }
    }
    Some(play)
}

struct Walk {
    plays: Vec<Play<'static>>,
    next: BTreeMap<(usize, Event), usize>,
    met: Met,
}

fn walk(policy: &'static ChainPolicy, events: &[Event]) -> Walk {
    let mut met = Met::default();
    let mut first = Play::new(policy);
    let step = first.step();
    for hop in &first.state.as_ref().unwrap().hops {
        met.transitions.note(None, hop.mode.as_str(), step.codes());
    }
    let mut places = BTreeMap::from([(key(&first), 0)]);
    let mut plays = vec![first];
    let mut next = BTreeMap::new();
    let mut at = 0;
    while at < plays.len() {
        for event in events.iter().copied() {
            let Some(play) = edge(&plays[at].clone(), event, &mut met) else { continue };
            let place = *places.entry(key(&play)).or_insert_with(|| {
                plays.push(play);
                plays.len() - 1
            });
            next.insert((at, event), place);
        }
        at += 1;
        if at % 2_000 == 0 {
            eprintln!("{at} of {} so far", plays.len());
        }
        assert!(at < 60_000, "the states have no end");
    }
    eprintln!("{} states, {} edges, {} rows", plays.len(), next.len(), met.rows.len());
    Walk { plays, next, met }
}

impl Walk {
    /// Whether, from every state that `from` picks, `event` leads to `there` within `limit` steps.
    fn leads(
        &self,
        event: Event,
        limit: usize,
        from: impl Fn(&Play<'_>) -> bool,
        there: impl Fn(&Play<'_>) -> bool,
    ) {
        for (place, play) in self.plays.iter().enumerate().filter(|(_, play)| from(play)) {
            let mut at = place;
            let mut is_there = there(&self.plays[at]);
            for _ in 0..limit {
                at = self.next[&(at, event)];
                is_there = is_there || there(&self.plays[at]);
            }
            assert!(is_there, "{event:?} does not lead there in {limit} steps from {play:#?}");
        }
    }
}

fn is_free(play: &Play<'_>) -> bool {
    let state = play.state.as_ref().unwrap();
    let known = state.hops.iter().zip(play.world.seats());
    // A person's choice that nobody has looked at yet is one all the same.
    let mut seen = known.map(|(hop, seat)| {
        let began = hop.confirmed.life.process.as_ref().unwrap().began;
        hop.paused.is_none() && (hop.confirmed.member == seat || began != play.world.began)
    });
    seen.all(|free| free)
}

/// Whether what stands would carry in the world of an event.
fn carries(event: Event) -> impl Fn(&Play<'_>) -> bool {
    move |play| {
        let Event::World(dead, blocks) = event else { return false };
        let seats = play.world.seats();
        let is_dead = seats.iter().any(|seat| dead.contains(&seat.as_str()));
        !is_dead && !blocks.contains(&seats[0].as_str())
    }
}

fn liveness(walk: &Walk, max_fails: usize) {
    // A restart costs the check in which choices are made again, and the one that settles.
    let settles = 2;
    let stay = usize::try_from((STAY + FAIL_TIMEOUT) / STEP).unwrap();
    let all_preferred = |play: &Play<'_>| {
        play.state.as_ref().unwrap().hops.iter().all(|hop| hop.mode == Mode::Preferred)
    };
    // Both hops return, one a step; the first test may fail by a mark that has just been set anew.
    walk.leads(WELL, settles + stay + 2 * 3, is_free, all_preferred);
    let walked = |event: &Event| walk.next.contains_key(&(0, *event));
    for event in ONE_FAULT.into_iter().filter(walked) {
        walk.leads(event, settles + max_fails, is_free, carries(event));
    }
    for event in TWO_FAULTS.into_iter().filter(walked) {
        walk.leads(event, settles + 2 * max_fails, is_free, carries(event));
    }
}

fn rows(walk: &Walk, expected: &[(Mode, Mode, &str)]) {
    for (from, to, why) in expected {
        let row = (*from, *to, (*why).to_owned());
        assert!(walk.met.rows.contains(&row), "{row:?} is not met of {:#?}", walk.met.rows);
    }
}

#[test]
fn every_reachable_state_keeps_the_laws_and_leads_to_service() {
    let walk = walk(short(&json!({})), &events());
    liveness(&walk, 1);
    rows(
        &walk,
        &[
            (Mode::Preferred, Mode::Backup, "replaced"),
            (Mode::Preferred, Mode::Closed, "closed"),
            (Mode::Backup, Mode::Closed, "closed"),
            (Mode::Backup, Mode::Preferred, "replaced"),
            (Mode::Backup, Mode::Returning, "returning"),
            (Mode::Returning, Mode::Preferred, "returned"),
            (Mode::Returning, Mode::Backup, "test-failed"),
            (Mode::Returning, Mode::Backup, "return-failed"),
            (Mode::Closed, Mode::Preferred, "reopened"),
            (Mode::Closed, Mode::Backup, "replaced"),
        ],
    );
    walk.met.transitions.are_those_of_walks::<Chain>(WALKS, |_, _, _| true);
}

#[test]
fn with_two_fails_and_a_last_resort_the_laws_hold_too() {
    let walk = walk(short(&json!({ "max_fails": 2, "all_failed": "last_resort" })), &events());
    liveness(&walk, 2);
    rows(
        &walk,
        &[
            (Mode::Preferred, Mode::LastResort, "last-resort"),
            (Mode::LastResort, Mode::Preferred, "reopened"),
            (Mode::LastResort, Mode::Backup, "replaced"),
        ],
    );
    assert!(walk.met.reasons.contains("failing"));
    walk.met.transitions.are_those_of_walks::<Chain>(WALKS, |_, _, _| true);
}

#[test]
fn a_persons_choice_and_pause_are_kept_in_every_state() {
    let walk = walk(short(&json!({})), &persons());
    liveness(&walk, 1);
    for code in ["persons-choice", "switched", "choice-lost", "settling", "closed"] {
        assert!(walk.met.reasons.contains(code), "{code}: {:?}", walk.met.reasons);
    }
    walk.met.transitions.are_those_of_walks::<Chain>(WALKS, |_, _, _| true);
}

#[test]
fn a_first_run_finds_a_chain_in_any_state() {
    let mut transitions = Transitions::default();
    let mut first = |params: &Json, dead: &[&'static str], selected: &str| {
        let policy = short(params);
        let mut play = Play::new(policy);
        play.world.dead = dead.iter().copied().collect();
        play.world.select("exit", selected);
        let step = play.step();
        for hop in &play.state.as_ref().unwrap().hops {
            transitions.note(None, hop.mode.as_str(), step.codes());
        }
    };
    first(&json!({}), &[], "b1");
    first(&json!({}), &[], "b2");
    first(&json!({}), &["a1", "b1"], "b1");
    first(&json!({}), &["b2"], "b2");
    first(&json!({}), &["b1", "b2"], "b1");
    first(&json!({ "all_failed": "last_resort" }), &["b1", "b2"], "b1");
    transitions.are_those_of_walks::<Chain>(WALKS, |_, _, _| true);
}

#[test]
fn a_node_that_dies_at_each_return_is_returned_to_ever_more_rarely() {
    let policy = short(&json!({ "fail_timeout_sec": 20, "fail_timeout_max_sec": 160 }));
    let mut play = Play::new(policy);
    play.step();
    let mut returns = Vec::new();
    for step in 0..200_u64 {
        // It answers its own tests and forwards nothing.
        play.world.blocks = [("a1", "b1"), ("a1", "b2")].into();
        let step_made = play.after(STEP);
        if step_made.settled == Some(Settled::RolledBack) {
            returns.push(step * STEP);
        }
        assert!(play.world.is_served(), "{:?}", step_made.reasons);
    }
    let apart: Vec<u64> = returns.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(apart.len() > 5 && apart[0] >= 40 && apart[1] >= 80, "{apart:?}");
    assert!(apart.iter().skip(2).all(|apart| *apart >= 160), "{apart:?}");
}
