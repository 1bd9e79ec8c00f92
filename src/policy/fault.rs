//! What is wrong with a policy, in one line that an operator can act upon.
//!
//! **Invariant:** a fault never holds more of the policy's text than the key that is wrong.

use crate::outcome::harmless;
use std::fmt;

/// The known kinds, for the nearest one.
const KINDS: [&str; 5] = ["pool", "selector", "guard", "dns", "chain"];

/// How alike (Jaro-Winkler, 0 to 1) a key must be to one that exists to be offered in its place.
/// 0.8 offers `client` for `clients` and `wan_iface` for `wan_interface`, and nothing for noise.
const ALIKE: f64 = 0.8;

/// The longest line, in characters: three times that with all keys that are known somewhere.
const LONGEST: usize = 2_000;

/// A policy that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFault {
    text: String,
}

impl PolicyFault {
    /// A contradiction that has no single place in the text. Keys and values that it names may hold anything,
    /// and be of any length.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let text = harmless(&text.into());
        match text.char_indices().nth(LONGEST) {
            Some((at, _)) => Self { text: format!("{}…", text.get(..at).unwrap_or_default()) },
            None => Self { text },
        }
    }

    pub(super) fn no_kind() -> Self {
        Self::new(format!("it has no \"kind\": write one of {}", KINDS.join(", ")))
    }

    pub(super) fn empty() -> Self {
        Self::new("the file is empty: write a policy into it")
    }

    pub(super) fn no_object() -> Self {
        Self::new("a policy is an object, {\"kind\": …}: this is another value")
    }

    pub(super) fn site() -> Self {
        Self::new("it is a site, which concerns all policies and is none: name another file")
    }

    pub(super) fn kind_is_no_text() -> Self {
        Self::new(format!("\"kind\" is not a text: write one of {}", KINDS.join(", ")))
    }

    pub(crate) fn unknown_kind(tag: &str, text: &str) -> Self {
        let line = text.lines().position(|l| l.contains("\"kind\"")).map_or(1, |n| n + 1);
        let near = nearest(tag, KINDS.iter().copied()).map_or_else(
            || format!("; known: {}", KINDS.join(", ")),
            |near| format!("; did you mean \"{near}\"?"),
        );
        Self::new(format!("unknown kind {tag:?} at line {line}{near}"))
    }

    /// Turns serde's words into ours: the nearest known key instead of a list of all.
    pub(crate) fn from_json(error: &serde_json::Error) -> Self {
        let words = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        let cause = words.strip_suffix(&place).unwrap_or(&words);
        if error.is_syntax() || error.is_eof() {
            return Self::new(format!("it is not JSON: {cause}{place}"));
        }
        let Some(rest) = cause.strip_prefix("unknown field `") else {
            return Self::new(format!("{cause}{place}"));
        };
        let mut quoted = rest.split('`');
        let key = quoted.next().unwrap_or_default();
        // After the key the pieces alternate between what stands between back quotes and the known keys.
        let known: Vec<&str> = quoted.skip(1).step_by(2).collect();
        let near = match nearest(key, known.iter().copied()) {
            Some(near) => format!("; did you mean \"{near}\"?"),
            None if known.is_empty() => String::new(),
            None => format!("; known here: {}", known.join(", ")),
        };
        Self::new(format!("unknown key \"{key}\"{place}{near}"))
    }
}

/// The candidate most like `word`, if any is alike enough.
fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

impl fmt::Display for PolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for PolicyFault {}
