//! The state folder of one policy: what the last run left, and who may write it.
//!
//! **Invariant:** at every instant `state.json` or `state.json.bak` is whole; nothing is read
//! before the lock is held; `begin` and `commit` are the only writers of state and journal.

mod envelope;
mod held;

use crate::host::files;
use crate::names::PolicyName;
use crate::time::Moment;
use anyhow::Context as _;
use envelope::{Envelope, Found};
use jiff::Timestamp;
use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

pub use envelope::VERSION;
pub use held::Held;

/// How many lines of history are kept: months for a healthy gateway, and little on a flash chip.
pub const HISTORY_LINES: usize = 1_000;

/// The folder of one policy.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    policy: PolicyName,
}

impl Folder {
    /// The folder of `policy` below `state_dir`; touches nothing.
    #[must_use]
    pub fn new(state_dir: &Path, policy: PolicyName) -> Self {
        Self { path: state_dir.join(policy.as_str()), policy }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last `most` lines of history, oldest first, without those that a power cut tore.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn history(&self, most: usize) -> anyhow::Result<Vec<String>> {
        let path = self.path.join("history.jsonl");
        let mut lines = files::last_lines(&path, HISTORY_LINES)
            .with_context(|| format!("reading history {}", path.display()))?;
        lines.retain(|line| serde_json::from_str::<serde::de::IgnoredAny>(line).is_ok());
        Ok(lines.split_off(lines.len().saturating_sub(most)))
    }

    /// Where what stood before a change lies while the change waits to be confirmed.
    #[must_use]
    pub fn trial(&self) -> PathBuf {
        self.path.join("trial.json")
    }

    fn state(&self) -> PathBuf {
        self.path.join("state.json")
    }

    fn backup(&self) -> PathBuf {
        self.path.join("state.json.bak")
    }

    fn journal(&self) -> PathBuf {
        self.path.join("journal.json")
    }
}

/// What the last commit says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The policy file, absolute.
    pub path: PathBuf,
    /// How many states were committed.
    pub generation: u64,
    /// When, by the wall clock.
    pub saved_at: Timestamp,
}

/// A state as far as one was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded<B> {
    /// There never was one.
    Nothing,
    /// The last one.
    Good(B),
    /// The one before the last, because the last is gone.
    FromBackup {
        /// The state.
        body: B,
        /// What happened to the last one.
        why: String,
    },
    /// There was one, and neither it nor its backup can be read.
    Lost {
        /// What happened.
        why: String,
    },
}

impl<B> Loaded<B> {
    /// The state, wherever it came from.
    #[must_use]
    pub fn body(&self) -> Option<&B> {
        match self {
            Self::Good(body) | Self::FromBackup { body, .. } => Some(body),
            Self::Nothing | Self::Lost { .. } => None,
        }
    }
}

/// What became of the wish to hold a policy's state.
#[must_use]
pub enum Opened<B, J> {
    /// Another run holds it; nothing was read.
    Busy,
    /// It is held.
    Held(Held<B, J>),
    /// A newer program wrote it; nothing was touched.
    Newer {
        /// The version found.
        found: u64,
        /// The newest that this program knows.
        known: u64,
    },
    /// It is the state of a policy of the same name elsewhere; nothing was touched.
    OtherPath {
        /// That policy's file.
        recorded: PathBuf,
    },
}

/// Takes the lock of a policy, then reads its state and what a run that died left in flight.
/// `adopt` takes over a state that was recorded for another path.
///
/// # Errors
/// When the folder cannot be made, locked, read or written.
pub fn open_locked<B: DeserializeOwned, J: DeserializeOwned>(
    folder: &Folder,
    kind: &str,
    policy_path: &Path,
    adopt: bool,
    now: &Moment,
) -> anyhow::Result<Opened<B, J>> {
    files::private_folder(&folder.path)?;
    let Some(lock) = try_lock(&folder.path.join("lock"))? else { return Ok(Opened::Busy) };
    let read = |path: &Path| format!("reading {}", path.display());
    let state = envelope::read::<B>(&folder.state(), kind, &folder.policy)
        .with_context(|| read(&folder.state()))?;
    let backup = match state {
        Found::Missing | Found::Bad(_) => {
            envelope::read::<B>(&folder.backup(), kind, &folder.policy)
                .with_context(|| read(&folder.backup()))?
        }
        Found::Whole(_) | Found::Newer(_) => Found::Missing,
    };
    let journal = envelope::read::<J>(&folder.journal(), kind, &folder.policy)
        .with_context(|| read(&folder.journal()))?;

    // All is judged before anything is moved, so that "nothing was touched" is true.
    let is_state_bad = matches!(state, Found::Bad(_));
    let newest = [newer(&state), newer(&backup), newer(&journal)].into_iter().flatten().max();
    if let Some(found) = newest {
        return Ok(Opened::Newer { found, known: VERSION });
    }
    let is_state_whole = matches!(state, Found::Whole(_));
    let (loaded, about) = settle(state, backup);
    if let Some(about) = &about
        && about.path != policy_path
        && !adopt
    {
        return Ok(Opened::OtherPath { recorded: about.path.clone() });
    }

    let mut held = Held {
        folder: folder.clone(),
        kind: kind.to_owned(),
        policy_path: policy_path.to_path_buf(),
        opened: now.at,
        about,
        loaded,
        journal: None,
        notes: Vec::new(),
        is_state_whole,
        is_journal_there: false,
        is_begun: false,
        _lock: lock,
    };
    if is_state_bad {
        held.keep_aside(&folder.state())?;
    }
    held.take_journal(journal)?;
    if is_state_whole {
        held.tidy();
    }
    Ok(Opened::Held(held))
}

