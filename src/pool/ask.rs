//! What a pool wants to know.
//!
//! **Invariant:** every question names the device that its request must leave by.

use super::assess::Assessment;
use super::candidate::Candidate;
use super::health::Health;
use super::layout;
use super::patience::patience;
use super::state::{PoolState, Slot, Surroundings};
use crate::machine::Owned;
use crate::names::{Interface, Mark, PolicyName};
use crate::observation::{
    AnyOrAll, Asker, Expect, KernelScope, Keys, Observation, Page, Pages, Question, Realm,
    StandbyQuestion, Trial, Way,
};
use crate::policy::PoolPolicy;
use crate::policy::pool::{PRIORITIES, Tool};
use crate::time::Moment;
use crate::url::Target;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// A candidate that has not shaken hands by then never will: a handshake takes one round trip, and
/// is sent again after 5 s only, so 3 s are many times what the longest path needs.
pub(crate) const HANDSHAKE_MS: u64 = 3_000;
/// One tunnel that works proves the uplink; a second in case that the first dies meanwhile, and a
/// third because two of one provider may die together.
const WITNESSES: usize = 3;
/// An address that is nobody's (RFC 5737), for routes of pages that were never resolved.
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

/// What of the kernel concerns the pool.
pub(crate) fn scope(
    policy: &PoolPolicy,
    name: &PolicyName,
    state: Option<&PoolState>,
    owned: &Owned,
    turn: u32,
) -> KernelScope {
    let loaded = |interface: &Interface| {
        state.and_then(|state| state.slots.get(interface)).and_then(Slot::candidate)
    };
    let mut interfaces: BTreeSet<Interface> = policy.slots.interfaces.iter().cloned().collect();
    interfaces.extend(policy.test.interfaces());
    interfaces.extend(policy.standby().cloned());
    interfaces.extend(owned.interfaces.iter().cloned());
    let standby = state.and_then(|state| state.standby.as_ref()?.candidate.as_ref());
    let expected: BTreeMap<_, _> = policy
        .slots
        .interfaces
        .iter()
        .filter_map(|interface| Some((interface, loaded(interface)?)))
        .chain(policy.standby().zip(standby))
        .map(|(interface, candidate)| {
            (interface.clone(), (candidate.config.clone(), Keys::from(&candidate.ends)))
        })
        .collect();
    let mut sysctls: BTreeSet<String> = owned.sysctls.keys().cloned().collect();
    for interface in &interfaces {
        for key in ["rp_filter", "src_valid_mark"] {
            sysctls.insert(format!("net/ipv4/conf/{interface}/{key}"));
        }
    }
    let target = state
        .and_then(|state| {
            policy.probe.urls.iter().find_map(|url| {
                layout::addresses_of(state, url.host()).into_iter().find(IpAddr::is_ipv4)
            })
        })
        .unwrap_or(FAR);
    let bound = expected.keys().map(|interface| (target, interface.clone())).collect();
    let realms = std::iter::once(realm(policy)).chain(owned.realms.iter().copied()).collect();
    KernelScope {
        turn,
        interfaces,
        owned: owned.interfaces.clone(),
        expected,
        realms,
        watched: BTreeSet::new(),
        nft_table: name.nft_table(),
        sysctls,
        tool: policy.wireguard.tool.program().to_owned(),
        users: policy.users().into_iter().map(str::to_owned).collect(),
        bound,
    }
}

/// What tells the pool's rules and routes from a stranger's.
pub(crate) fn realm(policy: &PoolPolicy) -> Realm {
    let first = policy.routing.rule_priority;
    let table = policy.slots.first_table;
    let more = policy.tables().saturating_sub(1);
    Realm {
        protocol: policy.routing.protocol,
        priorities: (first, first.saturating_add(PRIORITIES - 1)),
        tables: (table, table.saturating_add(more)),
    }
}

/// The host names that the pool's pages and endpoints need, where there are any.
pub(super) fn names(policy: &PoolPolicy, state: Option<&PoolState>) -> Option<Question> {
    let names = hosts(policy, state);
    (!names.is_empty()).then_some(Question::Names(names))
}

