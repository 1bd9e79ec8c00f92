//! A proxy core as a driver: the selected member of one of its groups.
//!
//! **Invariant:** what stands in a core is taken for ours only while it is what was last read back.

use super::{Drive, Made, rate};
use crate::clash::choice::{Choice, Confirmed, judge};
use crate::machine::Cut;
use crate::observation::{ConfigReading, CoreReading, CoreSeen, Observation, Question};
use crate::policy::pool::Cut as CutWish;
use crate::policy::selector::{Channel, ClashDriver, SelectorPolicy};
use crate::selector::activity::Measure;
use crate::selector::ask::{self, Look};
use crate::selector::sight::{self, CoreSight, CoreTrouble, Health};
use crate::selector::state::{Chosen, SelectorState};
use crate::selector::turn::Goal;
use crate::setting::{Edit, Setting, Value};
use std::collections::BTreeMap;

/// A proxy core that answers.
pub(in crate::selector) struct ClashDrive<'a> {
    policy: &'a SelectorPolicy,
    driver: &'a ClashDriver,
    seen: &'a Observation,
    /// What was remembered before this run, which says which process to look for.
    before: Option<&'a SelectorState>,
    looks: BTreeMap<u32, &'a CoreReading>,
    /// The last look, with the core's own configuration where any look has it.
    last: CoreSeen,
    now: String,
    all: Vec<String>,
}

impl<'a> ClashDrive<'a> {
    /// The core, as the last look shows it. `None`: it was not looked at yet.
    pub(in crate::selector) fn new(
        policy: &'a SelectorPolicy,
        driver: &'a ClashDriver,
        seen: &'a Observation,
        before: Option<&'a SelectorState>,
    ) -> Result<Option<Self>, CoreTrouble> {
        let looks: BTreeMap<u32, &CoreReading> =
            seen.cores().map(|(question, reading)| (question.turn, reading)).collect();
        let Some((_, last)) = looks.last_key_value() else { return Ok(None) };
        let sight = sight::core(driver, last)?;
        let (now, all) = (sight.now.to_owned(), sight.all.to_vec());
        let mut last = sight.seen.clone();
        let known = looks.values().filter_map(|look| look.core.as_ref().ok());
        if let Some(told) = known.map(|seen| &seen.config).find(|config| is_asked(config)) {
            last.config = told.clone();
        }
        Ok(Some(Self { policy, driver, seen, before, looks, last, now, all }))
    }

    fn look(&self, look: Look) -> Option<Question> {
        let missing = !self.looks.contains_key(&look.turn());
        missing.then(|| ask::core(self.driver, self.before, look))
    }

    fn choice(&self, state: &SelectorState) -> Choice {
        match &state.confirmed {
            Some(confirmed) => judge(confirmed, &self.driver.selector, &self.now, &self.last),
            None => Choice::Persons(self.now.clone()),
        }
    }

    /// What a member is to the policy.
    pub(in crate::selector) fn of(&self, member: &str) -> Chosen {
        let channel = self.driver.channel(member);
        channel.map_or_else(|| Chosen::Third(member.to_owned()), Chosen::Channel)
    }

    /// A member as read back in this run of the core.
    pub(in crate::selector) fn confirmed(&self, member: &str) -> Confirmed {
        Confirmed { member: member.to_owned(), life: self.last.life.clone() }
    }

    fn measure(&self, look: Look, in_use: Channel) -> Option<Measure> {
        let reading = self.looks.get(&look.turn())?;
        let sight: CoreSight<'_> = sight::core(self.driver, reading).ok()?;
        sight.measure(self.driver, reading, in_use)
    }
}

impl Drive for ClashDrive<'_> {
    fn health(&self, channel: Channel, turn: u32) -> Option<Health> {
        sight::health(self.seen, channel, turn)
    }

    fn look_after(&self) -> Option<Question> {
        self.look(Look::After)
    }

    fn look_closer(&self, known: Option<&SelectorState>) -> Option<Question> {
        // Only the core's own configuration tells whose choice it is.
        let unclear = known.is_some_and(|state| self.choice(state) == Choice::Unclear);
        unclear.then(|| ask::core(self.driver, self.before, Look::Config))
    }

    fn chosen(&self) -> Chosen {
        self.of(&self.now)
    }

    fn choose(&self, target: &str) -> Result<Chosen, &'static str> {
        let is_member = self.all.iter().any(|member| member == target);
        if is_member { Ok(self.of(target)) } else { Err("it is no member of the group") }
    }

    fn persons_choice(&self, state: &SelectorState) -> Option<Chosen> {
        match self.choice(state) {
            Choice::Persons(member) => Some(self.of(&member)),
            Choice::Ours | Choice::Lost | Choice::Unclear => None,
        }
    }

    fn lost_choice(&self, state: &SelectorState) -> Option<String> {
        match self.choice(state) {
            Choice::Lost => state.confirmed.as_ref().map(|confirmed| confirmed.member.clone()),
            Choice::Ours | Choice::Persons(_) | Choice::Unclear => None,
        }
    }

    fn confirm(&self, state: &mut SelectorState) {
        let before = state.confirmed.replace(self.confirmed(&self.now));
        // A core that began anew only settles first.
        if before.is_some_and(|before| before.life.ended_before(&self.last.life)) {
            state.settle = true;
        }
    }

    fn target(&self, channel: Channel) -> String {
        self.driver.member(channel).member.clone()
    }

    fn requests(&self) -> usize {
        // Whatever goes through the core counts in its totals.
        self.policy.probe.urls.len().saturating_mul(Channel::ALL.len())
    }

    fn measures(&self, state: &SelectorState) -> Option<(Measure, Measure)> {
        let in_use = state.mode.channel();
        let before = self.measure(Look::First, in_use)?;
        let after = self.measure(Look::After, in_use).unwrap_or_else(|| before.clone());
        Some((before, after))
    }

    fn last_sample(&self, state: &SelectorState) -> Option<u64> {
        let in_use = state.mode.channel();
        let from = self.measure(Look::SampleFrom, in_use)?;
        rate(&from, &self.measure(Look::SampleTo, in_use)?)
    }

    fn next_sample(&self, _: &SelectorState) -> Option<Vec<Question>> {
        ask::next_sample(self.seen, |look| self.look(look))
    }

    fn make(&self, state: &mut SelectorState, goal: Option<&Goal>) -> Made {
        let Some(goal) = goal else { return Made::default() };
        state.confirmed = Some(self.confirmed(&goal.target));
        let mut made = Made::default();
        if goal.target != self.now {
            let member = |name: &str| Value::Member(name.to_owned());
            let edit = Edit { expected: member(&self.now), to: member(&goal.target) };
            let group = self.driver.selector.clone();
            made.settings.insert(Setting::Selected { core: self.driver.core.clone(), group }, edit);
        }
        made.cuts = match (self.driver.cut, goal.dead) {
            (CutWish::Dead, Some(dead)) => vec![Cut::Through {
                core: self.driver.core.clone(),
                names: vec![self.driver.selector.clone(), self.target(dead)],
            }],
            (CutWish::Dead, None) | (CutWish::None, _) => Vec::new(),
        };
        made
    }

    fn standing(&self, _: &SelectorState) -> Option<crate::kernel::World> {
        None
    }
}

fn is_asked(config: &ConfigReading) -> bool {
    match config {
        ConfigReading::Unasked => false,
        ConfigReading::Unread(_) | ConfigReading::Read(_) => true,
    }
}
