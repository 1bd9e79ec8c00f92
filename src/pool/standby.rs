//! The standby tunnel: up for the provider's sake alone, all the time or while it is needed.
//!
//! **Invariant:** it carries no client, and nothing that is wrong with it stops the pool: a change
//! in which it was made and that was undone is made without it the next time.

use super::candidate::Candidate;
use super::health::Health;
use super::layout;
use super::reason::Reason;
use super::slot::Verdict;
use super::state::PoolState;
use super::testing::is_same;
use super::turn::Turn;
use crate::kernel::{Ends, Tunnel};
use crate::names::Interface;
use crate::observation::Question;
use crate::policy::pool::Keep;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// A tunnel that was just made, or mended, is waited for so many steps before it counts as failed.
const WAITED_STEPS: u32 = 3;

/// What is remembered of the standby tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standby {
    /// The tunnel that its file described when it last described one.
    pub candidate: Option<Candidate>,
    /// Whether it is up.
    pub up: bool,
    /// Whether its endpoint is left to it also while it is not.
    pub reserves: bool,
    /// Since when it is so.
    pub since: Moment,
    /// What its last check said.
    pub verdict: Verdict,
    /// What is wrong with it, for people; empty: nothing.
    pub why: String,
    /// The fastest good answer of its last healthy check.
    pub latency_ms: Option<u64>,
    /// Steps in a row in which nothing could be said of it.
    pub unknown: u32,
    /// Steps in a row in which it failed.
    pub failures: u32,
    /// When a change was undone in which it was made.
    pub undone_at: Option<Moment>,
}

impl Standby {
    /// One that was never up.
    #[must_use]
    pub fn new(now: &Moment) -> Self {
        Self {
            candidate: None,
            up: false,
            reserves: false,
            since: now.clone(),
            verdict: Verdict::Unknown,
            why: String::new(),
            latency_ms: None,
            unknown: 0,
            failures: 0,
            undone_at: None,
        }
    }
}

/// What was seen of the standby tunnel in a run.
#[derive(Clone, Debug)]
pub(super) struct StandbySight {
    /// Its interface.
    pub interface: Interface,
    /// What its file describes, or why nothing.
    pub described: Result<Candidate, String>,
    /// How it is; `None`: it is not up.
    pub health: Option<Health>,
    /// Whether its interface is somebody else's.
    pub strange: bool,
    /// The tunnel that is there.
    pub present: Option<Tunnel>,
}

/// What the standby tunnel is needed for in a step.
pub(super) enum Need {
    /// The provider is being asked by it, or is going to be.
    Fetch,
    /// Nothing.
    Nothing,
}

/// Whether something can be asked by a tunnel.
pub(super) enum Readiness {
    /// Yes.
    Now,
    /// Not in this step.
    Soon,
    /// No, and why.
    No(String),
}

impl PoolState {
    /// Whether an endpoint, or its pair of keys, is up as the standby or left to it.
    #[must_use]
    pub fn standby_holds(&self, candidate: &Candidate) -> bool {
        self.standby.as_ref().is_some_and(|standby| {
            (standby.up || standby.reserves)
                && standby.candidate.as_ref().is_some_and(|up| is_same(up, candidate))
        })
    }
}

impl StandbySight {
    /// What is remembered, or what a first run and one whose state was lost begin with.
    pub(super) fn begin(&self, known: Option<Standby>, keep: Keep, now: &Moment) -> Standby {
        // Without a state a tunnel that is there was made by a run whose state was lost.
        let mut standby =
            known.unwrap_or_else(|| Standby { up: self.present.is_some(), ..Standby::new(now) });
        if standby.candidate.is_none() {
            standby.candidate = self.described.as_ref().ok().cloned();
        }
        standby.reserves = keep == Keep::Standby && !self.strange;
        standby
    }
}

