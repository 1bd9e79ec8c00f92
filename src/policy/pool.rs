//! The policy of kind `pool`: which slots, which clients, where tunnels come from, and every
//! threshold.
//!
//! **Invariant:** every default that is not the operator's is written here, once.

use super::clients::{ClientEntry, ClientKey};
pub use super::provider::{Directory, Provider, Wanted};
use crate::names::{Interface, Mark, Table};
use crate::url::Target;
use ipnet::{IpNet, Ipv4Net};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// A whole pool policy.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolPolicy {
    /// The tag, already read.
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "$schema", default)]
    _schema: Option<String>,
    #[serde(rename = "description", default)]
    _description: Option<String>,
    /// The tunnels' places.
    pub slots: Slots,
    /// Who is served.
    pub clients: Vec<ClientEntry>,
    /// Where clients are; none given: every interface that carries an address of their subnets.
    #[serde(default)]
    pub lan_interfaces: Option<Vec<Interface>>,
    /// The uplink; none given: the device of main's default route.
    #[serde(default)]
    pub wan_interface: Option<Interface>,
    /// Where candidates come from.
    pub provider: Provider,
    /// Which of them are wanted.
    #[serde(default)]
    pub candidates: Wanted,
    /// What shows that a tunnel works.
    #[serde(default)]
    pub probe: Probe,
    /// How the exit address of a slot is learned.
    #[serde(default)]
    pub exit_ip: Option<ExitIp>,
    /// What shows that the uplink works.
    #[serde(default)]
    pub wan: Wan,
    /// How candidates are tried out.
    #[serde(default)]
    pub test: Test,
    /// The kernel layout.
    #[serde(default)]
    pub routing: Routing,
    /// The WireGuard implementation.
    #[serde(default)]
    pub wireguard: WireGuard,
    /// How the pool gets out of Direct.
    #[serde(default)]
    pub bootstrap: Bootstrap,
    /// Every threshold.
    #[serde(default)]
    pub params: Params,
}

/// The tunnels' places: an interface and a routing table each.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slots {
    /// One interface a slot, in the order that ties are broken by.
    pub interfaces: Vec<Interface>,
    /// Slot `i`, from 0, has table `first_table + i`.
    #[serde(default = "first_table")]
    pub first_table: u32,
}

fn first_table() -> u32 {
    101
}

/// Whether one of several pages is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Require {
    /// One good answer is enough.
    Any,
    /// Every page must answer well.
    All,
}

/// What shows that a tunnel works: pages asked through it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Probe {
    /// The pages.
    pub urls: Vec<Target>,
    /// Whether one good answer is enough.
    pub require: Require,
    /// The only good status codes.
    pub expect_status: Vec<u16>,
    /// How long all of it may take.
    pub timeout_sec: u64,
    /// A page of more than one packet, which shows a path that eats large ones.
    pub large: Option<Large>,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            urls: targets(&[
                "https://www.gstatic.com/generate_204",
                "https://cp.cloudflare.com/generate_204",
            ]),
            require: Require::Any,
            expect_status: vec![204],
            timeout_sec: 5,
            large: None,
        }
    }
}

impl Probe {
    /// How long a probe may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_sec)
    }
}

/// A page of more than one packet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Large {
    /// The page.
    pub url: Target,
    /// At least so many bytes must arrive.
    pub bytes: usize,
}

/// How the exit address of a slot is learned.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExitIp {
    /// A page whose body is the caller's address.
    pub url: Target,
    /// How often.
    #[serde(default = "exit_interval")]
    pub interval_sec: u64,
    /// Whether a slot that leaves by the uplink's own address has failed.
    #[serde(default = "yes")]
    pub must_differ_from_wan: bool,
}

fn exit_interval() -> u64 {
    600
}

fn yes() -> bool {
    true
}

/// What shows that the uplink works: any answer of these pages does.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wan {
    /// The pages.
    pub urls: Vec<Target>,
    /// Whether one answer is enough.
    pub require: Require,
}

impl Default for Wan {
    fn default() -> Self {
        Self {
            urls: targets(&[
                "http://connectivitycheck.gstatic.com/generate_204",
                "http://1.1.1.1/",
            ]),
            require: Require::Any,
        }
    }
}

/// Targets that are known to be well formed.
fn targets(urls: &[&str]) -> Vec<Target> {
    urls.iter().filter_map(|url| Target::try_from((*url).to_owned()).ok()).collect()
}

/// How candidates are tried out before they enter the pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Test {
    /// Test interfaces are this and a number from 1.
    pub interface_prefix: String,
    /// How many candidates are tried side by side.
    pub parallel: u16,
    /// So many good ones end the testing of a list.
    pub enough: usize,
}

impl Default for Test {
    fn default() -> Self {
        Self { interface_prefix: "vpnt".to_owned(), parallel: 4, enough: 20 }
    }
}

