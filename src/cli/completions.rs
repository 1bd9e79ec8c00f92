//! `egressctl completions`: what a shell completes after `egressctl`.
//!
//! **Invariant:** the script is made from the same description as the help, so it knows every
//! command and option.

use super::{Cli, complain, say};
use crate::outcome::Exit;
use clap::CommandFactory as _;
use clap_complete::Shell;

/// The shells that scripts are made for.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum For {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// Prints the script.
pub(super) fn completions(shell: For) -> u8 {
    let shell = match shell {
        For::Bash => Shell::Bash,
        For::Zsh => Shell::Zsh,
        For::Fish => Shell::Fish,
    };
    // Made in memory first: the generator ends the program where a reader has gone away.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "egressctl", &mut script);
    match String::from_utf8(script) {
        Ok(script) => {
            say(script.trim_end());
            Exit::Fine.code()
        }
        Err(error) => {
            complain(&format!("the script cannot be written: {error}"));
            Exit::Failed.code()
        }
    }
}
