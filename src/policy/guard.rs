//! The policy of kind `guard`: a group of a proxy core that chooses by itself, what shows that it
//! really works, and every threshold.
//!
//! **Invariant:** every default that is not the operator's is written here, once; what the core is
//! asked fits into the limits of its API.

use super::clash;
use super::fault::PolicyFault;
use super::pool::Require;
use crate::proxy::Proxy;
use crate::setting::{Core, Source};
use crate::url::Target;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// A whole guard policy.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardPolicy {
    /// The core.
    pub core: Core,
    /// Where what is not named here is found; `None`: all is named.
    pub source: Option<Source>,
    /// The group in which a member is selected; `None`: it is found.
    pub group: Option<String>,
    /// The member of it that chooses by itself; `None`: it is found.
    pub automatic: Option<String>,
    /// The members that may be selected in its place; `None`: all that leave by a proxy.
    pub members: Option<Vec<String>>,
    /// The core's proxy, which goes out by the group; `None`: it is found.
    pub proxy: Option<Proxy>,
    /// What shows that requests pass.
    pub probe: Probe,
    /// What shows that the uplink works, if that is asked.
    pub reference: Option<Reference>,
    /// Every threshold.
    pub params: Params,
}

/// What shows that requests pass: pages asked through the core's proxy.
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
            require: Require::Any,
            expect_status: vec![204],
            timeout_sec: 8,
        }
    }
}

/// What shows that the uplink works: pages of which any answer is good, asked past the proxy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The pages.
    pub urls: Vec<Target>,
}

/// Every threshold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// A step is due this long after the start of the last; 0: always.
    pub check_interval_sec: u64,
    /// So many failed rounds in a row allow another choice.
    pub failures_before_recovery: u32,
    /// So often the automatic group answers the core before it is tried again.
    pub observe_passes: u32,
    /// So many members are tried in one step at most.
    pub candidates_per_step: usize,
    /// How long the core may take to measure a member.
    pub delay_timeout_ms: u16,
    /// The first wait after a recovery in which nothing passed.
    pub backoff_min_sec: u64,
    /// The longest.
    pub backoff_max_sec: u64,
    /// The longest wait before the automatic group is tried again; ruling so long clears it.
    pub give_back_max_sec: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            check_interval_sec: 30,
            failures_before_recovery: 2,
            observe_passes: 3,
            candidates_per_step: 5,
            delay_timeout_ms: 5_000,
            backoff_min_sec: 30,
            backoff_max_sec: 600,
            give_back_max_sec: 3_600,
        }
    }
}

/// The API reads the timeout as a signed number of 16 bits.
const MAX_DELAY_TIMEOUT_MS: u16 = 32_767;
/// A step ends within the 90 s that the shipped unit gives it; half of it is for looking.
const MAX_TIMEOUT_SEC: u64 = 20;

