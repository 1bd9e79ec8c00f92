//! No packet of a client leaves by the WAN while it should not, whatever a stranger, a provider or a dying step does.

use crate::lab;

use lab::client::{Download, TcpFlow, UdpFlow};
use lab::pool::{Pool, exit_of, provider_wg, setting};
use lab::{Builder, Lab, names, space};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(2);

/// Adds a local user of the gateway to the clients.
fn with_user(policy: &mut Value) {
    policy["clients"].as_array_mut().unwrap().push(json!("user:daemon"));
}

/// Every way in which clients ask, over flows that are open and new ones.
struct Asking<'a> {
    lab: &'a Lab,
    /// Open until nft is flushed; what late data draws then is a test of its own.
    download: Option<Download>,
    tcp: TcpFlow,
    udp: UdpFlow,
}

impl<'a> Asking<'a> {
    fn new(lab: &'a Lab) -> Self {
        let client = lab.client(1);
        let (download, tcp) = (client.download().unwrap(), client.tcp_flow().unwrap());
        Self { lab, download: Some(download), tcp, udp: client.udp_flow() }
    }

    /// Everything is tried at once, and nobody gets an answer from where it should not come.
    fn nobody_leaves(&mut self, when: &str) {
        let lab = self.lab;
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(lab.exits().iter().flatten().count(), 0, "{when}"));
            scope.spawn(|| {
                assert_eq!(lab.client(1).exit_of(names::NEIGHBOUR.into()), None, "{when}");
            });
            scope.spawn(|| {
                assert_eq!(lab.client(2).exit_of(names::half_target(2).into()), None, "{when}");
            });
            scope.spawn(|| assert!(!lab.client(3).ping(names::target(3).into()), "{when}"));
            scope.spawn(|| {
                assert_eq!((lab.client(4).get6(), lab.client(4).ping6()), (None, false), "{when}");
            });
            // A user may still leave by its slot where only one of its two layers is gone.
            scope.spawn(|| {
                let exit = lab.gw().exit_as("daemon");
                assert!(
                    exit.as_deref().is_none_or(|exit| names::endpoint_of(exit).is_some()),
                    "{exit:?} {when}"
                );
            });
            scope.spawn(|| assert!(self.udp.ping().is_none(), "{when}"));
            let _tried = self.tcp.ping();
        });
        assert_eq!(lab.capture.leaks(), [], "{when}");
    }

    /// Everybody leaves by a slot, also towards what lies near the WAN.
    fn all_leave_by_slots(&self, pool: &Pool<'_>, when: &str) {
        let exits = pool.serves(5);
        for (k, exit) in (1..).zip(exits) {
            let client = self.lab.client(k);
            for host in [IpAddr::from(names::NEIGHBOUR), names::half_target(k).into()] {
                assert_eq!(client.exit_of(host), exit_of(exit), "client {k} to {host} {when}");
            }
        }
        let user = self.lab.gw().exit_as("daemon");
        assert!(
            user.as_deref().and_then(names::endpoint_of).is_some(),
            "the user: {user:?} {when}"
        );
        let client = self.lab.client(4);
        assert_eq!((client.get6(), client.ping6()), (None, false), "{when}");
        pool.nothing_leaked();
    }
}

/// A stranger takes one layer after the other away, and an endpoint dies meanwhile.
fn strangers(builder: Builder) {
    let lab = builder.endpoints(6).start();
    let pool = Pool::up(&lab, with_user);
    let mut asking = Asking::new(&lab);
    asking.all_leave_by_slots(&pool, "at first");
    assert!(asking.download.as_ref().unwrap().grows(SOON));

    lab.gw().delete_rules();
    asking.nobody_leaves("after all rules were deleted");
    pool.goes("NORMAL", "NORMAL");
    asking.all_leave_by_slots(&pool, "after the rules came back");

    asking.download = None;
    std::thread::sleep(Duration::from_millis(300));
    lab.gw().flush_nft();
    asking.nobody_leaves("after all of nft was flushed");
    pool.goes("NORMAL", "NORMAL");
    asking.all_leave_by_slots(&pool, "after nft came back");

    lab.drop(pool.endpoints()["vpn1"]);
    pool.goes("NORMAL", "NORMAL");
    drop(lab.exits());
    pool.goes("NORMAL", "LOCAL_REPAIR");
    pool.goes("LOCAL_REPAIR", "NORMAL");
    asking.all_leave_by_slots(&pool, "after a repair");
    assert_eq!(lab.capture.strays(), []);
}

/// Case C37.
#[test]
fn with_a_loose_wan_each_layer_closes_when_a_stranger_takes_the_other() {
    strangers(Lab::builder());
}

