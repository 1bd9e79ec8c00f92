//! The story of a pool, as its clients live it: up, an endpoint dies, repaired, exhausted; false alarms, a silent WAN, a person's hand.

use crate::lab;

use lab::pool::{Pool, SLOTS, differences, exit_of, setting};
use lab::{Lab, names, space};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(2);

/// The number of a client that leaves by a slot now.
fn client_of(pool: &Pool<'_>, slot: &str) -> usize {
    let status = pool.status();
    let clients = status["clients"].as_array().unwrap();
    clients.iter().position(|client| client["egress"] == slot).unwrap() + 1
}

/// Case C40.
#[test]
fn five_slots_come_up_in_one_step_and_are_repaired_until_nothing_is_left() {
    let lab = Lab::builder().clients(7).start();
    let pool = Pool::up(&lab, |_| {});
    let mut last_homes = pool.serves(5);
    assert_eq!(pool.asked().0, Some(0));
    let again = pool.step();
    assert!(again.is_steady(), "{again:#?}");

    // The last slot is never hurt: what runs on it must not notice anything of all that follows.
    let last = client_of(&pool, "vpn5");
    let (download, mut udp) = (lab.client(last).download().unwrap(), lab.client(last).udp_flow());
    let mut tcp = lab.client(last).tcp_flow().unwrap();
    let exit = exit_of(pool.endpoints()["vpn5"]);
    let mut lives = |when: &str| {
        assert!(download.grows(SOON), "the download of a healthy slot stopped {when}");
        assert_eq!(udp.ping(), exit, "the UDP flow of a healthy slot {when}");
        assert_eq!(tcp.ping().ok(), exit, "the connection of a healthy slot {when}");
    };
    lives("at first");

    // While candidates are left, each failure costs one step of moving and one of repair.
    for (round, slot) in ["vpn1", "vpn2", "vpn1"].into_iter().enumerate() {
        let (before, dead) = (pool.tunnels(), pool.endpoints()[slot]);
        let hit = client_of(&pool, slot);
        let mut flow = lab.client(hit).tcp_flow().unwrap();
        assert_eq!(flow.ping().ok(), exit_of(dead));
        lab.drop(dead);
        pool.goes("NORMAL", "NORMAL");
        pool.goes("NORMAL", "LOCAL_REPAIR");
        let guests = pool.serves(4);
        assert!(!guests.contains(&dead));
        assert_eq!(flow.ping(), Err(ErrorKind::ConnectionReset), "a flow of the dead slot is cut");
        assert!(lab.client(hit).tcp_flow().unwrap().ping().is_ok());
        assert_eq!(pool.asked().0, Some(1));
        lives("while its neighbour failed");
        pool.others_go_on(&before, &[slot]);
        pool.goes("LOCAL_REPAIR", "NORMAL");
        let new = pool.endpoints()[slot];
        assert_ne!(new, dead);
        let exits = pool.serves(5);
        let moved = |client: &usize| exits[*client] != last_homes[*client];
        let replaced = |client: &usize| last_homes[*client] == dead;
        assert!((0..7).filter(moved).eq((0..7).filter(replaced)), "{last_homes:?} {exits:?}");
        last_homes = exits;
        assert_eq!(lab.client(hit).endpoint(), Some(new), "it is home, on the new endpoint");
        pool.others_go_on(&before, &[slot]);
        lives("while its neighbour was repaired");
        let status = pool.status();
        assert_eq!(status["repair_events_since_full_refresh"], round + 1);
        assert_eq!(status["pool"]["quarantined"], round + 1);
        assert_eq!(pool.asked().0, Some(0));
    }
    assert_eq!(pool.status()["pool"]["reserve"], 0);

    // No candidate is left, so slots are given up: one, then two at once, then one more.
    let mut left: BTreeSet<&str> = SLOTS.into();
    for (dying, mode) in [
        (vec!["vpn3"], "NORMAL"),
        (vec!["vpn1", "vpn4"], "SLOT_EXHAUSTED"),
        (vec!["vpn2"], "SLOT_EXHAUSTED"),
    ] {
        let (before, endpoints) = (pool.tunnels(), pool.endpoints());
        for slot in &dying {
            lab.drop(endpoints[*slot]);
        }
        pool.goes(mode, mode);
        let moving = pool.step();
        assert_eq!(moving.code, Some(0), "{moving:#?}");
        left.retain(|slot| !dying.contains(slot));
        pool.serves(left.len());
        lives("while a neighbour failed for good");
        for _ in 0..=dying.len() {
            let step = pool.step();
            assert_eq!((step.code, step.word("to")), (Some(0), "SLOT_EXHAUSTED"), "{step:#?}");
            pool.serves(left.len());
        }
        pool.others_go_on(&before, &dying);
        lives("while a neighbour was given up");
        assert_eq!(pool.endpoints().keys().map(String::as_str).collect::<BTreeSet<_>>(), left);
        assert_eq!(pool.asked().0, Some(1));
    }
    assert_eq!(left, BTreeSet::from(["vpn5"]));
    let settled = pool.step();
    assert!(settled.is_steady(), "{settled:#?}");
    assert_eq!(pool.status()["pool"]["quarantined"], 7);
    pool.nothing_leaked();
    assert_eq!((lab.capture.resets_of_flows(), lab.capture.strays()), (vec![], vec![]));
}

