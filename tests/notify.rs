//! People are told: once a transition, in bounded time, whatever who is told does; and the journal is
//! told with fields.

use crate::dns_bench;

use dns_bench::server::{NameServer, Server};
use dns_bench::{LiveNode, Place, Reference, Serves, until};
use egressctl::host::notify::{tell, unusable};
use egressctl::names::PolicyName;
use egressctl::outcome::Report;
use egressctl::policy::notify::Sink;
use egressctl::time::Moment;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const FI: &str = "fi.example.org";
const SECRET: &str = "sekret-of-the-hook";

/// What a service does with a message.
#[derive(Clone, Copy)]
enum Does {
    Answers(&'static str),
    Closes,
    IsSlow,
}

const FINE: Does = Does::Answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");

/// A service on loopback, and what it was sent.
struct Service {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Service {
    fn new(does: Does) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let into = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let into = Arc::clone(&into);
                thread::spawn(move || serve(stream, does, &into));
            }
        });
        Self { port, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// A sink that tells it, whose address is in a file of `folder`.
    fn sink(&self, folder: &Path, more: &Value) -> Value {
        let file = folder.join(format!("{}.url", self.port));
        fs::write(&file, format!("http://127.0.0.1:{}/{SECRET}\n", self.port)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let mut hook = json!({ "url_file": file, "template": "ntfy", "timeout_sec": 1 });
        hook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "webhook": hook })
    }
}

/// Reads a whole request, notes it, and does what it is to do.
fn serve(mut stream: TcpStream, does: Does, into: &Mutex<Vec<String>>) {
    let mut text = String::new();
    let mut bytes = [0; 4096];
    loop {
        let n = stream.read(&mut bytes).unwrap_or(0);
        text += &String::from_utf8_lossy(&bytes[..n]);
        let head = text.find("\r\n\r\n").map(|at| at + 4);
        let length = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().ok())?
        });
        if n == 0 || head.is_some_and(|head| text.len() >= head + length.unwrap_or(0)) {
            break;
        }
    }
    into.lock().unwrap().push(text);
    match does {
        Does::Answers(answer) => drop(stream.write_all(answer.as_bytes())),
        Does::Closes => {}
        Does::IsSlow => thread::sleep(Duration::from_secs(30)),
    }
}

fn report() -> Report {
    let name = PolicyName::try_from("home".to_owned()).unwrap();
    let mut report = Report::new(&name, "pool", &Moment::epoch());
    report.from = Some("NORMAL".to_owned());
    report.to = Some("LOCAL_REPAIR".to_owned());
    report.because("slot-failed", "vpn3 silent for 2 checks")
}

fn sink(value: &Value) -> Sink {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn a_service_is_told_in_its_own_words() {
    let (service, folder) = (Service::new(FINE), tempfile::tempdir().unwrap());
    let token = folder.path().join("token");
    fs::write(&token, "tk_abc\n").unwrap();
    let told = sink(&service.sink(folder.path(), &json!({ "token_file": token })));
    assert_eq!(unusable(&told), None);
    tell(&told, &report(), "gw: home: NORMAL -> LOCAL_REPAIR").unwrap();
    let asked = service.asked();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].starts_with(&format!("POST /{SECRET} HTTP/1.1\r\n")), "{asked:?}");
    assert!(asked[0].to_lowercase().contains("authorization: bearer tk_abc\r\n"), "{asked:?}");
    assert!(asked[0].ends_with("\r\n\r\ngw: home: NORMAL -> LOCAL_REPAIR"), "{asked:?}");
}

#[test]
fn a_service_that_misbehaves_is_left_in_time_and_its_address_is_never_told() {
    let elsewhere = Service::new(FINE);
    let redirects = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:{}/\r\nContent-Length: 0\r\n\r\n",
        elsewhere.port
    );
    let redirects: &'static str = Box::leak(redirects.into_boxed_str());
    let folder = tempfile::tempdir().unwrap();
    for (does, said) in [
        (Does::IsSlow, "timed out"),
        (Does::Answers("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"), "it answered 500"),
        (Does::Answers("garbage\r\n\r\n"), "protocol"),
        (Does::Answers(redirects), "it answered 307, a redirect, which is not followed"),
        (Does::Closes, "protocol"),
    ] {
        let service = Service::new(does);
        let begun = Instant::now();
        let told = sink(&service.sink(folder.path(), &json!({})));
        let why = format!("{:#}", tell(&told, &report(), "x").unwrap_err());
        assert!(begun.elapsed() < Duration::from_secs(4), "{why}");
        assert!(
            why.contains(said) && why.starts_with("home was not told: ntfy webhook of "),
            "{why}"
        );
        assert!(!why.contains(SECRET) && !why.contains('\n'), "{why}");
        assert_eq!(service.asked().len(), 1, "it is asked once: {why}");
    }
    assert_eq!(elsewhere.asked().len(), 0, "a redirect is not followed");
    // Nobody listens; the file is empty, holds no address, is not there.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = folder.path().join("url");
    for text in
        [format!("http://127.0.0.1:{closed}/{SECRET}"), String::new(), format!("ftp://{SECRET}/")]
    {
        fs::write(&file, &text).unwrap();
        let told = sink(&json!({ "webhook": { "url_file": file, "template": "slack" } }));
        let why = format!("{:#}", tell(&told, &report(), "x").unwrap_err());
        assert!(!why.contains(SECRET), "{why}");
        assert_eq!(unusable(&told).is_some(), !text.starts_with("http:"), "{text}");
    }
    fs::remove_file(&file).unwrap();
    let told = sink(&json!({ "webhook": { "url_file": file, "template": "slack" } }));
    assert!(unusable(&told).is_some_and(|(why, _)| why.contains(file.to_str().unwrap())));
}

