//! The provider's list over HTTP: what it says now, and who asked for it.
//!
//! **Invariant:** a request is noted with where it came from before anything is said to it.

use super::{names, provider, web};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Cursor, Write as _};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// How often a server that drips says something.
const DRIP: Duration = Duration::from_millis(100);

/// What is said to who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// Candidates `pK` of these endpoints, as JSON.
    Lists(BTreeSet<usize>),
    /// The same as a zip of wg-quick files.
    Zips(BTreeSet<usize>),
    /// The first half of that JSON, although its length promises all of it.
    Breaks(BTreeSet<usize>),
    /// This text, whatever it is.
    Text(String),
    /// Status 429 and `Retry-After` with so many seconds.
    Refuses(u64),
    /// Just these bytes, head and all.
    Raw(Vec<u8>),
    /// The head of a long answer, then a byte of it now and then.
    Drips,
    /// Nothing: the connection is closed.
    Hangs,
}

/// By which way a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// From the gateway's own WAN.
    Wan,
    /// Out of the tunnel of this endpoint.
    Endpoint(usize),
    /// From anybody else.
    Other(IpAddr),
}

struct Now {
    says: Says,
    /// Whom it hears: by which endpoints; nobody is left out when there are none.
    only: Option<BTreeSet<usize>>,
    asked: Vec<By>,
    act: Option<Box<dyn FnOnce() + Send>>,
}

/// The provider's list; a clone is the same one.
#[derive(Clone)]
pub struct Source {
    now: Arc<Mutex<Now>>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let now = self.now();
        write!(f, "{:?}, asked by {:?}", now.says, now.asked)
    }
}

/// What a policy names the list by; nobody waits long for it.
pub fn by_http() -> Value {
    let url = format!("http://{}:{}/list", names::SOURCE, names::SOURCE_PORT);
    json!({ "http": { "url": url, "timeout_sec": 1 } })
}

/// Endpoints `from` to `to`, both included.
pub fn endpoints(from: usize, to: usize) -> BTreeSet<usize> {
    (from..=to).collect()
}

impl Source {
    /// One that lists all endpoints from 1 to `count`.
    pub fn new(count: usize) -> Self {
        let says = Says::Lists(endpoints(1, count));
        let now = Now { says, only: None, asked: Vec::new(), act: None };
        Self { now: Arc::new(Mutex::new(now)) }
    }

    /// From now on this is said to everybody.
    pub fn says(&self, says: Says) {
        let mut now = self.now();
        now.says = says;
        now.only = None;
    }

    /// From now on only who comes out of the tunnels of these endpoints is heard.
    pub fn hears_only(&self, endpoints: impl IntoIterator<Item = usize>) {
        self.now().only = Some(endpoints.into_iter().collect());
    }

    /// Does something once, when the list is asked for the next time; the answer comes after it.
    pub fn when_asked(&self, act: impl FnOnce() + Send + 'static) {
        self.now().act = Some(Box::new(act));
    }

    /// By which ways it was asked since this was looked at last.
    pub fn asked(&self) -> Vec<By> {
        std::mem::take(&mut self.now().asked)
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().expect("no thread panicked")
    }

    /// Answers one request.
    pub fn talk(&self, mut stream: TcpStream, from: IpAddr, stop: &AtomicBool) {
        if web::path(&mut stream, stop).is_none() {
            return;
        }
        let by = match names::endpoint_of(&from.to_string()) {
            Some(k) => By::Endpoint(k),
            None if from == IpAddr::from(names::WAN) => By::Wan,
            None => By::Other(from),
        };
        let (says, act) = {
            let mut now = self.now();
            now.asked.push(by);
            let heard = now.only.as_ref().is_none_or(|only| match by {
                By::Endpoint(k) => only.contains(&k),
                By::Wan | By::Other(_) => false,
            });
            (if heard { now.says.clone() } else { Says::Hangs }, now.act.take())
        };
        if let Some(act) = act {
            act();
        }
        let bytes = says.bytes();
        if !bytes.is_empty() {
            let mut open = web::send(&mut stream, &bytes, stop);
            while open && says == Says::Drips {
                std::thread::sleep(DRIP);
                open = !stop.load(Ordering::Relaxed) && web::send(&mut stream, b" ", stop);
            }
        }
    }
}

/// The text of a list of these endpoints, in the common shape.
pub fn text(endpoints: &BTreeSet<usize>) -> String {
    let entry = |k: &usize| json!({ "name": format!("p{k}"), "config": provider::config(*k) });
    Value::from(endpoints.iter().map(entry).collect::<Vec<_>>()).to_string()
}

impl Says {
    /// The whole answer.
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Lists(endpoints) => good("application/json", text(endpoints).as_bytes()),
            Self::Text(text) => good("application/json", text.as_bytes()),
            Self::Zips(endpoints) => good("application/zip", &zipped(endpoints)),
            Self::Breaks(endpoints) => {
                let body = text(endpoints);
                let whole = good("application/json", body.as_bytes());
                whole[..whole.len() - body.len() / 2].to_vec()
            }
            Self::Refuses(seconds) => format!(
                "HTTP/1.1 429 Too Many Requests\r\nRetry-After: {seconds}\r\nContent-Length: 0\r\n\
                 Connection: close\r\n\r\n"
            )
            .into_bytes(),
            Self::Raw(bytes) => bytes.clone(),
            Self::Drips => b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n[".to_vec(),
            Self::Hangs => Vec::new(),
        }
    }
}

/// A good answer of a kind.
pub fn good(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A zip of wg-quick files of these endpoints.
pub fn zipped(endpoints: &BTreeSet<usize>) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for k in endpoints {
        let name = format!("configs/p{k}.conf");
        zip.start_file(name, SimpleFileOptions::default()).expect("a zip takes a file");
        zip.write_all(provider::config(*k).as_bytes()).expect("memory takes it");
    }
    zip.finish().expect("memory takes it").into_inner()
}
