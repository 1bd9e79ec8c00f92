//! The laws of a selector between two uplinks, over every state that it can reach in a small world.
//!
//! The machine is that of a proxy core's group, whose laws are held in a file of their own; here they
//! are held with the kernel in the group's place, and what is said of the kernel beside them.

use egressctl::iproute::{Family, Link, Route, RouteKind};
use egressctl::kernel::diff::diff;
use egressctl::kernel::{NftTable, World as Kernel};
use egressctl::machine::{Considered, Cut, Decision, Machine, Owned, Subject};
use egressctl::names::{Mark, PolicyName, Table};
use egressctl::observation::{
    Asker, CarriedReading, KernelReading, Observation, PageReading, PagesReading, Question,
    Reading, Way,
};
use egressctl::policy::selector::Channel;
use egressctl::policy::{Policy, SelectorPolicy};
use egressctl::selector::Selector;
use egressctl::selector::state::{Chosen, Mode, SelectorState};
use egressctl::time::Moment;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Seconds between two checks; all windows are multiples of it.
const STEP: u64 = 10;
/// Both uplinks, the primary first.
const DEVICES: [&str; 2] = ["eth0", "wwan0"];

fn policy() -> SelectorPolicy {
    let text = json!({
        "kind": "selector",
        "driver": { "route": { "table": 120, "cut": "dead" } },
        "primary": { "interface": DEVICES[0], "gateway": "203.0.113.1" },
        "reserve": { "interface": DEVICES[1] },
        "probe": { "urls": ["http://192.0.2.1/generate_204"] },
        "wan": { "urls": ["http://192.0.2.2/"] },
        "params": {
            "check_interval_sec": STEP, "failure_window_sec": 20, "recovery_window_sec": 20,
            "quiet_window_sec": 10, "active_bytes_per_sec": 1_000, "minimum_reserve_sec": 20,
            "flap_limit": 2, "flap_window_sec": 60, "quarantine_sec": 40, "guard_max_hold_sec": 20
        },
    });
    let Policy::Selector(policy) = Policy::parse(&text.to_string()).unwrap() else {
        panic!("it is a selector")
    };
    *policy
}

/// How an uplink answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Well,
    Dead,
    Untold,
}

use Answer::{Dead, Untold, Well};

/// What happens in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Both answer so, and so much flows.
    Check([Answer; 2], u64),
    /// They answer otherwise when they are asked again.
    Turns([Answer; 2], [Answer; 2]),
    /// Something flows just between the two samples before a switch.
    Burst([Answer; 2]),
    /// A command fails.
    Fails([Answer; 2]),
    WanDown,
    /// A device goes, and comes back after the step.
    Pulled(usize),
    /// All that was made is gone, and the clock of the boot begins anew.
    Reboot,
    /// A stranger empties the table of the primary's own way, or takes its rule away.
    Takes(u32),
    /// A stranger's default route stands in the place of ours.
    InTheWay,
    Switch(usize),
    Resume,
}

impl Event {
    /// How both answer, where it differs from a check in what becomes of a switch alone.
    fn spoils(self) -> Option<[Answer; 2]> {
        match self {
            Self::Turns(both, _) | Self::Burst(both) | Self::Fails(both) => Some(both),
            Self::Check(..)
            | Self::WanDown
            | Self::Pulled(_)
            | Self::Reboot
            | Self::Takes(_)
            | Self::InTheWay
            | Self::Switch(_)
            | Self::Resume => None,
        }
    }
}

const WELL: Event = Event::Check([Well, Well], 0);
const PRIMARY_DEAD: Event = Event::Check([Dead, Well], 50_000);
const RESERVE_DEAD: Event = Event::Check([Well, Dead], 50_000);

fn events() -> Vec<Event> {
    let mut all = vec![Event::WanDown, Event::Reboot, Event::InTheWay, Event::Resume];
    for both in [
        [Well, Well],
        [Well, Dead],
        [Dead, Well],
        [Dead, Dead],
        [Untold, Well],
        [Well, Untold],
        [Dead, Untold],
    ] {
        all.push(Event::Check(both, 0));
    }
    all.extend([PRIMARY_DEAD, RESERVE_DEAD, Event::Check([Well, Well], 50_000)]);
    for both in [[Dead, Well], [Well, Dead], [Well, Well]] {
        all.extend([Event::Turns(both, [Untold, Untold]), Event::Burst(both), Event::Fails(both)]);
    }
    all.extend([0, 1].map(Event::Pulled));
    all.extend([0, 1].map(Event::Switch));
    all.extend([121, 500].map(Event::Takes));
    all
}

