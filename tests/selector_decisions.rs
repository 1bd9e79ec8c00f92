//! What a selector decides, a snapshot a row of its table.

use crate::selector_world;

use egressctl::machine::{Cut, Machine as _};
use egressctl::policy::SelectorPolicy;
use egressctl::selector::Selector;
use selector_world::Answer::{Dead, NoProxy, Well};
use selector_world::{Answer, PRIMARY, Play, RESERVE, Step, THIRD, Write, policy};
use serde_json::json;
use std::fmt::Write as _;

fn usual() -> SelectorPolicy {
    policy(&json!({ "flap_limit": 2 }), "dead")
}

/// A story that is told step by step.
struct Story<'a> {
    play: Play<'a>,
    told: String,
}

impl<'a> Story<'a> {
    fn new(policy: &'a SelectorPolicy) -> Self {
        Self { play: Play::new(policy), told: String::new() }
    }

    fn channels(&mut self, primary: Answer, reserve: Answer) -> &mut Self {
        (self.play.world.primary, self.play.world.reserve) = (primary, reserve);
        self
    }

    /// Steps that are not told.
    fn quietly(&mut self, steps: u32) -> &mut Self {
        for _ in 0..steps {
            self.play.after(60);
        }
        self
    }

    /// One step, a minute later, that is told.
    fn tell(&mut self) -> &mut Self {
        let before = self.play.stands();
        let step = self.play.after(60);
        self.told(before, &step)
    }

    fn told(&mut self, before: &str, step: &Step) -> &mut Self {
        let paused = if self.play.paused { ", paused" } else { "" };
        writeln!(self.told, "{before} -> {}{paused}", self.play.stands()).unwrap();
        for reason in &step.reasons {
            writeln!(self.told, "  because {}: {}", reason.code, reason.text).unwrap();
        }
        if let Some(decision) = &step.decision {
            for (setting, edit) in &decision.wished.settings {
                writeln!(self.told, "  do   {}", setting.command(&edit.to)).unwrap();
                writeln!(self.told, "  undo {}", setting.command(&edit.expected)).unwrap();
            }
            for cut in &decision.wished.cuts {
                let Cut::Through { names, .. } = cut else { panic!("{cut:?}") };
                writeln!(self.told, "  cut  what goes through {}", names.join(" and ")).unwrap();
            }
        }
        if let Some(settled) = step.settled {
            writeln!(self.told, "  {settled:?}").unwrap();
        }
        self
    }

    fn is(&self, name: &str) {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../snapshots");
        settings.set_prepend_module_to_snapshot(false);
        settings.bind(|| insta::assert_snapshot!(name, self.told));
    }

    /// On the reserve since this step, and the primary dead.
    fn failed_over(policy: &'a SelectorPolicy) -> Self {
        let mut story = Self::new(policy);
        story.quietly(3).channels(Dead, Well).quietly(3);
        assert_eq!(story.play.stands(), "ON_RESERVE");
        story
    }
}

#[test]
fn a_first_run_finds_where_new_connections_go_and_writes_nothing() {
    let policy = usual();
    for (selected, name) in [
        ("channel-primary", "selector_first_run_on_primary"),
        (RESERVE, "selector_first_run_on_reserve"),
        (THIRD, "selector_first_run_on_a_third_member"),
    ] {
        let mut story = Story::new(&policy);
        selected.clone_into(&mut story.play.world.selected);
        story.tell().is(name);
    }
    let mut story = Story::new(&policy);
    story.play.world.core_up = false;
    story.tell().is("selector_first_run_with_the_core_down");
}

#[test]
fn a_primary_that_fails_is_left_when_it_was_quiet() {
    let policy = usual();
    let mut story = Story::new(&policy);
    story.quietly(2).tell().is("selector_on_primary");
    let mut story = Story::new(&policy);
    story.quietly(3).channels(Dead, Well).tell().tell().tell().is("selector_failover");
    let mut story = Story::new(&policy);
    story.quietly(3).channels(Dead, Well).quietly(1).channels(Well, Well).tell().tell();
    story.is("selector_false_alarm");
}

