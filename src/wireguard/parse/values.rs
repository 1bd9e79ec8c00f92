//! Reads single values.
//!
//! **Invariant:** what is returned is in the range that WireGuard works with; a fault never shows the
//! value of a key.

use super::Fault;
use super::keys::Shape;
use crate::wireguard::config::{Endpoint, Host};
use crate::wireguard::key::KeyFault;
use crate::wireguard::problem::{ProblemCode, shown};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

/// A number in plain decimal digits: `parse` alone would take `+5` as well.
fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Reads a port. `wg` takes 0, service names, and 70000 modulo 65536.
pub(super) fn port(text: &str) -> Result<NonZeroU16, Fault> {
    decimal(text).ok_or_else(|| {
        Fault::new(
            ProblemCode::BadPort,
            format!("{} is not a port", shown(text)),
            "write a number from 1 to 65535",
        )
    })
}

/// Reads a key with `read`, and names it in the problem instead of showing it.
pub(super) fn key<T>(
    name: &str,
    value: &str,
    read: impl FnOnce(&str) -> Result<T, KeyFault>,
) -> Result<T, Fault> {
    read(value).map_err(|fault| {
        let mend = "copy the key again from the provider: 44 characters that end with =";
        Fault::new(ProblemCode::BadKey, format!("{name} is not a key: {fault}"), mend)
    })
}

/// Reads `off`, a decimal number, or a hexadecimal one with `0x`.
pub(super) fn fwmark(text: &str) -> Result<Option<u32>, Fault> {
    let value = match text.strip_prefix("0x") {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u32::from_str_radix(hex, 16).ok()
        }
        Some(_) => None,
        None if text.eq_ignore_ascii_case("off") => Some(0),
        None => decimal(text),
    };
    match value {
        Some(mark) => Ok((mark != 0).then_some(mark)),
        None => Err(number("FwMark", text, "write off, or a number like 0xca6c")),
    }
}

/// Reads the seconds between keepalives.
pub(super) fn keepalive(text: &str) -> Result<Option<NonZeroU16>, Fault> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    decimal::<u16>(text)
        .map(NonZeroU16::new)
        .ok_or_else(|| number("PersistentKeepalive", text, "write off, or seconds from 1 to 65535"))
}

/// Reads an MTU. 576 is what every IPv4 host takes (RFC 791); below it nothing works.
pub(super) fn mtu(text: &str) -> Result<u16, Fault> {
    decimal(text)
        .filter(|mtu| *mtu >= 576)
        .ok_or_else(|| number("MTU", text, "write a number from 576 to 65535"))
}

fn number(name: &str, text: &str, mend: &str) -> Fault {
    Fault::new(ProblemCode::BadNumber, format!("{name} cannot be {}", shown(text)), mend)
}

/// Checks the value of an AmneziaWG parameter as far as its shape goes.
pub(super) fn amnezia(name: &str, shape: Shape, value: &str) -> Result<(), Fault> {
    let good = match shape {
        Shape::Number => decimal::<u16>(value).is_some(),
        Shape::Header => match value.split_once('-') {
            Some((low, high)) => {
                matches!((decimal::<u32>(low), decimal::<u32>(high)), (Some(l), Some(h)) if l <= h)
            }
            None => decimal::<u32>(value).is_some(),
        },
        Shape::Word | Shape::Text => true,
    };
    let mend = match shape {
        Shape::Number => "write a number from 0 to 65535",
        Shape::Header | Shape::Word | Shape::Text => "write a number, or a range like 5-10",
    };
    if good { Ok(()) } else { Err(number(name, value, mend)) }
}

/// Reads one entry of a list of prefixes, host bits and all.
pub(super) fn prefix(name: &str, entry: &str) -> Result<IpNet, Fault> {
    if entry.is_empty() {
        return Err(Fault::new(
            ProblemCode::EmptyListEntry,
            format!("{name} has a comma with nothing beside it"),
            "remove the comma",
        ));
    }
    if entry.starts_with(['+', '-']) {
        return Err(Fault::new(
            ProblemCode::IncrementalPrefix,
            format!("{name} has the entry {}, which adds or removes", shown(entry)),
            "write the prefixes without + and -",
        ));
    }
    let parsed = match entry.split_once('/') {
        Some((address, length)) => address
            .parse::<IpAddr>()
            .ok()
            .zip(decimal::<u8>(length))
            .and_then(|(address, length)| IpNet::new(address, length).ok()),
        None => entry.parse::<IpAddr>().ok().map(IpNet::from),
    };
    parsed.ok_or_else(|| {
        Fault::new(
            ProblemCode::BadPrefix,
            format!("{name} has the entry {}, which is no address or prefix", shown(entry)),
            "write entries like 10.0.0.2/32, separated by commas",
        )
    })
}

