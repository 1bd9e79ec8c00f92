//! The policy `home` on a lab's gateway: stepped, asked how it stands, and its kernel objects written down.
//!
//! **Invariant:** what is compared between two moments is what a stranger would see with `ip`, `nft` and `wg`.

use super::gateway::Outcome;
use super::space::{self, Space};
use super::{Lab, names};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The five slots of the lab's policy.
pub const SLOTS: [&str; 5] = ["vpn1", "vpn2", "vpn3", "vpn4", "vpn5"];

/// The policy of a lab, and the runs that it was stepped by.
#[derive(Debug)]
pub struct Pool<'a> {
    pub lab: &'a Lab,
}

/// One run of `step --json`.
#[derive(Debug)]
pub struct Step {
    pub code: Option<i32>,
    pub report: Value,
    pub stderr: String,
}

impl Step {
    /// How a run ended, from the line that it printed.
    pub fn of(outcome: Outcome) -> Self {
        let report = serde_json::from_str(outcome.stdout.trim()).unwrap_or(Value::Null);
        Self { code: outcome.code, report, stderr: outcome.stderr }
    }

    /// The exit code, and where the machine stood before and after.
    pub fn went(&self) -> (Option<i32>, &str, &str) {
        (self.code, self.word("from"), self.word("to"))
    }

    /// A word of the report; `-` for none.
    pub fn word(&self, key: &str) -> &str {
        self.report[key].as_str().unwrap_or("-")
    }

    /// Whether nothing was to be done.
    pub fn is_steady(&self) -> bool {
        self.code == Some(0) && self.word("outcome") == "steady" && self.report["changes"] == 0
    }
}

/// One tunnel as `wg` and the kernel show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Its device's number: another after it was made anew.
    pub index: String,
    pub key: String,
    pub port: String,
    pub peer: String,
    pub endpoint: String,
    pub allowed: String,
    pub handshake: u64,
    pub received: u64,
    pub sent: u64,
}

impl Tunnel {
    /// Whether this is `before`, left alone: the same tunnel, its sessions and counters grown only.
    pub fn goes_on_from(&self, before: &Self) -> bool {
        let same = Self {
            handshake: before.handshake,
            received: before.received,
            sent: before.sent,
            ..self.clone()
        };
        same == *before
            && self.handshake >= before.handshake
            && self.received >= before.received
            && self.sent >= before.sent
    }
}

impl<'a> Pool<'a> {
    /// Writes the policy, changed as a test needs it; nothing runs yet.
    pub fn new(lab: &'a Lab, change: impl FnOnce(&mut Value)) -> Self {
        let mut policy = lab.pool_policy();
        policy["params"] = json!({
            "health_check_interval_sec": 0,
            "health_failures_before_down": 2,
            "local_repair_retest_count": 1,
            "candidate_test_timeout_sec": 4
        });
        change(&mut policy);
        let _path = lab.gw().policy("home", &policy);
        Self { lab }
    }

    /// Writes the policy and brings the pool up in one step.
    pub fn up(lab: &'a Lab, change: impl FnOnce(&mut Value)) -> Self {
        let pool = Self::new(lab, change);
        let first = pool.step();
        assert_eq!(first.went(), (Some(0), "-", "NORMAL"), "{first:#?}");
        pool
    }

    /// One step.
    pub fn step(&self) -> Step {
        Step::of(self.lab.gw().egressctl(&["step", "home", "--json"]))
    }

    /// So many steps; the last of them.
    pub fn steps(&self, count: usize) -> Step {
        (1..count).for_each(|_| drop(self.step()));
        self.step()
    }

    /// One step that must end so.
    pub fn goes(&self, from: &str, to: &str) -> Step {
        let step = self.step();
        assert_eq!(step.went(), (Some(0), from, to), "{step:#?}\n{:#}", self.status());
        step
    }

