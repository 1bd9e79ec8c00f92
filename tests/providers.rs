//! Lists over HTTP, in zips and from programs, good and bad.

use crate::provider_server;

use egressctl::host::provider::{list, standby, stored};
use egressctl::names::{Interface, Mark};
use egressctl::observation::{ListReading, ListVia, StandbyQuestion};
use egressctl::wireguard::parse_bytes;
use provider_server::{
    Bench, Reply, Server, conf, entry, listed, names, ok, pool, private, public, status,
    unavailable,
};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::{Cursor, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

fn body(entries: &[Value]) -> String {
    json!(entries).to_string()
}

fn zipped(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for (name, bytes) in files {
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn a_list_in_the_common_shape_becomes_candidates() {
    let bench = Bench::new();
    let full = json!({
        "name": "full", "country": "Sweden", "city": "Malmö",
        "endpoint": "[2001:db8::1]:443", "public_key": public(9), "preshared_key": public(77),
        "address": "10.1.0.9/32", "allowed_ips": ["0.0.0.0/0", "::/0"],
        "private_key": private(9).reveal(), "mtu": 1380,
    });
    let text = json!({ "name": "text", "config": conf(4, 14, "nl.vpn.example:51820") });
    let entries = vec![entry(1), full, text];
    for body in [json!(entries), json!({ "note": 1, "candidates": entries })] {
        let server = Server::saying(body.to_string());
        let (candidates, rejected, validators) = listed(bench.ask(&bench.http(&server)));
        assert_eq!((rejected, validators), (vec![], None));
        assert_eq!(names(&candidates), ["s1", "full", "text"]);
        let [s1, full, text] = candidates.as_slice() else { panic!("three") };
        assert_eq!(s1.ends.own, private(1).public(), "by the identity");
        assert_eq!(s1.addresses, ["10.64.0.2/32".parse().unwrap()].into());
        assert_eq!((s1.ends.keepalive, s1.ends.allowed_ips.len()), (25, 1));
        assert_eq!(
            (full.country.as_deref(), full.city.as_deref()),
            (Some("Sweden"), Some("Malmö"))
        );
        assert_eq!((full.host.as_str(), full.port, full.mtu), ("2001:db8::1", 443, Some(1380)));
        assert_eq!(full.ends.own, private(9).public());
        assert!(full.ends.preshared.is_some());
        assert_eq!((text.host.as_str(), text.ends.keepalive), ("nl.vpn.example", 22));
        for candidate in &candidates {
            let bytes = std::fs::read(bench.state().join(candidate.config.path())).unwrap();
            assert!(parse_bytes(&bytes).is_ok());
        }
        assert_eq!(pool(&bench.state()), ["full.conf", "s1.conf", "text.conf"]);
        let asked = server.asked();
        assert_eq!(asked.len(), 1, "one request for all slots");
        assert_eq!(asked[0].headers["authorization"], "Bearer s3cret-token");
    }
    assert_eq!(stored(&bench.state()).len(), 3, "they are known again without the state");
    // A preshared key of the subscriber's is for all that bring none; a mark of the order of bytes
    // that editors leave is no part of a list.
    let server = Server::saying(format!("\u{feff}{}", body(&entries)));
    let mut provider = bench.http(&server);
    provider["http"]["identity"]["preshared_key_file"] =
        json!(bench.put("psk", public(9).to_string()));
    let (candidates, ..) = listed(bench.ask(&provider));
    let keys: Vec<_> = candidates.iter().map(|candidate| &candidate.ends.preshared).collect();
    assert!(keys[0].is_some() && keys[1].is_some() && keys[0] != keys[1], "{keys:?}");
}

#[test]
fn a_plan_leaves_no_file() {
    let bench = Bench::new();
    let server = Server::saying(body(&[entry(1)]));
    let question = Bench::question(&bench.http(&server), &json!({}));
    let (candidates, ..) = listed(list(&question, &bench.state(), false));
    assert_eq!(names(&candidates), ["s1"]);
    assert!(!bench.path("pool").exists());
}

#[test]
fn a_bad_entry_costs_itself_alone() {
    let bench = Bench::new();
    let with = |number: u32, key: &str, value: Value| {
        let mut one = entry(number);
        one[key] = value;
        one
    };
    let private_in_the_wrong_place = private(1).reveal();
    let cases: Vec<(Value, &str)> = vec![
        (json!(7), "is no object"),
        (json!({}), "has no name"),
        (with(1, "public_key", json!("short")), "PublicKey is not a key"),
        (with(2, "public_key", json!(format!("{}", public(2)).replace('=', "A"))), "PublicKey"),
        (with(3, "public_key", json!([1])), "public_key is not a text"),
        (with(4, "public_key", json!(private(1).public())), "belongs to our own PrivateKey"),
        (with(5, "endpoint", json!("192.0.2.5:0")), "is not a port"),
        (with(6, "endpoint", json!("192.0.2.6:70000")), "is not a port"),
        (with(7, "endpoint", json!("192.0.2.7")), "no host:port"),
        (with(8, "endpoint", json!("a b:1")), "characters that no value"),
        (with(9, "endpoint", Value::Null), "has no endpoint"),
        (with(10, "endpoint", json!("127.0.0.1:51820")), "refused unless allow_loopback"),
        (with(11, "endpoint", json!("[::ffff:127.0.0.1]:51820")), "refused unless allow_loopback"),
        (with(12, "endpoint", json!("localhost:51820")), "refused unless allow_loopback"),
        (with(13, "endpoint", json!("169.254.1.1:51820")), "refused unless allow_loopback"),
        (with(14, "endpoint", json!("[fe80::1]:51820")), "refused unless allow_loopback"),
        (with(15, "endpoint", json!("0.0.0.0:51820")), "no host:port"),
        (with(16, "endpoint", json!("224.0.0.1:51820")), "no host:port"),
        (with(17, "address", json!("fd00::2/128")), "has no IPv4 address"),
        (with(18, "address", json!("10.0.0.300")), "Address has the entry"),
        (with(19, "mtu", json!(12)), "MTU cannot be"),
        (with(20, "mtu", json!(private_in_the_wrong_place)), "MTU"),
        (with(21, "allowed_ips", json!({})), "allowed_ips is not a text"),
        (with(22, "endpoint", json!("192.0.2.22:1\nPostUp = reboot")), "characters that no value"),
        (with(23, "endpoint", json!("192.0.2.23:1#x")), "characters that no value"),
        (json!({ "name": "c", "config": "[Interface]\nPostUp = id\n" }), "PrivateKey in"),
        (json!({ "name": "d", "config": "<html>" }), "line 1"),
        (with(24, "name", json!("x\u{1b}[2J\n../../etc\u{202e}")), ""),
        (with(25, "name", json!("y".repeat(10_000_000))), ""),
        (with(26, "name", json!("../../../etc/cron.d/x")), ""),
        (with(27, "name", json!("")), ""),
        (with(28, "name", json!("same")), ""),
        (with(29, "name", json!("SAME")), ""),
    ];
    let mut entries: Vec<Value> = cases.iter().map(|(value, _)| value.clone()).collect();
    entries.push(with(28, "name", json!("again")));
    let server = Server::saying(body(&entries));
    let mut provider = bench.http(&server);
    provider["http"]["timeout_sec"] = json!(20);
    let (candidates, rejected, _) = listed(bench.ask(&provider));
    let parts: Vec<&str> = cases.iter().map(|(_, part)| *part).filter(|p| !p.is_empty()).collect();
    assert_eq!(rejected.len(), parts.len() + 1, "{rejected:#?}");
    for (entry, part) in rejected.iter().zip(parts) {
        assert!(entry.why.contains(part), "{part}: {entry:?}");
        // Only of a text that somebody wrote is a line told.
        assert_eq!(entry.why.starts_with("line "), part.starts_with("line "), "{entry:?}");
    }
    assert_eq!(rejected.last().unwrap().why, "is the same tunnel as same");
    let long = "y".repeat(80);
    let wished =
        ["x_[2J_../../etc_", &long, "../../../etc/cron.d/x", "(no name)", "same", "SAME-2"];
    assert_eq!(names(&candidates), wished);
    for file in pool(&bench.state()) {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        assert!(file.chars().all(plain) && file.len() < 80 && !file.starts_with('.'), "{file}");
    }
    let allowed = Server::saying(body(&[with(1, "endpoint", json!("127.0.0.1:51820"))]));
    let mut provider = bench.http(&allowed);
    provider["http"]["allow_loopback"] = json!(true);
    assert_eq!(listed(bench.ask(&provider)).0.len(), 1);
}

#[test]
fn entries_without_an_identity_say_what_is_missing() {
    let bench = Bench::new();
    let server = Server::saying(body(&[entry(1)]));
    let (_, rejected, _) = listed(bench.ask(&json!({ "http": { "url": server.url("/") } })));
    assert!(rejected[0].why.contains("has no private_key, and there is no identity"));
    let mut provider = bench.http(&server);
    provider["http"]["identity"]["private_key_file"] = json!("/nowhere/key");
    let (why, answered, _) = unavailable(bench.ask(&provider));
    assert!(why.contains("reading the secret in /nowhere/key") && !answered, "{why}");
    bench.put("bad", format!("{}x", private(1).reveal()));
    provider["http"]["identity"]["private_key_file"] = json!(bench.path("bad"));
    let (why, ..) = unavailable(bench.ask(&provider));
    assert!(why.ends_with("bad holds no key: a key has 44 characters, this has 45"), "{why}");
    assert_eq!(server.asked().len(), 1, "nobody is asked in vain");
}

#[test]
fn an_answer_that_is_no_list_is_told_by_what_it_is() {
    let bench = Bench::new();
    let good = body(&[entry(1), entry(2)]);
    let half = good.clone().into_bytes()[..good.len() / 2].to_vec();
    let cut = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", good.len());
    let cut = [cut.as_bytes(), &half].concat();
    let until_close = [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".as_slice(), &half].concat();
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[ { }".to_vec();
    let deep = "[".repeat(100_000);
    let cases: Vec<(Reply, &str, bool)> = vec![
        (ok(""), "the answer is empty", false),
        (ok(" \n"), "the answer is empty", false),
        (ok("[]"), "the list is empty", true),
        (ok("{}"), "an object without candidates", false),
        (ok(r#"{"candidates":3}"#), "not the shape of a list", false),
        (ok("<!doctype html><p>log in"), "it is a page and no list", false),
        (ok("null and void"), "it is not JSON at line 1", false),
        (ok(deep), "the list is cut off after", false),
        (ok(vec![0xff, 0xfe, 0]), "it is not JSON", false),
        (Reply::Raw(cut), "protocol", false),
        (Reply::Raw(until_close), "the list is cut off after", false),
        (Reply::Raw(chunked), "protocol", false),
        (Reply::Raw(b"SSH-2.0-OpenSSH\r\n".to_vec()), "protocol", false),
        (Reply::Raw(Vec::new()), "protocol", false),
        (ok(vec![b' '; 33 * 1024 * 1024]), "longer than 33554432 bytes", false),
        (status(500, ""), "answers 500", true),
        (status(404, ""), "answers 404", true),
        (status(401, ""), "the token or code is refused", true),
        (status(511, ""), "answers 511", false),
        (status(304, ""), "answers 304", false),
    ];
    for (reply, part, proved) in cases {
        let reply = std::sync::Mutex::new(Some(reply));
        let server = Server::new(move |_| reply.lock().unwrap().take().unwrap());
        let (why, answered, wait) = unavailable(bench.ask(&bench.http(&server)));
        assert!(why.contains(part), "{part}: {why}");
        assert_eq!((answered, wait), (proved, None), "{why}");
    }
    assert!(!bench.path("pool").exists());
    let gone = json!({ "http": { "url": "http://127.0.0.1:9/" } });
    let (why, answered, _) = unavailable(bench.ask(&gone));
    assert!(why.contains("refused: 127.0.0.1:9") && !answered, "{why}");
    let nameless = json!({ "http": { "url": "https://list.invalid/" } });
    let (why, answered, _) = unavailable(bench.ask(&nameless));
    assert!(why == "no address of list.invalid is known" && !answered, "{why}");
}

#[test]
fn nobody_is_waited_for_longer_than_the_policy_says() {
    let bench = Bench::new();
    for reply in [|| Reply::Drip, || Reply::Silence] {
        let server = Server::new(move |_| reply());
        let begun = Instant::now();
        let (why, answered, _) = unavailable(bench.ask(&bench.http(&server)));
        assert!(why.contains("timed out") && !answered, "{why}");
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }
}

#[test]
fn places_are_tried_in_order_and_share_the_time() {
    let bench = Bench::new();
    let (silent, page) = (Server::new(|_| Reply::Silence), Server::saying("<html>"));
    let (good, after) = (Server::saying(body(&[entry(1)])), Server::saying("[]"));
    let urls: Vec<String> = [&silent, &page, &good, &after].map(|s| s.url("/l")).into();
    let mut provider = bench.http(&silent);
    provider["http"]["urls"] = json!(urls);
    provider["http"].as_object_mut().unwrap().remove("url");
    let (candidates, ..) = listed(bench.ask(&provider));
    assert_eq!(names(&candidates), ["s1"]);
    assert_eq!(after.asked().len(), 0);
    provider["http"]["urls"] = json!([page.url("/"), silent.url("/")]);
    let (why, ..) = unavailable(bench.ask(&provider));
    assert!(why.contains("a page and no list") && why.contains("; 127.0.0.1: timed out"), "{why}");
}

#[test]
fn a_wish_to_be_left_alone_is_told_and_no_other_place_is_asked() {
    let bench = Bench::new();
    let heads = [
        ("Retry-After: 120\r\n", Some(120)),
        (
            "Date: Mon, 30 Nov 2026 11:00:00 GMT\r\nRetry-After: Mon, 30 Nov 2026 11:00:30 GMT\r\n",
            Some(30),
        ),
        ("Retry-After: Thu, 01 Jan 1970 00:00:00 GMT\r\n", Some(0)),
        ("Retry-After: soon\r\n", None),
        ("", None),
    ];
    for (head, wish) in heads {
        let (busy, other) = (Server::new(move |_| status(429, head)), Server::saying("[]"));
        let mut provider = bench.http(&busy);
        provider["http"]["urls"] = json!([other.url("/")]);
        let (why, answered, wait) = unavailable(bench.ask(&provider));
        assert!(why.contains("answers 429") && answered, "{why}");
        assert_eq!((wait, other.asked().len()), (wish, 0), "{head}");
    }
    let busy = Server::new(|_| status(503, "Retry-After: 7\r\n"));
    assert_eq!(unavailable(bench.ask(&bench.http(&busy))).2, Some(7));
}

#[test]
fn credentials_never_follow_a_redirect_to_another_host() {
    let bench = Bench::new();
    let thief = Server::saying(body(&[entry(1)]));
    for place in ["http://localhost", "http://127.0.0.2", "https://127.0.0.2", "//localhost"] {
        let head = format!("Location: {place}:{}/list\r\n", thief.port);
        let server = Server::new(move |_| status(302, &head));
        let (why, answered, _) = unavailable(bench.ask(&bench.http(&server)));
        assert!(why.contains("redirects to ") && !answered, "{why}");
    }
    let head = format!("Location: http://127.0.0.1:{}/list\r\n", thief.port);
    let server = Server::new(move |_| status(307, &head));
    let (why, ..) = unavailable(bench.ask(&bench.http(&server)));
    assert!(why.contains("redirects to plain http"), "another port is somebody else: {why}");
    assert_eq!(thief.asked().len(), 0);
    let circle = Server::new(|_| status(302, "Location: /list\r\n"));
    let (why, ..) = unavailable(bench.ask(&bench.http(&circle)));
    assert!(why.contains("redirects more than 3 times"), "{why}");
    assert_eq!(circle.asked().len(), 4);
    let moved = Server::new(|asked| match asked.path.as_str() {
        "/list" => status(301, "Location: new\r\n"),
        _ => ok(body(&[entry(1)])),
    });
    assert_eq!(listed(bench.ask(&bench.http(&moved))).0.len(), 1);
}

#[test]
fn what_did_not_change_is_not_sent_again() {
    let bench = Bench::new();
    let server = Server::new(|asked| {
        if asked.headers.get("if-none-match").is_some_and(|tag| tag == "\"v1\"") {
            return status(304, "");
        }
        let head = "ETag: \"v1\"\r\nLast-Modified: Mon, 30 Nov 2026 10:00:00 GMT\r\n";
        Reply::Whole(200, head.to_owned(), body(&[entry(1)]).into_bytes())
    });
    let mut question = Bench::question(&bench.http(&server), &json!({}));
    let (_, _, validators) = listed(list(&question, &bench.state(), true));
    question.known = validators;
    assert_eq!(list(&question, &bench.state(), true), ListReading::Unchanged);
    let asked = server.asked();
    assert_eq!(asked[1].headers["if-modified-since"], "Mon, 30 Nov 2026 10:00:00 GMT");
    // With a file of the list gone, that it did not change is of no use.
    question.have = stored(&bench.state()).into();
    assert_eq!(list(&question, &bench.state(), true), ListReading::Unchanged);
    let file = bench.state().join(question.have[0].config.path());
    std::fs::write(&file, "spoilt").unwrap();
    assert!(matches!(list(&question, &bench.state(), true), ListReading::Listed { .. }));
    // Another wish makes other candidates of the same list.
    question.wanted.exclude = vec!["x*".to_owned()];
    assert!(matches!(list(&question, &bench.state(), true), ListReading::Listed { .. }));
}

#[test]
fn only_what_is_wanted_is_taken() {
    let bench = Bench::new();
    let mut entries: Vec<Value> = (1..=6).map(entry).collect();
    for (one, country) in entries.iter_mut().zip(["SE", "se", "NL", "NL", "DE", "DE"]) {
        one["country"] = json!(country);
    }
    entries[5]["public_key"] = json!("bad, and nobody asked for it");
    let server = Server::saying(body(&entries));
    let ask = |wanted: Value| bench.ask_for(&bench.http(&server), &wanted);
    let (candidates, rejected, _) =
        listed(ask(json!({ "country": ["se", "nl"], "exclude": ["*4"] })));
    assert_eq!((names(&candidates), rejected), (vec!["s1", "s2", "s3"], vec![]));
    let (why, answered, _) = unavailable(ask(json!({ "country": ["FR"] })));
    assert_eq!(
        (why.as_str(), answered),
        ("none of its 6 entries is wanted: correct candidates", true)
    );
}

#[test]
fn a_long_list_is_thinned_out_evenly_and_the_same_way_each_time() {
    let bench = Bench::new();
    let many = |number: u32| {
        let mut one = entry(number);
        one["endpoint"] = json!(format!("192.0.{}.{}:51820", number / 250, number % 250 + 1));
        one["country"] = json!(if number < 290 { "SE" } else { "NL" });
        one
    };
    let entries: Vec<Value> = (0..300).map(many).collect();
    let server = Server::saying(body(&entries));
    let mut provider = bench.http(&server);
    provider["http"]["timeout_sec"] = json!(20);
    let (candidates, rejected, _) = listed(bench.ask(&provider));
    assert_eq!((candidates.len(), rejected.len()), (256, 0));
    let dutch = candidates.iter().filter(|c| c.country.as_deref() == Some("NL")).count();
    assert_eq!(dutch, 10, "no place is lost");
    assert_eq!(candidates[0].name, "s0");
    assert_eq!(candidates, listed(bench.ask(&provider)).0);
    // What is at hand stays, wherever it stands in the list.
    let mut question = Bench::question(&provider, &json!({}));
    let mut all = entries.clone();
    all.truncate(289);
    let last = Server::saying(body(&all[280..]));
    question.have = listed(bench.ask(&bench.http(&last))).0.into();
    assert_eq!(question.have.len(), 9);
    let (candidates, ..) = listed(list(&question, &bench.state(), true));
    assert_eq!(candidates.len(), 256);
    for number in 280..289 {
        assert!(names(&candidates).contains(&format!("s{number}").as_str()), "{number}");
    }
}

#[test]
fn a_request_goes_the_way_that_was_said_to_the_addresses_that_are_known() {
    let bench = Bench::new();
    let server = Server::saying(body(&[entry(1)]));
    let provider = json!({ "http": {
        "url": format!("http://list.invalid:{}/x?y=1", server.port), "identity": bench.identity(),
    }});
    let mut question = Bench::question(&provider, &json!({}));
    assert_eq!(question.provider.hosts(), ["list.invalid"]);
    question.names = [("list.invalid".to_owned(), vec!["127.0.0.1".parse().unwrap()])].into();
    assert!(matches!(list(&question, &bench.state(), true), ListReading::Listed { .. }));
    let asked = server.asked();
    assert_eq!((asked[0].verb.as_str(), asked[0].path.as_str()), ("GET", "/x?y=1"));
    assert_eq!(asked[0].headers["host"], format!("list.invalid:{}", server.port));
    let device = |name: &str| Interface::try_from(name.to_owned()).unwrap();
    question.via = Some(ListVia { device: device("nosuch0"), mark: None });
    let (why, answered, _) = unavailable(list(&question, &bench.state(), true));
    assert!(why.contains("list.invalid: not bindable: device nosuch0") && !answered, "{why}");
    if rustix::process::geteuid().is_root() {
        for mark in [None, Some(Mark(0x4547_0000))] {
            question.via = Some(ListVia { device: device("lo"), mark });
            assert!(matches!(list(&question, &bench.state(), true), ListReading::Listed { .. }));
        }
    }
}

/// A server of openssl's with a certificate of its own making, ended with the test.
struct Tls(std::process::Child);

impl Drop for Tls {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_certificate_of_ones_own_is_trusted_where_the_policy_names_it() {
    let bench = Bench::new();
    let openssl = |args: &str| {
        let mut command = std::process::Command::new("openssl");
        command.args(args.split(' ')).current_dir(bench.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    bench.put("ext", "subjectAltName=DNS:list.invalid\nbasicConstraints=CA:FALSE\n");
    for made in [
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ours -keyout ca.key -out ca.pem",
        "req -newkey rsa:2048 -nodes -subj /CN=list.invalid -keyout tls.key -out tls.csr",
        "x509 -req -in tls.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out tls.pem",
    ] {
        match openssl(made).status() {
            Ok(status) => assert!(status.success(), "{made}"),
            Err(why) => return println!("skipped: openssl: {why}"),
        }
    }
    bench.put("list.json", body(&[entry(1)]));
    bench.put("page.html", "<html>log in</html>");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let serve = format!("s_server -accept 127.0.0.1:{port} -key tls.key -cert tls.pem -WWW");
    let _server = Tls(openssl(&serve).spawn().unwrap());
    let ask = |path: &str, ca: Option<&str>| {
        let mut provider = json!({ "http": {
            "url": format!("https://list.invalid:{port}/{path}"), "identity": bench.identity(),
        }});
        if let Some(ca) = ca {
            provider["http"]["ca_file"] = json!(bench.path(ca));
        }
        let mut question = Bench::question(&provider, &json!({}));
        question.names = [("list.invalid".to_owned(), vec!["127.0.0.1".parse().unwrap()])].into();
        list(&question, &bench.state(), true)
    };
    let begun = Instant::now();
    let reading = loop {
        let reading = ask("list.json", Some("ca.pem"));
        let refused =
            matches!(&reading, ListReading::Unavailable { why, .. } if why.contains("refused"));
        if !refused || begun.elapsed() > Duration::from_secs(10) {
            break reading;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(names(&listed(reading).0), ["s1"]);
    let (why, answered, _) = unavailable(ask("list.json", None));
    assert!(why.contains("tls: ") && !answered, "{why}");
    // Over TLS it was the provider itself that sent a page.
    let (why, answered, _) = unavailable(ask("page.html", Some("ca.pem")));
    assert!(why.contains("a page and no list") && answered, "{why}");
    bench.put("none.pem", "no certificate");
    let (why, ..) = unavailable(ask("list.json", Some("none.pem")));
    assert!(why.ends_with("none.pem: it holds no certificate in PEM"), "{why}");
}

#[test]
fn no_damage_to_a_list_is_more_than_a_reason() {
    let bench = Bench::new();
    let zip = zipped(&[
        ("a.conf", conf(1, 11, "192.0.2.1:51820").as_bytes()),
        ("b/b.conf", conf(2, 12, "192.0.2.2:51820").as_bytes()),
    ]);
    let servers = json!({ "version": 1, "ivpn": { "servers": [
        { "vpn": "wireguard", "hostname": "a.example", "wgpubkey": public(1), "ips": ["192.0.2.1"] },
        { "vpn": "wireguard", "hostname": "b.example", "wgpubkey": public(2), "ips": ["192.0.2.2"] },
    ]}});
    let zip_asked = json!({ "directory": { "path": bench.path("list.zip") } });
    let json_asked = json!({ "gluetun": {
        "provider": "ivpn", "path": bench.path("list.json"), "identity": bench.identity()
    }});
    // Numbers that look random and are the same each time.
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |limit: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % u64::try_from(limit).unwrap()).unwrap()
    };
    for (whole, name, provider) in
        [(zip, "list.zip", zip_asked), (servers.to_string().into_bytes(), "list.json", json_asked)]
    {
        let question = Bench::question(&provider, &json!({}));
        let (mut lists, mut none) = (0, 0);
        for _ in 0..600 {
            let mut bytes = whole.clone();
            for _ in 0..=below(4) {
                let at = below(bytes.len());
                bytes[at] = u8::try_from(below(256)).unwrap();
            }
            if below(4) == 0 {
                bytes.truncate(below(bytes.len()) + 1);
            }
            bench.put(name, &bytes);
            match list(&question, &bench.state(), false) {
                reading @ ListReading::Listed { .. } => {
                    lists += 1;
                    assert!(listed(reading).0.len() <= 2);
                }
                reading @ (ListReading::Unchanged | ListReading::Unavailable { .. }) => {
                    none += 1;
                    let (why, ..) = unavailable(reading);
                    assert!(!why.is_empty() && !why.chars().any(char::is_control), "{why:?}");
                }
            }
        }
        assert!(lists > 20 && none > 20, "{lists} {none}");
    }
}

#[test]
fn a_zip_is_read_from_a_file_and_over_http() {
    let bench = Bench::new();
    let (a, b) = (conf(1, 11, "192.0.2.1:51820"), conf(2, 12, "192.0.2.2:51820"));
    let zip = zipped(&[
        ("nl/", b""),
        ("nl/AmsterdamS4.conf", a.as_bytes()),
        ("se\\Malmö 1.CONF", b.as_bytes()),
        ("../../../../tmp/climb.conf", conf(3, 13, "192.0.2.3:51820").as_bytes()),
        ("/etc/wireguard/abs.conf", conf(4, 14, "192.0.2.4:51820").as_bytes()),
        ("x/AmsterdamS4.conf", conf(5, 15, "192.0.2.5:51820").as_bytes()),
        ("__MACOSX/._AmsterdamS4.conf", b"\0\x05\x16\x07"),
        ("readme.txt", b"hello"),
        ("bad.conf", b"[Interface]\nPrivateKey = x\n"),
        ("bomb.conf", &vec![b'#'; 20_000_000]),
        ("flat.conf", &vec![b'#'; 60_000]),
    ]);
    let server = Server::saying(zip.clone());
    let path = bench.put("list.zip", &zip);
    for provider in [bench.http(&server), json!({ "directory": { "path": path } })] {
        let (candidates, rejected, _) = listed(bench.ask(&provider));
        let wished = ["climb", "abs", "AmsterdamS4", "Malmö 1", "AmsterdamS4-2"];
        assert_eq!(names(&candidates), wished);
        let whys: Vec<String> = rejected.iter().map(|r| format!("{}: {}", r.name, r.why)).collect();
        assert_eq!(whys.len(), 3, "{whys:?}");
        assert!(whys[0].starts_with("bad: line 2"), "{whys:?}");
        assert_eq!(whys[1], "bomb: longer than 65536 bytes");
        assert_eq!(whys[2], "flat: unpacks to more than 100 times its size");
        assert!(!std::path::Path::new("/tmp/climb.conf").exists());
    }
    for (bytes, part) in [
        (zip[..zip.len() / 2].to_vec(), "cut off or spoilt"),
        (zipped(&[("readme.txt", b"x")]), "has no *.conf file"),
        (b"PK\x03\x04".to_vec(), "cut off or spoilt"),
        (
            [b"PK\x03\x04".as_slice(), &[0xff; 2_000], b"PK\x05\x06", &[0xff; 30]].concat(),
            "entries",
        ),
        ([b"PK\x03\x04".as_slice(), &[0; 2_000], b"PK\x05\x06", &[7; 18]].concat(), "spoilt"),
    ] {
        let server = Server::saying(bytes.clone());
        let (why, ..) = unavailable(bench.ask(&bench.http(&server)));
        assert!(why.contains(part), "{part}: {why}");
        let path = bench.put("bad.zip", bytes);
        let (why, ..) = unavailable(bench.ask(&json!({ "directory": { "path": path } })));
        assert!(why.contains(part) && why.contains("bad.zip"), "{part}: {why}");
    }
    let (why, ..) = unavailable(bench.ask(&json!({ "directory": { "path": "/nowhere/a.zip" } })));
    assert!(why.contains("put the provider's zip there"), "{why}");
}

#[test]
fn a_program_prints_the_common_shape() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let bench = Bench::new();
    let program = |text: &str| {
        let path = bench.put("list", format!("#!/bin/sh\n{text}\n"));
        std::fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        json!({ "exec": {
            "path": path, "args": ["--for", "a b"], "timeout_sec": 1, "identity": bench.identity()
        }})
    };
    let list = bench.put("list.json", body(&[entry(1)]));
    let check = "test \"$*\" = '--for a b' && test -z \"$HOME$CARGO_TARGET_DIR$USER\" || exit 3";
    let provider = program(&format!("{check}; cat {}", list.display()));
    let (candidates, ..) = listed(bench.ask(&provider));
    assert_eq!(names(&candidates), ["s1"]);
    for (text, part) in [
        ("echo no luck >&2; exit 4", "exit code 4: no luck"),
        ("sleep 20", "killed after 1000 ms"),
        ("true", "the answer is empty"),
        ("head -c 40000000 /dev/zero", "printed more than 33554432 bytes"),
    ] {
        let (why, answered, _) = unavailable(bench.ask(&program(text)));
        assert!(why.contains(part) && !answered, "{part}: {why}");
    }
    let provider = program("true");
    let path = bench.path("list");
    std::fs::set_permissions(&path, Permissions::from_mode(0o722)).unwrap();
    let (why, ..) = unavailable(bench.ask(&provider));
    assert!(why.contains("can be written by others than root"), "{why}");
    std::fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    std::fs::set_permissions(bench.folder.path(), Permissions::from_mode(0o777)).unwrap();
    let (why, ..) = unavailable(bench.ask(&provider));
    assert!(why.contains("the folder ") && why.contains("by others than root"), "{why}");
    // Nor does a link in a folder that is closed help.
    let closed = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(&path, closed.path().join("link")).unwrap();
    let mut linked = provider.clone();
    linked["exec"]["path"] = json!(closed.path().join("link"));
    let (why, ..) = unavailable(bench.ask(&linked));
    assert!(why.contains("the folder ") && why.contains("by others than root"), "{why}");
    std::fs::set_permissions(bench.folder.path(), Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
    let (why, ..) = unavailable(bench.ask(&provider));
    assert!(why.contains("can be written by others than root"), "{why}");
}

#[test]
fn the_standbys_file_is_copied_and_what_is_wrong_with_it_is_said_without_its_keys() {
    let bench = Bench::new();
    let file = bench.path("boot.conf");
    let question = |keep| StandbyQuestion { file: file.clone(), amnezia: false, keep };
    let read = |keep| standby(&question(keep), &bench.state(), true);
    let copies = || {
        let entries = std::fs::read_dir(bench.state().join("pool/0")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let missing = read(None).unwrap_err();
    assert!(missing.contains("boot.conf") && missing.contains("No such file"), "{missing}");
    std::fs::write(&file, conf(1, 2, "nl.vpn.example:51820")).unwrap();
    let planned = standby(&question(None), &bench.state(), false).unwrap();
    assert!(!bench.state().join("pool").exists(), "a plan leaves no file");
    let first = read(None).unwrap();
    assert_eq!(planned, first);
    assert_eq!((first.name.as_str(), first.host.as_str()), ("boot", "nl.vpn.example"));
    let copy = bench.state().join(first.config.path());
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(parse_bytes(&std::fs::read(&copy).unwrap()).is_ok());
    assert_eq!(stored(&bench.state()), [], "it is nobody's list");

    // An edit makes a copy of its own, until nobody needs the one before.
    std::fs::write(&file, conf(1, 3, "198.51.100.9:51820")).unwrap();
    let second = read(Some(first.config.clone())).unwrap();
    assert_ne!(first.config, second.config);
    assert_eq!(copies().len(), 2, "an undo needs the old one");
    assert_eq!(read(Some(second.config.clone())).unwrap(), second);
    assert_eq!(copies(), [std::ffi::OsString::from(&second.config.file)]);

    let key = private(1).reveal();
    let spoilt = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let why = read(Some(second.config.clone())).unwrap_err();
        assert!(!why.contains(&key) && !why.contains('\n'), "{why}");
        assert_eq!(copies().len(), 1);
        why
    };
    assert!(spoilt(&format!("[Interface]\nPrivateKey = {key}x\n")).contains("PrivateKey"));
    let amnezia =
        conf(1, 2, "198.51.100.9:51820").replace("[Peer]", "Jc = 4\nJmin = 40\nJmax = 70\n[Peer]");
    assert!(spoilt(&amnezia).contains("AmneziaWG"));
    assert!(spoilt(&"x".repeat(100_000)).contains("longer than"));
}
