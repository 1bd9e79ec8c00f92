//! The tunnels of a chain: which node's tunnel can stand in which hop, and what of them is remembered.
//!
//! **Invariant:** no tunnel is wished whose peer is not known, that leads into itself, or that stands
//! in another hop already.

use super::name::{HopName, NodeName};
use super::state::{ChainState, Mode};
use super::under_way::Seats;
use crate::kernel::ConfigRef;
use crate::observation::{KernelReading, TunnelsReading};
use crate::policy::ChainPolicy;
use crate::policy::chain::{Driver, WireguardDriver};
use crate::pool::candidate::Candidate;
use crate::pool::state::Surroundings;
use crate::pool::surroundings::surroundings;
use crate::proxy::Verdict;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The folder of the pool that holds the copies of the nodes' files.
pub const GENERATION: u32 = 1;

/// What is remembered of tunnels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnels {
    /// What each node's file says.
    pub nodes: BTreeMap<HopName, BTreeMap<NodeName, Described>>,
    /// What was last found out about the machine.
    pub surroundings: Surroundings,
    /// Whether clients leave by the last hop; else they leave nowhere.
    pub open: bool,
    /// Whether anything of the policy is to be in the kernel.
    pub built: bool,
}

/// What a node's file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// The tunnel that it described when it last described one.
    pub tunnel: Option<Candidate>,
    /// What is wrong with it now; empty: nothing.
    pub trouble: String,
}

/// What was seen of tunnels in a run.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The kernel.
    pub(super) kernel: KernelReading,
    /// The machine.
    pub(super) surroundings: Surroundings,
    /// The nodes' files.
    described: TunnelsReading,
}

/// What a node is called where hops do not tell apart.
pub(crate) fn key(hop: &HopName, node: &NodeName) -> String {
    format!("{hop}.{node}")
}

/// The driver, where a chain is made of tunnels.
pub(super) fn driver(policy: &ChainPolicy) -> Option<&WireguardDriver> {
    match &policy.driver {
        Driver::Wireguard(driver) => Some(driver),
        Driver::Clash(_) | Driver::Gost(_) => None,
    }
}

impl Facts {
    /// What was seen. `None`: nothing was asked yet.
    ///
    /// # Errors
    /// Why the policy cannot be served on this machine.
    pub(super) fn new(
        driver: &WireguardDriver,
        known: Option<&Tunnels>,
        kernel: Option<&KernelReading>,
        described: Option<&TunnelsReading>,
    ) -> Result<Option<Self>, String> {
        let Some((kernel, described)) = kernel.zip(described) else { return Ok(None) };
        let mut devices = driver.lanes.slots.interfaces.iter().chain(&driver.lanes.test.named);
        if let Some(taken) = devices.find(|device| kernel.strangers.contains(*device)) {
            return Err(format!(
                "interface {taken} exists and was not made by this policy: remove it, or name another in driver.wireguard"
            ));
        }
        let known = known.map(|known| &known.surroundings);
        let surroundings = surroundings(&driver.lanes, known, kernel)?;
        Ok(Some(Self { kernel: kernel.clone(), surroundings, described: described.clone() }))
    }

    /// What is remembered from now on.
    pub(super) fn remembered(&self, policy: &ChainPolicy, known: Option<&Tunnels>) -> Tunnels {
        let before = |hop: &HopName, node: &NodeName| {
            known.and_then(|known| known.nodes.get(hop)?.get(node)?.tunnel.clone())
        };
        let nodes = policy.hops.iter().map(|hop| {
            let described = hop.nodes.iter().map(|node| {
                let described = match self.described.described.get(&key(&hop.name, &node.name)) {
                    Some(Ok(tunnel)) => {
                        Described { tunnel: Some(tunnel.clone()), trouble: String::new() }
                    }
                    Some(Err(why)) => {
                        Described { tunnel: before(&hop.name, &node.name), trouble: why.clone() }
                    }
                    None => Described {
                        tunnel: before(&hop.name, &node.name),
                        trouble: "its file was not read".to_owned(),
                    },
                };
                (node.name.clone(), described)
            });
            (hop.name.clone(), described.collect())
        });
        Tunnels {
            nodes: nodes.collect(),
            surroundings: self.surroundings.clone(),
            open: known.is_some_and(|known| known.open),
            built: true,
        }
    }
}

