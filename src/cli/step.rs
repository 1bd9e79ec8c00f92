//! `egressctl step`.

use super::{Places, StepArgs, complain, note, say};
use crate::host::policies::Found;
use crate::host::{rights, side_by_side};
use crate::outcome::{Exit, Report};
use crate::policy::{Kind, Policy};
use crate::pool::Pool;
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
    let reports = side_by_side(&usable, |found| one(found, &state_dir, args));
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

/// The one match over kinds.
fn one(found: &Found, state_dir: &std::path::Path, args: &StepArgs) -> Report {
    match &found.policy {
        Policy::Pool(policy) => {
            let order = Order::<Pool> {
                name: &found.name,
                kind: Kind::Pool.as_str(),
                path: &found.path,
                policy,
                state_dir,
                adopt: args.adopt,
                now: args.now,
            };
            crate::step::step(&order, rights::missing())
        }
    }
}
