//! Secrets in files: tokens, codes, passwords, keys.
//!
//! **Invariant:** what goes wrong is told with the file's name and without a byte of it.

use super::files;
use anyhow::{Context as _, bail};
use std::path::Path;

/// A key's file has 45 bytes, a token's some hundred.
const MAX_SECRET: usize = 16 * 1024;

/// The only line of a file that holds a secret.
///
/// # Errors
/// When it cannot be read, or is empty, or is more than one line.
pub fn secret(path: &Path) -> anyhow::Result<String> {
    let bytes = files::read_bounded(path, MAX_SECRET)
        .with_context(|| format!("reading the secret in {}", path.display()))?;
    let text = String::from_utf8(bytes).unwrap_or_default().trim().to_owned();
    if text.is_empty() || text.chars().any(|c| !c.is_ascii_graphic()) {
        bail!("{} does not hold one secret on one line: write it there anew", path.display());
    }
    Ok(text)
}
