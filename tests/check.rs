//! `check` on a gateway: what is wrong is found and goes away with its mend, and looking changes nothing.

use crate::lab;

use lab::gateway::{self, Outcome};
use lab::pool::{Pool, differences};
use lab::{Lab, names};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

/// What one run of `check --json` found.
struct Checked {
    code: Option<i32>,
    report: Value,
    stderr: String,
}

impl Checked {
    fn of(outcome: Outcome) -> Self {
        let report = serde_json::from_str(outcome.stdout.trim()).unwrap_or(Value::Null);
        Self { code: outcome.code, report, stderr: outcome.stderr }
    }

    /// The codes of all findings, notes too, in their order.
    fn codes(&self) -> Vec<&str> {
        codes(&self.report)
    }

    /// What a finding of this code says.
    fn finding(&self, code: &str) -> &Value {
        let all = self.report["findings"].as_array().unwrap();
        all.iter().find(|one| one["code"] == code).unwrap_or_else(|| panic!("{code}: {all:#?}"))
    }
}

fn codes(report: &Value) -> Vec<&str> {
    let all = report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

fn check(lab: &Lab) -> Checked {
    Checked::of(lab.gw().egressctl(&["check", "home", "--json"]))
}

/// The same, by an ordinary user, of a program that he can reach.
fn check_as_nobody(lab: &Lab) -> Checked {
    let program = lab.folder().join("egressctl");
    let _size = fs::copy(env!("CARGO_BIN_EXE_egressctl"), &program).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let mut run = lab.gw().command("setpriv");
    run.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--"]);
    run.arg(&program).args(["check", "home", "--json", "--policy-dir"]).arg(lab.gw().policy_dir());
    run.arg("--state-dir").arg(lab.gw().state_dir());
    Checked::of(lab.gw().finish(run))
}

/// Every file below a folder, with its mode and bytes.
fn files(folder: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, meta) = (entry.path(), entry.metadata().unwrap());
        let bytes = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        found.insert(path.display().to_string(), (meta.permissions().mode(), bytes));
        found.extend(files(&path));
    }
    found
}

/// That something is found once it is wrong, under this code, and no longer once it is mended.
fn found(lab: &Lab, code: &str, wrong: impl FnOnce(), mend: impl FnOnce()) {
    wrong();
    let seen = check(lab);
    assert_eq!(
        (seen.code, seen.codes()),
        (Some(1), vec![code]),
        "{:#}{}",
        seen.report,
        seen.stderr
    );
    let finding = seen.finding(code);
    for key in ["what", "why", "mend"] {
        assert!(finding[key].as_str().is_some_and(|text| text.len() > 5), "{finding:#}");
    }
    mend();
    let seen = check(lab);
    assert_eq!((seen.code, seen.codes()), (Some(0), vec![]), "{code} stays: {:#}", seen.report);
}

#[test]
fn a_sound_gateway_has_no_findings_and_is_left_as_it_was() {
    let lab = Lab::builder().clients(2).endpoints(7).start();
    let pool = Pool::new(&lab, |_| {});
    let (bare, nothing) = (pool.kernel(), files(lab.folder()));
    let before = check(&lab);
    assert_eq!(
        (before.code, before.codes()),
        (Some(0), vec![]),
        "{:#}{}",
        before.report,
        before.stderr
    );
    assert_eq!(differences(&bare, &pool.kernel()), Vec::<String>::new());
    assert_eq!(files(lab.folder()), nothing, "nothing is made before the first step");
    let probes = before.report["probes"].as_array().unwrap();
    let of = |name: &str| probes.iter().find(|probe| probe["probe"] == name).unwrap();
    assert_eq!(of("wan")["result"], "passed");
    assert_eq!(of("provider")["text"], "lists 7 usable endpoints");

    assert_eq!(pool.step().code, Some(0));
    let (up, made) = (pool.kernel(), files(lab.folder()));
    let after = check(&lab);
    assert_eq!((after.code, after.codes()), (Some(0), vec![]), "{:#}", after.report);
    assert_eq!(differences(&up, &pool.kernel()), Vec::<String>::new());
    assert_eq!(files(lab.folder()), made);
    let slots = after.report["probes"].as_array().unwrap().iter();
    let passed = slots
        .filter(|p| p["probe"].as_str().unwrap().starts_with("vpn") && p["result"] == "passed");
    assert_eq!(passed.count(), 5);
    let text = lab.gw().egressctl(&["check"]);
    assert_eq!(text.code, Some(0));
    assert!(
        text.stdout.starts_with("machine: sound\nhome (pool): sound\n  probe wan passed: "),
        "{}",
        text.stdout
    );
    pool.nothing_leaked();
}

