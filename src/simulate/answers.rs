//! What the world answers.
//!
//! **Invariant:** an answer rests on what is in the kernel and in the world, never on what the machine
//! remembers.

use super::{Endpoint, Lab, Source, Trouble, Uplink, kernel};
use crate::iproute::{Address, Link};
use crate::kernel::read::sha256;
use crate::kernel::{ConfigRef, Ends};
use crate::names::Interface;
use crate::observation::{
    Asker, Counters, Expect, KernelReading, KernelScope, ListQuestion, ListReading, PageReading,
    Pages, PagesReading, Question, Reading, StandbyReading, Trial, TrialReading, TrialResult,
    Validators,
};
use crate::pool::candidate::{Candidate, Rejected, STANDBY_GENERATION};
use crate::wireguard::PublicKey;
use base64::Engine as _;
use ipnet::{IpNet, Ipv4Net};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// The LAN of a policy that names none.
const LAN: &str = "eth1";
/// The uplink's own address.
const WAN_NET: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 2), 24);
/// The number of the first local user.
const FIRST_UID: u32 = 1_000;

/// The endpoint that a file of the pool is for.
pub(super) fn name_of(config: &ConfigRef) -> &str {
    config.file.strip_suffix(".conf").unwrap_or(&config.file)
}

/// One of a pair of keys. No such key opens anything: nobody has its private half.
fn key(of: &str, name: &str) -> Option<PublicKey> {
    let bytes = Sha256::digest(format!("{of} {name}"));
    PublicKey::from_base64(&base64::engine::general_purpose::STANDARD.encode(bytes)).ok()
}

/// The candidate of a list, in its folder. `None` never comes: a hash is a key.
#[must_use]
pub fn candidate(name: &str, generation: u32) -> Option<Candidate> {
    let seed = name.bytes().fold(7_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)).max(1);
    let file = format!("{name}.conf");
    let everything = IpNet::V4(Ipv4Net::new(Ipv4Addr::UNSPECIFIED, 0).ok()?);
    Some(Candidate {
        name: name.to_owned(),
        config: ConfigRef { generation, sha256: sha256(file.as_bytes()), file },
        ends: Ends {
            own: key("own", name)?,
            peer: key("peer", name)?,
            endpoint: None,
            allowed_ips: BTreeSet::from([everything]),
            keepalive: 25,
            preshared: None,
        },
        host: Ipv4Addr::new(203, 0, 113, seed).to_string(),
        port: 51_820,
        addresses: BTreeSet::from([IpNet::from(IpAddr::V4(Ipv4Addr::new(10, 8, 0, seed)))]),
        mtu: None,
        country: None,
        city: None,
        origin: None,
    })
}

impl Lab {
    /// Answers one question.
    ///
    /// # Errors
    /// When the question itself would do harm.
    pub fn answer(&mut self, question: &Question) -> Result<Reading, Trouble> {
        Ok(match question {
            Question::Kernel(scope) => Reading::Kernel(Box::new(self.kernel_reading(scope))),
            Question::Names(names) => Reading::Names(
                names.iter().map(|name| (name.clone(), self.resolve(name))).collect(),
            ),
            Question::Pages(pages) => Reading::Pages(self.pages(pages)),
            Question::List(list) => Reading::List { at: self.now.clone(), list: self.list(list) },
            Question::Standby(_) => {
                let described = self.standby.clone().and_then(|name| {
                    let standby = candidate(&name, STANDBY_GENERATION).ok_or("no key")?;
                    let host = self.standby_host.clone();
                    Ok(Candidate { host: host.unwrap_or(standby.host), ..standby })
                });
                self.store(described.as_ref().map_or(&[][..], std::slice::from_ref));
                Reading::Standby(Box::new(StandbyReading { described }))
            }
            // A pool asks for none of these but the time, which goes on with each round anyhow.
            Question::Tunnels(_)
            | Question::Core(_)
            | Question::Outline(_)
            | Question::Delays(_)
            | Question::Gost(_)
            | Question::Nodes(_)
            | Question::Setting(_)
            | Question::Carried(_)
            | Question::Wait { .. } => Reading::Waited,
            Question::Trial(trial) => {
                self.later(self.trial_sec);
                Reading::Trial(self.trial(trial)?)
            }
        })
    }

    fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        let known = self.names.get(name).filter(|_| self.wan_works());
        if let Some(address) = known {
            return Ok(vec![*address]);
        }
        if !self.resolver || !self.wan_works() {
            return Err("no name server answers".to_owned());
        }
        let last = name.bytes().fold(1_u8, |sum, b| sum.wrapping_mul(31).wrapping_add(b)).max(1);
        Ok(vec![IpAddr::V4(Ipv4Addr::new(198, 51, 100, last))])
    }

    fn list(&mut self, list: &ListQuestion) -> ListReading {
        let silent = || ListReading::Unavailable {
            why: "no answer".to_owned(),
            answered: false,
            retry_after_sec: None,
        };
        if !self.wan_works() {
            return silent();
        }
        let through = list.via.as_ref().and_then(|via| self.endpoint_of(&via.device));
        let by_wan = list.via.as_ref().is_none_or(|via| via.device.as_str() == self.wan());
        let carried = through.is_some_and(|endpoint| endpoint.latency_ms().is_some());
        let names = match &self.source {
            Source::Lists(names) if by_wan || carried => names,
            Source::ByTunnel(names) if carried => names,
            Source::By(device, names)
                if carried && list.via.as_ref().is_some_and(|via| via.device == *device) =>
            {
                names
            }
            Source::Refuses(seconds) if by_wan || carried => {
                return ListReading::Unavailable {
                    why: "status 429".to_owned(),
                    answered: true,
                    retry_after_sec: Some(*seconds),
                };
            }
            Source::Lists(_)
            | Source::ByTunnel(_)
            | Source::By(..)
            | Source::Refuses(_)
            | Source::Unavailable => return silent(),
        };
        let known = list.known.as_ref().and_then(|known| known.etag.as_ref());
        if known.is_some() && known == self.tag.as_ref() {
            return ListReading::Unchanged;
        }
        let broken = |name: &&String| self.endpoints.get(*name) == Some(&Endpoint::Broken);
        let rejected = |name: &String| Rejected {
            name: name.clone(),
            why: "line 2: PrivateKey is no key".to_owned(),
        };
        let candidates: Vec<Candidate> = names
            .iter()
            .filter(|name| !broken(name))
            .filter_map(|name| candidate(name, list.generation))
            .map(|candidate| Candidate {
                country: self.countries.get(&candidate.name).cloned(),
                ..candidate
            })
            .collect();
        let rejected = names.iter().filter(broken).map(rejected).collect();
        self.store(&candidates);
        let validators = self.tag.clone().map(|tag| Validators {
            etag: Some(tag),
            last_modified: None,
            of: "here".to_owned(),
        });
        ListReading::Listed { candidates: candidates.into(), rejected, validators }
    }

    /// Puts the files of a list into the pool.
    pub fn store(&mut self, candidates: &[Candidate]) {
        let files = candidates.iter().map(|candidate| {
            let file = (candidate.config.generation, candidate.config.file.clone());
            (file, candidate.ends.clone())
        });
        self.files.extend(files);
    }

    /// The device of the uplink.
    #[must_use]
    pub fn wan(&self) -> String {
        kernel::wan(&self.policy)
    }

    fn wan_works(&self) -> bool {
        match self.uplink {
            Uplink::Up | Uplink::ReferencesDown | Uplink::FallsAtProof => true,
            Uplink::Down => false,
        }
    }

    /// How the endpoint behaves that is up on an interface.
    pub(super) fn endpoint_of(&self, interface: &Interface) -> Option<Endpoint> {
        let tunnel = self.kernel.tunnels.get(interface).filter(|tunnel| tunnel.up)?;
        self.endpoints.get(name_of(tunnel.config.as_ref()?)).copied()
    }

    fn trial(&self, trial: &Trial) -> Result<TrialReading, Trouble> {
        let mut active =
            self.kernel.tunnels.values().filter_map(|tunnel| tunnel.config.as_ref()).map(name_of);
        if active.any(|name| name == trial.name) {
            let why = format!("{} is tried while it is up", trial.name);
            return Err(Trouble::Contradiction(why));
        }
        let failed = |why: &str| TrialResult::Failed { why: why.to_owned() };
        let result = match self.endpoints.get(&trial.name).filter(|_| self.wan_works()) {
            Some(Endpoint::TrialOnly) => TrialResult::Passed { latency_ms: 20 },
            Some(Endpoint::SmallOnly) if trial.large.is_some() => failed("large packets are lost"),
            Some(Endpoint::Untried) => {
                TrialResult::NotTried { why: "no device could be made".to_owned() }
            }
            Some(endpoint) if endpoint.carries(trial.pages.timeout_ms) => {
                TrialResult::Passed { latency_ms: endpoint.latency_ms().unwrap_or(0) }
            }
            Some(
                Endpoint::Alive
                | Endpoint::Slow
                | Endpoint::Dead
                | Endpoint::Portal
                | Endpoint::SmallOnly
                | Endpoint::Broken,
            )
            | None => failed("no handshake"),
        };
        Ok(TrialReading { at: self.now.clone(), result })
    }

    fn pages(&self, pages: &Pages) -> PagesReading {
        let page = match &pages.asker {
            Asker::Wan | Asker::WanExit => match self.uplink {
                Uplink::Up | Uplink::FallsAtProof => good(pages, 20, WAN_NET.addr()),
                Uplink::Down | Uplink::ReferencesDown => PageReading::TimedOut,
            },
            // Only pools are played here.
            Asker::Named(_) => PageReading::NoAddress,
            Asker::Slot(slot)
            | Asker::SlotAgain(slot)
            | Asker::SlotLarge(slot)
            | Asker::SlotExit(slot) => self.by_slot(slot, pages),
        };
        let pages = pages
            .pages
            .iter()
            .map(|asked| {
                let known = !asked.addresses.is_empty();
                Some(if known { page.clone() } else { PageReading::NoAddress })
            })
            .collect();
        PagesReading { at: self.now.clone(), pages }
    }

    fn by_slot(&self, slot: &Interface, pages: &Pages) -> PageReading {
        if self.blind {
            return PageReading::NotBindable("the device cannot be bound".to_owned());
        }
        let large = matches!(pages.expect, Expect::Bytes(_));
        let Some(endpoint) = self.endpoint_of(slot).filter(|_| self.wan_works()) else {
            return PageReading::TimedOut;
        };
        let small_mtu = self.kernel.tunnels.get(slot).is_some_and(|tunnel| tunnel.mtu <= 1_280);
        match endpoint {
            Endpoint::Portal => {
                PageReading::Answer { status: 200, body: String::new(), bytes: 900, elapsed_ms: 20 }
            }
            Endpoint::SmallOnly if large && !small_mtu => PageReading::TimedOut,
            Endpoint::Alive
            | Endpoint::Slow
            | Endpoint::SmallOnly
            | Endpoint::Dead
            | Endpoint::TrialOnly
            | Endpoint::Untried
            | Endpoint::Broken => match endpoint.latency_ms() {
                Some(latency) if latency <= pages.timeout_ms => {
                    good(pages, latency, self.exit_address(slot))
                }
                Some(_) | None => PageReading::TimedOut,
            },
        }
    }

    /// The address that clients of a slot are seen with.
    fn exit_address(&self, slot: &Interface) -> Ipv4Addr {
        let tunnel = self.kernel.tunnels.get(slot);
        let last = tunnel.and_then(|tunnel| tunnel.addresses.first()).map(|net| match net.addr() {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(_) => 0,
        });
        Ipv4Addr::new(198, 51, 100, last.unwrap_or(0))
    }

    fn kernel_reading(&self, scope: &KernelScope) -> KernelReading {
        let wan = self.wan();
        let mut links = vec![link(1, &wan, &[IpNet::V4(WAN_NET)])];
        let lan: Vec<String> = match &self.policy.lan_interfaces {
            Some(named) => named.iter().map(ToString::to_string).filter(|n| *n != wan).collect(),
            None => vec![LAN.to_owned()],
        };
        let gateways: Vec<IpNet> = gateways(&self.policy.client_prefixes());
        links.extend((2..).zip(&lan).map(|(n, name)| link(n, name, &gateways)));
        let next = u32::try_from(links.len()).unwrap_or(u32::MAX).saturating_add(1);
        let tunnels = (next..).zip(self.kernel.tunnels.keys());
        links.extend(tunnels.map(|(n, name)| link(n, name.as_str(), &[])));
        let there = self.received.iter().filter(|(name, _)| self.kernel.tunnels.contains_key(name));
        KernelReading {
            counters: there
                .map(|(name, rx)| (name.clone(), Counters { rx: *rx, ..Counters::default() }))
                .collect(),
            world: self.kernel.clone(),
            links,
            default_device: Interface::try_from(wan).ok(),
            bindable: self.kernel.tunnels.keys().cloned().collect(),
            strangers: self.strangers.clone(),
            users: scope.users.iter().cloned().zip(FIRST_UID..).collect(),
            ..KernelReading::default()
        }
    }
}

