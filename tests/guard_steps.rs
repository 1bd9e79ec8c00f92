//! The program with a policy of kind guard, against a core and a proxy that behave as told.

use crate::fake_core;
use crate::ran;

use fake_core::proxy::{FakeProxy, Way};
use fake_core::{Core, FakeCore, Fault};
use ran::{Run, went};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const GROUP: &str = "select 🌍/all";
const AUTO: &str = "auto";
const PICK: &str = "de/1";
const FAST: &str = "fi 1";
const SLOW: &str = "us1";

/// The secret of a core whose files are found.
const SECRET: &str = "hush-0815-hush";

/// What sing-box is told about this core.
fn sing_box_file(control: &str, proxy: &str, secret: &str) -> String {
    format!(
        r#"{{ // "automatic" is what chooses
        "inbounds": [
            {{ "type": "mixed", "tag": "private", "listen": "127.0.0.1", "listen_port": 1, "users": [{{ "username": "a", "password": "{SECRET}" }}] }},
            {{ "type": "mixed", "tag": "in", "listen": "127.0.0.1", "listen_port": {proxy} }},
        ],
        "outbounds": [
            {{ "type": "urltest", "tag": "{AUTO}", "outbounds": ["{PICK}", "{FAST}", "{SLOW}"] }},
            {{ "type": "selector", "tag": "{GROUP}", "outbounds": ["{AUTO}", "{PICK}", "{FAST}", "{SLOW}", "direct"] }},
        ],
        "experimental": {{ "clash_api": {{ "external_controller": "127.0.0.1:{control}", "secret": "{secret}" }} }}, # done
    }}"#
    )
}

/// What mihomo is told about it.
fn mihomo_file(control: &str, proxy: &str, secret: &str) -> String {
    format!(
        "mixed-port: {proxy}\nallow-lan: false\nexternal-controller: 127.0.0.1:{control}\nsecret: '{secret}'\n\
         all: &all {{ proxies: ['{AUTO}', '{PICK}', '{FAST}', '{SLOW}', DIRECT] }}\n\
         proxy-groups:\n  - {{ name: '{AUTO}', type: url-test, proxies: ['{PICK}', '{FAST}', '{SLOW}'] }}\n\
         \x20 - {{ name: '{GROUP}', type: select, <<: *all }}\nrules:\n  - MATCH,{GROUP}\n"
    )
}

fn port(url: &str) -> String {
    url.rsplit(':').next().unwrap().to_owned()
}

/// A policy on loopback without waits, whose core and members a test has in hand.
struct Bench {
    folder: TempDir,
    core: FakeCore,
    proxy: FakeProxy,
    passing: Arc<Mutex<BTreeSet<&'static str>>>,
    /// The program that an ordinary user runs; `None`: whoever runs the tests does.
    user: Option<PathBuf>,
}

/// The user of `setpriv`, who owns nothing.
const NOBODY: u32 = 65_534;

impl Bench {
    fn with(core: Core, change: impl FnOnce(&mut Value)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let core = FakeCore::start(core);
        let passing: Arc<Mutex<BTreeSet<&'static str>>> = Arc::default();
        let (shared, members) = (core.shared(), Arc::clone(&passing));
        let proxy = FakeProxy::deciding(move |told| {
            let selected = shared.lock().unwrap().now(GROUP);
            let leaf = if selected == AUTO { PICK } else { &selected };
            let passes = members.lock().unwrap().contains(leaf);
            if passes || told != Way::Well { told } else { Way::Portal }
        });
        let mut policy = json!({
            "kind": "guard",
            "driver": { "clash": { "url": core.url() } },
            "group": GROUP, "automatic": AUTO, "proxy": proxy.url(),
            "probe": { "urls": ["http://probe.example/generate_204"], "timeout_sec": 2 },
            "params": { "check_interval_sec": 0, "observe_passes": 2, "backoff_min_sec": 0,
                        "backoff_max_sec": 0, "give_back_max_sec": 0 }
        });
        change(&mut policy);
        std::fs::create_dir(folder.path().join("policies")).unwrap();
        std::fs::write(folder.path().join("policies/home.json"), policy.to_string()).unwrap();
        let bench = Self { folder, core, proxy, passing, user: None };
        bench.passes(&[PICK, FAST, SLOW]);
        bench
    }

