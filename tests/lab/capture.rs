//! A sniffer on the WAN, on the isp's side: what a client's packet in clear looks like from outside.
//!
//! **Invariant:** everything that left the gateway before a question is part of the answer: a marker packet is sent after it and waited for.

use super::names;
use super::space::{Space, wait_until};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// The port on the isp to which the markers go; nobody else uses it.
const MARKER_PORT: u16 = 9;

/// A packet that the gateway sent by its WAN and should not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// Source, destination and protocol.
    pub what: String,
    /// The length of the IP packet.
    pub len: usize,
}

/// A TCP reset that left the gateway by its WAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    pub from: IpAddr,
    pub to: IpAddr,
}

/// A moment in the capture.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    leaks: usize,
    resets: usize,
}

#[derive(Debug, Default)]
struct Seen {
    leaks: Vec<Leak>,
    strays: Vec<Leak>,
    resets: Vec<Reset>,
    watched: Vec<IpAddr>,
    marker: u64,
}

/// The running sniffer.
#[derive(Debug)]
pub struct Capture {
    gw: Space,
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    markers: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    /// Begins to listen; from here on nothing is missed.
    pub fn start(isp: &Space, gw: &Space) -> Self {
        let socket = isp.inside(|| {
            // ETH_P_ALL in network order; all devices of the isp, told apart by the hardware address.
            let all = Protocol::from(i32::from(3_u16.to_be()));
            let socket = Socket::new(Domain::PACKET, Type::RAW, Some(all)).expect("a raw socket");
            socket.attach_filter(&filter()).expect("the filter is sound");
            socket
        });
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out can be set");
        let (seen, stop) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let (into, ended) = (Arc::clone(&seen), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut socket = socket;
            let mut frame = [0_u8; 256];
            while !ended.load(Ordering::Relaxed) {
                let Ok(n) = socket.read(&mut frame) else { continue };
                if let Some(packet) = Packet::parse(&frame[..n]) {
                    packet.record(&mut into.lock().expect("no thread panicked"));
                }
            }
        });
        let gw = gw.clone();
        Self { gw, seen, stop, markers: AtomicU64::new(0), thread: Some(thread) }
    }

    /// A further address that is a client's target.
    pub fn watch(&self, target: IpAddr) {
        self.settled().watched.push(target);
    }

    /// This moment, for `leaks_since` and `resets_since`.
    pub fn mark(&self) -> Mark {
        let seen = self.settled();
        Mark { leaks: seen.leaks.len(), resets: seen.resets.len() }
    }

    /// All leaks of the whole lab.
    pub fn leaks(&self) -> Vec<Leak> {
        self.settled().leaks.clone()
    }

    /// The leaks since a moment.
    pub fn leaks_since(&self, mark: Mark) -> Vec<Leak> {
        self.settled().leaks[mark.leaks..].to_vec()
    }

    /// All TCP resets that left by the WAN in clear, the gateway's own and forwarded ones.
    pub fn resets(&self) -> Vec<Reset> {
        self.settled().resets.clone()
    }

    /// Those of them that belong to a client's flow. A reference whose answer comes after its
    /// deadline draws a reset too, the gateway's own, which tells nobody anything about a client.
    pub fn resets_of_flows(&self) -> Vec<Reset> {
        let flows = |reset: &Reset| names::is_target(reset.to) || names::is_tunnel(reset.from);
        self.resets().into_iter().filter(flows).collect()
    }

    /// All resets since a moment.
    pub fn resets_since(&self, mark: Mark) -> Vec<Reset> {
        self.settled().resets[mark.resets..].to_vec()
    }

    /// Packets in clear whose source is a tunnel's own address: no client's, and still none of the WAN's business.
    pub fn strays(&self) -> Vec<Leak> {
        self.settled().strays.clone()
    }

    /// Waits until all that the gateway has sent so far is recorded.
    fn settled(&self) -> MutexGuard<'_, Seen> {
        let number = self.markers.fetch_add(1, Ordering::Relaxed) + 1;
        self.gw.inside(|| {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket is made");
            socket.bind_device(Some(b"eth0")).expect("the WAN is there");
            let to = SocketAddr::from((names::ISP, MARKER_PORT));
            socket.send_to(&number.to_be_bytes(), &to.into()).expect("the WAN takes a packet");
        });
        let lock = || self.seen.lock().expect("no thread panicked");
        let came = wait_until(Duration::from_secs(2), || lock().marker >= number);
        assert!(came, "the sniffer does not see what the gateway sends by its WAN");
        lock()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// Lets pass what the gateway's WAN device sent, but for its UDP to the endpoints.
