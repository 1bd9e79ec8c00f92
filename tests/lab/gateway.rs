//! The gateway under test: programs run in it, a stranger meddles with it, it reboots.
//!
//! **Invariant:** a program in the gateway sees the gateway's network, its own `/run`, and an environment of nothing but PATH.

use super::space::{self, Space, wait_until};
use super::topology::Baseline;
use super::{client::Response, names};
use rustix::process::Signal;
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// No run of a program in a test takes longer than this; one that does is ended.
const LIMIT: Duration = Duration::from_secs(120);

/// How a program ended and what it said.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The exit code; none when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The gateway of a lab.
#[derive(Debug)]
pub struct Gateway {
    space: Space,
    holder: u32,
    baseline: Baseline,
    policies: PathBuf,
    states: PathBuf,
    boot: Mutex<Boot>,
}

/// What tells one boot from another.
#[derive(Debug, Default)]
struct Boot {
    count: u64,
    /// Holds the namespace in which the time since boot began anew; none before the first reboot.
    clock: Option<Child>,
}

impl Boot {
    fn stop(&mut self) {
        if let Some(mut clock) = self.clock.take() {
            let _gone = clock.kill();
            let _gone = clock.wait();
        }
    }
}

impl Drop for Boot {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Gateway {
    /// Takes the namespace and its holder, and makes the folders of policies and states.
    pub fn new(space: &Space, holder: u32, baseline: Baseline, folder: &Path) -> Self {
        let (policies, states) = (folder.join("policies"), folder.join("states"));
        for path in [&policies, &states] {
            fs::create_dir_all(path).expect("a folder can be made");
        }
        let boot = Mutex::default();
        Self { space: space.clone(), holder, baseline, policies, states, boot }
    }

    /// The folder that `--policy-dir` names.
    pub fn policy_dir(&self) -> &Path {
        &self.policies
    }

    /// The folder that `--state-dir` names.
    pub fn state_dir(&self) -> &Path {
        &self.states
    }

