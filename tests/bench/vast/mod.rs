//! The pure core in pools of any size: every question is answered, nothing is asked of a kernel or a network.
//!
//! **Invariant:** only what the core itself does is timed, in CPU time, and all of what a step asks of it.

#![allow(dead_code, unreachable_pub, reason = "each benchmark uses its part of it")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use egressctl::iproute::{Address, Link};
use egressctl::kernel::diff::diff;
use egressctl::kernel::{ConfigRef, Ends, World};
use egressctl::machine::{Considered, Decision, Machine as _, Owned, Subject};
use egressctl::names::{Interface, PolicyName};
use egressctl::observation::{
    Asker, KernelReading, ListReading, Observation, PageReading, PagesReading, Question, Reading,
    TrialReading, TrialResult,
};
use egressctl::policy::{Policy, PoolPolicy};
use egressctl::pool::candidate::{Candidate, Tested};
use egressctl::pool::{Pool, PoolState, layout};
use egressctl::time::Moment;
use egressctl::wireguard::PublicKey;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// How large a pool is.
#[derive(Clone, Copy)]
pub struct Size {
    pub slots: usize,
    pub clients: usize,
    pub candidates: usize,
    /// Whether the clients are one prefix that is spread, and not listed one by one.
    pub spread: bool,
}

pub fn interface(name: &str) -> Interface {
    Interface::try_from(name.to_owned()).unwrap()
}

pub fn slot(n: usize) -> String {
    format!("vpn{n}")
}

pub fn policy(size: Size) -> PoolPolicy {
    let client = |n: usize| Ipv4Addr::from(0x0a4e_0000 + u32::try_from(n + 2).unwrap()).to_string();
    let listed: Vec<String> = (0..size.clients).map(client).collect();
    let bits = size.clients.next_power_of_two().trailing_zeros();
    let prefix = format!("10.78.0.0/{}", 32 - bits);
    let text = json!({
        "kind": "pool",
        "slots": { "interfaces": (1..=size.slots).map(slot).collect::<Vec<_>>(), "first_table": 1000 },
        "clients": if size.spread { json!([{ "prefix": prefix, "spread": true }]) } else { listed.into() },
        "lan_interfaces": ["eth1"],
        "wan_interface": "eth0",
        "provider": { "http": { "url": "https://192.0.2.70/list.json" } },
        "probe": { "urls": ["http://192.0.2.80/generate_204"] },
        "wan": { "urls": ["http://192.0.2.90/"] },
        "test": { "parallel": 16 },
        // As many are tested as slots need, in one step, so that a row is one decision.
        "params": { "local_repair_retest_count": 1, "health_check_interval_sec": 3600 },
    });
    let Policy::Pool(policy) = Policy::parse(&text.to_string()).expect("a good policy") else {
        panic!("a pool")
    };
    *policy
}

pub fn key(n: usize) -> PublicKey {
    let mut bytes = [9_u8; 32];
    bytes[..4].copy_from_slice(&u32::try_from(n).unwrap().to_be_bytes());
    PublicKey::from_base64(&STANDARD.encode(bytes)).unwrap()
}

pub fn candidate(n: usize, generation: u32) -> Candidate {
    Candidate {
        name: format!("c{n}"),
        config: ConfigRef { generation, file: format!("c{n}.conf"), sha256: format!("{n:064x}") },
        ends: Ends {
            own: key(1_000_000),
            peer: key(n + 1),
            endpoint: None,
            allowed_ips: ["0.0.0.0/0".parse().unwrap()].into(),
            keepalive: 25,
            preshared: None,
        },
        host: Ipv4Addr::from(0xc612_0000 + u32::try_from(n).unwrap()).to_string(),
        port: 51_820,
        addresses: ["10.64.0.2/32".parse().unwrap()].into(),
        mtu: None,
        country: None,
        city: None,
        origin: None,
    }
}

/// The world of a benchmark: all that a pool has made, and endpoints that answer unless they are dead.
pub struct Bench {
    pub size: Size,
    pub policy: PoolPolicy,
    pub name: PolicyName,
    pub state: Option<PoolState>,
    pub owned: Owned,
    pub world: World,
    pub dead: BTreeSet<Interface>,
    pub now: Moment,
}

impl Bench {
    pub fn new(size: Size) -> Self {
        Self {
            size,
            policy: policy(size),
            name: PolicyName::try_from("home".to_owned()).unwrap(),
            state: None,
            owned: Owned::default(),
            world: World::default(),
            dead: BTreeSet::new(),
            now: Moment {
                at: "2026-01-01T00:00:00Z".parse().unwrap(),
                boot: "boot".into(),
                up_ms: 1_000_000,
            },
        }
    }

    pub fn later(&mut self, wait: Duration) {
        self.now = self.now.after(wait);
    }

