//! What the environment says.
//!
//! **Invariant:** read once, by name, here.

use std::net::IpAddr;
use std::path::PathBuf;

/// Whether nobody has asked for text without colours, by `NO_COLOR` (any text but an empty one) or
/// by a terminal that says that it has none.
#[must_use]
pub fn wants_colour() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|text| !text.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Where state is kept when nobody says: systemd's `STATE_DIRECTORY`, of which a unit may name
/// several and the first is ours, else the usual place.
#[must_use]
pub fn state_dir() -> PathBuf {
    std::env::var_os("STATE_DIRECTORY")
        .and_then(|named| std::env::split_paths(&named).next())
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| PathBuf::from("/var/lib/egressctl"))
}

/// Which file systemd has connected to the journal, by device and inode.
#[must_use]
pub fn journal_stream() -> Option<(u64, u64)> {
    let told = std::env::var("JOURNAL_STREAM").ok()?;
    let (device, inode) = told.split_once(':')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

/// Where the journal takes messages of fields, when it is not the usual place.
#[must_use]
pub fn journal_socket() -> Option<PathBuf> {
    std::env::var_os("EGRESSCTL_JOURNAL_SOCKET").map(PathBuf::from)
}

/// What this machine is called; empty: nobody says.
#[must_use]
pub fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// More processes than this do not stand between a login and a command.
const MOST_PARENTS: usize = 32;

/// Where this login comes from, as sshd tells it: the first word of `SSH_CONNECTION`. `sudo` takes
/// that away, so the processes above are asked too, as far as this user may look.
#[must_use]
pub fn login() -> Option<IpAddr> {
    let mut pid = "self".to_owned();
    for _ in 0..MOST_PARENTS {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let told = environment
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(b"SSH_CONNECTION="));
        if let Some(told) = told {
            return address(&String::from_utf8_lossy(told));
        }
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold blanks; the parent's number is the second word after it.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
        if parent == "0" {
            return None;
        }
        parent.clone_into(&mut pid);
    }
    None
}

/// The client's address in `CLIENT PORT SERVER PORT`.
fn address(told: &str) -> Option<IpAddr> {
    let address: IpAddr = told.split_whitespace().next()?.split('%').next()?.parse().ok()?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_of_a_connection_is_the_client() {
        for (told, wished) in [
            ("10.77.0.11 50000 10.77.0.1 22", Some("10.77.0.11")),
            ("::ffff:10.77.0.11 50000 ::ffff:10.77.0.1 22", Some("10.77.0.11")),
            ("fe80::1%eth1 50000 fe80::2%eth1 22", Some("fe80::1")),
            ("", None),
            ("x y", None),
        ] {
            assert_eq!(address(told), wished.map(|text| text.parse().unwrap()), "{told}");
        }
    }
}
