//! One step of a selector: what was seen is counted, then the first row that applies is taken.
//!
//! **Invariant:** a switch is wished only in a check that counts, to a channel that is healthy in
//! it and was asked again right before.

use super::activity::{Limits, Quiet};
use super::ask;
use super::drive::Drive;
use super::reason::Reason;
use super::sight::{self, Health};
use super::state::{Chosen, Mode, SelectorState, Verdict};
use crate::observation::{Observation, Question};
use crate::policy::SelectorPolicy;
use crate::policy::selector::{Channel, Params};
use crate::time::Moment;
use std::time::Duration;

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
    pub(super) drive: &'a Drive<'a>,
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

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl<'a> Turn<'a> {
    pub(super) fn new(
        policy: &'a SelectorPolicy,
        seen: &'a Observation,
        drive: &'a Drive<'a>,
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
            let health = sight::health(self.seen, channel, 0).unwrap_or_else(|| Health {
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
        let requests = 2 * u64::try_from(self.policy.probe.urls.len()).unwrap_or(u64::MAX);
        match self.drive.measures(self.state.mode.channel()) {
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
        let Some(chosen) = self.drive.choose(target) else {
            return self.say(refused("it is no member of the group"));
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

    /// Counts the check.
    fn count(&mut self) {
        // A check is made when it begins: how long it is asked again afterwards is no gap.
        let now = self.seen.started.clone();
        let interval = self.params().interval();
        let settles = std::mem::take(&mut self.state.settle);
        let none = Channel::ALL.into_iter().all(|channel| !self.is_healthy(channel));
        self.counts = !settles && !none;
        if settles {
            self.say(Reason::Settling);
        }
        let since = self.state.checked_at.replace(now.clone()).map(|before| now.since(&before));
        if self.counts {
            let more = since.map_or(0, |since| ms(since.min(interval)));
            for (channel, needed) in [(Channel::Primary, 2), (Channel::Reserve, 1)] {
                let other_is_well = self.is_healthy(channel.other());
                let known = self.state.channel_mut(channel);
                match known.verdict {
                    Verdict::Healthy => {
                        known.healthy_row = known.healthy_row.saturating_add(1).min(needed);
                        if known.healthy_row >= needed {
                            known.failing_ms = None;
                            known.held_since = None;
                        }
                    }
                    Verdict::Unhealthy => {
                        known.healthy_row = 0;
                        if other_is_well {
                            known.failing_ms =
                                Some(known.failing_ms.map_or(0, |ms| ms.saturating_add(more)));
                        }
                    }
                    Verdict::Unknown => {}
                }
            }
        }
        let gap = since.is_none_or(|since| since > interval * 3);
        if !self.counts || !self.is_healthy(Channel::Primary) {
            self.state.recovery_since = None;
        } else if gap || self.state.recovery_since.is_none() {
            self.state.recovery_since = Some(now.clone());
        }
        let window = Duration::from_secs(self.params().flap_window_sec);
        self.state.failovers.retain(|moved| now.since(moved) < window);
        self.state.waits = false;
    }

    /// The quarantine's end, while it runs.
    fn quarantined_until(&self) -> Option<Moment> {
        let quarantine = Duration::from_secs(self.params().quarantine_sec);
        let began = self.state.quarantined_at.as_ref()?;
        (self.now.since(began) < quarantine).then(|| began.after(quarantine))
    }

    fn failure_window(&self) -> Duration {
        Duration::from_secs(self.params().failure_window_sec)
    }

    fn is_ripe(&self, channel: Channel) -> bool {
        self.state.channel(channel).is_ripe(self.failure_window())
    }

    /// The rows, in the order in which they apply.
    fn rows(&mut self) {
        if self.quarantined_until().is_none() && self.state.mode != Mode::PrimaryQuarantined {
            self.state.quarantined_at = None;
        }
        match self.state.mode {
            Mode::OnPrimary => self.on_primary(),
            Mode::PrimaryFailing => self.primary_failing(),
            Mode::OnReserve | Mode::PrimaryRecovering | Mode::PrimaryQuarantined => {
                self.on_reserve();
            }
        }
    }

    fn on_primary(&mut self) {
        if self.counts && self.verdict(Channel::Primary) == Verdict::Unhealthy {
            self.enter(Mode::PrimaryFailing);
            return self.failing(Channel::Primary);
        }
        self.undetermined();
        if self.is_none_healthy() {
            self.say(Reason::NoneHealthy);
        } else if self.verdict(Channel::Reserve) == Verdict::Unhealthy {
            self.failing(Channel::Reserve);
        } else if self.reasons.is_empty() {
            self.say(Reason::AllWell);
        }
    }

    fn is_none_healthy(&self) -> bool {
        Channel::ALL.into_iter().all(|channel| !self.is_healthy(channel))
    }

    fn failing(&mut self, channel: Channel) {
        let known = self.state.channel(channel);
        let why = if known.verdict == Verdict::Healthy { "it answered now" } else { &known.why };
        let reason = Reason::Failing {
            channel,
            why: why.to_owned(),
            failing: Duration::from_millis(known.failing_ms.unwrap_or(0)),
            window: self.failure_window(),
        };
        self.say(reason);
    }

    fn primary_failing(&mut self) {
        if self.state.primary.failing_ms.is_none() {
            self.say(Reason::FalseAlarm);
            return self.enter(Mode::OnPrimary);
        }
        if !self.is_ripe(Channel::Primary) {
            return match self.verdict(Channel::Primary) {
                Verdict::Unhealthy if self.is_none_healthy() => self.say(Reason::NoneHealthy),
                Verdict::Unhealthy | Verdict::Healthy => self.failing(Channel::Primary),
                Verdict::Unknown => self.undetermined(),
            };
        }
        match self.verdict(Channel::Reserve) {
            Verdict::Unhealthy => self.say(Reason::BothUnhealthy),
            Verdict::Unknown => {
                let why = self.why(Channel::Reserve);
                self.say(Reason::ReserveUnknown { why });
            }
            // The check that settles says so itself.
            Verdict::Healthy if !self.counts => {}
            Verdict::Healthy => {
                if self.urgent(Channel::Primary) {
                    self.fail_over();
                }
            }
        }
    }

    fn fail_over(&mut self) {
        let until = self.quarantined_until();
        self.state.failovers.push(self.now.clone());
        let failovers = self.state.failovers.len();
        self.say(Reason::FailedOver { why: self.why(Channel::Primary) });
        if failovers >= self.params().flap_limit || until.is_some() {
            let quarantine = Duration::from_secs(self.params().quarantine_sec);
            self.state.quarantined_at = Some(self.now.clone());
            let until = self.now.after(quarantine).at;
            self.say(Reason::Quarantined { failovers, until });
            self.enter(Mode::PrimaryQuarantined);
        } else {
            self.enter(Mode::OnReserve);
        }
        self.state.stay_since = Some(self.now.clone());
        self.go(Channel::Reserve, Some(Channel::Primary));
    }

    fn on_reserve(&mut self) {
        // It goes before the rest: whoever is on a dead reserve waits for no window.
        if self.is_ripe(Channel::Reserve) && self.is_healthy(Channel::Primary) && self.counts {
            if self.urgent(Channel::Reserve) {
                self.say(Reason::ReserveFailed { why: self.why(Channel::Reserve) });
                self.enter(Mode::OnPrimary);
                return self.go(Channel::Primary, Some(Channel::Reserve));
            }
            if !self.asks.is_empty() {
                return;
            }
        } else if self.verdict(Channel::Reserve) == Verdict::Unhealthy {
            if self.is_none_healthy() {
                self.say(Reason::NoneHealthy);
            } else {
                self.failing(Channel::Reserve);
            }
        }
        let answers = self.counts && self.is_healthy(Channel::Primary);
        match self.state.mode {
            Mode::OnReserve if answers => {
                self.say(Reason::PrimaryAnswers);
                self.enter(Mode::PrimaryRecovering);
            }
            Mode::PrimaryRecovering if !answers => {
                self.say(Reason::PrimaryUnsteady);
                self.enter(Mode::OnReserve);
            }
            Mode::PrimaryRecovering => self.primary_recovering(),
            Mode::PrimaryQuarantined => {
                if let Some(until) = self.quarantined_until() {
                    return self.say(Reason::QuarantineRuns { until: until.at });
                }
                self.say(Reason::QuarantineOver);
                self.state.quarantined_at = None;
                self.enter(if answers { Mode::PrimaryRecovering } else { Mode::OnReserve });
            }
            Mode::OnReserve | Mode::OnPrimary | Mode::PrimaryFailing => self.undetermined(),
        }
    }

    fn primary_recovering(&mut self) {
        let elapsed = |since: &Option<Moment>| {
            since.as_ref().map_or(Duration::ZERO, |since| self.now.since(since))
        };
        let healthy = elapsed(&self.state.recovery_since);
        let window = Duration::from_secs(self.params().recovery_window_sec);
        let stay = Duration::from_secs(self.params().minimum_reserve_sec);
        let stay_left = stay.saturating_sub(elapsed(&self.state.stay_since));
        if healthy < window || !stay_left.is_zero() {
            return self.say(Reason::Recovering { healthy, window, stay_left });
        }
        match self.quiet() {
            Quiet::Yes => {
                if self.still_so(Channel::Reserve, Verdict::Healthy, false) {
                    self.say(Reason::PrimaryRecovered);
                    self.enter(Mode::OnPrimary);
                    self.go(Channel::Primary, None);
                }
            }
            quiet @ (Quiet::Active { .. } | Quiet::Unknown) => {
                self.say(waiting(quiet, None, None));
            }
        }
    }

    /// Whether it was quiet for the window, by the samples of all steps and those of this one.
    fn quiet(&self) -> Quiet {
        if !self.params().traffic_guard {
            return Quiet::Yes;
        }
        let window = Duration::from_secs(self.params().quiet_window_sec);
        let limits = self.limits();
        match self.state.activity.quiet_for(window, limits) {
            Quiet::Yes => match self.drive.last_sample(self.state.mode.channel()) {
                Some(rate) if rate >= limits.active_bytes_per_sec => Quiet::Active { rate },
                Some(_) | None => Quiet::Yes,
            },
            quiet @ (Quiet::Active { .. } | Quiet::Unknown) => quiet,
        }
    }

    /// Whether `dead` is left now: after a quiet time, or when it was waited for long enough, and
    /// when both were asked again.
    fn urgent(&mut self, dead: Channel) -> bool {
        let limit = self.params().guard_max_hold_sec.map(Duration::from_secs);
        let since = self.state.channel(dead).held_since.clone();
        let spent = limit.is_some_and(|limit| {
            since.as_ref().is_some_and(|since| self.now.since(since) >= limit)
        });
        let quiet = self.quiet();
        if spent || quiet == Quiet::Yes {
            return self.still_so(dead, Verdict::Unhealthy, spent);
        }
        let began = since.unwrap_or_else(|| self.now.clone());
        let until = limit.map(|limit| began.after(limit).at);
        self.say(waiting(quiet, Some(began.at), until));
        self.state.channel_mut(dead).held_since = Some(began);
        self.state.waits = true;
        // What was waited for is remembered, whatever becomes of the rest.
        self.counted = self.state.clone();
        false
    }

    /// Asks both channels again, and whether anything flows, right before a switch away from
    /// `left`. False as long as that is not known, and when it is not so any more.
    fn still_so(&mut self, left: Channel, of_it: Verdict, spent: bool) -> bool {
        let again = Channel::ALL.map(|channel| sight::health(self.seen, channel, 1));
        let [Some(primary), Some(reserve)] = again else {
            if self.manner.may_ask {
                let ask = |channel| ask::channel(self.policy, &self.state, channel, 1);
                self.asks = Channel::ALL.map(ask).into();
            } else {
                self.say(Reason::NoTime);
            }
            return false;
        };
        let (of_left, of_other) = match left {
            Channel::Primary => (primary.verdict, reserve.verdict),
            Channel::Reserve => (reserve.verdict, primary.verdict),
        };
        // Whether the reserve still answers has no say in a return to the primary.
        let is_left = of_it == Verdict::Healthy || of_left == of_it;
        if !is_left || of_other != Verdict::Healthy {
            self.say(Reason::NotSoAnyMore);
            return false;
        }
        if !self.params().traffic_guard || spent {
            return true;
        }
        if let Some(questions) = self.drive.next_sample(self.seen, &self.state) {
            if self.manner.may_ask {
                self.asks = questions;
            } else {
                self.say(Reason::NoTime);
            }
            return false;
        }
        true
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

fn waiting(quiet: Quiet, since: Option<jiff::Timestamp>, until: Option<jiff::Timestamp>) -> Reason {
    let rate = match quiet {
        Quiet::Active { rate } => Some(rate),
        Quiet::Yes | Quiet::Unknown => None,
    };
    Reason::Waiting { rate, since, until }
}
