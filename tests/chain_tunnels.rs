//! A chain of tunnels, decided in a world of values: what stands in the kernel after each step, and who gets out.

use egressctl::chain::{Chain, ChainState};
use egressctl::iproute::{Address, Link, RuleAction};
use egressctl::kernel::nft::placement_in;
use egressctl::kernel::{ConfigRef, Ends, NftTable, World};
use egressctl::machine::{
    Carried, Considered, Cut, Decision, Future, Machine as _, Owned, PartWish, Proof, Subject,
};
use egressctl::names::{Interface, PolicyName, Table};
use egressctl::observation::{
    Asker, KernelReading, Observation, PageReading, Pages, PagesReading, Question, Reading, Trial,
    TrialReading, TrialResult, TunnelsReading,
};
use egressctl::plan::{Check, lint};
use egressctl::policy::{ChainPolicy, Policy};
use egressctl::pool::candidate::Candidate;
use egressctl::time::Moment;
use egressctl::wireguard::PublicKey;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

fn interface(name: &str) -> Interface {
    Interface::try_from(name.to_owned()).unwrap()
}

/// What a node's file says; its number tells it from all others.
fn candidate(name: &str, n: u8) -> Candidate {
    use base64::Engine as _;
    let key = |half: u8| {
        let text = base64::engine::general_purpose::STANDARD
            .encode(&[half.max(n), n, half].repeat(11)[..32]);
        PublicKey::from_base64(&text).unwrap()
    };
    Candidate {
        name: name.to_owned(),
        config: ConfigRef { generation: 1, file: format!("{name}.conf"), sha256: format!("{n}") },
        ends: Ends {
            own: key(1),
            peer: key(2),
            endpoint: None,
            allowed_ips: ["0.0.0.0/0".parse().unwrap()].into(),
            keepalive: 25,
            preshared: None,
        },
        host: format!("198.51.100.{n}"),
        port: 51_820,
        addresses: [format!("10.64.{n}.2/32").parse().unwrap()].into(),
        mtu: None,
        country: None,
        city: None,
        origin: None,
    }
}

/// Three hops of two nodes each: a1 a2, b1 b2, c1 c2.
fn policy(change: impl FnOnce(&mut Value)) -> ChainPolicy {
    let node = |name: &str| json!({ "config": format!("/etc/egressctl/{name}.conf") });
    let mut policy = json!({
        "kind": "chain",
        "driver": { "wireguard": {
            "clients": ["10.77.0.40", "10.77.0.48/29"], "lan_interfaces": ["eth1"], "wan_interface": "eth0"
        } },
        "hops": [
            { "name": "entry", "nodes": { "a1": node("a1"), "a2": node("a2") } },
            { "name": "middle", "nodes": { "b1": node("b1"), "b2": node("b2") } },
            { "name": "exit", "nodes": { "c1": node("c1"), "c2": node("c2") } },
        ],
        "probe": { "urls": ["http://192.0.2.10/"] },
        "wan": { "urls": ["http://192.0.2.11/"] },
        "params": { "fail_timeout_sec": 60, "minimum_stay_sec": 30 },
    });
    change(&mut policy);
    let Policy::Chain(policy) = Policy::parse(&policy.to_string()).unwrap() else {
        panic!("it is a chain")
    };
    *policy
}

/// A machine with its tunnels, and the nodes behind them.
struct Play {
    policy: ChainPolicy,
    state: Option<ChainState>,
    now: Moment,
    kernel: World,
    files: BTreeMap<String, Result<Candidate, String>>,
    /// The nodes that there are, whatever files say of them.
    servers: Vec<Candidate>,
    /// Nodes that do not answer.
    dead: BTreeSet<&'static str>,
    wan: bool,
    /// Every world that stood for a moment in the last step.
    stood: Vec<World>,
    /// What was tried on test devices in the last step.
    tried: Vec<Trial>,
    cuts: Vec<Cut>,
    /// What closes the clients at boot.
    barrier: String,
    reasons: Vec<String>,
}

