//! The uplink becomes another one under a gateway at work: a smaller MTU, a new address, another device,
//! one family less. Clients go on by their tunnels, and no tunnel is blamed for it.

use crate::lab;

use lab::pool::Pool;
use lab::{Lab, names};
use serde_json::json;

fn three_slots(policy: &mut serde_json::Value) {
    policy["slots"]["interfaces"] = json!(["vpn1", "vpn2", "vpn3"]);
}

/// Steps until every client leaves by the endpoint that it had, at most so many; nothing may be counted
/// against a tunnel meanwhile.
fn goes_on(pool: &Pool<'_>, exits: &[usize], most: usize) {
    for n in 0.. {
        assert!(n < most, "{:#}\n{:?}", pool.status(), pool.lab.exits());
        let step = pool.step();
        assert_eq!((step.code, step.word("to")), (Some(0), "NORMAL"), "{step:#?}");
        let now: Vec<usize> = pool.lab.exits().into_iter().flatten().collect();
        if now == exits {
            break;
        }
    }
    let status = pool.status();
    assert_eq!(status["repair_events_since_full_refresh"], 0, "{status:#}");
    assert_eq!(status["pool"]["quarantined"], 0, "{status:#}");
}

#[test]
fn a_wan_of_1492_bytes_carries_large_transfers_both_ways_without_any_icmp() {
    let lab = Lab::builder().clients(3).endpoints(4).start();
    // As behind PPPoE (RFC 2516): both ends of the line know, and nobody tells the others.
    lab.gw().ip("link set eth0 mtu 1492");
    lab.spaces().isp.batch("link set gw mtu 1492\n");
    let deaf = "table ip deaf {\nchain in { type filter hook input priority filter; policy accept;\n\
                icmp type destination-unreachable icmp code frag-needed drop\n}\n}\n";
    lab.spaces().web.nft(deaf);
    for client in &lab.spaces().clients {
        client.nft(deaf);
    }
    let pool = Pool::up(&lab, three_slots);
    // 80 bytes are WireGuard's own over IPv6.
    assert_eq!(pool.kernel()["links"].matches("1412").count(), 3, "{}", pool.kernel()["links"]);
    let long = format!("/{}", "x".repeat(9000));
    for k in 1..=3 {
        let client = lab.client(k);
        let down = client.page("/big").map(|page| page.body.len());
        assert_eq!(down, Some(lab::web::BIG), "a download of client {k}");
        assert_eq!(
            client.page(&long).map(|page| page.status),
            Some(404),
            "an upload of client {k}"
        );
    }
    pool.nothing_leaked();
}

#[test]
fn another_address_of_the_wan_moves_nobody() {
    let lab = Lab::builder().clients(3).endpoints(4).start();
    let pool = Pool::up(&lab, three_slots);
    let exits = pool.serves(3);
    lab.gw().space().batch(
        "addr del 203.0.113.2/24 dev eth0\naddr add 203.0.113.9/24 dev eth0\n\
         route replace default via 203.0.113.1\n",
    );
    goes_on(&pool, &exits, 6);
    pool.nothing_leaked();
}

#[test]
fn another_device_becomes_the_wan_and_its_clients_go_on() {
    let lab = Lab::builder().clients(3).endpoints(4).start();
    let pool = Pool::up(&lab, |policy| {
        three_slots(policy);
        policy.as_object_mut().unwrap().remove("wan_interface");
    });
    let exits = pool.serves(3);
    lab.spaces().isp.batch(&format!(
        "link add gw2 type veth peer name eth2 netns {}\nlink set gw2 up\naddr add 172.16.9.1/24 dev gw2\n",
        lab.gw().space().name()
    ));
    lab.gw().space().batch(
        "link set eth2 up\naddr add 172.16.9.2/24 dev eth2\nroute replace default via 172.16.9.1\n\
         link set eth0 down\n",
    );
    goes_on(&pool, &exits, 6);
    assert!(lab.gw().nft("list table inet egressctl_home").contains("\"eth2\""));
    // Back again, as after a cable was put in.
    lab.gw().space().batch(
        "link set eth0 up\naddr replace 203.0.113.2/24 dev eth0\nroute replace default via 203.0.113.1\n\
         link set eth2 down\n",
    );
    goes_on(&pool, &exits, 6);
    pool.nothing_leaked();
}

#[test]
fn a_wan_that_has_lost_ipv4_holds_everything_until_it_is_back() {
    let lab = Lab::builder().clients(3).endpoints(4).start();
    let pool = Pool::up(&lab, three_slots);
    let (exits, counted) = (pool.serves(3), pool.counted());
    lab.gw().space().batch("addr del 203.0.113.2/24 dev eth0\n");
    assert!(lab.gw().ip("-6 route show default").contains("eth0"), "IPv6 is still there");
    for _ in 0..3 {
        let step = pool.step();
        assert_eq!((step.code, step.word("to")), (Some(0), "NORMAL"), "{step:#?}");
        assert_eq!(pool.counted(), counted, "nothing is held against a tunnel");
        assert_eq!(lab.client(1).get6(), None, "and nothing goes around it");
    }
    lab.gw()
        .space()
        .batch("addr add 203.0.113.2/24 dev eth0\nroute replace default via 203.0.113.1\n");
    goes_on(&pool, &exits, 6);
    assert_eq!(lab.client(2).exit(), Some(names::exit(exits[1]).to_string()));
    pool.nothing_leaked();
}
