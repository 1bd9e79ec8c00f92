//! Starts processes, and is the only one who does.
//!
//! **Invariant:** a call returns within its deadline plus [`GRACE`], whatever the child or its
//! children do, and standard input, which may carry a key, is never part of an error.

mod child;

use child::{Child, LONGEST, kill_group, prepared};
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// How long we wait for a killed child to be gone.
pub const GRACE: Duration = Duration::from_millis(300);

/// The most that is taken from a child's standard output; a full nft listing of a large gateway
/// stays below a tenth of it.
pub const MAX_OUTPUT: usize = 64 * 1024 * 1024;

/// How much of standard error an error shows, in characters: a few lines of `nft`.
const SHOWN_STDERR: usize = 400;

/// One command to run.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    /// The program, a name that is looked for on `PATH` or a path.
    pub program: String,
    /// Its arguments. Every user of the machine can read them, so they hold no secret.
    pub args: Vec<String>,
    /// What it reads from standard input, nothing when `None`.
    pub stdin: Option<Vec<u8>>,
    /// What it finds in its environment beside what this program found.
    pub env: Vec<(&'static str, String)>,
    /// How long it may take.
    pub deadline: Duration,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("program", &self.program)
            .field("args", &self.args)
            .field("stdin", &self.stdin.as_ref().map(|bytes| format!("{} bytes", bytes.len())))
            .field("env", &self.env)
            .field("deadline", &self.deadline)
            .finish()
    }
}

impl Call {
    /// A call without input.
    #[must_use]
    pub fn new(program: &str, args: &[&str], deadline: Duration) -> Self {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        Self { program: program.to_owned(), args, stdin: None, env: Vec::new(), deadline }
    }

    /// The same call with `bytes` on standard input.
    #[must_use]
    pub fn with_stdin(mut self, bytes: Vec<u8>) -> Self {
        self.stdin = Some(bytes);
        self
    }

    /// The same call with more in its environment.
    #[must_use]
    pub fn with_env(mut self, env: Vec<(&'static str, String)>) -> Self {
        self.env = env;
        self
    }

    /// The command as a person would type it.
    #[must_use]
    pub fn argv(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.args);
        words.map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }
}

/// What a command that ended has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Standard output, whole.
    pub stdout: Vec<u8>,
    /// Standard error on one line, at most 400 characters.
    pub stderr: String,
    /// The exit code; 128 and the signal's number when a signal ended it, as shells say it.
    pub code: i32,
}

/// Why a command did not do its work.
#[derive(Debug)]
pub enum CommandError {
    /// There is no such program.
    NotFound {
        /// The program as it was asked for.
        program: String,
        /// Where it is although `PATH` does not name that folder.
        elsewhere: Option<PathBuf>,
    },
    /// It was killed because its time was over.
    TimedOut {
        /// The command as a person would type it.
        argv: String,
        /// How long it was given.
        after: Duration,
    },
    /// It ended with another code than 0.
    Exit {
        /// The command as a person would type it.
        argv: String,
        /// The exit code, or 128 and the signal's number.
        code: i32,
        /// Standard error on one line, at most 400 characters.
        stderr: String,
    },
    /// It could not be started, or its output could not be taken.
    Io {
        /// The command as a person would type it.
        argv: String,
        /// What the kernel said.
        error: io::Error,
    },
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { program, elsewhere: Some(path) } => {
                let folder = path.parent().unwrap_or(path).display();
                write!(f, "{program} is not on PATH: it is in {folder}, add that to PATH")
            }
            Self::NotFound { program, elsewhere: None } => match package_of(program) {
                Some(package) => write!(f, "{program} is not on PATH: install {package}"),
                None if program.contains('/') => {
                    write!(f, "{program} is not an executable file")
                }
                None => write!(f, "{program} is not on PATH: install it or add its folder"),
            },
            Self::TimedOut { argv, after } => {
                write!(f, "{argv}: killed after {} ms without an end", after.as_millis())
            }
            Self::Exit { argv, code, stderr } if stderr.is_empty() => {
                write!(f, "{argv}: exit code {code}")
            }
            Self::Exit { argv, code, stderr } => write!(f, "{argv}: exit code {code}: {stderr}"),
            Self::Io { argv, error } => write!(f, "{argv}: {error}"),
        }
    }
}

impl std::error::Error for CommandError {}

/// Runs a command to its end.
///
/// # Errors
/// Everything but exit code 0, see [`CommandError`].
pub fn run(call: &Call) -> Result<Output, CommandError> {
    checked(call, run_unchecked(call)?)
}

