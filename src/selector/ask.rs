//! What a selector wants to know.
//!
//! **Invariant:** a channel is asked about through its own way out and no other; what is asked of
//! the core is asked before and after our own requests, so that they are told from a client's.

use super::state::SelectorState;
use crate::observation::{
    AnyOrAll, Asker, CarriedQuestion, CoreQuestion, Expect, Observation, Page, Pages, PagesReading,
    Question, Way,
};
use crate::policy::SelectorPolicy;
use crate::policy::selector::{Channel, ClashDriver, Driver, RouteDriver};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// How far apart the two samples right before a switch are.
const SAMPLE_MS: u64 = 2_000;

/// When in a run the core is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// Before anything is asked.
    First,
    /// After the channels were asked.
    After,
    /// Once more, with the core's own configuration.
    Config,
    /// Right before a switch.
    SampleFrom,
    /// Two seconds later.
    SampleTo,
}

impl Look {
    pub(super) fn turn(self) -> u32 {
        match self {
            Self::First => 0,
            Self::After => 1,
            Self::Config => 2,
            Self::SampleFrom => 3,
            Self::SampleTo => 4,
        }
    }
}

/// A look at the core.
pub(super) fn core(driver: &ClashDriver, state: Option<&SelectorState>, look: Look) -> Question {
    let confirmed = state.and_then(|state| state.confirmed.as_ref());
    Question::Core(Box::new(CoreQuestion {
        turn: look.turn(),
        core: driver.core.clone(),
        groups: BTreeSet::from([driver.selector.clone()]),
        traffic: true,
        config: look == Look::Config,
        process: confirmed.and_then(|confirmed| confirmed.life.process.clone()),
    }))
}

/// The time between the two samples.
fn sample_wait() -> Question {
    Question::Wait { turn: 0, millis: SAMPLE_MS }
}

/// What is still to be asked for the two samples right before a switch; `look` asks for what was not
/// looked at yet.
pub(super) fn next_sample(
    seen: &Observation,
    look: impl Fn(Look) -> Option<Question>,
) -> Option<Vec<Question>> {
    if let Some(question) = look(Look::SampleFrom) {
        return Some(vec![question]);
    }
    if !seen.readings.contains_key(&sample_wait()) {
        return Some(vec![sample_wait()]);
    }
    look(Look::SampleTo).map(|question| vec![question])
}

/// A look at what both uplinks have received.
pub(super) fn carried(driver: &RouteDriver, look: Look) -> Question {
    let devices = Channel::ALL.map(|channel| driver.uplink(channel).interface.clone());
    Question::Carried(CarriedQuestion { turn: look.turn(), devices: devices.into() })
}

/// The hosts of pages that are not asked through a proxy, which resolves them itself.
pub(super) fn names(policy: &SelectorPolicy) -> Option<Question> {
    let wan = policy.wan.iter().flat_map(|wan| &wan.urls);
    let probe = match policy.driver {
        Driver::Clash(_) => None,
        Driver::Route(_) => Some(&policy.probe.urls),
    };
    let names: BTreeSet<String> = wan
        .chain(probe.into_iter().flatten())
        .filter(|url| url.address().is_none())
        .map(|url| url.host().to_owned())
        .collect();
    (!names.is_empty()).then_some(Question::Names(names))
}

/// Who asks for a channel.
pub(super) fn asker(channel: Channel) -> Asker {
    Asker::Named(channel.as_str().to_owned())
}

/// The pages of a channel, for the `turn`-th time in this run.
pub(super) fn channel(
    policy: &SelectorPolicy,
    state: &SelectorState,
    channel: Channel,
    turn: u32,
) -> Question {
    let way = match &policy.driver {
        Driver::Clash(driver) => Way::Proxy(driver.member(channel).proxy),
        // The mark leads the request to the channel's own table, whatever is chosen.
        Driver::Route(driver) => Way::Device {
            device: driver.uplink(channel).interface.clone(),
            mark: Some(driver.mark(channel)),
        },
    };
    Question::Pages(Pages {
        asker: asker(channel),
        turn,
        way,
        pages: pages(state, &policy.probe.urls),
        require: policy.probe.require.into(),
        expect: Expect::Status(policy.probe.expect_status.clone()),
        timeout_ms: policy.probe.timeout_sec.saturating_mul(1_000),
        patience: None,
    })
}

/// The references of the uplink, where the policy names some.
pub(super) fn wan(policy: &SelectorPolicy, state: &SelectorState, turn: u32) -> Option<Question> {
    let wan = policy.wan.as_ref()?;
    Some(Question::Pages(Pages {
        asker: Asker::Wan,
        turn,
        way: Way::Main,
        pages: pages(state, &wan.urls),
        require: AnyOrAll::from(wan.require),
        expect: Expect::AnyAnswer,
        timeout_ms: wan.timeout_ms(),
        patience: None,
    }))
}

fn pages(state: &SelectorState, urls: &[crate::url::Target]) -> Vec<Page> {
    let addresses = |url: &crate::url::Target| -> Vec<IpAddr> {
        match url.address() {
            Some(address) => vec![address],
            None => state.addresses.get(url.host()).cloned().unwrap_or_default(),
        }
    };
    urls.iter().map(|url| Page { url: url.clone(), addresses: addresses(url) }).collect()
}

/// The `turn`-th reading of a channel's pages.
pub(super) fn read(seen: &Observation, asker: &Asker, turn: u32) -> Option<(Pages, PagesReading)> {
    let readings = seen.pages(asker).into_iter();
    let (pages, reading) = readings.into_iter().find(|(pages, _)| pages.turn == turn)?;
    Some((pages.clone(), reading.clone()))
}
