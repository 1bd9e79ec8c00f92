//! Answers a machine's questions, all of a round side by side.
//!
//! **Invariant:** trouble with what is asked is a reading; only a look at the kernel that fails is
//! an error, because nothing can be decided without it.

use super::apply::Hands;
use super::{
    carried, clock, core, delays, discover, gost, look, node, pages, provider, resolve, setting,
    trial,
};
use crate::observation::{
    Question, Reading, StandbyReading, Trial, TrialReading, TrialResult, certain,
};
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

/// Answers `questions`, all but trials that were not begun because enough was known before.
///
/// # Errors
/// When the kernel or a clock cannot be read.
pub fn observe(
    questions: Vec<Question>,
    eyes: &Eyes<'_>,
) -> anyhow::Result<Vec<(Question, Reading)>> {
    let questions = if eyes.may_change { questions } else { certain(questions) };
    let trials: Vec<&Trial> =
        questions.iter().filter_map(trial_of).filter(|_| eyes.may_change).collect();
    let is_alone = |question: &&Question| trial_of(question).is_none() || !eyes.may_change;
    let others: Vec<&Question> = questions.iter().filter(is_alone).collect();
    let (tried, others) = std::thread::scope(|threads| {
        // What is answered here needs no thread: the trials, or else the last of the others.
        let here = if trials.is_empty() { others.split_last() } else { None };
        let (here, others) =
            here.map_or((None, others.as_slice()), |(last, others)| (Some(*last), others));
        let started: Vec<_> = others
            .iter()
            .map(|question| Builder::new().spawn_scoped(threads, move || answer(question, eyes)))
            .collect();
        let tried = trial::round(&trials, eyes.hands);
        let here = here.map(|question| answer(question, eyes));
        let join = |thread: io::Result<ScopedJoinHandle<'_, _>>| {
            let thread = thread.context("starting a thread")?;
            thread.join().unwrap_or_else(|_| bail!("a thread that observed panicked"))
        };
        let others: Vec<anyhow::Result<Reading>> =
            started.into_iter().map(join).chain(here).collect();
        (tried, others)
    });
    let (mut tried, mut others) = (tried?.into_iter(), others.into_iter());
    let mut readings = Vec::with_capacity(questions.len());
    for question in questions {
        let reading = if eyes.may_change && trial_of(&question).is_some() {
            tried.next().flatten().map(Reading::Trial)
        } else {
            others.next().transpose()?
        };
        readings.extend(reading.map(|reading| (question, reading)));
    }
    Ok(readings)
}

fn trial_of(question: &Question) -> Option<&Trial> {
    if let Question::Trial(trial) = question { Some(trial) } else { None }
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
        // Nothing may be made: it is assumed to pass.
        Question::Trial(_) => {
            Reading::Trial(TrialReading { at: clock::now()?, result: TrialResult::Assumed })
        }
    })
}