/// Cases C22, C26.
#[test]
fn an_endpoint_that_comes_back_was_a_false_alarm_and_portal_blackhole_and_stop_are_noticed() {
    let lab = Lab::builder().endpoints(6).start();
    let pool = Pool::up(&lab, |policy| policy["params"]["flap_limit"] = json!(9));
    let (homes, endpoints) = (pool.serves(5), pool.endpoints());
    let (before, counted) = (pool.tunnels(), pool.counted());
    let faults: [(&str, &dyn Fn(usize)); 3] = [
        ("drop", &|k| lab.drop(k)),
        ("portal", &|k| lab.portal(k)),
        ("blackhole", &|k| lab.blackhole(k)),
    ];
    for ((name, fault), slot) in faults.into_iter().zip(SLOTS) {
        fault(endpoints[slot]);
        pool.goes("NORMAL", "NORMAL");
        let noticed = pool.goes("NORMAL", "LOCAL_REPAIR");
        assert!(!pool.serves(4).contains(&endpoints[slot]), "{name}: {noticed:#?}");
        lab.heal(endpoints[slot]);
        pool.goes("LOCAL_REPAIR", "NORMAL");
        assert_eq!(pool.serves(5), homes, "{name}: all are home on the same endpoints");
        assert_eq!(pool.counted(), counted, "{name}: nothing was counted");
        pool.others_go_on(&before, &[]);
        let step = pool.step();
        assert!(step.is_steady(), "{name}: {step:#?}");
    }
    // A server that forgot its sessions is no false alarm within one step: it is replaced.
    lab.stop(endpoints["vpn4"]);
    pool.goes("NORMAL", "NORMAL");
    pool.goes("NORMAL", "LOCAL_REPAIR");
    pool.serves(4);
    pool.goes("LOCAL_REPAIR", "NORMAL");
    assert_ne!(pool.endpoints()["vpn4"], endpoints["vpn4"]);
    pool.serves(5);
    pool.others_go_on(&before, &["vpn4"]);
    pool.nothing_leaked();
}

/// Case C29.
#[test]
fn a_path_that_eats_large_packets_gets_a_smaller_mtu_before_its_endpoint_is_given_up() {
    let lab = Lab::builder().endpoints(6).start();
    let large = json!({ "url": format!("http://{}/big", names::PROBE), "bytes": 1400 });
    let pool = Pool::up(&lab, |policy| policy["probe"]["large"] = large);
    let (homes, endpoints, before) = (pool.serves(5), pool.endpoints(), pool.tunnels());
    let hit = client_of(&pool, "vpn2");
    assert!(lab.client(hit).page("/big").is_some());
    lab.mtu(endpoints["vpn2"]);
    pool.goes("NORMAL", "NORMAL");
    assert!(lab.client(hit).page("/big").is_none());
    pool.goes("NORMAL", "LOCAL_REPAIR");
    assert!(!pool.serves(4).contains(&endpoints["vpn2"]));
    assert!(lab.client(hit).page("/big").is_some());
    pool.goes("LOCAL_REPAIR", "LOCAL_REPAIR");
    assert!(pool.kernel()["links"].contains("vpn2 Some(\"1280\") true"));
    pool.goes("LOCAL_REPAIR", "NORMAL");
    assert_eq!(pool.serves(5), homes, "clients keep that endpoint");
    assert_eq!(lab.client(hit).page("/big").map(|page| page.body.len()), Some(lab::web::BIG));
    let status = pool.status();
    assert_eq!(
        (&status["pool"]["quarantined"], &status["repair_events_since_full_refresh"]),
        (&json!(0), &json!(0))
    );
    pool.others_go_on(&before, &[]);
    assert!(pool.step().is_steady());
    pool.nothing_leaked();
}

