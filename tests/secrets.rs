//! No key, token, code or password of a policy is anywhere but in the files that must hold it: a policy of each kind
//! with secrets in every place that has room for one, every command, what programs that are started see, and what
//! those say who repeat in their errors what they were sent.

use crate::dns_bench;
use crate::fake_core;
use crate::fake_gost;
use crate::lab;
use crate::provider_server;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use dns_bench::server::{NameServer, Server as Dns};
use dns_bench::{LiveNode, Reference, Serves};
use fake_core::proxy::FakeProxy;
use fake_core::{Core, FakeCore};
use fake_gost::{FakeGost, Gost};
use lab::source::{Says, by_http};
use lab::{Lab, gateway, names, provider};
use provider_server::{Asked, Reply, Server};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What must not be seen, in all forms that it could be seen in.
#[derive(Default)]
struct Secrets(Vec<(String, BTreeSet<String>)>);

impl Secrets {
    fn add(&mut self, what: &str, secret: &str) {
        let hex = |bytes: &[u8]| {
            bytes.iter().fold(String::new(), |mut text, b| {
                write!(text, "{b:02x}").unwrap();
                text
            })
        };
        let percent = |is_plain: fn(u8) -> bool| {
            secret.bytes().fold(String::new(), |mut text, b| {
                if is_plain(b) {
                    text.push(char::from(b));
                } else {
                    write!(text, "%{b:02X}").unwrap();
                }
                text
            })
        };
        let mut forms = vec![
            secret.to_owned(),
            percent(|b| b.is_ascii_alphanumeric()),
            percent(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b)),
            percent(|_| false),
            percent(|_| false).to_lowercase(),
            secret.replace('/', "\\/"),
        ];
        let key = STANDARD.decode(secret).ok().filter(|bytes| bytes.len() >= 16);
        // `wg` shows a private key with some of its bits set as the curve wants them.
        let clamped = key.clone().filter(|bytes| bytes.len() == 32).map(|mut bytes| {
            bytes[0] &= 0xf8;
            bytes[31] = (bytes[31] & 0x7f) | 0x40;
            bytes
        });
        forms.extend(clamped.as_ref().map(|bytes| STANDARD.encode(bytes)));
        for bytes in [Some(secret.as_bytes().to_vec()), key.clone(), clamped].into_iter().flatten()
        {
            forms.extend([hex(&bytes), hex(&bytes).to_uppercase(), format!("{bytes:?}")]);
            // Inside of more that is in base64, it may begin at each of three places.
            for before in 0..3 {
                let text = STANDARD.encode([vec![0; before], bytes.clone()].concat());
                let inner = &text[[0, 2, 3][before]..text.len() - 4];
                forms.extend([inner.to_owned(), inner.replace('+', "-").replace('/', "_")]);
            }
        }
        forms.extend(key.map(|bytes| URL_SAFE.encode(bytes)));
        let of = format!("{what} {}…", &secret[..4]);
        self.0.push((of, forms.into_iter().collect()));
    }

    /// The keys of a wg-quick file.
    fn add_keys(&mut self, file: &str) {
        for line in file.lines() {
            if let Some((name @ ("PrivateKey" | "PresharedKey"), key)) = line.split_once(" = ") {
                self.add(name, key);
            }
        }
    }

    fn in_text(&self, bytes: &[u8]) -> Vec<&str> {
        let text = String::from_utf8_lossy(bytes);
        let holds = |form: &String| text.contains(form.as_str());
        self.0
            .iter()
            .filter(|(_, forms)| forms.iter().any(holds))
            .map(|(what, _)| what.as_str())
            .collect()
    }
}

/// All that egressctl starts, by the names that it is looked for by.
const PROGRAMS: [&str; 12] = [
    "ip",
    "nft",
    "wg",
    "awg",
    "wireguard-go",
    "conntrack",
    "env",
    "systemctl",
    "systemd-run",
    "knsupdate",
    "nsupdate",
    "iptables-legacy",
];

