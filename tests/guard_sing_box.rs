//! A guard with a real sing-box: a urltest group whose pick passes the core's own test and no request.
//!
//! Members are proxies of the test. Each lets the core's test through to a server with the certificate
//! of the page that sing-box measures by, and answers every other page itself, well or not.

use crate::measure::{MEASURED_BY, Program, free_port, head, measuring_server};
use egressctl::clash::sing_box::sing_box;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MEMBERS: [&str; 3] = ["de 1", "fi/1", "us1"];

/// A member: an HTTP proxy by which pages answer well or not.
struct Member {
    port: u16,
    passes: Arc<AtomicBool>,
}

impl Member {
    fn start(measured_at: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let passes = Arc::new(AtomicBool::new(true));
        let told = Arc::clone(&passes);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let passes = told.load(Ordering::SeqCst);
                std::thread::spawn(move || carry(stream, measured_at, passes));
            }
        });
        Self { port, passes }
    }
}

fn carry(mut stream: TcpStream, measured_at: u16, passes: bool) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let asked = head(&mut stream)?;
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    if asked.starts_with(&format!("CONNECT {MEASURED_BY}:443 ")) {
        let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, measured_at))?;
        let (mut from, mut to) = (server.try_clone()?, stream.try_clone()?);
        std::thread::spawn(move || {
            let _ended = std::io::copy(&mut from, &mut to);
            let _closed = to.shutdown(Shutdown::Write);
        });
        let _ended = std::io::copy(&mut stream, &mut server);
        return server.shutdown(Shutdown::Write);
    }
    head(&mut stream)?;
    stream.write_all(if passes {
        b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
    } else {
        b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nsign in"
    })
}

