//! The lab proves itself: without egressctl, each of its parts does what tests will take for granted.

use crate::lab;

use lab::client::Response;
use lab::source::{By, Says};
use lab::{Lab, capture, gateway, names, provider, space};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A tunnel made by hand, as `vpnK` to endpoint `k`, and client `k` sent through it.
fn tunnel(lab: &Lab, k: usize) {
    let gw = lab.gw();
    let name = format!("vpn{k}");
    let mut daemon = gw.command("wireguard-go");
    daemon.arg(&name);
    assert_eq!(gw.finish(daemon).code, Some(0));
    let _none = gw.wg(&format!("setconf {name} /dev/stdin"), &provider::setconf(k));
    gw.space().batch(&format!(
        "addr add {}/32 dev {name}\nlink set {name} mtu 1420 up\n\
         route add default dev {name} table {table}\n\
         rule add pref {table} from {} lookup {table}\n",
        names::tunnel(k),
        names::client(k),
        table = 100 + k,
    ));
    gw.space().nft(&format!(
        "table ip hand{k} {{\nchain out {{ type nat hook postrouting priority srcnat; policy accept;\n\
         oifname \"{name}\" masquerade\n}}\n}}\n"
    ));
}

/// Forgets the flows of client `k` in the gateway.
///
/// `conntrack -D` gives up when an entry ends by itself between its look and its deletion, hence again until none is left.
fn cut(lab: &Lab, k: usize) {
    let none = || {
        let mut command = lab.gw().command("conntrack");
        command.args(["-D", "-s", &names::client(k).to_string()]);
        lab.gw().finish(command).stderr.contains(" 0 flow entries")
    };
    assert!(space::wait_until(Duration::from_secs(2), none));
}

