//! A day as a bar: a piece for each stretch of quarters that were alike.
//!
//! **Invariant:** the pieces of a bar together are as wide as the day.

use super::day::{Day, Quarter};
use jiff::Timestamp;

/// A stretch of quarters that were alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins, in quarters.
    pub from: usize,
    /// How many they are.
    pub long: usize,
    /// As the style sheet has it.
    pub class: &'static str,
}

/// A day as a bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Its pieces, the earliest first.
    pub pieces: Vec<Piece>,
    /// The day in words.
    pub words: String,
    /// The share of checks that passed, for people; empty: none was counted.
    pub percent: String,
}

fn class(quarter: Quarter) -> &'static str {
    match quarter {
        Quarter::Nothing => "n",
        Quarter::Unknown => "u",
        Quarter::Passed(9) => "g",
        Quarter::Passed(5..) => "m",
        Quarter::Passed(_) => "b",
    }
}

impl Bar {
    /// The bar of a part.
    #[must_use]
    pub fn of(day: &Day, part: &str, now: Timestamp) -> Self {
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut ninths, mut counted) = (0_u32, 0_u32);
        for (from, quarter) in day.of(part, now).into_iter().enumerate() {
            if let Quarter::Passed(passed) = quarter {
                ninths += u32::from(passed);
                counted += 9;
            }
            match pieces.last_mut().filter(|piece| piece.class == class(quarter)) {
                Some(piece) => piece.long += 1,
                None => pieces.push(Piece { from, long: 1, class: class(quarter) }),
            }
        }
        // Rounded down: what failed once was not there all day.
        let percent = (ninths * 1_000).checked_div(counted);
        let percent = percent.map(|p| format!("{}.{} %", p / 10, p % 10)).unwrap_or_default();
        let words = if percent.is_empty() {
            "not checked in the last 24 hours".to_owned()
        } else {
            format!("about {percent} of the checks of the last 24 hours passed")
        };
        Self { pieces, words, percent }
    }
}
