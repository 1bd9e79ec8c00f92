//! Running proxy cores, told from other processes by the words that they were started with.
//!
//! **Invariant:** where several could be meant none is taken.

use super::discover::Secret;
use super::mihomo::Overrides;
use crate::observation::{CoreFault, Program};
use crate::outcome::harmless;

/// A process, as `/proc` shows it to whoever looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its number.
    pub pid: u32,
    /// The words that it was started with, its own name first.
    pub words: Vec<String>,
}

/// Names that cores are known by. mihomo was Clash before, and Clash Verge brings its own copy.
const SING_BOX: [&str; 1] = ["sing-box"];
const MIHOMO: [&str; 6] =
    ["mihomo", "clash", "clash-meta", "clash.meta", "verge-mihomo", "verge-mihomo-alpha"];

impl Running {
    /// The name of the program that it was started as.
    #[must_use]
    pub fn name(&self) -> &str {
        let first = self.words.first().map(String::as_str).unwrap_or_default();
        first.rsplit('/').next().unwrap_or_default()
    }

    /// Its arguments.
    #[must_use]
    pub fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// Which core it is, by the name `wanted` or by any that cores have. `None`: it is none, or one
    /// that only says its version or tests a file.
    #[must_use]
    pub fn program(&self, wanted: Option<&str>) -> Option<Program> {
        let name = self.name();
        let says = |word: &str| self.arguments().iter().any(|argument| argument == word);
        let is_sing_box = match wanted {
            Some(wanted) if wanted != name => return None,
            Some(_) => name.contains("sing-box") || (!name.contains("mihomo") && says("run")),
            None if SING_BOX.contains(&name) => true,
            None if MIHOMO.contains(&name) || name.starts_with("mihomo-linux-") => false,
            None => return None,
        };
        if is_sing_box {
            says("run").then_some(Program::SingBox)
        } else {
            (!says("-t") && !says("-v")).then_some(Program::Mihomo)
        }
    }
}

/// The one core among these processes.
///
/// # Errors
/// That there is none, or which there are.
pub fn one<'a>(
    all: &'a [Running],
    wanted: Option<&str>,
) -> Result<(&'a Running, Program), CoreFault> {
    let known = |process: &'a Running| Some((process, process.program(wanted)?));
    let cores: Vec<(&Running, Program)> = all.iter().filter_map(known).collect();
    match cores.as_slice() {
        [one] => Ok(*one),
        [] => Err(CoreFault::Down(match wanted {
            Some(name) => format!("no process {} runs", harmless(name)),
            None => "no process of sing-box or mihomo runs".to_owned(),
        })),
        several => {
            let one = |(process, _): &(&Running, Program)| {
                format!("{} as process {}", harmless(process.name()), process.pid)
            };
            let list: Vec<String> = several.iter().map(one).collect();
            Err(CoreFault::Strange(format!(
                "several cores run ({}): name driver.clash.config or driver.clash.process in the policy",
                list.join(", ")
            )))
        }
    }
}

/// What mihomo's arguments say over its file.
///
/// # Errors
/// That no request can carry the secret.
pub fn overrides(arguments: &[String]) -> Result<Overrides, String> {
    let mut over = Overrides::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let (flag, joined) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let mut value = || joined.clone().or_else(|| words.next().cloned());
        // Go's flags take one dash or two.
        match flag.strip_prefix('-').map(|flag| flag.strip_prefix('-').unwrap_or(flag)) {
            Some("ext-ctl") => over.controller = value(),
            Some("ext-ctl-unix") => over.controller_unix = value(),
            Some("secret") => over.secret = Secret::new(&value().unwrap_or_default())?,
            Some(_) | None => {}
        }
    }
    Ok(over)
}
