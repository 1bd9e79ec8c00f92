//! `egressctl pause`, `resume` and `down`: what a person wants at once.

use super::{Places, complain, say};
use crate::host::policies::Found;
use crate::host::rights;
use crate::outcome::{Exit, Report};
use crate::policy::{Kind, Policy};
use crate::pool::Pool;
use crate::step::{self, Order};

/// What a person wants.
#[derive(Clone, Copy)]
enum Wish {
    Pause,
    Resume,
    Down,
}

pub(super) fn pause(places: &Places, policy: &str) -> u8 {
    control(places, policy, Wish::Pause)
}

pub(super) fn resume(places: &Places, policy: &str) -> u8 {
    control(places, policy, Wish::Resume)
}

pub(super) fn down(places: &Places, policy: &str) -> u8 {
    control(places, policy, Wish::Down)
}

fn control(places: &Places, policy: &str, wish: Wish) -> u8 {
    match places.find(&[policy.to_owned()]).pop() {
        Some(Ok(found)) => {
            let report = one(&found, &places.state_dir(), wish);
            say(&report.to_string());
            report.exit.code()
        }
        Some(Err(unusable)) => {
            complain(&unusable.to_string());
            Exit::Invalid.code()
        }
        None => Exit::Invalid.code(),
    }
}

fn one(found: &Found, state_dir: &std::path::Path, wish: Wish) -> Report {
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
                Wish::Pause => step::pause(&order),
                Wish::Resume => step::resume(&order),
                Wish::Down => step::down(&order, rights::missing()),
            }
        }
    }
}
