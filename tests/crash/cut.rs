//! Where a run can be cut off, and what a power cut leaves of what it wrote.
//!
//! A run is traced once to learn which calls it makes; each of them is a place to end it, by a signal
//! that nobody can catch, before the call does anything. What it wrote and did not sync is told from
//! the trace of the run that was cut.
//!
//! **Invariant:** a file that was never synced holds nothing after a power cut, and a name that was never
//! synced is, or is not, what it was before: both are tried.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The calls before which a run is cut: everything that writes, puts in place, makes durable or starts
/// a program, and the wait for one, during which it goes on alone.
const CALLS: [&str; 20] = [
    "write",
    "pwrite64",
    "writev",
    "ftruncate",
    "fsync",
    "fdatasync",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
    "clone",
    "clone3",
    "vfork",
    "wait4",
    "waitid",
];

/// What is traced beside them.
const MORE: [&str; 3] = ["openat", "close", "execve"];

/// What the power takes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// The program is killed; the machine goes on.
    Kill,
    /// It is told to end, as when its service is stopped.
    Stop,
    /// The power goes. What was not synced is as it was before, names and all.
    Nothing,
    /// The power goes. Names are as they were last written, files hold what was synced.
    Names,
}

impl Loss {
    /// Whether the machine is started anew.
    pub fn of_power(self) -> bool {
        match self {
            Self::Kill | Self::Stop => false,
            Self::Nothing | Self::Names => true,
        }
    }
}

/// One end of one run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cut {
    pub call: &'static str,
    /// Which of these calls of one thread, from 1.
    pub nth: usize,
    pub loss: Loss,
}

/// The words that trace a run into a file, and cut it.
pub fn tracer(record: &Path, cut: Option<&Cut>) -> Vec<String> {
    let mut all: Vec<&str> = CALLS.to_vec();
    let with_data = cut.is_some_and(|cut| cut.loss.of_power());
    if with_data || cut.is_none() {
        all.extend(MORE);
    }
    if let Some(cut) = cut.filter(|_| !with_data) {
        all = vec![cut.call];
    }
    // A machine of another kind has not all of them.
    let traced: Vec<String> = all.iter().map(|call| format!("?{call}")).collect();
    let mut words: Vec<String> =
        ["/usr/bin/strace", "-f", "-b", "execve", "-qq", "-o"].map(str::to_owned).into();
    words.push(record.display().to_string());
    words.extend(["-e".to_owned(), format!("trace={}", traced.join(","))]);
    if with_data {
        words.extend(["-xx", "-s", "16777216"].map(str::to_owned));
    }
    if let Some(cut) = cut {
        let signal = if cut.loss == Loss::Stop { "TERM" } else { "KILL" };
        let inject = format!("inject={}:signal={signal}:when={}", cut.call, cut.nth);
        words.extend(["-e".to_owned(), inject]);
    }
    words.push("--".to_owned());
    words
}

/// One call as the trace has it, whole.
struct Called<'a> {
    pid: &'a str,
    name: &'a str,
    rest: String,
}

/// The calls of the program itself, in the order in which they ended; children's are left out.
fn calls(trace: &str) -> Vec<Called<'_>> {
    let mut all = Vec::new();
    let mut begun: BTreeMap<&str, (&str, String)> = BTreeMap::new();
    let mut children = BTreeSet::new();
    for line in trace.lines() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(resumed) = rest.strip_prefix("<... ") {
            let Some((name, mut before)) = begun.remove(pid) else { continue };
            before.push_str(resumed.split_once("resumed>").map_or("", |(_, after)| after));
            all.push(Called { pid, name, rest: before });
            continue;
        }
        let Some((name, arguments)) = rest.split_once('(') else { continue };
        if name == "execve" && !all.is_empty() {
            children.insert(pid);
        }
        match arguments.strip_suffix("<unfinished ...>") {
            Some(half) => drop(begun.insert(pid, (name, half.to_owned()))),
            None => all.push(Called { pid, name, rest: arguments.to_owned() }),
        }
    }
    all.extend(begun.into_iter().map(|(pid, (name, rest))| Called { pid, name, rest }));
    all.retain(|call| !children.contains(call.pid));
    all
}

