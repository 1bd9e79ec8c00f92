//! The full trial on real tunnels: from one dead endpoint to Direct and back to five new slots, with
//! a reboot at every point.

use crate::lab;
use crate::states;

use lab::pool::{Pool, SLOTS, Step};
use lab::source::{By, Says, by_http, endpoints};
use lab::{Lab, names, provider};
use serde_json::{Value, json};
use states::STATES;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

/// More than slots, so that homes are shared.
const CLIENTS: usize = 6;
/// The endpoint of the standby tunnel, which is in no list.
const STANDBY: usize = 19;
/// The endpoints of the list that ends Direct.
const NEW: [usize; 5] = [14, 15, 16, 17, 18];

/// The trial, as far as it has come.
struct Trial<'a> {
    lab: &'a Lab,
    pool: Pool<'a>,
    began: Instant,
    /// The states, each noted when it was entered.
    states: Vec<String>,
    /// Endpoints of the list that was fetched last.
    listed: BTreeSet<usize>,
    /// Endpoints that are dead.
    dead: BTreeSet<usize>,
    timeline: String,
    steps: usize,
}

fn policy(lab: &Lab, policy: &mut Value) {
    let standby = lab.folder().join("standby.conf");
    std::fs::write(&standby, provider::config(STANDBY)).unwrap();
    std::fs::set_permissions(&standby, std::fs::Permissions::from_mode(0o600)).unwrap();
    policy["provider"] = by_http();
    policy["bootstrap"] =
        json!({ "wireguard": { "interface": "vpnboot", "config": standby, "keep": "standby" } });
    policy["params"] = json!({
        "health_check_interval_sec": 10,
        "health_failures_before_down": 2,
        "local_repair_retest_count": 1,
        "full_refresh_after_repairs": 3,
        "hmn_refresh_retry_interval_sec": 3600,
        "bootstrap_retry_interval_sec": 0,
        "direct_grace_sec": 0,
        "candidate_test_timeout_sec": 1,
        "candidate_test_retries": 0,
    });
}

