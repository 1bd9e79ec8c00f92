//! What each kind of policy waits for, on machines whose clocks leap: it waits as long as it should, whatever the clocks show.

use crate::{chain_world, clocks, dns_world, guard_world, selector_world, world};

use clocks::{Event, Machine, YEAR};
use egressctl::moments::Moments;
use egressctl::selector::state::Mode;
use egressctl::time::{Moment, carried_over};
use serde_json::{Value, json};
use world::Steps as _;

/// How long all of them wait, in milliseconds.
const WINDOW: i64 = 600_000;

/// A policy that has just begun to wait.
trait Waits {
    /// A step now. What is remembered of an earlier boot was brought into this one.
    fn step(&mut self, now: &Moment);
    /// What is remembered.
    fn remembered(&mut self) -> &mut dyn Moments;
    /// Whether it still waits.
    fn waits(&self) -> bool;
}

/// What may befall a machine while a policy waits; a suspended one goes by `CLOCK_BOOTTIME`, which is time that passes.
const EVENTS: [Event; 8] = [
    Event::Passes(240_000),
    Event::Set(-3 * YEAR),
    Event::Set(3 * YEAR),
    Event::Set(-45_000),
    Event::Off(30_000, 0),
    // No clock of its own: it comes up where the system was built, and is set right later.
    Event::Off(30_000, -50 * YEAR),
    Event::Set(50 * YEAR),
    Event::Off(30_000, -600_000),
];

/// Every row of up to two events: while less than the window has really passed it waits, and it does not
/// when that has passed, and what the machine was off, which nobody may know of.
fn waits_as_long_as_it_should<W: Waits>(make: impl Fn(&Moment) -> W) {
    let two = EVENTS.iter().flat_map(|first| EVENTS.iter().map(|second| vec![*first, *second]));
    let rows: Vec<Vec<Event>> = EVENTS.iter().map(|event| vec![*event]).chain(two).collect();
    for row in rows {
        let mut machine = Machine::new();
        let mut policy = make(&machine.now());
        assert!(policy.waits(), "it has not begun to wait");
        let (mut last, mut off) = (machine.now(), 0);
        let mut step = |machine: &Machine, policy: &mut W| {
            let now = machine.now();
            if now.boot != last.boot {
                let carry = &mut |moment: &mut Moment| *moment = carried_over(moment, &last, &now);
                policy.remembered().each_moment(carry);
            }
            policy.step(&now);
            last = now;
        };
        for event in &row {
            machine.suffers(*event);
            if let Event::Off(ms, _) = event {
                off += ms;
            }
            step(&machine, &mut policy);
            assert!(policy.waits(), "{row:?}: it waits no more after {} ms", machine.passed());
        }
        // A clock that came up ahead would be taken for time that the machine was off: none of these did.
        let left = WINDOW - machine.passed();
        machine.suffers(Event::Passes(left - 20_000));
        step(&machine, &mut policy);
        assert!(policy.waits(), "{row:?}: it waits no more, 20 s too early");
        machine.suffers(Event::Passes(40_000 + off));
        for _ in 0..6 {
            machine.suffers(Event::Passes(15_000));
            step(&machine, &mut policy);
        }
        assert!(!policy.waits(), "{row:?}: it waits for ever");
    }
}

struct Pool(world::Lab);

impl Waits for Pool {
    fn step(&mut self, now: &Moment) {
        self.0.now = now.clone();
        self.0.step();
    }

    fn remembered(&mut self) -> &mut dyn Moments {
        &mut self.0.state
    }

    fn waits(&self) -> bool {
        !self.0.state().mode.is_direct()
    }
}

#[test]
fn a_pool_without_a_tunnel_goes_direct_after_its_grace() {
    waits_as_long_as_it_should(|now| {
        let params = json!({
            "health_check_interval_sec": 0, "health_failures_before_down": 1,
            "local_repair_retest_count": 1, "direct_grace_sec": WINDOW / 1_000,
        });
        let mut lab = world::lab_of(world::policy(2, 2, &params), &world::NAMES);
        // What was before counts in the same boot.
        lab.now = earlier(now, 60);
        lab.step();
        lab.set(&world::NAMES, world::Endpoint::Dead);
        lab.source = world::Source::Unavailable;
        lab.now = now.clone();
        lab.step();
        Pool(lab)
    });
}

