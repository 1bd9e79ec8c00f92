//! What the kernel should look like for a chain of tunnels: the slots of a pool, one inside the other.
//!
//! Each hop has a device, a table with its way out, and a mark that leads there. The own packets of a
//! tunnel carry the mark of the hop before, so that the way of a hop's peer follows whatever stands
//! there and needs no address. Clients carry the mark of the last hop, or none.
//!
//! **Invariant:** no mark of ours leads to the uplink, and nothing that carries one leaves by it.

use super::Chain;
use super::state::ChainState;
use super::tunnels::{self, Facts, GENERATION, Tunnels};
use super::under_way::Seats;
use crate::iproute::{Rule, RuleAction};
use crate::kernel::diff::{Means, diff};
use crate::kernel::nft::Layout;
use crate::kernel::{NftTable, World};
use crate::machine::{Cut, Owned, Subject};
use crate::names::{Interface, PolicyName, Table};
use crate::observation::KernelScope;
use crate::plan::{Backend, Check};
use crate::policy::ChainPolicy;
use crate::policy::ClientEntry;
use crate::policy::chain::WireguardDriver;
use crate::policy::pool::Cut as CutWish;
use crate::pool::candidate::Candidate;
use crate::pool::future::{Touched, route_checks};
use crate::pool::layout::{self, nft_layout};
use crate::pool::state::{Content, Egress, PoolState, Slot, Surroundings};
use crate::time::Moment;
use std::collections::BTreeSet;

/// WireGuard's own overhead over IPv6 (40 + 8 + 32 bytes), which is the larger one.
const OVERHEAD: u16 = 80;

/// What a state calls for, beside itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Laid {
    /// Our own objects.
    pub(super) world: World,
    /// What closes the clients at boot.
    pub(super) barrier: Option<String>,
    /// Folders of the pool that are still needed.
    pub(super) generations: BTreeSet<u32>,
}

/// The same hops as slots of a pool that is loaded with what stands.
struct Slots {
    state: PoolState,
    surroundings: Surroundings,
}

/// How the devices of the hops are made.
pub(super) fn means(policy: &ChainPolicy) -> Means {
    tunnels::driver(policy).map_or_else(
        || Means { backend: Backend::Kernel("wireguard".to_owned()), tool: "wg".to_owned() },
        |driver| layout::means(&driver.lanes),
    )
}

/// The tunnels that stand, each small enough for the one that it runs in; by place.
fn standing(
    policy: &ChainPolicy,
    state: &ChainState,
    surroundings: &Surroundings,
) -> Vec<Option<Candidate>> {
    let mut outer: Option<u16> = None;
    let tunnel = |(place, hop): (usize, &super::state::HopState)| {
        let tunnel = state.tunnel(policy, place, &hop.confirmed.member).ok();
        let limit = outer.map(|outer| outer.saturating_sub(OVERHEAD));
        let wished = tunnel.as_ref().and_then(|tunnel| tunnel.mtu);
        let mtu = match (limit, wished, &tunnel) {
            (Some(limit), wished, _) => wished.map_or(limit, |wished| wished.min(limit)),
            (None, _, Some(tunnel)) => layout::mtu_of(tunnel, surroundings),
            (None, _, None) => layout::widest(surroundings),
        };
        outer = Some(mtu);
        tunnel.map(|tunnel| Candidate { mtu: Some(mtu), ..tunnel })
    };
    state.hops.iter().enumerate().map(tunnel).collect()
}

impl Slots {
    fn new(
        policy: &ChainPolicy,
        driver: &WireguardDriver,
        state: &ChainState,
        known: &Tunnels,
    ) -> Self {
        // Times are of no account in a layout.
        let mut pool = PoolState::new(&state.since);
        pool.proven = true;
        pool.retired = !known.built;
        let stands = standing(policy, state, &known.surroundings);
        for (device, tunnel) in driver.lanes.slots.interfaces.iter().zip(stands) {
            let content = tunnel.map_or(Content::Empty, Content::Loaded);
            pool.slots.insert(device.clone(), Slot::new(content, &state.since));
        }
        let egress = match driver.lanes.slots.interfaces.last() {
            Some(last) if known.open => Egress::Slot(last.clone()),
            Some(_) | None => Egress::None,
        };
        let keys = driver.lanes.client_keys().into_iter();
        pool.egress = keys.map(|client| (client, egress.clone())).collect();
        Self { state: pool, surroundings: known.surroundings.clone() }
    }
}

