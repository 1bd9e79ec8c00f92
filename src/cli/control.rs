//! `egressctl pause`, `resume`, `switch`, `refresh` and `down`: what a person wants at once.
//!
//! **Invariant:** a wish that is refused changes nothing and exits with 2.

use super::{Places, complain, say};
use crate::host::policies::Found;
use crate::host::rights;
use crate::outcome::{Exit, Report};
use crate::policy::{Kind, Policy};
use crate::pool::Pool;
use crate::step::{self, Order};

/// What a person wants.
#[derive(Clone, Copy)]
pub(super) enum Wish<'a> {
    Pause { force: bool },
    Resume,
    Switch { target: &'a str, force: bool },
    Refresh,
    Down,
}

/// Does what a person wants with one policy, and says what came of it. A refusal is trouble.
pub(super) fn control(places: &Places, policy: &str, wish: Wish<'_>) -> u8 {
    match places.find(&[policy.to_owned()]).pop() {
        Some(Ok(found)) => {
            let report = one(&found, &places.state_dir(), wish);
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

fn one(found: &Found, state_dir: &std::path::Path, wish: Wish<'_>) -> Report {
    match &found.policy {
        Policy::Pool(policy) => {
            let order = Order::<Pool> {
                name: &found.name,
                kind: Kind::Pool.as_str(),
                path: &found.path,
                policy,
                state_dir,
                adopt: false,
                now: true,
            };
            match wish {
                Wish::Pause { force } => step::pause(&order, force),
                Wish::Resume => step::resume(&order),
                Wish::Switch { target, force } => {
                    step::switch(&order, rights::missing(), target, force)
                }
                Wish::Refresh => step::refresh(&order),
                Wish::Down => step::down(&order, rights::missing()),
            }
        }
    }
}
