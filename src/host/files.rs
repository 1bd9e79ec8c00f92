//! Reads files with a bound and writes them whole.
//!
//! **Invariant:** a file written here holds either all of its old bytes or all of its new ones at
//! every instant, power cuts included.

use anyhow::{Context as _, bail, ensure};
use rustix::fs::OFlags;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

/// What names of temporary files begin with, so that leftovers of a killed run can be told apart.
pub const TEMPORARY_PREFIX: &str = ".egressctl-";

/// The most that is read back of a file of lines: far more than 1,000 lines of history take, and
/// little enough for a router.
const MAX_LINES_BYTES: u64 = 4 * 1024 * 1024;

/// Replaces `path` by `bytes` with permissions `mode` (such as `0o600`), or leaves it as it was.
///
/// # Errors
/// When the folder is missing or not writable, or the disk is full.
pub fn write_atomically(path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let folder = folder_of(path)?;
    let write = || -> anyhow::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(TEMPORARY_PREFIX)
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder)?;
        file.write_all(bytes)?;
        // The umask may have taken bits away when the file was made.
        file.as_file().set_permissions(Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        let length = file.as_file().metadata()?.len();
        ensure!(
            u64::try_from(bytes.len()).is_ok_and(|wished| wished == length),
            "{length} of {} bytes arrived",
            bytes.len()
        );
        file.persist(path).map_err(|failed| failed.error)?;
        sync_folder(folder)?;
        Ok(())
    };
    write().with_context(|| format!("writing {}", path.display()))
}

/// Makes a file hold `bytes`, or be gone. One that is as wished already is not written again.
///
/// # Errors
/// When it cannot be read, written or removed.
pub fn keep_in_step(path: &Path, bytes: Option<&[u8]>, mode: u32) -> anyhow::Result<()> {
    let present = match std::fs::read(path) {
        Ok(present) => Some(present),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    match (present, bytes) {
        (None, None) => Ok(()),
        (Some(present), Some(bytes)) if present == bytes => Ok(()),
        (_, Some(bytes)) => write_atomically(path, bytes, mode),
        (Some(_), None) => {
            std::fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
            let folder = path.parent().unwrap_or(Path::new("."));
            sync_folder(folder).with_context(|| format!("syncing {}", folder.display()))
        }
    }
}

/// Makes renames and removals in `folder` durable.
///
/// # Errors
/// When the folder cannot be opened or the disk reports an error.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Reads the whole of `path`, which must be a regular file of at most `max` bytes.
///
/// # Errors
/// `NotFound` when there is no such file; `FileTooLarge` above `max`; `InvalidInput` for anything
/// but a regular file, which could block for ever; else what the kernel said.
pub fn read_bounded(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let limit = u64::try_from(max).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > max {
        let told = format!("longer than {max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, told));
    }
    Ok(bytes)
}

/// The text of a file of ours; `None` when there is none.
///
/// # Errors
/// When it is there and cannot be read.
pub fn text_if_there(path: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why).with_context(|| format!("reading {}", path.display())),
    }
}

/// Adds `line` to the file at `path`, of which only the last `keep` lines are kept. A last line
/// that a power cut tore is closed first, so it spoils no other. Line ends inside `line` become
/// spaces.
///
/// # Errors
/// When the file cannot be read or written.
pub fn append_line_bounded(path: &Path, line: &str, keep: usize) -> anyhow::Result<()> {
    let before = read_tail(path).with_context(|| format!("reading {}", path.display()))?;
    let line: String = line
        .trim_end()
        .chars()
        .map(|c| if crate::outcome::is_unfit(c) { ' ' } else { c })
        .chain(['\n'])
        .collect();
    let torn = before.last().is_some_and(|&last| last != b'\n');
    let lines = before.split(|&b| b == b'\n').filter(|l| !l.is_empty()).count();
    // A link is no file of ours: another one takes its place, and where it leads nothing is added.
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|seen| seen.is_symlink());
    if lines < keep && !is_link {
        let mut addition = if torn { vec![b'\n'] } else { Vec::new() };
        addition.extend_from_slice(line.as_bytes());
        let append = || -> io::Result<()> {
            let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
            file.write_all(&addition)?;
            file.sync_data()
        };
        return append().with_context(|| format!("appending to {}", path.display()));
    }
    let surplus = (lines + 1).saturating_sub(keep);
    let mut whole = Vec::with_capacity(before.len() + line.len());
    for kept in before.split(|&b| b == b'\n').filter(|l| !l.is_empty()).skip(surplus) {
        whole.extend_from_slice(kept);
        whole.push(b'\n');
    }
    whole.extend_from_slice(line.as_bytes());
    write_atomically(path, &whole, 0o600)
}

