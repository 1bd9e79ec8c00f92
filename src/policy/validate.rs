//! What a policy of kind `pool` must not say: contradictions, and what the kernel has no room for.
//!
//! **Invariant:** whatever passes can be laid out in the kernel without two of our own objects
//! colliding.

use super::clients::{ClientEntry, ClientKey};
use super::fault::PolicyFault;
use super::pool::{
    CLOSING_RULES, DIRECT_MARK, Ipv6, MARK_BASE, MAX_CONFIRM, MAX_WAN_TIMEOUT_SEC, PRIORITIES,
    PoolPolicy, Tool, USER_CLOSING_RULES,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeSet;

/// Slots stand between the first slot rule and Direct's.
const MAX_SLOTS: usize = 512;

impl PoolPolicy {
    /// Refuses what contradicts itself.
    pub(crate) fn validate(&self) -> Result<(), PolicyFault> {
        self.validate_slots()?;
        self.validate_clients()?;
        let fault = |text: String| Err(PolicyFault::new(text));
        if self.probe.urls.is_empty() {
            return fault("probe.urls is empty: name at least one page".to_owned());
        }
        if self.probe.expect_status.is_empty() {
            return fault("probe.expect_status is empty: name at least one status".to_owned());
        }
        if self.wan.urls.is_empty() {
            return fault("wan.urls is empty: name at least one page".to_owned());
        }
        if !self.wan.is_in_time() {
            return fault(format!("wan.timeout_sec is not 1 to {MAX_WAN_TIMEOUT_SEC}"));
        }
        if self.probe.confirm > MAX_CONFIRM {
            return fault(format!("probe.confirm is not 0 to {MAX_CONFIRM}"));
        }
        if self.lan_interfaces.as_ref().is_some_and(Vec::is_empty) {
            return fault("lan_interfaces is empty: name one, or leave it out".to_owned());
        }
        self.provider.validate(match self.wireguard.tool {
            Tool::Awg => true,
            Tool::Wg => false,
        })?;
        if let Some(standby) = &self.bootstrap.wireguard
            && !standby.config.is_absolute()
        {
            return fault(format!(
                "bootstrap.wireguard.config \"{}\" is not absolute: a timer has no folder of its own",
                standby.config.display()
            ));
        }
        let order = &self.params.bootstrap_strategy_order;
        if order.iter().collect::<BTreeSet<_>>().len() < order.len() {
            return fault(
                "params.bootstrap_strategy_order names a way twice: name each once".to_owned(),
            );
        }
        let zero = [
            ("probe.timeout_sec", self.probe.timeout_sec),
            ("params.candidate_test_timeout_sec", self.params.candidate_test_timeout_sec),
            ("params.step_budget_sec", self.params.step_budget_sec),
            (
                "params.health_failures_before_down",
                u64::from(self.params.health_failures_before_down),
            ),
            ("test.parallel", u64::from(self.test.parallel)),
        ];
        if let Some((name, _)) = zero.iter().find(|(_, value)| *value == 0) {
            return fault(format!("{name} is 0: it must be at least 1"));
        }
        if !(0.0..=1.0).contains(&self.params.refresh_min_ratio) {
            return fault(format!(
                "params.refresh_min_ratio is {}: write a share from 0 to 1",
                self.params.refresh_min_ratio
            ));
        }
        if let Some(slot) = &self.params.bootstrap_slot
            && !self.slots.interfaces.contains(slot)
        {
            return fault(format!(
                "params.bootstrap_slot {slot} is none of slots.interfaces: name one of them, or leave it out"
            ));
        }
        let min = self.min_slots_to_exit_direct();
        if min == 0 || min > self.slots.interfaces.len() {
            return fault(format!(
                "params.min_healthy_slots_to_exit_direct is {min}: it must be from 1 to {}",
                self.slots.interfaces.len()
            ));
        }
        Ok(())
    }

    fn validate_slots(&self) -> Result<(), PolicyFault> {
        let fault = |text: String| Err(PolicyFault::new(text));
        let slots = &self.slots.interfaces;
        if slots.is_empty() || slots.len() > MAX_SLOTS {
            return fault(format!(
                "slots.interfaces names {} interfaces: name 1 to {MAX_SLOTS}",
                slots.len()
            ));
        }
        let tests = self.test.interfaces();
        if tests.len() != usize::from(self.test.parallel) {
            return fault(format!(
                "test.interface_prefix {:?} and a number up to {} is no interface name: write a prefix that leaves room for the number within 15 characters",
                self.test.interface_prefix, self.test.parallel
            ));
        }
        let mut seen = BTreeSet::new();
        let standby = self.standby();
        let edges = self.wan_interface.iter().chain(self.lan_interfaces.iter().flatten());
        for interface in slots.iter().chain(&tests).chain(standby) {
            if !seen.insert(interface) {
                return fault(format!(
                    "interface {interface} is used twice by this policy, by slots, tests or the standby: name another for one of them"
                ));
            }
            if edges.clone().any(|edge| edge == interface) {
                return fault(format!(
                    "interface {interface} is a tunnel and also LAN or WAN: name another for one of them"
                ));
            }
        }
        let last = u64::from(self.slots.first_table) + u64::from(self.tables());
        if self.slots.first_table == 0
            || last > u64::from(u32::MAX)
            || (253..=255).any(|t| (u64::from(self.slots.first_table)..last).contains(&t))
        {
            return fault(format!(
                "slots.first_table {} and {} slots{} reach a table that the kernel uses itself (0, 253 to 255): write another first table, such as 101",
                self.slots.first_table,
                slots.len(),
                if self.standby().is_some() { " and the standby" } else { "" }
            ));
        }
        if self.routing.first_mark.0 & MARK_BASE == 0
            || self.routing.first_mark.0 & MARK_BASE != self.standby_mark().0 & MARK_BASE
            || slots.len() > usize::try_from(DIRECT_MARK).unwrap_or(0)
        {
            return fault(format!(
                "routing.first_mark {}: this and the next 0x1003 marks must share their upper 16 bits, which are not 0: write one like 0x45470000",
                self.routing.first_mark
            ));
        }
        if self.routing.rule_priority == 0 || self.routing.rule_priority > 32_766 - PRIORITIES {
            return fault(format!(
                "routing.rule_priority {}: write 1 to {}, so that all our rules come before main's",
                self.routing.rule_priority,
                32_766 - PRIORITIES
            ));
        }
        if self.routing.protocol < 5 {
            return fault(format!(
                "routing.protocol {}: 0 to 4 belong to the kernel and to ip, write 5 to 255",
                self.routing.protocol
            ));
        }
        Ok(())
    }

    fn validate_clients(&self) -> Result<(), PolicyFault> {
        if self.clients.is_empty() {
            return Err(PolicyFault::new("clients is empty: name at least one"));
        }
        let mut users = BTreeSet::new();
        let mut nets: Vec<Ipv4Net> = Vec::new();
        let mut six: Vec<Ipv6Net> = Vec::new();
        for entry in &self.clients {
            match entry {
                ClientEntry::User(name) => {
                    if !users.insert(name) {
                        return Err(PolicyFault::new(format!(
                            "client user:{name} stands twice: remove one of them"
                        )));
                    }
                }
                ClientEntry::Prefix(IpNet::V6(net)) if self.routing.ipv6 == Ipv6::Tunnel => {
                    six.push(*net);
                }
                ClientEntry::Prefix(IpNet::V6(net)) => {
                    return Err(PolicyFault::new(format!(
                        "client {} is IPv6, which routing.ipv6 \"block\" and \"off\" do not carry: remove it, or write \"tunnel\"",
                        ClientKey::Prefix(IpNet::V6(*net))
                    )));
                }
                ClientEntry::Prefix(IpNet::V4(net)) | ClientEntry::Spread(net) => nets.push(*net),
            }
        }
        let rooms = [
            ("users", users.len(), PRIORITIES - USER_CLOSING_RULES),
            (
                "separate prefixes",
                Ipv4Net::aggregate(&nets).len(),
                USER_CLOSING_RULES - CLOSING_RULES,
            ),
            (
                "separate IPv6 prefixes",
                Ipv6Net::aggregate(&six).len(),
                USER_CLOSING_RULES - CLOSING_RULES,
            ),
        ];
        let mut nets: Vec<IpNet> =
            nets.into_iter().map(IpNet::V4).chain(six.into_iter().map(IpNet::V6)).collect();
        // Sorted by address and then by length, an overlap always shows between neighbours.
        nets.sort_unstable();
        for pair in nets.windows(2) {
            if let [a, b] = pair
                && (a.contains(b) || b.contains(a))
            {
                let (a, b) = (ClientKey::Prefix(*a), ClientKey::Prefix(*b));
                return Err(PolicyFault::new(format!(
                    "clients {a} and {b} overlap: an address must belong to one entry, so change one of them"
                )));
            }
        }
        for (what, are, room) in rooms {
            if are > usize::try_from(room).unwrap_or(usize::MAX) {
                return Err(PolicyFault::new(format!(
                    "clients make {are} {what}, and there is room for {room}: write larger prefixes"
                )));
            }
        }
        Ok(())
    }
}
