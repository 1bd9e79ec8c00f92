//! A scenario as it is played: what happened when, what each step did about it, and who leaves where.
//!
//! **Invariant:** a step's line is the line that `step` prints for it.

use super::packet::{Exit, Layers, new_flow};
use super::play::complete;
use super::report::told;
use super::scenario::{Event, Provider, Scenario, UpOrDown};
use super::{Lab, Trouble};
use crate::machine::{Machine as _, Pausing};
use crate::names::{Interface, PolicyName};
use crate::outcome::{Ending, Report};
use crate::policy::{ClientKey, Kind, PoolPolicy};
use crate::pool::Pool;
use crate::pool::state::Egress;
use crate::time::Moment;
use ipnet::IpNet;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Where an interval of 0 is a measure of time, it counts as this.
const ZERO_INTERVAL_SEC: u64 = 10;

/// One moment of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Seconds since the beginning.
    pub at_sec: u64,
    /// What happened to the world since the entry before.
    pub events: Vec<String>,
    /// What the step did; `null`: there was none at this moment.
    pub step: Option<Report>,
    /// Slots that serve, with their endpoints.
    pub serving: BTreeMap<Interface, String>,
    /// Where what a client opens now goes.
    pub clients: BTreeMap<ClientKey, Way>,
}

/// Where what a client opens goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// By a slot.
    Slot(Interface),
    /// By the WAN, because the machine put it there.
    Direct,
    /// Nowhere.
    Closed,
    /// As it went before there was a policy.
    Main,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(slot) => write!(f, "{slot}"),
            Self::Direct => f.write_str("direct"),
            Self::Closed => f.write_str("none"),
            Self::Main => f.write_str("main"),
        }
    }
}

impl Serialize for Way {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A scenario being played.
pub struct Timeline {
    lab: Lab,
    provider: Provider,
    events: std::vec::IntoIter<Event>,
    next_event: Option<Event>,
    paused: bool,
    interval: u64,
    begun: Moment,
    until: u64,
    due: u64,
}

impl Scenario {
    /// Begins to play, with the scenario's own policy or the one that was read from its file.
    #[must_use]
    pub fn play(&self, name: PolicyName, policy: PoolPolicy) -> Timeline {
        let interval = match policy.params.health_check_interval_sec {
            0 => ZERO_INTERVAL_SEC,
            seconds => seconds,
        };
        let (lab, provider) = self.begin(name, policy);
        let mut events = self.events.clone().into_iter();
        let next_event = events.next();
        let (paused, due, begun) = (false, 0, lab.now.clone());
        Timeline {
            lab,
            provider,
            events,
            next_event,
            paused,
            interval,
            begun,
            until: self.until_sec,
            due,
        }
    }
}

impl Iterator for Timeline {
    type Item = Entry;

    /// The next moment at which something happens, which is an event, a step, or both.
    fn next(&mut self) -> Option<Entry> {
        let event_at = self.next_event.as_ref().map(|event| event.at_sec.max(self.elapsed()));
        let due = self.due.max(self.elapsed());
        let at = event_at.map_or(due, |at| at.min(due));
        if at > self.until {
            return None;
        }
        // A step takes a few milliseconds, which is taken off the wait for the next moment, so that
        // moments stay round.
        let wait = self.begun.after(Duration::from_secs(at)).at.duration_since(self.lab.now.at);
        self.lab.now = self.lab.now.after(Duration::try_from(wait).unwrap_or_default());
        let mut events = Vec::new();
        let mut stepped = None;
        while stepped.is_none()
            && let Some(event) = self.next_event.take_if(|event| event.at_sec <= at)
        {
            self.next_event = self.events.next();
            stepped = self.happens(&event, &mut events);
        }
        if stepped.is_none() && self.due <= at {
            stepped = Some(self.step());
        }
        Some(Entry {
            at_sec: at,
            events,
            step: stepped,
            serving: self.serving(),
            clients: self.clients(),
        })
    }
}

impl Timeline {
    /// The world as it now is.
    #[must_use]
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Whole seconds since the beginning.
    fn elapsed(&self) -> u64 {
        let elapsed = self.lab.now.at.duration_since(self.begun.at).as_secs();
        u64::try_from(elapsed).unwrap_or(0)
    }