/// The host names that the pool's pages and endpoints need, literals left out.
pub(super) fn hosts(policy: &PoolPolicy, state: Option<&PoolState>) -> BTreeSet<String> {
    let large = policy.probe.large.iter().map(|large| &large.url);
    let exit = policy.exit_ip.iter().map(|exit| &exit.url);
    let pages = policy.probe.urls.iter().chain(&policy.wan.urls).chain(large).chain(exit);
    let slots =
        state.into_iter().flat_map(|state| state.slots.values()).filter_map(Slot::candidate);
    let standby = state.and_then(|state| state.standby.as_ref()?.candidate.as_ref());
    let standby = standby.filter(|_| policy.standby().is_some());
    pages
        .map(|url| url.host().to_owned())
        .chain(slots.chain(standby).map(|candidate| candidate.host.clone()))
        .chain(policy.provider.hosts())
        .filter(|host| host.parse::<IpAddr>().is_err())
        .collect()
}

/// The file of the standby tunnel, where the policy has one.
pub(super) fn standby(policy: &PoolPolicy, state: Option<&PoolState>) -> Option<Question> {
    let standby = policy.bootstrap.wireguard.as_ref()?;
    let known = state.and_then(|state| state.standby.as_ref()?.candidate.as_ref());
    Some(Question::Standby(Box::new(StandbyQuestion {
        file: standby.config.clone(),
        amnezia: policy.wireguard.tool == Tool::Awg,
        keep: known.map(|known| known.config.clone()),
    })))
}

/// Pages with the addresses of their hosts.
fn pages(state: &PoolState, urls: &[Target]) -> Vec<Page> {
    urls.iter()
        .map(|url| Page { url: url.clone(), addresses: layout::addresses_of(state, url.host()) })
        .collect()
}

/// The references of the uplink, for the `turn`-th time in this run.
pub(super) fn wan(
    policy: &PoolPolicy,
    state: &PoolState,
    surroundings: &Surroundings,
    turn: u32,
) -> Question {
    Question::Pages(Pages {
        asker: Asker::Wan,
        turn,
        way: Way::Device { device: surroundings.wan.clone(), mark: None },
        pages: pages(state, &policy.wan.urls),
        require: policy.wan.require.into(),
        expect: Expect::AnyAnswer,
        timeout_ms: policy.wan.timeout_ms(),
        patience: None,
    })
}

/// Tunnels that carried their probe in this run, asked once more beside the references: a reference
/// that is dead alone must not pass for the uplink.
pub(super) fn witnesses(
    policy: &PoolPolicy,
    state: &PoolState,
    sight: &Assessment<'_>,
    turn: u32,
) -> Vec<Question> {
    let passed = |health: Option<&Health>| match health {
        Some(Health::Healthy { saturated, .. }) => !saturated,
        Some(Health::Failed(_) | Health::Unknown(_)) | None => false,
    };
    let slots = policy.slots.interfaces.iter().filter(|slot| passed(sight.health.get(slot)));
    let standby = sight.standby.iter().filter(|standby| passed(standby.health.as_ref()));
    slots
        .chain(standby.map(|standby| &standby.interface))
        .take(WITNESSES)
        .map(|device| {
            let asker = Asker::Slot(device.clone());
            Question::Pages(Pages { turn, ..probe(policy, state, asker, device) })
        })
        .collect()
}

/// Which time the uplink is asked next.
pub(super) fn next_wan_turn(seen: &Observation) -> u32 {
    u32::try_from(seen.pages(&Asker::Wan).len()).unwrap_or(u32::MAX)
}

/// The mark of a request through one device: its slot's, so that it takes the way of the slot's
/// clients, or the one of the standby or of tests.
fn mark(policy: &PoolPolicy, device: &Interface) -> Option<Mark> {
    match policy.index_of(device) {
        Some(index) => Some(policy.mark(index)),
        None if policy.standby() == Some(device) => Some(policy.standby_mark()),
        None if policy.test.interfaces().contains(device) => Some(policy.test_mark()),
        None => None,
    }
}

/// The probe of one device.
fn probe(policy: &PoolPolicy, state: &PoolState, asker: Asker, device: &Interface) -> Pages {
    Pages {
        asker,
        turn: 0,
        way: Way::Device { device: device.clone(), mark: mark(policy, device) },
        pages: pages(state, &policy.probe.urls),
        require: policy.probe.require.into(),
        expect: Expect::Status(policy.probe.expect_status.clone()),
        timeout_ms: policy.probe.timeout_sec.saturating_mul(1_000),
        patience: None,
    }
}

