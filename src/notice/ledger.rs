//! What people were told of a policy lately, so that they are told once and never in a storm.
//!
//! **Invariant:** a transition is told at most once; within a window no more than a few messages go
//! out, and what was withheld is counted and said as soon as there is room again.

use crate::outcome::{Ending, Report};
use crate::time::Moment;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// So many messages of one policy go out within the window: more than a repair of every slot of a usual
/// pool makes, and few enough to be read.
pub const STORM: usize = 10;

/// The window.
pub const STORM_WINDOW: Duration = Duration::from_secs(600);

/// What was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// When messages went out, within the window.
    #[serde(default)]
    sent: Vec<Moment>,
    /// How many were withheld since.
    #[serde(default)]
    withheld: u32,
    /// The trouble that was told last and lasts.
    #[serde(default)]
    trouble: Option<String>,
}

/// What becomes of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Judgement {
    /// It is no news.
    Silent,
    /// It is news, and too much was told already.
    Withhold,
    /// It is told.
    Tell {
        /// How many messages were withheld before this one.
        withheld: u32,
        /// Whether it is the last one for now.
        is_last: bool,
    },
}

impl Ledger {
    /// Judges a report, and what is to be remembered.
    pub fn judge(&self, report: &Report, now: &Moment) -> (Self, Judgement) {
        let mut next = self.clone();
        next.sent.retain(|at| now.since(at) < STORM_WINDOW);
        let trouble = trouble(report);
        let is_new = match report.outcome {
            // Nothing was looked at: nothing is known anew.
            Ending::Busy | Ending::NotDue => return (self.clone(), Judgement::Silent),
            Ending::Steady
            | Ending::Applied
            | Ending::RolledBack
            | Ending::Recovered
            | Ending::Failed => trouble.is_some() && trouble != self.trouble,
        };
        next.trouble = trouble;
        let is_news = is_new || report.transition().is_some();
        let has_room = next.sent.len() < STORM;
        match (is_news, has_room) {
            (false, _) if self.withheld == 0 => (next, Judgement::Silent),
            (false, false) => (next, Judgement::Silent),
            (true, false) => {
                next.withheld = next.withheld.saturating_add(1);
                (next, Judgement::Withhold)
            }
            (true | false, true) => {
                next.sent.push(now.clone());
                next.withheld = 0;
                let is_last = next.sent.len() == STORM;
                (next, Judgement::Tell { withheld: self.withheld, is_last })
            }
        }
    }
}

/// What keeps a step from its work; the same is told once while it lasts.
fn trouble(report: &Report) -> Option<String> {
    match report.outcome {
        Ending::Steady | Ending::Applied | Ending::Busy | Ending::NotDue => None,
        Ending::RolledBack | Ending::Recovered | Ending::Failed => {
            let code = report.reasons.last().map(|reason| reason.code.as_str());
            Some(format!("{} {}", report.outcome.as_str(), code.unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;
    use crate::outcome::Exit;

    fn at(second: u64) -> Moment {
        Moment::epoch().after(Duration::from_secs(second))
    }

    fn tells(ledger: &mut Ledger, report: &Report, second: u64) -> Judgement {
        let (next, judgement) = ledger.judge(report, &at(second));
        *ledger = next;
        judgement
    }

    const TOLD: Judgement = Judgement::Tell { withheld: 0, is_last: false };

    #[test]
    fn a_transition_is_told_once_and_what_stays_is_not() {
        let mut ledger = Ledger::default();
        assert_eq!(tells(&mut ledger, &report("NORMAL", "NORMAL"), 0), Judgement::Silent);
        assert_eq!(tells(&mut ledger, &report("NORMAL", "LOCAL_REPAIR"), 10), TOLD);
        assert_eq!(
            tells(&mut ledger, &report("LOCAL_REPAIR", "LOCAL_REPAIR"), 20),
            Judgement::Silent
        );
        assert_eq!(tells(&mut ledger, &report("LOCAL_REPAIR", "NORMAL"), 30), TOLD);
        let late = report("NORMAL", "LOCAL_REPAIR").ended(Ending::NotDue, Exit::Fine);
        assert_eq!(tells(&mut ledger, &late, 40), Judgement::Silent);
    }

    #[test]
    fn trouble_that_lasts_is_told_once_and_again_when_it_comes_back() {
        let mut ledger = Ledger::default();
        let fails = report("NORMAL", "NORMAL").ended(Ending::Failed, Exit::Failed);
        assert_eq!(tells(&mut ledger, &fails, 0), TOLD);
        assert_eq!(tells(&mut ledger, &fails, 10), Judgement::Silent);
        let other = fails.clone().because("rights", "no rights");
        assert_eq!(tells(&mut ledger, &other, 20), TOLD, "this is other trouble");
        assert_eq!(tells(&mut ledger, &report("NORMAL", "NORMAL"), 30), Judgement::Silent);
        assert_eq!(tells(&mut ledger, &fails, 40), TOLD);
    }

    #[test]
    fn a_storm_is_withheld_and_said_when_there_is_room_again() {
        let mut ledger = Ledger::default();
        let mut told = 0;
        for second in 0..100 {
            let judgement = tells(&mut ledger, &report("NORMAL", "LOCAL_REPAIR"), second);
            match judgement {
                Judgement::Tell { is_last, .. } => {
                    told += 1;
                    assert_eq!(is_last, told == STORM, "the last one says so");
                }
                Judgement::Withhold | Judgement::Silent => {}
            }
        }
        assert_eq!(told, STORM);
        let quiet = report("NORMAL", "NORMAL");
        assert_eq!(tells(&mut ledger, &quiet, 599), Judgement::Silent, "there is no room yet");
        let judgement = tells(&mut ledger, &quiet, 601);
        assert_eq!(judgement, Judgement::Tell { withheld: 90, is_last: false });
        assert_eq!(tells(&mut ledger, &quiet, 602), Judgement::Silent);
    }

    #[test]
    fn what_is_remembered_stays_small_and_reads_back() {
        let mut ledger = Ledger::default();
        for second in 0..10_000 {
            let _ = tells(&mut ledger, &report("NORMAL", "LOCAL_REPAIR"), second);
        }
        assert!(ledger.sent.len() <= STORM);
        let text = serde_json::to_string(&ledger).unwrap();
        assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), ledger);
    }
}
