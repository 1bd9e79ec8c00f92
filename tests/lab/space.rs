//! Network namespaces: made by name, entered by threads and by processes, and removed with all that runs in them.
//!
//! **Invariant:** a thread that has entered a namespace ends with the work that it entered it for; the test's own threads stay where they are.

use super::names;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Where programs are looked for when a test sets nothing else.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs a command with a text on standard input and returns its output; a failure ends the test.
pub fn run(command: &mut Command, input: &str) -> String {
    let shown = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{shown} does not start: {e}"));
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    // A command that does not read its input closes the pipe, which its exit code explains better.
    let _ignored = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("a child can be waited for");
    assert!(
        output.status.success(),
        "{shown} failed: {}\nits input was:\n{input}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until a condition holds, or until the time is up; says which.
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A named network namespace.
#[derive(Clone, Debug)]
pub struct Space {
    name: String,
}

impl Space {
    /// The namespace of a prefix and a role; it is made by `Ground`.
    pub fn new(prefix: &str, role: &str) -> Self {
        Self { name: format!("{prefix}-{role}") }
    }

    /// The name by which `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does some work in a thread that has entered the namespace; sockets made there stay in it.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = Path::new("/run/netns").join(&self.name);
        let entered = || {
            let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .unwrap_or_else(|e| panic!("{} cannot be entered: {e}", path.display()));
            work()
        };
        std::thread::scope(|scope| scope.spawn(entered).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs lines of `ip` in one process; the first error ends the test.
    pub fn batch(&self, lines: &str) {
        run(Command::new("ip").args(["-n", &self.name, "-batch", "-"]), lines);
    }

    /// The same for lines that do not show their family by an address: `-4` or `-6`.
    pub fn batch_of(&self, family: &str, lines: &str) {
        run(Command::new("ip").args([family, "-n", &self.name, "-batch", "-"]), lines);
    }

    /// Loads a set of nft rules.
    pub fn nft(&self, rules: &str) {
        run(Command::new("ip").args(["netns", "exec", &self.name, "nft", "-f", "-"]), rules);
    }

    /// Writes kernel settings below `/proc/sys/net`, which shows the namespace of the thread that writes.
    pub fn sysctls(&self, settings: &[(&str, &str)]) {
        self.inside(|| {
            for (key, value) in settings {
                let path = Path::new("/proc/sys/net").join(key);
                fs::write(&path, value).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            }
        });
    }

    /// The processes whose network namespace this is.
    pub fn pids(&self) -> Vec<u32> {
        let Ok(own) = fs::metadata(Path::new("/run/netns").join(&self.name)) else {
            return Vec::new();
        };
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok())
            .filter(|pid| *pid != std::process::id())
            .filter(|pid| {
                fs::metadata(format!("/proc/{pid}/ns/net"))
                    .is_ok_and(|other| other.ino() == own.ino() && other.dev() == own.dev())
            })
            .collect()
    }
}

/// Sends a signal to a process by its id; that it is gone already is no fault.
pub fn signal(pid: u32, signal: Signal) {
    let raw = i32::try_from(pid).expect("a pid is small");
    let _gone = kill_process(Pid::from_raw(raw).expect("a pid is above zero"), signal);
}

/// Whether a process with this id lives.
fn lives(pid: u32) -> bool {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Whether a process has ended; a zombie has, only its parent can take it away.
///
/// One that is about to end has no namespaces any more while the kernel still takes its devices away.
pub fn has_ended(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_or(true, |stat| stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with('Z')))
}

/// One line of `ip` for each namespace.
fn each(what: &str, spaces: &[Space]) -> String {
    spaces.iter().fold(String::new(), |lines, space| lines + what + " " + &space.name + "\n")
}

/// Ends every process in the namespaces, then removes these.
fn remove(spaces: &[Space]) {
    // A process may fork while it is looked for, hence the look again until nobody is found.
    let mut ending = BTreeSet::new();
    let emptied = wait_until(Duration::from_secs(5), || {
        let pids: Vec<u32> = spaces.iter().flat_map(Space::pids).collect();
        for pid in &pids {
            signal(*pid, Signal::KILL);
        }
        ending.extend(&pids);
        pids.is_empty() && ending.iter().all(|pid| has_ended(*pid))
    });
    let lines = each("netns del", spaces);
    let done = Command::new("ip")
        .args(["-force", "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .and_then(|mut child| {
            child.stdin.take().map(|mut stdin| stdin.write_all(lines.as_bytes())).transpose()?;
            child.wait()
        });
    if !emptied || done.is_err() {
        let _ = writeln!(std::io::stderr(), "the lab could not remove all of {spaces:?}").is_ok();
    }
}

/// Removes what labs of processes that do not live any more have left.
pub fn sweep() {
    let dead = |name: &str| names::pid_in(name).is_some_and(|pid| !lives(pid));
    let left: Vec<Space> =
        names::spaces().into_iter().filter(|n| dead(n)).map(|name| Space { name }).collect();
    if !left.is_empty() {
        remove(&left);
    }
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        if dead(&entry.file_name().to_string_lossy()) {
            let _gone = fs::remove_dir_all(entry.path());
        }
    }
}

/// What a lab stands on: its namespaces, its long-lived processes and its folder; all end with it.
#[derive(Debug)]
pub struct Ground {
    spaces: Vec<Space>,
    children: Mutex<Vec<Child>>,
    folder: PathBuf,
}

impl Ground {
    /// Makes the namespaces of the roles, and a folder of the prefix's name.
    pub fn new(prefix: &str, roles: &[String]) -> Self {
        let folder = std::env::temp_dir().join(prefix);
        fs::create_dir_all(&folder).expect("the lab's folder can be made");
        let spaces: Vec<Space> = roles.iter().map(|role| Space::new(prefix, role)).collect();
        let lines = each("netns add", &spaces);
        let ground = Self { spaces, children: Mutex::default(), folder };
        // The first `ip netns add` of a machine makes /run/netns a shared mount, which two processes must not do at once.
        let lock = File::open("/run").expect("/run is there");
        lock.lock().expect("/run can be locked");
        sweep();
        run(Command::new("ip").args(["-batch", "-"]), &lines);
        ground
    }

    /// The lab's own folder, which goes with it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes a child that is ended and waited for with the lab.
    pub fn keep(&self, child: Child) {
        self.children.lock().expect("no thread panicked").push(child);
    }

    /// Starts the process that holds a namespace's private `/run`, where wireguard-go puts its sockets.
    ///
    /// UAPI sockets are files, so without it two namespaces could not both have `vpn1`.
    pub fn hold(&self, space: &Space) -> u32 {
        let script = "mount -t tmpfs -o mode=755 lab /run && mkdir -p /var/run/wireguard /run/lock \
                      && echo ready && exec sleep infinity";
        let mut child = Command::new("ip")
            .args(["netns", "exec", space.name(), "sh", "-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ip starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("standard output is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
        if line != "ready\n" {
            let mut why = String::new();
            let mut stderr = child.stderr.take().expect("standard error is a pipe");
            let _read = stderr.read_to_string(&mut why);
            panic!("{} cannot have its own /run: {why}", space.name());
        }
        drop(child.stderr.take());
        let pid = child.id();
        self.keep(child);
        pid
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let children = self.children.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        for child in &mut *children {
            let _gone = child.kill();
        }
        for child in &mut *children {
            let _gone = child.wait();
        }
        remove(&self.spaces);
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

/// A command that runs in the namespaces of a holder process, with nothing in its environment but PATH.
pub fn enter(holder: u32, program: &str) -> Command {
    enter_since(holder, None, program)
}

/// The same by the clock of a boot, which a process holds.
pub fn enter_since(holder: u32, boot: Option<u32>, program: &str) -> Command {
    let mut command = Command::new("/usr/bin/nsenter");
    command.args(["-t", &holder.to_string(), "-m", "-n"]);
    if let Some(pid) = boot {
        command.arg(format!("--time=/proc/{pid}/ns/time_for_children"));
    }
    command.args(["--", program]);
    command.env_clear().env("PATH", PATH);
    command
}
