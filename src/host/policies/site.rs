//! Finds and reads the one file that concerns all policies of a folder.
//!
//! **Invariant:** of two such files neither is believed.

use super::{Unusable, listed, read_text};
use crate::policy::Site;
use std::path::{Path, PathBuf};

/// The site of a folder, and its file; `None`: there is none.
///
/// # Errors
/// What is wrong with it, or that there are several.
pub fn site(folder: &Path) -> Result<Option<(PathBuf, Site)>, Unusable> {
    let mut found = None;
    // A folder that is not there has been told of where its policies were wanted.
    for path in listed(folder).unwrap_or_default() {
        let Ok(text) = read_text(&path) else { continue };
        if !Site::is_meant(&text) {
            continue;
        }
        let unusable = |why: String| Unusable { name: "site".to_owned(), policy: None, why };
        if let Some((other, _)) = &found {
            let other: &PathBuf = other;
            return Err(unusable(format!(
                "{} and {} are both of kind site: keep one of them",
                other.display(),
                path.display()
            )));
        }
        let site = Site::parse(&text)
            .map_err(|fault| unusable(format!("site {}: {fault}", path.display())))?;
        found = Some((path, site));
    }
    Ok(found)
}

/// Whether a file is a site's.
pub(super) fn is_site(path: &Path) -> bool {
    read_text(path).is_ok_and(|text| Site::is_meant(&text))
}