/// All places at which a run that was traced whole can be cut, in the order of the calls.
pub fn places(trace: &str) -> Vec<(&'static str, usize)> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut places = Vec::new();
    for call in calls(trace) {
        let Some(known) = CALLS.iter().find(|known| **known == call.name) else { continue };
        let count = counts.entry((call.pid, known)).or_default();
        *count += 1;
        if !places.contains(&(*known, *count)) {
            places.push((*known, *count));
        }
    }
    places
}

/// A file or a folder, by its number.
type Inode = usize;

/// What an open file stands for.
enum Open {
    File { inode: Inode, at: usize, append: bool },
    Folder(PathBuf),
}

#[derive(Clone, Default)]
struct Content {
    now: Vec<u8>,
    synced: Vec<u8>,
    is_folder: bool,
}

/// A disk, as it is and as far as it is durable.
#[derive(Default)]
struct Disk {
    inodes: Vec<Content>,
    now: BTreeMap<PathBuf, Inode>,
    synced: BTreeMap<PathBuf, Inode>,
    open: BTreeMap<i64, Open>,
    /// Names that were given and not synced yet, and those that were.
    given: BTreeSet<PathBuf>,
    promised: BTreeSet<PathBuf>,
}

impl Disk {
    /// With these files, all durable.
    fn of(root: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let mut disk = Self::default();
        for (path, bytes) in files {
            let path = root.join(path);
            for folder in path.ancestors().skip(1).take_while(|folder| *folder != root) {
                if !disk.now.contains_key(folder) {
                    let inode = disk.made(Content { is_folder: true, ..Content::default() });
                    disk.now.insert(folder.to_owned(), inode);
                }
            }
            let content = Content { now: bytes.clone(), synced: bytes.clone(), is_folder: false };
            let inode = disk.made(content);
            disk.now.insert(path, inode);
        }
        disk.synced = disk.now.clone();
        disk
    }

    fn made(&mut self, content: Content) -> Inode {
        self.inodes.push(content);
        self.inodes.len() - 1
    }

    /// Does one call of the trace, which concerns paths below `root` alone.
    fn does(&mut self, root: &Path, call: &Called<'_>) {
        // Short calls are padded before their result.
        let Some((arguments, result)) = call.rest.rsplit_once(" = ") else { return };
        let Some(arguments) = arguments.trim_end().strip_suffix(')') else { return };
        let Ok(result) = result.split_whitespace().next().unwrap_or("").parse::<i64>() else {
            return;
        };
        if result < 0 {
            return;
        }
        let texts = texts(arguments);
        let paths: Vec<PathBuf> = texts
            .iter()
            .map(|text| PathBuf::from(String::from_utf8_lossy(text).into_owned()))
            .collect();
        let within = |path: &PathBuf| path.starts_with(root);
        let descriptor =
            || arguments.split(',').next().and_then(|word| word.trim().parse::<i64>().ok());
        match (call.name, paths.as_slice()) {
            ("openat", [path, ..]) => {
                self.open.remove(&result);
                if !within(path) {
                    return;
                }
                if path == root
                    || self.now.get(path).is_some_and(|inode| self.inodes[*inode].is_folder)
                {
                    self.open.insert(result, Open::Folder(path.clone()));
                    return;
                }
                let known = self.now.get(path).copied();
                let inode = known.unwrap_or_else(|| {
                    let inode = self.made(Content::default());
                    self.now.insert(path.clone(), inode);
                    inode
                });
                if arguments.contains("O_TRUNC") {
                    self.inodes[inode].now.clear();
                }
                let append = arguments.contains("O_APPEND");
                self.open.insert(result, Open::File { inode, at: 0, append });
            }
            ("close", _) => drop(descriptor().map(|number| self.open.remove(&number))),
            ("write", _) => {
                let Some(Open::File { inode, at, append }) =
                    descriptor().and_then(|number| self.open.get_mut(&number))
                else {
                    return;
                };
                let content = &mut self.inodes[*inode].now;
                if *append {
                    *at = content.len();
                }
                let written = usize::try_from(result).expect("it is a length");
                let bytes = &texts[0][..written];
                content.resize(content.len().max(*at + written), 0);
                content[*at..*at + written].copy_from_slice(bytes);
                *at += written;
            }
            ("ftruncate", _) => {
                if let Some(Open::File { inode, .. }) = descriptor().and_then(|n| self.open.get(&n))
                {
                    let length = arguments.rsplit(", ").next().and_then(|word| word.parse().ok());
                    self.inodes[*inode].now.resize(length.unwrap_or(0), 0);
                }
            }
            ("fsync" | "fdatasync", _) => match descriptor().and_then(|n| self.open.get(&n)) {
                Some(Open::File { inode, .. }) => {
                    let content = &mut self.inodes[*inode];
                    content.synced.clone_from(&content.now);
                }
                Some(Open::Folder(folder)) => {
                    let inside = |path: &Path| path.parent() == Some(folder);
                    self.synced.retain(|path, _| !inside(path));
                    let entries = self.now.iter().filter(|(path, _)| inside(path));
                    self.synced.extend(entries.map(|(path, inode)| (path.clone(), *inode)));
                    let (kept, given) =
                        std::mem::take(&mut self.given).into_iter().partition(|path| inside(path));
                    self.promised.extend::<BTreeSet<PathBuf>>(kept);
                    self.given = given;
                }
                None => {}
            },
            ("rename" | "renameat" | "renameat2", [from, to]) if within(from) => {
                let inode = self.now.remove(from).expect("what is renamed is known");
                self.now.insert(to.clone(), inode);
                self.promised.remove(from);
                self.given.insert(to.clone());
            }
            ("link" | "linkat", [from, to]) if within(from) => {
                let inode = *self.now.get(from).expect("what is linked is known");
                self.now.insert(to.clone(), inode);
            }
            ("unlink" | "unlinkat" | "rmdir", [path, ..]) => {
                self.now.remove(path);
                self.given.remove(path);
                self.promised.remove(path);
            }
            ("mkdir" | "mkdirat", [path, ..]) if within(path) => {
                let inode = self.made(Content { is_folder: true, ..Content::default() });
                self.now.insert(path.clone(), inode);
            }
            ("pwrite64" | "writev", _) => {
                let known = descriptor().is_some_and(|number| self.open.contains_key(&number));
                assert!(!known, "{} writes a state file: it is not modelled", call.name);
            }
            _ => {}
        }
    }

