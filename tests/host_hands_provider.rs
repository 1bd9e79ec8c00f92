//! A folder of provider files, good and hostile.

use crate::host_hands_space;

use egressctl::host::provider::{forget, list};
use egressctl::kernel::read::sha256;
use egressctl::observation::{ListQuestion, ListReading};
use egressctl::policy::provider::{Directory, Provider, Wanted};
use egressctl::pool::candidate::{Candidate, Rejected};
use egressctl::wireguard::parse_bytes;
use host_hands_space::{conf, key};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

fn question(path: &Path) -> ListQuestion {
    let provider = Provider::Directory(Directory { path: path.to_owned() });
    ListQuestion {
        provider,
        wanted: Wanted::default(),
        generation: 7,
        amnezia: false,
        via: None,
        names: BTreeMap::new(),
        known: None,
        have: std::sync::Arc::default(),
    }
}

fn listed(question: &ListQuestion, folder: &Path) -> (Vec<Candidate>, Vec<Rejected>) {
    match list(question, folder, true) {
        ListReading::Listed { candidates, rejected, .. } => {
            (std::sync::Arc::unwrap_or_clone(candidates), rejected)
        }
        other @ (ListReading::Unchanged | ListReading::Unavailable { .. }) => panic!("{other:?}"),
    }
}

fn names(candidates: &[Candidate]) -> Vec<&str> {
    candidates.iter().map(|candidate| candidate.name.as_str()).collect()
}

