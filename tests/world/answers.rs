//! What the world answers.

use super::{Endpoint, Lab, Source, Uplink, interface};
use base64::Engine as _;
use egressctl::iproute::{Address, Link};
use egressctl::kernel::{ConfigRef, Ends};
use egressctl::observation::{
    Asker, Expect, KernelReading, ListQuestion, ListReading, PageReading, Pages, PagesReading,
    Question, Reading, StandbyReading, Trial, TrialReading, TrialResult, Validators,
};
use egressctl::pool::candidate::{Candidate, Rejected};
use egressctl::wireguard::PublicKey;

/// The endpoint that a file of the pool is for.
pub(super) fn name_of(config: &ConfigRef) -> String {
    config.file.trim_end_matches(".conf").to_owned()
}

fn key(seed: u8) -> PublicKey {
    let text = base64::engine::general_purpose::STANDARD.encode([seed; 32]);
    PublicKey::from_base64(&text).unwrap()
}

/// The candidate of a list.
pub fn candidate(name: &str, generation: u32) -> Candidate {
    let seed = name.bytes().fold(7_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)).max(1);
    let file = format!("{name}.conf");
    let host = std::net::Ipv4Addr::new(203, 0, 113, seed);
    Candidate {
        name: name.to_owned(),
        config: ConfigRef { generation, file, sha256: format!("{seed:064x}") },
        ends: Ends {
            own: key(seed.wrapping_add(1).max(1)),
            peer: key(seed),
            endpoint: None,
            allowed_ips: ["0.0.0.0/0".parse().unwrap()].into(),
            keepalive: 25,
            preshared: None,
        },
        host: host.to_string(),
        port: 51_820,
        addresses: [format!("10.8.0.{seed}/32").parse().unwrap()].into(),
        mtu: None,
        country: None,
        city: None,
        origin: None,
    }
}

impl Lab {
    pub(super) fn answer(&mut self, question: &Question) -> Reading {
        match question {
            Question::Kernel(_) => Reading::Kernel(Box::new(self.kernel_reading())),
            Question::Names(names) => {
                let unknown = || Err("no such name".to_owned());
                let look_up =
                    |name: &String| self.names.get(name).map_or_else(unknown, |a| Ok(vec![*a]));
                Reading::Names(names.iter().map(|name| (name.clone(), look_up(name))).collect())
            }
            Question::Wait { .. } => Reading::Waited,
            Question::Pages(pages) => Reading::Pages(self.pages(pages)),
            Question::List(list) => Reading::List(self.list(list)),
            Question::Standby(_) => {
                let described = self.standby.clone().map(|name| {
                    let standby = candidate(&name, 0);
                    let host = self.standby_host.clone();
                    Candidate { host: host.unwrap_or(standby.host), ..standby }
                });
                Reading::Standby(Box::new(StandbyReading { described }))
            }
            Question::Trial(trial) => {
                self.later(self.trial_sec);
                Reading::Trial(self.trial(trial))
            }
        }
    }

    fn list(&self, list: &ListQuestion) -> ListReading {
        let silent = || ListReading::Unavailable {
            why: "no answer".to_owned(),
            answered: false,
            retry_after_sec: None,
        };
        let names = match &self.source {
            Source::Lists(names) => names,
            Source::Unavailable => return silent(),
            Source::Refuses(seconds) => {
                return ListReading::Unavailable {
                    why: "status 429".to_owned(),
                    answered: true,
                    retry_after_sec: Some(*seconds),
                };
            }
            Source::By(device, _)
                if list.via.as_ref().is_none_or(|via| via.device.as_str() != *device) =>
            {
                return silent();
            }
            Source::ByTunnel(names) | Source::By(_, names) => {
                let tunnel = list.via.as_ref().and_then(|via| self.kernel.tunnels.get(&via.device));
                let carries = tunnel
                    .and_then(|tunnel| tunnel.config.as_ref())
                    .and_then(|config| self.endpoints.get(&name_of(config)))
                    .is_some_and(|endpoint| *endpoint == Endpoint::Alive);
                if !carries || !self.wan_works() {
                    return silent();
                }
                names
            }
        };
        if let (Some(known), Some(tag)) = (&list.known, &self.tag)
            && known.etag.as_ref() == Some(tag)
        {
            return ListReading::Unchanged;
        }
        let broken = |name: &&&str| self.endpoints.get(**name) == Some(&Endpoint::Broken);
        let rejected = |name: &&str| Rejected {
            name: (*name).to_owned(),
            why: "line 2: PrivateKey is no key".to_owned(),
        };
        ListReading::Listed {
            candidates: names
                .iter()
                .filter(|name| !broken(name))
                .map(|name| Candidate {
                    country: self.countries.get(*name).cloned(),
                    ..candidate(name, list.generation)
                })
                .collect(),
            rejected: names.iter().filter(broken).map(rejected).collect(),
            validators: self.tag.clone().map(|tag| Validators {
                etag: Some(tag),
                last_modified: None,
                of: "here".to_owned(),
            }),
        }
    }

