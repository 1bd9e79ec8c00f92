//! What policies measure, as the text that Prometheus' node exporter takes from a file.
//!
//! A kind gives the `Samples` of its status; `text` puts those of all policies together, and
//! `host::publish` writes them.
//!
//! **Invariant:** the text is sound whatever names strangers chose: a family's samples stand together
//! under one HELP and one TYPE, no series is there twice, no sample has a time stamp (with one the whole
//! file would be passed over), and the last line is whole.

mod family;

pub use family::Family;

use crate::names::PolicyName;
use crate::outcome::{Ending, harmless};
use crate::status::{Head, Standing};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The only name that is written; the collector reads `*.prom`.
pub const FILE: &str = "egressctl.prom";

/// Names and values of labels, the policy's first.
type Labels = Vec<(&'static str, String)>;

/// A measured value, in the base unit of its family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A count, or 1 for yes and 0 for no.
    Whole(u64),
    /// Seconds, to the millisecond: a duration, or a moment since 1970.
    Seconds {
        /// In milliseconds.
        millis: i64,
    },
    /// A share of 1.
    Ratio(f64),
}

impl Value {
    /// So many milliseconds, told in seconds.
    #[must_use]
    pub fn millis(millis: u64) -> Self {
        Self::Seconds { millis: i64::try_from(millis).unwrap_or(i64::MAX) }
    }
}

impl From<bool> for Value {
    fn from(is_so: bool) -> Self {
        Self::Whole(u64::from(is_so))
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Whole(count)
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Self {
        Self::Whole(u64::from(count))
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::Whole(u64::try_from(count).unwrap_or(u64::MAX))
    }
}

impl From<Timestamp> for Value {
    fn from(at: Timestamp) -> Self {
        Self::Seconds { millis: at.as_millisecond() }
    }
}

impl From<Duration> for Value {
    fn from(time: Duration) -> Self {
        Self::millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(count) => write!(f, "{count}"),
            Self::Seconds { millis } => {
                let sign = if *millis < 0 { "-" } else { "" };
                let millis = millis.unsigned_abs();
                write!(f, "{sign}{}.{:03}", millis / 1_000, millis % 1_000)
            }
            Self::Ratio(share) => write!(f, "{share}"),
        }
    }
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    policy: Option<PolicyName>,
    families: BTreeMap<Family, BTreeMap<Labels, Value>>,
}

impl Samples {
    /// What every status tells. `state` is false where a policy stands in several places at once: its
    /// parts tell theirs.
    #[must_use]
    pub fn of(head: &Head, standing: Standing, state: bool) -> Self {
        let mut samples = Self::about(&head.policy, &head.kind, standing);
        if let (Some(name), true) = (&head.state, state) {
            samples.set(Family::PolicyState, &[("state", name)], true);
        }
        samples.set_if(Family::PolicySince, &[], head.since);
        samples.set(Family::PolicyPaused, &[], head.paused.is_some());
        let last = head.last_step.as_ref();
        samples.set_if(Family::LastStepAt, &[], last.map(|last| last.at));
        samples.set_if(Family::LastStepTook, &[], last.map(|last| Value::millis(last.duration_ms)));
        samples.set_if(Family::LastStepDone, &[], last.map(|last| did_its_work(last.outcome)));
        samples
    }

    /// What is told of a policy, of which nothing may be known but its name.
    #[must_use]
    pub fn named(policy: &PolicyName) -> Self {
        Self { policy: Some(policy.clone()), ..Self::default() }
    }

    /// How a policy is judged, of which nothing else may be known.
    #[must_use]
    pub fn about(policy: &PolicyName, kind: &str, standing: Standing) -> Self {
        let mut samples = Self::named(policy);
        for each in Standing::ALL {
            let labels = [("kind", kind), ("standing", each.as_str())];
            samples.set(Family::PolicyStanding, &labels, each == standing);
        }
        samples
    }

