//! Asks over HTTP, and is the only one who does.
//!
//! **Invariant:** an ask is over at its timeout, whatever the server does; it goes to the given
//! addresses and through the given device only, follows no redirect, heeds no proxy variable and
//! resolves no name.

mod failure;
mod forget;
mod proxy;
mod wire;

use crate::names::{Interface, Mark};
use crate::proxy::Proxy;
use crate::url::Target;
use failure::failure_of;
use forget::forget;
use std::fmt;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};
use ureq::http::{HeaderMap, Request, Response, header};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::transport::{Connector as _, RustlsConnector};
use ureq::{Agent, Body};
use wire::{Bound, Given, Way};

pub use failure::AskFailure;
pub use ureq::tls::Certificate;

/// The longest head of an answer that is read; usual ones have 1 KiB.
const MAX_HEAD: usize = 16 * 1024;

/// The way out.
#[derive(Clone, Copy, Debug)]
pub enum Via<'a> {
    /// As the kernel routes the machine's own packets.
    Main,
    /// Through this device only (`SO_BINDTODEVICE`).
    Device(&'a Interface),
    /// Through this device only, with a firewall mark that exempts the packets from our own rules.
    DeviceMark(&'a Interface, Mark),
    /// To a socket in the file system; the host of the URL is only named.
    Unix(&'a Path),
    /// Through a proxy on this machine, which resolves the host.
    Proxy(Proxy),
}

/// What to ask, and how far to go for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// An http or https URL, see [`Target`].
    pub url: &'a str,
    /// The way out.
    pub via: Via<'a>,
    /// For the whole of it: connecting, TLS, asking and the last byte of the answer.
    pub timeout: Duration,
    /// How many bytes of the body are read.
    pub max_body: usize,
    /// The host's addresses, of which those of IPv4 are tried first and at most 16 at all. May be
    /// empty when the URL holds an address itself, and for a proxy or a Unix socket.
    pub addresses: &'a [IpAddr],
}

/// What is done to the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read it.
    Get,
    /// Replace it.
    Put,
    /// Change a part of it.
    Patch,
    /// Hand something to it.
    Post,
    /// Remove it.
    Delete,
}

/// A request of more than a URL.
#[derive(Clone, Copy)]
pub struct Parcel<'a> {
    /// What is done.
    pub verb: Verb,
    /// Headers, whose values may be secret.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body, which may be secret.
    pub body: Option<&'a [u8]>,
}

impl fmt::Debug for Parcel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| *name).collect();
        f.debug_struct("Parcel")
            .field("verb", &self.verb)
            .field("headers", &names)
            .field("body", &self.body.map(|body| format!("{} bytes", body.len())))
            .finish()
    }
}

/// What a server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status, such as 204; no status is a failure here.
    pub status: u16,
    /// The body, or as much of it as was wished for.
    pub body: Vec<u8>,
    /// Whether `body` is all of it; false when it is longer than `max_body`.
    pub is_whole: bool,
    /// Where a redirect points.
    pub location: Option<String>,
    /// When the server wishes to be asked again, as it wrote it: seconds or a date.
    pub retry_after: Option<String>,
    /// When the server says it answered, as it wrote it.
    pub date: Option<String>,
    /// Which version of the resource this is.
    pub etag: Option<String>,
    /// When the resource was last changed, as the server wrote it.
    pub last_modified: Option<String>,
    /// How long it all took.
    pub elapsed: Duration,
}

impl Answer {
    /// The body for a reader to whom a part of it is worth nothing.
    ///
    /// # Errors
    /// When it is longer than `max_body`.
    pub fn into_whole_body(self) -> Result<Vec<u8>, AskFailure> {
        if self.is_whole {
            Ok(self.body)
        } else {
            let told = format!("the answer is longer than {} bytes", self.body.len());
            Err(AskFailure::Protocol(told))
        }
    }
}

/// Reads a resource.
///
/// # Errors
/// When no answer came, see [`AskFailure`]; never for a status.
pub fn get(ask: &Ask<'_>) -> Result<Answer, AskFailure> {
    send(ask, &Parcel { verb: Verb::Get, headers: &[], body: None })
}

/// Asks with a verb, headers and a body. Their values are in no failure, and what an answer repeats of an
/// `Authorization` is taken out of it.
///
/// # Errors
/// When no answer came, see [`AskFailure`]; never for a status.
pub fn send(ask: &Ask<'_>, parcel: &Parcel<'_>) -> Result<Answer, AskFailure> {
    send_trusting(ask, parcel, &[])
}