/// So many seconds before, in the same boot.
fn earlier(now: &Moment, sec: i64) -> Moment {
    let at = now.at - jiff::SignedDuration::from_secs(sec);
    Moment { at, boot: now.boot.clone(), up_ms: now.up_ms - sec * 1_000 }
}

struct Selector<'a>(selector_world::Play<'a>);

impl Waits for Selector<'_> {
    fn step(&mut self, now: &Moment) {
        self.0.world.now = now.clone();
        self.0.step();
    }

    fn remembered(&mut self) -> &mut dyn Moments {
        &mut self.0.state
    }

    fn waits(&self) -> bool {
        self.0.state.as_ref().is_some_and(|state| state.mode == Mode::PrimaryQuarantined)
    }
}

#[test]
fn a_selector_does_not_return_before_its_quarantine_is_over() {
    let params = json!({
        "check_interval_sec": 10, "failure_window_sec": 0, "recovery_window_sec": 0,
        "minimum_reserve_sec": 0, "traffic_guard": false, "flap_limit": 1,
        "flap_window_sec": 86_400, "quarantine_sec": WINDOW / 1_000,
    });
    let policy = selector_world::policy(&params, "none");
    waits_as_long_as_it_should(|now| {
        let mut play = selector_world::Play::new(&policy);
        for n in 0..20_i64 {
            play.world.now = earlier(now, (20 - n) * 20);
            // It answers and does not by turns, until that is too much.
            let is_well = n % 6 < 4;
            play.world.primary =
                if is_well { selector_world::Answer::Well } else { selector_world::Answer::Dead };
            play.step();
            if play.stands() == "PRIMARY_QUARANTINED" {
                break;
            }
        }
        play.world.primary = selector_world::Answer::Well;
        let state = play.state.as_mut().expect("it was stepped");
        assert!(state.quarantined_at.is_some(), "{state:?}");
        state.quarantined_at = Some(now.clone());
        Selector(play)
    });
}

struct Guard<'a>(guard_world::Play<'a>, usize);

impl Waits for Guard<'_> {
    fn step(&mut self, now: &Moment) {
        self.0.world.now = now.clone();
        self.0.step();
    }

    fn remembered(&mut self) -> &mut dyn Moments {
        &mut self.0.state
    }

    fn waits(&self) -> bool {
        self.0.world.writes.len() == self.1
    }
}

#[test]
fn a_guard_that_found_no_member_seeks_none_before_its_pause_is_over() {
    let params = json!({
        "check_interval_sec": 10, "backoff_min_sec": WINDOW / 1_000,
        "backoff_max_sec": WINDOW / 1_000,
    });
    let policy = guard_world::policy(&params);
    waits_as_long_as_it_should(|now| {
        let mut play = guard_world::Play::new(&policy);
        play.world.now = earlier(now, 200);
        play.step();
        play.world.passes.clear();
        for n in (0..8).rev() {
            play.world.now = earlier(now, n * 15);
            play.step();
        }
        let state = play.state.as_mut().expect("it was stepped");
        let wait = state.backoff.as_mut().expect("it found none, and pauses");
        wait.since = now.clone();
        let writes = play.world.writes.len();
        Guard(play, writes)
    });
}

struct Dns(dns_world::Lab);

impl Waits for Dns {
    fn step(&mut self, now: &Moment) {
        self.0.now = now.clone();
        self.0.step();
    }

    fn remembered(&mut self) -> &mut dyn Moments {
        &mut self.0.state
    }

    fn waits(&self) -> bool {
        self.0.host("fi.example.org").quarantined.is_some()
    }
}

