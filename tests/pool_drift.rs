//! What somebody else takes away or changes is put back by the next step, and a steady world is only looked at.

use crate::lab;

use lab::pool::{Pool, Step, differences};
use lab::{Lab, gateway, space};
use rustix::process::Signal;
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

/// One way in which a stranger or an accident changes what is ours.
struct Drift {
    what: &'static str,
    /// The slot whose own flows may suffer, if any.
    hurts: &'static [&'static str],
    happens: fn(&Pool<'_>),
}

fn batch(pool: &Pool<'_>, lines: &str) {
    pool.lab.gw().space().batch(lines);
}

/// The daemon of a slot, by its arguments.
fn daemon_of(pool: &Pool<'_>, slot: &str) -> u32 {
    let runs = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == slot.as_bytes())
    };
    pool.lab.gw().daemons().into_iter().find(runs).unwrap()
}

/// The elements of the map from clients to marks, changed for one client.
fn change_one_element(pool: &Pool<'_>) {
    let gw = pool.lab.gw();
    let table = "inet egressctl_home";
    let listed = gw.nft(&format!("list map {table} client_mark"));
    let mark =
        listed.split("10.77.0.11 : ").nth(1).unwrap().split([',', ' ', '\n']).next().unwrap();
    let other = if mark.ends_with('1') { "0x45470002" } else { "0x45470001" };
    gw.space().nft(&format!(
        "delete element {table} client_mark {{ 10.77.0.11 : {mark} }}\n\
         add element {table} client_mark {{ 10.77.0.11 : {other} }}\n"
    ));
}

fn drifts() -> Vec<Drift> {
    let drift = |what, hurts, happens| Drift { what, hurts, happens };
    vec![
        drift("a slot's rule is deleted", &[], |pool| batch(pool, "rule del pref 21024\n")),
        drift("the closing rule is deleted", &[], |pool| batch(pool, "rule del pref 23072\n")),
        drift("every rule is deleted", &[], |pool| pool.lab.gw().delete_rules()),
        // As systemd-networkd does when it starts anew and was not told otherwise.
        drift("every rule and route that networkd did not make is removed", &[], |pool| {
            pool.lab.gw().delete_rules();
            let _none = pool.lab.gw().ip("-4 route flush table all proto 201");
        }),
        // As wg-quick does for a tunnel of its own that goes down.
        drift("every rule that suppresses a prefix length is removed", &[], |pool| {
            let rules = pool.lab.gw().ip("-4 rule list");
            let own = rules.lines().filter(|line| line.contains("suppress_prefixlength"));
            own.for_each(|line| {
                batch(pool, &format!("rule del pref {}\n", line.split(':').next().unwrap()));
            });
        }),
        drift("a rule is there twice", &[], |pool| {
            batch(pool, "rule add pref 21500 fwmark 0x45470001 lookup 102 protocol 201\n");
        }),
        drift("a slot's route is deleted", &[], |pool| {
            batch(pool, "route del default dev vpn1 table 101\n");
        }),
        drift("a guard is deleted", &[], |pool| {
            batch(pool, "route del unreachable default metric 4278198272 table 102\n");
        }),
        drift("an address is deleted, and with it all routes of its device", &[], |pool| {
            let flush = pool.lab.gw().ip("addr flush dev vpn2");
            assert_eq!(flush, "");
        }),
        drift("a peer is removed", &["vpn3"], |pool| {
            let peer = pool.tunnels()["vpn3"].peer.clone();
            let _none = pool.lab.gw().wg(&format!("set vpn3 peer {peer} remove"), "");
        }),
        drift("the peer's allowed addresses are narrowed", &["vpn4"], |pool| {
            let peer = pool.tunnels()["vpn4"].peer.clone();
            let _none =
                pool.lab.gw().wg(&format!("set vpn4 peer {peer} allowed-ips 10.0.0.0/8"), "");
        }),
        drift("a peer more is there", &["vpn5"], |pool| {
            let _none = pool.lab.gw().wg(
                &format!(
                    "set vpn5 peer {} allowed-ips 10.9.0.0/16",
                    lab::provider::Keys::server(99).public
                ),
                "",
            );
        }),
        drift("a link is set down", &["vpn4"], |pool| batch(pool, "link set vpn4 down\n")),
        drift("an MTU is changed", &[], |pool| batch(pool, "link set vpn5 mtu 1300\n")),
        drift("the nft table is deleted", &[], |pool| {
            let _none = pool.lab.gw().nft("delete table inet egressctl_home");
        }),
        drift("all of nft is flushed", &[], |pool| pool.lab.gw().flush_nft()),
        drift("one nft element is changed", &[], change_one_element),
        drift("a chain of the nft table is emptied", &[], |pool| {
            let _none = pool.lab.gw().nft("flush chain inet egressctl_home barrier");
        }),
        drift("a daemon is killed", &["vpn1"], |pool| {
            let pid = daemon_of(pool, "vpn1");
            space::signal(pid, Signal::KILL);
            assert!(space::wait_until(Duration::from_secs(2), || space::has_ended(pid)));
        }),
        drift("an interface is deleted", &["vpn2"], |pool| batch(pool, "link del vpn2\n")),
        drift("every interface is deleted", &["vpn1", "vpn2", "vpn3", "vpn4", "vpn5"], |pool| {
            batch(
                pool,
                "link del vpn1\nlink del vpn2\nlink del vpn3\nlink del vpn4\nlink del vpn5\n",
            );
        }),
        // The kernel renames a tunnel while it is down; its daemon goes on with it.
        drift("a slot's device is renamed", &["vpn3"], |pool| {
            batch(pool, "link set vpn3 down\nlink set vpn3 name away\nlink set away up\n");
        }),
        drift("the WAN's src_valid_mark is reset", &[], |pool| {
            pool.lab.gw().space().sysctls(&[("ipv4/conf/eth0/src_valid_mark", "0")]);
        }),
        drift("a slot's rp_filter is set", &[], |pool| {
            pool.lab.gw().space().sysctls(&[("ipv4/conf/vpn3/rp_filter", "1")]);
        }),
    ]
}