/// Case C32.
#[test]
fn with_a_strict_wan_and_half_routes_and_the_hosts_own_masquerade_the_same_holds() {
    let builder = Lab::builder().strict().halves().masquerade();
    strangers(builder);
}

#[test]
fn without_a_masquerade_of_ours_a_strangers_serves_and_nothing_leaks() {
    let lab = Lab::builder().clients(3).endpoints(5).start();
    let pool = Pool::new(&lab, |policy| policy["routing"] = json!({ "masquerade": false }));
    let stranger = "table ip other {\nchain out { type nat hook postrouting priority srcnat; policy accept;\n\
                    oifname \"vpn*\" masquerade\n}\n}\n";
    lab.gw().space().nft(stranger);
    assert_eq!(pool.step().went(), (Some(0), "-", "NORMAL"));
    pool.serves(3);
    // Without anybody's translation the provider throws the packets away; they still do not leak.
    let _none = lab.gw().nft("delete table ip other");
    let _none = lab.gw().ip("route show");
    assert_eq!(lab.exits(), [None, None, None]);
    assert!(pool.step().is_steady());
    pool.nothing_leaked();
}

/// Opens flows before the first step and looks what becomes of them.
fn flows_from_before(builder: Builder) {
    let lab = builder.clients(2).endpoints(5).start();
    let pool = Pool::new(&lab, |_| {});
    let client = lab.client(1);
    let (download, mut tcp, mut udp) =
        (client.download().unwrap(), client.tcp_flow().unwrap(), client.udp_flow());
    assert!(tcp.ping().is_ok() && udp.ping().is_some() && download.grows(SOON));
    assert_eq!(pool.step().went(), (Some(0), "-", "NORMAL"));
    let mark = lab.capture.mark();
    assert!(tcp.ping().is_err(), "the old connection does not go on");
    let exit = exit_of(client.endpoint().unwrap());
    assert_eq!(udp.ping(), exit, "the next packet of an old UDP flow is a new flow");
    std::thread::sleep(Duration::from_millis(200));
    let stopped = !download.grows(Duration::from_secs(1));
    // What the server still sends may draw the gateway's own refusal; no packet of the client's goes.
    let leaks = lab.capture.leaks_since(mark);
    let carried: Vec<_> = leaks.iter().filter(|leak| !leak.what.ends_with("tcp reset")).collect();
    assert!(
        carried.is_empty() && stopped,
        "stopped {stopped}, {} packets: {:?}",
        carried.len(),
        carried.first()
    );
}

#[test]
fn a_flow_from_before_the_first_placement_is_ended() {
    flows_from_before(Lab::builder().masquerade());
}

#[test]
fn a_flow_from_before_is_ended_also_where_the_host_translates_nothing() {
    flows_from_before(Lab::builder());
}

#[test]
fn what_a_server_sends_after_a_cut_draws_no_reset_and_no_stray_by_the_wan() {
    let lab = Lab::builder().clients(5).endpoints(6).start();
    let pool = Pool::up(&lab, |_| {});
    let exits = pool.serves(5);
    let dead = pool.endpoints()["vpn1"];
    let hit = lab.client(exits.iter().position(|exit| *exit == dead).unwrap() + 1);
    // A portal answers new pages itself and lets open flows go on, so the server goes on sending.
    let (download, mut udp) = (hit.download().unwrap(), hit.udp_flow());
    assert!(download.grows(SOON) && udp.ping().is_some());
    udp.push(400, Duration::from_millis(10));
    lab.portal(dead);
    pool.goes("NORMAL", "NORMAL");
    assert!(download.grows(SOON), "the flow goes on until the slot is given up");
    pool.goes("NORMAL", "LOCAL_REPAIR");
    std::thread::sleep(Duration::from_millis(500));
    assert!(!download.grows(Duration::from_millis(300)), "its flows were cut");
    assert!(hit.endpoint().is_some_and(|now| now != dead));
    pool.goes("LOCAL_REPAIR", "NORMAL");
    std::thread::sleep(Duration::from_millis(500));
    pool.serves(5);
    pool.nothing_leaked();
    assert_eq!((lab.capture.resets_of_flows(), lab.capture.strays()), (vec![], vec![]));
}

#[test]
fn what_a_server_sends_after_nft_was_flushed_draws_no_reset_by_the_wan() {
    let lab = Lab::builder().clients(1).endpoints(5).start();
    let pool = Pool::up(&lab, |_| {});
    let download = lab.client(1).download().unwrap();
    assert!(download.grows(SOON));
    lab.gw().flush_nft();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!((lab.capture.resets_of_flows(), lab.capture.strays()), (vec![], vec![]));
    pool.nothing_leaked();
}