    fn core_of(automatic: &[&str]) -> Core {
        let mut core = Core::sing_box(GROUP, &[AUTO, PICK, FAST, SLOW, "direct"]);
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        core.groups.insert(AUTO.to_owned(), (all(automatic), PICK.to_owned()));
        for member in [PICK, FAST, SLOW] {
            core.odd.insert(member.to_owned(), json!({ "type": "VLESS", "name": member }));
        }
        core.odd.insert("direct".to_owned(), json!({ "type": "Direct", "name": "direct" }));
        let delays = [(AUTO, 30), (PICK, 30), (FAST, 20), (SLOW, 200), ("direct", 1)];
        core.delays = delays.map(|(member, ms)| (member.to_owned(), ms)).into();
        core
    }

    fn new() -> Self {
        Self::with(Self::core_of(&[PICK, FAST, SLOW]), |_| {})
    }

    /// Requests pass by these members alone.
    fn passes(&self, members: &[&'static str]) {
        *self.passing.lock().unwrap() = members.iter().copied().collect();
    }

    fn run(&self, args: &[&str]) -> Run {
        let command = match &self.user {
            None => Command::new(env!("CARGO_BIN_EXE_egressctl")),
            Some(program) => {
                let mut command = Command::new("/usr/bin/setpriv");
                let id = NOBODY.to_string();
                command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--no-new-privs"]);
                command.arg(program);
                command
            }
        };
        Run::of(command, self.folder.path(), args)
    }

    fn step(&self) -> (i32, String, String) {
        self.run(&["step", "home", "--json"]).went()
    }

    fn status(&self) -> (i32, Value) {
        let run = self.run(&["status", "home", "--json"]);
        (run.code, run.report())
    }

    fn selected(&self) -> String {
        self.core.core().now(GROUP)
    }

    /// The selections that the core was asked to make.
    fn selections(&self) -> Vec<String> {
        let asked = self.core.core().asked.clone();
        let body = |line: String| -> Option<String> {
            let body = line.starts_with("PUT").then(|| line.split_once('{'))??.1.to_owned();
            let body: Value = serde_json::from_str(&format!("{{{body}")).unwrap();
            Some(body["name"].as_str().unwrap().to_owned())
        };
        asked.into_iter().filter_map(body).collect()
    }

    /// A member stands in for the group, whose pick is dead.
    fn takes_over(&self) {
        assert_eq!(self.step(), went(0, "- -> AUTO steady", "found"));
        self.passes(&[FAST, SLOW]);
        assert_eq!(self.step(), went(0, "AUTO -> SUSPECT steady", "round-fails"));
        assert_eq!(self.step(), went(0, "SUSPECT -> TEMPORARY applied", "took-over"));
        assert_eq!((self.selected().as_str(), self.selections()), (FAST, vec![FAST.to_owned()]));
    }
}

#[test]
fn a_member_stands_in_for_a_group_that_looks_well_until_the_group_has_proven_itself() {
    let bench = Bench::new();
    bench.takes_over();
    let (code, status) = bench.status();
    assert_eq!(
        (code, &status["state"], &status["selected"]),
        (1, &json!("TEMPORARY"), &json!(FAST))
    );
    assert_eq!(status["uses"]["member"], PICK);
    let row = |status: &Value, name: &str| {
        let rows = status["members"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["member"] == name).unwrap()
    };
    assert_eq!(row(&status, AUTO)["request"]["health"], "failed");
    assert_eq!(row(&status, AUTO)["request"]["why"], "probe.example answers 200 with 7 bytes");
    assert_eq!(row(&status, FAST)["request"]["health"], "passed");
    assert_eq!(row(&status, FAST)["core"]["delay_ms"], 20);
    // The core believes in its pick, and the trial does not.
    assert_eq!(bench.step(), went(0, "TEMPORARY -> OBSERVING steady", "group-answers"));
    assert_eq!(bench.step(), went(3, "OBSERVING -> TEMPORARY rolled-back", "trial-failed"));
    assert_eq!(bench.selected(), FAST);
    bench.passes(&[PICK, FAST, SLOW]);
    assert_eq!(bench.step(), went(0, "TEMPORARY -> OBSERVING steady", "group-answers"));
    assert_eq!(bench.step(), went(0, "OBSERVING -> AUTO applied", "given-back"));
    assert_eq!(bench.step(), went(0, "AUTO -> AUTO steady", "all-well"));
    assert_eq!((bench.selected().as_str(), bench.status().0), (AUTO, 0));
    let text = bench.run(&["status", "home"]).out;
    assert!(text.starts_with("home (guard)  AUTO since "), "{text}");
    assert!(text.contains("*  auto  core: 30 ms "), "{text}");
    assert!(text.contains("the automatic group uses de/1, as the core said "), "{text}");
    let history = bench.run(&["history", "home", "--json"]).out;
    for told in ["took-over", "trial-failed", "given-back"] {
        assert!(history.contains(told), "{history}");
    }
}

#[test]
fn nothing_but_the_groups_selected_member_is_written_and_the_direct_way_is_never_taken() {
    let bench = Bench::new();
    bench.takes_over();
    bench.passes(&[]);
    assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY steady", "round-fails"));
    assert_eq!(bench.step(), went(3, "TEMPORARY -> SUSPECT rolled-back", "no-member-passes"));
    assert_eq!((bench.selected().as_str(), bench.status().0), (AUTO, 2));
    let asked = bench.core.core().asked.clone();
    let path = "PUT /proxies/select%20%F0%9F%8C%8D%2Fall ";
    let reads = |line: &String| line.starts_with("GET ") || line.starts_with(path);
    assert!(asked.iter().all(reads), "{asked:#?}");
    assert!(!asked.iter().any(|line| line.contains("/group/")), "{asked:#?}");
    assert!(!bench.selections().contains(&"direct".to_owned()));
}

#[test]
fn a_persons_choice_is_left_alone_until_the_group_is_selected_again() {
    let bench = Bench::new();
    bench.takes_over();
    bench.core.core().select(GROUP, SLOW);
    assert_eq!(bench.step(), went(0, "TEMPORARY -> MANUAL steady", "persons-choice"));
    bench.passes(&[]);
    for _ in 0..3 {
        assert_eq!(bench.step(), went(0, "MANUAL -> MANUAL steady", "persons-member-fails"));
    }
    assert_eq!((bench.selected().as_str(), bench.status().0), (SLOW, 2));
    bench.core.core().select(GROUP, AUTO);
    assert_eq!(bench.step(), went(0, "MANUAL -> AUTO steady", "handed-back"));
    assert_eq!(bench.selections(), [FAST]);
}

#[test]
fn a_person_who_is_quicker_than_the_write_is_not_overwritten() {
    let bench = Bench::new();
    bench.step();
    bench.passes(&[FAST]);
    bench.step();
    bench.core.core().fault = Some(Fault::SelectsInstead(SLOW));
    assert_eq!(bench.step(), went(0, "SUSPECT -> MANUAL applied", "persons-choice"));
    bench.core.core().fault = None;
    bench.step();
    assert_eq!(bench.selected(), SLOW);
}

#[test]
fn a_person_switches_and_hands_back() {
    let bench = Bench::new();
    bench.step();
    bench.passes(&[PICK, SLOW]);
    let refused = bench.run(&["switch", "home", FAST]);
    assert_eq!((refused.code, bench.selected().as_str()), (3, AUTO), "{refused:?}");
    assert_eq!(bench.run(&["switch", "home", "nobody", "--force"]).code, 1);
    for (target, force) in [(SLOW, None), (FAST, Some("--force"))] {
        let args = ["switch", "home", target].into_iter().chain(force);
        let run = bench.run(&args.collect::<Vec<_>>());
        assert_eq!((run.code, bench.selected().as_str()), (0, target), "{run:?}");
        let (_, status) = bench.status();
        assert_eq!((&status["state"], status["paused"].is_string()), (&json!("MANUAL"), true));
    }
    assert_eq!(bench.run(&["switch", "home", AUTO]).code, 0);
    let (_, status) = bench.status();
    assert_eq!((&status["state"], &status["paused"]), (&json!("AUTO"), &Value::Null));
    assert_eq!(bench.selected(), AUTO);
}

#[test]
fn a_core_that_is_down_is_waited_for_and_what_it_forgot_is_selected_again() {
    let mut bench = Bench::new();
    bench.takes_over();
    bench.core.down();
    for _ in 0..2 {
        assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY steady", "core-down"));
    }
    let (code, status) = bench.status();
    assert!(code == 2 && status["core_trouble"].is_string(), "{status}");
    bench.core.core().restart();
    bench.core.up();
    bench.passes(&[FAST]);
    assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY applied", "choice-lost"));
    assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY steady", "settling"));
    assert_eq!((bench.selected().as_str(), bench.status().0), (FAST, 1));
}

#[test]
fn a_refused_selection_changes_nothing_and_one_that_nobody_can_tell_is_taken_back() {
    let mut bench = Bench::new();
    bench.step();
    bench.passes(&[FAST]);
    bench.step();
    for fault in [Fault::RefusesSelections(400, "Must be a Selector"), Fault::IgnoresSelections] {
        bench.core.core().fault = Some(fault);
        assert_eq!(bench.step(), went(3, "SUSPECT -> SUSPECT rolled-back", "refused"));
        assert_eq!(bench.selected(), AUTO);
    }
    bench.core.core().fault = Some(Fault::DiesAtSelections);
    assert_eq!(bench.step().0, 4);
    bench.core.core().fault = None;
    bench.core.down();
    bench.core.up();
    assert_eq!(bench.selected(), FAST);
    assert_eq!(bench.step().0, 5);
    assert_eq!(bench.selected(), AUTO);
}

#[test]
fn a_proxy_that_refuses_says_nothing_and_nothing_is_written() {
    let bench = Bench::new();
    bench.step();
    bench.proxy.answers(Way::Refuses);
    for _ in 0..3 {
        assert_eq!(bench.step(), went(0, "AUTO -> AUTO steady", "undetermined"));
    }
    bench.proxy.answers(Way::Well);
    bench.core.core().delays.clear();
    bench.passes(&[FAST]);
    bench.step();
    assert_eq!(bench.step(), went(0, "SUSPECT -> SUSPECT steady", "none-measured"));
    assert!(bench.selections().is_empty());
}

#[test]
fn what_the_core_lacks_is_told_and_nothing_is_written() {
    type Change = fn(&mut Core);
    let cases: [(Change, i32, &str, &str); 5] = [
        (|core| core.secret = Some("s".into()), 1, "core-unusable", "401"),
        (|core| drop(core.groups.remove(GROUP)), 0, "group-missing", "no group of that name"),
        (|core| drop(core.groups.remove(AUTO)), 0, "group-missing", "no group of that name"),
        (
            |core| core.groups.get_mut(GROUP).unwrap().0.retain(|member| member != AUTO),
            1,
            "core-unusable",
            "auto is no member of it",
        ),
        (
            |core| {
                let own = json!({ "type": "URLTest", "now": PICK, "all": [AUTO, PICK] });
                core.odd.insert(GROUP.into(), own);
            },
            1,
            "core-unusable",
            "chooses by itself",
        ),
    ];
    for (change, code, why, told) in cases {
        let bench = Bench::new();
        bench.step();
        bench.passes(&[]);
        bench.step();
        change(&mut bench.core.core());
        let run = bench.run(&["step", "home", "--json"]);
        let (got, _, reason) = run.went();
        assert_eq!((got, reason.as_str()), (code, why), "{run:?}");
        assert!(run.out.contains(told), "{told}: {run:?}");
        assert!(bench.selections().is_empty());
        assert!(bench.status().0 >= 2);
    }
}

#[test]
fn what_the_policy_does_not_name_is_found_in_the_cores_files_and_their_secret_is_never_shown() {
    type File = fn(&str, &str, &str) -> String;
    let files: [(&str, File); 2] = [("core.json", sing_box_file), ("core.yaml", mihomo_file)];
    for (name, file) in files {
        let files = tempfile::tempdir().unwrap();
        let config = files.path().join(name);
        let mut core = Bench::core_of(&[PICK, FAST, SLOW]);
        core.secret = Some(SECRET.to_owned());
        let mut bench = Bench::with(core, |policy| {
            let url = |value: &Value| port(value.as_str().unwrap());
            let (control, proxy) = (url(&policy["driver"]["clash"]["url"]), url(&policy["proxy"]));
            std::fs::write(&config, file(&control, &proxy, SECRET)).unwrap();
            policy["driver"]["clash"] = json!({ "config": config });
            for key in ["group", "automatic", "proxy"] {
                policy[key] = Value::Null;
            }
        });
        let written = std::fs::metadata(&config).unwrap().modified().unwrap();
        bench.takes_over();
        let mut told = String::new();
        let mut tell = |run: Run| {
            told += &run.out;
            told += &run.err;
        };
        for args in
            [&["plan", "home"][..], &["status", "home"], &["check", "home"], &["history", "home"]]
        {
            tell(bench.run(args));
            tell(bench.run(&[args, &["--json"]].concat()));
        }
        let bundle = files.path().join("why.json");
        let record = ["step", "home", "--now", "--explain", "--record"];
        tell(bench.run(&[&record[..], &[bundle.to_str().unwrap()]].concat()));
        let recorded = std::fs::read_to_string(&bundle).unwrap();
        assert!(!recorded.contains(SECRET), "{recorded}");
        let replayed = bench.run(&["replay", bundle.to_str().unwrap()]);
        assert!(replayed.out.contains("the decision is the recorded one"), "{replayed:?}");
        tell(bench.run(&["switch", "home", SLOW]));
        tell(bench.run(&["switch", "home", AUTO]));
        // The core has another secret than the file says, and is asked for by a person.
        bench.core.core().secret = Some("other".to_owned());
        let refused = bench.run(&["step", "home", "--json"]);
        assert_eq!((refused.code, refused.went().2.as_str()), (1, "core-unusable"), "{refused:?}");
        assert!(refused.out.contains("401"), "{refused:?}");
        tell(refused);
        bench.core.core().secret = Some(SECRET.to_owned());
        bench.core.core().fault = Some(Fault::DiesAtSelections);
        tell(bench.run(&["switch", "home", FAST]));
        bench.core.core().fault = None;
        assert!(bench.folder.path().join("state/home/journal.json").exists());
        for file in ["state.json", "state.json.bak", "journal.json", "history.jsonl"] {
            let path = bench.folder.path().join("state/home").join(file);
            told += &std::fs::read_to_string(&path).unwrap();
        }
        assert!(!told.contains("hush"), "{told}");
        bench.core.down();
        bench.core.up();
        assert_eq!(bench.step().0, 5);
        assert_eq!(std::fs::metadata(&config).unwrap().modified().unwrap(), written);
    }
}

#[test]
fn a_core_that_comes_back_elsewhere_with_another_secret_is_found_again() {
    let files = tempfile::tempdir().unwrap();
    let config = files.path().join("core.json");
    let mut proxy = String::new();
    let mut core = Bench::core_of(&[PICK, FAST, SLOW]);
    core.secret = Some(SECRET.to_owned());
    let mut bench = Bench::with(core, |policy| {
        let url = |value: &Value| port(value.as_str().unwrap());
        proxy = url(&policy["proxy"]);
        std::fs::write(
            &config,
            sing_box_file(&url(&policy["driver"]["clash"]["url"]), &proxy, SECRET),
        )
        .unwrap();
        policy["driver"]["clash"] = json!({ "config": config });
        policy["proxy"] = Value::Null;
    });
    bench.takes_over();
    bench.core.down();
    assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY steady", "core-down"));
    let mut other = bench.core.core().clone();
    other.restart();
    other.secret = Some("new".to_owned());
    let other = FakeCore::start(other);
    std::fs::write(&config, sing_box_file(&port(&other.url()), &proxy, "new")).unwrap();
    assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY applied", "choice-lost"));
    assert_eq!(other.core().now(GROUP), FAST);
    // What the policy names stands, whatever the file says.
    std::fs::write(&config, sing_box_file("1", "1", "new")).unwrap();
    let secret = files.path().join("secret");
    std::fs::write(&secret, "new").unwrap();
    let path = bench.folder.path().join("policies/home.json");
    let mut policy: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    policy["driver"]["clash"] = json!({ "config": config, "url": other.url() });
    policy["proxy"] = json!(bench.proxy.url());
    std::fs::write(&path, policy.to_string()).unwrap();
    assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY steady", "settling"));
    std::fs::write(&config, sing_box_file("1", "1", "wrong")).unwrap();
    policy["driver"]["clash"]["secret_file"] = json!(secret);
    std::fs::write(&path, policy.to_string()).unwrap();
    assert_eq!(bench.step(), went(0, "TEMPORARY -> OBSERVING steady", "group-answers"));
}

/// A process that was started as mihomo is, and ends with the test.
fn seeming_mihomo(name: &str, folder: &std::path::Path) -> std::process::Child {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new("sh");
    command.arg0(format!("/usr/bin/{name}")).args(["-c", "read line", "-d", "home"]);
    command.current_dir(folder).stdin(std::process::Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_core_is_found_by_its_process_and_of_two_none_is_taken() {
    let files = tempfile::tempdir().unwrap();
    let name = format!("mihomo-{}", std::process::id());
    std::fs::create_dir(files.path().join("home")).unwrap();
    let mut core = Bench::core_of(&[PICK, FAST, SLOW]);
    core.secret = Some(SECRET.to_owned());
    let bench = Bench::with(core, |policy| {
        let url = |value: &Value| port(value.as_str().unwrap());
        let (control, proxy) = (url(&policy["driver"]["clash"]["url"]), url(&policy["proxy"]));
        std::fs::write(
            files.path().join("home/config.yaml"),
            mihomo_file(&control, &proxy, SECRET),
        )
        .unwrap();
        policy["driver"]["clash"] = json!({ "process": name });
        for key in ["group", "automatic", "proxy"] {
            policy[key] = Value::Null;
        }
    });
    let none = bench.run(&["step", "home", "--json"]);
    assert_eq!((none.code, none.went().2.as_str()), (1, "core-down"), "{none:?}");
    let mut first = seeming_mihomo(&name, files.path());
    bench.takes_over();
    let mut second = seeming_mihomo(&name, files.path());
    let twice = bench.run(&["step", "home", "--json"]);
    assert_eq!((twice.code, twice.went().2.as_str()), (1, "core-unusable"), "{twice:?}");
    for part in
        [first.id().to_string(), second.id().to_string(), "name driver.clash.config".to_owned()]
    {
        assert!(twice.out.contains(&part), "{part}: {twice:?}");
    }
    assert_eq!(bench.selected(), FAST);
    for child in [&mut first, &mut second] {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    assert_eq!(bench.step(), went(0, "TEMPORARY -> TEMPORARY steady", "core-down"));
}

/// What `check` finds of the core and the policy, each with what mends it.
fn findings(run: &Run) -> Vec<(String, String)> {
    let ours = ["unfit", "core-", "choices-", "not-automatic", "no-reference"];
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let all = run.report()["findings"].as_array().unwrap().clone();
    let all = all.iter().map(|finding| (word(finding, "code"), word(finding, "mend")));
    all.filter(|(code, _)| ours.iter().any(|begin| code.starts_with(begin))).collect()
}

#[test]
fn an_ordinary_user_steps_and_can_write_to_the_state_alone() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let files = tempfile::tempdir().unwrap();
    let config = files.path().join("core.json");
    let mut core = Bench::core_of(&[PICK, FAST, SLOW]);
    core.secret = Some(SECRET.to_owned());
    let mut bench = Bench::with(core, |policy| {
        let url = |value: &Value| port(value.as_str().unwrap());
        let (control, proxy) = (url(&policy["driver"]["clash"]["url"]), url(&policy["proxy"]));
        std::fs::write(&config, sing_box_file(&control, &proxy, SECRET)).unwrap();
        policy["driver"]["clash"] = json!({ "config": config });
    });
    let home = bench.folder.path().to_owned();
    for folder in [files.path(), &home] {
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    }
    // The program is where every user may run it.
    let program = home.join("egressctl");
    let built = env!("CARGO_BIN_EXE_egressctl");
    std::fs::hard_link(built, &program)
        .or_else(|_| std::fs::copy(built, &program).map(drop))
        .unwrap();
    let state = home.join("state");
    std::fs::create_dir(&state).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
        bench.user = Some(program);
    }
    bench.takes_over();
    assert_eq!(bench.status().0, 1);
    let mut left: Vec<String> = std::fs::read_dir(&home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["egressctl", "policies", "state"]);
    // A core that others may not read is told with what to do.
    if bench.user.is_some() {
        std::fs::set_permissions(&config, PermissionsExt::from_mode(0o600)).unwrap();
        let run = bench.run(&["step", "home", "--json"]);
        assert_eq!((run.code, run.went().2.as_str()), (1, "core-unusable"), "{run:?}");
        assert!(run.out.contains("let this user read it"), "{run:?}");
    }
}

#[test]
fn a_check_names_what_the_core_and_the_policy_lack_and_what_mends_it() {
    let files = tempfile::tempdir().unwrap();
    let config = files.path().join("core.json");
    let urltest = |core: &mut Core| {
        let auto = json!({ "type": "URLTest", "now": PICK, "all": [PICK, FAST, SLOW] });
        core.odd.insert(AUTO.to_owned(), auto);
    };
    let mut core = Bench::core_of(&[PICK, FAST, SLOW]);
    urltest(&mut core);
    let mut bench = Bench::with(core, |policy| {
        let url = |value: &Value| port(value.as_str().unwrap());
        let (control, proxy) = (url(&policy["driver"]["clash"]["url"]), url(&policy["proxy"]));
        std::fs::write(&config, sing_box_file(&control, &proxy, "")).unwrap();
        policy["driver"]["clash"] = json!({ "config": config });
        policy["reference"] = json!({ "urls": [format!("http://127.0.0.1:{control}/version")] });
    });
    let mend = "set experimental.cache_file.enabled to true".to_owned();
    let forgets = ("choices-forgotten".to_owned(), mend);
    let path = bench.folder.path().join("policies/home.json");
    let policy: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let with = |key: &str, value: Value| {
        let mut policy = policy.clone();
        policy[key] = value;
        std::fs::write(&path, policy.to_string()).unwrap();
    };
    // Without the core's files, which its process does not lead to here, that is said.
    let mut by_url = policy.clone();
    by_url["driver"]["clash"] = json!({ "url": bench.core.url() });
    std::fs::write(&path, by_url.to_string()).unwrap();
    let mend = "check as root, or as the user that the core runs as".to_owned();
    let unseen = ("core-unseen".to_owned(), mend);
    assert_eq!(findings(&bench.run(&["check", "home", "--json"])), [unseen]);
    with("group", Value::Null);
    assert_eq!(findings(&bench.run(&["check", "home", "--json"])), vec![forgets.clone()]);
    with("reference", Value::Null);
    let found = findings(&bench.run(&["check", "home", "--json"]));
    assert_eq!((&found[0], found[1].0.as_str()), (&forgets, "no-reference"));
    assert!(found[1].1.starts_with("\"reference\": {"), "{found:?}");
    with("group", Value::Null);
    let text = std::fs::read_to_string(&config).unwrap();
    let open = text
        .replace("\"external_controller\": \"127.0.0.1:", "\"external_controller\": \"0.0.0.0:");
    std::fs::write(&config, open).unwrap();
    let mend = format!(
        "in {}: experimental.clash_api.external_controller 127.0.0.1:PORT; or set a secret",
        config.display()
    );
    let open = ("core-open".to_owned(), mend);
    assert_eq!(findings(&bench.run(&["check", "home", "--json"])), [open, forgets.clone()]);
    std::fs::write(&config, text).unwrap();
    bench.core.core().odd.remove(AUTO);
    let found = findings(&bench.run(&["check", "home", "--json"]));
    assert_eq!((&found[0], found[1].0.as_str()), (&forgets, "not-automatic"));
    assert!(found[1].1.contains("urltest"), "{found:?}");
    urltest(&mut bench.core.core());
    let fixed = json!({ "type": "URLTest", "now": AUTO, "all": [AUTO, PICK] });
    bench.core.core().odd.insert(GROUP.to_owned(), fixed);
    let run = bench.run(&["check", "home", "--json"]);
    assert_eq!(findings(&run)[0].0, "unfit");
    assert!(run.out.contains("chooses by itself: name the selector that holds it"), "{run:?}");
    bench.core.core().odd.clear();
    let groups = std::mem::take(&mut bench.core.core().groups);
    let found = findings(&bench.run(&["check", "home", "--json"]));
    let missing = found.iter().filter(|(code, _)| code == "core-group").count();
    assert_eq!(missing, 2, "each is told: {found:?}");
    bench.core.core().groups = groups;
    bench.core.down();
    let found = findings(&bench.run(&["check", "home", "--json"]));
    assert!(
        found.iter().any(|(code, mend)| code == "core-silent" && mend.starts_with("start it")),
        "{found:?}"
    );
    std::fs::remove_file(&config).unwrap();
    let run = bench.run(&["check", "home", "--json"]);
    assert!(findings(&run).iter().any(|(code, _)| code == "core-silent"), "{run:?}");
    assert!(run.out.contains("core.json: No such file"), "{run:?}");
}

#[test]
fn members_that_a_provider_brought_are_measured_where_mihomo_has_them() {
    let mut core = Bench::core_of(&[PICK, FAST, SLOW]);
    core.version = json!({ "meta": true, "version": "v1.19.12" });
    for member in [PICK, FAST, SLOW] {
        core.odd.remove(member);
    }
    core.provided = vec![PICK.to_owned(), FAST.to_owned(), SLOW.to_owned()];
    let bench = Bench::with(core, |_| {});
    bench.takes_over();
    let asked = bench.core.core().asked.clone();
    let measured = |line: &&String| line.contains("/healthcheck?url=");
    let paths: Vec<&str> =
        asked.iter().filter(measured).map(|line| line.split('?').next().unwrap()).collect();
    assert!(paths.contains(&"GET /providers/proxies/sub%2F1/fi%201/healthcheck"), "{asked:#?}");
    // Checking a whole provider or group would cost what all of its members cost.
    assert!(!paths.contains(&"GET /providers/proxies/sub%2F1/healthcheck"), "{asked:#?}");
    assert!(!asked.iter().any(|line| line.contains("/group/")), "{asked:#?}");
}

#[test]
fn a_plan_and_a_pause_write_nothing() {
    let bench = Bench::new();
    bench.step();
    bench.passes(&[FAST]);
    bench.step();
    let plan = bench.run(&["plan", "home", "--json"]).report();
    assert_eq!(plan["to"], "TEMPORARY");
    let steps = plan["steps"][0].to_string();
    assert!(steps.contains("select fi 1 in select 🌍/all of http://127.0.0.1:"), "{steps}");
    assert_eq!(bench.run(&["pause", "home"]).code, 0);
    for _ in 0..3 {
        bench.step();
    }
    assert!(bench.selections().is_empty());
    assert_eq!(bench.run(&["resume", "home"]).code, 0);
    bench.step();
    assert_eq!(bench.step(), went(0, "SUSPECT -> TEMPORARY applied", "took-over"));
    assert_eq!(bench.run(&["down", "home"]).code, 0);
    assert_eq!(bench.selected(), FAST);
}
