//! Reads wg-quick files, more strictly than `wg` does: what `wg` would misread silently is refused.
//!
//! **Invariant:** all problems of a file are found in one pass, and a file with a problem gives no
//! configuration.

mod draft;
mod keys;
#[cfg(test)]
mod tests;
mod values;

use super::config::{Section, TunnelConfig};
use super::problem::{MAX_PROBLEMS, Note, Problem, ProblemCode, shown};
use draft::Draft;
use keys::Key;

/// The largest file that is read. A tunnel's file has about 500 bytes; AmneziaWG's junk packets are the
/// only long values.
const LARGEST: usize = 64 * 1024;

/// The longest line: twice the longest junk packet seen, and far from what a terminal can take.
const LONGEST_LINE: usize = 10_000;

/// A file that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The tunnel.
    pub config: TunnelConfig,
    /// What was accepted and will not be done.
    pub notes: Vec<Note>,
}

/// Reads the bytes of a file.
pub fn parse_bytes(bytes: &[u8]) -> Result<Parsed, Vec<Problem>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(text),
        Err(error) => {
            let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = good.split(|b| *b == b'\n').count();
            let utf16 = matches!(bytes, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]);
            let what = if utf16 { "the file is UTF-16" } else { "the bytes are not UTF-8" };
            Err(vec![Problem {
                line: u32::try_from(line).unwrap_or(u32::MAX),
                code: ProblemCode::NotUtf8,
                text: what.to_owned(),
                mend: "save the file as UTF-8 without a byte order mark".to_owned(),
            }])
        }
    }
}

/// Reads the text of a file.
pub fn parse(text: &str) -> Result<Parsed, Vec<Problem>> {
    if text.len() > LARGEST {
        return Err(vec![Problem {
            line: 0,
            code: ProblemCode::TooLarge,
            text: format!("the file has {} bytes, more than {LARGEST}", text.len()),
            mend: "give the configuration of one tunnel".to_owned(),
        }]);
    }
    let mut reader = Reader::default();
    let body = match text.strip_prefix('\u{feff}') {
        Some(rest) => {
            reader.problem(
                1,
                Fault::new(
                    ProblemCode::ByteOrderMark,
                    "the file begins with a byte order mark",
                    "save the file as UTF-8 without a byte order mark",
                ),
            );
            rest
        }
        None => text,
    };
    for (number, line) in (1_u32..).zip(body.split('\n')) {
        if let Err(fault) = reader.line(number, line) {
            reader.problem(number, fault);
        }
    }
    reader.finish()
}

/// A problem before it is known on which line it stands.
struct Fault {
    code: ProblemCode,
    text: String,
    mend: String,
}

impl Fault {
    fn new(code: ProblemCode, text: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { code, text: text.into(), mend: mend.into() }
    }

    fn at(self, line: u32) -> Problem {
        Problem { line, code: self.code, text: self.text, mend: self.mend }
    }
}

/// Where the reader stands.
#[derive(Clone, Copy, Default)]
enum Place {
    /// Before the first section.
    #[default]
    Start,
    /// In a section that exists.
    In(Section),
    /// In a section that does not: it was reported once, its lines are not.
    Unknown,
}

#[derive(Default)]
struct Reader {
    place: Place,
    draft: Draft,
    problems: Vec<Problem>,
    notes: Vec<Note>,
}

impl Reader {
    fn problem(&mut self, line: u32, fault: Fault) {
        self.problems.push(fault.at(line));
    }

