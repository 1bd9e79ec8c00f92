//! Finds what a proxy core was told: in its files, which are named or found by the running process.
//!
//! **Invariant:** the files are read and never written; the secret among what is read leaves by
//! [`Described`] alone, for the one who asks the core.

use super::files;
use crate::clash::config::{self, Sources};
use crate::clash::discover::Described;
use crate::clash::mihomo::{Overrides, mihomo};
use crate::clash::running::{self, Running};
use crate::clash::sing_box::sing_box;
use crate::observation::{CoreConfig, CoreFault, Outline, Program};
use crate::outcome::harmless;
use crate::setting::Source;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A configuration with a thousand servers has 1 MiB.
const MAX_CONFIG: usize = 16 * 1024 * 1024;
/// The kernel keeps arguments below 2 MiB unless it is told otherwise.
const MAX_ARGUMENTS: usize = 4 * 1024 * 1024;

/// A file's name, for people, and its text.
type Text = (String, String);

/// What a core was told, but for the secret.
///
/// # Errors
/// That there is no such core now, or why it cannot be told.
pub fn outline(source: &Source) -> Result<Outline, CoreFault> {
    Ok(described(source)?.outline)
}

/// What a core was told.
///
/// # Errors
/// That there is no such core now, or why it cannot be told.
pub fn described(source: &Source) -> Result<Described, CoreFault> {
    described_in(&of_source(source)?)
}

/// What the core that runs as a process was told, but for the secret.
///
/// # Errors
/// Why it cannot be told.
pub fn outline_of(pid: u32, program: Program) -> Result<Outline, CoreFault> {
    let words = words(pid).map_err(|why| {
        CoreFault::Strange(format!("the arguments of the core, process {pid}: {why}"))
    })?;
    Ok(described_in(&of_running(&Running { pid, words }, program)?)?.outline)
}

fn described_in(files: &Files) -> Result<Described, CoreFault> {
    let read_in = match files.texts.as_slice() {
        [(one, _)] => one.clone(),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
            names.join(", ")
        }
    };
    let described = match (files.program, files.texts.as_slice()) {
        (Program::Mihomo, [(path, text), ..]) => {
            mihomo(read_in, (path, text), &files.home, &files.over)
        }
        (Program::Mihomo | Program::SingBox | Program::Other, texts) => sing_box(read_in, texts),
    };
    described.map_err(CoreFault::Strange)
}

/// What a core's files say that its API does not, where its process is not seen.
///
/// # Errors
/// Why they do not.
pub fn config(source: &Source) -> Result<CoreConfig, String> {
    let files = of_source(source).map_err(|fault| fault.to_string())?;
    let texts: Vec<String> = files.texts.into_iter().map(|(_, text)| text).collect();
    config::read(files.program, &texts)
}

/// A core's configuration.
struct Files {
    program: Program,
    texts: Vec<Text>,
    /// Where its other relative paths begin.
    home: PathBuf,
    /// What it was told beside them.
    over: Overrides,
}

fn of_source(source: &Source) -> Result<Files, CoreFault> {
    match source {
        Source::File(path) => of_path(path),
        Source::Process(name) => of_process(name.as_deref()),
    }
}

fn of_path(path: &Path) -> Result<Files, CoreFault> {
    let is_yaml = |path: &Path| path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let mut paths = vec![path.to_owned()];
    if path.is_dir() {
        paths = jsons(path).map_err(|why| not_read(path, &why))?;
        if paths.is_empty() {
            paths.push(path.join("config.yaml"));
        }
    }
    let program =
        if paths.iter().any(|path| is_yaml(path)) { Program::Mihomo } else { Program::SingBox };
    let texts = paths.iter().map(|path| read(path, path)).collect::<Result<_, _>>()?;
    let home = paths.first().and_then(|path| path.parent()).unwrap_or(path).to_owned();
    Ok(Files { program, texts, home, over: Overrides::default() })
}

fn of_process(name: Option<&str>) -> Result<Files, CoreFault> {
    let all = running();
    let (process, program) = running::one(&all, name)?;
    of_running(process, program)
}

fn of_running(process: &Running, program: Program) -> Result<Files, CoreFault> {
    let own = Own(process.pid);
    let found = config::sources(program, process.arguments());
    let home = own.environment("HOME").map(PathBuf::from);
    let found = found.at_home(program, home.as_deref());
    let over = match program {
        Program::Mihomo => running::overrides(process.arguments()).map_err(CoreFault::Strange)?,
        Program::SingBox | Program::Other => Overrides::default(),
    };
    let texts = texts(process.pid, &found)?;
    let home = found.home.clone().unwrap_or_default();
    let home = own.working().map_or_else(|| home.clone(), |working| working.join(&home));
    Ok(Files { program, texts, home, over })
}

