//! Nodes are asked whether they live: by a connection, a certificate, a page.

use crate::dns_bench;

use dns_bench::{Certificate, LiveNode, Serves};
use egressctl::dns::name::HostName;
use egressctl::host::node::check_all;
use egressctl::observation::{Handshake, NodeCheck, NodeReading};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PAGE: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\nall is well.\n";

fn name(text: &str) -> HostName {
    HostName::try_from(text.to_owned()).unwrap()
}

fn check(node: &LiveNode, how: Handshake) -> NodeCheck {
    NodeCheck { address: node.address, how, timeout_ms: 2_000 }
}

fn tls(node: &LiveNode, of: &str, ca_file: Option<&Path>) -> NodeCheck {
    let ca_file = ca_file.map(Path::to_path_buf);
    check(node, Handshake::Tls { port: node.port, name: name(of), ca_file })
}

fn https(node: &LiveNode, status: u16, body: Option<&str>, ca_file: &Path) -> NodeCheck {
    check(
        node,
        Handshake::Https {
            port: node.port,
            name: name("fi.example.org"),
            path: "/health?x=1".to_owned(),
            expect_status: vec![status],
            expect_body: body.map(str::to_owned),
            ca_file: Some(ca_file.to_path_buf()),
        },
    )
}

fn one(check: &NodeCheck) -> NodeReading {
    let asked = BTreeSet::from([check.clone()]);
    check_all(&asked).unwrap().checks.remove(check).unwrap()
}

fn passes(check: &NodeCheck) {
    let reading = one(check);
    assert!(matches!(reading, NodeReading::Passed { .. }), "{reading:?}");
}

fn fails(check: &NodeCheck, said: &str) {
    match one(check) {
        NodeReading::Failed(why) => assert!(why.contains(said), "{why}"),
        other @ (NodeReading::Passed { .. } | NodeReading::Unknown(_)) => panic!("{other:?}"),
    }
}

#[test]
fn a_node_is_judged_by_its_connection() {
    let mut node = LiveNode::new(21, 0, Serves::Tcp);
    let asked = |node: &LiveNode| check(node, Handshake::Tcp { port: node.port });
    passes(&asked(&node));
    node.die();
    fails(&asked(&node), "refuses");
}

#[test]
fn a_node_is_judged_by_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let good = Certificate::new(folder.path(), "good", &["fi.example.org"]);
    let other = Certificate::new(folder.path(), "other", &["de.example.org"]);
    let node = LiveNode::tls(&good, 22, 0, PAGE);
    passes(&tls(&node, "fi.example.org", Some(&good.file)));
    fails(&tls(&node, "de.example.org", Some(&good.file)), "certificate");
    fails(&tls(&node, "fi.example.org", Some(&other.file)), "certificate");
    fails(&tls(&node, "fi.example.org", None), "certificate");
    // What we cannot judge by is our own trouble and never the node's.
    for file in [folder.path().join("missing"), good.file.with_extension("key")] {
        let reading = one(&tls(&node, "fi.example.org", Some(&file)));
        assert!(matches!(reading, NodeReading::Unknown(_)), "{reading:?}");
    }
}

#[test]
fn a_node_is_judged_by_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let good = Certificate::new(folder.path(), "good", &["fi.example.org"]);
    let node = LiveNode::tls(&good, 23, 0, PAGE);
    passes(&https(&node, 200, None, &good.file));
    passes(&https(&node, 200, Some("is well"), &good.file));
    fails(&https(&node, 204, None, &good.file), "answers 200");
    fails(&https(&node, 200, Some("is ill"), &good.file), "does not hold");
    let redirects =
        "HTTP/1.1 302 Found\r\nLocation: https://198.51.100.1/\r\nContent-Length: 0\r\n\r\n";
    let portal = LiveNode::tls(&good, 24, 0, redirects);
    fails(&https(&portal, 200, None, &good.file), "answers 302");
    let noise = LiveNode::tls(&good, 25, 0, "SSH-2.0-OpenSSH\r\n");
    fails(&https(&noise, 200, None, &good.file), "");
}

#[test]
fn a_node_that_drips_or_says_nothing_is_over_at_its_deadline() {
    let drips = LiveNode::new(26, 0, Serves::Drip);
    // Its kernel takes connections and nobody ever speaks.
    let mute = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 27), 0)).unwrap();
    let file: Option<PathBuf> = None;
    let how = |port| Handshake::Tls { port, name: name("fi.example.org"), ca_file: file.clone() };
    let mute_check = NodeCheck {
        address: Ipv4Addr::new(127, 0, 0, 27),
        how: how(mute.local_addr().unwrap().port()),
        timeout_ms: 400,
    };
    let drip_check = NodeCheck { timeout_ms: 400, ..check(&drips, how(drips.port)) };
    for asked in [mute_check, drip_check] {
        let begun = Instant::now();
        let reading = one(&asked);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert!(matches!(&reading, NodeReading::Failed(_)), "{reading:?}");
    }
}

#[test]
fn many_dead_nodes_take_no_longer_than_one() {
    let mute = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 28), 0)).unwrap();
    let port = mute.local_addr().unwrap().port();
    let checks: BTreeSet<NodeCheck> = (0..100_u32)
        .map(|n| NodeCheck {
            address: Ipv4Addr::new(127, 0, 0, 28),
            how: Handshake::Tls { port, name: name(&format!("n{n}.example.org")), ca_file: None },
            timeout_ms: 1_000,
        })
        .collect();
    let begun = Instant::now();
    let readings = check_all(&checks).unwrap().checks;
    assert_eq!(readings.len(), 100);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(readings.values().all(|reading| matches!(reading, NodeReading::Failed(_))));
}
