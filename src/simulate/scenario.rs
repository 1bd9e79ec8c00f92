//! A script for the small world: a policy, how the world is at first, and what happens to it when.
//!
//! **Invariant:** a scenario that was read is played to its end: whatever it names exists.

use super::{Endpoint, Lab, Source, Uplink};
use crate::names::PolicyName;
use crate::policy::{Kind, Policy, PolicyFault, PoolPolicy};
use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// How long a provider that refuses wishes to be left alone, when nothing is said.
const RETRY_AFTER_SEC: u64 = 600;
/// A year: longer is no story.
const LONGEST_SEC: u64 = 366 * 24 * 3_600;

/// A script.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    #[serde(rename = "$schema", default)]
    _schema: Option<String>,
    #[serde(rename = "description", default)]
    _description: Option<String>,
    /// The policy that is played.
    pub policy: PolicySource,
    /// How the world is at first.
    pub world: First,
    /// What happens to it, in any order.
    #[serde(default)]
    pub events: Vec<Event>,
    /// When it ends, in seconds since its beginning.
    pub until_sec: u64,
    /// How long a trial takes.
    #[serde(default)]
    pub trial_sec: u64,
}

/// Where the policy is.
#[derive(Clone, Debug)]
pub enum PolicySource {
    /// In the scenario.
    Inline(Box<PoolPolicy>),
    /// In a file of its own, relative to the scenario's.
    File(PathBuf),
}

/// How the world is at first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct First {
    /// Every endpoint that there is.
    pub endpoints: BTreeMap<String, Endpoint>,
    /// The provider.
    #[serde(default)]
    pub provider: Provider,
    /// The uplink.
    #[serde(default)]
    pub wan: Option<Wan>,
    /// What resolves host names.
    #[serde(default)]
    pub resolver: Option<UpOrDown>,
    /// How the endpoint behaves that the standby's file describes; never said: there is no file.
    #[serde(default)]
    pub standby: Option<Endpoint>,
}

/// The provider, or what becomes of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Provider {
    /// How it is reached.
    pub state: Option<Reach>,
    /// What it lists; never said: every endpoint.
    pub lists: Option<Vec<String>>,
    /// How long it wishes to be left alone while it refuses.
    pub retry_after_sec: Option<u64>,
}

/// How a provider is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// By the uplink and by tunnels.
    #[default]
    Direct,
    /// Through a tunnel alone.
    Tunnel,
    /// Not at all.
    Down,
    /// It answers, and refuses.
    Refusing,
}

/// How the uplink is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wan {
    /// It works.
    Up,
    /// It does not.
    Down,
    /// Its references do not answer; tunnels work.
    ReferencesDown,
    /// It works until the next change is being proven, and again in the step after it.
    FallsAtProof,
}

/// Whether something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpOrDown {
    /// It does.
    Up,
    /// It does not.
    Down,
}

/// What happens at one moment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// When, in seconds since the beginning.
    pub at_sec: u64,
    /// In words, for the timeline.
    #[serde(default)]
    pub say: Option<String>,
    /// How endpoints are from now on; a new name is a new endpoint.
    #[serde(default)]
    pub endpoints: BTreeMap<String, Endpoint>,
    /// What becomes of the provider; what is not said stays.
    #[serde(default)]
    pub provider: Option<Provider>,
    /// How the uplink is from now on.
    #[serde(default)]
    pub wan: Option<Wan>,
    /// What becomes of the resolver.
    #[serde(default)]
    pub resolver: Option<UpOrDown>,
    /// How the standby's endpoint is from now on.
    #[serde(default)]
    pub standby: Option<Endpoint>,
    /// The machine reboots.
    #[serde(default)]
    pub reboot: bool,
    /// A person asks for a full refresh.
    #[serde(default)]
    pub refresh: bool,
    /// A person's `switch` with this target, and with `--force`.
    #[serde(default)]
    pub switch: Option<String>,
}

impl<'de> Deserialize<'de> for PolicySource {
    /// By hand, because serde's untagged enums lose the position of an error.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Source;
        impl<'de> Visitor<'de> for Source {
            type Value = PolicySource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pool policy, or the path of one, relative to the scenario")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<PolicySource, E> {
                Ok(PolicySource::File(PathBuf::from(path)))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PolicySource, A::Error> {
                let policy = PoolPolicy::deserialize(MapAccessDeserializer::new(map))?;
                policy.validate().map_err(de::Error::custom)?;
                Ok(PolicySource::Inline(Box::new(policy)))
            }
        }
        deserializer.deserialize_any(Source)
    }
}

