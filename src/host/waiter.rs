//! Somebody who comes back later: a timer of systemd, or a process of its own.
//!
//! **Invariant:** whoever waits outlives the session that it was made from.

use super::exec::{Call, CommandError, run, spawn_detached};
use std::path::Path;
use std::time::Duration;

/// Both are made at once; systemd may be busy.
const DEADLINE: Duration = Duration::from_secs(10);

/// Runs this program with `args` after `wait`, in a unit called after `name` where systemd runs.
///
/// # Errors
/// When nobody can be made to wait.
pub fn come_back(name: &str, wait: Duration, args: &[String]) -> anyhow::Result<()> {
    let program = std::env::current_exe()?.display().to_string();
    let made = if Path::new("/run/systemd/system").is_dir() {
        by_systemd(name, wait, &program, args)
    } else {
        by_a_process(wait, &program, args)
    };
    Ok(made?)
}

fn by_systemd(
    name: &str,
    wait: Duration,
    program: &str,
    args: &[String],
) -> Result<(), CommandError> {
    // Units of two trials of one policy must not be called the same.
    let unit = format!("--unit=egressctl-trial-{name}-{}", std::process::id());
    let after = format!("--on-active={}s", wait.as_secs());
    let mut words = vec![
        "--quiet",
        "--collect",
        &unit,
        &after,
        "--timer-property=AccuracySec=1s",
        "--",
        program,
    ];
    words.extend(args.iter().map(String::as_str));
    run(&Call::new("systemd-run", &words, DEADLINE)).map(drop)
}

fn by_a_process(wait: Duration, program: &str, args: &[String]) -> Result<(), CommandError> {
    // In a session of its own no terminal that closes reaches it.
    let script = "trap '' HUP; sleep \"$0\"; exec \"$@\"";
    let mut words: Vec<String> = ["--fork", "sh", "-c", script].map(str::to_owned).into();
    words.push(wait.as_secs().to_string());
    words.push(program.to_owned());
    words.extend(args.iter().cloned());
    spawn_detached("setsid", &words, DEADLINE)
}
