//! What a step would do, told without doing it; and a step then does what was told.

use crate::fakes;
use crate::lab;

use fakes::{Fakes, on_two_slots, planned, small_policy, world};
use lab::gateway::Outcome;
use lab::{Lab, names, space};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

fn lab() -> Lab {
    let lab = Lab::builder().clients(2).endpoints(4).start();
    let mut policy = small_policy(&lab);
    policy["params"]["local_repair_retest_count"] = 2.into();
    lab.gw().policy("home", &policy);
    lab
}

#[track_caller]
fn run(lab: &Lab, args: &[&str]) -> Outcome {
    let outcome = lab.gw().egressctl(args);
    fakes::no_panic(&outcome);
    assert_eq!(outcome.code, Some(0), "{args:?}: {}{}", outcome.stdout, outcome.stderr);
    assert_eq!(outcome.stderr, "", "{args:?}");
    outcome
}

/// Every file and folder of the lab and of the gateway's `/run`, with when it was changed last.
fn files(lab: &Lab) -> BTreeMap<PathBuf, (i64, i64, u64)> {
    let mut all = BTreeMap::new();
    let mut folders = vec![lab.folder().to_owned(), lab.gw().file("/run")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let seen = entry.metadata().unwrap();
            // The lab's own harness keeps outputs beside the policies for a moment.
            if seen.is_dir() && entry.path() != lab.gw().policy_dir() {
                folders.push(entry.path());
            }
            if entry.path() != lab.gw().policy_dir() {
                let changed = (seen.ctime(), seen.ctime_nsec(), seen.ino());
                all.insert(entry.path(), changed);
            }
        }
    }
    all
}

/// Plans in all its ways change nothing and create nothing.
#[track_caller]
fn changes_nothing(lab: &Lab) {
    let fakes = Fakes::new(lab);
    let (before, kernel, devices) = (files(lab), world(lab.gw()), lab.gw().ip("-o link show"));
    let ways: [&[&str]; 5] = [
        &["plan", "home"],
        &["plan", "home", "--json"],
        &["plan"],
        &["step", "home", "--plan"],
        &["down", "home", "--plan"],
    ];
    for args in ways {
        let outcome = fakes.run(lab.gw(), "", args);
        assert_eq!(outcome.code, Some(0), "{args:?}: {}{}", outcome.stdout, outcome.stderr);
        for what in ["change", "trial", "cut"] {
            assert_eq!(fakes.calls(what), [""; 0], "{args:?} runs no such command");
        }
        assert_eq!(files(lab), before, "{args:?}");
        assert_eq!(world(lab.gw()), kernel, "{args:?}");
        assert_eq!(lab.gw().ip("-o link show"), devices, "{args:?}");
    }
    let plan = run(lab, &["plan", "home"]).stdout;
    assert_eq!(run(lab, &["step", "home", "--plan"]).stdout, plan);
    assert_eq!(run(lab, &["step", "home", "--plan", "--now"]).stdout, plan);
    let json = run(lab, &["plan", "home", "--json"]).stdout;
    assert_eq!(run(lab, &["step", "home", "--plan", "--json"]).stdout, json);
}

