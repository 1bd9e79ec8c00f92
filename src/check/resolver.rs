//! Who is asked for names, and by which way.
//!
//! **Invariant:** what is read is text of the system, bounded, and no name is asked for here.

use super::{Code, Finding};
use crate::names::Interface;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The port of DNS.
const DNS: u16 = 53;

/// A UDP socket that waits for anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Where it waits.
    pub address: IpAddr,
    /// At which port.
    pub port: u16,
    /// Whose it is.
    pub uid: u32,
}

/// The servers that a resolv.conf names.
#[must_use]
pub fn parse_servers(text: &str) -> Vec<IpAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let value = words.next().filter(|word| *word == "nameserver").and(words.next())?;
        value.split('%').next()?.parse().ok()
    };
    text.lines().filter_map(server).collect()
}

/// The sockets of `/proc/net/udp` or `/proc/net/udp6` that have no peer.
#[must_use]
pub fn parse_sockets(text: &str) -> Vec<Socket> {
    let socket = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, _, _, _, _, uid, ..] = words.as_slice() else { return None };
        let (_, peer_port) = remote.split_once(':')?;
        let (address, port) = local.split_once(':')?;
        (peer_port == "0000").then_some(())?;
        Some(Socket {
            address: parse_address(address)?,
            port: u16::from_str_radix(port, 16).ok()?,
            uid: uid.parse().ok()?,
        })
    };
    text.lines().skip(1).filter_map(socket).collect()
}

/// An address as the kernel prints it: words of 32 bits in the order of this machine.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

/// What is wrong with how names are asked for.
///
/// `ways` says by which device each server is reached; `lan` are the gateway's addresses there;
/// `served` are the users who are clients themselves.
#[must_use]
pub fn findings(
    servers: &[IpAddr],
    ways: &BTreeMap<IpAddr, String>,
    slots: &[Interface],
    sockets: &[Socket],
    lan: &BTreeSet<IpAddr>,
    served: &BTreeSet<u32>,
    users: &BTreeMap<u32, String>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    let by_slot = |server: &IpAddr| {
        ways.get(server).filter(|device| slots.iter().any(|slot| slot.as_str() == *device))
    };
    // One that is reached without a slot is enough.
    let is_shut_in = !servers.is_empty() && servers.iter().all(|server| by_slot(server).is_some());
    if let (true, Some(first)) = (is_shut_in, servers.first()) {
        found.push(Finding::new(
            Code::ResolverInSlot,
            format!("the resolver {first} is reached through {} only", by_slot(first).map_or("a slot", String::as_str)),
            "name a resolver in /etc/resolv.conf that the uplink reaches, or remove the route that leads it into the slot",
        ));
    }
    let is_for_lan = |socket: &&Socket| {
        socket.port == DNS && (socket.address.is_unspecified() || lan.contains(&socket.address))
    };
    let in_clear: BTreeSet<u32> = sockets
        .iter()
        .filter(is_for_lan)
        .map(|socket| socket.uid)
        .filter(|uid| !served.contains(uid))
        .collect();
    for uid in in_clear {
        let user = users.get(&uid).cloned().unwrap_or_else(|| uid.to_string());
        let mend = if uid == 0 {
            "let the resolver run as a user of its own, and add \"user:NAME\" of it to clients; or point it to a server that only a slot reaches".to_owned()
        } else {
            format!("add \"user:{user}\" to clients")
        };
        found.push(Finding::new(
            Code::ResolverByWan,
            format!("a resolver of user {user} answers the LAN and asks by the WAN"),
            mend,
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6 prints them: dnsmasq on 10.77.0.1, a resolver on all of IPv6, one that is connected.
    const UDP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n  100: 01004D0A:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   997        0 21111 2 0000000000000000 0\n  101: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 21112 2 0000000000000000 0\n  102: 0200020A:D431 35020A0A:0035 01 00000000:00000000 00:00000000 00000000   997        0 21113 2 0000000000000000 0\n";
    const UDP6: &str = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n   10: 00000000000000000000000000000000:0035 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 3 2 0000000000000000 0\n";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn servers_and_sockets_are_read() {
        let text = "# x\nsearch example.org\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\nnameserver\nnameservers 1.1.1.1\n";
        assert_eq!(parse_servers(text), [ip("192.0.2.53"), ip("fe80::1")]);
        let sockets = parse_sockets(UDP);
        assert_eq!(sockets.len(), 2, "one with a peer waits for nobody");
        assert_eq!(sockets[0], Socket { address: ip("10.77.0.1"), port: 53, uid: 997 });
        assert_eq!(parse_sockets(UDP6), [Socket { address: ip("::"), port: 53, uid: 0 }]);
        assert_eq!(parse_sockets("x\ny\n1: zz:1 00:0000 a b c d e\n"), []);
    }

    fn asked(sockets: &[Socket], served: &[u32]) -> Vec<Finding> {
        let lan = BTreeSet::from([ip("10.77.0.1")]);
        let users = BTreeMap::from([(997, "dnsmasq".to_owned())]);
        let served = served.iter().copied().collect();
        findings(&[], &BTreeMap::new(), &[], sockets, &lan, &served, &users)
    }

    #[test]
    fn a_resolver_of_the_lan_that_is_no_client_asks_in_clear() {
        let found = asked(&parse_sockets(UDP), &[]);
        let [finding] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(finding.mend, "add \"user:dnsmasq\" to clients");
        assert_eq!(asked(&parse_sockets(UDP), &[997]), [], "loopback serves nobody of the LAN");
        assert!(asked(&parse_sockets(UDP6), &[997])[0].mend.contains("a user of its own"));
    }

    /// Case C17.
    #[test]
    fn a_resolver_in_a_slot_counts_when_no_other_is_outside() {
        let slot = Interface::try_from("vpn1".to_owned()).unwrap();
        let (inside, outside) = (ip("10.64.0.1"), ip("192.0.2.53"));
        let ways = BTreeMap::from([(inside, "vpn1".to_owned()), (outside, "eth0".to_owned())]);
        let asked = |servers: &[IpAddr]| {
            let (lan, served, users) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
            let slots = std::slice::from_ref(&slot);
            let found = findings(servers, &ways, slots, &[], &lan, &served, &users);
            found.iter().map(|finding| finding.code).collect::<Vec<_>>()
        };
        assert_eq!(asked(&[inside]), [Code::ResolverInSlot]);
        assert_eq!((asked(&[inside, outside]), asked(&[])), (vec![], vec![]));
    }
}
