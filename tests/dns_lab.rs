//! Host names that follow living nodes, seen by a client of real networks: nodes that go silent, a
//! watcher whose uplink is cut, a real Knot DNS that keeps the zone.
//!
//! ```text
//! watcher --+-- net (a bridge, the reference) --+-- fi, us, de (nodes)
//!  client --'                                   '-- ns (Knot)
//! ```
//!
//! The timer's thirty seconds are not waited for: each step runs in a time namespace of its own, in
//! which so many seconds have passed since the boot, and steps when it is due and not otherwise.

use crate::dns_bench;
use crate::lab;

use dns_bench::server::{NameServer, Server, resolve};
use dns_bench::{Certificate, LiveNode, Ran, Reference};
use lab::names;
use lab::space::{Ground, Space};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const FI: &str = "fi.example.org";
const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
const ROLES: [&str; 7] = ["net", "watcher", "client", "ns", "fi", "us", "de"];
const REFERENCE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 200);

/// The address of a role on the bridge.
fn at(role: &str) -> Ipv4Addr {
    let place = ROLES.iter().position(|known| *known == role).unwrap();
    Ipv4Addr::new(198, 51, 100, u8::try_from(place + 1).unwrap())
}

struct World {
    spaces: BTreeMap<&'static str, Space>,
    server: NameServer,
    _reference: Reference,
    /// Seconds by which the watcher's clock since the boot is ahead of the machine's.
    ahead: u64,
    // Dropped last: it removes the namespaces.
    ground: Ground,
}

impl World {
    fn new() -> Self {
        lab::required();
        let prefix = names::prefix();
        let ground = Ground::new(&prefix, &ROLES.map(str::to_owned));
        let spaces: BTreeMap<&str, Space> =
            ROLES.iter().map(|role| (*role, Space::new(&prefix, role))).collect();
        let mut wires = format!(
            "link add br0 type bridge\nlink set br0 up\nlink set lo up\naddr add {REFERENCE}/24 dev br0\n"
        );
        for (role, space) in spaces.iter().filter(|(role, _)| **role != "net") {
            let to = space.name();
            wires += &format!("link add {role} type veth peer name eth0 netns {to}\n");
            wires += &format!("link set {role} master br0 up\n");
        }
        spaces["net"].batch(&wires);
        for (role, space) in spaces.iter().filter(|(role, _)| **role != "net") {
            let lines =
                format!("addr add {}/24 dev eth0\nlink set eth0 up\nlink set lo up\n", at(role));
            space.batch(&lines);
        }
        let listen = |space: &Space, address: Ipv4Addr, port: u16| {
            space.inside(|| TcpListener::bind((address, port)).unwrap())
        };
        let certificates =
            |stem: &str, names: &[&str]| Certificate::new(ground.folder(), stem, names);
        let all = certificates("all", &["fi.example.org", "de.example.org"]);
        // us lives, and nobody gave it a certificate for another name than its own.
        let own = certificates("us", &["us.example.org"]);
        for (role, certificate) in [("fi", &all), ("de", &all), ("us", &own)] {
            LiveNode::on(listen(&spaces[role], at(role), 443), certificate, PAGE);
        }
        let reference = Reference::on(listen(&spaces["net"], REFERENCE, 80));
        let ns = spaces["ns"].name();
        let server = NameServer::begin(Server::Knot, Some(ns), at("ns"), 53, at("fi"));
        let server = server.once_it_answers(|at| spaces["client"].inside(|| resolve(at, FI)));
        let server = server.expect("Knot starts (Debian: knot)");
        let world = Self { spaces, server, _reference: reference, ahead: 0, ground };
        world.write_policies(&all.file, &own.file);
        world
    }

