//! `egressctl plan`, `step --plan` and `down --plan`.

use super::kind::{self, Manner, Work};
use super::{Places, complain, note, say};
use crate::explain::Preview;
use crate::machine::Machine;
use crate::outcome::Exit;
use crate::step::{Order, preview, preview_down};

/// How a plan is printed.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// As a JSON object.
    pub(super) json: bool,
    /// With what was seen, and which rule applied.
    pub(super) explain: bool,
}

/// Prints what a step would do.
pub(super) fn plan(places: &Places, wanted: &[String], form: Form) -> u8 {
    let state_dir = places.state_dir();
    let mut worst = Exit::Fine;
    for found in places.find(wanted) {
        let shown = found.as_ref().map_err(ToString::to_string).map(|found| {
            note(found);
            kind::with(found, &state_dir, MANNER, Step)
        });
        worst = worst.max(show(shown, form));
    }
    worst.code()
}

/// Prints what `down` would do.
pub(super) fn down(places: &Places, wanted: &str) -> u8 {
    let state_dir = places.state_dir();
    let mut worst = Exit::Fine;
    for found in places.find(&[wanted.to_owned()]) {
        let shown = found
            .as_ref()
            .map_err(ToString::to_string)
            .map(|found| kind::with(found, &state_dir, MANNER, Down));
        worst = worst.max(show(shown, Form { json: false, explain: false }));
    }
    worst.code()
}

/// A plan is made of any policy at any time.
const MANNER: Manner = Manner { adopt: true, now: true };

struct Step;

impl Work for Step {
    type Done = anyhow::Result<Preview>;

    fn with<M: Machine>(self, order: &Order<'_, M>) -> Self::Done {
        preview(order)
    }
}

struct Down;

impl Work for Down {
    type Done = anyhow::Result<Preview>;

    fn with<M: Machine>(self, order: &Order<'_, M>) -> Self::Done {
        preview_down(order)
    }
}

fn show(shown: Result<anyhow::Result<Preview>, String>, form: Form) -> Exit {
    let mut preview = match shown {
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
    if !form.explain {
        preview.explain = None;
    }
    if form.json {
        match serde_json::to_string(&preview) {
            Ok(line) => say(&line),
            Err(error) => complain(&format!("the plan cannot be written: {error}")),
        }
    } else {
        say(&preview.to_string());
    }
    Exit::Fine
}