#[test]
fn what_is_in_the_way_of_clients_is_found_and_mended() {
    let lab = Lab::builder().clients(2).endpoints(7).start();
    let pool = Pool::up(&lab, |_| {});
    let (gw, space) = (lab.gw(), lab.gw().space());
    found(
        &lab,
        "forwarding-off",
        || space.sysctls(&[("ipv4/ip_forward", "0")]),
        || space.sysctls(&[("ipv4/ip_forward", "1")]),
    );
    found(
        &lab,
        "forward-drops",
        || {
            space.nft("table inet closed {\nchain every { type filter hook forward priority 0; policy drop;\niifname \"lo\" accept\n}\n}\n");
        },
        || {
            // As the finding says: the LAN is let through.
            let mend = check(&lab).finding("forward-drops")["mend"].as_str().unwrap().to_owned();
            let (first, rest) = mend.split_once("; ").unwrap();
            let second = rest.split("; ").next().unwrap();
            for command in [first, second] {
                let _done = gw.nft(command.strip_prefix("nft ").unwrap());
            }
        },
    );
    assert!(lab.client(1).exit().is_some(), "the mend lets clients through");
    let _gone = gw.nft("delete table inet closed");
    found(
        &lab,
        "rule-first",
        || {
            space.batch("route add default via 203.0.113.1 table 77\nrule add priority 100 from 10.77.0.0/24 lookup 77\n");
        },
        || space.batch("rule del priority 100\nroute flush table 77\n"),
    );
    found(
        &lab,
        "table-used",
        || space.batch("route add 192.0.2.0/25 via 203.0.113.1 table 102\n"),
        || space.batch("route del 192.0.2.0/25 table 102\n"),
    );
    found(
        &lab,
        "priority-used",
        || space.batch("rule add priority 22000 from 10.99.0.0/24 lookup 78\n"),
        || space.batch("rule del priority 22000\n"),
    );
    found(
        &lab,
        "protocol-used",
        || space.batch("route add 192.0.2.0/25 via 203.0.113.1 table 77 proto 201\n"),
        || space.batch("route flush table 77\n"),
    );
    found(
        &lab,
        "mark-used",
        || {
            space.nft("table inet shop {\nchain pre { type filter hook prerouting priority 0;\nip saddr 10.99.0.1 meta mark set 0x45470001\n}\n}\n");
        },
        || drop(gw.nft("delete table inet shop")),
    );
    found(
        &lab,
        "interface-taken",
        || space.batch("link add vpnt1 type veth peer name other\n"),
        || space.batch("link del vpnt1\n"),
    );
    found(
        &lab,
        "orphan",
        || space.nft("table inet egressctl_lost {\nchain x {\n}\n}\n"),
        || drop(gw.nft("delete table inet egressctl_lost")),
    );
    let endpoint = pool.endpoints()["vpn1"];
    let to = names::endpoint(endpoint);
    found(
        &lab,
        "endpoint-in-slot",
        || space.batch(&format!("route add {to}/32 dev vpn2\n")),
        || space.batch(&format!("route del {to}/32 dev vpn2\n")),
    );
    found(
        &lab,
        "rp-filter",
        || space.sysctls(&[("ipv4/conf/vpn3/rp_filter", "1")]),
        || space.sysctls(&[("ipv4/conf/vpn3/rp_filter", "2")]),
    );
    found(
        &lab,
        "src-valid-mark",
        || space.sysctls(&[("ipv4/conf/eth0/src_valid_mark", "0")]),
        || space.sysctls(&[("ipv4/conf/eth0/src_valid_mark", "1")]),
    );
    found(
        &lab,
        "mss-unclamped",
        || space.batch("link set eth0 mtu 1492\n"),
        || {
            // The mend that is told, as a shell reads it.
            let mend = check(&lab).finding("mss-unclamped")["mend"].as_str().unwrap().to_owned();
            let _done = gw.nft(mend.split('\'').nth(1).unwrap());
        },
    );
    space.batch("link set eth0 mtu 1500\n");
    let _gone = gw.nft("delete table inet mss");
    let servers = lab.folder().join("resolv.conf");
    fs::write(&servers, "nameserver 192.0.2.53\n").unwrap();
    let mut mount = gw.command("mount");
    mount.arg("--bind").arg(&servers).arg("/etc/resolv.conf");
    assert_eq!(gw.finish(mount).code, Some(0));
    found(
        &lab,
        "resolver-in-slot",
        || space.batch("route add 192.0.2.53/32 dev vpn2\n"),
        || space.batch("route del 192.0.2.53/32 dev vpn2\n"),
    );
    let resolver = RefCell::new(None);
    found(
        &lab,
        "resolver-by-wan",
        || drop(resolver.replace(Some(space.inside(|| UdpSocket::bind("10.77.0.1:53").unwrap())))),
        || drop(resolver.take()),
    );
}

