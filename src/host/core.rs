//! Looks at a proxy core: what its API says, which process it is, what its own files say.
//!
//! **Invariant:** whatever cannot be seen is told as that; the core and its files are left as they are.

mod process;

use super::{clash, clock, discover};
use crate::clash::config;
use crate::observation::{
    ConfigReading, CoreConfig, CoreFault, CoreQuestion, CoreReading, CoreSeen, GroupFault, Life,
    Process, Program, Traffic,
};
use crate::setting::Control;
use std::collections::BTreeMap;

/// Looks.
///
/// # Errors
/// When the clock cannot be read.
pub fn look(question: &CoreQuestion) -> anyhow::Result<CoreReading> {
    let core = seen(question);
    Ok(CoreReading { at: clock::now()?, core })
}

fn seen(question: &CoreQuestion) -> Result<CoreSeen, CoreFault> {
    let core = &clash::reach(&question.core)?;
    let (program, version) = clash::version(core)?;
    let groups = question.groups.iter();
    let groups = groups.map(|name| Ok((name.clone(), clash::group(core, name)?)));
    let mut groups = groups.collect::<Result<BTreeMap<String, _>, CoreFault>>()?;
    if groups.values().any(|group| *group == Err(GroupFault::Missing)) {
        // Newer mihomo does not show what a provider brought among its proxies.
        let provided = clash::provided(core)?;
        for (name, group) in &mut groups {
            if let (Err(GroupFault::Missing), Some(of)) = (&group, provided.get(name)) {
                *group = Err(GroupFault::NoGroup { kind: of.kind.clone() });
            }
        }
    }
    let traffic = question.traffic.then(|| clash::traffic(core)).transpose()?;
    let process = process::of(&core.control(), question.process.as_ref());
    let totals = |traffic: &Traffic| (traffic.received, traffic.sent);
    let life = Life {
        totals: traffic.as_ref().and_then(|traffic| traffic.as_ref().ok()).map(totals),
        process,
    };
    let config = if question.config {
        configuration(question, program, &life)
    } else {
        ConfigReading::Unasked
    };
    Ok(CoreSeen { program, version, life, groups, traffic, config })
}

/// Who listens there, if that can be seen.
pub(super) fn process(control: &Control, known: Option<&Process>) -> Option<Process> {
    process::of(control, known)
}

fn configuration(question: &CoreQuestion, program: Program, life: &Life) -> ConfigReading {
    let named = match &question.core.control {
        Control::Found(source) => Some(source),
        Control::Http(_) | Control::Unix(_) => question.core.secret_in.as_ref(),
    };
    let read = match (&life.process, named) {
        (_, Some(source)) => discover::config(source),
        (Some(process), None) => of_process(process.pid, program),
        (None, None) => Err("the core's process is not seen".to_owned()),
    };
    match read {
        Ok(config) => ConfigReading::Read(config),
        Err(why) => ConfigReading::Unread(why),
    }
}

/// What the files say that a process was started with.
fn of_process(pid: u32, program: Program) -> Result<CoreConfig, String> {
    let words = discover::words(pid).map_err(|why| format!("the core's arguments: {why}"))?;
    let found = config::sources(program, words.get(1..).unwrap_or_default());
    let texts = discover::texts(pid, &found).map_err(|fault| fault.to_string())?;
    let texts: Vec<String> = texts.into_iter().map(|(_, text)| text).collect();
    config::read(program, &texts)
}
