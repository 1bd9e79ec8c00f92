//! `egressctl step`.

use super::kind::{self, Manner, Work};
use super::{Places, StepArgs, Taken, complain, note, say};
use crate::host::policies::keep;
use crate::host::side_by_side;
use crate::machine::Machine;
use crate::outcome::{Ending, Exit, Report};
use crate::step::Order;
use std::io::IsTerminal as _;
use std::path::Path;

/// Steps the policies side by side, prints a line each in their order, and gives the worst code.
pub(super) fn step(places: &Places, args: &StepArgs) -> u8 {
    let state_dir = places.state_dir();
    let mut worst = Exit::Fine;
    let mut all = Vec::new();
    for found in places.find(&args.wanted.policies) {
        if found.is_err() {
            worst = worst.max(Exit::Invalid);
        }
        all.extend(Taken::of(found, &state_dir));
    }
    // A journal would be filled with the same line at every step.
    if std::io::stderr().is_terminal() {
        for taken in &all {
            note(&taken.found);
        }
    }
    let manner = Manner { adopt: args.adopt, now: args.now };
    let reports = side_by_side(&all, |taken| one(taken, &state_dir, manner));
    for report in reports {
        worst = worst.max(report.exit);
        if args.json {
            match serde_json::to_string(&report) {
                Ok(line) => say(&line),
                Err(error) => complain(&format!("the report cannot be written: {error}")),
            }
        } else {
            say(&report.to_string());
        }
    }
    worst.code()
}

/// Steps a policy, and keeps its text for the day on which its file is invalid.
fn one(taken: &Taken, state_dir: &Path, manner: Manner) -> Report {
    let mut report = kind::with(&taken.found, state_dir, manner, One);
    if let Some(why) = &taken.invalid {
        let exit = report.exit.max(Exit::Invalid);
        report = report.because("policy-invalid", why.clone());
        report.exit = exit;
        return report;
    }
    match report.outcome {
        Ending::Steady | Ending::Applied | Ending::RolledBack | Ending::Recovered => {
            match keep(state_dir, &taken.found) {
                Ok(()) => report,
                Err(error) => report.because("state", format!("{error:#}")),
            }
        }
        Ending::Failed | Ending::Busy | Ending::NotDue => report,
    }
}

/// A step of one policy.
struct One;

impl Work for One {
    type Done = Report;

    fn with<M: Machine>(self, order: &Order<'_, M>) -> Report {
        crate::step::step(order)
    }
}
