//! What is told of a step: to the journal, to programs, and to people's telephones.
//!
//! **Invariant:** a notice is made of a report and says nothing that the report does not, so that it
//! holds no secret.

mod ledger;
mod letter;

pub use ledger::{Judgement, Ledger, STORM, STORM_WINDOW};
pub use letter::{Letter, letter, text};

use crate::outcome::{Ending, Exit, Report, harmless};
use crate::status::Standing;

/// How urgent a line is, as syslog counts: the lower, the more so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// 2: a person is needed.
    Critical,
    /// 3: clients have no protected egress, or a step could not do its job.
    Error,
    /// 4: clients are served otherwise than wished, or a change was taken back.
    Warning,
    /// 5: something changed, and is as wished.
    Notice,
    /// 6: nothing changed.
    Info,
    /// 7: nothing was looked at.
    Debug,
}

impl Priority {
    /// How urgent a report is.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        match (report.exit, report.outcome) {
            (Exit::Stuck, _) => return Self::Critical,
            (Exit::Failed | Exit::Invalid, _) | (_, Ending::Failed) => return Self::Error,
            (_, Ending::Busy | Ending::NotDue) => return Self::Debug,
            (
                Exit::Fine | Exit::Busy | Exit::Recovered | Exit::RolledBack,
                Ending::Steady | Ending::Applied | Ending::RolledBack | Ending::Recovered,
            ) => {}
        }
        let by_ending = match report.outcome {
            Ending::RolledBack | Ending::Recovered => Self::Warning,
            Ending::Steady | Ending::Applied | Ending::Failed | Ending::Busy | Ending::NotDue => {
                if report.is_news() {
                    Self::Notice
                } else {
                    Self::Info
                }
            }
        };
        let by_standing = match report.standing {
            Some(Standing::Unprotected) => Self::Error,
            Some(Standing::Degraded | Standing::Stale) => Self::Warning,
            Some(Standing::AsWished) | None => Self::Debug,
        };
        by_ending.min(by_standing)
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Critical => 2,
            Self::Error => 3,
            Self::Warning => 4,
            Self::Notice => 5,
            Self::Info => 6,
            Self::Debug => 7,
        }
    }
}

/// The kind of message in the journal, for `journalctl MESSAGE_ID=`: made once, at random.
pub const MESSAGE_ID: &str = "5c2d9f1e7b0a4a53bb0e6f1c8d94e327";

/// A report as the journal takes it natively: a field a line. `unit` is the unit that this process
/// belongs to: the journal cannot find that out by itself once the process has ended.
#[must_use]
pub fn entry(report: &Report, unit: Option<&str>) -> Vec<u8> {
    let mut fields = vec![
        ("MESSAGE", report.to_string()),
        ("PRIORITY", Priority::of(report).number().to_string()),
        ("SYSLOG_IDENTIFIER", "egressctl".to_owned()),
        ("MESSAGE_ID", MESSAGE_ID.to_owned()),
        ("POLICY", report.policy.to_string()),
        ("KIND", report.kind.clone()),
        ("OUTCOME", report.outcome.as_str().to_owned()),
        ("CHANGES", report.changes.to_string()),
        ("DURATION_MS", report.duration_ms.to_string()),
        ("EXIT", report.exit.code().to_string()),
    ];
    fields.extend(report.from.clone().map(|from| ("FROM", from)));
    fields.extend(report.to.clone().map(|to| ("TO", to)));
    fields.extend(report.standing.map(|standing| ("STANDING", standing.as_str().to_owned())));
    fields.extend(report.reasons.iter().map(|reason| ("REASON", reason.code.clone())));
    fields.extend(unit.map(|unit| ("OBJECT_SYSTEMD_UNIT", unit.to_owned())));
    let lines = fields.iter().map(|(name, value)| format!("{name}={}\n", harmless(value)));
    lines.collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::PolicyName;
    use crate::time::Moment;

    pub(super) fn report(from: &str, to: &str) -> Report {
        let name = PolicyName::try_from("home".to_owned()).unwrap();
        let mut report = Report::new(&name, "pool", &Moment::epoch());
        report.from = Some(from.to_owned());
        report.to = Some(to.to_owned());
        report.because("slot-failed", "vpn3 silent\nPRIORITY=0 for 2 checks")
    }

    #[test]
    fn the_more_clients_suffer_the_more_urgent_it_is() {
        let quiet = report("NORMAL", "NORMAL");
        assert_eq!(Priority::of(&quiet).number(), 6);
        let late = quiet.clone().ended(Ending::NotDue, Exit::Fine);
        assert_eq!(Priority::of(&late).number(), 7);
        let moved = report("NORMAL", "LOCAL_REPAIR").ended(Ending::Applied, Exit::Fine);
        for (standing, number) in [
            (Some(Standing::AsWished), 5),
            (None, 5),
            (Some(Standing::Degraded), 4),
            (Some(Standing::Unprotected), 3),
        ] {
            let report = Report { standing, ..moved.clone() };
            assert_eq!(Priority::of(&report).number(), number, "{standing:?}");
        }
        for (ending, exit, number) in [
            (Ending::RolledBack, Exit::RolledBack, 4),
            (Ending::Recovered, Exit::Recovered, 4),
            (Ending::Failed, Exit::Failed, 3),
            (Ending::Failed, Exit::Stuck, 2),
        ] {
            assert_eq!(Priority::of(&moved.clone().ended(ending, exit)).number(), number);
        }
    }

    #[test]
    fn a_name_of_a_stranger_makes_no_field_of_its_own() {
        let entry = entry(&report("NORMAL", "LOCAL\nPRIORITY=0"), Some("egressctl.service"));
        let text = String::from_utf8(entry).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for field in [
            "MESSAGE=home: NORMAL -> LOCAL\u{fffd}PRIORITY=0: vpn3 silent\u{fffd}PRIORITY=0 for 2 checks",
            "PRIORITY=5",
            "POLICY=home",
            "KIND=pool",
            "FROM=NORMAL",
            "TO=LOCAL\u{fffd}PRIORITY=0",
            "REASON=slot-failed",
            "OBJECT_SYSTEMD_UNIT=egressctl.service",
        ] {
            assert!(lines.contains(&field), "{field}: {text}");
        }
        assert_eq!(lines.iter().filter(|line| line.starts_with("PRIORITY=")).count(), 1);
    }
}
