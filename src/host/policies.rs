//! Finds and reads policy files.
//!
//! **Invariant:** what is given on is a policy that is valid by itself and overlaps no other of its
//! folder.

mod kept;
mod site;

pub use kept::{keep, last_good};
pub use site::site;

use crate::host::files::read_bounded;
use crate::names::PolicyName;
use crate::policy::{Policy, overlap};
use std::fmt;
use std::path::{Path, PathBuf};

/// Policies are written by hand; ten thousand clients fit into a megabyte.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// A policy and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Its name.
    pub name: PolicyName,
    /// Its file, absolute.
    pub path: PathBuf,
    /// The policy.
    pub policy: Policy,
    /// Its text.
    pub text: String,
}

/// A policy that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// What it was called, for the report.
    pub name: String,
    /// Which policy it would be, as far as that can be told.
    pub policy: Option<(PolicyName, PathBuf)>,
    /// What is wrong and what to do, in one line.
    pub why: String,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Reads the policies that are named, or all of the folder, in their order.
#[must_use]
pub fn find(folder: &Path, wanted: &[String]) -> Vec<Result<Found, Unusable>> {
    if !wanted.is_empty() {
        return wanted
            .iter()
            .map(|wanted| read(folder, wanted))
            .map(|f| alone(folder, f))
            .collect();
    }
    let policies = |paths: Vec<PathBuf>| -> Vec<PathBuf> {
        paths.into_iter().filter(|path| !site::is_site(path)).collect()
    };
    let paths = match listed(folder).map(policies) {
        Ok(paths) if paths.is_empty() => {
            return vec![Err(Unusable {
                name: folder.display().to_string(),
                policy: None,
                why: format!(
                    "policy folder {} holds no policy, *.json: write a policy, or name another folder with --policy-dir",
                    folder.display()
                ),
            })];
        }
        Ok(paths) => paths,
        Err(unusable) => return vec![Err(unusable)],
    };
    paths
        .iter()
        .map(|path| read(folder, &path.display().to_string()))
        .map(|found| alone(folder, found))
        .collect()
}

/// The policy files of a folder, in the order of their names.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, Unusable> {
    let entries = std::fs::read_dir(folder).map_err(|error| Unusable {
        name: folder.display().to_string(),
        policy: None,
        why: format!(
            "policy folder {} cannot be read ({error}): make it, or name another with --policy-dir",
            folder.display()
        ),
    })?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter(|path| !path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.')))
        .collect();
    paths.sort();
    Ok(paths)
}

/// Reads one policy by name or by path.
fn read(folder: &Path, wanted: &str) -> Result<Found, Unusable> {
    let named_file = Path::new(wanted).extension().is_some_and(|extension| extension == "json");
    let path = if wanted.contains('/') || named_file {
        PathBuf::from(wanted)
    } else {
        folder.join(format!("{wanted}.json"))
    };
    let nameless = |why: String| Unusable { name: wanted.to_owned(), policy: None, why };
    let path = std::path::absolute(&path).unwrap_or(path);
    let shown = path.display();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = PolicyName::try_from(stem)
        .map_err(|why| nameless(format!("policy {shown}: {why}: rename the file")))?;
    let unusable = |why: String| Unusable {
        name: wanted.to_owned(),
        policy: Some((name.clone(), path.clone())),
        why,
    };
    let text = read_text(&path).map_err(|why| unusable(format!("policy {shown} {why}")))?;
    let policy =
        Policy::parse(&text).map_err(|fault| unusable(format!("policy {shown}: {fault}")))?;
    Ok(Found { name, path, policy, text })
}

/// Reads a file that a person wrote.
///
/// # Errors
/// What is wrong with it, to follow its name.
pub fn read_text(path: &Path) -> Result<String, String> {
    let bytes = read_bounded(path, MAX_BYTES)
        .map_err(|error| format!("cannot be read ({error}): write it there, or name another"))?;
    String::from_utf8(bytes).map_err(|_| "is not UTF-8: save it as UTF-8".to_owned())
}

/// Refuses a policy that claims what another of the folder claims.
fn alone(folder: &Path, found: Result<Found, Unusable>) -> Result<Found, Unusable> {
    let found = found?;
    for path in listed(folder).unwrap_or_default() {
        if path == found.path {
            continue;
        }
        // An unusable neighbour claims nothing; it is reported when it is stepped itself.
        let Ok(other) = read(folder, &path.display().to_string()) else { continue };
        if other.path == found.path {
            continue;
        }
        if let Some(what) = overlap((&found.name, &found.policy), (&other.name, &other.policy)) {
            return Err(Unusable {
                name: found.name.to_string(),
                policy: Some((found.name.clone(), found.path.clone())),
                why: format!(
                    "policies {} and {} both claim {what}: change one of them",
                    found.path.display(),
                    other.path.display()
                ),
            });
        }
    }
    Ok(found)
}