#[test]
fn what_is_wrong_with_files_and_programs_is_found_and_mended() {
    let lab = Lab::builder().clients(2).endpoints(7).start();
    let pool = Pool::up(&lab, |_| {});
    let (gw, state) = (lab.gw(), lab.gw().state_dir().join("home"));
    let mode =
        |path: &Path, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let config = lab.provider_dir().join("p1.conf");
    found(&lab, "secret-open", || mode(&config, 0o644), || mode(&config, 0o600));
    let bad = lab.provider_dir().join("bad.conf");
    found(
        &lab,
        "entry-unusable",
        || {
            fs::write(&bad, "[Interface]\nPrivateKey = YOUR_PRIVATE_KEY_HERE\nAddress = x\n")
                .unwrap();
            mode(&bad, 0o600);
            let what = check(&lab).finding("entry-unusable")["what"].as_str().unwrap().to_owned();
            assert!(
                what.contains("PrivateKey") && what.contains("Address"),
                "all in one pass: {what}"
            );
            assert!(!what.contains("YOUR_PRIVATE"), "{what}");
        },
        || fs::remove_file(&bad).unwrap(),
    );
    found(&lab, "state-folder", || mode(&state, 0o755), || mode(&state, 0o700));
    let journal = state.join("journal.json");
    found(
        &lab,
        "journal-left",
        || fs::write(&journal, "{").unwrap(),
        || fs::remove_file(&journal).unwrap(),
    );
    let away = lab.folder().join("away");
    let move_to = |from: &Path, to: &Path| fs::rename(from, to).unwrap();
    found(
        &lab,
        "provider-unavailable",
        || {
            fs::create_dir(&away).unwrap();
            for k in 1..=7 {
                let name = format!("p{k}.conf");
                move_to(&lab.provider_dir().join(&name), &away.join(&name));
            }
        },
        || {
            for k in 1..=7 {
                let name = format!("p{k}.conf");
                move_to(&away.join(&name), &lab.provider_dir().join(&name));
            }
        },
    );

    // A note is no fault.
    assert_eq!(gw.egressctl(&["pause", "home"]).code, Some(0));
    let paused = check(&lab);
    assert_eq!((paused.code, paused.codes()), (Some(0), vec!["paused"]));
    assert_eq!(gw.egressctl(&["resume", "home"]).code, Some(0));

    // Without conntrack, and with a login from a client.
    let programs = lab.folder().join("programs");
    fs::create_dir(&programs).unwrap();
    for tool in ["ip", "nft", "wg", "wireguard-go"] {
        let place =
            lab::space::PATH.split(':').map(|dir| Path::new(dir).join(tool)).find(|p| p.exists());
        symlink(place.unwrap(), programs.join(tool)).unwrap();
    }
    let mut command = gw.egressctl_command(&["check", "home", "--json"]);
    command.env("PATH", &programs).env("SSH_CONNECTION", "10.77.0.11 50000 10.77.0.1 22");
    let seen = Checked::of(gw.finish(command));
    assert_eq!((seen.code, seen.codes()), (Some(1), vec!["tool-wanted", "client-is-login"]));

    // `sudo` clears the environment; the login above it still tells.
    let mut command = gw.command("sh");
    let words = ["check", "home", "--json"];
    let bare = gw.egressctl_command(&words);
    let words: Vec<&str> = bare.get_args().map(|word| word.to_str().unwrap()).collect();
    let script = format!(
        "env -u SSH_CONNECTION {}; exit $?",
        words[words.iter().position(|w| *w == "--").unwrap() + 1..].join(" ")
    );
    command.args(["-c", &script]).env("SSH_CONNECTION", "10.77.0.11 50000 10.77.0.1 22");
    let seen = Checked::of(gw.finish(command));
    assert_eq!((seen.code, seen.codes()), (Some(1), vec!["client-is-login"]), "{}", seen.stderr);

    let lost = pool.endpoints()["vpn4"];
    lab.drop(lost);
    let seen = check(&lab);
    assert_eq!((seen.code, seen.codes()), (Some(1), vec!["slot-silent"]), "{:#}", seen.report);
}

