//! One step of a chain: what is looked at, what is counted, and which row applies.
//!
//! **Invariant:** nothing is counted or tried while the uplink is down or nobody can say where the
//! path breaks; what a person chose stands.

use super::combos::Combos;
use super::drive::{Drive, Trouble};
use super::legs::{Break, Legs};
use super::name::NodeName;
use super::reason::Reason;
use super::rebuild::{Field, Next, Rebuild};
use super::rows;
use super::settle::{Verdicts, over};
use super::state::{ChainState, HopPause, HopState, Mode, PauseWhy};
use super::under_way::{Purpose, Retries, Seats, UnderWay};
use super::{Chain, ask, sight};
use crate::clash::choice::{Choice, Confirmed};
use crate::machine::Subject;
use crate::observation::{Observation, Question};
use crate::policy::ChainPolicy;
use crate::policy::chain::Hop;
use crate::time::Moment;
use std::collections::BTreeSet;
use std::time::Duration;

/// What a turn comes to.
#[derive(Clone, Debug)]
pub(super) enum Turn {
    /// More has to be known.
    Ask(Vec<Question>),
    /// The policy cannot be served.
    Unable(Reason),
    /// Nothing is changed.
    Stays(Box<ChainState>, Vec<Reason>),
    /// Something is put in place and proven.
    Tries(Box<UnderWay>),
}

/// Looks at what was seen so far and either asks for more or says which row applies.
pub(super) fn turn(subject: &Subject<'_, Chain>, seen: &Observation, may_ask: bool) -> Turn {
    let policy = subject.policy;
    let drive = match Drive::new(policy, seen) {
        Ok(Some(drive)) => drive,
        Ok(None) if may_ask => {
            return Turn::Ask(
                Drive::first(subject).into_iter().chain(ask::names(policy)).collect(),
            );
        }
        Ok(None) => return held(subject, Reason::NoTime),
        Err(Trouble::Unusable(why)) => return Turn::Unable(Reason::CoreUnusable { why }),
        Err(Trouble::Down(why)) => return held(subject, Reason::CoreDown { why }),
    };
    let state = taken_up(subject, &drive, seen);
    let mut step = Step { subject, seen, may_ask, drive, state, reasons: Vec::new() };
    step.run()
}

/// Nothing is counted, and the next check only looks.
fn held(subject: &Subject<'_, Chain>, reason: Reason) -> Turn {
    let Some(state) = subject.state else { return Turn::Unable(reason) };
    let mut state = state.clone();
    if let Reason::CoreDown { why } = &reason {
        hold(&mut state);
        state.trouble = Some(why.clone());
    }
    Turn::Stays(Box::new(state), vec![reason])
}

/// Nothing is counted, and the next check only looks.
pub(super) fn hold(state: &mut ChainState) {
    state.settle = true;
    for hop in &mut state.hops {
        hop.passes = 0;
    }
}

/// What is remembered, for the hops that the policy has now.
fn taken_up(subject: &Subject<'_, Chain>, drive: &Drive, seen: &Observation) -> ChainState {
    let now = &seen.started;
    let mut state = subject.state.cloned().unwrap_or_else(|| ChainState::new(now));
    state.trouble = None;
    let known = std::mem::take(&mut state.hops);
    for (wanted, seat) in subject.policy.hops.iter().zip(&drive.seats) {
        let same = |hop: &&HopState| hop.name == wanted.name && hop.group == wanted.group;
        let mut hop = match known.iter().find(same) {
            Some(hop) => hop.clone(),
            None => HopState::new(wanted, drive.confirmed(seat), now),
        };
        let is_known = |name: &NodeName| wanted.node(name).is_some();
        hop.marks.keep(is_known);
        hop.blamed.retain(|name, _| is_known(name));
        hop.shown.retain(|name, _| is_known(name));
        if hop.confirmed.life.ended_before(drive.life()) {
            state.settle = true;
        }
        state.hops.push(hop);
    }
    for (name, addresses) in seen.names() {
        if let Ok(addresses) = addresses
            && !addresses.is_empty()
        {
            state.addresses.insert(name.to_owned(), addresses.clone());
        }
    }
    state
}

/// A step in which what the hops are made of answers.
struct Step<'a> {
    subject: &'a Subject<'a, Chain>,
    seen: &'a Observation,
    may_ask: bool,
    drive: Drive,
    state: ChainState,
    reasons: Vec<Reason>,
}