#[test]
fn a_host_name_does_not_return_before_its_quarantine_is_over() {
    let params = json!({
        "check_interval_sec": 10, "fall": 1, "rise": 1, "minimum_stay_sec": 0, "flap_limit": 1,
        "flap_window_sec": 86_400, "quarantine_sec": WINDOW / 1_000,
    });
    let hosts: Value = json!({ "fi.example.org": { "native": "fi", "fallbacks": ["de"] } });
    waits_as_long_as_it_should(|now| {
        let mut lab = dns_world::Lab::new(dns_world::policy(3, &hosts, &params));
        for n in 0..20_i64 {
            lab.now = earlier(now, (20 - n) * 20);
            let life = if n % 6 < 4 { dns_world::Life::Alive } else { dns_world::Life::Dead };
            lab.set(&["fi"], life);
            lab.step();
            if lab.host("fi.example.org").quarantined.is_some() {
                break;
            }
        }
        lab.set(&["fi"], dns_world::Life::Alive);
        let name = dns_world::host("fi.example.org");
        let host = lab.state.as_mut().expect("stepped").hosts.get_mut(&name).expect("a host");
        assert!(host.quarantined.is_some(), "{host:?}");
        host.quarantined = Some(now.clone());
        Dns(lab)
    });
}

struct Chain<'a>(chain_world::Play<'a>);

impl Waits for Chain<'_> {
    fn step(&mut self, now: &Moment) {
        self.0.world.now = now.clone();
        self.0.step();
    }

    fn remembered(&mut self) -> &mut dyn Moments {
        &mut self.0.state
    }

    fn waits(&self) -> bool {
        self.0.world.seats()[0] == "a2"
    }
}

#[test]
fn a_chain_does_not_return_to_a_node_before_its_mark_is_over() {
    let params = json!({
        "check_interval_sec": 10, "fail_timeout_sec": WINDOW / 1_000, "minimum_stay_sec": 0,
    });
    let policy = chain_world::policy(&chain_world::two_by_two(), &params);
    waits_as_long_as_it_should(|now| {
        let mut play = chain_world::Play::new(&policy);
        play.world.now = earlier(now, 200);
        play.step();
        play.world.dead.insert("a1");
        for n in (0..6).rev() {
            play.world.now = earlier(now, n * 15);
            play.step();
        }
        play.world.dead.clear();
        let state = play.state.as_mut().expect("it was stepped");
        for mark in state.hops[0].marks.marks.values_mut() {
            mark.at = now.clone();
        }
        Chain(play)
    });
}