#[test]
fn a_silent_wan_changes_nothing_and_counts_nothing_and_moves_nobody() {
    let lab = Lab::builder().endpoints(6).start();
    let pool = Pool::up(&lab, |_| {});
    let (homes, kernel, counted) = (pool.serves(5), pool.kernel(), pool.counted());
    lab.wan_silent();
    for n in 1..=10 {
        let step = pool.step();
        assert!(step.is_steady(), "step {n}: {step:#?}");
        assert_eq!(pool.counted(), counted, "step {n}");
    }
    assert_eq!(differences(&kernel, &pool.kernel()), Vec::<String>::new());
    lab.wan_heal();
    let first = pool.step();
    assert!(first.is_steady(), "{first:#?}");
    assert_eq!((pool.counted(), pool.serves(5)), (counted.clone(), homes.clone()));

    // A slot that had failed before stays failed, and its retests begin anew.
    let dead = pool.endpoints()["vpn3"];
    lab.drop(dead);
    pool.goes("NORMAL", "NORMAL");
    lab.wan_silent();
    (0..3).for_each(|_| drop(pool.goes("NORMAL", "NORMAL")));
    lab.wan_heal();
    pool.goes("NORMAL", "NORMAL");
    pool.goes("NORMAL", "NORMAL");
    assert_eq!(pool.endpoints()["vpn3"], dead, "one failure after the silence is one failure");
    pool.goes("NORMAL", "LOCAL_REPAIR");
    pool.serves(4);
    pool.nothing_leaked();
}

#[test]
fn a_paused_pool_is_left_alone_and_goes_on_after_resume() {
    let lab = Lab::builder().endpoints(6).start();
    let pool = Pool::up(&lab, |_| {});
    let (homes, dead) = (pool.serves(5), pool.endpoints()["vpn1"]);
    assert_eq!(lab.gw().egressctl(&["pause", "home"]).code, Some(0));
    assert!(pool.status()["paused"].is_string());
    lab.drop(dead);
    lab.gw().space().batch("rule del pref 21024\n");
    let (kernel, counted) = (pool.kernel(), pool.counted());
    for _ in 0..4 {
        let step = pool.step();
        assert_eq!((step.code, &step.report["changes"]), (Some(0), &json!(0)), "{step:#?}");
    }
    assert_eq!(differences(&kernel, &pool.kernel()), Vec::<String>::new());
    assert_eq!(pool.counted(), counted);
    assert_eq!(lab.gw().egressctl(&["resume", "home"]).code, Some(0));
    assert!(pool.status()["paused"].is_null());
    pool.goes("NORMAL", "NORMAL");
    assert!(pool.kernel()["rules"].contains("21024:"), "drift is healed again");
    pool.goes("NORMAL", "LOCAL_REPAIR");
    pool.serves(4);
    pool.goes("LOCAL_REPAIR", "NORMAL");
    let exits = pool.serves(5);
    let moved = exits.iter().zip(&homes).filter(|(now, then)| now != then).count();
    assert_eq!(moved, 1, "one client a slot: {homes:?} became {exits:?}");
    pool.nothing_leaked();
}

#[test]
fn down_gives_everything_back_and_resume_brings_it_again() {
    let lab = Lab::builder().endpoints(6).masquerade().start();
    let pool = Pool::new(&lab, |_| {});
    let bare = pool.kernel();
    let never = pool.asked();
    assert_eq!(never.0, Some(3), "{never:?}");
    assert!(lab.client(1).get6().is_some());
    let first = pool.step();
    assert_eq!(first.went(), (Some(0), "-", "NORMAL"), "{first:#?}");
    let mark = lab.capture.mark();
    let homes = pool.serves(5);
    assert_eq!(setting(lab.gw().space(), "ipv4/conf/eth0/src_valid_mark"), "1");
    assert!((lab.client(1).get6(), lab.client(1).ping6()) == (None, false));
    assert_eq!(lab.capture.leaks_since(mark), []);
    let endpoints = pool.endpoints();

    let down = lab.gw().egressctl(&["down", "home"]);
    assert_eq!(down.code, Some(0), "{down:?}");
    assert_eq!(differences(&bare, &pool.kernel()), Vec::<String>::new());
    let gone = space::wait_until(SOON, || lab.gw().daemons().is_empty());
    assert!(gone && lab.gw().devices().len() == 3, "{:?}", lab.gw().devices());
    assert!(!lab.gw().state_dir().join("home/barrier.nft").exists());
    assert_eq!(lab.client(1).exit(), Some(names::WAN.to_string()), "clients leave by the WAN");
    assert!(lab.client(1).get6().is_some());
    let status = pool.status();
    assert!(status["paused"].is_string() && status["state"].is_string(), "{status:#}");
    let paused = pool.step();
    assert_eq!((paused.code, &paused.report["changes"]), (Some(0), &json!(0)), "{paused:#?}");
    assert_eq!(differences(&bare, &pool.kernel()), Vec::<String>::new());

    assert_eq!(lab.gw().egressctl(&["resume", "home"]).code, Some(0));
    let back = pool.step();
    assert_eq!((back.code, back.word("to")), (Some(0), "NORMAL"), "{back:#?}");
    let mark = lab.capture.mark();
    assert_eq!((pool.endpoints(), pool.serves(5)), (endpoints, homes), "the state was kept");
    assert_eq!(lab.capture.leaks_since(mark), []);
}

