//! A chain with a real sing-box: two hops of HTTP proxies, each member of the second going out by the
//! selector of the first.
//!
//! **Invariant:** a node of the second hop is reached by a node of the first and no other way, and the
//! test counts who reached it.

use crate::measure::{MEASURED_BY, Program, free_port, head, measuring_server};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NODES: [&str; 4] = ["a1", "a2", "b1", "b2"];

/// How a node behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It forwards.
    Well = 0,
    /// It closes every connection.
    Dead = 1,
    /// It reaches the web, and forwards nothing to another node.
    ForwardsNothing = 2,
}

/// A node: an HTTP proxy.
struct Node {
    port: u16,
    way: Arc<AtomicU8>,
    /// How many requests of clients it has carried.
    carried: Arc<AtomicUsize>,
}

impl Node {
    fn start(measured_at: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (way, carried) = (Arc::new(AtomicU8::new(0)), Arc::<AtomicUsize>::default());
        let (told, count) = (Arc::clone(&way), Arc::clone(&carried));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let way = told.load(Ordering::SeqCst);
                if way == Way::Dead as u8 {
                    continue;
                }
                let count = Arc::clone(&count);
                std::thread::spawn(move || carry(stream, measured_at, way, &count));
            }
        });
        Self { port, way, carried }
    }
}

fn carry(
    mut stream: TcpStream,
    measured_at: u16,
    way: u8,
    carried: &AtomicUsize,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let asked = head(&mut stream)?;
    let place = asked.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let to = match place.split_once(':') {
        Some((MEASURED_BY, _)) => measured_at,
        Some(("127.0.0.1", port)) if way != Way::ForwardsNothing as u8 => port.parse().unwrap(),
        Some(("127.0.0.1", _)) => return Ok(()),
        // A client's page, which is answered here.
        _ => {
            carried.fetch_add(1, Ordering::SeqCst);
            stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            head(&mut stream)?;
            return stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        }
    };
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, to))?;
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (mut from, mut back) = (server.try_clone()?, stream.try_clone()?);
    std::thread::spawn(move || {
        let _ended = std::io::copy(&mut from, &mut back);
        let _closed = back.shutdown(Shutdown::Write);
    });
    let _ended = std::io::copy(&mut stream, &mut server);
    server.shutdown(Shutdown::Write)
}

