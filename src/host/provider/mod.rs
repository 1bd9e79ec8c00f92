//! Where candidates come from: one contract, a list.
//!
//! **Invariant:** outside of this folder and of its policy nothing knows one source from another; a
//! fault of one entry costs that entry, and no answer of a source is an error of ours.

mod archive;
mod directory;
mod entry;
mod feed;
mod fetch;
mod gluetun;
mod hidemyname;
mod ivpn;
mod listing;
mod mullvad;
mod nordvpn;
mod program;
mod shape;
mod written;

pub use written::{standby, tunnels};

use crate::host::apply::MAX_CONFIG;
use crate::host::files;
use crate::kernel::read::sha256;
use crate::observation::{ListQuestion, ListReading, Validators};
use crate::policy::provider::{Directory, Provider, Service, Wanted};
use crate::pool::candidate::{Candidate, Rejected, STANDBY_GENERATION};
use anyhow::Context as _;
use entry::{Offer, OwnEnd};
use fetch::Fetch;
use listing::Listing;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::Arc;

/// The most that is read of a list, packed or not. The largest known, of some 8,000 servers with
/// all their properties, has 20 MB.
const MAX_LIST: usize = 32 * 1024 * 1024;

/// What a source offers.
struct Offers {
    entries: Vec<Offer>,
    /// What is said of the list as a whole, as of an entry that cannot be used.
    notes: Vec<Rejected>,
    validators: Option<Validators>,
}

impl From<Vec<Offer>> for Offers {
    fn from(entries: Vec<Offer>) -> Self {
        Self { entries, notes: Vec::new(), validators: None }
    }
}

/// Why there is no new list.
enum NoList {
    /// The one at hand is the newest.
    Unchanged,
    /// There is none to be had.
    Unavailable(Trouble),
}

/// What went wrong with a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Trouble {
    /// What, and what to do.
    why: String,
    /// Whether the source itself answered.
    answered: bool,
    /// How long it wishes not to be asked.
    retry_after_sec: Option<u64>,
    /// Whether it wishes not to be asked at another place either.
    is_final: bool,
}

impl Trouble {
    /// Something that is wrong on this machine or on the way.
    fn here(why: impl Into<String>) -> Self {
        Self { why: why.into(), ..Self::default() }
    }
}

impl From<Trouble> for NoList {
    fn from(trouble: Trouble) -> Self {
        Self::Unavailable(trouble)
    }
}

impl From<anyhow::Error> for NoList {
    fn from(why: anyhow::Error) -> Self {
        Self::Unavailable(Trouble::here(format!("{why:#}")))
    }
}

/// The provider's list. The files of its candidates are put into the pool below `folder`, the
/// policy's state folder, unless `may_write` is false.
#[must_use]
pub fn list(question: &ListQuestion, folder: &Path, may_write: bool) -> ListReading {
    let question = &ListQuestion {
        known: question.known.clone().filter(|_| is_stored(&question.have, folder)),
        ..question.clone()
    };
    unavailable_or(
        offers(question, folder, may_write)
            .and_then(|offers| taken(question, offers, folder, may_write)),
    )
}

/// The list that `body` holds, as [`list`] takes it from the question's source. Nobody is asked and nothing is
/// written, so our own end is told: a base64 key. This is all of a provider that reads what others wrote.
#[must_use]
pub fn understood(question: &ListQuestion, body: &[u8], own_key: &str) -> ListReading {
    let read = || -> Result<ListReading, NoList> {
        let own = OwnEnd::told(own_key, &["10.5.0.2/32"])
            .map_err(|why| Trouble::here(format!("our own end is no key: {why}")))?;
        let entries = match &question.provider {
            Provider::Directory(_) => archive::offers(body),
            Provider::Exec(_) | Provider::Http(_) => feed::read(body, Some(&own)),
            Provider::Mullvad(service) => {
                mullvad::read(body, service.port.map(NonZeroU16::get), &own)
            }
            Provider::Ivpn(service) => ivpn::read(body, service.port.map(NonZeroU16::get), &own),
            Provider::NordVpn(nord) => nordvpn::read(body, nord.port.map(NonZeroU16::get), &own),
            Provider::Gluetun(file) => gluetun::read_servers(body, file, &own),
            Provider::HideMyName(site) => hidemyname::read(body, site),
        };
        taken(question, entries.map_err(Trouble::here)?.into(), Path::new(""), false)
    };
    unavailable_or(read())
}

