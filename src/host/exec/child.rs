//! One child process: its start, its files, its end.
//!
//! **Invariant:** nothing here waits but for the end of a child, and for that at most until its
//! deadline.

use super::{CommandError, GRACE, MAX_OUTPUT};
use crate::host::stop;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// A wait that no clock can overflow on: a day.
pub(super) const LONGEST: Duration = Duration::from_secs(86_400);

/// How often we look whether a child says too much.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What is left for a child once we are told to end: it takes milliseconds, unless it hangs.
const HURRY: Duration = Duration::from_secs(1);

/// Where programs are looked for when the environment says nothing.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// All that a child said.
pub(super) struct Said {
    /// Standard output.
    pub(super) stdout: Vec<u8>,
    /// Standard error.
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

/// Whether a path is an executable file.
pub(super) fn is_program(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|seen| seen.is_file() && seen.permissions().mode() & 0o111 != 0)
}

/// The executable file that `program` means.
fn look_up(program: &str, mut folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let executable = |path: &PathBuf| is_program(path);
    if program.is_empty() {
        None
    } else if program.contains('/') {
        Some(PathBuf::from(program)).filter(executable)
    } else {
        folders.find_map(|folder| Some(folder.join(program)).filter(executable))
    }
}

/// A child that runs. It speaks into files in memory, so that we sleep until it has ended: a pipe
/// woke us for each of the 643 writes of one nft listing, which cost 1 ms of CPU.
#[derive(Debug)]
pub(super) struct Child {
    handle: duct::Handle,
    stdout: File,
    stderr: File,
    is_over: bool,
}

impl Child {
    /// Starts it with `stdin` to read. Its input is a file in memory too, for which no thread has to
    /// wait until the child has read it.
    pub(super) fn start(command: &duct::Expression, stdin: Option<&[u8]>) -> io::Result<Self> {
        let command = match stdin {
            Some(bytes) => {
                let mut file = memory()?;
                file.write_all(bytes)?;
                file.rewind()?;
                command.stdin_file(file)
            }
            None => command.stdin_null(),
        };
        let (stdout, stderr) = (memory()?, memory()?);
        let command = command.stdout_file(stdout.try_clone()?).stderr_file(stderr.try_clone()?);
        let handle = command.start()?;
        Ok(Self { handle, stdout, stderr, is_over: false })
    }

    /// Waits for it and takes what it said; `None`, and it is killed, when `end` came first. It is
    /// killed too when it says too much meanwhile. What a grandchild says later is lost.
    pub(super) fn finish(
        mut self,
        mut end: Option<Instant>,
    ) -> io::Result<Option<(ExitStatus, Said)>> {
        let mut is_hurried = false;
        loop {
            if stop::is_asked() && !is_hurried {
                is_hurried = true;
                end = end.into_iter().chain(Instant::now().checked_add(HURRY)).min();
            }
            let left = end.map_or(LONGEST, |end| end.saturating_duration_since(Instant::now()));
            if let Some(output) = self.handle.wait_timeout(left.min(LOOK_AGAIN))? {
                let status = output.status;
                self.is_over = true;
                let said = Said { stdout: taken(&self.stdout)?, stderr: taken(&self.stderr)? };
                return Ok(Some((status, said)));
            }
            length(&self.stdout)?;
            length(&self.stderr)?;
            if left <= LOOK_AGAIN {
                return Ok(None);
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.is_over {
            kill_group(&self.handle);
        }
        for file in [&self.stdout, &self.stderr] {
            // A grandchild that still writes gets an error, as from a closed pipe; else it would
            // fill the memory. The kernel seals each file that was made to be sealed.
            let _ = fcntl_add_seals(file, SealFlags::GROW);
        }
    }
}

/// An empty file in memory, which no other program finds.
fn memory() -> io::Result<File> {
    Ok(memfd_create(c"egressctl", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into())
}

/// How much is in a file by now, which must not be more than [`MAX_OUTPUT`].
fn length(file: &File) -> io::Result<usize> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    if length > MAX_OUTPUT {
        return Err(io::Error::other(format!("it wrote more than {MAX_OUTPUT} bytes")));
    }
    Ok(length)
}

/// All that is in a file by now.
fn taken(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length(file)?];
    // Where the child has stopped to write is no place to read from.
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Ends the child and all that it started in its group, and waits a moment for it, no longer: a
/// process in an uninterruptible sleep would keep us.
pub(super) fn kill_group(handle: &duct::Handle) {
    for pid in handle.pids() {
        let group = i32::try_from(pid).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            // A group that is gone already is what we wish for.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
    drop(handle.wait_timeout(GRACE));
}
