//! Playing a step: what the shell does, on values.
//!
//! **Invariant:** every way that a step may end is taken as the shell takes it, and what the shell
//! would find wrong afterwards is a contradiction here.

use super::kernel::{apply, same_world};
use super::{Lab, Outcome, Played, Trouble, Uplink, answers};
use crate::kernel::World;
use crate::kernel::diff::diff;
use crate::machine::{Considered, Decision, Future, Machine as _};
use crate::names::Interface;
use crate::observation::{Observation, Question, Reading};
use crate::plan::{Action, Check, Phase, Step, lint};
use crate::pool::{Pool, PoolState};
use std::collections::BTreeMap;

/// No step asks in so many rounds: one that does asks without end.
const ROUNDS: usize = 2_000;

/// What the proof of a change will show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Slots that will not carry requests, and why not.
    pub failed: BTreeMap<Interface, String>,
    /// Whether the uplink answers after that.
    pub uplink: bool,
}

impl Lab {
    /// The machine's decision, all its questions answered.
    ///
    /// # Errors
    /// When there is none.
    pub fn think(&mut self) -> Result<(Decision<PoolState>, Observation), Trouble> {
        let mut seen = Observation::new(self.now.clone());
        for _ in 0..ROUNDS {
            self.tick();
            let asked = match Pool::consider(&self.subject(), &seen, &self.now, true) {
                Considered::Ask(asked) => asked,
                Considered::Decide(decision) => return Ok((*decision, seen)),
                Considered::Unable(why) => return Err(Trouble::Unable(why)),
            };
            if asked.is_empty() {
                return Err(Trouble::Contradiction("it asks for nothing".to_owned()));
            }
            for question in asked {
                if seen.readings.contains_key(&question) {
                    return Err(Trouble::Contradiction(format!("asked twice: {question:?}")));
                }
                self.tick();
                let reading = self.answer(&question)?;
                seen.readings.insert(question, reading);
            }
        }
        Err(Trouble::Contradiction("it asks without end".to_owned()))
    }

    /// The wished world with what only the shell knows.
    #[must_use]
    pub fn complete(&self, desired: World) -> World {
        complete(self.loaded.as_ref(), desired)
    }

    /// Plays one step.
    ///
    /// # Errors
    /// When the policy cannot be served, or the program contradicts itself.
    pub fn play(&mut self) -> Result<Played, Trouble> {
        let (decision, seen) = self.think()?;
        let proof = self.proof(&decision)?;
        let played = self.carry_out(decision, seen, proof)?;
        if self.uplink == Uplink::FallsAtProof {
            self.uplink = Uplink::Up;
        }
        Ok(played)
    }

    /// What the world will show when a decision is proven.
    fn proof(&mut self, decision: &Decision<PoolState>) -> Result<Proof, Trouble> {
        let falls = matches!(self.uplink, Uplink::Down | Uplink::FallsAtProof);
        let mut failed = BTreeMap::new();
        for check in &decision.checks {
            self.tick();
            let Check::Answer { interface, ask, .. } = check else { continue };
            let config =
                decision.wished.world.tunnels.get(interface).and_then(|t| t.config.as_ref());
            let endpoint = config.and_then(|config| self.endpoints.get(answers::name_of(config)));
            if falls || !endpoint.is_some_and(|endpoint| endpoint.carries(ask.timeout_ms)) {
                failed.insert(interface.clone(), "no request was answered".to_owned());
            }
        }
        let mut uplink = failed.is_empty() || (decision.references.is_empty() && !falls);
        if !uplink && !falls {
            for reference in &decision.references {
                let reading = self.answer(reference)?;
                if let (Question::Pages(pages), Reading::Pages(seen)) = (reference, reading) {
                    uplink |= seen.passes(pages);
                }
            }
        }
        Ok(Proof { failed, uplink })
    }

