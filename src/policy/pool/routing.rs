//! What the kernel is to do with clients' packets, and the numbers of ours that it knows them by.
//!
//! **Invariant:** what another number is counted from is the operator's, and what is counted is written
//! here, so that no two of our rules or marks are ever the same.

use crate::names::Mark;
use ipnet::Ipv4Net;
use serde::Deserialize;

/// What happens to IPv6 of the LAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ipv6 {
    /// Rejected, from LAN interfaces to anything but LAN.
    Block,
    /// Clients have it as they have IPv4, by slots that carry it; all else of the LAN is rejected.
    Tunnel,
    /// Not looked at.
    Off,
}

/// What happens to flows that the WAN opens towards a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Inbound {
    /// Their replies leave by the WAN.
    Keep,
    /// They are not treated apart, so their replies are closed in.
    Block,
}

/// Which open flows are ended by a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cut {
    /// Those on a slot that stopped serving.
    Dead,
    /// None.
    None,
}

/// The kernel layout.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Routing {
    /// Our rules have priorities from here to `+ 4095`.
    pub rule_priority: u32,
    /// The protocol number on all our rules and routes.
    pub protocol: u8,
    /// The first firewall mark; its upper 16 bits are ours.
    pub first_mark: Mark,
    /// Prefixes that are reached by table main; none given: the LAN's connected prefixes.
    pub local: Option<Vec<Ipv4Net>>,
    /// What happens to IPv6 of the LAN.
    pub ipv6: Ipv6,
    /// Whether clients leave a slot with its address.
    pub masquerade: bool,
    /// Whether the clients are closed at boot until the first step.
    pub barrier: bool,
    /// What happens to flows that the WAN opens.
    pub inbound: Inbound,
    /// Which open flows are ended by a move.
    pub cut: Cut,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            rule_priority: 20_000,
            protocol: 201,
            first_mark: Mark(0x4547_0000),
            local: None,
            ipv6: Ipv6::Block,
            masquerade: true,
            barrier: true,
            inbound: Inbound::Keep,
            cut: Cut::Dead,
        }
    }
}

/// How many rule priorities belong to a policy.
pub const PRIORITIES: u32 = 4_096;
/// `rule_priority +` this is the first slot's rule.
pub const SLOT_RULES: u32 = 1_024;
/// `first_mark +` this marks flows on Direct.
pub const DIRECT_MARK: u32 = 0x1000;
/// `first_mark +` this marks flows that the WAN opened.
pub const INBOUND_MARK: u32 = 0x1001;
/// The bits of a mark that say that it is ours.
pub const MARK_BASE: u32 = 0xffff_0000;
/// `first_mark +` this marks the gateway's own requests through test interfaces, so that they are
/// told from late packets of the kernel's own.
pub const TEST_MARK: u32 = 0x1002;
/// `first_mark +` this marks the gateway's own requests through the standby tunnel.
pub const STANDBY_MARK: u32 = 0x1003;
/// `rule_priority +` this is the rule of that mark: after the slots' and before Direct's.
pub const STANDBY_RULE: u32 = 2_045;
/// `rule_priority +` this is the rule of the standby's own address: after the users' and before
/// those of the slots' addresses.
pub const STANDBY_SOURCE_RULE: u32 = 2_559;
/// `rule_priority +` this is the first rule of a tunnel's own address.
pub const SOURCE_RULES: u32 = 2_560;
/// `rule_priority +` this is the first user's rule.
pub const USER_RULES: u32 = 2_048;
/// `rule_priority +` this is the first rule that closes what else a LAN sends over IPv6, where clients
/// have it by slots: after all marks and users.
pub const LAN6_CLOSING_RULES: u32 = 2_304;
/// `rule_priority +` this is the first closing rule of a client prefix.
pub const CLOSING_RULES: u32 = 3_072;
/// `rule_priority +` this is the first closing rule of a user; the last of our range.
pub const USER_CLOSING_RULES: u32 = 3_968;