impl Params {
    /// The check interval.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.check_interval_sec)
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
    #[serde(default)]
    group: Option<String>,
    #[serde(default)]
    automatic: Option<String>,
    #[serde(default)]
    members: Option<Vec<String>>,
    #[serde(default)]
    proxy: Option<Proxy>,
    #[serde(default)]
    probe: Probe,
    #[serde(default)]
    reference: Option<Reference>,
    #[serde(default)]
    params: Params,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenDriver {
    clash: WrittenClash,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenClash {
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    secret_file: Option<PathBuf>,
    #[serde(default)]
    config: Option<PathBuf>,
    #[serde(default)]
    process: Option<String>,
}

impl WrittenClash {
    /// Where what is not named is found. A url alone names a core whose files are not looked at.
    fn source(&self) -> Result<Option<Source>, PolicyFault> {
        let fault = |text: &str| Err(PolicyFault::new(text));
        match (&self.config, &self.process) {
            (Some(_), Some(_)) => fault(
                "driver.clash names config and process: name the one in which the core is found",
            ),
            (Some(config), None) if !config.is_absolute() => {
                fault("driver.clash.config is no absolute path: write one that begins with /")
            }
            (Some(config), None) => Ok(Some(Source::File(config.clone()))),
            (None, Some(name)) if name.is_empty() || name.contains('/') => fault(
                "driver.clash.process is no name of a program, such as \"sing-box\": a path belongs into config",
            ),
            (None, Some(name)) => Ok(Some(Source::Process(Some(name.clone())))),
            (None, None) if self.url.is_some() => Ok(None),
            (None, None) => Ok(Some(Source::Process(None))),
        }
    }

    fn core(&self, source: Option<&Source>) -> Result<Core, PolicyFault> {
        let (keys, url, secret) =
            ("driver.clash", self.url.as_deref(), self.secret_file.as_deref());
        match (source, url) {
            (Some(source), _) => clash::found(keys, url, secret, source),
            (None, url) => clash::core(keys, url.unwrap_or_default(), secret),
        }
    }
}

impl GuardPolicy {
    /// Reads it from the text of its file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, PolicyFault> {
        let written: Written =
            serde_json::from_str(text).map_err(|e| PolicyFault::from_json(&e))?;
        let driver = written.driver.clash;
        let source = driver.source()?;
        let policy = Self {
            core: driver.core(source.as_ref())?,
            source,
            group: written.group,
            automatic: written.automatic,
            members: written.members,
            proxy: written.proxy,
            probe: written.probe,
            reference: written.reference,
            params: written.params,
        };
        policy.validate()?;
        Ok(policy)
    }

    /// Refuses what contradicts itself.
    fn validate(&self) -> Result<(), PolicyFault> {
        let fault = |text: &str| Err(PolicyFault::new(text));
        let names = [self.group.as_ref(), self.automatic.as_ref()];
        if names.into_iter().flatten().any(String::is_empty) {
            return fault(
                "group or automatic is empty: name the core's group, and the member of it that chooses by itself",
            );
        }
        if self.source.is_none() {
            for (key, is_named) in [
                ("group", self.group.is_some()),
                ("automatic", self.automatic.is_some()),
                ("proxy", self.proxy.is_some()),
            ] {
                if !is_named {
                    return fault(&format!(
                        "{key} is missing: name it, or name driver.clash.config or driver.clash.process, where it is found"
                    ));
                }
            }
        }
        if self.group.is_some() && self.group == self.automatic {
            return fault(
                "group and automatic are the same: automatic is a member of group, such as \"auto\" of \"select\"",
            );
        }
        if let Some(members) = &self.members {
            if members.is_empty() {
                return fault("members is empty: name some, or leave it out for all");
            }
            if self.automatic.as_ref().is_some_and(|automatic| members.contains(automatic)) {
                return fault(
                    "members holds the automatic group, which is what they stand in for: leave it out",
                );
            }
        }
        if self.probe.urls.is_empty() {
            return fault("probe.urls is empty: name at least one page");
        }
        if self.probe.expect_status.is_empty() {
            return fault("probe.expect_status is empty: name at least one status");
        }
        if !(1..=MAX_TIMEOUT_SEC).contains(&self.probe.timeout_sec) {
            return fault("probe.timeout_sec is not 1 to 20");
        }
        if self.reference.as_ref().is_some_and(|reference| reference.urls.is_empty()) {
            return fault(
                "reference.urls is empty: name at least one page, or leave reference out",
            );
        }
        let params = &self.params;
        for (key, value) in [
            ("failures_before_recovery", u64::from(params.failures_before_recovery)),
            ("observe_passes", u64::from(params.observe_passes)),
            ("candidates_per_step", u64::try_from(params.candidates_per_step).unwrap_or(u64::MAX)),
        ] {
            if value == 0 {
                return fault(&format!("params.{key} is 0: it must be at least 1"));
            }
        }
        if !(1..=MAX_DELAY_TIMEOUT_MS).contains(&params.delay_timeout_ms) {
            return fault(
                "params.delay_timeout_ms is not 1 to 32767, which is what the core's API takes",
            );
        }
        if params.backoff_min_sec > params.backoff_max_sec {
            return fault("params.backoff_min_sec is more than params.backoff_max_sec");
        }
        if params.backoff_min_sec > params.give_back_max_sec {
            return fault("params.backoff_min_sec is more than params.give_back_max_sec");
        }
        Ok(())
    }

    /// The pages that the core is told to measure by: those over https where there are some, since
    /// sing-box takes a page of its own in place of one over http.
    #[must_use]
    pub fn measured_by(&self) -> Vec<Target> {
        let all = &self.probe.urls;
        let https: Vec<Target> = all.iter().filter(|url| url.is_https()).cloned().collect();
        if https.is_empty() { all.clone() } else { https }
    }

    /// What it asks for and is not done quite so, a line each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        if self.probe.urls.iter().any(Target::is_https) {
            return Vec::new();
        }
        vec!["probe.urls has no page over https: sing-box measures members by https://www.gstatic.com/generate_204 in its place".to_owned()]
    }
}
