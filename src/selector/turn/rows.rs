//! The rows of the selector's table, in the order in which they apply.
//!
//! **Invariant:** a step takes one row at most.

use super::Turn;
use super::guard::waiting;
use crate::policy::selector::Channel;
use crate::selector::activity::Quiet;
use crate::selector::reason::Reason;
use crate::selector::state::{Mode, Verdict};
use crate::time::Moment;
use std::time::Duration;

impl Turn<'_> {
    /// The rows, in the order in which they apply.
    pub(super) fn rows(&mut self) {
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
}
