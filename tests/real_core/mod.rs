//! A real sing-box in the lab's gateway, with the configuration of `policies/selector-clash.sing-box.json`.
//!
//! Its two channels are the lab's endpoints 1 and 2, so that the exit address tells which one carried a
//! request. The clients' packets come to it by tproxy.
//!
//! **Invariant:** only addresses, keys and paths differ from the example.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of the core")]

use crate::lab::provider::Keys;
use crate::lab::space::{self, signal, wait_until};
use crate::lab::{Lab, names};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// The secret of the control API.
const SECRET: &str = "lab-secret";
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/selector-clash.sing-box.json");

/// A running sing-box.
#[derive(Debug)]
pub struct SingBox<'a> {
    lab: &'a Lab,
    child: Option<Child>,
    config: PathBuf,
    secret: PathBuf,
}

impl<'a> SingBox<'a> {
    /// Started, its clients led to it; `change` alters the example.
    pub fn start(lab: &'a Lab, change: impl FnOnce(&mut Value)) -> Self {
        let gw = lab.gw();
        gw.space()
            .batch("rule add fwmark 0x77 lookup 777\nroute add local default dev lo table 777\n");
        gw.space().nft(
            "table ip core { chain pre { type filter hook prerouting priority mangle; policy accept;\n\
             iifname \"eth1\" ip daddr 192.0.2.0/24 meta l4proto { tcp, udp } tproxy to 127.0.0.1:7893 meta mark set 0x77 accept\n}\n}\n",
        );
        Self::start_again(lab, change)
    }

    /// Started where it was before.
    pub fn start_again(lab: &'a Lab, change: impl FnOnce(&mut Value)) -> Self {
        let found = space::PATH.split(':').any(|dir| Path::new(dir).join("sing-box").exists());
        assert!(found, "sing-box is not there: tests/run installs it");
        let mut config: Value =
            serde_json::from_str(&fs::read_to_string(EXAMPLE).unwrap()).unwrap();
        for k in [1, 2] {
            let endpoint = &mut config["endpoints"][k - 1];
            endpoint["address"] = json!([format!("{}/32", names::tunnel(k))]);
            endpoint["private_key"] = json!(Keys::user(k).private);
            let peer = &mut endpoint["peers"][0];
            peer["address"] = json!(names::endpoint(k));
            peer["port"] = json!(names::port(k));
            peer["public_key"] = json!(Keys::server(k).public);
        }
        config["experimental"]["clash_api"]["secret"] = json!(SECRET);
        config["experimental"]["cache_file"]["path"] = json!(lab.folder().join("cache.db"));
        change(&mut config);
        let (path, secret) = (lab.folder().join("sing-box.json"), lab.folder().join("secret"));
        fs::write(&path, config.to_string()).unwrap();
        fs::write(&secret, SECRET).unwrap();
        let mut core = Self { lab, child: None, config: path, secret };
        core.up();
        core
    }

    /// It begins anew, and answers when this returns.
    pub fn up(&mut self) {
        let mut command = self.lab.gw().command("sing-box");
        command.args(["run", "-c"]).arg(&self.config);
        let log = fs::File::create(self.lab.folder().join("sing-box.log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("nsenter starts"));
        let answers =
            wait_until(Duration::from_secs(20), || self.ask("GET", "/version", "").is_some());
        assert!(answers, "sing-box does not answer: {}", self.log());
    }

    /// It dies.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            signal(child.id(), Signal::KILL);
            let _status = child.wait();
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Whether it still is the process that was started.
    pub fn lives(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// What it has said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.lab.folder().join("sing-box.log")).unwrap_or_default()
    }

    /// The body of an answer of its control API, asked by a person on the gateway.
    pub fn ask(&self, verb: &str, path: &str, body: &str) -> Option<String> {
        use std::io::{Read as _, Write as _};
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 9090));
        let mut stream =
            self.lab.gw().space().inside(|| {
                std::net::TcpStream::connect_timeout(&at, Duration::from_secs(1)).ok()
            })?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        write!(
            stream,
            "{verb} {path} HTTP/1.0\r\nAuthorization: Bearer {SECRET}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
    }

    /// What a person selects on the gateway.
    pub fn select(&self, member: &str) {
        let body = json!({ "name": member }).to_string();
        self.ask("PUT", "/proxies/channel-selector", &body).expect("it answers");
        assert_eq!(self.selected(), member);
    }

    /// What is selected.
    pub fn selected(&self) -> String {
        let shown = self.ask("GET", "/proxies/channel-selector", "").expect("it answers");
        let shown: Value = serde_json::from_str(&shown).expect("it is JSON");
        shown["now"].as_str().expect("a group has a choice").to_owned()
    }

    /// The policy of it, with short windows.
    pub fn policy(&self) -> Value {
        json!({
            "kind": "selector",
            "driver": { "clash": { "url": "http://127.0.0.1:9090", "secret_file": self.secret,
                                   "selector": "channel-selector" } },
            "primary": { "member": "channel-primary", "proxy": "http://127.0.0.1:2081" },
            "reserve": { "member": "channel-reserve", "proxy": "http://127.0.0.1:2082" },
            "probe": { "urls": [format!("http://{}/generate_204", names::PROBE)], "timeout_sec": 2 },
            "params": { "check_interval_sec": 1, "failure_window_sec": 1, "recovery_window_sec": 3,
                        "quiet_window_sec": 2, "active_bytes_per_sec": 5_000, "minimum_reserve_sec": 3,
                        "guard_max_hold_sec": 6 }
        })
    }
}

impl Drop for SingBox<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}
