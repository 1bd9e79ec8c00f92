//! One child process: its start, its pipes, its end.
//!
//! **Invariant:** nothing here waits for a pipe without also watching the clock.

use super::{CommandError, GRACE, MAX_OUTPUT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, PipeReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// A wait that no clock can overflow on: a day.
pub(super) const LONGEST: Duration = Duration::from_secs(86_400);

/// The most that is kept of standard error, of which only a line is shown.
const MAX_STDERR: usize = 64 * 1024;

/// How often we look whether a child has ended although its pipes are held open.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Where programs are looked for when the environment says nothing.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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

/// Where a child speaks: our ends of its standard output and standard error.
pub(super) struct Pipes {
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
}

impl Pipes {
    /// Our ends of two pipes.
    pub(super) fn new(stdout: PipeReader, stderr: PipeReader) -> Self {
        Self { stdout: Some(stdout), stderr: Some(stderr) }
    }

    /// Waits at most `wait` for the child to say something, and takes what it said. Done without
    /// threads, which cost more than the rest of starting a process.
    fn take(&mut self, gathered: &mut Gathered, wait: Duration) -> io::Result<()> {
        let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
        let mut watched = Vec::with_capacity(2);
        watched.extend(self.stdout.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        watched.extend(self.stderr.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        match poll(&mut watched, Some(&wait)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(why) => return Err(why.into()),
        }
        let mut ready = watched.iter().map(|pipe| !pipe.revents().is_empty()).collect::<Vec<_>>();
        let is_stderr_ready = self.stderr.is_some() && ready.pop().unwrap_or(false);
        let is_stdout_ready = self.stdout.is_some() && ready.pop().unwrap_or(false);
        if is_stdout_ready {
            read_once(&mut self.stdout, &mut gathered.stdout, usize::MAX)?;
        }
        if is_stderr_ready {
            read_once(&mut self.stderr, &mut gathered.stderr, MAX_STDERR)?;
        }
        Ok(())
    }
}

/// Takes what is there, keeps as much of it as there is room for, and lets an ended pipe go.
fn read_once(pipe: &mut Option<PipeReader>, kept: &mut Vec<u8>, most: usize) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    let length = match pipe.as_mut().map_or(Ok(0), |pipe| pipe.read(&mut buffer)) {
        Err(why) if why.kind() == io::ErrorKind::Interrupted => return Ok(()),
        other => other?,
    };
    if length == 0 {
        *pipe = None;
    }
    let room = most.saturating_sub(kept.len());
    kept.extend(buffer.iter().take(length.min(room)));
    Ok(())
}

/// Waits for the child and takes what it says; `None` when `end` came first.
pub(super) fn gather(
    handle: &duct::Handle,
    mut pipes: Pipes,
    end: Option<Instant>,
) -> io::Result<Option<(ExitStatus, Gathered)>> {
    let mut gathered = Gathered::default();
    let mut ended: Option<(ExitStatus, Instant)> = None;
    let mut looked = Instant::now();
    loop {
        let now = Instant::now();
        let left = end.map_or(LONGEST, |end| end.saturating_duration_since(now)).min(LONGEST);
        if pipes.stdout.is_none() && pipes.stderr.is_none() {
            let output = handle.wait_timeout(left)?;
            return Ok(output.map(|output| (output.status, gathered)));
        }
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
        pipes.take(&mut gathered, left.min(LOOK_AGAIN))?;
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
