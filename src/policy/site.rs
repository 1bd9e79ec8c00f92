//! What concerns all policies of a folder: where they publish what they show, and who is told.
//!
//! **Invariant:** a site is no policy: nothing is stepped by it, and without it nothing is published.

use super::PolicyFault;
use super::notify::Sink;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The tag of a site.
pub const KIND: &str = "site";

/// What concerns all policies.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// The tag, already read.
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "$schema", default)]
    _schema: Option<String>,
    #[serde(rename = "description", default)]
    _description: Option<String>,
    /// The status page: one file of HTML, for any web server.
    #[serde(default)]
    pub page: Option<PathBuf>,
    /// The folder of `failover.json` and `uptime.json`, for any web server.
    #[serde(default)]
    pub publish_dir: Option<PathBuf>,
    /// The folder of `egressctl.prom`, from which Prometheus' node exporter takes it.
    #[serde(default)]
    pub textfile_dir: Option<PathBuf>,
    /// Who is told of transitions.
    #[serde(default)]
    pub notify: Vec<Sink>,
}

/// The tag alone.
#[derive(Deserialize)]
struct Tag {
    kind: serde_json::Value,
}

impl Site {
    /// Whether a text is one of a site, be it a sound one or not.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        // Most files are policies, and some of those are large.
        text.contains(KIND) && serde_json::from_str::<Tag>(text).is_ok_and(|tag| tag.kind == KIND)
    }

    /// Reads a site from the text of its file.
    ///
    /// # Errors
    /// What is wrong with it, with line and column where the text shows them.
    pub fn parse(text: &str) -> Result<Self, PolicyFault> {
        let site: Self = serde_json::from_str(text).map_err(|e| PolicyFault::from_json(&e))?;
        let folders = [
            ("publish_dir", &site.publish_dir),
            ("textfile_dir", &site.textfile_dir),
            ("page", &site.page),
        ];
        for (key, folder) in folders {
            absolute(key, folder.as_deref())?;
        }
        for (place, sink) in site.notify.iter().enumerate() {
            sink.validate(&format!("notify[{place}]"))?;
        }
        Ok(site)
    }
}

/// Refuses a path that means another place for each who steps.
pub(super) fn absolute(key: &str, path: Option<&Path>) -> Result<(), PolicyFault> {
    match path {
        Some(path) if !path.is_absolute() => Err(PolicyFault::new(format!(
            "{key} \"{}\" is not absolute: a timer has no folder of its own",
            path.display()
        ))),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_told_from_a_policy_and_says_what_is_wrong_with_it() {
        let whole =
            r#"{"kind": "site", "$schema": "s", "description": "d", "publish_dir": "/srv/www"}"#;
        assert!(Site::is_meant(whole) && Site::is_meant(r#"{"kind": "site", "x": 1}"#));
        assert!(
            !Site::is_meant(r#"{"kind": "dns"}"#) && !Site::is_meant("{") && !Site::is_meant("{}")
        );
        let site = Site::parse(whole).unwrap();
        assert_eq!(site.publish_dir, Some(PathBuf::from("/srv/www")));
        assert_eq!(Site::parse(r#"{"kind": "site"}"#).unwrap().publish_dir, None);
        for (text, said) in [
            (
                "{\"kind\": \"site\",\n \"publish_dirs\": 1}",
                "unknown key \"publish_dirs\" at line 2 column 15; did you mean \"publish_dir\"?",
            ),
            (r#"{"kind": "site", "publish_dir": "www"}"#, "is not absolute"),
            (
                r#"{"kind": "site", "textfile_dir": "prom"}"#,
                "textfile_dir \"prom\" is not absolute",
            ),
            (r#"{"kind": "site", "notify": [{"exec": []}]}"#, "notify[0].exec names no program"),
            (
                r#"{"kind": "site", "page": "www/index.html"}"#,
                "page \"www/index.html\" is not absolute",
            ),
            (r#"{"kind": "site", "publish_dir": 3}"#, "invalid type"),
        ] {
            let fault = Site::parse(text).unwrap_err().to_string();
            assert!(fault.contains(said), "{fault}");
        }
    }
}
