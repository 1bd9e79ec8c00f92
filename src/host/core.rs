//! Looks at a proxy core: what its API says, which process it is, what its own files say.
//!
//! **Invariant:** whatever cannot be seen is told as that; the core and its files are left as they are.

mod process;

use super::{clash, clock};
use crate::clash::config;
use crate::observation::{
    ConfigReading, CoreFault, CoreQuestion, CoreReading, CoreSeen, Life, Process, Program, Traffic,
};
use crate::setting::Control;

/// Looks.
///
/// # Errors
/// When the clock cannot be read.
pub fn look(question: &CoreQuestion) -> anyhow::Result<CoreReading> {
    let core = seen(question);
    Ok(CoreReading { at: clock::now()?, core })
}

fn seen(question: &CoreQuestion) -> Result<CoreSeen, CoreFault> {
    let core = &question.core;
    let (program, version) = clash::version(core)?;
    let groups = question.groups.iter();
    let groups = groups.map(|name| Ok((name.clone(), clash::group(core, name)?)));
    let groups = groups.collect::<Result<_, _>>()?;
    let traffic = question.traffic.then(|| clash::traffic(core)).transpose()?;
    let process = process::of(&core.control, question.process.as_ref());
    let totals = |traffic: &Traffic| (traffic.received, traffic.sent);
    let life = Life {
        totals: traffic.as_ref().and_then(|traffic| traffic.as_ref().ok()).map(totals),
        process,
    };
    let config =
        if question.config { configuration(program, &life) } else { ConfigReading::Unasked };
    Ok(CoreSeen { program, version, life, groups, traffic, config })
}

/// Who listens there, if that can be seen.
pub(super) fn process(control: &Control, known: Option<&Process>) -> Option<Process> {
    process::of(control, known)
}

fn configuration(program: Program, life: &Life) -> ConfigReading {
    let Some(process) = &life.process else {
        return ConfigReading::Unread("the core's process is not seen".to_owned());
    };
    let read = process::configuration(process.pid, |words| config::sources(program, words))
        .and_then(|texts| config::read(program, &texts));
    match read {
        Ok(config) => ConfigReading::Read(config),
        Err(why) => ConfigReading::Unread(why),
    }
}