/// The words that a process was started with, its own name first.
///
/// # Errors
/// What the kernel says against it.
pub(super) fn words(pid: u32) -> io::Result<Vec<String>> {
    let bytes = files::read_bounded(&Own(pid).path("cmdline"), MAX_ARGUMENTS)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.split_terminator('\0').map(str::to_owned).collect())
}

/// The texts of a process's configuration, each with the path that the process means.
///
/// # Errors
/// Which file cannot be read.
pub(super) fn texts(pid: u32, found: &Sources) -> Result<Vec<Text>, CoreFault> {
    let own = Own(pid);
    let working = own.working();
    // Only a path that begins nowhere needs to know where the process works.
    let resolved = |path: &Path| {
        let path = found.resolved(path, working.as_deref().unwrap_or(Path::new("")));
        if path.is_absolute() {
            Ok(path)
        } else {
            Err(CoreFault::Strange(format!(
                "where process {pid} works is not shown to this user, and its configuration is {}: name driver.clash.config in the policy",
                harmless(&path.display().to_string())
            )))
        }
    };
    let mut paths = Vec::new();
    for path in &found.files {
        let path = resolved(path)?;
        paths.push((own.inside(&path), path));
    }
    for folder in &found.folders {
        let folder = resolved(folder)?;
        let inside = jsons(&own.inside(&folder)).map_err(|why| not_read(&folder, &why))?;
        let named = |path: PathBuf| {
            let name = path.file_name().map(|name| folder.join(name));
            (path, name.unwrap_or_default())
        };
        paths.extend(inside.into_iter().map(named));
    }
    paths.iter().map(|(at, path)| read(at, path)).collect()
}

/// What the kernel shows of a process to whoever may see it.
struct Own(u32);

impl Own {
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.0))
    }

    fn working(&self) -> Option<PathBuf> {
        fs::read_link(self.path("cwd")).ok()
    }

    /// A path of the process's, as it is found from here: a core in a container has other files
    /// there.
    fn inside(&self, path: &Path) -> PathBuf {
        let root = self.path("root");
        match (fs::read_link(&root), path.strip_prefix("/")) {
            (Ok(_), Ok(below)) => root.join(below),
            (Ok(_) | Err(_), _) => path.to_owned(),
        }
    }

    fn environment(&self, name: &str) -> Option<String> {
        let bytes = files::read_bounded(&self.path("environ"), MAX_ARGUMENTS).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let value = text.split('\0').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.map(str::to_owned)
    }

    /// Whether it is known to use another network: its loopback is not ours.
    fn is_elsewhere(&self) -> bool {
        let network = |path: &Path| fs::read_link(path).ok();
        let theirs = network(&self.path("ns/net"));
        theirs.is_some() && theirs != network(Path::new("/proc/thread-self/ns/net"))
    }
}

/// All processes of this network, by their words.
fn running() -> Vec<Running> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut all: Vec<Running> = numbers
        .filter_map(|pid| Some(Running { pid, words: words(pid).ok()? }))
        .filter(|process| !process.words.is_empty() && !Own(process.pid).is_elsewhere())
        .collect();
    all.sort_by_key(|process| process.pid);
    all
}

/// The files of a folder that end in `.json`, in their order.
fn jsons(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        all.push(entry?.path());
    }
    all.retain(|path| path.extension().is_some_and(|end| end == "json"));
    all.sort();
    Ok(all)
}

fn read(at: &Path, path: &Path) -> Result<Text, CoreFault> {
    let bytes = files::read_bounded(at, MAX_CONFIG).map_err(|why| not_read(path, &why))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((harmless(&path.display().to_string()), text))
}

/// A file that is not there may be on its way; one that cannot be read stays so.
fn not_read(path: &Path, why: &io::Error) -> CoreFault {
    let what = format!("the core's configuration {}: {why}", harmless(&path.display().to_string()));
    if why.kind() == io::ErrorKind::NotFound {
        return CoreFault::Down(what);
    }
    let hint = if why.kind() == io::ErrorKind::PermissionDenied {
        ": let this user read it, or name url and secret_file in the policy"
    } else {
        ""
    };
    CoreFault::Strange(format!("{what}{hint}"))
}
