//! What a core's own configuration says that its API does not.
//!
//! **Invariant:** only what was understood is told; the files are read and never written.

use super::channels;
use crate::observation::{CoreConfig, Program};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Where a core's configuration is, by the words that it was started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The folder that relative paths begin at, where one is named.
    pub folder: Option<PathBuf>,
    /// Files.
    pub files: Vec<PathBuf>,
    /// Folders of which every `.json` is read (sing-box).
    pub folders: Vec<PathBuf>,
    /// The folder that mihomo keeps everything else in, where one is named.
    pub home: Option<PathBuf>,
}

/// Finds the configuration in a core's arguments, the program's own name left out.
#[must_use]
pub fn sources(program: Program, arguments: &[String]) -> Sources {
    let mut found = Sources::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let (flag, joined) = match (word.split_once('='), word.split_at_checked(2)) {
            (Some((flag, value)), _) => (flag, Some(value.to_owned())),
            // sing-box takes the value of a short flag in the same word, too.
            (None, Some((flag @ ("-c" | "-C" | "-D"), value))) if !value.is_empty() => {
                (flag, Some(value.to_owned()))
            }
            (None, _) => (word.as_str(), None),
        };
        let mut value = || joined.clone().or_else(|| words.next().cloned()).map(PathBuf::from);
        match (program, flag) {
            (Program::SingBox, "-c" | "--config") | (Program::Mihomo, "-f" | "--f") => {
                found.files.extend(value());
            }
            (Program::SingBox, "-C" | "--config-directory") => found.folders.extend(value()),
            (Program::SingBox, "-D" | "--directory") | (Program::Mihomo, "-d" | "--d") => {
                found.folder = value();
            }
            (Program::SingBox | Program::Mihomo | Program::Other, _) => {}
        }
    }
    match program {
        Program::SingBox if found.files.is_empty() && found.folders.is_empty() => {
            found.files.push(PathBuf::from("config.json"));
        }
        Program::Mihomo => {
            // A file that is named begins where the process works, and only the usual one there.
            found.home = found.folder.take();
            if found.files.is_empty() {
                let folder = found.home.clone().unwrap_or_default();
                found.files.push(folder.join("config.yaml"));
            }
        }
        Program::SingBox | Program::Other => {}
    }
    found
}

impl Sources {
    /// The same for a process whose user's home is this: mihomo that is told nothing looks there.
    #[must_use]
    pub fn at_home(self, program: Program, home: Option<&Path>) -> Self {
        match (program, home, self.files.as_slice()) {
            (Program::Mihomo, Some(home), [file])
                if self.home.is_none() && *file == Path::new("config.yaml") =>
            {
                let home = home.join(".config/mihomo");
                Self { files: vec![home.join("config.yaml")], home: Some(home), ..self }
            }
            (_, _, _) => self,
        }
    }

    /// A path as the core's process means it: relative ones begin at its folder.
    #[must_use]
    pub fn resolved(&self, path: &Path, working_folder: &Path) -> PathBuf {
        let folder = self.folder.as_deref().unwrap_or(Path::new(""));
        // A folder that is named as `.` is left out, since the path is shown.
        working_folder.join(folder).join(path).components().collect()
    }
}

/// What a core's files say, taken together.
///
/// # Errors
/// Why a file is not understood.
pub fn read(program: Program, texts: &[String]) -> Result<CoreConfig, String> {
    match program {
        Program::SingBox => {
            let configs = texts.iter().map(|text| {
                serde_json::from_str(&plain(text))
                    .map_err(|why| format!("the core's configuration is not JSON: {why}"))
            });
            let configs: Vec<Value> = configs.collect::<Result<_, _>>()?;
            Ok(sing_box(&configs))
        }
        Program::Mihomo => Ok(mihomo(texts)),
        Program::Other => Err("the program is not known".to_owned()),
    }
}

/// What sing-box's files say, taken together.
fn sing_box(configs: &[Value]) -> CoreConfig {
    let truth = |value: Option<&Value>| value.and_then(Value::as_bool).unwrap_or(false);
    let keeps = |config: &Value| truth(config.pointer("/experimental/cache_file/enabled"));
    let mut all = CoreConfig {
        keeps_choices: configs.iter().any(keeps),
        inbounds: channels::inbounds(configs),
        ..CoreConfig::default()
    };
    for selector in channels::selectors(configs) {
        if let Some(default) = selector.default {
            all.defaults.insert(selector.tag.clone(), default);
        }
        if selector.interrupts {
            all.interrupting.insert(selector.tag);
        }
    }
    all
}

