//! The process that listens for control, found through `/proc`.
//!
//! Only root sees the sockets of everybody's processes; anybody else sees his own.
//!
//! **Invariant:** a process is named with when it began, so that its number used again is another one.

use super::super::clock;
use crate::observation::Process;
use crate::setting::Control;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Who listens there. `known` is looked at first, so that usually one process is.
pub(super) fn of(control: &Control, known: Option<&Process>) -> Option<Process> {
    let socket = match control {
        Control::Http(url) => {
            let address = url.address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
            let texts = tables.map(|table| fs::read_to_string(table).unwrap_or_default());
            tcp_listener(&texts.concat(), address, url.port())?
        }
        Control::Unix(path) => {
            let path = fs::canonicalize(path).ok()?;
            let text = fs::read_to_string("/proc/thread-self/net/unix").ok()?;
            unix_listener(&text, path.to_str()?)?
        }
        // It is found before it is asked who listens there.
        Control::Found(_) => return None,
    };
    let link = format!("socket:[{socket}]");
    let holds = |pid: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors
            .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
            .any(|target| target.as_os_str() == link.as_str())
    };
    let all = fs::read_dir("/proc").ok()?.flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = known.map(|process| process.pid).into_iter().chain(all).find(holds)?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(Process { boot: clock::now().ok()?.boot.as_ref().to_owned(), pid, began: began(&stat)? })
}

/// The inode of the socket that listens at an address and port: one bound to just that address, or
/// else one bound to all.
fn tcp_listener(table: &str, address: IpAddr, port: u16) -> Option<u64> {
    let mut of_all = None;
    for line in table.lines() {
        let mut words = line.split_whitespace().skip(1);
        let Some((at, state)) = words.next().zip(words.nth(1)) else { continue };
        // 0A is TCP_LISTEN; after the state come five more columns before the inode.
        let Some(inode) = words.nth(5).and_then(|inode| inode.parse().ok()) else { continue };
        let Some((bound, bound_port)) = at.split_once(':') else { continue };
        if state != "0A" || u16::from_str_radix(bound_port, 16) != Ok(port) {
            continue;
        }
        match kernel_address(bound) {
            Some(bound) if bound == address => return Some(inode),
            Some(bound) if bound.is_unspecified() => of_all = Some(inode),
            Some(_) | None => {}
        }
    }
    of_all
}

/// An address as the kernel prints it: words of 32 bits, each in the machine's own order.
fn kernel_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        Some(u32::from_str_radix(text.get(at..at.checked_add(8)?)?, 16).ok()?.to_ne_bytes())
    };
    if text.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let mut bytes = [0; 16];
    for (into, at) in bytes.chunks_mut(4).zip([0, 8, 16, 24]) {
        into.copy_from_slice(&word(at)?);
    }
    Some(Ipv6Addr::from(bytes).to_canonical())
}

/// The inode of the socket that listens at a path: `00010000` is `SO_ACCEPTCON` among the flags.
fn unix_listener(table: &str, path: &str) -> Option<u64> {
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let flags = words.nth(3)?;
        let inode = words.nth(2)?;
        (flags == "00010000" && words.next() == Some(path)).then(|| inode.parse().ok()).flatten()
    })
}

/// When a process began: the 20th word after its name, which may hold anything, `)` too.
fn began(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
        0: 00000000:2382 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1149 1 00000000886be60c 100 0 0 10 0\n   \
        1: 0100007F:2382 0100007F:4A92 01 00000000:00000000 03:00001683 00000000     0        0 7 3 00000000d0692659\n   \
        2: 0100007F:2382 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1150 1 0\n   \
        3: 0000000000000000FFFF00000100007F:2383 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1151 1 0\n   \
        4: 00000000000000000000000001000000:2384 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1152 1 0\n";

    #[test]
    fn who_listens_at_just_the_address_goes_before_who_listens_everywhere() {
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let of = |address: &str, port| tcp_listener(TCP, address.parse().unwrap(), port);
        assert_eq!(tcp_listener(TCP, here, 9090), Some(1150));
        assert_eq!(of("127.0.0.2", 9090), Some(1149));
        assert_eq!(of("127.0.0.1", 9091), Some(1151));
        assert_eq!(of("::1", 9092), Some(1152));
        assert_eq!(of("127.0.0.1", 9092), None);
    }

    #[test]
    fn a_unix_socket_is_found_by_its_path_and_not_who_is_connected_to_it() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 17642 /run/core.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 17641 /run/core.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 17643\n";
        assert_eq!(unix_listener(table, "/run/core.sock"), Some(17_641));
        assert_eq!(unix_listener(table, "/run/other.sock"), None);
    }

    #[test]
    fn when_a_process_began_is_read_past_any_name() {
        let stat = "812 (a) b (c) S 1 812 812 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 9 0 123456 1 2 3";
        assert_eq!(began(stat), Some(123_456));
    }
}
