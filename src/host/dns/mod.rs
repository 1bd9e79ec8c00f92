//! Reads and writes address records: one driver for each who keeps zones.
//!
//! **Invariant:** records are changed and never made where there was none or removed to the last; a
//! token or key is in no text that leaves here and in no argument of a program.

mod cloudflare;
mod message;
mod rfc2136;
mod zones;

use super::setting::Refusal;
use crate::dns::name::HostName;
use crate::dns::record::{RecordSet, Zone};

/// The address records of a host name.
///
/// # Errors
/// Why they cannot be read.
pub fn read(zone: &Zone, host: &HostName) -> Result<RecordSet, String> {
    match zone {
        Zone::Cloudflare { api, zone, token_file } => {
            cloudflare::Account { api, zone, token_file }.read(host).map_err(|refusal| refusal.why)
        }
        Zone::Rfc2136 { server, port, zone, key_file, tool } => {
            rfc2136::Primary { server, port: *port, zone, key_file, tool }.read(host)
        }
    }
}

/// Changes them. `expected` is what stands there.
///
/// # Errors
/// What was said against it.
pub fn write(
    zone: &Zone,
    host: &HostName,
    expected: &RecordSet,
    to: &RecordSet,
) -> Result<(), Refusal> {
    if expected.0.is_empty() || to.0.is_empty() {
        return Err(Refusal::new(format!("{host}: records are never made or removed to the last")));
    }
    match zone {
        Zone::Cloudflare { api, zone, token_file } => {
            cloudflare::Account { api, zone, token_file }.write(host, expected, to)
        }
        Zone::Rfc2136 { server, port, zone, key_file, tool } => {
            rfc2136::Primary { server, port: *port, zone, key_file, tool }.write(host, expected, to)
        }
    }
}
