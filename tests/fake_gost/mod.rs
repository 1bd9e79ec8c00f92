//! A gost that behaves as told: its web API on loopback, with the traps that the real one has.
//!
//! It answers 200 and no data for what it does not have, passes over what it does not understand in a
//! body and stores the rest, and reads a time in words as none.
//!
//! **Invariant:** what it was asked is written down in order, and it misbehaves only as it was told.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of the gost")]
#![allow(clippy::wildcard_enum_match_arm, reason = "what is no object is as it is")]

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a gost does wrong beside what every gost does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It accepts and never answers.
    Hangs,
    /// It says that it has stored what it has not.
    Ignores,
    /// It stores an empty object, as for a body that it cannot read.
    Empties,
    /// It stores what it is told without this key, the first time only.
    LosesOnce(&'static str),
    /// The same, every time.
    Loses(&'static str),
    /// It answers writes with this.
    Refuses(u16, &'static str),
    /// It stores and is gone before it answers.
    DiesAtWrites,
}

/// What a gost has.
#[derive(Clone, Debug)]
pub struct Gost {
    /// `Basic` and what the right credentials are in base64.
    pub authorization: String,
    pub chains: BTreeMap<String, Value>,
    pub hops: BTreeMap<String, Value>,
    pub services: BTreeMap<String, Value>,
    pub fault: Option<Fault>,
    /// Requests, as `PUT /config/hops/entry`, and their bodies.
    pub asked: Vec<(String, String)>,
}

impl Gost {
    /// The first node of a hop.
    pub fn first(&self, hop: &str) -> String {
        self.hops[hop]["nodes"][0]["name"].as_str().unwrap_or_default().to_owned()
    }

    /// Somebody puts this node first.
    pub fn select(&mut self, hop: &str, node: &str) {
        let nodes = self.hops.get_mut(hop).expect("a hop")["nodes"].as_array_mut().expect("nodes");
        nodes.sort_by_key(|known| known["name"] != node);
    }

    fn of(&mut self, what: &str) -> Option<&mut BTreeMap<String, Value>> {
        match what {
            "chains" => Some(&mut self.chains),
            "hops" => Some(&mut self.hops),
            "services" => Some(&mut self.services),
            _ => None,
        }
    }

    fn answer(&mut self, verb: &str, path: &str, authorization: Option<&str>, body: &str) -> Said {
        self.asked.push((format!("{verb} {path}"), body.to_owned()));
        let fault = self.fault.clone();
        if fault == Some(Fault::Hangs) {
            return Said::Nothing;
        }
        if authorization != Some(&self.authorization) {
            return Said::Json(401, json!({ "code": 401, "msg": "Unauthorized" }));
        }
        let mut words = path.trim_start_matches("/config/").splitn(2, '/');
        let (what, name) = (words.next().unwrap_or_default(), words.next());
        let Some(objects) = self.of(what) else { return Said::Json(404, Value::Null) };
        match (verb, name) {
            ("GET", None) => {
                let list: Vec<Value> = objects.values().cloned().collect();
                let list = if list.is_empty() { Value::Null } else { json!(list) };
                Said::Json(200, json!({ "data": { "count": objects.len(), "list": list } }))
            }
            // What it does not have is no error.
            ("GET", Some(name)) => Said::Json(200, json!({ "data": objects.get(name) })),
            ("PUT", Some(name)) => {
                if !objects.contains_key(name) {
                    let msg = format!("object {name} not found");
                    return Said::Json(400, json!({ "code": 40004, "msg": msg }));
                }
                let mut stored = as_it_reads(serde_json::from_str(body).unwrap_or_default());
                match &fault {
                    Some(Fault::Refuses(status, msg)) => {
                        return Said::Json(*status, json!({ "code": 40005, "msg": msg }));
                    }
                    Some(Fault::Ignores) => stored = objects[name].clone(),
                    Some(Fault::Empties) => stored = json!({}),
                    Some(Fault::LosesOnce(key) | Fault::Loses(key)) => {
                        stored.as_object_mut().map(|object| object.remove(*key));
                    }
                    Some(Fault::Hangs | Fault::DiesAtWrites) | None => {}
                }
                if let Some(stored) = stored.as_object_mut() {
                    stored.insert("name".to_owned(), json!(name));
                }
                objects.insert(name.to_owned(), stored);
                if matches!(fault, Some(Fault::LosesOnce(_))) {
                    self.fault = None;
                }
                match fault {
                    Some(Fault::DiesAtWrites) => Said::Dies,
                    _ => Said::Json(200, json!({ "msg": "OK" })),
                }
            }
            _ => Said::Json(405, Value::Null),
        }
    }
}

/// A body as gost reads it: a time that is no number is none, and no error is told.
fn as_it_reads(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let is_time = |key: &str| ["failTimeout", "timeout", "interval"].contains(&key);
            let kept = object.into_iter().filter(|(key, inner)| !is_time(key) || inner.is_u64());
            kept.map(|(key, inner)| (key, as_it_reads(inner)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
        Value::Array(items) => items.into_iter().map(as_it_reads).collect(),
        other => other,
    }
}

/// An answer.
enum Said {
    Json(u16, Value),
    Nothing,
    Dies,
}

/// A running gost.
#[derive(Debug)]
pub struct FakeGost {
    gost: Arc<Mutex<Gost>>,
    port: u16,
    running: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl FakeGost {
    /// On a free port of loopback.
    pub fn start(gost: Gost) -> Self {
        let mut fake = Self { gost: Arc::new(Mutex::new(gost)), port: 0, running: None };
        fake.up();
        fake
    }

    /// What it has, to be looked at and changed.
    pub fn gost(&self) -> MutexGuard<'_, Gost> {
        self.gost.lock().expect("no thread panicked")
    }

    /// The same, for a thread that has to look at it.
    pub fn shared(&self) -> Arc<Mutex<Gost>> {
        Arc::clone(&self.gost)
    }

    /// Its address, `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Nobody listens any more.
    pub fn down(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            stop.store(true, Ordering::Relaxed);
            thread.join().expect("no thread panicked");
        }
    }

    /// It listens again, at the same place.
    pub fn up(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).expect("a port is free");
        self.port = listener.local_addr().expect("it is bound").port();
        listener.set_nonblocking(true).expect("a socket may not block");
        let stop = Arc::<AtomicBool>::default();
        let (gost, stopped) = (Arc::clone(&self.gost), Arc::clone(&stop));
        let thread = std::thread::spawn(move || serve(&listener, &stopped, &gost));
        self.running = Some((stop, thread));
    }
}

impl Drop for FakeGost {
    fn drop(&mut self) {
        self.down();
    }
}

fn serve(listener: &TcpListener, stop: &AtomicBool, gost: &Mutex<Gost>) {
    let mut hanging = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
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
        let said = gost.lock().expect("no panic").answer(verb, path, authorization, &body);
        match said {
            Said::Nothing => hanging.push(stream),
            Said::Dies => return,
            Said::Json(status, body) => {
                let body = body.to_string();
                let length = body.len();
                let _gone = write!(
                    stream,
                    "HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
            }
        }
    }
}

fn request(stream: &mut TcpStream) -> Option<(String, String)> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
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
