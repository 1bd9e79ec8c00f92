//! An exhaustive walk over the states of a pool.
//!
//! It begins at the first run and goes on, from each state that it finds, by every row of answers that the
//! world may give (`oracle`), by every way that the proof may go, and by the passing of time, until no
//! state is new. States are told apart by what their next step may depend on (`canon`). Each step is held
//! to the laws (`law`), and its commands too where they were not seen before (`kernel`).
//!
//! Time is abstracted: windows are due, or not. Steps are seconds apart; a wait is an edge of its own.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::too_many_lines,
    clippy::wildcard_enum_match_arm,
    clippy::as_conversions,
    clippy::print_stdout,
    clippy::struct_excessive_bools,
    missing_docs,
    unreachable_pub,
    unused_imports,
    reason = "test code, and not every test uses all of it"
)]

pub mod canon;
pub mod kernel;
pub mod law;
pub mod oracle;
pub mod rows;
pub mod trace;

use crate::world::lab_of;
use canon::{
    APART, BRIEF, FOREVER, Key, Limits, UNKNOWN_STEPS, is_well, key, normalize, world_key,
};
use egressctl::kernel::diff::diff;
use egressctl::kernel::{NftTable, World};
use egressctl::machine::{Considered, Machine as _};
use egressctl::policy::PoolPolicy;
use egressctl::pool::candidate::Candidate;
use egressctl::pool::{Pool, PoolState, layout};
use egressctl::simulate::{Lab, Played, Proof};
use egressctl::time::Moment;
use oracle::{End, Leaf, Menu, Probe, explore};
use rows::Sight;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use trace::brief;

/// As many as the smallest machine has that tests run on.
const THREADS: usize = 2;
/// In fewer steps a well world leads to NORMAL, or it never does.
const STEPS: usize = 30;

/// Holds a step to the laws that was played and not walked.
pub fn lawful(before: &Lab, after: &Lab, played: &Played) {
    let leaf = Leaf::of(played, &after.now);
    law::lawful(&before.policy, &leaf);
    kernel::lawful(before, &leaf, played);
}

/// One walk.
pub struct Slice {
    pub name: &'static str,
    pub policy: PoolPolicy,
    pub menu: Menu,
    pub names: Vec<&'static str>,
    /// Whether the machine may reboot before a step.
    pub reboots: bool,
    /// Whether a person may ask for a refresh before a step.
    pub asks: bool,
}

/// A state on the way, and when it was.
struct Node {
    state: Option<PoolState>,
    now: Moment,
    key: Key,
    depth: u32,
}

/// What a walk found.
#[derive(Default)]
pub struct Found {
    pub states: u64,
    pub edges: u64,
    pub worlds: u64,
    pub bound: usize,
    pub sights: BTreeSet<Sight>,
    /// By state: what the same becomes with time, and what a well world makes of it.
    aged: BTreeMap<Key, Key>,
    well: BTreeMap<Key, (Key, bool)>,
    new: BTreeMap<Key, Node>,
    seen_worlds: BTreeSet<(Key, Key, Key, End, bool)>,
}

impl Slice {
    fn limits(&self) -> Limits {
        let params = &self.policy.params;
        Limits {
            failures: params.health_failures_before_down,
            retests: params.local_repair_retest_count.max(1),
            repairs: params.full_refresh_after_repairs,
            // The last one counts when it comes.
            alarms: if params.flap_limit < 10 { params.flap_limit - 1 } else { 0 },
            brief: params.bootstrap_retry_interval_sec > 0,
            lengthy: params.hmn_refresh_retry_interval_sec > 0,
        }
    }

    fn key(&self, state: Option<&PoolState>, now: &Moment) -> Key {
        key(state, now, self.limits(), &self.names)
    }

