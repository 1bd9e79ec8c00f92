//! One step of a chain: what is looked at, what is counted, and which row applies.
//!
//! **Invariant:** nothing is counted or tried while the uplink is down or nobody can say where the
//! path breaks; what a person chose stands.

mod choices;
mod judged;
mod tunnels;

pub(super) use choices::take_over;

use super::drive::{Drive, Trouble};
use super::legs::Legs;
use super::name::NodeName;
use super::reason::Reason;
use super::rows;
use super::state::{ChainState, HopState};
use super::under_way::{Purpose, Seats, UnderWay};
use super::{Chain, ask, sight};
use crate::machine::Subject;
use crate::observation::{Observation, Question};
use crate::policy::ChainPolicy;
use std::collections::BTreeSet;
use tunnels::Site;

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
    let drive = match Drive::new(policy, subject.state, seen) {
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
    let (now, policy) = (&seen.started, subject.policy);
    let mut state = subject.state.cloned().unwrap_or_else(|| ChainState::new(now));
    state.trouble = None;
    if let Some(facts) = &drive.facts {
        state.tunnels = Some(facts.remembered(policy, state.tunnels.as_ref()));
    } else {
        state.tunnels = None;
    }
    let known = std::mem::take(&mut state.hops);
    for (wanted, seat) in subject.policy.hops.iter().zip(&drive.seats) {
        let same = |hop: &&HopState| hop.name == wanted.name && hop.group == wanted.group;
        let mut hop = match known.iter().find(same) {
            Some(hop) => hop.clone(),
            None => HopState::new(wanted, drive.confirmed(seat), now),
        };
        if drive.facts.is_some() && hop.node(wanted).is_none() {
            // Tunnels are of nobody else's making, and a node that is gone is nobody's choice.
            hop.paused = None;
        }
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
        let Site { stages, builds, checks } = self.site(&tries);
        UnderWay {
            stages,
            builds,
            checks,
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
        if let Some(turn) = self.peers() {
            return turn;
        }
        if let Some(turn) = self.wish() {
            return turn;
        }
        if let Some(turn) = self.choices() {
            return turn;
        }
        if let Some(turn) = self.build() {
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
        let legs = sight::legs(policy, &self.state, self.seen, &self.drive.seats);
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

    /// What is still to be asked of the legs.
    fn asks(&self) -> Option<Vec<Question>> {
        if self.drive.facts.is_some() {
            return self.asks_of_tunnels();
        }
        let policy = self.policy();
        let seats = &self.drive.seats;
        let legs = sight::legs(policy, &self.state, self.seen, seats);
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
        for (place, wanted) in policy.hops.iter().enumerate() {
            for node in wanted.nodes.iter().filter(|node| node.egress) {
                let shown = if self.drive.facts.is_some() {
                    self.shown_of_tunnel(place, wanted, node)
                } else {
                    sight::member(policy, self.seen, &node.member)
                };
                if let (Some(shown), Some(hop)) = (shown, self.state.hops.get_mut(place)) {
                    hop.shown.insert(node.name.clone(), shown);
                }
            }
        }
        self.state.path.clone_from(&legs.path);
    }
}
