//! What is wrong with a chain's policy, beside what is wrong with any: leg by leg and as a whole.
//!
//! **Invariant:** the path is judged once, and a backup that fails is no failed path.

use super::{Code, Finding, Needs, Probe, ProbeResult, forward, pool};
use crate::chain::ChainState;
use crate::chain::legs::{Break, Legs};
use crate::chain::state::HopState;
use crate::chain::tunnels::key;
use crate::check::machine::Machine;
use crate::names::PolicyName;
use crate::observation::{Observation, TrialResult};
use crate::outcome::harmless;
use crate::policy::ChainPolicy;
use crate::policy::chain::{Driver, Hop, Node};
use crate::proxy::{Shown, Verdict};

/// What was collected of it.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The policy's name.
    pub name: &'a PolicyName,
    /// The policy.
    pub policy: &'a ChainPolicy,
    /// The machine.
    pub machine: &'a Machine,
    /// What was seen.
    pub seen: &'a Observation,
    /// What a step would remember of that.
    pub decided: Option<&'a ChainState>,
    /// What the last step remembered.
    pub known: Option<&'a ChainState>,
}

/// What it needs of the machine.
#[must_use]
pub fn needs(name: &PolicyName, policy: &ChainPolicy) -> Needs {
    let of_tunnels = match &policy.driver {
        Driver::Wireguard(driver) => pool::needs(name, &driver.lanes),
        Driver::Clash(_) | Driver::Gost(_) => Needs::default(),
    };
    let interval = Some(policy.params.interval());
    Needs { interval, policies: vec![name.to_string()], ..of_tunnels }
}

impl<'a> Facts<'a> {
    /// Each hop with what is known of it.
    fn hops(&self) -> Vec<(&'a Hop, &'a HopState)> {
        let hops = self.decided.into_iter().flat_map(|state| &state.hops);
        self.policy.hops.iter().zip(hops).collect()
    }

    /// What a node showed in this look. What would be tried on a device of its own is not tried.
    fn shown(&self, hop: &'a HopState, node: &Node) -> Option<&'a Shown> {
        let name = key(&hop.name, &node.name);
        let is_assumed = self
            .seen
            .trials()
            .any(|(trial, reading)| trial.name == name && reading.result == TrialResult::Assumed);
        hop.shown.get(&node.name).filter(|shown| shown.at >= self.seen.started && !is_assumed)
    }

    /// What it showed when a step last asked it.
    fn last(&self, hop: &HopState, node: &Node) -> Option<&'a Shown> {
        let known = self.known?.hops.iter().find(|known| known.name == hop.name)?;
        known.shown.get(&node.name)
    }

    /// What the whole path showed in this look.
    fn path(&self) -> Option<&'a Shown> {
        let path = self.decided.and_then(|state| state.path.as_ref());
        path.filter(|shown| shown.at >= self.seen.started)
    }

    /// Where the path breaks, by what carries.
    fn breaks(&self) -> Option<Break> {
        let path = self.path()?.clone();
        let leg = |(wanted, hop): &(&'a Hop, &'a HopState)| {
            let node = self.carries(wanted, hop)?;
            self.shown(hop, node).cloned()
        };
        let legs = self.hops().iter().map(leg).collect();
        Some(Legs { legs, path: Some(path) }.breaks(|_| false))
    }

    /// What carries: what stood before the step that would be made.
    fn carries(&self, wanted: &'a Hop, hop: &HopState) -> Option<&'a Node> {
        match &self.decided?.under_way {
            Some(way) => {
                let place = self.policy.hops.iter().position(|known| known.name == hop.name)?;
                wanted.of_member(way.before.get(place)?)
            }
            None => hop.node(wanted),
        }
    }
}

/// What is wrong with it.
#[must_use]
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let name = facts.name;
    let mut found = Vec::new();
    if let Driver::Wireguard(driver) = &facts.policy.driver {
        let ruleset = &facts.machine.ruleset;
        found.extend(forward::marks(ruleset, driver.lanes.routing.first_mark));
        found.extend(forward::offload(ruleset));
    }
    let at = match facts.breaks() {
        Some(Break::At(place)) => {
            let hop = facts.hops().get(place).copied();
            hop.map(|(wanted, hop)| {
                let node = facts.carries(wanted, hop);
                let why = node.and_then(|node| facts.shown(hop, node)).map(|shown| &shown.why);
                let why = why.map(|why| format!(": {}", harmless(why))).unwrap_or_default();
                let node = node.map_or("what carries", |node| node.name.as_str());
                format!("the path breaks at {}, where {node} does not pass{why}", wanted.name)
            })
        }
        Some(Break::Outside(why)) => {
            Some(format!("the path fails, and no hop can be blamed for it: {}", harmless(&why)))
        }
        Some(Break::Nowhere | Break::Unknown(_)) | None => None,
    };
    let mend = || format!("egressctl status {name}; steps try the other nodes");
    found.extend(at.map(|what| Finding::new(Code::PathBroken, what, mend())));
    for (wanted, hop) in facts.hops() {
        let carries = facts.carries(wanted, hop);
        for node in wanted.nodes.iter().filter(|node| Some(*node) != carries) {
            let shown = facts.shown(hop, node).or_else(|| facts.last(hop, node));
            let Some(shown) = shown.filter(|shown| shown.verdict == Verdict::Failed) else {
                continue;
            };
            found.push(Finding::new(
                Code::BackupSilent,
                format!("{} of {} does not pass: {}", node.name, wanted.name, harmless(&shown.why)),
                "mend the node, or name another one in its place",
            ));
        }
    }
    found
}

/// Each leg of each node, and the whole path.
#[must_use]
pub fn probes(facts: &Facts<'_>) -> Vec<Probe> {
    let result = |shown: Option<&Shown>| match shown.map(|shown| shown.verdict) {
        Some(Verdict::Passed) => ProbeResult::Passed,
        Some(Verdict::Failed) => ProbeResult::Failed,
        Some(Verdict::Unknown) | None => ProbeResult::Unknown,
    };
    let text = |shown: Option<&Shown>| match shown {
        Some(Shown { latency_ms: Some(ms), .. }) => format!("{ms} ms"),
        Some(shown) => shown.why.clone(),
        None => "it was not asked".to_owned(),
    };
    let mut probes = Vec::new();
    for (wanted, hop) in facts.hops() {
        let carries = facts.carries(wanted, hop);
        for node in &wanted.nodes {
            let now = facts.shown(hop, node);
            let shown = now.or_else(|| facts.last(hop, node));
            let what = if Some(node) == carries { "carries, " } else { "" };
            let when = if shown.is_some() && now.is_none() { ", at its last test" } else { "" };
            probes.push(Probe {
                probe: format!("{}/{}", wanted.name, node.name),
                result: result(shown),
                text: format!("{what}{}{when}", text(shown)),
            });
        }
    }
    let path = facts.path();
    probes.push(Probe { probe: "path".to_owned(), result: result(path), text: text(path) });
    probes
}
