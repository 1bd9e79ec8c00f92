//! What a machine goes through: each run on the way is a scene to be cut.
//!
//! **Invariant:** a story is played without a fault before any of its scenes is cut, and each of its runs
//! goes where the story says.

use crate::cut::{Cut, Loss, tracer};
use crate::gateway::{CLIENTS, Gateway, Run, Scene};
use crate::world::{ENDPOINTS, Health, World, endpoint, fresh_settings, known};
use serde_json::{Value, json};

/// One run of a story, and all that it finds.
pub struct Cuttable {
    pub name: String,
    pub scene: Scene,
    pub args: Vec<String>,
}

/// Where a story is played.
pub struct Stage<'a> {
    pub gateway: &'a Gateway,
    pub scenes: Vec<Cuttable>,
    story: &'static str,
}

/// A pool of two slots that counts one failed check.
fn pool() -> Value {
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
        Self { gateway, scenes: Vec::new(), story }
    }

    /// The world changes.
    pub fn world(&self, change: impl FnOnce(&mut World)) {
        let mut world = self.gateway.world();
        change(&mut world);
        self.gateway.set_world(&world);
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
        self.scenes.push(Cuttable { name, scene, args });
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
        let record = self.gateway.folder().join("trace");
        let run = self.gateway.traced(&tracer(&record, Some(&cut)), &["step", "home"]);
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

type Story = fn(&mut Stage<'_>);

/// Every row of a pool's table is on the way of one of them.
pub const STORIES: [(&str, Story); 18] = [
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
