//! A request without TLS that nobody waits in: whoever drives it waits for its socket, beside others.
//!
//! A thread for each page cost a steady step more CPU than the pages themselves.
//!
//! **Invariant:** nothing here waits; the request goes to the given addresses and by the given device
//! only, one after the other as long as none is reached.

use super::failure::{AskFailure, failure_of, unconnected};
use super::wire::tied;
use super::{Ask, MAX_HEAD, USER_AGENT, Via, addresses_for};
use crate::url::Target;
use rustix::event::PollFlags;
use rustix::io::Errno;
use socket2::{SockAddr, Socket};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};
use ureq_proto::BodyMode;
use ureq_proto::client::state::{RecvBody, RecvResponse};
use ureq_proto::client::{Call, RecvResponseResult, SendRequestResult};
use ureq_proto::http::{Request, header};

/// As much as is read or written at once: usual answers are shorter.
const PIECE: usize = 4 * 1024;

/// What a server said.
#[derive(Debug)]
pub(in crate::host) struct Got {
    /// The status.
    pub(in crate::host) status: u16,
    /// The body, or as much of it as was wished for.
    pub(in crate::host) body: Vec<u8>,
    /// How long it all took.
    pub(in crate::host) elapsed: Duration,
}

/// A request on its way.
pub(in crate::host) struct Plain<'a> {
    ask: Ask<'a>,
    target: &'a Target,
    left: std::vec::IntoIter<SocketAddr>,
    begun: Instant,
    end: Instant,
    last: AskFailure,
    socket: Socket,
    stage: Stage,
}

enum Stage {
    Connecting { to: SocketAddr, until: Instant },
    Talking(Box<Talk>),
}

/// A conversation over a socket that is connected.
struct Talk {
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    is_closed: bool,
    status: u16,
    body: Vec<u8>,
    part: Part,
}

/// Which part of the answer comes next.
enum Part {
    Head(Call<RecvResponse>),
    Body(Call<RecvBody>),
    End,
}

impl<'a> Plain<'a> {
    /// Begins to connect to `target`, which is that of `ask`.
    ///
    /// # Errors
    /// When no address can be reached at all.
    pub(in crate::host) fn begin(ask: Ask<'a>, target: &'a Target) -> Result<Self, AskFailure> {
        let begun = Instant::now();
        let end = begun.checked_add(ask.timeout).unwrap_or(begun);
        let mut left = addresses_for(&ask, target)?.into_iter();
        let mut last = AskFailure::Timeout;
        let (socket, stage) = connect(&ask, &mut left, &mut last, begun, end)?;
        Ok(Self { ask, target, left, begun, end, last, socket, stage })
    }

    /// The socket, and what of it is waited for.
    pub(in crate::host) fn waits_for(&self) -> (BorrowedFd<'_>, PollFlags) {
        let flags = match &self.stage {
            Stage::Connecting { .. } => PollFlags::OUT,
            Stage::Talking(talk) if talk.sent < talk.output.len() => PollFlags::OUT,
            Stage::Talking(_) => PollFlags::IN,
        };
        (self.socket.as_fd(), flags)
    }

    /// When the address at hand is given up for the next one, if there is a next one.
    pub(in crate::host) fn until(&self) -> Instant {
        match &self.stage {
            Stage::Connecting { until, .. } => *until,
            Stage::Talking(_) => self.end,
        }
    }

    /// Goes as far as it goes without waiting; `None`: not at its end. `is_ready` says whether the
    /// socket is what is waited for.
    pub(in crate::host) fn go(
        &mut self,
        is_ready: bool,
        now: Instant,
    ) -> Option<Result<Got, AskFailure>> {
        if now >= self.end {
            return Some(Err(AskFailure::Timeout));
        }
        match self.carry_on(is_ready, now) {
            Ok(got) => got.map(Ok),
            Err(failure) => Some(Err(failure)),
        }
    }

    fn carry_on(&mut self, is_ready: bool, now: Instant) -> Result<Option<Got>, AskFailure> {
        if let Stage::Connecting { to, until } = self.stage {
            let refused = if is_ready { self.socket.take_error() } else { Ok(None) };
            let failed = match refused {
                Ok(None) if is_ready => None,
                Ok(None) if now < until => return Ok(None),
                Ok(None) => Some(AskFailure::Timeout),
                Ok(Some(why)) | Err(why) => Some(unconnected(to, &why)),
            };
            if let Some(failure) = failed {
                self.last = failure;
                (self.socket, self.stage) =
                    connect(&self.ask, &mut self.left, &mut self.last, now, self.end)?;
                return Ok(None);
            }
            let talk = Talk::new(self.ask.url).map_err(|why| failure_of(why, self.target))?;
            self.stage = Stage::Talking(Box::new(talk));
        } else if !is_ready {
            return Ok(None);
        }
        let Stage::Talking(talk) = &mut self.stage else { return Ok(None) };
        let is_over = talk
            .carry_on(&mut self.socket, self.ask.max_body)
            .map_err(|why| failure_of(why, self.target))?;
        if !is_over {
            return Ok(None);
        }
        let mut body = std::mem::take(&mut talk.body);
        body.truncate(self.ask.max_body);
        Ok(Some(Got { status: talk.status, body, elapsed: self.begun.elapsed() }))
    }
}

