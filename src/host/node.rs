//! Asks nodes whether they live, many side by side.
//!
//! **Invariant:** each check is over at its own deadline, whatever the node does; no name is resolved
//! and no redirect followed, so that a node is judged by itself.

use super::http::{self, Ask, AskFailure, Certificate, Parcel, Verb, Via};
use super::{clock, files};
use crate::dns::name::HostName;
use crate::observation::{Handshake, NodeCheck, NodeReading, NodesReading};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// So many checks run at a time. A dead node costs a thread that sleeps, not time of the others.
const AT_A_TIME: usize = 256;
/// Enough for a TLS handshake of an unoptimised build.
const STACK_BYTES: usize = 1024 * 1024;
/// How much of a page is looked through for what it must hold.
const MAX_BODY: usize = 64 * 1024;
/// A bundle of certificates is smaller.
const MAX_CERTIFICATES: usize = 4 * 1024 * 1024;

/// Makes all checks.
///
/// # Errors
/// When the clock cannot be read.
pub fn check_all(checks: &BTreeSet<NodeCheck>) -> anyhow::Result<NodesReading> {
    let trust = Trust::of(checks);
    let queue = Mutex::new(checks.iter());
    let readings: Mutex<BTreeMap<NodeCheck, NodeReading>> = Mutex::default();
    let next = || queue.lock().ok().and_then(|mut checks| checks.next());
    let work = || {
        while let Some(check) = next() {
            let reading = ask(check, &trust);
            if let Ok(mut readings) = readings.lock() {
                readings.insert(check.clone(), reading);
            }
        }
    };
    std::thread::scope(|threads| {
        for _ in 1..checks.len().min(AT_A_TIME) {
            let builder = Builder::new().name("node".to_owned()).stack_size(STACK_BYTES);
            // A thread that the kernel refuses leaves its share to the others, this one included.
            drop(builder.spawn_scoped(threads, work));
        }
        work();
    });
    let checks = readings.into_inner().unwrap_or_default();
    Ok(NodesReading { at: clock::now()?, checks })
}

