//! Writes configurations: for `wg setconf` and for keeping.
//!
//! **Invariant:** what is written says everything; nothing is left to what the interface was before.

use super::config::{Dialect, Section, TunnelConfig};
use crate::names::Mark;
use ipnet::IpNet;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU16;

/// A configuration with its secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Rendered(String);

impl Rendered {
    /// The text, for the standard input of `wg` or a file of mode 0600 and nothing else.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Rendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} bytes, hidden)", self.0.len())
    }
}

/// What a tunnel's own packets are like outside of it, which no file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside {
    /// The peer's literal address.
    pub endpoint: SocketAddr,
    /// The port that it listens on; `None`: a new one.
    pub listen_port: Option<NonZeroU16>,
    /// What its own packets carry; `None`: nothing.
    pub fwmark: Option<Mark>,
}

/// What `wg setconf IF /dev/stdin` and `wg syncconf` read. The endpoint is a literal address, because
/// `wg` would resolve a name for more than a minute. Without `listen_port` the kernel picks a new one,
/// so only a new interface goes without.
#[must_use]
pub fn setconf(config: &TunnelConfig, outside: Outside) -> Rendered {
    let Outside { endpoint, listen_port, fwmark } = outside;
    let mut text = Text::default();
    text.0.push_str("[Interface]\n");
    text.line("PrivateKey", config.private_key.reveal());
    if let Some(port) = listen_port {
        text.line("ListenPort", port);
    }
    text.line("FwMark", fwmark.map_or_else(|| "off".to_owned(), |mark| mark.to_string()));
    text.parameters(config, Section::Interface);
    // A scope id means nothing to wg and a link-local endpoint is no provider's.
    let (ip, port) = (endpoint.ip(), endpoint.port());
    text.peer(config, SocketAddr::new(ip, port));
    Rendered(text.0)
}

/// A wg-quick file that [`super::parse()`] reads back as the same value.
#[must_use]
pub fn wg_quick(config: &TunnelConfig) -> Rendered {
    let mut text = Text::default();
    text.0.push_str("[Interface]\n");
    text.line("PrivateKey", config.private_key.reveal());
    text.line("Address", list(&config.addresses));
    if let Some(port) = config.listen_port {
        text.line("ListenPort", port);
    }
    if let Some(mark) = config.fwmark {
        text.line("FwMark", format_args!("{mark:#x}"));
    }
    if !config.dns.is_empty() {
        text.line("DNS", config.dns.join(", "));
    }
    if let Some(mtu) = config.mtu {
        text.line("MTU", mtu);
    }
    text.parameters(config, Section::Interface);
    text.peer(config, &config.peer.endpoint);
    Rendered(text.0)
}

fn list(prefixes: &[IpNet]) -> String {
    prefixes.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", ")
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, key: &str, value: impl fmt::Display) {
        // Writing into a String cannot fail.
        let _infallible = writeln!(self.0, "{key} = {value}");
    }

    fn parameters(&mut self, config: &TunnelConfig, section: Section) {
        match &config.dialect {
            Dialect::Plain => {}
            Dialect::Amnezia(parameters) => {
                for parameter in parameters.iter().filter(|p| p.section == section) {
                    self.line(parameter.name, &parameter.value);
                }
            }
        }
    }

    fn peer(&mut self, config: &TunnelConfig, endpoint: impl fmt::Display) {
        let peer = &config.peer;
        self.0.push_str("\n[Peer]\n");
        self.line("PublicKey", peer.public_key);
        if let Some(key) = &peer.preshared_key {
            self.line("PresharedKey", key.reveal());
        }
        self.line("AllowedIPs", list(&peer.allowed_ips));
        self.line("Endpoint", endpoint);
        // Without the line an older syncconf keeps the old interval; `awg` 3 does not know `off`.
        self.line("PersistentKeepalive", peer.persistent_keepalive.map_or(0, NonZeroU16::get));
        self.parameters(config, Section::Peer);
    }
}

#[cfg(test)]
mod tests;