    fn wan_works(&self) -> bool {
        match self.uplink {
            Uplink::Up | Uplink::ReferencesDown | Uplink::FallsAtProof => true,
            Uplink::Down => false,
        }
    }

    fn trial(&self, trial: &Trial) -> TrialReading {
        let active = self.kernel.tunnels.values().filter_map(|tunnel| tunnel.config.as_ref());
        assert!(
            active.map(name_of).all(|name| name != trial.name),
            "{} is tried while it is up",
            trial.name
        );
        let result = match self.endpoints.get(&trial.name) {
            Some(Endpoint::Alive | Endpoint::TrialOnly) if self.wan_works() => {
                TrialResult::Passed { latency_ms: 20 }
            }
            Some(Endpoint::SmallOnly) if self.wan_works() => {
                TrialResult::Failed { why: "large packets are lost".to_owned() }
            }
            Some(Endpoint::Untried) => {
                TrialResult::NotTried { why: "no device could be made".to_owned() }
            }
            _ => TrialResult::Failed { why: "no handshake".to_owned() },
        };
        TrialReading { at: self.now.clone(), result }
    }

    fn pages(&self, pages: &Pages) -> PagesReading {
        let good = |status, bytes| PageReading::Answer {
            status,
            body: String::new(),
            bytes,
            elapsed_ms: 20,
        };
        let page = match &pages.asker {
            Asker::Wan | Asker::WanExit => match self.uplink {
                Uplink::Up | Uplink::FallsAtProof => good(204, 0),
                Uplink::Down | Uplink::ReferencesDown => PageReading::TimedOut,
            },
            Asker::Slot(slot) | Asker::SlotLarge(slot) | Asker::SlotExit(slot) => {
                let large = matches!(pages.expect, Expect::Bytes(_));
                let tunnel = self.kernel.tunnels.get(slot).filter(|tunnel| tunnel.up);
                let endpoint = tunnel
                    .and_then(|tunnel| tunnel.config.as_ref())
                    .and_then(|config| self.endpoints.get(&name_of(config)));
                if self.blind {
                    PageReading::NotBindable("the device cannot be bound".to_owned())
                } else if !self.wan_works() {
                    PageReading::TimedOut
                } else {
                    match endpoint {
                        Some(Endpoint::Alive) if large => good(200, 1_400),
                        Some(Endpoint::SmallOnly)
                            if large && tunnel.is_some_and(|t| t.mtu <= 1_280) =>
                        {
                            good(200, 1_400)
                        }
                        Some(Endpoint::Alive) => good(204, 0),
                        Some(Endpoint::SmallOnly) if !large => good(204, 0),
                        Some(Endpoint::Portal) => good(200, 900),
                        Some(
                            Endpoint::SmallOnly
                            | Endpoint::Dead
                            | Endpoint::TrialOnly
                            | Endpoint::Untried
                            | Endpoint::Broken,
                        )
                        | None => PageReading::TimedOut,
                    }
                }
            }
        };
        let pages = pages.pages.iter().map(|_| Some(page.clone())).collect();
        PagesReading { at: self.now.clone(), pages }
    }

    fn kernel_reading(&self) -> KernelReading {
        let link = |index, name: &str, address: Option<&str>| Link {
            index,
            name: name.to_owned(),
            up: true,
            lower_up: true,
            mtu: 1_500,
            kind: None,
            master: None,
            addresses: address
                .into_iter()
                .map(|address| Address {
                    local: address.parse().unwrap(),
                    peer: None,
                    scope: 0,
                    dynamic: false,
                    unusable: false,
                })
                .collect(),
        };
        let mut links =
            vec![link(1, "eth0", Some("192.0.2.2/24")), link(2, "eth1", Some("10.77.0.1/24"))];
        links.extend((3..).zip(self.kernel.tunnels.keys()).map(|(n, t)| link(n, t.as_str(), None)));
        KernelReading {
            world: self.kernel.clone(),
            links,
            default_device: Some(interface("eth0")),
            bindable: self.kernel.tunnels.keys().cloned().collect(),
            strangers: self.strangers.clone(),
            ..KernelReading::default()
        }
    }
}
