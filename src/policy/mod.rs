//! What an operator wants, read from `<policy-dir>/NAME.json`.
//!
//! The kind is read first and the whole text is then parsed as that kind, so that an error keeps its
//! line and column.
//!
//! **Invariant:** a `Policy` is complete and consistent: every default is filled in and every
//! contradiction has been refused, so that no other module validates.

mod clients;
mod fault;
mod overlap;
pub mod pool;

pub use clients::{ClientEntry, ClientKey};
pub use fault::PolicyFault;
pub use overlap::overlap;
pub use pool::PoolPolicy;

use serde::{Deserialize, Serialize};
use std::fmt;

/// The kinds of policy. A sixth kind begins with a variant here; the compiler names the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Many tunnels, many clients.
    Pool,
}

impl Kind {
    /// The tag as written in policies, state files and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pool => "pool",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A policy of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// Many tunnels, many clients.
    Pool(PoolPolicy),
}

/// Only the tag, whatever else the text holds.
#[derive(Deserialize)]
struct Tagged {
    kind: Option<String>,
}

impl Policy {
    /// Reads a policy from the text of its file.
    ///
    /// # Errors
    /// What is wrong with it, with line and column where the text shows them.
    pub fn parse(text: &str) -> Result<Self, PolicyFault> {
        let tagged: Tagged = serde_json::from_str(text).map_err(|e| PolicyFault::from_json(&e))?;
        let tag = tagged.kind.ok_or_else(PolicyFault::no_kind)?;
        let kind = serde_json::from_value(serde_json::Value::String(tag.clone()))
            .map_err(|_| PolicyFault::unknown_kind(&tag, text))?;
        match kind {
            Kind::Pool => {
                let policy: PoolPolicy =
                    serde_json::from_str(text).map_err(|e| PolicyFault::from_json(&e))?;
                policy.validate()?;
                Ok(Self::Pool(policy))
            }
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Pool(_) => Kind::Pool,
        }
    }
}
