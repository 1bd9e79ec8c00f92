//! What `check` says of one policy, or of the machine.
//!
//! **Invariant:** no text from elsewhere reaches a terminal with its control characters.

use super::{Code, Finding, Severity};
use crate::outcome::{count, harmless};
use crate::policy::Kind;
use serde::Serialize;
use std::fmt;

/// Who a report is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The machine, for all policies.
    Machine,
    /// A policy; without a kind when it cannot be read.
    Policy(String, Option<Kind>),
}

/// How a probe went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeResult {
    /// It was answered as it should be.
    Passed,
    /// It was not.
    Failed,
    /// It could not be asked.
    Unknown,
}

impl ProbeResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// One probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// What was probed: `wan`, a slot, `provider`.
    pub probe: String,
    /// How it went.
    pub result: ProbeResult,
    /// What was seen.
    pub text: String,
}

/// A report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Of whom.
    pub subject: Subject,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// What was probed.
    pub probes: Vec<Probe>,
}

/// A report as JSON has it.
#[derive(Serialize)]
struct Shape<'a> {
    policy: Option<&'a str>,
    kind: Option<&'static str>,
    findings: &'a [Finding],
    probes: &'a [Probe],
}

impl Serialize for Checked {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (policy, kind) = match &self.subject {
            Subject::Machine => (None, Some("machine")),
            Subject::Policy(name, kind) => (Some(name.as_str()), kind.map(Kind::as_str)),
        };
        Shape { policy, kind, findings: &self.findings, probes: &self.probes }.serialize(serializer)
    }
}

impl Checked {
    /// A report with its findings in order: the worst first, else as they were found.
    #[must_use]
    pub fn new(subject: Subject, mut findings: Vec<Finding>, probes: Vec<Probe>) -> Self {
        findings.sort_by_key(|finding| finding.severity);
        Self { subject, findings, probes }
    }

    /// That a policy cannot be used.
    #[must_use]
    pub fn unusable(name: &str, why: &str) -> Self {
        let finding =
            Finding::new(Code::PolicyInvalid, why, "correct the file, and check it again");
        Self::new(Subject::Policy(name.to_owned(), None), vec![finding], Vec::new())
    }

    /// Whether nothing is wrong. What is only worth knowing is not wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Note)
    }

    /// The same policy's report with the machine's findings in front.
    #[must_use]
    pub fn with(self, machine: Self) -> Self {
        let findings = machine.findings.into_iter().chain(self.findings).collect();
        let probes = machine.probes.into_iter().chain(self.probes).collect();
        Self::new(self.subject, findings, probes)
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Subject::Machine => f.write_str("machine: ")?,
            Subject::Policy(name, Some(kind)) => write!(f, "{} ({kind}): ", harmless(name))?,
            Subject::Policy(name, None) => write!(f, "{}: ", harmless(name))?,
        }
        let of = |severity: Severity| {
            let all = self.findings.iter().filter(|finding| finding.severity == severity);
            match all.count() {
                0 => None,
                n => Some(count(n, severity.as_str())),
            }
        };
        let told: Vec<String> = [Severity::Error, Severity::Warning, Severity::Note]
            .into_iter()
            .filter_map(of)
            .collect();
        match (self.is_sound(), told.is_empty()) {
            (true, true) => f.write_str("sound")?,
            (true, false) => write!(f, "sound, {}", told.join(", "))?,
            (false, _) => f.write_str(&told.join(", "))?,
        }
        for Finding { code, severity, what, why, mend } in &self.findings {
            write!(f, "\n  {} {code}: {}", severity.as_str(), harmless(what))?;
            write!(f, "\n    why   {why}")?;
            for line in mend.lines() {
                write!(f, "\n    mend  {}", harmless(line))?;
            }
        }
        for Probe { probe, result, text } in &self.probes {
            write!(f, "\n  probe {} {}: {}", harmless(probe), result.as_str(), harmless(text))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_short_and_the_json_has_its_keys() {
        let finding = Finding::new(Code::ForwardingOff, "net.ipv4.ip_forward is 0", "one\ntwo");
        let note = Finding::new(Code::Paused, "paused \u{1b}[2J", "egressctl resume home");
        let probe = Probe {
            probe: "wan".to_owned(),
            result: ProbeResult::Passed,
            text: "204 in 12 ms".to_owned(),
        };
        let subject = Subject::Policy("home".to_owned(), Some(Kind::Pool));
        let checked = Checked::new(subject, vec![note, finding], vec![probe]);
        assert!(!checked.is_sound());
        assert_eq!(
            checked.to_string(),
            "home (pool): 1 error, 1 note\n  \
             error forwarding-off: net.ipv4.ip_forward is 0\n    \
             why   the kernel drops what clients send, whatever the slots do\n    \
             mend  one\n    \
             mend  two\n  \
             note paused: paused \u{fffd}[2J\n    \
             why   nothing is changed or mended until resume\n    \
             mend  egressctl resume home\n  \
             probe wan passed: 204 in 12 ms"
        );
        let json = serde_json::to_value(&checked).unwrap();
        let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["findings", "kind", "policy", "probes"]);
        let keys: Vec<&String> = json["findings"][0].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["code", "mend", "severity", "what", "why"]);
        assert_eq!(json["findings"][0]["code"], "forwarding-off");
    }

    #[test]
    fn what_is_only_worth_knowing_leaves_a_policy_sound() {
        let note = Finding::new(Code::Paused, "paused", "egressctl resume home");
        let subject = Subject::Policy("home".to_owned(), Some(Kind::Pool));
        let checked = Checked::new(subject, vec![note], Vec::new());
        assert!(checked.is_sound());
        assert!(checked.to_string().starts_with("home (pool): sound, 1 note\n"));
    }
}