    /// Lets an event happen. A person's `switch` is a step of its own.
    fn happens(&mut self, event: &Event, told: &mut Vec<String>) -> Option<Report> {
        told.extend(event.say.clone());
        let silent = event.say.is_none();
        let mut tell = |what: String| {
            if silent {
                told.push(what);
            }
        };
        for (name, endpoint) in &event.endpoints {
            tell(format!("{name} is {}", word(endpoint)));
            self.lab.endpoints.insert(name.clone(), *endpoint);
        }
        if let Some(provider) = &event.provider {
            self.provider.change(provider);
            tell(format!("the provider is {}", word(&self.provider.state.unwrap_or_default())));
        }
        self.lab.source = self.provider.source(&self.lab);
        if let Some(wan) = event.wan {
            tell(format!("the WAN is {}", word(&wan)));
            self.lab.uplink = wan.uplink();
        }
        if let Some(resolver) = event.resolver {
            tell(format!("the resolver is {}", word(&resolver)));
            self.lab.resolver = resolver == UpOrDown::Up;
        }
        if let Some(endpoint) = event.standby {
            tell(format!("the standby is {}", word(&endpoint)));
            self.lab.set_standby(endpoint);
        }
        if event.reboot {
            tell("the machine reboots".to_owned());
            self.lab.reboot();
        }
        if event.refresh {
            tell("a person asks for a refresh".to_owned());
            let now = self.lab.now.clone();
            self.lab.state = self.lab.state.as_ref().and_then(|state| Pool::refresh(state, &now));
        }
        let target = event.switch.as_ref()?;
        tell(format!("a person switches to {target}"));
        match Pool::switch(&self.lab.subject(), target, true) {
            Ok((state, pausing)) => {
                self.lab.state = Some(state);
                let paused = std::mem::take(&mut self.paused);
                let report = self.step();
                self.paused = match pausing {
                    Pausing::Pause => true,
                    Pausing::Lift => false,
                    Pausing::Keep => paused,
                };
                Some(report)
            }
            Err(why) => {
                told.push(format!("refused: {why}"));
                None
            }
        }
    }

    /// One step, and what is printed of it.
    fn step(&mut self) -> Report {
        let began = self.lab.now.clone();
        self.due = self.elapsed().saturating_add(self.interval);
        let report = Report::new(&self.lab.name, Kind::Pool.as_str(), &began);
        let from = self.lab.state.as_ref().map(|state| state.mode.as_str().to_owned());
        let report = if self.paused {
            Report { from: from.clone(), to: from, ..report }
                .because("paused", "paused by a person")
        } else {
            let loaded = self.lab.loaded.clone();
            match self.lab.play() {
                Ok(played) => {
                    let standing = played.decision.standing.clone();
                    let standing = standing.map(|world| complete(loaded.as_ref(), world));
                    told(&self.lab, &played, standing.as_ref(), report)
                }
                Err(trouble) => {
                    let code = match &trouble {
                        Trouble::Unable(why) => why.first().map_or("unfit", |why| &why.code),
                        Trouble::Contradiction(_) => "contradiction",
                    };
                    let code = code.to_owned();
                    Report { outcome: Ending::Failed, from: from.clone(), to: from, ..report }
                        .because(&code, trouble.to_string())
                }
            }
        };
        let took = self.lab.now.since(&began);
        Report { duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX), ..report }
    }

    fn serving(&self) -> BTreeMap<Interface, String> {
        let Some(state) = &self.lab.state else { return BTreeMap::new() };
        let serves = state.slots.iter().filter(|(interface, _)| state.serves(interface));
        serves
            .filter_map(|(interface, slot)| {
                Some((interface.clone(), slot.candidate()?.name.clone()))
            })
            .collect()
    }

    /// Where each client's next flow goes, by what stands in the kernel.
    fn clients(&self) -> BTreeMap<ClientKey, Way> {
        let ours = self.lab.kernel.nft.is_some() || !self.lab.kernel.rules.is_empty();
        let wan = self.lab.wan();
        let egress = |key: &ClientKey| self.lab.state.as_ref().and_then(|s| s.egress.get(key));
        let way = |key: &ClientKey| match key {
            _ if !ours => Way::Main,
            ClientKey::Prefix(IpNet::V4(net)) => {
                match new_flow(&self.lab.kernel, *net, &wan, Layers::Both) {
                    Exit::Tunnel(slot) => Way::Slot(slot),
                    Exit::Wan => Way::Direct,
                    Exit::Refused => Way::Closed,
                }
            }
            ClientKey::Prefix(IpNet::V6(_)) | ClientKey::Bucket(..) | ClientKey::User(_) => {
                match egress(key) {
                    Some(Egress::Slot(slot)) if self.lab.kernel.tunnels.contains_key(slot) => {
                        Way::Slot(slot.clone())
                    }
                    Some(Egress::Direct) => Way::Direct,
                    Some(Egress::Slot(_) | Egress::None) | None => Way::Closed,
                }
            }
        };
        self.lab
            .policy
            .client_keys()
            .into_iter()
            .map(|key| {
                let way = way(&key);
                (key, way)
            })
            .collect()
    }
}

/// A value's word in a scenario.
fn word<T: fmt::Debug>(value: &T) -> String {
    let mut out = String::new();
    for c in format!("{value:?}").chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push(' ');
        }
        out.extend(c.to_lowercase());
    }
    out
}
