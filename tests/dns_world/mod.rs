//! A small world for the machine of host names: nodes that live and die, a watcher that is online or
//! not, records that people edit, a provider that refuses, a clock. It plays a step as the shell
//! does, without the shell.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::format_push_string,
    missing_docs,
    unreachable_pub,
    reason = "test code, and not every test uses all of it"
)]

use egressctl::dns::Dns;
use egressctl::dns::name::{HostName, NodeName};
use egressctl::dns::record::{Record, RecordSet};
use egressctl::dns::state::{DnsState, Host, Mode};
use egressctl::machine::{
    Carried, Considered, Decision, Future, Machine as _, Owned, PartWish, Proof, Settled, Subject,
};
use egressctl::names::PolicyName;
use egressctl::observation::{
    Handshake, NodeReading, NodesReading, Observation, PageReading, PagesReading, Question, Reading,
};
use egressctl::policy::{DnsPolicy, Policy};
use egressctl::setting::{Edit, Setting, Value, Written};
use egressctl::time::Moment;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

/// How a node behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Life {
    Alive,
    Dead,
    /// It serves its own name and no other.
    OwnNameOnly,
    /// It cannot be asked.
    Unseen,
}

/// Whether this machine is online.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Online {
    Yes,
    No,
    /// Until the nodes were asked.
    NotAfter,
}

/// What becomes of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writes {
    Taken,
    Refused,
    RefusedFor(u64),
    /// Taken, and nothing can be read after it.
    TakenUnread,
    /// Not taken, and nothing can be read after it.
    RefusedUnread,
    /// Somebody else was faster.
    Overtaken(Ipv4Addr),
    /// Taken, and a proxy was put between.
    Altered,
}

#[derive(Clone, Debug)]
pub struct Lab {
    pub policy: DnsPolicy,
    pub name: PolicyName,
    pub state: Option<DnsState>,
    pub paused: bool,
    pub now: Moment,
    pub lives: BTreeMap<String, Life>,
    pub online: Online,
    /// Whether the resolver works.
    pub resolves: bool,
    /// `None`: it cannot be read.
    pub records: BTreeMap<HostName, Option<RecordSet>>,
    /// What becomes of the next writes, by host; `Taken` where none is named.
    pub writes: BTreeMap<HostName, Writes>,
}

/// A step as it was played.
#[derive(Clone, Debug)]
pub struct Played {
    pub before: Option<DnsState>,
    pub seen: Observation,
    pub decision: Decision<DnsState>,
    pub future: Future<DnsState>,
    pub settled: Settled,
    pub written: BTreeMap<HostName, (Edit, Written)>,
}

impl Played {
    pub fn codes(&self) -> BTreeSet<String> {
        self.future.reasons.iter().map(|reason| reason.code.clone()).collect()
    }
}

pub fn host(name: &str) -> HostName {
    HostName::try_from(name.to_owned()).unwrap()
}

pub fn node(name: &str) -> NodeName {
    NodeName::try_from(name.to_owned()).unwrap()
}

pub fn address(of: &str) -> Ipv4Addr {
    of.parse().unwrap()
}

pub fn set(addresses: &[&str]) -> RecordSet {
    let record =
        |of: &&str| Record { address: address(of), ttl: 120, proxied: false, comment: None };
    RecordSet(addresses.iter().map(record).collect())
}

/// A node of the policies here: each has its own name and the last byte of its address.
fn node_json(name: &str, last: usize) -> serde_json::Value {
    json!({
        "address": format!("192.0.2.{last}"), "label": name.to_uppercase(),
        "check": { "tls": { "name": format!("{name}.example.org") } }
    })
}

pub const NODES: [&str; 5] = ["fi", "de", "us", "nl", "se"];