/// A program of a test's own.
fn program(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_program_is_told_by_its_input_and_its_environment() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let said =
        "{ cat; echo \"$1 $EGRESSCTL_TEXT|$EGRESSCTL_POLICY|$EGRESSCTL_FROM|$EGRESSCTL_TO\"; } >";
    let tells = program(folder.path(), "tell", &format!("{said}{}", out.display()));
    let told = sink(&json!({ "exec": [tells, "-a"] }));
    assert_eq!(unusable(&told), None);
    tell(&told, &report(), "gw: $(touch x) \"quoted\"").unwrap();
    let text = fs::read_to_string(&out).unwrap();
    let (object, words) = text.trim_end().split_once('\n').unwrap();
    let object: Value = serde_json::from_str(object).unwrap();
    assert_eq!(
        (&object["to"], &object["reasons"][0]["code"]),
        (&json!("LOCAL_REPAIR"), &json!("slot-failed"))
    );
    assert_eq!(words, "-a gw: $(touch x) \"quoted\"|home|NORMAL|LOCAL_REPAIR");
    let fails = program(folder.path(), "fails", "echo why >&2; exit 3");
    let why =
        format!("{:#}", tell(&sink(&json!({ "exec": [fails] })), &report(), "x").unwrap_err());
    assert!(why.contains("exit code 3: why"), "{why}");
    let missing = sink(&json!({ "exec": [folder.path().join("none")] }));
    assert!(unusable(&missing).is_some() && tell(&missing, &report(), "x").is_err());
}

/// A host name at a real server, two nodes, and who is told of them.
struct Story {
    place: Place,
    _server: NameServer,
    native: LiveNode,
    _fallback: LiveNode,
    _reference: Reference,
}

impl Story {
    fn new() -> Self {
        let (place, server) = (Place::new(), NameServer::new(Server::Knot));
        let native = LiveNode::new(41, 0, Serves::Tcp);
        let fallback = LiveNode::new(46, native.port, Serves::Tcp);
        let reference = Reference::new();
        let check = json!({ "tcp": { "port": native.port } });
        place.write(&json!({
            "kind": "dns",
            "driver": { "rfc2136": { "server": server.at().to_string(), "zone": "example.org",
                                     "key_file": server.folder.path().join("key") } },
            "nodes": { "fi": { "address": "127.0.0.41", "label": "HEL", "check": check },
                       "de": { "address": "127.0.0.46", "label": "FRA", "check": check } },
            "hosts": { FI: { "native": "fi", "fallbacks": ["de"], "ttl": 60 } },
            "reference": { "urls": [reference.url()] },
            "params": { "check_interval_sec": 0, "minimum_stay_sec": 600 },
        }));
        Self { place, _server: server, native, _fallback: fallback, _reference: reference }
    }

    fn site(&self, notify: &Value) {
        let text = json!({ "kind": "site", "notify": notify,
                           "textfile_dir": self.place.folder.path() });
        fs::write(self.place.path("policies/site.json"), text.to_string()).unwrap();
    }
}