/// Case C40.
#[test]
fn a_failover_waits_for_traffic_and_for_a_reserve_that_answers() {
    let policy = usual();
    let mut story = Story::new(&policy);
    story.play.world.rate = 100_000;
    story.quietly(3).channels(Dead, Well).quietly(2).tell().tell();
    story.is("selector_traffic_guard");
    story.told.clear();
    story.quietly(3).tell().is("selector_traffic_guard_spent");
    for (reserve, name) in
        [(Dead, "selector_both_unhealthy"), (NoProxy, "selector_reserve_unknown")]
    {
        let mut story = Story::new(&policy);
        story.quietly(3).channels(Dead, Well);
        story.play.world.rate = 100_000;
        story.quietly(3).channels(Dead, reserve).tell().is(name);
    }
    let mut story = Story::new(&policy);
    story.quietly(3).channels(Dead, Dead).tell().tell().is("selector_none_healthy");
    let mut story = Story::new(&policy);
    story.quietly(3).channels(NoProxy, Well).tell().is("selector_primary_unknown");
    let mut story = Story::new(&policy);
    story.quietly(3).channels(Dead, Well).quietly(2);
    story.play.world.again = Some([Well, Well]);
    story.tell().is("selector_not_so_any_more");
}

#[test]
fn a_selection_that_is_refused_or_overtaken_is_told() {
    let policy = usual();
    for (write, name) in
        [(Write::Refused, "selector_refused"), (Write::Overtaken, "selector_overtaken")]
    {
        let mut story = Story::new(&policy);
        story.quietly(3).channels(Dead, Well).quietly(2);
        story.play.world.write = write;
        story.tell().is(name);
    }
}

#[test]
fn the_primary_is_returned_to_after_its_windows_and_a_quiet_time() {
    let policy = usual();
    let mut story = Story::failed_over(&policy);
    story.channels(Well, Well).tell().tell().is("selector_recovering");
    story.told.clear();
    story.play.world.rate = 100_000;
    story.quietly(13).tell().is("selector_return_waits");
    story.told.clear();
    story.play.world.rate = 0;
    story.tell().is("selector_return");
    let mut story = Story::failed_over(&policy);
    story.channels(Well, Well).quietly(3).channels(Dead, Well).tell();
    story.is("selector_primary_unsteady");
}

#[test]
fn each_window_holds_the_way_back_by_itself() {
    let minutes_until_back = |recovery: u64, stay: u64| {
        let params = json!({ "recovery_window_sec": recovery, "minimum_reserve_sec": stay });
        let policy = policy(&params, "none");
        let mut story = Story::failed_over(&policy);
        story.channels(Well, Well);
        (1..200).find(|_| story.quietly(1).play.stands() == "ON_PRIMARY")
    };
    assert_eq!(minutes_until_back(120, 3_600), Some(60));
    assert_eq!(minutes_until_back(3_600, 120), Some(61), "a minute later it answered first");
    assert_eq!(minutes_until_back(120, 120), Some(3));
}

#[test]
fn a_step_is_due_sooner_while_a_switch_waits_for_a_quiet_time() {
    let policy = usual();
    let mut story = Story::new(&policy);
    let due = |story: &Story<'_>| Selector::rhythm(&policy, story.play.state.as_ref()).interval;
    story.play.world.rate = 100_000;
    story.quietly(3).channels(Dead, Well).quietly(2);
    assert_eq!(due(&story).as_secs(), 60);
    story.quietly(1);
    assert_eq!(due(&story).as_secs(), 10, "a third of the quiet window");
    story.quietly(5);
    assert_eq!((story.play.stands(), due(&story).as_secs()), ("ON_RESERVE", 60));
}

