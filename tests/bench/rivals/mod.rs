//! What people use in place of egressctl, in the same lab, over the same five endpoints and for the same client.
//!
//! **Invariant:** each asks every tunnel once in an interval and gives a check one second, as far as it lets one say so.

#![allow(dead_code, unreachable_pub, reason = "each benchmark uses its part of them")]

use crate::lab::provider::{self, Keys};
use crate::lab::space::{self, signal, wait_until};
use crate::lab::{Lab, names};
use crate::real_core::SingBox;
use rustix::process::Signal;
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// How many tunnels they watch.
pub const TUNNELS: usize = 5;

/// Five tunnels made by hand; the rule of client 1 leads into one of them.
pub struct ByHand;

impl ByHand {
    pub fn up(lab: &Lab) -> Self {
        let gw = lab.gw();
        let mut lines = String::new();
        for k in 1..=TUNNELS {
            let name = format!("vpn{k}");
            let mut daemon = gw.command("wireguard-go");
            daemon.arg(&name);
            assert_eq!(gw.finish(daemon).code, Some(0));
            let _none = gw.wg(&format!("setconf {name} /dev/stdin"), &provider::setconf(k));
            writeln!(
                lines,
                "addr add {}/32 dev {name}\nlink set {name} mtu 1420 up\nroute add default dev {name} table {table}\n\
                 rule add pref {table} oif {name} lookup {table}",
                names::tunnel(k),
                table = 100 + k,
            )
            .unwrap();
        }
        writeln!(lines, "rule add pref 200 from {} lookup 101", names::client(1)).unwrap();
        gw.space().batch(&lines);
        gw.space().nft(
            "table ip hand { chain out { type nat hook postrouting priority srcnat; policy accept;\n\
             oifname \"vpn*\" masquerade\n}\n}\n",
        );
        Self
    }

    pub fn down(lab: &Lab) {
        let gw = lab.gw();
        for pid in gw.daemons() {
            signal(pid, Signal::TERM);
        }
        let gone = || !gw.devices().iter().any(|device| device.starts_with("vpn"));
        assert!(wait_until(Duration::from_secs(5), gone), "the tunnels stay");
        gw.delete_rules();
        gw.flush_nft();
    }

