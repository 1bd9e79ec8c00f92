//! A client of the gateway: what it sees of the world, asked with sockets opened in its own namespace.
//!
//! **Invariant:** every question has a deadline; no answer is an answer too.

use super::names;
use super::space::{Space, run, wait_until};
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a client waits for a page: longer than any good path needs by far.
const PATIENCE: Duration = Duration::from_millis(1500);

/// What a page was answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Response {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A host behind the gateway, or an address of the `spread` prefix.
#[derive(Clone, Debug)]
pub struct Client {
    space: Space,
    source: Option<IpAddr>,
    target: Ipv4Addr,
    number: usize,
}

impl Client {
    /// Client `k`, in a namespace of its own.
    pub fn new(space: &Space, k: usize) -> Self {
        Self { space: space.clone(), source: None, target: names::target(k), number: k }
    }

    /// Client `i` of the `spread` prefix; they share a namespace.
    pub fn spread(space: &Space, i: usize) -> Self {
        let source = Some(names::spread(i).into());
        Self { space: space.clone(), source, target: names::SPREAD_TARGET, number: i }
    }

    /// The address by which this client's own target sees it, or nothing if it does not get there.
    pub fn exit(&self) -> Option<String> {
        self.exit_of(self.target.into())
    }

    /// The address by which a host of the web sees this client.
    pub fn exit_of(&self, host: IpAddr) -> Option<String> {
        let response = self.fetch(SocketAddr::new(host, 80), "/ip")?;
        (response.status == 200).then(|| response.text())
    }

    /// The endpoint by which this client leaves, if it leaves by one.
    pub fn endpoint(&self) -> Option<usize> {
        names::endpoint_of(&self.exit()?)
    }

    /// A page by its URL, `http://ADDRESS[:PORT]/PATH`.
    pub fn get(&self, url: &str) -> Option<Response> {
        let rest = url.strip_prefix("http://").expect("the lab speaks plain HTTP");
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let at = host.parse().or_else(|_| format!("{host}:80").parse());
        self.fetch(at.expect("hosts are literal addresses"), &format!("/{path}"))
    }

    /// A page of this client's own target.
    pub fn page(&self, path: &str) -> Option<Response> {
        self.fetch(SocketAddr::from((self.target, 80)), path)
    }

    /// The address by which this client's IPv6 target sees it.
    pub fn get6(&self) -> Option<String> {
        self.exit_of(names::target6(self.number).into())
    }

    /// Whether a host answers one ping within a second.
    pub fn ping(&self, host: IpAddr) -> bool {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.space.name(), "ping", "-q", "-c1", "-W1"]);
        if let Some(source) = self.source {
            command.arg("-I").arg(source.to_string());
        }
        command.arg(host.to_string()).output().is_ok_and(|output| output.status.success())
    }

    /// Whether this client's IPv6 target answers one ping.
    pub fn ping6(&self) -> bool {
        self.ping(names::target6(self.number).into())
    }

    /// Runs a program in the client's namespace and returns its output; a failure ends the test.
    pub fn exec(&self, program: &str, args: &[&str]) -> String {
        let base = ["netns", "exec", self.space.name(), program];
        run(Command::new("ip").args(base).args(args), "")
    }

    /// Opens a long download from this client's own target.
    pub fn download(&self) -> Option<Download> {
        let mut stream = self.connect(SocketAddr::from((self.target, 80)), PATIENCE).ok()?;
        stream.write_all(b"GET /slow HTTP/1.1\r\nHost: web\r\n\r\n").ok()?;
        Some(Download::start(stream))
    }

    /// Opens a TCP connection to the echo of this client's own target.
    pub fn tcp_flow(&self) -> Option<TcpFlow> {
        let stream = self.connect(SocketAddr::from((self.target, 7)), PATIENCE).ok()?;
        Some(TcpFlow { stream, sent: 0 })
    }

    /// Opens a UDP flow to the echo of this client's own target.
    pub fn udp_flow(&self) -> UdpFlow {
        let socket = self.space.inside(|| {
            let own = SocketAddr::new(self.source.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), 0);
            let socket = UdpSocket::bind(own).expect("a UDP socket is made");
            // A kernel without a route refuses here, and then every ping fails, too.
            let _connected = socket.connect((self.target, 7));
            socket
        });
        UdpFlow { socket, sent: 0 }
    }

    fn connect(&self, to: SocketAddr, within: Duration) -> io::Result<TcpStream> {
        self.space.inside(|| {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
            if let Some(source) = self.source {
                socket.bind(&SocketAddr::new(source, 0).into())?;
            }
            socket.connect_timeout(&to.into(), within)?;
            Ok(TcpStream::from(socket))
        })
    }

    fn fetch(&self, at: SocketAddr, path: &str) -> Option<Response> {
        let end = Instant::now() + PATIENCE;
        let mut stream = self.connect(at, PATIENCE).ok()?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: web\r\n\r\n").as_bytes()).ok()?;
        let mut text = Vec::new();
        let mut buffer = [0_u8; 4096];
        loop {
            let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            stream.set_read_timeout(Some(left)).ok()?;
            match stream.read(&mut buffer).ok()? {
                0 => return parse(&text),
                n => text.extend_from_slice(&buffer[..n]),
            }
        }
    }
}