/// What a state calls for.
pub(super) fn laid(policy: &ChainPolicy, name: &PolicyName, state: &ChainState) -> Laid {
    let Some((driver, known)) = tunnels::driver(policy).zip(state.tunnels.as_ref()) else {
        return Laid::default();
    };
    let generations = BTreeSet::from([GENERATION]);
    if !known.built {
        return Laid { generations, ..Laid::default() };
    }
    let slots = Slots::new(policy, driver, state, known);
    let mut world = layout::world(&driver.lanes, name, &slots.state, &slots.surroundings);
    // Nobody is ever led to the uplink.
    world.rules.retain(|rule| !leads_out(driver, rule));
    for (place, device) in driver.lanes.slots.interfaces.iter().enumerate() {
        if let Some(tunnel) = world.tunnels.get_mut(device) {
            tunnel.fwmark = driver.outer_mark(place);
        }
    }
    let nft = table(driver, name, &slots);
    let barrier = driver.lanes.routing.barrier.then(|| nft.at_boot().render());
    world.nft = Some(NftTable { name: name.nft_table(), text: nft.render(), listing: None });
    Laid { world, barrier, generations }
}

fn table(driver: &WireguardDriver, name: &PolicyName, slots: &Slots) -> Layout {
    let layout = nft_layout(&driver.lanes, name, &slots.state, &slots.surroundings);
    let inside = layout.slots.values().map(|slot| slot.mark).collect();
    Layout { inside, ..layout }
}

/// Whether a rule leads what carries Direct's mark out by main.
fn leads_out(driver: &WireguardDriver, rule: &Rule) -> bool {
    rule.action == RuleAction::Lookup(Table::MAIN)
        && rule.fwmark.is_some_and(|(mark, _)| mark == driver.lanes.direct_mark().0)
}

/// What of the kernel concerns the policy.
pub(super) fn scope(subject: &Subject<'_, Chain>, turn: u32) -> KernelScope {
    let Some(driver) = tunnels::driver(subject.policy) else {
        return other_scope(subject.name, subject.owned, turn);
    };
    let blank = PoolState::new(&Moment::epoch());
    let slots = subject.state.and_then(|state| {
        let known = state.tunnels.as_ref()?;
        Some(Slots::new(subject.policy, driver, state, known).state)
    });
    let state = slots.as_ref().unwrap_or(&blank);
    let scope =
        crate::pool::ask::scope(&driver.lanes, subject.name, Some(state), subject.owned, turn);
    KernelScope { bound: Vec::new(), ..scope }
}

/// What was made when the policy had tunnels, for one that has none since.
fn other_scope(name: &PolicyName, owned: &Owned, turn: u32) -> KernelScope {
    if owned.realms.is_empty() {
        return KernelScope::default();
    }
    KernelScope {
        turn,
        interfaces: owned.interfaces.clone(),
        owned: owned.interfaces.clone(),
        realms: owned.realms.clone(),
        sysctls: owned.sysctls.keys().cloned().collect(),
        nft_table: name.nft_table(),
        tool: "wg".to_owned(),
        ..KernelScope::default()
    }
}

/// The hops whose tunnels are not as they should be.
pub(super) fn drifted(
    policy: &ChainPolicy,
    name: &PolicyName,
    state: &ChainState,
    facts: &Facts,
) -> BTreeSet<usize> {
    let Some(driver) = tunnels::driver(policy) else { return BTreeSet::new() };
    let only = |world: &World| World { tunnels: world.tunnels.clone(), ..World::default() };
    let wished = laid(policy, name, state).world;
    let steps = diff(&only(&facts.kernel.world), &only(&wished), &means(policy));
    let places = steps.iter().filter_map(|step| {
        let device = step.action.interface()?;
        driver.lanes.slots.interfaces.iter().position(|known| known == device)
    });
    places.collect()
}

/// What has to stand before all of it does, in order: what leads and closes before the first tunnel,
/// and each tunnel with its route before the one that runs inside it. So the own packets of none ever
/// leave by the uplink in place of the hop before, nor is its first handshake lost, which would be
/// sent again only after seconds.
pub(super) fn stages(
    policy: &ChainPolicy,
    name: &PolicyName,
    state: &ChainState,
    facts: &Facts,
) -> Vec<World> {
    let world = laid(policy, name, state).world;
    let now = &facts.kernel.world;
    let stands = |device: &Interface| now.tunnels.get(device).is_some_and(|there| there.answers);
    // Devices are told apart by their place in the policy.
    let devices = tunnels::driver(policy).into_iter().flat_map(|d| &d.lanes.slots.interfaces);
    let missing: Vec<&Interface> =
        devices.filter(|device| world.tunnels.contains_key(*device) && !stands(device)).collect();
    let has_ground = world.rules.is_subset(&now.rules) && now.nft.is_some();
    let first = usize::from(has_ground);
    (first..missing.len()).map(|count| part(&world, now, missing.iter().skip(count))).collect()
}