#[test]
fn services_beside_us_are_found() {
    let lab = Lab::builder().clients(1).endpoints(3).start();
    let _pool = Pool::new(&lab, |policy| policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]));
    let gw = lab.gw();
    let run = |path: &str| fs::create_dir_all(gw.file(path)).unwrap();
    run("/run/systemd/netif/links");
    run("/run/NetworkManager/conf.d");
    run("/run/systemd/system");
    let fakes = lab.folder().join("fakes");
    fs::create_dir(&fakes).unwrap();
    let says = |timer: &str, every: &str, barrier: &str| {
        let text = format!(
            "#!/bin/sh\ncat <<'E'\nId=egressctl.timer\nTimersMonotonic={{ OnUnitActiveUSec={every} ; next_elapse=1h }}\nLoadState=loaded\nActiveState={timer}\nUnitFileState=enabled\n\nId=egressctl-barrier.service\nLoadState=loaded\nActiveState=inactive\nUnitFileState={barrier}\nE\n"
        );
        fs::write(fakes.join("systemctl"), text).unwrap();
        fs::set_permissions(fakes.join("systemctl"), Permissions::from_mode(0o755)).unwrap();
    };
    let seen = || {
        let mut command = gw.egressctl_command(&["check", "home", "--json"]);
        command.env("PATH", gateway::path_with(&fakes));
        let seen = Checked::of(gw.finish(command));
        seen.codes().into_iter().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let set = |codes: &[&str]| codes.iter().map(|code| (*code).to_owned()).collect::<BTreeSet<_>>();
    says("inactive", "5s", "disabled");
    assert_eq!(seen(), set(&["timer-off", "barrier-off", "networkd-foreign", "networkmanager"]));
    says("active", "5s", "enabled");
    let conf = gw.file("/run/NetworkManager/conf.d/egressctl.conf");
    fs::write(conf, "[keyfile]\nunmanaged-devices=interface-name:vpn*\n").unwrap();
    fs::remove_dir_all(gw.file("/run/systemd/netif")).unwrap();
    assert_eq!(seen(), set(&[]));
    let _pool = Pool::new(&lab, |policy| {
        policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
        policy["params"]["health_check_interval_sec"] = json!(10);
    });
    says("active", "1min", "enabled");
    assert_eq!(seen(), set(&["timer-slow"]));
}

