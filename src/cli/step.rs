//! `egressctl step`.

use super::kind::{self, Manner, Work};
use super::{Places, StepArgs, Taken, complain, note, say, tell};
use crate::bundle::{self, Blank, Witness};
use crate::explain::Explain;
use crate::host::files::write_atomically;
use crate::host::policies::keep;
use crate::host::secrets;
use crate::host::{clock, side_by_side, waiter};
use crate::machine::Machine;
use crate::outcome::{Ending, Exit, Report};
use crate::step::Order;
use crate::time::Moment;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

/// Nobody else has to read what a gateway does.
const MODE: u32 = 0o600;

/// Steps the policies side by side, prints a line each in their order, and gives the worst code.
pub(super) fn step(places: &Places, args: &StepArgs) -> u8 {
    let state_dir = places.state_dir();
    let mut worst = Exit::Fine;
    let mut all = Vec::new();
    for found in places.find(&args.wanted.policies) {
        if found.is_err() {
            worst = worst.max(Exit::Invalid);
        }
        all.extend(Taken::of(found, &state_dir));
    }
    // A journal would be filled with the same line at every step.
    if std::io::stderr().is_terminal() {
        for taken in &all {
            note(&taken.found);
        }
    }
    let manner = Manner { adopt: args.adopt, now: args.now || args.try_sec.is_some() };
    let trial = args.try_sec.map(|sec| Duration::from_secs(u64::from(sec)));
    let tells = args.explain || args.record.is_some();
    let done = side_by_side(&all, |taken| match trial {
        None => one(taken, &state_dir, manner, One { trial: None, tells }),
        Some(wait) => match wait_for(taken, places, wait) {
            Ok(()) => one(taken, &state_dir, manner, One { trial, tells }),
            Err(error) => (nobody_waits(taken, &error), None),
        },
    });
    if let Some(file) = &args.record {
        worst = worst.max(record(file, &all, &done));
    }
    let reports: Vec<Report> = done
        .into_iter()
        .map(|(mut report, witness)| {
            report.explain = witness.filter(|_| args.explain).map(|witness| witness.explain);
            report
        })
        .collect();
    let looked_at_nothing = |report: &Report| match report.outcome {
        Ending::NotDue | Ending::Busy => true,
        Ending::Steady
        | Ending::Applied
        | Ending::RolledBack
        | Ending::Recovered
        | Ending::Failed => false,
    };
    // Where no policy could be stepped, that is what has to be told.
    let is_news = reports.is_empty() || !reports.iter().all(looked_at_nothing);
    for report in &reports {
        worst = worst.max(report.exit);
        if args.json {
            match serde_json::to_string(report) {
                Ok(line) => say(&line),
                Err(error) => complain(&format!("the report cannot be written: {error}")),
            }
        } else {
            tell::line(report);
            report.explain.iter().flat_map(Explain::lines).for_each(|line| say(&line));
        }
    }
    if is_news {
        worst = worst.max(tell::world(places, &reports));
    }
    worst.code()
}

/// Steps a policy, and keeps its text for the day on which its file is invalid.
fn one(taken: &Taken, state_dir: &Path, manner: Manner, one: One) -> (Report, Option<Witness>) {
    let (mut report, witness) = kind::with(&taken.found, state_dir, manner, one);
    if let Some(why) = &taken.invalid {
        let exit = report.exit.max(Exit::Invalid);
        report = report.because("policy-invalid", why.clone());
        report.exit = exit;
        return (report, witness);
    }
    let report = match report.outcome {
        Ending::Steady | Ending::Applied | Ending::RolledBack | Ending::Recovered => {
            match keep(state_dir, &taken.found) {
                Ok(()) => report,
                Err(error) => report.because("state", format!("{error:#}")),
            }
        }
        Ending::Failed | Ending::Busy | Ending::NotDue => report,
    };
    (report, witness)
}

/// Writes what decisions were made of, a line a policy.
fn record(file: &Path, all: &[Taken], done: &[(Report, Option<Witness>)]) -> Exit {
    let line = |(taken, (report, witness)): (&Taken, &(Report, Option<Witness>))| {
        let witness = witness.as_ref()?;
        let kind = taken.found.policy.kind();
        let blank = Blank::of(&secrets::held_by(&taken.found.text));
        Some(bundle::text(report, witness, kind, &taken.found.text, &blank))
    };
    let written = (|| {
        let lines: Vec<String> =
            all.iter().zip(done).filter_map(line).collect::<anyhow::Result<_>>()?;
        anyhow::ensure!(!lines.is_empty(), "nothing was decided, so there is nothing to record");
        let file = std::path::absolute(file)?;
        write_atomically(&file, (lines.join("\n") + "\n").as_bytes(), MODE)
    })();
    match written {
        Ok(()) => Exit::Fine,
        Err(error) => {
            complain(&format!("recording to {}: {error:#}", file.display()));
            Exit::Failed
        }
    }
}

/// Has somebody come back when the trial is over. He is there before anything is changed, for the
/// change may end the session that it is made from.
fn wait_for(taken: &Taken, places: &Places, wait: Duration) -> anyhow::Result<()> {
    let folder = |path: &Path| std::path::absolute(path).map(|path| path.display().to_string());
    let args = [
        "--policy-dir".to_owned(),
        folder(&places.policy_dir)?,
        "--state-dir".to_owned(),
        folder(&places.state_dir())?,
        "confirm".to_owned(),
        "--give-up".to_owned(),
        taken.found.path.display().to_string(),
    ];
    waiter::come_back(taken.found.name.as_str(), wait, &args)
}

/// Nothing is tried where nobody would undo it.
fn nobody_waits(taken: &Taken, error: &anyhow::Error) -> Report {
    let now = clock::now().unwrap_or_else(|_| Moment::epoch());
    Report::new(&taken.found.name, taken.found.policy.kind().as_str(), &now)
        .because("failed", format!("nobody would undo it, so nothing was tried: {error:#}"))
        .ended(Ending::Failed, Exit::Failed)
}

/// A step of one policy.
#[derive(Clone, Copy)]
struct One {
    /// How long what it changes is on trial.
    trial: Option<Duration>,
    /// Whether it tells what it has seen and decided.
    tells: bool,
}

impl Work for One {
    type Done = (Report, Option<Witness>);

    fn with<M: Machine>(self, order: &Order<'_, M>) -> Self::Done {
        match self.trial {
            Some(wait) => (crate::step::try_out(order, wait), None),
            None if self.tells => crate::step::witnessed(order),
            None => (crate::step::step(order), None),
        }
    }
}