/// Reads one address of ours.
pub(super) fn address(entry: &str) -> Result<IpNet, Fault> {
    let address = prefix("Address", entry)?;
    let ip = address.addr();
    if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() {
        return Err(Fault::new(
            ProblemCode::BadPrefix,
            format!("Address has the entry {}, which no interface can have", shown(entry)),
            "copy the address again from the provider",
        ));
    }
    Ok(address)
}

/// Reads `host:port`.
pub(super) fn endpoint(text: &str) -> Result<Endpoint, Fault> {
    if let Some((scheme, _)) = text.split_once("://") {
        return Err(Fault::new(
            ProblemCode::UrlInEndpoint,
            format!("Endpoint has the scheme {}", shown(scheme)),
            "write host:port, without a scheme and a path",
        ));
    }
    if let Some(rest) = text.strip_prefix('[') {
        return bracketed(text, rest);
    }
    let Some((host, port_text)) = text.rsplit_once(':') else {
        let hint = "write host:port; the port is missing";
        return Err(bad_endpoint(text, hint));
    };
    if host.contains(':') {
        return Err(unbracketed(text, host, port_text));
    }
    if let Some((_, rest)) = host.split_once('/') {
        let (code, part) = if decimal::<u8>(rest).is_some() {
            (ProblemCode::PrefixInEndpoint, "a prefix length")
        } else {
            (ProblemCode::UrlInEndpoint, "a path")
        };
        return Err(Fault::new(
            code,
            format!("Endpoint has {part}: {}", shown(text)),
            "write host:port, with one address",
        ));
    }
    if let Some((digits, _)) =
        port_text.split_once('/').filter(|(p, _)| decimal::<u16>(p).is_some())
    {
        return Err(Fault::new(
            ProblemCode::UrlInEndpoint,
            format!("Endpoint has a path after the port {digits}"),
            "write host:port, without a path",
        ));
    }
    let host = host_of(host).ok_or_else(|| bad_endpoint(text, "write an address or a DNS name"))?;
    Ok(Endpoint { host, port: port(port_text)? })
}

fn bracketed(text: &str, rest: &str) -> Result<Endpoint, Fault> {
    let parts = rest.split_once("]:");
    let Some((ip, port_text)) = parts.and_then(|(ip, p)| Some((ip.parse::<Ipv6Addr>().ok()?, p)))
    else {
        return Err(bad_endpoint(text, "write an IPv6 endpoint as [2001:db8::1]:51820"));
    };
    if !usable(IpAddr::V6(ip)) {
        return Err(bad_endpoint(text, "copy the endpoint again from the provider"));
    }
    Ok(Endpoint { host: Host::Ip(IpAddr::V6(ip)), port: port(port_text)? })
}

/// Says where the brackets belong, if there is one way only.
fn unbracketed(text: &str, host: &str, port_text: &str) -> Fault {
    let whole_is_address = text.parse::<Ipv6Addr>().is_ok();
    let cut_is_address =
        host.parse::<Ipv6Addr>().is_ok() && decimal::<NonZeroU16>(port_text).is_some();
    let mend = match (whole_is_address, cut_is_address) {
        (false, true) => format!("write [{host}]:{port_text}"),
        (true, false) => format!("write [{text}]:PORT"),
        (true, true) | (false, false) => "write [ADDRESS]:PORT".to_owned(),
    };
    Fault::new(
        ProblemCode::UnbracketedIpv6,
        format!("Endpoint {} has several colons: an IPv6 endpoint needs [ ]", shown(text)),
        mend,
    )
}

fn bad_endpoint(text: &str, mend: &str) -> Fault {
    Fault::new(
        ProblemCode::BadEndpoint,
        format!("Endpoint {} is no host:port to send to", shown(text)),
        mend,
    )
}

fn usable(ip: IpAddr) -> bool {
    !(ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST))
}

fn host_of(text: &str) -> Option<Host> {
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return usable(IpAddr::V4(ip)).then_some(Host::Ip(IpAddr::V4(ip)));
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let label_is_good = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A last label of digits alone is a mistyped address (RFC 1123, 2.1).
    let numeric =
        name.rsplit('.').next().is_none_or(|last| last.bytes().all(|b| b.is_ascii_digit()));
    (name.len() <= 253 && name.split('.').all(label_is_good) && !numeric)
        .then(|| Host::Name(text.to_owned()))
}