/// Compares with the file in `snapshots/`. The fastest endpoint comes first, and which one that is
/// differs from run to run, so each is given the name of its part.
fn snapshot(name: &str, text: &str, parts: &[(usize, &str)]) {
    let mut text = text.to_owned();
    for (k, part) in parts {
        let server = format!("{}:{}", names::endpoint(*k), names::port(*k));
        text = text
            .replace(&server, &format!("[server of {part}]"))
            .replace(
                &format!("get {} names no slot", names::endpoint(*k)),
                &format!("get [server of {part}] names no slot"),
            )
            .replace(&names::tunnel(*k).to_string(), &format!("[address of {part}]"))
            .replace(&format!("p{k}"), part);
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// JSON as a person reads it.
fn pretty(json: &str) -> String {
    let value: Value = serde_json::from_str(json).unwrap();
    serde_json::to_string_pretty(&value).unwrap()
}

#[test]
fn of_the_first_run() {
    let lab = lab();
    changes_nothing(&lab);
    assert!(!lab.gw().state_dir().join("home").exists(), "no folder of state is made");
    snapshot("plan_first_run_text", &run(&lab, &["plan", "home"]).stdout, &[]);
    snapshot("plan_first_run_json", &pretty(&run(&lab, &["plan", "home", "--json"]).stdout), &[]);
    snapshot("plan_down_before_the_first_run", &run(&lab, &["down", "home", "--plan"]).stdout, &[]);
}

#[test]
fn of_a_move_and_of_a_repair_and_of_down() {
    let lab = lab();
    let _loaded = run(&lab, &["step", "home"]);
    let _steady = run(&lab, &["step", "home"]);
    changes_nothing(&lab);
    let [first, second] = on_two_slots(&lab);
    let rest: Vec<usize> = (1..=4).filter(|k| *k != first && *k != second).collect();
    let parts = [(first, "pA"), (second, "pB"), (rest[0], "pReserve"), (rest[1], "pReserve")];
    snapshot("plan_steady_text", &run(&lab, &["plan", "home"]).stdout, &parts);
    snapshot("plan_down_text", &run(&lab, &["down", "home", "--plan"]).stdout, &parts);
    lab.portal(first);
    changes_nothing(&lab);
    snapshot("plan_move_text", &run(&lab, &["plan", "home"]).stdout, &parts);
    snapshot("plan_move_json", &pretty(&run(&lab, &["plan", "home", "--json"]).stdout), &parts);
    fakes::step_until_repair(lab.gw());
    changes_nothing(&lab);
    snapshot("plan_repair_text", &run(&lab, &["plan", "home"]).stdout, &parts);
    snapshot("plan_repair_json", &pretty(&run(&lab, &["plan", "home", "--json"]).stdout), &parts);
}

#[test]
fn of_a_paused_policy() {
    let lab = lab();
    let _loaded = run(&lab, &["step", "home"]);
    let _paused = run(&lab, &["pause", "home"]);
    lab.gw().flush_nft();
    changes_nothing(&lab);
    let plan = run(&lab, &["plan", "home"]).stdout;
    let since = plan.split("since ").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
    snapshot("plan_paused_text", &plan.replace(since, "[then]"), &[]);
}

#[test]
fn without_a_right_to_write_anywhere() {
    let lab = lab();
    let read_only = |lab: &Lab| {
        let folder = lab.folder().display().to_string();
        let script = format!(
            "mount --bind {folder} {folder} && mount -o remount,ro,bind {folder} \
             && exec \"$0\" plan home --policy-dir {policies} --state-dir {states}",
            policies = lab.gw().policy_dir().display(),
            states = lab.gw().state_dir().display(),
        );
        let mut command = lab.gw().command("unshare");
        command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_egressctl")]);
        lab.gw().finish(command)
    };
    let outcome = read_only(&lab);
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    assert_eq!(outcome.stdout, run(&lab, &["plan", "home"]).stdout);
    let _loaded = run(&lab, &["step", "home"]);
    let outcome = read_only(&lab);
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
}

#[test]
fn beside_a_run_that_is_under_way() {
    let lab = lab();
    let fakes = Fakes::new(&lab);
    let mut first = fakes.spawn(lab.gw(), "slow:6", &["step", "home"]);
    let begun = || fakes.calls("change").len() == 6;
    assert!(space::wait_until(std::time::Duration::from_secs(10), begun));
    let outcome = lab.gw().egressctl(&["plan", "home"]);
    fakes::no_panic(&outcome);
    assert_eq!(outcome.stdout.lines().count() + outcome.stderr.lines().count(), 1, "{outcome:?}");
    assert!(first.wait().unwrap().success(), "the plan does not get in its way");
}

/// The command as the kernel's programs are told it: what people are told beside it is left out.
///
/// Which candidates a first run finds the fastest is known only once they were tested.
fn told(command: &str) -> String {
    let end = command.find(" < ").or_else(|| command.find(" (table ")).unwrap_or(command.len());
    let mut told = command[..end].to_owned();
    for k in 1..=4 {
        told = told.replace(&names::tunnel(k).to_string(), "ADDRESS");
    }
    told
}

/// The commands of a plan are those of the step after it, in the same order.
#[track_caller]
fn does_what_was_planned(lab: &Lab, fakes: &Fakes, args: &[&str], planned: &[String]) {
    let processes = planned.iter().filter(|command| !command.starts_with("sysctl "));
    let expected: Vec<String> = processes.map(|command| told(command)).collect();
    let outcome = fakes.run(lab.gw(), "", args);
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    let made: Vec<String> = fakes.calls("change").iter().map(|command| told(command)).collect();
    assert_eq!(made, expected, "{}", outcome.stdout);
}

#[test]
fn a_step_runs_just_the_commands_of_its_plan() {
    let lab = lab();
    let fakes = Fakes::new(&lab);
    does_what_was_planned(&lab, &fakes, &["step", "home"], &planned(lab.gw()));
    does_what_was_planned(&lab, &fakes, &["step", "home"], &planned(lab.gw()));
    let [first, _] = on_two_slots(&lab);
    lab.portal(first);
    for _ in 0..6 {
        does_what_was_planned(&lab, &fakes, &["step", "home"], &planned(lab.gw()));
    }
    assert_ne!(on_two_slots(&lab)[0], first, "a repair was among them");
    let down = run(&lab, &["down", "home", "--plan"]).stdout;
    let down: Vec<String> = down
        .lines()
        .filter_map(|line| Some(line.trim().strip_prefix("do    ")?.to_owned()))
        .collect();
    assert!(down.len() > 10);
    does_what_was_planned(&lab, &fakes, &["down", "home"], &down);
}

/// The folder of snapshots belongs to the package.
#[test]
fn snapshots_lie_at_the_top() {
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots").is_dir());
}
