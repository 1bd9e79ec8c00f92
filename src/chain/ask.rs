//! What a chain wants to know.
//!
//! **Invariant:** a leg is asked through the hops before it and no other way; a failed request is
//! asked again once before it counts.

use super::Chain;
use super::state::ChainState;
use super::tunnels::{self, Tunnels, key};
use super::under_way::Seats;
use super::{lanes, sight};
use crate::machine::Subject;
use crate::observation::{
    AnyOrAll, Asker, CoreQuestion, DelayQuestion, Expect, GostQuestion, Observation, Page, Pages,
    PagesReading, Question, Trial, TunnelsQuestion, Way,
};
use crate::policy::ChainPolicy;
use crate::policy::chain::{ClashDriver, Driver, GostDriver, Node, Strategy, WireguardDriver};
use crate::policy::pool::Tool;
use crate::pool::ask::HANDSHAKE_MS;
use crate::proxy::Verdict;
use crate::url::Target;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// When in a run the core is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Before anything is asked.
    First,
    /// Once more, with the core's own configuration.
    Config,
    /// For what kinds of members there are.
    Kinds,
}

impl Look {
    pub(super) fn turn(self) -> u32 {
        match self {
            Self::First => 0,
            Self::Config => 1,
            Self::Kinds => 2,
        }
    }
}

/// A look at the core.
pub(super) fn core(subject: &Subject<'_, Chain>, driver: &ClashDriver, look: Look) -> Question {
    let hops = &subject.policy.hops;
    let groups: BTreeSet<String> = match look {
        Look::First | Look::Config => hops.iter().map(|hop| hop.group.clone()).collect(),
        Look::Kinds => {
            hops.iter().flat_map(|hop| &hop.nodes).map(|node| node.member.clone()).collect()
        }
    };
    let confirmed = subject.state.and_then(|state| state.hops.first()).map(|hop| &hop.confirmed);
    Question::Core(Box::new(CoreQuestion {
        turn: look.turn(),
        core: driver.core.clone(),
        groups,
        traffic: look != Look::Kinds,
        config: look == Look::Config,
        process: confirmed.and_then(|confirmed| confirmed.life.process.clone()),
    }))
}

/// A look at a gost.
pub(super) fn gost(subject: &Subject<'_, Chain>, driver: &GostDriver) -> Question {
    let confirmed = subject.state.and_then(|state| state.hops.first()).map(|hop| &hop.confirmed);
    Question::Gost(Box::new(GostQuestion {
        gost: driver.gost.clone(),
        chain: driver.chain.clone(),
        hops: subject.policy.hops.iter().map(|hop| hop.group.clone()).collect(),
        process: confirmed.and_then(|confirmed| confirmed.life.process.clone()),
    }))
}

/// Who asks for pages through all hops.
pub(super) fn asker() -> Asker {
    Asker::Named("path".to_owned())
}

/// The members that can be asked by themselves, of all nodes.
pub(super) fn every_member(policy: &ChainPolicy) -> BTreeSet<String> {
    let nodes = policy.hops.iter().flat_map(|hop| &hop.nodes);
    nodes.filter(|node| node.egress).map(|node| node.member.clone()).collect()
}

/// Those of what stands, be it a node of the policy or not.
pub(super) fn members_of(policy: &ChainPolicy, seats: &Seats) -> BTreeSet<String> {
    let stands = policy.hops.iter().zip(seats);
    let stands = stands.filter(|(hop, seat)| hop.of_member(seat).is_none_or(|node| node.egress));
    stands.map(|(_, seat)| seat.clone()).collect()
}

