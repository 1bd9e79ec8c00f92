//! What a guard remembers.
//!
//! **Invariant:** whose choice stands is told by `mode` and `confirmed` together: in MANUAL it is a
//! person's, else the automatic group's or a member that a request has proven.

use crate::clash::choice::Confirmed;
use crate::observation::Delay;
use crate::policy::guard::Params;
use crate::proxy::Shown;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Where a guard stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// The automatic group chooses, and requests pass.
    Auto,
    /// It chooses, and requests fail.
    Suspect,
    /// A measured and proven member is selected in its place.
    Temporary,
    /// The same, while the automatic group answers the core again.
    Observing,
    /// A person has selected a member.
    Manual,
}

impl Mode {
    /// As reports name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "AUTO",
            Self::Suspect => "SUSPECT",
            Self::Temporary => "TEMPORARY",
            Self::Observing => "OBSERVING",
            Self::Manual => "MANUAL",
        }
    }

    /// Whether the automatic group is in charge.
    #[must_use]
    pub fn is_automatic(self) -> bool {
        match self {
            Self::Auto | Self::Suspect => true,
            Self::Temporary | Self::Observing | Self::Manual => false,
        }
    }
}

/// What the core said of a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Said {
    /// Its best measure.
    pub delay: Delay,
    /// When.
    pub at: Moment,
}

/// A recovery that goes on in the next step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct List {
    /// The members that are still to be tried, the fastest first.
    pub rest: Vec<String>,
}

/// A pause after something that did not help.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Wait {
    /// Since when.
    pub since: Moment,
    /// How long.
    pub seconds: u64,
}

impl Wait {
    /// How much of it is left.
    #[must_use]
    pub fn left(&self, now: &Moment) -> Duration {
        Duration::from_secs(self.seconds).saturating_sub(now.since(&self.since))
    }

    /// A longer one after it; the first one is `min`.
    #[must_use]
    pub fn after(before: Option<&Self>, min: u64, max: u64, now: &Moment) -> Self {
        let seconds = before.map_or(min, |before| before.seconds.saturating_mul(2).clamp(min, max));
        Self { since: now.clone(), seconds }
    }
}

/// A person's `switch` that is still to be carried out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Wish {
    /// A member of the group, or the automatic group.
    pub target: String,
    /// Whether it is kept though no request passes.
    pub force: bool,
}

/// What a guard remembers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GuardState {
    /// Where it stands.
    pub mode: Mode,
    /// Since when.
    pub since: Moment,
    /// What the policy called group and automatic when this was remembered.
    pub names: [String; 2],
    /// The last choice that was read back from the core.
    pub confirmed: Confirmed,
    /// Why the core could not be used at the last look.
    pub core_trouble: Option<String>,
    /// Whether the next round only looks, after the core was down or restarted.
    pub settle: bool,
    /// Failed rounds in a row.
    pub failed_rounds: u32,
    /// While this runs no recovery is tried.
    pub backoff: Option<Wait>,
    /// Where the last recovery stopped.
    pub list: Option<List>,
    /// How often in a row the automatic group answered the core.
    pub passes: u32,
    /// While this runs the automatic group is not tried again.
    pub give_back: Option<Wait>,
    /// Since when the automatic group is in charge after a guard's member was.
    pub rules_since: Option<Moment>,
    /// What the automatic group uses, as the core said at the last look.
    pub uses: Option<String>,
    /// When that was.
    pub looked_at: Moment,
    /// What the core said of members.
    pub said: BTreeMap<String, Said>,
    /// What requests through members showed.
    pub shown: BTreeMap<String, Shown>,
    /// The last good addresses of pages that are asked past the core.
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
    /// What a person asked for.
    pub wish: Option<Wish>,
}

impl GuardState {
    /// A state that begins now, with what stands in the core.
    #[must_use]
    pub fn new(mode: Mode, names: [String; 2], confirmed: Confirmed, now: &Moment) -> Self {
        Self {
            mode,
            since: now.clone(),
            names,
            confirmed,
            core_trouble: None,
            settle: false,
            failed_rounds: 0,
            backoff: None,
            list: None,
            passes: 0,
            give_back: None,
            rules_since: None,
            uses: None,
            looked_at: now.clone(),
            said: BTreeMap::new(),
            shown: BTreeMap::new(),
            addresses: BTreeMap::new(),
            wish: None,
        }
    }

    pub(super) fn enter(&mut self, mode: Mode, now: &Moment) {
        if self.mode != mode {
            self.mode = mode;
            self.since = now.clone();
        }
    }

    /// Counters begin anew.
    pub(super) fn clear_counters(&mut self) {
        self.failed_rounds = 0;
        self.backoff = None;
        self.list = None;
        self.passes = 0;
    }

    /// Somebody chose: what the guard counted is void.
    pub(super) fn hand_over(&mut self, automatic: &str, now: &Moment) {
        self.clear_counters();
        self.give_back = None;
        self.rules_since = None;
        let mode = if self.confirmed.member == automatic { Mode::Auto } else { Mode::Manual };
        self.enter(mode, now);
    }

    /// A round passed: whatever was suspected is over.
    pub(super) fn passed(&mut self) {
        self.failed_rounds = 0;
        self.backoff = None;
        self.list = None;
    }

    /// A recovery came to nothing.
    pub(super) fn back_off(&mut self, params: &Params, now: &Moment) {
        self.list = None;
        self.backoff = Some(Wait::after(
            self.backoff.as_ref(),
            params.backoff_min_sec,
            params.backoff_max_sec,
            now,
        ));
    }

    /// The automatic group is tried again only after a longer while.
    pub(super) fn wait_longer(&mut self, params: &Params, now: &Moment) {
        self.give_back = Some(Wait::after(
            self.give_back.as_ref(),
            params.backoff_min_sec,
            params.give_back_max_sec,
            now,
        ));
    }

    /// A member that a request has just proven is selected in the group's place.
    pub(super) fn take_over(&mut self, params: &Params, now: &Moment) {
        self.passed();
        self.passes = 0;
        if self.mode.is_automatic() {
            self.wait_longer(params, now);
        }
        self.rules_since = None;
        self.enter(Mode::Temporary, now);
    }

    /// The automatic group, proven by a request, is in charge again.
    pub(super) fn give_back(&mut self, now: &Moment) {
        self.passed();
        self.passes = 0;
        self.rules_since = Some(now.clone());
        self.enter(Mode::Auto, now);
    }

    /// What is remembered of members that are gone is forgotten.
    pub(super) fn keep_only(&mut self, all: &[String]) {
        self.said.retain(|member, _| all.contains(member));
        self.shown.retain(|member, _| all.contains(member));
    }
}