/// A world without tunnels that are not there yet.
fn part<'a>(world: &World, now: &World, absent: impl Iterator<Item = &'a &'a Interface>) -> World {
    let absent: BTreeSet<&Interface> = absent.copied().collect();
    let mut part = world.clone();
    part.tunnels.retain(|device, _| !absent.contains(device));
    for (device, tunnel) in &mut part.tunnels {
        // What stands is changed with the last of them.
        if let Some(there) = now.tunnels.get(device).filter(|there| there.answers) {
            tunnel.clone_from(there);
        }
    }
    let is_absent = |name: &str| absent.iter().any(|device| device.as_str() == name);
    part.routes.retain(|route| !route.dev.as_deref().is_some_and(is_absent));
    part.sysctls.retain(|path, _| !path.split('/').any(is_absent));
    part
}

/// What the kernel must say of clients' packets.
pub(super) fn checks(policy: &ChainPolicy, state: &ChainState, facts: &Facts) -> Vec<Check> {
    let Some((driver, known)) = tunnels::driver(policy).zip(state.tunnels.as_ref()) else {
        return Vec::new();
    };
    let slots = Slots::new(policy, driver, state, known);
    let Some(last) = driver.lanes.slots.interfaces.last() else { return Vec::new() };
    if slots.state.slots.get(last).is_none_or(Slot::is_empty) {
        return Vec::new();
    }
    let egress = Egress::Slot(last.clone());
    let clients = driver.lanes.client_keys();
    let moved: Vec<_> = clients.iter().map(|client| (client, &egress)).collect();
    let touched = Touched { moved: &moved, loaded: &[] };
    let links = &facts.kernel.links;
    route_checks(&driver.lanes, &slots.surroundings, links, &slots.state, &touched)
}

/// Which open flows end with a change: those that bear the address of a tunnel that is not the last
/// one any more, and those that were opened before the clients were taken over.
pub(super) fn cuts(policy: &ChainPolicy, old: Option<&ChainState>, new: &ChainState) -> Vec<Cut> {
    let Some((driver, now)) = tunnels::driver(policy).zip(new.tunnels.as_ref()) else {
        return Vec::new();
    };
    let before = old.and_then(|old| old.tunnels.as_ref()).filter(|before| before.built);
    let Some(before) = before else {
        let nets = driver.lanes.clients.iter().filter_map(|client| match client {
            ClientEntry::Prefix(net) => Some(Cut::Unmarked(*net)),
            ClientEntry::Spread(_) | ClientEntry::User(_) => None,
        });
        return nets.filter(|_| now.built).collect();
    };
    let last = |state: Option<&ChainState>| {
        state.and_then(|state| state.hops.last()).map(|hop| hop.confirmed.member.clone())
    };
    let replaced = last(old) != last(Some(new));
    let ends = before.open && (replaced || !now.open);
    match driver.lanes.routing.cut {
        CutWish::Dead if ends => {
            let place = driver.lanes.slots.interfaces.len().saturating_sub(1);
            vec![Cut::Marked(driver.mark(place))]
        }
        CutWish::Dead | CutWish::None => Vec::new(),
    }
}

/// The MTU of a tunnel that is tested in a place.
pub(super) fn test_mtu(
    policy: &ChainPolicy,
    state: &ChainState,
    place: usize,
    tunnel: &Candidate,
) -> Option<u16> {
    let known = state.tunnels.as_ref()?;
    let stands = standing(policy, state, &known.surroundings);
    let Some(before) = place.checked_sub(1) else {
        return Some(layout::mtu_of(tunnel, &known.surroundings));
    };
    let limit = stands.get(before)?.as_ref()?.mtu?.saturating_sub(OVERHEAD);
    Some(tunnel.mtu.map_or(limit, |wished| wished.min(limit)))
}

/// What stands, by hop in the order of the policy, as far as it is remembered.
pub(super) fn seats(policy: &ChainPolicy, state: Option<&ChainState>) -> Seats {
    let known = |name: &super::name::HopName| {
        state.and_then(|state| state.hops.iter().find(|hop| hop.name == *name))
    };
    let seat = |hop: &crate::policy::chain::Hop| {
        known(&hop.name).map(|known| known.confirmed.member.clone()).unwrap_or_default()
    };
    policy.hops.iter().map(seat).collect()
}
