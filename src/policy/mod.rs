//! What an operator wants, read from `<policy-dir>/NAME.json`.
//!
//! The kind is read first and the whole text is then parsed as that kind, so that an error keeps its
//! line and column.
//!
//! **Invariant:** a `Policy` is complete and consistent: every default is filled in and every
//! contradiction has been refused, so that no other module validates.

pub mod chain;
mod clash;
mod clients;
pub mod dns;
mod fault;
pub mod guard;
pub mod notify;
mod overlap;
pub mod pool;
pub mod provider;
pub mod selector;
pub mod site;
mod validate;

pub use chain::ChainPolicy;
pub use clients::{ClientEntry, ClientKey};
pub use dns::DnsPolicy;
pub use fault::PolicyFault;
pub use guard::GuardPolicy;
pub use overlap::overlap;
pub use pool::PoolPolicy;
pub use selector::SelectorPolicy;
pub use site::Site;

use serde::{Deserialize, Serialize};
use std::fmt;

/// The kinds of policy. A sixth kind begins with a variant here; the compiler names the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Many tunnels, many clients.
    Pool,
    /// A primary and a reserve.
    Selector,
    /// Help for a proxy core's automatic group.
    Guard,
    /// Host names that follow living nodes.
    Dns,
    /// Several hops, each with its backups.
    Chain,
}

impl Kind {
    /// The tag as written in policies, state files and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Selector => "selector",
            Self::Guard => "guard",
            Self::Dns => "dns",
            Self::Chain => "chain",
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
    Pool(Box<PoolPolicy>),
    /// A primary and a reserve.
    Selector(Box<SelectorPolicy>),
    /// Help for a proxy core's automatic group.
    Guard(Box<GuardPolicy>),
    /// Host names that follow living nodes.
    Dns(Box<DnsPolicy>),
    /// Several hops, each with its backups.
    Chain(Box<ChainPolicy>),
}

impl Policy {
    /// Reads a policy from the text of its file.
    ///
    /// # Errors
    /// What is wrong with it, with line and column where the text shows them.
    pub fn parse(text: &str) -> Result<Self, PolicyFault> {
        if text.trim().is_empty() {
            return Err(PolicyFault::empty());
        }
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|e| PolicyFault::from_json(&e))?;
        let object = value.as_object().ok_or_else(PolicyFault::no_object)?;
        let tag = match object.get("kind") {
            None | Some(serde_json::Value::Null) => return Err(PolicyFault::no_kind()),
            Some(tag) => tag.as_str().ok_or_else(PolicyFault::kind_is_no_text)?.to_owned(),
        };
        if tag == site::KIND {
            Site::parse(text)?;
            return Err(PolicyFault::site());
        }
        let kind = serde_json::from_value(serde_json::Value::String(tag.clone()))
            .map_err(|_| PolicyFault::unknown_kind(&tag, text))?;
        match kind {
            Kind::Pool => {
                let policy: PoolPolicy =
                    serde_json::from_str(text).map_err(|e| PolicyFault::from_json(&e))?;
                policy.validate()?;
                Ok(Self::Pool(Box::new(policy)))
            }
            Kind::Selector => Ok(Self::Selector(Box::new(SelectorPolicy::parse(text)?))),
            Kind::Guard => Ok(Self::Guard(Box::new(GuardPolicy::parse(text)?))),
            Kind::Dns => {
                let policy: DnsPolicy =
                    serde_json::from_str(text).map_err(|e| PolicyFault::from_json(&e))?;
                policy.validate()?;
                Ok(Self::Dns(Box::new(policy)))
            }
            Kind::Chain => Ok(Self::Chain(Box::new(ChainPolicy::parse(text)?))),
        }
    }

    /// What it asks for that is unwise or that this version does not do, a line each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        match self {
            Self::Pool(policy) => policy.notes(),
            Self::Selector(policy) => policy.notes(),
            Self::Guard(policy) => policy.notes(),
            Self::Dns(policy) => policy.notes(),
            Self::Chain(policy) => policy.notes(),
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Pool(_) => Kind::Pool,
            Self::Selector(_) => Kind::Selector,
            Self::Guard(_) => Kind::Guard,
            Self::Dns(_) => Kind::Dns,
            Self::Chain(_) => Kind::Chain,
        }
    }
}