impl Play {
    fn new(policy: ChainPolicy) -> Self {
        let names = ["a1", "a2", "b1", "b2", "c1", "c2"];
        let hops = ["entry", "entry", "middle", "middle", "exit", "exit"];
        let file = |(n, (hop, node)): (u8, (&str, &str))| {
            let name = format!("{hop}.{node}");
            (name.clone(), Ok(candidate(&name, n)))
        };
        let files: BTreeMap<String, Result<Candidate, String>> =
            (11..).zip(hops.into_iter().zip(names)).map(file).collect();
        Self {
            policy,
            servers: files.values().filter_map(|file| file.clone().ok()).collect(),
            files,
            state: None,
            now: Moment {
                at: "2026-03-01T12:00:00Z".parse().unwrap(),
                boot: "boot".into(),
                up_ms: 1_000_000,
            },
            kernel: World::default(),
            dead: BTreeSet::new(),
            wan: true,
            stood: Vec::new(),
            tried: Vec::new(),
            cuts: Vec::new(),
            barrier: String::new(),
            reasons: Vec::new(),
        }
    }

    /// Which node stands on a device of the kernel.
    fn node_on(&self, device: &str) -> Option<String> {
        let ends = self.kernel.tunnels.get(&interface(device))?.ends.as_ref()?;
        let same = |file: &&Candidate| file.ends.own == ends.own && file.ends.peer == ends.peer;
        let found = self.servers.iter().find(same)?;
        Some(found.name.split('.').nth(1).unwrap().to_owned())
    }

    /// The nodes of all hops, as the kernel has them.
    fn nodes(&self) -> Vec<String> {
        ["ch1", "ch2", "ch3"].map(|d| self.node_on(d).unwrap_or_else(|| "-".to_owned())).into()
    }

    /// Whether what enters a device gets out: by the marks and routes of the kernel alone.
    fn carries(&self, device: &str) -> bool {
        let mut here = device.to_owned();
        for _ in 0..4 {
            let Some(node) = self.node_on(&here) else { return false };
            if self.dead.contains(node.as_str()) {
                return false;
            }
            let Some(mark) = self.kernel.tunnels[&interface(&here)].fwmark else { return self.wan };
            let Some(next) = self.led_by(mark.0) else { return false };
            here = next;
        }
        false
    }

    /// The device that a mark leads to.
    fn led_by(&self, mark: u32) -> Option<String> {
        let rule = self.kernel.rules.iter().find(|rule| rule.fwmark == Some((mark, u32::MAX)))?;
        let RuleAction::Lookup(table) = rule.action else { return None };
        let way = self.kernel.routes.iter().find(|way| way.table == table && way.dev.is_some())?;
        way.dev.clone()
    }

    /// Whether clients are led by the last hop.
    fn open(&self) -> bool {
        let text = &self.kernel.nft.as_ref().unwrap().text;
        let placed = placement_in(text);
        let last = |mark: &egressctl::names::Mark| self.led_by(mark.0).as_deref() == Some("ch3");
        assert!(placed.is_empty() || (placed.len() == 2 && placed.values().all(last)), "{text}");
        !placed.is_empty()
    }

    fn page(&self, pages: &Pages, passes: bool) -> Reading {
        let well =
            PageReading::Answer { status: 204, body: String::new(), bytes: 0, elapsed_ms: 40 };
        let page = if passes { well } else { PageReading::TimedOut };
        let pages = pages.pages.iter().map(|_| Some(page.clone())).collect();
        Reading::Pages(PagesReading { at: self.now.clone(), pages })
    }

    fn answer(&mut self, question: &Question) -> Reading {
        match question {
            Question::Kernel(_) => {
                let link = |index, name: &str, net: &str| Link {
                    index,
                    name: name.to_owned(),
                    up: true,
                    lower_up: true,
                    mtu: 1_500,
                    kind: None,
                    master: None,
                    addresses: vec![Address {
                        local: net.parse().unwrap(),
                        peer: None,
                        scope: 0,
                        dynamic: false,
                        unusable: false,
                    }],
                };
                Reading::Kernel(Box::new(KernelReading {
                    world: self.kernel.clone(),
                    links: vec![link(2, "eth0", "203.0.113.2/24"), link(3, "eth1", "10.77.0.1/24")],
                    default_device: Some(interface("eth0")),
                    ..KernelReading::default()
                }))
            }
            Question::Tunnels(asked) => {
                let described =
                    asked.files.keys().map(|name| (name.clone(), self.files[name].clone()));
                Reading::Tunnels(Box::new(TunnelsReading { described: described.collect() }))
            }
            Question::Pages(pages) => match &pages.asker {
                Asker::Wan => self.page(pages, self.wan),
                Asker::Slot(device) => self.page(pages, self.carries(device.as_str())),
                other => panic!("{other:?} does not ask"),
            },
            Question::Trial(trial) => {
                self.tried.push((**trial).clone());
                let node = trial.name.split('.').nth(1).unwrap();
                let way = match trial.fwmark {
                    Some(mark) => self.led_by(mark.0).is_some_and(|device| self.carries(&device)),
                    None => self.wan,
                };
                let result = if way && !self.dead.contains(node) {
                    TrialResult::Passed { latency_ms: 30 }
                } else {
                    TrialResult::Failed { why: "no handshake".to_owned() }
                };
                Reading::Trial(TrialReading { at: self.now.clone(), result })
            }
            other => panic!("{other:?} is not asked by a chain of tunnels"),
        }
    }

