//! The terminal, where there is one.
//!
//! **Invariant:** what is no terminal, a pipe or the journal, gets plain text, whole lines and no
//! progress.

use crate::names::PolicyName;
use crate::observation::Question;
use std::io::{IsTerminal as _, Write as _};

/// How standard output shows text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// Whether it is a terminal.
    pub is_terminal: bool,
    /// How many columns it has; none known: lines are as long as they are.
    pub width: Option<usize>,
    /// Whether it shows colours, and nobody has asked for none (`NO_COLOR`).
    pub colour: bool,
}

/// Looks at standard output.
#[must_use]
pub fn screen() -> Screen {
    let output = std::io::stdout();
    if !output.is_terminal() {
        return Screen::default();
    }
    let size = rustix::termios::tcgetwinsize(&output).ok();
    let width = size.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
    Screen { is_terminal: true, width, colour: super::environment::wants_colour() }
}

/// Tells a person at a terminal what takes long.
pub fn progress(policy: &PolicyName, questions: &[Question]) {
    let of = |wanted: fn(&Question) -> bool| questions.iter().filter(|q| wanted(q)).count();
    let trials = of(|question| matches!(question, Question::Trial(_)));
    let lists = of(|question| matches!(question, Question::List(_)));
    let mut error = std::io::stderr().lock();
    if !error.is_terminal() {
        return;
    }
    if lists > 0 {
        drop(writeln!(error, "{policy}: fetching the list ..."));
    }
    if trials > 0 {
        let what = crate::outcome::count(trials, "candidate");
        drop(writeln!(error, "{policy}: testing {what} ..."));
    }
}