/// A reading of whatever came of it.
fn unavailable_or(reading: Result<ListReading, NoList>) -> ListReading {
    match reading {
        Ok(reading) => reading,
        Err(NoList::Unchanged) => ListReading::Unchanged,
        Err(NoList::Unavailable(Trouble { why, answered, retry_after_sec, is_final: _ })) => {
            ListReading::Unavailable { why: listing::line(&why), answered, retry_after_sec }
        }
    }
}

/// Whether the files of candidates at hand are there as they were listed. Else that the list did not
/// change would be of no use.
fn is_stored(candidates: &[Candidate], folder: &Path) -> bool {
    candidates.iter().all(|candidate| {
        let path = folder.join(candidate.config.path());
        files::read_bounded(&path, MAX_CONFIG)
            .is_ok_and(|bytes| sha256(&bytes) == candidate.config.sha256)
    })
}

fn offers(question: &ListQuestion, folder: &Path, may_write: bool) -> Result<Offers, NoList> {
    match &question.provider {
        Provider::Directory(directory) => Ok(directory::offers(directory)?.into()),
        Provider::Exec(exec) => Ok(program::offers(exec)?.into()),
        Provider::Http(http) => feed::offers(http, question),
        Provider::Mullvad(service) => service_offers(service, question, mullvad::read),
        Provider::Ivpn(service) => service_offers(service, question, ivpn::read),
        Provider::NordVpn(nord) => nordvpn::offers(nord, question),
        Provider::Gluetun(file) => gluetun::offers(file, question),
        Provider::HideMyName(site) => hidemyname::offers(site, question, folder, may_write),
    }
}

/// Reads a service's list: its text, the port where not the usual one is wished, our own end.
type ReadServers = fn(&[u8], Option<u16>, &OwnEnd) -> Result<Vec<Offer>, String>;

/// What a service with a public list offers.
fn service_offers(
    service: &Service,
    question: &ListQuestion,
    read: ReadServers,
) -> Result<Offers, NoList> {
    let own = OwnEnd::read(&service.identity, &[])?;
    let port = service.port.map(NonZeroU16::get);
    Fetch::new(question, Some(&own))?.list(&[], |_, body| read(body, port, &own))
}

/// Takes what is usable and wanted of the offers.
fn taken(
    question: &ListQuestion,
    Offers { entries, notes, validators }: Offers,
    folder: &Path,
    may_write: bool,
) -> Result<ListReading, NoList> {
    let mut listing = Listing::new(question);
    let offered = entries.len();
    for offer in entries {
        listing.take(offer);
    }
    let answered = !question.provider.is_local();
    if offered == 0 {
        let why = "the list is empty: the provider offers nothing".to_owned();
        return Err(Trouble { why, answered, ..Trouble::default() }.into());
    }
    if listing.is_unwanted() {
        let why = format!("none of its {offered} entries is wanted: correct candidates");
        return Err(Trouble { why, answered, ..Trouble::default() }.into());
    }
    let (candidates, mut rejected) = listing.finish(may_write.then_some(folder))?;
    rejected.extend(notes);
    Ok(ListReading::Listed { candidates: candidates.into(), rejected, validators })
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
        // The standby's copy is nobody's list.
        .filter(|generation| *generation != STANDBY_GENERATION)
        .collect();
    generations.sort_unstable_by(|a, b| b.cmp(a));
    let mut candidates = Vec::new();
    for generation in generations {
        let provider = Provider::Directory(Directory { path: pool.join(generation.to_string()) });
        let question = ListQuestion {
            provider,
            wanted: Wanted::default(),
            generation,
            amnezia: true,
            via: None,
            names: BTreeMap::new(),
            known: None,
            have: Arc::default(),
        };
        if let ListReading::Listed { candidates: found, .. } = list(&question, folder, false) {
            candidates.extend(Arc::unwrap_or_clone(found));
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
        if name != number.to_string() {
            continue;
        }
        let path = entry.path();
        if keep.contains(&number) {
            files::tidy(&path);
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            std::fs::remove_dir_all(&path)
                .with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}
