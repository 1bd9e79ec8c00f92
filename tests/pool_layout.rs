//! The kernel layout's several sorts of client and path: local users, spread prefixes, prefixes, large packets, one arm.

use crate::lab;

use lab::pool::{Pool, exit_of, setting};
use lab::{Lab, names};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(2);

#[test]
fn a_local_user_leaves_by_a_slot_moves_with_its_failure_and_is_closed_by_each_layer() {
    let lab = Lab::builder().clients(2).endpoints(6).start();
    let pool = Pool::up(&lab, |policy| policy["clients"] = json!(["user:daemon", "user:nobody"]));
    let exit = |user: &str| lab.gw().exit_as(user).as_deref().and_then(names::endpoint_of);
    let endpoints = pool.endpoints();
    assert_eq!(exit("daemon"), Some(endpoints["vpn1"]));
    assert_eq!(exit("nobody"), Some(endpoints["vpn2"]));
    let near = lab.gw().get_as("daemon", &names::NEIGHBOUR.to_string(), "/ip");
    assert_eq!(near.map(|page| page.text()), exit_of(endpoints["vpn1"]), "a neighbour of the WAN");
    assert!(lab.gw().get_as("daemon", &names::NEIGHBOUR.to_string(), "/big").is_some());

    lab.drop(endpoints["vpn1"]);
    pool.goes("NORMAL", "NORMAL");
    pool.goes("NORMAL", "LOCAL_REPAIR");
    assert!(exit("daemon").is_some_and(|now| now != endpoints["vpn1"]));
    assert_eq!(exit("nobody"), Some(endpoints["vpn2"]));
    pool.goes("LOCAL_REPAIR", "NORMAL");
    assert_eq!(exit("daemon"), Some(pool.endpoints()["vpn1"]), "it is home on the new endpoint");
    assert_ne!(pool.endpoints()["vpn1"], endpoints["vpn1"]);

    let safe = |when: &str| {
        for user in ["daemon", "nobody"] {
            let now = lab.gw().exit_as(user);
            let by_slot = now.as_deref().is_none_or(|exit| names::endpoint_of(exit).is_some());
            assert!(by_slot, "{user} leaves as {now:?} {when}");
            let near = lab.gw().get_as(user, &names::NEIGHBOUR.to_string(), "/ip");
            let near = near.map(|page| page.text());
            let by_slot = near.as_deref().is_none_or(|exit| names::endpoint_of(exit).is_some());
            assert!(by_slot, "{user} reaches the neighbour as {near:?} {when}");
        }
        pool.nothing_leaked();
    };
    lab.gw().flush_nft();
    safe("after nft was flushed");
    pool.goes("NORMAL", "NORMAL");
    lab.gw().delete_rules();
    safe("after the rules were deleted");
    assert_eq!(exit("daemon"), None, "without rules the barrier holds it");
    pool.goes("NORMAL", "NORMAL");
    assert_eq!(exit("nobody"), Some(endpoints["vpn2"]));

    // Without its slots' devices a user is closed in, not let out.
    lab.gw().space().batch("link del vpn1\nlink del vpn2\n");
    safe("without the devices");
    assert_eq!((exit("daemon"), exit("nobody")), (None, None));
    pool.goes("NORMAL", "NORMAL");
    assert_eq!(exit("nobody"), Some(endpoints["vpn2"]));
    assert!(lab.client(1).exit().is_some(), "who is no client is left alone");
}

/// Its socket belongs to no process any more, so nothing but its flow tells whose its last packets are.
#[test]
fn the_last_packets_of_a_users_process_that_ended_are_closed_in_like_all_others() {
    let lab = Lab::builder().clients(1).endpoints(5).start();
    let pool = Pool::up(&lab, |policy| policy["clients"] = json!(["user:daemon"]));
    let talks = format!("exec 3<>/dev/tcp/{}/7 && exec sleep 60", names::USER_TARGET);
    for layer in ["rules", "nft"] {
        let mut command = lab.gw().command("setpriv");
        command.args(["--reuid", "daemon", "--clear-groups", "bash", "-c", &talks]);
        let mut child = command.spawn().unwrap();
        let open = || {
            lab.gw().space().inside(|| {
                let open = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
                // 192.0.2.199:7 as the kernel writes it, and established.
                open.contains("C70200C0:0007 01")
            })
        };
        assert!(lab::space::wait_until(SOON, open), "the connection is open");
        if layer == "rules" {
            lab.gw().delete_rules();
        } else {
            lab.gw().flush_nft();
        }
        child.kill().unwrap();
        let _code = child.wait().unwrap();
        std::thread::sleep(Duration::from_millis(2500));
        assert_eq!(
            (lab.capture.leaks(), lab.capture.strays()),
            (vec![], vec![]),
            "without {layer}"
        );
        pool.goes("NORMAL", "NORMAL");
    }
    pool.nothing_leaked();
}

