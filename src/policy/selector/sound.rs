//! What a policy of kind `selector` must not say.
//!
//! **Invariant:** whatever passes names two channels that can be told apart.

use super::{Channel, Driver, FLOW_MARKS, SelectorPolicy};
use crate::names::Table;
use crate::policy::fault::PolicyFault;
use crate::policy::pool::MAX_WAN_TIMEOUT_SEC;

/// The kernel's own rule that asks main has 32766 (`RT_TABLE_MAIN`, `net/ipv4/fib_rules.c`).
const LAST_PRIORITY: u32 = 32_765;

impl SelectorPolicy {
    /// Refuses what contradicts itself.
    pub(super) fn validate(&self) -> Result<(), PolicyFault> {
        let fault = |text: String| Err(PolicyFault::new(text));
        match &self.driver {
            Driver::Clash(clash) => {
                if clash.selector.is_empty() {
                    return fault("driver.clash.selector is empty: name the core's group".into());
                }
                if clash.primary.member == clash.reserve.member {
                    return fault(format!(
                        "primary and reserve are the same member {:?}: name two",
                        clash.primary.member
                    ));
                }
                if clash.primary.proxy == clash.reserve.proxy {
                    return fault(format!(
                        "primary and reserve have the same proxy {}: each needs one that leaves by it alone",
                        clash.primary.proxy
                    ));
                }
            }
            Driver::Route(route) => {
                if route.primary == route.reserve {
                    return fault(
                        "primary and reserve are the same interface and gateway: name two".into(),
                    );
                }
                if route.primary.interface == route.reserve.interface {
                    return fault(format!(
                        "primary and reserve both leave by {}: requests bound to a device could not tell them apart, so name two",
                        route.primary.interface
                    ));
                }
                let own = Channel::ALL.map(|channel| route.own_table(channel));
                let is_kernels = |table: &Table| matches!(table.0, 0 | 253..=255);
                if own.iter().any(is_kernels) || own.contains(&route.table) {
                    return fault(format!(
                        "driver.route.first_table is {}: it and the next one must be tables of their own, neither driver.route.table nor one that the kernel uses itself (0, 253 to 255)",
                        route.first_table
                    ));
                }
                if !(1..LAST_PRIORITY).contains(&route.rule_priority) {
                    return fault(format!(
                        "driver.route.rule_priority is {}: it and the next one must stand before the rule of main, so write a number from 1 to {}",
                        route.rule_priority,
                        LAST_PRIORITY - 1
                    ));
                }
                if route.first_mark.0 == 0 || route.first_mark.0.checked_add(FLOW_MARKS).is_none() {
                    return fault(format!(
                        "driver.route.first_mark is {}: it and the {} next ones must be marks, and 0 is none",
                        route.first_mark,
                        FLOW_MARKS - 1
                    ));
                }
                if route.table == Table::MAIN && self.wan.is_some() {
                    return fault(
                        "wan is asked by main's default route, which is what driver route moves: leave it out, since nothing moves anyway while neither channel answers".into(),
                    );
                }
                if matches!(route.protocol, 0..=4) {
                    return fault(format!(
                        "driver.route.protocol {} is used by the kernel and the administrator: write a number from 5 to 255",
                        route.protocol
                    ));
                }
            }
        }
        if self.probe.urls.is_empty() {
            return fault("probe.urls is empty: name at least one page".into());
        }
        if self.probe.expect_status.is_empty() {
            return fault("probe.expect_status is empty: name at least one status".into());
        }
        if self.wan.as_ref().is_some_and(|wan| wan.urls.is_empty()) {
            return fault("wan.urls is empty: name at least one page, or leave wan out".into());
        }
        if self.wan.as_ref().is_some_and(|wan| !wan.is_in_time()) {
            return fault(format!("wan.timeout_sec is not 1 to {MAX_WAN_TIMEOUT_SEC}"));
        }
        if self.probe.timeout_sec == 0 {
            return fault("probe.timeout_sec is 0: it must be at least 1".into());
        }
        if self.params.flap_limit == 0 {
            return fault("params.flap_limit is 0: it must be at least 1".into());
        }
        Ok(())
    }
}
