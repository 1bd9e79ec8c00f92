//! The provider: one userspace WireGuard server an endpoint, each leaving to the web by an address of its own.
//!
//! **Invariant:** the exit address that the web sees tells which endpoint carried a request.

use super::names;
use super::space::{self, Ground, Space};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use x25519_dalek::{PublicKey, StaticSecret};

/// The port at which the provider's own portal page answers.
pub const PORTAL_PORT: u16 = 8080;

/// One WireGuard key pair, as the text that `wg` reads.
#[derive(Clone, Debug)]
pub struct Keys {
    pub private: String,
    pub public: String,
}

impl Keys {
    /// Keys need only differ here, so they are made from what they are for.
    fn new(server: bool, k: usize) -> Self {
        let mut seed = [0x5a_u8; 32];
        seed[8] = u8::from(server);
        seed[9] = u8::try_from(k).expect("there are few endpoints");
        Self::of(seed)
    }

    fn of(seed: [u8; 32]) -> Self {
        let secret = StaticSecret::from(seed);
        let public = PublicKey::from(&secret);
        Self {
            private: STANDARD.encode(secret.to_bytes()),
            public: STANDARD.encode(public.as_bytes()),
        }
    }

    /// The keys of the server of endpoint `k`.
    pub fn server(k: usize) -> Self {
        Self::new(true, k)
    }

    /// The keys of the tunnel's user at endpoint `k`.
    pub fn user(k: usize) -> Self {
        Self::new(false, k)
    }
}

/// The wg-quick file for endpoint `k`.
pub fn config(k: usize) -> String {
    format!(
        "[Interface]\nPrivateKey = {}\nAddress = {}/32\nDNS = 192.0.2.53\n\n[Peer]\nPublicKey = {}\n\
         AllowedIPs = 0.0.0.0/0\nEndpoint = {}:{}\nPersistentKeepalive = 25\n",
        Keys::user(k).private,
        names::tunnel(k),
        Keys::server(k).public,
        names::endpoint(k),
        names::port(k),
    )
}

/// The wg-quick file for endpoint `k` with IPv6 inside.
pub fn config6(k: usize) -> String {
    let own = format!("Address = {}/32", names::tunnel(k));
    config(k)
        .replace(&own, &format!("{own}, {}/128", names::tunnel6(k)))
        .replace("AllowedIPs = 0.0.0.0/0", "AllowedIPs = 0.0.0.0/0, ::/0")
}

/// The wg-quick file of a server that is not there, at the address of endpoint `at`; each has a key and a port of its own.
pub fn dead(n: usize, at: usize) -> String {
    let mut seed = [0x77_u8; 32];
    seed[..8].copy_from_slice(&n.to_be_bytes());
    let own = names::port(at);
    config(at)
        .replace(&Keys::server(at).public, &Keys::of(seed).public)
        .replace(&format!(":{own}\n"), &format!(":{}\n", 30_000 + n))
}

/// What `wg setconf` reads for endpoint `k`: the same without the keys of wg-quick.
pub fn setconf(k: usize) -> String {
    let quick = |line: &&str| !line.starts_with("Address") && !line.starts_with("DNS");
    config(k).lines().filter(quick).collect::<Vec<_>>().join("\n") + "\n"
}

/// Writes `pK.conf` of the given endpoints into a folder and returns the files.
pub fn write_configs(folder: &Path, endpoints: impl IntoIterator<Item = usize>) -> Vec<PathBuf> {
    fs::create_dir_all(folder).expect("the folder can be made");
    let write = |k: usize| {
        let path = folder.join(format!("p{k}.conf"));
        fs::write(&path, config(k)).expect("a config can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode can be set");
        path
    };
    endpoints.into_iter().map(write).collect()
}

/// Starts the servers of endpoints 1 to `count`; returns when all of them can be reached.
pub fn start(ground: &Ground, prov: &Space, holder: u32, count: usize) {
    if count == 0 {
        return;
    }
    let mut pids = Vec::new();
    for k in 1..=count {
        let mut command = space::enter(holder, "wireguard-go");
        command.args(["-f", &format!("wg{k}")]);
        // One thread that runs is enough for a server in a test, and leaves the cores to the gateway.
        command.env("GOMAXPROCS", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("wireguard-go starts");
        pids.push(child.id());
        ground.keep(child);
    }
    let run = PathBuf::from(format!("/proc/{holder}/root/run/wireguard"));
    for k in 1..=count {
        let socket = run.join(format!("wg{k}.sock"));
        let there = space::wait_until(Duration::from_secs(10), || socket.exists());
        assert!(there, "the server of endpoint {k} did not start: pids {pids:?}");
    }
    let mut script = String::from("set -e\n");
    // A user whose tunnel runs inside another one is answered by that one.
    let mut lines = String::from("rule add pref 900 to 10.64.0.0/16 lookup main\n");
    for k in 1..=count {
        write!(
            script,
            "wg setconf wg{k} /dev/stdin <<END\n[Interface]\nPrivateKey = {}\nListenPort = {}\n\
             [Peer]\nPublicKey = {}\nAllowedIPs = {}/32, {}/128\nEND\n",
            Keys::server(k).private,
            names::port(k),
            Keys::user(k).public,
            names::tunnel(k),
            names::tunnel6(k),
        )
        .expect("a string takes it");
        // A multi-homed wireguard-go answers from its primary address once a peer's port has changed; the rule prevents it.
        write!(
            lines,
            "addr add {endpoint}/32 dev eth0\naddr add {exit}/32 dev eth0\n\
             rule add pref {table} ipproto udp sport {port} lookup {table}\n\
             route add default via 198.51.100.1 src {endpoint} table {table}\n\
             addr add {exit6}/128 dev eth0 nodad\n\
             addr add {inner}/24 dev wg{k}\naddr add {inner6}/64 dev wg{k} nodad\nlink set wg{k} up\n",
            endpoint = names::endpoint(k),
            exit = names::exit(k),
            exit6 = names::exit6(k),
            inner = names::inner(k),
            inner6 = names::inner6(k),
            port = names::port(k),
            table = 1000 + k,
        )
        .expect("a string takes it");
    }
    space::run(space::enter(holder, "sh").arg("-s"), &script);
    prov.batch(&lines);
    let exits: Vec<String> =
        (1..=count).map(|k| format!("\"wg{k}\" : {}", names::exit(k))).collect();
    let exits6: Vec<String> =
        (1..=count).map(|k| format!("\"wg{k}\" : {}", names::exit6(k))).collect();
    for (family, exits) in [("ip", exits), ("ip6", exits6)] {
        prov.nft(&format!(
            "table {family} provider {{\nchain post {{ type nat hook postrouting priority srcnat; policy accept;\n\
             snat to iifname map {{ {} }}\n}}\n}}\n",
            exits.join(", ")
        ));
    }
}
