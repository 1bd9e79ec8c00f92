//! What a run tells when it is over: a line, what the site publishes, and whom it notifies.
//!
//! **Invariant:** telling is a service: what goes wrong with it is said, and fails no step.

use super::{Places, complain, publish, say};
use crate::host::policies::site;
use crate::host::{clock, journal, notify, side_by_side};
use crate::notice::{Judgement, Priority, entry, text};
use crate::outcome::{Exit, Report};
use crate::policy::Site;
use crate::policy::notify::Sink;
use std::path::Path;

/// Prints a report's line. The journal is given its fields too, and each line its urgency.
pub(super) fn line(report: &Report) {
    if !journal::hears_output() {
        return say(&report.to_string());
    }
    if !journal::take(&entry(report, journal::unit().as_deref())) {
        say(&format!("<{}>{report}", Priority::of(report).number()));
    }
}

/// Tells the world what the site wants it to know. A site that is not understood is an invalid policy.
pub(super) fn world(places: &Places, reports: &[Report]) -> Exit {
    let site = match site(&places.policy_dir) {
        Err(unusable) => {
            complain(&unusable.to_string());
            return Exit::Invalid;
        }
        Ok(found) => found.map(|(_, site)| site),
    };
    if let Some(site) = site {
        publish::all(places, &site);
        people(&places.state_dir(), &site, reports);
    }
    Exit::Fine
}

/// A message to one.
struct Message<'a> {
    sink: &'a Sink,
    report: &'a Report,
    text: String,
}

/// Tells people, each in a time of his own. What is to be told is noted first: a run that is killed
/// meanwhile tells nobody twice.
fn people(state_dir: &Path, site: &Site, reports: &[Report]) {
    let Ok(now) = clock::now() else { return };
    if site.notify.is_empty() {
        return;
    }
    let machine = notify::machine();
    let mut messages = Vec::new();
    for report in reports {
        let before = notify::ledger(state_dir, &report.policy);
        let (after, judgement) = before.judge(report, &now);
        if after != before
            && let Err(error) = notify::remember(state_dir, &report.policy, &after)
        {
            // Who forgets what was told would tell it at every step.
            complain(&format!("nobody was told of {}: {error:#}", report.policy));
            continue;
        }
        match judgement {
            Judgement::Silent | Judgement::Withhold => {}
            Judgement::Tell { withheld, is_last } => {
                let text = text(&machine, report, withheld, is_last);
                let to = |sink| Message { sink, report, text: text.clone() };
                messages.extend(site.notify.iter().map(to));
            }
        }
    }
    let told = side_by_side(&messages, |one| notify::tell(one.sink, one.report, &one.text));
    for failed in told.into_iter().filter_map(Result::err) {
        complain(&format!("{failed:#}"));
    }
}
