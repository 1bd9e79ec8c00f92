//! What a chain wants to know.
//!
//! **Invariant:** a leg is asked through the hops before it and no other way; a failed request is
//! asked again once before it counts.

use super::Chain;
use super::sight;
use super::state::{ChainState, Verdict};
use super::under_way::Seats;
use crate::machine::Subject;
use crate::observation::{
    AnyOrAll, Asker, CoreQuestion, DelayQuestion, Expect, GostQuestion, Observation, Page, Pages,
    PagesReading, Question, Way,
};
use crate::policy::ChainPolicy;
use crate::policy::chain::{ClashDriver, Driver, GostDriver};
use crate::url::Target;
use std::collections::BTreeSet;
use std::net::IpAddr;

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
        Driver::Gost(_) => return None,
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
    })
}

/// The hosts of the references.
pub(super) fn names(policy: &ChainPolicy) -> Option<Question> {
    let urls = policy.wan.iter().flat_map(|wan| &wan.urls);
    let names: BTreeSet<String> =
        urls.filter(|url| url.address().is_none()).map(|url| url.host().to_owned()).collect();
    (!names.is_empty()).then_some(Question::Names(names))
}

/// The references of the uplink, where the policy names some.
pub(super) fn wan(policy: &ChainPolicy, state: &ChainState) -> Option<Question> {
    let wan = policy.wan.as_ref()?;
    let addresses = |url: &Target| -> Vec<IpAddr> {
        match url.address() {
            Some(address) => vec![address],
            None => state.addresses.get(url.host()).cloned().unwrap_or_default(),
        }
    };
    let page = |url: &Target| Page { url: url.clone(), addresses: addresses(url) };
    Some(Question::Pages(Pages {
        asker: Asker::Wan,
        turn: 0,
        way: Way::Main,
        pages: wan.urls.iter().map(page).collect(),
        require: AnyOrAll::from(wan.require),
        expect: Expect::AnyAnswer,
        timeout_ms: wan.timeout_ms(),
    }))
}

/// The `turn`-th reading of pages.
pub(super) fn read(seen: &Observation, asker: &Asker, turn: u32) -> Option<(Pages, PagesReading)> {
    let mut readings = seen.pages(asker).into_iter();
    let (pages, reading) = readings.find(|(pages, _)| pages.turn == turn)?;
    Some((pages.clone(), reading.clone()))
}
