//! How each part of a policy was in the last 24 hours: for the bars of the page, and for the figures that
//! are published.
//!
//! A step remembers what earlier ones have seen of a part that it did not check. That is shown, and was
//! counted when it was seen.
//!
//! **Invariant:** what is kept is bounded whatever the interval is: two letters each quarter of an hour,
//! 192 a part, and no part that the policy has not shown for a day.

use crate::page::{Health, Row};
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
    /// The quarters before this one, the latest last, each as `Quarter::letters` has it.
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
    /// So many percent of the checks passed; 0: none, 100: all.
    Passed(u8),
}

impl Quarter {
    /// As it is kept: `..`, `??`, `ok` where all passed, otherwise the percent.
    fn letters(self) -> String {
        match self {
            Self::Nothing => "..".to_owned(),
            Self::Unknown => "??".to_owned(),
            Self::Passed(100..) => "ok".to_owned(),
            Self::Passed(percent) => format!("{percent:02}"),
        }
    }

    /// What was kept; what nobody keeps is nothing.
    fn read(letters: &str) -> Self {
        match letters {
            "ok" => Self::Passed(100),
            "??" => Self::Unknown,
            percent => percent.parse().map_or(Self::Nothing, Self::Passed),
        }
    }
}

/// Which quarter a moment is in.
fn quarter(at: Timestamp) -> i64 {
    at.as_second().div_euclid(QUARTER_SEC)
}

impl Part {
    /// What this quarter was like up to now.
    fn current(&self) -> Quarter {
        match self.good.saturating_add(self.bad) {
            0 if self.unknown > 0 => Quarter::Unknown,
            0 => Quarter::Nothing,
            all if self.good == all => Quarter::Passed(100),
            _ if self.good == 0 => Quarter::Passed(0),
            // All that failed and all that passed are told from nearly all.
            all => {
                let percent = u64::from(self.good) * 100 / u64::from(all);
                Quarter::Passed(u8::try_from(percent.clamp(1, 99)).unwrap_or(99))
            }
        }
    }

    /// The day that ends with `now`, the latest quarter last, always `QUARTERS` of them.
    fn quarters(&self, now: i64) -> Vec<Quarter> {
        let most = usize::try_from(QUARTERS).unwrap_or(0);
        let passed = usize::try_from((now - self.quarter).clamp(0, QUARTERS)).unwrap_or(0);
        let (pairs, _) = self.past.as_bytes().as_chunks::<2>();
        let past = pairs.iter().map(|pair| Quarter::read(str::from_utf8(pair).unwrap_or_default()));
        let mut all: Vec<Quarter> = past.chain([self.current()]).collect();
        all.extend(std::iter::repeat_n(Quarter::Nothing, passed));
        let from = all.len().saturating_sub(most);
        let missing = most.saturating_sub(all.len());
        std::iter::repeat_n(Quarter::Nothing, missing).chain(all.split_off(from)).collect()
    }

    /// Moves on to a quarter.
    fn move_on(&mut self, now: i64) {
        if now == self.quarter {
            return;
        }
        // What a clock that was ahead has left would never grow old.
        let quarters = if now > self.quarter { self.quarters(now) } else { Vec::new() };
        let kept = quarters.split_last().map(|(_, past)| past).unwrap_or_default();
        let past = kept.iter().skip_while(|quarter| **quarter == Quarter::Nothing);
        let past = past.map(|quarter| quarter.letters()).collect();
        *self = Self { past, quarter: now, ..Self::default() };
    }

    fn is_empty(&self) -> bool {
        self.past.is_empty() && self.current() == Quarter::Nothing
    }
}