/// An answer in full, or nothing if it was cut short.
pub fn parse(text: &[u8]) -> Option<Response> {
    let split = text.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&text[..split]).into_owned();
    let body = text[split + 4..].to_vec();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let whole = length.is_none_or(|n| n.parse() == Ok(body.len()));
    whole.then_some(Response { status, body })
}

/// A download that goes on in the background.
#[derive(Debug)]
pub struct Download {
    bytes: Arc<AtomicU64>,
    ended: Arc<Mutex<Option<ErrorKind>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Download {
    fn start(mut stream: TcpStream) -> Self {
        let bytes = Arc::<AtomicU64>::default();
        let ended = Arc::<Mutex<Option<ErrorKind>>>::default();
        let stop = Arc::<AtomicBool>::default();
        let (count, end, stopped) = (Arc::clone(&bytes), Arc::clone(&ended), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let _set = stream.set_read_timeout(Some(Duration::from_millis(20)));
            let mut buffer = [0_u8; 16_384];
            while !stopped.load(Ordering::Relaxed) {
                let kind = match stream.read(&mut buffer) {
                    Ok(0) => ErrorKind::UnexpectedEof,
                    Ok(n) => {
                        count.fetch_add(u64::try_from(n).unwrap_or(0), Ordering::Relaxed);
                        continue;
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => continue,
                    Err(e) => e.kind(),
                };
                *end.lock().expect("no thread panicked") = Some(kind);
                return;
            }
        });
        Self { bytes, ended, stop, thread: Some(thread) }
    }

    /// What has come so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Why it ended, if it has: `ConnectionReset` after a cut.
    pub fn ended(&self) -> Option<ErrorKind> {
        *self.ended.lock().expect("no thread panicked")
    }

    /// Whether more comes within a time.
    pub fn grows(&self, within: Duration) -> bool {
        let before = self.bytes();
        wait_until(within, || self.bytes() > before)
    }

    /// Whether it is reset within a time.
    pub fn is_reset(&self, within: Duration) -> bool {
        wait_until(within, || self.ended() == Some(ErrorKind::ConnectionReset))
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// An open TCP connection to an echo.
#[derive(Debug)]
pub struct TcpFlow {
    stream: TcpStream,
    sent: u32,
}

impl TcpFlow {
    /// Asks once more on the same connection: the address that the echo sees, or why there is no answer.
    pub fn ping(&mut self) -> Result<String, ErrorKind> {
        self.sent += 1;
        self.stream.set_read_timeout(Some(PATIENCE)).map_err(|e| e.kind())?;
        let payload = format!("n{}", self.sent);
        self.stream.write_all(payload.as_bytes()).map_err(|e| e.kind())?;
        let mut buffer = [0_u8; 512];
        let n = self.stream.read(&mut buffer).map_err(|e| e.kind())?;
        let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
        text.split_once('|').map(|(from, _)| from.to_owned()).ok_or(ErrorKind::UnexpectedEof)
    }
}

/// A UDP flow to an echo, always from the same port.
#[derive(Debug)]
pub struct UdpFlow {
    socket: UdpSocket,
    sent: u32,
}

impl UdpFlow {
    /// Asks once more: the address that the echo sees, or nothing within a second.
    pub fn ping(&mut self) -> Option<String> {
        self.sent += 1;
        let payload = format!("n{}", self.sent);
        // A refusal that an earlier packet drew is reported by the next call, so one failed sending says nothing.
        let _sent = self.socket.send(payload.as_bytes());
        let end = Instant::now() + Duration::from_secs(1);
        let mut buffer = [0_u8; 512];
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
            self.socket.set_read_timeout(Some(left)).ok()?;
            let Ok(n) = self.socket.recv(&mut buffer) else { continue };
            let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
            if let Some((from, rest)) = text.split_once('|')
                && rest == payload
            {
                return Some(from.to_owned());
            }
        }
        None
    }

    /// Makes the web send `count` packets to this flow, one each `every`, whatever becomes of it here.
    pub fn push(&self, count: u32, every: Duration) {
        let text = format!("push:{count}:{}", every.as_millis());
        self.socket.send(text.as_bytes()).expect("a packet can be sent");
    }
}
