//! Single wg-quick files that an operator wrote: the standby tunnel's, or those of a chain's nodes.
//!
//! **Invariant:** a tunnel is made from a copy below the state folder, so that an edit of the file
//! can be taken back like any other change; no copy that nobody needs stays.

use super::entry::{Offer, wg_quick_text};
use super::listing::{Listing, line};
use crate::host::apply::MAX_CONFIG;
use crate::host::files;
use crate::kernel::ConfigRef;
use crate::kernel::read::sha256;
use crate::observation::{ListQuestion, StandbyQuestion, TunnelsQuestion, TunnelsReading};
use crate::policy::provider::{Directory, Place, Provider, Wanted};
use crate::pool::candidate::{Candidate, STANDBY_GENERATION};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// So much of a hash tells one content of a file from another.
const TELLING: usize = 12;

/// A file, and what becomes of its copy.
struct Copied<'a> {
    file: &'a Path,
    /// What the copy's name begins with.
    name: &'a str,
    generation: u32,
    amnezia: bool,
    /// What to do about a file that cannot be read.
    mend: &'static str,
}

impl Copied<'_> {
    /// The tunnel that the file describes. Its copy is put into the pool below `folder`, if there is
    /// one.
    fn candidate(&self, folder: Option<&Path>) -> Result<Candidate, String> {
        let said = |why: String| line(&format!("{}: {why}", self.file.display()));
        let bytes = files::read_bounded(self.file, MAX_CONFIG)
            .map_err(|why| said(format!("{why}: {}", self.mend)))?;
        // A copy of its own for each content: the one before is what an undo needs.
        let hash: String = sha256(&bytes).chars().take(TELLING).collect();
        let list = ListQuestion {
            provider: Provider::Directory(Directory { path: self.file.to_owned() }),
            wanted: Wanted::default(),
            generation: self.generation,
            amnezia: self.amnezia,
            via: None,
            names: BTreeMap::new(),
            known: None,
            have: Arc::default(),
        };
        let mut listing = Listing::new(&list);
        listing.take(Offer {
            name: format!("{}-{hash}", self.name),
            place: Place::default(),
            origin: None,
            config: wg_quick_text(&bytes),
        });
        let (candidates, rejected) =
            listing.finish(folder).map_err(|why| said(format!("{why:#}")))?;
        if let Some(rejected) = rejected.into_iter().next() {
            return Err(said(rejected.why));
        }
        candidates.into_iter().next().ok_or_else(|| said("describes no tunnel".to_owned()))
    }
}

/// The tunnel that the standby's file describes. Its copy is put into the pool below `folder`, the
/// policy's state folder, unless `may_write` is false.
///
/// # Errors
/// Why it describes none, and what to do, in one line.
pub fn standby(
    question: &StandbyQuestion,
    folder: &Path,
    may_write: bool,
) -> Result<Candidate, String> {
    let copied = Copied {
        file: &question.file,
        name: "standby",
        generation: STANDBY_GENERATION,
        amnezia: question.amnezia,
        mend: "put the tunnel's wg-quick file there, or correct bootstrap.wireguard",
    };
    let candidate = copied.candidate(may_write.then_some(folder))?;
    if may_write {
        let kept: Vec<&ConfigRef> =
            std::iter::once(&candidate.config).chain(&question.keep).collect();
        remove_others(folder, STANDBY_GENERATION, &kept);
    }
    let name = question.file.file_stem().unwrap_or_default().to_string_lossy();
    Ok(Candidate { name: line(&name), ..candidate })
}

/// The tunnels that files describe, likewise.
#[must_use]
pub fn tunnels(question: &TunnelsQuestion, folder: &Path, may_write: bool) -> TunnelsReading {
    let described = |(name, file): (&String, &std::path::PathBuf)| {
        let copied = Copied {
            file,
            name,
            generation: question.generation,
            amnezia: question.amnezia,
            mend: "put the node's wg-quick file there, or correct its config in the policy",
        };
        let candidate = copied.candidate(may_write.then_some(folder));
        (name.clone(), candidate.map(|candidate| Candidate { name: name.clone(), ..candidate }))
    };
    let described: BTreeMap<String, Result<Candidate, String>> =
        question.files.iter().map(described).collect();
    if may_write {
        let made = described.values().filter_map(|made| made.as_ref().ok());
        let kept: Vec<&ConfigRef> = made.map(|made| &made.config).chain(&question.keep).collect();
        remove_others(folder, question.generation, &kept);
    }
    TunnelsReading { described }
}

/// Removes copies that nobody needs. One that stays is tried again by the next run.
fn remove_others(folder: &Path, generation: u32, kept: &[&ConfigRef]) {
    let pool = folder.join("pool").join(generation.to_string());
    for entry in std::fs::read_dir(pool).into_iter().flatten().flatten() {
        let is_kept = |config: &&&ConfigRef| entry.file_name().to_str() == Some(&config.file);
        if kept.iter().find(is_kept).is_none() {
            drop(std::fs::remove_file(entry.path()));
        }
    }
}
