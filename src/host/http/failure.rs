//! Why an ask got no answer.
//!
//! **Invariant:** a failure is one line and holds no header, no body and no secret of an ask.

use crate::url::Target;
use std::fmt;
use std::io;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskFailure {
    /// The URL cannot be asked.
    BadUrl(String),
    /// Time was over.
    Timeout,
    /// The host is there and nobody listens.
    Refused(String),
    /// No way leads to the host, or it has no address.
    Unreachable(String),
    /// The server could not prove who it is, or does not speak TLS.
    Tls(String),
    /// The socket could not be tied to the device or the mark: it is gone, or we are not root.
    NotBindable(String),
    /// The proxy is not there or refuses us, which says nothing about the target.
    NoProxy(String),
    /// The server broke off or does not speak HTTP.
    Protocol(String),
}

impl fmt::Display for AskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadUrl(why) => write!(f, "bad url: {why}"),
            Self::Timeout => f.write_str("timed out"),
            Self::Refused(what) => write!(f, "refused: {what}"),
            Self::Unreachable(what) => write!(f, "unreachable: {what}"),
            Self::Tls(why) => write!(f, "tls: {why}"),
            Self::NotBindable(why) => write!(f, "not bindable: {why}"),
            Self::NoProxy(why) => write!(f, "no proxy: {why}"),
            Self::Protocol(why) => write!(f, "protocol: {why}"),
        }
    }
}

impl std::error::Error for AskFailure {}

/// Sorts ureq's errors by what they mean to a caller.
#[expect(clippy::wildcard_enum_match_arm, reason = "both enums are foreign and grow")]
pub(super) fn failure_of(error: ureq::Error, target: &Target) -> AskFailure {
    match error {
        ureq::Error::Other(other) => match other.downcast::<AskFailure>() {
            Ok(ours) => *ours,
            Err(other) => AskFailure::Protocol(other.to_string()),
        },
        ureq::Error::Timeout(_) => AskFailure::Timeout,
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => {
            AskFailure::Unreachable(format!("{} port {}", target.host(), target.port()))
        }
        ureq::Error::Http(why) => AskFailure::BadUrl(why.to_string()),
        ureq::Error::BadUri(why) => AskFailure::BadUrl(why),
        ureq::Error::Tls(why) => AskFailure::Tls(why.to_owned()),
        ureq::Error::Rustls(why) => AskFailure::Tls(why.to_string()),
        ureq::Error::TlsRequired => AskFailure::Tls("no TLS came about".to_owned()),
        ureq::Error::Io(why) => match why.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => AskFailure::Timeout,
            // rustls wraps its own errors as invalid data.
            io::ErrorKind::InvalidData if target.is_https() => AskFailure::Tls(why.to_string()),
            _ => AskFailure::Protocol(why.to_string()),
        },
        other => AskFailure::Protocol(other.to_string()),
    }
}

/// Sorts what the kernel says about a connection that did not come about.
#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that grows")]
pub(super) fn unconnected(place: impl fmt::Display, why: &io::Error) -> AskFailure {
    match why.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => AskFailure::Timeout,
        io::ErrorKind::ConnectionRefused => AskFailure::Refused(place.to_string()),
        // Among the rest are a missing route, a prohibiting or blackholing one, a filter, and a
        // kernel without this family: no way there.
        _ => AskFailure::Unreachable(format!("{place}: {why}")),
    }
}
