//! `egressctl history`.

use super::screen::fitted;
use super::{HistoryArgs, Places, complain, say};
use crate::host::store::Folder;
use crate::host::terminal;
use crate::outcome::{Exit, Report};

/// Prints past steps, the newest last.
pub(super) fn history(places: &Places, args: &HistoryArgs) -> u8 {
    let found = match places.find(std::slice::from_ref(&args.policy)).pop() {
        Some(Ok(found)) => found,
        Some(Err(unusable)) => {
            complain(&unusable.to_string());
            return Exit::Invalid.code();
        }
        None => return Exit::Invalid.code(),
    };
    let lines = match Folder::new(&places.state_dir(), found.name).history(args.n) {
        Ok(lines) => lines,
        Err(error) => {
            complain(&format!("{error:#}"));
            return Exit::Failed.code();
        }
    };
    let screen = terminal::screen();
    for line in lines {
        if args.json {
            say(&line);
            continue;
        }
        // A line of another version is shown as it is.
        match serde_json::from_str::<Report>(&line) {
            Ok(report) => {
                let told = format!("{} {report}", report.at.strftime("%Y-%m-%d %H:%M:%SZ"));
                say(&fitted(&told, screen));
            }
            Err(_) => say(&line),
        }
    }
    Exit::Fine.code()
}