#[test]
fn status_and_history_tell_the_same_story_in_the_fields_of_the_contract() {
    let lab = Lab::builder().endpoints(6).start();
    let pool = Pool::up(&lab, |policy| {
        policy["exit_ip"] =
            json!({ "url": format!("http://{}/ip", names::PROBE), "interval_sec": 0 });
    });
    pool.step();
    let status = pool.status();
    let keys = |value: &serde_json::Value| -> BTreeSet<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    let set = |words: &str| words.split(' ').map(str::to_owned).collect::<BTreeSet<String>>();
    let top = "policy kind state since paused reasons last_step slots clients pool repair_events_since_full_refresh next";
    assert_eq!(keys(&status), set(top));
    assert_eq!(keys(&status["last_step"]), set("at outcome transition duration_ms"));
    let slot = "interface endpoint health why failures clients exit_ip latency_ms since";
    assert_eq!(keys(&status["slots"][0]), set(slot));
    assert_eq!(keys(&status["clients"][0]), set("client egress"));
    assert_eq!(keys(&status["pool"]), set("generation reserve quarantined fetched_at"));
    assert_eq!(keys(&status["reasons"][0]), set("code text"));
    assert_eq!((&status["policy"], &status["kind"]), (&json!("home"), &json!("pool")));
    for (slot, k) in pool.endpoints() {
        let row = status["slots"].as_array().unwrap().iter().find(|row| row["interface"] == slot);
        let row = row.unwrap();
        assert_eq!(row["endpoint"], format!("p{k}"), "{row}");
        assert_eq!((&row["health"], &row["failures"]), (&json!("healthy"), &json!(0)), "{row}");
        assert_eq!(row["exit_ip"], names::exit(k).to_string(), "{row}");
        assert!(row["latency_ms"].is_u64() && row["since"].is_string(), "{row}");
    }
    lab.drop(pool.endpoints()["vpn1"]);
    pool.goes("NORMAL", "NORMAL");
    pool.goes("NORMAL", "LOCAL_REPAIR");
    let status = pool.status();
    assert_eq!(status["last_step"]["transition"], "NORMAL -> LOCAL_REPAIR", "{status:#}");
    assert_eq!(status["slots"][0]["health"], "failed");
    pool.goes("LOCAL_REPAIR", "NORMAL");
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("why.json").display().to_string();
    let ran = lab.gw().egressctl(&["step", "home", "--now", "--record", &bundle]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let recorded = std::fs::read_to_string(&bundle).unwrap();
    for k in 1..=9 {
        assert!(!recorded.contains(&lab::provider::Keys::user(k).private), "the key of p{k}");
    }
    let replayed = lab.gw().egressctl(&["replay", &bundle]);
    assert!(replayed.stdout.contains("the decision is the recorded one"), "{replayed:?}");
    let told = lab.gw().egressctl(&["history", "home", "--json"]);
    let lines: Vec<serde_json::Value> =
        told.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = "policy kind at from to outcome reasons changes duration_ms";
    assert!(lines.iter().all(|told| keys(told) == set(line)), "{}", told.stdout);
    let moves: Vec<_> =
        lines.iter().map(|told| (told["from"].as_str(), told["to"].as_str())).collect();
    let normal = Some("NORMAL");
    let repair = Some("LOCAL_REPAIR");
    assert_eq!(moves, [(None, normal), (normal, repair), (repair, normal)]);
    let brief = lab.gw().egressctl(&["history", "home", "-n", "1"]);
    assert_eq!((brief.code, brief.stdout.lines().count()), (Some(0), 1), "{brief:?}");
    let text = lab.gw().egressctl(&["status", "home"]).stdout;
    assert!(text.contains("NORMAL") && SLOTS.iter().all(|slot| text.contains(slot)), "{text}");
    let all = [text, told.stdout, status.to_string()].concat();
    assert!(!all.contains(&lab::provider::Keys::user(1).private), "no key is shown");
    pool.nothing_leaked();
}
