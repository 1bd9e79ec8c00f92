//! Reads `wg show all dump`.
//!
//! **Invariant:** a dump that was cut off is an error, never a shorter list of tunnels; no error shows a
//! field of the dump.

use super::key::{KeyFault, PresharedKey, PublicKey, SecretKey};
use crate::names::Interface;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

/// One interface as WireGuard has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedTunnel {
    /// Our own key, if one is set.
    pub private_key: Option<SecretKey>,
    /// The public key of it.
    pub public_key: Option<PublicKey>,
    /// The UDP port; 0 while the interface has none.
    pub listen_port: u16,
    /// The mark on the tunnel's own packets.
    pub fwmark: Option<u32>,
    /// The peers, in the order of the dump.
    pub peers: Vec<DumpedPeer>,
}

/// One peer as WireGuard has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedPeer {
    /// Who it is.
    pub public_key: PublicKey,
    /// The additional symmetric secret.
    pub preshared_key: Option<PresharedKey>,
    /// Where it was last heard, or where it is to be reached.
    pub endpoint: Option<SocketAddr>,
    /// The destinations that go to it.
    pub allowed_ips: Vec<IpNet>,
    /// Unix seconds of the last handshake; `None` is never.
    pub latest_handshake: Option<u64>,
    /// Bytes received.
    pub rx: u64,
    /// Bytes sent.
    pub tx: u64,
    /// Seconds between keepalives; `None` is off. The lower end of AmneziaWG's range.
    pub keepalive: Option<u16>,
}

/// Why a dump was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpError {
    /// The line, counted from 1.
    pub line: u32,
    /// The field that is wrong.
    pub what: &'static str,
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the dump: {}", self.line, self.what)
    }
}

impl std::error::Error for DumpError {}

/// Reads the dump of all interfaces, of `wg` or `awg`. The first line of a name is the interface, the
/// others are its peers; AmneziaWG has more columns between the third and the last. Interfaces whose name
/// none of ours can have are left out.
pub fn parse_all_dump(text: &str) -> Result<BTreeMap<Interface, DumpedTunnel>, DumpError> {
    let mut tunnels = BTreeMap::new();
    if text.is_empty() {
        return Ok(tunnels);
    }
    let Some(body) = text.strip_suffix('\n') else {
        let line = (1_u32..).zip(text.split('\n')).last().map_or(1, |(line, _)| line);
        return Err(DumpError { line, what: "it is cut off" });
    };
    for (line, row) in (1_u32..).zip(body.split('\n')) {
        let wrong = |what| DumpError { line, what };
        let (name, fields) = row.split_once('\t').ok_or_else(|| wrong("no tab"))?;
        let fields: Vec<&str> = fields.split('\t').collect();
        let Ok(name) = Interface::try_from(name.to_owned()) else { continue };
        match tunnels.get_mut(&name) {
            None => {
                let tunnel = interface(&fields).map_err(wrong)?;
                tunnels.insert(name, tunnel);
            }
            Some(tunnel) => {
                let tunnel: &mut DumpedTunnel = tunnel;
                tunnel.peers.push(peer(&fields).map_err(wrong)?);
            }
        }
    }
    Ok(tunnels)
}

fn interface(fields: &[&str]) -> Result<DumpedTunnel, &'static str> {
    let [private_key, public_key, listen_port, .., fwmark] = fields else {
        return Err("an interface has at least four fields");
    };
    Ok(DumpedTunnel {
        private_key: key(private_key, SecretKey::from_base64).map_err(|()| "private key")?,
        public_key: key(public_key, PublicKey::from_base64).map_err(|()| "public key")?,
        listen_port: listen_port.parse().map_err(|_| "listen port")?,
        fwmark: mark(fwmark).map_err(|()| "fwmark")?,
        peers: Vec::new(),
    })
}

fn peer(fields: &[&str]) -> Result<DumpedPeer, &'static str> {
    let [public_key, preshared_key, endpoint, allowed_ips, handshake, rx, tx, keepalive] = fields
    else {
        return Err("a peer has eight fields");
    };
    let handshake: u64 = handshake.parse().map_err(|_| "latest handshake")?;
    Ok(DumpedPeer {
        public_key: PublicKey::from_base64(public_key).map_err(|_| "peer's public key")?,
        preshared_key: key(preshared_key, PresharedKey::from_base64)
            .map_err(|()| "preshared key")?,
        endpoint: socket(endpoint).map_err(|()| "endpoint")?,
        allowed_ips: prefixes(allowed_ips).ok_or("allowed ips")?,
        latest_handshake: (handshake != 0).then_some(handshake),
        rx: rx.parse().map_err(|_| "received bytes")?,
        tx: tx.parse().map_err(|_| "sent bytes")?,
        keepalive: seconds(keepalive).map_err(|()| "persistent keepalive")?,
    })
}

/// The field as a key; `None` is `(none)`, or the zeros that some programs print for it.
fn key<T>(field: &str, read: impl FnOnce(&str) -> Result<T, KeyFault>) -> Result<Option<T>, ()> {
    if field == "(none)" {
        return Ok(None);
    }
    match read(field) {
        Ok(key) => Ok(Some(key)),
        Err(KeyFault::Zero) => Ok(None),
        Err(KeyFault::Length(_) | KeyFault::Alphabet) => Err(()),
    }
}

fn mark(field: &str) -> Result<Option<u32>, ()> {
    if field == "off" {
        return Ok(None);
    }
    let hex = field.strip_prefix("0x").ok_or(())?;
    u32::from_str_radix(hex, 16).map(Some).map_err(|_| ())
}

fn seconds(field: &str) -> Result<Option<u16>, ()> {
    if field == "off" {
        return Ok(None);
    }
    let low = field.split_once('-').map_or(field, |(low, _)| low);
    low.parse().map(|seconds: u16| (seconds != 0).then_some(seconds)).map_err(|_| ())
}

fn socket(field: &str) -> Result<Option<SocketAddr>, ()> {
    if field == "(none)" {
        return Ok(None);
    }
    // A link-local address carries its interface, which SocketAddr takes only as a number.
    let parts = field.split_once('%').and_then(|(ip, rest)| Some((ip, rest.split_once(']')?.1)));
    let parsed = match parts {
        Some((ip, port)) => format!("{ip}]{port}").parse(),
        None => field.parse(),
    };
    parsed.map(Some).map_err(|_| ())
}

fn prefixes(field: &str) -> Option<Vec<IpNet>> {
    if field == "(none)" {
        return Some(Vec::new());
    }
    field.split(',').map(|entry| entry.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