    /// Steps until every slot serves, at most so many; how they went is told when it does not come.
    pub fn settles(&self, most: usize) -> Vec<Step> {
        let mut went = Vec::new();
        while went.len() < most {
            let step = self.step();
            let done = step.is_steady() && step.word("to") == "NORMAL";
            went.push(step);
            if done {
                return went;
            }
        }
        panic!("not NORMAL after {most} steps: {went:#?}");
    }

    /// `status --json`, and its exit code.
    pub fn status(&self) -> Value {
        self.asked().1
    }

    /// The exit code of `status` with what it says.
    pub fn asked(&self) -> (Option<i32>, Value) {
        let outcome = self.lab.gw().egressctl(&["status", "home", "--json"]);
        (outcome.code, serde_json::from_str(outcome.stdout.trim()).unwrap_or(Value::Null))
    }

    /// What is counted, and what is remembered of endpoints: nothing of it may move by itself.
    pub fn counted(&self) -> Value {
        let status = self.status();
        let slots = status["slots"].as_array().cloned().unwrap_or_default();
        let slots: Vec<Value> = slots
            .iter()
            .map(|slot| json!([slot["interface"], slot["endpoint"], slot["failures"]]))
            .collect();
        json!({
            "state": status["state"], "slots": slots, "clients": status["clients"],
            "generation": status["pool"]["generation"], "reserve": status["pool"]["reserve"],
            "quarantined": status["pool"]["quarantined"],
            "repairs": status["repair_events_since_full_refresh"],
        })
    }

    /// The number of the endpoint in each slot, by the slot's peer.
    pub fn endpoints(&self) -> BTreeMap<String, usize> {
        let number = |tunnel: &Tunnel| {
            tunnel.endpoint.strip_prefix("198.51.100.")?.split(':').next()?.parse::<usize>().ok()
        };
        let tunnels = self.tunnels();
        tunnels.iter().filter_map(|(name, t)| Some((name.clone(), number(t)? - 10))).collect()
    }

