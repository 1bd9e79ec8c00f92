//! `egressctl pause`, `resume`, `switch`, `refresh` and `down`: what a person wants at once.
//!
//! **Invariant:** a wish that is refused changes nothing and exits with 2.

use super::kind::{self, Manner, Work};
use super::{Places, Taken, complain, tell};
use crate::machine::{Machine, PartWish};
use crate::outcome::{Exit, Report};
use crate::step::{self, Order};

/// What a person wants.
#[derive(Clone, Copy)]
pub(super) enum Wish<'a> {
    Pause { force: bool },
    Resume,
    Part { part: &'a str, wish: PartWish },
    Switch { target: &'a str, force: bool },
    Refresh,
    Down,
}

/// Does what a person wants with one policy, and says what came of it. A refusal is trouble.
pub(super) fn control(places: &Places, policy: &str, wish: Wish<'_>) -> u8 {
    let state_dir = places.state_dir();
    let found = places.find(&[policy.to_owned()]).pop();
    let Some(taken) = found.and_then(|found| Taken::of(found, &state_dir)) else {
        return Exit::Invalid.code();
    };
    let manner = Manner { adopt: false, now: true };
    let report = kind::with(&taken.found, &state_dir, manner, wish);
    if report.exit == Exit::Invalid {
        complain(&report.to_string());
    } else {
        tell::line(&report);
    }
    let exit = report.exit;
    // Who is refused knows that; nobody else is told.
    let reports = if exit == Exit::Invalid { Vec::new() } else { vec![report] };
    // The wish was carried out or refused, whatever becomes of the rest.
    let _is_sound = tell::world(places, &reports);
    exit.code()
}

impl Work for Wish<'_> {
    type Done = Report;

    fn with<M: Machine>(self, order: &Order<'_, M>) -> Report {
        match self {
            Wish::Pause { force } => step::pause(order, force),
            Wish::Resume => step::resume(order),
            Wish::Part { part, wish } => step::part(order, part, wish),
            Wish::Switch { target, force } => step::switch(order, target, force),
            Wish::Refresh => step::refresh(order),
            Wish::Down => step::down(order),
        }
    }
}
