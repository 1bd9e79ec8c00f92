//! What works against a selector: in its core's own configuration and unit, or on its uplinks.
//!
//! **Invariant:** only what was read of the core is judged; what it does not tell is said as that.

use super::{Code, Finding, cores};
use crate::observation::{Asker, ConfigReading, CoreConfig, CoreReading, Observation, Outline};
use crate::outcome::harmless;
use crate::policy::SelectorPolicy;
use crate::policy::selector::{Channel, ClashDriver, Driver};
use crate::selector::SelectorState;
use crate::selector::state::Verdict;

/// The unit of systemd that a core runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreUnit {
    /// Its name, such as `sing-box.service`.
    pub name: String,
    /// When systemd starts it again: `no`, or such as `on-failure`.
    pub restart: String,
}

/// What was seen of a selector's driver.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The core with its own configuration, if it was looked at.
    pub core: Option<&'a CoreReading>,
    /// What it was told, if it answers and that can be read.
    pub told: Option<&'a Outline>,
    /// Its unit, if it runs as one.
    pub unit: Option<&'a CoreUnit>,
    /// What a step would see.
    pub seen: &'a Observation,
    /// What it would remember.
    pub decided: Option<&'a SelectorState>,
}

/// What works against it.
#[must_use]
pub fn findings(policy: &SelectorPolicy, facts: &Facts<'_>) -> Vec<Finding> {
    match &policy.driver {
        Driver::Clash(driver) => {
            let mut found = Vec::new();
            let seen = facts.core.and_then(|reading| reading.core.as_ref().ok());
            match seen.map(|seen| &seen.config) {
                Some(ConfigReading::Read(config)) => found.extend(configuration(driver, config)),
                Some(ConfigReading::Unread(why)) => found.push(cores::unseen(&driver.core, why)),
                Some(ConfigReading::Unasked) | None => {}
            }
            found.extend(facts.told.and_then(cores::exposed));
            found.extend(facts.unit.and_then(unit));
            found
        }
        Driver::Route(_) => uplinks(facts),
    }
}

fn configuration(driver: &ClashDriver, config: &CoreConfig) -> Vec<Finding> {
    let mut found = Vec::new();
    let group = harmless(&driver.selector);
    if config.interrupting.contains(&driver.selector) {
        found.push(Finding::new(
            Code::Interrupts,
            format!("group {group} of {} has interrupt_exist_connections", driver.core),
            format!(
                "set \"interrupt_exist_connections\": false in the outbound {group} of the core's configuration, and restart the core"
            ),
        ));
    }
    if !config.keeps_choices {
        found.push(Finding::new(
            Code::ChoicesForgotten,
            format!("{} keeps no choice over a restart", driver.core),
            "set experimental.cache_file.enabled (sing-box), or profile.store-selected (mihomo)",
        ));
    }
    for channel in Channel::ALL {
        let wished = driver.member(channel);
        let Some(inbound) = config.inbounds.get(&wished.proxy.at.port()) else { continue };
        let (tag, member) = (harmless(&inbound.tag), harmless(&wished.member));
        let mend = format!(
            "put {{\"inbound\": \"{tag}\", \"outbound\": \"{member}\"}} before all other rules of the core's configuration, and restart the core"
        );
        if inbound.way.as_deref() != Some(wished.member.as_str()) {
            let way = inbound.way.as_deref().map_or_else(|| "nowhere".to_owned(), harmless);
            let what = format!(
                "the diagnostic inbound {tag} of the {channel}, {}, leads to {way} and not to {member}",
                wished.proxy
            );
            found.push(Finding::new(Code::DiagnosisAstray, what, mend));
        } else if let Some(rule) = inbound.before.first() {
            let what = format!(
                "rule {rule} of the core stands before the one of inbound {tag}, the diagnosis of the {channel}, and may lead its requests elsewhere"
            );
            found.push(Finding::new(Code::DiagnosisShared, what, mend));
        }
    }
    found
}

fn unit(unit: &CoreUnit) -> Option<Finding> {
    (unit.restart == "no").then(|| {
        let name = harmless(&unit.name);
        Finding::new(
            Code::CoreUnitDies,
            format!("{name} has Restart=no"),
            format!(
                "mkdir -p /etc/systemd/system/{name}.d && printf '[Service]\\nRestart=on-failure\\nRestartSec=2\\n' > /etc/systemd/system/{name}.d/restart.conf && systemctl daemon-reload"
            ),
        )
    })
}

/// Uplinks that nothing can be asked by: what is asked is told with the probes.
fn uplinks(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(state) = facts.decided else { return Vec::new() };
    let gone = |channel: &Channel| {
        let asker = Asker::Named(channel.as_str().to_owned());
        let was_asked = !facts.seen.pages(&asker).is_empty();
        state.channel(*channel).verdict == Verdict::Unhealthy && !was_asked
    };
    let told = |channel: Channel| {
        let what = format!("the {channel}: {}", state.channel(channel).why);
        let mend = "bring the device up, with an address in the network of its gateway; or correct the policy";
        Finding::new(Code::UplinkGone, what, mend)
    };
    Channel::ALL.into_iter().filter(gone).map(told).collect()
}

/// The unit that a process belongs to, from `/proc/PID/cgroup`; `None`: it is in no service.
#[must_use]
pub fn unit_of(cgroup: &str) -> Option<String> {
    let paths = cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths
        .filter_map(|path| path.rsplit('/').find(|part| part.ends_with(".service")))
        // A person's own session is a service, too.
        .find(|name| !name.starts_with("user@"))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests;
