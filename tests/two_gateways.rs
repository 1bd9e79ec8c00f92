//! Two gateways of one LAN, of which keepalived gives clients the one that serves, as the example says.

use crate::lab;

use lab::gateway::{Gateway, program};
use lab::pool::{Pool, Step};
use lab::space::wait_until;
use lab::{Lab, names};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

const SHARED: &str = "10.77.0.254";

/// keepalived on one gateway, ended as a person would end it.
struct Keepalived(Child);

impl Keepalived {
    /// By the example, with what is another on each gateway: the device, the priority, and where things lie.
    fn start(gateway: &Gateway, folder: &Path, device: &str, priority: &str) -> Self {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/two-gateways");
        let serves = folder.join("egress-serves");
        let mut script = fs::read_to_string(example.join("egress-serves")).unwrap();
        let with_folders = format!(
            "{} --policy-dir {} --state-dir {} status",
            program(),
            gateway.policy_dir().display(),
            gateway.state_dir().display()
        );
        assert!(script.contains("\negressctl status "));
        script = script.replace("\negressctl status", &format!("\n{with_folders}"));
        fs::write(&serves, script).unwrap();
        fs::set_permissions(&serves, fs::Permissions::from_mode(0o755)).unwrap();
        let text = fs::read_to_string(example.join("keepalived.conf")).unwrap();
        let mut changed = text.clone();
        for (from, to) in [
            ("/usr/local/sbin/egress-serves", serves.to_str().unwrap()),
            ("interface eth1", &format!("interface {device}")),
            ("priority 150", &format!("priority {priority}")),
            // The lab lies below /tmp, where anybody may write.
            ("enable_script_security", ""),
            // The test does not wait as long as people do.
            ("interval 2", "interval 1"),
            ("rise 3", "rise 2"),
        ] {
            assert!(text.contains(from), "the example does not say {from}");
            changed = changed.replace(from, to);
        }
        let path = folder.join("keepalived.conf");
        fs::write(&path, changed).unwrap();
        let log = fs::File::create(folder.join("keepalived.log")).unwrap();
        let mut command = gateway.command("keepalived");
        command.args(["--dont-fork", "--vrrp", "--log-console", "--use-file"]).arg(&path);
        command.arg("--pid").arg(folder.join("pid")).arg("--vrrp_pid").arg(folder.join("vrrp.pid"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self(command.spawn().expect("keepalived is in Debian's package keepalived"))
    }
}

impl Drop for Keepalived {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).unwrap();
        let _gone = kill_process(pid, Signal::TERM);
        let _code = self.0.wait();
    }
}

fn two_slots(policy: &mut Value) {
    policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
    policy["params"]["health_check_interval_sec"] = json!(0);
    policy["params"]["local_repair_retest_count"] = json!(1);
    policy["params"]["direct_grace_sec"] = json!(0);
    policy["params"]["bootstrap_retry_interval_sec"] = json!(0);
}

fn step(gateway: &Gateway) -> Step {
    Step::of(gateway.egressctl(&["step", "home", "--json"]))
}

/// The private keys with which a gateway's tunnels are up.
fn keys(gateway: &Gateway) -> BTreeSet<String> {
    let dump = gateway.wg("show all dump", "");
    let own = |line: &str| {
        let words: Vec<&str> = line.split('\t').collect();
        (words.len() == 5).then(|| words[1].to_owned())
    };
    dump.lines().filter_map(own).collect()
}

/// Two gateways of one LAN, each with its own part of the list, and keepalived on both.
struct Two<'a> {
    // They end before what they run on.
    _keepalived: [Keepalived; 2],
    lab: &'a Lab,
    pool: Pool<'a>,
    second: Gateway,
    folders: [PathBuf; 2],
}

