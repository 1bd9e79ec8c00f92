//! A default route as a driver: two uplinks, and the kernel between them.
//!
//! **Invariant:** a channel is judged only where its own way stands in the kernel; what is missing
//! there is put back by the same step and says nothing of the channel.

use super::{Drive, Made, rate};
use crate::kernel::World;
use crate::machine::{Cut, Subject};
use crate::observation::{CarriedReading, KernelReading, Life, Observation, Question};
use crate::policy::pool::Cut as CutWish;
use crate::policy::selector::{Channel, RouteDriver, SelectorPolicy};
use crate::selector::Selector;
use crate::selector::activity::Measure;
use crate::selector::ask::{self, Look};
use crate::selector::layout::{self, Line, Ways};
use crate::selector::sight::{self, Health};
use crate::selector::state::{Chosen, SelectorState, Verdict};
use crate::selector::turn::Goal;
use std::collections::BTreeMap;

/// The kernel, with two uplinks.
pub(in crate::selector) struct RouteDrive<'a> {
    policy: &'a SelectorPolicy,
    driver: &'a RouteDriver,
    seen: &'a Observation,
    kernel: &'a KernelReading,
    ways: Ways<'a>,
    looks: BTreeMap<u32, &'a CarriedReading>,
}

impl<'a> RouteDrive<'a> {
    /// The kernel as it was seen. `None`: it was not looked at yet.
    pub(in crate::selector) fn new(
        subject: &Subject<'a, Selector>,
        driver: &'a RouteDriver,
        seen: &'a Observation,
    ) -> Option<Self> {
        let kernel = seen.kernel()?;
        let ways = Ways::new(subject.name, driver, kernel, subject.owned);
        let looks = seen.carried().collect();
        Some(Self { policy: subject.policy, driver, seen, kernel, ways, looks })
    }

    /// A default route of somebody else that goes before ours, or that ours would replace.
    pub(in crate::selector) fn in_the_way(&self) -> Option<String> {
        let foreign = self.kernel.foreign.iter();
        let found = foreign.into_iter().find(|route| layout::is_before(self.driver, route))?;
        let dev = found.dev.as_ref().map(|dev| format!(" dev {dev}")).unwrap_or_default();
        let via = found.via.map(|via| format!(" via {via}")).unwrap_or_default();
        Some(format!(
            "table {} has a default route of somebody else,{via}{dev} with metric {}, which goes before ours with metric {}: give it a larger metric, or set driver.route.metric",
            self.driver.table,
            found.metric.unwrap_or(0),
            self.driver.metric
        ))
    }

    fn is_up(&self, channel: Channel) -> bool {
        self.ways.line(channel) == Line::Up
    }

    fn look(&self, look: Look) -> Option<Question> {
        let missing = !self.looks.contains_key(&look.turn());
        missing.then(|| ask::carried(self.driver, look))
    }

    fn measure(&self, look: Look, state: &SelectorState) -> Option<Measure> {
        let reading = self.looks.get(&look.turn())?;
        let device = &self.driver.uplink(state.mode.channel()).interface;
        // By a device that is not there nothing is received.
        let before = || state.activity.base.as_ref().map_or(0, |base| base.received);
        Some(Measure {
            at: reading.at.clone(),
            life: Life::default(),
            received: reading.received.get(device).copied().unwrap_or_else(before),
            elsewhere: BTreeMap::new(),
        })
    }
}

impl Drive for RouteDrive<'_> {
    fn health(&self, channel: Channel, turn: u32) -> Option<Health> {
        let no = |verdict, why: String| Some(Health { verdict, why, latency_ms: None });
        match self.ways.line(channel) {
            Line::Down(why) => no(Verdict::Unhealthy, why),
            Line::Up if !self.ways.stands(channel) => {
                no(Verdict::Unknown, "its own routes were not in place".to_owned())
            }
            Line::Up => sight::health(self.seen, channel, turn),
        }
    }

    fn look_after(&self) -> Option<Question> {
        self.look(Look::After)
    }

    fn look_closer(&self, _: Option<&SelectorState>) -> Option<Question> {
        None
    }

    fn chosen(&self) -> Chosen {
        Chosen::Channel(self.ways.chosen().unwrap_or(Channel::Primary))
    }

    fn choose(&self, target: &str) -> Result<Chosen, &'static str> {
        let is_it = |channel: &Channel| self.driver.uplink(*channel).interface.as_str() == target;
        let channel = Channel::ALL.into_iter().find(is_it);
        channel
            .map(Chosen::Channel)
            .ok_or("it is neither the primary's interface nor the reserve's")
    }

    fn persons_choice(&self, _: &SelectorState) -> Option<Chosen> {
        // The route is ours: another one in its place is drift.
        None
    }

    fn lost_choice(&self, _: &SelectorState) -> Option<String> {
        None
    }

    fn confirm(&self, state: &mut SelectorState) {
        state.confirmed = None;
    }

    fn target(&self, channel: Channel) -> String {
        self.driver.uplink(channel).interface.to_string()
    }

    fn requests(&self) -> usize {
        // The uplink's references may be asked by the channel in use.
        let wan = self.policy.wan.as_ref().map_or(0, |wan| wan.urls.len());
        self.policy.probe.urls.len().saturating_add(wan)
    }

    fn measures(&self, state: &SelectorState) -> Option<(Measure, Measure)> {
        let before = self.measure(Look::First, state)?;
        let after = self.measure(Look::After, state).unwrap_or_else(|| before.clone());
        Some((before, after))
    }

    fn last_sample(&self, state: &SelectorState) -> Option<u64> {
        let from = self.measure(Look::SampleFrom, state)?;
        rate(&from, &self.measure(Look::SampleTo, state)?)
    }

    fn next_sample(&self, state: &SelectorState) -> Option<Vec<Question>> {
        if !self.is_up(state.mode.channel()) {
            return None;
        }
        ask::next_sample(self.seen, |look| self.look(look))
    }

    fn make(&self, state: &mut SelectorState, goal: Option<&Goal>) -> Made {
        let dead = goal.and_then(|goal| goal.dead);
        let cuts = match (self.driver.cut, dead) {
            (CutWish::Dead, Some(dead)) => {
                self.driver.flow_marks(dead).into_iter().map(Cut::Marked).collect()
            }
            (CutWish::Dead, None) | (CutWish::None, _) => Vec::new(),
        };
        Made { world: self.world(state), cuts, ..Made::default() }
    }

    fn standing(&self, state: &SelectorState) -> Option<World> {
        Some(self.world(state))
    }
}

impl RouteDrive<'_> {
    fn world(&self, state: &SelectorState) -> World {
        // A third choice is a proxy core's alone.
        let chosen = match &state.chosen {
            Chosen::Channel(channel) => *channel,
            Chosen::Third(_) => Channel::Primary,
        };
        self.ways.world(chosen)
    }
}
