//! The report of a step that was played.
//!
//! **Invariant:** it says what the shell would say of the same step.

use super::{Lab, Outcome, Played};
use crate::kernel::World;
use crate::kernel::diff::diff;
use crate::machine::Machine as _;
use crate::outcome::{Ending, Report, count};
use crate::pool::Pool;

/// The report of a step as the shell makes it.
pub(super) fn told(
    lab: &Lab,
    played: &Played,
    standing: Option<&World>,
    mut report: Report,
) -> Report {
    report.from.clone_from(&played.decision.from);
    report.to = Some(played.after.mode.as_str().to_owned());
    report.reasons = played.reasons().to_vec();
    report.changes = match &played.outcome {
        Outcome::Applied | Outcome::Refused(_) => played.done.len(),
        Outcome::Steady | Outcome::Held | Outcome::Undone => 0,
    };
    if let (Some(standing), Outcome::Applied | Outcome::Held | Outcome::Undone) =
        (standing, &played.outcome)
    {
        let drift = diff(&played.was, standing, &Pool::means(&lab.policy));
        if let Some(first) = drift.first() {
            let text = format!(
                "{} put back that had been removed or changed: {}",
                count(drift.len(), "object"),
                first.action.command()
            );
            report = report.because("drift", text);
        }
    }
    report.outcome = match &played.outcome {
        Outcome::Steady => Ending::Steady,
        Outcome::Applied => Ending::Applied,
        Outcome::Refused(_) => Ending::RolledBack,
        Outcome::Held => {
            let why = "the WAN went down while the change was being proven";
            report = report.because("undone", format!("the change failed and was undone: {why}"));
            Ending::RolledBack
        }
        Outcome::Undone => {
            report = report.because("undone", "the change failed and was undone");
            Ending::RolledBack
        }
    };
    report
}
