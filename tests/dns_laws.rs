//! Laws that hold in every reachable state of the machine of host names, found by walking them.

use crate::dns_world;
use crate::edges;

use dns_world::{Lab, Life, Online, Played, Writes, address, host, node, policy};
use edges::Transitions;
use egressctl::dns::Dns;
use egressctl::dns::state::{Mode, PauseWhy, Verdict};
use egressctl::machine::{PartWish, Settled};
use egressctl::setting::{Value as Kept, Written};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

const FI: &str = "fi.example.org";
/// Seconds between steps.
const APART: u64 = 10;
const FALL: usize = 2;
const RISE: usize = 2;
const MASS: usize = 2;
const STAY: u64 = 20;
const QUARANTINE: u64 = 30;
const WINDOW: u64 = 60;
const LIMIT: usize = 2;

/// Windows of a few steps, so that a walk sees both sides of each.
fn small(nodes: usize) -> Lab {
    several(nodes, 1)
}

/// The same for a record of several addresses.
fn several(nodes: usize, records: usize) -> Lab {
    let fallbacks: Vec<&str> = dns_world::NODES[1..nodes].to_vec();
    let params = json!({
        "check_interval_sec": APART, "fall": FALL, "rise": RISE, "minimum_stay_sec": STAY,
        "flap_limit": LIMIT, "flap_window_sec": WINDOW, "quarantine_sec": QUARANTINE,
        "mass_rounds": MASS,
    });
    Lab::new(policy(
        nodes,
        &json!({ FI: { "native": "fi", "fallbacks": fallbacks, "records": records } }),
        &params,
    ))
}

/// What happens before a step.
#[derive(Clone, Debug)]
struct Input {
    lives: Vec<Life>,
    online: Online,
    writes: Writes,
    /// Whether the record cannot be read.
    blind: bool,
    /// What somebody else sets the record to.
    edit: Option<&'static str>,
    /// A person resumes the host.
    resume: bool,
    /// A person chooses this node.
    switch: Option<&'static str>,
}

impl Input {
    fn lives(lives: &[Life]) -> Self {
        Self {
            lives: lives.to_vec(),
            online: Online::Yes,
            writes: Writes::Taken,
            blind: false,
            edit: None,
            resume: false,
            switch: None,
        }
    }

    fn put(&self, lab: &mut Lab) {
        for (name, life) in dns_world::NODES.iter().zip(&self.lives) {
            lab.set(&[name], *life);
        }
        lab.online = self.online;
        lab.writes.insert(host(FI), self.writes);
        if let Some(edit) = self.edit {
            lab.edit(FI, &[edit]);
        }
        if self.resume {
            // Refused where it is not paused, which is no matter here.
            drop(lab.part(FI, PartWish::Resume));
        }
        if let Some(node) = self.switch {
            drop(lab.switch(&format!("{FI}={node}"), false));
        }
    }
}

/// Every mix of living and dead nodes.
fn mixes(nodes: usize) -> Vec<Input> {
    (0..1_usize << nodes)
        .map(|mix| {
            let life = |n| if mix & (1_usize << n) == 0 { Life::Alive } else { Life::Dead };
            Input::lives(&(0..nodes).map(life).collect::<Vec<_>>())
        })
        .collect()
}

/// All that may happen to two nodes and a record.
fn inputs() -> Vec<Input> {
    let (well, native_dead) =
        (Input::lives(&[Life::Alive, Life::Alive]), Input::lives(&[Life::Dead, Life::Alive]));
    let fallback_dead = Input::lives(&[Life::Alive, Life::Dead]);
    let mut all = mixes(2);
    all.push(Input::lives(&[Life::Unseen, Life::Alive]));
    all.push(Input::lives(&[Life::Dead, Life::OwnNameOnly]));
    all.push(Input { online: Online::No, ..native_dead.clone() });
    all.push(Input { online: Online::NotAfter, ..native_dead.clone() });
    for writes in [
        Writes::Refused,
        Writes::RefusedFor(25),
        Writes::TakenUnread,
        Writes::RefusedUnread,
        Writes::Overtaken(address("198.51.100.9")),
        Writes::Altered,
    ] {
        all.push(Input { writes, ..native_dead.clone() });
        all.push(Input { writes, ..well.clone() });
    }
    all.push(Input { writes: Writes::Refused, ..fallback_dead.clone() });
    all.push(Input { blind: true, ..native_dead.clone() });
    all.push(Input { edit: Some("198.51.100.9"), ..native_dead.clone() });
    all.push(Input { edit: Some("192.0.2.1"), ..native_dead.clone() });
    all.push(Input { edit: Some("192.0.2.2"), ..well.clone() });
    all.push(Input { resume: true, ..native_dead.clone() });
    all.push(Input { resume: true, ..well.clone() });
    all.push(Input { switch: Some("de"), ..well });
    all
}

