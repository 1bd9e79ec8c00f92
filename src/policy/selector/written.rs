//! A policy of kind `selector` as it is written in its file.
//!
//! **Invariant:** what a driver does not know is refused with the name of the key, never passed over.

use super::{
    Channel, ClashDriver, Driver, Member, Params, Probe, RouteDriver, SelectorPolicy, Uplink,
};
use crate::names::{Interface, Mark, Table};
use crate::policy::clash;
use crate::policy::fault::PolicyFault;
use crate::policy::pool::{Cut, Wan};
use crate::proxy::Proxy;
use serde::Deserialize;
use std::net::Ipv4Addr;
use std::path::PathBuf;

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
    #[serde(default)]
    first_table: Option<u32>,
    #[serde(default = "first_mark")]
    first_mark: Mark,
    #[serde(default = "rule_priority")]
    rule_priority: u32,
    #[serde(default = "cut_none")]
    cut: Cut,
}

/// Another upper half than a pool's.
fn first_mark() -> Mark {
    Mark(0x4552_0000)
}

/// Before the rules that a person gives, which are counted from 1000 as a rule, and before a pool's.
fn rule_priority() -> u32 {
    500
}

/// The tables of the two ways, where the default route itself is in main.
const MAIN_FIRST_TABLE: u32 = 20_254;

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
    pub(in crate::policy) fn parse(text: &str) -> Result<Self, PolicyFault> {
        let written: Written =
            serde_json::from_str(text).map_err(|e| PolicyFault::from_json(&e))?;
        let (primary, reserve) = (written.primary, written.reserve);
        let driver = match written.driver {
            WrittenDriver::Clash(clash) => Driver::Clash(Box::new(ClashDriver {
                core: clash::core("driver.clash", &clash.url, clash.secret_file.as_deref())?,
                selector: clash.selector,
                cut: clash.cut,
                primary: primary.member(Channel::Primary)?,
                reserve: reserve.member(Channel::Reserve)?,
            })),
            WrittenDriver::Route(route) => Driver::Route(RouteDriver {
                table: route.table.0,
                metric: route.metric.unwrap_or(if route.table.0 == Table::MAIN {
                    MAIN_METRIC
                } else {
                    0
                }),
                protocol: route.protocol,
                first_table: route.first_table.unwrap_or(if route.table.0 == Table::MAIN {
                    MAIN_FIRST_TABLE
                } else {
                    route.table.0.0.saturating_add(1)
                }),
                first_mark: route.first_mark,
                rule_priority: route.rule_priority,
                cut: route.cut,
                primary: primary.uplink(Channel::Primary)?,
                reserve: reserve.uplink(Channel::Reserve)?,
            }),
        };
        let policy =
            Self { driver, probe: written.probe, wan: written.wan, params: written.params };
        policy.validate()?;
        Ok(policy)
    }
}