    /// The gateway's namespace, for sockets and settings.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// A file of the gateway as the host sees it, also below its private `/run`.
    pub fn file(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.holder))
    }

    /// A program that will run in the gateway; set PATH on it to put fakes first.
    pub fn command(&self, program: &str) -> Command {
        let boot = self.boot.lock().expect("no thread panicked");
        space::enter_since(self.holder, boot.clock.as_ref().map(Child::id), program)
    }

    /// The built egressctl with the lab's folders and these arguments, not started yet.
    ///
    /// A child made of it is the program itself, so that its pid may be killed.
    pub fn egressctl_command(&self, args: &[&str]) -> Command {
        let mut command = self.command(&program());
        command.arg("--policy-dir").arg(&self.policies);
        command.arg("--state-dir").arg(&self.states).args(args);
        command
    }

    /// Runs egressctl to its end.
    pub fn egressctl(&self, args: &[&str]) -> Outcome {
        self.finish(self.egressctl_command(args))
    }

    /// Runs a command to its end; a daemon that keeps its output open does not hold it up.
    pub fn finish(&self, mut command: Command) -> Outcome {
        let file = || tempfile::NamedTempFile::new_in(&self.policies).expect("a file");
        let (out, err) = (file(), file());
        let open = |file: &tempfile::NamedTempFile| file.reopen().map(Stdio::from).expect("a file");
        command.stdin(Stdio::null()).stdout(open(&out)).stderr(open(&err));
        let mut child = command.spawn().expect("nsenter starts");
        let end = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if Instant::now() > end {
                let _gone = child.kill();
                panic!("{command:?} takes longer than {LIMIT:?}: {}", text(out.path()));
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        Outcome { code: status.code(), stdout: text(out.path()), stderr: text(err.path()) }
    }

    /// Starts egressctl with its output thrown away, for tests that kill it half way.
    pub fn spawn_egressctl(&self, args: &[&str]) -> Child {
        let mut command = self.egressctl_command(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("nsenter starts")
    }

    /// Writes the policy NAME and returns its file.
    pub fn policy(&self, name: &str, policy: &Value) -> PathBuf {
        let path = self.policies.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(policy).expect("a value is JSON");
        fs::write(&path, text).expect("a policy can be written");
        path
    }

    /// What the state file of policy NAME holds.
    pub fn state(&self, name: &str) -> Option<Value> {
        let path = self.states.join(name).join("state.json");
        serde_json::from_reader(File::open(path).ok()?).ok()
    }

    /// The output of `ip` with these words.
    pub fn ip(&self, words: &str) -> String {
        space::run(self.command("ip").args(words.split_whitespace()), "")
    }

    /// The output of `nft` with these words.
    pub fn nft(&self, words: &str) -> String {
        space::run(self.command("nft").args(words.split_whitespace()), "")
    }

    /// The output of `wg` with these words and a text on standard input.
    pub fn wg(&self, words: &str, input: &str) -> String {
        space::run(self.command("wg").args(words.split_whitespace()), input)
    }

    /// A stranger removes every routing rule but the kernel's own three, of both families.
    pub fn delete_rules(&self) {
        for family in ["-4", "-6"] {
            let rules = self.ip(&format!("{family} rule list"));
            let numbers = rules.lines().filter_map(|rule| rule.split(':').next());
            let own = numbers.filter(|number| !matches!(*number, "0" | "32766" | "32767"));
            let lines = own.fold(String::new(), |lines, n| lines + "rule del pref " + n + "\n");
            self.space.batch_of(family, &lines);
        }
    }

    /// A stranger removes all of nft.
    pub fn flush_nft(&self) {
        let _empty = self.nft("flush ruleset");
    }

    /// The wireguard-go daemons that run in the gateway.
    pub fn daemons(&self) -> Vec<u32> {
        let named = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|n| n.trim() == "wireguard-go")
        };
        self.space.pids().into_iter().filter(named).collect()
    }

    /// Everything that a reboot forgets is forgotten: daemons, devices, rules, routes, nft, conntrack, `/run`.
    ///
    /// The boot id is another, and the time since boot begins anew.
    ///
    /// What closes the clients at boot is loaded before anything is forwarded, as its unit does.
    pub fn reboot(&self) {
        self.space.sysctls(&[("ipv4/ip_forward", "0")]);
        let daemons = self.daemons();
        for pid in &daemons {
            space::signal(*pid, Signal::KILL);
        }
        let ended = || daemons.iter().all(|pid| space::has_ended(*pid));
        let gone = wait_until(Duration::from_secs(5), ended);
        assert!(gone, "the gateway's daemons do not end");
        self.flush_nft();
        self.delete_rules();
        let made = || {
            let mut devices = self.devices();
            devices.retain(|device| !matches!(device.as_str(), "lo" | "eth0" | "eth1"));
            devices
        };
        for device in made() {
            // A dead daemon's device goes by itself, a moment later.
            drop(self.command("ip").args(["link", "del", &device]).output());
        }
        assert!(wait_until(Duration::from_secs(5), || made().is_empty()), "{:?} stay", made());
        for family in ["-4", "-6"] {
            let flush = |all: String, table: &String| all + "route flush table " + table + "\n";
            self.space.batch_of(family, &self.tables(family).iter().fold(String::new(), flush));
        }
        let _gone = space::run(self.command("conntrack").arg("-F"), "");
        let forget = "rm -rf /run/* && mkdir -p /var/run/wireguard /run/lock";
        let _empty = space::run(self.command("sh").args(["-c", forget]), "");
        self.boots();
        for folder in fs::read_dir(self.state_dir()).into_iter().flatten().flatten() {
            if let Ok(barrier) = fs::read_to_string(folder.path().join("barrier.nft")) {
                self.space.nft(&barrier);
            }
        }
        self.baseline.apply(&self.space);
    }

    /// Another boot id, and a clock that has just begun.
    fn boots(&self) {
        let mut boot = self.boot.lock().expect("no thread panicked");
        boot.count += 1;
        let id = "/proc/sys/kernel/random/boot_id";
        let script = format!(
            "umount {id} 2>/dev/null; echo 00000000-0000-4000-8000-{:012x} >/run/boot_id && \
             mount --bind /run/boot_id {id}",
            boot.count
        );
        let _none = space::run(space::enter(self.holder, "sh").args(["-c", &script]), "");
        boot.stop();
        // A kernel without time namespaces goes on counting, so that windows seem to have passed.
        if !Path::new("/proc/self/ns/time_for_children").exists() {
            return;
        }
        let up = fs::read_to_string("/proc/uptime").expect("/proc is mounted");
        let seconds = up.split('.').next().expect("a text has a first part").to_owned();
        let mut command = space::enter(self.holder, "unshare");
        command.args(["--time", "--boottime", &format!("-{seconds}"), "sleep", "infinity"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.expect("unshare starts");
        let own = fs::read_link("/proc/self/ns/time").expect("a process has a clock");
        let holds = format!("/proc/{}/ns/time_for_children", child.id());
        let apart = || fs::read_link(&holds).is_ok_and(|clock| clock != own);
        assert!(wait_until(Duration::from_secs(5), apart), "no clock of its own for a boot");
        boot.clock = Some(child);
    }

    /// The names of the gateway's devices.
    pub fn devices(&self) -> BTreeSet<String> {
        let name = |line: &str| {
            let name = line.split_whitespace().nth(1)?.trim_end_matches(':');
            Some(name.split('@').next().unwrap_or(name).to_owned())
        };
        self.ip("-o link show").lines().filter_map(name).collect()
    }

    /// The tables besides main, local and default in which a family has routes.
    pub fn tables(&self, family: &str) -> BTreeSet<String> {
        let routes = self.ip(&format!("{family} route show table all"));
        let table = |line: &str| Some(line.split(" table ").nth(1)?.split(' ').next()?.to_owned());
        let own = |table: &String| !matches!(table.as_str(), "main" | "local" | "default");
        routes.lines().filter_map(table).filter(own).collect()
    }

    /// The address by which the web sees a local user of the gateway.
    pub fn exit_as(&self, user: &str) -> Option<String> {
        let response = self.get_as(user, names::USER_TARGET.to_string().as_str(), "/ip")?;
        (response.status == 200).then(|| response.text())
    }

    /// A page as a program asks for it whose socket is bound to a device; nothing when no whole answer comes.
    pub fn get_by(&self, device: &str, at: SocketAddr, path: &str) -> Option<Response> {
        const PATIENCE: Duration = Duration::from_secs(1);
        let mut stream = self.space.inside(|| {
            let socket = Socket::new(Domain::for_address(at), Type::STREAM, None).ok()?;
            socket.bind_device(Some(device.as_bytes())).ok()?;
            socket.connect_timeout(&at.into(), PATIENCE).ok()?;
            Some(TcpStream::from(socket))
        })?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut text = Vec::new();
        stream.read_to_end(&mut text).ok()?;
        super::client::parse(&text)
    }

    /// A page as a local user, given by name or number, asks for it from the gateway itself.
    pub fn get_as(&self, user: &str, host: &str, path: &str) -> Option<Response> {
        let script = format!(
            "exec 3<>/dev/tcp/{host}/80 && printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3 && exec cat <&3"
        );
        let mut command = self.command("timeout");
        command.args(["1.5", "setpriv", "--reuid", user, "--clear-groups", "bash", "-c", &script]);
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| super::client::parse(&output.stdout)).flatten()
    }
}

/// A value of PATH that finds the programs in a folder before the real ones.
pub fn path_with(folder: &Path) -> String {
    format!("{}:{}", folder.display(), space::PATH)
}

/// The built egressctl. Cargo names it to tests and benchmarks; an example stands in a folder beside it.
pub fn program() -> String {
    if let Some(path) = option_env!("CARGO_BIN_EXE_egressctl") {
        return path.to_owned();
    }
    let own = std::env::current_exe().expect("a process has a file");
    let path = own.parent().and_then(Path::parent).expect("examples have a folder");
    let path = path.join("egressctl");
    assert!(path.exists(), "{} is not there: run `cargo build` first", path.display());
    path.display().to_string()
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