impl<'a> Two<'a> {
    /// Both serve, and the first one has the address.
    fn up(lab: &'a Lab, change: fn(&mut Value)) -> Self {
        let (first, second) = (lab.gw(), lab.second_gateway());
        // What one of them holds the other never does.
        let part = |name: &str| lab.folder().join(name);
        lab.write_configs(&part("one"), 1..=2);
        lab.write_configs(&part("two"), 3..=4);
        let pool = Pool::up(lab, |policy| {
            two_slots(policy);
            change(policy);
            policy["provider"]["directory"]["path"] = json!(part("one"));
        });
        let mut policy = lab.pool_policy();
        two_slots(&mut policy);
        change(&mut policy);
        policy["provider"]["directory"]["path"] = json!(part("two"));
        policy["lan_interfaces"] = json!(["eth0"]);
        policy["wan_interface"] = json!("eth1");
        second.policy("home", &policy);
        let up = step(&second);
        assert_eq!(up.went(), (Some(0), "-", "NORMAL"), "{up:#?}");
        let folders = [lab.folder().join("k1"), lab.folder().join("k2")];
        for folder in &folders {
            fs::create_dir(folder).unwrap();
        }
        let keepalived = [
            Keepalived::start(first, &folders[0], "eth1", "150"),
            Keepalived::start(&second, &folders[1], "eth0", "100"),
        ];
        lab.spaces().clients[0].batch(&format!("route replace default via {SHARED}\n"));
        let two = Self { _keepalived: keepalived, lab, pool, second, folders };
        two.first_alone("the first one has the higher priority");
        two
    }

    fn apart(&self, when: &str) {
        let (one, two) = (keys(self.lab.gw()), keys(&self.second));
        assert!(!two.is_empty() && one.is_disjoint(&two), "{when}: a key is up twice");
    }

    /// Waits until one of them alone has the address.
    fn alone(&self, one: &Gateway, other: &Gateway, why: &str) {
        let holds = |gateway: &Gateway| gateway.ip("-4 -o addr show").contains(SHARED);
        let is_so = wait_until(Duration::from_secs(30), || {
            step(&self.second);
            holds(one) && !holds(other)
        });
        let log = |f: &PathBuf| fs::read_to_string(f.join("keepalived.log")).unwrap_or_default();
        assert!(is_so, "{why}: {:#?}", self.folders.each_ref().map(log));
        self.apart(why);
    }

    /// The first one has the address and carries the client.
    fn first_alone(&self, why: &str) {
        self.alone(self.lab.gw(), &self.second, why);
        let by = self.lab.client(1).endpoint();
        assert!(matches!(by, Some(1 | 2)), "{why}: {by:?}");
    }

    /// The second one has the address and carries the client, by no WAN.
    fn second_alone(&self, why: &str) {
        self.alone(&self.second, self.lab.gw(), why);
        let by = self.lab.client(1).endpoint();
        assert!(matches!(by, Some(3 | 4)), "{why}: {by:?}");
        assert_ne!(self.lab.client(1).exit(), Some(names::WAN.to_string()), "{why}");
    }

    /// Steps both until the status of the first one ends with this code.
    fn until(&self, code: i32) {
        let is_so = (0..12).any(|_| {
            step(&self.second);
            self.pool.step();
            self.pool.asked().0 == Some(code)
        });
        assert!(is_so, "never {code}: {:#}", self.pool.status());
    }

    /// The first one loses all its endpoints.
    fn lose(&self) {
        for endpoint in 1..=2 {
            self.lab.drop(endpoint);
        }
        self.until(2);
    }

    /// They answer again.
    fn find_again(&self) {
        for endpoint in 1..=2 {
            self.lab.heal(endpoint);
        }
        self.until(0);
    }

    /// How the clients of the first one leave.
    fn egress(&self) -> Vec<Value> {
        let status = self.pool.status();
        let clients = status["clients"].as_array().unwrap();
        clients.iter().map(|client| client["egress"].clone()).collect()
    }
}

#[test]
fn a_gateway_that_does_not_serve_gives_its_address_away_and_takes_it_back() {
    let lab = Lab::builder().clients(1).endpoints(4).start();
    let two = Two::up(&lab, |_| {});
    two.lose();
    assert_eq!(two.egress(), ["direct"]);
    two.second_alone("Direct is not what clients are to leave by");
    two.find_again();
    two.first_alone("it serves again");
}

#[test]
fn a_gateway_that_has_closed_its_clients_in_gives_its_address_away_and_takes_it_back() {
    let lab = Lab::builder().clients(1).endpoints(4).start();
    let two = Two::up(&lab, |policy| policy["params"]["direct_failopen_enabled"] = json!(false));
    two.lose();
    assert_eq!(two.egress(), ["none"]);
    two.second_alone("who is closed in is served by the other one");
    two.find_again();
    two.first_alone("it serves again");
}
