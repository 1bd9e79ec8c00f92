//! A zip of wg-quick files, read in memory.
//!
//! **Invariant:** what is unpacked is bounded whatever the zip says of itself, and nothing that it
//! says is ever a path.

use super::entry::{Offer, wg_quick_text};
use super::{MAX_LIST, listing};
use crate::host::apply::MAX_CONFIG;
use crate::policy::provider::Place;
use std::io::{Cursor, Read as _};
use zip::ZipArchive;

/// The most entries of a zip. Folders, pictures and OpenVPN's files come with the tunnels.
const MAX_ENTRIES: u64 = 40_000;

/// So many times its packed size is what an entry may have. Text packs to a tenth at best, and
/// deflate to a thousandth.
const MAX_RATIO: u64 = 100;

/// The fixed part of the record at the end of a zip (APPNOTE 4.3.16), and its longest comment.
const END_RECORD: usize = 22;
const LONGEST_COMMENT: usize = 65_535;

/// Whether `bytes` begin as a zip does, an empty one included.
pub(super) fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// The tunnels of the files in it that end in `.conf`, in whatever folder, by the names of these.
pub(super) fn offers(bytes: &[u8]) -> Result<Vec<Offer>, String> {
    let said = entries_said(bytes).ok_or("the zip is cut off or spoilt: it has no end")?;
    if said > MAX_ENTRIES {
        return Err(format!("the zip has {said} entries, more than {MAX_ENTRIES}"));
    }
    let spoilt = |why: zip::result::ZipError| format!("the zip is spoilt: {why}");
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(spoilt)?;
    let mut names: Vec<(String, usize)> = Vec::new();
    for at in 0..archive.len() {
        // An entry whose header is spoilt has no name to be rejected by.
        let Ok(entry) = archive.by_index_raw(at) else { continue };
        let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        let file = name.rsplit(['/', '\\']).next().unwrap_or_default();
        let is_conf = file.len() > 5
            && file.get(file.len() - 5..).is_some_and(|end| end.eq_ignore_ascii_case(".conf"));
        if is_conf && !file.starts_with('.') && !entry.is_dir() {
            names.push((name, at));
        }
    }
    if names.is_empty() {
        return Err("the zip has no *.conf file: fetch the provider's WireGuard files".to_owned());
    }
    names.sort();
    let mut room = u64::try_from(MAX_LIST).unwrap_or(u64::MAX);
    let mut offers = Vec::new();
    for (place, (name, at)) in names.into_iter().enumerate() {
        let file = name.rsplit(['/', '\\']).next().unwrap_or_default();
        let stem = file.get(..file.len().saturating_sub(5)).unwrap_or_default().to_owned();
        let config = if place < listing::MAX_ENTRIES {
            unpacked(&mut archive, at, &mut room).and_then(|bytes| wg_quick_text(&bytes))
        } else {
            Err(String::new())
        };
        offers.push(Offer { name: stem, place: Place::default(), origin: None, config });
    }
    Ok(offers)
}

/// The bytes of one entry, taken out of the room that is left for all.
fn unpacked(
    archive: &mut ZipArchive<Cursor<&[u8]>>,
    at: usize,
    room: &mut u64,
) -> Result<Vec<u8>, String> {
    let largest = u64::try_from(MAX_CONFIG).unwrap_or(u64::MAX);
    let entry = archive.by_index(at).map_err(|why| format!("cannot be unpacked: {why}"))?;
    let by_ratio = entry.compressed_size().saturating_mul(MAX_RATIO);
    let limit = largest.min(by_ratio).min(*room);
    let mut bytes = Vec::new();
    let read = entry.take(limit.saturating_add(1)).read_to_end(&mut bytes);
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    *room = room.saturating_sub(length);
    if length > limit {
        return Err(if limit == largest {
            format!("longer than {largest} bytes")
        } else if limit == by_ratio {
            format!("unpacks to more than {MAX_RATIO} times its size")
        } else {
            format!("it comes after {MAX_LIST} bytes, which are as many as are unpacked")
        });
    }
    read.map_err(|why| format!("cannot be unpacked: {why}"))?;
    Ok(bytes)
}

/// How many entries the zip says that it has, or nothing when it has no end. Looked at before it
/// is read, because reading it makes room for all of them.
fn entries_said(bytes: &[u8]) -> Option<u64> {
    let from = bytes.len().saturating_sub(END_RECORD + LONGEST_COMMENT);
    let tail = bytes.get(from..)?;
    let at = tail.windows(4).rposition(|four| four == b"PK\x05\x06")?;
    let said: [u8; 2] = tail.get(at + 10..at + 12)?.try_into().ok()?;
    Some(u64::from(u16::from_le_bytes(said)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    #[test]
    fn all_that_is_unpacked_has_to_fit_into_one_room() {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for name in ["a.conf", "b.conf", "c.conf"] {
            zip.start_file(name, SimpleFileOptions::default()).unwrap();
            zip.write_all(&[b'#'; 1_000]).unwrap();
        }
        let bytes = zip.finish().unwrap().into_inner();
        let mut archive = ZipArchive::new(Cursor::new(bytes.as_slice())).unwrap();
        let mut room = 1_500;
        assert_eq!(unpacked(&mut archive, 0, &mut room).unwrap().len(), 1_000);
        for at in [1, 2] {
            let why = unpacked(&mut archive, at, &mut room).unwrap_err();
            assert!(why.starts_with("it comes after"), "{why}");
        }
    }
}
