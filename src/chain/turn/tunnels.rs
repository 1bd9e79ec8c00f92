//! What a step does for the tunnels of a chain, beside what it does for every chain: they are made
//! where they are missing, and nodes that do not carry are tried on devices of their own.
//!
//! **Invariant:** nobody is judged by a tunnel that is not there, or not as it should be.

use super::{Step, Turn};
use crate::chain::reason::Reason;
use crate::chain::rebuild::Field;
use crate::chain::under_way::{Purpose, Seats};
use crate::chain::{ask, lanes, rows, sight};
use crate::kernel::World;
use crate::observation::Question;
use crate::plan::Check;
use crate::policy::chain::{Hop, Node};
use crate::proxy::{Shown, Verdict};

/// What putting tunnels in place needs.
#[derive(Default)]
pub(super) struct Site {
    pub(super) stages: Vec<World>,
    pub(super) builds: bool,
    pub(super) checks: Vec<Check>,
}

impl Step<'_> {
    /// Asks where the peers of tunnels are.
    pub(super) fn peers(&self) -> Option<Turn> {
        let _tunnels = self.drive.facts.as_ref()?;
        let question = ask::peers(&self.state, self.seen).filter(|_| self.may_ask)?;
        Some(Turn::Ask(vec![question]))
    }

    /// Makes the tunnels that are missing or not as they should be. Some: that is what this step does.
    pub(super) fn build(&mut self) -> Option<Turn> {
        let facts = self.drive.facts.as_ref().filter(|_| !self.subject.paused)?;
        let policy = self.subject.policy;
        let tries = self.filled();
        let wished = self.state.seated(&tries);
        let drifted = lanes::drifted(policy, self.subject.name, &wished, facts);
        if drifted.is_empty() && tries == self.drive.seats {
            return None;
        }
        let hops = policy.hops.iter().enumerate().filter(|(place, _)| drifted.contains(place));
        let hops = hops.map(|(_, hop)| hop.name.clone()).collect();
        self.reasons.push(Reason::Built { hops });
        Some(self.tries(tries, Purpose::Build))
    }

    /// What stands, and where no node of the policy does, the first one that can.
    fn filled(&self) -> Seats {
        let policy = self.subject.policy;
        let field = Field { policy, state: &self.state, now: &self.seen.started };
        let mut seats = self.drive.seats.clone();
        for (place, hop) in policy.hops.iter().enumerate() {
            let stands = seats.get(place).cloned().unwrap_or_default();
            if hop.of_member(&stands).is_some() {
                continue;
            }
            let candidates = field.candidates(place, "");
            let mut members = candidates.iter().filter_map(|name| hop.node(name));
            let free =
                |node: &&Node| self.state.hindrance(policy, &seats, place, &node.member).is_none();
            // Where none can stand nothing does, and the hop is closed for it.
            let first = members.find(free).map(|node| node.member.clone());
            if let (Some(seat), Some(first)) = (seats.get_mut(place), first) {
                *seat = first;
            }
        }
        seats
    }

    /// What putting these in place needs.
    pub(super) fn site(&self, tries: &Seats) -> Site {
        let Some(facts) = &self.drive.facts else { return Site::default() };
        let (policy, name) = (self.subject.policy, self.subject.name);
        let wished = self.state.seated(tries);
        Site {
            stages: lanes::stages(policy, name, &wished, facts),
            builds: !lanes::drifted(policy, name, &self.state, facts).is_empty(),
            checks: lanes::checks(policy, &wished, facts),
        }
    }

    /// What is still to be asked of the tunnels: the legs, then those that do not carry, one a hop.
    pub(super) fn asks_of_tunnels(&self) -> Option<Vec<Question>> {
        let (policy, seats) = (self.subject.policy, &self.drive.seats);
        let legs = ask::tunnel_legs(policy, &self.state, self.seen, seats);
        if !legs.is_empty() {
            return Some(legs);
        }
        let shown = sight::legs(policy, &self.state, self.seen, seats);
        if !shown.passes() || self.subject.paused {
            return None;
        }
        let hops = policy.hops.iter().zip(&self.state.hops).enumerate();
        let trial = |(place, (wanted, hop)): (usize, (&Hop, _))| {
            let nodes = rows::trials(wanted, hop, &policy.params, &self.seen.started);
            let is_open = |node: &&&Node| {
                sight::tested(self.seen, &wanted.name, &node.name).is_none()
                    && self.state.hindrance(policy, seats, place, &node.member).is_none()
            };
            ask::trial(policy, &self.state, place, nodes.iter().find(is_open)?)
        };
        let trials: Vec<Question> = hops.filter_map(trial).collect();
        (!trials.is_empty()).then_some(trials)
    }

    /// What a node showed in this step, carrying or on a test device; its file's trouble where it
    /// can do neither.
    pub(super) fn shown_of_tunnel(&self, place: usize, wanted: &Hop, node: &Node) -> Option<Shown> {
        let policy = self.subject.policy;
        let seats = &self.drive.seats;
        if seats.get(place) == Some(&node.member) {
            let legs = sight::legs(policy, &self.state, self.seen, seats);
            return legs.legs.get(place).cloned().flatten();
        }
        sight::tested(self.seen, &wanted.name, &node.name).or_else(|| {
            let why = self.state.hindrance(policy, seats, place, &node.member)?;
            let at = self.seen.started.clone();
            Some(Shown { verdict: Verdict::Unknown, why, latency_ms: None, at })
        })
    }
}
