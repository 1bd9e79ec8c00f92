//! A machine that lacks something: room, a file, rights to write, descriptors, an answer of its own programs.
//!
//! **Invariant:** whatever is missing, a run says so in one line, forgets nothing, lets nobody out, and the
//! work is done once it is there again.

use crate::gateway::{Gateway, POLICY, Picture, Run, Scene};
use crate::stories::{Stage, pool};
use egressctl::simulate::packet::{Exit, Layers};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Fault = fn(&Gateway);

pub const FAULTS: [(&str, Fault); 12] = [
    ("a_disk_that_is_full_loses_nothing", full_disk),
    ("c46_a_state_folder_that_cannot_be_written_keeps_every_path", read_only),
    ("a_state_that_cannot_be_written_takes_the_change_back_in_the_same_run", no_commit),
    ("a_file_that_cannot_be_read_is_named_and_nothing_is_lost", unreadable),
    ("c44_a_zero_byte_state_with_a_good_file_beside_it_is_taken_from_its_backup", zero_bytes),
    ("a_spoilt_file_moves_nobody", spoilt),
    ("few_descriptors_lose_no_state", few_descriptors),
    ("two_instances_are_one", two_instances),
    ("a_program_that_hangs_is_killed_and_its_change_undone", hanging_program),
    ("a_run_that_is_told_to_end_while_its_program_hangs_undoes", told_to_end_while_hanging),
    ("a_state_of_another_version_is_left_alone_or_read", other_versions),
    ("c41_a_clock_before_its_time_counts_nothing_twice_and_moves_nobody", clock_before_its_time),
];

/// Four endpoints that work, two of them loaded, two clients placed.
fn up(gateway: &Gateway) -> Scene {
    let mut stage = Stage::new(gateway, "faults");
    gateway.set_policy(&pool());
    stage.lists(&[1, 2, 3, 4]);
    stage.goes_to("NORMAL");
    stage.goes_to("NORMAL");
    gateway.scene()
}

/// The same, and what is in the first slot has died: the next step moves a client.
fn failing(gateway: &Gateway) -> Scene {
    let _up = up(gateway);
    Stage::again(gateway).dies("vpn1");
    gateway.scene()
}

/// What steps come to from here when nothing is wrong.
fn targets(gateway: &Gateway, scene: &Scene) -> Vec<Picture> {
    gateway.put_back(scene);
    let mut pictures = vec![gateway.picture()];
    for _ in 0..4 {
        gateway.step();
        pictures.push(gateway.picture());
    }
    gateway.put_back(scene);
    pictures
}

#[track_caller]
fn one_line(run: &Run, when: &str) {
    let said = format!("{}{}", run.out, run.err);
    assert!(run.code.is_some(), "{when}: {run:?}");
    assert_eq!(said.lines().count(), 1, "{when}: {run:?}");
}

#[track_caller]
fn nobody_is_out(gateway: &Gateway, when: &str) {
    for layers in [Layers::Both, Layers::RulesAlone, Layers::NftAlone] {
        assert!(!gateway.exits(layers).contains(&Exit::Wan), "{when}: {layers:?}");
    }
}

/// Once all is well again, steps come to where they would have come.
#[track_caller]
fn goes_on(gateway: &Gateway, wished: &[Picture], when: &str) {
    let mut last = None;
    for _ in 0..3 {
        let run = gateway.step();
        one_line(&run, when);
        nobody_is_out(gateway, when);
        if wished[1..].contains(&gateway.picture()) {
            return;
        }
        last = Some(run);
    }
    panic!(
        "{when}: it does not come to where it would have come: {last:?}\n{:#?}",
        gateway.picture()
    );
}

