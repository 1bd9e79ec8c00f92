//! A policy of kind `chain` on a lab's gateway: tunnel in tunnel through the provider's endpoints.
//!
//! Endpoint `k` is a node; the hops have two each: 1 and 2, 3 and 4, 5 and 6.
//!
//! **Invariant:** what a hop's tunnel sends by the WAN itself, past the hops before it, is counted.

use super::pool::{Pool, Tunnel};
use super::space;
use super::{Lab, names};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;

/// The devices of the three hops.
pub const HOPS: [&str; 3] = ["ch1", "ch2", "ch3"];

/// The name of a hop, by its place.
pub const NAMES: [&str; 3] = ["entry", "middle", "exit"];

/// A chain of three hops.
#[derive(Debug)]
pub struct Chain<'a> {
    pub lab: &'a Lab,
    pub pool: Pool<'a>,
}

/// The policy, with short waits.
pub fn policy(lab: &Lab) -> Value {
    let config = |k: usize| json!({ "config": lab.provider_dir().join(format!("p{k}.conf")) });
    let clients: Vec<String> =
        lab.clients().iter().enumerate().map(|(i, _)| names::client(i + 1).to_string()).collect();
    let hop = |place: usize| {
        let first = place * 2 + 1;
        let nodes =
            format!("{{\"n{first}\":{},\"n{}\":{}}}", config(first), first + 1, config(first + 1));
        json!({ "name": NAMES[place], "nodes": serde_json::from_str::<Value>(&nodes).expect("json") })
    };
    json!({
        "kind": "chain",
        "driver": { "wireguard": {
            "clients": clients, "lan_interfaces": ["eth1"], "wan_interface": "eth0",
            "userspace": "wireguard-go"
        } },
        "hops": [hop(0), hop(1), hop(2)],
        "probe": {
            "urls": [format!("http://{}/generate_204", names::PROBE)],
            "expect_status": [204], "timeout_sec": 1
        },
        "wan": { "urls": [format!("http://{}/generate_204", names::WAN_PROBE)] },
        "params": { "check_interval_sec": 0 }
    })
}

impl<'a> Chain<'a> {
    /// Writes the policy, changed as a test needs it; nothing runs yet.
    pub fn new(lab: &'a Lab, change: impl FnOnce(&mut Value)) -> Self {
        let mut policy = policy(lab);
        change(&mut policy);
        let _path = lab.gw().policy("home", &policy);
        // Endpoints of inner hops are asked through tunnels alone.
        let inner: Vec<String> = (3..=6).map(|k| names::endpoint(k).to_string()).collect();
        lab.spaces().isp.nft(&format!(
            "table inet watch {{\nchain past {{ type filter hook forward priority filter - 10; policy accept;\n\
             iifname \"gw\" ip daddr {{ {} }} counter\n}}\n}}\n",
            inner.join(", ")
        ));
        Self { lab, pool: Pool { lab } }
    }

    /// Writes the policy and brings the chain up in one step.
    pub fn up(lab: &'a Lab, change: impl FnOnce(&mut Value)) -> Self {
        let chain = Self::new(lab, change);
        let first = chain.pool.step();
        let stands = "entry PREFERRED, middle PREFERRED, exit PREFERRED";
        assert_eq!(first.went(), (Some(0), "-", stands), "{first:#?}\n{:#}", chain.pool.status());
        chain
    }

    /// How many packets of inner tunnels went out by the WAN, past the hops before them.
    pub fn past(&self) -> u64 {
        let isp = self.lab.spaces().isp.name();
        let table = space::run(
            Command::new("ip")
                .args(["netns", "exec", isp, "nft", "list", "table", "inet", "watch"]),
            "",
        );
        let counted = table.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
        counted.and_then(|count| count.parse().ok()).expect("the table counts")
    }

    /// That nothing of a client, a tunnel's address or an inner tunnel was ever seen on the WAN.
    pub fn nothing_leaked(&self) {
        assert_eq!(self.lab.capture.leaks(), []);
        assert_eq!(self.lab.capture.strays(), []);
        assert_eq!(self.past(), 0, "packets of inner tunnels by the WAN");
    }

    /// That the tunnels of all hops but this were left alone since.
    pub fn others_go_on(&self, before: &BTreeMap<String, Tunnel>, but: &str) {
        self.pool.others_go_on(before, &[but]);
    }
}