fn handshake(lab: &Lab, k: usize) -> u64 {
    let shown = lab.gw().wg(&format!("show vpn{k} latest-handshakes"), "");
    shown.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn probe(lab: &Lab, k: usize) -> Option<u16> {
    lab.client(k).page("/generate_204").map(|response| response.status)
}

#[test]
fn without_tunnels_clients_go_out_by_the_wan_and_the_capture_sees_each_of_them() {
    let lab = Lab::builder().clients(2).endpoints(0).start();
    assert_eq!(lab.capture.leaks(), []);
    let client = lab.client(1);
    assert_eq!(client.exit(), Some("10.77.0.11".to_owned()));
    assert!(lab.capture.leaks().iter().all(|leak| leak.what == "10.77.0.11 > 192.0.2.101 tcp"));
    for host in [IpAddr::from(names::NEIGHBOUR), names::half_target(1).into()] {
        let mark = lab.capture.mark();
        assert_eq!(client.exit_of(host), Some("10.77.0.11".to_owned()), "{host}");
        assert!(lab.capture.leaks_since(mark).len() > 3, "{host}");
        assert!(client.ping(host), "{host}");
    }
    let mark = lab.capture.mark();
    assert_eq!(client.get6(), Some(names::client6(1).to_string()));
    assert!(client.ping6());
    assert!(lab.capture.leaks_since(mark).iter().any(|leak| leak.what.ends_with("icmp")));
    let mark = lab.capture.mark();
    assert_eq!(lab.spread_client(1).exit(), Some("10.78.0.2".to_owned()));
    assert_eq!(lab.spread_client(1000).exit(), Some("10.78.3.233".to_owned()));
    assert!(!lab.capture.leaks_since(mark).is_empty());
    let mark = lab.capture.mark();
    assert_eq!(lab.gw().exit_as("daemon"), Some("203.0.113.2".to_owned()));
    assert!(!lab.capture.leaks_since(mark).is_empty());
    let mark = lab.capture.mark();
    assert!(lab.gw().get_as("root", &names::WAN_PROBE.to_string(), "/generate_204").is_some());
    assert_eq!(lab.capture.leaks_since(mark), [], "the gateway's own probes are no leaks");
}

#[test]
fn the_hosts_own_masquerade_and_half_routes_and_strict_paths_are_as_asked() {
    let lab = Lab::builder().clients(1).endpoints(0).masquerade().halves().strict().start();
    assert_eq!(lab.client(1).exit(), Some("203.0.113.2".to_owned()));
    let mark = lab.capture.mark();
    assert_eq!(lab.client(1).exit_of(names::half_target(1).into()), Some("203.0.113.2".to_owned()));
    assert!(!lab.capture.leaks_since(mark).is_empty(), "a translated leak is known by its target");
    assert!(lab.gw().ip("route show").contains("0.0.0.0/1 via 203.0.113.1"));
    let all = lab
        .gw()
        .space()
        .inside(|| std::fs::read_to_string("/proc/sys/net/ipv4/conf/all/rp_filter").unwrap());
    assert_eq!(all.trim(), "1");
}

#[test]
fn a_tunnel_made_by_hand_leaves_by_its_endpoint_and_not_in_clear() {
    let lab = Lab::builder().clients(3).endpoints(3).start();
    for k in 1..=3 {
        tunnel(&lab, k);
    }
    assert_eq!(lab.exits(), [Some(1), Some(2), Some(3)]);
    let client = lab.client(2);
    let leaves = Some(names::exit(2).to_string());
    assert_eq!(client.page("/big").map(|page| page.body.len()), Some(lab::web::BIG));
    assert_eq!(client.exit_of(names::NEIGHBOUR.into()), leaves);
    let mut flow = client.udp_flow();
    assert_eq!((flow.ping(), flow.ping()), (leaves.clone(), leaves.clone()));
    let mut open = client.tcp_flow().unwrap();
    assert_eq!(open.ping(), Ok(leaves.clone().unwrap()));
    let download = client.download().unwrap();
    assert!(download.grows(Duration::from_secs(1)));
    assert_eq!(lab.capture.leaks(), []);
    assert_eq!(lab.capture.resets(), []);

    // A client that is moved and cut sees a reset when it sends; one that only listens is told nothing.
    let moved = lab.client(3);
    let (silent, mut talking) = (moved.download().unwrap(), moved.tcp_flow().unwrap());
    assert_eq!(talking.ping(), Ok(names::exit(3).to_string()));
    assert!(silent.grows(Duration::from_secs(1)));
    lab.gw().space().batch("rule add pref 99 from 10.77.0.13 lookup 101\n");
    cut(&lab, 3);
    assert_eq!(talking.ping(), Err(ErrorKind::ConnectionReset));
    assert_eq!(moved.endpoint(), Some(1));
    let _last = silent.grows(Duration::from_millis(50));
    assert!(!silent.grows(Duration::from_millis(300)));
    assert!(download.grows(Duration::from_secs(1)), "the other client's flow goes on");

    // What the server still sends into a tunnel whose flows are forgotten draws the gateway's own reset, by the WAN.
    flow.push(5, Duration::from_millis(20));
    cut(&lab, 2);
    lab.gw().space().batch("rule del pref 102\nrule add pref 102 from 10.77.0.12 unreachable\n");
    let own = capture::Reset { from: names::tunnel(2).into(), to: names::target(2).into() };
    let seen = || lab.capture.resets().contains(&own);
    assert!(space::wait_until(Duration::from_secs(2), seen), "{:?}", lab.capture.resets());
    assert!(lab.capture.leaks().iter().any(|leak| leak.what.ends_with("tcp reset")));
}

#[test]
fn each_fault_looks_as_it_does_in_the_field_and_heals() {
    let lab = Lab::builder().clients(5).endpoints(5).start();
    for k in 1..=5 {
        tunnel(&lab, k);
    }
    assert_eq!(lab.exits(), [Some(1), Some(2), Some(3), Some(4), Some(5)]);
    lab.drop(1);
    lab.stop(2);
    lab.blackhole(3);
    lab.portal(4);
    lab.mtu(5);
    let clients = lab.clients();
    let pages: Vec<Option<Response>> = std::thread::scope(|scope| {
        let asked: Vec<_> =
            clients.iter().map(|client| scope.spawn(|| client.page("/generate_204"))).collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!((&pages[0], &pages[1], &pages[2]), (&None, &None, &None));
    assert_eq!(pages[3].as_ref().map(|page| page.status), Some(200));
    assert!(pages[3].as_ref().unwrap().text().contains("<html>"));
    assert_eq!(pages[4].as_ref().map(|page| page.status), Some(204));
    assert_eq!(clients[4].page("/big"), None, "a path that eats large packets shows only so");
    assert!(clients[2].ping(names::inner(3).into()), "a black hole answers inside the tunnel");
    assert!(!clients[0].ping(names::inner(1).into()));
    assert!(lab.client(5).ping(names::target(5).into()));
    for k in [1, 3, 4, 5] {
        lab.heal(k);
    }
    for k in [1, 3, 4, 5] {
        let well = space::wait_until(Duration::from_secs(8), || probe(&lab, k) == Some(204));
        assert!(well, "endpoint {k} heals");
    }
    // A server that was stopped has forgotten the session, and the peer must be given to `wg` again.
    lab.heal(2);
    let _none = lab.gw().wg("setconf vpn2 /dev/stdin", &provider::setconf(2));
    assert_eq!(lab.client(2).endpoint(), Some(2));
    assert!(handshake(&lab, 2) > 0);
    assert_eq!(clients[4].page("/big").map(|page| page.body.len()), Some(lab::web::BIG));

    let wan = || lab.gw().get_as("root", &names::WAN_PROBE.to_string(), "/generate_204");
    lab.wan_silent();
    assert_eq!((lab.client(1).exit(), wan()), (None, None));
    lab.wan_heal();
    assert!(wan().is_some());
    assert_eq!(lab.exits(), [Some(1), Some(2), Some(3), Some(4), Some(5)]);
    assert_eq!(lab.capture.leaks(), []);
}

#[test]
fn a_reboot_and_a_stranger_leave_the_bare_gateway() {
    let lab = Lab::builder().clients(1).endpoints(1).masquerade().start();
    let gw = lab.gw();
    let before =
        (gw.ip("rule list"), gw.ip("route show table all"), gw.nft("list ruleset"), gw.devices());
    tunnel(&lab, 1);
    gw.space().batch("route add unreachable default metric 4278198272 table 101\n");
    assert_eq!(lab.exits(), [Some(1)]);
    assert_eq!(gw.daemons().len(), 1);
    gw.delete_rules();
    assert_eq!(lab.client(1).exit(), Some("203.0.113.2".to_owned()));
    let clock = || {
        let shown = space::run(
            gw.command("cat").args(["/proc/sys/kernel/random/boot_id", "/proc/uptime"]),
            "",
        );
        let (id, up) = shown.split_once('\n').unwrap();
        (id.to_owned(), up.split('.').next().unwrap().parse::<u64>().unwrap())
    };
    let (first, _) = clock();
    gw.reboot();
    let (second, up) = clock();
    assert!(second != first && up < 60, "{first} {second} {up} s");
    gw.reboot();
    assert_ne!(clock().0, second);
    let after =
        (gw.ip("rule list"), gw.ip("route show table all"), gw.nft("list ruleset"), gw.devices());
    assert_eq!(after, before);
    assert_eq!((gw.tables("-4").len(), gw.daemons().len()), (0, 0));
    assert!(!gw.file("/run/wireguard/vpn1.sock").exists());
    assert_eq!(lab.client(1).exit(), Some("203.0.113.2".to_owned()));
    tunnel(&lab, 1);
    assert_eq!(lab.exits(), [Some(1)]);
}

#[test]
fn the_list_of_the_provider_has_its_moods_and_is_reached_as_a_test_says() {
    let lab = Lab::builder().clients(1).endpoints(2).start();
    let at = (names::SOURCE, names::SOURCE_PORT).into();
    let own = || lab.gw().get_by("eth0", at, "/list");
    let status = |response: Option<Response>| response.map(|response| response.status);
    assert!(own().unwrap().text().contains("\"name\":\"p2\""));
    assert_eq!(lab.source.asked(), [By::Wan]);
    lab.source.says(Says::Refuses(7));
    assert_eq!(status(own()), Some(429));
    for none in [Says::Breaks([1, 2].into()), Says::Hangs] {
        lab.source.says(none);
        assert_eq!(own(), None, "cut short");
    }
    lab.source.says(Says::Zips([1].into()));
    assert!(own().unwrap().body.starts_with(b"PK"));
    assert_eq!(lab.source.asked().len(), 4);

    tunnel(&lab, 1);
    let inner = || lab.gw().get_by("vpn1", at, "/list");
    lab.wall();
    assert_eq!(own(), None, "walled in: no answer by the WAN");
    assert_eq!(status(inner()), Some(200));
    assert_eq!(lab.source.asked(), [By::Endpoint(1)]);
    lab.unwall();
    lab.source.hears_only([1]);
    assert_eq!((own(), status(inner())), (None, Some(200)));
    lab.source.says(Says::Lists([1].into()));
    assert_eq!(status(own()), Some(200), "all are heard again");
    assert_eq!(lab.source.asked(), [By::Wan, By::Endpoint(1), By::Wan]);

    // Something happens in the middle: before an answer of the list, and before one of a page.
    let faults = lab.faults().clone();
    lab.source.when_asked(move || faults.wan_silent());
    assert_eq!(own(), None);
    lab.wan_heal();
    let faults = lab.faults().clone();
    lab.traps().set(names::target(1), Some(names::exit(1)), 2, move || faults.drop(1));
    assert_eq!((lab.exits(), lab.exits()), (vec![Some(1)], vec![None]));
    lab.heal(1);
    assert_eq!((lab.exits(), lab.traps().clear()), (vec![Some(1)], 0));
    let reference = || lab.gw().get_by("eth0", (names::WAN_PROBE, 80).into(), "/generate_204");
    assert_eq!(status(reference()), Some(204));
    lab.reference_dies();
    assert_eq!((reference(), status(own())), (None, Some(200)));
}

#[test]
fn programs_run_in_the_gateway_with_fakes_before_the_real_ones() {
    let lab = Lab::builder().clients(1).endpoints(1).start();
    let gw = lab.gw();
    let fakes = lab.folder().join("fakes");
    std::fs::create_dir_all(&fakes).unwrap();
    std::fs::write(fakes.join("wg"), "#!/bin/sh\necho \"fake $*\"; env >&2; exit 7\n").unwrap();
    std::fs::set_permissions(fakes.join("wg"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = gw.command("wg");
    command.arg("show").env("PATH", gateway::path_with(&fakes));
    let outcome = gw.finish(command);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(7), "fake show\n"));
    assert_eq!(outcome.stderr.lines().filter(|line| !line.starts_with("PWD=")).count(), 1);
    assert_eq!(gw.devices().into_iter().collect::<Vec<_>>(), ["eth0", "eth1", "lo"]);
    let policy = gw.policy("home", &lab.pool_policy());
    assert!(policy.starts_with(gw.policy_dir()) && policy.exists());
    assert_eq!(gw.state("home"), None);
    assert!(gw.egressctl(&["--help"]).code.is_some(), "the built program starts in the gateway");
    let mut signalled = gw.command("sleep").arg("60").spawn().unwrap();
    assert!(space::wait_until(Duration::from_secs(2), || gw
        .space()
        .pids()
        .contains(&signalled.id())));
    signalled.kill().unwrap();
    assert_eq!(signalled.wait().unwrap().code(), None, "a child is the program itself");
}

#[test]
fn two_labs_stand_side_by_side_and_leave_nothing_behind() {
    let begun = Instant::now();
    let (one, two) = (Lab::start(), Lab::builder().clients(1).endpoints(1).start());
    eprintln!("two labs up in {:?}", begun.elapsed());
    tunnel(&one, 1);
    tunnel(&two, 1);
    assert_eq!((one.client(1).endpoint(), two.client(1).endpoint()), (Some(1), Some(1)));
    one.drop(1);
    assert_eq!((one.client(1).exit(), two.client(1).endpoint()), (None, Some(1)));
    let mut pids = one.gw().space().pids();
    pids.extend(one.spaces().prov.pids());
    assert!(pids.len() >= 11, "holders, servers and a daemon: {pids:?}");
    let folder = one.folder().to_owned();
    let prefix = folder.file_name().unwrap().to_string_lossy().into_owned();
    let open = one.client(1).download();
    let begun = Instant::now();
    drop(one);
    eprintln!("a lab down in {:?}", begun.elapsed());
    drop(open);
    assert!(!folder.exists());
    assert!(!names::spaces().iter().any(|name| name.starts_with(&format!("{prefix}-"))));
    assert!(!std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&prefix));
    for pid in pids {
        assert!(space::has_ended(pid), "{pid} lives on");
    }
    assert_eq!(two.client(1).endpoint(), Some(1), "the other lab goes on");
}

#[test]
fn a_lab_goes_also_when_its_test_panics() {
    let mut prefix = String::new();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let lab = Lab::builder().clients(1).endpoints(1).start();
        prefix = lab.folder().file_name().unwrap().to_string_lossy().into_owned();
        assert!(Path::new("/run/netns").join(format!("{prefix}-gw")).exists());
        std::panic::resume_unwind(Box::new(ErrorKind::Other));
    }));
    assert!(panicked.is_err());
    assert!(!names::spaces().iter().any(|name| name.starts_with(&format!("{prefix}-"))));
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next() {
    // A child that has been waited for has a pid that nobody has now.
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let dead = child.id();
    assert!(child.wait().unwrap().success());
    let name = format!("{}{dead}x0-gw", names::FAMILY);
    // Other labs of this process would sweep it away before its process is in it.
    let lock = std::fs::File::open("/run").unwrap();
    lock.lock().unwrap();
    let add = ["netns", "add", &name];
    let _none = space::run(std::process::Command::new("ip").args(add), "");
    let stay = ["netns", "exec", &name, "sleep", "600"];
    let mut left = std::process::Command::new("ip").args(stay).spawn().unwrap();
    let entered =
        || space::Space::new(&format!("{}{dead}x0", names::FAMILY), "gw").pids() == [left.id()];
    assert!(space::wait_until(Duration::from_secs(5), entered));
    lock.unlock().unwrap();
    let lab = Lab::builder().clients(0).endpoints(0).start();
    assert!(!names::spaces().contains(&name));
    assert!(!left.wait().unwrap().success(), "its process was ended");
    drop(lab);
}
