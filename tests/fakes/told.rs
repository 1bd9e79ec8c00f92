//! What a person is told, judged: one line that names the object, what is wrong and what to do.
//!
//! **Invariant:** a panic is no answer.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use crate::lab::gateway::Outcome;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// No run ends with a panic, whatever else it does.
pub fn no_panic(outcome: &Outcome) {
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{said}");
}

/// Every file below a folder with what is in it.
pub fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        }
        let bytes = if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        all.insert(path, bytes);
    }
    all
}

/// The words with which a line says what to do.
const MENDS: [&str; 21] = [
    "make", "write", "name", "correct", "change", "install", "run", "use", "remove", "rename",
    "put", "say", "save", "add", "give", "set", "copy", "must", "expected", "complete", "JSON",
];

/// One line, on one of both outputs, with all of `words` in it and with something to do.
#[track_caller]
pub fn one_line(outcome: &Outcome, code: i32, words: &[&str]) -> String {
    no_panic(outcome);
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert_eq!(outcome.code, Some(code), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    let words: Vec<&str> = said.split([' ', ':', ';', '(', ',']).collect();
    let mends = MENDS.iter().any(|mend| words.contains(mend)) || said.contains("did you mean");
    assert!(mends, "it does not say what to do: {said}");
    said
}
