//! Writes documents into a folder that another program reads: a web server, or a collector of metrics.
//!
//! **Invariant:** a reader gets a whole document, the old one or the new one; one that says the same
//! already is not written again.

use crate::host::files::{read_bounded, write_atomically};
use anyhow::{Context as _, ensure};
use rustix::fs::{Access, access};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Who reads it runs as another user.
const MODE: u32 = 0o644;
/// No document of ours is larger: a thousand host names take half a megabyte.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Makes each document hold its text. `key` is what the site calls the folder.
///
/// # Errors
/// When the folder is missing or cannot be written.
pub fn publish(key: &str, folder: &Path, documents: &[(&str, String)]) -> anyhow::Result<()> {
    ensure!(
        folder.is_dir(),
        "publishing into {}: there is no such folder: make it, or correct {key}",
        folder.display()
    );
    for (name, text) in documents {
        let path = folder.join(name);
        // Others may write this folder: what cannot be read as a file is replaced.
        if read_bounded(&path, MAX_BYTES).is_ok_and(|stands| stands == text.as_bytes()) {
            continue;
        }
        write_atomically(&path, text.as_bytes(), MODE).context("publishing")?;
    }
    Ok(())
}

/// Why the folder is of no use, if it is not, and the command that mends it. `key` is what the site
/// calls it.
#[must_use]
pub fn unusable(key: &str, folder: &Path) -> Option<(String, String)> {
    let shown = folder.display();
    let meta = match std::fs::metadata(folder) {
        Ok(meta) if meta.is_dir() => meta,
        Ok(_) => {
            let why = format!("{key} {shown} is no folder");
            return Some((why, format!("install -d -m 755 {shown}, once the file is away")));
        }
        Err(why) => {
            let why = format!("{key} {shown}: {why}");
            return Some((why, format!("install -d -m 755 {shown}")));
        }
    };
    if let Err(why) = access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        let why = format!("{key} {shown} cannot be written: {why}");
        return Some((why, format!("chown root: {shown}; chmod 755 {shown}")));
    }
    (meta.mode() & 0o005 != 0o005).then(|| {
        let why = format!(
            "{key} {shown} has mode {:03o}, so that no other user reads it",
            meta.mode() & 0o777
        );
        (why, format!("chmod 755 {shown}"))
    })
}
