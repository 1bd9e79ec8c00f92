//! Opens a connection through a local proxy, HTTP `CONNECT` or SOCKS 5, without a password.
//!
//! **Invariant:** a proxy that is not there or refuses us is told apart from one that could not
//! reach the target, and the proxy, not this machine, resolves the target's name.

use super::failure::AskFailure;
use super::wire::left;
use crate::proxy::Speaks;
use socket2::Socket;
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::time::Instant;

/// The longest head of an answer to `CONNECT` that is read; usual ones have 40 bytes.
const MAX_HEAD: usize = 4 * 1024;

/// Asks the proxy at the other end of `socket` for a connection to `host` and `port`.
pub(super) fn open_through(
    socket: &mut Socket,
    speaks: Speaks,
    host: &str,
    port: u16,
    end: Option<Instant>,
) -> Result<(), AskFailure> {
    let mut talk = Talk { socket, end };
    match speaks {
        Speaks::Http => connect(&mut talk, host, port),
        Speaks::Socks5 => socks(&mut talk, host, port),
    }
}

fn connect(talk: &mut Talk<'_>, host: &str, port: u16) -> Result<(), AskFailure> {
    let place =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    talk.say(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n").as_bytes())?;
    // Byte by byte: what follows the head belongs to the target.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            return Err(AskFailure::NoProxy("it does not speak HTTP".to_owned()));
        }
        head.extend(talk.hear::<1>()?);
    }
    let line = String::from_utf8_lossy(&head);
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| {
        rest.split_ascii_whitespace().nth(1).and_then(|digits| digits.parse::<u16>().ok())
    });
    match status {
        Some(200..=299) => Ok(()),
        Some(status @ 500..=599) if status != 501 => {
            Err(AskFailure::Unreachable(format!("the proxy answers {status}")))
        }
        Some(status) => Err(AskFailure::NoProxy(format!("it answers {status} to CONNECT"))),
        None => Err(AskFailure::NoProxy("it does not speak HTTP".to_owned())),
    }
}

fn socks(talk: &mut Talk<'_>, host: &str, port: u16) -> Result<(), AskFailure> {
    talk.say(&[5, 1, 0])?;
    if talk.hear::<2>()? != [5, 0] {
        return Err(AskFailure::NoProxy("it does not speak SOCKS 5 without password".to_owned()));
    }
    let mut asked = vec![5, 1, 0];
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            asked.push(1);
            asked.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            asked.push(4);
            asked.extend(address.octets());
        }
        Err(_) => {
            let length = u8::try_from(host.len());
            asked.push(3);
            asked.push(length.map_err(|_| AskFailure::BadUrl("a long host name".to_owned()))?);
            asked.extend(host.as_bytes());
        }
    }
    asked.extend(port.to_be_bytes());
    talk.say(&asked)?;
    let [version, code, _, form] = talk.hear::<4>()?;
    if version != 5 {
        return Err(AskFailure::NoProxy("it does not speak SOCKS 5".to_owned()));
    }
    if code != 0 {
        return Err(AskFailure::Unreachable(format!("the proxy answers code {code}")));
    }
    let rest = match form {
        1 => 4,
        4 => 16,
        _ => usize::from(talk.hear::<1>()?[0]),
    };
    for _ in 0..rest + 2 {
        talk.hear::<1>()?;
    }
    Ok(())
}

/// Both directions of a proxy's socket, within the deadline of the ask.
struct Talk<'a> {
    socket: &'a mut Socket,
    end: Option<Instant>,
}

impl Talk<'_> {
    fn say(&mut self, bytes: &[u8]) -> Result<(), AskFailure> {
        let left = left(self.end).map_err(|_| AskFailure::Timeout)?;
        self.socket
            .set_write_timeout(Some(left))
            .and_then(|()| self.socket.write_all(bytes))
            .map_err(|why| broken(&why))
    }

    fn hear<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], AskFailure> {
        let left = left(self.end).map_err(|_| AskFailure::Timeout)?;
        let mut bytes = [0; LENGTH];
        self.socket
            .set_read_timeout(Some(left))
            .and_then(|()| self.socket.read_exact(&mut bytes))
            .map_err(|why| broken(&why))?;
        Ok(bytes)
    }
}

/// A core that cannot reach a target often says so by hanging up.
#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that grows")]
fn broken(why: &io::Error) -> AskFailure {
    match why.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => AskFailure::Timeout,
        _ => AskFailure::Unreachable(format!("the proxy hung up: {why}")),
    }
}