    /// Puts a lab into the world that a state has left, with its files.
    fn put(&self, lab: &mut Lab, bare: &Lab, node: &Node) {
        lab.state.clone_from(&node.state);
        lab.now = node.now.clone();
        lab.kernel = World { sysctls: bare.kernel.sysctls.clone(), ..World::default() };
        lab.loaded = None;
        lab.barrier = None;
        lab.files.clear();
        let Some(state) = &node.state else { return };
        let lists = state.pool.iter().chain(&state.fresh).chain(&state.short);
        let slots = state.slots.values();
        let all: Vec<Candidate> = lists
            .flat_map(|list| list.candidates.iter())
            .chain(slots.flat_map(|slot| slot.candidate().into_iter().chain(&slot.replaced)))
            .cloned()
            .collect();
        lab.store(&all);
        let Some(surroundings) = &state.surroundings else { return };
        let wished = layout::world(&self.policy, &lab.name, state, surroundings);
        if layout::holds_clients(&self.policy, state) {
            let table = layout::nft_layout(&self.policy, &lab.name, state, surroundings);
            lab.barrier = Some(table.at_boot().render());
        }
        lab.kernel.sysctls.extend(wished.sysctls.clone());
        let nft = wished.nft.map(|table| NftTable { listing: Some(table.text.clone()), ..table });
        lab.loaded = nft.as_ref().map(|table| (table.text.clone(), table.text.clone()));
        lab.owned.interfaces = wished.tunnels.keys().cloned().collect();
        let sysctls = lab.kernel.sysctls.clone();
        lab.kernel = World { nft, sysctls, ..wished };
    }

    /// Every step from a state.
    fn expand(&self, lab: &mut Lab, bare: &Lab, node: &Node, found: &mut Found) {
        assert!(node.depth < 600, "so deep that waits are not told apart any more");
        for wait in [2 * BRIEF, FOREVER] {
            let now = node.now.after(Duration::from_secs(wait));
            let key = self.key(node.state.as_ref(), &now);
            if wait == FOREVER {
                found.aged.insert(node.key, key);
            }
            if key != node.key {
                found.edges += 1;
                let (state, depth) = (node.state.clone(), node.depth + 1);
                found.new.entry(key).or_insert(Node { state, now, key, depth });
            }
        }
        self.put(lab, bare, node);
        lab.later(APART);
        self.steps(lab, node, true, found);
        if node.state.is_none() {
            return;
        }
        if self.reboots {
            self.put(lab, bare, node);
            lab.later(APART);
            lab.reboot();
            self.steps(lab, node, false, found);
        }
        if self.asks {
            self.put(lab, bare, node);
            lab.later(APART);
            lab.state = lab.state.as_ref().and_then(|state| Pool::refresh(state, &lab.now));
            self.steps(lab, node, false, found);
        }
    }

    fn steps(&self, lab: &mut Lab, node: &Node, plain: bool, found: &mut Found) {
        let settled = is_well(node.state.as_ref()) && plain;
        explore(lab, &self.menu, &mut |lab, leaf| {
            found.edges += 1;
            law::lawful(&self.policy, leaf);
            let sight = Sight::of(leaf);
            if !found.sights.contains(&sight) {
                found.sights.insert(sight);
            }
            let after = leaf.after();
            let key = self.key(Some(after), &leaf.now);
            if leaf.well && plain && leaf.end == End::True {
                found.well.insert(node.key, (key, is_well(Some(after))));
            }
            let quiet = settled && leaf.well;
            let worlds = [leaf.before, Some(after), Some(&leaf.decision.wished.state)];
            let [was, is, wished] = worlds.map(world_key);
            // What a step does to the kernel depends on what was and what is wished alone.
            if found.seen_worlds.insert((was, is, wished, leaf.end, plain)) || quiet {
                found.worlds += 1;
                Self::carry_out(lab, leaf, quiet);
            }
            let depth = node.depth + 1;
            let mut reach = |key: Key, change: &dyn Fn(&mut PoolState)| {
                if key != node.key && !found.new.contains_key(&key) {
                    let mut state = after.clone();
                    normalize(&mut state);
                    change(&mut state);
                    let now = leaf.now.clone();
                    found.new.insert(key, Node { state: Some(state), now, key, depth });
                }
            };
            reach(key, &|_| {});
            // Where nothing can be said of a slot again and again, nothing else changes.
            if key == node.key && after.slots.values().any(|slot| slot.unknown > 0) {
                let long = |state: &mut PoolState| {
                    for (name, slot) in &mut state.slots {
                        if after.slots[name].unknown > 0 {
                            slot.unknown = UNKNOWN_STEPS;
                        }
                    }
                };
                let mut state = after.clone();
                long(&mut state);
                reach(self.key(Some(&state), &leaf.now), &long);
            }
        });
    }

