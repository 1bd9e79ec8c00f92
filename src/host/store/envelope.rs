//! The frame around a state and around a journal on disk: which version, which policy, when.
//!
//! **Invariant:** the version and the kind are judged before anything else of a file is, so that
//! a file of a newer program is told apart from a broken one.

use crate::host::files::read_bounded;
use crate::names::PolicyName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io;
use std::path::{Path, PathBuf};

/// The version of the format that this program writes.
pub const VERSION: u64 = 1;

/// The most that is written and read of a state or a journal: a pool of a thousand endpoints takes a fortieth.
pub(super) const MAX_BYTES: usize = 32 * 1024 * 1024;

/// A state or a journal as it lies on disk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Envelope<T> {
    /// The version of the format.
    pub(super) version: u64,
    /// The kind of the policy.
    pub(super) kind: String,
    /// The policy's name.
    pub(super) policy: PolicyName,
    /// The policy file.
    pub(super) path: PathBuf,
    /// How many states were committed before and with this one; a journal carries the number of
    /// the state that it began from.
    pub(super) generation: u64,
    /// When it was written, by the wall clock.
    pub(super) saved_at: Timestamp,
    /// What it is all about.
    pub(super) body: T,
}

/// The part that every version has.
#[derive(Deserialize)]
struct Header {
    version: u64,
    kind: String,
}

/// What was found in place of an envelope.
pub(super) enum Found<T> {
    /// No file.
    Missing,
    /// A whole file of ours.
    Whole(Envelope<T>),
    /// A file of a newer program.
    Newer(u64),
    /// Something else, and why.
    Bad(String),
}

/// Reads the file at `path` as an envelope of this kind and policy.
///
/// # Errors
/// When the kernel refuses to read it, which says nothing about what it holds.
pub(super) fn read<T: DeserializeOwned>(
    path: &Path,
    kind: &str,
    policy: &PolicyName,
) -> io::Result<Found<T>> {
    match read_bounded(path, MAX_BYTES) {
        Ok(bytes) => Ok(parse(&bytes, kind, policy)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Found::Missing),
        Err(why)
            if matches!(why.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput) =>
        {
            Ok(Found::Bad(format!("it is {why}")))
        }
        Err(why) => Err(why),
    }
}

/// Judges the header, then the whole.
fn parse<T: DeserializeOwned>(bytes: &[u8], kind: &str, policy: &PolicyName) -> Found<T> {
    if bytes.is_empty() {
        return Found::Bad("it is empty".to_owned());
    }
    let header: Header = match serde_json::from_slice(bytes) {
        Ok(header) => header,
        Err(why) => return Found::Bad(why.to_string()),
    };
    if header.version > VERSION {
        return Found::Newer(header.version);
    }
    if header.kind != kind {
        return Found::Bad(format!("it is of kind {:?}, not {kind:?}", header.kind));
    }
    let whole: Result<Envelope<T>, String> = if header.version == VERSION {
        serde_json::from_slice(bytes).map_err(|why| why.to_string())
    } else {
        serde_json::from_slice(bytes)
            .map_err(|why| why.to_string())
            .and_then(|value| migrate(header.version, value))
            .and_then(|value| serde_json::from_value(value).map_err(|why| why.to_string()))
    };
    match whole {
        Ok(envelope) if envelope.policy != *policy => {
            Found::Bad(format!("it is of policy {}, not {policy}", envelope.policy))
        }
        Ok(envelope) => Found::Whole(envelope),
        Err(why) => Found::Bad(why),
    }
}

/// Brings a file of an older version to the present one. The day version 2 comes, version 1 is
/// brought there here, as plain JSON and with no live type, so that it stays right for ever.
fn migrate(version: u64, _value: serde_json::Value) -> Result<serde_json::Value, String> {
    Err(format!("there never was a format version {version}"))
}
