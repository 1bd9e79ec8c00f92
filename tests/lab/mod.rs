//! A lab of real Linux networks: clients, a gateway, an internet, and a provider with a WireGuard server an endpoint.
//!
//! ```text
//! c1..cM --(lan)-- eth1 gw eth0 --(capture)-- isp --+-- prov (endpoints 1..N)
//! spread --'                          neighbour --'  +-- web
//! ```
//!
//! **Invariant:** a lab leaves nothing behind, also when its test panics; one that was killed is removed by the next.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of the lab")]

pub mod capture;
pub mod chain;
pub mod client;
pub mod faults;
pub mod gateway;
pub mod names;
pub mod pool;
pub mod provider;
pub mod source;
pub mod space;
pub mod topology;
pub mod web;

use capture::Capture;
use client::Client;
use faults::Faults;
use gateway::Gateway;
use serde_json::{Value, json};
use source::Source;
use space::Ground;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use topology::{Baseline, Spaces};
use web::{Servers, Traps};

/// How a lab differs from the usual one.
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    clients: usize,
    endpoints: usize,
    baseline: Baseline,
}

impl Builder {
    /// How many clients, each in a namespace of its own.
    pub fn clients(mut self, count: usize) -> Self {
        self.clients = count;
        self
    }

    /// How many endpoints the provider has.
    pub fn endpoints(mut self, count: usize) -> Self {
        self.endpoints = count;
        self
    }

    /// The gateway filters reverse paths strictly, instead of loosely.
    pub fn strict(mut self) -> Self {
        self.baseline.strict = true;
        self
    }

    /// The gateway has its own masquerade on the WAN, by a table that is not egressctl's.
    pub fn masquerade(mut self) -> Self {
        self.baseline.masquerade = true;
        self
    }

    /// Main has `0.0.0.0/1` and `128.0.0.0/1` by the WAN.
    pub fn halves(mut self) -> Self {
        self.baseline.halves = true;
        self
    }

    /// Builds it all; the lab is whole when this returns.
    pub fn start(self) -> Lab {
        required();
        let prefix = names::prefix();
        let spaces = Spaces::new(&prefix, self.clients);
        let ground = Ground::new(&prefix, &Spaces::roles(self.clients));
        topology::build(&spaces, self.baseline);
        // A pair of devices has its carrier a moment after both were set up; a test that compares the
        // kernel with what it was at first would else see that as a change.
        let is_up = |device: &str| {
            let mut show = Command::new("ip");
            show.args(["-o", "link", "show", "dev", device]);
            spaces.gw.inside(|| space::run(&mut show, "")).contains("state UP")
        };
        let came = space::wait_until(Duration::from_secs(5), || is_up("eth0") && is_up("eth1"));
        assert!(came, "the gateway's devices have their carrier");
        let holder = ground.hold(&spaces.gw);
        let gateway = Gateway::new(&spaces.gw, holder, self.baseline, ground.folder());
        let provider = ground.hold(&spaces.prov);
        provider::start(&ground, &spaces.prov, provider, self.endpoints);
        let mut servers = Servers::default();
        servers.web(&spaces.web, &spaces.isp, names::NEIGHBOUR);
        servers.portal(&spaces.prov, provider::PORTAL_PORT);
        let source = Source::new(self.endpoints);
        servers.source(&spaces.web, &source);
        let faults = Faults::new(&spaces.isp, &spaces.prov);
        let capture = Capture::start(&spaces.isp, &spaces.gw);
        let endpoints = self.endpoints;
        let lab = Lab { capture, source, servers, faults, gateway, spaces, endpoints, ground };
        let _files = lab.write_configs(&lab.provider_dir(), 1..=self.endpoints);
        lab
    }
}

/// A running lab; its faults are methods of it, too.
#[derive(Debug)]
pub struct Lab {
    pub capture: Capture,
    pub source: Source,
    servers: Servers,
    faults: Faults,
    gateway: Gateway,
    spaces: Spaces,
    endpoints: usize,
    // The fields above are dropped before this one, which removes the namespaces.
    ground: Ground,
}

impl Deref for Lab {
    type Target = Faults;

    fn deref(&self) -> &Faults {
        &self.faults
    }
}

impl Lab {
    /// Five clients and eight endpoints, unless something else is said.
    pub fn builder() -> Builder {
        Builder { clients: 5, endpoints: 8, baseline: Baseline::default() }
    }

    /// The usual lab.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Client `k`, counted from 1.
    pub fn client(&self, k: usize) -> Client {
        Client::new(&self.spaces.clients[k - 1], k)
    }

    /// All clients.
    pub fn clients(&self) -> Vec<Client> {
        (1..=self.spaces.clients.len()).map(|k| self.client(k)).collect()
    }