impl Step<'_> {
    fn policy(&self) -> &ChainPolicy {
        self.subject.policy
    }

    fn stays(&mut self) -> Turn {
        self.state.restate(&self.seen.started);
        Turn::Stays(Box::new(self.state.clone()), std::mem::take(&mut self.reasons))
    }

    fn because(&mut self, reason: Reason) -> Turn {
        self.reasons.push(reason);
        self.stays()
    }

    /// Something is put in place.
    fn tries(&mut self, tries: Seats, purpose: Purpose) -> Turn {
        self.state.restate(&self.seen.started);
        Turn::Tries(Box::new(self.way(tries, purpose)))
    }

    fn way(&self, tries: Seats, purpose: Purpose) -> UnderWay {
        UnderWay {
            base: self.state.clone(),
            before: self.drive.seats.clone(),
            stands: self.drive.seats.clone(),
            tries,
            life: self.drive.life().clone(),
            said: self.reasons.clone(),
            purpose,
        }
    }

    fn run(&mut self) -> Turn {
        if let Some(turn) = self.wish() {
            return turn;
        }
        if let Some(turn) = self.choices() {
            return turn;
        }
        let policy = self.subject.policy;
        if let Some(questions) = self.asks() {
            if self.may_ask {
                return Turn::Ask(questions);
            }
            if !sight::was_asked(self.seen) {
                return self.because(Reason::NoTime);
            }
        }
        let legs = sight::legs(policy, self.seen, &self.drive.seats);
        self.keep(&legs);
        if !legs.passes() {
            match (sight::wan(self.seen), ask::wan(policy, &self.state)) {
                (None, Some(question)) if self.may_ask => return Turn::Ask(vec![question]),
                (Some(false), _) | (None, Some(_)) => {
                    hold(&mut self.state);
                    return self.because(Reason::Offline);
                }
                (Some(true), _) | (None, None) => {}
            }
        }
        self.judged(&legs)
    }

    /// Carries a person's choice out.
    fn wish(&mut self) -> Option<Turn> {
        let wish = self.state.wish.clone()?;
        let place = self.policy().hops.iter().position(|hop| hop.name == wish.hop)?;
        let node = self.policy().hops.get(place)?.node(&wish.node)?.clone();
        let mut tries = self.drive.seats.clone();
        if let Some(seat) = tries.get_mut(place) {
            seat.clone_from(&node.member);
        }
        self.state.wish = None;
        Some(self.tries(tries, Purpose::Switch { hop: place }))
    }

    /// Whose choices stand. Some: that is all that this step does.
    fn choices(&mut self) -> Option<Turn> {
        let now = self.seen.started.clone();
        let mut tries = self.drive.seats.clone();
        let mut lost = Vec::new();
        for place in 0..tries.len() {
            let (Some(hop), Some(wanted), Some(seat)) = (
                self.state.hops.get_mut(place),
                self.subject.policy.hops.get(place),
                tries.get_mut(place),
            ) else {
                continue;
            };
            let confirmed = self.drive.confirmed(seat);
            let is_gone = !self.drive.can_be(place, &hop.confirmed.member);
            match self.drive.choice(hop, seat) {
                Choice::Ours => hop.confirmed = confirmed,
                Choice::Unclear if self.may_ask && !self.drive.has_config() => {
                    return Some(Turn::Ask(Drive::config(self.subject)));
                }
                Choice::Unclear => return Some(self.because(Reason::NoTime)),
                // Nobody chooses because a member has gone: what is left is looked at.
                Choice::Lost | Choice::Persons(_) if is_gone => {
                    let member = hop.confirmed.member.clone();
                    self.reasons.push(Reason::NodeGone { hop: hop.name.clone(), member });
                    let mode = hop.mode;
                    hop.put(wanted, confirmed, &now);
                    if mode.is_down() {
                        hop.enter(mode, &now);
                    }
                }
                Choice::Lost => {
                    let member = hop.confirmed.member.clone();
                    lost.push(Reason::ChoiceLost { hop: hop.name.clone(), member: member.clone() });
                    *seat = member;
                }
                Choice::Persons(member) => {
                    take_over(hop, wanted, confirmed, &now);
                    self.reasons.push(Reason::PersonsChoice { hop: hop.name.clone(), member });
                }
            }
        }
        if lost.is_empty() {
            return None;
        }
        self.reasons.extend(lost);
        if self.subject.paused {
            return Some(self.because(Reason::LostWaits));
        }
        hold(&mut self.state);
        Some(self.tries(tries, Purpose::Again))
    }

    /// What is still to be asked of the legs.
    fn asks(&self) -> Option<Vec<Question>> {
        let policy = self.policy();
        let seats = &self.drive.seats;
        let legs = sight::legs(policy, self.seen, seats);
        let mut matters: BTreeSet<String> =
            if legs.passes() { BTreeSet::new() } else { ask::members_of(policy, seats) };
        for (wanted, hop) in policy.hops.iter().zip(&self.state.hops) {
            let tested = rows::tested(wanted, hop, &self.seen.started);
            matters.extend(tested.map(|node| node.member.clone()));
        }
        let mut members = ask::every_member(policy);
        members.extend(ask::members_of(policy, seats));
        ask::legs(policy, self.seen, seats, members, &matters)
    }

    /// Remembers what was seen.
    fn keep(&mut self, legs: &Legs) {
        let policy = self.subject.policy;
        for (wanted, hop) in policy.hops.iter().zip(&mut self.state.hops) {
            for node in wanted.nodes.iter().filter(|node| node.egress) {
                if let Some(shown) = sight::member(policy, self.seen, &node.member) {
                    hop.shown.insert(node.name.clone(), shown);
                }
            }
        }
        self.state.path.clone_from(&legs.path);
    }

    fn judged(&mut self, legs: &Legs) -> Turn {
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
        let limit = policy.params.max_fails;
        if let (Some(wanted), Some(hop)) = (policy.hops.get(place), self.state.hops.get_mut(place))
            && let Some(node) = hop.node(wanted)
        {
            let blamed = hop.blamed.entry(node.name.clone()).or_insert(0);
            *blamed = blamed.saturating_add(1).min(limit);
        }
        let fails = self.fails(place, legs);
        self.reasons.push(fails);
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

/// A person has chosen what carries in a hop.
pub(super) fn take_over(hop: &mut HopState, wanted: &Hop, confirmed: Confirmed, now: &Moment) {
    hop.put(wanted, confirmed, now);
    hop.paused = Some(HopPause { why: PauseWhy::Chosen, at: now.clone() });
}
