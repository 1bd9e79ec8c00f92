//! Playing a step: what the shell does, on values.

use super::{Endpoint, Lab, Outcome, Played, Uplink, answers, apply, same_world};
use egressctl::kernel::World;
use egressctl::kernel::diff::diff;
use egressctl::machine::{Considered, Decision, Machine as _, ReasonText};
use egressctl::names::Interface;
use egressctl::observation::Observation;
use egressctl::plan::{Check, Phase, Step, lint};
use egressctl::pool::candidate::Candidate;
use egressctl::pool::{Pool, PoolState};
use std::collections::BTreeMap;

impl Lab {
    /// The machine's decision, all its questions answered.
    pub fn decide(&mut self) -> (Decision<PoolState>, Observation) {
        self.consider().unwrap_or_else(|why| panic!("unable: {why:?}"))
    }

    /// The same, or why there is none.
    pub fn consider(&mut self) -> Result<(Decision<PoolState>, Observation), Vec<ReasonText>> {
        let mut seen = Observation::new(self.now.clone());
        for _ in 0..200 {
            self.tick();
            let asked = match Pool::consider(&self.subject(), &seen, &self.now, true) {
                Considered::Ask(asked) => asked,
                Considered::Decide(decision) => return Ok((*decision, seen)),
                Considered::Unable(why) => return Err(why),
            };
            assert!(!asked.is_empty(), "it asks for nothing");
            for question in asked {
                assert!(!seen.readings.contains_key(&question), "asked twice: {question:?}");
                self.tick();
                let reading = self.answer(&question);
                seen.readings.insert(question, reading);
            }
        }
        panic!("it asks without end");
    }

    /// The wished world with what only the shell knows.
    pub fn complete(&self, mut desired: World) -> World {
        if let (Some(table), Some((text, listing))) = (&mut desired.nft, &self.loaded)
            && table.text == *text
        {
            table.listing = Some(listing.clone());
        }
        desired
    }

    /// Plays one step.
    pub fn step(&mut self) -> Played {
        let before = self.state.clone();
        let was = self.kernel.clone();
        let (decision, seen) = self.decide();
        let desired = self.complete(decision.wished.world.clone());
        let plan = diff(&self.kernel, &desired, &Pool::means(&self.policy));
        assert_eq!(lint(&plan), Vec::<String>::new(), "the plan contradicts itself");
        let candidates = self.candidates(&decision.wished.state);
        let mut refused = None;
        let outcome = if plan.is_empty() && decision.checks.is_empty() {
            self.commit(decision.wished.state.clone(), &desired);
            Outcome::Steady
        } else if self.fail_at.is_some_and(|n| n < plan.len()) {
            let done = self.fail_at.take().unwrap();
            for step in &plan[..done] {
                apply(&mut self.kernel, &step.action, &candidates);
            }
            self.undo(&plan[..done], &was, &candidates);
            self.state = Some(decision.undone.clone());
            Outcome::Undone
        } else {
            let built = plan.iter().filter(|step| step.phase == Phase::Build).count();
            for step in &plan[..built] {
                apply(&mut self.kernel, &step.action, &candidates);
            }
            let failed = self.prove(&decision, &seen);
            if failed.is_empty() {
                for step in &plan[built..] {
                    apply(&mut self.kernel, &step.action, &candidates);
                }
                self.commit(decision.wished.state.clone(), &desired);
                Outcome::Applied
            } else {
                self.undo(&plan[..built], &was, &candidates);
                match self.uplink {
                    Uplink::Up | Uplink::ReferencesDown => {
                        let (subject, now) = (self.subject(), self.now.clone());
                        let future = Pool::refuse(&subject, &decision, &failed, &now)
                            .expect("a pool keeps what it learned");
                        let desired = self.complete(future.world.clone());
                        let means = Pool::means(&self.policy);
                        let candidates = self.candidates(&future.state);
                        for step in diff(&self.kernel, &desired, &means) {
                            apply(&mut self.kernel, &step.action, &candidates);
                        }
                        self.commit(future.state.clone(), &desired);
                        refused = Some(future);
                        Outcome::Refused(failed)
                    }
                    Uplink::Down | Uplink::FallsAtProof => {
                        self.state = Some(decision.held.clone());
                        Outcome::Held
                    }
                }
            }
        };
        if self.uplink == Uplink::FallsAtProof {
            self.uplink = Uplink::Up;
        }
        let (after, is) = (self.state().clone(), self.kernel.clone());
        Played { before, decision, refused, plan, outcome, after, was, is, seen }
    }