/// Runs egressctl behind a shell in a mount namespace of its own, whose state folder is what `mount` makes.
fn mounted(gateway: &Gateway, mount: &str, then: &str) -> (Run, BTreeMap<PathBuf, Vec<u8>>) {
    let states = gateway.folder().join("state").display().to_string();
    let (seed, kept) = (format!("{states}.seed"), format!("{states}.kept"));
    for folder in [&seed, &kept] {
        let _none = fs::remove_dir_all(folder);
    }
    let script = format!(
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin\nset -e\ncp -a {states} {seed}\n{mount}\n\
         (PATH={bin}; export PATH; exec \"$@\") && code=0 || code=$?\n{then}\ncp -a {states} {kept}\nexit $code",
        bin = gateway.folder().join("bin").display(),
    );
    let script = script.replace("STATES", &states).replace("SEED", &seed);
    let words = ["/usr/bin/unshare", "-m", "--", "/bin/sh", "-c", &script, "sh"].map(str::to_owned);
    let run = gateway.traced(&words, &["step", POLICY]);
    let mut files = BTreeMap::new();
    crate::gateway::collect(Path::new(&kept), Path::new(""), &mut files);
    for folder in [&seed, &kept] {
        let _none = fs::remove_dir_all(folder);
    }
    (run, files)
}

/// For every size of the disk, from the one that holds just what is there.
fn full_disk(gateway: &Gateway) {
    let scene = failing(gateway);
    let wished = targets(gateway, &scene);
    let history = gateway.history();
    let (mut refused, mut done) = (0, 0);
    gateway.put_back(&scene);
    let before = gateway.picture().world;
    for pages in 8..36 {
        let when = format!("{pages} pages");
        gateway.put_back(&scene);
        let mount = format!(
            "mount -t tmpfs -o mode=700,size={}k none STATES\ncp -a SEED/. STATES 2>/dev/null || exit 77",
            pages * 4
        );
        let (run, files) = mounted(gateway, &mount, "true");
        if run.code == Some(77) {
            continue;
        }
        one_line(&run, &when);
        nobody_is_out(gateway, &when);
        if run.code == Some(0) {
            done += 1;
        } else {
            refused += 1;
            // What it had begun it takes back itself, for the next run may find no more room than this one.
            assert_eq!(gateway.picture().world, before, "{when}: {run:?}");
        }
        // There is room again.
        gateway.put_files(&files);
        assert!(history.iter().all(|line| gateway.history().contains(line)), "{when}: history");
        if !wished[1..].contains(&gateway.picture()) {
            goes_on(gateway, &wished, &when);
        }
    }
    assert!(refused > 0 && done > 0, "{refused} were refused for want of room, {done} were not");
}

/// Makes a step to which the kernel refuses these calls on a file, as if for this fault.
fn step_refused(gateway: &Gateway, file: &Path, calls: &str, fault: &str) -> Run {
    let words = [
        "/usr/bin/strace",
        "-f",
        "-b",
        "execve",
        "-qq",
        "-o",
        &gateway.record().display().to_string(),
        "-P",
        &file.display().to_string(),
        "-e",
        &format!("trace={calls}"),
        "-e",
        &format!("inject={calls}:error={fault}"),
        "--",
    ]
    .map(str::to_owned);
    gateway.traced(&words, &["step", POLICY])
}

/// The journal is written, the change is made and proven, and the state cannot be written.
fn no_commit(gateway: &Gateway) {
    let scene = failing(gateway);
    let wished = targets(gateway, &scene);
    gateway.put_back(&scene);
    let before = gateway.picture().world;
    let state = gateway.state_dir().join("state.json");
    let run = step_refused(gateway, &state, "rename,renameat,renameat2", "ENOSPC");
    one_line(&run, "no commit");
    assert_eq!(run.code, Some(3), "it was undone: {run:?}");
    assert!(run.out.contains("No space left"), "{run:?}");
    assert_eq!(gateway.picture().world, before, "{run:?}");
    nobody_is_out(gateway, "no commit");
    goes_on(gateway, &wished, "there is room again");
}

fn read_only(gateway: &Gateway) {
    for scene in [up(gateway), failing(gateway)] {
        let wished = targets(gateway, &scene);
        let before = gateway.world();
        let mount = "mount -t tmpfs -o mode=700 none STATES\ncp -a SEED/. STATES\nmount -o remount,ro STATES";
        let (run, _) = mounted(gateway, mount, "true");
        one_line(&run, "a folder that is only read");
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.out.contains("writable") || run.out.contains("Read-only"), "{run:?}");
        let mut after = gateway.world();
        after.calls = before.calls;
        assert_eq!(after, before, "nothing is touched");
        nobody_is_out(gateway, "a folder that is only read");
        goes_on(gateway, &wished, "the folder can be written again");
    }
}

/// Each file that a run reads cannot be read once, for a fault of the disk and for want of rights.
fn unreadable(gateway: &Gateway) {
    let scene = failing(gateway);
    let wished = targets(gateway, &scene);
    let mut paths: Vec<PathBuf> =
        scene.files.keys().map(|path| gateway.folder().join("state").join(path)).collect();
    paths.push(gateway.folder().join("policies/home.json"));
    assert!(paths.len() > 6, "{paths:?}");
    for path in paths {
        for fault in ["EIO", "EACCES", "EMFILE"] {
            let when = format!("{fault} at {}", path.display());
            gateway.put_back(&scene);
            let run = step_refused(gateway, &path, "openat", fault);
            if path.ends_with("policies/home.json") {
                // An invalid policy is told of itself, and again in what its last good text does.
                assert!(run.code == Some(2) && run.err.lines().count() == 1, "{when}: {run:?}");
            } else {
                one_line(&run, &when);
            }
            nobody_is_out(gateway, &when);
            if path.ends_with("state.json") {
                // It says nothing of what it holds, so an older one is not taken in its place.
                assert_eq!(run.code, Some(1), "{when}: {run:?}");
                assert!(run.out.contains("state.json"), "{when}: {run:?}");
                let mut now = gateway.world();
                now.calls = scene.world.calls;
                assert_eq!(now, scene.world, "{when}: nothing is touched");
            }
            let files = gateway.scene().files;
            let lost: Vec<_> =
                scene.files.keys().filter(|path| !files.contains_key(*path)).collect();
            assert!(lost.is_empty(), "{when}: {lost:?}");
            if !wished[1..].contains(&gateway.picture()) {
                goes_on(gateway, &wished, &when);
            }
        }
    }
}

