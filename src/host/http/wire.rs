//! The socket under ureq: tied to a device, and over at one deadline.
//!
//! **Invariant:** every wait on the socket is bounded by what is left of the whole ask, so a server
//! that sends a byte now and then gains no time.

use super::failure::{AskFailure, unconnected};
use crate::names::Mark;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
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

/// Connects through one device.
#[derive(Debug)]
pub(super) struct Bound {
    /// The device, any when `None`.
    pub(super) device: Option<String>,
    /// The firewall mark of the packets.
    pub(super) mark: Option<Mark>,
    /// When the whole ask is over; never when `None`.
    pub(super) end: Option<Instant>,
}

impl Connector for Bound {
    type Out = Wire;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _chained: Option<()>,
    ) -> Result<Option<Wire>, Error> {
        let mut last = AskFailure::Timeout;
        let count = details.addrs.len();
        for (done, address) in details.addrs.iter().enumerate() {
            let left = left(self.end)?;
            // What is left is shared evenly, so a first address that swallows packets leaves the
            // others their time.
            let others = u32::try_from(count.saturating_sub(done)).unwrap_or(1).max(1);
            match self.reach(*address, left / others) {
                Ok(stream) => {
                    let config = details.config;
                    let buffers =
                        LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
                    return Ok(Some(Wire { stream, buffers, end: self.end }));
                }
                Err(failure) => last = failure,
            }
            if matches!(last, AskFailure::NotBindable(_)) {
                // Without the device no address can be reached as it should be.
                break;
            }
        }
        Err(Error::Other(Box::new(last)))
    }
}

impl Bound {
    fn reach(&self, address: SocketAddr, wait: Duration) -> Result<TcpStream, AskFailure> {
        let unconnected = |why: io::Error| unconnected(address, &why);
        let unbindable =
            |what: String, why: io::Error| AskFailure::NotBindable(format!("{what}: {why}"));
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).map_err(unconnected)?;
        if let Some(device) = &self.device {
            socket
                .bind_device(Some(device.as_bytes()))
                .map_err(|why| unbindable(format!("device {device}"), why))?;
        }
        if let Some(mark) = self.mark {
            socket.set_mark(mark.0).map_err(|why| unbindable(format!("mark {mark}"), why))?;
        }
        let wait = wait.max(Duration::from_millis(1));
        socket.connect_timeout(&SockAddr::from(address), wait).map_err(unconnected)?;
        socket.set_tcp_nodelay(true).map_err(unconnected)?;
        Ok(socket.into())
    }
}

/// What is left until `end`, or that it is over.
fn left(end: Option<Instant>) -> Result<Duration, Error> {
    let left =
        end.map_or(Duration::from_secs(3_600), |end| end.saturating_duration_since(Instant::now()));
    if left.is_zero() { Err(Error::Timeout(Timeout::Global)) } else { Ok(left) }
}

/// A connected socket.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
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
            self.stream.set_write_timeout(Some(left(self.end)?))?;
            match self.stream.write(rest) {
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
            self.stream.set_read_timeout(Some(left(self.end)?))?;
            match self.stream.read(self.buffers.input_append_buf()) {
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
