//! One step of a selector: what was seen is counted, then the first row that applies is taken.
//!
//! `count` counts, `rows` is the table, `guard` says when a switch that is due is made.
//!
//! **Invariant:** a switch is wished only in a check that counts, to a channel that is healthy in
//! it and was asked again right before.

mod count;
mod guard;
mod rows;

use super::activity::Limits;
use super::drive::Drive;
use super::reason::Reason;
use super::sight::Health;
use super::state::{Chosen, Mode, SelectorState, Verdict};
use crate::observation::{Observation, Question};
use crate::policy::SelectorPolicy;
use crate::policy::selector::{Channel, Params};
use crate::time::Moment;

/// A switch that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Goal {
    /// The member or interface.
    pub(super) target: String,
    /// The channel that is left because it is dead, whose connections may be closed.
    pub(super) dead: Option<Channel>,
}

/// What a step may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// A person has paused it: nothing is counted or written.
    pub(super) paused: bool,
    /// There is time to ask more.
    pub(super) may_ask: bool,
}

/// A step in the making.
pub(super) struct Turn<'a> {
    pub(super) policy: &'a SelectorPolicy,
    pub(super) seen: &'a Observation,
    pub(super) drive: &'a dyn Drive,
    pub(super) now: &'a Moment,
    pub(super) manner: Manner,
    /// What was remembered, with what this check has taught: for when nothing comes of the rest.
    pub(super) counted: SelectorState,
    pub(super) state: SelectorState,
    pub(super) reasons: Vec<Reason>,
    pub(super) asks: Vec<Question>,
    pub(super) goal: Option<Goal>,
    /// Whether somebody chose elsewhere.
    pub(super) pauses: bool,
    counts: bool,
}

impl<'a> Turn<'a> {
    pub(super) fn new(
        policy: &'a SelectorPolicy,
        seen: &'a Observation,
        drive: &'a dyn Drive,
        state: SelectorState,
        now: &'a Moment,
        manner: Manner,
    ) -> Self {
        Self {
            policy,
            seen,
            drive,
            now,
            manner,
            counted: state.clone(),
            state,
            reasons: Vec::new(),
            asks: Vec::new(),
            goal: None,
            pauses: false,
            counts: false,
        }
    }

    pub(super) fn say(&mut self, reason: Reason) {
        self.reasons.push(reason);
    }