/// The last `most` lines of the file at `path`, oldest first; none when there is no such file.
///
/// # Errors
/// When the file cannot be read.
pub fn last_lines(path: &Path, most: usize) -> io::Result<Vec<String>> {
    let bytes = read_tail(path)?;
    let mut lines: Vec<String> = bytes
        .split(|&b| b == b'\n')
        .filter(|line| !line.is_empty())
        .rev()
        .take(most)
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    lines.reverse();
    Ok(lines)
}

/// Makes sure that `path` is a folder of this user alone: made 0700 with its parents when missing,
/// narrowed to 0700 when wider.
///
/// # Errors
/// When it is a symbolic link, which could lead what is written here anywhere, or no folder, or
/// belongs to somebody else, or cannot be made.
pub fn private_folder(path: &Path) -> anyhow::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    let seen = match (std::fs::symlink_metadata(path), made) {
        (Ok(seen), _) => seen,
        (Err(_), Err(why)) | (Err(why), Ok(())) => {
            return Err(why).with_context(|| {
                format!("making the folder {}: it must be writable", path.display())
            });
        }
    };
    if seen.is_symlink() {
        bail!("{} is a symbolic link: a real folder is needed", path.display());
    }
    ensure!(seen.is_dir(), "{} is not a folder", path.display());
    let me = rustix::process::geteuid().as_raw();
    ensure!(
        seen.uid() == me,
        "{} belongs to user {}, not to {me}: give it back or run as its owner",
        path.display(),
        seen.uid()
    );
    if seen.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, Permissions::from_mode(0o700))
            .with_context(|| format!("narrowing the folder {} to 0700", path.display()))?;
    }
    // What is synced in a folder is lost with the folder's own name.
    for folder in missing {
        match sync_folder(folder_of(folder)?) {
            Err(why) if why.kind() != io::ErrorKind::PermissionDenied => {
                return Err(why)
                    .with_context(|| format!("syncing the folder of {}", path.display()));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Removes what killed runs left half written in a folder.
pub fn tidy(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX) {
            // A leftover that cannot be removed takes room and does no other harm.
            std::fs::remove_file(entry.path()).unwrap_or_default();
        }
    }
}

/// Renames `path` to `NAME.bad-SUFFIX` beside it, or `NAME.bad-SUFFIX-2` and so on, never over
/// another file. Says where it went.
///
/// # Errors
/// When the folder is not writable.
pub fn keep_aside(path: &Path, suffix: &str) -> anyhow::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for attempt in 1..=1_000_u32 {
        let more = if attempt == 1 { String::new() } else { format!("-{attempt}") };
        let aside = path.with_file_name(format!("{name}.bad-{suffix}{more}"));
        if std::fs::symlink_metadata(&aside).is_ok() {
            continue;
        }
        std::fs::rename(path, &aside)
            .with_context(|| format!("keeping {} aside", path.display()))?;
        sync_folder(folder_of(path)?)
            .with_context(|| format!("keeping {} aside", path.display()))?;
        return Ok(aside);
    }
    bail!("keeping {} aside: a thousand such files are there already", path.display())
}

/// The folder that `path` lies in.
fn folder_of(path: &Path) -> anyhow::Result<&Path> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Ok(Path::new(".")),
        Some(parent) => Ok(parent),
        None => bail!("{} has no folder", path.display()),
    }
}

/// Opens a regular file without waiting for a writer, as a fifo would make us.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// The last bytes of a file of lines, empty when it is missing.
fn read_tail(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = match open_regular(path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(why),
    };
    let length = file.metadata()?.len();
    let cut = length > MAX_LINES_BYTES;
    if cut {
        file.seek(SeekFrom::Start(length - MAX_LINES_BYTES))?;
    }
    let mut bytes = Vec::new();
    file.take(MAX_LINES_BYTES).read_to_end(&mut bytes)?;
    if cut {
        // The first line of a tail is most likely the end of one.
        let end = bytes.iter().position(|&b| b == b'\n').map_or(bytes.len(), |at| at + 1);
        bytes.drain(..end);
    }
    Ok(bytes)
}