    fn write_policies(&self, all: &Path, own: &Path) {
        for folder in ["policies", "www"] {
            std::fs::create_dir(self.path(folder)).unwrap();
        }
        let node = |role: &str, label: &str, ca: &Path| {
            json!({ "address": at(role), "label": label,
                    "check": { "tls": { "name": format!("{role}.example.org"), "ca_file": ca, "timeout_sec": 1 } } })
        };
        let policy = json!({
            "kind": "dns",
            "driver": { "rfc2136": { "server": at("ns").to_string(), "zone": "example.org",
                                     "key_file": self.server.folder.path().join("key") } },
            "nodes": { "fi": node("fi", "HEL", all), "us": node("us", "NYC", own), "de": node("de", "FRA", all) },
            "hosts": { FI: { "native": "fi", "fallbacks": ["us", "de"], "ttl": 60 } },
            "reference": { "urls": [format!("http://{REFERENCE}/generate_204")] },
        });
        let site = json!({ "kind": "site", "publish_dir": self.path("www") });
        for (name, text) in [("names", policy), ("site", site)] {
            let path = self.path(&format!("policies/{name}.json"));
            std::fs::write(path, text.to_string()).unwrap();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.ground.folder().join(name)
    }

    /// The program in the watcher's network and time.
    fn run(&self, args: &[&str]) -> Ran {
        let output = Command::new("ip")
            .args(["netns", "exec", self.spaces["watcher"].name()])
            .args(["unshare", "--time", "--fork", "--boottime", &self.ahead.to_string()])
            .arg(env!("CARGO_BIN_EXE_egressctl"))
            .args(args)
            .env("EGRESSCTL_POLICY_DIR", self.path("policies"))
            .env("EGRESSCTL_STATE_DIR", self.path("state"))
            .output()
            .unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// What the timer does `seconds` later: a step, if one is due.
    fn after(&mut self, seconds: u64) -> Ran {
        self.ahead += seconds;
        self.run(&["step", "--json"])
    }

    /// Takes a wire away, so that whoever hangs on it is silent to everybody, or gives it back.
    fn wire(&self, role: &str, state: &str) {
        self.spaces["net"].batch(&format!("link set {role} {state}\n"));
    }

    /// A client: it resolves the name and asks whom it finds there.
    fn client_reaches(&self) -> Option<Ipv4Addr> {
        let server = self.server.at();
        self.spaces["client"].inside(|| {
            let (address, _) = *resolve(server, FI)?.first()?;
            let to = SocketAddr::from((address, 443));
            TcpStream::connect_timeout(&to, Duration::from_millis(500)).ok().map(|_| address)
        })
    }

    /// A document as a web server reads it, which is another user.
    fn published(&self, name: &str) -> Value {
        let path = self.path("www").join(name);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "{name}");
        let mut cat = Command::new("setpriv");
        cat.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "cat"]);
        let output = cat.arg(&path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn to(ran: &Ran) -> String {
    ran.report()["to"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_node_goes_silent_and_within_a_minute_its_name_leads_clients_elsewhere_and_back() {
    let mut world = World::new();
    assert_eq!(to(&world.after(0)), "NATIVE");
    assert_eq!(world.client_reaches(), Some(at("fi")));
    let shown = world.published("failover.json");
    assert_eq!((&shown[FI]["why"], &shown[FI]["label"]), (&json!(""), &json!("HEL")), "{shown:#}");

    // It dies right after it was looked at, which is the worst moment.
    world.wire("fi", "down");
    assert_eq!(world.client_reaches(), None, "the client notices");
    assert_eq!(world.after(20).report()["outcome"], "not-due");
    assert_eq!(to(&world.after(10)), "NATIVE_FAILING", "30 s");
    let begun = Instant::now();
    let ran = world.after(30);
    assert_eq!((ran.code, to(&ran).as_str()), (0, "FALLBACK"), "60 s: {ran:?}");
    // The second check fails within this time, so that what follows it takes less.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(world.client_reaches(), Some(at("de")), "us shows no certificate for the name");
    let shown = world.published("failover.json");
    let entry = &shown[FI];
    assert_eq!(entry["address"], json!(at("de")), "{shown:#}");
    assert!(entry["why"].as_str().unwrap().starts_with("temporarily through FRA"), "{shown:#}");
    assert_eq!((&entry["temporary"], &entry["label"]), (&json!(true), &json!("FRA")));
    let node = &world.published("uptime.json")["fi"];
    assert_eq!((&node["health"], &node["uptime_percent"]), (&json!("failed"), &json!(33.33)));

    // Nothing happens, so nothing is written: not to the zone, not for the web server.
    let serial = world.server.serial();
    let written = |world: &World| {
        std::fs::metadata(world.path("www/failover.json")).unwrap().modified().unwrap()
    };
    let before = written(&world);
    assert_eq!(to(&world.after(30)), "FALLBACK");
    assert_eq!((world.server.serial(), written(&world)), (serial, before));

    // It lives again; the name goes back once it has shown that, and once the stay is over.
    world.wire("fi", "up");
    assert_eq!(to(&world.after(30)), "NATIVE_RECOVERING");
    assert_eq!(to(&world.after(150)), "NATIVE_RECOVERING", "210 s of the stay");
    assert_eq!(world.client_reaches(), Some(at("de")));
    let ran = world.after(30);
    assert_eq!((ran.code, to(&ran).as_str()), (0, "NATIVE"), "240 s: {ran:?}");
    assert_eq!(world.client_reaches(), Some(at("fi")));
    assert_eq!(world.published("failover.json")[FI]["why"], "");
    assert_eq!(world.run(&["status"]).code, 0);
}

/// Case C64.
#[test]
fn a_watcher_without_an_uplink_writes_nothing_and_goes_on_when_it_is_back() {
    let mut world = World::new();
    assert_eq!(to(&world.after(0)), "NATIVE");
    let (serial, shown) = (world.server.serial(), world.published("failover.json"));
    world.wire("watcher", "down");
    // Each of them waits for the reference, and two would be enough for a node.
    for _ in 0..2 {
        let ran = world.after(30);
        assert_eq!((ran.code, ran.codes().pop()), (0, Some("offline".to_owned())), "{ran:?}");
    }
    assert_eq!(world.client_reaches(), Some(at("fi")), "nobody else has noticed");
    assert_eq!((world.server.serial(), world.published("failover.json")), (serial, shown));
    // A node died meanwhile. What was not seen was not counted: two checks are due from here on.
    world.wire("fi", "down");
    world.wire("watcher", "up");
    assert_eq!(to(&world.after(30)), "NATIVE_FAILING");
    assert_eq!(world.server.serial(), serial);
    assert_eq!(to(&world.after(30)), "FALLBACK");
    assert_eq!(world.client_reaches(), Some(at("de")));
    assert_ne!(world.server.serial(), serial);
}