/// What is still to be asked to know how `seats` carry: each of `members` once, and what failed of
/// `matters` once more.
pub(super) fn legs(
    policy: &ChainPolicy,
    seen: &Observation,
    seats: &Seats,
    members: BTreeSet<String>,
    matters: &BTreeSet<String>,
) -> Option<Vec<Question>> {
    let path = match &policy.driver {
        Driver::Clash(driver) => driver.proxy,
        Driver::Gost(driver) => Some(driver.proxy),
        // The last leg is the clients' own way.
        Driver::Wireguard(_) => None,
    };
    let path = path.map(Way::Proxy);
    if !sight::was_asked(seen) {
        let path = path.map(|way| pages(policy, way, 0));
        return Some(delays(policy, members, 0).into_iter().chain(path).collect());
    }
    let mut asks = Vec::new();
    let failed = |member: &&String| {
        sight::member(policy, seen, member).is_some_and(|shown| shown.verdict == Verdict::Failed)
    };
    let mut again: BTreeSet<String> = matters.iter().filter(failed).cloned().collect();
    let path_failed = sight::path(seen).is_some_and(|shown| shown.verdict == Verdict::Failed);
    if let Some(way) = path.filter(|_| path_failed && read(seen, &asker(), 1).is_none()) {
        asks.push(pages(policy, way, 1));
        if again.is_empty() {
            // What carries is asked again beside it, so that both are of one time.
            again = members_of(policy, seats);
        }
    }
    if !seen.delays().any(|(asked, _)| asked.turn == 1) {
        asks.extend(delays(policy, again, 1));
    }
    (!asks.is_empty()).then_some(asks)
}

fn delays(policy: &ChainPolicy, members: BTreeSet<String>, turn: u32) -> Option<Question> {
    let driver = match &policy.driver {
        Driver::Clash(driver) => driver,
        Driver::Gost(_) | Driver::Wireguard(_) => return None,
    };
    let timeout_ms = policy.probe.timeout_sec.saturating_mul(1_000);
    (!members.is_empty()).then(|| {
        Question::Delays(Box::new(DelayQuestion {
            turn,
            core: driver.core.clone(),
            members,
            urls: policy.measured_by(),
            timeout_ms: u16::try_from(timeout_ms).unwrap_or(u16::MAX),
        }))
    })
}

fn pages(policy: &ChainPolicy, way: Way, turn: u32) -> Question {
    let page = |url: &Target| Page { url: url.clone(), addresses: Vec::new() };
    Question::Pages(Pages {
        asker: asker(),
        turn,
        way,
        pages: policy.probe.urls.iter().map(page).collect(),
        require: policy.probe.require.into(),
        expect: Expect::Status(policy.probe.expect_status.clone()),
        timeout_ms: policy.probe.timeout_sec.saturating_mul(1_000),
        patience: None,
    })
}

/// What is looked at first of a chain of tunnels.
pub(super) fn first_of_tunnels(
    subject: &Subject<'_, Chain>,
    driver: &WireguardDriver,
) -> Vec<Question> {
    let nodes = subject.policy.hops.iter().flat_map(|hop| {
        let file = |node: &Node| Some((key(&hop.name, &node.name), node.config.clone()?));
        hop.nodes.iter().filter_map(file)
    });
    let known = subject.state.and_then(|state| state.tunnels.as_ref());
    vec![
        Question::Kernel(Box::new(lanes::scope(subject, 0))),
        Question::Tunnels(Box::new(TunnelsQuestion {
            files: nodes.collect(),
            generation: tunnels::GENERATION,
            amnezia: driver.lanes.wireguard.tool == Tool::Awg,
            keep: known.map(Tunnels::configs).unwrap_or_default(),
        })),
    ]
}

/// The hosts of tunnels' peers that nobody has looked up in this run.
pub(super) fn peers(state: &ChainState, seen: &Observation) -> Option<Question> {
    let mut names = state.tunnels.as_ref()?.hosts();
    names.retain(|name| !seen.names().contains_key(name.as_str()));
    (!names.is_empty()).then_some(Question::Names(names))
}

/// The legs of tunnels that were not asked yet, then once more those that failed.
pub(super) fn tunnel_legs(
    policy: &ChainPolicy,
    state: &ChainState,
    seen: &Observation,
    seats: &Seats,
) -> Vec<Question> {
    let Some(driver) = tunnels::driver(policy) else { return Vec::new() };
    let mut asks = Vec::new();
    for (place, (hop, seat)) in policy.hops.iter().zip(seats).enumerate() {
        let has_leg = hop.of_member(seat).is_some_and(|node| node.egress)
            && state.tunnel(policy, place, seat).is_ok();
        let Some(device) = driver.device(place).filter(|_| has_leg) else { continue };
        let leg = |turn| {
            let way = Way::Device { device: device.clone(), mark: Some(driver.mark(place)) };
            let asker = Asker::Slot(device.clone());
            Question::Pages(Pages { asker, turn, ..probe(policy, state, way) })
        };
        let shown = sight::leg(seen, device);
        let fails = shown.is_some_and(|shown| shown.verdict == Verdict::Failed);
        let is_again = read(seen, &Asker::Slot(device.clone()), 1).is_some();
        match (read(seen, &Asker::Slot(device.clone()), 0), fails && !is_again) {
            (None, _) => asks.push(leg(0)),
            (Some(_), true) => asks.push(leg(1)),
            (Some(_), false) => {}
        }
    }
    asks
}

