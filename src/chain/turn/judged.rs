//! Which row applies, once it is known where the path breaks.
//!
//! **Invariant:** nobody is blamed while nobody can say where that is, and nothing is put in place
//! of what passes but by the rows of hops that carry.

use super::{Step, Turn, hold};
use crate::chain::combos::Combos;
use crate::chain::legs::{Break, Legs};
use crate::chain::reason::Reason;
use crate::chain::rebuild::{Field, Next, Rebuild};
use crate::chain::rows;
use crate::chain::settle::{Verdicts, blame, over};
use crate::chain::state::{HopState, Mode};
use crate::chain::under_way::{Purpose, Retries};
use std::time::Duration;

impl Step<'_> {
    pub(super) fn judged(&mut self, legs: &Legs) -> Turn {
        let policy = self.subject.policy;
        let seats = self.drive.seats.clone();
        let field = Field { policy, state: &self.state, now: &self.seen.started };
        let broken = legs.breaks(|place| field.is_gone(place, &seats));
        if self.subject.paused {
            return self.because(match &broken {
                Break::Nowhere => Reason::AllWell,
                Break::At(place) => self.fails(*place, legs),
                Break::Outside(why) => Reason::Drift { why: why.clone() },
                Break::Unknown(why) => Reason::Undetermined { why: why.clone() },
            });
        }
        let is_new = self.state.hops.iter().any(|hop| hop.is_new);
        if self.state.settle && !is_new && !matches!(broken, Break::Unknown(_)) {
            hold(&mut self.state);
            self.state.settle = false;
            return self.because(Reason::Settling);
        }
        match broken {
            Break::Nowhere => self.passes(),
            Break::Unknown(why) => {
                hold(&mut self.state);
                self.because(Reason::Undetermined { why })
            }
            Break::Outside(why) if policy.driver.has_legs() => {
                rows::reopen(policy, &mut self.state, legs, &self.seen.started, &mut self.reasons);
                self.because(Reason::Drift { why })
            }
            Break::Outside(why) => self.path_fails(why),
            Break::At(place) => self.broken(place, legs),
        }
    }

    fn fails(&self, place: usize, legs: &Legs) -> Reason {
        let params = &self.policy().params;
        let hop = self.state.hops.get(place).zip(self.policy().hops.get(place));
        let Some((hop, wanted)) = hop else { return Reason::NoTime };
        let node = hop.node(wanted).map(|node| node.name.clone());
        let failures = node.as_ref().and_then(|name| hop.blamed.get(name)).copied().unwrap_or(0);
        match node {
            Some(node) => Reason::Failing {
                hop: hop.name.clone(),
                node,
                failures,
                limit: params.max_fails,
                why: legs.why(place),
            },
            None => {
                Reason::NodeGone { hop: hop.name.clone(), member: hop.confirmed.member.clone() }
            }
        }
    }

    /// The whole path passes.
    fn passes(&mut self) -> Turn {
        let policy = self.subject.policy;
        let now = &self.seen.started;
        self.state.path_failures = 0;
        self.state.place = 0;
        let change = rows::passes(policy, &mut self.state, now, &mut self.reasons);
        if change.is_none()
            && let Some(turn) = self.retries()
        {
            return turn;
        }
        let Some((change, purpose)) = change else {
            if self.reasons.is_empty() {
                let all = self.state.hops.iter().all(|hop| hop.mode == Mode::Preferred);
                self.reasons.push(if all { Reason::AllWell } else { Reason::NothingNew });
            }
            return self.stays();
        };
        let why = policy.hops.get(change.hop).and_then(|hop| {
            let member = &hop.node(&change.to)?.member;
            self.state.hindrance(policy, &self.drive.seats, change.hop, member)
        });
        if let Some((why, hop)) = why.zip(policy.hops.get(change.hop)) {
            let (hop, node) = (hop.name.clone(), change.to);
            return self.because(Reason::Hindered { hop, node, why });
        }
        let mut tries = self.drive.seats.clone();
        let node = policy.hops.get(change.hop).and_then(|hop| hop.node(&change.to));
        if let (Some(seat), Some(node)) = (tries.get_mut(change.hop), node) {
            seat.clone_from(&node.member);
        }
        self.tries(tries, purpose)
    }

    /// Services of a gost that try again more or less often than they should.
    fn retries(&mut self) -> Option<Turn> {
        let wait = Duration::from_secs(self.policy().params.fail_timeout_sec);
        let now = &self.seen.started;
        let refused = self.state.retries_refused.as_ref();
        let is_due = refused.is_none_or(|at| now.since(at) >= wait);
        if !is_due || self.drive.retries.is_empty() {
            return None;
        }
        for Retries { service, from, to } in &self.drive.retries {
            let (service, from, to) = (service.clone(), *from, *to);
            self.reasons.push(Reason::Retries { service, from, to });
        }
        let retries = self.drive.retries.clone();
        Some(self.tries(self.drive.seats.clone(), Purpose::Retries(retries)))
    }

    /// The hop in this place is broken.
    fn broken(&mut self, place: usize, legs: &Legs) -> Turn {
        let policy = self.subject.policy;
        let now = self.seen.started.clone();
        rows::reopen(policy, &mut self.state, legs, &now, &mut self.reasons);
        self.reasons.extend(blame(policy, &mut self.state, place, legs));
        let field = Field { policy, state: &self.state, now: &now };
        let seats = self.drive.seats.clone();
        let carries = seats.get(place).map(String::as_str).unwrap_or_default();
        if !field.is_ripe(place, carries, 0) && !field.is_paused(place) {
            return self.stays();
        }
        let (rebuild, next) = Rebuild::begin(field, place, &seats);
        self.goes_on(next, Purpose::Rebuild(Box::new(rebuild)))
    }

    /// The whole path fails, and nobody can say where.
    fn path_fails(&mut self, why: String) -> Turn {
        let policy = self.subject.policy;
        let limit = policy.params.max_fails;
        self.state.path_failures = self.state.path_failures.saturating_add(1).min(limit);
        let failures = self.state.path_failures;
        self.reasons.push(Reason::PathFails { failures, limit, why });
        let waits = |hop: &HopState| !hop.is_new && !hop.mode.is_down();
        if failures < limit && self.state.hops.iter().all(waits) {
            return self.stays();
        }
        let now = self.seen.started.clone();
        let field = Field { policy, state: &self.state, now: &now };
        let (combos, next) = Combos::begin(field, &self.drive.seats, self.state.place);
        self.goes_on(next, Purpose::Combos(Box::new(combos)))
    }

    fn goes_on(&mut self, next: Next, purpose: Purpose) -> Turn {
        match next {
            Next::Try(seats) => self.tries(seats, purpose),
            Next::Over(seats) => {
                // There is nothing to try.
                let way = self.way(seats, purpose);
                let verdicts = Verdicts { finished: true, ..Verdicts::default() };
                let now = &self.seen.started;
                let (state, reasons, _) =
                    over(self.subject.policy, &way, &way.before, &verdicts, now);
                self.reasons.extend(reasons);
                Turn::Stays(Box::new(state), std::mem::take(&mut self.reasons))
            }
        }
    }
}
