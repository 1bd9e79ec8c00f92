//! Fits text to a terminal: colours for what is good and bad, and lines no longer than it is wide.
//!
//! **Invariant:** without a terminal the text stays as it is, to the letter.

use crate::host::terminal::Screen;

/// How far a line that goes on is indented beyond its beginning.
const HANGING: usize = 4;

/// Narrower than this nothing is folded: every word would have a line of its own.
const NARROWEST: usize = 30;

const GOOD: &str = "\u{1b}[32m";
const WARNING: &str = "\u{1b}[33m";
const BAD: &str = "\u{1b}[31m";
const PLAIN: &str = "\u{1b}[0m";

/// The text as a screen shows it best.
pub(super) fn fitted(text: &str, screen: Screen) -> String {
    let lines = text.lines().map(|line| {
        let folded = match screen.width {
            Some(width) => fold(line, width, indent_of(line) + HANGING),
            None => line.to_owned(),
        };
        if screen.colour { painted(&folded) } else { folded }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn indent_of(line: &str) -> usize {
    line.chars().take_while(|c| *c == ' ').count()
}

/// A line in pieces no longer than `width`, cut at blanks, the later ones indented by `indent`. A word
/// that is longer than a line stays whole.
pub(super) fn fold(line: &str, width: usize, indent: usize) -> String {
    let long = |text: &str| text.chars().count();
    if long(line) <= width || width < NARROWEST {
        return line.to_owned();
    }
    let mut folded = String::new();
    let mut column = 0;
    let mut rest = line;
    while !rest.is_empty() {
        let blanks = rest.chars().take_while(|c| *c == ' ').count();
        let word_and_more = rest.trim_start_matches(' ');
        let end = word_and_more.find(' ').unwrap_or(word_and_more.len());
        let (word, more) = word_and_more.split_at(end);
        if column > 0 && column + blanks + long(word) > width && !word.is_empty() {
            folded.push('\n');
            folded.push_str(&" ".repeat(indent));
            column = indent;
        } else {
            folded.push_str(&" ".repeat(blanks));
            column += blanks;
        }
        folded.push_str(word);
        column += long(word);
        rest = more;
    }
    folded
}

/// The colour of a word, where it has one: a state's name, a slot's health, how a step ended.
fn colour_of(word: &str) -> Option<&'static str> {
    match word.trim_end_matches([',', ':', ';', '.', ')']).trim_start_matches('(') {
        "NORMAL" | "healthy" => Some(GOOD),
        "LOCAL_REPAIR" | "FULL_POOL_REFRESH" | "DEGRADED_POOL" | "SLOT_EXHAUSTED" | "unknown"
        | "empty" | "lent" | "paused" | "rolled-back" | "recovered" => Some(WARNING),
        "DIRECT_EMERGENCY" | "BOOTSTRAP_RECOVERY" | "failed" | "unprotected" => Some(BAD),
        _ => None,
    }
}

fn painted(text: &str) -> String {
    let mut painted = String::with_capacity(text.len());
    let mut word = String::new();
    for c in text.chars().map(Some).chain([None]) {
        match c {
            Some(c) if !c.is_whitespace() => word.push(c),
            Some(_) | None => {
                match colour_of(&word) {
                    Some(colour) => painted.extend([colour, &word, PLAIN]),
                    None => painted.push_str(&word),
                }
                word.clear();
                painted.extend(c);
            }
        }
    }
    painted
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "home (pool)  NORMAL since 2026-11-30\n  vpn1  failed  p8  2 clients  since 2026-11-30 03:42:36Z  silent (2 failed checks)";

    #[test]
    fn without_a_terminal_a_text_stays_as_it_is() {
        assert_eq!(fitted(TEXT, Screen::default()), TEXT);
    }

    #[test]
    fn no_line_is_longer_than_the_terminal_is_wide_and_no_word_is_lost() {
        for width in [30, 40, 60, 79] {
            let screen = Screen { is_terminal: true, width: Some(width), colour: false };
            let shown = fitted(TEXT, screen);
            assert!(shown.lines().all(|line| line.chars().count() <= width), "{width}:\n{shown}");
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&shown), words(TEXT));
        }
        let narrow = Screen { is_terminal: true, width: Some(10), colour: false };
        assert_eq!(fitted(TEXT, narrow), TEXT);
    }

    #[test]
    fn what_is_good_and_what_is_bad_has_its_colour_and_the_rest_has_none() {
        let screen = Screen { is_terminal: true, width: None, colour: true };
        let shown = fitted("home NORMAL\n  vpn1  failed  nl-failed", screen);
        assert_eq!(
            shown,
            "home \u{1b}[32mNORMAL\u{1b}[0m\n  vpn1  \u{1b}[31mfailed\u{1b}[0m  nl-failed"
        );
    }
}
