//! `egressctl pause`, `resume`, `switch`, `refresh` and `down`: what a person wants at once.
//!
//! **Invariant:** a wish that is refused changes nothing and exits with 2.

use super::kind::{self, Manner, Work};
use super::{Places, complain, say};
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
    match places.find(&[policy.to_owned()]).pop() {
        Some(Ok(found)) => {
            let manner = Manner { adopt: false, now: true };
            let report = kind::with(&found, &places.state_dir(), manner, wish);
            if report.exit == Exit::Invalid {
                complain(&report.to_string());
            } else {
                say(&report.to_string());
            }
            report.exit.code()
        }
        Some(Err(unusable)) => {
            complain(&unusable.to_string());
            Exit::Invalid.code()
        }
        None => Exit::Invalid.code(),
    }
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