/// As [`send`], to a server whose certificate one of `roots` has signed; the usual ones when empty.
///
/// # Errors
/// As [`send`].
pub fn send_trusting(
    ask: &Ask<'_>,
    parcel: &Parcel<'_>,
    roots: &[Certificate<'static>],
) -> Result<Answer, AskFailure> {
    let begun = Instant::now();
    let target = Target::try_from(ask.url.to_owned()).map_err(AskFailure::BadUrl)?;
    let addresses = addresses_for(ask, &target)?;
    let agent = agent_for(ask, &target, addresses, begun, roots);
    let response = match parcel.body {
        Some(body) => request(ask.url, parcel, body).and_then(|asked| agent.run(asked)),
        None => request(ask.url, parcel, ()).and_then(|asked| agent.run(asked)),
    };
    response
        .and_then(|response| take(response, ask.max_body, begun))
        .map(|mut answer| {
            forget(&mut answer, parcel.headers);
            answer
        })
        .map_err(|error| failure_of(error, &target))
}

/// The addresses to try, IPv4 first: a tunnel more often lacks the other family.
fn addresses_for(ask: &Ask<'_>, target: &Target) -> Result<Vec<SocketAddr>, AskFailure> {
    let mut addresses: Vec<IpAddr> = match ask.via {
        Via::Main | Via::Device(_) | Via::DeviceMark(..) => match target.address() {
            Some(address) => vec![address],
            None => ask.addresses.to_vec(),
        },
        // ureq insists on an address; these two ways look at none.
        Via::Unix(_) | Via::Proxy(_) => vec![Ipv4Addr::UNSPECIFIED.into()],
    };
    if addresses.is_empty() {
        return Err(AskFailure::Unreachable(format!("no address of {} is known", target.host())));
    }
    addresses.sort_by_key(IpAddr::is_ipv6);
    Ok(addresses.into_iter().map(|address| SocketAddr::new(address, target.port())).collect())
}

/// The certificates in `pem`; what else it holds is passed over.
///
/// # Errors
/// When it holds none, or one that is spoilt.
pub fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    let mut found = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|why| why.to_string())? {
            found.push(certificate);
        }
    }
    if found.is_empty() { Err("it holds no certificate in PEM".to_owned()) } else { Ok(found) }
}

/// An agent for one ask. It costs some microseconds; the roots of TLS, which cost far more, are
/// built at the first TLS handshake only.
fn agent_for(
    ask: &Ask<'_>,
    target: &Target,
    addresses: Vec<SocketAddr>,
    begun: Instant,
    roots: &[Certificate<'static>],
) -> Agent {
    let mut tls = TlsConfig::builder();
    if !roots.is_empty() {
        tls = tls.root_certs(RootCerts::new_with_certs(roots));
    }
    let config = Agent::config_builder()
        .timeout_global(Some(ask.timeout))
        .tls_config(tls.build())
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_response_header_size(MAX_HEAD)
        // ureq fills 256 KiB with zeros for each ask otherwise, a tenth of the CPU of a steady step.
        .input_buffer_size(MAX_HEAD + 1_024)
        .output_buffer_size(4 * 1024)
        .user_agent(concat!("egressctl/", env!("CARGO_PKG_VERSION")))
        .build();
    let named = |device: &Interface| Some(device.as_str().to_owned());
    let way = match ask.via {
        Via::Main => Way::Tcp { device: None, mark: None },
        Via::Device(device) => Way::Tcp { device: named(device), mark: None },
        Via::DeviceMark(device, mark) => Way::Tcp { device: named(device), mark: Some(mark) },
        Via::Unix(path) => Way::Unix(path.to_path_buf()),
        Via::Proxy(proxy) => Way::Proxy(proxy, target.host().to_owned(), target.port()),
    };
    let bound = Bound { way, end: begun.checked_add(ask.timeout) };
    let given = Given(addresses);
    if target.is_https() {
        Agent::with_parts(config, bound.chain(RustlsConnector::default()), given)
    } else {
        Agent::with_parts(config, bound, given)
    }
}

fn request<B>(url: &str, parcel: &Parcel<'_>, body: B) -> Result<Request<B>, ureq::Error> {
    let verb = match parcel.verb {
        Verb::Get => "GET",
        Verb::Put => "PUT",
        Verb::Patch => "PATCH",
        Verb::Post => "POST",
        Verb::Delete => "DELETE",
    };
    let mut builder = Request::builder().method(verb).uri(url);
    for (name, value) in parcel.headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body).map_err(ureq::Error::from)
}

fn take(response: Response<Body>, max: usize, begun: Instant) -> Result<Answer, ureq::Error> {
    let status = response.status().as_u16();
    let location = text_of(response.headers(), &header::LOCATION);
    let retry_after = text_of(response.headers(), &header::RETRY_AFTER);
    let date = text_of(response.headers(), &header::DATE);
    let etag = text_of(response.headers(), &header::ETAG);
    let last_modified = text_of(response.headers(), &header::LAST_MODIFIED);
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    let mut body = Vec::new();
    let reader = response.into_body().into_with_config().limit(u64::MAX).reader();
    reader.take(limit).read_to_end(&mut body).map_err(ureq::Error::from)?;
    let is_whole = body.len() <= max;
    body.truncate(max);
    let elapsed = begun.elapsed();
    Ok(Answer { status, body, is_whole, location, retry_after, date, etag, last_modified, elapsed })
}

fn text_of(headers: &HeaderMap, name: &header::HeaderName) -> Option<String> {
    let value = headers.get(name)?;
    let text = String::from_utf8_lossy(value.as_bytes());
    Some(text.chars().filter(|c| !c.is_control()).collect())
}
