//! Who is served: addresses, prefixes, spread prefixes and local users.
//!
//! **Invariant:** a prefix has no host bits, and the text of a client is the same in the policy, in
//! state, in commands and in reports.

use ipnet::{IpNet, Ipv4Net};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// How many buckets a spread prefix has. 256 buckets over five slots put at most 52 and at least 51
/// on each, a difference of 2 %, and fit one nft expression.
pub(super) const BUCKETS: u16 = 256;

/// One entry of `clients`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEntry {
    /// One address or one prefix, which moves as a whole.
    Prefix(IpNet),
    /// A prefix whose addresses are spread over the slots by a hash.
    Spread(Ipv4Net),
    /// What a local user sends.
    User(String),
}

impl ClientEntry {
    /// The keys that are placed one by one: one for most entries, a bucket each for a spread prefix.
    #[must_use]
    pub fn keys(&self) -> Vec<ClientKey> {
        match self {
            Self::Prefix(net) => vec![ClientKey::Prefix(*net)],
            Self::Spread(net) => {
                (0..BUCKETS).map(|bucket| ClientKey::Bucket(*net, bucket)).collect()
            }
            Self::User(name) => vec![ClientKey::User(name.clone())],
        }
    }
}

/// What is placed on a slot: a client, or one bucket of a spread prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ClientKey {
    /// One address or prefix.
    Prefix(IpNet),
    /// One bucket of a spread prefix.
    Bucket(Ipv4Net, u16),
    /// A local user.
    User(String),
}

impl fmt::Display for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(net) if net.prefix_len() == net.max_prefix_len() => {
                write!(f, "{}", net.addr())
            }
            Self::Prefix(net) => write!(f, "{net}"),
            Self::Bucket(net, bucket) => write!(f, "{net}#{bucket}"),
            Self::User(name) => write!(f, "user:{name}"),
        }
    }
}

impl From<ClientKey> for String {
    fn from(key: ClientKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for ClientKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("user:") {
            return user(name).map(Self::User);
        }
        if let Some((net, bucket)) = text.split_once('#') {
            let net = net.parse().map_err(|_| format!("{text:?} is not a bucket of a prefix"))?;
            let bucket = bucket.parse().map_err(|_| format!("{text:?} has no bucket number"))?;
            return Ok(Self::Bucket(net, bucket));
        }
        prefix(&text).map(Self::Prefix)
    }
}

/// Reads an address or a prefix; refuses host bits, because the entry would not say what it means.
fn prefix(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Ok(IpNet::from(address));
    }
    let net: IpNet = text.parse().map_err(|_| {
        format!("{text:?} is not a client: write an address, a prefix, or user:NAME")
    })?;
    if net.trunc() == net {
        Ok(net)
    } else {
        Err(format!("client {text} has host bits: write {} or {}", net.addr(), net.trunc()))
    }
}

/// Checks a user's name as `useradd` does (32 of `[a-z0-9_-]`, a letter or `_` first) or a number.
fn user(name: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-' || b == b'.';
    if (1..=32).contains(&name.len()) && name.bytes().all(allowed) && !name.starts_with('-') {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "{name:?} is not the name of a user: write user:NAME with a name or number of /etc/passwd"
        ))
    }
}

impl<'de> Deserialize<'de> for ClientEntry {
    /// By hand, because serde's untagged enums lose the position of an error.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entry;
        impl<'de> Visitor<'de> for Entry {
            type Value = ClientEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address, a prefix, user:NAME, or {\"prefix\": …, \"spread\": true}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ClientEntry, E> {
                match ClientKey::try_from(text.to_owned()).map_err(E::custom)? {
                    ClientKey::Prefix(net) => Ok(ClientEntry::Prefix(net)),
                    ClientKey::User(name) => Ok(ClientEntry::User(name)),
                    ClientKey::Bucket(..) => Err(E::custom(format!(
                        "{text:?} is not a client: buckets are not named, write the prefix"
                    ))),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ClientEntry, A::Error> {
                let mut net = None;
                let mut spread = false;
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "prefix" => {
                            let text: String = map.next_value()?;
                            net = Some(prefix(&text).map_err(de::Error::custom)?);
                        }
                        "spread" => spread = map.next_value()?,
                        _ => return Err(de::Error::unknown_field(&key, &["prefix", "spread"])),
                    }
                }
                match (net, spread) {
                    (None, _) => Err(de::Error::missing_field("prefix")),
                    (Some(net), false) => Ok(ClientEntry::Prefix(net)),
                    (Some(IpNet::V4(net)), true) => Ok(ClientEntry::Spread(net)),
                    (Some(IpNet::V6(net)), true) => Err(de::Error::custom(format!(
                        "{net} cannot be spread, only IPv4 can: remove it"
                    ))),
                }
            }
        }
        deserializer.deserialize_any(Entry)
    }
}
