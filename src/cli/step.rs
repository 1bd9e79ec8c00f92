//! `egressctl step`.

use super::kind::{self, Manner, Work};
use super::{Places, StepArgs, complain, note, say};
use crate::host::policies::Found;
use crate::host::side_by_side;
use crate::machine::Machine;
use crate::outcome::{Exit, Report};
use crate::step::Order;
use std::io::IsTerminal as _;

/// Steps the policies side by side, prints a line each in their order, and gives the worst code.
pub(super) fn step(places: &Places, args: &StepArgs) -> u8 {
    let state_dir = places.state_dir();
    let found = places.find(&args.wanted.policies);
    let mut worst = Exit::Fine;
    let usable: Vec<&Found> = found.iter().filter_map(|found| found.as_ref().ok()).collect();
    for unusable in found.iter().filter_map(|found| found.as_ref().err()) {
        complain(&unusable.to_string());
        worst = worst.max(Exit::Invalid);
    }
    // A journal would be filled with the same line at every step.
    if std::io::stderr().is_terminal() {
        for found in &usable {
            note(found);
        }
    }
    let manner = Manner { adopt: args.adopt, now: args.now };
    let reports = side_by_side(&usable, |found| kind::with(found, &state_dir, manner, One));
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

/// A step of one policy.
struct One;

impl Work for One {
    type Done = Report;

    fn with<M: Machine>(self, order: &Order<'_, M>) -> Report {
        crate::step::step(order)
    }
}