impl Scenario {
    /// Reads a scenario from the text of its file.
    ///
    /// # Errors
    /// What is wrong with it, with line and column where the text shows them.
    pub fn parse(text: &str) -> Result<Self, PolicyFault> {
        let mut scenario: Self =
            serde_json::from_str(text).map_err(|error| PolicyFault::from_json(&error))?;
        // A policy of another kind may have the same keys.
        let whole: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        if let Some(kind) = whole.pointer("/policy/kind").and_then(|kind| kind.as_str())
            && kind != Kind::Pool.as_str()
        {
            return Err(PolicyFault::unknown_kind(kind, text));
        }
        // A stable sort: events of one moment happen in the order in which they are written.
        scenario.events.sort_by_key(|event| event.at_sec);
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), PolicyFault> {
        let fault = |text: String| Err(PolicyFault::new(text));
        if self.until_sec > LONGEST_SEC {
            return fault(format!("until_sec is {}: write a year at most", self.until_sec));
        }
        if let Some(late) = self.events.iter().find(|event| event.at_sec > self.until_sec) {
            return fault(format!(
                "an event at {} s is after the end at {} s: raise until_sec",
                late.at_sec, self.until_sec
            ));
        }
        let mut known: Vec<&String> = self.world.endpoints.keys().collect();
        let mut providers = vec![&self.world.provider];
        for event in &self.events {
            known.extend(event.endpoints.keys());
            providers.extend(&event.provider);
        }
        if let Some(name) = known.iter().find(|name| !is_name(name)) {
            return fault(format!(
                "{name:?} cannot name an endpoint: 1 to 64 letters, digits, or one of _ - ."
            ));
        }
        let listed = providers.into_iter().flat_map(|provider| &provider.lists).flatten();
        for name in listed {
            if !known.contains(&name) {
                return fault(format!(
                    "the provider lists {name:?}, which is no endpoint: add it to endpoints"
                ));
            }
        }
        Ok(())
    }

    /// The world at its beginning.
    #[must_use]
    pub fn begin(&self, name: PolicyName, policy: PoolPolicy) -> (Lab, Provider) {
        let mut lab = Lab::new(name, policy, &[]);
        lab.trial_sec = self.trial_sec;
        lab.endpoints.clone_from(&self.world.endpoints);
        let provider = self.world.provider.clone();
        lab.source = provider.source(&lab);
        if let Some(endpoint) = self.world.standby {
            lab.set_standby(endpoint);
        }
        lab.uplink = self.world.wan.map_or(Uplink::Up, Wan::uplink);
        lab.resolver = self.world.resolver != Some(UpOrDown::Down);
        (lab, provider)
    }
}

/// Whether a name may be a file's stem in the pool.
fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

impl Wan {
    /// The same in the world's words.
    #[must_use]
    pub fn uplink(self) -> Uplink {
        match self {
            Self::Up => Uplink::Up,
            Self::Down => Uplink::Down,
            Self::ReferencesDown => Uplink::ReferencesDown,
            Self::FallsAtProof => Uplink::FallsAtProof,
        }
    }
}

impl Provider {
    /// What becomes of a provider by an event.
    pub fn change(&mut self, by: &Self) {
        self.state = by.state.or(self.state);
        self.retry_after_sec = by.retry_after_sec.or(self.retry_after_sec);
        if let Some(lists) = &by.lists {
            self.lists = Some(lists.clone());
        }
    }

    /// The same in the world's words.
    #[must_use]
    pub fn source(&self, lab: &Lab) -> Source {
        let lists = self.lists.clone().unwrap_or_else(|| {
            let standby = lab.standby.as_ref().ok();
            lab.endpoints.keys().filter(|name| Some(*name) != standby).cloned().collect()
        });
        match self.state.unwrap_or_default() {
            Reach::Direct => Source::Lists(lists),
            Reach::Tunnel => Source::ByTunnel(lists),
            Reach::Down => Source::Unavailable,
            Reach::Refusing => Source::Refuses(self.retry_after_sec.unwrap_or(RETRY_AFTER_SEC)),
        }
    }
}

impl PolicySource {
    /// Reads the policy of a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<PoolPolicy, PolicyFault> {
        let policy = Policy::parse(text)?;
        let kind = policy.kind();
        let Policy::Pool(policy) = policy else {
            return Err(PolicyFault::new(format!(
                "it is of kind {kind}: only a policy of kind pool is played"
            )));
        };
        Ok(*policy)
    }
}