#[test]
fn a_reserve_that_fails_is_left_at_once_whatever_the_windows_say() {
    let policy = usual();
    let mut story = Story::failed_over(&policy);
    story.channels(Well, Dead).tell().tell().tell().is("selector_reserve_failed");
}

#[test]
fn a_primary_that_flaps_is_quarantined() {
    let policy = usual();
    let mut story = Story::failed_over(&policy);
    story.channels(Well, Well).quietly(17);
    assert_eq!(story.play.stands(), "ON_PRIMARY");
    story.channels(Dead, Well).quietly(2).tell().channels(Well, Well).tell();
    story.is("selector_quarantined");
    story.told.clear();
    story.quietly(358).tell().is("selector_quarantine_over");
}

#[test]
fn a_quarantine_outlives_a_pause_and_ends_when_a_person_wants_the_primary() {
    let policy = policy(&json!({ "flap_limit": 2, "flap_window_sec": 3_600 }), "none");
    let mut story = Story::failed_over(&policy);
    story.channels(Well, Well).quietly(17).channels(Dead, Well).quietly(3);
    assert_eq!(story.play.stands(), "PRIMARY_QUARANTINED");
    story.play.switch(RESERVE, false).unwrap();
    assert!(story.play.resume());
    assert_eq!(story.channels(Well, Well).quietly(70).play.stands(), "PRIMARY_QUARANTINED");
    story.play.switch(PRIMARY, false).unwrap();
    assert!(story.play.resume());
    // The two failovers are out of their window, so that a quarantine would be the old one's.
    story.quietly(3).channels(Dead, Well).quietly(3);
    assert_eq!(story.play.stands(), "ON_RESERVE");
}

#[test]
fn offline_and_with_the_core_down_nothing_moves_and_the_next_check_settles() {
    let policy = usual();
    let mut story = Story::new(&policy);
    story.quietly(3).channels(Dead, Well).quietly(2);
    story.play.world.core_up = false;
    story.tell();
    story.play.world.core_up = true;
    story.tell().is("selector_core_down");
    let mut story = Story::new(&policy);
    story.quietly(3).channels(Dead, Well).quietly(2);
    story.play.world.wan = false;
    story.tell();
    story.play.world.wan = true;
    story.tell().is("selector_wan_down");
}

#[test]
fn a_choice_that_was_lost_is_made_again_and_a_persons_stays() {
    let policy = usual();
    let mut story = Story::failed_over(&policy);
    story.play.world.restart();
    story.tell().is("selector_choice_lost");
    let mut story = Story::failed_over(&policy);
    story.play.world.restart();
    story.channels(Dead, Dead).tell().is("selector_choice_lost_waits");
    let mut story = Story::failed_over(&policy);
    story.play.world.keeps = true;
    story.play.world.restart();
    "channel-primary".clone_into(&mut story.play.world.selected);
    story.tell().tell().is("selector_persons_choice");
}

#[test]
fn a_person_switches_pauses_and_resumes() {
    let policy = usual();
    let mut story = Story::new(&policy);
    story.quietly(2);
    let before = story.play.stands();
    let step = story.play.switch(RESERVE, false).unwrap();
    story.told(before, &step).tell();
    assert!(story.play.resume());
    story.tell().is("selector_switch_and_resume");
    let mut story = Story::new(&policy);
    story.quietly(2).channels(Well, Dead).quietly(1);
    assert!(story.play.switch(RESERVE, false).is_none(), "what is not healthy wants force");
    let before = story.play.stands();
    let step = story.play.switch(RESERVE, true).unwrap();
    story.told(before, &step).is("selector_switch_by_force");
    let mut story = Story::new(&policy);
    story.quietly(2).channels(Well, Dead);
    let before = story.play.stands();
    let step = story.play.switch(RESERVE, false).unwrap();
    story.told(before, &step).is("selector_switch_to_what_just_died");
}
