//! Files that are written whole or not at all, and reads that end.

use egressctl::host::files::{last_lines, read_bounded, write_atomically};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn a_file_is_replaced_with_its_permissions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    for mode in [0o644, 0o600, 0o666] {
        write_atomically(&path, format!("{mode:o}").as_bytes(), mode).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{mode:o}"));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn a_write_that_fails_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    fs::create_dir_all(taken.join("inside")).unwrap();
    let why = write_atomically(&taken, b"x", 0o600).unwrap_err();
    assert!(format!("{why:#}").starts_with("writing "), "{why:#}");
    assert!(taken.join("inside").is_dir());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(write_atomically(&folder.path().join("no/such"), b"x", 0o600).is_err());
}

#[test]
fn a_read_has_a_bound_and_never_waits_for_a_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list");
    fs::write(&path, "12345").unwrap();
    assert_eq!(read_bounded(&path, 5).unwrap(), b"12345");
    assert_eq!(read_bounded(&path, 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(read_bounded(&folder.path().join("x"), 4).unwrap_err().kind(), ErrorKind::NotFound);
    let fifo = folder.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    assert_eq!(read_bounded(&fifo, 4).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn only_the_end_of_a_huge_file_of_lines_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    fs::write(&path, "0123456789\n".repeat(1_000_000)).unwrap();
    assert_eq!(last_lines(&path, 2).unwrap(), ["0123456789", "0123456789"]);
    assert!(last_lines(&path, usize::MAX).unwrap().iter().all(|line| line == "0123456789"));
}
