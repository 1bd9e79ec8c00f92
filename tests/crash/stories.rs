//! What a machine goes through: each run on the way is a scene to be cut.
//!
//! **Invariant:** a story is played without a fault before any of its scenes is cut, and each of its runs
//! goes where the story says.

use crate::cut::{Cut, Loss};
use crate::gateway::{CLIENTS, Gateway, Run, Scene};
use crate::world::{ENDPOINTS, Health, World, endpoint, fresh_settings, known};
use crate::zone::NODES;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One run of a story, and all that it finds.
pub struct Cuttable {
    pub name: String,
    pub scene: Scene,
    pub args: Vec<String>,
    pub patience: usize,
    pub waits_sec: i64,
}

/// Where a story is played.
pub struct Stage<'a> {
    pub gateway: &'a Gateway,
    pub scenes: Vec<Cuttable>,
    story: &'static str,
    /// How many steps a run that was cut needs at most, until all is as it would have been.
    patience: usize,
    /// For how long what was undone is left alone by design.
    waits_sec: i64,
}

/// A pool of two slots that counts one failed check.
pub fn pool() -> Value {
    json!({
        "kind": "pool",
        "slots": { "interfaces": ["vpn1", "vpn2"], "first_table": 101 },
        "clients": CLIENTS,
        "lan_interfaces": ["eth1"],
        "wan_interface": "eth0",
        "provider": { "http": { "url": "http://192.0.2.12/list.json", "timeout_sec": 2 } },
        "probe": { "urls": ["http://192.0.2.10/generate_204"], "timeout_sec": 1 },
        "wan": { "urls": ["http://192.0.2.11/generate_204"], "timeout_sec": 1 },
        "test": { "parallel": 1 },
        "params": {
            "health_check_interval_sec": 0,
            "health_failures_before_down": 1,
            "local_repair_retest_count": 1,
            "bootstrap_retry_interval_sec": 0,
            "candidate_test_timeout_sec": 2,
            "candidate_test_retries": 0,
            "direct_grace_sec": 0
        }
    })
}

impl<'a> Stage<'a> {
    pub fn new(gateway: &'a Gateway, story: &'static str) -> Self {
        gateway.put_files(&std::collections::BTreeMap::new());
        gateway.set_world(&World::bare());
        gateway.forget_settings();
        gateway.reset_core();
        Self { gateway, scenes: Vec::new(), story, patience: 2, waits_sec: 0 }
    }

    /// Goes on where another stage has ended.
    pub fn again(gateway: &'a Gateway) -> Self {
        Self { gateway, scenes: Vec::new(), story: "again", patience: 2, waits_sec: 0 }
    }

    /// The world changes.
    pub fn world(&self, change: impl FnOnce(&mut World)) {
        let mut world = self.gateway.world();
        change(&mut world);
        self.gateway.set_world(&world);
    }

    /// Nothing is answered through a proxy or a member of a core.
    pub fn fails(&self, what: &str) {
        self.world(|world| world.failing.extend([what.to_owned()]));
    }

    pub fn heals(&self, what: &str) {
        self.world(|world| world.failing.retain(|failing| failing != what));
    }

    /// Endpoints behave so from now on.
    pub fn are(&self, which: &[usize], health: Health) {
        self.world(|world| {
            for k in which {
                world.endpoints.insert(endpoint(*k).to_string(), health);
                world.publics.insert(known(*k).private.clone(), known(*k).public.clone());
            }
        });
    }

    /// Whether an endpoint is loaded in a slot.
    pub fn is_loaded(&self, k: usize) -> bool {
        let at = endpoint(k).to_string();
        self.gateway
            .world()
            .links
            .values()
            .any(|link| link.peer.as_ref().is_some_and(|peer| peer.endpoint == at))
    }

    /// What is loaded in a slot dies.
    pub fn dies(&self, slot: &str) -> usize {
        let world = self.gateway.world();
        let peer = world.links[slot].peer.as_ref().expect("something is loaded");
        let which = (1..=ENDPOINTS).find(|k| endpoint(*k).to_string() == peer.endpoint);
        let which = which.expect("it is one of the endpoints");
        self.are(&[which], Health::Dead);
        which
    }

    /// The provider lists these, and all of them work.
    pub fn lists(&self, which: &[usize]) {
        self.are(which, Health::Alive);
        self.world(|world| world.list = Some(which.to_vec()));
    }

