//! Several watchers of the same host names, of which etcd keeps one at work, as the example says.
//!
//! ```text
//!  w1 --+-- net (a bridge, etcd, the reference) --+-- fi, de (nodes)
//!  w2 --'                                         '-- ns (Knot)
//! ```

use crate::dns_bench;
use crate::lab;

use dns_bench::server::{NameServer, Server, resolve};
use dns_bench::{Certificate, LiveNode, Reference};
use lab::names;
use lab::space::{Ground, Space, wait_until};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const FI: &str = "fi.example.org";
const ROLES: [&str; 6] = ["net", "w1", "w2", "ns", "fi", "de"];
const WATCHERS: [&str; 2] = ["w1", "w2"];
const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
const PATIENCE: Duration = Duration::from_secs(60);

/// The address of a role on the bridge.
fn at(role: &str) -> Ipv4Addr {
    let place = ROLES.iter().position(|known| *known == role).unwrap();
    Ipv4Addr::new(198, 51, 100, u8::try_from(place + 1).unwrap())
}

struct World {
    spaces: BTreeMap<&'static str, Space>,
    server: NameServer,
    _reference: Reference,
    // Dropped last: it ends etcd and removes the namespaces.
    ground: Ground,
}

impl World {
    fn new() -> Self {
        lab::required();
        let prefix = names::prefix();
        let ground = Ground::new(&prefix, &ROLES.map(str::to_owned));
        let spaces: BTreeMap<&str, Space> =
            ROLES.iter().map(|role| (*role, Space::new(&prefix, role))).collect();
        let mut wires = "link add br0 type bridge\nlink set br0 up\nlink set lo up\n".to_owned();
        writeln!(wires, "addr add {}/24 dev br0", at("net")).unwrap();
        for role in &ROLES[1..] {
            let to = spaces[role].name();
            writeln!(wires, "link add {role} type veth peer name eth0 netns {to}").unwrap();
            writeln!(wires, "link set {role} master br0 up").unwrap();
        }
        spaces["net"].batch(&wires);
        for role in &ROLES[1..] {
            let lines =
                format!("addr add {}/24 dev eth0\nlink set eth0 up\nlink set lo up\n", at(role));
            spaces[role].batch(&lines);
        }
        let listen = |role: &str, port: u16| {
            spaces[role].inside(|| TcpListener::bind((at(role), port)).unwrap())
        };
        let certificate =
            Certificate::new(ground.folder(), "all", &["fi.example.org", "de.example.org"]);
        for role in ["fi", "de"] {
            LiveNode::on(listen(role, 443), &certificate, PAGE);
        }
        let reference = Reference::on(listen("net", 80));
        let ns = spaces["ns"].name();
        let server = NameServer::begin(Server::Knot, Some(ns), at("ns"), 53, at("fi"));
        let server = server.once_it_answers(|at| spaces["net"].inside(|| resolve(at, FI)));
        let server = server.expect("Knot starts (Debian: knot)");
        let world = Self { spaces, server, _reference: reference, ground };
        world.start_etcd();
        world.write(&certificate.file);
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.ground.folder().join(name)
    }