/// What is wrong after one drift was met by one step, if anything.
fn healed(pool: &Pool<'_>, drift: &Drift) -> Result<(), String> {
    let (kernel, counted, exits) = (pool.kernel(), pool.counted(), pool.lab.exits());
    let tunnels = pool.tunnels();
    (drift.happens)(pool);
    let step = pool.step();
    let (from, to) = (step.word("from"), step.word("to"));
    if step.code != Some(0)
        || step.word("outcome") != "applied"
        || (from, to) != ("NORMAL", "NORMAL")
    {
        return Err(format!("the step: {step:#?}"));
    }
    let different = differences(&kernel, &pool.kernel());
    if !different.is_empty() {
        return Err(format!("the kernel is not as before: {different:#?}"));
    }
    if pool.counted() != counted {
        return Err(format!("something was counted: {counted:#} became {:#}", pool.counted()));
    }
    if pool.lab.exits() != exits {
        return Err(format!("clients: {exits:?} became {:?}", pool.lab.exits()));
    }
    for (name, now) in pool.tunnels() {
        if !drift.hurts.contains(&name.as_str()) && !now.goes_on_from(&tunnels[&name]) {
            return Err(format!("{name} was touched: {:#?} became {now:#?}", tunnels[&name]));
        }
    }
    let after = [pool.step(), pool.step()];
    if !after.iter().all(Step::is_steady) {
        return Err(format!("the world does not come to rest: {after:#?}"));
    }
    Ok(())
}

#[test]
fn whatever_is_taken_away_or_changed_is_put_back_by_one_step_and_counted_nowhere() {
    drift_after_drift(&Lab::builder().endpoints(6).start());
}

/// Case C32.
#[test]
fn the_same_holds_with_strict_reverse_paths() {
    drift_after_drift(&Lab::builder().endpoints(6).strict().start());
}

