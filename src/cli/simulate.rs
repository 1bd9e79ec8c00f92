//! `egressctl simulate`: plays a scripted world.
//!
//! **Invariant:** two files at most are read, and nothing else is touched.

use super::{complain, say};
use crate::host::policies::read_text;
use crate::names::PolicyName;
use crate::outcome::Exit;
use crate::policy::PoolPolicy;
use crate::simulate::lines::Lines;
use crate::simulate::scenario::{PolicySource, Scenario};
use std::path::Path;

/// Prints the timeline of a scenario, a moment as soon as it was played.
pub(super) fn simulate(path: &Path, json: bool) -> u8 {
    let (scenario, name, policy) = match read(path) {
        Ok(read) => read,
        Err(why) => {
            complain(&why);
            return Exit::Invalid.code();
        }
    };
    let mut lines = Lines::default();
    for entry in scenario.play(name, policy) {
        if json {
            match serde_json::to_string(&entry) {
                Ok(line) => say(&line),
                Err(error) => complain(&format!("the timeline cannot be written: {error}")),
            }
        } else {
            lines.of(entry).iter().for_each(|line| say(line));
        }
    }
    lines.rest().iter().for_each(|line| say(line));
    Exit::Fine.code()
}

/// Reads a scenario and its policy, which is called as its file is.
fn read(path: &Path) -> Result<(Scenario, PolicyName, PoolPolicy), String> {
    let shown = path.display();
    let text = read_text(path).map_err(|why| format!("scenario {shown} {why}"))?;
    let scenario = Scenario::parse(&text).map_err(|fault| format!("scenario {shown}: {fault}"))?;
    let (file, policy) = match &scenario.policy {
        PolicySource::Inline(policy) => (path.to_owned(), policy.as_ref().clone()),
        PolicySource::File(relative) => {
            let file = path.parent().unwrap_or(Path::new("")).join(relative);
            let shown = file.display();
            let text = read_text(&file).map_err(|why| format!("policy {shown} {why}"))?;
            let policy =
                PolicySource::read(&text).map_err(|fault| format!("policy {shown}: {fault}"))?;
            (file, policy)
        }
    };
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = PolicyName::try_from(stem)
        .map_err(|why| format!("{}: {why}: rename the file", file.display()))?;
    Ok((scenario, name, policy))
}
