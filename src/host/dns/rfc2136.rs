//! Address records at a server that takes dynamic updates, by the update tools of Knot or BIND.
//!
//! **Invariant:** an update carries what it expects to stand there, so that the server itself keeps
//! it from overwriting anybody; the key is read by the tool, from its file.

use super::message::{self, Said, is_after};
use crate::dns::name::HostName;
use crate::dns::record::{Record, RecordSet};
use crate::host::exec::{self, Call};
use crate::host::resolve::resolve;
use crate::host::setting::Refusal;
use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// A primary answers at once; one that does not is asked again at the next step.
const ASK_DEADLINE: Duration = Duration::from_secs(2);
/// An update took 43 ms at most.
const UPDATE_DEADLINE: Duration = Duration::from_secs(4);
/// How long the serial number of the zone may take to rise.
const SERIAL_DEADLINE: Duration = Duration::from_secs(1);
/// How often it is looked at.
const SERIAL_PAUSE: Duration = Duration::from_millis(50);

/// The way to a zone.
pub(super) struct Primary<'a> {
    pub(super) server: &'a str,
    pub(super) port: u16,
    pub(super) zone: &'a HostName,
    pub(super) key_file: &'a Path,
    pub(super) tool: &'a str,
}

impl Primary<'_> {
    /// The address records of a host.
    pub(super) fn read(&self, host: &HostName) -> Result<RecordSet, String> {
        let said = self.ask(host, message::A)?;
        let record = |one: message::Address| Record {
            address: one.address,
            ttl: one.ttl,
            proxied: false,
            comment: None,
        };
        Ok(RecordSet(said.addresses.into_iter().map(record).collect()))
    }

    /// Replaces them in one update that the server refuses when something else stands there.
    pub(super) fn write(
        &self,
        host: &HostName,
        expected: &RecordSet,
        to: &RecordSet,
    ) -> Result<(), Refusal> {
        let before = self.serial().map_err(Refusal::new)?;
        let address = self.address().map_err(Refusal::new)?;
        let key = self.key_file.display().to_string();
        let script = script(address, self.zone, host, expected, to);
        let call = Call::new(self.tool, &["-v", "-k", &key], UPDATE_DEADLINE);
        exec::run(&call.with_stdin(script.into_bytes()))
            .map_err(|why| Refusal::new(why.to_string()))?;
        let end = Instant::now() + SERIAL_DEADLINE;
        loop {
            match self.serial() {
                Ok(serial) if is_after(serial, before) => return Ok(()),
                Ok(_) | Err(_) if Instant::now() < end => std::thread::sleep(SERIAL_PAUSE),
                Ok(serial) => {
                    let why = format!(
                        "{self} took the update and its serial number stays at {serial}: secondary servers will not follow"
                    );
                    return Err(Refusal::doubtful(why));
                }
                Err(why) => return Err(Refusal::new(why)),
            }
        }
    }

    fn serial(&self) -> Result<u32, String> {
        let said = self.ask(self.zone, message::SOA)?;
        said.serial.ok_or_else(|| format!("{self} is not where the zone begins: name it whole"))
    }

    fn address(&self) -> Result<SocketAddr, String> {
        let mut found = resolve(&[self.server.to_owned()], ASK_DEADLINE);
        let found = found.pop_first().map_or_else(|| Ok(Vec::new()), |(_, found)| found);
        let mut addresses =
            found.map_err(|why| format!("{} has no address: {why}", self.server))?;
        addresses.sort_by_key(IpAddr::is_ipv6);
        let first = addresses.first().ok_or_else(|| format!("{} has no address", self.server))?;
        Ok(SocketAddr::new(*first, self.port))
    }

    /// Asks the server over TCP, which whoever takes updates answers, and where nothing is cut.
    fn ask(&self, name: &HostName, kind: u16) -> Result<Said, String> {
        let end = Instant::now() + ASK_DEADLINE;
        // The answer comes through our own connection, so that nobody has to guess a number.
        let id = 0x4547;
        let question = message::question(id, name, kind);
        let bytes = exchange(self.address()?, &question, end)
            .map_err(|why| format!("{self} does not answer: {}", told(&why)))?;
        message::answer(&bytes, id, name, kind).map_err(|why| format!("{self}: {why}"))
    }
}

impl std::fmt::Display for Primary<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "zone {} at {}:{}", self.zone, self.server, self.port)
    }
}

/// What a deadline is called by the kernel, in plain words.
fn told(why: &io::Error) -> String {
    if matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
        format!("within {} s", ASK_DEADLINE.as_secs())
    } else {
        why.to_string()
    }
}

/// One question and its answer, each behind its length.
fn exchange(server: SocketAddr, question: &[u8], end: Instant) -> io::Result<Vec<u8>> {
    let left = || {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok::<_, io::Error>(left) }
    };
    let mut stream = TcpStream::connect_timeout(&server, left()?)?;
    let mut asked = u16::try_from(question.len()).unwrap_or(0).to_be_bytes().to_vec();
    asked.extend(question);
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(&asked)?;
    let mut read = |wanted: usize| {
        let mut bytes = vec![0; wanted];
        let mut have = 0;
        while let Some(room) = bytes.get_mut(have..).filter(|room| !room.is_empty()) {
            // Set anew for each piece: a server that drips is over at the deadline too.
            stream.set_read_timeout(Some(left()?))?;
            match stream.read(room)? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                n => have += n,
            }
        }
        Ok(bytes)
    };
    let length: [u8; 2] = read(2)?.try_into().unwrap_or_default();
    read(usize::from(u16::from_be_bytes(length)))
}

/// What the tool is told. It replaces the whole set if the whole set is as expected (RFC 2136, 2.4.2).
fn script(
    server: SocketAddr,
    zone: &HostName,
    host: &HostName,
    expected: &RecordSet,
    to: &RecordSet,
) -> String {
    let mut script = format!("server {} {}\nzone {zone}.\n", server.ip(), server.port());
    for address in expected.addresses() {
        // Writing to a String does not fail.
        let _ = writeln!(script, "prereq yxrrset {host}. A {address}").is_ok();
    }
    let _ = writeln!(script, "update delete {host}. A").is_ok();
    for record in &to.0 {
        let _ = writeln!(script, "update add {host}. {} A {}", record.ttl, record.address).is_ok();
    }
    script.push_str("send\n");
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn an_update_names_what_it_expects_and_replaces_the_whole_set() {
        let host = |name: &str| HostName::try_from(name.to_owned()).unwrap();
        let set = |addresses: &[u8], ttl| {
            let record = |last: &u8| Record {
                address: Ipv4Addr::new(192, 0, 2, *last),
                ttl,
                proxied: false,
                comment: None,
            };
            RecordSet(addresses.iter().map(record).collect())
        };
        let server = "192.0.2.53:53".parse().unwrap();
        let (zone, name) = (host("example.org"), host("fi.example.org"));
        assert_eq!(
            script(server, &zone, &name, &set(&[1], 3600), &set(&[2, 3], 120)),
            "server 192.0.2.53 53\nzone example.org.\nprereq yxrrset fi.example.org. A 192.0.2.1\n\
             update delete fi.example.org. A\nupdate add fi.example.org. 120 A 192.0.2.2\n\
             update add fi.example.org. 120 A 192.0.2.3\nsend\n"
        );
    }
}