/// Begins to connect to the first of the addresses left that may be reached.
fn connect(
    ask: &Ask<'_>,
    left: &mut std::vec::IntoIter<SocketAddr>,
    last: &mut AskFailure,
    now: Instant,
    end: Instant,
) -> Result<(Socket, Stage), AskFailure> {
    let (device, mark) = match ask.via {
        Via::Device(device) => (Some(device.as_str()), None),
        Via::DeviceMark(device, mark) => (Some(device.as_str()), Some(mark)),
        Via::Main | Via::Unix(_) | Via::Proxy(_) => (None, None),
    };
    loop {
        // What is left is shared evenly, so a first address that swallows packets leaves the others
        // their time.
        let others = u32::try_from(left.len()).unwrap_or(1).max(1);
        let Some(to) = left.next() else { return Err(last.clone()) };
        let until = now + end.saturating_duration_since(now) / others;
        let socket = match tied(to, device, mark) {
            Ok(socket) => socket,
            // Without the device no address can be reached as it should be.
            Err(failure @ AskFailure::NotBindable(_)) => return Err(failure),
            Err(failure) => {
                *last = failure;
                continue;
            }
        };
        let begun = socket.set_nonblocking(true).and_then(|()| socket.connect(&SockAddr::from(to)));
        match begun {
            Ok(()) => return Ok((socket, Stage::Connecting { to, until })),
            Err(why) if Errno::from_io_error(&why) == Some(Errno::INPROGRESS) => {
                return Ok((socket, Stage::Connecting { to, until }));
            }
            Err(why) => *last = unconnected(to, &why),
        }
    }
}

impl Talk {
    fn new(url: &str) -> Result<Self, ureq::Error> {
        let request = Request::get(url).body(()).map_err(ureq::Error::from)?;
        let mut call = Call::new(request)?;
        call.header(header::USER_AGENT, USER_AGENT)?;
        call.header(header::ACCEPT, "*/*")?;
        let mut call = call.proceed();
        let mut output = Vec::new();
        let mut piece = [0; PIECE];
        while !call.can_proceed() {
            let written = call.write(&mut piece)?;
            output.extend(piece.iter().take(written));
        }
        let Some(SendRequestResult::RecvResponse(call)) = call.proceed()? else {
            return Err(io::Error::other("a request without a body has one").into());
        };
        let (input, body) = (Vec::new(), Vec::new());
        let part = Part::Head(call);
        Ok(Self { output, sent: 0, input, is_closed: false, status: 0, body, part })
    }

    /// Whether all that is wished for has come.
    fn carry_on(&mut self, socket: &mut Socket, max_body: usize) -> Result<bool, ureq::Error> {
        let asks = self.sent < self.output.len();
        while let Some(rest) = self.output.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match socket.write(rest) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(written) => self.sent += written,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(why) => return Err(why.into()),
            }
        }
        if asks {
            // No answer is there yet.
            return Ok(false);
        }
        loop {
            while self.understand(max_body)? {}
            if matches!(self.part, Part::End) {
                return Ok(true);
            }
            if self.is_closed {
                return Err(
                    io::Error::new(io::ErrorKind::UnexpectedEof, "Peer disconnected").into()
                );
            }
            let mut piece = [0; PIECE];
            match socket.read(&mut piece) {
                Ok(0) => self.is_closed = true,
                Ok(read) => self.input.extend(piece.iter().take(read)),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                // What came before it may be all there is.
                Err(why) if is_end(&why) && matches!(self.part, Part::Body(_)) => {
                    self.is_closed = true;
                }
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// Makes what it can of what came; whether that was anything.
    fn understand(&mut self, max_body: usize) -> Result<bool, ureq::Error> {
        match &mut self.part {
            Part::End => Ok(false),
            Part::Head(call) => {
                let (used, response) = call.try_response(&self.input, false)?;
                let head = if response.is_some() { used } else { self.input.len() };
                if head > MAX_HEAD {
                    return Err(ureq::Error::LargeResponseHeader(head, MAX_HEAD));
                }
                self.input.drain(..used);
                let Some(response) = response else { return Ok(used > 0) };
                self.status = response.status().as_u16();
                let Part::Head(call) = std::mem::replace(&mut self.part, Part::End) else {
                    return Ok(false);
                };
                if let Some(RecvResponseResult::RecvBody(call)) = call.proceed() {
                    self.part = Part::Body(call);
                }
                Ok(true)
            }
            Part::Body(call) => {
                let is_whole = match call.body_mode() {
                    BodyMode::NoBody => true,
                    BodyMode::LengthDelimited(_) | BodyMode::Chunked => call.can_proceed(),
                    BodyMode::CloseDelimited => false,
                };
                if is_whole || self.body.len() > max_body {
                    self.part = Part::End;
                    return Ok(true);
                }
                let mut piece = [0; PIECE];
                let (used, made) = call.read(&self.input, &mut piece)?;
                self.input.drain(..used);
                self.body.extend(piece.iter().take(made));
                if used > 0 || made > 0 {
                    return Ok(true);
                }
                if self.is_closed && (call.can_proceed() || call.is_ended_chunked()) {
                    self.part = Part::End;
                    return Ok(true);
                }
                Ok(false)
            }
        }
    }
}

/// Whether an error means that the server has ended the conversation.
fn is_end(why: &io::Error) -> bool {
    [io::ErrorKind::ConnectionReset, io::ErrorKind::ConnectionAborted].contains(&why.kind())
}
