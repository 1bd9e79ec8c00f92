//! The Debian package: built, judged by lintian, installed on a gateway, upgraded under running tunnels, and removed.
//!
//! The gateway's root is a copy of this machine's that is thrown away: an overlay, seen in the gateway's mount namespace alone.

use crate::lab;

use lab::gateway::Outcome;
use lab::pool::{Pool, differences};
use lab::{Lab, names};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// Where the gateway's root is, below its own `/run`.
const ROOT: &str = "/run/machine/root";

/// The package, built once for all tests. The program in it is the one that is tested.
fn package() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let build = || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("egressctl.deb");
        let target = Path::new(env!("CARGO_BIN_EXE_egressctl")).ancestors().nth(2).unwrap();
        // From the project's folder to that path.
        let up = Path::new(env!("CARGO_MANIFEST_DIR")).components().skip(1).map(|_| "../");
        let relative = up.collect::<String>() + path.to_str().unwrap().trim_start_matches('/');
        let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/deb/build"))
            .args(["--built", "--profile", "dev", "--version", "0.1.0-1", "--output", &relative])
            .env("CARGO_TARGET_DIR", target)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "is cargo-deb installed? {said}");
        // What is printed is given to `apt-get install`, which takes a relative path for a name.
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim_end(), path.canonicalize().unwrap().to_str().unwrap());
        (folder, path)
    };
    &BUILT.get_or_init(build).1
}

/// The same package as its next version.
fn next_version(into: &TempDir) -> PathBuf {
    let (tree, path) = (into.path().join("tree"), into.path().join("next.deb"));
    let (at, to) = (tree.to_str().unwrap(), path.to_str().unwrap());
    let _unpacked = printed("dpkg-deb", &["-R", package().to_str().unwrap(), at]);
    let control = tree.join("DEBIAN/control");
    let text = std::fs::read_to_string(&control).unwrap();
    std::fs::write(&control, text.replace("Version: 0.1.0-1", "Version: 0.1.1-1")).unwrap();
    let _packed = printed("dpkg-deb", &["-Zgzip", "-z1", "-b", at, to]);
    path
}

/// What a command prints; a failure ends the test.
fn printed(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}: apt-get install -y lintian dpkg-dev"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {args:?}: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// A lab whose gateway has a root of its own.
struct Machine {
    lab: Lab,
}

impl Machine {
    fn start() -> Self {
        let lab = Lab::builder().endpoints(6).masquerade().start();
        let script = format!(
            "set -e; mkdir -p /run/machine; mount -t tmpfs machine /run/machine; cd /run/machine; mkdir upper work root
             mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work machine root
             for at in dev proc sys run; do mount --bind /$at root/$at; done
             mkdir -p root/{0}; mount --bind {0} root/{0}",
            lab.folder().display()
        );
        let machine = Self { lab };
        let made = machine.lab.gw().finish({
            let mut command = machine.lab.gw().command("sh");
            command.args(["-c", &script]);
            command
        });
        assert_eq!(made.code, Some(0), "{made:?}");
        machine
    }

    /// Runs a program on it to its end.
    fn run(&self, words: &str) -> Outcome {
        let mut command = self.lab.gw().command("chroot");
        command.arg(ROOT).args(words.split_whitespace());
        self.lab.gw().finish(command)
    }

    /// The same for what must succeed.
    #[track_caller]
    fn does(&self, words: &str) -> String {
        let outcome = self.run(words);
        assert_eq!(outcome.code, Some(0), "{words}: {}{}", outcome.stdout, outcome.stderr);
        outcome.stdout
    }

    /// `dpkg`, which need not wait for a disk that is thrown away.
    fn dpkg(&self, what: &str) -> Outcome {
        self.run(&format!("dpkg --force-unsafe-io --no-triggers {what}"))
    }

    /// Installs a package.
    fn install(&self, package: &Path) {
        let into = self.file("/var/tmp/egressctl.deb");
        std::fs::copy(package, into).unwrap();
        let outcome = self.dpkg("-i /var/tmp/egressctl.deb");
        assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    }

    /// A file of it as this test sees it.
    fn file(&self, path: &str) -> PathBuf {
        self.lab.gw().file(&format!("{ROOT}{path}"))
    }

    /// What names egressctl where systemd looks for what is enabled.
    fn enabled(&self) -> BTreeSet<String> {
        let found = self.does("find /etc/systemd/system -name egressctl* -printf %f\\n");
        found.lines().map(str::to_owned).collect()
    }
}