    /// A run that is a scene.
    pub fn runs(&mut self, args: &[&str]) -> Run {
        let scene = self.gateway.scene();
        let run = self.gateway.run(args);
        let report = run.report();
        let word = |key: &str| report[key].as_str().unwrap_or("-").to_owned();
        let name = format!("{}: {} {} -> {}", self.story, args[0], word("from"), word("to"));
        let args = args.iter().map(|word| (*word).to_owned()).collect();
        let (patience, waits_sec) = (self.patience, self.waits_sec);
        self.scenes.push(Cuttable { name, scene, args, patience, waits_sec });
        run
    }

    /// A step that goes to this state and is no scene, because another story has it.
    #[track_caller]
    pub fn goes_to(&mut self, to: &str) {
        let run = self.gateway.step();
        assert_eq!(run.report()["to"], to, "{}: {run:?}", self.story);
    }

    /// Steps that are scenes, until one goes to this state.
    #[track_caller]
    pub fn until(&mut self, to: &str) {
        for _ in 0..16 {
            if self.runs(&["step", "home", "--json"]).report()["to"] == to {
                return;
            }
        }
        panic!("{}: it does not come to {to}: {:#?}", self.story, self.gateway.history());
    }

    /// The same without scenes.
    #[track_caller]
    pub fn goes_until(&mut self, to: &str) {
        for _ in 0..16 {
            if self.gateway.step().report()["to"] == to {
                return;
            }
        }
        panic!("{}: it does not come to {to}: {:#?}", self.story, self.gateway.history());
    }

    /// A step that is killed before this call, when it has something in flight.
    #[track_caller]
    pub fn dies_at(&mut self, call: &'static str, nth: usize) {
        let cut = Cut { call, nth, loss: Loss::Kill };
        let run = self.gateway.cut_off(&cut, &["step", "home"]);
        assert_eq!(run.code, None, "{}: {run:?}", self.story);
        assert!(self.gateway.picture().in_flight, "{}: nothing was in flight", self.story);
    }

    /// A step that goes to this state.
    #[track_caller]
    pub fn steps_to(&mut self, to: &str) -> Run {
        let run = self.runs(&["step", "home", "--json"]);
        assert_eq!(run.report()["to"], to, "{}: {run:?}", self.story);
        run
    }
}

