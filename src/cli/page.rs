//! The status page of all policies, written where the site wants it.
//!
//! **Invariant:** a page is a service: what goes wrong with it is said, and fails no step.

use super::kind::{self, Manner, Work};
use super::{Places, complain};
use crate::host::clock;
use crate::host::files::{read_bounded, write_atomically};
use crate::host::policies::last_good;
use crate::host::store::{Folder, ReadOnly, read_only};
use crate::machine::Machine;
use crate::outcome::Report;
use crate::page::day::Day;
use crate::page::{Panel, render};
use crate::record::Record;
use crate::status::Head;
use crate::step::Order;
use crate::time::Moment;
use anyhow::Context as _;
use std::path::Path;

/// What is shown is what the last step wrote, whoever stepped it.
const MANNER: Manner = Manner { adopt: true, now: true };
/// A web server runs as another user.
const PAGE_MODE: u32 = 0o644;
/// As the rest of the state.
const DAY_MODE: u32 = 0o600;
/// A part takes less than 200 bytes of it; this is room for 5,000 of them.
const DAY_MAX_BYTES: usize = 1024 * 1024;
/// So many of the last steps of history are looked through for transitions.
const LINES: usize = 200;
/// So many transitions are shown.
const TRANSITIONS: usize = 8;

/// Writes the page.
pub(super) fn write(places: &Places, file: &Path) {
    let written = page(places).and_then(|text| {
        let folder = file.parent().unwrap_or(file);
        anyhow::ensure!(
            folder.is_dir(),
            "there is no folder {}: make it, or correct page",
            folder.display()
        );
        write_atomically(file, text.as_bytes(), PAGE_MODE)
    });
    if let Err(error) = written {
        complain(&format!("the page {}: {error:#}", file.display()));
    }
}

fn page(places: &Places) -> anyhow::Result<String> {
    let (state_dir, now) = (places.state_dir(), clock::now()?);
    let (mut panels, mut troubles) = (Vec::new(), Vec::new());
    for found in places.find(&[]) {
        let found = match found {
            Ok(found) => found,
            Err(unusable) => {
                troubles.push(unusable.to_string());
                let Some(found) = last_good(&state_dir, &unusable) else { continue };
                found
            }
        };
        match kind::with(&found, &state_dir, MANNER, Show { now: &now }) {
            Ok(panel) => panels.push(panel),
            Err(error) => troubles.push(format!("{error:#}")),
        }
    }
    render(&panels, &troubles, now.at)
}

struct Show<'a> {
    now: &'a Moment,
}

impl Work for Show<'_> {
    type Done = anyhow::Result<Panel>;

    fn with<M: Machine>(self, order: &Order<'_, M>) -> Self::Done {
        let folder = Folder::new(order.state_dir, order.name.clone());
        let record: Record<M::State> = match read_only(&folder, M::KIND.as_str()) {
            ReadOnly::Newer { found, known } => anyhow::bail!(
                "state of {} has format version {found}, newer than {known}: use the newer egressctl",
                order.name
            ),
            ReadOnly::Seen { loaded, .. } => loaded.body().cloned().unwrap_or_default(),
        };
        let (status, standing) = M::status(order.name, order.policy, &record, self.now);
        let shown = M::shown(&status);
        let day = match &record.last_step {
            Some(last) => {
                let rows = shown.groups.iter().flat_map(|group| &group.rows);
                counted(&folder, |day| day.count(last.at.at, rows))?
            }
            None => Day::default(),
        };
        let stands = record.machine.as_ref().map(M::stands);
        Ok(Panel {
            head: Head::new(order.name, M::KIND.as_str(), &record, stands),
            standing,
            shown,
            day,
            history: transitions(&folder.history(LINES)?),
        })
    }
}

/// The day of a policy, with the last step counted in it.
fn counted(folder: &Folder, count: impl FnOnce(&mut Day)) -> anyhow::Result<Day> {
    let file = folder.path().join("day.json");
    // A day that cannot be read begins anew: nothing depends on it.
    let before: Day = read_bounded(&file, DAY_MAX_BYTES)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let mut day = before.clone();
    count(&mut day);
    if day != before {
        let bytes = serde_json::to_vec(&day)?;
        write_atomically(&file, &bytes, DAY_MODE).context("the day of a policy")?;
    }
    Ok(day)
}

/// The last transitions in lines of history, the newest first.
fn transitions(lines: &[String]) -> Vec<Report> {
    let read = lines.iter().rev().filter_map(|line| serde_json::from_str::<Report>(line).ok());
    read.filter(|report| report.transition().is_some()).take(TRANSITIONS).collect()
}