impl Turn<'_> {
    /// Asks where the standby's peer is, when its file alone says so.
    pub(super) fn standby_names(&self) -> Option<Question> {
        let described = self.sight.standby.as_ref()?.described.as_ref().ok()?;
        let is_known = described.host.parse::<IpAddr>().is_ok()
            || self.seen.names().contains_key(described.host.as_str());
        (!is_known).then(|| Question::Names([described.host.clone()].into()))
    }

    /// The tunnel that it should be: what its file says now, or said when it last said something.
    fn standby_candidate(&self) -> Option<&Candidate> {
        let sight = self.sight.standby.as_ref()?;
        let before = self.state.standby.as_ref().and_then(|standby| standby.candidate.as_ref());
        sight.described.as_ref().ok().or(before)
    }

    /// Why it cannot be up.
    fn standby_hindrance(&self) -> Option<String> {
        let sight = self.sight.standby.as_ref()?;
        if sight.strange {
            return Some(format!(
                "interface {} exists and was not made by this policy: remove it, or name another in bootstrap.wireguard",
                sight.interface
            ));
        }
        let Some(candidate) = self.standby_candidate() else {
            return sight.described.as_ref().err().cloned();
        };
        if layout::endpoint_of(&self.state, candidate).is_none() {
            return Some(format!("no address of {} is known", candidate.host));
        }
        let holder = self.state.slots.iter().find(|(_, slot)| {
            slot.candidate().is_some_and(|active: &Candidate| is_same(active, candidate))
        });
        // What is taken down in this step is still there when the standby would be made.
        let present = self.sight.kernel.world.tunnels.iter().find(|(interface, tunnel)| {
            let is_same =
                |ends: &Ends| ends.own == candidate.ends.own && ends.peer == candidate.ends.peer;
            **interface != sight.interface && tunnel.ends.as_ref().is_some_and(is_same)
        });
        let holder = holder.map(|(slot, _)| slot).or(present.map(|(interface, _)| interface));
        if let Some(holder) = holder {
            return Some(format!("the same tunnel is up in {holder}"));
        }
        let undone = self.state.standby.as_ref().and_then(|standby| standby.undone_at.as_ref());
        let wait = self.policy.params.bootstrap_retry_interval_sec;
        let wait = Duration::from_secs(wait).max(super::turn::ZERO_INTERVAL);
        undone
            .filter(|at| self.within(at, wait))
            .map(|_| "the change that made it was undone; it is made again later".to_owned())
    }

    /// Whether the provider can be asked by it.
    pub(super) fn standby_readiness(&self) -> Readiness {
        let Some(sight) = &self.sight.standby else {
            return Readiness::No("the policy has no standby any more".to_owned());
        };
        if let Some(why) = self.standby_hindrance() {
            return Readiness::No(why);
        }
        let waited = self.state.standby.as_ref().map_or(0, |standby| standby.unknown);
        match &sight.health {
            None => Readiness::Soon,
            Some(Health::Healthy { .. }) => Readiness::Now,
            Some(Health::Unknown(_)) if waited < WAITED_STEPS => Readiness::Soon,
            Some(Health::Unknown(why)) => Readiness::No(why.clone()),
            Some(Health::Failed(failure)) => Readiness::No(failure.describe()),
        }
    }

    /// Notes what was seen of it, and says whether it is to be up.
    pub(super) fn settle_standby(&mut self) {
        let Some(wished) = self.policy.bootstrap.wireguard.as_ref() else {
            self.state.standby = None;
            return;
        };
        let Some(sight) = self.sight.standby.as_ref() else { return };
        let interface = sight.interface.clone();
        let hindrance = self.standby_hindrance();
        let candidate = self.standby_candidate().cloned();
        let before = self.state.standby.clone().unwrap_or_else(|| Standby::new(self.now));
        let needed = match wished.keep {
            Keep::Standby => true,
            Keep::Down => match self.standby {
                Need::Fetch => true,
                Need::Nothing => false,
            },
        };
        let moved = self.standby_host_has_moved(&before);
        let up = needed && hindrance.is_none() && !moved;
        let mut standby = before.clone();
        standby.undone_at = standby.undone_at.filter(|_| hindrance.is_some());
        let same = standby.candidate == candidate;
        if standby.up != up || (up && !same) {
            standby.since = self.now.clone();
        }
        standby.up = up;
        standby.candidate = candidate;
        standby.why.clear();
        standby.verdict = Verdict::Unknown;
        match sight.health.as_ref().filter(|_| up && same) {
            Some(Health::Healthy { latency_ms, .. }) => {
                standby.verdict = Verdict::Healthy;
                standby.latency_ms = latency_ms.or(standby.latency_ms);
                standby.unknown = 0;
            }
            Some(Health::Failed(failure)) => {
                standby.verdict = Verdict::Failed;
                standby.why = failure.describe();
                standby.unknown = 0;
            }
            Some(Health::Unknown(why)) => {
                standby.why.clone_from(why);
                standby.unknown = standby.unknown.saturating_add(1);
            }
            None => standby.unknown = 0,
        }
        standby.failures = match standby.verdict {
            Verdict::Failed => standby.failures.saturating_add(1),
            Verdict::Healthy | Verdict::Unknown => 0,
        };
        if moved {
            "its host has another address; it is made anew".clone_into(&mut standby.why);
        }
        if let Err(why) = &sight.described {
            standby.why.clone_from(why);
        }
        if let Some(why) = hindrance {
            standby.why = why;
        }
        if before.up && !up && standby.why.is_empty() {
            self.say(Reason::StandbyLowered { interface: interface.clone() });
        }
        if !standby.why.is_empty() {
            self.say(Reason::StandbyUseless { interface, why: standby.why.clone() });
        }
        self.state.standby = Some(standby);
        if up && self.is_standby_made() {
            // Should the change be undone, the next one is made without it.
            self.counted.standby = Some(Standby { undone_at: Some(self.now.clone()), ..before });
        }
    }

    /// Whether it has failed for some steps, and its host is not where its peer is any more.
    fn standby_host_has_moved(&self, before: &Standby) -> bool {
        let present = self.sight.standby.as_ref().and_then(|sight| sight.present.as_ref());
        let at = present.and_then(|tunnel| tunnel.ends.as_ref()?.endpoint);
        let Some((candidate, at)) = self.standby_candidate().zip(at) else { return false };
        let addresses = layout::addresses_of(&self.state, &candidate.host);
        before.failures >= WAITED_STEPS && !addresses.is_empty() && !addresses.contains(&at.ip())
    }

    /// Whether this step makes it, or makes it anew.
    fn is_standby_made(&self) -> bool {
        let standby = self.state.standby.as_ref().and_then(|standby| standby.candidate.as_ref());
        let present = self.sight.standby.as_ref().and_then(|sight| sight.present.as_ref());
        let (Some(candidate), Some(present)) = (standby, present) else { return true };
        let wished = layout::plain_tunnel(self.policy, &self.state, candidate, self.surroundings);
        !layout::is_as_wished(present, &wished)
    }
}