/// The state is empty, as a power cut leaves it where nobody syncs, and a temporary file of it is whole.
fn zero_bytes(gateway: &Gateway) {
    let scene = failing(gateway);
    let wished = targets(gateway, &scene);
    let state = gateway.state_dir().join("state.json");
    fs::copy(&state, gateway.state_dir().join(".egressctl-Ab12Cd")).expect("it can be copied");
    fs::write(&state, "").expect("it can be written");
    let run = gateway.step();
    one_line(&run, "zero bytes");
    assert_eq!(run.code, Some(0), "it never refuses to run: {run:?}");
    assert!(run.out.contains("backup-used"), "{run:?}");
    nobody_is_out(gateway, "zero bytes");
    let names: Vec<String> = gateway
        .scene()
        .files
        .keys()
        .map(|path| path.display().to_string())
        .filter(|name| name.contains("state.json.bad-") || name.contains(".egressctl-"))
        .collect();
    assert_eq!(names.len(), 2, "kept for a person to look at: {names:?}");
    if !wished[1..].contains(&gateway.picture()) {
        goes_on(gateway, &wished, "zero bytes");
    }
}

/// Each file is empty, torn, noise, or a folder.
fn spoilt(gateway: &Gateway) {
    let scene = up(gateway);
    let world = gateway.world();
    let kept: BTreeMap<_, _> = world.links.iter().map(|(name, link)| (name, link.index)).collect();
    let way: Vec<Exit> = gateway.exits(Layers::Both);
    for (path, bytes) in &scene.files {
        for how in ["empty", "torn", "noise", "folder"] {
            let when = format!("{} is {how}", path.display());
            gateway.put_back(&scene);
            let path = gateway.folder().join("state").join(path);
            match how {
                "empty" => fs::write(&path, "").expect("it is written"),
                "torn" => fs::write(&path, &bytes[..bytes.len() / 2]).expect("it is written"),
                "noise" => fs::write(&path, [0xff, 0, 0x7b, 0x7d, 0x0a]).expect("it is written"),
                _ => {
                    fs::remove_file(&path).expect("it is there");
                    fs::create_dir(&path).expect("it is made");
                }
            }
            for _ in 0..2 {
                let run = gateway.step();
                one_line(&run, &when);
                assert!(matches!(run.code, Some(0 | 1)), "{when}: {run:?}");
                assert_eq!(gateway.exits(Layers::Both), way, "{when}: nobody is moved");
                let now = gateway.world();
                let now: BTreeMap<_, _> =
                    now.links.iter().map(|(name, link)| (name.clone(), link.index)).collect();
                assert!(
                    kept.iter().all(|(name, index)| now.get(*name) == Some(index)),
                    "{when}: no tunnel is made anew"
                );
            }
        }
    }
}

/// With each number of descriptors from too few to enough.
fn few_descriptors(gateway: &Gateway) {
    let scene = failing(gateway);
    let wished = targets(gateway, &scene);
    let (mut refused, mut last) = (0, None);
    for most in 3..40 {
        let when = format!("{most} descriptors");
        gateway.put_back(&scene);
        let words = ["/usr/bin/prlimit", &format!("--nofile={most}"), "--"].map(str::to_owned);
        let run = gateway.traced(&words, &["step", POLICY]);
        // With three, not even the C library can be loaded.
        if most > 3 {
            one_line(&run, &when);
        }
        nobody_is_out(gateway, &when);
        assert!(gateway.state().is_object(), "{when}: the state is whole");
        refused += usize::from(run.code != Some(0));
        last = run.code;
        if !wished[1..].contains(&gateway.picture()) {
            goes_on(gateway, &wished, &when);
        }
    }
    assert!(refused > 2 && last == Some(0), "{refused} were refused, the last ended with {last:?}");
}

fn two_instances(gateway: &Gateway) {
    let scene = failing(gateway);
    let wished = targets(gateway, &scene);
    for _ in 0..6 {
        gateway.put_back(&scene);
        let runs: Vec<Run> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..3).map(|_| scope.spawn(|| gateway.step())).collect();
            started.into_iter().map(|run| run.join().expect("no thread panics")).collect()
        });
        let stepped = runs.iter().filter(|run| run.code == Some(0)).count();
        assert!(stepped >= 1, "{runs:?}");
        assert!(runs.iter().all(|run| matches!(run.code, Some(0 | 75))), "{runs:?}");
        for run in &runs {
            one_line(run, "several at once");
        }
        nobody_is_out(gateway, "several at once");
        assert!(wished[1..].contains(&gateway.picture()), "{runs:?}");
    }
}

