//! Records at real Knot DNS and real BIND, written by their own update tools and seen as a client
//! sees them.

use crate::dns_bench;

use dns_bench::server::{BOTH, NameServer, SECRET};
use dns_bench::{Certificate, LiveNode, Place, Reference, until};
use egressctl::dns::name::HostName;
use egressctl::dns::record::{Record, RecordSet, Zone};
use egressctl::host::dns::{read, write};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const FI: &str = "fi.example.org";
const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

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
        let running = NameServer::new(server);
        let zone = running.zone();
        let found = read(&zone, &host(FI)).unwrap();
        assert_eq!(found, set(&["127.0.0.41"], 300), "{server:?}");
        let serial = running.serial();
        write(&zone, &host(FI), &found, &set(&["127.0.0.42"], 120)).unwrap();
        assert_eq!(running.answers(FI), [("127.0.0.42".parse().unwrap(), 120)], "{server:?}");
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
        let running = NameServer::new(server);
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
fn a_key_that_is_not_the_servers_is_told_without_it() {
    for server in BOTH {
        let running = NameServer::new(server);
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

/// A server of its own making, that answers over TCP what it is told and counts no update.
fn stuck_server(addresses: &'static [[u8; 4]]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut asked = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut asked).unwrap();
            let is_soa = asked[asked.len() - 3] == 6;
            let data: Vec<Vec<u8>> = if is_soa {
                // Two empty names, the serial number 100, and four times.
                vec![[&[0, 0][..], &[0, 0, 0, 100], &[0; 16]].concat()]
            } else {
                addresses.iter().map(|address| address.to_vec()).collect()
            };
            let mut answer = asked.clone();
            answer[2] = 0x84;
            answer[7] = u8::try_from(data.len()).unwrap();
            for one in data {
                answer.extend([0xc0, 12, 0, if is_soa { 6 } else { 1 }, 0, 1, 0, 0, 0, 60]);
                answer.extend(u16::try_from(one.len()).unwrap().to_be_bytes());
                answer.extend(one);
            }
            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
            stream.write_all(&[&length[..], &answer].concat()).unwrap();
        }
    });
    port
}

#[test]
fn an_update_after_which_the_serial_does_not_rise_is_in_doubt() {
    let port = stuck_server(&[[127, 0, 0, 41]]);
    let zone = Zone::Rfc2136 {
        server: "127.0.0.1".to_owned(),
        port,
        zone: host("example.org"),
        key_file: PathBuf::from("/nonexistent/key"),
        tool: "true".to_owned(),
    };
    let found = read(&zone, &host(FI)).unwrap();
    assert_eq!(found, set(&["127.0.0.41"], 60));
    let refusal = write(&zone, &host(FI), &found, &set(&["127.0.0.42"], 60)).unwrap_err();
    assert!(refusal.why.contains("serial number stays at 100"), "{}", refusal.why);
    assert!(refusal.is_doubtful, "nobody knows whether secondary servers follow");
}

#[test]
fn no_key_is_an_argument_or_in_the_environment_of_the_tool() {
    for server in BOTH {
        let running = NameServer::new(server);
        let folder = running.folder.path().display().to_string();
        let shim = running.folder.path().join("tool");
        let text = format!(
            "#!/bin/sh\ntr '\\0' '\\n' < /proc/$$/cmdline > {folder}/args\nenv > {folder}/env\nexec {} \"$@\"\n",
            running.tool()
        );
        std::fs::write(&shim, text).unwrap();
        std::fs::set_permissions(&shim, std::fs::Permissions::from_mode(0o755)).unwrap();
        let Zone::Rfc2136 { server: host_name, port, zone, key_file, .. } = running.zone() else {
            panic!()
        };
        let tool = shim.display().to_string();
        let zone = Zone::Rfc2136 { server: host_name, port, zone, key_file, tool };
        write(&zone, &host(FI), &set(&["127.0.0.41"], 300), &set(&["127.0.0.42"], 60)).unwrap();
        assert_eq!(running.sees(FI), ["127.0.0.42".parse::<Ipv4Addr>().unwrap()]);
        for file in ["args", "env"] {
            let told = std::fs::read_to_string(running.folder.path().join(file)).unwrap();
            assert!(!told.is_empty() && !told.contains(SECRET), "{server:?} {file}: {told}");
        }
    }
}

/// A client: it resolves the name and asks the node that it finds there.
fn client_reaches(running: &NameServer, port: u16) -> Option<Ipv4Addr> {
    let address = *running.sees(FI).first()?;
    TcpStream::connect((address, port)).ok().map(|_| address)
}

#[test]
fn a_node_dies_and_its_name_points_elsewhere_until_it_lives_again() {
    for server in BOTH {
        let running = NameServer::new(server);
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
        assert_eq!(running.answers(FI)[0].1, 60);
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
