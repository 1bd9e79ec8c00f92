//! Services beside us: systemd's timers and barrier, networkd, NetworkManager.
//!
//! **Invariant:** a service that does not run is no finding, but for ours where systemd runs.

use super::{Code, Finding, Needs};
use std::collections::BTreeMap;
use std::time::Duration;

/// What runs beside us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// Our units by name, where systemd runs.
    pub units: Option<BTreeMap<String, Unit>>,
    /// The settings of networkd, the strongest last, where it runs.
    pub networkd: Option<Vec<String>>,
    /// The settings of NetworkManager, the strongest last, where it runs.
    pub network_manager: Option<Vec<String>>,
}

/// One unit of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Whether it is installed.
    pub is_loaded: bool,
    /// Whether it starts at boot.
    pub is_enabled: bool,
    /// Whether it runs.
    pub is_active: bool,
    /// The time between two firings, of a timer.
    pub every: Option<Duration>,
}

/// Reads `systemctl show` of several units with `Id`, `LoadState`, `UnitFileState`, `ActiveState` and
/// `TimersMonotonic`.
#[must_use]
pub fn parse_units(text: &str) -> BTreeMap<String, Unit> {
    let mut units = BTreeMap::new();
    for block in text.split("\n\n") {
        let mut unit = Unit::default();
        let mut name = None;
        for (key, value) in block.lines().filter_map(|line| line.split_once('=')) {
            match key {
                "Id" => name = Some(value.to_owned()),
                "LoadState" => unit.is_loaded = value == "loaded",
                "UnitFileState" => unit.is_enabled = value.starts_with("enabled"),
                "ActiveState" => unit.is_active = value == "active" || value == "activating",
                "TimersMonotonic" => {
                    let every = value
                        .split_once("OnUnitActiveUSec=")
                        .or(value.split_once("OnUnitInactiveUSec="));
                    let span = every.and_then(|(_, rest)| rest.split(';').next());
                    unit.every = unit.every.or(span.and_then(parse_span));
                }
                _ => {}
            }
        }
        if let Some(name) = name {
            units.insert(name, unit);
        }
    }
    units
}

/// A span as systemd writes it: `1min 30s`, `500ms`.
fn parse_span(text: &str) -> Option<Duration> {
    let mut whole = Duration::ZERO;
    for word in text.split_whitespace() {
        let end = word.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, unit) = word.split_at(end);
        let ms = match unit {
            "us" => 0.001,
            "ms" => 1.0,
            "s" => 1_000.0,
            "min" => 60_000.0,
            "h" => 3_600_000.0,
            "d" => 86_400_000.0,
            "w" => 604_800_000.0,
            _ => return None,
        };
        let seconds = number.parse::<f64>().ok()? * ms / 1_000.0;
        whole += Duration::try_from_secs_f64(seconds).ok()?;
    }
    (!whole.is_zero()).then_some(whole)
}

