//! What the files of secrets of a policy hold, so that it can be kept out of what others read.
//!
//! **Invariant:** what is read here is compared with, and never written.

use crate::host::files::read_bounded;
use serde_json::Value;
use std::path::Path;

/// A file of secrets is short; a wg-quick file has its keys at its top.
const MAX_BYTES: usize = 64 * 1024;

/// The texts of all files that a policy names, as far as they can be read: a token's, a key's, a
/// tunnel's.
#[must_use]
pub fn held_by(policy: &str) -> Vec<String> {
    let Ok(policy) = serde_json::from_str::<Value>(policy) else { return Vec::new() };
    let mut texts = Vec::new();
    gather(None, &policy, &mut texts);
    texts
}

fn gather(key: Option<&str>, value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(path) => {
            // Certificates are no secret.
            let is_secret = key.is_some_and(|key| key.ends_with("_file") && key != "ca_file");
            let is_tunnel = key == Some("config")
                && Path::new(path).extension().is_some_and(|extension| extension == "conf");
            if !is_secret && !is_tunnel {
                return;
            }
            let Ok(bytes) = read_bounded(Path::new(path), MAX_BYTES) else { return };
            let Ok(text) = String::from_utf8(bytes) else { return };
            if is_secret {
                texts.push(text);
                return;
            }
            let is_key = |line: &&str| {
                let name = line.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
                name == "privatekey" || name == "presharedkey"
            };
            let keys = text.lines().filter(is_key).filter_map(|line| line.split_once('='));
            texts.extend(keys.map(|(_, key)| key.trim().to_owned()));
        }
        Value::Array(all) => all.iter().for_each(|value| gather(key, value, texts)),
        Value::Object(all) => all.iter().for_each(|(key, value)| gather(Some(key), value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