/// The check of a slot once more.
pub(super) fn again(
    policy: &PoolPolicy,
    state: &PoolState,
    interface: &Interface,
    turn: u32,
) -> Pages {
    Pages { turn, ..probe(policy, state, Asker::SlotAgain(interface.clone()), interface) }
}

/// The large page of one device, where the policy names one.
fn large(
    policy: &PoolPolicy,
    state: &PoolState,
    asker: Asker,
    device: &Interface,
) -> Option<Pages> {
    let large = policy.probe.large.as_ref()?;
    Some(Pages {
        pages: pages(state, std::slice::from_ref(&large.url)),
        require: AnyOrAll::All,
        expect: Expect::Bytes(large.bytes),
        ..probe(policy, state, asker, device)
    })
}

/// What shows that a newly loaded slot carries requests.
pub(super) fn verification(
    policy: &PoolPolicy,
    state: &PoolState,
    interface: &Interface,
) -> Option<Pages> {
    state.slots.get(interface)?.candidate()?;
    let mut ask = probe(policy, state, Asker::Slot(interface.clone()), interface);
    ask.timeout_ms = policy.params.candidate_test_timeout_sec.saturating_mul(1_000);
    Some(ask)
}

/// The first round of requests: the uplink, every slot and the standby, side by side.
pub(super) fn health(
    policy: &PoolPolicy,
    state: &PoolState,
    sight: &Assessment<'_>,
    surroundings: &Surroundings,
    judgeable: &[Interface],
    now: &Moment,
) -> Vec<Question> {
    let mut asks = vec![wan(policy, state, surroundings, 0)];
    let exit_due = |slot: &Slot| {
        let exit = policy.exit_ip.as_ref()?;
        let interval = Duration::from_secs(exit.interval_sec);
        slot.exit_ip_at.as_ref().is_none_or(|at| now.since(at) >= interval).then_some(exit)
    };
    let mut ask_wan_exit = false;
    for interface in judgeable {
        let check = probe(policy, state, Asker::Slot(interface.clone()), interface);
        let slot = state.slots.get(interface);
        let counters = sight.kernel.counters.get(interface);
        let patience = slot.and_then(|slot| patience(policy, slot, counters));
        asks.push(Question::Pages(Pages { patience, ..check }));
        // The standby carries nobody who would mind large packets or its address.
        let Some(slot) = slot else { continue };
        asks.extend(
            large(policy, state, Asker::SlotLarge(interface.clone()), interface)
                .map(Question::Pages),
        );
        if let Some(exit) = exit_due(slot) {
            ask_wan_exit |= exit.must_differ_from_wan;
            asks.push(Question::Pages(Pages {
                pages: pages(state, std::slice::from_ref(&exit.url)),
                require: AnyOrAll::All,
                expect: Expect::Address,
                ..probe(policy, state, Asker::SlotExit(interface.clone()), interface)
            }));
        }
    }
    if ask_wan_exit && let Some(exit) = &policy.exit_ip {
        asks.push(Question::Pages(Pages {
            pages: pages(state, std::slice::from_ref(&exit.url)),
            require: AnyOrAll::All,
            expect: Expect::Address,
            ..probe(policy, state, Asker::WanExit, &surroundings.wan)
        }));
    }
    asks
}

/// A trial of a candidate on a test interface; `None` while its host has no known address.
pub(super) fn trial(
    policy: &PoolPolicy,
    state: &PoolState,
    surroundings: &Surroundings,
    candidate: &Candidate,
    interface: &Interface,
) -> Option<Question> {
    let endpoint = layout::endpoint_of(state, candidate)?;
    let timeout_ms = policy.params.candidate_test_timeout_sec.saturating_mul(1_000);
    let asker = Asker::Slot(interface.clone());
    let pages = Pages { timeout_ms, ..probe(policy, state, asker.clone(), interface) };
    let large = large(policy, state, asker, interface).map(|large| Pages { timeout_ms, ..large });
    Some(Question::Trial(Box::new(Trial {
        name: candidate.name.clone(),
        config: candidate.config.clone(),
        interface: interface.clone(),
        means: layout::means(policy),
        endpoint,
        fwmark: None,
        addresses: candidate.addresses4().collect(),
        mtu: layout::mtu_of(candidate, surroundings),
        pages,
        large,
        handshake_ms: HANDSHAKE_MS,
        retries: policy.params.candidate_test_retries,
        warm: false,
    })))
}
