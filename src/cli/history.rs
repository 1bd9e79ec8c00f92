//! `egressctl history`.
//!
//! **Invariant:** a step is a row: when, from where to where, and what happened; no row is left out.

use super::screen::{fitted, fold};
use super::{HistoryArgs, Places, complain, say};
use crate::host::store::Folder;
use crate::host::terminal;
use crate::outcome::{Exit, Report};

/// Between two columns.
const GAP: &str = "  ";

/// With less room than this beside the others, what happened stands on lines of its own.
const LEAST_ROOM: usize = 40;

/// How far it is indented there.
const INDENT: usize = 4;

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
    if args.json {
        for line in lines {
            say(&line);
        }
        return Exit::Fine.code();
    }
    let screen = terminal::screen();
    let rows: Vec<Row> = lines.iter().map(|line| Row::of(line)).collect();
    for row in table(&rows, screen.width) {
        say(&fitted(&row, screen));
    }
    Exit::Fine.code()
}

/// One step.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    when: String,
    went: String,
    what: String,
}

impl Row {
    /// A line of another version is shown as it is.
    fn of(line: &str) -> Self {
        let Ok(report) = serde_json::from_str::<Report>(line) else {
            return Self { when: String::new(), went: String::new(), what: line.to_owned() };
        };
        Self {
            when: report.at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
            went: report.state(),
            what: report.story(),
        }
    }
}

/// The rows in columns, where these leave room for what happened, each folded to its width.
fn table(rows: &[Row], width: Option<usize>) -> Vec<String> {
    let widest = |cell: fn(&Row) -> &String| {
        rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or_default()
    };
    let (when, went) = (widest(|row| &row.when), widest(|row| &row.went));
    let before: usize =
        [when, went].into_iter().filter(|width| *width > 0).map(|width| width + GAP.len()).sum();
    let is_wide = width.is_none_or(|width| width >= before + LEAST_ROOM);
    let folded = |text: &str, indent: usize| {
        width.map_or_else(|| text.to_owned(), |width| fold(text, width, indent))
    };
    let cell = |text: &str, width: usize| {
        if width == 0 { String::new() } else { format!("{text:<width$}{GAP}") }
    };
    let row = |row: &Row| {
        let (when, went) = (cell(&row.when, when), cell(&row.went, went));
        if is_wide {
            return folded(&format!("{when}{went}{}", row.what), before);
        }
        let what = format!("{}{}", " ".repeat(INDENT), row.what);
        format!("{}\n{}", format!("{when}{went}").trim_end(), folded(&what, INDENT))
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |from: &str, to: &str, outcome: &str, text: &str| {
            let line = serde_json::json!({
                "policy": "home", "kind": "pool", "at": "2026-11-30T03:42:36Z", "from": from,
                "to": to, "outcome": outcome, "reasons": [{ "code": "x", "text": text }],
                "changes": 1, "duration_ms": 5,
            });
            Row::of(&line.to_string())
        };
        vec![
            row("NORMAL", "LOCAL_REPAIR", "applied", "vpn3 silent for 2 checks; 4 clients moved"),
            row("NORMAL", "NORMAL", "rolled-back", "the WAN went down"),
        ]
    }

    #[test]
    fn a_step_is_a_row_in_columns() {
        assert_eq!(
            table(&rows(), None),
            [
                "2026-11-30 03:42:36Z  NORMAL -> LOCAL_REPAIR  vpn3 silent for 2 checks; 4 clients moved",
                "2026-11-30 03:42:36Z  NORMAL                  rolled-back: the WAN went down",
            ]
        );
    }

    #[test]
    fn what_happened_stays_in_its_column_or_has_lines_of_its_own() {
        assert_eq!(
            table(&rows(), Some(86))[0],
            "2026-11-30 03:42:36Z  NORMAL -> LOCAL_REPAIR  vpn3 silent for 2 checks; 4 clients\n\
             \x20                                             moved"
        );
        assert_eq!(
            table(&rows(), Some(44)),
            [
                "2026-11-30 03:42:36Z  NORMAL -> LOCAL_REPAIR\n    vpn3 silent for 2 checks; 4 clients\n    moved",
                "2026-11-30 03:42:36Z  NORMAL\n    rolled-back: the WAN went down",
            ]
        );
    }

    #[test]
    fn what_cannot_be_read_is_shown_as_it_is() {
        let rows = [Row::of("from the future")];
        assert_eq!(table(&rows, None), ["from the future"]);
    }
}
