//! Makes and removes the interface of a tunnel, and the daemon behind it.
//!
//! **Invariant:** a device that is no tunnel is never deleted, and a daemon ends by the end of its
//! device or its unit, never by its name.

use super::{DEADLINE, GONE, Hands, ip, settled};
use crate::host::exec::{self, Call};
use crate::iproute::parse_links;
use crate::names::Interface;
use crate::plan::Backend;
use anyhow::{Context as _, bail};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Kinds of device that a tunnel may be; `tun` is a daemon's.
const KINDS: [&str; 3] = ["wireguard", "amneziawg", "tun"];

/// How often we look whether something came or went.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A daemon whose device went needs some milliseconds to take its socket away.
const PARTING: Duration = Duration::from_millis(500);

/// A daemon that has lost its socket ends within milliseconds, and later where the machine is busy.
const ENDING: Duration = Duration::from_secs(3);

/// A daemon that lives answers within a few milliseconds.
const ALIVE: Duration = Duration::from_millis(300);

/// Makes a tunnel's interface in the place of whatever a dead daemon or a killed run left.
pub(super) fn create(
    interface: &Interface,
    backend: &Backend,
    hands: &Hands,
) -> anyhow::Result<()> {
    let made = || format!("making the tunnel {interface}");
    let leftover = is_there(interface)?;
    if leftover {
        delete(interface).with_context(made)?;
    }
    match backend {
        Backend::Kernel(kind) => {
            ip(&["link", "add", "dev", interface.as_str(), "type", kind], &[]).with_context(made)
        }
        Backend::Userspace(program) => {
            let socket = socket_of(program, interface);
            let was_held = part_from(&socket).with_context(made)?;
            if hands.systemd {
                // Only a restart ends a daemon that the unit still holds without its device.
                let verb = if leftover || was_held { "restart" } else { "start" };
                settled(&Call::new("systemctl", &[verb, &unit(interface)], DEADLINE), &[])
                    .with_context(made)?;
            } else {
                exec::spawn_detached(program, &[interface.to_string()], DEADLINE)
                    .with_context(made)?;
            }
            // A unit may count as started before its daemon listens.
            let ready = || Ok(is_there(interface)? && socket.exists());
            if until(DEADLINE, ready)? { Ok(()) } else { bail!("{}: no device came", made()) }
        }
    }
}

/// Removes a tunnel's interface and with it its daemon.
pub(super) fn remove(
    interface: &Interface,
    backend: &Backend,
    hands: &Hands,
) -> anyhow::Result<()> {
    let removed = || format!("removing the tunnel {interface}");
    if let (Backend::Userspace(_), true) = (backend, hands.systemd) {
        let call = Call::new("systemctl", &["stop", &unit(interface)], DEADLINE);
        settled(&call, &["not loaded"]).with_context(removed)?;
    }
    if is_there(interface)? {
        delete(interface).with_context(removed)?;
    }
    if let Backend::Userspace(program) = backend {
        // What is still there now is no longer ours to wait for; the next start looks again.
        let socket = socket_of(program, interface);
        until(PARTING, || Ok(!socket.exists()))?;
    }
    Ok(())
}

fn unit(interface: &Interface) -> String {
    format!("egressctl-wg@{interface}.service")
}

/// Where a daemon listens for `wg` or `awg`.
fn socket_of(program: &str, interface: &Interface) -> PathBuf {
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    let folder =
        if name.starts_with("amneziawg") { "/var/run/amneziawg" } else { "/var/run/wireguard" };
    Path::new(folder).join(format!("{interface}.sock"))
}

/// Whether there is such a device.
fn is_there(interface: &Interface) -> anyhow::Result<bool> {
    let asked = || format!("asking for the device {interface}");
    let handle = socket(AddressFamily::INET, SocketType::DGRAM, None).with_context(asked)?;
    match netdevice::name_to_index(&handle, interface.as_str()) {
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::NODEV) => Ok(false),
        Err(why) => Err(why).with_context(asked),
    }
}

/// Deletes a device that is there, if it is a tunnel.
fn delete(interface: &Interface) -> anyhow::Result<()> {
    let args = ["-N", "-j", "-d", "link", "show", "dev", interface.as_str()];
    let output = exec::run_unchecked(&Call::new("ip", &args, DEADLINE))?;
    if output.code != 0 && GONE.iter().any(|words| output.stderr.contains(words)) {
        return Ok(());
    }
    let listing = serde_json::from_slice(&output.stdout).context("reading ip link show")?;
    let links = parse_links(&listing).context("reading ip link show")?;
    let kind = links.first().and_then(|link| link.kind.as_deref()).unwrap_or("a real device");
    if !KINDS.contains(&kind) {
        bail!("the device {interface} is no tunnel but {kind}: it is not deleted");
    }
    ip(&["link", "delete", "dev", interface.as_str()], &GONE)
}

/// Waits until the socket of a daemon without its device is gone, and takes away that of one that
/// hangs, or whose device somebody has given another name: no new one would start over it. A daemon
/// ends by the end of its socket, and its device with it. One that serves a device of that name in
/// another network namespace is left alone: the start will say that the name is taken. Tells whether
/// a socket was taken away.
fn part_from(socket: &Path) -> anyhow::Result<bool> {
    if !socket.exists() || until(PARTING, || Ok(!socket.exists()))? {
        return Ok(false);
    }
    let (lives, is_here) = (answers(socket), is_listed(socket));
    if lives && !is_here {
        return Ok(false);
    }
    match std::fs::remove_file(socket) {
        Ok(()) => {}
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(why) => return Err(why).with_context(|| format!("removing {}", socket.display())),
    }
    if lives {
        // On its way out it takes away whatever lies in that place, which must not be the next one's.
        until(ENDING, || Ok(!is_listed(socket)))?;
    }
    Ok(true)
}

/// Whether a daemon behind the socket says anything to a question of its protocol.
fn answers(socket: &Path) -> bool {
    let talk = || -> std::io::Result<()> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ALIVE))?;
        stream.set_write_timeout(Some(ALIVE))?;
        stream.write_all(b"get=1\n\n")?;
        stream.read_exact(&mut [0])
    };
    talk().is_ok()
}

/// Whether somebody has opened the socket in this network namespace: the kernel lists no other's.
fn is_listed(socket: &Path) -> bool {
    let is_here = |listed: String| listed.lines().any(|line| line.ends_with(&shown(socket)));
    std::fs::read_to_string("/proc/net/unix").is_ok_and(is_here)
}

/// A socket as the kernel lists it: the last word of a line.
fn shown(socket: &Path) -> String {
    format!(" {}", socket.display())
}

/// Looks again and again until something is true; false when it did not become so in time.
fn until(
    wait: Duration,
    mut is_true: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    let begun = Instant::now();
    loop {
        if is_true()? {
            return Ok(true);
        }
        if begun.elapsed() >= wait {
            return Ok(false);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
