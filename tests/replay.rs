//! A bundle of every kind decides again what was decided, in another process and with no world.

use crate::chain_world;
use crate::dns_world;
use crate::guard_world;
use crate::selector_world;
use crate::world;

use egressctl::bundle::{Blank, Bundle, Look, Replayed, Witness, replay, text};
use egressctl::chain::Chain;
use egressctl::dns::Dns;
use egressctl::explain::{Decided, evidence};
use egressctl::guard::Guard;
use egressctl::machine::{Considered, Decision, Machine, Owned, Subject};
use egressctl::names::PolicyName;
use egressctl::observation::{Observation, Question, Reading};
use egressctl::outcome::Report;
use egressctl::pool::Pool;
use egressctl::record::Record;
use egressctl::selector::Selector;
use egressctl::time::Moment;
use serde_json::{Value, json};
use world::Steps as _;

fn name() -> PolicyName {
    PolicyName::try_from("home".to_owned()).unwrap()
}

/// What one step of a world is recorded as.
fn recorded<M: Machine>(
    policy: &M::Policy,
    state: Option<&M::State>,
    owned: &Owned,
    now: &Moment,
    answer: impl FnMut(&Question) -> Reading,
) -> String {
    let (report, witness) = witnessed::<M>(policy, state, owned, now, answer);
    text(&report, &witness, M::KIND, "{}", &Blank::default()).unwrap()
}

/// What one step of a world has seen and decided.
fn witnessed<M: Machine>(
    policy: &M::Policy,
    state: Option<&M::State>,
    owned: &Owned,
    now: &Moment,
    mut answer: impl FnMut(&Question) -> Reading,
) -> (Report, Witness) {
    let name = name();
    let subject = Subject::<M> { name: &name, policy, state, paused: false, owned };
    let (mut seen, mut looks) = (Observation::new(now.clone()), Vec::new());
    let decision: Decision<M::State> = loop {
        looks.push(Look { now: now.clone(), may_ask: true });
        match M::consider(&subject, &seen, now, true) {
            Considered::Ask(questions) => {
                for question in questions {
                    let reading = answer(&question);
                    seen.readings.insert(question, reading);
                }
            }
            Considered::Decide(decision) => break *decision,
            Considered::Unable(why) => panic!("{why:?}"),
        }
    };
    let record =
        Record { machine: state.cloned(), owned: owned.clone(), ..Record::<M::State>::default() };
    let before = seen.kernel().map(|kernel| kernel.world.clone()).unwrap_or_default();
    let decided = Decided::of(&subject, &record, &before, &decision);
    let witness = Witness {
        at: now.clone(),
        paused: false,
        record: serde_json::to_value(&record).unwrap(),
        looks,
        explain: decided.explain::<M>(evidence(&seen)),
        readings: seen.readings,
        before,
        decided,
    };
    assert!(!witness.explain.evidence.is_empty() && !witness.explain.rule.is_empty());
    (Report::new(&name, M::KIND.as_str(), now), witness)
}

/// Decides again on a text, and holds that to what it says was decided.
fn again<M: Machine>(policy: &M::Policy, text: &str) -> Replayed {
    replay::<M>(policy, &Bundle::parse(text).unwrap()).unwrap()
}

fn is_the_same<M: Machine>(policy: &M::Policy, text: &str) {
    let replayed = again::<M>(policy, text);
    assert_eq!(replayed.differences, Vec::<String>::new(), "{text}");
    assert!(replayed.decided.is_some() && replayed.explain.is_some());
}

#[test]
fn a_pool_decides_the_same_from_its_first_run_to_a_repair() {
    let policy = world::policy(2, 3, &json!({ "health_failures_before_down": 1 }));
    let mut lab = world::lab_of(policy.clone(), &["a", "b", "c", "d"]);
    for n in 0..6 {
        lab.later(30);
        let (state, owned, now) = (lab.state.clone(), lab.owned.clone(), lab.now.clone());
        let mut copy = lab.clone();
        let text = recorded::<Pool>(&policy, state.as_ref(), &owned, &now, |question| {
            copy.answer(question).unwrap_or_else(|trouble| panic!("{trouble}"))
        });
        is_the_same::<Pool>(&policy, &text);
        lab.step();
        if n == 2 {
            let dead = lab.state().slots.values().next().unwrap().candidate().unwrap().name.clone();
            lab.endpoints.insert(dead, world::Endpoint::Dead);
        }
    }
    assert_eq!(lab.state().repair_events_since_full_refresh, 1, "the story has come to a repair");
}

