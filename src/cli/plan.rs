//! `egressctl plan`, `step --plan` and `down --plan`.

use super::{Places, complain, note, say};
use crate::host::policies::Found;
use crate::outcome::Exit;
use crate::policy::{Kind, Policy};
use crate::pool::Pool;
use crate::step::{Order, Preview, preview, preview_down};
use std::path::Path;

/// Prints what a step would do.
pub(super) fn plan(places: &Places, wanted: &[String], json: bool) -> u8 {
    let state_dir = places.state_dir();
    let mut worst = Exit::Fine;
    for found in places.find(wanted) {
        let shown = found.as_ref().map_err(ToString::to_string).map(|found| {
            note(found);
            let Policy::Pool(policy) = &found.policy;
            preview(&order(found, policy, &state_dir))
        });
        worst = worst.max(show(shown, json));
    }
    worst.code()
}

/// Prints what `down` would do.
pub(super) fn down(places: &Places, wanted: &str) -> u8 {
    let state_dir = places.state_dir();
    let mut worst = Exit::Fine;
    for found in places.find(&[wanted.to_owned()]) {
        let shown = found.as_ref().map_err(ToString::to_string).map(|found| {
            let Policy::Pool(policy) = &found.policy;
            preview_down(&order(found, policy, &state_dir))
        });
        worst = worst.max(show(shown, false));
    }
    worst.code()
}

fn order<'a>(
    found: &'a Found,
    policy: &'a crate::policy::PoolPolicy,
    state_dir: &'a Path,
) -> Order<'a, Pool> {
    Order {
        name: &found.name,
        kind: Kind::Pool.as_str(),
        path: &found.path,
        policy,
        state_dir,
        adopt: true,
        now: true,
    }
}

fn show(shown: Result<anyhow::Result<Preview>, String>, json: bool) -> Exit {
    let preview = match shown {
        Err(unusable) => {
            complain(&unusable);
            return Exit::Invalid;
        }
        Ok(Err(error)) => {
            complain(&format!("{error:#}"));
            return Exit::Failed;
        }
        Ok(Ok(preview)) => preview,
    };
    if json {
        match serde_json::to_string(&preview) {
            Ok(line) => say(&line),
            Err(error) => complain(&format!("the plan cannot be written: {error}")),
        }
    } else {
        say(&preview.to_string());
    }
    Exit::Fine
}
