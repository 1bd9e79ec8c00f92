//! How each part of a policy was in the last 24 hours.
//!
//! **Invariant:** what is kept is bounded whatever the interval is: a letter each quarter of an hour,
//! 96 a part, and no part that the policy has not shown for a day.

use super::{Health, Row};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A quarter of an hour.
const QUARTER_SEC: i64 = 900;
/// So many of them are 24 hours.
pub const QUARTERS: i64 = 96;

/// The days of a policy's parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Day {
    /// The step that was counted last.
    counted: Option<Timestamp>,
    /// By part.
    parts: BTreeMap<String, Part>,
}

/// The day of one part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    /// The quarters before this one, the latest last: `0` to `9` for the share of checks that passed, 9
    /// for all, `u` where no check told anything, `.` where there was none.
    past: String,
    /// Which quarter this is, since 1970.
    quarter: i64,
    good: u32,
    bad: u32,
    unknown: u32,
}

/// What a quarter of an hour was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quarter {
    /// Nothing was checked.
    Nothing,
    /// Checks told nothing.
    Unknown,
    /// So many ninths of the checks passed.
    Passed(u8),
}

/// Which quarter a moment is in.
fn quarter(at: Timestamp) -> i64 {
    at.as_second().div_euclid(QUARTER_SEC)
}

impl Part {
    /// The letter of this quarter.
    fn letter(&self) -> char {
        match self.good.saturating_add(self.bad) {
            0 if self.unknown > 0 => 'u',
            0 => '.',
            // All that failed and all that passed are told from nearly all.
            all if self.good == all => '9',
            _ if self.good == 0 => '0',
            all => {
                let ninths = u64::from(self.good) * 9 / u64::from(all);
                let ninths = u32::try_from(ninths.clamp(1, 8)).unwrap_or(1);
                char::from_digit(ninths, 10).unwrap_or('1')
            }
        }
    }

    /// The letters of the day that ends with `now`.
    fn letters(&self, now: i64) -> Vec<char> {
        let most = usize::try_from(QUARTERS).unwrap_or(0);
        let passed = usize::try_from((now - self.quarter).clamp(0, QUARTERS)).unwrap_or(0);
        let mut all: Vec<char> = self.past.chars().chain([self.letter()]).collect();
        all.extend(std::iter::repeat_n('.', passed));
        let from = all.len().saturating_sub(most);
        let missing = most.saturating_sub(all.len());
        std::iter::repeat_n('.', missing).chain(all.split_off(from)).collect()
    }

    /// Moves on to a quarter.
    fn move_on(&mut self, now: i64) {
        if now == self.quarter {
            return;
        }
        // What a clock that was ahead has left would never grow old.
        let letters = if now > self.quarter { self.letters(now) } else { Vec::new() };
        let kept = letters.split_last().map(|(_, past)| past).unwrap_or_default();
        let past = kept.iter().collect::<String>().trim_start_matches('.').to_owned();
        *self = Self { past, quarter: now, ..Self::default() };
    }

    fn is_empty(&self) -> bool {
        self.past.is_empty() && self.letter() == '.'
    }
}

impl Day {
    /// Counts what the step at `step` has shown. A step that was counted is not counted again.
    pub fn count<'a>(&mut self, step: Timestamp, rows: impl IntoIterator<Item = &'a Row>) {
        if self.counted == Some(step) {
            return;
        }
        self.counted = Some(step);
        let now = quarter(step);
        for part in self.parts.values_mut() {
            part.move_on(now);
        }
        for row in rows {
            let part = self.parts.entry(row.part.clone()).or_default();
            part.move_on(now);
            let count = match row.health {
                Health::Good => &mut part.good,
                Health::Bad => &mut part.bad,
                Health::Unknown => &mut part.unknown,
                Health::Idle => continue,
            };
            *count = count.saturating_add(1);
        }
        self.parts.retain(|_, part| !part.is_empty());
    }

    /// The day of a part that ends with `now`, the latest quarter last.
    #[must_use]
    pub fn of(&self, part: &str, now: Timestamp) -> Vec<Quarter> {
        let nothing = Part { quarter: quarter(now), ..Part::default() };
        let part = self.parts.get(part).unwrap_or(&nothing);
        let of = |letter: char| match letter.to_digit(10) {
            Some(ninths) => Quarter::Passed(u8::try_from(ninths).unwrap_or(0)),
            None if letter == 'u' => Quarter::Unknown,
            None => Quarter::Nothing,
        };
        part.letters(quarter(now)).into_iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(health: Health) -> Row {
        Row {
            part: "vpn1".to_owned(),
            health,
            name: String::new(),
            note: String::new(),
            in_use: false,
            why: String::new(),
            facts: Vec::new(),
        }
    }

    fn at(quarters: i64, seconds: i64) -> Timestamp {
        Timestamp::from_second((1_000_000 + quarters) * QUARTER_SEC + seconds).unwrap()
    }

    #[test]
    fn a_day_is_remembered_and_no_more() {
        let mut day = Day::default();
        for n in 0..200 {
            for second in 0..3 {
                let health = if n == 150 && second < 2 { Health::Bad } else { Health::Good };
                day.count(at(n, second), [&row(health)]);
                day.count(at(n, second), [&row(Health::Bad)]);
            }
        }
        let all = day.of("vpn1", at(199, 10));
        assert_eq!(all.len(), 96);
        let failed: Vec<usize> = (0..96).filter(|n| all[*n] != Quarter::Passed(9)).collect();
        assert_eq!(failed, [95 - 49], "the same step counts once: {all:?}");
        assert_eq!(all[46], Quarter::Passed(3));
        let later = day.of("vpn1", at(199 + 10, 0));
        assert_eq!(
            (later[85], later[86], later[95]),
            (Quarter::Passed(9), Quarter::Nothing, Quarter::Nothing)
        );
        assert!(serde_json::to_string(&day).unwrap().len() < 250);
        day.count(at(1_000, 0), []);
        assert_eq!(day.parts.len(), 0, "what is gone for a day is forgotten");
    }

    #[test]
    fn a_clock_that_was_ahead_is_forgotten_and_what_told_nothing_is_told_as_that() {
        let mut day = Day::default();
        day.count(at(499, 0), [&row(Health::Bad)]);
        day.count(at(500, 0), [&row(Health::Bad)]);
        day.count(at(3, 0), [&row(Health::Unknown)]);
        let all = day.of("vpn1", at(3, 1));
        assert_eq!(all[95], Quarter::Unknown);
        assert!(all[..95].iter().all(|quarter| *quarter == Quarter::Nothing));
        assert!(day.of("another", at(3, 1)).iter().all(|quarter| *quarter == Quarter::Nothing));
    }
}
