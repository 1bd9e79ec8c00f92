//! The journal, where this program speaks into it.
//!
//! **Invariant:** a message that the journal does not take at once is the caller's to print; nothing
//! here waits.

use rustix::fs::fstat;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Where the journal takes messages of fields.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Whether what is printed there goes to the journal: systemd then says which file it is.
fn is_journal(stream: impl AsFd) -> bool {
    let told = super::environment::journal_stream();
    let seen = fstat(stream).ok().map(|seen| (seen.st_dev, seen.st_ino));
    told.is_some() && told == seen
}

/// Whether standard output is the journal.
#[must_use]
pub fn hears_output() -> bool {
    is_journal(std::io::stdout())
}

/// Whether standard error is the journal.
#[must_use]
pub fn hears_errors() -> bool {
    is_journal(std::io::stderr())
}

/// Hands it a message of fields, and tells whether it was taken.
#[must_use]
pub fn take(entry: &[u8]) -> bool {
    let place = super::environment::journal_socket();
    let place = place.as_deref().unwrap_or(Path::new(SOCKET));
    let send = || -> std::io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to(entry, place)?;
        Ok(())
    };
    send().is_ok()
}

/// The unit of systemd that this process belongs to.
#[must_use]
pub fn unit() -> Option<String> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    unit_in(&groups)
}

/// The system's unit in the text of `/proc/PID/cgroup`; a user's unit is another field's.
fn unit_in(groups: &str) -> Option<String> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let last = path.rsplit('/').next()?;
    let is_service = Path::new(last).extension().is_some_and(|extension| extension == "service");
    (is_service && !path.contains("/user@")).then(|| last.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_the_last_part_of_its_group() {
        for (groups, unit) in [
            ("0::/system.slice/egressctl.service\n", Some("egressctl.service")),
            (
                "1:name=x:/y\n0::/system.slice/system-egressctl.slice/egressctl@home.service\n",
                Some("egressctl@home.service"),
            ),
            ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
            ("0::/user.slice/user-1.slice/user@1.service/app.slice/egressctl.service\n", None),
            ("0::/\n", None),
            ("", None),
        ] {
            assert_eq!(unit_in(groups).as_deref(), unit, "{groups}");
        }
    }
}
