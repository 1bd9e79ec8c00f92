//! What a selector remembers.
//!
//! **Invariant:** the state changes only with what was read back; every window is measured from a
//! moment that is kept here.

use super::activity::Activity;
use crate::clash::choice::Confirmed;
use crate::policy::selector::Channel;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Where a selector stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// Clients are where they belong.
    OnPrimary,
    /// They are there still, and it does not answer.
    PrimaryFailing,
    /// They are on the reserve.
    OnReserve,
    /// They are on the reserve, and the primary answers again.
    PrimaryRecovering,
    /// They are on the reserve, and stay: the primary came and went too often.
    PrimaryQuarantined,
}

impl Mode {
    /// As reports name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnPrimary => "ON_PRIMARY",
            Self::PrimaryFailing => "PRIMARY_FAILING",
            Self::OnReserve => "ON_RESERVE",
            Self::PrimaryRecovering => "PRIMARY_RECOVERING",
            Self::PrimaryQuarantined => "PRIMARY_QUARANTINED",
        }
    }

    /// The channel that new connections take.
    #[must_use]
    pub fn channel(self) -> Channel {
        match self {
            Self::OnPrimary | Self::PrimaryFailing => Channel::Primary,
            Self::OnReserve | Self::PrimaryRecovering | Self::PrimaryQuarantined => {
                Channel::Reserve
            }
        }
    }
}

/// What a check showed of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All of it passed.
    Healthy,
    /// It did not.
    Unhealthy,
    /// It could not be told.
    Unknown,
}

/// One channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChannelState {
    /// What the last check showed.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
    /// Since when it is so.
    pub since: Moment,
    /// How long the slowest page of the last healthy check took.
    pub latency_ms: Option<u64>,
    /// For how long it failed while the other one answered; `None`: it does not.
    pub failing_ms: Option<u64>,
    /// Healthy checks in a row, as far as they matter.
    pub healthy_row: u32,
    /// Since when leaving it waits for a quiet time.
    pub held_since: Option<Moment>,
}

impl ChannelState {
    fn new(now: &Moment) -> Self {
        Self {
            verdict: Verdict::Unknown,
            why: "not checked yet".to_owned(),
            since: now.clone(),
            latency_ms: None,
            failing_ms: None,
            healthy_row: 0,
            held_since: None,
        }
    }

    /// Whether it failed for so long and still does.
    #[must_use]
    pub fn is_ripe(&self, window: Duration) -> bool {
        self.verdict == Verdict::Unhealthy
            && self.failing_ms.is_some_and(|ms| Duration::from_millis(ms) >= window)
    }
}

/// What new connections take, as far as this policy knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chosen {
    /// One of the channels.
    Channel(Channel),
    /// Another member of the group, which a person chose.
    Third(String),
}

/// A person's `switch` that is still to be carried out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Wish {
    /// A member of the group, or an interface.
    pub target: String,
    /// Whether it is chosen though it may not work.
    pub force: bool,
}

/// What a selector remembers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SelectorState {
    /// Where it stands.
    pub mode: Mode,
    /// Since when.
    pub since: Moment,
    /// What new connections take.
    pub chosen: Chosen,
    /// What the policy called group, primary and reserve when this was remembered.
    pub names: [String; 3],
    /// The last choice that was read back from the core.
    pub confirmed: Option<Confirmed>,
    /// The primary.
    pub primary: ChannelState,
    /// The reserve.
    pub reserve: ChannelState,
    /// When channels were last checked.
    pub checked_at: Option<Moment>,
    /// Whether the next check only looks, after the core or the uplink was down.
    pub settle: bool,
    /// Whether the core answered at the last look.
    pub core_down: bool,
    /// Since when the primary has answered every check.
    pub recovery_since: Option<Moment>,
    /// Since when clients are on the reserve.
    pub stay_since: Option<Moment>,
    /// When clients were moved off the primary, within the window.
    pub failovers: Vec<Moment>,
    /// When the quarantine began.
    pub quarantined_at: Option<Moment>,
    /// Whether a switch waits for nothing but a quiet time.
    pub waits: bool,
    /// What flows on the channel in use.
    pub activity: Activity,
    /// The last good addresses of pages that are asked past the core.
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
    /// What a person asked for.
    pub wish: Option<Wish>,
}

impl SelectorState {
    /// A state that begins now.
    #[must_use]
    pub fn new(chosen: Chosen, names: [String; 3], now: &Moment) -> Self {
        Self {
            mode: mode_of(&chosen),
            since: now.clone(),
            stay_since: Some(now.clone()),
            chosen,
            names,
            confirmed: None,
            primary: ChannelState::new(now),
            reserve: ChannelState::new(now),
            checked_at: None,
            settle: false,
            core_down: false,
            recovery_since: None,
            failovers: Vec::new(),
            quarantined_at: None,
            waits: false,
            activity: Activity::default(),
            addresses: BTreeMap::new(),
            wish: None,
        }
    }

    /// One channel.
    #[must_use]
    pub fn channel(&self, channel: Channel) -> &ChannelState {
        match channel {
            Channel::Primary => &self.primary,
            Channel::Reserve => &self.reserve,
        }
    }

    pub(super) fn channel_mut(&mut self, channel: Channel) -> &mut ChannelState {
        match channel {
            Channel::Primary => &mut self.primary,
            Channel::Reserve => &mut self.reserve,
        }
    }

    /// What a person chose stands there now.
    pub(super) fn take_over(&mut self, chosen: &Chosen, now: &Moment) {
        self.clear_times(now);
        self.chosen = chosen.clone();
        let mode = mode_of(chosen);
        if self.mode != mode {
            self.mode = mode;
            self.since = now.clone();
        }
    }

    /// Counters and windows begin anew; failovers and the quarantine stay.
    pub(super) fn clear_times(&mut self, now: &Moment) {
        for channel in Channel::ALL {
            let channel = self.channel_mut(channel);
            channel.failing_ms = None;
            channel.healthy_row = 0;
            channel.held_since = None;
        }
        self.recovery_since = None;
        self.stay_since = Some(now.clone());
        self.waits = false;
        self.activity.restart();
    }
}

/// Where a choice puts the machine.
#[must_use]
pub fn mode_of(chosen: &Chosen) -> Mode {
    match chosen {
        Chosen::Channel(Channel::Primary) => Mode::OnPrimary,
        Chosen::Channel(Channel::Reserve) | Chosen::Third(_) => Mode::OnReserve,
    }
}
