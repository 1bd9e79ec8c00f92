//! What a guard wants to know.
//!
//! **Invariant:** requests go through the core's proxy as a client's do; the reference alone goes
//! past it; the core measures only when a recovery or a give-back needs it.

use super::place::Case;
use super::state::GuardState;
use crate::observation::{
    AnyOrAll, Asker, CoreQuestion, DelayQuestion, DelayReading, Expect, Observation, Page, Pages,
    PagesReading, Question, Way,
};
use crate::policy::GuardPolicy;
use crate::url::Target;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// How long references of the uplink may take, as in a pool.
const REFERENCE_TIMEOUT_MS: u64 = 3_000;

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

/// A look at the core's two groups.
pub(super) fn core(case: Case<'_>, look: Look) -> Question {
    let groups = BTreeSet::from([case.place.group.clone(), case.place.automatic.clone()]);
    of_core(case, look, groups)
}

/// A look at members, for their kinds.
pub(super) fn kinds(case: Case<'_>, members: BTreeSet<String>) -> Question {
    of_core(case, Look::Kinds, members)
}

fn of_core(case: Case<'_>, look: Look, groups: BTreeSet<String>) -> Question {
    Question::Core(Box::new(CoreQuestion {
        turn: look.turn(),
        core: case.place.core.clone(),
        groups,
        traffic: look != Look::Kinds,
        config: look == Look::Config,
        process: case.subject.state.and_then(|state| state.confirmed.life.process.clone()),
    }))
}

/// Who asks through the core's proxy.
pub(super) fn asker() -> Asker {
    Asker::Named("round".to_owned())
}

/// A round of real requests, for the `turn`-th time in this run.
pub(super) fn round(case: Case<'_>, turn: u32) -> Question {
    let policy = case.subject.policy;
    let page = |url: &Target| Page { url: url.clone(), addresses: Vec::new() };
    Question::Pages(Pages {
        asker: asker(),
        turn,
        way: Way::Proxy(case.place.proxy),
        pages: policy.probe.urls.iter().map(page).collect(),
        require: policy.probe.require.into(),
        expect: Expect::Status(policy.probe.expect_status.clone()),
        timeout_ms: policy.probe.timeout_sec.saturating_mul(1_000),
        patience: None,
    })
}

/// The hosts of the references.
pub(super) fn names(policy: &GuardPolicy) -> Option<Question> {
    let urls = policy.reference.iter().flat_map(|reference| &reference.urls);
    let names: BTreeSet<String> =
        urls.filter(|url| url.address().is_none()).map(|url| url.host().to_owned()).collect();
    (!names.is_empty()).then_some(Question::Names(names))
}

/// The references, past the proxy, for the `turn`-th time in this run.
pub(super) fn reference(policy: &GuardPolicy, state: &GuardState, turn: u32) -> Option<Question> {
    let reference = policy.reference.as_ref()?;
    let addresses = |url: &Target| -> Vec<IpAddr> {
        match url.address() {
            Some(address) => vec![address],
            None => state.addresses.get(url.host()).cloned().unwrap_or_default(),
        }
    };
    let page = |url: &Target| Page { url: url.clone(), addresses: addresses(url) };
    Some(Question::Pages(Pages {
        asker: Asker::Wan,
        turn,
        way: Way::Main,
        pages: reference.urls.iter().map(page).collect(),
        require: AnyOrAll::Any,
        expect: Expect::AnyAnswer,
        timeout_ms: REFERENCE_TIMEOUT_MS,
        patience: None,
    }))
}

/// A measure of members by one page, or of the automatic group by all of them.
pub(super) fn delays(case: Case<'_>, members: BTreeSet<String>, urls: Vec<Target>) -> Question {
    Question::Delays(Box::new(DelayQuestion {
        turn: 0,
        core: case.place.core.clone(),
        members,
        urls,
        timeout_ms: case.subject.policy.params.delay_timeout_ms,
    }))
}

/// The `turn`-th reading of pages.
pub(super) fn read(seen: &Observation, asker: &Asker, turn: u32) -> Option<(Pages, PagesReading)> {
    let mut readings = seen.pages(asker).into_iter();
    let (pages, reading) = readings.find(|(pages, _)| pages.turn == turn)?;
    Some((pages.clone(), reading.clone()))
}

/// The measure that holds these members.
pub(super) fn measured<'a>(
    seen: &'a Observation,
    members: &BTreeSet<String>,
) -> Option<&'a DelayReading> {
    seen.delays().find(|(asked, _)| asked.members == *members).map(|(_, reading)| reading)
}