#[test]
fn every_transition_is_told_once_and_who_cannot_be_told_fails_no_step() {
    let mut story = Story::new();
    let (service, slow) = (Service::new(FINE), Service::new(Does::IsSlow));
    let folder = story.place.folder.path().to_owned();
    let out = folder.join("out");
    let tells = program(&folder, "tell", &format!("echo \"$EGRESSCTL_TEXT\" >>{}", out.display()));
    let all = [
        json!({ "exec": [tells] }),
        service.sink(&folder, &json!({})),
        slow.sink(&folder, &json!({})),
    ];
    story.site(&json!(all));
    let told = || service.asked().len();
    let ran = story.place.step();
    assert_eq!((ran.code, ran.report()["to"].as_str()), (0, Some("NATIVE")), "{ran:?}");
    assert!(ran.stderr.contains("names was not told: ntfy webhook of "), "{ran:?}");
    assert!(ran.stderr.lines().count() == 1 && !ran.stderr.contains(SECRET), "{ran:?}");
    assert_eq!(told(), 1, "the first state is news");
    story.site(&json!(&all[..2]));
    for _ in 0..2 {
        let ran = story.place.step();
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    }
    assert_eq!(told(), 1, "what stays as it is, is no news");
    story.native.die();
    let states: Vec<String> =
        (0..3).map(|_| story.place.step().report()["to"].as_str().unwrap().to_owned()).collect();
    assert_eq!(states, ["NATIVE_FAILING", "FALLBACK", "FALLBACK"]);
    assert_eq!(told(), 3);
    story.place.run(&["plan"]);
    story.place.run(&["status"]);
    let refused = story.place.run(&["switch", "names", "nobody.example.org=de"]);
    assert_eq!((refused.code, told()), (2, 3), "these only look, and who is refused knows it");
    let lines = fs::read_to_string(&out).unwrap();
    assert_eq!(lines.lines().count(), 3, "{lines}");
    let last = lines.lines().last().unwrap();
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let begins = format!("{}: names: NATIVE_FAILING -> FALLBACK: ", machine.trim());
    assert!(last.starts_with(&begins), "{last}");
    assert!(!story.place.state_text().contains(SECRET));
    let metrics = fs::read_to_string(folder.join("egressctl.prom")).unwrap();
    assert!(
        metrics.contains(
            "egressctl_host_state{policy=\"names\",host=\"fi.example.org\",state=\"FALLBACK\"} 1\n"
        ),
        "{metrics}"
    );
    assert!(metrics.contains("egressctl_policy_valid{policy=\"names\"} 1\n"));
    let mode = fs::metadata(folder.join("egressctl.prom")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o644, "node_exporter runs as another user");
    // A file that was spoilt is told to Prometheus, too, and the last good policy goes on.
    fs::write(story.place.path("policies/names.json"), "{").unwrap();
    story.place.step();
    let metrics = fs::read_to_string(folder.join("egressctl.prom")).unwrap();
    assert!(metrics.contains("egressctl_policy_valid{policy=\"names\"} 0\n"), "{metrics}");
    assert!(metrics.contains("state=\"FALLBACK\"} 1\n"), "{metrics}");
    // So is one that never was any good.
    fs::write(story.place.path("policies/other.json"), "{").unwrap();
    story.place.step();
    let metrics = fs::read_to_string(folder.join("egressctl.prom")).unwrap();
    assert!(metrics.contains("egressctl_policy_valid{policy=\"other\"} 0\n"), "{metrics}");
    assert_eq!(told(), 3);
}

#[test]
fn a_trouble_that_lasts_is_told_once_and_again_when_it_comes_again() {
    let story = Story::new();
    let (service, folder) = (Service::new(FINE), story.place.folder.path().to_owned());
    story.site(&json!([service.sink(&folder, &json!({}))]));
    story.place.step();
    let told = || service.asked().len();
    assert_eq!(told(), 1);
    // The same policy in another folder would take over the state of this one.
    let moved = story.place.path("moved");
    fs::create_dir(&moved).unwrap();
    for file in ["names.json", "site.json"] {
        fs::copy(story.place.path("policies").join(file), moved.join(file)).unwrap();
    }
    let moved = moved.display().to_string();
    for times in 2..=3 {
        for _ in 0..3 {
            let ran = story.place.run(&["step", "--now", "--json", "--policy-dir", &moved]);
            let outcome = ran.report()["outcome"].as_str().map(str::to_owned);
            assert_eq!((ran.code, outcome.as_deref()), (1, Some("failed")), "{ran:?}");
        }
        assert_eq!(told(), times, "{:?}", service.asked());
        assert_eq!(story.place.step().code, 0);
        assert_eq!(told(), times, "that it is over is seen, and is no transition");
    }
    assert!(service.asked()[1].contains("belongs to"), "{:?}", service.asked());
}

