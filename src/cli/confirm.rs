//! `egressctl confirm`, and what comes back when nobody says it.
//!
//! **Invariant:** whoever waits ends once nothing is on trial any more.

use super::kind::{self, Manner, Work};
use super::{Places, Taken, complain, tell};
use crate::host::clock;
use crate::machine::Machine;
use crate::outcome::{Ending, Exit, Report};
use crate::step::{self, Order};
use std::time::Duration;

/// How often it is looked whether the time is up, or another run has ended.
const LOOK: Duration = Duration::from_secs(1);

/// So many looks are longer than any trial and any step that holds the lock.
const LOOKS: u32 = 86_400 + 3_600;

/// How often a confirmation waits for another run.
const TRIES: u32 = 5;

const MANNER: Manner = Manner { adopt: false, now: true };

/// Keeps what a step left on trial.
pub(super) fn confirm(places: &Places, policy: &str) -> u8 {
    let Some(taken) = taken(places, policy) else { return Exit::Invalid.code() };
    let keep = || kind::with(&taken.found, &places.state_dir(), MANNER, Keep);
    let mut report = keep();
    for _ in 0..TRIES {
        // A timer's run that only looks is through at once.
        if report.exit != Exit::Busy {
            break;
        }
        clock::pause(LOOK);
        report = keep();
    }
    ended(places, report)
}

/// Undoes it when its time is up. A change that was cut off half way is undone at once.
pub(super) fn give_up(places: &Places, policy: &str) -> u8 {
    let Some(taken) = taken(places, policy) else { return Exit::Invalid.code() };
    for _ in 0..LOOKS {
        let Some(report) = kind::with(&taken.found, &places.state_dir(), MANNER, GiveUp) else {
            break;
        };
        match report.outcome {
            Ending::Busy | Ending::NotDue => clock::pause(LOOK),
            Ending::Recovered if report.exit == Exit::Recovered => {
                ended(places, report);
            }
            Ending::Steady
            | Ending::Applied
            | Ending::RolledBack
            | Ending::Recovered
            | Ending::Failed => {
                return ended(places, report);
            }
        }
    }
    Exit::Fine.code()
}

fn taken(places: &Places, policy: &str) -> Option<Taken> {
    let found = places.find(&[policy.to_owned()]).pop()?;
    Taken::of(found, &places.state_dir())
}

/// Says what came of it; what was undone is told to the world too.
fn ended(places: &Places, report: Report) -> u8 {
    let exit = report.exit;
    if exit == Exit::Invalid {
        complain(&report.to_string());
        return exit.code();
    }
    tell::line(&report);
    // It is kept or undone, whatever becomes of the rest.
    let _is_sound = tell::world(places, &[report]);
    exit.code()
}

struct Keep;

impl Work for Keep {
    type Done = Report;

    fn with<M: Machine>(self, order: &Order<'_, M>) -> Report {
        step::confirm(order)
    }
}

struct GiveUp;

impl Work for GiveUp {
    type Done = Option<Report>;

    fn with<M: Machine>(self, order: &Order<'_, M>) -> Option<Report> {
        step::give_up(order)
    }
}