pub(super) fn findings(services: &Services, needs: &Needs) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(units) = &services.units {
        found.extend(timers(units, needs));
        let barrier = units.get("egressctl-barrier.service");
        if needs.barrier && !barrier.is_some_and(|unit| unit.is_enabled) {
            found.push(Finding::new(
                Code::BarrierOff,
                format!("egressctl-barrier.service is not {}", state(barrier)),
                "systemctl enable egressctl-barrier.service",
            ));
        }
    }
    if let Some(settings) = &services.networkd
        && !needs.interfaces.is_empty()
    {
        let kept: Vec<&str> = ["ManageForeignRoutingPolicyRules", "ManageForeignRoutes"]
            .into_iter()
            .filter(|key| !last(settings, key).is_some_and(|value| is_no(&value)))
            .collect();
        if !kept.is_empty() {
            found.push(Finding::new(
                Code::NetworkdForeign,
                format!("systemd-networkd runs with {}=yes, its default", kept.join(" and ")),
                "mkdir -p /etc/systemd/networkd.conf.d; printf '[Network]\\nManageForeignRoutingPolicyRules=no\\nManageForeignRoutes=no\\n' > /etc/systemd/networkd.conf.d/egressctl.conf; at the next start of systemd-networkd it holds",
            ));
        }
    }
    if let Some(settings) = &services.network_manager {
        let unmanaged = last(settings, "unmanaged-devices").unwrap_or_default();
        let managed: Vec<&str> = needs
            .interfaces
            .iter()
            .map(crate::names::Interface::as_str)
            .filter(|name| !is_unmanaged(&unmanaged, name))
            .collect();
        if let [first, ..] = managed.as_slice() {
            let names: Vec<String> =
                managed.iter().map(|name| format!("interface-name:{name}")).collect();
            let more = if unmanaged.is_empty() { String::new() } else { format!("{unmanaged};") };
            found.push(Finding::new(
                Code::NetworkManager,
                format!("NetworkManager runs and may manage {first} and {} more", managed.len() - 1),
                format!(
                    "printf '[keyfile]\\nunmanaged-devices={more}{}\\n' > /etc/NetworkManager/conf.d/egressctl.conf; nmcli general reload",
                    names.join(";")
                ),
            ));
        }
    }
    found
}

fn timers(units: &BTreeMap<String, Unit>, needs: &Needs) -> Vec<Finding> {
    let Some(interval) = needs.interval else { return Vec::new() };
    let runs = |name: &str| units.get(name).filter(|unit| unit.is_enabled && unit.is_active);
    let all = runs("egressctl.timer");
    let alone = |policy: &String| runs(&format!("egressctl@{policy}.timer"));
    let idle: Vec<&str> = needs
        .policies
        .iter()
        .filter(|policy| all.is_none() && alone(policy).is_none())
        .map(String::as_str)
        .collect();
    if !idle.is_empty() {
        return vec![Finding::new(
            Code::TimerOff,
            format!(
                "egressctl.timer is not {}: nothing steps {}",
                started(units.get("egressctl.timer")),
                idle.join(" ")
            ),
            "systemctl enable --now egressctl.timer",
        )];
    }
    let every = all.into_iter().chain(needs.policies.iter().filter_map(alone));
    let slowest = every.filter_map(|unit| unit.every).max();
    // A policy whose interval is 0 is stepped as often as the timer fires, which is its wish.
    match slowest {
        Some(every) if !interval.is_zero() && every > interval => vec![Finding::new(
            Code::TimerSlow,
            format!(
                "the timer fires every {} s, and a policy wishes a check every {} s",
                every.as_secs(),
                interval.as_secs()
            ),
            "systemctl edit egressctl.timer, and write there: [Timer], OnUnitActiveSec= and OnUnitActiveSec=5s; or raise params.health_check_interval_sec",
        )],
        Some(_) | None => Vec::new(),
    }
}

fn state(unit: Option<&Unit>) -> &'static str {
    if unit.is_some_and(|unit| unit.is_loaded) { "enabled" } else { "installed" }
}

fn started(unit: Option<&Unit>) -> &'static str {
    match unit {
        Some(unit) if unit.is_enabled => "started",
        Some(unit) if unit.is_loaded => "enabled",
        Some(_) | None => "installed",
    }
}

/// The last value of a key in settings of systemd's or NetworkManager's form.
fn last(settings: &[String], key: &str) -> Option<String> {
    let mut values = settings.iter().flat_map(|text| text.lines()).filter_map(|line| {
        let (name, value) = line.trim().split_once('=')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    });
    values.next_back()
}

fn is_no(value: &str) -> bool {
    ["no", "false", "off", "0"].iter().any(|no| value.eq_ignore_ascii_case(no))
}

