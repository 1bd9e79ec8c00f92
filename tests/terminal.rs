//! What a person at a terminal sees, and what a pipe gets.

use crate::lab;

use lab::Lab;
use lab::gateway::Outcome;
use lab::pool::Pool;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

/// Runs egressctl on a terminal of so many columns.
fn on_a_terminal(lab: &Lab, columns: u32, variables: &str, words: &str) -> Outcome {
    let gw = lab.gw();
    let line = format!(
        "stty cols {columns}; {variables} {} --policy-dir {} --state-dir {} {words}",
        lab::gateway::program(),
        gw.policy_dir().display(),
        gw.state_dir().display()
    );
    let mut command = gw.command("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("TERM", "xterm");
    gw.finish(command)
}

#[test]
fn a_terminal_has_colours_its_own_width_and_progress_and_a_pipe_has_none_of_it() {
    let lab = Lab::builder().clients(3).endpoints(6).start();
    let pool = Pool::new(&lab, |_| {});
    let first = on_a_terminal(&lab, 80, "", "step home");
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.stdout.contains("home: fetching the list ..."), "{}", first.stdout);
    assert!(first.stdout.contains("home: testing 4 candidates ..."), "{}", first.stdout);
    let second = pool.step();
    assert!(second.is_steady() && second.stderr.is_empty(), "{second:#?}");

    let piped = lab.gw().egressctl(&["status", "home"]);
    assert!(!piped.stdout.contains('\u{1b}'), "{}", piped.stdout);
    assert!(piped.stdout.contains("  vpn1  healthy  "), "{}", piped.stdout);

    let shown = on_a_terminal(&lab, 60, "", "status home");
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("\u{1b}[32mhealthy\u{1b}[0m"), "{}", shown.stdout);

    let plain = on_a_terminal(&lab, 60, "NO_COLOR=1", "status home");
    assert!(!plain.stdout.contains('\u{1b}'), "{}", plain.stdout);
    let widest = plain.stdout.lines().map(|line| line.trim_end().chars().count()).max();
    assert!(widest.is_some_and(|widest| (40..=60).contains(&widest)), "{}", plain.stdout);
    assert!(plain.stdout.lines().count() <= 25, "one screen: {}", plain.stdout);

    let told = on_a_terminal(&lab, 60, "NO_COLOR=1", "history home");
    let widest = told.stdout.lines().map(|line| line.trim_end().chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 60), "{}", told.stdout);
}

#[test]
fn a_status_that_is_watched_is_shown_again_until_nobody_reads_it() {
    let lab = Lab::builder().clients(1).endpoints(2).start();
    let pool = Pool::new(&lab, |policy| {
        policy["slots"] = serde_json::json!({ "interfaces": ["vpn1"] });
    });
    let first = pool.step();
    assert!(first.code == Some(0) && first.stderr.is_empty(), "a pipe has no progress: {first:#?}");
    let mut command = lab.gw().egressctl_command(&["status", "home", "--watch"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    for _ in 0..2 {
        assert!(lines.any(|line| line.starts_with("home (pool)  NORMAL")), "it is shown again");
    }
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0), "it ends with its reader");
}