#[test]
fn a_secret_that_is_a_word_of_the_format_makes_no_bundle_that_nobody_can_read() {
    let policy = selector_world::policy(&json!({}), "dead");
    let mut play = selector_world::Play::new(&policy);
    let (now, owned) = (play.world.now.clone(), Owned::default());
    let (report, witness) =
        witnessed::<Selector>(&policy, None, &owned, &now, |q| play.world.answer(q));
    let file = r#"{"kind": "selector", "token": "hunter2-long"}"#;
    let write = |secret: &str| {
        text(&report, &witness, Selector::KIND, file, &Blank::of(&[secret.to_owned()]))
    };
    let usual = write("hunter2-long").unwrap();
    assert!(usual.contains(r#""policy_file":{"kind":"selector","token":"BLANKED"}"#), "{usual}");
    for word in ["policy", "version", "outcome"] {
        let why = write(word).unwrap_err().to_string();
        assert!(why.contains("use a longer one"), "{word}: {why}");
    }
}

#[test]
fn a_selector_a_guard_and_a_chain_decide_the_same() {
    let policy = selector_world::policy(&json!({}), "dead");
    let mut play = selector_world::Play::new(&policy);
    play.world.primary = selector_world::Answer::Dead;
    for _ in 0..3 {
        play.world.later(60);
        let (state, now, mut world) =
            (play.state.clone(), play.world.now.clone(), play.world.clone());
        let owned = Owned::default();
        let text = recorded::<Selector>(&policy, state.as_ref(), &owned, &now, |q| world.answer(q));
        is_the_same::<Selector>(&policy, &text);
        play.step();
    }
    assert_eq!(play.stands(), "PRIMARY_FAILING");

    let policy = guard_world::policy(&json!({}));
    let mut play = guard_world::Play::new(&policy);
    play.world.passes = [guard_world::FAST].into();
    for _ in 0..3 {
        play.world.later(30);
        let (state, now, mut world) =
            (play.state.clone(), play.world.now.clone(), play.world.clone());
        let owned = Owned::default();
        let text = recorded::<Guard>(&policy, state.as_ref(), &owned, &now, |q| world.answer(q));
        is_the_same::<Guard>(&policy, &text);
        play.step();
    }
    assert_ne!(play.stands(), "AUTO");

    let policy = chain_world::policy(&chain_world::two_by_two(), &json!({}));
    let mut play = chain_world::Play::new(&policy);
    for _ in 0..3 {
        play.world.later(15);
        let (state, now, mut world) =
            (play.state.clone(), play.world.now.clone(), play.world.clone());
        let owned = Owned::default();
        let text = recorded::<Chain>(&policy, state.as_ref(), &owned, &now, |q| world.answer(q));
        is_the_same::<Chain>(&policy, &text);
        play.step();
        play.world.dead = ["a1"].into();
    }
}

#[test]
fn host_names_decide_the_same_and_what_was_tampered_with_does_not() {
    let hosts = json!({ "fi.example.org": { "native": "fi", "fallbacks": ["de"], "ttl": 120 } });
    let policy = dns_world::policy(2, &hosts, &json!({ "fall": 1 }));
    let mut lab = dns_world::Lab::new(policy.clone());
    lab.step();
    lab.later(30);
    lab.set(&["fi"], dns_world::Life::Dead);
    let (owned, now, world) = (Owned::default(), lab.now.clone(), lab.clone());
    let text = recorded::<Dns>(&policy, lab.state.as_ref(), &owned, &now, |q| world.answer(q));
    is_the_same::<Dns>(&policy, &text);

    let mut bundle: Value = serde_json::from_str(&text).unwrap();
    bundle["decision"]["to"] = json!("NATIVE");
    let replayed = again::<Dns>(&policy, &bundle.to_string());
    assert_eq!(replayed.differences, ["to: recorded \"NATIVE\", decided now \"FALLBACK\""]);

    let mut bundle: Value = serde_json::from_str(&text).unwrap();
    let mut more = bundle["observation"][0].clone();
    more["question"] = json!("another");
    bundle["observation"].as_array_mut().unwrap().push(more);
    let replayed = again::<Dns>(&policy, &bundle.to_string());
    assert_eq!(replayed.differences, ["1 of what was seen is not asked for any more"]);

    let mut bundle: Value = serde_json::from_str(&text).unwrap();
    bundle["observation"].as_array_mut().unwrap().clear();
    let replayed = again::<Dns>(&policy, &bundle.to_string());
    assert!(replayed.decided.is_none());
    assert!(replayed.differences[0].contains("which was not seen"), "{replayed:?}");

    for (text, why) in [
        ("{", "is no bundle"),
        ("{}", "`step --record FILE` writes one"),
        (r#"{"version": 9}"#, "newer than 1"),
        (r#"{"version": 1}"#, "is not understood"),
    ] {
        let said = Bundle::parse(text).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}