impl Test {
    /// The test interfaces, in order.
    #[must_use]
    pub fn interfaces(&self) -> Vec<Interface> {
        (1..=self.parallel)
            .filter_map(|n| Interface::try_from(format!("{}{n}", self.interface_prefix)).ok())
            .collect()
    }
}

/// What happens to IPv6 of the LAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ipv6 {
    /// Rejected, from LAN interfaces to anything but LAN.
    Block,
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
/// `rule_priority +` this is the first closing rule of a client prefix.
pub const CLOSING_RULES: u32 = 3_072;
/// `rule_priority +` this is the first closing rule of a user; the last of our range.
pub const USER_CLOSING_RULES: u32 = 3_968;

/// The WireGuard implementation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WireGuard {
    /// The program that configures tunnels.
    pub tool: Tool,
    /// The userspace implementation; none given: the kernel's.
    pub userspace: Option<Userspace>,
}

impl Default for WireGuard {
    fn default() -> Self {
        Self { tool: Tool::Wg, userspace: None }
    }
}

/// The program that configures tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// WireGuard's own.
    Wg,
    /// AmneziaWG's.
    Awg,
}

impl Tool {
    /// The program's name.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Wg => "wg",
            Self::Awg => "awg",
        }
    }

    /// The kernel's link type.
    #[must_use]
    pub fn link_type(self) -> &'static str {
        match self {
            Self::Wg => "wireguard",
            Self::Awg => "amneziawg",
        }
    }
}

/// A userspace implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Userspace {
    /// The reference one, in Go.
    #[serde(rename = "wireguard-go")]
    WireguardGo,
    /// AmneziaWG's fork of it.
    #[serde(rename = "amneziawg-go")]
    AmneziawgGo,
}

impl Userspace {
    /// The program's name.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::WireguardGo => "wireguard-go",
            Self::AmneziawgGo => "amneziawg-go",
        }
    }
}

/// How the pool gets out of Direct.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bootstrap {
    /// The standby tunnel.
    pub wireguard: Option<Standby>,
}

/// The standby tunnel, by which the provider is asked when nothing else does it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standby {
    /// Its interface.
    pub interface: Interface,
    /// Its wg-quick file.
    pub config: PathBuf,
    /// Whether it stays up while it is not needed.
    #[serde(default)]
    pub keep: Keep,
}

/// Whether the standby tunnel stays up while it is not needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// It stays up.
    #[default]
    Standby,
    /// It is made when needed.
    Down,
}

/// A way in which the provider is asked from Direct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Candidates of the last pool, one after the other, in the lent slot.
    CachedPool,
    /// The standby tunnel.
    Wireguard,
    /// The uplink itself.
    Direct,
}

/// Every threshold, named after the plan it comes from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// A step is due so long after the start of the last; 0: always.
    pub health_check_interval_sec: u64,
    /// Failed checks in a row before a slot stops serving.
    pub health_failures_before_down: u32,
    /// Retests, one a step, that must all fail before the endpoint is quarantined.
    pub local_repair_retest_count: u32,
    /// Repairs that lead to a full refresh.
    pub full_refresh_after_repairs: u32,
    /// Between refresh attempts.
    pub hmn_refresh_retry_interval_sec: u64,
    /// Between bootstrap attempts.
    pub bootstrap_retry_interval_sec: u64,
    /// Tries of one cached candidate in one pass.
    pub bootstrap_candidate_retry_count: u32,
    /// The slot lent to the cached-pool strategy; none given: the first.
    pub bootstrap_slot: Option<Interface>,
    /// The order of the ways out of Direct.
    pub bootstrap_strategy_order: Vec<Strategy>,
    /// How long one test of a candidate may take.
    pub candidate_test_timeout_sec: u64,
    /// How often a test is tried again.
    pub candidate_test_retries: u32,
    /// So many verified slots end Direct; none given: all.
    pub min_healthy_slots_to_exit_direct: Option<usize>,
    /// With no slot serving but reserve left, repair goes on so long before Direct.
    pub direct_grace_sec: u64,
    /// Whether the last resort is Direct; otherwise None.
    pub direct_failopen_enabled: bool,
    /// Whether clients move to Direct without a person's consent.
    pub emergency_commit_enabled: bool,
    /// Whether verified endpoints of the last pool may end Direct.
    pub exit_direct_from_cache: bool,
    /// Fewer usable entries than this share of the last good list: refused.
    pub refresh_min_ratio: f64,
    /// False alarms of a slot in the window that count as failed retests.
    pub flap_limit: usize,
    /// The window of false alarms.
    pub flap_window_sec: u64,
    /// The whole run's deadline.
    pub step_budget_sec: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            health_check_interval_sec: 10,
            health_failures_before_down: 2,
            local_repair_retest_count: 2,
            full_refresh_after_repairs: 5,
            hmn_refresh_retry_interval_sec: 900,
            bootstrap_retry_interval_sec: 30,
            bootstrap_candidate_retry_count: 1,
            bootstrap_slot: None,
            bootstrap_strategy_order: vec![
                Strategy::CachedPool,
                Strategy::Wireguard,
                Strategy::Direct,
            ],
            candidate_test_timeout_sec: 8,
            candidate_test_retries: 1,
            min_healthy_slots_to_exit_direct: None,
            direct_grace_sec: 30,
            direct_failopen_enabled: true,
            emergency_commit_enabled: true,
            exit_direct_from_cache: false,
            refresh_min_ratio: 0.5,
            flap_limit: 3,
            flap_window_sec: 1_800,
            step_budget_sec: 60,
        }
    }
}