#[test]
fn a_provider_is_told_what_it_lacks() {
    let lab = Lab::builder().clients(1).endpoints(0).start();
    let secret = lab.folder().join("code");
    let provider = |provider: Value| {
        let _pool = Pool::new(&lab, |policy| policy["provider"] = provider);
        check(&lab)
    };
    let seen = provider(json!({ "hidemyname": { "code_file": secret } }));
    assert_eq!(seen.code, Some(1));
    assert!(seen.codes().contains(&"secret-missing"), "{:#}", seen.report);
    let what = seen.finding("secret-missing")["what"].as_str().unwrap();
    assert!(what.starts_with("provider.hidemyname.code_file "), "{what}");
    fs::write(&secret, format!("{}\n", lab::provider::Keys::user(1).private)).unwrap();
    let url = format!("http://{}/none", names::WAN_PROBE);
    let own = json!({ "private_key_file": secret, "address": ["10.64.0.2"] });
    let seen = provider(json!({ "mullvad": { "urls": [url], "identity": own } }));
    let told: BTreeSet<&str> = seen.codes().into_iter().collect();
    assert_eq!(
        told,
        ["one-key", "provider-unavailable", "secret-open"].into(),
        "{:#}",
        seen.report
    );
    let own = json!({ "http": { "url": url, "token_file": lab.folder().join("none") } });
    let refused = provider(own);
    assert_eq!(refused.code, Some(2), "a token is not sent in clear");
    let report = &refused.report;
    assert_eq!((codes(report), &report["kind"]), (vec!["policy-invalid"], &Value::Null));
}

#[test]
fn several_policies_are_told_apart_and_the_machine_once() {
    let lab = Lab::builder().clients(2).endpoints(4).start();
    let gw = lab.gw();
    let _home = Pool::new(&lab, |policy| {
        policy["slots"]["interfaces"] = json!(["vpn1", "vpn2"]);
        policy["clients"] = json!(["10.77.0.11"]);
    });
    let mut guests = lab.pool_policy();
    guests["slots"] = json!({ "interfaces": ["gst1"], "first_table": 301 });
    guests["clients"] = json!(["10.77.0.1"]);
    guests["routing"] = json!({ "rule_priority": 9000, "first_mark": "0x51230000" });
    guests["test"] = json!({ "interface_prefix": "gstt" });
    let _path = gw.policy("guests", &guests);
    gw.space().sysctls(&[("ipv4/ip_forward", "0")]);
    let seen = Checked::of(gw.egressctl(&["check", "--json"]));
    assert_eq!(seen.code, Some(1));
    let reports = seen.report.as_array().unwrap();
    let told: Vec<_> =
        reports.iter().map(|r| (r["policy"].clone(), r["kind"].clone(), codes(r))).collect();
    assert_eq!(
        told,
        [
            (Value::Null, json!("machine"), vec!["forwarding-off"]),
            (json!("guests"), json!("pool"), vec!["client-own-address"]),
            (json!("home"), json!("pool"), vec![]),
        ]
    );
    // Two that claim the same are both refused.
    guests["slots"] = json!({ "interfaces": ["vpn1"], "first_table": 301 });
    let _path = gw.policy("guests", &guests);
    let seen = Checked::of(gw.egressctl(&["check", "--json"]));
    assert_eq!(seen.code, Some(2));
    assert!(seen.stderr.contains("both claim interface vpn1"), "{}", seen.stderr);
    let _path = gw.policy("guests", &json!({ "kind": "pool" }));
    let text = gw.egressctl(&["check"]);
    assert_eq!(text.code, Some(2));
    assert!(text.stderr.contains("missing field") && text.stdout.contains("home (pool): sound"));
}

