//! Records at real Knot DNS and real BIND, written by their own update tools and seen as a client
//! sees them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs,
    reason = "test code"
)]

mod dns_bench;

use dns_bench::{Certificate, LiveNode, Place, Reference, until};
use egressctl::dns::name::HostName;
use egressctl::dns::record::{Record, RecordSet, Zone};
use egressctl::host::dns::{read, write};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FI: &str = "fi.example.org";
const SECRET: &str = "c2VjcmV0IG9mIGEgdGVzdCwgb2Ygbm8gdXNlIGF0IGFsbA==";
const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

/// Who keeps the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Knot,
    Bind,
}

const BOTH: [Server; 2] = [Server::Knot, Server::Bind];

/// A name server of our own on a free port of loopback, ended with the test.
struct Running {
    server: Server,
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Running {
    /// With `fi` and `two` of example.org as given.
    fn new(server: Server) -> Self {
        // Free for UDP and TCP when it was looked at; who else takes it meanwhile makes us try again.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let folder = tempfile::tempdir().unwrap();
            let mut child = start(server, port, &folder);
            let end = Instant::now() + Duration::from_secs(10);
            loop {
                if matches!(child.try_wait(), Ok(Some(_))) {
                    break;
                }
                if resolve(port, FI).is_some_and(|addresses| !addresses.is_empty()) {
                    return Self { server, child, port, folder };
                }
                assert!(Instant::now() < end, "{server:?} does not answer");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        panic!("{server:?} did not start five times: is it installed (Debian: knot, bind9)?");
    }

    fn zone(&self) -> Zone {
        Zone::Rfc2136 {
            server: "127.0.0.1".to_owned(),
            port: self.port,
            zone: host("example.org"),
            key_file: self.folder.path().join("key"),
            tool: self.tool().to_owned(),
        }
    }

    fn tool(&self) -> &'static str {
        match self.server {
            Server::Knot => "knsupdate",
            Server::Bind => "nsupdate",
        }
    }

    /// What a person types.
    fn edit(&self, name: &str, address: &str) {
        let key = self.folder.path().join("key");
        let mut tool =
            Command::new(self.tool()).arg("-k").arg(key).stdin(Stdio::piped()).spawn().unwrap();
        let script = format!(
            "server 127.0.0.1 {}\nzone example.org.\nupdate delete {name}. A\nupdate add {name}. 300 A {address}\nsend\n",
            self.port
        );
        tool.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(tool.wait().unwrap().success());
    }

    fn sees(&self, name: &str) -> Vec<Ipv4Addr> {
        resolve(self.port, name)
            .unwrap_or_default()
            .into_iter()
            .map(|(address, _)| address)
            .collect()
    }

    fn serial(&self) -> u32 {
        let output = Command::new("kdig")
            .args(["@127.0.0.1", "-p", &self.port.to_string(), "+short", "example.org", "SOA"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().nth(2).unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    }
}

fn start(server: Server, port: u16, folder: &tempfile::TempDir) -> Child {
    let at = |name: &str| folder.path().join(name);
    let shown = |name: &str| at(name).display().to_string();
    let zone = "$ORIGIN example.org.\n$TTL 300\n\
        @ IN SOA ns.example.org. admin.example.org. 100 3600 600 86400 60\n@ IN NS ns\nns IN A 127.0.0.1\n\
        fi IN A 127.0.0.41\ntwo IN A 127.0.0.41\ntwo IN A 127.0.0.42\nalias IN CNAME fi\n";
    std::fs::write(at("zone"), zone).unwrap();
    // The form that both tools read.
    std::fs::write(
        at("key"),
        match server {
            Server::Knot => format!("hmac-sha256:egressctl:{SECRET}\n"),
            Server::Bind => {
                format!("key \"egressctl\" {{ algorithm hmac-sha256; secret \"{SECRET}\"; }};\n")
            }
        },
    )
    .unwrap();
    let log = || Stdio::from(std::fs::File::create(at("log")).unwrap());
    match server {
        Server::Knot => {
            let text = format!(
                "server:\n  listen: 127.0.0.1@{port}\n  rundir: {0}\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\n\
                 database:\n  storage: {0}\n\
                 key:\n  - id: egressctl\n    algorithm: hmac-sha256\n    secret: {SECRET}\n\
                 acl:\n  - id: update\n    key: egressctl\n    action: update\n\
                 zone:\n  - domain: example.org\n    storage: {0}\n    file: zone\n    acl: update\n    zonefile-sync: -1\n    journal-content: changes\n",
                folder.path().display()
            );
            std::fs::write(at("knot.conf"), text).unwrap();
            Command::new("knotd").args(["-c", &shown("knot.conf")]).stdout(log()).stderr(log()).spawn()
        }
        Server::Bind => {
            let text = format!(
                "include \"{0}/key\";\noptions {{ directory \"{0}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};\n\
                 recursion no; pid-file none; session-keyfile none; dnssec-validation no; allow-transfer {{ none; }}; }};\n\
                 controls {{ }};\nzone \"example.org\" {{ type primary; file \"{0}/zone\"; allow-update {{ key \"egressctl\"; }}; }};\n",
                folder.path().display()
            );
            std::fs::write(at("named.conf"), text).unwrap();
            Command::new("named").args(["-g", "-c", &shown("named.conf")]).stdout(log()).stderr(log()).spawn()
        }
    }
    .unwrap_or_else(|why| panic!("{server:?} (Debian: knot, bind9): {why}"))
}

/// Asks as a client's resolver does: a question by UDP, and nothing of ours reads the answer.
fn resolve(port: u16, name: &str) -> Option<Vec<(Ipv4Addr, u32)>> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut question = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        question.push(u8::try_from(label.len()).unwrap());
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    socket.send_to(&question, ("127.0.0.1", port)).ok()?;
    let mut answer = [0; 1_500];
    let length = socket.recv(&mut answer).ok()?;
    let count = usize::from(u16::from_be_bytes([answer[6], answer[7]]));
    let mut at = question.len();
    let mut found = Vec::new();
    for _ in 0..count {
        // Names of answers are pointers at the question here.
        let body = answer.get(at + 2..length)?;
        let kind = u16::from_be_bytes([body[0], body[1]]);
        let ttl = u32::from_be_bytes([body[4], body[5], body[6], body[7]]);
        let size = usize::from(u16::from_be_bytes([body[8], body[9]]));
        if kind == 1 {
            found.push((Ipv4Addr::new(body[10], body[11], body[12], body[13]), ttl));
        }
        at += 12 + size;
    }
    found.sort();
    Some(found)
}

fn host(name: &str) -> HostName {
    HostName::try_from(name.to_owned()).unwrap()
}

fn set(addresses: &[&str], ttl: u32) -> RecordSet {
    let record = |address: &&str| Record {
        address: address.parse().unwrap(),
        ttl,
        proxied: false,
        comment: None,
    };
    RecordSet(addresses.iter().map(record).collect())
}

#[test]
fn a_record_is_read_written_and_seen_by_a_client_and_the_serial_rises() {
    for server in BOTH {
        let running = Running::new(server);
        let zone = running.zone();
        let found = read(&zone, &host(FI)).unwrap();
        assert_eq!(found, set(&["127.0.0.41"], 300), "{server:?}");
        let serial = running.serial();
        write(&zone, &host(FI), &found, &set(&["127.0.0.42"], 120)).unwrap();
        assert_eq!(
            resolve(running.port, FI).unwrap(),
            [("127.0.0.42".parse().unwrap(), 120)],
            "{server:?}"
        );
        assert!(running.serial() > serial, "{server:?}");
        let two = host("two.example.org");
        let found = read(&zone, &two).unwrap();
        assert_eq!(found, set(&["127.0.0.41", "127.0.0.42"], 300));
        write(&zone, &two, &found, &set(&["127.0.0.43"], 60)).unwrap();
        write(&zone, &two, &set(&["127.0.0.43"], 60), &set(&["127.0.0.44", "127.0.0.45"], 60))
            .unwrap();
        assert_eq!(running.sees("two.example.org").len(), 2);
        assert_eq!(read(&zone, &host("none.example.org")).unwrap(), RecordSet::default());
        let why = read(&zone, &host("alias.example.org")).unwrap_err();
        assert!(why.contains("alias there (CNAME)"), "{why}");
        let why = read(&zone, &host("fi.example.net")).unwrap_err();
        assert!(why.contains("REFUSED") || why.contains("does not keep"), "{why}");
    }
}

#[test]
fn the_server_itself_keeps_us_from_overwriting_somebody() {
    for server in BOTH {
        let running = Running::new(server);
        let zone = running.zone();
        let serial = running.serial();
        for (host_name, wrong) in [
            (FI, &["127.0.0.49"][..]),
            // A part of the set is not the set.
            ("two.example.org", &["127.0.0.41"]),
        ] {
            let refusal =
                write(&zone, &host(host_name), &set(wrong, 300), &set(&["127.0.0.43"], 60))
                    .unwrap_err();
            assert!(
                refusal.why.contains("NXRRSET") || refusal.why.contains("YXRRSET"),
                "{server:?}: {}",
                refusal.why
            );
        }
        assert_eq!(running.sees(FI), ["127.0.0.41".parse::<Ipv4Addr>().unwrap()]);
        assert_eq!(running.serial(), serial);
    }
}

#[test]
fn a_key_that_is_not_the_servers_is_told_and_no_key_is_an_argument() {
    for server in BOTH {
        let running = Running::new(server);
        let key = running.folder.path().join("key");
        let text = std::fs::read_to_string(&key).unwrap();
        std::fs::write(&key, text.replace(SECRET, "YW5vdGhlciBzZWNyZXQgb2YgYSB0ZXN0LCBubyB1c2U="))
            .unwrap();
        let refused = |zone: &Zone| {
            write(zone, &host(FI), &set(&["127.0.0.41"], 300), &set(&["127.0.0.42"], 60))
                .unwrap_err()
                .why
        };
        let why = refused(&running.zone());
        assert!(!why.contains("YW5vdGhlci") && !why.contains(SECRET), "{why}");
        assert!(
            why.contains("BADSIG") || why.contains("TSIG") || why.contains("NOTAUTH"),
            "{server:?}: {why}"
        );
        std::fs::remove_file(&key).unwrap();
        assert!(!refused(&running.zone()).is_empty());
        assert_eq!(running.sees(FI), ["127.0.0.41".parse::<Ipv4Addr>().unwrap()]);
    }
}

#[test]
fn a_server_that_is_gone_hangs_or_drips_is_over_soon() {
    let zone = |port: u16| Zone::Rfc2136 {
        server: "127.0.0.1".to_owned(),
        port,
        zone: host("example.org"),
        key_file: PathBuf::from("/nonexistent/key"),
        tool: "nsupdate".to_owned(),
    };
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let drips = TcpListener::bind("127.0.0.1:0").unwrap();
    let drip_port = drips.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in drips.incoming().flatten() {
            drop(stream.read(&mut [0; 64]));
            while stream.write_all(&[4]).is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    });
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (port, said) in [
        (gone, "refused"),
        (mute.local_addr().unwrap().port(), "within 2 s"),
        (drip_port, "within 2 s"),
    ] {
        let begun = Instant::now();
        let why = read(&zone(port), &host(FI)).unwrap_err();
        assert!(why.contains(said), "{why}");
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }
}

/// A client: it resolves the name and asks the node that it finds there.
fn client_reaches(running: &Running, port: u16) -> Option<Ipv4Addr> {
    let address = *running.sees(FI).first()?;
    TcpStream::connect((address, port)).ok().map(|_| address)
}

#[test]
fn a_node_dies_and_its_name_points_elsewhere_until_it_lives_again() {
    for server in BOTH {
        let running = Running::new(server);
        let place = Place::new();
        let names = ["fi.example.org", "de.example.org"];
        let certificate = Certificate::new(place.folder.path(), "nodes", &names);
        let mut native = LiveNode::tls(&certificate, 41, 0, PAGE);
        let port = native.port;
        let fallback = LiveNode::tls(&certificate, 42, port, PAGE);
        // It lives, and is nobody to serve another's name.
        let own = Certificate::new(place.folder.path(), "own", &["us.example.org"]);
        let _stranger = LiveNode::tls(&own, 43, port, PAGE);
        let reference = Reference::new();
        let check = |name: &str, ca: &Certificate| json!({ "tls": { "port": port, "name": name, "ca_file": ca.file, "timeout_sec": 2 } });
        place.write(&json!({
            "kind": "dns",
            "driver": { "rfc2136": { "server": format!("127.0.0.1:{}", running.port), "zone": "example.org",
                                     "key_file": running.folder.path().join("key"), "tool": running.tool() } },
            "nodes": {
                "fi": { "address": "127.0.0.41", "label": "HEL", "check": check("fi.example.org", &certificate) },
                "us": { "address": "127.0.0.43", "label": "NYC", "check": check("us.example.org", &own) },
                "de": { "address": "127.0.0.42", "label": "FRA", "check": check("de.example.org", &certificate) },
            },
            "hosts": { FI: { "native": "fi", "fallbacks": ["us", "de"], "ttl": 60 } },
            "reference": { "urls": [reference.url()] },
            "params": { "check_interval_sec": 0, "minimum_stay_sec": 1 },
        }));
        let at = |last: u8| Some(Ipv4Addr::new(127, 0, 0, last));
        let ran = place.step();
        assert_eq!(ran.report()["to"], "NATIVE", "{server:?}: {ran:?}");
        assert_eq!(client_reaches(&running, port), at(41));

        native.die();
        assert_eq!(client_reaches(&running, port), None, "the client notices");
        place.step();
        let begun = Instant::now();
        let ran = place.step();
        assert_eq!(
            (ran.code, ran.report()["to"].clone()),
            (0, json!("FALLBACK")),
            "{server:?}: {ran:?}"
        );
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(client_reaches(&running, port), at(42), "the next one served another name");
        assert_eq!(resolve(running.port, FI).unwrap()[0].1, 60);
        assert_eq!(place.run(&["status", "names"]).code, 1);

        // The watcher goes offline, and everybody seems dead to it.
        let serial = running.serial();
        reference.answers(false);
        for _ in 0..3 {
            assert_eq!(place.step().codes(), ["offline"]);
        }
        reference.answers(true);
        assert_eq!(running.serial(), serial);

        native.live();
        until("the host is home again", || place.step().report()["to"] == "NATIVE");
        assert_eq!(client_reaches(&running, port), at(41));

        // A person's edit is kept, also while the native is dead.
        running.edit(FI, "127.0.0.49");
        assert_eq!(place.step().codes(), ["edited"]);
        native.die();
        let serial = running.serial();
        for _ in 0..3 {
            place.step();
        }
        assert_eq!(
            (running.sees(FI), running.serial()),
            (vec!["127.0.0.49".parse().unwrap()], serial)
        );
        assert_eq!(place.run(&["resume", "names", FI]).code, 0);
        place.step();
        assert_eq!(client_reaches(&running, port), at(42), "{server:?}");
        let status: Value = place.status();
        assert_eq!(status["hosts"][0]["addresses"], json!(["127.0.0.42"]));
        assert!(!place.state_text().contains(SECRET));
        drop(fallback);
    }
}
