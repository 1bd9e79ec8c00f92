//! A day as a bar: a piece for each stretch of quarters that were alike.
//!
//! **Invariant:** the pieces of a bar together are as wide as the day.

use crate::day::{Day, Quarter};
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
        Quarter::Passed(100..) => "g",
        Quarter::Passed(50..) => "m",
        Quarter::Passed(_) => "b",
    }
}

impl Bar {
    /// The bar of a part.
    #[must_use]
    pub fn of(day: &Day, part: &str, now: Timestamp) -> Self {
        let mut pieces: Vec<Piece> = Vec::new();
        for (from, quarter) in day.of(part, now).into_iter().enumerate() {
            match pieces.last_mut().filter(|piece| piece.class == class(quarter)) {
                Some(piece) => piece.long += 1,
                None => pieces.push(Piece { from, long: 1, class: class(quarter) }),
            }
        }
        let percent = day.percent(part, now).map(|p| format!("{p} %")).unwrap_or_default();
        let words = if percent.is_empty() {
            "not checked in the last 24 hours".to_owned()
        } else {
            format!("{percent} of the checked time of the last 24 hours passed its checks")
        };
        Self { pieces, words, percent }
    }
}