/// A policy with these hosts and the first `nodes` nodes, some `params` laid over.
pub fn policy(nodes: usize, hosts: &serde_json::Value, params: &serde_json::Value) -> DnsPolicy {
    let nodes: serde_json::Map<String, serde_json::Value> = NODES
        .iter()
        .take(nodes)
        .enumerate()
        .map(|(n, name)| ((*name).to_owned(), node_json(name, n + 1)))
        .collect();
    parse(&json!({
        "kind": "dns",
        "driver": { "rfc2136": { "server": "192.0.2.53", "zone": "example.org", "key_file": "/etc/egressctl/key" } },
        "nodes": nodes, "hosts": hosts, "params": params,
        "reference": { "urls": ["https://192.0.2.200/"] },
    }))
}

pub fn parse(policy: &serde_json::Value) -> DnsPolicy {
    let parsed = Policy::parse(&policy.to_string());
    let Policy::Dns(policy) = parsed.unwrap_or_else(|fault| panic!("{fault}: {policy}")) else {
        panic!("another kind")
    };
    *policy
}

impl Lab {
    /// All nodes live and every host's record holds its native.
    pub fn new(policy: DnsPolicy) -> Self {
        let lives = policy.nodes.keys().map(|name| (name.to_string(), Life::Alive)).collect();
        let native = |host: &egressctl::policy::dns::Host| {
            set(&[&policy.nodes[&host.native].address.to_string()])
        };
        let records =
            policy.hosts.iter().map(|(name, host)| (name.clone(), Some(native(host)))).collect();
        Self {
            lives,
            records,
            policy,
            name: PolicyName::try_from("names".to_owned()).unwrap(),
            state: None,
            paused: false,
            now: Moment {
                at: "2026-11-30T12:00:00Z".parse().unwrap(),
                boot: "a".into(),
                up_ms: 1_000_000,
            },
            online: Online::Yes,
            resolves: true,
            writes: BTreeMap::new(),
        }
    }

    pub fn set(&mut self, nodes: &[&str], life: Life) {
        for name in nodes {
            *self.lives.get_mut(*name).unwrap() = life;
        }
    }

    pub fn later(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }

    pub fn state(&self) -> &DnsState {
        self.state.as_ref().unwrap()
    }

    pub fn host(&self, name: &str) -> &Host {
        &self.state().hosts[&host(name)]
    }

    pub fn mode(&self, name: &str) -> Mode {
        self.host(name).mode
    }

    /// What a client of the zone sees.
    pub fn record(&self, name: &str) -> BTreeSet<Ipv4Addr> {
        self.records[&host(name)].as_ref().map(RecordSet::addresses).unwrap_or_default()
    }

    pub fn edit(&mut self, name: &str, addresses: &[&str]) {
        self.records.insert(host(name), Some(set(addresses)));
    }

    pub fn part(&mut self, name: &str, wish: PartWish) -> Result<(), String> {
        let owned = Owned::default();
        self.state = Some(Dns::part(&self.subject(&owned), name, wish, &self.now)?);
        Ok(())
    }

    pub fn switch(&mut self, target: &str, force: bool) -> Result<(), String> {
        let owned = Owned::default();
        let (state, _) = Dns::switch(&self.subject(&owned), target, force)?;
        self.state = Some(state);
        Ok(())
    }

    pub fn subject<'a>(&'a self, owned: &'a Owned) -> Subject<'a, Dns> {
        Subject {
            name: &self.name,
            policy: &self.policy,
            state: self.state.as_ref(),
            paused: self.paused,
            owned,
        }
    }

    fn life(&self, of: Ipv4Addr) -> (String, Life) {
        let (name, _) = self.policy.nodes.iter().find(|(_, node)| node.address == of).unwrap();
        (name.to_string(), self.lives[name.as_str()])
    }