    /// Carries the step out in the kernel, and takes it back where it is to be.
    fn carry_out(lab: &Lab, leaf: &Leaf<'_>, quiet: bool) {
        let mut lab = lab.clone();
        lab.now = leaf.now.clone();
        let proof = Proof { failed: leaf.failed.clone(), uplink: leaf.end == End::Refused };
        let (decision, seen) = (leaf.decision.clone(), leaf.seen.clone());
        if leaf.end == End::Undone {
            let desired = lab.complete(decision.wished.world.clone());
            let plan = diff(&lab.kernel, &desired, &Pool::means(&lab.policy));
            if plan.is_empty() {
                return;
            }
            lab.fail_at = Some(plan.len() - 1);
        }
        // The files of before are there while the step lasts.
        let mut done = lab.clone();
        let played = done
            .carry_out(decision, seen, proof)
            .unwrap_or_else(|why| panic!("{why}\n{}", brief(leaf.before, &leaf.now)));
        kernel::lawful(&lab, leaf, &played);
        if quiet {
            let said = brief(leaf.before, &leaf.now);
            assert!(played.plan.is_empty(), "a settled state does something: {said}");
            assert!(played.decision.checks.is_empty(), "a settled state proves something: {said}");
        }
    }

    /// Walks to the end.
    pub fn walk(&self) -> Found {
        let began = Instant::now();
        let bare = lab_of(self.policy.clone(), &self.names);
        let start = Node { state: None, now: bare.now.clone(), key: 0, depth: 0 };
        let mut known: BTreeSet<Key> = [0].into();
        let mut level = vec![start];
        let mut all = Found::default();
        // Each thread remembers which changes of the kernel it has looked at.
        let mut worlds: Vec<BTreeSet<_>> = vec![BTreeSet::new(); THREADS];
        while !level.is_empty() {
            let parts: Vec<Found> = std::thread::scope(|scope| {
                let (level, bare) = (&level, &bare);
                let threads: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        let worlds = std::mem::take(&mut worlds[thread]);
                        scope.spawn(move || {
                            let mut lab = bare.clone();
                            let mut found = Found { seen_worlds: worlds, ..Found::default() };
                            for node in level.iter().skip(thread).step_by(THREADS) {
                                self.expand(&mut lab, bare, node, &mut found);
                            }
                            found
                        })
                    })
                    .collect();
                let join = |thread: std::thread::ScopedJoinHandle<'_, Found>| {
                    thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
                };
                threads.into_iter().map(join).collect()
            });
            level.clear();
            for (thread, part) in parts.into_iter().enumerate() {
                worlds[thread] = part.seen_worlds;
                all.edges += part.edges;
                all.worlds += part.worlds;
                all.aged.extend(part.aged);
                all.well.extend(part.well);
                all.sights.extend(part.sights);
                for (key, node) in part.new {
                    if known.insert(key) {
                        level.push(node);
                    }
                }
            }
            if std::env::var("LAWS_TELL").is_ok() {
                let (states, edges, to_go) = (known.len(), all.edges, level.len());
                println!("{}: {states} states, {edges} edges, {to_go} to go", self.name);
            }
        }
        all.states = known.len() as u64;
        all.bound = all.bound(self.name);
        println!(
            "{}: {} states, {} edges, {} changes of the kernel; NORMAL in {} steps at most; {} ms",
            self.name,
            all.states,
            all.edges,
            all.worlds,
            all.bound,
            began.elapsed().as_millis(),
        );
        all
    }
}

impl Found {
    /// In how many steps of a well world, each as late as it likes, every state is NORMAL with nothing
    /// left to do.
    fn bound(&self, name: &str) -> usize {
        let mut most = 0;
        for start in self.well.keys() {
            let mut at = *start;
            for n in 1.. {
                assert!(n < STEPS, "{name}: a well world does not lead to NORMAL");
                let aged = self.aged.get(&at).copied().unwrap_or(at);
                let (next, is_well) = self.well[&aged];
                if is_well {
                    most = most.max(n);
                    break;
                }
                at = next;
            }
        }
        most
    }
}