/// The endpoint by which each of 60 addresses of the spread prefix leaves.
fn spread_exits(lab: &Lab) -> BTreeMap<usize, Option<usize>> {
    let numbers: Vec<usize> = (1..=60).map(|n| n * 16).collect();
    std::thread::scope(|scope| {
        let asked: Vec<_> = numbers
            .chunks(10)
            .map(|some| {
                scope.spawn(move || {
                    let exit = |i: &usize| (*i, lab.spread_client(*i).endpoint());
                    some.iter().map(exit).collect::<Vec<_>>()
                })
            })
            .collect();
        asked.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_spread_prefix_uses_all_slots_and_only_the_buckets_of_a_dead_one_move() {
    let lab = Lab::builder().clients(1).endpoints(6).start();
    let spread = json!([{ "prefix": "10.78.0.0/22", "spread": true }, "10.77.0.11"]);
    let pool = Pool::up(&lab, |policy| policy["clients"] = spread);
    let homes = spread_exits(&lab);
    assert!(homes.values().all(Option::is_some), "{homes:?}");
    let used: BTreeSet<_> = homes.values().flatten().collect();
    assert_eq!(used.len(), 5, "{homes:?}");
    assert_eq!(spread_exits(&lab), homes, "an address stays where it is");
    let slots = pool.status()["slots"].as_array().unwrap().clone();
    let loads: Vec<u64> = slots.iter().map(|slot| slot["clients"].as_u64().unwrap()).collect();
    assert_eq!(loads.iter().sum::<u64>(), 257, "256 buckets and one client: {loads:?}");
    assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{loads:?}");

    let dead = pool.endpoints()["vpn2"];
    lab.drop(dead);
    pool.goes("NORMAL", "NORMAL");
    pool.goes("NORMAL", "LOCAL_REPAIR");
    let guests = spread_exits(&lab);
    for (i, home) in &homes {
        let now = guests[i];
        assert!(now.is_some() && now != Some(dead), "address {i}");
        assert!(*home == Some(dead) || now == *home, "address {i} was moved for nothing");
    }
    pool.goes("LOCAL_REPAIR", "NORMAL");
    let new = pool.endpoints()["vpn2"];
    let expected: BTreeMap<_, _> = homes
        .iter()
        .map(|(i, home)| (*i, if *home == Some(dead) { Some(new) } else { *home }))
        .collect();
    assert_eq!(spread_exits(&lab), expected);
    assert!(pool.step().is_steady());
    lab.gw().delete_rules();
    assert_eq!(lab.spread_client(1).exit(), None);
    pool.goes("NORMAL", "NORMAL");
    lab.gw().flush_nft();
    assert_eq!(lab.spread_client(1).exit(), None);
    pool.goes("NORMAL", "NORMAL");
    assert_eq!(spread_exits(&lab), expected);
    pool.nothing_leaked();
}

#[test]
fn an_entry_that_is_a_prefix_moves_as_a_whole_and_an_unplaced_neighbour_is_left_alone() {
    let lab = Lab::builder().clients(7).endpoints(6).start();
    // .11 to .15 are one entry, .16 another, and .17 is nobody's.
    let pool = Pool::up(&lab, |policy| policy["clients"] = json!(["10.77.0.8/29", "10.77.0.16"]));
    let together = |slots: [&str; 2]| {
        let endpoints = pool.endpoints();
        let exits: Vec<_> = (1..=6).map(|k| lab.client(k).endpoint()).collect();
        let [group, single] = slots.map(|slot| Some(endpoints[slot]));
        assert_eq!(exits, [group, group, group, group, group, single]);
    };
    together(["vpn1", "vpn2"]);
    lab.drop(pool.endpoints()["vpn1"]);
    pool.goes("NORMAL", "NORMAL");
    pool.goes("NORMAL", "LOCAL_REPAIR");
    together(["vpn3", "vpn2"]);
    pool.goes("LOCAL_REPAIR", "NORMAL");
    together(["vpn1", "vpn2"]);
    pool.nothing_leaked();
    assert_eq!(lab.client(7).exit(), Some(names::client(7).to_string()));
}

#[test]
fn clients_reach_each_other_and_the_gateway_without_a_slot() {
    let lab = Lab::builder().clients(2).endpoints(5).strict().start();
    let pool = Pool::up(&lab, |_| {});
    assert!(lab.client(1).ping("10.77.0.1".parse().unwrap()));
    assert!(lab.client(1).ping(names::client(2).into()));
    assert!(lab.client(1).ping("fd77::1".parse().unwrap()), "IPv6 within the LAN goes on");
    assert!(lab.client(1).ping(names::spread(1).into()), "from one LAN prefix to the other");
    lab.gw().delete_rules();
    assert!(lab.client(1).ping("10.77.0.1".parse().unwrap()));
    pool.goes("NORMAL", "NORMAL");
    pool.nothing_leaked();
}

#[test]
fn large_transfers_work_both_ways_over_slots_of_both_sizes_without_any_icmp() {
    let lab = Lab::builder().clients(5).endpoints(5).start();
    for k in [1, 2] {
        let path = lab.provider_dir().join(format!("p{k}.conf"));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("DNS = ", "MTU = 1280\nDNS = ")).unwrap();
        // What is larger than the tunnel says is eaten on the way without a word.
        lab.mtu(k);
    }
    // "Fragmentation needed" reaches nobody, as on many real paths.
    let deaf = "table ip deaf {\nchain in { type filter hook input priority filter; policy accept;\n\
                icmp type destination-unreachable icmp code frag-needed drop\n}\n}\n";
    lab.spaces().web.nft(deaf);
    for client in &lab.spaces().clients {
        client.nft(deaf);
    }
    let pool = Pool::up(&lab, |_| {});
    let links = pool.kernel()["links"].clone();
    assert_eq!(links.matches("1280").count(), 2, "{links}");
    assert_eq!(links.matches("1420").count(), 3, "{links}");
    pool.serves(5);
    let long = format!("/{}", "x".repeat(9000));
    for k in 1..=5 {
        let client = lab.client(k);
        let down = client.page("/big").map(|page| page.body.len());
        assert_eq!(down, Some(lab::web::BIG), "a download of client {k}");
        assert_eq!(
            client.page(&long).map(|page| page.status),
            Some(404),
            "an upload of client {k}"
        );
        assert!(client.download().unwrap().grows(SOON));
    }
    pool.nothing_leaked();
}

/// Makes the gateway one-armed: its uplink is the LAN's own segment, where the isp is another host.
fn one_arm(lab: &Lab) {
    let spaces = lab.spaces();
    spaces.lan.batch(&format!(
        "link add arm type veth peer name arm netns {}\nlink set arm master br0 up\n",
        spaces.isp.name()
    ));
    spaces.isp.batch(
        "addr add 10.77.0.254/24 dev arm\nlink set arm up\nroute del 10.77.0.0/24 via 203.0.113.2\n\
         route replace 10.78.0.0/22 via 10.77.0.1\n",
    );
    // The capture knows the gateway by its WAN's hardware address.
    let mac = names::WAN_MAC.map(|byte| format!("{byte:02x}")).join(":");
    spaces.gw.batch(&format!(
        "link set eth1 address {mac}\nroute replace default via 10.77.0.254 dev eth1\n"
    ));
}

#[test]
fn a_one_armed_gateway_serves_its_clients_and_closes_like_any_other() {
    let lab = Lab::builder().clients(3).endpoints(6).start();
    one_arm(&lab);
    let redirects = setting(lab.gw().space(), "ipv4/conf/eth1/send_redirects");
    let pool = Pool::up(&lab, |policy| {
        policy["wan_interface"] = json!("eth1");
        policy["routing"] = json!({ "inbound": "block" });
    });
    let homes = pool.serves(3);
    assert_eq!(setting(lab.gw().space(), "ipv4/conf/eth1/send_redirects"), "0");
    assert!(lab.client(1).ping(names::client(2).into()));
    assert_eq!((lab.client(1).get6(), lab.client(1).ping6()), (None, false));
    assert!(lab.client(1).ping("fd77::1".parse().unwrap()));
    let dead = pool.endpoints()["vpn1"];
    lab.drop(dead);
    pool.goes("NORMAL", "NORMAL");
    pool.goes("NORMAL", "LOCAL_REPAIR");
    assert!(!pool.serves(3).contains(&dead));
    pool.goes("LOCAL_REPAIR", "NORMAL");
    let exits = pool.serves(3);
    assert_eq!(exits[1..], homes[1..]);
    lab.gw().delete_rules();
    assert_eq!(lab.exits(), [None; 3]);
    pool.goes("NORMAL", "NORMAL");
    lab.gw().flush_nft();
    assert_eq!(lab.exits(), [None; 3]);
    pool.goes("NORMAL", "NORMAL");
    assert_eq!(pool.serves(3), exits);
    assert!(pool.step().is_steady());
    pool.nothing_leaked();
    assert_eq!(lab.gw().egressctl(&["down", "home"]).code, Some(0));
    assert_eq!(setting(lab.gw().space(), "ipv4/conf/eth1/send_redirects"), redirects);
    assert!(lab.client(1).exit().is_some());
}
