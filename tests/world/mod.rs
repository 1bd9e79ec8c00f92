//! The program's own small world (`egressctl::simulate`), as tests play in it: what it refuses is a
//! failed test.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::format_push_string,
    clippy::too_many_lines,
    missing_docs,
    unreachable_pub,
    reason = "test code, and not every test uses all of it"
)]

mod input;
mod story;

use egressctl::kernel::diff::diff;
use egressctl::machine::{Decision, Machine as _, ReasonText};
use egressctl::names::{Interface, PolicyName};
use egressctl::observation::Observation;
use egressctl::policy::{Policy, PoolPolicy};
use egressctl::pool::candidate::Candidate;
use egressctl::pool::{Pool, PoolState};
use egressctl::simulate::Trouble;

pub use egressctl::simulate::{Endpoint, Lab, Outcome, Played, Source, Uplink, same_world};
pub use input::{Input, NAMES, inputs};
pub use story::story;

pub fn candidate(name: &str, generation: u32) -> Candidate {
    egressctl::simulate::candidate(name, generation).expect("a hash is a key")
}

pub fn interface(name: &str) -> Interface {
    Interface::try_from(name.to_owned()).unwrap()
}

/// A policy of so many slots and clients, with `params` laid over.
pub fn policy(slots: usize, clients: usize, params: &serde_json::Value) -> PoolPolicy {
    policy_by(
        slots,
        clients,
        params,
        &serde_json::json!({ "directory": { "path": "/etc/egressctl/endpoints" } }),
    )
}

/// The same with another provider.
pub fn policy_by(
    slots: usize,
    clients: usize,
    params: &serde_json::Value,
    provider: &serde_json::Value,
) -> PoolPolicy {
    let interfaces: Vec<String> = (1..=slots).map(|n| format!("vpn{n}")).collect();
    let clients: Vec<String> = (1..=clients).map(|n| format!("10.77.0.{}", 10 + n)).collect();
    let text = serde_json::json!({
        "kind": "pool",
        "slots": { "interfaces": interfaces },
        "clients": clients,
        "lan_interfaces": ["eth1"],
        "wan_interface": "eth0",
        "provider": provider,
        "probe": { "urls": ["http://192.0.2.80/generate_204"],
                   "large": { "url": "http://192.0.2.80/large", "bytes": 1400 } },
        "wan": { "urls": ["http://192.0.2.90/"] },
        "test": { "parallel": 2 },
        "params": params,
    });
    let Policy::Pool(policy) = Policy::parse(&text.to_string()).expect("a good policy") else {
        panic!("it is a pool")
    };
    *policy
}

/// A world of the policy `home` where every endpoint of the list lives.
pub fn lab_of(policy: PoolPolicy, names: &[&str]) -> Lab {
    Lab::new(PolicyName::try_from("home".to_owned()).unwrap(), policy, names)
}

/// Playing, where the world refuses nothing.
pub trait Steps {
    fn state(&self) -> &PoolState;
    fn decide(&mut self) -> (Decision<PoolState>, Observation);
    /// The decision, or why there is none.
    fn consider(&mut self) -> Result<(Decision<PoolState>, Observation), Vec<ReasonText>>;
    fn step(&mut self) -> Played;
    /// Steps so often, some time apart.
    fn steps(&mut self, times: usize, apart: u64) -> Vec<Played>;
    /// Whether nothing has to be changed as things are.
    fn quiet(&mut self) -> bool;
}

impl Steps for Lab {
    fn state(&self) -> &PoolState {
        self.state.as_ref().expect("stepped before")
    }

    fn decide(&mut self) -> (Decision<PoolState>, Observation) {
        self.think().unwrap_or_else(|trouble| panic!("{trouble}"))
    }

    fn consider(&mut self) -> Result<(Decision<PoolState>, Observation), Vec<ReasonText>> {
        self.think().map_err(|trouble| match trouble {
            Trouble::Unable(why) => why,
            Trouble::Contradiction(why) => panic!("{why}"),
        })
    }

    fn step(&mut self) -> Played {
        self.play().unwrap_or_else(|trouble| panic!("{trouble}"))
    }

    fn steps(&mut self, times: usize, apart: u64) -> Vec<Played> {
        (0..times)
            .map(|_| {
                self.later(apart);
                self.step()
            })
            .collect()
    }

    fn quiet(&mut self) -> bool {
        let copy = self.clone();
        let (decision, _) = self.decide();
        let desired = self.complete(decision.wished.world.clone());
        let plan = diff(&self.kernel, &desired, &Pool::means(&self.policy));
        *self = copy;
        plan.is_empty() && decision.checks.is_empty()
    }
}
