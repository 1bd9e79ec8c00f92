//! What can be said about a configuration file: problems that refuse it and notes that do not.
//!
//! **Invariant:** no text here holds key material, a control character, or more than a short piece of
//! the file.

use serde::Serialize;
use std::fmt;

/// The most problems that are reported of one file; a file with more is not a WireGuard file.
pub(super) const MAX_PROBLEMS: usize = 100;

/// One reason why a file is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The line, counted from 1; 0 when the file as a whole is meant.
    pub line: u32,
    /// What kind of problem it is.
    pub code: ProblemCode,
    /// What is wrong.
    pub text: String,
    /// What to do about it.
    pub mend: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        write!(f, "{} ({})", self.text, self.mend)
    }
}

/// The kinds of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The file has more than 64 KiB.
    TooLarge,
    /// The bytes are not UTF-8.
    NotUtf8,
    /// The file begins with a byte order mark, which makes `wg` refuse its first line.
    ByteOrderMark,
    /// A line has more than 10000 bytes.
    LineTooLong,
    /// A line has a control character other than a tab.
    ControlCharacter,
    /// A `;` begins a line, which is a comment elsewhere and an error for `wg`.
    SemicolonComment,
    /// A line is neither a section, a key with a value, a comment nor blank.
    NotAnAssignment,
    /// A section other than `[Interface]` and `[Peer]`.
    UnknownSection,
    /// A key that neither `wg`, `wg-quick` nor `awg` knows.
    UnknownKey,
    /// A known key before any section or in the wrong one.
    WrongSection,
    /// A key without a value.
    EmptyValue,
    /// A key that may stand once stands twice with different values.
    Repeated,
    /// A private, public or preshared key that is no key; the text says how, without showing it.
    BadKey,
    /// The peer's public key is our own.
    OwnKey,
    /// A port outside 1 to 65535, or a service name.
    BadPort,
    /// An endpoint that is no `host:port`.
    BadEndpoint,
    /// An endpoint with a scheme, a user or a path.
    UrlInEndpoint,
    /// An endpoint with a prefix length.
    PrefixInEndpoint,
    /// An IPv6 endpoint without brackets, which `wg` would cut at the last colon.
    UnbracketedIpv6,
    /// An entry of `Address` or `AllowedIPs` that is no address or prefix.
    BadPrefix,
    /// A comma with nothing before or after it.
    EmptyListEntry,
    /// An entry of `AllowedIPs` with `+` or `-`, which changes a running tunnel and describes none.
    IncrementalPrefix,
    /// A number outside its range, or no number.
    BadNumber,
    /// A key without which the tunnel cannot carry anything is missing.
    Missing,
    /// The file has no peer.
    NoPeer,
    /// The file has several peers, so it is no pool candidate.
    SeveralPeers,
    /// Two peers have the same public key; `wg` would merge them.
    DuplicatePeer,
    /// Two peers claim the same destinations; `wg` would give them to the last one without a word.
    OverlappingRoutes,
    /// There are more problems than are shown.
    More,
}

/// Something accepted, but not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The line, counted from 1; 0 when the file as a whole is meant.
    pub line: u32,
    /// What kind of note it is.
    pub code: NoteCode,
    /// What there is to know.
    pub text: String,
}

/// The kinds of note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteCode {
    /// `DNS` is recorded; clients keep their resolvers.
    DnsIgnored,
    /// `Table` is ignored; the slot has its own.
    TableIgnored,
    /// `SaveConfig` is ignored; the file is never rewritten.
    SaveConfigIgnored,
    /// `FwMark` is recorded; egressctl sets its own.
    FwMarkIgnored,
    /// `ListenPort` is recorded; the slot has its own.
    ListenPortIgnored,
    /// A `PreUp`, `PostUp`, `PreDown` or `PostDown` command is never run.
    HookIgnored,
    /// `PresharedKey` is empty or all zeros and counts as absent.
    NoPresharedKey,
    /// An entry of `AllowedIPs` had host bits, which are cleared.
    HostBitsMasked,
    /// `AllowedIPs` does not cover all of IPv4, so the tunnel refuses the rest.
    NarrowAllowedIps,
}

/// A piece of the file made fit to be shown: whatever could be a key is masked (before the cut, so that
/// no half of one remains), what a terminal could take for a command is escaped, and it is short.
pub(super) fn shown(piece: &str) -> String {
    const LONGEST: usize = 48;
    /// No port, prefix, key name or placeholder word has so many characters of base64 in a row; a
    /// truncated key that is still worth something has.
    const KEY_LIKE: usize = 20;
    /// Base64 for URLs also has - and _, as host names do, which are seldom as long as a key.
    const URL_KEY_LIKE: usize = 40;
    let of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '-' | '_');
    let key_like = |run: &str| {
        run.len() >= URL_KEY_LIKE || run.split(['-', '_']).any(|part| part.len() >= KEY_LIKE)
    };
    let mut masked = String::new();
    let mut run = String::new();
    for c in piece.chars().map(Some).chain([None]) {
        if let Some(c) = c.filter(|c| of_key(*c)) {
            run.push(c);
            continue;
        }
        masked.push_str(if key_like(&run) { "(hidden)" } else { &run });
        run.clear();
        masked.extend(c);
    }
    let mut safe = String::from("\"");
    for c in masked.chars().take(LONGEST) {
        if c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric() {
            safe.push(c);
        } else {
            safe.extend(c.escape_unicode());
        }
    }
    safe.push_str(if masked.chars().nth(LONGEST).is_some() { "…\"" } else { "\"" });
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_short_and_commands_no_terminal() {
        assert_eq!(shown("10.0.0.1"), "\"10.0.0.1\"");
        assert_eq!(shown("a\u{1b}[31mb\u{202e}\u{7f}"), r#""a\u{1b}[31mb\u{202e}\u{7f}""#);
        assert_eq!(shown(&"x.".repeat(500)).chars().count(), 51);
    }

    #[test]
    fn a_key_is_masked_also_where_the_cut_would_leave_a_half_of_it() {
        let key = "uvIAvhV7Z9tzLzoO03t2Qd1stcQS5QO2JrV0yt7tKCY=";
        for piece in [key.to_owned(), format!("{}{key}", "x.".repeat(18)), format!("a.{key}.b")] {
            let shown = shown(&piece);
            assert!(!shown.contains("uvIA"), "{shown}");
            assert!(shown.contains("(hid"), "{shown}");
        }
        assert_eq!(shown(&"uvIAvhV7-".repeat(5)), "\"(hidden)\"");
        assert_eq!(shown("us-new-york-premium-01.example"), "\"us-new-york-premium-01.example\"");
    }
}
