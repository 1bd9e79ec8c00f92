//! What a selector's driver shows and can be told.
//!
//! **Invariant:** what stands in a core is taken for ours only while it is what was last read back.

use super::activity::Measure;
use super::ask::{self, Look};
use super::sight::{self, CoreSight, CoreTrouble};
use super::state::{Chosen, SelectorState};
use super::turn::Goal;
use crate::clash::choice::{Choice, Confirmed, judge};
use crate::machine::Cut;
use crate::observation::{ConfigReading, CoreReading, CoreSeen, Observation, Question};
use crate::policy::pool::Cut as CutWish;
use crate::policy::selector::{Channel, ClashDriver};
use crate::setting::{Edit, Setting, Value};
use std::collections::BTreeMap;

/// A proxy core that answers.
pub(super) struct Drive<'a> {
    driver: &'a ClashDriver,
    looks: BTreeMap<u32, &'a CoreReading>,
    /// The last look, with the core's own configuration where any look has it.
    last: CoreSeen,
    now: String,
    all: Vec<String>,
}

impl<'a> Drive<'a> {
    /// The core, as the last look shows it.
    pub(super) fn new(
        driver: &'a ClashDriver,
        seen: &'a Observation,
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
        Ok(Some(Self { driver, looks, last, now, all }))
    }

    /// Whether the core was looked at so.
    pub(super) fn has(&self, look: Look) -> bool {
        self.looks.contains_key(&look.turn())
    }

    /// Whether only the core's own configuration tells whose choice it is.
    pub(super) fn is_unclear(&self, state: Option<&SelectorState>) -> bool {
        state.is_some_and(|state| self.choice(state) == Choice::Unclear)
    }

    fn choice(&self, state: &SelectorState) -> Choice {
        match &state.confirmed {
            Some(confirmed) => judge(confirmed, &self.driver.selector, &self.now, &self.last),
            None => Choice::Persons(self.now.clone()),
        }
    }

    /// What is selected.
    pub(super) fn chosen(&self) -> Chosen {
        self.of(&self.now)
    }

    /// What a member is to the policy.
    pub(super) fn of(&self, member: &str) -> Chosen {
        let channel = self.driver.channel(member);
        channel.map_or_else(|| Chosen::Third(member.to_owned()), Chosen::Channel)
    }

    /// What a person wants of a target; `None`: it cannot be chosen.
    pub(super) fn choose(&self, target: &str) -> Option<Chosen> {
        self.all.iter().any(|member| member == target).then(|| self.of(target))
    }

    /// What somebody has chosen since.
    pub(super) fn persons_choice(&self, state: &SelectorState) -> Option<Chosen> {
        match self.choice(state) {
            Choice::Persons(member) => Some(self.of(&member)),
            Choice::Ours | Choice::Lost | Choice::Unclear => None,
        }
    }

    /// Our choice, when the core has forgotten it.
    pub(super) fn lost_choice(&self, state: &SelectorState) -> Option<String> {
        match self.choice(state) {
            Choice::Lost => state.confirmed.as_ref().map(|confirmed| confirmed.member.clone()),
            Choice::Ours | Choice::Persons(_) | Choice::Unclear => None,
        }
    }

    /// Remembers what stands there as read back. A core that began anew only settles first.
    pub(super) fn confirm(&self, state: &mut SelectorState) {
        let before = state.confirmed.replace(self.confirmed(&self.now));
        if before.is_some_and(|before| before.life.ended_before(&self.last.life)) {
            state.settle = true;
        }
    }

    /// A member as read back in this run of the core.
    pub(super) fn confirmed(&self, member: &str) -> Confirmed {
        Confirmed { member: member.to_owned(), life: self.last.life.clone() }
    }

    /// The target that a channel is.
    pub(super) fn target(&self, channel: Channel) -> String {
        self.driver.member(channel).member.clone()
    }

    fn measure(&self, look: Look, in_use: Channel) -> Option<Measure> {
        let reading = self.looks.get(&look.turn())?;
        let sight: CoreSight<'_> = sight::core(self.driver, reading).ok()?;
        sight.measure(self.driver, reading, in_use)
    }

    /// What was received before and after the channels were asked.
    pub(super) fn measures(&self, in_use: Channel) -> Option<(Measure, Measure)> {
        let before = self.measure(Look::First, in_use)?;
        let after = self.measure(Look::After, in_use).unwrap_or_else(|| before.clone());
        Some((before, after))
    }

    /// Bytes in a second between the two samples right before a switch.
    pub(super) fn last_sample(&self, in_use: Channel) -> Option<u64> {
        let (from, to) =
            (self.measure(Look::SampleFrom, in_use)?, self.measure(Look::SampleTo, in_use)?);
        let span_ms = u64::try_from(to.at.since(&from.at).as_millis()).ok()?;
        to.since(&from)?.saturating_mul(1_000).checked_div(span_ms)
    }

    /// What is still to be asked for those two samples.
    pub(super) fn next_sample(
        &self,
        seen: &Observation,
        state: &SelectorState,
    ) -> Option<Vec<Question>> {
        let look = |look| vec![ask::core(self.driver, Some(state), look)];
        if !self.has(Look::SampleFrom) {
            Some(look(Look::SampleFrom))
        } else if !ask::has_waited(seen) {
            Some(vec![ask::sample_wait()])
        } else if !self.has(Look::SampleTo) {
            Some(look(Look::SampleTo))
        } else {
            None
        }
    }

    /// The write that a goal is, and the connections that it ends.
    pub(super) fn write(&self, goal: &Goal) -> (BTreeMap<Setting, Edit>, Vec<Cut>) {
        let mut settings = BTreeMap::new();
        if goal.target != self.now {
            let member = |name: &str| Value::Member(name.to_owned());
            let edit = Edit { expected: member(&self.now), to: member(&goal.target) };
            settings.insert(setting(self.driver), edit);
        }
        let cut = match (self.driver.cut, goal.dead) {
            (CutWish::Dead, Some(dead)) => Some(Cut::Through {
                core: self.driver.core.clone(),
                names: vec![self.driver.selector.clone(), self.target(dead)],
            }),
            (CutWish::Dead, None) | (CutWish::None, _) => None,
        };
        (settings, cut.into_iter().collect())
    }
}

/// The group's selection.
pub(super) fn setting(driver: &ClashDriver) -> Setting {
    Setting::Selected { core: driver.core.clone(), group: driver.selector.clone() }
}

fn is_asked(config: &ConfigReading) -> bool {
    match config {
        ConfigReading::Unasked => false,
        ConfigReading::Unread(_) | ConfigReading::Read(_) => true,
    }
}
