//! A proxy on this machine, as a policy names it.
//!
//! **Invariant:** a `Proxy` listens on loopback, so that what is asked through it crosses no network
//! before it does.

mod shown;

pub use shown::{Shown, Verdict};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A proxy on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Proxy {
    /// What it speaks.
    pub speaks: Speaks,
    /// Where it listens.
    pub at: SocketAddr,
}

/// What a proxy speaks; a "mixed" port of a Clash core speaks both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Speaks {
    /// HTTP `CONNECT` (RFC 9110, 9.3.6).
    Http,
    /// SOCKS 5 without authentication (RFC 1928); the proxy resolves names.
    Socks5,
}

impl TryFrom<String> for Proxy {
    type Error = String;

    /// `http://127.0.0.1:2081` or `socks5h://127.0.0.1:2081`, the port always named.
    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || {
            // What stands before an @ is a password, and is not repeated.
            let shown = match text.rsplit_once('@') {
                Some((_, place)) => format!("a proxy with a password at {place:?}"),
                None => format!("{text:?}"),
            };
            format!(
                "{shown} is no local proxy: write http://127.0.0.1:PORT or socks5h://127.0.0.1:PORT"
            )
        };
        let (scheme, place) = text.split_once("://").ok_or_else(wrong)?;
        let speaks = match scheme {
            "http" | "mixed" => Speaks::Http,
            "socks5" | "socks5h" => Speaks::Socks5,
            _ => return Err(wrong()),
        };
        let place = place.strip_suffix('/').unwrap_or(place);
        let at = match place.strip_prefix("localhost:") {
            Some(port) => {
                SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().map_err(|_| wrong())?)
            }
            None => place.parse().map_err(|_| wrong())?,
        };
        if at.ip().is_loopback() && at.port() != 0 { Ok(Self { speaks, at }) } else { Err(wrong()) }
    }
}

impl From<Proxy> for String {
    fn from(proxy: Proxy) -> Self {
        proxy.to_string()
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.speaks {
            Speaks::Http => "http",
            Speaks::Socks5 => "socks5h",
        };
        write!(f, "{scheme}://{}", self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::Proxy;

    #[test]
    fn a_local_proxy_is_read_and_written_alike() {
        for (text, shown) in [
            ("http://127.0.0.1:2081", "http://127.0.0.1:2081"),
            ("mixed://127.0.0.1:2081/", "http://127.0.0.1:2081"),
            ("socks5://[::1]:1080", "socks5h://[::1]:1080"),
            ("socks5h://localhost:1080", "socks5h://127.0.0.1:1080"),
        ] {
            assert_eq!(
                Proxy::try_from(text.to_owned()).map(|proxy| proxy.to_string()).as_deref(),
                Ok(shown)
            );
        }
    }

    #[test]
    fn a_proxy_elsewhere_or_without_a_port_is_refused() {
        for text in [
            "http://192.0.2.1:80",
            "http://127.0.0.1",
            "https://127.0.0.1:1",
            "http://u:p@127.0.0.1:1",
            "",
        ] {
            assert!(Proxy::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