    pub fn answer(&self, question: &Question) -> Reading {
        match question {
            Question::Pages(pages) => {
                let known = pages.pages.iter().all(|page| !page.addresses.is_empty());
                assert!(known || pages.pages[0].url.address().is_some() || !self.resolves);
                let answers = match self.online {
                    Online::Yes => true,
                    Online::No => false,
                    Online::NotAfter => pages.turn == 0,
                };
                let page = if answers {
                    PageReading::Answer {
                        status: 204,
                        body: String::new(),
                        bytes: 0,
                        elapsed_ms: 9,
                    }
                } else {
                    PageReading::TimedOut
                };
                Reading::Pages(PagesReading { at: self.now.clone(), pages: vec![Some(page)] })
            }
            Question::Nodes(checks) => {
                let reading = |check: &egressctl::observation::NodeCheck| {
                    let (name, life) = self.life(check.address);
                    let own = match &check.how {
                        Handshake::Tls { name: asked, .. }
                        | Handshake::Https { name: asked, .. } => {
                            asked.as_str() == format!("{name}.example.org")
                        }
                        Handshake::Tcp { .. } => true,
                    };
                    match life {
                        Life::Alive => NodeReading::Passed { elapsed_ms: 20 },
                        Life::OwnNameOnly if own => NodeReading::Passed { elapsed_ms: 20 },
                        Life::OwnNameOnly => {
                            NodeReading::Failed("its certificate is for another name".to_owned())
                        }
                        Life::Dead => NodeReading::Failed("silent".to_owned()),
                        Life::Unseen => NodeReading::Unknown("it could not be asked".to_owned()),
                    }
                };
                let checks = checks.iter().map(|check| (check.clone(), reading(check))).collect();
                Reading::Nodes(NodesReading { at: self.now.clone(), checks })
            }
            Question::Setting(setting) => {
                let Setting::Records { host, .. } = setting.as_ref() else { panic!("{setting}") };
                let record = self.records[host].clone();
                Reading::Setting(record.map(Value::Records).ok_or("no answer".to_owned()))
            }
            Question::Names(names) => {
                let found = |name: &String| {
                    let none = Err("no such name".to_owned());
                    let found =
                        if self.resolves { Ok(vec!["192.0.2.200".parse().unwrap()]) } else { none };
                    (name.clone(), found)
                };
                Reading::Names(names.iter().map(found).collect())
            }
            Question::Kernel(_)
            | Question::List(_)
            | Question::Standby(_)
            | Question::Tunnels(_)
            | Question::Core(_)
            | Question::Delays(_)
            | Question::Gost(_)
            | Question::Trial(_)
            | Question::Carried(_)
            | Question::Outline(_)
            | Question::Wait { .. } => panic!("{question:?}"),
        }
    }

    /// Decides, as the shell lets a machine decide.
    pub fn decide(&self) -> (Observation, Decision<DnsState>) {
        let owned = Owned::default();
        let mut seen = Observation::new(self.now.clone());
        for _ in 0..9 {
            match Dns::consider(&self.subject(&owned), &seen, &self.now, true) {
                Considered::Ask(questions) => {
                    for question in questions {
                        let reading = self.answer(&question);
                        seen.readings.insert(question, reading);
                    }
                }
                Considered::Decide(decision) => return (seen, *decision),
                Considered::Unable(why) => panic!("{why:?}"),
            }
        }
        panic!("it asks without end");
    }

    /// Makes a write as the shell does.
    fn write(&mut self, host: &HostName, edit: &Edit) -> Written {
        let (Value::Records(expected), Value::Records(to)) = (&edit.expected, &edit.to) else {
            panic!("{edit:?}")
        };
        assert!(!to.0.is_empty(), "a record is emptied");
        assert_eq!(self.records[host].as_ref(), Some(expected), "the write expects what it saw");
        let put = |lab: &mut Self, to: RecordSet| lab.records.insert(host.clone(), Some(to));
        let unread = || Written::Unreadable { why: "no answer".to_owned() };
        match self.writes.get(host).copied().unwrap_or(Writes::Taken) {
            Writes::Taken => {
                put(self, to.clone());
                Written::Done
            }
            Writes::Refused => {
                Written::Refused { why: "it does not want to".to_owned(), retry_after_sec: None }
            }
            Writes::RefusedFor(sec) => {
                Written::Refused { why: "too often".to_owned(), retry_after_sec: Some(sec) }
            }
            Writes::TakenUnread => {
                put(self, to.clone());
                unread()
            }
            Writes::RefusedUnread => unread(),
            Writes::Overtaken(by) => {
                let found = set(&[&by.to_string()]);
                put(self, found.clone());
                Written::Overtaken { found: Value::Records(found) }
            }
            Writes::Altered => {
                let proxied = |record: &Record| Record { proxied: true, ttl: 1, ..record.clone() };
                let found = RecordSet(to.0.iter().map(proxied).collect());
                put(self, found.clone());
                Written::Overtaken { found: Value::Records(found) }
            }
        }
    }

