//! The addresses of the lab, as functions of a client's or an endpoint's number, and the names that keep labs apart.
//!
//! **Invariant:** every name of a lab begins with its prefix, and the prefix holds the pid of the process that made it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The gateway's address on the WAN.
pub const WAN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
/// The router on the WAN's other side, which is the gateway's default route.
pub const ISP: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// A host in the WAN's own subnet that answers like the web.
pub const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 77);
/// What the gateway's probes ask, through tunnels; it is nobody's target.
pub const PROBE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
/// What the gateway asks past the tunnels; it is nobody's target either.
pub const WAN_PROBE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 11);
/// Where the web serves the provider's list; it is nobody's target either.
pub const SOURCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 12);
/// The port there; 80 is the pages' at every address.
pub const SOURCE_PORT: u16 = 8081;
/// What local users of the gateway ask, so that their packets are told from the gateway's own.
pub const USER_TARGET: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 199);
/// What the clients of the `spread` prefix ask.
pub const SPREAD_TARGET: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 250);
/// The hardware address of the gateway's `eth0`, by which the capture knows what comes from the gateway.
pub const WAN_MAC: [u8; 6] = [0x02, 0x77, 0, 0, 0, 0x02];

/// The low byte of an address that is counted from `base`.
fn low(base: usize, k: usize) -> u8 {
    u8::try_from(base + k).expect("the number of a client or endpoint fits its range")
}

/// The address of client `k`, counted from 1.
pub fn client(k: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, low(10, k))
}

/// The IPv6 address of client `k`.
pub fn client6(k: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, u16::from(low(0x10, k)))
}

/// The address of client `i` of the `spread` prefix 10.78.0.0/22, counted from 1.
pub fn spread(i: usize) -> Ipv4Addr {
    let offset = u32::try_from(i + 1).expect("the prefix has about a thousand addresses");
    assert!(offset < 1023, "10.78.0.0/22 ends before client {i}");
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 78, 0, 0)) + offset)
}

/// What client `k` asks: a packet's destination tells whose it is.
pub fn target(k: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, low(100, k))
}

/// The same for IPv6.
pub fn target6(k: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 1, u16::from(low(0, k)))
}

/// A target of client `k` below 128.0.0.0, where a `0.0.0.0/1` route of the gateway leads.
pub fn half_target(k: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, low(100, k))
}

/// Where the server of endpoint `k` listens, counted from 1.
pub fn endpoint(k: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, low(10, k))
}

/// The UDP port of endpoint `k`.
pub fn port(k: usize) -> u16 {
    51820 + u16::from(low(0, k))
}

/// The address by which the clients of endpoint `k` reach the web.
pub fn exit(k: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, low(110, k))
}

/// The address of the tunnel's user at endpoint `k`.
pub fn tunnel(k: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 64, low(0, k), 2)
}

/// The server's own address inside the tunnel of endpoint `k`.
pub fn inner(k: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 64, low(0, k), 1)
}

/// The IPv6 address of the tunnel's user at endpoint `k`.
pub fn tunnel6(k: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd64, 0, 0, u16::from(low(0, k)), 0, 0, 0, 2)
}

/// The server's own IPv6 address inside the tunnel of endpoint `k`.
pub fn inner6(k: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd64, 0, 0, u16::from(low(0, k)), 0, 0, 0, 1)
}

/// The IPv6 address by which the clients of endpoint `k` reach the web.
pub fn exit6(k: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 1, u16::from(low(0, k)))
}

/// The endpoint that an exit address belongs to.
pub fn endpoint_of(exit: &str) -> Option<usize> {
    let octets = exit.parse::<Ipv4Addr>().ok()?.octets();
    (octets[..3] == [198, 51, 100] && octets[3] > 110).then(|| usize::from(octets[3]) - 110)
}

/// Whether a destination belongs to a client, so that it must not be seen in clear on the WAN.
pub fn is_target(destination: IpAddr) -> bool {
    match destination {
        IpAddr::V4(to) => {
            let octets = to.octets();
            to == NEIGHBOUR
                || (octets[..3] == [192, 0, 2] && octets[3] > 100)
                || octets[..3] == [10, 99, 0]
        }
        IpAddr::V6(to) => to.segments()[..3] == [0x2001, 0xdb8, 2],
    }
}

/// Whether a source belongs to a client; the gateway's own LAN addresses do not.
pub fn is_client(source: IpAddr) -> bool {
    match source {
        IpAddr::V4(from) => {
            let octets = from.octets();
            octets[0] == 10 && (octets[1] == 77 || octets[1] == 78) && octets[2..] != [0, 1]
        }
        IpAddr::V6(from) => {
            let segments = from.segments();
            segments[0] == 0xfd77 && segments[7] != 1
        }
    }
}

/// Whether a source is the address of a tunnel.
pub fn is_tunnel(source: IpAddr) -> bool {
    match source {
        IpAddr::V4(from) => from.octets()[..2] == [10, 64],
        IpAddr::V6(from) => from.segments()[0] == 0xfd64,
    }
}

/// What every prefix begins with.
pub const FAMILY: &str = "egl";

static LABS: AtomicUsize = AtomicUsize::new(0);

/// A prefix that no other lab on this machine has: the pid, and a count within the process.
pub fn prefix() -> String {
    format!("{FAMILY}{}x{}", std::process::id(), LABS.fetch_add(1, Ordering::Relaxed))
}

/// The pid within a name that begins with a prefix.
pub fn pid_in(name: &str) -> Option<u32> {
    name.strip_prefix(FAMILY)?.split_once('x')?.0.parse().ok()
}

/// The named network namespaces of this machine that belong to labs.
pub fn spaces() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/run/netns") else { return Vec::new() };
    entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| pid_in(name).is_some())
        .collect()
}