#[test]
fn check_finds_what_keeps_people_from_hearing_of_it() {
    let story = Story::new();
    let folder = story.place.folder.path();
    let hook =
        |name: &str| json!({ "webhook": { "url_file": folder.join(name), "template": "slack" } });
    fs::write(folder.join("open"), format!("http://127.0.0.1:9/{SECRET}\n")).unwrap();
    fs::set_permissions(folder.join("open"), fs::Permissions::from_mode(0o644)).unwrap();
    let notify = json!([{ "exec": [folder.join("none")] }, hook("open"), hook("missing")]);
    let site = json!({ "kind": "site", "textfile_dir": folder.join("none"), "notify": notify });
    fs::write(story.place.path("policies/site.json"), site.to_string()).unwrap();
    let ran = story.place.run(&["check", "--json"]);
    let found = |code: &str| ran.stdout.matches(&format!("\"code\":\"{code}\"")).count();
    assert_eq!((found("textfile-dir"), found("notify")), (1, 2), "{ran:?}");
    assert!(
        ran.stdout.contains(&format!("{}/open can be read by other users", folder.display())),
        "{ran:?}"
    );
    assert!(
        ran.stdout.contains(&format!("install -d -m 755 {}/none", folder.display())),
        "{ran:?}"
    );
    assert!(!ran.stdout.contains(SECRET) && !ran.stderr.contains(SECRET), "{ran:?}");
    story.site(&json!([]));
    let ran = story.place.run(&["check", "--json"]);
    assert!(!ran.stdout.contains("\"notify\"") && !ran.stdout.contains("textfile-dir"), "{ran:?}");
}

/// Runs a step whose output goes to the journal, as systemd says it, and gives what it printed.
fn step_under_systemd(place: &Place, socket: &Path, args: &[&str]) -> (String, String) {
    let (out, err) = (place.path("stdout"), place.path("stderr"));
    let (output, errors) = (fs::File::create(&out).unwrap(), fs::File::create(&err).unwrap());
    let of = |file: &fs::File| {
        let seen = file.metadata().unwrap();
        format!("{}:{}", seen.dev(), seen.ino())
    };
    // systemd connects both to the same stream; here each is asked for in turn.
    let stream = if args.contains(&"none") { of(&errors) } else { of(&output) };
    let ran = Command::new(env!("CARGO_BIN_EXE_egressctl"))
        .args(["step", "--now"])
        .args(args)
        .env("EGRESSCTL_POLICY_DIR", place.path("policies"))
        .env("EGRESSCTL_STATE_DIR", place.path("state"))
        .env("EGRESSCTL_JOURNAL_SOCKET", socket)
        .env("JOURNAL_STREAM", stream)
        .stdout(Stdio::from(output))
        .stderr(Stdio::from(errors))
        .status()
        .unwrap();
    assert!(ran.code().is_some());
    (fs::read_to_string(out).unwrap(), fs::read_to_string(err).unwrap())
}

#[test]
fn the_journal_is_told_with_fields_and_else_with_a_priority() {
    let story = Story::new();
    let path = story.place.path("journal");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let (printed, _) = step_under_systemd(&story.place, &path, &["names"]);
    assert_eq!(printed, "", "the journal would have the line twice");
    let mut bytes = [0; 8192];
    let n = socket.recv(&mut bytes).unwrap();
    let entry = String::from_utf8(bytes[..n].to_vec()).unwrap();
    for field in [
        "PRIORITY=5",
        "POLICY=names",
        "KIND=dns",
        "TO=NATIVE",
        "SYSLOG_IDENTIFIER=egressctl",
        "STANDING=as-wished",
    ] {
        assert!(entry.lines().any(|line| line == field), "{field}: {entry}");
    }
    assert!(entry.starts_with("MESSAGE=names: none -> NATIVE"), "{entry}");
    assert!(socket.recv(&mut bytes).is_err(), "a line a step");
    // An object for a program stays where the program reads.
    let (printed, _) = step_under_systemd(&story.place, &path, &["names", "--json"]);
    assert!(printed.starts_with('{'), "{printed}");
    assert!(socket.recv(&mut bytes).is_err());
    drop(socket);
    let (printed, _) = step_under_systemd(&story.place, &path, &["names"]);
    assert!(printed.starts_with("<6>names: NATIVE"), "{printed}");
    let (_, errors) = step_under_systemd(&story.place, &path, &["none"]);
    assert!(errors.starts_with("<4>egressctl: policy "), "{errors}");
    let ran = story.place.run(&["step", "names", "--now"]);
    assert!(ran.stdout.starts_with("names: NATIVE"), "a person reads no priorities: {ran:?}");
    // A journal that takes nothing keeps nobody waiting.
    let full = story.place.path("full");
    let socket = UnixDatagram::bind(&full).unwrap();
    let fills = UnixDatagram::unbound().unwrap();
    fills.set_nonblocking(true).unwrap();
    until("the socket is full", || fills.send_to(&[0; 4096], &full).is_err());
    let (printed, _) = step_under_systemd(&story.place, &full, &["names"]);
    assert!(printed.starts_with("<6>names: NATIVE"), "{printed}");
    drop(socket);
}
