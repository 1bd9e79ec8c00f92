//! Names that are addresses, names that are not.

use egressctl::host::resolve::resolve;
use std::time::{Duration, Instant};

/// Case C15.
#[test]
fn every_name_has_an_answer_by_the_deadline() {
    let names: Vec<String> =
        ["192.0.2.1", "[2001:db8::1]", "localhost", "no-such-host.invalid", "bad name", ""]
            .map(str::to_owned)
            .to_vec();
    let begun = Instant::now();
    let answers = resolve(&names, Duration::from_millis(1_500));
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!(answers.len(), names.len());
    assert_eq!(answers["192.0.2.1"], Ok(vec!["192.0.2.1".parse().unwrap()]));
    assert_eq!(answers["[2001:db8::1]"], Ok(vec!["2001:db8::1".parse().unwrap()]));
    assert!(answers["localhost"].as_ref().unwrap().iter().all(std::net::IpAddr::is_loopback));
    for name in ["no-such-host.invalid", "bad name", ""] {
        let why = answers[name].as_ref().unwrap_err();
        assert_eq!(why.lines().count(), 1, "{why}");
    }
}

#[test]
fn literals_need_no_time_at_all() {
    let names = vec!["192.0.2.1".to_owned(), "192.0.2.1".to_owned()];
    assert_eq!(resolve(&names, Duration::ZERO).len(), 1);
    assert!(resolve(&["localhost".to_owned()], Duration::ZERO)["localhost"].is_err());
}

#[test]
fn more_names_than_threads_are_all_answered() {
    let names: Vec<String> = (0..100).map(|n| format!("127.0.0.{n}.localhost")).collect();
    let answers = resolve(&names, Duration::from_millis(500));
    assert_eq!(answers.len(), 100);
}