/// What a command said, if its exit code is 0.
///
/// # Errors
/// For every other code; see [`CommandError`].
pub fn checked(call: &Call, output: Output) -> Result<Output, CommandError> {
    if output.code == 0 {
        Ok(output)
    } else {
        Err(CommandError::Exit { argv: call.argv(), code: output.code, stderr: output.stderr })
    }
}

/// Runs a command to its end for a caller to whom other codes than 0 are answers too.
///
/// # Errors
/// When it did not start, did not end in time, or said too much; see [`CommandError`].
pub fn run_unchecked(call: &Call) -> Result<Output, CommandError> {
    start(call)?.finish()
}

/// A command on its way, so that its caller can start another one before it waits. It is killed
/// when it is dropped unfinished.
#[derive(Debug)]
pub struct Running {
    argv: String,
    after: Duration,
    end: Option<Instant>,
    child: Child,
}

/// Starts a command.
///
/// # Errors
/// When it did not start; see [`CommandError`].
pub fn start(call: &Call) -> Result<Running, CommandError> {
    let end = Instant::now().checked_add(call.deadline);
    let mut command = prepared(&call.program, &call.args)?;
    for (name, value) in &call.env {
        command = command.env(name, value);
    }
    let argv = call.argv();
    match Child::start(&command, call.stdin.as_deref()) {
        Ok(child) => Ok(Running { argv, after: call.deadline, end, child }),
        Err(error) => Err(CommandError::Io { argv, error }),
    }
}

impl Running {
    /// Waits for its end, whatever its exit code is.
    ///
    /// # Errors
    /// When it did not end in time or said too much; see [`CommandError`].
    pub fn finish(self) -> Result<Output, CommandError> {
        let Self { argv, after, end, child } = self;
        match child.finish(end) {
            Ok(Some((status, said))) => Ok(Output {
                stdout: said.stdout,
                stderr: one_line(&said.stderr),
                code: code_of(status),
            }),
            Ok(None) => Err(CommandError::TimedOut { argv, after }),
            Err(error) => Err(CommandError::Io { argv, error }),
        }
    }
}

/// Starts a program that makes a daemon of itself, such as `wireguard-go wg0`, and waits until its
/// foreground process has ended. The daemon holds none of our files and outlives us.
///
/// # Errors
/// As [`run`]; there is no standard error to quote, because a daemon would write to it for ever.
pub fn spawn_detached(
    program: &str,
    args: &[String],
    deadline: Duration,
) -> Result<(), CommandError> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let call = Call::new(program, &words, deadline);
    let io = |error| CommandError::Io { argv: call.argv(), error };
    let command = prepared(program, args)?.stdin_null().stdout_null().stderr_null();
    let handle = command.start().map_err(io)?;
    let Some(output) = handle.wait_timeout(deadline.min(LONGEST)).map_err(io)? else {
        kill_group(&handle);
        return Err(CommandError::TimedOut { argv: call.argv(), after: deadline });
    };
    match code_of(output.status) {
        0 => Ok(()),
        code => Err(CommandError::Exit { argv: call.argv(), code, stderr: String::new() }),
    }
}

/// Whether a path is an executable file.
#[must_use]
pub fn is_program(path: &Path) -> bool {
    child::is_program(path)
}

/// The exit code as a shell would say it.
fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|number| 128 + number)).unwrap_or(-1)
}

/// Text of a foreign program made fit for one line of a log: no control characters, bounded.
fn one_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let clean: String =
        text.chars().map(|c| if crate::outcome::is_unfit(c) { ' ' } else { c }).collect();
    let line = clean.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > SHOWN_STDERR {
        line.chars().take(SHOWN_STDERR - 1).chain(['…']).collect()
    } else {
        line
    }
}

/// A word as a shell would need it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut safe = String::from("'");
    for c in word.chars() {
        match c {
            '\'' => safe.push_str("'\\''"),
            c if c.is_control() => safe.extend(c.escape_default()),
            c => safe.push(c),
        }
    }
    safe.push('\'');
    safe
}

/// The package that brings a program, as Debian names it.
fn package_of(program: &str) -> Option<&'static str> {
    match program {
        "wg" => Some("wireguard-tools"),
        "ip" => Some("iproute2"),
        "nft" => Some("nftables"),
        "sysctl" => Some("procps"),
        "conntrack" => Some("conntrack"),
        "nsupdate" => Some("bind9-dnsutils"),
        "knsupdate" => Some("knot-dnsutils"),
        "awg" => Some("amneziawg-tools"),
        "wireguard-go" | "amneziawg-go" => Some("it, or a kernel with WireGuard"),
        _ => None,
    }
}
