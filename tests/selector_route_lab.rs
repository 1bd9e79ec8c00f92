//! A selector between two plain uplinks, without any tunnel: what clients see.

use crate::lab;

use lab::pool::Step;
use lab::{Lab, gateway, names};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

/// No story here takes longer.
const LIMIT: Duration = Duration::from_secs(60);
/// What is left of a policy's when nothing was made or all was removed.
const UNTOUCHED: &str =
    "eth0 rp_filter 1\neth0 src_valid_mark 0\neth2 rp_filter 1\neth2 src_valid_mark 0";
/// The gateway's address on the second uplink.
const SECOND: &str = "10.200.0.2";

/// As the web sees a client that leaves by the first uplink.
#[expect(clippy::unnecessary_wraps, reason = "a client sees an exit or none")]
fn first() -> Option<String> {
    Some(names::WAN.to_string())
}

/// The same of the second one.
#[expect(clippy::unnecessary_wraps, reason = "a client sees an exit or none")]
fn second() -> Option<String> {
    Some(SECOND.to_owned())
}

/// A gateway with two uplinks, each with its own translation of addresses; what comes from the LAN
/// looks into table 120, and so does what a user of the gateway asks for.
struct Office {
    lab: Lab,
}

impl Office {
    fn start() -> Self {
        let office = Self { lab: Lab::builder().clients(1).endpoints(0).strict().start() };
        office.wire();
        office
    }

    /// As the host has it at boot.
    fn wire(&self) {
        let (isp, gw) = (&self.lab.spaces().isp, self.lab.gw());
        isp.batch(&format!(
            "link add gw2 type veth peer name eth2 netns {}\nlink set gw2 up\n\
             addr add 10.200.0.1/24 dev gw2\n",
            gw.space().name()
        ));
        gw.space().batch(
            "link set eth2 up\naddr add 10.200.0.2/24 dev eth2\n\
             rule add iif eth1 priority 1000 lookup 120\n",
        );
        gw.space().nft(
            "table ip stranger { chain out { type nat hook postrouting priority srcnat; policy accept;\n\
             oifname { \"eth0\", \"eth2\" } masquerade\n}\n}\n",
        );
    }

    fn policy(&self, change: impl FnOnce(&mut Value)) {
        let mut policy = json!({
            "kind": "selector",
            "driver": { "route": { "table": 120 } },
            "primary": { "interface": "eth0", "gateway": names::ISP },
            "reserve": { "interface": "eth2", "gateway": "10.200.0.1" },
            "probe": { "urls": [format!("http://{}/generate_204", names::PROBE)], "timeout_sec": 2 },
            "params": { "check_interval_sec": 1, "failure_window_sec": 1, "recovery_window_sec": 3,
                        "quiet_window_sec": 2, "active_bytes_per_sec": 5_000, "minimum_reserve_sec": 3,
                        "guard_max_hold_sec": 6 }
        });
        change(&mut policy);
        self.lab.gw().policy("office", &policy);
    }

    fn step(&self) -> Step {
        Step::of(self.lab.gw().egressctl(&["step", "office", "--now", "--json"]))
    }

    /// What `check` finds under a code.
    fn findings(&self, code: &str) -> Vec<String> {
        let report = self.lab.gw().egressctl(&["check", "office", "--json"]);
        let report: Value = serde_json::from_str(&report.stdout).unwrap();
        let all = report["findings"].as_array().unwrap().iter();
        let found = all.filter(|finding| finding["code"] == code);
        found.map(|finding| finding["what"].as_str().unwrap().to_owned()).collect()
    }

