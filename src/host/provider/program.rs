//! A program of the operator's that prints a list in the common shape.
//!
//! **Invariant:** it runs only when nobody but root can have written it, with nothing of our
//! environment, for a bounded time and output.

use super::entry::{Offer, OwnEnd};
use super::{MAX_LIST, shape};
use crate::host::exec::{self, Call};
use crate::policy::provider::Exec;
use anyhow::{Context as _, bail, ensure};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where it finds programs.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Permissions by which others than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// Only the owner of a file removes it from such a folder.
const STICKY: u32 = 0o1000;

/// What the program offers.
pub(super) fn offers(exec: &Exec) -> anyhow::Result<Vec<Offer>> {
    let own = exec.identity.as_ref().map(|identity| OwnEnd::read(identity, &[])).transpose()?;
    let program = trusted(&exec.path)?;
    let program = program.to_str().context("the program's path is not UTF-8: rename it")?;
    let mut args = vec!["-i", PATH, "LC_ALL=C", program];
    args.extend(exec.args.iter().map(String::as_str));
    let call = Call::new("env", &args, Duration::from_secs(exec.timeout_sec));
    let output = exec::run(&call)?;
    ensure!(
        output.stdout.len() <= MAX_LIST,
        "{} printed more than {MAX_LIST} bytes",
        exec.path.display()
    );
    shape::candidates(&output.stdout, own.as_ref())
        .map_err(|why| anyhow::anyhow!("{}: {why}", exec.path.display()))
}

/// Where the program really is, when nobody but root can have put it there.
fn trusted(path: &Path) -> anyhow::Result<PathBuf> {
    let real = path
        .canonicalize()
        .with_context(|| format!("looking for the program {}", path.display()))?;
    let mend = "chown root and chmod go-w it";
    let seen = std::fs::metadata(&real).with_context(|| format!("reading {}", real.display()))?;
    if !seen.is_file() {
        bail!("{} is not a program", real.display());
    }
    let is_closed = |mode: u32, uid: u32| uid == 0 && mode & OTHERS_WRITE == 0;
    if !is_closed(seen.mode(), seen.uid()) {
        bail!("{} can be written by others than root: {mend}", real.display());
    }
    for folder in real.ancestors().skip(1) {
        let seen = std::fs::metadata(folder)
            .with_context(|| format!("reading the folder {}", folder.display()))?;
        let is_sticky = seen.uid() == 0 && seen.mode() & STICKY != 0;
        if !is_closed(seen.mode(), seen.uid()) && !is_sticky {
            bail!("the folder {} can be written by others than root: {mend}", folder.display());
        }
    }
    Ok(real)
}