    fn line(&mut self, number: u32, line: &str) -> Result<(), Fault> {
        if line.len() > LONGEST_LINE {
            return Err(Fault::new(
                ProblemCode::LineTooLong,
                format!("the line has {} bytes, more than {LONGEST_LINE}", line.len()),
                "shorten it",
            ));
        }
        let line = line.strip_suffix('\r').unwrap_or(line);
        let code = line.split_once('#').map_or(line, |(code, _comment)| code).trim_matches(blank);
        if let Some(bad) = code.chars().find(|c| c.is_control() && *c != '\t') {
            return Err(Fault::new(
                ProblemCode::ControlCharacter,
                format!("the line has the control character {}", bad.escape_unicode()),
                "remove it",
            ));
        }
        if code.is_empty() {
            return Ok(());
        }
        if code.starts_with(';') {
            return Err(Fault::new(
                ProblemCode::SemicolonComment,
                "a semicolon does not begin a comment",
                "begin comments with #",
            ));
        }
        if code.starts_with('[') {
            return self.section(number, code);
        }
        let Some((name, value)) = code.split_once('=') else {
            return match self.place {
                Place::Unknown => Ok(()),
                Place::Start | Place::In(_) => Err(Fault::new(
                    ProblemCode::NotAnAssignment,
                    format!("{} is neither a section nor a key with a value", shown(code)),
                    "write KEY = VALUE, or remove the line",
                )),
            };
        };
        self.assignment(number, &without_blanks(name), value.trim_matches(blank))
    }

    fn section(&mut self, number: u32, code: &str) -> Result<(), Fault> {
        let name = without_blanks(code);
        self.place = if name.eq_ignore_ascii_case("[Interface]") {
            Place::In(Section::Interface)
        } else if name.eq_ignore_ascii_case("[Peer]") {
            self.draft.begin_peer(number);
            Place::In(Section::Peer)
        } else {
            self.place = Place::Unknown;
            return Err(Fault::new(
                ProblemCode::UnknownSection,
                format!("there is no section {}", shown(&name)),
                "the sections are [Interface] and [Peer]",
            ));
        };
        Ok(())
    }

    fn assignment(&mut self, number: u32, name: &str, value: &str) -> Result<(), Fault> {
        let known = Key::find(name);
        let section = match (self.place, known) {
            (Place::Unknown, _) => return Ok(()),
            (Place::In(_), None) => return Err(keys::unknown(name)),
            (Place::Start, None) => {
                return Err(Fault::new(
                    ProblemCode::WrongSection,
                    format!("{} stands before any section", shown(name)),
                    "begin the file with [Interface]",
                ));
            }
            (Place::In(section), Some(key)) if key.section() == section => section,
            (Place::Start | Place::In(_), Some(key)) => {
                return Err(Fault::new(
                    ProblemCode::WrongSection,
                    format!("{} does not stand in {}", key.name(), key.section()),
                    format!("move it under {}", key.section()),
                ));
            }
        };
        let Some(key) = known else { return Ok(()) };
        if value.is_empty() && !key.may_be_empty() {
            self.draft.saw(key, number);
            return Err(Fault::new(
                ProblemCode::EmptyValue,
                format!("{} in {section} has no value", key.name()),
                format!("give {} a value", key.name()),
            ));
        }
        // wg drops every blank inside a line; the values of AmneziaWG keep theirs.
        let compact;
        let value = if key.keeps_blanks() {
            value
        } else {
            compact = without_blanks(value);
            &compact
        };
        self.draft.take(number, key, value, &mut self.problems, &mut self.notes);
        Ok(())
    }

    fn finish(self) -> Result<Parsed, Vec<Problem>> {
        let Self { draft, mut problems, mut notes, place: _ } = self;
        match draft.finish(&mut problems, &mut notes) {
            Some(config) if problems.is_empty() => Ok(Parsed { config, notes }),
            Some(_) | None => {
                problems.sort_by_key(|problem| problem.line);
                let hidden = problems.len().saturating_sub(MAX_PROBLEMS);
                problems.truncate(MAX_PROBLEMS);
                if hidden > 0 {
                    let text = format!("there are {hidden} more problems");
                    let more = Fault::new(ProblemCode::More, text, "mend these first");
                    problems.push(more.at(0));
                }
                Err(problems)
            }
        }
    }
}

fn blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

fn without_blanks(text: &str) -> String {
    text.replace(blank, "")
}
