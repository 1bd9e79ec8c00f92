//! A name claims to be more than a name: a line of its own, a colour, a script, a path, a field of the journal. Wherever
//! it is shown it is a name.

use crate::fake_core;
use crate::provider_server;

use fake_core::proxy::{FakeProxy, Way};
use fake_core::{Core, FakeCore};
use provider_server::Server;
use serde_json::{Value, json};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;

/// What stands in each name, so that it is found again.
const WORD: &str = "wolf";

fn evil(who: &str) -> String {
    format!(
        "{who}\n\u{1b}[31m\u{7}{WORD}</td><script>alert(1)</script>\"'`&|;{{}}\\\u{202e}\u{2028}\r\nPRIORITY=0\n# TYPE x counter\n../../etc/passwd%0a%s"
    )
}

struct Bench {
    folder: tempfile::TempDir,
    core: FakeCore,
    primary: FakeProxy,
    _reserve: FakeProxy,
    hears: Vec<(&'static str, Server)>,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [group, primary, reserve, third] = ["group", "one", "two", "three"].map(evil);
        let core = FakeCore::start(Core::sing_box(&group, &[&primary, &reserve, &third]));
        let proxies = (FakeProxy::start(), FakeProxy::start());
        let hears = ["ntfy", "slack", "gotify", "json", "telegram"]
            .map(|word| (word, Server::saying("ok")));
        let path = |name: &str| folder.path().join(name);
        for name in ["policies", "out", "out/docs"] {
            fs::create_dir(path(name)).unwrap();
        }
        let tell = path("tell");
        fs::write(
            &tell,
            "#!/bin/sh\n{ cat; env | grep -a EGRESSCTL_; } >>\"$(dirname \"$0\")/out/told\"\n",
        )
        .unwrap();
        fs::set_permissions(&tell, Permissions::from_mode(0o755)).unwrap();
        let mut notify = vec![json!({ "exec": [tell] })];
        for (template, server) in &hears {
            let file = path(&format!("{template}.url"));
            fs::write(&file, server.url("/")).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
            let mut hook = json!({ "url_file": file, "template": template, "timeout_sec": 2 });
            if *template == "telegram" {
                hook["chat"] = json!("1");
            }
            notify.push(json!({ "webhook": hook }));
        }
        let site = json!({ "kind": "site", "page": path("out/index.html"), "textfile_dir": path("out"),
                           "publish_dir": path("out/docs"), "notify": notify });
        let policy = json!({
            "kind": "selector",
            "description": evil("described"),
            "driver": { "clash": { "url": core.url(), "selector": group } },
            "primary": { "member": primary, "proxy": proxies.0.url() },
            "reserve": { "member": reserve, "proxy": proxies.1.url() },
            "probe": { "urls": ["http://probe.example/generate_204"], "timeout_sec": 2 },
            "params": { "check_interval_sec": 0, "failure_window_sec": 0, "traffic_guard": false }
        });
        fs::write(path("policies/site.json"), site.to_string()).unwrap();
        fs::write(path("policies/home.json"), policy.to_string()).unwrap();
        Self { folder, core, primary: proxies.0, _reserve: proxies.1, hears: hears.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_egressctl"));
        command
            .arg("--policy-dir")
            .arg(self.path("policies"))
            .arg("--state-dir")
            .arg(self.path("state"));
        command.args(args);
        command
    }

    /// What a command says, which is fit for a terminal.
    fn says(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        let text =
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        is_fit(&args.join(" "), &text);
        text
    }

    fn step(&self) -> String {
        self.says(&["step", "home", "--now", "--explain"])
    }
}

/// Lines of text, in which nothing moves a cursor, turns the direction of reading, or begins a line of its own.
fn is_fit(of: &str, text: &str) {
    let unfit =
        |c: char| (c.is_control() && c != '\n') || "\u{202e}\u{2028}\u{200b}\u{feff}".contains(c);
    assert!(!text.contains(unfit), "{of}: {text:?}");
    for forged in ["PRIORITY=0", "# TYPE x counter", "../../etc/passwd"] {
        assert!(!text.lines().any(|line| line.starts_with(forged)), "{of}: {text}");
    }
}

/// As XML or HTML, with no element but those that are ours.
fn has_no_script(of: &str, text: &str) {
    is_fit(of, text);
    assert!(text.contains(WORD), "{of} shows no name: {text}");
    assert!(!text.to_lowercase().contains("<script") && !text.contains("</td><"), "{of}: {text}");
}

#[test]
fn a_name_is_a_name_wherever_it_is_shown() {
    let bench = Bench::new();
    let mut told = bench.step();
    // It fails over, and somebody selects what nobody named in the policy.
    bench.primary.answers(Way::Refuses);
    for _ in 0..3 {
        told += &bench.step();
    }
    bench.core.core().select(&evil("group"), &evil("three"));
    told += &bench.step();
    assert!(told.contains(WORD) && told.contains("ON_RESERVE"), "{told}");
    for args in [
        &["status", "home"][..],
        &["plan", "home", "--explain"],
        &["check", "home"],
        &["history", "home"],
        &["switch", "home", "no such member\n\u{1b}[2J"],
        &["switch", "home", &evil("two")],
    ] {
        let said = bench.says(args);
        assert!(!said.is_empty(), "{args:?}");
    }
    assert!(bench.says(&["status", "home"]).contains(WORD));
    assert!(bench.says(&["history", "home"]).contains(WORD));
    // JSON escapes what would do anything, and gives the name back as it is.
    for args in [
        ["status", "home", "--json"],
        ["plan", "home", "--json"],
        ["check", "home", "--json"],
        ["history", "home", "--json"],
    ] {
        let said = String::from_utf8(bench.command(&args).output().unwrap().stdout).unwrap();
        assert!(!said.trim_end().contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
        for line in said.lines() {
            serde_json::from_str::<Value>(line).unwrap_or_else(|why| panic!("{why}: {line}"));
        }
    }
    for format in ["mermaid", "dot", "svg"] {
        let picture = bench.says(&["graph", "home", "--format", format]);
        assert!(!picture.to_lowercase().contains("<script"), "{picture}");
    }
    has_no_script("the page", &fs::read_to_string(bench.path("out/index.html")).unwrap());
    let metrics = fs::read_dir(bench.path("out")).unwrap().map(|entry| entry.unwrap().path());
    let metrics: Vec<PathBuf> =
        metrics.filter(|path| path.extension().is_some_and(|end| end == "prom")).collect();
    assert!(!metrics.is_empty());
    for file in metrics {
        let text = fs::read_to_string(file).unwrap();
        is_fit("metrics", &text);
        assert!(
            text.contains(WORD)
                && text
                    .lines()
                    .all(|line| line.starts_with("egressctl_") || line.starts_with("# ")),
            "{text}"
        );
    }
    for entry in fs::read_dir(bench.path("out/docs")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        is_fit("a document", &text);
        serde_json::from_str::<Value>(&text).unwrap();
    }
    let told = fs::read_to_string(bench.path("out/told")).unwrap();
    // Its input is JSON, which escapes what would do anything and holds the name as it is.
    for line in told.lines() {
        if line.starts_with('{') {
            serde_json::from_str::<Value>(line).unwrap_or_else(|why| panic!("{why}: {line}"));
        } else {
            is_fit("the environment of a program", line);
        }
    }
    assert!(told.contains(WORD), "{told}");
    for (template, server) in &bench.hears {
        let asked = server.asked();
        assert!(asked.iter().any(|one| one.body.contains(WORD)), "{template} was told no name");
        for one in asked {
            if *template != "json" {
                is_fit(template, &one.body);
            }
            if *template != "ntfy" {
                serde_json::from_str::<Value>(&one.body)
                    .unwrap_or_else(|why| panic!("{why}: {one:?}"));
            }
            let ours = [
                "host",
                "content-length",
                "content-type",
                "accept",
                "user-agent",
                "accept-encoding",
                "title",
                "priority",
                "tags",
            ];
            assert!(
                one.headers.keys().all(|name| ours.contains(&name.as_str())),
                "{template}: {one:?}"
            );
        }
    }
}

#[test]
fn a_name_makes_no_field_in_the_journal() {
    let bench = Bench::new();
    let path = bench.path("journal");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    drop(bench.step());
    bench.core.core().select(&evil("group"), &evil("three"));
    for _ in 0..3 {
        let out = File::create(bench.path("stdout")).unwrap();
        let seen = out.metadata().unwrap();
        let mut command = bench.command(&["step", "home", "--now"]);
        command.env("EGRESSCTL_JOURNAL_SOCKET", &path);
        command.env("JOURNAL_STREAM", format!("{}:{}", seen.dev(), seen.ino()));
        assert!(command.stdout(out).status().unwrap().code().is_some());
    }
    let (mut bytes, mut named) = (vec![0; 65_536], 0);
    while let Ok(length) = socket.recv(&mut bytes) {
        let entry = String::from_utf8(bytes[..length].to_vec()).unwrap();
        is_fit("an entry of the journal", &entry);
        named += usize::from(entry.contains(WORD));
        let priorities = entry.lines().filter(|line| line.starts_with("PRIORITY=")).count();
        assert_eq!(priorities, 1, "{entry}");
    }
    assert!(named > 0, "no entry has a name");
}

/// Whoever puts a link in the place of a file of the state does not make us write elsewhere.
#[test]
fn a_link_in_the_place_of_a_file_leads_nowhere() {
    let files = [
        "state.json",
        "state.json.bak",
        "history.jsonl",
        "policy.json",
        "notified.json",
        "day.json",
        "journal.json",
        "lock",
    ];
    for (n, file) in files.into_iter().enumerate() {
        let bench = Bench::new();
        let (victim, state) = (bench.path("victim"), bench.path("state/home"));
        // Half of them lead to a file that is there, and half to one that is not.
        if n % 2 == 0 {
            fs::write(&victim, "somebody else's\n").unwrap();
        }
        drop(bench.step());
        drop(fs::remove_file(state.join(file)));
        symlink(&victim, state.join(file)).unwrap();
        // What a person does is history, whatever became of the file.
        let before = bench.says(&["history", "home"]).lines().count();
        let switched = bench.says(&["switch", "home", &evil("two")]);
        drop(bench.step());
        drop(bench.says(&["resume", "home"]));
        let after = bench.says(&["history", "home"]).lines().count();
        assert!(file == "lock" || after > before, "{file}: {switched}");
        let left = fs::read_to_string(&victim).ok();
        let was = (n % 2 == 0).then(|| "somebody else's\n".to_owned());
        assert_eq!(left, was, "{file} was written through a link");
    }
}