    /// Steps so often, some time apart.
    pub fn steps(&mut self, times: usize, apart: u64) -> Vec<Played> {
        (0..times)
            .map(|_| {
                self.later(apart);
                self.step()
            })
            .collect()
    }

    fn undo(&mut self, done: &[Step], was: &World, candidates: &BTreeMap<String, Candidate>) {
        for action in done.iter().rev().flat_map(|step| &step.undo) {
            apply(&mut self.kernel, action, candidates);
        }
        same_world(&self.kernel, was).unwrap_or_else(|why| panic!("the undo is not whole: {why}"));
    }

    fn commit(&mut self, state: PoolState, desired: &World) {
        self.owned.interfaces = desired.tunnels.keys().cloned().collect();
        self.loaded = desired.nft.as_ref().map(|table| (table.text.clone(), table.text.clone()));
        same_world(&self.kernel, desired)
            .unwrap_or_else(|why| panic!("the world is not as wished: {why}"));
        self.state = Some(state);
    }

    /// Slots that do not carry the requests that the decision wants to see.
    fn prove(
        &mut self,
        decision: &Decision<PoolState>,
        seen: &Observation,
    ) -> BTreeMap<Interface, String> {
        let mut failed = BTreeMap::new();
        for check in &decision.checks {
            self.tick();
            match check {
                Check::Answer { interface, .. } => {
                    let works = self.kernel.tunnels.get(interface).is_some_and(|tunnel| {
                        let name = tunnel.config.as_ref().map(answers::name_of);
                        name.and_then(|name| self.endpoints.get(&name)).is_some_and(|e| match e {
                            Endpoint::Alive | Endpoint::SmallOnly => true,
                            Endpoint::Dead
                            | Endpoint::Portal
                            | Endpoint::TrialOnly
                            | Endpoint::Untried
                            | Endpoint::Broken => false,
                        })
                    });
                    if !works || matches!(self.uplink, Uplink::Down | Uplink::FallsAtProof) {
                        failed.insert(interface.clone(), "no answer".to_owned());
                    }
                }
                Check::Route { .. } => {}
            }
        }
        assert!(seen.kernel().is_some());
        failed
    }

    /// Every candidate that a state names, by its file.
    fn candidates(&self, state: &PoolState) -> BTreeMap<String, Candidate> {
        let old = self.state.iter();
        old.chain(std::iter::once(state))
            .flat_map(|state| {
                let lists = state
                    .pool
                    .iter()
                    .chain(&state.fresh)
                    .chain(&state.short)
                    .flat_map(|l| &l.candidates);
                let slots = state.slots.values().filter_map(|slot| slot.candidate());
                let standby = state.standby.iter().filter_map(|s| s.candidate.as_ref());
                lists.chain(slots).chain(standby).cloned().collect::<Vec<_>>()
            })
            .map(|candidate| (candidate.config.path(), candidate))
            .collect()
    }

    /// Whether nothing has to be changed as things are.
    pub fn quiet(&mut self) -> bool {
        let copy = self.clone();
        let (decision, _) = self.decide();
        let desired = self.complete(decision.wished.world.clone());
        let plan = diff(&self.kernel, &desired, &Pool::means(&self.policy));
        *self = copy;
        plan.is_empty() && decision.checks.is_empty()
    }
}