    /// Makes a decision come true, or takes it back, as its proof shows.
    ///
    /// # Errors
    /// When the program contradicts itself.
    pub fn carry_out(
        &mut self,
        decision: Decision<PoolState>,
        seen: Observation,
        proof: Proof,
    ) -> Result<Played, Trouble> {
        let before = self.state.clone();
        let was = self.kernel.clone();
        let means = Pool::means(&self.policy);
        let desired = self.complete(decision.wished.world.clone());
        let plan = diff(&self.kernel, &desired, &means);
        if let Some(note) = lint(&plan).first() {
            return Err(Trouble::Contradiction(format!("the plan: {note}")));
        }
        let mut refused = None;
        let mut done = plan.clone();
        let outcome = if plan.is_empty() && decision.checks.is_empty() {
            self.commit(&decision.wished, &desired)?;
            Outcome::Steady
        } else if let Some(fails) = self.fail_at.take_if(|n| *n < plan.len()) {
            done.truncate(fails);
            self.run(done.iter().map(|step| &step.action))?;
            self.undo(&done, &was)?;
            self.state = Some(decision.undone.clone());
            Outcome::Undone
        } else if proof.failed.is_empty() {
            self.run(plan.iter().map(|step| &step.action))?;
            self.commit(&decision.wished, &desired)?;
            Outcome::Applied
        } else {
            done.retain(|step| step.phase == Phase::Build);
            self.run(done.iter().map(|step| &step.action))?;
            self.undo(&done, &was)?;
            if proof.uplink {
                let subject = self.subject();
                let Some(future) = Pool::refuse(&subject, &decision, &proof.failed, &self.now)
                else {
                    return Err(Trouble::Contradiction("a refused pool learns nothing".to_owned()));
                };
                let desired = self.complete(future.world.clone());
                done = diff(&self.kernel, &desired, &means);
                if let Some(note) = lint(&done).first() {
                    return Err(Trouble::Contradiction(format!("the other plan: {note}")));
                }
                self.run(done.iter().map(|step| &step.action))?;
                self.commit(&future, &desired)?;
                refused = Some(future);
                Outcome::Refused(proof.failed)
            } else {
                self.state = Some(decision.held.clone());
                Outcome::Held
            }
        };
        let after = self.state.clone().unwrap_or_else(|| PoolState::new(&self.now));
        let is = self.kernel.clone();
        Ok(Played { before, decision, refused, plan, done, outcome, after, was, is, seen })
    }

    fn run<'a>(&mut self, actions: impl Iterator<Item = &'a Action>) -> Result<(), Trouble> {
        for action in actions {
            apply(&mut self.kernel, action, &self.files).map_err(Trouble::Contradiction)?;
        }
        Ok(())
    }

    fn undo(&mut self, done: &[Step], was: &World) -> Result<(), Trouble> {
        self.run(done.iter().rev().flat_map(|step| &step.undo))?;
        same_world(&self.kernel, was)
            .map_err(|why| Trouble::Contradiction(format!("the undo is not whole: {why}")))
    }

    fn commit(&mut self, future: &Future<PoolState>, desired: &World) -> Result<(), Trouble> {
        self.owned.interfaces = desired.tunnels.keys().cloned().collect();
        self.loaded = desired.nft.as_ref().map(|table| (table.text.clone(), table.text.clone()));
        self.barrier.clone_from(&future.barrier);
        same_world(&self.kernel, desired)
            .map_err(|why| Trouble::Contradiction(format!("the world is not as wished: {why}")))?;
        // A tunnel is told by its keys, so one that a newer list has too goes by the newer file.
        for (interface, wished) in &desired.tunnels {
            if let Some(tunnel) = self.kernel.tunnels.get_mut(interface) {
                tunnel.config.clone_from(&wished.config);
            }
        }
        self.files.retain(|(generation, _), _| future.generations.contains(generation));
        self.state = Some(future.state.clone());
        Ok(())
    }
}

/// A world with the listing of the text that was loaded last.
pub(super) fn complete(loaded: Option<&(String, String)>, mut desired: World) -> World {
    if let (Some(table), Some((text, listing))) = (&mut desired.nft, loaded)
        && table.text == *text
    {
        table.listing = Some(listing.clone());
    }
    desired
}
