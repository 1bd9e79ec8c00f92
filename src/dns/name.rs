//! Names of hosts and nodes that cannot hold a bad value.
//!
//! **Invariant:** a host name is in lower case and without its last dot, so that equal names are
//! equal values; neither name can end a line of a script, a request or a log.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest name (RFC 1035, 2.3.4), without the last dot.
const LONGEST_NAME: usize = 253;
/// The longest label of it.
const LONGEST_LABEL: usize = 63;
/// A node's name stands in reports and in `switch HOST=NODE`.
const LONGEST_NODE: usize = 48;

/// A host name whose record is kept, or the zone that it is in: labels of letters, digits, `-` and
/// `_`; names of other scripts in their `xn--` form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

impl HostName {
    /// The name, without its last dot.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its labels, the first one first.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }

    /// Whether it is `zone` or lies below it, counted in whole labels: `a.badexample.org` is not
    /// below `example.org`.
    #[must_use]
    pub fn is_within(&self, zone: &Self) -> bool {
        match self.0.strip_suffix(zone.as_str()) {
            Some(rest) => rest.is_empty() || rest.ends_with('.'),
            None => false,
        }
    }
}

impl TryFrom<String> for HostName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let name = text.strip_suffix('.').unwrap_or(&text).to_ascii_lowercase();
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let is_label = |label: &str| {
            (1..=LONGEST_LABEL).contains(&label.len())
                && label.bytes().all(allowed)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let numeric = name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if name.len() <= LONGEST_NAME
            && name.contains('.')
            && name.split('.').all(is_label)
            && !numeric
        {
            Ok(Self(name))
        } else {
            Err(format!(
                "{text:?} is not a host name: write whole names like fi.example.org, other scripts as xn--"
            ))
        }
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a node: 1 to 48 of `[A-Za-z0-9_.-]`, a letter or digit first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

impl NodeName {
    /// The name as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
        if (1..=LONGEST_NODE).contains(&name.len())
            && name.bytes().all(allowed)
            && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        {
            Ok(Self(name))
        } else {
            Err(format!(
                "{name:?} is not a node's name: 1 to 48 letters, digits or _.-, a letter or digit first"
            ))
        }
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Result<HostName, String> {
        HostName::try_from(text.to_owned())
    }

    #[test]
    fn a_host_name_has_one_form() {
        assert_eq!(host("FI.Example.ORG.").unwrap().as_str(), "fi.example.org");
        for bad in [
            "",
            ".",
            "org",
            "a..org",
            "-a.org",
            "a-.org",
            "a b.org",
            "a.org\nx",
            "192.0.2.1",
            "*.a.org",
        ] {
            assert!(host(bad).is_err(), "{bad:?}");
        }
        assert!(host(&format!("{}.org", "a".repeat(63))).is_ok());
        assert!(host(&format!("{}.org", "a".repeat(64))).is_err());
    }

    #[test]
    fn a_zone_ends_at_a_label() {
        let zone = host("example.org").unwrap();
        for (name, within) in [
            ("example.org", true),
            ("fi.example.org", true),
            ("a.b.example.org", true),
            ("badexample.org", false),
            ("a.badexample.org", false),
            ("example.org.evil.net", false),
        ] {
            assert_eq!(host(name).unwrap().is_within(&zone), within, "{name}");
        }
    }

    #[test]
    fn a_node_name_leaves_room_for_what_stands_around_it() {
        for bad in ["", "a=b", "a b", "-a", "a,b", "a\n"] {
            assert!(NodeName::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
        assert!(NodeName::try_from("fi-1.a_b".to_owned()).is_ok());
    }
}
