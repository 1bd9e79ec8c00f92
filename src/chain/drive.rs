//! What the hops are made of: what stands there, whose choice it is, and how it is changed.
//!
//! **Invariant:** what stands in a core is taken for ours only while it is what was last read back.

mod gost;

pub(super) use gost::retry_edits;

use super::Chain;
use super::ask::{self, Look};
use super::lanes;
use super::state::{ChainState, HopState};
use super::tunnels::Facts;
use super::under_way::{Retries, Seats};
use crate::clash::choice::{Choice, Confirmed, judge};
use crate::machine::Subject;
use crate::observation::{
    ConfigReading, CoreConfig, CoreFault, CoreReading, CoreSeen, Group, GroupFault, Life,
    Observation, Program, Question,
};
use crate::outcome::harmless;
use crate::policy::ChainPolicy;
use crate::policy::chain::{ClashDriver, Driver, Hop};
use crate::setting::{Edit, Setting, Value};
use std::collections::BTreeMap;

/// Why nothing can be done with what the hops are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It is down or restarting.
    Down(String),
    /// It answers, and not as the policy needs it.
    Unusable(String),
}

/// What the hops are made of, as it was last seen.
pub(super) struct Drive {
    seen: CoreSeen,
    /// What stands, by hop.
    pub(super) seats: Seats,
    /// What may stand, by hop.
    all: Vec<Vec<String>>,
    has_config: bool,
    /// Services of a gost that try again more or less often than they should.
    pub(super) retries: Vec<Retries>,
    /// The tunnels, where the hops are made of them.
    pub(super) facts: Option<Facts>,
}

/// Types of members that send what they are given out directly, or nowhere.
const NO_WAY_OUT: [&str; 9] =
    ["Direct", "Reject", "RejectDrop", "Block", "Compatible", "Pass", "PassRule", "Dns", "DNS"];

impl Drive {
    /// What is to be looked at first.
    pub(super) fn first(subject: &Subject<'_, Chain>) -> Vec<Question> {
        match &subject.policy.driver {
            Driver::Clash(driver) => {
                [Look::First, Look::Kinds].map(|look| ask::core(subject, driver, look)).into()
            }
            Driver::Gost(driver) => vec![ask::gost(subject, driver)],
            Driver::Wireguard(driver) => ask::first_of_tunnels(subject, driver),
        }
    }

    /// What tells whose choice it is, where that is not clear.
    pub(super) fn config(subject: &Subject<'_, Chain>) -> Vec<Question> {
        match &subject.policy.driver {
            Driver::Clash(driver) => vec![ask::core(subject, driver, Look::Config)],
            Driver::Gost(_) | Driver::Wireguard(_) => Vec::new(),
        }
    }

    /// What was seen. `None`: nothing was asked yet.
    pub(super) fn new(
        policy: &ChainPolicy,
        state: Option<&ChainState>,
        seen: &Observation,
    ) -> Result<Option<Self>, Trouble> {
        match &policy.driver {
            Driver::Clash(driver) => Self::clash(policy, driver, seen),
            Driver::Gost(driver) => gost::drive(policy, driver, seen),
            Driver::Wireguard(driver) => {
                let known = state.and_then(|state| state.tunnels.as_ref());
                let facts = Facts::new(driver, known, seen.kernel(), seen.tunnels());
                let facts = facts.map_err(Trouble::Unusable)?;
                Ok(facts.map(|facts| Self::tunnels(policy, state, facts)))
            }
        }
    }

    fn clash(
        policy: &ChainPolicy,
        driver: &ClashDriver,
        seen: &Observation,
    ) -> Result<Option<Self>, Trouble> {
        let looks: BTreeMap<u32, &CoreReading> =
            seen.cores().map(|(question, reading)| (question.turn, reading)).collect();
        let config = looks.get(&Look::Config.turn());
        let Some(last) = config.or_else(|| looks.get(&Look::First.turn())) else { return Ok(None) };
        let core = readable(last)?;
        if let Some(kinds) = looks.get(&Look::Kinds.turn()) {
            no_way_out(policy, readable(kinds)?)?;
        }
        let groups = policy.hops.iter().map(|hop| group(driver, core, &hop.group));
        let groups: Vec<&Group> = groups.collect::<Result<_, _>>()?;
        Ok(Some(Self {
            seen: core.clone(),
            seats: groups.iter().map(|group| group.now.clone()).collect(),
            all: groups.iter().map(|group| group.all.clone()).collect(),
            has_config: config.is_some(),
            retries: Vec::new(),
            facts: None,
        }))
    }

