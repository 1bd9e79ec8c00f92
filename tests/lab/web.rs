//! The web and its like: small servers in threads whose sockets were opened inside a namespace.
//!
//! **Invariant:** no thread or socket of a server outlives its `Servers`.

use super::names;
use super::source::Source;
use super::space::{Space, wait_until};
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a server sleeps at most before it looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);
/// What the portal answers to everything.
const PORTAL: &str =
    "<html><head><title>Sign in</title></head><body>Please sign in to go on.</body></html>\n";
/// The size of `/big`: more than one packet by far.
pub const BIG: usize = 20_000;

/// What is done when a page is asked for, before it is answered.
struct Trap {
    to: IpAddr,
    from: Option<IpAddr>,
    left: usize,
    act: Box<dyn FnOnce() + Send>,
}

/// The traps that are set on pages.
#[derive(Clone, Default)]
pub struct Traps(Arc<Mutex<Vec<Trap>>>);

impl std::fmt::Debug for Traps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} traps", self.0.lock().expect("no thread panicked").len())
    }
}

impl Traps {
    /// Does something once, when a page of a host is asked for the `nth` time from now on, by
    /// anybody or by this address; the answer comes after it.
    pub fn set(
        &self,
        to: Ipv4Addr,
        from: Option<Ipv4Addr>,
        nth: usize,
        act: impl FnOnce() + Send + 'static,
    ) {
        let (to, from, act) = (to.into(), from.map(IpAddr::from), Box::new(act));
        self.0.lock().expect("no thread panicked").push(Trap { to, from, left: nth, act });
    }

    /// Forgets those that did not spring; says how many.
    pub fn clear(&self) -> usize {
        self.0.lock().expect("no thread panicked").drain(..).count()
    }

    fn spring(&self, to: IpAddr, from: IpAddr) {
        let mut traps = self.0.lock().expect("no thread panicked");
        let meant = |trap: &Trap| trap.to == to && trap.from.is_none_or(|only| only == from);
        for trap in traps.iter_mut().filter(|trap| meant(trap)) {
            trap.left = trap.left.saturating_sub(1);
        }
        let sprung: Vec<Trap> = traps.extract_if(.., |trap| trap.left == 0).collect();
        drop(traps);
        for trap in sprung {
            (trap.act)();
        }
    }
}

/// Running servers; dropping them ends them.
#[derive(Debug, Default)]
pub struct Servers {
    /// What is set on the pages of the web.
    pub traps: Traps,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Servers {
    /// Pages on port 80 and echoes on port 7, at every address of the web and at the neighbour's.
    pub fn web(&mut self, web: &Space, isp: &Space, neighbour: Ipv4Addr) {
        let any = |port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let traps = self.traps.clone();
        self.tcp(web, any(80), move |stream, from, stop| page(stream, from, &traps, stop));
        self.tcp(web, any(7), echo);
        self.udp(web, any(7));
        let none = Traps::default();
        self.tcp(isp, SocketAddr::from((neighbour, 80)), move |stream, from, stop| {
            page(stream, from, &none, stop);
        });
        self.tcp(isp, SocketAddr::from((neighbour, 7)), echo);
        self.udp(isp, SocketAddr::from((neighbour, 7)));
    }

    /// The portal's page on every path.
    pub fn portal(&mut self, prov: &Space, port: u16) {
        self.tcp(prov, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), portal);
    }

    /// The list of the provider.
    pub fn source(&mut self, web: &Space, source: &Source) {
        let at = SocketAddr::from((names::SOURCE, names::SOURCE_PORT));
        let source = source.clone();
        self.tcp(web, at, move |stream, from, stop| source.talk(stream, from, stop));
    }

    /// Serves connections, each in a thread of its own; one ends when the flag is set.
    fn tcp(
        &mut self,
        space: &Space,
        at: SocketAddr,
        talk: impl Fn(TcpStream, IpAddr, &AtomicBool) + Send + Sync + 'static,
    ) {
        let talk = Arc::new(talk);
        let socket = listener(space, at, Type::STREAM);
        socket.listen(128).expect("a bound socket listens");
        let stop = Arc::clone(&self.stop);
        self.threads.push(std::thread::spawn(move || {
            let mut talks: Vec<JoinHandle<()>> = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                talks.retain(|talk| !talk.is_finished());
                let Ok((stream, from)) = socket.accept() else { continue };
                let stream = TcpStream::from(stream);
                let Some(from) = from.as_socket() else { continue };
                let (ended, talk) = (Arc::clone(&stop), Arc::clone(&talk));
                talks.push(std::thread::spawn(move || {
                    let _set = stream.set_read_timeout(Some(LOOK));
                    let _set = stream.set_write_timeout(Some(LOOK));
                    talk(stream, from.ip().to_canonical(), &ended);
                }));
            }
            drop(socket);
            wait_until(Duration::from_secs(2), || talks.iter().all(JoinHandle::is_finished));
        }));
    }

    fn udp(&mut self, space: &Space, at: SocketAddr) {
        let socket = UdpSocket::from(listener(space, at, Type::DGRAM));
        let stop = Arc::clone(&self.stop);
        self.threads.push(std::thread::spawn(move || {
            let mut buffer = [0_u8; 2048];
            let mut pushes: Vec<JoinHandle<()>> = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let Ok((n, from)) = socket.recv_from(&mut buffer) else { continue };
                let payload = String::from_utf8_lossy(&buffer[..n]).into_owned();
                if let Some((count, every)) = push(&payload) {
                    let (socket, ended) = (socket.try_clone(), Arc::clone(&stop));
                    pushes.push(std::thread::spawn(move || {
                        let Ok(socket) = socket else { return };
                        for i in 0..count {
                            if ended.load(Ordering::Relaxed) {
                                return;
                            }
                            let _sent = socket.send_to(format!("pushed {i}").as_bytes(), from);
                            std::thread::sleep(every);
                        }
                    }));
                    continue;
                }
                let answer = format!("{}|{payload}", from.ip().to_canonical());
                let _sent = socket.send_to(answer.as_bytes(), from);
            }
            for thread in pushes {
                let _ended = thread.join();
            }
        }));
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