    /// Steps.
    pub fn step(&mut self) -> Played {
        let before = self.state.clone();
        let (seen, decision) = self.decide();
        let mut written = BTreeMap::new();
        let mut told = BTreeMap::new();
        let (future, settled) = if decision.wished.settings.is_empty() {
            (decision.wished.clone(), Settled::Applied)
        } else {
            assert!(!self.paused, "it writes though it is paused");
            for (setting, edit) in &decision.wished.settings {
                let Setting::Records { host, .. } = setting else { panic!("{setting}") };
                let what = self.write(host, edit);
                told.insert(setting.clone(), what.clone());
                written.insert(host.clone(), (edit.clone(), what));
            }
            let carried = Carried {
                before: &seen,
                seen: &Observation::new(self.now.clone()),
                written: &told,
                tries: 0,
                may_ask: true,
            };
            let owned = Owned::default();
            match Dns::prove(&self.subject(&owned), &decision, &carried, &self.now) {
                Proof::Settle(future, settled) => (*future, settled),
                other @ (Proof::Ask(_) | Proof::Next(_) | Proof::Unknown(_)) => panic!("{other:?}"),
            }
        };
        assert!(future.settings.is_empty(), "what is written stays written");
        assert!(!future.pauses, "one host never pauses all of them");
        // What is remembered must be what a file can hold.
        let text = serde_json::to_string(&future.state).unwrap();
        let state: DnsState = serde_json::from_str(&text).unwrap();
        assert_eq!(state, future.state);
        self.state = Some(state);
        Played { before, seen, decision, future, settled, written }
    }

    /// Steps, so many seconds after the last step.
    pub fn next(&mut self, seconds: u64) -> Played {
        self.later(seconds);
        self.step()
    }
}

/// A step for people: what was, what was seen, why, what was written, what is.
pub fn story(lab: &Lab, played: &Played) -> String {
    let mut text = String::new();
    let mut line = |what: &str, said: String| text.push_str(&format!("{what:<8}{said}\n"));
    line("from", played.decision.from.clone().unwrap_or_else(|| "nothing".to_owned()));
    let lives: Vec<String> =
        lab.lives.iter().map(|(name, life)| format!("{name} {life:?}")).collect();
    line("nodes", lives.join(", "));
    if lab.online != Online::Yes {
        line("online", format!("{:?}", lab.online));
    }
    for reason in &played.future.reasons {
        line("because", format!("{}: {}", reason.code, reason.text));
    }
    for (host, (edit, what)) in &played.written {
        line("write", format!("{host}: {} -> {}: {what:?}", edit.expected, edit.to));
    }
    line("ends", format!("{:?}", played.settled));
    line("to", played.future.to.clone());
    for (name, host) in &played.future.state.hosts {
        let paused = host.paused.as_ref().map(|paused| format!(", paused {:?}", paused.why));
        line(
            "host",
            format!(
                "{name} at {}{}{}{}",
                if host.published.is_empty() { "nothing".to_owned() } else { host.names() },
                paused.unwrap_or_default(),
                if host.quarantined.is_some() { ", quarantine" } else { "" },
                if host.unproven.is_some() { ", a write unproven" } else { "" },
            ),
        );
    }
    text
}
