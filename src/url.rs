//! Addresses of what is asked over HTTP.
//!
//! **Invariant:** a `Target` is http or https, names a host and a port, and holds no user name, no
//! password and no character that could end a line of a request or of a log.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// An http or https address, checked when it was made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Target {
    text: String,
    is_https: bool,
    host: String,
    port: u16,
    path: String,
}

impl Target {
    /// The address as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the answer comes through TLS, so that its sender is proved.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// The host: a name, or an address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The address when the host is one, so that nobody has to be asked for it.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// The port, 80 or 443 when none is written.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path with its query, `/` when none is written.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // The text itself stays out of the errors: it may hold a password, which is why it is refused.
        if !text.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b)) {
            return Err("a URL has no spaces, control characters, quotes or braces: write them as %20 and so on".to_owned());
        }
        let (scheme, rest) =
            text.split_once("://").ok_or("a URL begins with http:// or https://")?;
        let is_https = match scheme {
            s if s.eq_ignore_ascii_case("https") => true,
            s if s.eq_ignore_ascii_case("http") => false,
            _ => return Err("a URL begins with http:// or https://".to_owned()),
        };
        if rest.contains('#') {
            return Err("a URL that is asked has no # part".to_owned());
        }
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        if authority.contains('@') {
            return Err("a URL holds no user name and no password".to_owned());
        }
        let (host, port) = split_port(authority)?;
        let port = match port {
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok(),
            Some(_) => None,
            None => Some(if is_https { 443 } else { 80 }),
        };
        let port = port
            .filter(|&port| port != 0)
            .ok_or_else(|| format!("the port of host {host} is not 1 to 65535"))?;
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        Ok(Self { is_https, host: host.to_owned(), port, path, text })
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.text
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The host and the port that `url` is asked at, or nothing when it is no [`Target`].
#[must_use]
pub fn host_of(url: &str) -> Option<(String, u16)> {
    Target::try_from(url.to_owned()).ok().map(|target| (target.host, target.port))
}

/// Splits `host`, `host:port`, `[v6]` and `[v6]:port`.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("a [ in a URL is never closed")?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err("what stands in [ ] in a URL is an IPv6 address".to_owned());
        }
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if after.is_empty() => Ok((host, None)),
            None => Err("after ] in a URL comes a port or a path".to_owned()),
        };
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if host.is_empty() || host.len() > 253 || !host.bytes().all(allowed) {
        return Err("a URL names a host of letters, digits, - and .".to_owned());
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Result<Target, String> {
        Target::try_from(text.to_owned())
    }

    #[test]
    fn an_address_is_taken_apart() {
        let parts = |text: &str| {
            let t = target(text).unwrap();
            (t.is_https, t.host.clone(), t.port, t.path)
        };
        let own = str::to_owned;
        assert_eq!(parts("https://a.example/x?y=1"), (true, own("a.example"), 443, own("/x?y=1")));
        assert_eq!(parts("HTTP://a.example:8080"), (false, own("a.example"), 8080, own("/")));
        assert_eq!(parts("http://[2001:db8::1]:81/"), (false, own("2001:db8::1"), 81, own("/")));
        assert_eq!(parts("http://192.0.2.1?q"), (false, own("192.0.2.1"), 80, own("/?q")));
        assert_eq!(target("http://[::1]").unwrap().address(), "::1".parse().ok());
        assert_eq!(host_of("https://a.example"), Some((own("a.example"), 443)));
        assert_eq!(host_of("a.example"), None);
    }

    #[test]
    fn what_could_mislead_is_refused_without_being_repeated() {
        for bad in [
            "",
            "a.example",
            "ftp://a.example",
            "http://",
            "http:///x",
            "http://user:pw@a.example/",
            "http://a.example:0/",
            "http://a.example:70000/",
            "http://a.example:+80/",
            "http://a.example:/",
            "http://[::1",
            "http://[a.example]/",
            "http://[::1]x/",
            "http://a b/",
            "http://a.example/\r\nHost: b",
            "http://a.example/\u{e9}",
            "http://a.example/#x",
        ] {
            let why = target(bad).unwrap_err();
            assert!(!why.contains("pw"), "{bad:?}: {why}");
        }
    }

    #[test]
    fn json_holds_the_text() {
        let t: Target = serde_json::from_str("\"https://a.example/x\"").unwrap();
        assert_eq!(serde_json::to_string(&t).unwrap(), "\"https://a.example/x\"");
        assert!(serde_json::from_str::<Target>("\"x\"").is_err());
    }
}
