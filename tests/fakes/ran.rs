//! A run of the program with folders of a test's own, and what it came to.

#![allow(unreachable_pub, missing_docs, reason = "test code")]

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What a run of the program came to.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Run {
    /// Runs a command with the policies and the state of `folder`.
    pub fn of(mut command: Command, folder: &Path, args: &[&str]) -> Self {
        let output = command
            .env_clear()
            .arg("--policy-dir")
            .arg(folder.join("policies"))
            .arg("--state-dir")
            .arg(folder.join("state"))
            .args(args)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let run = Self {
            code: output.status.code().unwrap(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        };
        assert!(!run.err.contains("panicked"), "{run:?}");
        run
    }

    /// Runs the program itself so.
    pub fn here(folder: &Path, args: &[&str]) -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_egressctl")), folder, args)
    }

    pub fn report(&self) -> Value {
        serde_json::from_str(self.out.trim()).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Exit code, from, to, outcome, and the code of the last reason.
    pub fn went(&self) -> (i32, String, String) {
        let report = self.report();
        let word = |key: &str| report[key].as_str().unwrap_or("-").to_owned();
        let last = self.codes().pop().unwrap_or_else(|| "-".to_owned());
        (self.code, format!("{} -> {} {}", word("from"), word("to"), word("outcome")), last)
    }

    /// The same of a machine of several parts, without where it came from.
    pub fn stands(&self) -> (i32, String, String) {
        let (code, went, last) = self.went();
        let (_, stands) = went.split_once(" -> ").unwrap();
        (code, stands.to_owned(), last)
    }

    /// Exit code, from, to and outcome.
    pub fn way(&self) -> (i32, String, String, String) {
        let report = self.report();
        let word = |key: &str| report[key].as_str().unwrap_or("-").to_owned();
        (self.code, word("from"), word("to"), word("outcome"))
    }

    /// The codes of all reasons.
    pub fn codes(&self) -> Vec<String> {
        let report = self.report();
        let reasons = report["reasons"].as_array().unwrap();
        reasons.iter().map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
    }
}

/// What a run should come to.
pub fn went(code: i32, what: &str, why: &str) -> (i32, String, String) {
    (code, what.to_owned(), why.to_owned())
}
