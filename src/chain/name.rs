//! Names of hops and nodes that cannot hold a bad value.
//!
//! **Invariant:** a name can end no line of a request or a log, and leaves room for the `=` of
//! `switch HOP=NODE`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A name stands in reports and in `switch HOP=NODE`.
const LONGEST: usize = 48;

/// 1 to 48 of `[A-Za-z0-9_.-]`, a letter or digit first.
fn checked(name: String, what: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    let begins = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if begins && name.len() <= LONGEST && name.bytes().all(allowed) {
        Ok(name)
    } else {
        Err(format!(
            "{name:?} is not a {what}'s name: 1 to {LONGEST} letters, digits or _.-, a letter or digit first"
        ))
    }
}

/// The name of a hop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HopName(String);

/// The name of a node of a hop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

impl HopName {
    /// The name as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl NodeName {
    /// The name as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for HopName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        checked(name, "hop").map(Self)
    }
}

impl TryFrom<String> for NodeName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        checked(name, "node").map(Self)
    }
}

impl From<HopName> for String {
    fn from(name: HopName) -> Self {
        name.0
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0
    }
}

impl fmt::Display for HopName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