    /// One decision, with the time that thinking took; answering its questions is not counted.
    pub fn decide(&mut self) -> (Decision<PoolState>, Duration) {
        let mut seen = Observation::new(self.now.clone());
        let mut took = Duration::ZERO;
        loop {
            self.later(Duration::from_millis(1));
            let subject = Subject {
                name: &self.name,
                policy: &self.policy,
                state: self.state.as_ref(),
                paused: false,
                owned: &self.owned,
            };
            let begun = used();
            let considered = Pool::consider(&subject, &seen, &self.now, true);
            took += used().saturating_sub(begun);
            match considered {
                Considered::Decide(decision) => return (*decision, took),
                Considered::Unable(why) => panic!("{why:?}"),
                Considered::Ask(questions) => {
                    for question in questions {
                        let reading = self.answer(&question);
                        seen.readings.insert(question, reading);
                    }
                }
            }
        }
    }

    /// Makes what was wished true.
    fn commit(&mut self, decision: Decision<PoolState>) {
        self.world = decision.wished.world;
        self.owned.interfaces = self.world.tunnels.keys().cloned().collect();
        if let Some(table) = &mut self.world.nft {
            table.listing = Some("as loaded".to_owned());
        }
        self.state = Some(decision.wished.state);
    }

    pub fn step(&mut self) -> (String, Duration) {
        let (decision, took) = self.decide();
        let to = decision.wished.to.clone();
        self.commit(decision);
        (to, took)
    }

    /// All candidates have passed their test, so that the reserve is as large as it can be.
    pub fn all_tested(&mut self) {
        let at = self.now.clone();
        let pool = self.state.as_mut().unwrap().pool.as_mut().unwrap();
        let passed = |n: u64| Tested::Passed { at: at.clone(), latency_ms: 20 + n % 50 };
        let tested: BTreeMap<String, Tested> =
            pool.candidates.iter().zip(0_u64..).map(|(c, n)| (c.name.clone(), passed(n))).collect();
        pool.tested = Arc::new(tested);
    }

    fn answer(&self, question: &Question) -> Reading {
        let at = self.now.clone();
        match question {
            Question::Kernel(_) => Reading::Kernel(Box::new(self.kernel())),
            Question::Names(_) => Reading::Names(BTreeMap::new()),
            other @ (Question::Carried(_)
            | Question::Standby(_)
            | Question::Tunnels(_)
            | Question::Core(_)
            | Question::Delays(_)
            | Question::Gost(_)
            | Question::Nodes(_)
            | Question::Outline(_)
            | Question::Setting(_)
            | Question::Wait { .. }) => panic!("this pool has no reason to ask {other:?}"),
            Question::List(list) => Reading::List {
                at,
                list: ListReading::Listed {
                    candidates: Arc::new(
                        (0..self.size.candidates).map(|n| candidate(n, list.generation)).collect(),
                    ),
                    rejected: Vec::new(),
                    validators: None,
                },
            },
            Question::Trial(_) => {
                Reading::Trial(TrialReading { at, result: TrialResult::Passed { latency_ms: 20 } })
            }
            Question::Pages(pages) => {
                let is_dead = matches!(&pages.asker, Asker::Slot(slot) if self.dead.contains(slot));
                let good = PageReading::Answer {
                    status: 204,
                    body: String::new(),
                    bytes: 0,
                    elapsed_ms: 20,
                };
                let page = if is_dead { PageReading::TimedOut } else { good };
                let pages = pages.pages.iter().map(|_| Some(page.clone())).collect();
                Reading::Pages(PagesReading { at, pages })
            }
        }
    }

    fn kernel(&self) -> KernelReading {
        let link = |index: u32, name: &str, address: &str| Link {
            index,
            name: name.to_owned(),
            up: true,
            lower_up: true,
            mtu: 1_500,
            kind: None,
            master: None,
            addresses: vec![Address {
                local: address.parse().unwrap(),
                peer: None,
                scope: 0,
                dynamic: false,
                unusable: false,
            }],
        };
        KernelReading {
            world: self.world.clone(),
            links: vec![link(1, "eth0", "192.0.2.2/24"), link(2, "eth1", "10.78.0.1/16")],
            default_device: Some(interface("eth0")),
            bindable: self.world.tunnels.keys().cloned().collect(),
            ..KernelReading::default()
        }
    }

    /// The plan for a decision, and how long making it took.
    pub fn plan(&self, decision: &Decision<PoolState>) -> (usize, Duration) {
        let mut desired = decision.wished.world.clone();
        if let (Some(wished), Some(now)) = (&mut desired.nft, &self.world.nft)
            && wished.text == now.text
        {
            wished.listing.clone_from(&now.listing);
        }
        let begun = used();
        let steps = diff(&self.world, &desired, &layout::means(&self.policy));
        (steps.len(), used().saturating_sub(begun))
    }
}

impl Bench {
    pub fn again(&self) -> Self {
        Self {
            size: self.size,
            policy: self.policy.clone(),
            name: self.name.clone(),
            state: self.state.clone(),
            owned: self.owned.clone(),
            world: self.world.clone(),
            dead: self.dead.clone(),
            now: self.now.clone(),
        }
    }
}

/// The CPU time of this thread so far: what else runs on the machine is not counted.
fn used() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(used.tv_sec).expect("time is not negative");
    Duration::new(seconds, u32::try_from(used.tv_nsec).expect("below a second"))
}

pub fn median(mut all: Vec<Duration>) -> f64 {
    all.sort();
    all[all.len() / 2].as_secs_f64() * 1000.0
}