/// A sing-box with two hops of two nodes each, and a chain of it.
struct Bench {
    folder: TempDir,
    nodes: Vec<Node>,
    control: u16,
    proxy: u16,
    core: Option<Program>,
    _server: Program,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (server, measured_at) = measuring_server(&folder);
        let nodes: Vec<Node> = NODES.iter().map(|_| Node::start(measured_at)).collect();
        let (control, proxy) = (free_port(), free_port());
        let mut outbounds = vec![
            json!({ "type": "selector", "tag": "entry", "outbounds": ["a1", "a2"] }),
            json!({ "type": "selector", "tag": "exit", "outbounds": ["b1", "b2"] }),
        ];
        for (name, node) in NODES.iter().zip(&nodes) {
            let mut outbound = json!({ "type": "http", "tag": name, "server": "127.0.0.1", "server_port": node.port });
            if name.starts_with('b') {
                outbound["detour"] = json!("entry");
            }
            outbounds.push(outbound);
        }
        let config = json!({
            "log": { "level": "error" },
            "inbounds": [{ "type": "mixed", "tag": "in", "listen": "127.0.0.1", "listen_port": proxy }],
            "outbounds": outbounds,
            "route": { "final": "exit" },
            "experimental": { "clash_api": {
                "external_controller": format!("127.0.0.1:{control}"), "secret": "a-secret" } },
        });
        let policy = json!({
            "kind": "chain",
            "driver": { "clash": { "url": format!("http://127.0.0.1:{control}"),
                                   "secret_file": folder.path().join("secret"),
                                   "proxy": format!("socks5h://127.0.0.1:{proxy}") } },
            "hops": [
                { "name": "entry", "nodes": { "a1": {}, "a2": {} } },
                { "name": "exit", "nodes": { "b1": {}, "b2": {} } },
            ],
            "probe": { "urls": ["http://pages.example/generate_204"], "timeout_sec": 3 },
            "wan": null,
            "params": { "check_interval_sec": 0, "minimum_stay_sec": 0, "fail_timeout_sec": 1, "rise": 1 },
        });
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        std::fs::write(folder.path().join("secret"), "a-secret\n").unwrap();
        std::fs::create_dir(folder.path().join("policies")).unwrap();
        std::fs::write(folder.path().join("policies/path.json"), policy.to_string()).unwrap();
        let mut bench = Self { folder, nodes, control, proxy, core: None, _server: server };
        bench.up();
        bench
    }

    /// sing-box begins, and answers when this returns.
    fn up(&mut self) {
        self.core = None;
        let mut command = Command::new("sing-box");
        command.args(["run", "-c"]).arg(self.folder.path().join("config.json"));
        command.env("SSL_CERT_FILE", self.folder.path().join("cert.pem"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.core =
            Some(Program(command.spawn().expect("sing-box is there: tests/run installs it")));
        let begun = Instant::now();
        while self.ask("GET", "/proxies/exit", "").is_none() {
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
        write!(stream, "{verb} {path} HTTP/1.0\r\nAuthorization: Bearer a-secret\r\nContent-Length: {length}\r\n\r\n{body}").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (_, body) = text.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    fn now(&self) -> [String; 2] {
        ["entry", "exit"].map(|group| {
            let shown = self.ask("GET", &format!("/proxies/{group}"), "").unwrap();
            shown["now"].as_str().unwrap().to_owned()
        })
    }

    fn node(&self, name: &str) -> &Node {
        &self.nodes[NODES.iter().position(|node| *node == name).unwrap()]
    }

    fn is(&self, name: &str, way: Way) {
        self.node(name).way.store(way as u8, Ordering::SeqCst);
    }

    /// A client asks for a page, and learns by which node it left.
    fn client(&self) -> Option<&'static str> {
        let counts = || self.nodes.iter().map(|node| node.carried.load(Ordering::SeqCst));
        let before: Vec<usize> = counts().collect();
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, self.proxy));
        let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(1)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream
            .write_all(b"CONNECT pages.example:80 HTTP/1.1\r\nHost: pages.example\r\n\r\n")
            .ok()?;
        head(&mut stream).ok()?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: pages.example\r\n\r\n").ok()?;
        head(&mut stream).ok().filter(|head| head.contains("204"))?;
        let after = counts().zip(&before).position(|(after, before)| after > *before);
        after.map(|place| NODES[place])
    }

    /// Exit code, where it stands, and the code of the last reason.
    fn step(&self) -> (i32, String, String) {
        let output = self.run(&["step", "path", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let reasons = report["reasons"].as_array().unwrap();
        let last = reasons.last().unwrap()["code"].as_str().unwrap().to_owned();
        let to = report["to"].as_str().unwrap_or("-").to_owned();
        (output.status.code().unwrap(), to, last)
    }

    fn run(&self, args: &[&str]) -> std::process::Output {
        Command::new(env!("CARGO_BIN_EXE_egressctl"))
            .env_clear()
            .arg("--policy-dir")
            .arg(self.folder.path().join("policies"))
            .arg("--state-dir")
            .arg(self.folder.path().join("state"))
            .args(args)
            .output()
            .unwrap()
    }
}

fn went(code: i32, to: &str, why: &str) -> (i32, String, String) {
    (code, to.to_owned(), why.to_owned())
}

const PREFERRED: &str = "entry PREFERRED, exit PREFERRED";

#[test]
fn each_node_dies_in_turn_and_clients_are_served_within_the_step_that_sees_it() {
    let bench = Bench::new();
    assert_eq!(bench.step(), went(0, PREFERRED, "all-well"));
    assert_eq!(bench.client(), Some("b1"));
    for (node, stands, seats) in [
        ("b1", "entry PREFERRED, exit BACKUP", ["a1", "b2"]),
        ("a1", "entry BACKUP, exit PREFERRED", ["a2", "b1"]),
    ] {
        bench.is(node, Way::Dead);
        assert_eq!(bench.client(), None);
        assert_eq!(bench.step(), went(0, stands, "replaced"), "{node}");
        assert_eq!(bench.now(), seats);
        assert_eq!(bench.client(), Some(seats[1]), "served, and by the last hop");
        bench.is(node, Way::Well);
        let begun = Instant::now();
        while bench.step() != went(0, PREFERRED, "returned") {
            assert!(begun.elapsed() < Duration::from_secs(30), "{node} is not returned to");
            assert!(bench.client().is_some(), "served all the while");
        }
        assert_eq!(bench.now(), ["a1", "b1"]);
    }
}

#[test]
fn a_node_that_forwards_nothing_is_replaced_and_not_the_one_behind_it() {
    let bench = Bench::new();
    bench.step();
    bench.is("a1", Way::ForwardsNothing);
    assert_eq!(bench.client(), None);
    assert_eq!(bench.step(), went(0, "entry BACKUP, exit PREFERRED", "replaced"));
    assert_eq!((bench.now(), bench.client()), (["a2", "b1"].map(str::to_owned), Some("b1")));
}

#[test]
fn a_hop_of_dead_nodes_lets_nobody_past_it_and_serves_again_within_a_step() {
    let bench = Bench::new();
    bench.step();
    for node in ["b1", "b2"] {
        bench.is(node, Way::Dead);
    }
    assert_eq!(bench.step(), went(3, "entry PREFERRED, exit CLOSED", "closed"));
    assert_eq!((bench.now(), bench.client()), (["a1", "b1"].map(str::to_owned), None));
    for node in ["a1", "a2"] {
        let carried = bench.node(node).carried.load(Ordering::SeqCst);
        assert_eq!(carried, 0, "{node} has let a client out past the exit");
    }
    let output = bench.run(&["status", "path", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &status["path"]["breaks_at"]), (Some(2), &json!("exit")));
    bench.is("b2", Way::Well);
    assert_eq!(bench.step(), went(0, "entry PREFERRED, exit BACKUP", "replaced"));
    assert_eq!(bench.client(), Some("b2"));
}

#[test]
fn a_restarted_core_gets_its_choices_again() {
    let mut bench = Bench::new();
    bench.step();
    bench.is("b1", Way::Dead);
    bench.step();
    bench.core = None;
    assert_eq!(bench.step().2, "core-down");
    bench.up();
    assert_eq!(bench.now(), ["a1", "b1"], "it has forgotten");
    assert_eq!(bench.step().2, "choice-lost");
    assert_eq!((bench.now(), bench.client()), (["a1", "b2"].map(str::to_owned), Some("b2")));
}