impl Trial<'_> {
    fn state(&self) -> &str {
        self.states.last().map_or("-", String::as_str)
    }

    /// One step, whether it is due or not; it goes on from where the last one ended.
    fn step(&mut self) -> Step {
        let step = Step::of(self.lab.gw().egressctl(&["step", "home", "--now", "--json"]));
        self.steps += 1;
        let (code, from, to) = step.went();
        // A candidate that was tried in the lent slot and did not answer is a change taken back.
        let lent = self.is_direct() && step.word("outcome") == "rolled-back" && code == Some(3);
        assert!(code == Some(0) || lent, "{step:#?}\n{}", self.timeline);
        assert_eq!(from, self.state(), "{step:#?}\n{}", self.timeline);
        if to != from {
            self.states.push(to.to_owned());
        }
        step
    }

    /// Steps until the machine stands there.
    fn until(&mut self, state: &str, most: usize) {
        for _ in 0..most {
            let step = self.step();
            if step.word("to") == state {
                return;
            }
        }
        panic!("not {state} after {most} steps: {:#}\n{}", self.pool.status(), self.timeline);
    }

    /// By what each client leaves: `pK`, `WAN`, or `-` for not at all.
    fn seen(&self) -> Vec<String> {
        let clients = self.lab.clients();
        let out = |exit: Option<String>| match exit {
            None => "-".to_owned(),
            Some(exit) if exit == names::WAN.to_string() => "WAN".to_owned(),
            Some(exit) => names::endpoint_of(&exit).map_or(exit, |k| format!("p{k}")),
        };
        std::thread::scope(|scope| {
            let asked: Vec<_> =
                clients.iter().map(|client| scope.spawn(|| out(client.exit()))).collect();
            asked.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// The same as `status` says it.
    fn said(&self) -> Vec<String> {
        let status = self.pool.status();
        let endpoint = |slot: &Value| {
            let slots = status["slots"].as_array().unwrap();
            let row = slots.iter().find(|row| row["interface"] == *slot).unwrap();
            row["endpoint"].as_str().unwrap().to_owned()
        };
        let client = |row: &Value| match row["egress"].as_str().unwrap() {
            "direct" => "WAN".to_owned(),
            "none" => "-".to_owned(),
            _ => endpoint(&row["egress"]),
        };
        status["clients"].as_array().unwrap().iter().map(client).collect()
    }

    fn is_direct(&self) -> bool {
        matches!(self.state(), "DIRECT_EMERGENCY" | "BOOTSTRAP_RECOVERY")
    }

    fn tell(&mut self, point: &str, what: &str) {
        let line = format!(
            "{:>6.1} s  {point:>2}  {:<18}  {:<64}  {}",
            self.began.elapsed().as_secs_f64(),
            self.state(),
            what,
            self.seen().join(" ")
        );
        println!("{line}");
        writeln!(self.timeline, "{line}").unwrap();
    }

    /// A point of the trial: it is told, clients are where `status` says that they are, and then the
    /// gateway reboots, which changes nothing of that.
    fn point(&mut self, number: usize, what: &str) {
        self.tell(&number.to_string(), what);
        let seen = self.seen();
        assert_eq!(seen, self.said(), "{what}: {:#}", self.pool.status());
        assert_eq!(seen.iter().all(|by| by == "WAN"), self.is_direct(), "{seen:?}");
        assert!(!seen.contains(&"-".to_owned()), "a client is offline: {seen:?}");
        let mark = self.lab.capture.mark();
        self.lab.gw().reboot();
        let barrier = self.lab.gw().state_dir().join("home/barrier.nft");
        self.lab.gw().space().nft(&std::fs::read_to_string(&barrier).unwrap());
        let closed = self.seen();
        if self.is_direct() {
            assert!(closed.iter().all(|by| by == "WAN"), "Direct boots open: {closed:?}");
        } else {
            assert_eq!(self.lab.capture.leaks_since(mark), [], "{what}: the boot leaked");
            assert!(closed.iter().all(|by| by == "-"), "{what}: boots closed: {closed:?}");
        }
        let before = self.state().to_owned();
        let step = self.step();
        if step.word("to") == before {
            assert_eq!(self.seen(), seen, "{what}: as before the reboot: {step:#?}");
        }
        if !self.is_direct() {
            assert_eq!(self.lab.capture.leaks_since(mark), [], "{what}: the first step leaked");
        }
    }

    /// The endpoint in a slot.
    fn endpoint(&self, slot: &str) -> usize {
        self.pool.endpoints()[slot]
    }

    fn kill(&mut self, k: usize) {
        self.lab.drop(k);
        self.dead.insert(k);
    }

    fn revive(&mut self, k: usize) {
        self.lab.heal(k);
        self.dead.remove(&k);
    }

    /// The endpoint of a slot dies, and its clients move to the others.
    fn fails(&mut self, slot: &str) -> usize {
        let (dead, before) = (self.endpoint(slot), self.pool.tunnels());
        self.kill(dead);
        self.until("LOCAL_REPAIR", 3);
        assert!(!self.seen().contains(&format!("p{dead}")), "{:?}", self.seen());
        self.pool.others_go_on(&before, &[slot]);
        dead
    }

    /// What fails is repaired: one slot, and no other tunnel is touched.
    fn is_repaired(&mut self, slot: &str, to: &str) {
        let before = self.pool.tunnels();
        self.until(to, 3);
        assert!(!self.dead.contains(&self.endpoint(slot)));
        self.pool.others_go_on(&before, &[slot]);
        self.pool.serves(5);
    }

    fn counts(&self) -> (u64, u64, u64, u64) {
        let status = self.pool.status();
        let number = |value: &Value| value.as_u64().unwrap();
        (
            number(&status["pool"]["generation"]),
            number(&status["pool"]["reserve"]),
            number(&status["pool"]["quarantined"]),
            number(&status["repair_events_since_full_refresh"]),
        )
    }

    fn active(&self) -> BTreeSet<usize> {
        self.pool
            .endpoints()
            .into_iter()
            .filter(|(slot, _)| slot != "vpnboot")
            .map(|(_, k)| k)
            .collect()
    }
}

#[test]
fn from_one_dead_endpoint_to_direct_and_back_with_a_reboot_at_every_point() {
    let lab = Lab::builder().clients(CLIENTS).endpoints(STANDBY).start();
    lab.source.says(Says::Lists(endpoints(1, 8)));
    let pool = Pool::new(&lab, |given| policy(&lab, given));
    let mut trial = Trial {
        lab: &lab,
        pool,
        began: Instant::now(),
        states: Vec::new(),
        listed: endpoints(1, 8),
        dead: BTreeSet::new(),
        timeline: String::new(),
        steps: 0,
    };
    trial.step();
    trial.tell("", "the first run: a list of eight by HTTP, five slots");
    assert_eq!(trial.counts(), (1, 3, 0, 0));
    assert_eq!(lab.source.asked(), [By::Wan]);

    in_service(&mut trial);
    out_of_candidates(&mut trial);
    back_from_direct(&mut trial);

    let line = format!(
        "{} steps, 17 reboots, {:.0} s\n{}",
        trial.steps,
        trial.began.elapsed().as_secs_f64(),
        trial.states.join(" ")
    );
    println!("{line}");
    assert_eq!(trial.states, STATES);
}

/// Points 1 to 5: repairs up to the threshold, and a new pool.
fn in_service(trial: &mut Trial<'_>) {
    let lab = trial.lab;
    trial.fails("vpn1");
    trial.point(1, "one VPN fails, its clients are guests of the others");
    trial.is_repaired("vpn1", "NORMAL");
    trial.point(2, "local repair: the next candidate, its clients are home");
    assert_eq!(trial.counts(), (1, 2, 1, 1));
    trial.point(3, "the dead endpoint is in quarantine");
    assert_eq!(trial.counts(), (1, 2, 1, 1), "a reboot counts nothing");

    let second = trial.fails("vpn2");
    trial.is_repaired("vpn2", "NORMAL");
    trial.fails("vpn1");
    assert_eq!(lab.source.asked(), [], "nobody asks without need");
    // One of the slots is on an endpoint that is not listed any more; one that was dead is well again.
    trial.revive(second);
    trial.is_repaired("vpn1", "FULL_POOL_REFRESH");
    let mut listed = trial.active();
    let gone = trial.endpoint("vpn4");
    listed.remove(&gone);
    listed.extend([second, 9, 10, 11, 12]);
    lab.source.says(Says::Lists(listed.clone()));
    trial.listed.clone_from(&listed);
    assert_eq!(trial.counts(), (1, 0, 3, 3));
    let before = trial.pool.tunnels();
    trial.point(4, "repeated failures: the third repair asks for a new pool");

    if trial.state() != "NORMAL" {
        trial.until("NORMAL", 6);
    }
    assert_eq!(
        trial.counts(),
        (2, 4, 0, 0),
        "a new generation, nothing counted, old quarantine gone"
    );
    let told = lab.gw().egressctl(&["history", "home", "--json", "-n", "1"]).stdout;
    assert!(
        told.contains("quarantine-archived") && told.contains(&format!("p{second} (")),
        "{told}"
    );
    assert_eq!(lab.source.asked(), [By::Wan]);
    assert!(trial.active().is_subset(&listed) && !trial.active().contains(&gone));
    for (slot, tunnel) in trial.pool.tunnels() {
        let same = tunnel.peer == before[&slot].peer;
        assert_eq!(same, slot != "vpn4", "{slot}: what is listed and works stays in its slot");
    }
    trial.point(5, "a full refresh over HTTP");
    assert_eq!(trial.counts(), (2, 4, 0, 0));
}

/// Points 6 to 12: no provider, no candidates, no tunnels.
fn out_of_candidates(trial: &mut Trial<'_>) {
    let lab = trial.lab;
    lab.source.says(Says::Hangs);
    for slot in ["vpn2", "vpn3"] {
        trial.fails(slot);
        trial.is_repaired(slot, "NORMAL");
    }
    trial.fails("vpn2");
    trial.is_repaired("vpn2", "FULL_POOL_REFRESH");
    assert_eq!(trial.counts(), (2, 1, 3, 3));
    trial.point(6, "a new series of failures: the threshold again");

    let before = trial.pool.tunnels();
    if trial.state() != "DEGRADED_POOL" {
        trial.until("DEGRADED_POOL", 3);
    }
    let ways: BTreeSet<By> = lab.source.asked().into_iter().collect();
    let tunnels = trial.active().into_iter().chain([STANDBY]);
    let all = tunnels.map(By::Endpoint).chain([By::Wan]).collect();
    assert_eq!(ways, all, "asked by the WAN, by each slot, and by the standby");
    trial.pool.others_go_on(&before, &[]);
    trial.point(7, "the provider is unavailable, no tunnel is hurt");

    let (dead, before) = (trial.endpoint("vpn5"), trial.pool.tunnels());
    trial.kill(dead);
    for _ in 0..4 {
        trial.step();
        if trial.pool.endpoints().get("vpn5").is_some_and(|k| *k != dead) {
            break;
        }
    }
    trial.pool.serves(5);
    trial.pool.others_go_on(&before, &["vpn5"]);
    assert_eq!(trial.counts(), (2, 0, 4, 4), "repaired and counted, and no refresh of it");
    trial.point(8, "service goes on with what is left: a repair in DEGRADED_POOL");

    gives_up(trial, "vpn1");
    trial.pool.serves(4);
    trial.point(9, "candidates run out: vpn1 is given up");
    gives_up(trial, "vpn2");
    trial.pool.serves(3);
    trial.point(10, "consolidation: all clients on three slots");

    gives_up(trial, "vpn5");
    trial.pool.serves(2);
    gives_up(trial, "vpn3");
    trial.pool.serves(1);
    let mark = lab.capture.mark();
    trial.point(11, "one tunnel after the other is destroyed: one is left");
    assert_eq!(lab.capture.leaks_since(mark), []);
    assert_eq!(trial.active().len(), 1);
    lab.wall();
    let last = trial.endpoint("vpn4");
    trial.kill(last);
    assert_eq!(lab.capture.leaks(), [], "until here no packet of a client left in clear");
    trial.until("DIRECT_EMERGENCY", 3);
    trial.point(12, "no tunnel is left: clients in Direct");
    trial.until("BOOTSTRAP_RECOVERY", 1);
}

/// The endpoint of a slot dies when no candidate is left.
fn gives_up(trial: &mut Trial<'_>, slot: &str) {
    let (dead, before) = (trial.endpoint(slot), trial.pool.tunnels());
    trial.kill(dead);
    for _ in 0..5 {
        trial.step();
        if !trial.pool.endpoints().contains_key(slot) {
            assert_eq!(trial.state(), "SLOT_EXHAUSTED");
            return trial.pool.others_go_on(&before, &[slot]);
        }
    }
    panic!("{slot} is not given up: {:#}", trial.pool.status());
}

/// Points 13 to 17: a way to the provider, a new pool, clients back.
fn back_from_direct(trial: &mut Trial<'_>) {
    let lab = trial.lab;
    // One of the last pool works again, but the provider does not hear who comes out of it.
    lab.source.says(Says::Lists(NEW.into()));
    lab.source.hears_only([STANDBY]);
    let _before = lab.source.asked();
    let cached = *trial.listed.difference(&trial.active()).next().unwrap();
    trial.revive(cached);
    for k in [17, 18] {
        trial.kill(k);
    }
    for _ in 0..14 {
        trial.step();
        if trial.pool.endpoints().get("vpn1") == Some(&cached) {
            break;
        }
    }
    let status = trial.pool.status();
    assert_eq!(status["slots"][0]["health"], "lent", "{status:#}");
    assert!(trial.seen().iter().all(|by| by == "WAN"), "the lent slot carries no client");
    trial.step();
    assert!(lab.source.asked().contains(&By::Endpoint(cached)), "asked through vpn1");
    trial.point(13, "cached-pool bootstrap: vpn1 reaches the provider, which does not hear it");

    let mut by = Vec::new();
    for _ in 0..14 {
        by.extend(lab.source.asked());
        if by.contains(&By::Endpoint(STANDBY)) {
            break;
        }
        trial.step();
    }
    assert!(by.contains(&By::Endpoint(STANDBY)), "{by:?} {:#}", trial.pool.status());
    trial.point(14, "the alternative transport: the standby tunnel");
    let _again = lab.source.asked();
    trial.point(15, "a new list through it, of which three pass: too few");
    assert_eq!(lab.source.asked(), [], "the list is kept and not asked for again");

    let mark = lab.capture.mark();
    for k in [17, 18] {
        trial.revive(k);
    }
    trial.until("NORMAL", 4);
    assert_eq!(trial.active(), NEW.into());
    assert_eq!(trial.counts(), (3, 0, 0, 0));
    trial.pool.serves(5);
    assert_eq!(lab.capture.leaks_since(mark).len(), 0);
    trial.point(16, "all five slots are restored");
    trial.point(17, "clients are back on VPN");
    assert_eq!(lab.capture.leaks_since(mark), []);
    assert!(trial.step().is_steady());
    assert_eq!(trial.pool.status()["slots"].as_array().unwrap().len(), SLOTS.len());
}
