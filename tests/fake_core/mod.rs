//! A proxy core that behaves as told: the control API of sing-box or mihomo, on loopback or a unix socket.
//!
//! **Invariant:** what it was asked is written down in order, and it misbehaves only as it was told.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of the core")]

pub mod proxy;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a core does wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It accepts and never answers.
    Hangs,
    /// It answers with something that is not HTTP.
    Garbage,
    /// It breaks off in the middle of a body.
    BreaksOff,
    /// It answers everything with this status and body.
    Says(u16, &'static str),
    /// It takes a selection and does not make it.
    IgnoresSelections,
    /// It takes a selection and makes another.
    SelectsInstead(&'static str),
    /// It refuses selections with this status and message.
    RefusesSelections(u16, &'static str),
    /// It is gone right after it took a selection.
    DiesAtSelections,
}

/// What a core is and has.
#[derive(Clone, Debug)]
pub struct Core {
    pub version: Value,
    pub secret: Option<String>,
    /// Members and what is selected, by group.
    pub groups: BTreeMap<String, (Vec<String>, String)>,
    /// What replaces the answer about a name.
    pub odd: BTreeMap<String, Value>,
    pub received: u64,
    pub sent: u64,
    pub flows: Vec<Value>,
    /// What it measures of members; one that is not here fails.
    pub delays: BTreeMap<String, u64>,
    /// The group by which a member goes out: it is measured through what is selected there.
    pub detours: BTreeMap<String, String>,
    /// Members of the provider `sub/1`, which are not among the proxies.
    pub provided: Vec<String>,
    pub fault: Option<Fault>,
    /// Requests, as `PUT /proxies/x {"name":"y"}`.
    pub asked: Vec<String>,
}

impl Core {
    /// sing-box with one group.
    pub fn sing_box(group: &str, members: &[&str]) -> Self {
        let all: Vec<String> = members.iter().map(|member| (*member).to_owned()).collect();
        let now = all.first().cloned().unwrap_or_default();
        Self {
            version: json!({ "meta": true, "premium": true, "version": "sing-box 1.14.4" }),
            secret: None,
            groups: BTreeMap::from([(group.to_owned(), (all, now))]),
            odd: BTreeMap::new(),
            received: 1_000,
            sent: 500,
            flows: Vec::new(),
            delays: BTreeMap::new(),
            detours: BTreeMap::new(),
            provided: Vec::new(),
            fault: None,
            asked: Vec::new(),
        }
    }

    /// mihomo with one group.
    pub fn mihomo(group: &str, members: &[&str]) -> Self {
        let version = json!({ "meta": true, "version": "v1.19.12" });
        Self { version, ..Self::sing_box(group, members) }
    }

    /// What is selected in the group `name`.
    pub fn now(&self, name: &str) -> String {
        self.groups[name].1.clone()
    }

    /// A person selects, or the core begins with, another member.
    pub fn select(&mut self, group: &str, member: &str) {
        member.clone_into(&mut self.groups.get_mut(group).expect("the group is there").1);
    }

    /// The core begins anew and has forgotten what was selected.
    pub fn restart(&mut self) {
        (self.received, self.sent) = (0, 0);
        self.flows.clear();
        for (all, now) in self.groups.values_mut() {
            *now = all.first().cloned().unwrap_or_default();
        }
    }

    /// An open connection through these, from the member outwards.
    pub fn flow(&mut self, id: &str, chains: &[&str], received: u64) {
        self.flows.retain(|flow| flow["id"] != id);
        self.flows.push(json!({
            "id": id, "chains": chains, "download": received, "upload": 10, "start": "2026-01-01T00:00:00Z",
            "metadata": { "network": "tcp", "destinationPort": "443" }, "rule": "final", "rulePayload": ""
        }));
    }

    /// What is measured of a member, through what it goes out by.
    fn measured(&self, member: &str) -> Option<u64> {
        let own = *self.delays.get(member)?;
        match self.detours.get(member) {
            Some(group) => Some(own + self.measured(&self.now(group))?),
            None => Some(own),
        }
    }

    fn answer(&mut self, verb: &str, path: &str, authorization: Option<&str>, body: &str) -> Said {
        self.asked.push(format!("{verb} {path} {body}").trim_end().to_owned());
        match &self.fault {
            Some(Fault::Hangs) => return Said::Nothing,
            Some(Fault::Garbage) => return Said::Raw("\u{1}\u{2} no http\r\n\r\n"),
            Some(Fault::BreaksOff) => {
                return Said::Raw("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"version\":");
            }
            Some(Fault::Says(status, body)) => return Said::Json(*status, (*body).to_owned()),
            Some(
                Fault::IgnoresSelections
                | Fault::SelectsInstead(_)
                | Fault::RefusesSelections(..)
                | Fault::DiesAtSelections,
            )
            | None => {}
        }
        if let Some(secret) = &self.secret
            && authorization != Some(&format!("Bearer {secret}"))
        {
            return Said::message(401, "Unauthorized");
        }
        let missing = || Said::message(404, "Resource not found");
        match (verb, path.strip_prefix('/').unwrap_or_default().split_once('/')) {
            ("GET", None) if path == "/version" => Said::Json(200, self.version.to_string()),
            ("GET", None) if path == "/connections" => {
                // mihomo has null for none.
                let mihomo = !self.version["version"].as_str().unwrap_or("").contains("sing-box");
                let flows =
                    if self.flows.is_empty() && mihomo { Value::Null } else { json!(self.flows) };
                let all = json!({ "downloadTotal": self.received, "uploadTotal": self.sent,
                                  "connections": flows, "memory": 0 });
                Said::Json(200, all.to_string())
            }
            ("GET", Some(("providers", "proxies"))) => {
                let member = |name: &String| json!({ "name": name, "type": "Vless" });
                let own: Vec<Value> = self.odd.keys().map(member).collect();
                let all: Vec<Value> = self.provided.iter().map(member).collect();
                let providers = json!({ "providers": {
                    "default": { "vehicleType": "Compatible", "proxies": own },
                    "sub/1": { "vehicleType": "HTTP", "proxies": all } } });
                Said::Json(200, providers.to_string())
            }
            ("GET", Some(("providers", asked))) if asked.contains("/healthcheck?") => {
                let (path, rest) = asked.split_once("/healthcheck?").unwrap_or_default();
                let name = path.strip_prefix("proxies/sub%2F1/").map(decoded);
                match name.filter(|name| self.provided.contains(name)) {
                    Some(name) => self.delay(&name, rest),
                    None => missing(),
                }
            }
            ("GET", Some(("proxies", asked))) if asked.contains("/delay?") => {
                let (name, rest) = asked.split_once("/delay?").unwrap_or_default();
                let name = decoded(name);
                if self.provided.contains(&name) {
                    return missing();
                }
                self.delay(&name, rest)
            }
            ("GET", Some(("proxies", name))) => {
                let name = decoded(name);
                if let Some(odd) = self.odd.get(&name) {
                    return Said::Json(200, odd.to_string());
                }
                match self.groups.get(&name) {
                    Some((all, now)) => Said::Json(
                        200,
                        json!({ "type": "Selector", "name": name, "now": now, "all": all,
                                "udp": true, "history": [] })
                        .to_string(),
                    ),
                    None => missing(),
                }
            }
            ("PUT", Some(("proxies", name))) => self.selects(&decoded(name), body),
            ("DELETE", Some(("connections", id))) => {
                let id = decoded(id);
                self.flows.retain(|flow| flow["id"] != id.as_str());
                Said::Json(204, String::new())
            }
            _ => missing(),
        }
    }

    fn delay(&self, name: &str, rest: &str) -> Said {
        let timeout = rest.split_once("timeout=").and_then(|(_, ms)| ms.parse::<i16>().ok());
        match (self.measured(name), timeout) {
            (_, None | Some(i16::MIN..=0)) => Said::message(400, "Body invalid"),
            (Some(ms), Some(_)) => Said::Json(200, json!({ "delay": ms }).to_string()),
            (None, Some(_)) => Said::message(504, "Timeout"),
        }
    }

    fn selects(&mut self, name: &str, body: &str) -> Said {
        let Some((all, now)) = self.groups.get_mut(name) else {
            return Said::message(404, "Resource not found");
        };
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        let member = body["name"].as_str().unwrap_or_default().to_owned();
        if !all.contains(&member) {
            return Said::message(400, "Selector update error: not found");
        }
        match &self.fault {
            Some(Fault::IgnoresSelections) => {}
            Some(Fault::SelectsInstead(other)) => (*other).clone_into(now),
            Some(Fault::RefusesSelections(status, message)) => {
                return Said::message(*status, message);
            }
            Some(Fault::DiesAtSelections) => {
                *now = member;
                return Said::Dies;
            }
            _ => *now = member,
        }
        Said::Json(204, String::new())
    }
}

/// An answer.
enum Said {
    Json(u16, String),
    Raw(&'static str),
    Nothing,
    Dies,
}

impl Said {
    fn message(status: u16, message: &str) -> Self {
        Self::Json(status, json!({ "message": message }).to_string())
    }
}

/// A name from a path; a `+` stays one.
fn decoded(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let hex: String = rest.by_ref().take(2).map(char::from).collect();
            bytes.push(u8::from_str_radix(&hex, 16).expect("two digits after %"));
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).expect("names are UTF-8")
}

/// Where a core listens.
#[derive(Clone, Debug)]
enum At {
    Tcp(u16),
    Unix(PathBuf),
}

/// A running core.
#[derive(Debug)]
pub struct FakeCore {
    core: Arc<Mutex<Core>>,
    at: At,
    running: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl FakeCore {
    /// On a free port of loopback.
    pub fn start(core: Core) -> Self {
        let mut fake = Self { core: Arc::new(Mutex::new(core)), at: At::Tcp(0), running: None };
        fake.up();
        fake
    }

    /// On a unix socket.
    pub fn start_unix(core: Core, path: &Path) -> Self {
        let at = At::Unix(path.to_owned());
        let mut fake = Self { core: Arc::new(Mutex::new(core)), at, running: None };
        fake.up();
        fake
    }

    /// What it is and has, to be looked at and changed.
    pub fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("no thread panicked")
    }

    /// The same, for a thread that has to look at it.
    pub fn shared(&self) -> Arc<Mutex<Core>> {
        Arc::clone(&self.core)
    }

    /// Its address, `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        match &self.at {
            At::Tcp(port) => format!("http://127.0.0.1:{port}"),
            At::Unix(path) => panic!("it listens at {}", path.display()),
        }
    }

    /// Nobody listens any more.
    pub fn down(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            stop.store(true, Ordering::Relaxed);
            thread.join().expect("no thread panicked");
        }
        if let At::Unix(path) = &self.at {
            let _none = std::fs::remove_file(path);
        }
    }

    /// It listens again, at the same place.
    pub fn up(&mut self) {
        let stop = Arc::<AtomicBool>::default();
        let (core, stopped) = (Arc::clone(&self.core), Arc::clone(&stop));
        let thread = match &self.at {
            At::Tcp(port) => {
                let listener = TcpListener::bind(("127.0.0.1", *port)).expect("a port is free");
                self.at = At::Tcp(listener.local_addr().expect("it is bound").port());
                listener.set_nonblocking(true).expect("a socket may not block");
                std::thread::spawn(move || {
                    serve(&stopped, &core, || {
                        let (stream, _) = listener.accept().ok()?;
                        stream.set_nonblocking(false).ok()?;
                        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
                        Some(stream)
                    });
                })
            }
            At::Unix(path) => {
                let listener = UnixListener::bind(path).expect("a path is free");
                listener.set_nonblocking(true).expect("a socket may not block");
                std::thread::spawn(move || {
                    serve(&stopped, &core, || {
                        let (stream, _) = listener.accept().ok()?;
                        stream.set_nonblocking(false).ok()?;
                        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
                        Some(stream)
                    });
                })
            }
        };
        self.running = Some((stop, thread));
    }
}

impl Drop for FakeCore {
    fn drop(&mut self) {
        self.down();
    }
}

fn serve<S: Read + Write>(
    stop: &AtomicBool,
    core: &Mutex<Core>,
    mut accept: impl FnMut() -> Option<S>,
) {
    let mut hanging = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let Some(mut stream) = accept() else {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        let Some((head, body)) = request(&mut stream) else { continue };
        let mut words = head.split_whitespace();
        let (verb, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let authorization = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("authorization").then_some(value)
        });
        let said = core.lock().expect("no panic").answer(verb, path, authorization, &body);
        let text = match said {
            Said::Nothing => {
                hanging.push(stream);
                continue;
            }
            Said::Dies => return,
            Said::Raw(text) => text.to_owned(),
            // sing-box says of proxies that they are plain text.
            Said::Json(status, body) => format!(
                "HTTP/1.1 {status} Said\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            ),
        };
        let _gone = stream.write_all(text.as_bytes());
    }
}

fn request(stream: &mut impl Read) -> Option<(String, String)> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some((head, String::from_utf8_lossy(&body).into_owned()))
}