/// Ends the threads of a test also when it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One question and one answer over a connection from one namespace to a listener in another.
fn reaches(from: &space::Space, to: SocketAddr) -> bool {
    let asked = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_millis(800))?;
        stream.set_read_timeout(Some(Duration::from_millis(800)))?;
        stream.write_all(b"hello")?;
        let mut buffer = [0_u8; 5];
        stream.read_exact(&mut buffer)?;
        Ok(&buffer == b"HELLO")
    };
    from.inside(|| asked().unwrap_or(false))
}

/// Answers on a port in a namespace for as long as the scope runs.
fn serve<'s>(
    scope: &'s std::thread::Scope<'s, '_>,
    at: &space::Space,
    port: u16,
    stop: &'s AtomicBool,
) {
    let listener = at.inside(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap());
    listener.set_nonblocking(true).unwrap();
    scope.spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let Ok((mut stream, _)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            let mut buffer = [0_u8; 5];
            let _set = stream.set_nonblocking(false).and(stream.set_read_timeout(Some(SOON)));
            if stream.read_exact(&mut buffer).is_ok() {
                let _sent = stream.write_all(&buffer.to_ascii_uppercase());
            }
        }
    });
}

#[test]
fn a_port_forward_answers_by_the_wan_and_nothing_new_comes_in_from_a_slot() {
    let lab = Lab::builder().strict().endpoints(5).start();
    let pool = Pool::up(&lab, |_| {});
    let homes = pool.serves(5);
    lab.gw().space().nft(
        "table ip forward {\nchain pre { type nat hook prerouting priority dstnat; policy accept;\n\
         iifname \"eth0\" tcp dport 8022 dnat to 10.77.0.11\n}\n}\n",
    );
    let (client, spaces) = (lab.spaces().clients[0].clone(), lab.spaces());
    // The provider's user may be reached at the tunnel's address, and now at the LAN behind it.
    let (first, k) = (pool.endpoints()["vpn1"], pool.endpoints()["vpn1"]);
    let user = lab::provider::Keys::user(k).public;
    let _none = provider_wg(
        &lab,
        &format!("set wg{k} peer {user} allowed-ips {}/32,10.77.0.0/24", names::tunnel(k)),
    );
    spaces.prov.batch(&format!("route add 10.77.0.0/24 dev wg{first}\n"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopping = Stop(&stop);
        serve(scope, &client, 8022, &stop);
        serve(scope, lab.gw().space(), 8023, &stop);
        assert!(reaches(&spaces.web, (names::WAN, 8022).into()), "a port forward answers");
        assert_eq!(lab.client(1).endpoint(), Some(homes[0]), "its own flows leave by its slot");
        assert!(
            reaches(&spaces.web, (names::WAN, 8023).into()),
            "the gateway itself answers the WAN"
        );
        for to in [
            SocketAddr::from((names::tunnel(k), 8023)),
            (names::tunnel(k), 8022).into(),
            (names::client(1), 8022).into(),
            (Ipv4Addr::new(10, 77, 0, 1), 8023).into(),
        ] {
            assert!(!reaches(&spaces.prov, to), "{to} is reached from inside a tunnel");
        }
        let bound = |at: &space::Space, from: Ipv4Addr, port: u16| {
            let socket = at.inside(|| UdpSocket::bind((from, port)).unwrap());
            socket.set_read_timeout(Some(Duration::from_millis(800))).unwrap();
            socket
        };
        let heard = bound(&client, names::client(1), 8024);
        let mut buffer = [0_u8; 16];
        // What a provider sends may bear the address of another client, whom the LAN lets in.
        spaces.prov.batch(&format!("addr add {}/32 dev lo\n", names::client(2)));
        let feigned = bound(&spaces.prov, names::client(2), 8024);
        feigned.send_to(b"from a tunnel", (names::client(1), 8024)).unwrap();
        assert!(heard.recv(&mut buffer).is_err(), "a feigned client is let in");
        let true_one = bound(&spaces.clients[1], names::client(2), 8024);
        true_one.send_to(b"hello", (names::client(1), 8024)).unwrap();
        assert_eq!(heard.recv(&mut buffer).unwrap(), 5, "the client itself is");
        // The same doors are open without the tunnel, so the test asks something.
        assert!(reaches(&client, (Ipv4Addr::new(10, 77, 0, 1), 8023).into()));
    });
    let begun = Instant::now();
    assert!(pool.step().is_steady(), "after {:?}", begun.elapsed());
    assert_eq!(
        setting(lab.gw().space(), "ipv4/conf/all/rp_filter"),
        "1",
        "strangers' settings stay"
    );
    pool.nothing_leaked();
}