/// The state as far as it bears on what comes, times as ages.
fn key(lab: &Lab) -> String {
    fn ages(value: &mut Value, now_ms: i64) {
        match value {
            Value::Object(object) => {
                if let Some(up_ms) = object.get("up_ms").and_then(Value::as_i64) {
                    *value = json!(
                        ((now_ms - up_ms) / 1_000).min(10 * i64::try_from(APART).unwrap() + 1)
                    );
                    return;
                }
                for told in [
                    "since",
                    "why",
                    "uptime",
                    "latency_ms",
                    "moved",
                    "rotated",
                    "stands",
                    "ttl",
                    "at",
                ] {
                    if told != "at" || object.contains_key("why") {
                        object.remove(told);
                    }
                }
                for counter in ["failures", "passes"] {
                    if let Some(n) = object.get(counter).and_then(Value::as_u64) {
                        object.insert(counter.to_owned(), json!(n.min(2)));
                    }
                }
                object.values_mut().for_each(|inner| ages(inner, now_ms));
            }
            Value::Array(items) => items.iter_mut().for_each(|inner| ages(inner, now_ms)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut state = serde_json::to_value(&lab.state).unwrap();
    // Why a host is left alone matters; its key is that of a text for people elsewhere.
    let paused = lab.state.as_ref().and_then(|state| state.hosts.get(&host(FI))?.paused.clone());
    ages(&mut state, lab.now.up_ms);
    format!("{state} {:?} {:?}", paused.map(|paused| paused.why), lab.record(FI))
}

fn serves(life: Life) -> bool {
    life == Life::Alive
}

/// What must hold of any step.
fn lawful(lab: &Lab, input: &Input, record_before: &BTreeSet<Ipv4Addr>, played: &Played) {
    let told = || {
        format!(
            "{input:?}\n{}\nbefore {:#?}",
            dns_world::story(lab, played),
            played.before.as_ref().and_then(|before| before.hosts.get(&host(FI)))
        )
    };
    let codes = played.codes();
    let known = |state: &egressctl::dns::DnsState| state.hosts.get(&host(FI)).cloned();
    let before = played.before.as_ref().and_then(known);
    let after = known(&played.future.state);
    let discarded = ["offline", "mass-failure", "no-time"].iter().any(|code| codes.contains(*code));
    assert!(input.online == Online::Yes || discarded, "{}", told());
    if discarded {
        assert!(played.written.is_empty(), "it writes in a discarded round: {}", told());
        if let Some(state) = &played.before {
            assert_eq!(state.nodes, played.future.state.nodes, "{}", told());
        }
        assert_eq!(before, after, "{}", told());
    }
    let mut lawful_write = true;
    for (edit, what) in played.written.values() {
        let (Kept::Records(from), Kept::Records(to)) = (&edit.expected, &edit.to) else { panic!() };
        assert!(!to.0.is_empty(), "{}", told());
        assert_ne!(from.addresses(), to.addresses(), "it writes what stands there: {}", told());
        let by_person = input.switch.is_some() && codes.contains("persons-choice");
        assert!(to.addresses().len() <= lab.policy.hosts[&host(FI)].records, "{}", told());
        // Who is there already stays until it is down.
        for to in to.addresses().difference(&from.addresses()) {
            let (name, _) = lab
                .policy
                .nodes
                .iter()
                .find(|(_, node)| node.address == *to)
                .expect("a node of ours");
            let state = &played.future.state.nodes[name];
            let fit = state.up && state.checks.verdict == Verdict::Passed;
            assert!(fit && serves(lab.lives[name.as_str()]), "it publishes {name}: {}", told());
        }
        let old = before.clone();
        if let Some(old) = old.filter(|_| !by_person) {
            assert!(old.paused.is_none(), "it writes what is left alone: {}", told());
            let consent = old.adopt.is_some();
            let shown = old.unproven.is_some();
            assert!(
                consent || shown || *record_before == old.ours,
                "it overwrites somebody: {}",
                told()
            );
            // From one fallback to another only where the first one is lost.
            let native = address("192.0.2.1");
            for gone in old.published.iter().filter(|(_, at)| **at != native && !consent && !shown)
            {
                let new = to.addresses();
                let state = &played.future.state.nodes[gone.0];
                let lost = !state.up
                    || played.future.state.hosts[&host(FI)].members.get(gone.0).is_some_and(
                        |member| member.serves.as_ref().is_some_and(|serves| serves.failures >= 2),
                    );
                assert!(new.contains(gone.1) || new.contains(&native) || lost, "{}", told());
            }
        }
        match what {
            Written::Done => {}
            Written::Refused { .. } | Written::Unreadable { .. } => {
                lawful_write = false;
                assert_eq!(played.settled, Settled::RolledBack, "{}", told());
            }
            Written::Overtaken { .. } => lawful_write = false,
        }
    }
    assert!(played.written.len() <= 1, "one transition: {}", told());
    let Some(after) = after else { return };
    // What is remembered as published is what stands there, but for what is known to be in doubt.
    let in_doubt = after.paused.is_some() || after.unproven.is_some() || after.adopt.is_some();
    if !in_doubt && !discarded && !input.blind {
        assert_eq!(after.ours, lab.record(FI), "{}", told());
        assert!(!after.ours.is_empty());
    }
    match after.mode {
        Mode::Native | Mode::NativeFailing if after.paused.is_none() => {
            assert!(after.is_native(), "{}", told());
        }
        Mode::Fallback | Mode::NativeRecovering | Mode::NativeQuarantined => {
            assert!(!after.is_native() && !after.published.is_empty(), "{}", told());
        }
        Mode::Native | Mode::NativeFailing | Mode::Stranded => {}
    }
    // While anybody serves, the record is not left on who is down.
    let state = &played.future.state;
    let somebody = state.nodes.iter().any(|(name, node)| {
        node.up && node.checks.verdict == Verdict::Passed && serves(lab.lives[name.as_str()])
    });
    let held = discarded || in_doubt || input.blind || !lawful_write || after.leave.is_some();
    let acted = before.as_ref().is_some_and(|old| {
        // A row of taking up, of a late answer or of an end of a pause is this step's one transition.
        old.unproven.is_none() && old.adopt.is_none() && old.paused.is_none()
    });
    if somebody && !held && acted {
        assert!(after.published.keys().any(|name| state.nodes[name].up), "{}", told());
    }
}

/// Plays one input.
fn play(lab: &Lab, input: &Input) -> (Lab, Played) {
    let mut next = lab.clone();
    next.later(APART);
    input.put(&mut next);
    let record = next.record(FI);
    let hidden = next.records.clone();
    if input.blind {
        next.records.insert(host(FI), None);
    }
    let played = next.step();
    if input.blind {
        next.records = hidden;
    }
    lawful(&next, input, &record, &played);
    (next, played)
}

/// Steps until the host is on what is wished, and how many it took.
fn steps_until(lab: &Lab, input: &Input, most: usize, there: impl Fn(&Lab) -> bool) -> usize {
    let mut lab = lab.clone();
    let mut told = Vec::new();
    for n in 0..=most {
        if there(&lab) {
            return n;
        }
        let (next, played) = play(&lab, input);
        told.push((played.future.to.clone(), played.codes()));
        lab = next;
    }
    panic!("not there after {most} steps: {told:#?}\n{}", key(&lab));
}

/// A write that nobody could read back and a wish to be left alone take their time.
const SLACK: usize = 4;

/// From here on the world is so and stays so.
fn is_live(lab: &Lab, nodes: usize, bounds: &mut BTreeMap<&'static str, usize>) {
    let mut lab = lab.clone();
    if let Some(host) = lab.state.as_ref().and_then(|state| state.hosts.get(&host(FI)))
        && host.paused.is_some()
    {
        // Nobody but a person ends it.
        lab.part(FI, PartWish::Resume).unwrap();
    }
    let mode = |lab: &Lab| {
        let state = lab.state.as_ref()?;
        let host = state.hosts.get(&host(FI))?;
        (host.unproven.is_none() && host.adopt.is_none() && host.paused.is_none())
            .then_some(host.mode)
    };
    let all = |life: Life| vec![life; nodes];
    let windows = usize::try_from((STAY + QUARANTINE) / APART).unwrap();
    let mut note = |what: &'static str, steps: usize| {
        let most = bounds.entry(what).or_default();
        *most = (*most).max(steps);
    };
    let well = Input::lives(&all(Life::Alive));
    let records = lab.policy.hosts[&host(FI)].records;
    let home = |lab: &Lab| {
        let record = lab.record(FI);
        let is_full = record.len() == records.min(nodes);
        mode(lab) == Some(Mode::Native) && is_full && record.contains(&address("192.0.2.1"))
    };
    note("all well: NATIVE", steps_until(&lab, &well, RISE + windows + MASS + SLACK, home));
    let mut quiet = lab.clone();
    for _ in 0..RISE + windows + MASS + SLACK {
        quiet = play(&quiet, &well).0;
    }
    let (_, settled) = play(&quiet, &well);
    assert!(settled.written.is_empty() && settled.codes() == ["all-native".to_owned()].into());

    let mut lives = all(Life::Dead);
    lives[1] = Life::Alive;
    let away = |lab: &Lab| lab.record(FI) == [address("192.0.2.2")].into() && mode(lab).is_some();
    note(
        "one fallback lives: there",
        steps_until(&lab, &Input::lives(&lives), FALL + MASS + SLACK, away),
    );
    let mut lives = all(Life::Dead);
    lives[0] = Life::Alive;
    note(
        "the native lives alone: there",
        steps_until(&lab, &Input::lives(&lives), RISE.max(FALL) + MASS + SLACK, |lab| {
            lab.record(FI) == [address("192.0.2.1")].into() && mode(lab).is_some()
        }),
    );
    let stranded = |lab: &Lab| mode(lab) == Some(Mode::Stranded);
    note(
        "all dead: STRANDED",
        steps_until(&lab, &Input::lives(&all(Life::Dead)), FALL + MASS + SLACK, stranded),
    );
}

/// How many tests walk.
const WALKS: usize = 4;

/// Walks from nothing, at most so many states.
fn walk(name: &str, start: &Lab, alphabet: &[Input], most: usize) -> BTreeSet<String> {
    let (mut seen, mut queue) = (BTreeSet::new(), VecDeque::new());
    let (mut rows, mut codes) = (BTreeMap::<String, usize>::new(), BTreeSet::new());
    let mut transitions = Transitions::default();
    let (mut bounds, mut edges, mut whole) = (BTreeMap::new(), 0_usize, true);
    let nodes = start.policy.nodes.len();
    seen.insert(key(start));
    queue.push_back(start.clone());
    // Not breadth-first: of a walk that is cut short, as much as can be lies far from its start.
    let mut dice = 1_usize;
    loop {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (dice >> 33) % queue.len().max(1);
        let Some(lab) = queue.swap_remove_back(at) else { break };
        is_live(&lab, nodes, &mut bounds);
        for input in alphabet {
            let (next, played) = play(&lab, input);
            edges += 1;
            codes.extend(played.codes());
            let was = played.before.as_ref().and_then(|state| state.hosts.get(&host(FI)));
            if let Some(is) = played.future.state.hosts.get(&host(FI)) {
                let said = played.codes();
                let from = was.map(|host| host.mode.as_str());
                transitions.note(from, is.mode.as_str(), said.iter().map(String::as_str));
            }
            let from = played.decision.from.clone().unwrap_or_default();
            *rows.entry(format!("{from} -> {}", played.future.to)).or_default() += 1;
            let key = key(&next);
            if seen.contains(&key) {
                continue;
            }
            if seen.len() < most {
                seen.insert(key);
                queue.push_back(next);
            } else {
                whole = false;
            }
        }
    }
    println!(
        "{name}: {} states{}, {edges} edges, {} transitions, steps at most {bounds:?}",
        seen.len(),
        if whole { ", all there are" } else { " looked at, there are more" },
        rows.len(),
    );
    println!("{rows:#?}");
    // How a quarantine begins at once, and goes on after all were lost, has tests of its own.
    let elsewhere = |from: Option<&str>, to: &str| {
        to == "NATIVE_QUARANTINED" && (from == Some("NATIVE") || from == Some("STRANDED"))
    };
    transitions.are_those_of_walks::<Dns>(WALKS, |from, to, _| !elsewhere(from, to));
    codes
}

/// How many states are looked at; `LAWS_STATES=50000` walks on to the end.
fn most(otherwise: usize) -> usize {
    std::env::var("LAWS_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn two_nodes_are_lawful_whatever_happens() {
    reaches(
        &walk("2 nodes, all inputs", &small(2), &inputs(), most(200)),
        &[
            "all-native",
            "offline",
            "adopted",
            "edited",
            "ours-again",
            "unreadable",
            "check-failed",
            "moved-away",
            "returned",
            "waiting",
            "refused",
            "unproven",
            "settled",
            "altered",
            "persons-choice",
        ],
    );
}

#[test]
fn two_nodes_are_lawful_while_they_come_and_go() {
    reaches(
        &walk("2 nodes", &small(2), &mixes(2), most(300)),
        &[
            "false-alarm",
            "moved-away",
            "returned",
            "quarantined",
            "quarantine-over",
            "stranded",
            "up-again",
            "recovering",
            "failed-again",
        ],
    );
}

fn reaches(codes: &BTreeSet<String>, wanted: &[&str]) {
    let missing: Vec<_> = wanted.iter().filter(|code| !codes.contains(**code)).collect();
    assert!(missing.is_empty(), "{missing:?} were not reached, only {codes:?}");
}

#[test]
fn three_nodes_are_lawful_while_they_come_and_go() {
    reaches(&walk("3 nodes", &small(3), &mixes(3), most(150)), &["mass-failure", "mass-believed"]);
}

#[test]
fn a_record_of_two_addresses_is_lawful_while_its_nodes_come_and_go() {
    reaches(
        &walk("3 nodes, 2 addresses", &several(3, 2), &mixes(3), most(100)),
        &["set-changed", "moved-away", "returned", "stranded"],
    );
}

#[test]
fn a_native_that_dies_at_each_return_is_left_no_more_often_than_the_policy_says() {
    let mut lab = small(2);
    lab.step();
    let mut moves: Vec<u64> = Vec::new();
    for _ in 0..400 {
        let dead = lab.mode(FI) == Mode::Native;
        lab.set(&["fi"], if dead { Life::Dead } else { Life::Alive });
        while dead && lab.host(FI).is_native() {
            lab.next(APART);
        }
        if dead {
            moves.push(lab.now.up_ms.unsigned_abs() / 1_000);
        }
        lab.next(APART);
    }
    assert!(moves.len() > 10, "{}", moves.len());
    let bound = LIMIT + usize::try_from(WINDOW / QUARANTINE).unwrap();
    for (n, start) in moves.iter().enumerate() {
        let within = moves[n..].iter().filter(|at| **at - start < WINDOW).count();
        assert!(within <= bound, "{within} moves within {WINDOW} s: {moves:?}");
    }
}

#[test]
fn a_pause_by_a_person_is_never_ended_by_anybody_else() {
    let mut lab = small(2);
    lab.step();
    lab.part(FI, PartWish::Pause).unwrap();
    for input in inputs().iter().filter(|input| !input.resume && input.switch.is_none()) {
        let (next, played) = play(&lab, input);
        assert!(played.written.is_empty(), "{input:?}");
        assert_eq!(next.host(FI).paused.as_ref().map(|paused| paused.why), Some(PauseWhy::Person));
        lab = next;
    }
    assert!(lab.state().nodes.contains_key(&node("de")));
}

#[test]
fn a_quarantine_begins_at_once_where_one_failure_is_enough_and_goes_on_after_all_were_lost() {
    let params = json!({
        "check_interval_sec": APART, "fall": 1, "rise": 1, "minimum_stay_sec": STAY,
        "flap_limit": 1, "flap_window_sec": 600, "quarantine_sec": 600, "mass_rounds": 1,
    });
    let hosts = json!({ FI: { "native": "fi", "fallbacks": ["de"] } });
    let mut lab = Lab::new(policy(2, &hosts, &params));
    lab.step();
    assert_eq!(lab.mode(FI), Mode::Native);
    lab.set(&["fi"], Life::Dead);
    lab.next(APART);
    assert_eq!(lab.mode(FI), Mode::NativeQuarantined);
    lab.set(&["fi", "de"], Life::Dead);
    while lab.mode(FI) == Mode::NativeQuarantined {
        lab.next(APART);
    }
    assert_eq!(lab.mode(FI), Mode::Stranded);
    lab.set(&["de"], Life::Alive);
    lab.next(APART);
    assert_eq!(lab.mode(FI), Mode::NativeQuarantined);
}
