//! Links and their addresses: `ip -N -j -d addr show`.
//!
//! **Invariant:** a link is up when the administrator made it so; WireGuard and tun links have no other state.

use super::Family;
use super::batch::ListingError;
use super::raw::{Fields, objects};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::IpAddr;

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Link {
    /// The kernel's number of it, never used twice while the machine runs.
    pub index: u32,
    /// Its name. The kernel allows more names than [`crate::names::Interface`].
    pub name: String,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether it is switched on and has a carrier.
    pub lower_up: bool,
    /// Its MTU.
    pub mtu: u32,
    /// `wireguard`, `amneziawg`, `tun` (also a userspace WireGuard), `veth`, …; `None` for a real card,
    /// and for all when `-d` was not given.
    pub kind: Option<String>,
    /// The bridge or bond that it belongs to.
    pub master: Option<String>,
    /// Its addresses, in the order of the kernel.
    pub addresses: Vec<Address>,
}

/// An address of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address {
    /// The address, with the length of its prefix.
    pub local: IpNet,
    /// The other end of a point-to-point address.
    pub peer: Option<IpAddr>,
    /// 0 is global, 253 link, 254 host.
    pub scope: u8,
    /// Whether it came from DHCP or a router and ends by itself.
    pub dynamic: bool,
    /// Whether it cannot be used: its duplicate detection runs or has failed.
    pub unusable: bool,
}

/// Reads a listing of links, with or without `-d` and with or without addresses.
pub fn parse_links(listing: &Value) -> Result<Vec<Link>, ListingError> {
    let mut links = Vec::new();
    for mut fields in objects("link", listing)? {
        // A filter leaves objects without the name (`ip -j link show type wireguard`).
        let Some(name) = fields.text("ifname")? else { continue };
        let flags = fields.value("flags").unwrap_or_default();
        let has = |flag: &str| {
            flags.as_array().is_some_and(|flags| flags.iter().any(|value| value == flag))
        };
        let kind = fields.value("linkinfo");
        let kind = kind.as_ref().and_then(|info| info.get("info_kind")).and_then(Value::as_str);
        links.push(Link {
            index: fields.number("ifindex")?.ok_or_else(|| fields.wrong("ifindex"))?,
            name,
            up: has("UP"),
            lower_up: has("LOWER_UP"),
            mtu: fields.number("mtu")?.ok_or_else(|| fields.wrong("mtu"))?,
            kind: kind.map(str::to_owned),
            master: fields.text("master")?,
            addresses: match fields.value("addr_info") {
                None => Vec::new(),
                Some(list) => addresses(&list)?,
            },
        });
    }
    Ok(links)
}

fn addresses(list: &Value) -> Result<Vec<Address>, ListingError> {
    let mut addresses = Vec::new();
    for mut fields in objects("link's address", list)? {
        addresses.push(address(&mut fields)?);
    }
    Ok(addresses)
}

fn address(fields: &mut Fields) -> Result<Address, ListingError> {
    let local =
        fields.prefix("local", "prefixlen")?.ok_or_else(|| fields.wrong("local address"))?;
    let tentative = fields.flag("tentative");
    let failed = fields.flag("dadfailed");
    Ok(Address {
        local,
        peer: fields.address("address")?,
        scope: fields.number("scope")?.unwrap_or(0),
        dynamic: fields.flag("dynamic"),
        unusable: tentative || failed,
    })
}

impl Address {
    /// The arguments after `ip` that give this address to `link`, also when it is there already.
    #[must_use]
    pub fn replace_args(&self, link: &str) -> Vec<String> {
        self.args("replace", link)
    }

    /// The arguments after `ip` that take this address from `link`. The last address of a link takes all
    /// routes of the link with it, so the next address comes first.
    #[must_use]
    pub fn del_args(&self, link: &str) -> Vec<String> {
        self.args("del", link)
    }

    fn args(&self, verb: &str, link: &str) -> Vec<String> {
        let family = Family::of(self.local.addr());
        let mut args = vec![family.flag().to_owned(), "addr".to_owned(), verb.to_owned()];
        match self.peer {
            None => args.push(self.local.to_string()),
            Some(peer) => {
                let peer = format!("{peer}/{}", self.local.prefix_len());
                args.extend([self.local.addr().to_string(), "peer".to_owned(), peer]);
            }
        }
        args.extend(["dev".to_owned(), link.to_owned()]);
        args
    }
}

#[cfg(test)]
mod tests;
