//! Answers a machine's questions, all of a round side by side.
//!
//! **Invariant:** trouble with what is asked is a reading; only a look at the kernel that fails is
//! an error, because nothing can be decided without it.

use super::apply::Hands;
use super::{
    carried, clock, core, delays, discover, gost, look, node, pages, provider, resolve, setting,
    trial,
};
use crate::observation::{Question, Reading, StandbyReading, TrialReading, TrialResult};
use anyhow::{Context as _, bail};
use std::io;
use std::path::Path;
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

/// A resolver that works answers from near by; the last good answers are kept anyway.
const NAMES_DEADLINE: Duration = Duration::from_secs(2);

/// How to look.
#[derive(Clone, Copy, Debug)]
pub struct Eyes<'a> {
    /// The policy's state folder.
    pub folder: &'a Path,
    /// What trials are made with.
    pub hands: &'a Hands,
    /// Whether anything may be made for the sake of looking: files of candidates, test interfaces.
    pub may_change: bool,
}

/// Answers all of `questions`.
///
/// # Errors
/// When the kernel or a clock cannot be read.
pub fn observe(
    questions: Vec<Question>,
    eyes: &Eyes<'_>,
) -> anyhow::Result<Vec<(Question, Reading)>> {
    let readings: Vec<anyhow::Result<Reading>> = std::thread::scope(|threads| {
        // The last one is answered here: a thread less.
        let Some((last, others)) = questions.split_last() else { return Vec::new() };
        let started: Vec<_> = others
            .iter()
            .map(|question| Builder::new().spawn_scoped(threads, move || answer(question, eyes)))
            .collect();
        let last = answer(last, eyes);
        let join = |thread: io::Result<ScopedJoinHandle<'_, _>>| {
            let thread = thread.context("starting a thread")?;
            thread.join().unwrap_or_else(|_| bail!("a thread that observed panicked"))
        };
        started.into_iter().map(join).chain([last]).collect()
    });
    questions.into_iter().zip(readings).map(|(asked, seen)| Ok((asked, seen?))).collect()
}

fn answer(question: &Question, eyes: &Eyes<'_>) -> anyhow::Result<Reading> {
    Ok(match question {
        Question::Kernel(scope) => {
            Reading::Kernel(Box::new(look::kernel(scope).context("looking at the kernel")?))
        }
        Question::Names(names) => {
            let names: Vec<String> = names.iter().cloned().collect();
            Reading::Names(resolve::resolve(&names, NAMES_DEADLINE))
        }
        Question::Pages(asked) => Reading::Pages(pages::ask(asked)?),
        Question::List(asked) => {
            let list = provider::list(asked, eyes.folder, eyes.may_change);
            Reading::List { at: clock::now()?, list }
        }
        Question::Standby(asked) => {
            let described = provider::standby(asked, eyes.folder, eyes.may_change);
            Reading::Standby(Box::new(StandbyReading { described }))
        }
        Question::Tunnels(asked) => {
            Reading::Tunnels(Box::new(provider::tunnels(asked, eyes.folder, eyes.may_change)))
        }
        Question::Trial(asked) if eyes.may_change => {
            Reading::Trial(trial::trial(asked, eyes.hands)?)
        }
        Question::Core(asked) => Reading::Core(Box::new(core::look(asked)?)),
        Question::Outline(source) => Reading::Outline(Box::new(discover::outline(source))),
        Question::Delays(asked) => Reading::Delays(delays::ask(asked)?),
        Question::Gost(asked) => Reading::Gost(Box::new(gost::look(asked)?)),
        Question::Nodes(checks) => Reading::Nodes(node::check_all(checks)?),
        Question::Setting(asked) => Reading::Setting(setting::read(asked)),
        Question::Carried(asked) => Reading::Carried(carried::look(asked)?),
        Question::Wait { millis, .. } => {
            clock::pause(Duration::from_millis(*millis));
            Reading::Waited
        }
        Question::Trial(_) => {
            Reading::Trial(TrialReading { at: clock::now()?, result: TrialResult::Assumed })
        }
    })
}
