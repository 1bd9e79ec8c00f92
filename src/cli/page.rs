//! The status page of all policies, written where the site wants it.
//!
//! **Invariant:** a page is a service: what goes wrong with it is said, and fails no step.

use super::kind::{self, Manner, Work};
use super::{Places, complain, day};
use crate::host::clock;
use crate::host::files::write_atomically;
use crate::host::policies::last_good;
use crate::host::store::{Folder, ReadOnly, read_only};
use crate::machine::Machine;
use crate::outcome::Report;
use crate::page::{Panel, render};
use crate::record::Record;
use crate::status::Head;
use crate::step::Order;
use crate::time::Moment;
use std::path::Path;

/// What is shown is what the last step wrote, whoever stepped it.
const MANNER: Manner = Manner { adopt: true, now: true };
/// A web server runs as another user.
const PAGE_MODE: u32 = 0o644;
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
        let day = day::counted(&folder, record.last_step.as_ref().map(|last| last.at.at), &shown)?;
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

/// The last transitions in lines of history, the newest first.
fn transitions(lines: &[String]) -> Vec<Report> {
    let read = lines.iter().rev().filter_map(|line| serde_json::from_str::<Report>(line).ok());
    read.filter(|report| report.transition().is_some()).take(TRANSITIONS).collect()
}
