//! Who is told of transitions: programs, and services in the network.
//!
//! **Invariant:** what is secret stands in files of its own, named here by absolute paths.

use super::PolicyFault;
use super::site::absolute;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One who is told.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sink {
    /// A program and its arguments.
    Exec(Vec<String>),
    /// A service.
    Webhook(Webhook),
}

/// A service that takes a message over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Holds the address to which messages are sent, which is often the whole secret.
    pub url_file: PathBuf,
    /// What the service understands.
    pub template: Template,
    /// Holds the token, where it is not in the address.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// The chat of Telegram.
    #[serde(default)]
    pub chat: Option<String>,
    /// Certificates by one of which the service is known; the usual ones where it is not given.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How long one message may take.
    #[serde(default = "usual_timeout")]
    pub timeout_sec: u64,
}

/// A message is small, and the next step waits for it.
fn usual_timeout() -> u64 {
    5
}

/// What a service understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Template {
    /// ntfy.sh or one's own ntfy.
    Ntfy,
    /// A bot of Telegram.
    Telegram,
    /// Slack, Mattermost, and others that take its messages.
    Slack,
    /// One's own Gotify.
    Gotify,
    /// The object that `step --json` prints, for what reads that.
    Json,
}

impl Template {
    /// As policies name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ntfy => "ntfy",
            Self::Telegram => "telegram",
            Self::Slack => "slack",
            Self::Gotify => "gotify",
            Self::Json => "json",
        }
    }

    /// Whether its reader takes a token of its own; of others the address is the whole secret.
    fn takes_token(self) -> bool {
        match self {
            Self::Ntfy | Self::Gotify | Self::Json => true,
            Self::Telegram | Self::Slack => false,
        }
    }
}

impl Webhook {
    /// How long one message may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_sec)
    }
}

impl Sink {
    /// Refuses what could tell nobody. `place` is how the fault calls it.
    pub(super) fn validate(&self, place: &str) -> Result<(), PolicyFault> {
        let fault = |text: String| Err(PolicyFault::new(text));
        match self {
            Self::Exec(words) => match words.first() {
                None => {
                    fault(format!("{place}.exec names no program: write its absolute path first"))
                }
                Some(program) => absolute(&format!("{place}.exec"), Some(Path::new(program))),
            },
            Self::Webhook(hook) => {
                let place = format!("{place}.webhook");
                absolute(&format!("{place}.url_file"), Some(&hook.url_file))?;
                absolute(&format!("{place}.token_file"), hook.token_file.as_deref())?;
                absolute(&format!("{place}.ca_file"), hook.ca_file.as_deref())?;
                if hook.token_file.is_some() && !hook.template.takes_token() {
                    return fault(format!(
                        "{place}.token_file: {} takes no token beside its address: remove it",
                        hook.template.as_str()
                    ));
                }
                if !(1..=20).contains(&hook.timeout_sec) {
                    return fault(format!(
                        "{place}.timeout_sec {}: write 1 to 20, for the next step waits so long",
                        hook.timeout_sec
                    ));
                }
                let is_telegram = hook.template == Template::Telegram;
                match &hook.chat {
                    None if is_telegram => fault(format!(
                        "{place}.chat is missing: name the chat that the bot writes to"
                    )),
                    Some(_) if !is_telegram => fault(format!(
                        "{place}.chat is for telegram, not for {}: remove it",
                        hook.template.as_str()
                    )),
                    Some(_) | None => Ok(()),
                }
            }
        }
    }
}

/// How failures call it: by the program, or by the file of the address.
impl fmt::Display for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exec(words) => write!(f, "exec {}", words.first().map_or("", String::as_str)),
            Self::Webhook(hook) => {
                write!(f, "{} webhook of {}", hook.template.as_str(), hook.url_file.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(sink: &str) -> String {
        let sink: Sink = serde_json::from_str(sink).unwrap();
        sink.validate("notify[0]").unwrap_err().to_string()
    }

    #[test]
    fn what_could_tell_nobody_is_refused() {
        assert!(fault(r#"{"exec": ["tell"]}"#).contains("\"tell\" is not absolute"));
        let hook = |more: &str| fault(&format!(r#"{{"webhook": {{"url_file": "/u", {more}}}}}"#));
        assert!(hook(r#""template": "telegram""#).contains("webhook.chat is missing"));
        assert!(hook(r#""template": "slack", "chat": "1""#).contains("is for telegram"));
        assert!(hook(r#""template": "slack", "timeout_sec": 0"#).contains("write 1 to 20"));
        assert!(hook(r#""template": "ntfy", "token_file": "t""#).contains("token_file \"t\""));
        for service in ["slack", "telegram"] {
            let told =
                hook(&format!(r#""template": "{service}", "chat": null, "token_file": "/t""#));
            let expected = format!("webhook.token_file: {service} takes no token");
            assert!(told.contains(&expected), "{told}");
        }
        for service in ["ntfy", "gotify", "json"] {
            let good = format!(
                r#"{{"webhook": {{"url_file": "/u", "template": "{service}", "token_file": "/t"}}}}"#
            );
            serde_json::from_str::<Sink>(&good).unwrap().validate("x").unwrap();
        }
        let good = r#"{"webhook": {"url_file": "/u", "template": "telegram", "chat": "-100"}}"#;
        serde_json::from_str::<Sink>(good).unwrap().validate("x").unwrap();
    }
}