/// A node of a hop that does not carry, tried on the hop's test device through the hops before.
pub(super) fn trial(
    policy: &ChainPolicy,
    state: &ChainState,
    place: usize,
    node: &Node,
) -> Option<Question> {
    let driver = tunnels::driver(policy)?;
    let hop = policy.hops.get(place)?;
    let tunnel = state.tunnel(policy, place, &node.member).ok()?;
    let mtu = lanes::test_mtu(policy, state, place, &tunnel)?;
    let device = driver.test_device(place)?;
    let way = Way::Device { device: device.clone(), mark: Some(driver.lanes.test_mark()) };
    let asker = Asker::Slot(device.clone());
    Some(Question::Trial(Box::new(Trial {
        name: key(&hop.name, &node.name),
        config: tunnel.config.clone(),
        interface: device.clone(),
        means: lanes::means(policy),
        endpoint: SocketAddr::new(tunnel.host.parse().ok()?, tunnel.port),
        fwmark: driver.outer_mark(place),
        addresses: tunnel.addresses4().collect(),
        mtu,
        pages: Pages { asker, ..probe(policy, state, way) },
        large: None,
        handshake_ms: HANDSHAKE_MS,
        retries: 1,
        warm: hop.strategy == Strategy::LowestLatency,
    })))
}

/// The pages of the probe, where a name is resolved by this machine.
fn probe(policy: &ChainPolicy, state: &ChainState, way: Way) -> Pages {
    let page = |url: &Target| Page { url: url.clone(), addresses: addresses(state, url) };
    Pages {
        asker: asker(),
        turn: 0,
        way,
        pages: policy.probe.urls.iter().map(page).collect(),
        require: policy.probe.require.into(),
        expect: Expect::Status(policy.probe.expect_status.clone()),
        timeout_ms: policy.probe.timeout_sec.saturating_mul(1_000),
        patience: None,
    }
}

/// The addresses of a page's host: a literal, or the last good answer of the resolver.
fn addresses(state: &ChainState, url: &Target) -> Vec<IpAddr> {
    match url.address() {
        Some(address) => vec![address],
        None => state.addresses.get(url.host()).cloned().unwrap_or_default(),
    }
}

/// The hosts that this machine itself asks.
pub(super) fn names(policy: &ChainPolicy) -> Option<Question> {
    let pages = tunnels::driver(policy).into_iter().flat_map(|_| &policy.probe.urls);
    let urls = policy.wan.iter().flat_map(|wan| &wan.urls).chain(pages);
    let names: BTreeSet<String> =
        urls.filter(|url| url.address().is_none()).map(|url| url.host().to_owned()).collect();
    (!names.is_empty()).then_some(Question::Names(names))
}

/// The references of the uplink, where the policy names some.
pub(super) fn wan(policy: &ChainPolicy, state: &ChainState) -> Option<Question> {
    let wan = policy.wan.as_ref()?;
    let page = |url: &Target| Page { url: url.clone(), addresses: addresses(state, url) };
    Some(Question::Pages(Pages {
        asker: Asker::Wan,
        turn: 0,
        way: Way::Main,
        pages: wan.urls.iter().map(page).collect(),
        require: AnyOrAll::from(wan.require),
        expect: Expect::AnyAnswer,
        timeout_ms: wan.timeout_ms(),
        patience: None,
    }))
}

/// The `turn`-th reading of pages.
pub(super) fn read(seen: &Observation, asker: &Asker, turn: u32) -> Option<(Pages, PagesReading)> {
    let mut readings = seen.pages(asker).into_iter();
    let (pages, reading) = readings.find(|(pages, _)| pages.turn == turn)?;
    Some((pages.clone(), reading.clone()))
}
