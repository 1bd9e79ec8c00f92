//! The output of `ip -json` as typed values, and the arguments that make such values true.
//!
//! **Invariant:** what is not modelled is never equal to something of ours, and never written or deleted.
//!
//! Two processes tell all that there is to know (iproute2 6.1, tried; always with `-N`, or names of
//! tables and protocols come out of `/etc/iproute2`):
//!
//! ```text
//! printf 'addr show\nrule show\nroute show table all\n' | ip -N -j -d -batch -
//! printf 'rule show\n' | ip -N -j -6 -batch -
//! ```
//!
//! * Each command prints one JSON array on one line, `[]` when there is nothing: [`split_batch`].
//! * Without `-4` and `-6`, `rule show` is IPv4 alone, `route show table all` has both families (IPv6
//!   entries are known by their `pref`), `addr show` has all links with all addresses. A batch takes its
//!   family from the command line only: a line `-6 rule show` is an error.
//! * `-d` adds `linkinfo` to links, `"protocol":"0"` or `"2"` to the rules of strangers, `type`, `scope` and
//!   `"protocol":"3"` to routes. Both forms are read alike here.
//! * Without `-force` a batch stops at the first failure, with rc 1 and the lines until then. With `-force`
//!   it goes on and still ends with rc 1, and a failed command may have printed no line at all (a missing
//!   device), so that later lines move up. Hence: a batch with another rc than 0 is not read.
//! * `route show table 999` for a table that never was is `[]` with rc 0 in a batch, but outside of one it
//!   prints a lone `[`, rc 2, `FIB table does not exist`; so it is asked in a batch, or not at all.
//!   `rule show` and `route show table all` never fail, also without any route and with IPv6 disabled.
//! * `route get` of an unreachable destination is rc 2, `RTNETLINK answers: No route to host` (or `Network
//!   is unreachable`, `Permission denied`) and no output.

pub mod batch;
pub mod link;
mod raw;
pub mod route;
pub mod route_get;
pub mod rule;

pub use batch::{ListingError, split_batch};
pub use link::{Address, Link, parse_links};
pub use route::{Route, RouteKind, parse_routes};
pub use route_get::{RouteGet, parse_route_get};
pub use rule::{Rule, RuleAction, parse_rules};

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The option of `ip` that asks for this family.
    #[must_use]
    pub fn flag(self) -> &'static str {
        match self {
            Self::V4 => "-4",
            Self::V6 => "-6",
        }
    }
}
