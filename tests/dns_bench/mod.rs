//! What the real binary is tested against: nodes on addresses of this machine that live and die,
//! a reference that goes silent, and a policy beside its state.
//!
//! **Invariant:** all of it is on loopback, and ends with the test.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::missing_panics_doc,
    missing_docs,
    unreachable_pub,
    reason = "test code, and not every test uses all of it"
)]

pub mod server;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within 20 s");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A certificate of its own making, for some names.
pub struct Certificate {
    pub file: PathBuf,
    key: PathBuf,
}

impl Certificate {
    pub fn new(folder: &Path, stem: &str, names: &[&str]) -> Self {
        let (file, key) = (folder.join(format!("{stem}.pem")), folder.join(format!("{stem}.key")));
        let names: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-nodes", "-days", "2", "-subj", "/CN=nodes of a test"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-addext"])
            .arg(format!("subjectAltName={}", names.join(",")))
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&file)
            .output()
            .expect("openssl is in Debian's package openssl");
        assert!(made.status.success(), "{made:?}");
        Self { file, key }
    }

    fn config(&self) -> Arc<ServerConfig> {
        let chain =
            CertificateDer::pem_file_iter(&self.file).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(&self.key).unwrap();
        Arc::new(
            ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap(),
        )
    }
}

/// What a node does with a connection.
#[derive(Clone)]
pub enum Serves {
    /// It takes it.
    Tcp,
    /// It shows a certificate, and answers a request with this.
    Tls(Arc<ServerConfig>, Arc<String>),
    /// It says a byte now and then, and nothing else.
    Drip,
}

/// A node that lives until it is told to die.
pub struct LiveNode {
    pub address: Ipv4Addr,
    pub port: u16,
    serves: Serves,
    dies: Option<Arc<AtomicBool>>,
    pub asked: Arc<AtomicUsize>,
}

impl LiveNode {
    /// One on 127.0.0.`last`; `port` 0: a free one.
    pub fn new(last: u8, port: u16, serves: Serves) -> Self {
        let address = Ipv4Addr::new(127, 0, 0, last);
        let asked = Arc::default();
        let mut node = Self { address, port, serves, dies: None, asked };
        node.live();
        node
    }

    pub fn tls(certificate: &Certificate, last: u8, port: u16, answer: &str) -> Self {
        let answer = Arc::new(answer.to_owned());
        Self::new(last, port, Serves::Tls(certificate.config(), answer))
    }

    pub fn live(&mut self) {
        let listener = TcpListener::bind((self.address, self.port)).unwrap();
        self.listen(listener);
    }

    /// One that listens in another namespace, where its wire is what dies.
    pub fn on(listener: TcpListener, certificate: &Certificate, answer: &str) {
        let serves = Serves::Tls(certificate.config(), Arc::new(answer.to_owned()));
        let port = listener.local_addr().unwrap().port();
        let address = Ipv4Addr::UNSPECIFIED;
        let mut node = Self { address, port, serves, dies: None, asked: Arc::default() };
        node.listen(listener);
        // It ends with the namespace.
        node.dies = None;
    }

    fn listen(&mut self, listener: TcpListener) {
        self.port = listener.local_addr().unwrap().port();
        let dies = Arc::new(AtomicBool::new(false));
        self.dies = Some(Arc::clone(&dies));
        let (serves, asked) = (self.serves.clone(), Arc::clone(&self.asked));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if dies.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), serves) = (stream, serves.clone()) else { continue };
                asked.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || serve(stream, &serves));
            }
        });
    }

    /// From here on its port is closed.
    pub fn die(&mut self) {
        let Some(dies) = self.dies.take() else { return };
        dies.store(true, Ordering::SeqCst);
        let there = SocketAddr::from((self.address, self.port));
        until("the node is dead", || TcpStream::connect(there).is_err());
    }
}

impl Drop for LiveNode {
    fn drop(&mut self) {
        self.die();
    }
}

fn serve(mut stream: TcpStream, serves: &Serves) {
    match serves {
        Serves::Tcp => {}
        Serves::Tls(config, answer) => {
            let mut connection = ServerConnection::new(Arc::clone(config)).unwrap();
            let mut tls = Stream::new(&mut connection, &mut stream);
            // A client that only looked at the certificate hangs up, which is its right.
            if matches!(tls.read(&mut [0; 4096]), Ok(1..)) {
                drop(tls.write_all(answer.as_bytes()));
                tls.conn.send_close_notify();
                drop(tls.flush());
            }
        }
        Serves::Drip => {
            while stream.write_all(&[0x16]).is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Pages that tell whether this machine is online.
pub struct Reference {
    port: u16,
    answers: Arc<AtomicBool>,
    /// After how many more answers it goes silent.
    left: Arc<AtomicUsize>,
}

impl Reference {
    pub fn new() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    /// One that listens where it is told.
    pub fn on(listener: TcpListener) -> Self {
        let port = listener.local_addr().unwrap().port();
        let (answers, left) =
            (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(usize::MAX)));
        let (answering, counting) = (Arc::clone(&answers), Arc::clone(&left));
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let goes = counting
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                    .is_ok();
                if goes && answering.load(Ordering::SeqCst) {
                    drop(stream.read(&mut [0; 4096]));
                    drop(stream.write_all(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"));
                }
            }
        });
        Self { port, answers, left }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/generate_204", self.port)
    }

    pub fn answers(&self, answers: bool) {
        self.answers.store(answers, Ordering::SeqCst);
        self.left.store(usize::MAX, Ordering::SeqCst);
    }

    /// It goes silent once it has answered so often.
    pub fn answers_only(&self, times: usize) {
        self.left.store(times, Ordering::SeqCst);
    }
}

/// What a command said.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The report of a step.
    pub fn report(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    pub fn codes(&self) -> Vec<String> {
        let report = self.report();
        let reasons = report["reasons"].as_array().unwrap();
        reasons.iter().map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
    }
}

/// A policy called `names` and its state.
pub struct Place {
    pub folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("policies")).unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, policy: &Value) {
        std::fs::write(self.path("policies/names.json"), policy.to_string()).unwrap();
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_egressctl"))
            .args(args)
            .env("EGRESSCTL_POLICY_DIR", self.path("policies"))
            .env("EGRESSCTL_STATE_DIR", self.path("state"))
            .output()
            .unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub fn step(&self) -> Ran {
        self.run(&["step", "names", "--now", "--json"])
    }

    pub fn status(&self) -> Value {
        serde_json::from_str(&self.run(&["status", "names", "--json"]).stdout).unwrap()
    }

    /// All that the state folder holds, as text.
    pub fn state_text(&self) -> String {
        let files = std::fs::read_dir(self.path("state/names")).unwrap();
        let read = |file: std::io::Result<std::fs::DirEntry>| {
            String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap()).into_owned()
        };
        files.map(read).collect()
    }
}
