//! What a policy of kind `dns` must not say.
//!
//! **Invariant:** whatever passes names only nodes that there are, hosts of its zone, and an API
//! that a token may be sent to.

use super::host::is_of;
use super::{Check, Cloudflare, DnsPolicy, Driver, Host, Rfc2136};
use crate::dns::name::{HostName, NodeName};
use crate::dns::record::ZoneKey;
use crate::policy::PolicyFault;
use crate::url::Target;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// A check is over well before the next one begins, and before half of a step's time is.
const LONGEST_CHECK_SEC: u64 = 10;
/// What Cloudflare takes: 30 for some customers, 60 for all, up to a day.
const CLOUDFLARE_TTL: std::ops::RangeInclusive<u32> = 30..=86_400;
/// More than a week is a mistake where a record shall follow.
const LONGEST_TTL: u32 = 604_800;
/// A host name of more addresses does not fit into a packet that every resolver takes.
const MOST_RECORDS: usize = 16;

fn fault<T>(text: impl Into<String>) -> Result<T, PolicyFault> {
    Err(PolicyFault::new(text))
}

impl DnsPolicy {
    /// Refuses what contradicts itself.
    pub(in crate::policy) fn validate(&self) -> Result<(), PolicyFault> {
        if self.hosts.is_empty() {
            return fault("hosts is empty: name at least one");
        }
        if self.reference.urls.is_empty() {
            return fault(
                "reference.urls is empty: name pages that tell whether this machine is online",
            );
        }
        self.validate_nodes()?;
        for (name, host) in &self.hosts {
            self.validate_host(name, host)?;
        }
        match &self.driver {
            Driver::Cloudflare(cloudflare) => self.validate_cloudflare(cloudflare)?,
            Driver::Rfc2136(server) => self.validate_rfc2136(server)?,
        }
        let params = &self.params;
        let zero = [
            ("params.fall", u64::from(params.fall)),
            ("params.rise", u64::from(params.rise)),
            ("params.flap_limit", u64::try_from(params.flap_limit).unwrap_or(u64::MAX)),
        ];
        match zero.iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => fault(format!("{name} is 0: it must be at least 1")),
            None => Ok(()),
        }
    }

    fn validate_nodes(&self) -> Result<(), PolicyFault> {
        let mut seen: BTreeMap<Ipv4Addr, &NodeName> = BTreeMap::new();
        for (name, node) in &self.nodes {
            if let Some(other) = seen.insert(node.address, name) {
                return fault(format!(
                    "nodes {other} and {name} have the same address {}: a record could not tell them apart",
                    node.address
                ));
            }
            let address = node.address;
            if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
                return fault(format!(
                    "nodes.{name}.address {address} is no machine's: write the node's own"
                ));
            }
            if node.weight == 0 {
                return fault(format!("nodes.{name}.weight is 0: it must be at least 1"));
            }
            let timeout = node.check.timeout_sec();
            if timeout == 0 || timeout > LONGEST_CHECK_SEC {
                return fault(format!(
                    "nodes.{name}.check: timeout_sec is {timeout}: write 1 to {LONGEST_CHECK_SEC}"
                ));
            }
            if node.check.handshake().port() == 0 {
                return fault(format!("nodes.{name}.check: port is 0: write 1 to 65535"));
            }
            let file = match &node.check {
                Check::Tcp(_) => None,
                Check::Tls(tls) => tls.ca_file.as_deref(),
                Check::Https(https) => {
                    if https.expect_status.is_empty() {
                        return fault(format!(
                            "nodes.{name}.check.https.expect_status is empty: name at least one status"
                        ));
                    }
                    let url = format!("https://{}{}", https.name, https.path);
                    if !https.path.starts_with('/') || Target::try_from(url).is_err() {
                        return fault(format!(
                            "nodes.{name}.check.https.path is no path: it begins with / and has no spaces or quotes"
                        ));
                    }
                    https.ca_file.as_deref()
                }
            };
            file.map_or(Ok(()), |file| absolute(&format!("nodes.{name}.check.ca_file"), file))?;
        }
        Ok(())
    }

    fn validate_host(&self, name: &HostName, host: &Host) -> Result<(), PolicyFault> {
        let lists = std::iter::once(&host.fallbacks).chain(host.fallbacks_by_region.values());
        for list in lists {
            for (n, node) in list.iter().enumerate() {
                if *node == host.native || list.iter().take(n).any(|earlier| earlier == node) {
                    return fault(format!(
                        "hosts.\"{name}\" names node {node} twice: name it once"
                    ));
                }
            }
        }
        let all = host.fallbacks.iter().chain(host.fallbacks_by_region.values().flatten());
        for node in std::iter::once(&host.native).chain(all) {
            if !self.nodes.contains_key(node) {
                return fault(format!(
                    "hosts.\"{name}\" names node {node}, which is none of nodes: write it there"
                ));
            }
        }
        let regions: Vec<&String> =
            host.fallbacks_by_region.keys().filter(|region| is_of(name, region)).collect();
        if let [one, other, ..] = regions.as_slice() {
            return fault(format!(
                "hosts.\"{name}\" is of the regions {one} and {other}: a name tells one region"
            ));
        }
        if host.records == 0 || host.records > MOST_RECORDS {
            return fault(format!(
                "hosts.\"{name}\".records is {}: write 1 to {MOST_RECORDS}",
                host.records
            ));
        }
        match host.rotate_sec {
            Some(0) => return fault(format!("hosts.\"{name}\".rotate_sec is 0: leave it out")),
            Some(_) if host.records == 1 => {
                return fault(format!(
                    "hosts.\"{name}\".rotate_sec needs records of 2 or more: one record stays with its node"
                ));
            }
            Some(_) | None => {}
        }
        if host.ttl == 0 || host.ttl > LONGEST_TTL {
            return fault(format!(
                "hosts.\"{name}\".ttl is {}: write 1 to {LONGEST_TTL}",
                host.ttl
            ));
        }
        Ok(())
    }

    fn validate_cloudflare(&self, cloudflare: &Cloudflare) -> Result<(), PolicyFault> {
        absolute("driver.cloudflare.token_file", &cloudflare.token_file)?;
        let api = Target::try_from(cloudflare.api.clone())
            .map_err(|why| PolicyFault::new(format!("driver.cloudflare.api: {why}")))?;
        // A token in clear would be anybody's on the way; on this machine there is no way.
        let local = api.address().is_some_and(|address| address.is_loopback());
        if !api.is_https() && !local {
            return fault(
                "driver.cloudflare.api is not https: a token is sent in clear to an address of this machine only, such as http://127.0.0.1:8080",
            );
        }
        if api.path().contains('?') {
            return fault("driver.cloudflare.api holds a ?: write it up to the path alone");
        }
        match cloudflare.key() {
            Some(ZoneKey::Name(zone)) => self.within(&zone)?,
            // Whose name it is, the API will tell: it knows no record of another zone.
            Some(ZoneKey::Id(_)) => {}
            None => {
                return fault(
                    "driver.cloudflare.zone is neither a zone's name nor its id of 32 hexadecimal digits: write one of them",
                );
            }
        }
        match self.hosts.iter().find(|(_, host)| !CLOUDFLARE_TTL.contains(&host.ttl)) {
            Some((name, host)) => fault(format!(
                "hosts.\"{name}\".ttl is {}: Cloudflare takes 60 (30 for some) to 86400",
                host.ttl
            )),
            None => Ok(()),
        }
    }

    fn validate_rfc2136(&self, server: &Rfc2136) -> Result<(), PolicyFault> {
        absolute("driver.rfc2136.key_file", &server.key_file)?;
        if server.place().is_none() {
            return fault(
                "driver.rfc2136.server is no server: write HOST, HOST:PORT, or [IPV6]:PORT",
            );
        }
        if server.server.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()) {
            return fault(
                "driver.rfc2136.server is an IPv6 address without brackets: write [ADDRESS]",
            );
        }
        self.within(&server.zone)
    }

    /// Refuses hosts outside of the zone.
    fn within(&self, zone: &HostName) -> Result<(), PolicyFault> {
        match self.hosts.keys().find(|host| !host.is_within(zone)) {
            Some(host) => fault(format!("host {host} is not in zone {zone}: change one of them")),
            None => Ok(()),
        }
    }
}

fn absolute(name: &str, path: &Path) -> Result<(), PolicyFault> {
    if path.is_absolute() {
        return Ok(());
    }
    let shown: PathBuf = path.to_owned();
    fault(format!(
        "{name} \"{}\" is not absolute: a timer has no folder of its own",
        shown.display()
    ))
}