fn drift_after_drift(lab: &Lab) {
    let pool = Pool::up(lab, |_| {});
    pool.serves(5);
    let mut wrong = String::new();
    for drift in drifts() {
        if let Err(why) = healed(&pool, &drift) {
            writeln!(wrong, "== {}: {why}", drift.what).unwrap();
            // The next drift begins from a settled world again.
            let settled = (0..8).any(|_| pool.step().is_steady() && pool.step().is_steady());
            if !settled || pool.status()["state"] != "NORMAL" {
                writeln!(wrong, "and it never settled: {:#}", pool.status()).unwrap();
                break;
            }
        }
        if !lab.capture.leaks().is_empty() {
            writeln!(wrong, "== {}: {:?} leaked", drift.what, lab.capture.leaks()).unwrap();
            break;
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_reboot_is_rebuilt_by_one_step_and_the_barrier_closes_the_clients_before_it() {
    let lab = Lab::builder().endpoints(6).masquerade().start();
    let pool = Pool::up(&lab, |policy| {
        policy["clients"].as_array_mut().unwrap().push("user:daemon".into());
    });
    let homes = pool.serves(5);
    let (kernel, counted, endpoints) = (pool.kernel(), pool.counted(), pool.endpoints());
    let user = lab.gw().exit_as("daemon");
    assert!(user.is_some());
    for round in 1..=2 {
        lab.gw().reboot();
        assert_eq!(lab.exits(), [None; 5], "boot {round} is closed");
        assert_eq!((lab.gw().exit_as("daemon"), lab.client(1).get6()), (None, None));
        let back = pool.step();
        assert_eq!(back.went(), (Some(0), "NORMAL", "NORMAL"), "{back:#?}");
        assert_eq!((pool.serves(5), pool.endpoints()), (homes.clone(), endpoints.clone()));
        assert_eq!(lab.gw().exit_as("daemon"), user);
        assert_eq!(differences(&kernel, &pool.kernel()), Vec::<String>::new());
        assert_eq!(pool.counted(), counted);
        let step = pool.step();
        assert!(step.is_steady(), "{step:#?}");
    }
    pool.nothing_leaked();
}

/// A reboot may lose the network for a while, too.
#[test]
fn a_reboot_under_a_silent_wan_comes_back_when_the_wan_does() {
    let lab = Lab::builder().clients(3).endpoints(6).start();
    let pool = Pool::up(&lab, |_| {});
    let (homes, endpoints, counted) = (pool.serves(3), pool.endpoints(), pool.counted());
    lab.wan_silent();
    lab.gw().reboot();
    for _ in 0..3 {
        let step = pool.step();
        assert_eq!(step.went(), (Some(0), "NORMAL", "NORMAL"), "{step:#?}");
        assert_eq!(lab.exits(), [None; 3]);
    }
    assert_eq!(pool.counted(), counted);
    lab.wan_heal();
    // A handshake that went unanswered is tried again after five seconds.
    let back =
        space::wait_until(Duration::from_secs(8), || lab.exits().iter().all(Option::is_some));
    assert!(back, "{:#}", pool.status());
    pool.settles(3);
    assert_eq!((pool.serves(3), pool.endpoints(), pool.counted()), (homes, endpoints, counted));
    pool.nothing_leaked();
}

/// Programs that tell of each call and then do it.
fn tellers(lab: &Lab) -> (PathBuf, PathBuf) {
    let folder = lab.folder().join("tellers");
    let log = lab.folder().join("calls");
    std::fs::create_dir_all(&folder).unwrap();
    for program in ["ip", "wg", "nft", "conntrack", "wireguard-go", "systemctl", "sysctl"] {
        let real = space::PATH
            .split(':')
            .map(|dir| PathBuf::from(dir).join(program))
            .find(|path| path.exists());
        let Some(real) = real else { continue };
        // What a batch reads is part of what it does.
        let script = format!(
            "#!/bin/sh\ninput=\ncase \" $* \" in *\" - \"*|*\" /dev/stdin \"*) input=$(cat);; esac\n\
             printf '%s\\n' \"{program} $* << $(printf '%s' \"$input\" | tr '\\n' ';')\" >> {log}\n\
             if [ -n \"$input\" ]; then printf '%s\\n' \"$input\" | {real} \"$@\"; else exec {real} \"$@\"; fi\n",
            log = log.display(),
            real = real.display(),
        );
        let path = folder.join(program);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    (folder, log)
}

/// Whether a call, with its batch, only looks.
fn only_looks(call: &str) -> bool {
    let (argv, input) = call.split_once(" << ").unwrap();
    let looks = |words: &str| {
        words
            .split_whitespace()
            .any(|word| matches!(word, "show" | "list" | "get" | "showconf" | "-L"))
    };
    let lines: Vec<&str> = input.split(';').filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() { looks(argv) } else { lines.iter().all(|line| looks(line)) }
}

/// Case C34.
#[test]
fn a_hundred_steps_in_a_steady_world_only_look_with_four_processes_at_most() {
    let lab = Lab::builder().endpoints(6).start();
    let pool = Pool::up(&lab, |policy| {
        policy["clients"].as_array_mut().unwrap().push("user:daemon".into());
    });
    pool.serves(5);
    let (kernel, tunnels) = (pool.kernel(), pool.tunnels());
    let saved = lab.gw().state("home").unwrap()["body"]["machine"].clone();
    let (folder, log) = tellers(&lab);
    for n in 1..=100 {
        std::fs::write(&log, "").unwrap();
        let mut command = lab.gw().egressctl_command(&["step", "home", "--json"]);
        command.env("PATH", gateway::path_with(&folder));
        let step = Step::of(lab.gw().finish(command));
        assert!(step.is_steady(), "step {n}: {step:#?}");
        let told = std::fs::read_to_string(&log).unwrap();
        assert!(told.lines().all(only_looks), "step {n} changes something:\n{told}");
        assert!((1..=4).contains(&told.lines().count()), "step {n} starts too many:\n{told}");
    }
    assert_eq!(differences(&kernel, &pool.kernel()), Vec::<String>::new());
    pool.others_go_on(&tunnels, &[]);
    let now = lab.gw().state("home").unwrap()["body"]["machine"].clone();
    assert_eq!((&now["egress"], &now["homes"]), (&saved["egress"], &saved["homes"]));
    let history = lab.gw().egressctl(&["history", "home", "--json"]).stdout;
    assert_eq!(history.lines().count(), 1, "a steady step is no history: {history}");
    pool.serves(5);
    pool.nothing_leaked();
}