/// What a reader without the lock finds.
#[must_use]
pub enum ReadOnly<B> {
    /// A newer program wrote it.
    Newer {
        /// The version found.
        found: u64,
        /// The newest that this program knows.
        known: u64,
    },
    /// As far as it can be read.
    Seen {
        /// The state; `Lost` also when this user may not read it.
        loaded: Loaded<B>,
        /// What its commit says about itself.
        about: Option<About>,
        /// Whether a change is in flight, or was when a run died.
        is_in_flight: bool,
    },
}

/// Reads a policy's state without the lock, makes nothing and moves nothing. Every file is replaced
/// whole, so a run at the same time does no harm.
pub fn read_only<B: DeserializeOwned>(folder: &Folder, kind: &str) -> ReadOnly<B> {
    let read = |path: &Path| {
        envelope::read::<B>(path, kind, &folder.policy)
            .unwrap_or_else(|why| Found::Bad(why.to_string()))
    };
    let state = read(&folder.state());
    let backup = match state {
        Found::Missing | Found::Bad(_) => read(&folder.backup()),
        Found::Whole(_) | Found::Newer(_) => Found::Missing,
    };
    if let Some(found) = newer(&state).or(newer(&backup)) {
        return ReadOnly::Newer { found, known: VERSION };
    }
    let (loaded, about) = settle(state, backup);
    ReadOnly::Seen { loaded, about, is_in_flight: folder.journal().exists() }
}

/// Takes the state, else its backup.
fn settle<B>(state: Found<B>, backup: Found<B>) -> (Loaded<B>, Option<About>) {
    let why = match state {
        Found::Whole(whole) => {
            let about = about(&whole);
            return (Loaded::Good(whole.body), Some(about));
        }
        Found::Missing => None,
        Found::Bad(why) => Some(format!("state.json: {why}")),
        Found::Newer(found) => Some(format!("state.json: format version {found}")),
    };
    match (why, backup) {
        (why, Found::Whole(whole)) => {
            let about = about(&whole);
            let why = why.unwrap_or_else(|| "state.json is missing".to_owned());
            (Loaded::FromBackup { body: whole.body, why }, Some(about))
        }
        (None, Found::Missing) => (Loaded::Nothing, None),
        (Some(why), Found::Missing) => (Loaded::Lost { why: format!("{why}; no backup") }, None),
        (why, Found::Bad(bad)) => {
            let why = why.unwrap_or_else(|| "state.json is missing".to_owned());
            (Loaded::Lost { why: format!("{why}; state.json.bak: {bad}") }, None)
        }
        (why, Found::Newer(found)) => {
            let why = why.unwrap_or_else(|| "state.json is missing".to_owned());
            (Loaded::Lost { why: format!("{why}; state.json.bak: format version {found}") }, None)
        }
    }
}

fn about<B>(whole: &Envelope<B>) -> About {
    About { path: whole.path.clone(), generation: whole.generation, saved_at: whole.saved_at }
}

fn newer<T>(found: &Found<T>) -> Option<u64> {
    match found {
        Found::Newer(version) => Some(*version),
        Found::Missing | Found::Whole(_) | Found::Bad(_) => None,
    }
}

/// The lock, or nothing when another holds it. The file is made once and stays: a lock on a file
/// that was replaced would keep nobody out.
fn try_lock(path: &Path) -> anyhow::Result<Option<File>> {
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
        .with_context(|| format!("opening {}: the folder must be writable", path.display()))?;
    match fs2::FileExt::try_lock_exclusive(&file) {
        Ok(()) => Ok(Some(file)),
        Err(why) if why.raw_os_error() == fs2::lock_contended_error().raw_os_error() => Ok(None),
        Err(why) => Err(why).with_context(|| format!("locking {}", path.display())),
    }
}