    fn params(&self) -> &'a Params {
        &self.policy.params
    }

    fn limits(&self) -> Limits {
        Limits {
            active_bytes_per_sec: self.params().active_bytes_per_sec,
            longest: self.params().interval() * 2,
        }
    }

    fn verdict(&self, channel: Channel) -> Verdict {
        self.state.channel(channel).verdict
    }

    fn is_healthy(&self, channel: Channel) -> bool {
        self.verdict(channel) == Verdict::Healthy
    }

    fn why(&self, channel: Channel) -> String {
        self.state.channel(channel).why.clone()
    }

    fn enter(&mut self, mode: Mode) {
        if self.state.mode != mode {
            self.state.mode = mode;
            self.state.since = self.now.clone();
        }
    }

    /// A first run, or one with other channels than before: what stands there is where we are.
    pub(super) fn begin(&mut self) {
        self.look();
        self.sample();
        self.drive.confirm(&mut self.state);
        self.state.checked_at = Some(self.seen.started.clone());
        self.counted = self.state.clone();
        let chosen = self.state.chosen.clone();
        self.pauses = match &chosen {
            Chosen::Channel(_) => false,
            Chosen::Third(_) => true,
        };
        self.say(Reason::Found { chosen });
        self.undetermined();
        if let Some(wish) = self.state.wish.clone() {
            self.switch(&wish.target, wish.force);
        }
    }

    /// All of it, the uplink being up.
    pub(super) fn run(&mut self) {
        self.look();
        self.sample();
        self.counted = self.state.clone();
        if !self.choice() {
            return;
        }
        if self.manner.paused {
            return self.undetermined();
        }
        if let Some(wish) = self.state.wish.clone() {
            return self.switch(&wish.target, wish.force);
        }
        self.count();
        self.counted = self.state.clone();
        self.rows();
    }

    /// Takes the verdicts of both channels down.
    fn look(&mut self) {
        for channel in Channel::ALL {
            let health = self.drive.health(channel, 0).unwrap_or_else(|| Health {
                verdict: Verdict::Unknown,
                why: "there was no time to ask".to_owned(),
                latency_ms: None,
            });
            let now = self.now.clone();
            let known = self.state.channel_mut(channel);
            if known.verdict != health.verdict {
                known.since = now;
            }
            known.verdict = health.verdict;
            known.why = health.why;
            known.latency_ms = health.latency_ms.or(known.latency_ms);
        }
    }

    /// Measures what flowed on the channel in use.
    fn sample(&mut self) {
        let limits = self.limits();
        let requests = u64::try_from(self.drive.requests()).unwrap_or(u64::MAX);
        match self.drive.measures(&self.state) {
            Some((before, after)) => {
                self.state.activity.sample(&before, &after.bounded(), requests, limits);
            }
            None => self.state.activity.restart(),
        }
    }

    /// Looks whose choice stands there. False: that is this step.
    fn choice(&mut self) -> bool {
        if self.state.wish.is_some() {
            // What a person says now goes before what stands there.
            return true;
        }
        if let Some(chosen) = self.drive.persons_choice(&self.state) {
            self.take_over(&chosen);
            return false;
        }
        let Some(member) = self.drive.lost_choice(&self.state) else {
            self.drive.confirm(&mut self.state);
            self.counted = self.state.clone();
            return true;
        };
        self.state.recovery_since = None;
        self.counted = self.state.clone();
        let waits = |why: &str| Reason::ChoiceLostWaits { member: member.clone(), why: why.into() };
        let is_well = match &self.state.chosen {
            Chosen::Channel(channel) => self.is_healthy(*channel),
            // A person's third member, chosen by `switch`, is under a pause.
            Chosen::Third(_) => false,
        };
        if self.manner.paused {
            self.say(waits("the policy is paused"));
        } else if is_well {
            self.say(Reason::ChoiceLost { member: member.clone() });
            self.state.activity.restart();
            self.state.settle = true;
            self.count();
            self.counted = self.state.clone();
            self.goal = Some(Goal { target: member, dead: None });
            return false;
        } else {
            self.say(waits("it does not answer"));
        }
        true
    }

    /// Somebody has chosen: nothing is switched until `resume`.
    fn take_over(&mut self, chosen: &Chosen) {
        self.state.take_over(chosen, self.now);
        self.drive.confirm(&mut self.state);
        self.counted = self.state.clone();
        self.pauses = true;
        self.say(Reason::PersonsChoice { chosen: chosen.clone() });
    }

    /// A person's `switch`.
    fn switch(&mut self, target: &str, force: bool) {
        let refused = |why: &str| Reason::SwitchRefused { target: target.into(), why: why.into() };
        let chosen = match self.drive.choose(target) {
            Ok(chosen) => chosen,
            Err(why) => return self.say(refused(why)),
        };
        let is_well = match &chosen {
            Chosen::Channel(channel) => self.is_healthy(*channel),
            Chosen::Third(_) => false,
        };
        if !is_well && !force {
            return self
                .say(refused("it does not answer now; say --force to choose it all the same"));
        }
        self.state.wish = None;
        self.counted.wish = None;
        if chosen == Chosen::Channel(Channel::Primary) {
            self.state.quarantined_at = None;
        }
        self.state.take_over(&chosen, self.now);
        self.say(Reason::Switched { target: target.to_owned() });
        self.goal = Some(Goal { target: target.to_owned(), dead: None });
    }

    /// Says which channels nothing can be said of.
    fn undetermined(&mut self) {
        for channel in Channel::ALL {
            if self.verdict(channel) == Verdict::Unknown {
                self.say(Reason::Undetermined { channel, why: self.why(channel) });
            }
        }
    }

    /// New connections take `channel` from now on.
    fn go(&mut self, channel: Channel, dead: Option<Channel>) {
        self.state.chosen = Chosen::Channel(channel);
        for channel in Channel::ALL {
            let channel = self.state.channel_mut(channel);
            channel.failing_ms = None;
            channel.held_since = None;
        }
        self.state.activity.restart();
        self.goal = Some(Goal { target: self.drive.target(channel), dead });
    }
}
