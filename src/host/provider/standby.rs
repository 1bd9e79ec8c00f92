//! The file of the standby tunnel, which an operator wrote.
//!
//! **Invariant:** the tunnel is made from a copy below the state folder, so that an edit of the file
//! can be taken back like any other change; no copy that nobody needs stays.

use super::entry::{Offer, wg_quick_text};
use super::listing::{Listing, line};
use crate::host::apply::MAX_CONFIG;
use crate::host::files;
use crate::kernel::ConfigRef;
use crate::kernel::read::sha256;
use crate::observation::{ListQuestion, StandbyQuestion};
use crate::policy::provider::{Directory, Place, Provider, Wanted};
use crate::pool::candidate::{Candidate, STANDBY_GENERATION};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// So much of a hash tells one content of the file from another.
const TELLING: usize = 12;

/// The tunnel that the file describes. Its copy is put into the pool below `folder`, the policy's
/// state folder, unless `may_write` is false.
///
/// # Errors
/// Why it describes none, and what to do, in one line.
pub fn standby(
    question: &StandbyQuestion,
    folder: &Path,
    may_write: bool,
) -> Result<Candidate, String> {
    let said = |why: String| line(&format!("{}: {why}", question.file.display()));
    let bytes = files::read_bounded(&question.file, MAX_CONFIG).map_err(|why| {
        said(format!("{why}: put the tunnel's wg-quick file there, or correct bootstrap.wireguard"))
    })?;
    // A copy of its own for each content: the one before is what an undo needs.
    let hash: String = sha256(&bytes).chars().take(TELLING).collect();
    let list = ListQuestion {
        provider: Provider::Directory(Directory { path: question.file.clone() }),
        wanted: Wanted::default(),
        generation: STANDBY_GENERATION,
        amnezia: question.amnezia,
        via: None,
        names: BTreeMap::new(),
        known: None,
        have: Arc::default(),
    };
    let mut listing = Listing::new(&list);
    listing.take(Offer {
        name: format!("standby-{hash}"),
        place: Place::default(),
        origin: None,
        config: wg_quick_text(&bytes),
    });
    let (candidates, rejected) =
        listing.finish(may_write.then_some(folder)).map_err(|why| said(format!("{why:#}")))?;
    if let Some(rejected) = rejected.into_iter().next() {
        return Err(said(rejected.why));
    }
    let Some(candidate) = candidates.into_iter().next() else {
        return Err(said("describes no tunnel".to_owned()));
    };
    if may_write {
        let kept: Vec<&ConfigRef> =
            std::iter::once(&candidate.config).chain(&question.keep).collect();
        remove_others(folder, &kept);
    }
    let name = question.file.file_stem().unwrap_or_default().to_string_lossy();
    Ok(Candidate { name: line(&name), ..candidate })
}

/// Removes copies that nobody needs. One that stays is tried again by the next run.
fn remove_others(folder: &Path, kept: &[&ConfigRef]) {
    let pool = folder.join("pool").join(STANDBY_GENERATION.to_string());
    for entry in std::fs::read_dir(pool).into_iter().flatten().flatten() {
        let is_kept = |config: &&&ConfigRef| entry.file_name().to_str() == Some(&config.file);
        if kept.iter().find(is_kept).is_none() {
            drop(std::fs::remove_file(entry.path()));
        }
    }
}
