//! A network namespace of a test's own, and tunnels to put into it.
//!
//! **Invariant:** what a test made is gone after it, also when it failed.
#![allow(clippy::print_stdout, reason = "says what was skipped")]
#![allow(dead_code, reason = "each test binary uses its part")]

use base64::Engine as _;
use egressctl::kernel::read::sha256;
use egressctl::kernel::{ConfigRef, Ends, Tunnel};
use egressctl::names::Interface;
use egressctl::wireguard::{PublicKey, SecretKey, parse, wg_quick};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Whether this user may make namespaces and tunnels here.
pub(crate) fn may() -> bool {
    let able = rustix::process::geteuid().is_root() && Path::new("/dev/net/tun").exists();
    if !able {
        println!("skipped: needs root and /dev/net/tun");
    }
    able
}

pub(crate) fn interface(name: &str) -> Interface {
    Interface::try_from(name.to_owned()).unwrap()
}

/// A name that nobody else has, by which leftovers of a killed run are found.
pub(crate) fn name(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("h{}{what}{next}", std::process::id() % 1_000_000)
}

/// A namespace with `lo` up.
pub(crate) struct Space(pub(crate) String);

impl Space {
    pub(crate) fn new() -> Self {
        let space = Self(name("n"));
        shell(&format!("ip netns add {0} && ip -n {0} link set lo up", space.0));
        space
    }

    /// Runs `work` inside.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.0);
        let inside = move || {
            let file = File::open(path).unwrap();
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            // The sockets of daemons are files and know no network namespace.
            #[expect(deprecated, reason = "no file descriptors are unshared, so it is safe")]
            rustix::thread::unshare(UnshareFlags::NEWNS).unwrap();
            shell(
                "mount --make-rprivate / && mkdir -p /var/run/wireguard && \
                 mount -t tmpfs none /var/run/wireguard",
            );
            work()
        };
        std::thread::scope(|threads| match threads.spawn(inside).join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // A daemon ends with its device, and the namespace with its last process.
        shell(&format!(
            "for dev in $(ip -n {0} -o link show | grep -o ' h[0-9][^:@]*'); do \
             ip -n {0} link delete dev $dev 2>/dev/null; done; ip netns delete {0}",
            self.0
        ));
    }
}

pub(crate) fn shell(script: &str) -> String {
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // A panic while panicking would end the process before the rest is cleaned up.
    assert!(
        output.status.success() || std::thread::panicking(),
        "{script}: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// A key made of a number.
pub(crate) fn key(number: u32) -> SecretKey {
    let text = base64::engine::general_purpose::STANDARD.encode(format!("{number:032}"));
    SecretKey::from_base64(&text).unwrap()
}

pub(crate) fn public(number: u32) -> PublicKey {
    key(number).public()
}

/// A provider's file.
pub(crate) fn conf(own: u32, peer: u32, address: &str, endpoint: &str) -> String {
    format!(
        "[Interface]\nPrivateKey = {}\nAddress = {address}\nDNS = 10.9.0.1\n\n[Peer]\nPublicKey = {}\n\
         AllowedIPs = 0.0.0.0/0\nEndpoint = {endpoint}\nPersistentKeepalive = 25\n",
        key(own).reveal(),
        public(peer)
    )
}

/// Puts a file into the pool below `folder`.
pub(crate) fn pooled(folder: &Path, file: &str, text: &str) -> ConfigRef {
    let text = wg_quick(&parse(text).unwrap().config);
    std::fs::create_dir_all(folder.join("pool/1")).unwrap();
    std::fs::write(folder.join("pool/1").join(file), text.reveal()).unwrap();
    ConfigRef { generation: 1, file: file.to_owned(), sha256: sha256(text.reveal().as_bytes()) }
}

/// A tunnel as it is wished.
pub(crate) fn tunnel(
    folder: &Path,
    file: &str,
    own: u32,
    peer: u32,
    endpoint: SocketAddr,
) -> Tunnel {
    let address = format!("10.9.{own}.2/24");
    let config = pooled(folder, file, &conf(own, peer, &address, &endpoint.to_string()));
    Tunnel {
        config: Some(config),
        answers: true,
        ends: Some(Ends {
            own: public(own),
            peer: public(peer),
            endpoint: Some(endpoint),
            allowed_ips: ["0.0.0.0/0".parse().unwrap()].into(),
            keepalive: 25,
            preshared: None,
        }),
        listen_port: None,
        fwmark: None,
        addresses: [format!("10.9.{own}.2/32").parse().unwrap()].into(),
        mtu: 1400,
        up: true,
    }
}
