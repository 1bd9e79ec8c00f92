//! How a step ended, what it says, and with which code the program exits.
//!
//! **Invariant:** the exit codes are a contract with timers and scripts; a new ending gets a new
//! variant and a place in the order of badness.

use crate::explain::Explain;
use crate::machine::ReasonText;
use crate::names::PolicyName;
use crate::status::Standing;
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// There was nothing to change.
    Steady,
    /// A change was made and proven.
    Applied,
    /// A change failed and was undone.
    RolledBack,
    /// A run that had died was undone.
    Recovered,
    /// The step could not do its job.
    Failed,
    /// Another run holds the lock.
    Busy,
    /// It is too early.
    NotDue,
}

impl Ending {
    /// As reports say it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Applied => "applied",
            Self::RolledBack => "rolled-back",
            Self::Recovered => "recovered",
            Self::Failed => "failed",
            Self::Busy => "busy",
            Self::NotDue => "not-due",
        }
    }
}

/// The exit codes of `step`, in their order of badness: the worst of several policies counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// 0: nothing to do, or applied.
    Fine,
    /// 75 (`EX_TEMPFAIL`): another run holds the lock.
    Busy,
    /// 5: a journal of a run that died was undone.
    Recovered,
    /// 3: a change failed and was rolled back.
    RolledBack,
    /// 2: usage, or an invalid policy.
    Invalid,
    /// 1: could not do its job.
    Failed,
    /// 4: a rollback failed; a person is needed.
    Stuck,
}

impl Exit {
    /// The code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Busy => 75,
            Self::Recovered => 5,
            Self::RolledBack => 3,
            Self::Invalid => 2,
            Self::Failed => 1,
            Self::Stuck => 4,
        }
    }
}

/// What a step has to say: one line for people, one object for machines, one line of history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The policy.
    pub policy: PolicyName,
    /// Its kind.
    pub kind: String,
    /// When the step began.
    pub at: jiff::Timestamp,
    /// Where the machine stood; `null` on the first run.
    pub from: Option<String>,
    /// Where it stands now.
    pub to: Option<String>,
    /// How it ended.
    pub outcome: Ending,
    /// Why.
    pub reasons: Vec<ReasonText>,
    /// How many changes were made.
    pub changes: usize,
    /// How long it took.
    pub duration_ms: u64,
    /// What was seen and which rule applied, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explain: Option<Explain>,
    /// The exit code.
    #[serde(skip, default = "fine")]
    pub exit: Exit,
    /// How the policy is judged afterwards, where there is news.
    #[serde(skip)]
    pub standing: Option<Standing>,
}

fn fine() -> Exit {
    Exit::Fine
}

impl Report {
    /// A report with nothing in it yet.
    #[must_use]
    pub fn new(policy: &PolicyName, kind: &str, at: &Moment) -> Self {
        Self {
            policy: policy.clone(),
            kind: kind.to_owned(),
            at: at.at,
            from: None,
            to: None,
            outcome: Ending::Steady,
            reasons: Vec::new(),
            changes: 0,
            duration_ms: 0,
            explain: None,
            exit: Exit::Fine,
            standing: None,
        }
    }

    /// Ends the report.
    #[must_use]
    pub fn ended(mut self, outcome: Ending, exit: Exit) -> Self {
        self.outcome = outcome;
        self.exit = exit;
        self
    }

    /// Adds a reason that belongs to no machine.
    #[must_use]
    pub fn because(mut self, code: &str, text: impl Into<String>) -> Self {
        self.reasons.push(ReasonText::new(code, text));
        self
    }

    /// The transition, if one was made.
    #[must_use]
    pub fn transition(&self) -> Option<String> {
        if self.from == self.to {
            return None;
        }
        let name = |state: &Option<String>| state.clone().unwrap_or_else(|| "none".to_owned());
        Some(format!("{} -> {}", name(&self.from), name(&self.to)))
    }

    /// The transition, or where it stands.
    #[must_use]
    pub fn state(&self) -> String {
        self.transition().or_else(|| self.to.clone()).unwrap_or_default()
    }

    /// How it ended, where that is no matter of course, and why.
    #[must_use]
    pub fn story(&self) -> String {
        let words: Vec<String> = self.reasons.iter().map(|r| harmless(&r.text)).collect();
        let ending = match self.outcome {
            Ending::Steady | Ending::Applied => "",
            Ending::RolledBack
            | Ending::Recovered
            | Ending::Failed
            | Ending::Busy
            | Ending::NotDue => self.outcome.as_str(),
        };
        let parts = [ending.to_owned(), words.join("; ")];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    }

    /// Whether history should have a line of it: a transition, a change, or trouble.
    #[must_use]
    pub fn is_news(&self) -> bool {
        match self.outcome {
            Ending::Steady => self.from != self.to,
            Ending::Applied | Ending::RolledBack | Ending::Recovered | Ending::Failed => true,
            Ending::Busy | Ending::NotDue => false,
        }
    }
}

/// `1 client`, `2 clients`.
pub(crate) fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Whether a character does something to the text around it: moves a cursor, begins a line, turns the
/// direction of reading, or is not seen at all. A name with one shows as another than it is.
pub(crate) fn is_unfit(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Such characters never reach a terminal or the journal: a name may have come from a stranger.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|c| if is_unfit(c) { '\u{fffd}' } else { c }).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.reasons.iter().map(|r| harmless(&r.text)).collect();
        let state = self.state();
        write!(f, "{}: ", self.policy)?;
        match self.outcome {
            Ending::Steady | Ending::Applied => f.write_str(&state)?,
            Ending::RolledBack
            | Ending::Recovered
            | Ending::Failed
            | Ending::Busy
            | Ending::NotDue => {
                let ending = self.outcome.as_str();
                if state.is_empty() {
                    f.write_str(ending)?;
                } else {
                    write!(f, "{state} ({ending})")?;
                }
            }
        }
        if !words.is_empty() {
            write!(f, ": {}", words.join("; "))?;
        }
        Ok(())
    }
}