impl Day {
    /// Counts what the step at `step` has seen, which is what was not seen before it began. A step that was
    /// counted is not counted again.
    pub fn count<'a>(&mut self, step: Timestamp, rows: impl IntoIterator<Item = &'a Row>) {
        if self.counted == Some(step) {
            return;
        }
        self.counted = Some(step);
        let now = quarter(step);
        for part in self.parts.values_mut() {
            part.move_on(now);
        }
        for row in rows.into_iter().filter(|row| row.seen.is_some_and(|seen| seen >= step)) {
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
        self.parts.get(part).unwrap_or(&nothing).quarters(quarter(now))
    }

    /// How much of the checked time of the last 24 hours a part passed its checks, in percent, rounded
    /// down to two decimals: each quarter counts alike, the one that runs by what has passed of it.
    /// `None`: none was checked.
    #[must_use]
    pub fn percent(&self, part: &str, now: Timestamp) -> Option<f64> {
        let running = now.as_second().rem_euclid(QUARTER_SEC) + 1;
        let weights = std::iter::once(running).chain(std::iter::repeat(QUARTER_SEC));
        let (mut passed, mut checked) = (0_i64, 0_i64);
        for (quarter, weight) in self.of(part, now).into_iter().rev().zip(weights) {
            if let Quarter::Passed(percent) = quarter {
                passed += i64::from(percent) * weight;
                checked += weight;
            }
        }
        let hundredths = u32::try_from((passed * 100).checked_div(checked)?).ok()?;
        Some(f64::from(hundredths) / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(health: Health) -> Row {
        Row {
            part: "vpn1".to_owned(),
            health,
            seen: Some(Timestamp::MAX),
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
        let failed: Vec<usize> = (0..96).filter(|n| all[*n] != Quarter::Passed(100)).collect();
        assert_eq!(failed, [95 - 49], "the same step counts once: {all:?}");
        assert_eq!(all[46], Quarter::Passed(33));
        let later = day.of("vpn1", at(199 + 10, 0));
        assert_eq!(
            (later[85], later[86], later[95]),
            (Quarter::Passed(100), Quarter::Nothing, Quarter::Nothing)
        );
        assert!(serde_json::to_string(&day).unwrap().len() < 350);
        day.count(at(1_000, 0), []);
        assert_eq!(day.parts.len(), 0, "what is gone for a day is forgotten");
    }

    #[test]
    fn what_an_earlier_step_has_seen_is_not_counted_again() {
        let mut day = Day::default();
        let seen = |seen: Timestamp, health: Health| Row { seen: Some(seen), ..row(health) };
        day.count(at(0, 0), [&seen(at(0, 1), Health::Bad)]);
        day.count(at(0, 10), [&seen(at(0, 10), Health::Good)]);
        assert_eq!(day.percent("vpn1", at(0, 899)), Some(50.0));
        for second in 2..90 {
            day.count(at(0, second * 10), [&seen(at(0, 1), Health::Bad)]);
            day.count(at(0, second * 10 + 5), [&Row { seen: None, ..row(Health::Bad) }]);
        }
        assert_eq!(day.percent("vpn1", at(0, 899)), Some(50.0), "two checks were made");
        day.count(at(1, 0), [&seen(at(0, 1), Health::Bad)]);
        assert_eq!(day.of("vpn1", at(1, 1))[95], Quarter::Nothing, "and none after them");
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

    #[test]
    fn a_percentage_is_of_checked_time_and_never_better_than_it_was() {
        let mut day = Day::default();
        assert_eq!(day.percent("vpn1", at(0, 0)), None, "nothing was checked");
        day.count(at(0, 0), [&row(Health::Unknown)]);
        assert_eq!(day.percent("vpn1", at(0, 0)), None, "nothing was told");
        for n in 1..=96 {
            for check in 0..90 {
                let health = if n == 20 && check == 0 { Health::Bad } else { Health::Good };
                day.count(at(n, check * 10), [&row(health)]);
            }
        }
        // 89 of 90 checks of one quarter: 98 percent of a ninety-sixth.
        assert_eq!(day.percent("vpn1", at(96, 899)), Some(99.97));
        // The quarter in which it fell out of sight is of the length that has passed.
        day.count(at(97, 0), [&row(Health::Bad)]);
        assert_eq!(day.percent("vpn1", at(97, 8)), Some(99.96));
        assert_eq!(day.percent("vpn1", at(97, 899)), Some(98.93));
        // A gateway that was off did not fail.
        assert_eq!(day.percent("vpn1", at(97 + 94, 0)), Some(50.0));
        assert_eq!(day.percent("vpn1", at(97 + 96, 0)), None);
    }

    #[test]
    fn what_is_kept_comes_back_as_it_was() {
        for quarter in
            [Quarter::Nothing, Quarter::Unknown].into_iter().chain((0..=100).map(Quarter::Passed))
        {
            let letters = quarter.letters();
            assert_eq!((letters.len(), Quarter::read(&letters)), (2, quarter), "{letters}");
        }
    }
}