/// As docker leaves the forward hook, by the words of its own documents: a policy of DROP, and a chain for
/// what its users add.
const DOCKER: &str = "table ip filter {
    chain DOCKER-USER { }
    chain DOCKER-FORWARD { iifname \"docker0\" accept; oifname \"docker0\" drop; }
    chain FORWARD { type filter hook forward priority filter; policy drop; jump DOCKER-USER; jump DOCKER-FORWARD; }
}
";

#[test]
fn dockers_policy_of_dropping_is_told_from_a_dead_tunnel_and_mended_by_its_own_chain() {
    let lab = Lab::builder().clients(2).endpoints(6).start();
    let pool = Pool::up(&lab, |_| {});
    let (exits, endpoints, tunnels) = (lab.exits(), pool.endpoints(), pool.tunnels());
    lab.gw().space().nft(DOCKER);
    assert_eq!(lab.exits(), vec![None; 2], "docker lets nobody through");
    // The tunnels work, and whoever takes them for dead moves everybody for nothing.
    for _ in 0..4 {
        assert!(pool.step().is_steady());
    }
    assert_eq!(pool.endpoints(), endpoints);
    for (slot, now) in pool.tunnels() {
        assert!(now.goes_on_from(&tunnels[&slot]), "{slot} was touched");
    }
    let found = check(&lab);
    let finding = found.finding("forward-drops");
    assert!(finding["what"].as_str().unwrap().contains("(docker)"), "{finding}");
    let mend = finding["mend"].as_str().unwrap();
    for command in mend.split("; ") {
        let mut words = command.split(' ');
        assert_eq!(words.next(), Some("iptables"), "{mend}");
        let mut command = lab.gw().command("iptables");
        command.args(words);
        let ran = lab.gw().finish(command);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    assert_eq!(lab.exits(), exits, "as before, through the same tunnels");
    assert!(!check(&lab).codes().contains(&"forward-drops"));
    pool.nothing_leaked();
}

#[test]
fn a_policy_that_touches_no_kernel_is_examined_too() {
    let lab = Lab::builder().clients(1).endpoints(0).start();
    let secret = lab.folder().join("secret");
    fs::write(&secret, "x\n").unwrap();
    let page = format!("http://{}/generate_204", names::PROBE);
    let member =
        |n: u16| json!({ "member": format!("m{n}"), "proxy": format!("http://127.0.0.1:{n}") });
    let policy = json!({
        "kind": "selector",
        "driver": { "clash": { "url": "http://127.0.0.1:9090", "secret_file": secret, "selector": "s" } },
        "primary": member(2081), "reserve": member(2082),
        "probe": { "urls": [page], "timeout_sec": 1 },
    });
    let _path = lab.gw().policy("home", &policy);
    lab.gw().space().sysctls(&[("ipv4/ip_forward", "0")]);
    let seen = check(&lab);
    assert_eq!(seen.report["kind"], "selector", "{:#}{}", seen.report, seen.stderr);
    assert!(!seen.codes().contains(&"forwarding-off"), "it needs none: {:#}", seen.report);
    assert_eq!((seen.code, seen.codes()), (Some(1), vec!["unfit", "core-silent"]));
    let seen = check_as_nobody(&lab);
    assert!(seen.codes().contains(&"core-silent"), "{:#}{}", seen.report, seen.stderr);
    assert!(!seen.codes().contains(&"rights-missing"), "it needs none: {:#}", seen.report);
    let state = lab.gw().state_dir().join("home");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, Permissions::from_mode(0o755)).unwrap();
    fs::write(state.join("journal.json"), "{").unwrap();
    let seen = check(&lab);
    assert_eq!(
        (seen.code, seen.codes()),
        (Some(1), vec!["state-folder", "unfit", "core-silent", "journal-left"])
    );
}
