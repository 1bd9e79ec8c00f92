//! What a policy of host names names: the files of its secret and of certificates.
//!
//! **Invariant:** of a secret's file only its mode is looked at.

use super::pool::seen;
use crate::check::provider::File;
use crate::policy::DnsPolicy;
use crate::policy::dns::{Check, Driver};
use std::path::Path;

/// The files that it needs.
#[must_use]
pub fn files(policy: &DnsPolicy) -> Vec<File> {
    let file = |key: String, path: &Path, is_secret: bool| File {
        key,
        path: path.to_owned(),
        is_secret,
        seen: seen(path, is_secret),
    };
    let secret = match &policy.driver {
        Driver::Cloudflare(cloudflare) => {
            file("driver.cloudflare.token_file".to_owned(), &cloudflare.token_file, true)
        }
        Driver::Rfc2136(server) => {
            file("driver.rfc2136.key_file".to_owned(), &server.key_file, true)
        }
    };
    let certificates = policy.nodes.iter().filter_map(|(name, node)| {
        let path = match &node.check {
            Check::Tcp(_) => None,
            Check::Tls(tls) => tls.ca_file.as_deref(),
            Check::Https(https) => https.ca_file.as_deref(),
        };
        Some(file(format!("nodes.{name}.check.ca_file"), path?, false))
    });
    std::iter::once(secret).chain(certificates).collect()
}
