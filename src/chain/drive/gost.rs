//! Hops of a gost: the node that a hop tries first is the one that carries.
//!
//! gost dials directly where a chain is missing, or a hop selects nobody. So each service that goes out
//! by the chain has to be pinned to a device or a mark, and nothing is written that would empty a hop.
//!
//! **Invariant:** a gost whose services are not pinned is not touched.

use super::{Drive, Trouble};
use crate::chain::under_way::Retries;
use crate::observation::{
    ConfigReading, CoreConfig, CoreFault, CoreSeen, GostHop, GostSeen, GostService, Observation,
    Program,
};
use crate::outcome::harmless;
use crate::policy::ChainPolicy;
use crate::policy::chain::{Driver, GostDriver, Pin};
use crate::setting::{Edit, Setting, Value};
use std::collections::BTreeMap;

/// The strategies by which the first node is the one that carries.
const IN_ORDER: [&str; 2] = ["fifo", "ha"];

/// The gost, as it was seen. `None`: nothing was asked yet.
pub(super) fn drive(
    policy: &ChainPolicy,
    driver: &GostDriver,
    seen: &Observation,
) -> Result<Option<Drive>, Trouble> {
    let Some(reading) = seen.gost() else { return Ok(None) };
    let gost = match &reading.gost {
        Ok(gost) => gost,
        Err(CoreFault::Down(why)) => return Err(Trouble::Down(why.clone())),
        Err(CoreFault::Refused(why) | CoreFault::Strange(why)) => {
            return Err(Trouble::Unusable(why.clone()));
        }
    };
    let unusable = |why: String| Trouble::Unusable(format!("{}: {}", driver.gost, harmless(&why)));
    sound_chain(policy, driver, gost).map_err(unusable)?;
    let hops = policy.hops.iter().map(|hop| sound_hop(gost, &hop.group));
    let hops: Vec<&GostHop> = hops.collect::<Result<_, _>>().map_err(unusable)?;
    pinned(driver, &gost.services).map_err(unusable)?;
    let first = |hop: &&GostHop| hop.nodes.first().cloned().unwrap_or_default();
    let firsts = policy.hops.iter().filter_map(|hop| {
        let node = hop.nodes.first()?;
        Some((hop.group.clone(), node.member.clone()))
    });
    Ok(Some(Drive {
        // A gost that began anew has the order of its file, which is taken for the policy's.
        seen: CoreSeen {
            program: Program::Other,
            version: String::new(),
            life: gost.life.clone(),
            groups: BTreeMap::new(),
            traffic: None,
            config: ConfigReading::Read(CoreConfig {
                keeps_choices: false,
                defaults: firsts.collect(),
                ..CoreConfig::default()
            }),
        },
        seats: hops.iter().map(first).collect(),
        all: hops.iter().map(|hop| hop.nodes.clone()).collect(),
        has_config: true,
        retries: retries(policy, &gost.services),
        facts: None,
    }))
}

/// The chain refers to just the policy's hops, each an object of its own that can be changed alone.
fn sound_chain(policy: &ChainPolicy, driver: &GostDriver, gost: &GostSeen) -> Result<(), String> {
    let name = &driver.chain;
    let Some(chain) = &gost.chain else {
        return Err(format!(
            "there is no chain {name}, so that its services dial directly: make it"
        ));
    };
    if let Some(inline) = chain.iter().find(|hop| !hop.nodes.is_empty()) {
        return Err(format!(
            "hop {} is written inside chain {name}, where it cannot be changed without a direct dial: make it a hop of its own",
            inline.name
        ));
    }
    let theirs: Vec<&str> = chain.iter().map(|hop| hop.name.as_str()).collect();
    let ours: Vec<&str> = policy.hops.iter().map(|hop| hop.group.as_str()).collect();
    if theirs != ours {
        return Err(format!(
            "chain {name} has the hops {theirs:?}, and the policy {ours:?}: write the same in the same order"
        ));
    }
    Ok(())
}

fn sound_hop<'a>(gost: &'a GostSeen, name: &str) -> Result<&'a GostHop, String> {
    let Some(Some(hop)) = gost.hops.get(name) else {
        return Err(format!("there is no hop {name}, so that its chain dials directly: make it"));
    };
    if hop.nodes.is_empty() {
        return Err(format!(
            "hop {name} has no nodes, so that its chain dials directly: name some"
        ));
    }
    if !IN_ORDER.contains(&hop.strategy.as_str()) {
        return Err(format!(
            "hop {name} chooses by {:?}: set selector.strategy to fifo, or no order of its nodes has any effect",
            hop.strategy
        ));
    }
    Ok(hop)
}

/// What dials directly after all must not leave by main.
fn pinned(driver: &GostDriver, services: &[GostService]) -> Result<(), String> {
    if services.is_empty() {
        return Err(format!("no service goes out by chain {}: name it in one", driver.chain));
    }
    let is_pinned = |service: &&GostService| match &driver.pin {
        Pin::Interface(device) => service.interface.as_deref() == Some(device),
        Pin::Mark(mark) => service.mark == Some(u64::from(*mark)),
    };
    match services.iter().find(|service| !is_pinned(service)) {
        None => Ok(()),
        Some(service) => Err(format!(
            "service {} is not pinned, so that a direct dial of it would leave by main: set metadata.{} of it",
            service.name,
            match &driver.pin {
                Pin::Interface(device) => format!("interface to {device}"),
                Pin::Mark(mark) => format!("so_mark to {mark}"),
            }
        )),
    }
}

/// Each hop may have all but one of its nodes dead, and a request then takes as many tries more.
fn retries(policy: &ChainPolicy, services: &[GostService]) -> Vec<Retries> {
    let others: usize = policy.hops.iter().map(|hop| hop.nodes.len().saturating_sub(1)).sum();
    let wanted = u64::try_from(others).unwrap_or(u64::MAX);
    let wrong = services.iter().filter(|service| service.retries != wanted);
    wrong
        .map(|service| Retries { service: service.name.clone(), from: service.retries, to: wanted })
        .collect()
}

/// What lets services try again as often as they should.
pub(in crate::chain) fn retry_edits(
    policy: &ChainPolicy,
    retries: &[Retries],
) -> BTreeMap<Setting, Edit> {
    let gost = match &policy.driver {
        Driver::Clash(_) | Driver::Wireguard(_) => return BTreeMap::new(),
        Driver::Gost(driver) => &driver.gost,
    };
    let edit = |retries: &Retries| {
        let setting = Setting::Retries { gost: gost.clone(), service: retries.service.clone() };
        let (expected, to) = (Value::Count(retries.from), Value::Count(retries.to));
        (setting, Edit { expected, to })
    };
    retries.iter().map(edit).collect()
}
