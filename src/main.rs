//! The command `egressctl`.

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    egressctl::cli::run(egressctl::cli::Cli::parse())
}