/// Certificates of a file, in the forms that pages and handshakes want them.
type Own = (Vec<Certificate<'static>>, Arc<ClientConfig>);

/// Whose certificates are believed, read once for all checks.
struct Trust {
    usual: Option<Arc<ClientConfig>>,
    own: BTreeMap<PathBuf, Result<Own, String>>,
}

impl Trust {
    fn of(checks: &BTreeSet<NodeCheck>) -> Self {
        let mut trust = Self { usual: None, own: BTreeMap::new() };
        for check in checks {
            match &check.how {
                Handshake::Tls { ca_file: Some(file), .. }
                | Handshake::Https { ca_file: Some(file), .. } => {
                    trust.own.entry(file.clone()).or_insert_with(|| own(file));
                }
                Handshake::Tls { ca_file: None, .. } => {
                    trust.usual.get_or_insert_with(|| {
                        config(webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect())
                    });
                }
                Handshake::Tcp { .. } | Handshake::Https { ca_file: None, .. } => {}
            }
        }
        trust
    }

    fn config(&self, ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
        match ca_file {
            None => self.usual.clone().ok_or_else(|| "no certificates are at hand".to_owned()),
            Some(file) => self.found(file).map(|(_, config)| Arc::clone(config)),
        }
    }

    fn roots(&self, ca_file: Option<&Path>) -> Result<&[Certificate<'static>], String> {
        ca_file.map_or(Ok(&[]), |file| self.found(file).map(|(roots, _)| roots.as_slice()))
    }

    fn found(&self, file: &Path) -> Result<&Own, String> {
        let none = || format!("{} was not read", file.display());
        self.own.get(file).ok_or_else(none)?.as_ref().map_err(Clone::clone)
    }
}

/// The certificates of a file.
fn own(file: &Path) -> Result<Own, String> {
    let bytes = files::read_bounded(file, MAX_CERTIFICATES)
        .map_err(|why| format!("{}: {why}", file.display()))?;
    let found = http::certificates(&bytes).map_err(|why| format!("{}: {why}", file.display()))?;
    let mut roots = RootCertStore::empty();
    for certificate in &found {
        roots
            .add(certificate.der().to_vec().into())
            .map_err(|why| format!("{}: {why}", file.display()))?;
    }
    Ok((found, config(roots)))
}

fn config(roots: RootCertStore) -> Arc<ClientConfig> {
    Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// Makes one check.
fn ask(check: &NodeCheck, trust: &Trust) -> NodeReading {
    let begun = Instant::now();
    let timeout = Duration::from_millis(check.timeout_ms);
    let end = begun + timeout;
    let result = match &check.how {
        Handshake::Tcp { port } => connect(check, *port, end).map(drop),
        Handshake::Tls { port, name, ca_file } => match trust.config(ca_file.as_deref()) {
            Err(why) => return NodeReading::Unknown(why),
            Ok(config) => {
                connect(check, *port, end).and_then(|stream| shake_hands(stream, name, config, end))
            }
        },
        Handshake::Https { port, name, path, expect_status, expect_body, ca_file } => {
            match trust.roots(ca_file.as_deref()) {
                Err(why) => return NodeReading::Unknown(why),
                Ok(roots) => {
                    let url = format!("https://{name}:{port}{path}");
                    get(check, &url, timeout, roots)
                        .and_then(|answer| judge(&answer, expect_status, expect_body.as_deref()))
                }
            }
        }
    };
    match result {
        Ok(()) => NodeReading::Passed {
            elapsed_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        },
        Err(Trouble::Its(why)) => NodeReading::Failed(why),
        Err(Trouble::Ours(why)) => NodeReading::Unknown(why),
    }
}

/// Why a check did not pass.
enum Trouble {
    /// The node's doing, or that of the way to it.
    Its(String),
    /// This machine's.
    Ours(String),
}

fn connect(check: &NodeCheck, port: u16, end: Instant) -> Result<TcpStream, Trouble> {
    let address = SocketAddr::new(IpAddr::V4(check.address), port);
    let left = left(end).map_err(|why| trouble(&why))?;
    TcpStream::connect_timeout(&address, left).map_err(|why| trouble(&why))
}

/// What went wrong, and whose doing it was. A network that cannot be reached is the node's: whether
/// we reach anybody, the reference tells.
fn trouble(why: &io::Error) -> Trouble {
    use io::ErrorKind as Kind;
    let kind = why.kind();
    if matches!(kind, Kind::TimedOut | Kind::WouldBlock) {
        Trouble::Its("silent".to_owned())
    } else if kind == Kind::ConnectionRefused {
        Trouble::Its("it refuses the connection".to_owned())
    } else if matches!(
        kind,
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe | Kind::UnexpectedEof
    ) {
        Trouble::Its("it ends the connection".to_owned())
    } else if matches!(kind, Kind::HostUnreachable | Kind::NetworkUnreachable) {
        Trouble::Its("it cannot be reached".to_owned())
    } else if kind == Kind::InvalidData {
        // What TLS has against it comes as this.
        Trouble::Its(why.to_string())
    } else {
        Trouble::Ours(format!("it could not be asked: {why}"))
    }
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A handshake to its end, by which the certificate and its key are proven.
fn shake_hands(
    stream: TcpStream,
    name: &HostName,
    config: Arc<ClientConfig>,
    end: Instant,
) -> Result<(), Trouble> {
    let server = ServerName::try_from(name.as_str().to_owned())
        .map_err(|why| Trouble::Ours(format!("{name}: {why}")))?;
    let mut connection = ClientConnection::new(config, server)
        .map_err(|why| Trouble::Ours(format!("TLS could not begin: {why}")))?;
    let mut timed = Timed { stream, end };
    while connection.is_handshaking() {
        connection.complete_io(&mut timed).map_err(|why| trouble(&why))?;
    }
    Ok(())
}

/// A stream whose reads and writes are over at a deadline, also where each brings a byte.
struct Timed {
    stream: TcpStream,
    end: Instant,
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.end)?))?;
        self.stream.read(into)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.end)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn get(
    check: &NodeCheck,
    url: &str,
    timeout: Duration,
    roots: &[Certificate<'static>],
) -> Result<http::Answer, Trouble> {
    let addresses = [IpAddr::V4(check.address)];
    let ask = Ask { url, via: Via::Main, timeout, max_body: MAX_BODY, addresses: &addresses };
    let parcel = Parcel { verb: Verb::Get, headers: &[], body: None };
    http::send_trusting(&ask, &parcel, roots).map_err(|failure| match failure {
        AskFailure::Timeout => Trouble::Its("silent".to_owned()),
        AskFailure::Refused(_)
        | AskFailure::Unreachable(_)
        | AskFailure::Tls(_)
        | AskFailure::Protocol(_) => Trouble::Its(failure.to_string()),
        AskFailure::NotBindable(_) | AskFailure::NoProxy(_) | AskFailure::BadUrl(_) => {
            Trouble::Ours(failure.to_string())
        }
    })
}

fn judge(answer: &http::Answer, status: &[u16], body: Option<&str>) -> Result<(), Trouble> {
    if !status.contains(&answer.status) {
        return Err(Trouble::Its(format!("it answers {}", answer.status)));
    }
    let held = body.is_none_or(|wished| String::from_utf8_lossy(&answer.body).contains(wished));
    if held {
        Ok(())
    } else {
        Err(Trouble::Its("its page does not hold what it should".to_owned()))
    }
}
