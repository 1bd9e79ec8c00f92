//! A policy's state while its lock is held: the only way to change it.
//!
//! **Invariant:** `begin` writes the journal and `commit` writes the state and ends the journal;
//! nothing else writes either.

use super::envelope::{Envelope, Found, MAX_BYTES, VERSION};
use super::{About, Folder, HISTORY_LINES, Loaded};
use crate::host::files;
use crate::time::Moment;
use anyhow::{Context as _, bail};
use jiff::Timestamp;
use serde::Serialize;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A policy's state with the lock on it; the lock goes when this does.
pub struct Held<B, J> {
    pub(super) folder: Folder,
    pub(super) kind: String,
    pub(super) policy_path: PathBuf,
    pub(super) opened: Timestamp,
    pub(super) about: Option<About>,
    pub(super) loaded: Loaded<B>,
    pub(super) journal: Option<J>,
    pub(super) notes: Vec<String>,
    pub(super) is_state_whole: bool,
    pub(super) is_journal_there: bool,
    /// Whether this run has begun a change that it has not committed.
    pub(super) is_begun: bool,
    pub(super) _lock: File,
}

impl<B, J> Held<B, J> {
    /// The state as it was found when the lock was taken; a later commit does not change it.
    pub fn loaded(&self) -> &Loaded<B> {
        &self.loaded
    }

    /// What the last commit says about itself, this run's included.
    pub fn about(&self) -> Option<&About> {
        self.about.as_ref()
    }

    /// The change that a run which died had begun and neither committed nor undone.
    pub fn journal(&self) -> Option<&J> {
        self.journal.as_ref()
    }

    /// Whether a journal is on disk: a change that was begun and neither committed nor undone.
    pub fn is_in_flight(&self) -> bool {
        self.is_journal_there
    }

    /// Whether this run has begun a change that it has not committed, and may take back.
    pub fn is_open(&self) -> bool {
        self.is_journal_there && self.is_begun
    }

    /// What a person should hear about the files that were found.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Adds a line to the history.
    ///
    /// # Errors
    /// When it cannot be written, which is no reason to stop.
    pub fn remember(&self, line: &str) -> anyhow::Result<()> {
        files::append_line_bounded(&self.folder.path.join("history.jsonl"), line, HISTORY_LINES)
    }

    pub(super) fn keep_aside(&mut self, path: &Path) -> anyhow::Result<()> {
        let time = self.opened.strftime("%Y%m%dT%H%M%SZ").to_string();
        let aside = files::keep_aside(path, &time)?;
        self.notes.push(format!("kept aside as {}", aside.display()));
        Ok(())
    }

    pub(super) fn take_journal(&mut self, found: Found<J>) -> anyhow::Result<()> {
        match found {
            Found::Missing | Found::Newer(_) => {}
            Found::Bad(why) => {
                self.notes.push(format!("the journal was never complete, so nothing began: {why}"));
                self.keep_aside(&self.folder.journal())?;
            }
            Found::Whole(journal) => {
                let committed = self.about.as_ref().map_or(0, |about| about.generation);
                if self.is_state_whole && committed > journal.generation {
                    // The run died after its commit and before the journal was gone; undoing it
                    // would take back what came true.
                    self.notes.push("the journal of a committed change was removed".to_owned());
                    self.is_journal_there = true;
                    self.remove_journal()?;
                } else {
                    self.is_journal_there = true;
                    self.journal = Some(journal.body);
                }
            }
        }
        Ok(())
    }

    /// Removes what killed runs left half written. While a state is missing such a file may be all
    /// that is left of it, and stays for a person to look at.
    pub(super) fn tidy(&self) {
        files::tidy(&self.folder.path);
    }

    fn remove_journal(&mut self) -> anyhow::Result<()> {
        if self.is_journal_there {
            let path = self.folder.journal();
            std::fs::remove_file(&path)
                .and_then(|()| files::sync_folder(&self.folder.path))
                .with_context(|| format!("removing {}", path.display()))?;
            self.is_journal_there = false;
        }
        Ok(())
    }

