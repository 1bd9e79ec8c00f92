//! When a switch that is due is made: in a quiet time, and when its cause is still there.
//!
//! **Invariant:** nothing is switched to a channel that was not asked again right before.

use super::Turn;
use crate::policy::selector::Channel;
use crate::selector::activity::Quiet;
use crate::selector::ask;
use crate::selector::reason::Reason;
use crate::selector::state::Verdict;
use std::time::Duration;

impl Turn<'_> {
    /// Whether it was quiet for the window, by the samples of all steps and those of this one.
    pub(super) fn quiet(&self) -> Quiet {
        if !self.params().traffic_guard {
            return Quiet::Yes;
        }
        let window = Duration::from_secs(self.params().quiet_window_sec);
        let limits = self.limits();
        match self.state.activity.quiet_for(window, limits) {
            Quiet::Yes => match self.drive.last_sample(&self.state) {
                Some(rate) if rate >= limits.active_bytes_per_sec => Quiet::Active { rate },
                Some(_) | None => Quiet::Yes,
            },
            quiet @ (Quiet::Active { .. } | Quiet::Unknown) => quiet,
        }
    }

    /// Whether `dead` is left now: after a quiet time, or when it was waited for long enough, and
    /// when both were asked again.
    pub(super) fn urgent(&mut self, dead: Channel) -> bool {
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
    pub(super) fn still_so(&mut self, left: Channel, of_it: Verdict, spent: bool) -> bool {
        let again = Channel::ALL.map(|channel| self.drive.health(channel, 1));
        let [Some(primary), Some(reserve)] = again else {
            if self.manner.may_ask {
                let unasked = |channel: &Channel| self.drive.health(*channel, 1).is_none();
                let ask = |channel| ask::channel(self.policy, &self.state, channel, 1);
                self.asks = Channel::ALL.into_iter().filter(unasked).map(ask).collect();
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
        if let Some(questions) = self.drive.next_sample(&self.state) {
            if self.manner.may_ask {
                self.asks = questions;
            } else {
                self.say(Reason::NoTime);
            }
            return false;
        }
        true
    }
}

pub(super) fn waiting(
    quiet: Quiet,
    since: Option<jiff::Timestamp>,
    until: Option<jiff::Timestamp>,
) -> Reason {
    let rate = match quiet {
        Quiet::Active { rate } => Some(rate),
        Quiet::Yes | Quiet::Unknown => None,
    };
    Reason::Waiting { rate, since, until }
}
