//! A notice in the words of each service.
//!
//! **Invariant:** a name of a stranger is text to the service and nothing else: it makes no header, no
//! field and no markup.

use super::Priority;
use crate::outcome::Report;
use crate::policy::notify::Template;
use serde_json::json;

/// The longest text that is sent. Telegram takes 4,096 characters and ntfy 4,096 bytes; a telephone
/// shows far less.
const LONGEST: usize = 1_000;

/// What is sent to a service.
#[derive(Clone, PartialEq, Eq)]
pub struct Letter {
    /// Headers and their values, one of which may be a token.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// What people read: the machine's name, the report's line, and what was withheld before it.
#[must_use]
pub fn text(machine: &str, report: &Report, withheld: u32, is_last: bool) -> String {
    let mut text = format!("{machine}: {report}");
    if text.chars().count() > LONGEST {
        text = text.chars().take(LONGEST - 1).chain(['…']).collect();
    }
    if withheld > 0 {
        let count = withheld.to_string();
        let history = ["egressctl history ", report.policy.as_str(), ")"];
        text.extend(
            [" (", &count, " messages before this were withheld: "].into_iter().chain(history),
        );
    }
    if is_last {
        text += " (more is withheld until it calms down)";
    }
    text
}

/// Writes a letter. `token` is a secret of the service, `chat` where Telegram's bot writes to.
#[must_use]
pub fn letter(
    template: Template,
    report: &Report,
    text: &str,
    token: Option<&str>,
    chat: Option<&str>,
) -> Letter {
    let priority = Priority::of(report);
    let title = format!("egressctl {}", report.policy);
    let json = |body: serde_json::Value| Letter {
        headers: vec![("Content-Type", "application/json".to_owned())],
        body: body.to_string().into_bytes(),
    };
    match template {
        Template::Ntfy => {
            let mut headers = vec![
                ("Content-Type", "text/plain; charset=utf-8".to_owned()),
                ("Title", title),
                ("Priority", of_ntfy(priority).to_string()),
            ];
            headers.extend(token.map(|token| ("Authorization", format!("Bearer {token}"))));
            Letter { headers, body: text.as_bytes().to_vec() }
        }
        Template::Telegram => json(json!({
            "chat_id": chat.unwrap_or_default(),
            "text": text,
            "disable_web_page_preview": true,
        })),
        // Slack reads these three as markup; there are no others in a text of its.
        Template::Slack => json(json!({
            "text": text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"),
        })),
        Template::Gotify => {
            let body = json!({
                "title": title, "message": text, "priority": of_gotify(priority),
            });
            let mut letter = json(body);
            letter.headers.extend(token.map(|token| ("X-Gotify-Key", token.to_owned())));
            letter
        }
        Template::Json => {
            let mut letter = Letter {
                headers: vec![("Content-Type", "application/json".to_owned())],
                body: serde_json::to_vec(report).unwrap_or_default(),
            };
            letter.headers.extend(token.map(|token| ("Authorization", format!("Bearer {token}"))));
            letter
        }
    }
}

/// ntfy counts from 1 to 5; from 4 on a telephone sounds although it is silent.
fn of_ntfy(priority: Priority) -> u8 {
    match priority {
        Priority::Critical => 5,
        Priority::Error => 4,
        Priority::Warning | Priority::Notice => 3,
        Priority::Info => 2,
        Priority::Debug => 1,
    }
}

/// Gotify counts from 0 to 10; from 4 on a telephone sounds, from 8 on it does so longer.
fn of_gotify(priority: Priority) -> u8 {
    match priority {
        Priority::Critical => 10,
        Priority::Error => 8,
        Priority::Warning => 5,
        Priority::Notice => 4,
        Priority::Info => 2,
        Priority::Debug => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;
    use serde_json::Value;

    fn written(template: Template, text: &str) -> (Vec<(&'static str, String)>, String) {
        let letter =
            letter(template, &report("NORMAL", "LOCAL_REPAIR"), text, Some("tok"), Some("-100"));
        (letter.headers, String::from_utf8(letter.body).unwrap())
    }

    #[test]
    fn each_service_gets_what_it_understands() {
        let text = "gw: home: <b>\"x\"</b> & co";
        let (headers, body) = written(Template::Ntfy, text);
        assert_eq!(body, text);
        for header in [
            ("Title", "egressctl home".to_owned()),
            ("Priority", "3".to_owned()),
            ("Authorization", "Bearer tok".to_owned()),
        ] {
            assert!(headers.contains(&header), "{header:?}");
        }
        let of = |template| -> Value { serde_json::from_str(&written(template, text).1).unwrap() };
        assert_eq!(
            of(Template::Telegram),
            json!({"chat_id": "-100", "text": text, "disable_web_page_preview": true})
        );
        assert_eq!(
            of(Template::Slack),
            json!({"text": "gw: home: &lt;b&gt;\"x\"&lt;/b&gt; &amp; co"})
        );
        assert_eq!(
            of(Template::Gotify),
            json!({"title": "egressctl home", "message": text, "priority": 4})
        );
        assert!(written(Template::Gotify, text).0.contains(&("X-Gotify-Key", "tok".to_owned())));
        assert_eq!(of(Template::Json)["to"], "LOCAL_REPAIR");
    }

    #[test]
    fn a_long_story_is_cut_and_says_what_was_withheld() {
        let long = report("NORMAL", "LOCAL_REPAIR").because("x", "я".repeat(5_000));
        let text = text("gw", &long, 3, true);
        assert!(
            text.chars().count() < 1_200 && text.starts_with("gw: home: NORMAL -> LOCAL_REPAIR")
        );
        assert!(text.contains("… (3 messages before this were withheld: egressctl history home)"));
        assert!(text.ends_with("(more is withheld until it calms down)"));
    }
}
