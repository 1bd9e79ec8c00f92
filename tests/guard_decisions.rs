//! What a guard decides, a snapshot a row of its table.

use crate::guard_world;

use egressctl::observation::{Asker, CoreFault, Outline, Question, Way};
use egressctl::policy::GuardPolicy;
use egressctl::proxy::Verdict;
use guard_world::{AUTO, FAST, PICK, Play, SLOW, Step, Write, outline, policy, seeking};
use serde_json::json;
use std::fmt::Write as _;

fn usual() -> GuardPolicy {
    policy(&json!({}))
}

/// A story that is told step by step.
struct Story<'a> {
    play: Play<'a>,
    told: String,
}

impl<'a> Story<'a> {
    /// The automatic group chooses, and requests pass.
    fn new(policy: &'a GuardPolicy) -> Self {
        let mut story = Self { play: Play::new(policy), told: String::new() };
        story.quietly(2);
        story
    }

    fn passes(&mut self, members: &[&'static str]) -> &mut Self {
        self.play.world.passes = members.iter().copied().collect();
        self
    }

    /// Steps that are not told.
    fn quietly(&mut self, steps: u32) -> &mut Self {
        for _ in 0..steps {
            self.play.after(30);
        }
        self
    }

    /// One step, half a minute later, that is told.
    fn tell(&mut self) -> &mut Self {
        let before = self.play.stands();
        let step = self.play.after(30);
        self.told(before, &step)
    }

    fn told(&mut self, before: &str, step: &Step) -> &mut Self {
        let paused = if self.play.paused { ", paused" } else { "" };
        writeln!(self.told, "{before} -> {}{paused}", self.play.stands()).unwrap();
        for reason in &step.reasons {
            writeln!(self.told, "  because {}: {}", reason.code, reason.text).unwrap();
        }
        for written in self.play.world.writes.drain(..) {
            writeln!(self.told, "  select {written}").unwrap();
        }
        if let Some(settled) = step.settled {
            writeln!(self.told, "  {settled:?} with {}", self.play.world.selected).unwrap();
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

    /// A member stands in for the group since this step, and the group's pick is dead.
    fn taken_over(policy: &'a GuardPolicy) -> Self {
        let mut story = Self::new(policy);
        story.passes(&[FAST, SLOW]).quietly(2);
        assert_eq!((story.play.stands(), story.play.world.selected.as_str()), ("TEMPORARY", FAST));
        story.play.world.writes.clear();
        story
    }
}

#[test]
fn a_first_run_finds_what_is_selected_and_writes_nothing() {
    let policy = usual();
    for (selected, name) in
        [(AUTO, "guard_first_run_on_automatic"), (FAST, "guard_first_run_on_a_member")]
    {
        let mut story = Story { play: Play::new(&policy), told: String::new() };
        selected.clone_into(&mut story.play.world.selected);
        story.tell().tell().is(name);
    }
    let mut story = Story { play: Play::new(&policy), told: String::new() };
    story.play.world.core_up = false;
    story.tell().is("guard_first_run_with_the_core_down");
}

#[test]
fn two_failed_rounds_let_a_measured_and_proven_member_take_over() {
    let policy = usual();
    let mut story = Story::new(&policy);
    story.passes(&[FAST, SLOW]).tell().tell().is("guard_takes_over");
    let mut story = Story::new(&policy);
    story.passes(&[SLOW]).tell().tell().is("guard_takes_the_second");
    let mut story = Story::new(&policy);
    story.passes(&[FAST]).tell().passes(&[PICK]).tell().is("guard_false_alarm");
}

#[test]
fn what_passes_by_nobody_leaves_the_automatic_group_in_charge_and_backs_off() {
    let policy = usual();
    let mut story = Story::new(&policy);
    story.passes(&[]).tell().tell().tell().tell().tell().tell().is("guard_no_member_passes");
    let mut story = Story::new(&policy);
    story.play.world.unmeasured.extend([FAST, SLOW]);
    story.passes(&[]).tell().tell().tell().tell().is("guard_none_measured");
    let mut story = Story::new(&policy);
    story.play.world.all = [AUTO, PICK, "DIRECT"].map(str::to_owned).into();
    story.passes(&[]).tell().tell().is("guard_no_candidate");
    let few = self::policy(&json!({ "candidates_per_step": 1 }));
    let mut story = Story::new(&few);
    story.passes(&[SLOW]).tell().tell().tell().is("guard_not_finished");
}

#[test]
fn an_uplink_that_falls_while_members_are_tried_is_held_against_none_of_them() {
    let policy = usual();
    let mut story = Story::new(&policy);
    story.passes(&[]).quietly(1).play.world.wan_falls = true;
    story.tell().is("guard_offline_meanwhile");
    let mut story = Story::taken_over(&policy);
    story.passes(&[PICK, FAST, SLOW]).quietly(2).play.world.wan_falls = true;
    story.tell().is("guard_offline_in_a_trial");
    let mut story = Story::new(&policy);
    story.passes(&[]).quietly(1).play.world.proxy_falls = true;
    story.tell().is("guard_undetermined_meanwhile");
}

#[test]
fn what_the_policy_does_not_name_is_found_and_what_it_names_stands() {
    let policy = seeking(&json!({}));
    let mut story = Story::new(&policy);
    story.passes(&[FAST, SLOW]).tell().tell().is("guard_found_takes_over");
    story.play.world.outline = Err(CoreFault::Down("no process of sing-box or mihomo runs".into()));
    story.tell().is("guard_not_found");
    story.play.world.outline =
        Err(CoreFault::Strange("several cores run: name driver.clash.config".into()));
    story.tell().is("guard_found_twice");
    // What is found elsewhere is not asked where the policy names it.
    let named =
        json!({ "group": "select", "automatic": AUTO, "proxy": "socks5h://127.0.0.1:1080" });
    let policy = seeking(&named);
    let mut play = Play::new(&policy);
    play.world.outline = Ok(Outline {
        selectors: [("other".to_owned(), vec!["fastest".to_owned()])].into(),
        automatic: ["fastest".to_owned()].into(),
        proxies: Vec::new(),
        ..outline()
    });
    play.step();
    play.step();
    let mut asked = play.world.asked.iter();
    let round = asked.find_map(|question| match question {
        Question::Pages(pages) if pages.asker != Asker::Wan => Some(pages),
        _ => None,
    });
    let named = "socks5h://127.0.0.1:1080".to_owned().try_into().unwrap();
    assert_eq!(round.unwrap().way, Way::Proxy(named));
    assert_eq!(play.state.unwrap().names, ["select".to_owned(), AUTO.to_owned()]);
}

#[test]
fn a_group_of_another_name_is_begun_with_anew() {
    let policy = seeking(&json!({}));
    let mut story = Story::taken_over(&policy);
    let mut renamed = outline();
    let members = renamed.selectors.remove("select").unwrap();
    renamed.selectors.insert("choose".to_owned(), members);
    story.play.world.outline = Ok(renamed);
    "choose".clone_into(&mut story.play.world.group);
    AUTO.clone_into(&mut story.play.world.selected);
    story.tell().tell().is("guard_group_renamed");
    // The policy goes on with the old name: it waits for the group.
    let named = usual();
    let mut story = Story::taken_over(&named);
    "choose".clone_into(&mut story.play.world.group);
    story.tell().is("guard_group_missing");
}

#[test]
fn only_members_that_the_policy_names_are_tried_and_of_each_what_it_showed_is_remembered() {
    let named = seeking(&json!({ "members": [SLOW] }));
    let mut story = Story::new(&named);
    story.passes(&[FAST]).tell().tell().is("guard_named_members");
    let policy = usual();
    let mut story = Story::new(&policy);
    story.passes(&[]).quietly(2);
    let shown = &story.play.state.as_ref().unwrap().shown;
    for member in [AUTO, FAST, SLOW] {
        assert_eq!(shown[member].verdict, Verdict::Failed, "{member}");
    }
}

#[test]
fn what_is_remembered_of_members_ends_with_them() {
    let policy = usual();
    let mut story = Story::taken_over(&policy);
    let known = |play: &Play<'_>| {
        let state = play.state.as_ref().unwrap();
        [
            state.said.contains_key(SLOW),
            state.shown.contains_key(PICK),
            state.shown.contains_key(FAST),
        ]
    };
    assert_eq!(known(&story.play), [true, false, true]);
    story.play.world.all.retain(|member| member != SLOW);
    story.tell();
    assert_eq!(known(&story.play), [false, false, true]);
}

#[test]
fn what_cannot_be_found_is_told_with_what_to_name() {
    type Change = fn(&mut Outline);
    let several = |named| (seeking(&named), "name group and automatic in the policy");
    let cases: [(Change, (GuardPolicy, &str)); 5] = [
        (|all| all.selectors.clear(), (seeking(&json!({})), "has no selector that holds a group")),
        (
            |all| {
                all.selectors.insert("video".to_owned(), vec![AUTO.to_owned()]);
                all.default_way = None;
            },
            several(json!({})),
        ),
        (
            |all| {
                all.automatic.insert(FAST.to_owned());
            },
            several(json!({ "group": "select" })),
        ),
        (
            |all| {
                all.proxies.clear();
                all.other_proxies = vec!["in asks for a password".to_owned()];
            },
            (seeking(&json!({})), "no proxy on loopback that can be used (in asks for a password)"),
        ),
        (
            |all| all.control = Err("external_controller is not set".to_owned()),
            (seeking(&json!({})), "/etc/core.json: external_controller is not set"),
        ),
    ];
    for (change, (policy, told)) in cases {
        let mut play = Play::new(&policy);
        let mut outline = outline();
        change(&mut outline);
        play.world.outline = Ok(outline);
        let step = play.step();
        assert_eq!(step.codes(), ["core-unusable"]);
        assert!(step.reasons[0].text.contains(told), "{told}: {:?}", step.reasons);
        assert_eq!(play.state, None);
    }
}

#[test]
fn of_several_groups_the_one_that_leads_all_else_is_found() {
    let policy = seeking(&json!({}));
    let mut play = Play::new(&policy);
    let mut outline = outline();
    outline.selectors.insert("video".to_owned(), vec![AUTO.to_owned()]);
    play.world.outline = Ok(outline);
    play.step();
    assert_eq!(play.state.unwrap().names, ["select".to_owned(), AUTO.to_owned()]);
    // But the one that the policy names goes before.
    let policy = seeking(&json!({ "group": "video" }));
    let mut play = Play::new(&policy);
    let mut outline = self::outline();
    outline.selectors.insert("video".to_owned(), vec![AUTO.to_owned()]);
    play.world.outline = Ok(outline);
    "video".clone_into(&mut play.world.group);
    play.step();
    assert_eq!(play.state.unwrap().names, ["video".to_owned(), AUTO.to_owned()]);
}

#[test]
fn control_is_given_back_after_the_group_answered_and_a_trial_passed() {
    let policy = usual();
    let mut story = Story::taken_over(&policy);
    story.play.world.unmeasured.insert(PICK);
    story.tell().is("guard_group_fails");
    story.play.world.unmeasured.clear();
    story.tell().tell();
    story.play.world.unmeasured.insert(PICK);
    story.tell().is("guard_group_fails_again");
    story.play.world.unmeasured.clear();
    story.tell().passes(&[]).tell().is("guard_observed_member_fails");
    story.passes(&[FAST, SLOW]);
    // The core believes in the pick; requests do not pass.
    story.quietly(2).tell().is("guard_trial_fails");
    story.passes(&[PICK, FAST, SLOW]).tell().tell().tell().is("guard_gives_back");
}

#[test]
fn a_group_that_relapses_waits_longer_and_one_that_rules_long_enough_begins_anew() {
    let policy =
        policy(&json!({ "observe_passes": 1, "backoff_min_sec": 60, "give_back_max_sec": 240 }));
    let relapses = |rules: u32| {
        let mut story = Story::taken_over(&policy);
        story.passes(&[PICK, FAST, SLOW]).tell().tell();
        story.quietly(rules).passes(&[FAST, SLOW]).quietly(2);
        assert_eq!(story.play.stands(), "TEMPORARY");
        story.play.world.writes.clear();
        story.passes(&[PICK, FAST, SLOW]).tell().tell().tell().tell();
        story
    };
    relapses(1).is("guard_relapse");
    relapses(9).is("guard_rules_long");
}

#[test]
fn our_own_member_is_replaced_when_it_dies() {
    let policy = usual();
    let mut story = Story::taken_over(&policy);
    story.passes(&[PICK]).tell().tell().is("guard_member_dies_group_passes");
    let mut story = Story::taken_over(&policy);
    story.passes(&[SLOW]).tell().tell().is("guard_member_dies_another_passes");
    let mut story = Story::taken_over(&policy);
    story.passes(&[]).tell().tell().is("guard_member_dies_nobody_passes");
    let mut story = Story::taken_over(&policy);
    story.play.world.unmeasured.extend([PICK, SLOW]);
    story.passes(&[]).tell().tell().tell().is("guard_member_dies_none_measured");
    let mut story = Story::taken_over(&policy);
    story.play.world.all.retain(|member| member != FAST);
    AUTO.clone_into(&mut story.play.world.selected);
    story.tell().is("guard_member_gone");
}

#[test]
fn a_persons_choice_stands_and_the_group_takes_it_back_only_from_a_person() {
    let policy = usual();
    let mut story = Story::taken_over(&policy);
    SLOW.clone_into(&mut story.play.world.selected);
    story.tell().tell().passes(&[]).tell().tell().tell().is("guard_persons_choice");
    AUTO.clone_into(&mut story.play.world.selected);
    story.tell().is("guard_handed_back");
    let mut story = Story::new(&policy);
    story.play.world.write = Write::Overtaken(SLOW);
    story.passes(&[FAST, SLOW]).tell().tell().is("guard_overtaken");
}

#[test]
fn a_person_switches_and_what_does_not_pass_wants_force() {
    let policy = usual();
    for (target, force, passes, name) in [
        (SLOW, false, vec![SLOW], "guard_switch"),
        (SLOW, false, vec![PICK], "guard_switch_refused"),
        (SLOW, true, vec![PICK], "guard_switch_by_force"),
        ("nobody", true, vec![PICK], "guard_switch_to_nobody"),
    ] {
        let mut story = Story::new(&policy);
        story.passes(&passes);
        let step = story.play.switch(target, force).unwrap();
        story.told("AUTO", &step).is(name);
    }
    let mut story = Story::taken_over(&policy);
    let step = story.play.switch(AUTO, false).unwrap();
    story.told("TEMPORARY", &step).is("guard_switch_to_automatic");
    let mut story = Story::taken_over(&policy);
    story.play.paused = true;
    story.passes(&[]).tell().tell().tell().is("guard_paused");
}

#[test]
fn what_the_core_forgot_is_selected_again_and_nothing_is_written_without_it() {
    let policy = usual();
    let mut story = Story::taken_over(&policy);
    story.play.world.core_up = false;
    story.tell();
    story.play.world.core_up = true;
    story.play.world.restart();
    story.tell().tell().tell().is("guard_choice_lost");
    let mut story = Story::taken_over(&policy);
    story.play.world.core_up = false;
    story.tell().play.world.core_up = true;
    story.passes(&[]).tell().tell().is("guard_core_back");
    // Nobody saw it down, and it kept what was selected.
    let mut story = Story::taken_over(&policy);
    story.play.world.keeps = true;
    story.play.world.restart();
    story.passes(&[]).tell().tell().is("guard_restarted");
    let mut story = Story::taken_over(&policy);
    story.play.world.restart();
    story.play.paused = true;
    story.tell().is("guard_choice_lost_paused");
    let mut story = Story::new(&policy);
    story.play.world.wan = false;
    story.tell().tell().tell().is("guard_offline");
    let mut story = Story::new(&policy);
    story.play.world.proxy = false;
    story.tell().tell().tell().is("guard_undetermined");
}

#[test]
fn a_selection_that_is_refused_or_unreadable_is_told() {
    let policy = usual();
    for (write, name) in
        [(Write::Refused, "guard_refused"), (Write::Unreadable, "guard_unreadable")]
    {
        let mut story = Story::new(&policy);
        story.passes(&[FAST, SLOW]).quietly(1);
        story.play.world.write = write;
        story.tell().is(name);
    }
    // By one of them no request passed: that is no refusal of all, and backs off.
    let mut story = Story::new(&policy);
    story.passes(&[]).quietly(1).play.world.write = Write::RefusedOf(SLOW);
    story.tell().tell().tell().is("guard_last_member_refused");
    let mut story = Story::taken_over(&policy);
    story.passes(&[]).quietly(1).play.world.write = Write::Refused;
    story.tell();
    story.play.world.write = Write::Takes;
    story.passes(&[SLOW]).tell().is("guard_refused_to_our_member");
    let mut story = Story::taken_over(&policy);
    story.play.world.restart();
    story.play.world.write = Write::Refused;
    story.tell();
    story.play.world.write = Write::Takes;
    story.tell().is("guard_choice_lost_refused");
}