    fn start_etcd(&self) {
        let (clients, peers) =
            (format!("http://{}:2379", at("net")), format!("http://{}:2380", at("net")));
        let child = Command::new("ip")
            .args(["netns", "exec", self.spaces["net"].name(), "etcd", "--data-dir"])
            .arg(self.path("etcd"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}"), "--log-level", "error"])
            // With the usual second a lease lasts two at least.
            .args(["--heartbeat-interval", "100", "--election-timeout", "500"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd is in Debian's package etcd-server; tests/packages brings it");
        self.ground.keep(child);
        let there = (at("net"), 2379);
        let came = wait_until(Duration::from_secs(20), || {
            self.spaces["net"].inside(|| TcpStream::connect(there).is_ok())
        });
        assert!(came, "etcd listens");
    }

    fn write(&self, ca: &Path) {
        let node = |role: &str| {
            json!({ "address": at(role), "label": role,
                    "check": { "tls": { "name": format!("{role}.example.org"), "ca_file": ca, "timeout_sec": 1 } } })
        };
        let policy = json!({
            "kind": "dns",
            "driver": { "rfc2136": { "server": at("ns").to_string(), "zone": "example.org",
                                     "key_file": self.server.folder.path().join("key") } },
            "nodes": { "fi": node("fi"), "de": node("de") },
            "hosts": { FI: { "native": "fi", "fallbacks": ["de"], "ttl": 60 } },
            "reference": { "urls": [format!("http://{}/generate_204", at("net"))] },
            "params": { "check_interval_sec": 0, "minimum_stay_sec": 1 },
        });
        fs::create_dir(self.path("policies")).unwrap();
        fs::write(self.path("policies/names.json"), policy.to_string()).unwrap();
        // The program, whose beginning and end of a step are noted.
        fs::create_dir(self.path("bin")).unwrap();
        let script = format!(
            "#!/bin/sh\necho \"begin $EGRESSCTL_WATCHER\" >>{log}\n{program} \"$@\"\ncode=$?\n\
             echo \"end $EGRESSCTL_WATCHER\" >>{log}\nexit $code\n",
            log = self.path("log").display(),
            program = env!("CARGO_BIN_EXE_egressctl")
        );
        let program = self.path("bin/egressctl");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What a watcher's timer does.
    fn watch(&self, watcher: &str) {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/watchers/egressctl-watch");
        let path = lab::gateway::path_with(&self.path("bin"));
        let said = fs::File::options()
            .create(true)
            .append(true)
            .open(self.path(&format!("{watcher}.said")));
        let said = said.unwrap();
        let ran = Command::new("ip")
            .args(["netns", "exec", self.spaces[watcher].name()])
            .arg(script)
            .arg("names")
            .env_clear()
            .env("PATH", path)
            .env("EGRESSCTL_POLICY_DIR", self.path("policies"))
            .env("EGRESSCTL_STATE_DIR", self.path(watcher))
            .env("EGRESSCTL_WATCHER", watcher)
            .env("EGRESSCTL_WATCH_PATIENCE_SEC", "5")
            .env("EGRESSCTL_WATCH_LOCK_SEC", "6")
            .env("ETCDCTL_ENDPOINTS", format!("http://{}:2379", at("net")))
            .env("ETCDCTL_API", "3")
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .status()
            .unwrap();
        // What a step ended with is told by what clients see, and by what was said.
        assert!(ran.code().is_some(), "{watcher}: {ran:?}");
    }

    /// What the watchers have said, for who looks into a failure.
    fn said(&self) -> String {
        let of = |watcher: &str| {
            let text =
                fs::read_to_string(self.path(&format!("{watcher}.said"))).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("{watcher}: {:#?}", &lines[lines.len().saturating_sub(12)..])
        };
        WATCHERS.map(of).join("\n")
    }

    fn wire(&self, role: &str, state: &str) {
        self.spaces["net"].batch(&format!("link set {role} {state}\n"));
    }

    /// Cuts a watcher off between two of its steps: one that is cut off within a step keeps the lock for
    /// as long as it lasts.
    fn cut_off(&self, watcher: &str) {
        let end = format!("end {watcher}\n");
        let between = || fs::read_to_string(self.path("log")).is_ok_and(|log| log.ends_with(&end));
        assert!(wait_until(PATIENCE, between), "{watcher} does not step: {}", self.said());
        self.wire(watcher, "down");
    }

    /// Where the name leads whoever asks.
    fn leads_to(&self, role: &str) -> bool {
        let server = self.server.at();
        let found = self.spaces["net"].inside(|| resolve(server, FI)).unwrap_or_default();
        found.first().is_some_and(|(address, _)| *address == at(role))
    }

    /// Who stepped, in order, since the first `from` lines of the log; two at once fail the test.
    fn steps(&self, from: usize) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        for pair in lines.chunks(2) {
            if let [begins, ends] = pair {
                let who = begins.strip_prefix("begin ").expect("a step begins");
                assert_eq!(*ends, format!("end {who}"), "two steps at once: {lines:#?}");
            }
        }
        let begun = lines.iter().skip(from).filter_map(|line| line.strip_prefix("begin "));
        begun.map(str::to_owned).collect()
    }

    fn lines(&self) -> usize {
        fs::read_to_string(self.path("log")).unwrap_or_default().lines().count()
    }
}

/// Ends the watchers, whatever fails meanwhile.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn one_watcher_is_at_work_and_when_it_is_cut_off_the_other_carries_on() {
    let world = World::new();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for watcher in WATCHERS {
            let (world, over) = (&world, &over);
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    world.watch(watcher);
                }
            });
        }
        let _over = Over(&over);
        let stepped =
            |from: usize, count: usize| wait_until(PATIENCE, || world.steps(from).len() >= count);
        assert!(stepped(0, 3), "somebody steps");
        let steps = world.steps(0);
        let at_work = WATCHERS.iter().position(|watcher| *watcher == steps[0]).unwrap();
        let (one, other) = (WATCHERS[at_work], WATCHERS[1 - at_work]);
        assert!(steps.iter().all(|who| who == one), "the other one steps too: {steps:?}");
        let serial = world.server.serial();
        world.wire("fi", "down");
        assert!(
            wait_until(PATIENCE, || world.leads_to("de")),
            "{one} moves the name: {}",
            world.said()
        );
        assert_eq!(world.server.serial(), serial + 1, "one write");
        assert!(world.steps(0).iter().all(|who| who == one));

        // It is cut off, and tries on; the other one begins with what the record says.
        world.cut_off(one);
        let from = world.lines();
        assert!(stepped(from + 1, 2), "{other} takes over: {:?}", world.steps(0));
        world.wire("fi", "up");
        assert!(
            wait_until(PATIENCE, || world.leads_to("fi")),
            "{other} gives the name back: {}",
            world.said()
        );
        assert_eq!(world.server.serial(), serial + 2, "one more");

        // It comes back, and finds somebody at work.
        world.wire(one, "up");
        let from = world.lines();
        assert!(stepped(from + 1, 2));
        assert!(world.steps(from + 1).iter().all(|who| who == other), "{:?}", world.steps(from));
        assert!(world.leads_to("fi"));

        // What it remembers is from before, and is not what it goes by when its turn comes again.
        world.cut_off(other);
        world.wire("fi", "down");
        assert!(
            wait_until(PATIENCE, || world.leads_to("de")),
            "{one} moves it again: {}",
            world.said()
        );
        assert_eq!(world.server.serial(), serial + 3, "one more");
    });
}
