//! `egressctl status`.

use super::kind::{self, Manner, Work};
use super::screen::fitted;
use super::{Places, StatusArgs, Taken, complain, note, print};
use crate::host::store::{Folder, ReadOnly, read_only};
use crate::host::{clock, terminal};
use crate::machine::{Machine, ReasonText};
use crate::record::Record;
use crate::status::Standing;
use crate::step::Order;
use crate::time::Moment;
use std::time::Duration;

/// A status is shown of any policy at any time.
const MANNER: Manner = Manner { adopt: true, now: true };

/// How often a status that is watched is shown.
const AGAIN: Duration = Duration::from_secs(2);

/// What makes a terminal begin at its top with nothing on it.
const CLEARED: &str = "\u{1b}[H\u{1b}[2J";

/// Prints how things are, and gives the worst of it; over and over where it is watched, until its
/// reader has gone.
pub(super) fn status(places: &Places, args: &StatusArgs) -> u8 {
    let screen = terminal::screen();
    loop {
        let (text, worst) = once(places, args);
        let cleared = if args.watch && screen.is_terminal { CLEARED } else { "" };
        let shown = if args.json { text } else { fitted(&text, screen) };
        let is_read = shown.is_empty() || print(&format!("{cleared}{shown}"));
        if !args.watch {
            return worst.code();
        }
        if !is_read {
            return Standing::AsWished.code();
        }
        clock::pause(AGAIN);
    }
}

/// How things are, and the worst of it.
fn once(places: &Places, args: &StatusArgs) -> (String, Standing) {
    let state_dir = places.state_dir();
    let mut worst = Standing::AsWished;
    let mut shown = Vec::new();
    let all = places.find(&args.wanted.policies);
    let several = all.len() > 1;
    for found in all {
        if found.is_err() {
            worst = worst.max(Standing::Stale);
        }
        let Some(taken) = Taken::of(found, &state_dir) else { continue };
        note(&taken.found);
        let shown_now = clock::now().map_err(|error| format!("{error:#}")).and_then(|now| {
            let show = Show { now: &now, invalid: taken.invalid };
            kind::with(&taken.found, &state_dir, MANNER, show)
        });
        match shown_now {
            Ok(status) => {
                worst = worst.max(status.standing);
                shown.push(status);
            }
            Err(why) => {
                complain(&why);
                worst = worst.max(Standing::Stale);
            }
        }
    }
    let text = if args.json {
        let objects: Vec<&str> = shown.iter().map(|status| status.json.as_str()).collect();
        match objects.as_slice() {
            _ if several => format!("[{}]", objects.join(",")),
            [one] => (*one).to_owned(),
            // What is wrong with the only policy has been said.
            _ => String::new(),
        }
    } else {
        let texts: Vec<&str> = shown.iter().map(|status| status.text.as_str()).collect();
        texts.join("\n")
    };
    (text, worst)
}

/// A policy's status in both forms.
struct Shown {
    standing: Standing,
    json: String,
    text: String,
}

struct Show<'a> {
    now: &'a Moment,
    /// Why the policy's file cannot be used.
    invalid: Option<String>,
}

impl Work for Show<'_> {
    type Done = Result<Shown, String>;

    fn with<M: Machine>(self, order: &Order<'_, M>) -> Self::Done {
        let folder = Folder::new(order.state_dir, order.name.clone());
        let mut record = match read_only::<Record<M::State>>(&folder, M::KIND.as_str()) {
            ReadOnly::Newer { found: version, known } => {
                return Err(format!(
                    "state of {} has format version {version}, newer than {known}: use the newer egressctl",
                    order.name
                ));
            }
            ReadOnly::Seen { loaded, .. } => loaded.body().cloned().unwrap_or_default(),
        };
        if let (Some(why), Some(last)) = (self.invalid, &mut record.last_step) {
            last.reasons.insert(0, ReasonText::new("policy-invalid", why));
        }
        if let (true, Some(last)) = (folder.trial().exists(), &mut record.last_step) {
            let words =
                format!("undone soon unless somebody says: egressctl confirm {}", order.name);
            last.reasons.insert(0, ReasonText::new("on-trial", words));
        }
        let (status, standing) = M::status(order.name, order.policy, &record, self.now);
        let json = serde_json::to_string(&status)
            .map_err(|error| format!("the status of {} cannot be written: {error}", order.name))?;
        Ok(Shown { standing, json, text: status.to_string() })
    }
}