///
/// Tunnels would fill the socket's buffer, and then a leak could be lost.
fn filter() -> [SockFilter; 13] {
    const WORD: u16 = 0x20;
    const HALF: u16 = 0x28;
    const BYTE: u16 = 0x30;
    const EQUAL: u16 = 0x15;
    const AND: u16 = 0x54;
    const RETURN: u16 = 0x06;
    let [begin @ .., fifth, sixth] = names::WAN_MAC;
    [
        SockFilter::new(WORD, 0, 0, 6),
        SockFilter::new(EQUAL, 0, 10, u32::from_be_bytes(begin)),
        SockFilter::new(HALF, 0, 0, 10),
        SockFilter::new(EQUAL, 0, 8, u32::from_be_bytes([0, 0, fifth, sixth])),
        SockFilter::new(HALF, 0, 0, 12),
        SockFilter::new(EQUAL, 0, 5, 0x0800),
        SockFilter::new(BYTE, 0, 0, 23),
        SockFilter::new(EQUAL, 0, 3, 17),
        SockFilter::new(WORD, 0, 0, 30),
        SockFilter::new(AND, 0, 0, 0xffff_ff00),
        SockFilter::new(EQUAL, 1, 0, u32::from_be_bytes([198, 51, 100, 0])),
        SockFilter::new(RETURN, 0, 0, 256),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

/// What matters of a frame.
struct Packet<'a> {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    len: usize,
    /// What follows the IP header.
    rest: &'a [u8],
}

impl<'a> Packet<'a> {
    fn parse(frame: &'a [u8]) -> Option<Self> {
        if frame.get(6..12)? != names::WAN_MAC {
            return None;
        }
        let ip = frame.get(14..)?;
        let half =
            |at: usize| Some(usize::from(u16::from_be_bytes([*ip.get(at)?, *ip.get(at + 1)?])));
        match frame.get(12..14)? {
            [0x08, 0x00] => {
                let v4 =
                    |at: usize| <[u8; 4]>::try_from(ip.get(at..at + 4)?).ok().map(Ipv4Addr::from);
                Some(Self {
                    from: v4(12)?.into(),
                    to: v4(16)?.into(),
                    protocol: *ip.get(9)?,
                    len: half(2)?,
                    rest: ip.get(usize::from(ip[0] & 15) * 4..)?,
                })
            }
            [0x86, 0xdd] => {
                let v6 =
                    |at: usize| <[u8; 16]>::try_from(ip.get(at..at + 16)?).ok().map(Ipv6Addr::from);
                Some(Self {
                    from: v6(8)?.into(),
                    to: v6(24)?.into(),
                    protocol: *ip.get(6)?,
                    len: half(4)? + 40,
                    rest: ip.get(40..)?,
                })
            }
            _ => None,
        }
    }

    fn record(&self, seen: &mut Seen) {
        let port = self.rest.get(2..4).map(|two| u16::from_be_bytes([two[0], two[1]]));
        if self.protocol == 17 && self.to == names::ISP && port == Some(MARKER_PORT) {
            let number = self.rest.get(8..16).and_then(|eight| <[u8; 8]>::try_from(eight).ok());
            seen.marker = seen.marker.max(number.map_or(0, u64::from_be_bytes));
            return;
        }
        let reset = self.protocol == 6 && self.rest.get(13).is_some_and(|flags| flags & 4 != 0);
        if reset {
            seen.resets.push(Reset { from: self.from, to: self.to });
        }
        let leak = names::is_target(self.to)
            || names::is_client(self.from)
            || seen.watched.contains(&self.to);
        if leak || names::is_tunnel(self.from) {
            let kind = match self.protocol {
                1 | 58 => "icmp".to_owned(),
                6 if reset => "tcp reset".to_owned(),
                6 => "tcp".to_owned(),
                17 => "udp".to_owned(),
                other => format!("protocol {other}"),
            };
            let what = format!("{} > {} {kind}", self.from, self.to);
            let list = if leak { &mut seen.leaks } else { &mut seen.strays };
            list.push(Leak { what, len: self.len });
        }
    }
}
