//! One child process: its start, its pipes, its end.
//!
//! **Invariant:** nothing here waits for a pipe without also watching the clock.

use super::{CommandError, GRACE, MAX_OUTPUT};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

/// A wait that no clock can overflow on: a day.
pub(super) const LONGEST: Duration = Duration::from_secs(86_400);

/// The most that is kept of standard error, of which only a line is shown.
const MAX_STDERR: usize = 64 * 1024;

/// How often we look whether a child has ended although its pipes are held open.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Where programs are looked for when the environment says nothing.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A piece of what a child said.
pub(super) enum Chunk {
    /// Of its standard output.
    Stdout(Vec<u8>),
    /// Of its standard error.
    Stderr(Vec<u8>),
}

/// All that a child said.
#[derive(Default)]
pub(super) struct Gathered {
    /// Standard output.
    pub(super) stdout: Vec<u8>,
    /// The beginning of standard error.
    pub(super) stderr: Vec<u8>,
}

/// The expression that starts `program` in a process group of its own, so that the deadline reaches
/// its children too, and with an environment in which it speaks plainly and never waits for DNS.
pub(super) fn prepared(program: &str, args: &[String]) -> Result<duct::Expression, CommandError> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    // Looked up here because a script whose interpreter is missing fails with ENOENT as well, and
    // because only an absolute path lets the standard library take the cheap posix_spawn.
    let Some(found) = look_up(program, std::env::split_paths(&path)) else {
        let elsewhere = look_up(program, std::env::split_paths(DEFAULT_PATH));
        return Err(CommandError::NotFound { program: program.to_owned(), elsewhere });
    };
    Ok(duct::cmd(found, args)
        .env("LC_ALL", "C")
        .env("PATH", path)
        .env("WG_ENDPOINT_RESOLUTION_RETRIES", "0")
        .env_remove("LOG_LEVEL")
        .unchecked()
        .before_spawn(|command| {
            command.process_group(0);
            Ok(())
        }))
}

/// The executable file that `program` means.
fn look_up(program: &str, mut folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let executable = |path: &PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|seen| seen.is_file() && seen.permissions().mode() & 0o111 != 0)
    };
    if program.is_empty() {
        None
    } else if program.contains('/') {
        Some(PathBuf::from(program)).filter(executable)
    } else {
        folders.find_map(|folder| Some(folder.join(program)).filter(executable))
    }
}

/// Reads a pipe in a thread of its own, which ends with the pipe or with the receiver.
pub(super) fn read_aside(
    mut pipe: io::PipeReader,
    sender: SyncSender<Chunk>,
    wrap: fn(Vec<u8>) -> Chunk,
) -> io::Result<()> {
    let read = move || {
        let mut buffer = vec![0; 32 * 1024];
        while let Ok(length) = pipe.read(&mut buffer) {
            let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else { break };
            if sender.send(wrap(bytes.to_vec())).is_err() {
                break;
            }
        }
    };
    std::thread::Builder::new().name("pipe".to_owned()).spawn(read).map(drop)
}

/// Waits for the child and takes what it says; `None` when `end` came first.
pub(super) fn gather(
    handle: &duct::Handle,
    receiver: &Receiver<Chunk>,
    end: Option<Instant>,
) -> io::Result<Option<(ExitStatus, Gathered)>> {
    let mut gathered = Gathered::default();
    let mut ended: Option<(ExitStatus, Instant)> = None;
    let mut looked = Instant::now();
    loop {
        let now = Instant::now();
        let left = end.map_or(LONGEST, |end| end.saturating_duration_since(now));
        if ended.is_none() && now.saturating_duration_since(looked) >= LOOK_AGAIN {
            looked = now;
            ended = handle.try_wait()?.map(|output| (output.status, now));
        }
        if let Some((status, since)) = ended
            && now.saturating_duration_since(since) >= GRACE.min(left)
        {
            return Ok(Some((status, gathered)));
        }
        if left.is_zero() {
            return Ok(None);
        }
        match receiver.recv_timeout(left.min(LOOK_AGAIN)) {
            Ok(Chunk::Stdout(bytes)) => gathered.stdout.extend_from_slice(&bytes),
            Ok(Chunk::Stderr(bytes)) => {
                let room = MAX_STDERR.saturating_sub(gathered.stderr.len());
                gathered.stderr.extend(bytes.iter().take(room));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let output = handle.wait_timeout(left)?;
                return Ok(output.map(|output| (output.status, gathered)));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if gathered.stdout.len() > MAX_OUTPUT {
            return Err(io::Error::other(format!("it wrote more than {MAX_OUTPUT} bytes")));
        }
    }
}

/// Ends the child and all that it started in its group, and waits a moment for it, no longer: a
/// process in an uninterruptible sleep would keep us.
pub(super) fn kill_group(handle: &duct::Handle) {
    for pid in handle.pids() {
        let group = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group {
            // A group that is gone already is what we wish for.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
    drop(handle.wait_timeout(GRACE));
}