/// A gateway with two uplinks.
#[derive(Clone, Debug)]
struct World {
    now: Moment,
    kernel: Kernel,
    there: [bool; 2],
    in_the_way: bool,
    received: [u64; 2],
    wan: bool,
    answers: [Answer; 2],
    again: [Answer; 2],
    sample_rate: u64,
    fails: bool,
}

/// A policy that is stepped there.
#[derive(Clone, Debug)]
struct Play<'a> {
    policy: &'a SelectorPolicy,
    state: Option<SelectorState>,
    paused: bool,
    world: World,
}

/// What a step came to.
#[derive(Debug)]
struct Step {
    decision: Option<Decision<SelectorState>>,
    codes: Vec<String>,
    failed: bool,
}

fn link(place: usize) -> Link {
    let address = ["203.0.113.2/24", "198.51.100.2/32"][place];
    Link {
        index: u32::try_from(place).unwrap() + 2,
        name: DEVICES[place].to_owned(),
        up: true,
        lower_up: true,
        mtu: 1_500,
        kind: None,
        master: None,
        addresses: vec![egressctl::iproute::Address {
            local: address.parse().unwrap(),
            peer: None,
            scope: 0,
            dynamic: false,
            unusable: false,
        }],
    }
}

impl World {
    fn answer(&mut self, question: &Question) -> Reading {
        match question {
            Question::Kernel(_) => Reading::Kernel(Box::new(KernelReading {
                world: self.kernel.clone(),
                links: (0..2).filter(|place| self.there[*place]).map(link).collect(),
                foreign: self.in_the_way.then(stranger).into_iter().collect(),
                ..KernelReading::default()
            })),
            Question::Carried(_) => Reading::Carried(CarriedReading {
                at: self.now.clone(),
                received: (0..2)
                    .filter(|place| self.there[*place])
                    .map(|place| {
                        (DEVICES[place].to_owned().try_into().unwrap(), self.received[place])
                    })
                    .collect(),
            }),
            Question::Pages(pages) => {
                let answer = match &pages.asker {
                    Asker::Wan => {
                        if self.wan {
                            Well
                        } else {
                            Dead
                        }
                    }
                    Asker::Named(name) => {
                        let place = usize::from(name == "reserve");
                        let mark = Mark(0x4552_0000 + u32::try_from(place).unwrap());
                        let own = Way::Device {
                            device: DEVICES[place].to_owned().try_into().unwrap(),
                            mark: Some(mark),
                        };
                        assert_eq!(pages.way, own, "a probe leaves by its own uplink");
                        assert!(self.there[place], "nothing is asked by a device that is gone");
                        if pages.turn == 0 { self.answers[place] } else { self.again[place] }
                    }
                    other => panic!("{other:?} has no business here"),
                };
                let page = match answer {
                    Well => PageReading::Answer {
                        status: 204,
                        body: String::new(),
                        bytes: 0,
                        elapsed_ms: 40,
                    },
                    Dead => PageReading::TimedOut,
                    Untold => PageReading::NotBindable("not permitted".to_owned()),
                };
                let pages = pages.pages.iter().map(|_| Some(page.clone())).collect();
                Reading::Pages(PagesReading { at: self.now.clone(), pages })
            }
            Question::Wait { millis, .. } => {
                self.pass(Duration::from_millis(*millis));
                self.received = self.received.map(|n| n + self.sample_rate * millis / 1_000);
                Reading::Waited
            }
            other => panic!("{other:?} is not asked by a selector of routes"),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    /// The device of the default route.
    fn leaves_by(&self) -> Option<String> {
        let mut ours = self.kernel.routes.iter().filter(|route| route.table == Table(120));
        ours.next().and_then(|route| route.dev.clone())
    }
}

fn stranger() -> Route {
    Route {
        family: Family::V4,
        kind: RouteKind::Unicast,
        destination: "0.0.0.0/0".parse().unwrap(),
        via: None,
        dev: Some("eth7".to_owned()),
        table: Table(120),
        metric: None,
        protocol: None,
        other: false,
    }
}

impl<'a> Play<'a> {
    fn new(policy: &'a SelectorPolicy) -> Self {
        let at = "2026-03-01T12:00:00Z".parse().unwrap();
        let world = World {
            now: Moment { at, boot: "first".into(), up_ms: 1_000_000 },
            kernel: Kernel::default(),
            there: [true; 2],
            in_the_way: false,
            received: [5_000; 2],
            wan: true,
            answers: [Well; 2],
            again: [Well; 2],
            sample_rate: 0,
            fails: false,
        };
        Self { policy, state: None, paused: false, world }
    }

    fn with_subject<T>(&self, paused: bool, work: impl FnOnce(&Subject<'_, Selector>) -> T) -> T {
        let name = PolicyName::try_from("office".to_owned()).unwrap();
        let (policy, state) = (self.policy, self.state.as_ref());
        work(&Subject { name: &name, policy, state, paused, owned: &Owned::default() })
    }

    fn step(&mut self, commanded: bool) -> Step {
        let paused = self.paused && !commanded;
        let mut seen = Observation::new(self.world.now.clone());
        let considered = loop {
            let now = self.world.now.clone();
            let considered =
                self.with_subject(paused, |subject| Selector::consider(subject, &seen, &now, true));
            let Considered::Ask(questions) = considered else { break considered };
            assert!(!questions.is_empty() && seen.readings.len() < 20, "it asks without end");
            for question in questions {
                let reading = self.world.answer(&question);
                let before = seen.readings.insert(question, reading);
                assert!(before.is_none(), "it asks again for what it was told");
            }
        };
        let (decision, reasons) = match considered {
            Considered::Decide(decision) => {
                let reasons = decision.wished.reasons.clone();
                (Some(*decision), reasons)
            }
            Considered::Unable(reasons) => (None, reasons),
            Considered::Ask(_) => panic!("handled above"),
        };
        let codes = reasons.into_iter().map(|reason| reason.code).collect();
        let Some(decision) = decision else { return Step { decision, codes, failed: false } };
        let wished = &decision.wished;
        assert!(wished.settings.is_empty() && !wished.pauses);
        if paused {
            self.state = Some(wished.state.clone());
            return Step { decision: Some(decision), codes, failed: false };
        }
        let mut world = wished.world.clone();
        world.nft = world.nft.map(|nft| NftTable { listing: Some(nft.text.clone()), ..nft });
        let means = Selector::means(self.policy);
        let failed = self.world.fails && !diff(&self.world.kernel, &world, &means).is_empty();
        if failed {
            self.state = Some(decision.undone.clone());
        } else {
            self.state = Some(wished.state.clone());
            self.world.kernel = world;
        }
        Step { decision: Some(decision), codes, failed }
    }

    fn mode(&self) -> Mode {
        self.state.as_ref().unwrap().mode
    }
}

/// All that a later step can tell of a state. What was a moment is how long ago it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    mode: Mode,
    paused: bool,
    chosen: Chosen,
    /// Whether all that is wished stands in the kernel.
    whole: bool,
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

fn key(play: &Play<'_>) -> Key {
    let state = play.state.as_ref().unwrap();
    let now = &play.world.now;
    let age = |at: &Moment, cap: u64| (now.since(at).as_secs()).min(cap);
    let of = |at: &Option<Moment>, cap| at.as_ref().map(|at| age(at, cap));
    let both = [&state.primary, &state.reserve];
    Key {
        mode: state.mode,
        paused: play.paused,
        chosen: state.chosen.clone(),
        whole: is_whole(play),
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
    }
}

/// Whether the kernel holds what the choice calls for, with both devices there: the default by the
/// chosen one, a way and a guard in each table of its own, a rule each, and the table of marks.
fn is_whole(play: &Play<'_>) -> bool {
    let kernel = &play.world.kernel;
    let ways = |table: u32| -> Vec<Option<&str>> {
        let there = kernel.routes.iter().filter(|route| route.table == Table(table));
        there.map(|route| route.dev.as_deref()).collect()
    };
    let chosen = DEVICES[usize::from(play.mode().channel() == Channel::Reserve)];
    let has = |table: u32, place: usize| {
        let mut ways = ways(table);
        ways.sort_unstable();
        ways == [None, Some(DEVICES[place])]
    };
    ways(120) == [Some(chosen)]
        && has(121, 0)
        && has(122, 1)
        && kernel.rules.len() == 2
        && kernel.nft.is_some()
}

/// Makes an event happen to the world, then the step that follows. `None`: it cannot happen here.
fn follows(play: &mut Play<'_>, event: Event) -> Option<Step> {
    let world = &mut play.world;
    world.pass(Duration::from_secs(STEP));
    (world.there, world.in_the_way, world.wan) = ([true; 2], false, true);
    (world.answers, world.again) = ([Well; 2], [Well; 2]);
    (world.sample_rate, world.fails) = (0, false);
    match event {
        Event::Check(both, rate) => {
            (world.answers, world.again, world.sample_rate) = (both, both, rate);
            world.received = world.received.map(|n| n + rate * STEP);
        }
        Event::Turns(both, again) => (world.answers, world.again) = (both, again),
        Event::Burst(both) => {
            (world.answers, world.again, world.sample_rate) = (both, both, 50_000);
        }
        Event::Fails(both) => (world.answers, world.again, world.fails) = (both, both, true),
        Event::WanDown => world.wan = false,
        Event::Pulled(place) => {
            world.there[place] = false;
            // The kernel takes a device's routes away with it.
            world.kernel.routes.retain(|route| route.dev.as_deref() != Some(DEVICES[place]));
        }
        Event::Reboot => {
            world.kernel = Kernel::default();
            world.received = [10; 2];
            world.now.boot = format!("{}x", world.now.boot).into();
            world.now.up_ms = 20_000;
        }
        Event::Takes(500) => world.kernel.rules.retain(|rule| rule.priority != 500),
        Event::Takes(table) => world.kernel.routes.retain(|route| route.table != Table(table)),
        Event::InTheWay => world.in_the_way = true,
        Event::Switch(place) => {
            let granted =
                play.with_subject(false, |subject| Selector::switch(subject, DEVICES[place], true));
            play.state = Some(granted.unwrap().0);
            let step = play.step(true);
            play.paused = true;
            return Some(step);
        }
        Event::Resume => {
            if !play.paused {
                return None;
            }
            let state = play.state.as_ref().unwrap();
            play.state = Some(Selector::resumed(state, &play.world.now).unwrap());
            play.paused = false;
        }
    }
    Some(play.step(false))
}

/// Holds one step to every law.
fn is_lawful(before: &Play<'_>, after: &Play<'_>, event: Event, step: &Step) {
    let say = || format!("{event:?} from {before:#?}\nto {after:#?}\nby {:?}", step.codes);
    let says = |codes: &[&str]| step.codes.iter().any(|code| codes.contains(&code.as_str()));
    let paused = before.paused && !matches!(event, Event::Switch(_) | Event::Resume);
    let is_switch = matches!(event, Event::Switch(_));
    let place = |mode: Mode| usize::from(mode.channel() == Channel::Reserve);
    let (was, is) = (place(before.mode()), place(after.mode()));
    // What the state says is what the kernel was told, and all of it, whatever somebody took away.
    let state = after.state.as_ref().unwrap();
    assert_eq!(state.chosen, Chosen::Channel(after.mode().channel()), "{}", say());
    let gone = (0..2).any(|place| !after.world.there[place]);
    if !paused && !step.failed && step.decision.is_some() && !gone {
        assert!(is_whole(after), "{}", say());
    }
    if paused || step.decision.is_none() {
        assert_eq!(is, was, "{}", say());
    }
    if step.failed {
        assert_eq!(
            (before.mode(), &before.world.kernel),
            (after.mode(), &after.world.kernel),
            "{}",
            say()
        );
    }
    if gone {
        let there: BTreeSet<_> =
            after.world.kernel.routes.iter().filter_map(|r| r.dev.as_deref()).collect();
        let left = (0..2).filter(|place| after.world.there[*place]).map(|place| DEVICES[place]);
        assert!(there.is_subset(&left.collect()), "{}", say());
    }
    let default = after.world.leaves_by();
    assert!(
        default.is_none()
            || paused
            || step.decision.is_none()
            || default.as_deref() == Some(DEVICES[is]),
        "{}",
        say()
    );
    if was == is {
        return;
    }
    assert!(!matches!(event, Event::WanDown | Event::InTheWay), "{}", say());
    let world = &after.world;
    if is_switch {
        return;
    }
    assert!(world.there[is] && world.answers[is] == Well && world.again[is] == Well, "{}", say());
    // What cannot be told of the channel in use moves nobody away from it.
    let untold = world.there[was] && world.answers[was] == Untold;
    assert!(!untold || says(&["primary-recovered"]), "{}", say());
    let cuts = &step.decision.as_ref().unwrap().wished.cuts;
    let urgent = !says(&["primary-recovered"]);
    let mark = |n: u32| Cut::Marked(Mark(0x4552_0000 + n + u32::try_from(was).unwrap()));
    let dead = if urgent { vec![mark(0), mark(2)] } else { Vec::new() };
    assert_eq!(*cuts, dead, "{}", say());
    if says(&["primary-failed"]) {
        let is_last = state.failovers.len() >= 2;
        assert!(!is_last || state.mode == Mode::PrimaryQuarantined, "{}", say());
    }
}

#[test]
fn every_reachable_state_keeps_the_laws() {
    let policy: &'static SelectorPolicy = Box::leak(Box::new(policy()));
    let begun = std::time::Instant::now();
    let mut first = Play::new(policy);
    let step = first.step(false);
    assert_eq!(step.codes, ["found", "undetermined", "undetermined"]);
    assert!(is_whole(&first), "{first:#?}");
    let mut known = BTreeMap::from([(key(&first), 0)]);
    let mut states = vec![first];
    let mut next: BTreeMap<(usize, Event), usize> = BTreeMap::new();
    let (mut rows, mut reasons) = (BTreeSet::new(), BTreeSet::new());
    let mut at = 0;
    while at < states.len() {
        let before = states[at].clone();
        let mut moving = BTreeSet::new();
        for event in events() {
            // What becomes of a switch happens where there is one.
            if event.spoils().is_some_and(|both| !moving.contains(&both)) {
                continue;
            }
            let mut play = before.clone();
            let Some(step) = follows(&mut play, event) else { continue };
            is_lawful(&before, &play, event, &step);
            if let Event::Check(both, 0) = event
                && before.mode().channel() != play.mode().channel()
            {
                moving.insert(both);
            }
            if before.mode() != play.mode() {
                let why = step.codes.last().cloned().unwrap_or_default();
                rows.insert(format!(
                    "{} -> {}: {why}",
                    before.mode().as_str(),
                    play.mode().as_str()
                ));
            }
            reasons.extend(step.codes);
            let key = key(&play);
            let place = *known.entry(key).or_insert_with(|| {
                states.push(play);
                states.len() - 1
            });
            next.insert((at, event), place);
        }
        at += 1;
    }
    eprintln!("{} states, {} edges, {:?}", states.len(), next.len(), begun.elapsed());
    lives(&states, &next);
    for row in [
        "ON_PRIMARY -> PRIMARY_FAILING: primary-failing",
        "PRIMARY_FAILING -> ON_PRIMARY: false-alarm",
        "PRIMARY_FAILING -> ON_RESERVE: primary-failed",
        "PRIMARY_FAILING -> PRIMARY_QUARANTINED: quarantined",
        "ON_RESERVE -> PRIMARY_RECOVERING: primary-answers",
        "ON_RESERVE -> ON_PRIMARY: reserve-failed",
        "PRIMARY_RECOVERING -> ON_RESERVE: primary-unsteady",
        "PRIMARY_RECOVERING -> ON_PRIMARY: primary-recovered",
        "PRIMARY_RECOVERING -> ON_PRIMARY: reserve-failed",
        "PRIMARY_QUARANTINED -> PRIMARY_RECOVERING: quarantine-over",
        "PRIMARY_QUARANTINED -> ON_RESERVE: quarantine-over",
        "PRIMARY_QUARANTINED -> ON_PRIMARY: reserve-failed",
        "ON_RESERVE -> ON_PRIMARY: switched",
    ] {
        assert!(rows.contains(row), "no {row} in {rows:#?}");
    }
    for reason in [
        "all-well",
        "route-taken",
        "wan-down",
        "settling",
        "none-healthy",
        "switched",
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
    ] {
        assert!(reasons.contains(reason), "{reason} was never met: {reasons:#?}");
    }
}

/// From every state that is not paused, what should come comes, and in time.
fn lives(states: &[Play<'static>], next: &BTreeMap<(usize, Event), usize>) {
    // The windows in steps, a step each for what settles, recovers and is over, and one in which
    // nothing can be told since the kernel is only put back.
    for (event, there, limit) in [
        (WELL, Channel::Primary, (20 + 40) / STEP + 5),
        (PRIMARY_DEAD, Channel::Reserve, (20 * 3 + 20) / STEP + 4),
        (RESERVE_DEAD, Channel::Primary, (20 + 20) / STEP + 4),
    ] {
        for (from, _) in states.iter().enumerate().filter(|(_, state)| !state.paused) {
            let mut at = from;
            let arrived = |at: usize| {
                let mode = states[at].mode();
                mode.channel() == there && (event != WELL || mode == Mode::OnPrimary)
            };
            let mut steps = 0;
            while !arrived(at) {
                at = next[&(at, event)];
                steps += 1;
                assert!(steps <= limit, "{event:?} from {:#?}", states[from]);
            }
        }
    }
}