/// The call at which a program hangs, among those of a step that loads an endpoint.
fn repairing(gateway: &Gateway) -> (Scene, u64) {
    let _scene = failing(gateway);
    gateway.step();
    let scene = gateway.scene();
    gateway.step();
    let calls = gateway.world().calls - scene.world.calls;
    (scene, calls)
}

fn hanging_program(gateway: &Gateway) {
    let (scene, calls) = repairing(gateway);
    let wished = targets(gateway, &scene);
    // One that looks, one that changes, one that looks whether it came true.
    for at in [2, calls / 2, calls - 3] {
        let when = format!("call {at} of {calls} hangs");
        gateway.put_back(&scene);
        let mut world = gateway.world();
        world.hangs_at = world.calls + at;
        gateway.set_world(&world);
        let begun = Instant::now();
        let run = gateway.step();
        one_line(&run, &when);
        assert!(begun.elapsed() < Duration::from_secs(40), "{when}: {:?}", begun.elapsed());
        nobody_is_out(gateway, &when);
        assert!(gateway.nobody_runs(), "{when}: what hung is gone");
        if !wished[1..].contains(&gateway.picture()) {
            goes_on(gateway, &wished, &when);
        }
    }
}

fn told_to_end_while_hanging(gateway: &Gateway) {
    let (scene, calls) = repairing(gateway);
    let wished = targets(gateway, &scene);
    let mut world = gateway.world();
    world.hangs_at = world.calls + calls / 2;
    gateway.set_world(&world);
    let begun = Instant::now();
    let words = ["/usr/bin/timeout", "--foreground", "-s", "TERM", "2"].map(str::to_owned);
    let run = gateway.traced(&words, &["step", POLICY]);
    assert!(begun.elapsed() < Duration::from_secs(6), "it hurries: {:?}", begun.elapsed());
    assert!(!gateway.picture().in_flight, "{run:?}");
    nobody_is_out(gateway, "told to end");
    assert!(gateway.nobody_runs(), "what hung is gone");
    goes_on(gateway, &wished, "told to end");
}

fn other_versions(gateway: &Gateway) {
    let scene = up(gateway);
    let before = gateway.world();
    let path = gateway.state_dir().join("state.json");
    let mut state = gateway.state();
    state["version"] = 2.into();
    let newer = state.to_string();
    fs::write(&path, &newer).expect("it is written");
    let run = gateway.step();
    one_line(&run, "newer");
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.out.contains("use the newer egressctl"), "{run:?}");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), newer);
    assert_eq!(gateway.world(), before, "nothing is touched");
    // There never was an older one: it is taken for spoilt, and kept.
    gateway.put_back(&scene);
    state["version"] = 0.into();
    fs::write(&path, state.to_string()).expect("it is written");
    let run = gateway.step();
    one_line(&run, "older");
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.out.contains("backup-used") && run.out.contains("kept aside"), "{run:?}");
}

/// The machine comes up years behind, as one without a clock of its own does, and is set right later.
fn clock_before_its_time(gateway: &Gateway) {
    let _scene = failing(gateway);
    gateway.step();
    gateway.step();
    let quarantined = |gateway: &Gateway| gateway.state()["body"]["machine"]["quarantine"].clone();
    let names = |gateway: &Gateway| -> Vec<String> {
        let all = quarantined(gateway).as_object().expect("a map").clone();
        all.values().map(|one| one["name"].to_string()).collect()
    };
    let before = names(gateway);
    assert_eq!(before.len(), 1, "one endpoint is quarantined");
    let way = gateway.exits(Layers::Both);
    // Seen from now, everything was written thirty years later, in another boot.
    for years in [30, -30] {
        gateway.leap(years);
        let run = gateway.step();
        one_line(&run, "a clock that leapt");
        assert_eq!(run.code, Some(0), "{run:?}");
        assert_eq!(run.out.contains("clock-leapt"), years > 0, "{run:?}");
        assert_eq!(names(gateway), before, "{years} years: it neither vanishes nor spreads");
        assert_eq!(gateway.exits(Layers::Both), way, "{years} years: nobody is moved");
        let boots: Vec<String> = quarantined(gateway)
            .as_object()
            .expect("a map")
            .values()
            .map(|one| one["since"]["boot"].to_string())
            .collect();
        let here = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot");
        assert!(boots.iter().all(|boot| boot.contains(here.trim())), "{boots:?}");
    }
}