impl Tunnels {
    /// The copies of files that tunnels are made of.
    pub(super) fn configs(&self) -> BTreeSet<ConfigRef> {
        let described = self.nodes.values().flat_map(BTreeMap::values);
        described.filter_map(|node| Some(node.tunnel.as_ref()?.config.clone())).collect()
    }

    /// The hosts of all peers that are names.
    pub(super) fn hosts(&self) -> BTreeSet<String> {
        let described = self.nodes.values().flat_map(BTreeMap::values);
        let hosts = described.filter_map(|node| Some(node.tunnel.as_ref()?.host.clone()));
        hosts.filter(|host| host.parse::<IpAddr>().is_err()).collect()
    }

    fn described(&self, policy: &ChainPolicy, place: usize, member: &str) -> Option<&Described> {
        let hop = policy.hops.get(place)?;
        self.nodes.get(&hop.name)?.get(&hop.of_member(member)?.name)
    }
}

impl ChainState {
    /// The tunnel of a node, its peer's host a literal address.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn tunnel(
        &self,
        policy: &ChainPolicy,
        place: usize,
        member: &str,
    ) -> Result<Candidate, String> {
        let described =
            self.tunnels.as_ref().and_then(|known| known.described(policy, place, member));
        let described = described.ok_or_else(|| "it is no node of the policy".to_owned())?;
        let tunnel = described.tunnel.as_ref().ok_or_else(|| described.trouble.clone())?;
        let literal = tunnel.host.parse::<IpAddr>().ok();
        let known = self.addresses.get(&tunnel.host).map_or(&[][..], Vec::as_slice);
        // What runs inside a tunnel is IPv4, since the tunnels carry nothing else.
        let fits = |address: &&IpAddr| place == 0 || address.is_ipv4();
        let address = literal.iter().chain(known).find(fits).ok_or_else(|| {
            let family = if place == 0 { "address" } else { "IPv4 address" };
            format!("no {family} of its peer {} is known", tunnel.host)
        })?;
        Ok(Candidate { host: address.to_string(), ..tunnel.clone() })
    }

    /// Why a node cannot stand in a hop beside what stands in the others, if so.
    pub(super) fn hindrance(
        &self,
        policy: &ChainPolicy,
        seats: &Seats,
        place: usize,
        member: &str,
    ) -> Option<String> {
        let _tunnels = driver(policy)?;
        let tunnel = match self.tunnel(policy, place, member) {
            Ok(tunnel) => tunnel,
            Err(why) => return Some(why),
        };
        let others = seats.iter().enumerate().filter(|(other, _)| *other != place);
        let others: Vec<(usize, Candidate)> = others
            .filter_map(|(other, seat)| Some((other, self.tunnel(policy, other, seat).ok()?)))
            .collect();
        let name = |place: usize| {
            policy.hops.get(place).map(|hop| hop.name.to_string()).unwrap_or_default()
        };
        if let Some((other, _)) =
            others.iter().find(|(_, up)| up.same_endpoint(&tunnel) || up.same_pair(&tunnel))
        {
            return Some(format!("the same tunnel stands in hop {} already", name(*other)));
        }
        let peer: IpAddr = tunnel.host.parse().ok()?;
        let mut inner = others.iter().map(|(_, up)| up).chain([&tunnel]);
        if inner.any(|up| up.addresses.iter().any(|own| own.addr() == peer)) {
            return Some(format!("its peer {peer} is an address of the chain itself, a loop"));
        }
        let own = self.tunnels.as_ref().map(|known| &known.surroundings.own);
        own.is_some_and(|own| own.contains(&peer))
            .then(|| format!("its peer {peer} is this machine, a loop"))
    }

    /// Opens the last hop to clients, or closes it: they return once no hop is closed and the whole
    /// path has passed in this run, and stay where they are while nobody can say.
    pub(super) fn open_or_close(&mut self, now: &Moment) {
        let closed = self.hops.iter().any(|hop| hop.mode == Mode::Closed);
        let passes = self
            .path
            .as_ref()
            .is_some_and(|path| path.verdict == Verdict::Passed && path.at >= *now);
        if let Some(tunnels) = &mut self.tunnels {
            tunnels.open = !closed && (passes || tunnels.open);
        }
    }
}
