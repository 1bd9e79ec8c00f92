//! Children that hang, flood, fail and leave children behind.

use egressctl::host::exec::{Call, CommandError, run, run_unchecked, spawn_detached};
use std::time::{Duration, Instant};

fn sh(script: &str, deadline_ms: u64) -> Call {
    Call::new("sh", &["-c", script], Duration::from_millis(deadline_ms))
}

#[test]
fn input_reaches_the_child_and_stays_out_of_debug() {
    let call = Call::new("cat", &[], Duration::from_secs(5)).with_stdin(b"sekret\n".to_vec());
    assert_eq!(run(&call).unwrap().stdout, b"sekret\n");
    assert!(!format!("{call:?}").contains("sekret"));
}

#[test]
fn a_child_that_ignores_a_long_input_is_no_error() {
    let call = sh("exit 0", 5_000).with_stdin(vec![b'x'; 1_000_000]);
    assert!(run(&call).is_ok());
}

#[test]
fn a_failure_quotes_the_command_and_one_harmless_line() {
    let failed = run(&sh("printf 'a\\033[31mb\\nc' >&2; exit 7", 5_000)).unwrap_err();
    let text = failed.to_string();
    assert_eq!(
        text,
        "sh -c 'printf '\\''a\\033[31mb\\nc'\\'' >&2; exit 7': exit code 7: a [31mb c"
    );
    let long =
        run_unchecked(&sh("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 3", 5_000)).unwrap();
    assert_eq!((long.code, long.stderr.chars().count()), (3, 400));
    assert_eq!(run_unchecked(&sh("kill -9 $$", 5_000)).unwrap().code, 137);
}

#[test]
fn a_missing_program_says_what_to_install() {
    let missing = run(&Call::new("no-such-program", &[], Duration::from_secs(1))).unwrap_err();
    assert!(matches!(missing, CommandError::NotFound { .. }));
    let told = CommandError::NotFound { program: "wg".to_owned(), elsewhere: None }.to_string();
    assert_eq!(told, "wg is not on PATH: install wireguard-tools");
    assert!(matches!(
        run(&Call::new("/etc/passwd", &[], Duration::from_secs(1))),
        Err(CommandError::NotFound { .. })
    ));
}

#[test]
fn a_hung_child_and_its_children_are_killed_at_the_deadline() {
    let mark = format!("{}.25", 4_000 + std::process::id() % 1_000);
    let begun = Instant::now();
    let failed = run(&sh(&format!("sleep {mark} & sleep {mark}"), 300)).unwrap_err();
    assert!(matches!(failed, CommandError::TimedOut { .. }), "{failed}");
    assert!(begun.elapsed() < Duration::from_secs(3));
    std::thread::sleep(Duration::from_millis(200));
    let left = run_unchecked(&Call::new(
        "pgrep",
        &["-xf", &format!("sleep {mark}")],
        Duration::from_secs(5),
    ));
    assert_eq!(left.unwrap().code, 1, "nothing is left");
}

#[test]
fn a_grandchild_that_holds_the_pipe_does_not_hold_us() {
    let begun = Instant::now();
    let output = run(&sh("echo here; sleep 5 & exit 0", 30_000)).unwrap();
    assert_eq!(output.stdout, b"here\n");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let begun = Instant::now();
    let output =
        run(&sh("(while sleep 0.01 && echo more; do :; done) & sleep 0.1", 30_000)).unwrap();
    assert!(output.stdout.starts_with(b"more\n"));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // Nor does one that goes on fill the memory: there is nothing to write to any more.
    let folder = tempfile::tempdir().unwrap();
    let ended = folder.path().join("ended");
    let script = format!("(cat /dev/zero; touch {}) 2>/dev/null & exit 0", ended.display());
    run(&sh(&script, 30_000)).unwrap();
    let begun = Instant::now();
    while !ended.exists() {
        assert!(begun.elapsed() < Duration::from_secs(5), "it still writes");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn megabytes_are_taken_and_a_flood_is_stopped() {
    let output = run(&sh("head -c 8000000 /dev/zero", 20_000)).unwrap();
    assert_eq!(output.stdout.len(), 8_000_000);
    let failed = run(&sh("cat /dev/zero", 20_000)).unwrap_err();
    assert!(matches!(failed, CommandError::Io { .. }), "{failed}");
    let failed = run(&sh("cat /dev/zero >&2 & sleep 9", 20_000)).unwrap_err();
    assert!(matches!(failed, CommandError::Io { .. }), "{failed}");
}

#[test]
fn a_child_speaks_plainly_and_never_waits_for_names() {
    let script = "echo $LC_ALL $WG_ENDPOINT_RESOLUTION_RETRIES [$LOG_LEVEL]";
    assert_eq!(run(&sh(script, 5_000)).unwrap().stdout, b"C 0 []\n");
}

#[test]
fn a_daemon_outlives_the_call_and_holds_none_of_our_files() {
    let folder = tempfile::tempdir().unwrap();
    let lock = std::fs::File::create(folder.path().join("lock")).unwrap();
    let out = folder.path().join("fds");
    let script = format!(
        "(ls -l /proc/self/fd > {0}.t; mv {0}.t {0}; sleep 1; touch {0}.alive) &",
        out.display()
    );
    spawn_detached("sh", &["-c".to_owned(), script], Duration::from_secs(5)).unwrap();
    std::thread::sleep(Duration::from_millis(1_600));
    let held = std::fs::read_to_string(&out).unwrap();
    assert!(held.contains("/dev/null") && !held.contains("/lock"), "{held}");
    assert!(folder.path().join("fds.alive").exists());
    drop(lock);
    let slow = spawn_detached("sleep", &["9".to_owned()], Duration::from_millis(200));
    assert!(matches!(slow, Err(CommandError::TimedOut { .. })));
}