/// Where egressctl is run, and what was found that should not be there.
struct Bench<'a> {
    folder: tempfile::TempDir,
    lab: Option<&'a Lab>,
    secrets: Secrets,
    found: RefCell<BTreeSet<String>>,
    /// How many bytes were looked through.
    seen: RefCell<usize>,
    /// The words and the environment of every program that was started.
    started: RefCell<Vec<u8>>,
}

impl<'a> Bench<'a> {
    fn new(lab: Option<&'a Lab>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secrets = Secrets::default();
        let (found, seen, started) = (RefCell::default(), RefCell::default(), RefCell::default());
        let bench = Self { folder, lab, secrets, found, seen, started };
        fs::create_dir_all(bench.path("bin")).unwrap();
        if lab.is_none() {
            fs::create_dir_all(bench.path("policies")).unwrap();
        }
        fs::create_dir_all(bench.path("out/docs")).unwrap();
        fs::write(bench.path("children"), "").unwrap();
        for program in PROGRAMS {
            let real = lab::space::PATH.split(':').map(|folder| Path::new(folder).join(program));
            let Some(real) = real.into_iter().find(|path| path.exists()) else { continue };
            bench.program(&format!("bin/{program}"), &format!("exec {} \"$@\"", real.display()));
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program that tells of its words and its environment before it does something.
    fn program(&self, name: &str, does: &str) -> PathBuf {
        let path = self.path(name);
        let log = self.path("children").display().to_string();
        let script = format!("#!/bin/sh\ncat /proc/$$/cmdline /proc/$$/environ >>{log}\n{does}\n");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A file that holds a secret, which nothing else may.
    fn secret(&mut self, name: &str, secret: &str, file: &str) -> PathBuf {
        self.secrets.add(name, secret);
        self.file(name, file)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("{text}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn policies(&self) -> PathBuf {
        self.lab.map_or_else(|| self.path("policies"), |lab| lab.gw().policy_dir().to_owned())
    }

    fn states(&self) -> PathBuf {
        self.lab.map_or_else(|| self.path("state"), |lab| lab.gw().state_dir().to_owned())
    }

    fn policy(&self, name: &str, policy: &Value) {
        fs::write(self.policies().join(format!("{name}.json")), policy.to_string()).unwrap();
    }

    /// Looks through something.
    fn scan(&self, of: &str, bytes: &[u8]) {
        *self.seen.borrow_mut() += bytes.len();
        for what in self.secrets.in_text(bytes) {
            self.found.borrow_mut().insert(format!("{what} in {of}"));
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = match self.lab {
            Some(lab) => lab.gw().command(&gateway::program()),
            None => Command::new(gateway::program()),
        };
        command.env_clear().env("PATH", gateway::path_with(&self.path("bin")));
        command.arg("--policy-dir").arg(self.policies()).arg("--state-dir").arg(self.states());
        command.args(args).stdin(Stdio::null());
        command
    }

    /// Runs a command, and looks through all that it said and did.
    fn run(&self, args: &[&str]) -> (Option<i32>, String) {
        self.finish(args, self.command(args))
    }

    fn finish(&self, args: &[&str], mut command: Command) -> (Option<i32>, String) {
        let of = args
            .iter()
            .filter(|word| !word.starts_with('/'))
            .copied()
            .collect::<Vec<_>>()
            .join(" ");
        let (out, err) = (self.path("stdout"), self.path("stderr"));
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        let status = command.status().unwrap();
        let (out, err) = (fs::read(out).unwrap(), fs::read(err).unwrap());
        self.scan(&format!("what `{of}` prints"), &out);
        self.scan(&format!("what `{of}` complains of"), &err);
        let children = fs::read(self.path("children")).unwrap();
        self.scan(&format!("what programs are started with by `{of}`"), &children);
        fs::write(self.path("children"), "").unwrap();
        self.started.borrow_mut().extend(children);
        // The others write nothing, which their own tests hold them to.
        if ["step", "switch", "refresh", "pause", "resume", "down"].contains(&args[0]) {
            self.scan_files(&of);
        }
        let text = String::from_utf8_lossy(&out).into_owned() + &String::from_utf8_lossy(&err);
        assert!(!text.contains("panicked"), "{text}");
        (status.code(), text)
    }

    /// One step whose words go to the journal, with fields.
    fn run_under_journal(&self, args: &[&str]) {
        let path = self.path("journal");
        drop(fs::remove_file(&path));
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let out = self.path("stdout");
        let seen = File::create(&out).unwrap().metadata().unwrap();
        let mut command = self.command(args);
        command.env("EGRESSCTL_JOURNAL_SOCKET", &path);
        command.env("JOURNAL_STREAM", format!("{}:{}", seen.dev(), seen.ino()));
        let told = self.finish(args, command);
        let mut bytes = vec![0; 65_536];
        let mut entries = 0;
        while let Ok(length) = socket.recv(&mut bytes) {
            self.scan("the journal", &bytes[..length]);
            entries += 1;
        }
        assert!(entries > 0, "the journal was told nothing: {told:?}");
    }

    /// Looks through the state folder and all that was published.
    fn scan_files(&self, after: &str) {
        for folder in [self.states(), self.path("out")] {
            let mut folders = vec![folder];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(&folder).into_iter().flatten() {
                    let path = entry.unwrap().path();
                    if path.is_dir() {
                        folders.push(path);
                    } else if self.must_hold_a_key(&path) {
                        let mode = fs::metadata(&path).unwrap().mode() & 0o777;
                        assert_eq!(mode, 0o600, "{}", path.display());
                        let text = fs::read_to_string(&path).unwrap();
                        let holds = self.secrets.in_text(text.as_bytes());
                        assert!(
                            !holds.is_empty(),
                            "{} holds no key that is known:\n{text}",
                            path.display()
                        );
                    } else {
                        let name = path.strip_prefix(&folder).unwrap().display().to_string();
                        self.scan(&format!("{name} after `{after}`"), &fs::read(&path).unwrap());
                    }
                }
            }
        }
    }

    /// `pool/GENERATION/NAME.conf`, below the folder of a policy's state.
    fn must_hold_a_key(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(self.states()) else { return false };
        let parts: Vec<&str> = below.iter().map(|part| part.to_str().unwrap()).collect();
        let [_policy, "pool", generation, file] = parts.as_slice() else { return false };
        generation.parse::<u32>().is_ok()
            && Path::new(file).extension().is_some_and(|end| end == "conf")
    }

    /// Every command that reads or tells something.
    fn everything(&self, name: &str) {
        let bundle = self.path("why.json");
        let shown = bundle.to_str().unwrap();
        drop(fs::remove_file(&bundle));
        self.run(&["step", name, "--now", "--json", "--explain", "--record", shown]);
        if let Ok(text) = fs::read(&bundle) {
            self.scan("a bundle", &text);
            self.run(&["replay", shown]);
            self.run(&["replay", shown, "--json"]);
        }
        for args in [
            &["plan", name][..],
            &["plan", name, "--explain"],
            &["plan", name, "--json", "--explain"],
            &["status", name],
            &["status", name, "--json"],
            &["check", name],
            &["check", name, "--json"],
            &["history", name],
            &["history", name, "--json"],
            &["graph", name],
            &["graph", name, "--format", "dot"],
            &["graph", name, "--format", "svg"],
            &["down", name, "--plan"],
        ] {
            let (_, said) = self.run(args);
            assert!(!said.is_empty(), "{args:?} says nothing");
        }
        self.run_under_journal(&["step", name, "--now"]);
    }

    /// A step that fails, and the commands that say why.
    fn what_fails(&self, name: &str) {
        self.run(&["step", name, "--now", "--json", "--explain"]);
        for args in [["plan", name], ["status", name], ["check", name], ["history", name]] {
            self.run(&args);
        }
    }

    /// Nothing was found, though a good deal was looked through.
    fn kept(&self) {
        let found = self.found.borrow();
        assert!(
            found.is_empty(),
            "secrets are seen:\n{}",
            found.iter().cloned().collect::<Vec<_>>().join("\n")
        );
        assert!(
            *self.seen.borrow() > 10_000,
            "only {} bytes were looked through",
            self.seen.borrow()
        );
    }
}

/// All that was sent, in words: as one who repeats in his errors what he does not like.
fn repeated(asked: &Asked) -> String {
    let shown = asked.headers.get("authorization").cloned().unwrap_or_default();
    let basic = shown
        .strip_prefix("Basic ")
        .and_then(|word| STANDARD.decode(word).ok())
        .unwrap_or_default();
    format!("no: {shown} {} {} {}", String::from_utf8_lossy(&basic), asked.path, asked.body)
}

/// One who refuses everything, and repeats it in the words of each API.
fn parrot(status: u16) -> Server {
    Server::new(move |asked| {
        let said = repeated(asked);
        let body = json!({ "success": false, "errors": [{ "code": 6003, "message": said }], "result": null,
                           "message": said, "msg": said, "code": 40_101, "error": said, "description": said });
        Reply::Whole(status, format!("X-Said: {said}\r\n"), body.to_string().into_bytes())
    })
}

const TOKEN: &str = "tk-0a1b2c3d4e5f6a7b8c9d+/x";

#[test]
fn a_secret_is_found_in_every_form() {
    let mut secrets = Secrets::default();
    let key = provider::Keys::user(1).private;
    secrets.add("a token", TOKEN);
    secrets.add("a key", &key);
    let bytes = STANDARD.decode(&key).unwrap();
    let hex: String = bytes.iter().fold(String::new(), |text, b| format!("{text}{b:02x}"));
    for (text, what) in [
        (format!("Bearer {TOKEN}"), "a token tk-0…"),
        (STANDARD.encode(format!("user:{TOKEN}")), "a token tk-0…"),
        (STANDARD.encode(format!("u:{TOKEN}:x")), "a token tk-0…"),
        ("code=tk-0a1b2c3d4e5f6a7b8c9d%2B%2Fx".to_owned(), "a token tk-0…"),
        (hex.clone(), "a key"),
        (hex.to_uppercase(), "a key"),
        (format!("{bytes:?}"), "a key"),
    ] {
        let found = secrets.in_text(text.as_bytes());
        assert!(found.len() == 1 && found[0].starts_with(what), "{text}: {found:?}");
    }
    assert!(secrets.in_text(provider::Keys::user(1).public.as_bytes()).is_empty());
}

/// A site that tells everybody everything, by ways that hold secrets themselves.
fn site(bench: &mut Bench<'_>, hears: &Server, refuses: &Server) -> Value {
    let hook =
        |server: &Server, secret: &str| server.url(&format!("/bot{secret}/send?key={secret}"));
    let url = bench.secret(
        "hook.url",
        "hook-5ecret-in-the-path",
        &hook(hears, "hook-5ecret-in-the-path"),
    );
    let other = bench.secret(
        "other.url",
        "other-5ecret-in-a-path",
        &hook(refuses, "other-5ecret-in-a-path"),
    );
    let token = bench.secret("hook.token", "tk_hook_0123456789abcdef", "tk_hook_0123456789abcdef");
    let tell = bench.program("tell", "cat >>\"$(dirname \"$0\")/out/told\"");
    json!({
        "kind": "site", "page": bench.path("out/index.html"), "textfile_dir": bench.path("out"),
        "publish_dir": bench.path("out/docs"),
        "notify": [
            { "webhook": { "url_file": url, "template": "json", "token_file": token, "timeout_sec": 2 } },
            { "webhook": { "url_file": other, "template": "gotify", "token_file": token, "timeout_sec": 2 } },
            { "exec": [tell] },
        ],
    })
}

/// What a service was sent, but for where and by whose right, which is its own secret.
fn payloads(bench: &Bench<'_>, hears: &Server) {
    let asked = hears.asked();
    assert!(!asked.is_empty(), "nobody was told");
    for one in asked {
        bench.scan("what a service is told", one.body.as_bytes());
    }
}

#[test]
fn a_pool_keeps_its_keys_tokens_and_codes() {
    let lab = Lab::builder().clients(2).endpoints(4).start();
    let mut bench = Bench::new(Some(&lab));
    let space = lab.gw().space();
    let (hears, refuses) = (space.inside(|| Server::saying("ok")), space.inside(|| parrot(500)));
    let site = site(&mut bench, &hears, &refuses);
    bench.policy("site", &site);
    for k in 1..=4 {
        bench.secrets.add_keys(&provider::config(k));
    }
    let psk = provider::Keys::user(78).private;
    let mut policy = lab.pool_policy();
    policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
    policy["test"] = json!({ "enough": 4 });
    policy["params"]["health_failures_before_down"] = json!(1);
    policy["params"]["local_repair_retest_count"] = json!(1);
    // A pool that works, beside a standby and a candidate with a preshared key that does not answer.
    let fails =
        provider::dead(1, 1).replace("AllowedIPs", &format!("PresharedKey = {psk}\nAllowedIPs"));
    bench.secrets.add_keys(&fails);
    let list = json!([
        { "name": "dead", "config": fails },
        { "name": "p1", "config": provider::config(1) },
        { "name": "p2", "config": provider::config(2) },
        { "name": "p3", "config": provider::config(3) },
        // Nobody should name a tunnel so, and it is no tunnel.
        { "name": "spoilt", "config": provider::config(4).replace("PrivateKey = ", "PrivateKey = x") },
    ]);
    lab.source.says(Says::Text(list.to_string()));
    let standby = bench.file("standby.conf", &provider::config(4));
    policy["provider"] = by_http();
    policy["bootstrap"] = json!({ "wireguard": { "interface": "vpnboot", "config": standby } });
    policy["exit_ip"] = json!({ "url": format!("http://{}/ip", names::PROBE) });
    bench.policy("home", &policy);
    bench.everything("home");
    let (_, said) = bench.run(&["status", "home", "--json"]);
    assert!(said.contains("\"state\":\"NORMAL\""), "{said}");
    // A program that repeats what it read, a change that fails by it, its undo, and a person's words.
    let real = bench.path("bin/wg");
    let was = fs::read(&real).unwrap();
    bench.program(
        "bin/wg",
        "case \"$1\" in set*|sync*) cat >&2; exit 1;; esac\nexec /usr/bin/wg \"$@\"",
    );
    let status: Value = serde_json::from_str(said.trim()).unwrap();
    let serves = status["slots"][0]["endpoint"].as_str().unwrap().strip_prefix('p').unwrap();
    lab.faults().drop(serves.parse().unwrap());
    let mut told = String::new();
    for _ in 0..4 {
        told += &bench.run(&["step", "home", "--now", "--json", "--explain"]).1;
    }
    assert!(told.contains("setconf"), "the program never refused a key: {told}");
    bench.what_fails("home");
    fs::write(&real, was).unwrap();
    for args in [
        &["switch", "home", "vpn1=p3", "--force"][..],
        &["refresh", "home"],
        &["pause", "home"],
        &["resume", "home"],
    ] {
        bench.run(args);
    }
    bench.what_fails("home");
    bench.run(&["down", "home"]);
    payloads(&bench, &hears);
    bench.kept();
}

/// Each provider has a token, a code or a key of ours, refuses, and repeats what it was shown.
#[test]
fn providers_are_not_repeated() {
    let mut bench = Bench::new(None);
    let (own, psk) = (provider::Keys::user(77).private, provider::Keys::user(78).private);
    let key = bench.secret("own.key", &own, &own);
    let shared = bench.secret("own.psk", &psk, &psk);
    let identity = json!({ "private_key_file": key, "preshared_key_file": shared, "address": ["10.64.0.2/32"] });
    let token = bench.secret("provider.token", TOKEN, TOKEN);
    let code = bench.secret("provider.code", "123456789012345678", "123456789012345678");
    let two = bench.secret("two.lines", "two-l1nes-of-a-secret", "two-l1nes-of-a-secret\nand more");
    let lists = bench.program("lists", "env && env >&2; exit 3");
    let told = json!({ "nordlynx_private_key": own }).to_string();
    let told = Server::saying(told);
    for status in [401, 403, 400, 200, 500] {
        let parrot = parrot(status);
        for provider in [
            json!({ "http": { "url": parrot.url("/list"), "token_file": token, "identity": identity } }),
            json!({ "nordvpn": { "urls": [parrot.url("/l")], "token_file": token, "credentials_url": parrot.url("/c") } }),
            json!({ "nordvpn": { "urls": [parrot.url("/l")], "token_file": token, "credentials_url": told.url("/c") } }),
            json!({ "hidemyname": { "urls": [parrot.url("")], "code_file": code } }),
            json!({ "mullvad": { "urls": [parrot.url("/l")], "identity": identity } }),
            json!({ "gluetun": { "provider": "airvpn", "url": parrot.url("/l"), "identity": identity } }),
        ] {
            let asked = parrot.asked().len();
            let question = provider_server::Bench::question(&provider, &json!({}));
            let reading = egressctl::host::provider::list(&question, bench.folder.path(), true);
            assert!(parrot.asked().len() > asked, "{provider} was not asked");
            bench.scan(&format!("a reading after {status}"), format!("{reading:?}").as_bytes());
            bench.scan("a question", format!("{question:?}").as_bytes());
        }
    }
    for provider in [
        json!({ "exec": { "path": lists, "identity": identity } }),
        // Files with a secret that is of no use as one.
        json!({ "http": { "url": told.url("/l"), "identity": { "private_key_file": token } } }),
        json!({ "http": { "url": told.url("/l"), "token_file": two } }),
        json!({ "directory": { "path": key } }),
    ] {
        let question = provider_server::Bench::question(&provider, &json!({}));
        let reading =
            format!("{:?}", egressctl::host::provider::list(&question, bench.folder.path(), true));
        assert!(reading.contains("Unavailable"), "{reading}");
        bench.scan(&format!("a reading of {provider}"), reading.as_bytes());
    }
    let started = fs::read(bench.path("children")).unwrap();
    assert!(!started.is_empty(), "the program was started");
    bench.scan("what a program is started with", &started);
    bench.kept();
}

#[test]
fn a_chain_of_tunnels_keeps_its_keys() {
    let lab = Lab::builder().clients(1).endpoints(6).start();
    let mut bench = Bench::new(Some(&lab));
    for k in 1..=6 {
        bench.secrets.add_keys(&provider::config(k));
    }
    bench.policy("home", &lab::chain::policy(&lab));
    bench.everything("home");
    lab.faults().drop(1);
    bench.what_fails("home");
    bench.run(&["down", "home"]);
    bench.kept();
}

#[test]
fn cores_and_their_secrets() {
    let mut bench = Bench::new(None);
    let secret = "clash-5ecret-0123456789";
    let file = bench.secret("core.secret", secret, secret);
    let (hears, refuses) = (Server::saying("ok"), parrot(400));
    let site = site(&mut bench, &hears, &refuses);
    bench.policy("site", &site);
    let mut core = Core::sing_box("out", &["fast", "slow", "auto"]);
    core.secret = Some(secret.to_owned());
    let core = FakeCore::start(core);
    let (primary, reserve) = (FakeProxy::start(), FakeProxy::start());
    let mut policy = json!({
        "kind": "selector",
        "driver": { "clash": { "url": core.url(), "secret_file": file, "selector": "out" } },
        "primary": { "member": "fast", "proxy": primary.url() },
        "reserve": { "member": "slow", "proxy": reserve.url() },
        "probe": { "urls": ["http://probe.example/generate_204"], "timeout_sec": 2 },
        "params": { "check_interval_sec": 0, "failure_window_sec": 0, "traffic_guard": false }
    });
    bench.policy("home", &policy);
    bench.everything("home");
    primary.answers(fake_core::proxy::Way::Refuses);
    for _ in 0..3 {
        bench.run(&["step", "home", "--now", "--json", "--explain"]);
    }
    bench.run(&["switch", "home", "fast", "--force"]);
    // One who stands where the core was, and repeats what he is shown.
    for status in [401, 400, 503] {
        policy["driver"]["clash"]["url"] = json!(parrot(status).url(""));
        bench.policy("home", &policy);
        bench.what_fails("home");
    }
    policy["driver"]["clash"]["url"] = json!(core.url());
    // Credentials of a proxy have no place in a policy, and are not repeated when they stand there.
    bench.secrets.add("a proxy's password", "pr0xy-pa55word");
    policy["primary"]["proxy"] = json!("http://user:pr0xy-pa55word@127.0.0.1:2081");
    bench.policy("home", &policy);
    for args in [["step", "home"], ["plan", "home"], ["check", "home"], ["status", "home"]] {
        let (_, said) = bench.run(&args);
        assert!(said.contains("proxy"), "{said}");
    }
    payloads(&bench, &hears);
    bench.kept();
}

#[test]
fn a_guard_that_reads_the_cores_own_file() {
    let mut bench = Bench::new(None);
    let secret = "clash-5ecret-9876543210";
    let password = "us3r-pa55word-of-an-inbound";
    bench.secrets.add("the core's secret", secret);
    bench.secrets.add("an inbound's password", password);
    let mut core = Core::sing_box("out", &["auto", "nl", "de"]);
    core.secret = Some(secret.to_owned());
    let core = FakeCore::start(core);
    let reached = core.url();
    let port = |url: &str| url.rsplit(':').next().unwrap().to_owned();
    let proxy = FakeProxy::start();
    let written = |control: &str, end: &str| {
        format!(
            "{{ \"inbounds\": [{{ \"type\": \"mixed\", \"tag\": \"in\", \"listen\": \"127.0.0.1\", \"listen_port\": {} }},\
             {{ \"type\": \"mixed\", \"tag\": \"kept\", \"listen\": \"127.0.0.1\", \"listen_port\": 1, \"users\": [{{ \"username\": \"u\", \"password\": \"{password}\" }}] }}],\n\
             \"outbounds\": [{{ \"type\": \"urltest\", \"tag\": \"auto\", \"outbounds\": [\"nl\", \"de\"] }},\
             {{ \"type\": \"selector\", \"tag\": \"out\", \"outbounds\": [\"auto\", \"nl\", \"de\"] }},\
             {{ \"type\": \"shadowsocks\", \"tag\": \"nl\", \"password\": \"{password}\" }}],\n\
             \"experimental\": {{ \"clash_api\": {{ \"external_controller\": \"127.0.0.1:{control}\", \"secret\": \"{secret}\" }} }} {end}",
            port(&proxy.url()),
        )
    };
    let other = parrot(401);
    let policy = json!({
        "kind": "guard", "driver": { "clash": { "config": bench.path("core.json") } },
        "probe": { "urls": ["http://probe.example/generate_204"], "timeout_sec": 2 },
        "params": { "check_interval_sec": 0 }
    });
    bench.policy("home", &policy);
    // As it should be; cut off; somebody else behind the port; a value of another kind.
    for text in [
        written(&port(&reached), "}"),
        written(&port(&reached), ""),
        written(&other.port.to_string(), "}"),
        written(&port(&reached), "}").replace(&format!("\"{secret}\""), &format!("[\"{secret}\"]")),
    ] {
        bench.file("core.json", &text);
        bench.everything("home");
    }
    bench.kept();
}

#[test]
fn a_gosts_credentials() {
    let mut bench = Bench::new(None);
    let file = bench.secret("gost.credentials", "hunter2-and-more", "operator:hunter2-and-more");
    let node = |name: &str| json!({ "name": name, "addr": "192.0.2.1:8443", "connector": { "type": "relay" } });
    let hop = |name: &str, nodes: [&str; 2]| json!({ "name": name, "selector": { "strategy": "fifo" }, "nodes": nodes.map(node) });
    let gost = FakeGost::start(Gost {
        authorization: format!("Basic {}", STANDARD.encode("operator:hunter2-and-more")),
        chains: [("out".to_owned(), json!({ "name": "out", "hops": [{ "name": "entry" }] }))].into(),
        hops: [("entry".to_owned(), hop("entry", ["a1", "a2"]))].into(),
        services: [(
            "local".to_owned(),
            json!({ "name": "local", "addr": "127.0.0.1:1080", "handler": { "type": "socks5", "chain": "out" },
                    "listener": { "type": "tcp" }, "metadata": { "interface": "vpn1" } }),
        )]
        .into(),
        fault: None,
        asked: Vec::new(),
    });
    let proxy = FakeProxy::start();
    let mut policy = json!({
        "kind": "chain",
        "driver": { "gost": { "url": gost.url(), "credentials_file": file, "chain": "out", "proxy": proxy.url(),
                              "pin": { "interface": "vpn1" } } },
        "hops": [{ "name": "entry", "nodes": { "a1": {}, "a2": {} } }],
        "probe": { "urls": ["http://probe.example/generate_204"], "timeout_sec": 2 },
        "wan": { "urls": [proxy.url()] },
        "params": { "check_interval_sec": 0 }
    });
    bench.policy("home", &policy);
    bench.everything("home");
    for status in [401, 400] {
        policy["driver"]["gost"]["url"] = json!(parrot(status).url(""));
        bench.policy("home", &policy);
        bench.what_fails("home");
    }
    assert!(gost.gost().asked.len() > 1, "the gost was asked");
    bench.kept();
}

#[test]
fn keys_and_tokens_of_those_who_keep_a_zone() {
    let mut bench = Bench::new(None);
    let server = NameServer::new(Dns::Knot);
    let key = server.folder.path().join("key");
    bench.secrets.add("the zone's key", dns_bench::server::SECRET);
    let mut native = LiveNode::new(41, 0, Serves::Tcp);
    let _fallback = LiveNode::new(47, native.port, Serves::Tcp);
    let reference = Reference::new();
    let check = json!({ "tcp": { "port": native.port } });
    let mut policy = json!({
        "kind": "dns",
        "driver": { "rfc2136": { "server": server.at().to_string(), "zone": "example.org", "key_file": key } },
        "nodes": { "fi": { "address": "127.0.0.41", "check": check }, "de": { "address": "127.0.0.47", "check": check } },
        "hosts": { "fi.example.org": { "native": "fi", "fallbacks": ["de"], "ttl": 60 } },
        "reference": { "urls": [reference.url()] },
        "params": { "check_interval_sec": 0, "fall": 1, "rise": 1, "minimum_stay_sec": 0 },
    });
    bench.policy("home", &policy);
    bench.everything("home");
    native.die();
    bench.everything("home");
    let children = String::from_utf8_lossy(&bench.started.borrow()).into_owned();
    assert!(children.contains("nsupdate"), "the program that writes was looked at: {children}");
    // The name server does not know this key.
    let wrong = "d3JvbmcgYnV0IG5vIGxlc3Mgc2VjcmV0IHRoYW4gYW55";
    let file = fs::read_to_string(&key).unwrap().replace(dns_bench::server::SECRET, wrong);
    let wrong = bench.secret("wrong.key", wrong, &file);
    policy["driver"]["rfc2136"]["key_file"] = json!(wrong);
    bench.policy("home", &policy);
    native.live();
    bench.everything("home");

    let token = bench.secret("zone.token", TOKEN, TOKEN);
    for status in [401, 200, 400, 429] {
        let api = parrot(status);
        policy["driver"] = json!({ "cloudflare": { "zone": "example.org", "token_file": token, "api": api.url("/client/v4") } });
        bench.policy("home", &policy);
        bench.what_fails("home");
        assert!(!api.asked().is_empty(), "the parrot of {status} was asked");
    }
    bench.kept();
}
