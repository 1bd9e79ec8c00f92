//! The laws of a selector, over every state that it can reach in a small world with short windows.

use crate::edges;
use crate::selector_world;

use edges::Transitions;
use egressctl::machine::Settled;
use egressctl::policy::SelectorPolicy;
use egressctl::selector::Selector;
use egressctl::selector::state::{Chosen, Mode, SelectorState};
use egressctl::time::Moment;
use selector_world::{Answer, PRIMARY, Play, RESERVE, Step, THIRD, Write, policy};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Seconds between two checks; all windows are multiples of it.
const STEP: u64 = 10;

fn short() -> SelectorPolicy {
    flapping(60, 40)
}

/// The same with another window of flaps and another quarantine.
fn flapping(flap_window_sec: u64, quarantine_sec: u64) -> SelectorPolicy {
    policy(
        &json!({
            "check_interval_sec": STEP, "failure_window_sec": 20, "recovery_window_sec": 20,
            "quiet_window_sec": 10, "active_bytes_per_sec": 1_000, "minimum_reserve_sec": 20,
            "flap_limit": 2, "flap_window_sec": flap_window_sec, "quarantine_sec": quarantine_sec,
            "guard_max_hold_sec": 20
        }),
        "dead",
    )
}

/// What happens in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Both channels answer so, and so much flows.
    Check([Answer; 2], u64),
    /// They answer otherwise when they are asked again.
    Turns([Answer; 2], [Answer; 2]),
    /// Something flows just between the two samples before a switch.
    Burst([Answer; 2]),
    /// What is written becomes this.
    Writes([Answer; 2], Write),
    CoreDown,
    WanDown,
    /// The core begins anew and forgets, while both answer so.
    Forgets([Answer; 2]),
    /// It begins anew and keeps what was selected, or what a person selected meanwhile.
    Restarts(Option<&'static str>),
    Selects(&'static str),
    Switch(&'static str),
    Resume,
}

impl Event {
    /// How both channels answer, where that is told.
    fn answers(self) -> Option<[Answer; 2]> {
        match self {
            Self::Check(both, _)
            | Self::Turns(both, _)
            | Self::Burst(both)
            | Self::Writes(both, _)
            | Self::Forgets(both) => Some(both),
            Self::CoreDown
            | Self::WanDown
            | Self::Restarts(_)
            | Self::Selects(_)
            | Self::Switch(_)
            | Self::Resume => None,
        }
    }

    /// Whether it differs from a check in what becomes of a write alone.
    fn spoils(self) -> bool {
        matches!(self, Self::Turns(..) | Self::Burst(_) | Self::Writes(..))
    }
}

use Answer::{Dead, NoProxy, Well};

const WELL: Event = Event::Check([Well, Well], 0);
const PRIMARY_DEAD: Event = Event::Check([Dead, Well], 50_000);
const RESERVE_DEAD: Event = Event::Check([Well, Dead], 50_000);

fn events() -> Vec<Event> {
    let mut all = vec![Event::CoreDown, Event::WanDown, Event::Resume, Event::Restarts(None)];
    for primary in [Well, Dead, NoProxy] {
        for reserve in [Well, Dead, NoProxy] {
            all.push(Event::Check([primary, reserve], 0));
        }
    }
    all.extend([PRIMARY_DEAD, RESERVE_DEAD, Event::Check([Well, Well], 50_000)]);
    for both in [[Dead, Well], [Well, Dead], [Well, Well]] {
        all.push(Event::Turns(both, [NoProxy, NoProxy]));
        all.push(Event::Burst(both));
        all.extend([Write::Refused, Write::Overtaken].map(|write| Event::Writes(both, write)));
    }
    all.extend([[Well, Well], [Well, Dead], [Dead, Well]].map(Event::Forgets));
    all.extend([PRIMARY, RESERVE, THIRD].map(Event::Selects));
    all.extend([PRIMARY, RESERVE].map(Event::Switch));
    all.extend([PRIMARY, THIRD].map(|member| Event::Restarts(Some(member))));
    all
}

/// All that a later step can tell of a state. What was a moment is how long ago it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    mode: Mode,
    paused: bool,
    chosen: Chosen,
    selected: String,
    /// Whether the core has forgotten, and nothing was written yet.
    forgot: bool,
    settle: bool,
    failing: [Option<u64>; 2],
    row: [u32; 2],
    held: [Option<u64>; 2],
    checked: Option<u64>,
    recovery: Option<u64>,
    stay: Option<u64>,
    failovers: Vec<u64>,
    quarantine: Option<u64>,
    activity: (bool, u64, bool),
}

fn key(play: &Play<'_>) -> Option<Key> {
    let state: &SelectorState = play.state.as_ref()?;
    let now = &play.world.now;
    let age = |at: &Moment, cap: u64| (now.since(at).as_secs()).min(cap);
    let of = |at: &Option<Moment>, cap| at.as_ref().map(|at| age(at, cap));
    let both = [&state.primary, &state.reserve];
    let confirmed = state.confirmed.as_ref()?;
    Some(Key {
        mode: state.mode,
        paused: play.paused,
        chosen: state.chosen.clone(),
        selected: play.world.selected.clone(),
        forgot: confirmed.life.process.as_ref()?.began != play.world.began,
        settle: state.settle,
        failing: both.map(|channel| channel.failing_ms.map(|ms| (ms / 1_000).min(20))),
        row: both.map(|channel| channel.healthy_row),
        held: both.map(|channel| of(&channel.held_since, 20)),
        checked: of(&state.checked_at, 40),
        recovery: of(&state.recovery_since, 20),
        stay: of(&state.stay_since, 20),
        failovers: state.failovers.iter().map(|at| age(at, 60)).filter(|age| *age < 60).collect(),
        quarantine: of(&state.quarantined_at, 40),
        activity: (
            state.activity.base.is_some(),
            (state.activity.quiet_ms / 1_000).min(10),
            state.activity.rate.is_some_and(|rate| rate >= 1_000),
        ),
    })
}

/// What was met on the walk.
#[derive(Default)]
struct Met {
    rows: BTreeSet<(&'static str, &'static str, String)>,
    reasons: BTreeSet<String>,
    transitions: Transitions,
}

/// Makes an event happen to the world. What a person selected by it, if that is another member.
fn happens(play: &mut Play<'_>, event: Event) -> Option<&'static str> {
    let world = &mut play.world;
    world.writes.clear();
    world.later(STEP);
    (world.again, world.rate, world.sample_rate) = (None, 0, 0);
    (world.core_up, world.wan, world.write) = (true, true, Write::Takes);
    (world.primary, world.reserve) = (Well, Well);
    if let Some(both) = event.answers() {
        [world.primary, world.reserve] = both;
    }
    let selected = match event {
        Event::Check(_, rate) => {
            (world.sample_rate, world.received) = (rate, world.received + rate * STEP);
            None
        }
        Event::Turns(_, again) => {
            world.again = Some(again);
            None
        }
        Event::Burst(_) => {
            world.sample_rate = 50_000;
            None
        }
        Event::Writes(_, write) => {
            world.write = write;
            None
        }
        Event::CoreDown => {
            world.core_up = false;
            None
        }
        Event::WanDown => {
            world.wan = false;
            None
        }
        Event::Forgets(_) => {
            world.restart();
            None
        }
        Event::Restarts(member) => {
            world.keeps = true;
            world.restart();
            member
        }
        Event::Selects(member) => Some(member),
        Event::Switch(_) | Event::Resume => None,
    };
    let persons = selected.filter(|member| *member != world.selected);
    if let Some(member) = selected {
        member.clone_into(&mut world.selected);
    }
    persons
}

/// The step that follows. `None`: nothing of the kind can happen here.
fn follows(play: &mut Play<'_>, event: Event) -> Option<Step> {
    match event {
        Event::Switch(target) => {
            let step = play.switch(target, true)?;
            assert!(play.paused, "a switch pauses: {step:#?}");
            assert_eq!(play.world.selected, target);
            Some(step)
        }
        Event::Resume => {
            if !play.paused {
                return None;
            }
            let is_third = matches!(play.state.as_ref().unwrap().chosen, Chosen::Third(_));
            assert_eq!(play.resume(), !is_third, "a third member is nobody's to resume from");
            (!is_third).then(|| play.step())
        }
        _ => Some(play.step()),
    }
}

/// Takes one edge, and holds it to every invariant. `None`: nothing of the kind can happen here.
fn edge(before: &Play<'static>, event: Event, met: &mut Met) -> Option<Play<'static>> {
    let mut play = before.clone();
    let persons = happens(&mut play, event);
    let stood = play.world.selected.clone();
    let step = follows(&mut play, event)?;
    play.world.keeps = false;
    Edge { before, after: &play, event, step: &step, persons, stood: &stood }.is_lawful();
    for code in step.codes() {
        met.reasons.insert(code.to_owned());
    }
    let (from, to) = (before.stands(), play.stands());
    let resumed = (event == Event::Resume).then_some("resume");
    met.transitions.note(Some(from), to, step.codes().into_iter().chain(resumed));
    if from != to || !play.world.writes.is_empty() {
        let why = step.codes().last().copied().unwrap_or_default().to_owned();
        met.rows.insert((from, to, why));
    }
    Some(play)
}

/// One step, with what was before and after it.
struct Edge<'a> {
    before: &'a Play<'static>,
    after: &'a Play<'static>,
    event: Event,
    step: &'a Step,
    persons: Option<&'static str>,
    stood: &'a str,
}

impl Edge<'_> {
    fn say(&self) -> String {
        format!(
            "{:?} from {:#?}\nwith {:#?}\nto {:#?}\nwith {:#?}\nby {:?}",
            self.event,
            self.before.state,
            self.before.world,
            self.after.state,
            self.after.world,
            self.step.reasons
        )
    }

    fn says(&self, codes: &[&str]) -> bool {
        self.step.codes().iter().any(|code| codes.contains(code))
    }

    fn is_switch(&self) -> bool {
        matches!(self.event, Event::Switch(_))
    }

    fn is_lawful(&self) {
        self.writes_when_it_may();
        self.writes_to_what_is_healthy();
        self.keeps_a_persons_choice();
        self.follows_what_was_read_back();
    }

    /// Offline, with the core down and under a pause nothing is written.
    fn writes_when_it_may(&self) {
        let paused = self.before.paused && !matches!(self.event, Event::Switch(_) | Event::Resume);
        let quiet = matches!(self.event, Event::CoreDown | Event::WanDown) || paused;
        assert!(!quiet || self.after.world.writes.is_empty(), "{}", self.say());
    }

    fn writes_to_what_is_healthy(&self) {
        let world = &self.after.world;
        let first = [world.primary, world.reserve];
        for written in &world.writes {
            let place = usize::from(written == RESERVE);
            assert_eq!(first[place], Well, "{}", self.say());
            // Only what is written again after a restart is not asked about twice.
            let once = self.says(&["choice-lost"]) || self.is_switch();
            let again = world.again.unwrap_or(first)[place];
            assert!(once || again == Well, "{}", self.say());
            assert_ne!(written, THIRD, "{}", self.say());
        }
        // What cannot be told of the channel in use moves nobody away from it; a return is the
        // primary's own doing, whatever becomes of the reserve.
        let mode = self.before.state.as_ref().unwrap().mode;
        let in_use = first[usize::from(mode.channel().as_str() == "reserve")];
        if in_use == NoProxy && !self.is_switch() {
            let own = self.says(&["choice-lost", "primary-recovered"]);
            assert!(world.writes.is_empty() || own, "{}", self.say());
        }
    }

    /// A person's choice stands, and automation stops.
    fn keeps_a_persons_choice(&self) {
        // What was confirmed and lost in a restart is ours, whoever selects it again.
        let confirmed = &self.before.state.as_ref().unwrap().confirmed.as_ref().unwrap().member;
        let persons = self.persons.filter(|member| !self.before.paused && member != confirmed);
        if let Some(member) = persons {
            let stands = (self.after.world.selected.as_str(), self.after.paused);
            assert_eq!(stands, (member, true), "{}", self.say());
        }
    }

    fn follows_what_was_read_back(&self) {
        let (state, world) = (self.after.state.as_ref().unwrap(), &self.after.world);
        if world.write == Write::Refused && !world.writes.is_empty() {
            let settled = (self.step.settled, self.after.stands());
            let expected = (Some(Settled::RolledBack), self.before.stands());
            assert_eq!(settled, expected, "{}", self.say());
            assert!(self.says(&["refused"]), "{}", self.say());
        }
        let wished = self.step.decision.iter().flat_map(|decision| &decision.wished.reasons);
        let forgot = wished.clone().any(|reason| reason.code.starts_with("choice-lost"));
        if !matches!(self.event, Event::CoreDown | Event::WanDown) && !forgot {
            let chosen = match &state.chosen {
                Chosen::Channel(channel) if channel.as_str() == "primary" => PRIMARY,
                Chosen::Channel(_) => RESERVE,
                Chosen::Third(member) => member.as_str(),
            };
            assert_eq!(chosen, world.selected, "{}", self.say());
            let confirmed = &state.confirmed.as_ref().unwrap().member;
            assert_eq!(*confirmed, world.selected, "{}", self.say());
        }
        if let Chosen::Channel(channel) = &state.chosen {
            assert_eq!(*channel, state.mode.channel(), "{}", self.say());
        }
        if self.stood != world.selected && world.write == Write::Takes {
            assert_eq!(world.writes, std::slice::from_ref(&world.selected), "{}", self.say());
        }
        if self.says(&["primary-failed"]) {
            let is_last = state.failovers.len() >= 2;
            assert!(!is_last || state.mode == Mode::PrimaryQuarantined, "{}", self.say());
        }
    }
}

/// How many steps of one event lead from a state to where `there` holds; `None`: none do.
fn leads(
    next: &BTreeMap<(usize, Event), usize>,
    from: usize,
    event: Event,
    there: impl Fn(usize) -> bool,
    limit: usize,
) -> Option<usize> {
    let mut at = from;
    for steps in 0..=limit {
        if there(at) {
            return Some(steps);
        }
        at = *next.get(&(at, event))?;
    }
    None
}

#[test]
fn every_reachable_state_keeps_the_laws() {
    let policy: &'static SelectorPolicy = Box::leak(Box::new(short()));
    let begun = std::time::Instant::now();
    let mut met = Met::default();
    let mut states: Vec<Play<'static>> = Vec::new();
    let mut known: BTreeMap<Key, usize> = BTreeMap::new();
    let mut next: BTreeMap<(usize, Event), usize> = BTreeMap::new();
    for selected in [PRIMARY, RESERVE, THIRD] {
        let mut play = Play::new(policy);
        selected.clone_into(&mut play.world.selected);
        let step = play.step();
        assert_eq!(step.codes().first(), Some(&"found"));
        met.transitions.note(None, play.stands(), step.codes());
        assert_eq!(play.paused, selected == THIRD);
        assert!(play.world.writes.is_empty());
        known.insert(key(&play).unwrap(), states.len());
        states.push(play);
    }
    let events = events();
    let mut at = 0;
    while at < states.len() {
        let before = states[at].clone();
        let mut writing = BTreeSet::new();
        for event in &events {
            // What differs only in what becomes of a write happens where there is one.
            if event.spoils() && event.answers().is_none_or(|both| !writing.contains(&both)) {
                continue;
            }
            let Some(play) = edge(&before, *event, &mut met) else { continue };
            if let Event::Check(both, 0) = event
                && !play.world.writes.is_empty()
            {
                writing.insert(*both);
            }
            let key = key(&play).unwrap();
            let place = *known.entry(key).or_insert_with(|| {
                states.push(play);
                states.len() - 1
            });
            next.insert((at, *event), place);
        }
        at += 1;
    }
    eprintln!("{} states, {} edges, {:?}", states.len(), next.len(), begun.elapsed());
    lives(&states, &next);
    every_row_and_reason(&met);
    met.transitions.are_those_of::<Selector>(|_, _, _| true);
}

/// From every state that is not paused, what should come comes, and in time.
fn lives(states: &[Play<'static>], next: &BTreeMap<(usize, Event), usize>) {
    let mode = |at: usize| states[at].state.as_ref().unwrap().mode;
    let mut longest = BTreeMap::new();
    for (at, state) in states.iter().enumerate().filter(|(_, state)| !state.paused) {
        // The windows in steps, and a step each for what settles, recovers and is over.
        for (event, there, limit) in [
            (WELL, Mode::OnPrimary, (20 + 40) / STEP + 4),
            (PRIMARY_DEAD, Mode::OnReserve, (20 * 3 + 20) / STEP + 3),
            (RESERVE_DEAD, Mode::OnPrimary, (20 + 20) / STEP + 3),
        ] {
            let arrived = |at: usize| {
                let mode = mode(at);
                mode == there || (event == PRIMARY_DEAD && mode.channel() == there.channel())
            };
            let steps = leads(next, at, event, arrived, usize::try_from(limit).unwrap());
            let steps = steps.unwrap_or_else(|| panic!("{event:?} from {:#?}", state.state));
            let most = longest.entry(event).or_insert(0);
            *most = steps.max(*most);
        }
    }
    eprintln!("steps at most: {longest:?}");
    // What is settled and sees nothing new stays.
    let settled = |at: &usize| mode(*at) == Mode::OnPrimary && !states[*at].paused;
    for at in (0..states.len()).filter(settled) {
        let one = next[&(at, WELL)];
        assert!(settled(&one) && settled(&next[&(one, WELL)]));
    }
}

/// The walk has met every row of the table and every reason.
fn every_row_and_reason(met: &Met) {
    let rows: BTreeSet<String> =
        met.rows.iter().map(|(from, to, why)| format!("{from} -> {to}: {why}")).collect();
    for row in [
        "ON_PRIMARY -> PRIMARY_FAILING: primary-failing",
        "PRIMARY_FAILING -> ON_PRIMARY: false-alarm",
        "PRIMARY_FAILING -> ON_RESERVE: primary-failed",
        "PRIMARY_FAILING -> PRIMARY_QUARANTINED: quarantined",
        "PRIMARY_FAILING -> PRIMARY_FAILING: refused",
        "PRIMARY_FAILING -> ON_RESERVE: persons-choice",
        "ON_RESERVE -> PRIMARY_RECOVERING: primary-answers",
        "ON_RESERVE -> ON_PRIMARY: reserve-failed",
        "PRIMARY_RECOVERING -> ON_RESERVE: primary-unsteady",
        "PRIMARY_RECOVERING -> ON_PRIMARY: primary-recovered",
        "PRIMARY_RECOVERING -> ON_PRIMARY: reserve-failed",
        "PRIMARY_RECOVERING -> PRIMARY_RECOVERING: refused",
        "PRIMARY_QUARANTINED -> PRIMARY_RECOVERING: quarantine-over",
        "PRIMARY_QUARANTINED -> ON_RESERVE: quarantine-over",
        "PRIMARY_QUARANTINED -> ON_PRIMARY: reserve-failed",
        "ON_RESERVE -> ON_RESERVE: settling",
        "ON_RESERVE -> ON_PRIMARY: persons-choice",
        "ON_PRIMARY -> ON_RESERVE: persons-choice",
        "ON_RESERVE -> ON_PRIMARY: switched",
    ] {
        assert!(rows.contains(row), "no {row} in {rows:#?}");
    }
    for reason in [
        "all-well",
        "core-down",
        "wan-down",
        "settling",
        "none-healthy",
        "persons-choice",
        "switched",
        "choice-lost",
        "choice-lost-waits",
        "undetermined",
        "primary-failing",
        "reserve-failing",
        "false-alarm",
        "both-unhealthy",
        "reserve-unknown",
        "traffic-guard",
        "not-so-any-more",
        "primary-failed",
        "quarantined",
        "primary-answers",
        "primary-unsteady",
        "recovering",
        "primary-recovered",
        "reserve-failed",
        "quarantine-runs",
        "quarantine-over",
        "refused",
    ] {
        assert!(met.reasons.contains(reason), "{reason} was never met: {:#?}", met.reasons);
    }
}

/// Steps with the primary answering as `answers` says, counted from 0; the writes.
fn played(play: &mut Play<'_>, steps: u64, answers: impl Fn(u64) -> bool) -> Vec<String> {
    for n in 0..steps {
        play.world.primary = if answers(n) { Well } else { Dead };
        play.after(STEP);
    }
    std::mem::take(&mut play.world.writes)
}

#[test]
fn a_primary_that_answers_one_check_in_ten_is_left_once_and_not_returned_to() {
    let policy = short();
    for phase in 0..10 {
        let mut play = Play::new(&policy);
        play.step();
        assert_eq!(played(&mut play, 1_000, |n| n % 10 == phase), [RESERVE], "phase {phase}");
        assert_eq!(play.world.selected, RESERVE);
    }
}

#[test]
fn a_primary_that_dies_after_each_return_is_left_no_more_often_than_the_quarantine_lets() {
    let policy = flapping(600, 200);
    let mut play = Play::new(&policy);
    play.step();
    let mut failovers = Vec::new();
    for n in 0..4_000_u64 {
        // It answers as long as nobody uses it.
        play.world.primary = if play.world.selected == PRIMARY { Dead } else { Well };
        play.after(STEP);
        if play.world.writes.drain(..).any(|written| written == RESERVE) {
            failovers.push(n * STEP);
        }
    }
    assert!(failovers.len() > 10, "{failovers:?}");
    for from in &failovers {
        let within = failovers.iter().filter(|at| (*from..from + 600).contains(*at)).count();
        // flap_limit + flap_window_sec / quarantine_sec
        assert!(within <= 2 + 600 / 200, "{within} within a window: {failovers:?}");
    }
}