#[test]
fn good_files_become_candidates_with_files_of_their_own() {
    let (source, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let put = |name: &str, text: &str| fs::write(source.path().join(name), text).unwrap();
    put("nl.conf", &conf(1, 11, "10.9.0.5/24, fd00::5/64", "nl.vpn.example:51820"));
    put("de 1.conf", &conf(2, 12, "10.9.0.6", "[2001:db8::1]:443"));
    put("NL.conf", &conf(1, 13, "10.9.0.5/32", "192.0.2.3:51820"));
    put("readme.txt", "no tunnel");
    put(".nl.conf.swp", "no tunnel");
    put(".hidden.conf", "no tunnel");
    fs::create_dir(source.path().join("old.conf")).unwrap();
    let question = question(source.path());
    let (candidates, rejected) = listed(&question, folder.path());
    assert_eq!(rejected, []);
    assert_eq!(names(&candidates), ["NL", "de 1", "nl-2"]);
    let nl = &candidates[2];
    assert_eq!((nl.host.as_str(), nl.port, nl.mtu), ("nl.vpn.example", 51820, None));
    let own = ["10.9.0.5/32", "fd00::5/128"].map(|net| net.parse().unwrap());
    assert_eq!(nl.addresses, own.into(), "no wider than themselves");
    assert_eq!((nl.ends.own, nl.ends.keepalive), (key(1).public(), 25));
    assert_eq!((candidates[1].host.as_str(), candidates[1].port), ("2001:db8::1", 443));
    for candidate in &candidates {
        let path = folder.path().join(candidate.config.path());
        let bytes = fs::read(&path).unwrap();
        assert_eq!(sha256(&bytes), candidate.config.sha256);
        assert!(parse_bytes(&bytes).is_ok());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(candidate.config.file.bytes().all(|b| b.is_ascii_graphic() && b != b'/'));
    }
    let pool = folder.path().join("pool/7");
    assert_eq!(fs::metadata(&pool).unwrap().permissions().mode() & 0o777, 0o700);
    // The same list again is the same list; and one that may not write is too.
    assert_eq!(listed(&question, folder.path()).0, candidates);
    let elsewhere = tempfile::tempdir().unwrap();
    let ListReading::Listed { candidates: seen, .. } = list(&question, elsewhere.path(), false)
    else {
        panic!("no list")
    };
    assert_eq!(*seen, candidates);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn every_bad_file_is_rejected_with_one_reason_and_no_key() {
    let (source, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let put = |name: &str, text: &[u8]| {
        fs::write(source.path().join(OsStr::from_bytes(name.as_bytes())), text).unwrap();
    };
    let good = conf(1, 11, "10.9.0.5/24", "192.0.2.1:51820");
    put("a.conf", good.as_bytes());
    put("b-copy.conf", good.replace("DNS = 10.9.0.1", "MTU = 1380").as_bytes());
    put(
        "c-amnezia.conf",
        good.replace("DNS = 10.9.0.1", "Jc = 4").replace("192.0.2.1", "192.0.2.7").as_bytes(),
    );
    put("d-six.conf", conf(3, 13, "fd00::5/64", "192.0.2.3:51820").as_bytes());
    put("e-empty.conf", b"");
    put("f-huge.conf", &vec![b'#'; 70_000]);
    put("g-line\n\u{1b}[2J.conf", b"[Interface]\nPrivateKey = x\nNonsense = 1\n");
    put("h-binary.conf", &[0xff, 0xfe, 0, 1]);
    symlink("/nowhere", source.path().join("i-dangling.conf")).unwrap();
    host_hands_space::shell(&format!("mkfifo {}", source.path().join("j-fifo.conf").display()));
    symlink("/dev/zero", source.path().join("k-zero.conf")).unwrap();
    let (candidates, rejected) = listed(&question(source.path()), folder.path());
    assert_eq!(names(&candidates), ["a"]);
    let whys: Vec<String> = rejected.iter().map(|r| format!("{}: {}", r.name, r.why)).collect();
    let parts = [
        "b-copy: is the same tunnel as a",
        "c-amnezia: needs AmneziaWG: set wireguard.tool to awg",
        "d-six: has no IPv4 address",
        "e-empty: ",
        "f-huge: longer than",
        "g-line__[2J: line 2: ",
        "h-binary: line 1: ",
        "i-dangling: No such file",
        "j-fifo: not a regular file",
        "k-zero: not a regular file",
    ];
    assert_eq!(whys.len(), parts.len(), "{whys:#?}");
    for (why, part) in whys.iter().zip(parts) {
        assert!(why.starts_with(part), "{part}: {why}");
        assert!(!why.contains(&key(1).reveal()) && !why.chars().any(char::is_control), "{why}");
    }
    assert!(whys[5].ends_with("more problems"), "{}", whys[5]);
    let (candidates, _) =
        listed(&ListQuestion { amnezia: true, ..question(source.path()) }, folder.path());
    assert_eq!(names(&candidates), ["a", "c-amnezia"]);
}

#[test]
fn a_link_to_a_file_is_followed() {
    let (source, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(source.path().join("store")).unwrap();
    let text = conf(1, 11, "10.9.0.5/24", "192.0.2.1:51820");
    fs::write(source.path().join("store/x"), text).unwrap();
    symlink("store/x", source.path().join("latest.conf")).unwrap();
    let (candidates, rejected) = listed(&question(source.path()), folder.path());
    assert_eq!((names(&candidates), rejected), (vec!["latest"], vec![]));
}

#[test]
fn no_list_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    for (source, part) in [(missing.as_path(), "No such file"), (empty.path(), "has no *.conf")] {
        let ListReading::Unavailable { why, .. } = list(&question(source), folder.path(), true)
        else {
            panic!("a list")
        };
        assert!(why.contains(part) && why.contains("put the provider's *.conf files"), "{why}");
    }
    // A pool that cannot be kept is no list either.
    fs::write(empty.path().join("a.conf"), conf(1, 11, "10.9.0.5", "192.0.2.1:51820")).unwrap();
    fs::write(folder.path().join("pool"), "a file").unwrap();
    let reading = list(&question(empty.path()), folder.path(), true);
    assert!(matches!(reading, ListReading::Unavailable { .. }), "{reading:?}");
}

#[test]
fn only_lists_that_nobody_needs_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let pool = folder.path().join("pool");
    forget(folder.path(), &[1].into()).unwrap();
    for name in ["1", "2", "3", "007", "x", "2.bak"] {
        fs::create_dir_all(pool.join(name)).unwrap();
        fs::write(pool.join(name).join("a.conf"), "x").unwrap();
    }
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "x").unwrap();
    symlink(outside.path(), pool.join("9")).unwrap();
    fs::write(pool.join("5"), "a file").unwrap();
    forget(folder.path(), &[2].into()).unwrap();
    let mut left: Vec<String> = fs::read_dir(&pool)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["007", "2", "2.bak", "5", "9", "x"]);
    assert!(outside.path().join("precious").exists());
}
