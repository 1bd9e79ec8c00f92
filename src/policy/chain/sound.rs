//! What a chain policy may not say, and what it had better not.
//!
//! **Invariant:** whatever passes here can be stepped without another look at it.

use super::{ChainPolicy, Driver, Hop, Strategy, wireguard};
use crate::policy::fault::PolicyFault;
use crate::policy::pool::MAX_WAN_TIMEOUT_SEC;
use crate::url::Target;
use std::collections::BTreeSet;

/// More hops than this carry nothing any more.
const MAX_HOPS: usize = 8;
/// A request and its repetition fit into half of the shortest budget.
const MAX_TIMEOUT_SEC: u64 = 20;
/// A step ends within the 90 s that the shipped unit gives it.
const BUDGET_SEC: std::ops::RangeInclusive<u64> = 10..=80;

fn validate_hop(hop: &Hop) -> Result<(), PolicyFault> {
    let fault = |text: String| Err(PolicyFault::new(text));
    let name = &hop.name;
    if hop.nodes.is_empty() {
        return fault(format!("hop {name} has no nodes: name at least one"));
    }
    match (hop.strategy, hop.rotate_sec) {
        (Strategy::Fifo | Strategy::LowestLatency, Some(_)) => {
            return fault(format!(
                "hop {name} has rotate_sec, which is for strategy round alone: leave it out"
            ));
        }
        (Strategy::Round, Some(0)) => {
            return fault(format!("rotate_sec of hop {name} is 0: it must be at least 1"));
        }
        (Strategy::Fifo | Strategy::LowestLatency, None) | (Strategy::Round, None | Some(_)) => {}
    }
    if hop.strategy == Strategy::LowestLatency && hop.nodes.iter().any(|node| !node.egress) {
        return fault(format!(
            "hop {name} is measured by latency and has a node with egress false, which cannot be: use fifo or round"
        ));
    }
    Ok(())
}

impl ChainPolicy {
    /// Refuses what contradicts itself.
    pub(super) fn validate(&self) -> Result<(), PolicyFault> {
        let fault = |text: String| Err(PolicyFault::new(text));
        if self.hops.is_empty() || self.hops.len() > MAX_HOPS {
            return fault(format!("hops names {}: name 1 to {MAX_HOPS}", self.hops.len()));
        }
        let (mut names, mut groups) = (BTreeSet::new(), BTreeSet::new());
        let mut members: BTreeSet<&str> = BTreeSet::new();
        for hop in &self.hops {
            let name = &hop.name;
            if !names.insert(name) {
                return fault(format!("hop {name} stands twice: name them apart"));
            }
            if hop.group.is_empty() || !groups.insert(&hop.group) {
                return fault(format!(
                    "hop {name} has group {:?}, which is empty or another hop's: give each its own",
                    hop.group
                ));
            }
            validate_hop(hop)?;
            self.validate_legs(hop)?;
            if let Driver::Wireguard(_) = &self.driver {
                wireguard::validate_hop(hop)?;
                continue;
            }
            for node in &hop.nodes {
                if node.config.is_some() {
                    return fault(format!(
                        "node {} of hop {name} has config, which is for driver wireguard: leave it out",
                        node.name
                    ));
                }
                if node.member.is_empty() || !members.insert(&node.member) {
                    return fault(format!(
                        "node {} of hop {name} has member {:?}, which is empty or another node's: a member goes out by one hop, so give each its own",
                        node.name, node.member
                    ));
                }
            }
        }
        if let Some(both) = groups.iter().find(|group| members.contains(group.as_str())) {
            return fault(format!("{both} is a group and a member of one: name them apart"));
        }
        let last = self.hops.last().into_iter().flat_map(|hop| &hop.nodes);
        if let Some(node) = last.into_iter().find(|node| !node.egress) {
            return fault(format!(
                "node {} of the last hop has egress false: requests leave by the last hop",
                node.name
            ));
        }
        self.validate_numbers()
    }

    /// What a driver without legs cannot do.
    fn validate_legs(&self, hop: &Hop) -> Result<(), PolicyFault> {
        if self.driver.has_legs() {
            return Ok(());
        }
        let name = &hop.name;
        if hop.strategy == Strategy::LowestLatency {
            return Err(PolicyFault::new(format!(
                "hop {name} has strategy lowest_latency, and a hop of gost cannot be measured alone: use fifo or round"
            )));
        }
        if hop.nodes.iter().any(|node| !node.egress) {
            return Err(PolicyFault::new(format!(
                "hop {name} has a node with egress false, and with gost the whole path alone is asked: leave it out"
            )));
        }
        Ok(())
    }

    fn validate_numbers(&self) -> Result<(), PolicyFault> {
        let fault = |text: String| Err(PolicyFault::new(text));
        if self.probe.urls.is_empty() {
            return fault("probe.urls is empty: name at least one page".into());
        }
        if self.probe.expect_status.is_empty() {
            return fault("probe.expect_status is empty: name at least one status".into());
        }
        if !(1..=MAX_TIMEOUT_SEC).contains(&self.probe.timeout_sec) {
            return fault(format!("probe.timeout_sec is not 1 to {MAX_TIMEOUT_SEC}"));
        }
        if self.wan.as_ref().is_some_and(|wan| wan.urls.is_empty()) {
            return fault(
                "wan.urls is empty: name at least one page, or write null for wan".into(),
            );
        }
        if self.wan.as_ref().is_some_and(|wan| !wan.is_in_time()) {
            return fault(format!("wan.timeout_sec is not 1 to {MAX_WAN_TIMEOUT_SEC}"));
        }
        let params = &self.params;
        for (key, value) in [
            ("max_fails", u64::from(params.max_fails)),
            ("fail_timeout_sec", params.fail_timeout_sec),
            ("rise", u64::from(params.rise)),
        ] {
            if value == 0 {
                return fault(format!("params.{key} is 0: it must be at least 1"));
            }
        }
        if params.fail_timeout_sec > params.fail_timeout_max_sec {
            return fault(
                "params.fail_timeout_sec is more than params.fail_timeout_max_sec".into(),
            );
        }
        if !BUDGET_SEC.contains(&params.step_budget_sec) {
            return fault("params.step_budget_sec is not 10 to 80".into());
        }
        Ok(())
    }

    /// What it asks for and is not done quite so, a line each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let by_core = matches!(self.driver, Driver::Clash(_));
        if by_core && !self.probe.urls.iter().any(Target::is_https) {
            notes.push("probe.urls has no page over https: sing-box measures members by https://www.gstatic.com/generate_204 in its place".to_owned());
        }
        if let Driver::Gost(driver) = &self.driver {
            let url = &driver.gost.url;
            let is_here = url.address().is_none_or(|at| at.is_loopback());
            if !is_here && !url.is_https() {
                notes.push("driver.gost.url leaves this machine in clear: the password can be read on the way".to_owned());
            }
        }
        for hop in self.hops.iter().filter(|hop| hop.nodes.len() == 1) {
            notes.push(format!("hop {} has one node: nothing stands in for it", hop.name));
        }
        notes
    }
}