    /// A script that leads the client into the next tunnel that answers, as people write it: `move FROM`.
    fn script(lab: &Lab, name: &str, body: &str) -> String {
        let path = lab.folder().join(name);
        fs::write(&path, format!("#!/bin/bash\n{body}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }
}

/// How a tunnel is asked by hand.
fn curl(device: &str) -> String {
    format!("curl -sf -m 1 -o /dev/null --interface {device} http://{}/generate_204", names::PROBE)
}

/// Leads the client from a table to the next, and cuts what it had open.
fn lead(from: &str) -> String {
    let client = names::client(1);
    format!(
        "if ip rule list pref 200 | grep -q \"lookup {from}$\"; then\n\
         next=$(( ({from} - 100) % {TUNNELS} + 101 ))\n\
         ip rule add pref 200 from {client} lookup $next\n\
         ip rule del pref 200 from {client} lookup {from}\n\
         conntrack -D -s {client} >/dev/null 2>&1\nfi\n"
    )
}

/// A process that is ended with what it began.
pub struct Runs {
    pub child: Child,
}

impl Drop for Runs {
    fn drop(&mut self) {
        signal(self.child.id(), Signal::TERM);
        if !wait_until(Duration::from_secs(5), || {
            matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
        }) {
            let _killed = self.child.kill();
            let _ended = self.child.wait();
        }
    }
}

/// Five times curl one after the other, one failed check moves the client, then some sleep.
pub fn by_loop(lab: &Lab, every_sec: u64) -> Runs {
    let body = format!(
        "while :; do for k in 1 2 3 4 5; do\n{} || {{ from=$((100 + k)); {} }}\ndone; sleep {every_sec}; done\n",
        curl("vpn$k"),
        lead("$from"),
    );
    let script = ByHand::script(lab, "loop", &body);
    let mut command = lab.gw().command("bash");
    command.arg(script).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Runs { child: command.spawn().expect("bash starts") }
}

/// keepalived asks each tunnel by a script of its own; one failure moves the client.
pub fn by_keepalived(lab: &Lab, every_sec: u64) -> Runs {
    let mut text = String::from(
        "global_defs {\nrouter_id lab\nscript_user root\nvrrp_garp_master_delay 0\n}\n",
    );
    for k in 1..=TUNNELS {
        let check = ByHand::script(lab, &format!("check{k}"), &curl(&format!("vpn{k}")));
        let moves = ByHand::script(lab, &format!("move{k}"), &lead(&(100 + k).to_string()));
        writeln!(
            text,
            "vrrp_script check{k} {{\nscript \"{check}\"\ninterval {every_sec}\ntimeout 1\nfall 1\nrise 1\n}}\n\
             vrrp_instance slot{k} {{\nstate MASTER\ninterface eth1\nvirtual_router_id {}\npriority 100\nadvert_int 1\n\
             virtual_ipaddress {{\n10.77.0.{}/32 dev eth1\n}}\n\
             track_script {{\ncheck{k}\n}}\nnotify_fault \"{moves}\"\n}}",
            50 + k,
            240 + k,
        )
        .unwrap();
    }
    let path = lab.folder().join("keepalived.conf");
    fs::write(&path, text).unwrap();
    let log = fs::File::create(lab.folder().join("keepalived.log")).unwrap();
    let mut command = lab.gw().command("keepalived");
    command.args(["--dont-fork", "--vrrp", "--log-console", "--use-file"]).arg(&path);
    command.arg("--pid").arg(lab.folder().join("pid"));
    command.arg("--vrrp_pid").arg(lab.folder().join("vrrp.pid"));
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Runs { child: command.spawn().expect("keepalived is in Debian's package keepalived") }
}

/// sing-box with its own WireGuard and a group `urltest` over the five.
pub fn by_sing_box(lab: &Lab, every_sec: u64) -> SingBox<'_> {
    SingBox::start(lab, |config| {
        let tags: Vec<String> = (1..=TUNNELS).map(|k| format!("e{k}")).collect();
        let endpoint = |k: usize| {
            json!({
                "type": "wireguard", "tag": format!("e{k}"),
                "address": [format!("{}/32", names::tunnel(k))],
                "private_key": Keys::user(k).private,
                "peers": [{ "address": names::endpoint(k), "port": names::port(k),
                            "public_key": Keys::server(k).public, "allowed_ips": ["0.0.0.0/0"] }],
            })
        };
        config["endpoints"] = (1..=TUNNELS).map(endpoint).collect::<Vec<_>>().into();
        config["outbounds"] = json!([{
            "type": "urltest", "tag": "auto", "outbounds": tags, "interval": format!("{every_sec}s"),
            "url": format!("http://{}/generate_204", names::PROBE),
            "interrupt_exist_connections": true,
        }]);
        config["route"] = json!({ "final": "auto" });
        config["inbounds"]
            .as_array_mut()
            .expect("a list")
            .retain(|inbound| inbound["tag"] == "clients");
    })
}

/// What stands in the way of another core: rules and routes of tproxy.
pub fn forget_sing_box(lab: &Lab) {
    lab.gw().delete_rules();
    lab.gw().flush_nft();
    lab.gw().space().batch("route flush table 777\n");
}

/// Whether all that the rivals are made of is there; the tests' script installs it.
pub fn required() {
    for tool in ["curl", "keepalived", "sing-box"] {
        let there = space::PATH.split(':').any(|dir| Path::new(dir).join(tool).exists());
        assert!(there, "{tool} is not there: tests/run installs it");
    }
}

/// What a process and all that it has started use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// CPU so far, in seconds, with that of children that have ended.
    pub cpu_sec: f64,
    /// Memory in use now, in MB.
    pub resident_mb: f64,
}

/// Reads it from `/proc`. What a process shares with another counts for both.
pub fn used(root: u32) -> Used {
    let mut all = vec![root];
    let mut sum = Used::default();
    while let Some(pid) = all.pop() {
        let task = format!("/proc/{pid}/task/{pid}/children");
        let children = fs::read_to_string(task).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        // Fields 14 to 17 of the line: own user and system time, and that of children; the name is field 2.
        let ticks: f64 = fields.skip(11).take(4).filter_map(|n| n.parse::<f64>().ok()).sum();
        // Linux shows 100 ticks a second on every machine.
        sum.cpu_sec += ticks / 100.0;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: f64 =
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0.0);
        sum.resident_mb += kib * 1024.0 / 1e6;
    }
    sum
}