    /// Tells a value. Of two with the same labels the first one is told.
    pub fn set(
        &mut self,
        family: Family,
        labels: &[(&'static str, &str)],
        value: impl Into<Value>,
    ) {
        let policy = self.policy.iter().map(|policy| ("policy", policy.to_string()));
        let labels = labels.iter().map(|(name, text)| (*name, harmless(text)));
        let series = self.families.entry(family).or_default();
        series.entry(policy.chain(labels).collect()).or_insert_with(|| value.into());
    }

    /// Tells a value, where there is one.
    pub fn set_if(
        &mut self,
        family: Family,
        labels: &[(&'static str, &str)],
        value: Option<impl Into<Value>>,
    ) {
        if let Some(value) = value {
            self.set(family, labels, value);
        }
    }

    fn take(&mut self, other: Self) {
        for (family, series) in other.families {
            let here = self.families.entry(family).or_default();
            for (labels, value) in series {
                here.entry(labels).or_insert(value);
            }
        }
    }
}

/// Whether a step did what it is for.
fn did_its_work(outcome: Ending) -> bool {
    match outcome {
        Ending::Steady | Ending::Applied => true,
        Ending::RolledBack | Ending::Recovered | Ending::Failed | Ending::Busy | Ending::NotDue => {
            false
        }
    }
}

/// The text of all that was measured, at a moment, by this version.
#[must_use]
pub fn text(all: impl IntoIterator<Item = Samples>, now: Timestamp) -> String {
    let mut whole = Samples::default();
    whole.set(Family::Build, &[("version", env!("CARGO_PKG_VERSION"))], true);
    whole.set(Family::LastRunAt, &[], now);
    for samples in all {
        whole.take(samples);
    }
    let families = whole.families.iter();
    families.map(|(family, series)| family_text(*family, series)).collect()
}

/// A family under its one head.
fn family_text(family: Family, series: &BTreeMap<Labels, Value>) -> String {
    let (name, help) = (family.name(), escaped(family.help(), false));
    let head = format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
    let lines = series.iter().map(|(labels, value)| {
        let pair = |(label, text): &(&str, String)| format!("{label}=\"{}\"", escaped(text, true));
        let pairs: Vec<String> = labels.iter().map(pair).collect();
        let pairs =
            if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
        format!("{name}{pairs} {value}\n")
    });
    std::iter::once(head).chain(lines).collect()
}

/// A text as the format wants it: `\`, the end of a line, and within quotes the quote, escaped.
fn escaped(text: &str, quoted: bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => safe.push_str("\\\\"),
            '\n' => safe.push_str("\\n"),
            '"' if quoted => safe.push_str("\\\""),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(policy: &str) -> Samples {
        let policy = PolicyName::try_from(policy.to_owned()).unwrap();
        Samples::about(&policy, "pool", Standing::Degraded)
    }

    #[test]
    fn families_stand_together_and_names_of_strangers_spoil_nothing() {
        let mut home = samples("home");
        home.set(Family::SlotUp, &[("slot", "vpn1")], true);
        home.set(Family::SlotInfo, &[("slot", "vpn1"), ("endpoint", "a\"b\\c\u{1b}\nd")], true);
        home.set(Family::SlotLatency, &[("slot", "vpn1")], Value::millis(31));
        let mut other = samples("other");
        other.set(Family::SlotUp, &[("slot", "vpn1")], false);
        let text = text([home, other], "2026-11-30T12:00:00.5Z".parse().unwrap());
        let of = |name: &str| -> Vec<&str> {
            text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name)).collect()
        };
        assert_eq!(
            of("egressctl_slot_up"),
            [
                "egressctl_slot_up{policy=\"home\",slot=\"vpn1\"} 1",
                "egressctl_slot_up{policy=\"other\",slot=\"vpn1\"} 0"
            ]
        );
        assert_eq!(
            of("egressctl_slot_info"),
            [
                "egressctl_slot_info{policy=\"home\",slot=\"vpn1\",endpoint=\"a\\\"b\\\\c\u{fffd}\u{fffd}d\"} 1"
            ]
        );
        assert!(of("egressctl_slot_latency_seconds")[0].ends_with(" 0.031"));
        assert_eq!(
            of("egressctl_last_run_timestamp_seconds")[0].split_once(' ').unwrap().1,
            "1796040000.500"
        );
        assert_eq!(of("egressctl_policy_standing").len(), 8, "a series a standing");
        for name in ["HELP egressctl_slot_up ", "TYPE egressctl_slot_up gauge"] {
            assert_eq!(text.matches(name).count(), 1, "{name}");
        }
        assert!(text.ends_with('\n') && !text.contains("\n\n"));
    }

    #[test]
    fn no_series_is_told_twice() {
        let mut home = samples("home");
        // Two names that differ only in what no terminal may see.
        home.set(Family::MemberSelected, &[("member", "a\u{1}")], true);
        home.set(Family::MemberSelected, &[("member", "a\u{2}")], false);
        let text = text([home.clone(), home], Timestamp::UNIX_EPOCH);
        let lines: Vec<&str> =
            text.lines().filter(|line| line.starts_with("egressctl_member_selected")).collect();
        assert_eq!(lines, ["egressctl_member_selected{policy=\"home\",member=\"a\u{fffd}\"} 1"]);
    }
}