/// A sing-box with three members, a urltest group over them and a selector, and a guard of it.
struct Bench {
    folder: TempDir,
    members: Vec<Member>,
    control: u16,
    secret: &'static str,
    core: Option<Program>,
    _server: Program,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (server, measured_at) = measuring_server(&folder);
        let members: Vec<Member> = MEMBERS.iter().map(|_| Member::start(measured_at)).collect();
        let (control, proxy) = (free_port(), free_port());
        let outbound = |(name, member): (&&str, &Member)| json!({ "type": "http", "tag": name, "server": "127.0.0.1", "server_port": member.port });
        let mut outbounds: Vec<Value> = MEMBERS.iter().zip(&members).map(outbound).collect();
        let mut all = vec!["auto"];
        all.extend(MEMBERS);
        all.push("direct");
        outbounds.extend([
            json!({ "type": "urltest", "tag": "auto", "outbounds": MEMBERS, "interval": "1h", "idle_timeout": "2h",
                    "tolerance": 60_000 }),
            json!({ "type": "selector", "tag": "select", "outbounds": all, "default": "auto" }),
            json!({ "type": "direct", "tag": "direct" }),
        ]);
        let config = json!({
            "log": { "level": "error" },
            "inbounds": [{ "type": "mixed", "tag": "in", "listen": "127.0.0.1", "listen_port": proxy }],
            "outbounds": outbounds,
            "route": { "final": "select" },
            "experimental": { "clash_api": {
                "external_controller": format!("127.0.0.1:{control}"), "secret": "a-secret" } },
        });
        let policy = json!({
            "kind": "guard",
            "driver": { "clash": { "url": format!("http://127.0.0.1:{control}"),
                                   "secret_file": folder.path().join("secret") } },
            "group": "select", "automatic": "auto", "proxy": format!("socks5h://127.0.0.1:{proxy}"),
            "probe": { "urls": ["http://pages.example/generate_204"], "timeout_sec": 3 },
            "params": { "check_interval_sec": 0, "observe_passes": 2, "backoff_min_sec": 0, "backoff_max_sec": 0,
                        "give_back_max_sec": 0 },
        });
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        std::fs::write(folder.path().join("secret"), "a-secret\n").unwrap();
        std::fs::create_dir(folder.path().join("policies")).unwrap();
        let desktop = folder.path().join("home/.config/dconf");
        std::fs::create_dir_all(&desktop).unwrap();
        std::fs::write(desktop.join("user"), "[system/proxy]\nmode='manual'\n").unwrap();
        std::fs::write(folder.path().join("policies/home.json"), policy.to_string()).unwrap();
        let mut bench =
            Self { folder, members, control, secret: "a-secret", core: None, _server: server };
        bench.up();
        bench
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("config.json")
    }

    /// What this one is told from others by that run beside it.
    fn name(&self) -> String {
        format!("sing-box-{}", self.folder.path().file_name().unwrap().display())
    }

    /// sing-box begins, and answers when this returns.
    fn up(&mut self) {
        self.core = None;
        let mut command = Command::new("sing-box");
        command.arg0(self.name()).arg("run").args(["-D", ".", "-c", "config.json"]);
        if self.folder.path().join("more.json").exists() {
            command.arg("-cmore.json");
        }
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("SSL_CERT_FILE", self.folder.path().join("cert.pem"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.core =
            Some(Program(command.spawn().expect("sing-box is there: tests/run installs it")));
        let begun = Instant::now();
        // Its own first test of the members decides what the group uses.
        let is_tested = |proxies: &Value| {
            let history = |name: &str| proxies["proxies"][name]["history"].as_array().map(Vec::len);
            MEMBERS.into_iter().all(|name| history(name) > Some(0))
        };
        while !self.ask("GET", "/proxies", "").is_some_and(|proxies| is_tested(&proxies)) {
            assert!(begun.elapsed() < Duration::from_secs(30), "sing-box does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What a person asks of the core's control API.
    fn ask(&self, verb: &str, path: &str, body: &str) -> Option<Value> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, self.control));
        let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(1)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        let length = body.len();
        let secret = self.secret;
        write!(stream, "{verb} {path} HTTP/1.0\r\nAuthorization: Bearer {secret}\r\nContent-Length: {length}\r\n\r\n{body}").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (_, body) = text.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    /// All files of the user but the state, with what is in them: the core's, and what desktops and
    /// shells take the system's proxy from.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut all = BTreeMap::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true if path.ends_with("state") => {}
                    true => folders.push(path),
                    false => drop(all.insert(path.clone(), std::fs::read(path).unwrap())),
                }
            }
        }
        let system = ["/etc/environment", "/etc/profile", "/etc/wgetrc"].map(PathBuf::from);
        all.extend(
            system.into_iter().filter_map(|path| Some((path.clone(), std::fs::read(path).ok()?))),
        );
        all
    }

    fn now(&self, group: &str) -> String {
        let shown = self.ask("GET", &format!("/proxies/{group}"), "").unwrap();
        shown["now"].as_str().unwrap().to_owned()
    }

    fn select(&self, member: &str) {
        self.ask("PUT", "/proxies/select", &json!({ "name": member }).to_string());
        assert_eq!(self.now("select"), member);
    }

    /// Requests pass by a member, or they do not.
    fn passes(&self, member: &str, passes: bool) {
        let place = MEMBERS.iter().position(|name| *name == member).unwrap();
        self.members[place].passes.store(passes, Ordering::SeqCst);
    }

    /// Exit code, transition, and the code of the last reason.
    fn step(&self) -> (i32, String, String) {
        let output = self.run(&["step", "home", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let word = |key: &str| report[key].as_str().unwrap_or("-").to_owned();
        let reasons = report["reasons"].as_array().unwrap();
        let last = reasons.last().unwrap()["code"].as_str().unwrap().to_owned();
        (output.status.code().unwrap(), format!("{} -> {}", word("from"), word("to")), last)
    }

    fn run(&self, args: &[&str]) -> std::process::Output {
        Command::new(env!("CARGO_BIN_EXE_egressctl"))
            .env_clear()
            .env("HOME", self.folder.path().join("home"))
            .arg("--policy-dir")
            .arg(self.folder.path().join("policies"))
            .arg("--state-dir")
            .arg(self.folder.path().join("state"))
            .args(args)
            .output()
            .unwrap()
    }

    /// The core is found by the name of its program, and all else in the files that it was told.
    fn is_found_by(&self, name: &str) {
        let path = self.folder.path().join("policies/home.json");
        let mut policy: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        policy["driver"]["clash"] = json!({ "process": name });
        for key in ["group", "automatic", "proxy"] {
            policy[key] = Value::Null;
        }
        std::fs::write(path, policy.to_string()).unwrap();
    }

    /// The configuration in two files, of which sing-box makes one, with another port and secret.
    fn moves(&mut self) {
        let mut config: Value =
            serde_json::from_slice(&std::fs::read(self.config()).unwrap()).unwrap();
        (self.control, self.secret) = (free_port(), "another-secret");
        config["inbounds"][0]["listen_port"] = json!(free_port());
        let api = &mut config["experimental"]["clash_api"];
        *api = json!({ "external_controller": format!("127.0.0.1:{}", self.control) });
        std::fs::write(self.config(), config.to_string()).unwrap();
        let more = json!({ "experimental": { "clash_api": { "secret": self.secret, "external_controller": "127.0.0.1:1" } } });
        std::fs::write(self.folder.path().join("more.json"), format!("{more} // done")).unwrap();
    }

    /// A member stands in for the group, by whose pick no request passes.
    fn takes_over(&self) -> String {
        assert_eq!(self.step(), went(0, "- -> AUTO", "found"));
        assert_eq!(self.step(), went(0, "AUTO -> AUTO", "all-well"));
        let pick = self.now("auto");
        self.passes(&pick, false);
        assert_eq!(self.step(), went(0, "AUTO -> SUSPECT", "round-fails"));
        assert_eq!(self.step(), went(0, "SUSPECT -> TEMPORARY", "took-over"));
        let member = self.now("select");
        assert!(MEMBERS.contains(&member.as_str()) && member != pick, "{member}");
        pick
    }
}

fn went(code: i32, transition: &str, why: &str) -> (i32, String, String) {
    (code, transition.to_owned(), why.to_owned())
}

#[test]
fn a_member_stands_in_until_requests_pass_by_the_group_and_nothing_else_is_changed() {
    let bench = Bench::new();
    let before = bench.files();
    let pid = bench.core.as_ref().unwrap().0.id();
    let pick = bench.takes_over();
    let member = bench.now("select");
    // The core still believes in its pick, and a real request does not.
    assert_eq!(bench.step(), went(0, "TEMPORARY -> OBSERVING", "group-answers"));
    assert_eq!(bench.now("auto"), pick, "measuring it has not flipped the group");
    assert_eq!(bench.step(), went(3, "OBSERVING -> TEMPORARY", "trial-failed"));
    assert_eq!(bench.now("select"), member);
    bench.passes(&pick, true);
    assert_eq!(bench.step(), went(0, "TEMPORARY -> OBSERVING", "group-answers"));
    assert_eq!(bench.step(), went(0, "OBSERVING -> AUTO", "given-back"));
    assert_eq!(bench.now("select"), "auto");
    assert_eq!(bench.files(), before);
    assert_eq!(bench.core.as_ref().unwrap().0.id(), pid);
    let answer = bench.ask("GET", "/proxies/auto", "").unwrap();
    assert_eq!(answer["now"], pick.as_str());
}

#[test]
fn nobody_passes_and_the_group_is_in_charge_as_before() {
    let bench = Bench::new();
    bench.takes_over();
    for member in MEMBERS {
        bench.passes(member, false);
    }
    assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY", "round-fails"));
    assert_eq!(bench.step(), went(3, "TEMPORARY -> SUSPECT", "no-member-passes"));
    assert_eq!(bench.now("select"), "auto");
}

#[test]
fn a_persons_choice_stands_and_what_a_restart_lost_is_selected_again() {
    let mut bench = Bench::new();
    bench.takes_over();
    let ours = bench.now("select");
    bench.core = None;
    assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY", "core-down"));
    bench.up();
    assert_eq!(bench.now("select"), "auto", "it has forgotten");
    assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY", "choice-lost"));
    assert_eq!(bench.now("select"), ours);
    let other = MEMBERS.into_iter().find(|name| *name != ours).unwrap();
    bench.select(other);
    assert_eq!(bench.step(), went(0, "TEMPORARY -> MANUAL", "persons-choice"));
    for member in MEMBERS {
        bench.passes(member, false);
    }
    assert_eq!(bench.step(), went(0, "MANUAL -> MANUAL", "settling"));
    for _ in 0..3 {
        assert_eq!(bench.step(), went(0, "MANUAL -> MANUAL", "persons-member-fails"));
    }
    assert_eq!(bench.now("select"), other);
    bench.select("auto");
    assert_eq!(bench.step(), went(0, "MANUAL -> AUTO", "handed-back"));
}

#[test]
fn a_core_that_comes_back_at_another_port_with_another_secret_is_found_by_its_process() {
    let mut bench = Bench::new();
    bench.is_found_by(&bench.name());
    bench.takes_over();
    let ours = bench.now("select");
    bench.core = None;
    assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY", "core-down"));
    bench.moves();
    bench.up();
    let files = [bench.config(), bench.folder.path().join("more.json")];
    let before = files.each_ref().map(|path| std::fs::read(path).unwrap());
    assert_eq!(bench.now("select"), "auto", "it has forgotten");
    assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY", "choice-lost"));
    assert_eq!(bench.now("select"), ours);
    assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY", "settling"));
    assert_eq!(bench.step(), went(0, "TEMPORARY -> OBSERVING", "group-answers"));
    assert_eq!(files.each_ref().map(|path| std::fs::read(path).unwrap()), before);
}

#[test]
fn a_check_reads_what_the_core_that_answers_was_told() {
    let mut bench = Bench::new();
    let told = |bench: &Bench| {
        let output = bench.run(&["check", "home", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = report["findings"].as_array().unwrap().clone().into_iter();
        let word = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
        let core = all.filter(|finding| {
            let code = finding["code"].as_str().unwrap();
            code.starts_with("core-") || code.starts_with("choices-")
        });
        core.map(|finding| (word(&finding, "code"), word(&finding, "what"))).collect::<Vec<_>>()
    };
    let read_in = bench.config().display().to_string();
    let forgets = (
        "choices-forgotten".to_owned(),
        format!("sing-box at {read_in} keeps no choice over a restart"),
    );
    assert_eq!(told(&bench), std::slice::from_ref(&forgets));
    bench.core = None;
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(bench.config()).unwrap()).unwrap();
    let listens = format!("0.0.0.0:{}", bench.control);
    config["experimental"]["clash_api"] = json!({ "external_controller": listens });
    std::fs::write(bench.config(), config.to_string()).unwrap();
    bench.up();
    let open = format!("sing-box listens for control at {listens} without a secret");
    assert_eq!(told(&bench), [("core-open".to_owned(), open), forgets]);
}

#[test]
fn several_files_are_read_as_the_real_sing_box_merges_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let api = |secret: &str, port: u16| json!({ "clash_api": { "secret": secret, "external_controller": format!("127.0.0.1:{port}") } });
    let group =
        |kind: &str, tag: &str, of: &str| json!({ "type": kind, "tag": tag, "outbounds": [of] });
    let first =
        json!({ "experimental": api("first", 1), "outbounds": [group("selector", "s", "auto")] });
    let second = json!({ "experimental": api("second", 2), "outbounds": [group("urltest", "auto", "d"), { "type": "direct", "tag": "d" }],
                         "route": { "final": "s" } });
    std::fs::write(at("1.json"), format!("{first}\n# sing-box takes this")).unwrap();
    std::fs::write(at("2.json"), second.to_string()).unwrap();
    let merged = Command::new("sing-box")
        .arg("merge")
        .arg(at("all.json"))
        .arg("-c")
        .arg(at("2.json"))
        .arg("-c")
        .arg(at("1.json"))
        .output()
        .unwrap();
    assert!(merged.status.success(), "{merged:?}");
    let text =
        |name: &str| (at(name).display().to_string(), std::fs::read_to_string(at(name)).unwrap());
    let of = |texts: &[(String, String)]| sing_box("here".to_owned(), texts).unwrap();
    assert_eq!(of(&[text("2.json"), text("1.json")]), of(&[text("all.json")]));
}