impl PoolPolicy {
    /// The place of a slot among the slots, from 0.
    #[must_use]
    pub fn index_of(&self, interface: &Interface) -> Option<u32> {
        self.slots
            .interfaces
            .iter()
            .position(|i| i == interface)
            .and_then(|i| u32::try_from(i).ok())
    }

    /// The routing table of slot `index`.
    #[must_use]
    pub fn table(&self, index: u32) -> Table {
        Table(self.slots.first_table.saturating_add(index))
    }

    /// The mark of slot `index`.
    #[must_use]
    pub fn mark(&self, index: u32) -> Mark {
        Mark(self.routing.first_mark.0.saturating_add(index))
    }

    /// The mark of flows on Direct.
    #[must_use]
    pub fn direct_mark(&self) -> Mark {
        Mark(self.routing.first_mark.0.saturating_add(DIRECT_MARK))
    }

    /// The mark of flows that the WAN opened.
    #[must_use]
    pub fn inbound_mark(&self) -> Mark {
        Mark(self.routing.first_mark.0.saturating_add(INBOUND_MARK))
    }

    /// The mark of requests through test interfaces.
    #[must_use]
    pub fn test_mark(&self) -> Mark {
        Mark(self.routing.first_mark.0.saturating_add(TEST_MARK))
    }

    /// The mark of requests through the standby tunnel.
    #[must_use]
    pub fn standby_mark(&self) -> Mark {
        Mark(self.routing.first_mark.0.saturating_add(STANDBY_MARK))
    }

    /// The interface of the standby tunnel, where there is one.
    #[must_use]
    pub fn standby(&self) -> Option<&Interface> {
        self.bootstrap.wireguard.as_ref().map(|standby| &standby.interface)
    }

    /// How many routing tables are used from the first on: one a slot, and the standby's.
    #[must_use]
    pub fn tables(&self) -> u32 {
        let slots = u32::try_from(self.slots.interfaces.len()).unwrap_or(u32::MAX);
        slots.saturating_add(u32::from(self.standby().is_some()))
    }

    /// The routing table of the standby tunnel: the one after the slots'.
    #[must_use]
    pub fn standby_table(&self) -> Table {
        self.table(u32::try_from(self.slots.interfaces.len()).unwrap_or(u32::MAX))
    }

    /// All that is placed, in the order of the policy.
    #[must_use]
    pub fn client_keys(&self) -> Vec<ClientKey> {
        self.clients.iter().flat_map(ClientEntry::keys).collect()
    }

    /// The IPv4 prefixes of clients, spread ones included, in the order of the policy.
    #[must_use]
    pub fn client_prefixes(&self) -> Vec<Ipv4Net> {
        self.clients
            .iter()
            .filter_map(|entry| match entry {
                ClientEntry::Prefix(IpNet::V4(net)) | ClientEntry::Spread(net) => Some(*net),
                ClientEntry::Prefix(IpNet::V6(_)) | ClientEntry::User(_) => None,
            })
            .collect()
    }

    /// The users among the clients.
    #[must_use]
    pub fn users(&self) -> Vec<&str> {
        self.clients
            .iter()
            .filter_map(|entry| match entry {
                ClientEntry::User(name) => Some(name.as_str()),
                ClientEntry::Prefix(_) | ClientEntry::Spread(_) => None,
            })
            .collect()
    }

    /// Keys that have no effect beside the others. One that says what holds without it is not told.
    pub(super) fn notes(&self) -> Vec<String> {
        let standby = self.bootstrap.wireguard.iter();
        standby
            .filter(|standby| standby.keep == Keep::Down && self.provider.is_local())
            .map(|_| {
                "bootstrap.wireguard has no effect: the provider is on this machine, so that the tunnel is never needed"
                    .to_owned()
            })
            .collect()
    }

    /// So many verified slots end Direct.
    #[must_use]
    pub fn min_slots_to_exit_direct(&self) -> usize {
        self.params.min_healthy_slots_to_exit_direct.unwrap_or(self.slots.interfaces.len())
    }
}