    fn with_subject<T>(&self, work: impl FnOnce(&Subject<'_, Chain>) -> T) -> T {
        let name = PolicyName::try_from("home".to_owned()).unwrap();
        work(&Subject {
            name: &name,
            policy: &self.policy,
            state: self.state.as_ref(),
            paused: false,
            owned: &Owned::default(),
        })
    }

    fn asked(&mut self, questions: Vec<Question>, seen: &mut Observation) {
        assert!(!questions.is_empty(), "it asks for nothing");
        let mut devices = BTreeSet::new();
        for question in questions {
            if let Question::Trial(trial) = &question {
                assert!(devices.insert(trial.interface.clone()), "a device for two at a time");
            }
            let reading = self.answer(&question);
            assert!(seen.readings.insert(question, reading).is_none(), "it asks again");
        }
    }

    /// A world is made true, as the program does, and held to what must always hold.
    fn put(&mut self, world: &World) {
        let means = Chain::means(&self.policy);
        let steps = egressctl::kernel::diff::diff(&self.kernel, world, &means);
        assert_eq!(lint(&steps), [""; 0]);
        self.kernel = world.clone();
        if let Some(nft) = &mut self.kernel.nft {
            nft.listing = Some(nft.text.clone());
        }
        self.stood.push(self.kernel.clone());
        self.sound();
    }

    /// What holds in every world, for a moment too.
    fn sound(&self) {
        let world = &self.kernel;
        for rule in &world.rules {
            // Replies to what the uplink opened leave by it.
            let inbound = rule.fwmark == Some((0x4548_1001, u32::MAX));
            let near = rule.suppress_prefixlength == Some(1);
            let by_main = rule.action == RuleAction::Lookup(Table::MAIN);
            assert!(!by_main || near || inbound, "by main: {rule:?}");
        }
        let mut outer: Option<u16> = None;
        let (mut pairs, mut ends) = (BTreeSet::new(), BTreeSet::new());
        for (place, device) in ["ch1", "ch2", "ch3"].into_iter().enumerate() {
            let Some(tunnel) = world.tunnels.get(&interface(device)) else { continue };
            let mark = tunnel.fwmark.map(|mark| self.led_by(mark.0));
            let before = place.checked_sub(1).map(|n| ["ch1", "ch2", "ch3"][n].to_owned());
            if let Some(before) = before {
                assert!(mark.is_some(), "{device} has a mark");
                let there = world.tunnels.contains_key(&interface(&before));
                assert_eq!(
                    mark.flatten(),
                    there.then_some(before),
                    "{device} runs in the one before"
                );
            } else {
                assert_eq!(mark, None, "the first one runs in none");
            }
            assert!(outer.is_none_or(|outer| tunnel.mtu <= outer - 80), "{device} fits");
            outer = Some(tunnel.mtu);
            let one = tunnel.ends.clone().unwrap();
            assert!(pairs.insert((one.own, one.peer)), "a pair of keys is up twice");
            assert!(ends.insert(one.endpoint), "an endpoint is up twice");
        }
        if let Some(nft) = &world.nft {
            assert!(!nft.text.contains(". \"eth0\"") || nft.text.contains("0x45481001 . \"eth0\""));
            assert!(nft.text.contains("chain inside"), "what runs inside stays inside");
            assert!(nft.text.contains("ip saddr @clients reject"));
        }
    }

    fn step(&mut self) -> String {
        self.stood.clear();
        self.tried.clear();
        let mut seen = Observation::new(self.now.clone());
        let mut decision = loop {
            let now = self.now.clone();
            match self.with_subject(|subject| Chain::consider(subject, &seen, &now, true)) {
                Considered::Ask(questions) => self.asked(questions, &mut seen),
                Considered::Decide(decision) => break *decision,
                Considered::Unable(reasons) => panic!("{reasons:?}"),
            }
        };
        for tries in 0..40 {
            self.put(&decision.wished.world.clone());
            self.checked(&decision);
            let mut after = Observation::new(self.now.clone());
            loop {
                let written = BTreeMap::new();
                let (before, seen, written) = (&seen, &after, &written);
                let carried = Carried { before, seen, written, tries, may_ask: true };
                let now = self.now.clone();
                let proof =
                    self.with_subject(|subject| Chain::prove(subject, &decision, &carried, &now));
                match proof {
                    Proof::Ask(questions) => {
                        let mut more = after.clone();
                        self.asked(questions, &mut more);
                        after = more;
                    }
                    Proof::Next(next) => {
                        decision = *next;
                        break;
                    }
                    Proof::Settle(future, _) => return self.settle(*future),
                    Proof::Unknown(why) => panic!("{why}"),
                }
            }
        }
        panic!("it tries without end")
    }

    /// What the kernel is asked of clients it would answer.
    fn checked(&self, decision: &Decision<ChainState>) {
        for check in &decision.checks {
            let Check::Route { query, device, .. } = check else { panic!("{check:?}") };
            assert_eq!(self.led_by(query.mark.unwrap().0).as_deref(), Some(device.as_str()));
        }
    }

    fn settle(&mut self, future: Future<ChainState>) -> String {
        self.put(&future.world);
        self.reasons = future.reasons.iter().map(|reason| reason.code.clone()).collect();
        self.cuts = future.cuts;
        let barrier = future.barrier.expect("there is a barrier");
        assert!(!egressctl::kernel::nft::is_open(&barrier), "nobody is let out at boot: {barrier}");
        self.barrier = barrier;
        // As it is read back from its file.
        let text = serde_json::to_string(&future.state).unwrap();
        self.state = Some(serde_json::from_str(&text).unwrap());
        self.state.as_ref().unwrap().stands.clone()
    }

    fn after(&mut self, seconds: u64) -> String {
        self.now = self.now.after(Duration::from_secs(seconds));
        self.step()
    }

    /// The devices of hops that were changed in the last step, for however long.
    fn touched(&self, before: &World) -> BTreeSet<String> {
        let tunnel = |world: &World, device: &str| {
            // The endpoint is where a peer is; the MTU is no peer's.
            let tunnel = world.tunnels.get(&interface(device))?;
            Some((tunnel.ends.clone(), tunnel.addresses.clone(), tunnel.fwmark))
        };
        let differs = |device: &&str| {
            self.stood.iter().any(|world| tunnel(world, device) != tunnel(before, device))
        };
        ["ch1", "ch2", "ch3"].iter().filter(|d| differs(d)).map(|d| (*d).to_owned()).collect()
    }
}

const PREFERRED: &str = "entry PREFERRED, middle PREFERRED, exit PREFERRED";

#[test]
fn the_first_run_lays_the_ground_before_the_first_tunnel_and_lets_clients_in_at_the_end() {
    let mut play = Play::new(policy(|_| {}));
    assert_eq!(play.step(), PREFERRED);
    assert_eq!((play.nodes(), play.open()), (vec!["a1".into(), "b1".into(), "c1".into()], true));
    let ground = &play.stood[0];
    assert!(ground.tunnels.is_empty() && !ground.rules.is_empty() && ground.nft.is_some());
    assert!(ground.routes.iter().all(|route| route.dev.is_none()), "guards alone");
    let mtus: Vec<u16> = play.kernel.tunnels.values().map(|tunnel| tunnel.mtu).collect();
    assert_eq!(mtus, [1_420, 1_340, 1_260]);
    let unmarked = |cut: &Cut| matches!(cut, Cut::Unmarked(_));
    assert!(play.cuts.len() == 2 && play.cuts.iter().all(unmarked), "{:?}", play.cuts);
    // Backups are tried through the hops before, one a hop, and then left for a while.
    assert_eq!(play.after(15), PREFERRED);
    let tried: Vec<(&str, Option<u32>, u16)> = play
        .tried
        .iter()
        .map(|trial| (trial.name.as_str(), trial.fwmark.map(|mark| mark.0), trial.mtu))
        .collect();
    let (first, second) = (0x4548_0000, 0x4548_0001);
    assert_eq!(
        tried,
        [
            ("entry.a2", None, 1_420),
            ("middle.b2", Some(first), 1_340),
            ("exit.c2", Some(second), 1_260)
        ]
    );
    let _steady = play.after(15);
    assert!(play.tried.is_empty() && play.cuts.is_empty() && play.reasons == ["all-well"]);
    let _later = play.after(60);
    assert_eq!(play.tried.len(), 3, "a backup that nobody has tried for long");
}

/// Case C21.
#[test]
fn a_node_that_dies_is_replaced_alone_within_the_step_that_sees_it() {
    for (dead, device, stands) in [
        ("a1", "ch1", "entry BACKUP, middle PREFERRED, exit PREFERRED"),
        ("b1", "ch2", "entry PREFERRED, middle BACKUP, exit PREFERRED"),
        ("c1", "ch3", "entry PREFERRED, middle PREFERRED, exit BACKUP"),
    ] {
        let mut play = Play::new(policy(|_| {}));
        let _built = play.step();
        let before = play.kernel.clone();
        play.dead.insert(dead);
        assert_eq!(play.after(15), stands);
        assert_eq!(play.touched(&before), [device.to_owned()].into(), "no other peer");
        assert!(play.open() && play.carries("ch3"));
        let ends = play.cuts.iter().any(|cut| matches!(cut, Cut::Marked(_)));
        assert_eq!(ends, device == "ch3", "flows end where clients get another address");
        // Back to the preferred node once its mark and the stay are over and its tests passed.
        play.dead.clear();
        let went: Vec<String> = (0..6).map(|_| play.after(15)).collect();
        assert_eq!(went.last().unwrap(), PREFERRED, "{went:?}");
        assert!(went[3].contains("RETURNING"), "{went:?}");
    }
}

#[test]
fn nobody_gets_out_while_a_hop_is_closed_and_everybody_does_within_a_step_once_it_is_not() {
    let mut play = Play::new(policy(|_| {}));
    let _built = play.step();
    play.dead.extend(["b1", "b2"]);
    assert_eq!(play.after(15), "entry PREFERRED, middle CLOSED, exit PREFERRED");
    assert!(!play.open(), "clients go nowhere");
    assert!(play.cuts.iter().any(|cut| matches!(cut, Cut::Marked(_))), "and their flows end");
    let _again = play.after(15);
    assert!(!play.open());
    play.dead.remove("b2");
    assert_eq!(play.after(15), "entry PREFERRED, middle BACKUP, exit PREFERRED");
    assert!(play.open() && play.carries("ch3"));
    // With last_resort they stay, on the preferred node, and are not let out past it either.
    let mut play =
        Play::new(policy(|policy| policy["params"]["all_failed"] = json!("last_resort")));
    let _built = play.step();
    play.dead.extend(["c1", "c2"]);
    assert_eq!(play.after(15), "entry PREFERRED, middle PREFERRED, exit LAST_RESORT");
    assert_eq!((play.nodes()[2].as_str(), play.open()), ("c1", true));
}

#[test]
fn a_first_run_that_finds_no_way_keeps_clients_in_and_goes_on() {
    let mut play = Play::new(policy(|_| {}));
    play.dead.extend(["c1", "c2"]);
    let stands = play.step();
    assert_eq!(stands, "entry PREFERRED, middle PREFERRED, exit CLOSED");
    assert!(!play.open());
    play.dead.remove("c1");
    assert_eq!(play.after(15), PREFERRED);
    assert!(play.open());
    // With the uplink down nothing is closed or marked; what was made stays and is looked at again.
    let mut play = Play::new(policy(|_| {}));
    play.wan = false;
    let _built = play.step();
    assert!(play.reasons.contains(&"offline".to_owned()), "{:?}", play.reasons);
    assert!(!play.open() && play.kernel.tunnels.len() == 3);
    play.wan = true;
    assert_eq!(play.after(15), PREFERRED);
    assert!(play.open());
}

#[test]
fn with_the_uplink_down_nothing_is_counted_moved_or_closed() {
    let mut play = Play::new(policy(|_| {}));
    let _built = play.step();
    let before = play.kernel.clone();
    play.wan = false;
    for _ in 0..3 {
        assert_eq!(play.after(15), PREFERRED);
        assert!(play.touched(&before).is_empty() && play.open());
    }
    play.wan = true;
    let _settles = play.after(15);
    assert_eq!(play.after(15), PREFERRED);
}

#[test]
fn what_somebody_removed_or_a_boot_took_is_made_again_before_anybody_is_blamed() {
    let mut play = Play::new(policy(|_| {}));
    let _built = play.step();
    let whole = play.kernel.clone();
    play.kernel.tunnels.remove(&interface("ch2"));
    play.kernel.routes.retain(|route| route.dev.as_deref() != Some("ch2"));
    assert_eq!(play.after(15), PREFERRED);
    assert_eq!(
        (play.nodes(), play.reasons.as_slice()),
        (vec!["a1".into(), "b1".into(), "c1".into()], &["built".to_owned()][..])
    );
    assert_eq!(play.kernel.rules, whole.rules);
    // A mark that somebody took off would lead the tunnel out by the uplink, past the hop before.
    play.kernel.tunnels.get_mut(&interface("ch2")).unwrap().fwmark = None;
    assert_eq!(
        (play.after(15), play.reasons.as_slice()),
        (PREFERRED.to_owned(), &["built".to_owned()][..])
    );
    // A boot: everything is gone, and the ground comes first again.
    play.kernel = World::default();
    play.now.boot = "next".into();
    assert_eq!(play.after(60), PREFERRED);
    assert!(play.stood[0].tunnels.is_empty() && play.open());
    // A node that is dead since is replaced in the same step.
    play.kernel = World::default();
    play.dead.insert("a1");
    assert_eq!(play.after(60), "entry BACKUP, middle PREFERRED, exit PREFERRED");
    assert!(play.open() && play.carries("ch3"));
}

#[test]
fn a_tunnel_that_would_stand_twice_or_lead_into_itself_is_passed_over() {
    let mut play = Play::new(policy(|_| {}));
    // The entry's backup is the exit's own endpoint, under its name.
    let twice = play.files["exit.c1"].clone().unwrap();
    play.files
        .insert("entry.a2".to_owned(), Ok(Candidate { name: "entry.a2".to_owned(), ..twice }));
    let _built = play.step();
    let _tried = play.after(15);
    assert!(play.tried.iter().all(|trial| trial.name != "entry.a2"), "nor is it tested");
    play.dead.insert("a1");
    assert_eq!(play.after(15), "entry CLOSED, middle PREFERRED, exit PREFERRED");
    // The peer of a node is the address that the chain itself has in a tunnel, or is this machine.
    for host in ["10.64.11.2", "203.0.113.2"] {
        let mut play = Play::new(policy(|_| {}));
        let looped = play.files["middle.b1"].clone().unwrap();
        play.files
            .insert("middle.b1".to_owned(), Ok(Candidate { host: host.to_owned(), ..looped }));
        assert_eq!(play.step(), "entry PREFERRED, middle BACKUP, exit PREFERRED");
        assert_eq!(play.nodes()[1], "b2");
    }
}

#[test]
fn an_edited_file_is_taken_up_and_a_spoilt_one_leaves_the_tunnel_as_it_is() {
    let mut play = Play::new(policy(|_| {}));
    let _built = play.step();
    let before = play.kernel.clone();
    play.files.insert("middle.b1".to_owned(), Err("/etc/b1.conf: no key".to_owned()));
    assert_eq!(play.after(15), PREFERRED);
    assert!(play.touched(&before).is_empty());
    let other = Candidate { name: "middle.b1".to_owned(), ..candidate("x", 77) };
    play.servers.push(other.clone());
    play.files.insert("middle.b1".to_owned(), Ok(other));
    assert_eq!(play.after(15), PREFERRED, "{:?} {:?}", play.reasons, play.nodes());
    assert_eq!(play.touched(&before), ["ch2".to_owned()].into());
    assert!(play.open() && play.carries("ch3"));
}

#[test]
fn a_node_that_left_the_policy_is_replaced_and_an_edit_of_the_rest_touches_nothing() {
    let mut play = Play::new(policy(|_| {}));
    let _built = play.step();
    let before = play.kernel.clone();
    play.policy = policy(|policy| {
        policy["hops"][1]["nodes"] = json!({ "b2": { "config": "/etc/egressctl/b2.conf" } });
    });
    assert_eq!(play.after(15), PREFERRED, "b2 is the preferred one now");
    assert_eq!((play.nodes()[1].as_str(), play.open()), ("b2", true));
    assert_eq!(play.touched(&before), ["ch2".to_owned()].into());
}

#[test]
fn a_persons_choice_stands_and_the_hop_is_left_alone() {
    let mut play = Play::new(policy(|_| {}));
    let _built = play.step();
    let _tried = play.after(15);
    let granted = play.with_subject(|subject| Chain::switch(subject, "middle=b2", false));
    play.state = Some(granted.expect("it was tested and passes").0);
    assert_eq!(play.after(1), "entry PREFERRED, middle BACKUP, exit PREFERRED");
    assert_eq!(play.nodes()[1], "b2");
    play.dead.insert("b2");
    assert_eq!(play.after(15), "entry PREFERRED, middle CLOSED, exit PREFERRED");
    assert_eq!((play.nodes()[1].as_str(), play.open()), ("b2", false));
    let now = play.now.clone();
    let resumed =
        play.with_subject(|subject| Chain::part(subject, "middle", PartWish::Resume, &now));
    play.state = Some(resumed.unwrap());
    assert_eq!(play.after(15), PREFERRED);
    assert!(play.open());
}

#[test]
fn down_gives_everything_back_and_resume_builds_it_again() {
    let mut play = Play::new(policy(|_| {}));
    let _built = play.step();
    let retired = play.with_subject(|subject| Chain::retire(subject, &play.now)).unwrap();
    assert_eq!((retired.world, retired.barrier), (World::default(), None));
    play.state = Some(retired.state);
    play.kernel = World::default();
    assert_eq!(play.after(15), PREFERRED);
    assert!(play.open());
}

/// What the next run finds when the state was lost.
fn lose_the_state(play: &mut Play) {
    let kernel = KernelReading {
        world: play.kernel.clone(),
        default_device: Some(interface("eth0")),
        ..match play.answer(&Question::Kernel(Box::default())) {
            Reading::Kernel(kernel) => *kernel,
            other => panic!("{other:?}"),
        }
    };
    let named = |file: &Result<Candidate, String>| {
        let file = file.clone().unwrap();
        Candidate { name: format!("{}-0123456789ab", file.name), ..file }
    };
    let stored: Vec<Candidate> = play.files.values().map(named).collect();
    play.state = None;
    let now = play.now.clone();
    play.state = play.with_subject(|subject| Chain::rebuild(subject, &kernel, &stored, &now));
}

#[test]
fn a_state_that_was_lost_is_made_anew_from_what_stands() {
    let mut play = Play::new(policy(|_| {}));
    let _built = play.step();
    let before = play.kernel.clone();
    lose_the_state(&mut play);
    assert_eq!(play.state.as_ref().unwrap().stands, PREFERRED);
    assert_eq!(play.after(15), PREFERRED);
    assert!(play.touched(&before).is_empty() && play.open(), "nothing is reloaded, nobody moved");
}

#[test]
fn after_a_boot_without_its_state_the_barrier_holds_the_clients_until_the_chain_carries() {
    let mut play = Play::new(policy(|_| {}));
    let _built = play.step();
    let text = play.barrier.clone();
    let name = play.kernel.nft.as_ref().unwrap().name.clone();
    let listing = Some(text.clone());
    play.kernel = World { nft: Some(NftTable { name, text, listing }), ..World::default() };
    lose_the_state(&mut play);
    play.wan = false;
    for _ in 0..3 {
        let _stands = play.after(15);
        assert!(play.kernel.nft.is_some() && !play.open(), "nobody is let out");
    }
    play.wan = true;
    let mut steps = 0;
    while !play.open() {
        let stands = play.after(15);
        steps += 1;
        assert!(steps < 5, "{stands}");
    }
    assert_eq!(play.after(15), PREFERRED);
}
