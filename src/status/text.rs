//! The lines that every kind's status has in common: how it stands, rows in columns, what is due.
//!
//! **Invariant:** nothing is said that the JSON does not hold, and no control character gets through.

use super::{Head, Next};
use crate::outcome::harmless;
use jiff::Timestamp;

/// More rows than this are not listed, so that a status fits one screen.
pub(crate) const LISTED: usize = 12;

/// A moment, for people.
pub(crate) fn clock(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// How the policy stands, and why. `unseen` is said of a policy that was stepped and has no state.
pub(crate) fn opening(head: &Head, is_stale: bool, unseen: &str) -> Vec<String> {
    let stands = match (&head.state, &head.last_step) {
        (Some(state), _) => state.as_str(),
        (None, Some(_)) => unseen,
        (None, None) => "never stepped",
    };
    let mut first = format!("{} ({})  {stands}", head.policy, head.kind);
    if let Some(since) = head.since {
        first.push_str(" since ");
        first.push_str(&clock(since));
    }
    if let Some(paused) = head.paused {
        first.push_str(", paused by a person since ");
        first.push_str(&clock(paused));
    }
    let mut lines = vec![first];
    if let Some(last) = head.last_step.as_ref().filter(|_| is_stale) {
        lines.push(format!("out of date: the last step began at {}", clock(last.at)));
    }
    lines.extend(head.reasons.iter().map(|reason| harmless(&reason.text)));
    lines
}

/// Rows in columns; a column that is empty everywhere takes no room.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).filter(|(_, width)| **width > 0);
        let padded = cells.map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The rows that are listed, in their order, and how many are not: all of few, and of many those that
/// have something to tell, as long as there is room.
pub(crate) fn listed<T>(rows: &[T], tells: impl Fn(&T) -> bool) -> (Vec<&T>, Vec<&T>) {
    if rows.len() <= LISTED {
        return (rows.iter().collect(), Vec::new());
    }
    let (mut shown, mut others) = (Vec::new(), Vec::new());
    for row in rows {
        let into = if shown.len() < LISTED && tells(row) { &mut shown } else { &mut others };
        into.push(row);
    }
    (shown, others)
}

/// What is due next.
pub(crate) fn closing(next: &[Next], now: Timestamp) -> Vec<String> {
    let line = |next: &Next| {
        if next.at > now {
            format!("next {} at {}", next.what, clock(next.at))
        } else {
            format!("next {} at once", next.what)
        }
    };
    next.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_rows_those_that_tell_something_are_listed_as_long_as_there_is_room() {
        let few: Vec<usize> = (0..LISTED).collect();
        let (shown, others) = listed(&few, |_| false);
        assert_eq!((shown.len(), others.len()), (LISTED, 0));

        let many: Vec<usize> = (0..100).collect();
        let (shown, others) = listed(&many, |row| row % 40 == 1);
        assert_eq!((shown, others.len()), (vec![&1, &41, &81], 97));
        let (shown, others) = listed(&many, |_| true);
        assert_eq!(shown, many.iter().take(LISTED).collect::<Vec<_>>());
        assert_eq!(others.len(), 100 - LISTED);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_empty_ones_take_no_room() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let lines = columns(&[row(["vpn1", "", "ok"]), row(["é", "", "silent"])]);
        assert_eq!(lines, ["vpn1  ok", "é     silent"]);
        assert!(columns::<3>(&[]).is_empty());
    }
}
