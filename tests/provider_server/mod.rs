//! A provider on a port of this machine that says what a test tells it to.
//!
//! **Invariant:** no key here was ever used by anybody: all are made of a number.
#![allow(dead_code, reason = "each test binary uses its part")]

use base64::Engine as _;
use egressctl::host::provider::list;
use egressctl::observation::{ListQuestion, ListReading, Validators};
use egressctl::policy::Policy;
use egressctl::pool::candidate::{Candidate, Rejected};
use egressctl::wireguard::{PublicKey, SecretKey};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) verb: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// What is said to it.
pub(crate) enum Reply {
    /// A status, more lines of the head, and a body with its length.
    Whole(u16, String, Vec<u8>),
    /// Just these bytes, then the end.
    Raw(Vec<u8>),
    /// The head, then a byte of the body now and then, for ever.
    Drip,
    /// Nothing for a long time.
    Silence,
}

pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Reply {
    Reply::Whole(200, String::new(), body.into())
}

pub(crate) fn status(status: u16, head: &str) -> Reply {
    Reply::Whole(status, head.to_owned(), b"<html>no</html>".to_vec())
}

/// A server that lives as long as the test process.
pub(crate) struct Server {
    pub(crate) port: u16,
    log: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub(crate) fn new(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (Arc::clone(&log), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                thread::spawn(move || {
                    let mut stream = stream;
                    if let Some(asked) = hear(&mut stream) {
                        kept.lock().unwrap().push(asked.clone());
                        // The client may have hung up, which is its right.
                        drop(say(&mut stream, answer(&asked)));
                    }
                });
            }
        });
        Self { port, log }
    }

    /// One that always says the same.
    pub(crate) fn saying(body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self::new(move |_| ok(body.clone()))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.log.lock().unwrap().clone()
    }
}

fn hear(stream: &mut TcpStream) -> Option<Asked> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ').map(str::to_owned);
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let (verb, path) = (words.next()?, words.next()?);
    Some(Asked { verb, path, headers, body: String::from_utf8_lossy(&body).into_owned() })
}

fn say(stream: &mut TcpStream, reply: Reply) -> std::io::Result<()> {
    match reply {
        Reply::Whole(status, head, body) => {
            write!(stream, "HTTP/1.1 {status} X\r\n{head}Content-Length: {}\r\n\r\n", body.len())?;
            stream.write_all(&body)
        }
        Reply::Raw(bytes) => stream.write_all(&bytes),
        Reply::Drip => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n[")?;
            loop {
                stream.write_all(b" ")?;
                thread::sleep(Duration::from_millis(50));
            }
        }
        Reply::Silence => {
            thread::sleep(Duration::from_secs(30));
            Ok(())
        }
    }
}

/// The private key of a number.
pub(crate) fn private(seed: u8) -> SecretKey {
    let bytes: Vec<u8> = (0..32).map(|i: u8| seed.wrapping_mul(31).wrapping_add(i)).collect();
    SecretKey::from_base64(&base64::engine::general_purpose::STANDARD.encode(bytes)).unwrap()
}

/// The public key of a server of that number.
pub(crate) fn public(number: u32) -> PublicKey {
    let mut bytes = [7; 32];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    PublicKey::from_base64(&text).unwrap()
}

/// A wg-quick file.
pub(crate) fn conf(own: u8, server: u32, endpoint: &str) -> String {
    format!(
        "# a server\n[Interface]\nPrivateKey = {}\nAddress = 10.9.0.{own}/32\nDNS = 10.9.0.1\n\n[Peer]\nPublicKey = {}\nAllowedIPs = 0.0.0.0/0\nEndpoint = {endpoint}\nPersistentKeepalive = 22\n",
        private(own).reveal(),
        public(server),
    )
}

/// A good entry of the common shape.
pub(crate) fn entry(number: u32) -> Value {
    json!({
        "name": format!("s{number}"),
        "endpoint": format!("192.0.2.{number}:51820"),
        "public_key": public(number),
        "unknown": [1, { "x": null }],
    })
}

/// A policy's folder of secrets, and where a list's files go.
pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        bench.put("key", format!("{}\n", private(1).reveal()));
        bench.put("token", "s3cret-token\n");
        bench
    }

    pub(crate) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Our own end as a policy names it.
    pub(crate) fn identity(&self) -> Value {
        json!({ "private_key_file": self.path("key"), "address": ["10.64.0.2"] })
    }

    /// What is asked of a provider as a policy names it.
    pub(crate) fn question(provider: &Value, wanted: &Value) -> ListQuestion {
        let text = json!({
            "kind": "pool",
            "slots": { "interfaces": ["vpn1"] },
            "clients": ["10.77.0.11"],
            "provider": provider,
            "candidates": wanted,
            "wireguard": { "tool": "awg" },
        });
        let Policy::Pool(policy) = Policy::parse(&text.to_string()).unwrap() else {
            panic!("it is a pool")
        };
        ListQuestion {
            provider: policy.provider,
            wanted: policy.candidates,
            generation: 3,
            amnezia: true,
            via: None,
            names: BTreeMap::new(),
            known: None,
            have: Arc::default(),
        }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub(crate) fn ask(&self, provider: &Value) -> ListReading {
        self.ask_for(provider, &json!({}))
    }

    pub(crate) fn ask_for(&self, provider: &Value, wanted: &Value) -> ListReading {
        list(&Self::question(provider, wanted), &self.state(), true)
    }

    /// A list of the common shape at a URL.
    pub(crate) fn http(&self, server: &Server) -> Value {
        json!({ "http": {
            "url": server.url("/list"),
            "identity": self.identity(),
            "token_file": self.path("token"),
            "timeout_sec": 2,
        }})
    }
}

pub(crate) type Listed = (Vec<Candidate>, Vec<Rejected>, Option<Validators>);

pub(crate) fn listed(reading: ListReading) -> Listed {
    match reading {
        ListReading::Listed { candidates, rejected, validators } => {
            for entry in &rejected {
                assert!(entry.name.chars().count() <= 80 && entry.why.chars().count() <= 400);
                let text = format!("{}{}", entry.name, entry.why);
                assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text:?}");
                assert!(!text.contains(&private(1).reveal()), "{text:?} shows a key");
            }
            (Arc::unwrap_or_clone(candidates), rejected, validators)
        }
        other @ (ListReading::Unchanged | ListReading::Unavailable { .. }) => panic!("{other:?}"),
    }
}

/// Why there is no list, whether the provider answered, and how long to wait.
pub(crate) fn unavailable(reading: ListReading) -> (String, bool, Option<u64>) {
    match reading {
        ListReading::Unavailable { why, answered, retry_after_sec } => {
            assert!(!why.contains("s3cret") && !why.contains('\n'), "{why}");
            assert!(why.chars().count() <= 400, "{why}");
            (why, answered, retry_after_sec)
        }
        other @ (ListReading::Unchanged | ListReading::Listed { .. }) => panic!("{other:?}"),
    }
}

pub(crate) fn names(candidates: &[Candidate]) -> Vec<&str> {
    candidates.iter().map(|candidate| candidate.name.as_str()).collect()
}

/// What lies in the pool of the question's generation.
pub(crate) fn pool(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join("pool/3"));
    let mut names: Vec<String> = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
