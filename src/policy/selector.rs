//! The policy of kind `selector`: two channels, what shows that they work, and every threshold.
//!
//! **Invariant:** every default that is not the operator's is written here, once; channels are
//! named in the terms of their driver.

use super::clash;
use super::fault::PolicyFault;
use super::pool::{Cut, Require, Wan};
use crate::names::{Interface, Table};
use crate::proxy::Proxy;
use crate::setting::Core;
use crate::url::Target;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// One of the two channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// Where clients belong.
    Primary,
    /// Where they go while the primary does not work.
    Reserve,
}

impl Channel {
    /// Both, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::Primary, Self::Reserve];

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Primary => Self::Reserve,
            Self::Reserve => Self::Primary,
        }
    }

    /// As policies and reports name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Reserve => "reserve",
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A whole selector policy.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectorPolicy {
    /// What is switched, and between what.
    pub driver: Driver,
    /// What shows that a channel works.
    pub probe: Probe,
    /// What shows that the uplink works, if that is asked.
    pub wan: Option<Wan>,
    /// Every threshold.
    pub params: Params,
}

/// What is switched, and between what.
#[derive(Clone, Debug, PartialEq)]
pub enum Driver {
    /// The selected member of a proxy core's group.
    Clash(ClashDriver),
    /// A default route.
    Route(RouteDriver),
}

/// The selected member of a proxy core's group.
#[derive(Clone, Debug, PartialEq)]
pub struct ClashDriver {
    /// The core.
    pub core: Core,
    /// The group.
    pub selector: String,
    /// Which open connections are closed by an urgent switch.
    pub cut: Cut,
    /// Where clients belong.
    pub primary: Member,
    /// Where they go meanwhile.
    pub reserve: Member,
}

/// A channel that is a member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name in the core.
    pub member: String,
    /// The diagnostic proxy that leaves by it and by nothing else.
    pub proxy: Proxy,
}

/// A default route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteDriver {
    /// The table that it is in.
    pub table: Table,
    /// Its metric: in a table of our own the usual one, in main lower than anybody's.
    pub metric: u32,
    /// The protocol number that tells it from a stranger's.
    pub protocol: u8,
    /// Where clients belong.
    pub primary: Uplink,
    /// Where they go meanwhile.
    pub reserve: Uplink,
}

/// A channel that is an uplink.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uplink {
    /// Its device.
    pub interface: Interface,
    /// The next hop; none given: the device leads to one end only.
    #[serde(default)]
    pub gateway: Option<Ipv4Addr>,
}

impl ClashDriver {
    /// The member that a channel is.
    #[must_use]
    pub fn member(&self, channel: Channel) -> &Member {
        match channel {
            Channel::Primary => &self.primary,
            Channel::Reserve => &self.reserve,
        }
    }

    /// The channel that a member is; `None`: another member of the group.
    #[must_use]
    pub fn channel(&self, member: &str) -> Option<Channel> {
        Channel::ALL.into_iter().find(|channel| self.member(*channel).member == member)
    }
}

impl RouteDriver {
    /// The uplink that a channel is.
    #[must_use]
    pub fn uplink(&self, channel: Channel) -> &Uplink {
        match channel {
            Channel::Primary => &self.primary,
            Channel::Reserve => &self.reserve,
        }
    }
}

/// What shows that a channel works: pages asked through it.
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
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            urls: super::pool::Probe::default().urls,
            require: Require::All,
            expect_status: vec![204],
            timeout_sec: 10,
        }
    }
}

/// Every threshold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// A step is due this long after the start of the last; 0: always.
    pub check_interval_sec: u64,
    /// A channel that fails so long, while the other one answers, is left.
    pub failure_window_sec: u64,
    /// The primary answers so long before clients return to it.
    pub recovery_window_sec: u64,
    /// A switch waits for so long a quiet time.
    pub quiet_window_sec: u64,
    /// Less than this is quiet.
    pub active_bytes_per_sec: u64,
    /// Clients stay on the reserve so long at least.
    pub minimum_reserve_sec: u64,
    /// So many failovers in the window end in a quarantine of the primary.
    pub flap_limit: usize,
    /// The window.
    pub flap_window_sec: u64,
    /// How long the primary is not returned to.
    pub quarantine_sec: u64,
    /// Whether a switch waits for a quiet time at all.
    pub traffic_guard: bool,
    /// How long an urgent switch waits for it at most; `null`: without limit.
    pub guard_max_hold_sec: Option<u64>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            check_interval_sec: 60,
            failure_window_sec: 120,
            recovery_window_sec: 900,
            quiet_window_sec: 30,
            active_bytes_per_sec: 32_768,
            minimum_reserve_sec: 600,
            flap_limit: 3,
            flap_window_sec: 86_400,
            quarantine_sec: 21_600,
            traffic_guard: true,
            guard_max_hold_sec: Some(300),
        }
    }
}

/// Where windows are measured in intervals, an interval of 0 counts as this.
const ZERO_INTERVAL: Duration = Duration::from_secs(10);

