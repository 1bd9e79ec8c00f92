//! Programs that fail on demand, first on PATH, and what of the gateway must not change when they do.
//!
//! **Invariant:** a fake passes everything on to the real program but for the one fault it was told.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of the fakes")]

use crate::lab::gateway::{Gateway, Outcome, path_with};
use crate::lab::{Lab, space};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// The fakes of this folder.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fakes");

/// A folder of fakes in a lab.
#[derive(Debug)]
pub struct Fakes {
    folder: PathBuf,
}

impl Fakes {
    /// Links `fail-nth` under the name of every program that changes the kernel.
    pub fn new(lab: &Lab) -> Self {
        let folder = lab.folder().join("fakes");
        let _none = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder can be made");
        for name in ["ip", "wg", "nft", "conntrack", "wireguard-go"] {
            symlink(Path::new(SCRIPTS).join("fail-nth"), folder.join(name)).expect("a link");
        }
        Self { folder }
    }

    /// Links `systemctl`, too.
    pub fn with_systemctl(self) -> Self {
        let link = self.folder.join("systemctl");
        symlink(Path::new(SCRIPTS).join("systemctl"), link).expect("a link");
        self
    }

    /// Runs egressctl with the fakes before the real programs and with one fault; counting begins anew.
    pub fn run(&self, gw: &Gateway, fault: &str, args: &[&str]) -> Outcome {
        self.forget();
        let mut command = gw.egressctl_command(args);
        command.env("PATH", path_with(&self.folder)).env("FAULT", fault);
        let outcome = gw.finish(command);
        no_panic(&outcome);
        outcome
    }

    /// The same, not waited for.
    pub fn spawn(&self, gw: &Gateway, fault: &str, args: &[&str]) -> Child {
        self.forget();
        let mut command = gw.egressctl_command(args);
        command.env("PATH", path_with(&self.folder)).env("FAULT", fault);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("nsenter starts")
    }

    /// What was called since the last run began: `change`, `trial`, `cut` or `systemctl`.
    pub fn calls(&self, what: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join(format!("{what}.log"))).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn forget(&self) {
        for what in ["change", "trial", "cut", "systemctl"] {
            let _none = fs::remove_file(self.folder.join(format!("{what}.log")));
        }
    }
}

/// No run ends with a panic, whatever else it does.
pub fn no_panic(outcome: &Outcome) {
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{said}");
}

/// All of the gateway that a change touches, as text that can be compared.
///
/// Counters, numbers of devices and the link-local addresses that the kernel draws by lot are left out.
pub fn world(gw: &Gateway) -> String {
    let mut all = String::new();
    let mut section = |title: &str, text: &str| {
        let mut lines: Vec<&str> = text
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.contains("fe80::") && !line.contains("ff00::"))
            .collect();
        if !title.starts_with("nft") {
            lines.sort_unstable();
        }
        all.extend(["== ", title, "\n", &lines.join("\n"), "\n"]);
    };
    for words in ["-4 rule list", "-6 rule list", "-4 route show table all"] {
        section(words, &gw.ip(words));
    }
    section("-6 route show table all", &gw.ip("-6 route show table all"));
    section("nft", &gw.nft("-s list ruleset"));
    for what in ["public-key", "listen-port", "peers", "allowed-ips", "persistent-keepalive"] {
        let shown = gw.command("wg").args(["show", "all", what]).output().expect("wg starts");
        section(&format!("wg {what}"), &String::from_utf8_lossy(&shown.stdout));
    }
    section("links", &links(gw));
    section("addresses", &gw.ip("-br address show"));
    section("sysctls", &sysctls(gw));
    all
}

fn links(gw: &Gateway) -> String {
    let listing: Value = serde_json::from_str(&gw.ip("-j -d link show")).expect("ip prints JSON");
    let line = |link: &Value| {
        format!("{} {} {} {}\n", link["ifname"], link["flags"], link["mtu"], link["linkinfo"])
    };
    listing.as_array().expect("a list").iter().map(line).collect()
}

fn sysctls(gw: &Gateway) -> String {
    gw.space().inside(|| {
        let mut all = String::new();
        let folder = fs::read_dir("/proc/sys/net/ipv4/conf").expect("the kernel has settings");
        for device in folder.flatten() {
            for key in ["rp_filter", "src_valid_mark", "send_redirects", "forwarding"] {
                let value = fs::read_to_string(device.path().join(key)).unwrap_or_default();
                let name = device.file_name();
                all.extend([&*name.to_string_lossy(), "/", key, " ", value.trim(), "\n"]);
            }
        }
        all
    })
}

/// Waits for daemons to be gone, then demands that the world is what it was.
#[track_caller]
pub fn is_as_before(gw: &Gateway, before: &str, when: &str) {
    let mut now = world(gw);
    space::wait_until(Duration::from_secs(1), || {
        now = world(gw);
        now == before
    });
    let lost: Vec<&str> = before.lines().filter(|line| !now.lines().any(|l| l == *line)).collect();
    let new: Vec<&str> = now.lines().filter(|line| !before.lines().any(|l| l == *line)).collect();
    assert!(now == before, "{when}\nlost: {lost:#?}\nnew: {new:#?}\nnow:\n{now}");
}

/// A policy of two slots that counts one failed check, and tries again at once what came to nothing.
pub fn small_policy(lab: &Lab) -> Value {
    let mut policy = lab.pool_policy();
    policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
    policy["params"]["health_failures_before_down"] = json!(1);
    policy["params"]["bootstrap_retry_interval_sec"] = json!(0);
    policy
}

/// Whether a change of policy `home` is in flight, or was when a run died.
pub fn is_in_flight(gw: &Gateway) -> bool {
    gw.state_dir().join("home/journal.json").exists()
}

/// What the state says of the last step.
pub fn last_step(gw: &Gateway) -> Value {
    gw.state("home").map_or(Value::Null, |state| state["body"]["last_step"].clone())
}

/// The changes that the next step would make, as `plan --json` names them.
pub fn planned(gw: &Gateway) -> Vec<String> {
    let outcome = gw.egressctl(&["plan", "home", "--json"]);
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    let plan: Value = serde_json::from_str(&outcome.stdout).expect("a plan is JSON");
    let steps = plan["steps"].as_array().expect("a plan has steps").iter();
    let commands = steps.flat_map(|step| step["do"].as_array().expect("commands").clone());
    commands.map(|command| command.as_str().expect("a command is text").to_owned()).collect()
}

/// Steps until the next step would load a candidate into a slot.
pub fn step_until_repair(gw: &Gateway) {
    for _ in 0..8 {
        if planned(gw).iter().any(|command| command.starts_with("wg setconf")) {
            return;
        }
        let outcome = gw.egressctl(&["step", "home"]);
        assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    }
    panic!("no step would load a candidate: {}", gw.egressctl(&["status", "home"]).stdout);
}

/// The endpoints by which the two clients leave, which are different ones.
#[track_caller]
pub fn on_two_slots(lab: &Lab) -> [usize; 2] {
    match lab.exits()[..] {
        [Some(one), Some(two)] if one != two => [one, two],
        ref other => panic!("two clients leave by two endpoints, not by {other:?}"),
    }
}
