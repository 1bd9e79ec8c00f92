//! Where a run can be cut off, and what a power cut leaves of what it wrote.
//!
//! A run is traced once to learn which calls it makes; each of them is a place to end it, by a signal
//! that nobody can catch, before the call does anything. What it wrote and did not sync is told from
//! the trace. Where nothing but files outlives a power cut, that trace tells of all of them, and the run
//! is not played again for each.
//!
//! **Invariant:** a file that was never synced holds nothing after a power cut, and a name that was never
//! synced is, or is not, what it was before: both are tried.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The calls before which a run is cut: everything that writes, puts in place, makes durable or starts
/// a program, and the wait for one, during which it goes on alone.
const CALLS: [&str; 19] = [
    "write",
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
const MORE: [&str; 4] = ["openat", "close", "execve", "pwrite64"];

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
    let with_data = cut.is_none_or(|cut| cut.loss.of_power());
    if with_data {
        all.extend(MORE);
    }
    if let Some(cut) = cut.filter(|_| !with_data) {
        all = vec![cut.call];
    }
    if cut.is_none() {
        // The first call of a child that is about to become a program. Until this tracer sees one that
        // it is told to look at, it stops a new child at each, and there are 130 more.
        all.push("rt_sigprocmask");
    }
    // A machine of another kind has not all of them.
    let traced: Vec<String> = all.iter().map(|call| format!("?{call}")).collect();
    let mut words: Vec<String> = ["/usr/bin/strace", "-f", "-qq", "-o"].map(str::to_owned).into();
    words.push(record.display().to_string());
    // It sleeps while nothing happens that it is told to look at; but then it follows children, which
    // make no call that is counted, and its signals do not arrive.
    let how = if cut.is_none() { &["--seccomp-bpf"][..] } else { &["-b", "execve"] };
    words.extend(how.iter().map(|word| (*word).to_owned()));
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
    /// The lines at which it began and ended.
    begun: usize,
    ended: usize,
}

/// The calls of the program itself, in the order in which they ended; children's are left out.
fn calls(trace: &str) -> Vec<Called<'_>> {
    let mut all = Vec::new();
    let mut begun: BTreeMap<&str, (&str, String, usize)> = BTreeMap::new();
    let mut children = BTreeSet::new();
    for (at, line) in trace.lines().enumerate() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(resumed) = rest.strip_prefix("<... ") {
            let Some((name, mut before, since)) = begun.remove(pid) else { continue };
            before.push_str(resumed.split_once("resumed>").map_or("", |(_, after)| after));
            all.push(Called { pid, name, rest: before, begun: since, ended: at });
            continue;
        }
        let Some((name, arguments)) = rest.split_once('(') else { continue };
        if name == "execve" && !all.is_empty() {
            children.insert(pid);
        }
        if let Some(half) = arguments.strip_suffix("<unfinished ...>") {
            begun.insert(pid, (name, half.to_owned(), at));
        } else {
            let rest = arguments.to_owned();
            all.push(Called { pid, name, rest, begun: at, ended: at });
        }
    }
    let never = usize::MAX;
    all.extend(begun.into_iter().map(|(pid, (name, rest, at))| Called {
        pid,
        name,
        rest,
        begun: at,
        ended: never,
    }));
    all.retain(|call| !children.contains(call.pid));
    all
}

/// All places at which a run that was traced whole can be cut, in the order of the calls, each with the
/// line at which it begins.
fn places_at(trace: &str) -> Vec<(&'static str, usize, usize)> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut places: Vec<(&'static str, usize, usize)> = Vec::new();
    let mut all = calls(trace);
    all.sort_by_key(|call| call.begun);
    for call in all {
        let Some(known) = CALLS.iter().find(|known| **known == call.name) else { continue };
        let count = counts.entry((call.pid, known)).or_default();
        *count += 1;
        if !places.iter().any(|(name, nth, _)| name == known && nth == count) {
            places.push((known, *count, call.begun));
        }
    }
    places
}

/// The same without the lines.
pub fn places(trace: &str) -> Vec<(&'static str, usize)> {
    places_at(trace).into_iter().map(|(call, nth, _)| (call, nth)).collect()
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

    /// The same, and whether all is there that has to be.
    fn kept(&self, root: &Path, loss: Loss) -> Kept {
        let there = self.left(root, loss);
        let missing = self
            .promised
            .iter()
            .find(|path| path.strip_prefix(root).is_ok_and(|below| !there.contains_key(below)));
        match missing {
            Some(path) => {
                Err(format!("{} was put in place and synced, and is gone", path.display()))
            }
            None => Ok(there),
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
) -> Kept {
    let mut disk = Disk::of(root, before);
    for call in calls(trace) {
        disk.does(root, &call);
    }
    disk.kept(root, loss)
}

/// What a power cut leaves of the files, or what it took that was promised to stay.
pub type Kept = Result<BTreeMap<PathBuf, Vec<u8>>, String>;

/// The same for each place at which a run that was traced whole could have been cut.
pub fn after_each_power_loss(
    root: &Path,
    before: &BTreeMap<PathBuf, Vec<u8>>,
    trace: &str,
) -> BTreeMap<Cut, Arc<Kept>> {
    let mut disk = Disk::of(root, before);
    let mut places = places_at(trace);
    places.sort_by_key(|(_, _, line)| *line);
    let mut all = calls(trace).into_iter().peekable();
    let mut last: [Option<Arc<Kept>>; 2] = [None, None];
    let mut kept = BTreeMap::new();
    for (call, nth, line) in places {
        while let Some(done) = all.next_if(|done| done.ended < line) {
            disk.does(root, &done);
        }
        for (loss, last) in [Loss::Nothing, Loss::Names].into_iter().zip(&mut last) {
            let now = disk.kept(root, loss);
            // Most calls change nothing of it.
            let now = last.take().filter(|last| **last == now).unwrap_or_else(|| Arc::new(now));
            *last = Some(Arc::clone(&now));
            kept.insert(Cut { call, nth, loss }, now);
        }
    }
    kept
}