impl Params {
    /// The check interval as windows measure it.
    #[must_use]
    pub fn interval(&self) -> Duration {
        let interval = Duration::from_secs(self.check_interval_sec);
        if interval.is_zero() { ZERO_INTERVAL } else { interval }
    }
}

/// A policy as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "$schema", default)]
    _schema: Option<String>,
    #[serde(rename = "description", default)]
    _description: Option<String>,
    driver: WrittenDriver,
    primary: WrittenChannel,
    reserve: WrittenChannel,
    #[serde(default)]
    probe: Probe,
    #[serde(default)]
    wan: Option<Wan>,
    #[serde(default)]
    params: Params,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenDriver {
    Clash(WrittenClash),
    Route(WrittenRoute),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenClash {
    url: String,
    #[serde(default)]
    secret_file: Option<PathBuf>,
    selector: String,
    #[serde(default = "cut_none")]
    cut: Cut,
}

fn cut_none() -> Cut {
    Cut::None
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRoute {
    table: WrittenTable,
    #[serde(default)]
    metric: Option<u32>,
    #[serde(default = "protocol")]
    protocol: u8,
}

/// The protocol number that pools use too: tables tell policies apart.
fn protocol() -> u8 {
    201
}

/// In main a metric below those that network managers give (from 50 on).
const MAIN_METRIC: u32 = 10;

/// A table's number, or `main`.
#[derive(Deserialize)]
#[serde(try_from = "serde_json::Value")]
struct WrittenTable(Table);

impl TryFrom<serde_json::Value> for WrittenTable {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match (number, value.as_str()) {
            (_, Some("main")) => Ok(Self(Table::MAIN)),
            (Some(number), _) if number != 0 && !(253..=255).contains(&number) => {
                Ok(Self(Table(number)))
            }
            (Some(_) | None, _) => Err(format!(
                "driver.route.table is {value}: write \"main\", or the number of a table that the kernel does not use itself (not 0, 253 to 255)"
            )),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenChannel {
    #[serde(default)]
    member: Option<String>,
    #[serde(default)]
    proxy: Option<Proxy>,
    #[serde(default)]
    interface: Option<Interface>,
    #[serde(default)]
    gateway: Option<Ipv4Addr>,
}

impl WrittenChannel {
    fn member(self, channel: Channel) -> Result<Member, PolicyFault> {
        let missing = |key: &str| {
            PolicyFault::new(format!(
                "{channel}.{key} is missing: a channel of driver clash is a member and its diagnostic proxy"
            ))
        };
        if self.interface.is_some() || self.gateway.is_some() {
            return Err(PolicyFault::new(format!(
                "{channel} names an interface or a gateway, which driver clash does not know: name member and proxy"
            )));
        }
        Ok(Member {
            member: self
                .member
                .filter(|member| !member.is_empty())
                .ok_or_else(|| missing("member"))?,
            proxy: self.proxy.ok_or_else(|| missing("proxy"))?,
        })
    }

    fn uplink(self, channel: Channel) -> Result<Uplink, PolicyFault> {
        if self.member.is_some() || self.proxy.is_some() {
            return Err(PolicyFault::new(format!(
                "{channel} names a member or a proxy, which driver route does not know: name interface and gateway"
            )));
        }
        let interface = self.interface.ok_or_else(|| {
            PolicyFault::new(format!("{channel}.interface is missing: a channel of driver route is an interface and its gateway"))
        })?;
        Ok(Uplink { interface, gateway: self.gateway })
    }
}

impl SelectorPolicy {
    /// Reads it from the text of its file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, PolicyFault> {
        let written: Written =
            serde_json::from_str(text).map_err(|e| PolicyFault::from_json(&e))?;
        let (primary, reserve) = (written.primary, written.reserve);
        let driver = match written.driver {
            WrittenDriver::Clash(clash) => Driver::Clash(ClashDriver {
                core: clash::core("driver.clash", &clash.url, clash.secret_file.as_deref())?,
                selector: clash.selector,
                cut: clash.cut,
                primary: primary.member(Channel::Primary)?,
                reserve: reserve.member(Channel::Reserve)?,
            }),
            WrittenDriver::Route(route) => Driver::Route(RouteDriver {
                table: route.table.0,
                metric: route.metric.unwrap_or(if route.table.0 == Table::MAIN {
                    MAIN_METRIC
                } else {
                    0
                }),
                protocol: route.protocol,
                primary: primary.uplink(Channel::Primary)?,
                reserve: reserve.uplink(Channel::Reserve)?,
            }),
        };
        let policy =
            Self { driver, probe: written.probe, wan: written.wan, params: written.params };
        policy.validate()?;
        Ok(policy)
    }

    /// Refuses what contradicts itself.
    fn validate(&self) -> Result<(), PolicyFault> {
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
        if self.probe.timeout_sec == 0 {
            return fault("probe.timeout_sec is 0: it must be at least 1".into());
        }
        if self.params.flap_limit == 0 {
            return fault("params.flap_limit is 0: it must be at least 1".into());
        }
        Ok(())
    }

    /// What it asks for and this version does not do, a line each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        match self.driver {
            Driver::Clash(_) => Vec::new(),
            Driver::Route(_) => vec!["driver.route is read and has no effect yet".to_owned()],
        }
    }
}