    /// What is there when the power is back.
    fn left(&self, root: &Path, loss: Loss) -> BTreeMap<PathBuf, Vec<u8>> {
        let names = match loss {
            Loss::Nothing => &self.synced,
            Loss::Names | Loss::Kill | Loss::Stop => &self.now,
        };
        let reachable = |path: &Path| {
            path.ancestors()
                .skip(1)
                .take_while(|folder| *folder != root)
                .all(|folder| names.contains_key(folder))
        };
        names
            .iter()
            .filter(|(path, inode)| !self.inodes[**inode].is_folder && reachable(path))
            .map(|(path, inode)| {
                let path = path.strip_prefix(root).expect("it is below").to_owned();
                (path, self.inodes[*inode].synced.clone())
            })
            .collect()
    }
}

/// The texts among the arguments of a call, in which `-xx` has written each byte as `\xHH`.
fn texts(arguments: &str) -> Vec<Vec<u8>> {
    let odd = arguments.split('"').skip(1).step_by(2);
    odd.map(|text| {
        let bytes = text.split("\\x").skip(1);
        bytes.map(|byte| u8::from_str_radix(byte, 16).expect("two digits")).collect()
    })
    .collect()
}

/// The files below `root` when the power is back after a run that was cut, of which this is the trace
/// with all its data. `before` is what was there before the run.
///
/// # Errors
/// When a file is gone that was put in place, and whose folder was synced.
pub fn after_power_loss(
    root: &Path,
    before: &BTreeMap<PathBuf, Vec<u8>>,
    trace: &str,
    loss: Loss,
) -> Result<BTreeMap<PathBuf, Vec<u8>>, String> {
    let mut disk = Disk::of(root, before);
    for call in calls(trace) {
        disk.does(root, &call);
    }
    let there = disk.left(root, loss);
    let missing = disk
        .promised
        .iter()
        .find(|path| path.strip_prefix(root).is_ok_and(|below| !there.contains_key(below)));
    match missing {
        Some(path) => Err(format!("{} was put in place and synced, and is gone", path.display())),
        None => Ok(there),
    }
}