/// A bound socket inside a namespace that wakes up often enough to end in time.
fn listener(space: &Space, at: SocketAddr, kind: Type) -> Socket {
    space.inside(|| {
        let socket = Socket::new(Domain::for_address(at), kind, None).expect("a socket is made");
        if at.is_ipv6() {
            socket.set_only_v6(false).expect("the socket takes both families");
        }
        socket.set_reuse_address(true).expect("the address may be used again");
        socket.set_read_timeout(Some(LOOK)).expect("a time-out can be set");
        socket.bind(&at.into()).unwrap_or_else(|e| panic!("{at} in {}: {e}", space.name()));
        socket
    })
}

/// The count and the pause in a payload `push:COUNT:MILLISECONDS`.
fn push(payload: &str) -> Option<(u32, Duration)> {
    let (count, every) = payload.strip_prefix("push:")?.split_once(':')?;
    Some((count.parse().ok()?, Duration::from_millis(every.parse().ok()?)))
}

/// Whether an error only says that nothing happened within the time-out.
fn idle(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Sends everything, however slowly the other side takes it, unless the server ends.
pub fn send(stream: &mut TcpStream, mut bytes: &[u8], stop: &AtomicBool) -> bool {
    while !bytes.is_empty() && !stop.load(Ordering::Relaxed) {
        match stream.write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if idle(&e) => {}
            Err(_) => return false,
        }
    }
    bytes.is_empty()
}

/// The path of a request, read up to its empty line.
pub fn path(stream: &mut TcpStream, stop: &AtomicBool) -> Option<String> {
    let mut text = Vec::new();
    let mut buffer = [0_u8; 2048];
    while !stop.load(Ordering::Relaxed) && text.len() < 16_384 {
        match stream.read(&mut buffer) {
            Ok(0) => return None,
            Ok(n) => text.extend_from_slice(&buffer[..n]),
            Err(e) if idle(&e) => continue,
            Err(_) => return None,
        }
        if text.windows(4).any(|four| four == b"\r\n\r\n") {
            let line = String::from_utf8_lossy(&text).lines().next()?.to_owned();
            return line.split(' ').nth(1).map(str::to_owned);
        }
    }
    None
}

fn answer(stream: &mut TcpStream, status: &str, kind: &str, body: &[u8], stop: &AtomicBool) {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _sent = send(stream, &[head.as_bytes(), body].concat(), stop);
}

fn page(mut stream: TcpStream, from: IpAddr, traps: &Traps, stop: &AtomicBool) {
    let Some(path) = path(&mut stream, stop) else { return };
    if let Ok(to) = stream.local_addr() {
        traps.spring(to.ip().to_canonical(), from);
    }
    let (name, query) = path.split_once('?').unwrap_or((&path, ""));
    match name {
        "/ip" => answer(&mut stream, "200 OK", "text/plain", from.to_string().as_bytes(), stop),
        "/generate_204" => {
            let _sent =
                send(&mut stream, b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", stop);
        }
        "/big" => answer(&mut stream, "200 OK", "text/plain", &vec![b'x'; BIG], stop),
        "/slow" => slow(&mut stream, query, stop),
        _ => answer(&mut stream, "404 Not Found", "text/plain", b"no such page\n", stop),
    }
}

/// A long answer at about 100 kB/s, so that a flow is open for as long as a test needs it.
fn slow(stream: &mut TcpStream, query: &str, stop: &AtomicBool) {
    let bytes = query.strip_prefix("bytes=").and_then(|n| n.parse().ok()).unwrap_or(100_000_000);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n");
    let mut left: usize = bytes;
    let mut open = send(stream, head.as_bytes(), stop);
    while open && left > 0 {
        let n = left.min(1000);
        open = send(stream, &vec![b'x'; n], stop);
        left -= n;
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn portal(mut stream: TcpStream, _from: IpAddr, stop: &AtomicBool) {
    if path(&mut stream, stop).is_some() {
        answer(&mut stream, "200 OK", "text/html", PORTAL.as_bytes(), stop);
    }
}

/// Sends everything back, with the address that it came from before it.
fn echo(mut stream: TcpStream, from: IpAddr, stop: &AtomicBool) {
    let mut buffer = [0_u8; 2048];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) => {
                let bytes = [from.to_string().as_bytes(), b"|", &buffer[..n]].concat();
                if !send(&mut stream, &bytes, stop) {
                    return;
                }
            }
            Err(e) if idle(&e) => {}
            Err(_) => return,
        }
    }
}
