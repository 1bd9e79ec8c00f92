//! Takes secrets out of what is written for others.
//!
//! **Invariant:** the same secret becomes the same blank everywhere, so that what refers to each other
//! still does.

use crate::in_order::{Json, Object};
use serde_json::Value;
use std::collections::BTreeSet;

/// What stands in the place of a secret.
const BLANK: &str = "BLANKED";
/// What is shorter is a word or a number, and stands in other places by chance.
const SHORTEST: usize = 6;

/// Secrets, to be taken out of texts.
#[derive(Clone, Debug, Default)]
pub struct Blank {
    /// The longest first: one may be a part of another.
    secrets: Vec<String>,
}

impl Blank {
    /// What takes out all that these files of secrets hold.
    #[must_use]
    pub fn of(files: &[String]) -> Self {
        let mut all: BTreeSet<&str> = BTreeSet::new();
        for text in files {
            all.insert(text.trim());
            // What is quoted in a key of a name server.
            all.extend(text.split('"').skip(1).step_by(2));
            for line in text.lines().map(str::trim) {
                // `USER:PASSWORD`, or a name server's `ALGORITHM:NAME:SECRET`.
                all.insert(line);
                all.extend(line.split_once(':').map(|(_, password)| password));
                all.extend(line.rsplit_once(':').map(|(_, secret)| secret));
            }
        }
        all.retain(|secret| secret.len() >= SHORTEST);
        let mut secrets: Vec<String> = all.into_iter().map(str::to_owned).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { secrets }
    }

    /// The text without them.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, BLANK))
    }

    /// The same of what keeps its order.
    #[must_use]
    pub fn json(&self, json: Json) -> Json {
        match json {
            Json::Object(Object(all)) => Json::Object(Object(
                all.into_iter().map(|(key, value)| (self.text(&key), self.json(value))).collect(),
            )),
            Json::List(all) => Json::List(all.into_iter().map(|json| self.json(json)).collect()),
            Json::Plain(value) => Json::Plain(self.value(value)),
        }
    }

    /// The value without them, keys included.
    #[must_use]
    pub fn value(&self, value: Value) -> Value {
        if self.secrets.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(all) => Value::Array(all.into_iter().map(|v| self.value(v)).collect()),
            Value::Object(all) => Value::Object(
                all.into_iter().map(|(key, v)| (self.text(&key), self.value(v))).collect(),
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_files_hold_is_blank_wherever_it_stands() {
        let blank = Blank::of(&["user:hunter2-long\n".to_owned(), "tok".to_owned()]);
        let value = serde_json::json!({ "a hunter2-long": ["user:hunter2-long", "tok", 1] });
        let blanked = blank.value(value);
        assert_eq!(blanked, serde_json::json!({ "a BLANKED": ["BLANKED", "tok", 1] }));
        let key = "key \"one\" {\n  algorithm hmac-sha256;\n  secret \"bG9uZyBlbm91Z2g=\";\n};\n";
        let blank = Blank::of(&[key.to_owned(), "hmac-sha256:name:c2VjcmV0bHk=".to_owned()]);
        let told = "secret_file bG9uZyBlbm91Z2g= c2VjcmV0bHk= hmac-sha256";
        assert_eq!(blank.text(told), "secret_file BLANKED BLANKED hmac-sha256");
    }
}