    /// All tunnels of the gateway that have a peer.
    pub fn tunnels(&self) -> BTreeMap<String, Tunnel> {
        let dump = self.lab.gw().wg("show all dump", "");
        let mut own = BTreeMap::new();
        let mut tunnels = BTreeMap::new();
        for line in dump.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            if words.len() == 5 {
                own.insert(words[0].to_owned(), (words[2].to_owned(), words[3].to_owned()));
                continue;
            }
            let (key, port) = own[words[0]].clone();
            let number = |at: usize| words[at].parse().expect("a number");
            let link = self.lab.gw().ip(&format!("-o link show {}", words[0]));
            let tunnel = Tunnel {
                index: link.split(':').next().unwrap_or_default().to_owned(),
                key,
                port,
                peer: words[1].to_owned(),
                endpoint: words[3].to_owned(),
                allowed: words[4].to_owned(),
                handshake: number(5),
                received: number(6),
                sent: number(7),
            };
            tunnels.insert(words[0].to_owned(), tunnel);
        }
        tunnels
    }

    /// That every tunnel but these was left alone since.
    pub fn others_go_on(&self, before: &BTreeMap<String, Tunnel>, but: &[&str]) {
        let now = self.tunnels();
        for (name, old) in before.iter().filter(|(name, _)| !but.contains(&name.as_str())) {
            let new = now.get(name).unwrap_or_else(|| panic!("{name} is gone"));
            assert!(new.goes_on_from(old), "{name} was touched: {old:#?} became {new:#?}");
        }
    }

    /// That every client leaves by one of so many endpoints, with loads within one.
    pub fn serves(&self, slots: usize) -> Vec<usize> {
        let exits = self.lab.exits();
        assert!(exits.iter().all(Option::is_some), "a client is offline: {exits:?}");
        let exits: Vec<usize> = exits.into_iter().flatten().collect();
        let mut loads = BTreeMap::<usize, usize>::new();
        for exit in &exits {
            *loads.entry(*exit).or_default() += 1;
        }
        let (most, least) = (loads.values().max(), loads.values().min());
        assert_eq!(loads.len(), slots, "by endpoint: {loads:?}");
        assert!(most.unwrap() - least.unwrap() <= 1, "by endpoint: {loads:?}");
        exits
    }

    /// That every client leaves by some endpoint.
    pub fn serves_some(&self) -> BTreeSet<usize> {
        let exits = self.lab.exits();
        assert!(exits.iter().all(Option::is_some), "a client is offline: {exits:?}");
        exits.into_iter().flatten().collect()
    }

    /// That no packet of a client left by the WAN in all of the lab's life.
    pub fn nothing_leaked(&self) {
        assert_eq!(self.lab.capture.leaks(), []);
    }

    /// The gateway's rules, routes, nft rules, tunnels, addresses and settings, as texts.
    pub fn kernel(&self) -> BTreeMap<&'static str, String> {
        let gw = self.lab.gw();
        let sorted = |text: String| {
            // A tunnel's link-local IPv6 address is another each time that the device is made.
            let lines: BTreeSet<&str> = text
                .lines()
                .map(str::trim)
                .filter(|line| !line.contains("fe80") && !line.contains("ff00"))
                .collect();
            lines.into_iter().collect::<Vec<_>>().join("\n")
        };
        let addresses = gw.ip("-4 -o addr show");
        let address = |line: &str| line.split_once(": ").unwrap_or_default().1.to_owned() + "\n";
        let links = gw.ip("-o link show");
        let link = |line: &str| {
            let name = line.split(": ").nth(1).unwrap_or_default();
            let mtu = line.split(" mtu ").nth(1).and_then(|rest| rest.split(' ').next());
            format!("{name} {mtu:?} {}\n", line.contains(",UP"))
        };
        BTreeMap::from([
            ("rules", gw.ip("-4 rule list")),
            ("rules6", gw.ip("-6 rule list")),
            ("routes", sorted(gw.ip("-4 route show table all"))),
            ("routes6", sorted(gw.ip("-6 route show table all"))),
            ("nft", gw.nft("list ruleset")),
            ("peers", sorted(gw.wg("show all allowed-ips", ""))),
            ("addresses", sorted(addresses.lines().map(address).collect())),
            ("links", sorted(links.lines().map(link).collect())),
            ("src_valid_mark", setting(gw.space(), "ipv4/conf/eth0/src_valid_mark")),
        ])
    }
}

/// A kernel setting below `/proc/sys/net`.
pub fn setting(space: &Space, key: &str) -> String {
    let path = format!("/proc/sys/net/{key}");
    space.inside(|| std::fs::read_to_string(&path).unwrap_or_default()).trim().to_owned()
}

/// The parts in which two looks at a kernel differ, with both texts.
pub fn differences(
    before: &BTreeMap<&'static str, String>,
    after: &BTreeMap<&'static str, String>,
) -> Vec<String> {
    let changed = before.iter().filter(|(part, text)| after.get(*part) != Some(text));
    changed
        .map(|(part, text)| {
            let empty = String::new();
            let new = after.get(part).unwrap_or(&empty);
            let gone: Vec<&str> = text.lines().filter(|line| !new.contains(line)).collect();
            let come: Vec<&str> = new.lines().filter(|line| !text.contains(line)).collect();
            format!("{part}: gone {gone:#?}, come {come:#?}")
        })
        .collect()
}

/// Runs `wg` where the provider's servers are.
pub fn provider_wg(lab: &Lab, words: &str) -> String {
    let pid = *lab.spaces().prov.pids().first().expect("the provider has processes");
    space::run(space::enter(pid, "wg").args(words.split_whitespace()), "")
}

/// The exit address of an endpoint, as clients see it.
#[expect(clippy::unnecessary_wraps, reason = "it is compared with what a client may not see")]
pub fn exit_of(k: usize) -> Option<String> {
    Some(names::exit(k).to_string())
}