/// Whether NetworkManager was told to leave an interface alone.
fn is_unmanaged(list: &str, name: &str) -> bool {
    list.split([';', ',']).map(str::trim).any(|entry| {
        let Some(pattern) = entry.strip_prefix("interface-name:") else { return entry == "*" };
        let pattern = pattern.trim_start_matches('=');
        match pattern.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => pattern == name,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Interface;

    /// As systemd 252 prints them.
    const SHOWN: &str = "Id=egressctl.timer\nTimersMonotonic={ OnUnitActiveUSec=5s ; next_elapse=1h 5s }\nTimersMonotonic={ OnActiveUSec=1s ; next_elapse=2min 3s }\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n\nId=egressctl-barrier.service\nLoadState=loaded\nActiveState=inactive\nUnitFileState=enabled\n\nId=egressctl@home.timer\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n";

    fn needs() -> Needs {
        Needs {
            interfaces: ["vpn1", "vpn2"]
                .map(|name| Interface::try_from(name.to_owned()).unwrap())
                .into(),
            barrier: true,
            interval: Some(Duration::from_secs(10)),
            policies: vec!["home".to_owned()],
            ..Needs::default()
        }
    }

    fn codes(services: &Services) -> Vec<&'static str> {
        findings(services, &needs()).iter().map(|finding| finding.code.as_str()).collect()
    }

    fn units(text: &str) -> Services {
        Services { units: Some(parse_units(text)), ..Services::default() }
    }

    #[test]
    fn units_are_judged_by_what_systemd_says() {
        assert_eq!(codes(&units(SHOWN)), [""; 0]);
        assert_eq!(codes(&units("")), ["timer-off", "barrier-off"]);
        let slow = SHOWN.replace("OnUnitActiveUSec=5s", "OnUnitActiveUSec=1min 30s");
        assert_eq!(codes(&units(&slow)), ["timer-slow"]);
        let stopped = SHOWN.replace("ActiveState=active", "ActiveState=inactive");
        assert_eq!(codes(&units(&stopped)), ["timer-off"]);
        let alone = stopped.replace(
            "Id=egressctl@home.timer\nLoadState=not-found\nActiveState=inactive\nUnitFileState=",
            "Id=egressctl@home.timer\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled",
        );
        assert_eq!(codes(&units(&alone)), [""; 0]);
        assert_eq!(codes(&Services::default()), [""; 0], "no systemd, no finding");
    }

    #[test]
    fn spans_of_systemd_are_added_up() {
        for (text, ms) in
            [("5s", 5_000), ("1min 30s", 90_000), ("500ms", 500), ("1h 2.500s", 3_602_500)]
        {
            assert_eq!(parse_span(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "infinity", "5", "x s"] {
            assert_eq!(parse_span(bad), None, "{bad}");
        }
    }

    #[test]
    fn networkd_counts_until_it_is_told_to_keep_off() {
        let with = |settings: &[&str]| {
            let networkd = Some(settings.iter().map(|text| (*text).to_owned()).collect());
            codes(&Services { networkd, ..Services::default() })
        };
        assert_eq!(with(&["[Network]\n#ManageForeignRoutes=no\n"]), ["networkd-foreign"]);
        let off = "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules = false\n";
        assert_eq!(with(&[off]), [""; 0]);
        assert_eq!(with(&[off, "[Network]\nManageForeignRoutes=yes\n"]), ["networkd-foreign"]);
    }

    #[test]
    fn network_manager_counts_for_the_interfaces_that_it_may_manage() {
        let with = |text: &str| {
            let network_manager = Some(vec![text.to_owned()]);
            findings(&Services { network_manager, ..Services::default() }, &needs())
        };
        assert!(with("[main]\n")[0].what.contains("vpn1 and 1 more"));
        let some = with("[keyfile]\nunmanaged-devices=interface-name:vpn1;mac:00:11:22:33:44:55\n");
        assert!(some[0].what.contains("vpn2 and 0 more"), "{some:?}");
        assert!(
            some[0].mend.contains("interface-name:vpn1;mac:00:11:22:33:44:55;interface-name:vpn2")
        );
        for kept in ["interface-name:vpn*", "*", "interface-name:vpn1,interface-name:=vpn2"] {
            assert_eq!(with(&format!("unmanaged-devices={kept}")), [], "{kept}");
        }
    }
}