/// mihomo's one word of interest, `profile: { store-selected: … }`, true where it is not written.
fn mihomo(texts: &[String]) -> CoreConfig {
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut words = lines.filter_map(|line| line.split_once("store-selected:"));
    let off = words.any(|(before, after)| {
        !before.contains('#') && after.trim_start().to_ascii_lowercase().starts_with("false")
    });
    CoreConfig { keeps_choices: !off, ..CoreConfig::default() }
}

/// JSON without the comments and the trailing commas that sing-box allows.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut in_text = false;
    while let Some(c) = rest.next() {
        match (in_text, c, rest.peek()) {
            (true, '\\', Some(_)) => {
                kept.push(c);
                kept.extend(rest.next());
            }
            (_, '"', _) => {
                in_text = !in_text;
                kept.push(c);
            }
            (false, '/', Some('/')) | (false, '#', _) => {
                // The line's end stays, so that errors name the right line.
                while rest.peek().is_some_and(|c| *c != '\n') {
                    rest.next();
                }
            }
            (false, '/', Some('*')) => {
                rest.next();
                let mut last = ' ';
                for c in rest.by_ref() {
                    kept.extend((c == '\n').then_some(c));
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            (false, ']' | '}', _) => {
                if kept.trim_end().ends_with(',') {
                    kept.truncate(kept.trim_end().len().saturating_sub(1));
                }
                kept.push(c);
            }
            (true | false, _, _) => kept.push(c),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_configuration_is_where_the_arguments_say() {
        let here = Path::new("/srv");
        let all = |program, text: &str| {
            let found = sources(program, &words(text));
            let of = |paths: &[PathBuf]| -> Vec<String> {
                paths.iter().map(|p| found.resolved(p, here).display().to_string()).collect()
            };
            (of(&found.files), of(&found.folders))
        };
        let files = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(all(Program::SingBox, "run"), (files(&["/srv/config.json"]), vec![]));
        assert_eq!(
            all(Program::SingBox, "-D /var/lib/sb -C /etc/sb run -c extra.json"),
            (files(&["/var/lib/sb/extra.json"]), files(&["/etc/sb"]))
        );
        assert_eq!(
            all(Program::SingBox, "run --config=/etc/a.json"),
            (files(&["/etc/a.json"]), vec![])
        );
        assert_eq!(
            all(Program::Mihomo, "-d /etc/mihomo"),
            (files(&["/etc/mihomo/config.yaml"]), vec![])
        );
        assert_eq!(
            all(Program::Mihomo, "-d /etc/mihomo -f run.yaml"),
            (files(&["/srv/run.yaml"]), vec![])
        );
        assert_eq!(
            all(Program::SingBox, "run -Dlib -C etc -cextra.json"),
            (files(&["/srv/lib/extra.json"]), files(&["/srv/lib/etc"]))
        );
        let told_nothing = sources(Program::Mihomo, &[]);
        assert_eq!(told_nothing.files, [Path::new("config.yaml")]);
        let at_home = told_nothing.at_home(Program::Mihomo, Some(Path::new("/home/u")));
        assert_eq!(at_home.files, [Path::new("/home/u/.config/mihomo/config.yaml")]);
    }

    #[test]
    fn sing_box_says_what_it_begins_with_and_what_it_keeps_comments_or_not() {
        let text = r#"{ // a comment, with "quotes"
            "outbounds": [ # another
                {"type": "selector", "tag": "s", "outbounds": ["a", "b"], "default": "b // no comment",},
                {"type": "selector", "tag": "t", "interrupt_exist_connections": true /* so */ },
            ],
            "experimental": {"cache_file": {"enabled": true}},
        }"#;
        let read = read(Program::SingBox, &[text.to_owned(), "{}".to_owned()]).unwrap();
        assert!(read.keeps_choices);
        assert_eq!(read.defaults["s"], "b // no comment");
        assert!(read.interrupting.contains("t") && !read.interrupting.contains("s"));
        let off = r#"{"experimental": {"cache_file": {"enabled": false, "path": "x"}}}"#;
        for text in ["{}", off] {
            assert!(!super::read(Program::SingBox, &[text.to_owned()]).unwrap().keeps_choices);
        }
    }

    #[test]
    fn what_is_not_understood_is_no_answer() {
        assert!(read(Program::SingBox, &["{".to_owned()]).is_err());
        assert!(read(Program::Other, &["{}".to_owned()]).is_err());
    }

    #[test]
    fn mihomo_keeps_choices_unless_it_is_told_not_to() {
        let keeps = |text: &str| read(Program::Mihomo, &[text.to_owned()]).unwrap().keeps_choices;
        assert!(keeps("mixed-port: 7890\n"));
        assert!(keeps("profile:\n  # store-selected: false\n  store-selected: true\n"));
        assert!(!keeps("profile:\n  store-selected: false # not here\n"));
    }
}