    fn generation(&self) -> u64 {
        self.about.as_ref().map_or(0, |about| about.generation)
    }

    fn write<T: Serialize>(
        &self,
        path: &Path,
        generation: u64,
        at: Timestamp,
        body: &T,
    ) -> anyhow::Result<()> {
        let mut bytes = serde_json::to_vec(&Envelope {
            version: VERSION,
            kind: self.kind.clone(),
            policy: self.folder.policy.clone(),
            path: self.policy_path.clone(),
            generation,
            saved_at: at,
            body,
        })
        .with_context(|| format!("writing {}", path.display()))?;
        bytes.push(b'\n');
        if bytes.len() > MAX_BYTES {
            // It could be written and never be read again.
            bail!(
                "writing {}: it has {} bytes and no more than {MAX_BYTES} are read back: shorten the provider's list",
                path.display(),
                bytes.len()
            );
        }
        files::write_atomically(path, &bytes, 0o600)
    }

    /// Makes `state.json.bak` the present `state.json`, by a second name for it where the file
    /// system has those, which costs no writing.
    fn keep_backup(&self) -> anyhow::Result<()> {
        let state = self.folder.state();
        let link = self.folder.path.join(format!("{}backup", files::TEMPORARY_PREFIX));
        let linked =
            forget(&link).and_then(|()| std::fs::hard_link(&state, &link)).and_then(|()| {
                // A rename between two names of one file does nothing and leaves both.
                std::fs::rename(&link, self.folder.backup()).and_then(|()| forget(&link))
            });
        if linked.is_ok() {
            return Ok(());
        }
        let bytes = files::read_bounded(&state, usize::MAX)
            .with_context(|| format!("reading {}", state.display()))?;
        files::write_atomically(&self.folder.backup(), &bytes, 0o600)
    }
}

impl<B: Serialize, J: Serialize> Held<B, J> {
    /// Puts the journal on disk, synced, before the first change.
    ///
    /// # Errors
    /// When it cannot be written, or when an older one waits to be undone: then nothing may begin.
    pub fn begin(&mut self, journal: &J) -> anyhow::Result<()> {
        if self.is_journal_there {
            bail!("beginning a change: the one in {} is not over", self.folder.journal().display());
        }
        let wrote = self.write(&self.folder.journal(), self.generation(), self.opened, journal);
        // A write that failed late, when the folder was synced, may have left the file.
        self.is_journal_there = wrote.is_ok() || self.folder.journal().exists();
        self.is_begun = true;
        wrote
    }

    /// Puts what the change of this run goes on with into its journal, in place of what stood there.
    ///
    /// # Errors
    /// When it cannot be written, or when this run has begun none; the journal then stays as it was.
    pub fn go_on(&mut self, journal: &J) -> anyhow::Result<()> {
        if !self.is_journal_there || self.journal.is_some() {
            bail!("going on with a change: this run has begun none");
        }
        self.write(&self.folder.journal(), self.generation(), self.opened, journal)
    }

    /// Writes the state that came true, and ends what was in flight. The state before it becomes
    /// the backup.
    ///
    /// # Errors
    /// When it cannot be written; the state before it and the journal then stay.
    pub fn commit(&mut self, body: &B, now: &Moment) -> anyhow::Result<()> {
        let generation = self.generation().saturating_add(1);
        if self.is_state_whole {
            self.keep_backup()?;
        }
        self.write(&self.folder.state(), generation, now.at, body)?;
        self.is_state_whole = true;
        self.is_begun = false;
        let path = self.policy_path.clone();
        self.about = Some(About { path, generation, saved_at: now.at });
        self.remove_journal()
    }
}

/// Removes a file that may be gone already.
fn forget(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        Ok(()) | Err(_) => Ok(()),
    }
}