    /// Tunnels are ours: what stands is what was put there, and another one in its place is drift.
    fn tunnels(policy: &ChainPolicy, state: Option<&ChainState>, facts: Facts) -> Self {
        let members = |hop: &Hop| hop.nodes.iter().map(|node| node.member.clone()).collect();
        Self {
            seen: CoreSeen {
                program: Program::Other,
                version: String::new(),
                life: Life::default(),
                groups: BTreeMap::new(),
                traffic: None,
                config: ConfigReading::Read(CoreConfig::default()),
            },
            seats: lanes::seats(policy, state),
            all: policy.hops.iter().map(members).collect(),
            has_config: true,
            retries: Vec::new(),
            facts: Some(facts),
        }
    }

    /// Whether the core's own configuration was asked for.
    pub(super) fn has_config(&self) -> bool {
        self.has_config
    }

    /// The run of it in which this was seen.
    pub(super) fn life(&self) -> &Life {
        &self.seen.life
    }

    /// Whose choice stands in a hop.
    pub(super) fn choice(&self, hop: &HopState, seat: &str) -> Choice {
        judge(&hop.confirmed, &hop.group, seat, &self.seen)
    }

    /// Whether a member can stand in the hop in this place.
    pub(super) fn can_be(&self, hop: usize, member: &str) -> bool {
        self.all.get(hop).is_some_and(|all| all.iter().any(|known| known == member))
    }

    /// A member as read back in this run of the core.
    pub(super) fn confirmed(&self, member: &str) -> Confirmed {
        Confirmed { member: member.to_owned(), life: self.seen.life.clone() }
    }
}

fn readable(reading: &CoreReading) -> Result<&CoreSeen, Trouble> {
    match &reading.core {
        Ok(seen) => Ok(seen),
        Err(CoreFault::Down(why)) => Err(Trouble::Down(why.clone())),
        Err(CoreFault::Refused(why) | CoreFault::Strange(why)) => {
            Err(Trouble::Unusable(why.clone()))
        }
    }
}

/// A group in which a member is selected.
fn group<'a>(driver: &ClashDriver, core: &'a CoreSeen, name: &str) -> Result<&'a Group, Trouble> {
    let of = |why: &dyn std::fmt::Display| {
        Trouble::Unusable(format!("group {} of {}: {why}", harmless(name), driver.core))
    };
    let group = match core.groups.get(name) {
        Some(Ok(group)) => group,
        Some(Err(fault)) => return Err(of(fault)),
        None => return Err(of(&GroupFault::Missing)),
    };
    if group.kind != "Selector" {
        let kind = harmless(&group.kind);
        return Err(of(&format!("it is of type {kind} and chooses by itself: name a selector")));
    }
    if group.now.is_empty() {
        return Err(of(&"it does not tell what is selected"));
    }
    Ok(group)
}

/// A node that sends requests out directly would be the end of the chain.
fn no_way_out(policy: &ChainPolicy, core: &CoreSeen) -> Result<(), Trouble> {
    for node in policy.hops.iter().flat_map(|hop| &hop.nodes) {
        if let Some(Err(GroupFault::NoGroup { kind })) = core.groups.get(&node.member)
            && NO_WAY_OUT.contains(&kind.as_str())
        {
            let member = harmless(&node.member);
            return Err(Trouble::Unusable(format!(
                "node {} is {member} of type {}, which leads past the chain or nowhere: name a proxy",
                node.name,
                harmless(kind)
            )));
        }
    }
    Ok(())
}

/// What another program keeps of a hop.
pub(super) fn setting(policy: &ChainPolicy, group: &str) -> Option<Setting> {
    match &policy.driver {
        Driver::Clash(driver) => {
            Some(Setting::Selected { core: driver.core.clone(), group: group.to_owned() })
        }
        Driver::Gost(driver) => {
            Some(Setting::First { gost: driver.gost.clone(), hop: group.to_owned() })
        }
        // What stands in the kernel is of no other program.
        Driver::Wireguard(_) => None,
    }
}

/// What leads from what stands to what is wished.
pub(super) fn edits(policy: &ChainPolicy, stands: &Seats, to: &Seats) -> BTreeMap<Setting, Edit> {
    let edit = |(hop, (stands, to)): (&Hop, (&String, &String))| {
        let member = |name: &String| Value::Member(name.clone());
        let edit = Edit { expected: member(stands), to: member(to) };
        (stands != to).then(|| Some((setting(policy, &hop.group)?, edit)))?
    };
    policy.hops.iter().zip(stands.iter().zip(to)).filter_map(edit).collect()
}
