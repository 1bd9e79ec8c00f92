//! Real Knot DNS and real BIND with a zone of their own, and a client's way to ask them.
//!
//! **Invariant:** a server ends with its test; nothing of ours reads what a client is answered.

use egressctl::dns::name::HostName;
use egressctl::dns::record::Zone;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What `fi` of the zone is at first, beside `two`, which has two addresses, and an alias.
pub const FIRST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 41);
pub const SECRET: &str = "c2VjcmV0IG9mIGEgdGVzdCwgb2Ygbm8gdXNlIGF0IGFsbA==";

/// Who keeps the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    Knot,
    Bind,
}

pub const BOTH: [Server; 2] = [Server::Knot, Server::Bind];

/// A name server of our own, ended with the test.
pub struct NameServer {
    server: Server,
    child: Child,
    pub address: Ipv4Addr,
    pub port: u16,
    pub folder: tempfile::TempDir,
    /// The namespace that it lives in; none: this one.
    space: Option<String>,
}

impl Drop for NameServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl NameServer {
    /// On a free port of loopback.
    pub fn new(server: Server) -> Self {
        // Free for UDP and TCP when it was looked at; who else takes it meanwhile makes us try again.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let begun = Self::begin(server, None, Ipv4Addr::LOCALHOST, port, FIRST);
            if let Some(begun) = begun.once_it_answers(|at| resolve(at, "fi.example.org")) {
                return begun;
            }
        }
        panic!("{server:?} did not start five times: is it installed (Debian: knot, bind9)?");
    }

    /// On port 53 of an address in a namespace, with `fi` of the zone at `first`.
    pub fn begin(
        server: Server,
        space: Option<&str>,
        address: Ipv4Addr,
        port: u16,
        first: Ipv4Addr,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = start(server, space, (address, port), folder.path(), first);
        Self { server, child, address, port, folder, space: space.map(str::to_owned) }
    }

    /// Itself, once it answers by this way; nothing when it ended before.
    pub fn once_it_answers(
        mut self,
        ask: impl Fn(SocketAddr) -> Option<Vec<(Ipv4Addr, u32)>>,
    ) -> Option<Self> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return None;
            }
            if ask(self.at()).is_some_and(|addresses| !addresses.is_empty()) {
                return Some(self);
            }
            assert!(Instant::now() < end, "{:?} does not answer", self.server);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn at(&self) -> SocketAddr {
        SocketAddr::from((self.address, self.port))
    }

    pub fn zone(&self) -> Zone {
        Zone::Rfc2136 {
            server: self.address.to_string(),
            port: self.port,
            zone: HostName::try_from("example.org".to_owned()).unwrap(),
            key_file: self.folder.path().join("key"),
            tool: self.tool().to_owned(),
        }
    }

    pub fn tool(&self) -> &'static str {
        match self.server {
            Server::Knot => "knsupdate",
            Server::Bind => "nsupdate",
        }
    }

    /// What a person types.
    pub fn edit(&self, name: &str, address: &str) {
        let key = self.folder.path().join("key");
        let mut tool = command(self.space.as_deref(), self.tool());
        let mut tool = tool.arg("-k").arg(key).stdin(Stdio::piped()).spawn().unwrap();
        let script = format!(
            "server {} {}\nzone example.org.\nupdate delete {name}. A\nupdate add {name}. 300 A {address}\nsend\n",
            self.address, self.port
        );
        tool.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(tool.wait().unwrap().success());
    }

    /// Addresses and TTLs, as a client in this namespace is answered.
    pub fn answers(&self, name: &str) -> Vec<(Ipv4Addr, u32)> {
        resolve(self.at(), name).unwrap_or_default()
    }

    pub fn sees(&self, name: &str) -> Vec<Ipv4Addr> {
        self.answers(name).into_iter().map(|(address, _)| address).collect()
    }

    pub fn serial(&self) -> u32 {
        let at = [format!("@{}", self.address), "-p".to_owned(), self.port.to_string()];
        let mut kdig = command(self.space.as_deref(), "kdig");
        let output = kdig.args(at).args(["+short", "example.org", "SOA"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().nth(2).unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    }
}

/// A program in a namespace.
fn command(space: Option<&str>, program: &str) -> Command {
    let Some(space) = space else { return Command::new(program) };
    let mut command = Command::new("ip");
    command.args(["netns", "exec", space, program]);
    command
}

fn start(
    server: Server,
    space: Option<&str>,
    (address, port): (Ipv4Addr, u16),
    folder: &Path,
    first: Ipv4Addr,
) -> Child {
    let at = |name: &str| folder.join(name);
    let shown = |name: &str| at(name).display().to_string();
    let zone = format!(
        "$ORIGIN example.org.\n$TTL 300\n\
         @ IN SOA ns.example.org. admin.example.org. 100 3600 600 86400 60\n@ IN NS ns\nns IN A {address}\n\
         fi IN A {first}\ntwo IN A 127.0.0.41\ntwo IN A 127.0.0.42\nalias IN CNAME fi\n"
    );
    std::fs::write(at("zone"), zone).unwrap();
    // The form that both tools read.
    std::fs::write(
        at("key"),
        match server {
            Server::Knot => format!("hmac-sha256:egressctl:{SECRET}\n"),
            Server::Bind => {
                format!("key \"egressctl\" {{ algorithm hmac-sha256; secret \"{SECRET}\"; }};\n")
            }
        },
    )
    .unwrap();
    let log = || Stdio::from(std::fs::File::create(at("log")).unwrap());
    let mut program = match server {
        Server::Knot => {
            let text = format!(
                "server:\n  listen: {address}@{port}\n  rundir: {0}\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\n\
                 database:\n  storage: {0}\n\
                 key:\n  - id: egressctl\n    algorithm: hmac-sha256\n    secret: {SECRET}\n\
                 acl:\n  - id: update\n    key: egressctl\n    action: update\n\
                 zone:\n  - domain: example.org\n    storage: {0}\n    file: zone\n    acl: update\n    zonefile-sync: -1\n    journal-content: changes\n",
                folder.display()
            );
            std::fs::write(at("knot.conf"), text).unwrap();
            let mut program = command(space, "knotd");
            program.args(["-c", &shown("knot.conf")]);
            program
        }
        Server::Bind => {
            let text = format!(
                "include \"{0}/key\";\noptions {{ directory \"{0}\"; listen-on port {port} {{ {address}; }}; listen-on-v6 {{ none; }};\n\
                 recursion no; pid-file none; session-keyfile none; dnssec-validation no; allow-transfer {{ none; }}; }};\n\
                 controls {{ }};\nzone \"example.org\" {{ type primary; file \"{0}/zone\"; allow-update {{ key \"egressctl\"; }}; }};\n",
                folder.display()
            );
            std::fs::write(at("named.conf"), text).unwrap();
            let mut program = command(space, "named");
            program.args(["-g", "-c", &shown("named.conf")]);
            program
        }
    };
    let started = program.stdout(log()).stderr(log()).spawn();
    started.unwrap_or_else(|why| panic!("{server:?} (Debian: knot, bind9): {why}"))
}

/// Asks as a client's resolver does: a question by UDP, from the namespace of the thread that asks.
pub fn resolve(server: SocketAddr, name: &str) -> Option<Vec<(Ipv4Addr, u32)>> {
    let own: IpAddr = Ipv4Addr::UNSPECIFIED.into();
    let socket = UdpSocket::bind((own, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut question = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        question.push(u8::try_from(label.len()).unwrap());
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    socket.send_to(&question, server).ok()?;
    let mut answer = [0; 1_500];
    let length = socket.recv(&mut answer).ok()?;
    let count = usize::from(u16::from_be_bytes([answer[6], answer[7]]));
    let mut at = question.len();
    let mut found = Vec::new();
    for _ in 0..count {
        // Names of answers are pointers at the question here.
        let body = answer.get(at + 2..length)?;
        let kind = u16::from_be_bytes([body[0], body[1]]);
        let ttl = u32::from_be_bytes([body[4], body[5], body[6], body[7]]);
        let size = usize::from(u16::from_be_bytes([body[8], body[9]]));
        if kind == 1 {
            found.push((Ipv4Addr::new(body[10], body[11], body[12], body[13]), ttl));
        }
        at += 12 + size;
    }
    found.sort();
    Some(found)
}