#[test]
fn lintian_has_nothing_to_say_and_every_part_is_where_it_belongs() {
    let package = package().to_str().unwrap();
    let judged = printed("lintian", &["--allow-root", "--fail-on", "error,warning", package]);
    assert_eq!(judged, "");
    let listed = printed("dpkg-deb", &["-c", package]);
    let files: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| Some(line.split_whitespace().nth(5)?.trim_start_matches('.')))
        .collect();
    for file in [
        "/usr/bin/egressctl",
        "/usr/lib/systemd/system/egressctl.service",
        "/usr/lib/systemd/system/egressctl.timer",
        "/usr/lib/systemd/system/egressctl@.service",
        "/usr/lib/systemd/system/egressctl@.timer",
        "/usr/lib/systemd/system/egressctl-wg@.service",
        "/usr/lib/systemd/system/egressctl-barrier.service",
        "/usr/lib/systemd/user/egressctl.service",
        "/usr/lib/systemd/user/egressctl.timer",
        "/usr/share/man/man8/egressctl.8.gz",
        "/usr/share/man/man5/egressctl-policy.5.gz",
        "/usr/share/bash-completion/completions/egressctl",
        "/usr/share/zsh/vendor-completions/_egressctl",
        "/usr/share/fish/vendor_completions.d/egressctl.fish",
        "/usr/share/egressctl/policy.schema.json",
        "/usr/share/doc/egressctl/examples/pool.json",
        "/usr/share/doc/egressctl/examples/scenarios/full-trial.json",
        "/usr/share/doc/egressctl/examples/systemd/alert.conf",
        "/usr/share/doc/egressctl/copyright",
    ] {
        assert!(files.contains(file), "{file} is not among {files:#?}");
    }
    let depends = printed("dpkg-deb", &["-f", package, "Depends"]);
    for needed in ["libc6", "wireguard-tools", "iproute2", "nftables", "conntrack"] {
        assert!(depends.contains(needed), "{depends}");
    }
}

#[test]
fn an_upgrade_leaves_tunnels_alone_and_removal_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let new = next_version(&folder);
    let machine = Machine::start();
    let (lab, pool) = (&machine.lab, Pool { lab: &machine.lab });
    let bare = pool.kernel();

    machine.install(package());
    assert_eq!(machine.enabled(), BTreeSet::new(), "an installation enables nothing");
    assert_eq!(differences(&bare, &pool.kernel()), [""; 0], "and steps nothing");
    let policy = machine.file("/etc/egressctl/home.json");
    std::fs::write(&policy, lab.pool_policy().to_string()).unwrap();
    let _first = machine.does("egressctl step");
    let _enabled = machine.does(
        "systemctl enable --quiet egressctl.timer egressctl@home.timer egressctl-barrier.service",
    );
    assert_eq!(machine.enabled().len(), 3);
    let slots = pool.serves(5);
    let (before, daemons) = (pool.tunnels(), lab.gw().daemons());
    let mut flow = lab.client(1).tcp_flow().expect("a client opens a flow");
    let _first = flow.ping().expect("it is answered");

    machine.install(&new);
    assert_eq!(machine.does("dpkg-query -W -f ${Version} egressctl"), "0.1.1-1");
    let _steady = machine.does("egressctl step");
    pool.others_go_on(&before, &[]);
    assert_eq!(lab.gw().daemons(), daemons);
    assert_eq!(pool.serves(5), slots);
    let _still = flow.ping().expect("a flow outlives the upgrade");
    assert_eq!(machine.enabled().len(), 3, "what a person enabled stays enabled");
    pool.nothing_leaked();

    // A policy that cannot be taken down keeps the package: else nobody could open what is closed.
    let whole = std::fs::read(&policy).unwrap();
    std::fs::write(&policy, "{").unwrap();
    let kept = machine.file("/var/lib/egressctl/home/policy.json");
    std::fs::remove_file(kept).unwrap();
    let refused = machine.dpkg("-r egressctl");
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("policy home could not be taken down"), "{}", refused.stderr);
    assert_eq!(pool.serves(5), slots);
    std::fs::write(&policy, whole).unwrap();

    let removed = machine.dpkg("-r egressctl");
    assert_eq!(removed.code, Some(0), "{}{}", removed.stdout, removed.stderr);
    assert_eq!(differences(&bare, &pool.kernel()), [""; 0]);
    assert_eq!(lab.gw().daemons(), [0; 0]);
    assert_eq!(machine.enabled(), BTreeSet::new());
    let uplink = Some(names::WAN.to_string());
    assert!(lab.clients().iter().all(|client| client.exit() == uplink), "clients leave as before");
    assert!(machine.file("/var/lib/egressctl/home/state.json").exists(), "the state is kept");

    let purged = machine.dpkg("-P egressctl");
    assert_eq!(purged.code, Some(0), "{}{}", purged.stdout, purged.stderr);
    assert!(!machine.file("/var/lib/egressctl").exists(), "the state has gone");
    assert!(policy.exists(), "a policy is a person's own");
    assert!(!machine.file("/usr/bin/egressctl").exists());
}
