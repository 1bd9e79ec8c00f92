//! The socket under ureq: tied to a device, and over at one deadline.
//!
//! **Invariant:** every wait on the socket is bounded by what is left of the whole ask, so a server
//! that sends a byte now and then gains no time.

use super::failure::{AskFailure, unconnected};
use super::proxy::open_through;
use crate::names::Mark;
use crate::proxy::Proxy;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Error, Timeout};

/// As many addresses as ureq has room for.
const MAX_ADDRESSES: usize = 16;

/// Answers with the addresses that were given, and asks nobody.
#[derive(Debug)]
pub(super) struct Given(pub(super) Vec<SocketAddr>);

impl Resolver for Given {
    fn resolve(
        &self,
        _uri: &Uri,
        _config: &Config,
        _timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let mut room = self.empty();
        for address in self.0.iter().take(MAX_ADDRESSES) {
            room.push(*address);
        }
        if room.is_empty() { Err(Error::HostNotFound) } else { Ok(room) }
    }
}

/// Connects the one way that was asked for.
#[derive(Debug)]
pub(super) struct Bound {
    /// The way out.
    pub(super) way: Way,
    /// When the whole ask is over; never when `None`.
    pub(super) end: Option<Instant>,
}

/// A way out that holds its own words, as ureq wants it.
#[derive(Debug)]
pub(super) enum Way {
    /// By TCP to the target's addresses.
    Tcp {
        /// Through this device only.
        device: Option<String>,
        /// With this firewall mark.
        mark: Option<Mark>,
    },
    /// To a socket in the file system.
    Unix(PathBuf),
    /// Through a proxy, which is told the target's host and port.
    Proxy(Proxy, String, u16),
}

impl Connector for Bound {
    type Out = Wire;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _chained: Option<()>,
    ) -> Result<Option<Wire>, Error> {
        let reached = match &self.way {
            Way::Tcp { device, mark } => self.reach_any(&details.addrs, device.as_deref(), *mark),
            Way::Unix(path) => self.reach_socket(path),
            Way::Proxy(proxy, host, port) => self.reach_proxy(*proxy, host, *port),
        };
        let socket = reached.map_err(|failure| Error::Other(Box::new(failure)))?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Wire { socket, buffers, end: self.end }))
    }
}

impl Bound {
    fn reach_any(
        &self,
        addresses: &[SocketAddr],
        device: Option<&str>,
        mark: Option<Mark>,
    ) -> Result<Socket, AskFailure> {
        let mut last = AskFailure::Timeout;
        for (done, address) in addresses.iter().enumerate() {
            let left = left(self.end).map_err(|_| AskFailure::Timeout)?;
            // What is left is shared evenly, so a first address that swallows packets leaves the
            // others their time.
            let others = u32::try_from(addresses.len().saturating_sub(done)).unwrap_or(1).max(1);
            match reach(*address, device, mark, left / others) {
                Ok(socket) => return Ok(socket),
                // Without the device no address can be reached as it should be.
                Err(failure @ AskFailure::NotBindable(_)) => return Err(failure),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    fn reach_socket(&self, path: &Path) -> Result<Socket, AskFailure> {
        let lost = |why: io::Error| AskFailure::Unreachable(format!("{}: {why}", path.display()));
        let left = left(self.end).map_err(|_| AskFailure::Timeout)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(lost)?;
        let address = SockAddr::unix(path).map_err(lost)?;
        socket.connect_timeout(&address, left).map_err(|why| unconnected(path.display(), &why))?;
        Ok(socket)
    }

    fn reach_proxy(&self, proxy: Proxy, host: &str, port: u16) -> Result<Socket, AskFailure> {
        let left = left(self.end).map_err(|_| AskFailure::Timeout)?;
        let reached = reach(proxy.at, None, None, left);
        let mut socket = reached.map_err(|failure| AskFailure::NoProxy(failure.to_string()))?;
        open_through(&mut socket, proxy.speaks, host, port, self.end)?;
        Ok(socket)
    }
}

/// Connects to one address.
fn reach(
    address: SocketAddr,
    device: Option<&str>,
    mark: Option<Mark>,
    wait: Duration,
) -> Result<Socket, AskFailure> {
    let unconnected = |why: io::Error| unconnected(address, &why);
    let unbindable =
        |what: String, why: io::Error| AskFailure::NotBindable(format!("{what}: {why}"));
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).map_err(unconnected)?;
    if let Some(device) = device {
        socket
            .bind_device(Some(device.as_bytes()))
            .map_err(|why| unbindable(format!("device {device}"), why))?;
    }
    if let Some(mark) = mark {
        socket.set_mark(mark.0).map_err(|why| unbindable(format!("mark {mark}"), why))?;
    }
    let wait = wait.max(Duration::from_millis(1));
    socket.connect_timeout(&SockAddr::from(address), wait).map_err(unconnected)?;
    socket.set_tcp_nodelay(true).map_err(unconnected)?;
    Ok(socket)
}

/// What is left until `end`, or that it is over.
pub(super) fn left(end: Option<Instant>) -> Result<Duration, Error> {
    let left =
        end.map_or(Duration::from_secs(3_600), |end| end.saturating_duration_since(Instant::now()));
    if left.is_zero() { Err(Error::Timeout(Timeout::Global)) } else { Ok(left) }
}

/// A connected socket.
#[derive(Debug)]
pub(super) struct Wire {
    socket: Socket,
    buffers: LazyBuffers,
    end: Option<Instant>,
}

impl Transport for Wire {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _timeout: NextTimeout) -> Result<(), Error> {
        let mut rest = self.buffers.output().get(..amount).unwrap_or_default();
        while !rest.is_empty() {
            self.socket.set_write_timeout(Some(left(self.end)?))?;
            match self.socket.write(rest) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, _timeout: NextTimeout) -> Result<bool, Error> {
        loop {
            self.socket.set_read_timeout(Some(left(self.end)?))?;
            match self.socket.read(self.buffers.input_append_buf()) {
                Ok(amount) => {
                    self.buffers.input_appended(amount);
                    return Ok(amount > 0);
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// Never, so that nothing is kept for another ask: there is none.
    fn is_open(&mut self) -> bool {
        false
    }
}