/// A good answer, whatever is asked for.
fn good(pages: &Pages, elapsed_ms: u64, address: Ipv4Addr) -> PageReading {
    let (status, body, bytes) = match &pages.expect {
        Expect::AnyAnswer => (204, String::new(), 0),
        Expect::Status(statuses) => (statuses.first().copied().unwrap_or(204), String::new(), 0),
        Expect::Bytes(least) => (200, String::new(), *least),
        Expect::Address => {
            let body = address.to_string();
            let bytes = body.len();
            (200, body, bytes)
        }
    };
    PageReading::Answer { status, body, bytes, elapsed_ms }
}

fn link(index: u32, name: &str, addresses: &[IpNet]) -> Link {
    let address = |local: &IpNet| Address {
        local: *local,
        peer: None,
        scope: 0,
        dynamic: false,
        unusable: false,
    };
    Link {
        index,
        name: name.to_owned(),
        up: true,
        lower_up: true,
        mtu: 1_500,
        kind: None,
        master: None,
        addresses: addresses.iter().map(address).collect(),
    }
}

/// The gateway's own addresses: in each subnet of clients, a /24 at least, the first that is no
/// client.
fn gateways(clients: &[Ipv4Net]) -> Vec<IpNet> {
    let mut gateways = BTreeSet::new();
    for client in clients {
        let subnet = Ipv4Net::new(client.addr(), client.prefix_len().min(24))
            .map_or(*client, |net| net.trunc());
        let free = |host: &Ipv4Addr| !clients.iter().any(|other| other.contains(host));
        let host = subnet.hosts().find(free).or_else(|| subnet.hosts().next());
        let gateway = host.and_then(|host| Ipv4Net::new(host, subnet.prefix_len()).ok());
        gateways.extend(gateway.map(IpNet::V4));
    }
    gateways.into_iter().collect()
}
