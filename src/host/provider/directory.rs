//! A folder or a zip of wg-quick files.
//!
//! **Invariant:** nothing in the folder is changed, whatever its files are called or hold; a file
//! that is not wholly understood gives no candidate and one reason.

use super::entry::{Offer, wg_quick_text};
use super::listing::MAX_ENTRIES;
use super::{MAX_LIST, archive};
use crate::host::apply::MAX_CONFIG;
use crate::host::files;
use crate::policy::provider::{Directory, Place};
use anyhow::{Context as _, bail};
use std::ffi::OsString;
use std::path::Path;

/// The tunnels that the files describe.
pub(super) fn offers(directory: &Directory) -> anyhow::Result<Vec<Offer>> {
    let source = &directory.path;
    if source.extension().is_some_and(|end| end.eq_ignore_ascii_case("zip")) && !source.is_dir() {
        let mend = "put the provider's zip there, or correct provider.directory.path";
        let reading = || format!("reading the zip {} ({mend})", source.display());
        let bytes = files::read_bounded(source, MAX_LIST).with_context(reading)?;
        return archive::offers(&bytes).map_err(anyhow::Error::msg).with_context(reading);
    }
    let names = names(source)?;
    let offer = |(at, name): (usize, &OsString)| {
        let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
        // The list says of those that come after so many that they do.
        let config = if at < MAX_ENTRIES {
            files::read_bounded(&source.join(name), MAX_CONFIG)
                .map_err(|why| why.to_string())
                .and_then(|bytes| wg_quick_text(&bytes))
        } else {
            Err(String::new())
        };
        Offer { name: stem.into_owned(), place: Place::default(), origin: None, config }
    };
    Ok(names.iter().enumerate().map(offer).collect())
}

/// The names that end in `.conf`, in order. Hidden ones are what editors and copies leave.
fn names(source: &Path) -> anyhow::Result<Vec<OsString>> {
    let mend = "put the provider's *.conf files there, or correct provider.directory.path";
    let reading = || format!("reading the folder {} ({mend})", source.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(source).with_context(reading)? {
        let name = entry.with_context(reading)?.file_name();
        let is_folder = || std::fs::metadata(source.join(&name)).is_ok_and(|seen| seen.is_dir());
        let bytes = name.as_encoded_bytes();
        if bytes.ends_with(b".conf") && !bytes.starts_with(b".") && !is_folder() {
            names.push(name);
        }
    }
    if names.is_empty() {
        bail!("the folder {} has no *.conf file: {mend}", source.display());
    }
    names.sort();
    Ok(names)
}
