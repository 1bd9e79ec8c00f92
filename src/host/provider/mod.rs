//! Where candidates come from: one contract, a list.
//!
//! **Invariant:** outside of this folder nothing knows one source from another.

mod directory;

use crate::observation::{ListQuestion, ListReading};
use crate::policy::pool::{Directory, Provider};
use crate::pool::candidate::Candidate;
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// The provider's list. The files of its candidates are put into the pool below `folder`, the
/// policy's state folder, unless `may_write` is false.
#[must_use]
pub fn list(question: &ListQuestion, folder: &Path, may_write: bool) -> ListReading {
    let read = match &question.provider {
        Provider::Directory(directory) => {
            directory::list(directory, question, may_write.then_some(folder))
        }
    };
    read.unwrap_or_else(|why| ListReading::Unavailable { why: format!("{why:#}") })
}

/// The candidates whose files are still in the pool below `folder`, the newest list first. What
/// cannot be read is left out: this serves to recognise tunnels after the state was lost.
#[must_use]
pub fn stored(folder: &Path) -> Vec<Candidate> {
    let pool = folder.join("pool");
    let mut generations: Vec<u32> = std::fs::read_dir(&pool)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    generations.sort_unstable_by(|a, b| b.cmp(a));
    let mut candidates = Vec::new();
    for generation in generations {
        let path = pool.join(generation.to_string());
        let source = Directory { path };
        let question = ListQuestion {
            provider: Provider::Directory(source.clone()),
            generation,
            amnezia: true,
        };
        if let Ok(ListReading::Listed { candidates: found, .. }) =
            directory::list(&source, &question, None)
        {
            candidates.extend(found);
        }
    }
    candidates
}

/// Removes the pool's folders below `folder` but those of `keep`. What has another name than a
/// number is nobody's list and stays.
///
/// # Errors
/// When a folder cannot be read or removed.
pub fn forget(folder: &Path, keep: &BTreeSet<u32>) -> anyhow::Result<()> {
    let pool = folder.join("pool");
    let entries = match std::fs::read_dir(&pool) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(why).with_context(|| format!("reading {}", pool.display())),
    };
    for entry in entries {
        let entry = entry.with_context(|| format!("reading {}", pool.display()))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| Some((name, name.parse::<u32>().ok()?)));
        // `+7` and `007` are numbers to the parser and no names of ours.
        let Some((name, number)) = number else { continue };
        if name != number.to_string() || keep.contains(&number) {
            continue;
        }
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            std::fs::remove_dir_all(&path)
                .with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}