/// The moments in a value of JSON, by their shape.
fn shapes(value: &Value) -> usize {
    match value {
        Value::Object(map) if map.contains_key("up_ms") && map.contains_key("at") => 1,
        Value::Object(map) => map.values().map(shapes).sum(),
        Value::Array(items) => items.iter().map(shapes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// That all moments which are written down are shown.
#[track_caller]
fn shows_all(state: &mut (impl Moments + serde::Serialize + std::fmt::Debug)) {
    let written = shapes(&serde_json::to_value(&*state).expect("it is written"));
    let mut shown = 0;
    state.each_moment(&mut |_| shown += 1);
    assert_eq!(shown, written, "{state:#?}");
}

/// States with as many moments as there are places for them.
#[test]
fn every_moment_that_a_kind_writes_down_is_shown() {
    let now = Machine::new().now();
    let some = || Some(now.clone());

    let params = json!({ "health_check_interval_sec": 0 });
    let mut lab = world::lab_of(world::policy(2, 2, &params), &world::NAMES);
    lab.step();
    let mut pool = lab.state.expect("it was stepped");
    pool.fresh.clone_from(&pool.pool);
    pool.short.clone_from(&pool.pool);
    assert!(pool.pool.as_ref().is_some_and(|list| !list.tested.is_empty()));
    (pool.refresh_tried_at, pool.refresh_asked) = (some(), some());
    (pool.none_serves_since, pool.none_serves_seen) = (some(), some());
    let quarantined = json!({ "name": "a", "since": now, "why": "silent" });
    let candidate = pool.pool.as_ref().expect("a list").candidates[0].endpoint();
    pool.quarantine
        .insert(candidate, serde_json::from_value(quarantined).expect("a quarantined endpoint"));
    let way = json!({ "way": "wan", "at": now, "why": "silent", "times": 1 });
    pool.bootstrap.failed.push(serde_json::from_value(way).expect("a way"));
    let mut standby = egressctl::pool::standby::Standby::new(&now);
    standby.undone_at = some();
    pool.standby = Some(standby);
    for slot in pool.slots.values_mut() {
        slot.false_alarms = vec![now.clone(); 2];
        slot.exit_ip_at = some();
    }
    shows_all(&mut pool);

    let policy = selector_world::policy(&json!({}), "none");
    let mut play = selector_world::Play::new(&policy);
    play.step();
    let mut selector = play.state.expect("it was stepped");
    (selector.checked_at, selector.recovery_since, selector.stay_since) = (some(), some(), some());
    (selector.quarantined_at, selector.failovers) = (some(), vec![now.clone(); 2]);
    (selector.primary.held_since, selector.reserve.held_since) = (some(), some());
    let life = serde_json::to_value(egressctl::observation::Life { process: None, totals: None });
    let measure =
        json!({ "at": now, "life": life.expect("a life"), "received": 1, "elsewhere": {} });
    selector.activity.base = Some(serde_json::from_value(measure).expect("a measure"));
    shows_all(&mut selector);

    let policy = guard_world::policy(&json!({}));
    let mut play = guard_world::Play::new(&policy);
    for _ in 0..3 {
        play.after(60);
    }
    let mut guard = play.state.expect("it was stepped");
    let wait = egressctl::guard::state::Wait { since: now.clone(), seconds: 600 };
    (guard.backoff, guard.give_back, guard.rules_since) = (Some(wait.clone()), Some(wait), some());
    assert!(!guard.shown.is_empty());
    let said = egressctl::guard::state::Said {
        delay: egressctl::observation::Delay::Took(20),
        at: now.clone(),
    };
    guard.said.insert("fi1".to_owned(), said);
    shows_all(&mut guard);

    let hosts = json!({ "fi.example.org": { "native": "fi", "fallbacks": ["de"] } });
    let mut lab = dns_world::Lab::new(dns_world::policy(3, &hosts, &json!({})));
    lab.step();
    let mut dns = lab.state.expect("it was stepped");
    let host = dns.hosts.values_mut().next().expect("a host");
    (host.stay, host.quarantined, host.rotated) = (some(), some(), some());
    host.left = vec![now.clone(); 2];
    let of = |value: Value| value;
    host.paused = serde_json::from_value(of(json!({ "why": "person", "at": now }))).expect("one");
    host.leave = serde_json::from_value(of(json!({ "at": now, "sec": 1 }))).expect("one");
    host.moved = serde_json::from_value(of(json!({ "at": now, "why": "dead" }))).expect("one");
    let mut streak = egressctl::dns::state::Streak::new();
    streak.counted_at = some();
    let member = egressctl::dns::state::Member {
        serves: Some(streak),
        left: vec![now.clone()],
        quarantined: some(),
        credit: 0,
    };
    host.members.insert(dns_world::node("de"), member);
    host.unproven = Some(Box::new(host.clone()));
    shows_all(&mut dns);

    let policy = chain_world::policy(&chain_world::two_by_two(), &json!({}));
    let mut play = chain_world::Play::new(&policy);
    play.step();
    let mut chain = play.state.expect("it was stepped");
    chain.retries_refused = some();
    let shown = json!({ "verdict": "passed", "why": "", "latency_ms": null, "at": now });
    chain.path = serde_json::from_value(shown.clone()).expect("one");
    let hop = &mut chain.hops[0];
    (hop.stay, hop.changed) = (some(), some());
    hop.paused = serde_json::from_value(json!({ "why": "person", "at": now })).expect("one");
    let node = || egressctl::chain::name::NodeName::try_from("a1".to_owned()).expect("a name");
    hop.shown.insert(node(), serde_json::from_value(shown).expect("one"));
    let mark = json!({ "at": now, "sec": 600 });
    hop.marks.marks.insert(node(), serde_json::from_value(mark).expect("one"));
    let grown = json!({ "sec": 600, "returned": now });
    hop.marks.grown.insert(node(), serde_json::from_value(grown).expect("one"));
    shows_all(&mut chain);
}