    /// The endpoint by which each client leaves, asked side by side.
    pub fn exits(&self) -> Vec<Option<usize>> {
        let clients = self.clients();
        std::thread::scope(|scope| {
            let asked: Vec<_> =
                clients.iter().map(|client| scope.spawn(|| client.endpoint())).collect();
            asked.into_iter().map(|thread| thread.join().expect("no client panics")).collect()
        })
    }

    /// Client `i` of 10.78.0.0/22, counted from 1 to 1,000.
    pub fn spread_client(&self, i: usize) -> Client {
        Client::spread(&self.spaces.spread, i)
    }

    /// The gateway under test.
    pub fn gw(&self) -> &Gateway {
        &self.gateway
    }

    /// Makes a second gateway of the same LAN, with an uplink of its own, of the namespace of the spread
    /// clients, who are none then. Its LAN is `eth0`, its WAN `eth1`, its address 10.77.0.2.
    pub fn second_gateway(&self) -> Gateway {
        topology::second_gateway(&self.spaces);
        let holder = self.ground.hold(&self.spaces.spread);
        let folder = self.ground.folder().join("second");
        Gateway::new(&self.spaces.spread, holder, Baseline::default(), &folder)
    }

    /// What goes wrong, to be told from another thread.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// What is to be done when a page is asked for.
    pub fn traps(&self) -> &Traps {
        &self.servers.traps
    }

    /// The namespaces, for what has no method of its own.
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// Whether a server of the web waits for this address to acknowledge something, and so sends it again.
    pub fn web_owes(&self, to: Ipv4Addr) -> bool {
        let sockets = self.spaces.web.inside(|| space::run(Command::new("ss").arg("-Htn"), ""));
        sockets.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, _, unacknowledged, _, peer, ..] = words[..] else { return false };
            let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
            let host = host.trim_matches(['[', ']']).trim_start_matches("::ffff:");
            unacknowledged != "0" && host == to.to_string()
        })
    }

    /// A folder of the lab's own, which goes with it.
    pub fn folder(&self) -> &Path {
        self.ground.folder()
    }

    /// The folder of the provider's configs that `pool_policy` names: `p1.conf` to `pN.conf`.
    pub fn provider_dir(&self) -> PathBuf {
        self.ground.folder().join("endpoints")
    }

    /// Writes the configs of these endpoints into a folder, as `pK.conf`.
    pub fn write_configs(
        &self,
        folder: &Path,
        endpoints: impl IntoIterator<Item = usize>,
    ) -> Vec<PathBuf> {
        let known = |k: &usize| (1..=self.endpoints).contains(k);
        provider::write_configs(folder, endpoints.into_iter().filter(known))
    }

    /// A policy of kind `pool` for this lab: five slots, all clients, short waits.
    pub fn pool_policy(&self) -> Value {
        let clients: Vec<String> =
            (1..=self.spaces.clients.len()).map(|k| names::client(k).to_string()).collect();
        json!({
            "kind": "pool",
            "slots": { "interfaces": ["vpn1", "vpn2", "vpn3", "vpn4", "vpn5"], "first_table": 101 },
            "clients": clients,
            "lan_interfaces": ["eth1"],
            "wan_interface": "eth0",
            "provider": { "directory": { "path": self.provider_dir() } },
            "probe": {
                "urls": [format!("http://{}/generate_204", names::PROBE)],
                "require": "any",
                "expect_status": [204],
                "timeout_sec": 1
            },
            "wan": {
                "urls": [format!("http://{}/generate_204", names::WAN_PROBE)],
                "require": "any",
                "timeout_sec": 1
            },
            "wireguard": { "tool": "wg", "userspace": "wireguard-go" },
            "params": { "health_check_interval_sec": 0, "candidate_test_timeout_sec": 3 }
        })
    }
}

/// Ends the test with a clear sentence where a lab cannot stand: a lab test is never skipped in silence.
pub fn required() {
    assert!(
        rustix::process::geteuid().is_root(),
        "the lab needs root: it makes network namespaces. Run the tests as root."
    );
    let tools = [
        "ip",
        "nft",
        "wg",
        "wireguard-go",
        "conntrack",
        "ping",
        "nsenter",
        "setpriv",
        "bash",
        "timeout",
    ];
    let there = |tool: &&str| space::PATH.split(':').any(|dir| Path::new(dir).join(tool).exists());
    let missing: Vec<&str> = tools.into_iter().filter(|tool| !there(tool)).collect();
    assert!(
        missing.is_empty(),
        "the lab needs {}: apt-get install -y wireguard-tools wireguard-go nftables conntrack iproute2 iputils-ping",
        missing.join(", ")
    );
    assert!(Path::new("/dev/net/tun").exists(), "the lab needs /dev/net/tun for wireguard-go");
}