/// What a machine goes through.
pub type Story = fn(&mut Stage<'_>);

/// Every state of a pool, and every way out of it, is on the way of one of them; so are changes of the other kinds.
pub const STORIES: [(&str, Story); 25] = [
    ("repair", repair),
    ("false alarm", false_alarm),
    ("spoilt candidate", spoilt_candidate),
    ("exhausted", exhausted),
    ("threshold", threshold),
    ("another list", another_list),
    ("degraded", degraded),
    ("direct", direct),
    ("none", none),
    ("held", held),
    ("way back by a tunnel", way_back_by_a_tunnel),
    ("way back from the cache", way_back_from_the_cache),
    ("uplink down", uplink_down),
    ("drift", drift),
    ("commands", commands),
    ("small packets", small_packets),
    ("edited", edited),
    ("undone", undone),
    ("standby", standby),
    ("selector", selector),
    ("route", route),
    ("guard", guard),
    ("dns", dns),
    ("chain", chain),
    ("chain of tunnels", chain_of_tunnels),
];

/// Four endpoints that work, and the first run.
fn up(stage: &mut Stage<'_>, change: impl FnOnce(&mut Value)) {
    let mut policy = pool();
    change(&mut policy);
    stage.gateway.set_policy(&policy);
    stage.lists(&[1, 2, 3, 4]);
    stage.goes_to("NORMAL");
}

fn repair(stage: &mut Stage<'_>) {
    stage.gateway.set_policy(&pool());
    stage.lists(&[1, 2, 3, 4]);
    stage.steps_to("NORMAL");
    stage.steps_to("NORMAL");
    stage.dies("vpn1");
    stage.steps_to("LOCAL_REPAIR");
    stage.steps_to("NORMAL");
    stage.steps_to("NORMAL");
}

fn false_alarm(stage: &mut Stage<'_>) {
    up(stage, |_| {});
    let dead = stage.dies("vpn2");
    stage.goes_to("LOCAL_REPAIR");
    stage.are(&[dead], Health::Alive);
    stage.steps_to("NORMAL");
}

fn spoilt_candidate(stage: &mut Stage<'_>) {
    up(stage, |_| {});
    let others: Vec<usize> = (1..=4).filter(|k| !stage.is_loaded(*k)).collect();
    stage.are(&others, Health::Dead);
    stage.dies("vpn1");
    stage.goes_to("LOCAL_REPAIR");
    // The next one is loaded, fails its proof, and leaves the slot empty.
    stage.steps_to("LOCAL_REPAIR");
    stage.steps_to("LOCAL_REPAIR");
    stage.steps_to("SLOT_EXHAUSTED");
}

fn exhausted(stage: &mut Stage<'_>) {
    let policy = pool();
    stage.gateway.set_policy(&policy);
    stage.lists(&[1, 2]);
    stage.goes_to("NORMAL");
    let dead = stage.dies("vpn1");
    stage.goes_to("LOCAL_REPAIR");
    stage.steps_to("SLOT_EXHAUSTED");
    stage.steps_to("SLOT_EXHAUSTED");
    // The provider has others by now, and it is time to ask.
    stage.lists(&[3 - dead, 3, 4]);
    stage.gateway.age(1_000);
    stage.steps_to("NORMAL");
}

fn threshold(stage: &mut Stage<'_>) {
    up(stage, |policy| policy["params"]["full_refresh_after_repairs"] = 1.into());
    stage.dies("vpn1");
    stage.goes_to("LOCAL_REPAIR");
    stage.steps_to("FULL_POOL_REFRESH");
    stage.steps_to("NORMAL");
}

fn another_list(stage: &mut Stage<'_>) {
    up(stage, |_| {});
    stage.lists(&[5, 6, 7]);
    stage.runs(&["refresh", "home"]);
    stage.steps_to("FULL_POOL_REFRESH");
    // Both slots hold what is not listed any more: one a transaction.
    stage.steps_to("FULL_POOL_REFRESH");
    stage.steps_to("NORMAL");
}

fn degraded(stage: &mut Stage<'_>) {
    up(stage, |_| {});
    stage.world(|world| world.list = None);
    stage.gateway.run(&["refresh", "home"]);
    stage.goes_to("FULL_POOL_REFRESH");
    stage.steps_to("DEGRADED_POOL");
    let dead = stage.dies("vpn2");
    stage.steps_to("DEGRADED_POOL");
    stage.steps_to("DEGRADED_POOL");
    let others: Vec<usize> = (1..=5).filter(|k| *k != dead).collect();
    stage.lists(&others);
    stage.gateway.age(1_000);
    stage.steps_to("NORMAL");
}

fn direct(stage: &mut Stage<'_>) {
    let policy = pool();
    stage.gateway.set_policy(&policy);
    stage.lists(&[1, 2]);
    stage.goes_to("NORMAL");
    stage.are(&[1, 2], Health::Dead);
    stage.world(|world| world.list = None);
    stage.until("DIRECT_EMERGENCY");
    stage.steps_to("BOOTSTRAP_RECOVERY");
    stage.steps_to("BOOTSTRAP_RECOVERY");
    stage.steps_to("BOOTSTRAP_RECOVERY");
    stage.lists(&[3, 4, 5]);
    stage.until("NORMAL");
}

fn none(stage: &mut Stage<'_>) {
    let mut policy = pool();
    policy["params"]["direct_failopen_enabled"] = false.into();
    stage.gateway.set_policy(&policy);
    stage.lists(&[1, 2]);
    stage.steps_to("NORMAL");
    stage.are(&[1, 2], Health::Dead);
    stage.world(|world| world.list = None);
    stage.until("DIRECT_EMERGENCY");
    stage.steps_to("BOOTSTRAP_RECOVERY");
    stage.lists(&[3, 4, 5]);
    stage.until("NORMAL");
}

fn held(stage: &mut Stage<'_>) {
    let mut policy = pool();
    policy["params"]["emergency_commit_enabled"] = false.into();
    stage.gateway.set_policy(&policy);
    stage.lists(&[1, 2]);
    stage.goes_to("NORMAL");
    stage.are(&[1, 2], Health::Dead);
    stage.world(|world| world.list = None);
    stage.until("DIRECT_EMERGENCY");
    stage.runs(&["switch", "home", "direct"]);
    stage.steps_to("BOOTSTRAP_RECOVERY");
}

fn way_back_by_a_tunnel(stage: &mut Stage<'_>) {
    up(stage, |_| {});
    stage.are(&[1, 2, 3, 4], Health::Dead);
    stage.world(|world| world.list = None);
    stage.goes_until("BOOTSTRAP_RECOVERY");
    stage.world(|world| {
        world.list = Some(vec![5, 6, 7]);
        world.list_by_tunnel_only = true;
    });
    stage.are(&[3, 5, 6, 7], Health::Alive);
    stage.until("NORMAL");
}

fn way_back_from_the_cache(stage: &mut Stage<'_>) {
    up(stage, |policy| policy["params"]["exit_direct_from_cache"] = true.into());
    stage.are(&[1, 2, 3, 4], Health::Dead);
    stage.world(|world| world.list = None);
    stage.goes_until("BOOTSTRAP_RECOVERY");
    stage.are(&[3, 4], Health::Alive);
    stage.until("DEGRADED_POOL");
}

fn uplink_down(stage: &mut Stage<'_>) {
    up(stage, |_| {});
    stage.are(&[1, 2, 3, 4], Health::Dead);
    stage.world(|world| world.wan = false);
    stage.steps_to("NORMAL");
    stage.are(&[1, 2, 3, 4], Health::Alive);
    stage.world(|world| world.wan = true);
    stage.steps_to("NORMAL");
    stage.steps_to("NORMAL");
}

fn drift(stage: &mut Stage<'_>) {
    up(stage, |_| {});
    stage.world(|world| {
        world.rules.remove(1);
        world.routes.remove(0);
    });
    stage.steps_to("NORMAL");
    stage.world(|world| drop(world.nft.pop_first()));
    stage.steps_to("NORMAL");
    stage.world(|world| {
        world.links.remove("vpn2");
        world.routes.retain(|route| route.dev.as_deref() != Some("vpn2"));
    });
    stage.gateway.inside(|| fresh_settings("vpn2"));
    stage.steps_to("NORMAL");
    // Started anew, and nothing closed the clients in at boot.
    let bare = stage.gateway.world().rebooted();
    stage.gateway.set_world(&bare);
    stage.gateway.forget_settings();
    stage.steps_to("NORMAL");
}

fn commands(stage: &mut Stage<'_>) {
    up(stage, |_| {});
    stage.runs(&["pause", "home"]);
    stage.steps_to("NORMAL");
    stage.runs(&["resume", "home"]);
    let free = (1..=4).find(|k| !stage.is_loaded(*k)).expect("one is free");
    stage.runs(&["switch", "home", &format!("vpn1=p{free}")]);
    stage.goes_to("NORMAL");
    stage.runs(&["down", "home"]);
    stage.runs(&["resume", "home"]);
    stage.steps_to("NORMAL");
}

fn small_packets(stage: &mut Stage<'_>) {
    up(stage, |policy| {
        policy["probe"]["large"] = json!({ "url": "http://192.0.2.10/large", "bytes": 1_400 });
    });
    let which = stage.dies("vpn1");
    stage.are(&[which], Health::Small);
    stage.steps_to("LOCAL_REPAIR");
    stage.steps_to("LOCAL_REPAIR");
    stage.steps_to("NORMAL");
}

fn edited(stage: &mut Stage<'_>) {
    up(stage, |_| {});
    let mut policy = pool();
    policy["slots"]["interfaces"] = json!(["vpn1", "vpn3"]);
    policy["clients"] = json!([CLIENTS[0]]);
    stage.gateway.set_policy(&policy);
    stage.runs(&["step", "home", "--json"]);
    stage.runs(&["step", "home", "--json"]);
}

/// The run that undoes what a run that died has begun is cut, too.
fn undone(stage: &mut Stage<'_>) {
    let policy = pool();
    stage.gateway.set_policy(&policy);
    stage.lists(&[1, 2, 3, 4]);
    stage.dies_at("clone3", 40);
    stage.runs(&["step", "home", "--json"]);
    stage.goes_to("NORMAL");
    stage.dies("vpn1");
    stage.goes_to("LOCAL_REPAIR");
    stage.dies_at("clone3", 9);
    stage.runs(&["step", "home", "--json"]);
}

fn standby(stage: &mut Stage<'_>) {
    // The standby tunnel comes one step after the slots, and not at once after it was taken back.
    stage.patience = 3;
    stage.waits_sec = 60;
    let mut policy = pool();
    policy["bootstrap"] =
        json!({ "wireguard": { "interface": "vpnboot", "config": "@GATEWAY@/p9.conf" } });
    stage.gateway.set_policy(&policy);
    stage.lists(&[1, 2]);
    stage.are(&[9], Health::Alive);
    stage.steps_to("NORMAL");
    stage.are(&[1, 2], Health::Dead);
    stage.goes_until("BOOTSTRAP_RECOVERY");
    stage.world(|world| {
        world.list = Some(vec![5, 6, 7]);
        world.list_by_tunnel_only = true;
    });
    stage.are(&[5, 6, 7], Health::Alive);
    stage.until("NORMAL");
}

/// After a step that could not be counted another one only looks, and each window begins anew.
const LOOKS: usize = 6;

fn selector(stage: &mut Stage<'_>) {
    stage.patience = LOOKS;
    stage.gateway.set_policy(&json!({
        "kind": "selector",
        "driver": { "clash": { "url": "http://core.invalid", "selector": "out" } },
        "primary": { "member": "main", "proxy": "http://primary.invalid" },
        "reserve": { "member": "spare", "proxy": "http://reserve.invalid" },
        "probe": { "urls": ["http://probe.example/generate_204"], "timeout_sec": 2 },
        "params": { "check_interval_sec": 0, "failure_window_sec": 0, "recovery_window_sec": 0,
                    "minimum_reserve_sec": 0, "traffic_guard": false }
    }));
    stage.steps_to("ON_PRIMARY");
    stage.fails("primary");
    stage.steps_to("PRIMARY_FAILING");
    stage.steps_to("ON_RESERVE");
    stage.heals("primary");
    stage.until("ON_PRIMARY");
    stage.runs(&["switch", "home", "spare"]);
    stage.runs(&["resume", "home"]);
    stage.runs(&["step", "home", "--json"]);
}

fn route(stage: &mut Stage<'_>) {
    stage.patience = LOOKS;
    stage.gateway.set_policy(&json!({
        "kind": "selector",
        "driver": { "route": { "table": 120 } },
        "primary": { "interface": "eth0", "gateway": "203.0.113.1" },
        "reserve": { "interface": "vpn3", "gateway": "10.99.3.1" },
        "probe": { "urls": ["http://192.0.2.11/generate_204"], "timeout_sec": 1 },
        "params": { "check_interval_sec": 0, "failure_window_sec": 0, "recovery_window_sec": 0,
                    "minimum_reserve_sec": 0, "traffic_guard": false }
    }));
    stage.are(&[8], Health::Alive);
    // Another card, by which the web answers as long as what is behind it does.
    stage.world(|world| {
        let mut card = world.links["eth0"].clone();
        card.index = 9;
        card.addresses = vec!["10.99.3.2/24".parse().expect("an address")];
        card.peer =
            Some(crate::world::Peer { endpoint: endpoint(8).to_string(), ..Default::default() });
        world.links.insert("vpn3".to_owned(), card);
    });
    stage.steps_to("ON_PRIMARY");
    stage.world(|world| world.wan = false);
    stage.until("ON_RESERVE");
    stage.world(|world| world.wan = true);
    stage.until("ON_PRIMARY");
    stage.runs(&["down", "home"]);
}

fn guard(stage: &mut Stage<'_>) {
    stage.patience = LOOKS;
    stage.gateway.set_policy(&json!({
        "kind": "guard",
        "driver": { "clash": { "url": "http://core.invalid" } },
        "group": "select", "automatic": "auto", "proxy": "http://local.invalid",
        "probe": { "urls": ["http://probe.example/generate_204"], "timeout_sec": 2 },
        "params": { "check_interval_sec": 0, "observe_passes": 2, "backoff_min_sec": 0,
                    "backoff_max_sec": 0, "give_back_max_sec": 0 }
    }));
    stage.steps_to("AUTO");
    stage.fails("a");
    stage.until("TEMPORARY");
    stage.heals("a");
    stage.until("AUTO");
    stage.runs(&["switch", "home", "c"]);
}

fn dns(stage: &mut Stage<'_>) {
    stage.patience = LOOKS;
    let nodes: serde_json::Map<String, Value> = NODES
        .iter()
        .map(|(name, address)| {
            let check = json!({ "tcp": { "port": 8_443, "timeout_sec": 1 } });
            ((*name).to_owned(), json!({ "address": address, "check": check }))
        })
        .collect();
    stage.gateway.set_policy(&json!({
        "kind": "dns",
        "driver": { "rfc2136": { "server": "zone.invalid", "zone": "example.org",
                                 "key_file": "@GATEWAY@/tsig.key" } },
        "nodes": nodes,
        "hosts": { "fi.example.org": { "native": "fi", "fallbacks": ["de", "us"], "ttl": 60 } },
        "reference": { "urls": ["http://192.0.2.11/generate_204"] },
        "params": { "check_interval_sec": 0, "fall": 1, "rise": 1, "minimum_stay_sec": 0 }
    }));
    let host = "fi.example.org".to_owned();
    stage.world(|world| {
        world.zone.hosts.insert(host.clone(), BTreeSet::from([NODES[0].1]));
    });
    stage.steps_to("NATIVE");
    stage.fails("fi");
    stage.steps_to("FALLBACK");
    stage.fails("de");
    stage.steps_to("FALLBACK");
    stage.fails("us");
    stage.steps_to("STRANDED");
    for (node, _) in NODES {
        stage.heals(node);
    }
    stage.steps_to("FALLBACK");
    stage.steps_to("NATIVE_RECOVERING");
    stage.steps_to("NATIVE");
    stage.runs(&["switch", "home", "fi.example.org=us"]);
    // Somebody else writes the record, which the next step is told to take back.
    let other = "127.0.0.99".parse().expect("an address");
    stage.world(|world| drop(world.zone.hosts.insert(host.clone(), BTreeSet::from([other]))));
    stage.goes_to("FALLBACK");
    stage.runs(&["resume", "home", "fi.example.org"]);
    stage.steps_to("NATIVE");
    stage.runs(&["down", "home"]);
}

fn chain(stage: &mut Stage<'_>) {
    stage.patience = LOOKS;
    stage.gateway.set_policy(&json!({
        "kind": "chain",
        "driver": { "clash": { "url": "http://core.invalid" } },
        "hops": [
            { "name": "entry", "nodes": { "a1": {}, "a2": {} } },
            { "name": "exit", "nodes": { "b1": {}, "b2": {} } },
        ],
        "probe": { "urls": ["https://probe.example/generate_204"], "timeout_sec": 1 },
        "wan": { "urls": ["http://uplink.invalid"] },
        "params": { "check_interval_sec": 0, "minimum_stay_sec": 0, "fail_timeout_sec": 1 }
    }));
    stage.runs(&["step", "home", "--json"]);
    stage.gateway.core().delays.remove("a1");
    stage.runs(&["step", "home", "--json"]);
    assert_eq!(stage.gateway.core().now("entry"), "a2");
    stage.gateway.core().delays.insert("a1".to_owned(), 20);
    stage.gateway.age(1_000);
    for _ in 0..3 {
        stage.runs(&["step", "home", "--json"]);
    }
    assert_eq!(stage.gateway.core().now("entry"), "a1");
}

fn chain_of_tunnels(stage: &mut Stage<'_>) {
    stage.patience = LOOKS;
    let node = |k: usize| json!({ "config": format!("@GATEWAY@/p{k}.conf") });
    stage.gateway.set_policy(&json!({
        "kind": "chain",
        "driver": { "wireguard": { "interfaces": "ch{hop}", "first_table": 140, "clients": CLIENTS,
            "lan_interfaces": ["eth1"], "wan_interface": "eth0" } },
        "hops": [
            { "name": "entry", "nodes": { "n1": node(1), "n2": node(2) } },
            { "name": "exit", "nodes": { "n3": node(3), "n4": node(4) } },
        ],
        "probe": { "urls": ["http://192.0.2.10/generate_204"], "timeout_sec": 1 },
        "wan": { "urls": ["http://192.0.2.11/generate_204"], "timeout_sec": 1 },
        "params": { "check_interval_sec": 0, "fail_timeout_sec": 3_000, "minimum_stay_sec": 0 }
    }));
    stage.are(&[1, 2, 3, 4], Health::Alive);
    stage.steps_to("entry PREFERRED, exit PREFERRED");
    stage.are(&[1], Health::Dead);
    stage.steps_to("entry BACKUP, exit PREFERRED");
    stage.are(&[3], Health::Dead);
    stage.steps_to("entry BACKUP, exit BACKUP");
    stage.are(&[4], Health::Dead);
    stage.runs(&["step", "home", "--json"]);
    stage.are(&[3, 4], Health::Alive);
    stage.runs(&["step", "home", "--json"]);
    stage.runs(&["down", "home"]);
}
