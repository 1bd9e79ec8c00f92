//! What a chain decides, a snapshot a row of its table.

use crate::chain_world;

use chain_world::{Play, Step, Write, of, policy, two_by_two};
use egressctl::machine::PartWish;
use egressctl::policy::ChainPolicy;
use serde_json::{Value as Json, json};
use std::fmt::Write as _;

/// Short times, so that stories are short.
fn quick(more: &Json) -> ChainPolicy {
    let mut params = json!({ "fail_timeout_sec": 60, "minimum_stay_sec": 30, "rise": 2 });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    policy(&two_by_two(), &params)
}

/// A story that is told step by step.
struct Story<'a> {
    play: Play<'a>,
    told: String,
}

impl<'a> Story<'a> {
    fn unseen(policy: &'a ChainPolicy) -> Self {
        Self { play: Play::new(policy), told: String::new() }
    }

    /// Everything passes.
    fn new(policy: &'a ChainPolicy) -> Self {
        let mut story = Self::unseen(policy);
        story.quietly(2);
        story
    }

    fn dead(&mut self, nodes: &[&'static str]) -> &mut Self {
        self.play.world.dead = nodes.iter().copied().collect();
        self
    }

    /// These forward nothing to what is behind them.
    fn blocks(&mut self, pairs: &[(&'static str, &'static str)]) -> &mut Self {
        self.play.world.blocks = pairs.iter().copied().collect();
        self
    }

    /// Steps that are not told.
    fn quietly(&mut self, steps: u32) -> &mut Self {
        for _ in 0..steps {
            self.play.after(15);
        }
        self.play.world.writes.clear();
        self
    }

    /// One step, a quarter of a minute later, that is told.
    fn tell(&mut self) -> &mut Self {
        let before = self.play.stands();
        let step = self.play.after(15);
        self.told(&before, &step)
    }

    fn told(&mut self, before: &str, step: &Step) -> &mut Self {
        writeln!(self.told, "{before} -> {}", self.play.stands()).unwrap();
        for reason in &step.reasons {
            writeln!(self.told, "  because {}: {}", reason.code, reason.text).unwrap();
        }
        for (group, member) in self.play.world.writes.drain(..) {
            writeln!(self.told, "  select {member} in {group}").unwrap();
        }
        if let Some(settled) = step.settled {
            let seats = self.play.world.seats().join(" ");
            writeln!(self.told, "  {settled:?} with {seats}").unwrap();
        }
        if step.unknown {
            writeln!(self.told, "  nobody knows").unwrap();
        }
        self
    }

    fn is(&mut self, name: &str) {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../snapshots");
        settings.set_prepend_module_to_snapshot(false);
        settings.bind(|| insta::assert_snapshot!(name, std::mem::take(&mut self.told)));
    }
}

#[test]
fn a_first_run_keeps_what_passes_and_builds_what_does_not() {
    let policy = quick(&json!({}));
    Story::unseen(&policy).tell().tell().is("chain_first_run");
    let mut story = Story::unseen(&policy);
    story.play.world.select("exit", "b2");
    story.tell().is("chain_first_run_on_a_backup");
    Story::unseen(&policy).dead(&["a1", "b1"]).tell().is("chain_first_run_builds");
    let mut story = Story::unseen(&policy);
    story.play.world.groups[1].1.push("stranger".to_owned());
    story.play.world.select("exit", "stranger");
    story.tell().is("chain_first_run_on_a_stranger");
    let mut story = Story::unseen(&policy);
    story.play.world.core_up = false;
    story.tell().is("chain_first_run_with_the_core_down");
    Story::unseen(&policy).dead(&["b1", "b2"]).tell().is("chain_first_run_nobody_passes");
}

#[test]
fn a_broken_hop_gets_another_node_and_no_other_hop_is_touched() {
    let policy = quick(&json!({}));
    Story::new(&policy).dead(&["a1"]).tell().is("chain_entry_replaced");
    Story::new(&policy).dead(&["b1"]).tell().is("chain_exit_replaced");
    Story::new(&policy).dead(&["a1", "b1"]).tell().is("chain_both_replaced");
    let patient = quick(&json!({ "max_fails": 2 }));
    Story::new(&patient).dead(&["b1"]).tell().tell().is("chain_two_fails");
    Story::new(&patient).dead(&["b1"]).tell().dead(&[]).tell().tell().is("chain_one_transient");
    Story::new(&patient).dead(&["a1", "b1"]).tell().tell().tell().is("chain_two_fails_each");
}

#[test]
fn a_node_that_answers_and_forwards_nothing_is_found_by_the_hop_behind_it() {
    let policy = quick(&json!({}));
    Story::new(&policy).blocks(&[("a1", "b1"), ("a1", "b2")]).tell().is("chain_forwards_nothing");
    Story::new(&policy)
        .blocks(&[("a1", "b1"), ("a1", "b2")])
        .dead(&["b1"])
        .tell()
        .tell()
        .is("chain_forwards_nothing_and_a_dead_one");
}

#[test]
fn no_node_passes_and_the_hop_is_closed_or_left_on_the_preferred_one() {
    let policy = quick(&json!({}));
    let mut story = Story::new(&policy);
    story.dead(&["b1", "b2"]).tell().tell().is("chain_closed");
    story.dead(&["b1"]).tell().is("chain_closed_another_passes");
    let mut story = Story::new(&policy);
    story.dead(&["b1", "b2"]).quietly(1).dead(&[]).tell().is("chain_closed_loaded_passes");
    let last = quick(&json!({ "all_failed": "last_resort" }));
    let mut story = Story::new(&last);
    story.dead(&["b1"]).quietly(1).dead(&["b1", "b2"]).tell().is("chain_last_resort");
    story.dead(&["b1"]).tell().is("chain_last_resort_another_passes");
    let lone = policy_of_one();
    Story::new(&lone).dead(&["b1"]).tell().tell().is("chain_one_node_is_not_tried");
    Story::new(&policy).dead(&["a1", "b1", "b2"]).tell().is("chain_first_mended_second_lost");
}

fn policy_of_one() -> ChainPolicy {
    let hops = json!([{ "name": "entry", "nodes": { "a1": {} } }, { "name": "exit", "nodes": { "b1": {} } }]);
    policy(&hops, &json!({}))
}

#[test]
fn the_preferred_node_is_returned_to_when_it_has_passed_for_long_enough() {
    let policy = quick(&json!({}));
    let mut story = Story::new(&policy);
    story.dead(&["b1"]).quietly(1).tell().is("chain_backup_marked");
    story.quietly(2).tell().is("chain_backup_test_fails");
    story.dead(&[]).quietly(3).tell().tell().tell().is("chain_returns");
    // However well it passes, clients stay where they are for a time.
    let patient = quick(&json!({ "fail_timeout_sec": 15, "minimum_stay_sec": 120 }));
    let mut story = Story::new(&patient);
    story.dead(&["b1"]).quietly(1).dead(&[]);
    for waited in (15..120).step_by(15) {
        story.play.after(15);
        assert_eq!(story.play.world.seats()[1], "b2", "{waited} s are not 120");
    }
    story.tell().is("chain_stays_before_it_returns");
    // It answers its test, and does not carry.
    let mut story = Story::new(&policy);
    story.dead(&["a1"]).quietly(1).dead(&[]).quietly(4);
    story.blocks(&[("a1", "b1"), ("a1", "b2")]).tell().is("chain_return_fails");
    story.quietly(7).tell().is("chain_return_fails_again");
    let mut story = Story::new(&policy);
    story.dead(&["b1"]).quietly(1).dead(&[]).quietly(4);
    story.play.world.blind = true;
    story.tell();
    story.play.world.blind = false;
    story.tell().tell().tell().tell().is("chain_returning_undetermined");
    let mut story = Story::new(&policy);
    story
        .dead(&["a1", "b1"])
        .quietly(1)
        .dead(&[])
        .quietly(4)
        .tell()
        .tell()
        .is("chain_one_return_a_step");
}

#[test]
fn a_faster_node_carries_after_three_rounds_and_a_slightly_faster_one_never() {
    let mut hops = two_by_two();
    hops[1]["strategy"] = json!("lowest_latency");
    let policy = policy(&hops, &json!({ "fail_timeout_sec": 60, "minimum_stay_sec": 30 }));
    let mut story = Story::new(&policy);
    story.play.world.latency.extend([("b1", 100), ("b2", 81)]);
    story.quietly(5);
    assert_eq!(story.play.world.seats()[1], "b1", "19 ms are not 20");
    story.play.world.latency.insert("b2", 80);
    story.tell().tell().tell().is("chain_faster");
    // 15 % of 200 ms are 30.
    story.play.world.latency.extend([("b1", 171), ("b2", 200)]);
    story.quietly(5);
    assert_eq!(story.play.world.seats()[1], "b2", "29 ms of 200 are not 15 %");
    story.play.world.latency.insert("b1", 170);
    story.quietly(2);
    story.play.world.latency.insert("b1", 180);
    story.quietly(1);
    story.play.world.latency.insert("b1", 170);
    story.quietly(2);
    assert_eq!(story.play.world.seats()[1], "b2", "not in a row");
    story.tell().is("chain_faster_back");
    // Right after a change there are another 30 s, however often it is looked.
    story.play.world.latency.extend([("b1", 200), ("b2", 50)]);
    for _ in 0..5 {
        story.play.after(5);
        assert_eq!(story.play.world.seats()[1], "b1", "25 s are not 30");
    }
    let before = story.play.stands();
    let step = story.play.after(5);
    story.told(&before, &step).is("chain_faster_cools_down");
    story.dead(&["b2"]).tell().is("chain_fastest_dies");
}

#[test]
fn a_node_that_was_measured_faster_and_does_not_carry_is_left() {
    let hops = json!([
        { "name": "entry", "strategy": "lowest_latency", "nodes": { "a1": {}, "a2": {} } },
        { "name": "exit", "nodes": { "b1": {} } },
    ]);
    let policy = policy(&hops, &json!({}));
    let mut story = Story::new(&policy);
    story.play.world.latency.insert("a2", 10);
    story
        .blocks(&[("a2", "b1")])
        .tell()
        .tell()
        .tell()
        .tell()
        .tell()
        .tell()
        .tell()
        .is("chain_faster_fails");
}

#[test]
fn nodes_take_turns_by_the_clock() {
    let hops = json!([
        { "name": "entry", "strategy": "round", "rotate_sec": 30, "nodes": { "a1": {}, "a2": {}, "a3": {} } },
        { "name": "exit", "nodes": { "b1": {} } },
    ]);
    let policy = policy(&hops, &json!({ "fail_timeout_sec": 60 }));
    let mut story = Story::new(&policy);
    story.tell().tell().tell().is("chain_rotates");
    story.quietly(1).blocks(&[("a1", "b1")]).tell().quietly(1).tell().is("chain_rotation_fails");
    let mut story = Story::new(&policy);
    story.dead(&["a1"]).tell().is("chain_round_is_always_preferred");
}

#[test]
fn with_the_uplink_or_the_core_down_nothing_is_counted_marked_closed_or_tried() {
    let policy = quick(&json!({}));
    let mut story = Story::new(&policy);
    story.play.world.wan = false;
    story.tell().tell();
    story.play.world.wan = true;
    story.dead(&["b1"]).tell().tell().is("chain_offline");
    let mut story = Story::new(&policy);
    story.play.world.blind = true;
    story.tell().tell().is("chain_undetermined");
    let mut story = Story::new(&policy);
    story.dead(&["b1"]).quietly(1).dead(&[]);
    story.play.world.core_up = false;
    story.tell();
    story.play.world.core_up = true;
    story.play.world.restart();
    story.tell().tell().tell().is("chain_choice_lost");
}

#[test]
fn every_leg_passes_and_the_clients_way_does_not() {
    let policy = of(&json!({
        "kind": "chain",
        "driver": { "clash": { "url": "http://127.0.0.1:9090", "proxy": "http://127.0.0.1:2080" } },
        "hops": two_by_two(),
        "probe": { "urls": ["https://192.0.2.1/generate_204"] },
        "wan": { "urls": ["http://192.0.2.2/"] },
    }));
    let mut story = Story::new(&policy);
    story.play.world.drift = true;
    story.tell().tell().is("chain_drift");
    story.play.world.drift = false;
    story.tell().is("chain_drift_over");
}

#[test]
fn a_node_without_a_way_out_is_proven_by_the_hop_behind_it() {
    let hops = json!([
        { "name": "entry", "nodes": { "a1": { "egress": false }, "a2": { "egress": false } } },
        { "name": "exit", "nodes": { "b1": {}, "b2": {} } },
    ]);
    let policy = policy(&hops, &json!({ "fail_timeout_sec": 60, "minimum_stay_sec": 30 }));
    let mut story = Story::new(&policy);
    story.play.world.inner.extend(["a1", "a2"]);
    story.dead(&["a1"]).tell().is("chain_inner_node_dies");
    story.dead(&[]).quietly(3).tell().tell().is("chain_inner_node_returns");
}

#[test]
fn a_persons_choice_stands_and_is_never_tried_out() {
    let policy = quick(&json!({}));
    let mut story = Story::new(&policy);
    story.play.world.select("exit", "b2");
    story.tell().dead(&["b2"]).tell().dead(&[]).tell().is("chain_persons_choice");
    let step = story.play.part("exit", PartWish::Resume);
    assert_eq!(step, Ok(()));
    story.tell().tell().tell().is("chain_hop_resumed");
    let mut story = Story::new(&policy);
    let step = story.play.switch("exit=b2", false).unwrap();
    story.told("PREFERRED", &step).tell().is("chain_switch");
    let step = story.play.switch("exit=b2", false).unwrap();
    story.told("BACKUP", &step).is("chain_switch_to_what_stands");
    let mut story = Story::new(&policy);
    story.dead(&["b2"]).quietly(1);
    assert!(story.play.switch("exit=b2", false).is_none(), "it does not pass");
    assert!(
        story.play.switch("exit=b9", true).is_none() && story.play.switch("b2", true).is_none()
    );
    let step = story.play.switch("exit=b2", true).unwrap();
    story.told("PREFERRED", &step).tell().is("chain_switch_by_force");
    let mut story = Story::new(&policy);
    story.play.world.write = Write::Overtaken("exit", "b1");
    story.dead(&["b1"]).play.world.groups[1].1.push("b3".to_owned());
    story.play.world.write = Write::Overtaken("exit", "b3");
    story.tell().is("chain_overtaken");
    let mut story = Story::new(&policy);
    story.play.part("exit", PartWish::Pause).unwrap();
    story.dead(&["b1"]).tell().is("chain_paused_hop_breaks");
    let mut story = Story::new(&policy);
    story.play.paused = true;
    story.dead(&["b1"]).tell().is("chain_paused");
}

#[test]
fn what_is_refused_or_unreadable_is_told() {
    let policy = quick(&json!({}));
    for (write, name) in
        [(Write::Refused, "chain_refused"), (Write::Unreadable, "chain_unreadable")]
    {
        let mut story = Story::new(&policy);
        story.play.world.write = write;
        story.dead(&["b1"]).tell().is(name);
    }
    let mut story = Story::new(&policy);
    story.play.world.write = Write::Refused;
    assert!(story.play.switch("exit=b2", false).is_some());
    assert_eq!(story.play.stands(), "entry PREFERRED, exit PREFERRED");
}

#[test]
fn a_node_that_left_the_policy_is_replaced_at_once() {
    let before = quick(&json!({}));
    let mut story = Story::new(&before);
    let hops = json!([
        { "name": "entry", "nodes": { "a1": {}, "a2": {} } },
        { "name": "exit", "nodes": { "b2": {}, "b3": {} } },
    ]);
    let after = policy(&hops, &json!({}));
    story.play.policy = &after;
    story.play.world.groups[1].1.push("b3".to_owned());
    story.tell().is("chain_node_left_the_policy");
}

#[test]
fn there_are_never_more_tries_of_a_hop_than_it_has_other_nodes_and_the_place_is_kept() {
    let hops = json!([
        { "name": "entry", "nodes": { "a1": {}, "a2": {}, "a3": {} } },
        { "name": "exit", "nodes": { "b1": {}, "b2": {}, "b3": {}, "b4": {} } },
    ]);
    let policy = policy(&hops, &json!({}));
    let mut story = Story::new(&policy);
    story.dead(&["b1", "b2", "b3", "b4"]);
    story.play.after(15);
    let seats = |place: usize| {
        let tried = story.play.world.tried.iter();
        tried.filter(|seats| seats[place] != ["a1", "b1"][place]).count()
    };
    assert_eq!((seats(0), seats(1)), (2, 3), "{:?}", story.play.world.tried);
    // There is time for one try, which is two rounds of questions.
    let mut story = Story::new(&policy);
    story.dead(&["b1", "b2", "b3", "b4"]).play.world.patience = 3;
    story.tell().tell().is("chain_place_is_kept");
    story.tell().is("chain_place_is_kept_to_the_end");
}