    /// Steps, as a timer does, until the machine stands there; all that was said meanwhile.
    #[track_caller]
    fn until(&self, state: &str) -> Vec<String> {
        let begun = Instant::now();
        let mut said = Vec::new();
        loop {
            let step = self.step();
            assert!(matches!(step.code, Some(0)), "{step:#?}");
            said.extend(codes(&step));
            if step.word("to") == state && !said.contains(&"undetermined".to_owned()) {
                return said;
            }
            said.retain(|code| code != "undetermined");
            assert!(begun.elapsed() < LIMIT, "not {state}: {step:#?}\n{said:?}");
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// The probe's page is out of reach by the first uplink, and nothing else is.
    fn blind(&self, blind: bool) {
        self.lab.spaces().isp.nft(&if blind {
            format!(
                "table ip blind {{ chain f {{ type filter hook forward priority -5; policy accept;\n\
                 ip saddr {} ip daddr {} reject\n}}\n}}\n",
                names::WAN,
                names::PROBE
            )
        } else {
            "delete table ip blind\n".to_owned()
        });
    }

    /// What is there of the policy's in the kernel.
    fn kernel(&self) -> String {
        let gw = self.lab.gw();
        let mut all = vec![gw.ip("-N route show table all proto 201")];
        let rules = gw.ip("-N rule list");
        all.extend(rules.lines().filter(|rule| rule.starts_with("50")).map(str::to_owned));
        let tables = gw.nft("list tables");
        all.extend(tables.lines().filter(|line| line.contains("egressctl")).map(str::to_owned));
        for device in ["eth0", "eth2"] {
            for key in ["rp_filter", "src_valid_mark"] {
                let path = format!("/proc/sys/net/ipv4/conf/{device}/{key}");
                let value = gw.space().inside(|| fs::read_to_string(&path).unwrap_or_default());
                all.push(format!("{device} {key} {}", value.trim()));
            }
        }
        all.retain(|line| !line.is_empty());
        all.join("\n")
    }

    /// A step in which one command of `ip` fails: that which holds these words.
    fn step_failing(&self, words: &str) -> Step {
        let folder = self.lab.folder().join("failing");
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *\"{words}\"*) echo 'RTNETLINK answers: No buffer space' >&2; exit 2;; esac\nPATH={} exec ip \"$@\"\n",
            lab::space::PATH
        );
        fs::write(folder.join("ip"), text).unwrap();
        fs::set_permissions(folder.join("ip"), fs::Permissions::from_mode(0o755)).unwrap();
        self.step_on(&gateway::path_with(&folder))
    }

    /// A step that finds its programs there.
    fn step_on(&self, path: &str) -> Step {
        let mut command = self.lab.gw().egressctl_command(&["step", "office", "--now", "--json"]);
        command.env("PATH", path);
        Step::of(self.lab.gw().finish(command))
    }

    /// A step on a machine that has no program for tunnels.
    fn step_without_wireguard(&self) -> Step {
        let folder = self.lab.folder().join("few");
        fs::create_dir_all(&folder).unwrap();
        for program in ["ip", "nft"] {
            let mut places =
                lab::space::PATH.split(':').map(|place| Path::new(place).join(program));
            symlink(places.find(|path| path.exists()).unwrap(), folder.join(program)).unwrap();
        }
        self.step_on(folder.to_str().unwrap())
    }
}

fn codes(step: &Step) -> Vec<String> {
    let reasons = step.report["reasons"].as_array().cloned().unwrap_or_default();
    reasons.iter().map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
}

/// Case C25.
#[test]
fn new_flows_move_and_return_while_open_ones_stay_where_they_are() {
    let office = Office::start();
    office.policy(|_| {});
    let client = office.lab.client(1);
    office.until("ON_PRIMARY");
    assert_eq!(client.exit(), first(), "{}", office.kernel());
    let (mut tcp, mut udp) = (client.tcp_flow().unwrap(), client.udp_flow());
    assert_eq!((tcp.ping().ok(), udp.ping()), (first(), first()));
    let download = client.download().unwrap();
    assert!(download.grows(Duration::from_secs(2)));
    // The primary's checks fail. What is received holds the switch up, and not for ever.
    office.blind(true);
    let begun = Instant::now();
    let said = office.until("ON_RESERVE");
    assert!(said.contains(&"traffic-guard".to_owned()), "{said:?}");
    assert!(begun.elapsed() >= Duration::from_secs(6), "{said:?}");
    assert_eq!((client.exit(), client.udp_flow().ping()), (second(), second()));
    // What was open is where it was, and goes on, though the filter of reverse paths was strict.
    assert!(download.grows(Duration::from_secs(2)));
    assert_eq!((tcp.ping().ok(), udp.ping()), (first(), first()));
    // A command that fails is undone: the state says what is so.
    office.blind(false);
    let mut late = client.tcp_flow().unwrap();
    assert_eq!(late.ping().ok(), second());
    office.until("PRIMARY_RECOVERING");
    let begun = Instant::now();
    let before = office.kernel();
    let failed = loop {
        let step = office.step_failing("route replace default via 203.0.113.1 dev eth0 table 120");
        assert!(begun.elapsed() < LIMIT, "{step:#?}");
        if step.code != Some(0) {
            break step;
        }
        std::thread::sleep(Duration::from_millis(300));
    };
    assert!(begun.elapsed() >= Duration::from_secs(2), "the windows hold: {failed:#?}");
    assert_eq!((failed.code, failed.word("outcome")), (Some(3), "rolled-back"), "{failed:#?}");
    assert_eq!((failed.word("to"), client.exit()), ("PRIMARY_RECOVERING", second()));
    assert_eq!(office.kernel(), before);
    // The old download lives on the primary, so it does not hold the way back.
    let said = office.until("ON_PRIMARY");
    assert_eq!(said.last().map(String::as_str), Some("primary-recovered"));
    assert_eq!((client.exit(), late.ping().ok()), (first(), second()));
    assert!(download.grows(Duration::from_secs(2)));
    // All that was made is removed by `down`, and comes back with `resume`.
    let down = office.lab.gw().egressctl(&["down", "office"]);
    assert_eq!(down.code, Some(0), "{down:?}");
    assert_eq!(office.kernel(), UNTOUCHED);
    assert_eq!(client.exit(), first(), "by main's own default");
    assert_eq!(office.lab.gw().egressctl(&["resume", "office"]).code, Some(0));
    office.until("ON_PRIMARY");
    let kernel = office.kernel();
    let (ways, rules) = (kernel.matches("default").count(), kernel.matches("fwmark").count());
    assert_eq!((ways, rules), (5, 2), "{kernel}");
}

#[test]
fn a_download_holds_the_way_back_up_and_a_reboot_takes_nothing_from_the_choice() {
    let office = Office::start();
    office.policy(|policy| {
        policy["driver"]["route"]["cut"] = json!("dead");
        policy["params"]["flap_limit"] = json!(1);
        policy["params"]["quarantine_sec"] = json!(6);
    });
    let client = office.lab.client(1);
    office.until("ON_PRIMARY");
    let mut tcp = client.tcp_flow().unwrap();
    assert_eq!(tcp.ping().ok(), first());
    // The line is dead: what hangs on it is ended where that is wished.
    office.lab.wan_silent();
    office.until("PRIMARY_QUARANTINED");
    assert_eq!(client.exit(), second());
    let ended = tcp.ping().unwrap_err();
    assert!(
        matches!(ended, std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::UnexpectedEof),
        "{ended:?}"
    );
    // A reboot takes rules and routes; the next step puts them back where the choice was.
    office.lab.gw().reboot();
    office.wire();
    assert_eq!(office.step().code, Some(0));
    assert_eq!(client.exit(), second());
    // So it does what a stranger took away, in every part.
    let whole = office.kernel();
    for take in [
        "ip rule del pref 500",
        "ip route del default table 120",
        "ip route flush table 122",
        "nft flush ruleset",
        "sysctl -q -w net.ipv4.conf.eth2.rp_filter=1",
    ] {
        let (program, args) = take.split_once(' ').unwrap();
        let mut command = office.lab.gw().command(program);
        let done = command.args(args.split(' ')).output().unwrap();
        assert!(done.status.success(), "{take}: {done:?}");
        let step = office.step();
        assert_eq!(
            (step.code, codes(&step).contains(&"drift".to_owned())),
            (Some(0), true),
            "{step:#?}"
        );
        assert_eq!(office.kernel(), whole, "{take}");
        if take.starts_with("nft") {
            office.lab.gw().space().nft(
                "table ip stranger { chain out { type nat hook postrouting priority srcnat; policy accept;\n\
                 oifname { \"eth0\", \"eth2\" } masquerade\n}\n}\n",
            );
        }
    }
    // A download on the reserve holds the way back up for as long as it lasts.
    let download = client.download().unwrap();
    assert!(download.grows(Duration::from_secs(2)));
    office.lab.wan_heal();
    office.until("PRIMARY_RECOVERING");
    let begun = Instant::now();
    let mut held = 0;
    while begun.elapsed() < Duration::from_secs(6) {
        let step = office.step();
        assert_eq!((step.code, step.word("to")), (Some(0), "PRIMARY_RECOVERING"), "{step:#?}");
        held += usize::from(codes(&step).contains(&"traffic-guard".to_owned()));
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(held > 2, "held {held} times");
    drop(download);
    office.until("ON_PRIMARY");
    assert_eq!(client.exit(), first());
}

#[test]
fn a_device_that_goes_is_left_and_main_keeps_the_strangers_default() {
    let office = Office::start();
    let gw = office.lab.gw();
    office.policy(|policy| {
        policy["driver"]["route"]["table"] = json!("main");
    });
    gw.space().batch("rule del iif eth1 priority 1000\n");
    // A stranger's default that goes before ours, or is in its very place, is not touched.
    let step = office.step();
    assert_eq!((step.code, codes(&step)), (Some(1), vec!["route-taken".to_owned()]), "{step:#?}");
    assert_eq!(office.kernel(), UNTOUCHED);
    gw.space().batch("route del default\nroute add default via 203.0.113.1 metric 100\n");
    let step = office.step_without_wireguard();
    assert_eq!(step.went(), (Some(0), "-", "ON_PRIMARY"), "{step:#?}");
    office.until("ON_PRIMARY");
    let client = office.lab.client(1);
    assert_eq!((client.exit(), office.lab.gw().exit_as("65534")), (first(), first()));
    // The stick is pulled out: nothing flows there, so nothing is waited for.
    assert_eq!(office.findings("uplink-gone"), Vec::<String>::new());
    gw.space().batch("link set eth0 down\n");
    assert_eq!(office.findings("uplink-gone"), ["the primary: eth0 is down"]);
    let begun = Instant::now();
    let said = office.until("ON_RESERVE");
    assert!(begun.elapsed() < Duration::from_secs(6), "{said:?}");
    assert_eq!((client.exit(), office.lab.gw().exit_as("65534")), (second(), second()));
    // A person may say otherwise, and gives back.
    gw.space().batch("link set eth0 up\nroute add default via 203.0.113.1 metric 100\n");
    office.until("PRIMARY_RECOVERING");
    let said = gw.egressctl(&["switch", "office", "eth0"]);
    assert_eq!((said.code, client.exit()), (Some(0), first()), "{said:?}");
    assert_eq!(gw.egressctl(&["switch", "office", "eth9"]).code, Some(2));
    // Under the pause nothing is changed, and what is seen is remembered.
    gw.space().batch("link set eth2 down\nlink set eth2 up\naddr flush dev eth2\n");
    assert!(codes(&office.step()).contains(&"paused".to_owned()));
    let seen = gw.egressctl(&["status", "office", "--json"]);
    let seen: Value = serde_json::from_str(&seen.stdout).unwrap();
    let why = seen["channels"][1]["why"].as_str().unwrap();
    assert_eq!(why, "eth2 has no address in the network of its gateway 10.200.0.1");
    gw.space().batch("addr add 10.200.0.2/24 dev eth2\n");
    assert!(codes(&office.step()).contains(&"paused".to_owned()));
    let status = gw.egressctl(&["status", "office"]);
    assert!(status.code == Some(0) && status.stdout.contains("ON_PRIMARY"), "{status:?}");
    assert!(gw.ip("route show default").contains("via 203.0.113.1 dev eth0 metric 100"));
    // The policy's file names another table: what the old one made is removed.
    assert_eq!(gw.egressctl(&["resume", "office"]).code, Some(0));
    office.policy(|policy| policy["driver"]["route"]["table"] = json!(130));
    office.until("ON_PRIMARY");
    let kernel = office.kernel();
    let own = |table: &str| kernel.lines().filter(|line| line.contains(table)).count();
    assert!(
        own("table 130") == 1 && own("20254") + own("20255") + own(" metric 10") == 0,
        "{kernel}"
    );
    // So is all of it once the file names a core's group; a plan says so, and changes nothing.
    office.policy(|policy| {
        policy["driver"] = json!({ "clash": { "url": "http://127.0.0.1:9", "selector": "out" } });
        policy["primary"] = json!({ "member": "a", "proxy": "http://127.0.0.1:10" });
        policy["reserve"] = json!({ "member": "b", "proxy": "http://127.0.0.1:11" });
    });
    let plans = [gw.egressctl(&["plan", "office"]), gw.egressctl(&["down", "office", "--plan"])];
    for plan in plans {
        let removals = ["rule del", "route del", "delete table", "rp_filter"];
        let told = removals.map(|removal| plan.stdout.contains(removal));
        assert_eq!((plan.code, told), (Some(0), [true; 4]), "{plan:#?}");
    }
    assert_eq!(office.kernel(), kernel);
    let step = office.step();
    assert_eq!((step.code, codes(&step)), (Some(0), vec!["core-down".to_owned()]), "{step:#?}");
    assert_eq!(office.kernel(), UNTOUCHED);
}
