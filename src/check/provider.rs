//! What a provider lacks on this machine, and what its keys mean for the slots.
//!
//! **Invariant:** no secret is read here: whether its file can be, and by whom, is enough.

use super::{Code, Finding};
use crate::outcome::count;
use crate::policy::provider::Provider;
use std::path::PathBuf;

/// What a file of the provider's folder is called, which no key names by itself.
pub const CONFIGURATION: &str = "configuration";

/// A file that a policy names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The key that names it, such as `code_file`.
    pub key: String,
    /// Where it is.
    pub path: PathBuf,
    /// Whether it holds a secret.
    pub is_secret: bool,
    /// Its mode, or why it cannot be used.
    pub seen: Result<u32, String>,
}

/// What the files lack.
#[must_use]
pub fn files(files: &[File]) -> Vec<Finding> {
    let mut found = Vec::new();
    for File { key, path, is_secret, seen } in files {
        let shown = path.display();
        match seen {
            Err(why) if *is_secret => found.push(Finding::new(
                Code::SecretMissing,
                format!("{key} {shown}: {why}"),
                format!(
                    "install -m 600 /dev/stdin {shown}, and give the {} on its standard input",
                    secret(key)
                ),
            )),
            Err(why) => found.push(Finding::new(
                Code::ProviderFile,
                format!("{key} {shown}: {why}"),
                format!("put it there, or correct {key} in the policy"),
            )),
            // Those of a folder are told together.
            Ok(_) if key == CONFIGURATION => {}
            Ok(mode) if *is_secret && is_open(*mode) => found.push(Finding::new(
                Code::SecretOpen,
                format!("{key} {shown} has mode {:03o}", mode & 0o777),
                format!("chmod 600 {shown}"),
            )),
            Ok(_) => {}
        }
    }
    let open: Vec<&File> = files
        .iter()
        .filter(|file| file.key == CONFIGURATION && file.seen.as_ref().is_ok_and(|m| is_open(*m)))
        .collect();
    if let [first, others @ ..] = open.as_slice() {
        let folder = first.path.parent().unwrap_or(&first.path).display();
        found.push(Finding::new(
            Code::SecretOpen,
            format!("{} and {} more can be read by others", first.path.display(), others.len()),
            format!("chmod 600 {folder}/*.conf"),
        ));
    }
    found
}

/// Whether others than the owner may read or write it.
fn is_open(mode: u32) -> bool {
    mode & 0o077 != 0
}

/// What a file holds, in a person's words.
fn secret(key: &str) -> &'static str {
    match key.rsplit('.').next().unwrap_or(key) {
        "code_file" => "access code",
        "token_file" => "token",
        "key_file" => "TSIG key",
        "preshared_key_file" => "preshared key",
        _ => "private key",
    }
}

/// What one key for all slots means with this provider.
#[must_use]
pub fn keys(provider: &Provider, slots: usize) -> Option<Finding> {
    if slots < 2 {
        return None;
    }
    let terms = match provider {
        // Each configuration brings the key that the provider gave it.
        Provider::Directory(_) | Provider::HideMyName(_) => return None,
        Provider::Http(http) if http.identity.is_none() => return None,
        Provider::Exec(exec) if exec.identity.is_none() => return None,
        Provider::Mullvad(_) => {
            "the key of one device works with every relay; the terms say how many at a time"
        }
        Provider::NordVpn(_) => {
            "an account has one key, and everybody the same address; the terms say how many connections"
        }
        Provider::Http(_) | Provider::Exec(_) | Provider::Ivpn(_) | Provider::Gluetun(_) => {
            "the provider's terms say how many at a time"
        }
    };
    Some(Finding::new(
        Code::OneKey,
        format!("{} use one key, each with another server: {terms}", count(slots, "slot")),
        "where fewer are allowed name fewer slots.interfaces, or give a configuration for each key by provider.directory",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use serde_json::{Value, json};

    fn file(key: &str, is_secret: bool, seen: Result<u32, &str>) -> File {
        let seen = seen.map_err(str::to_owned);
        File { key: key.to_owned(), path: PathBuf::from("/etc/x"), is_secret, seen }
    }

    #[test]
    fn each_lack_has_its_mend() {
        let found = files(&[
            file("provider.hidemyname.code_file", true, Err("there is no such file")),
            file("provider.http.token_file", true, Ok(0o100_644)),
            file("provider.directory.path", false, Err("there is no such folder")),
            file("provider.mullvad.identity.private_key_file", true, Ok(0o100_600)),
            file("provider.http.ca_file", false, Ok(0o100_644)),
        ]);
        let told: Vec<(&str, &str)> =
            found.iter().map(|f| (f.code.as_str(), f.mend.as_str())).collect();
        assert_eq!(
            told,
            [
                (
                    "secret-missing",
                    "install -m 600 /dev/stdin /etc/x, and give the access code on its standard input"
                ),
                ("secret-open", "chmod 600 /etc/x"),
                ("provider-file", "put it there, or correct provider.directory.path in the policy"),
            ]
        );
        assert!(found[1].what.ends_with("has mode 644"), "{found:?}");
    }

    #[test]
    fn configurations_of_a_folder_are_told_together() {
        let found = files(&[
            file(CONFIGURATION, true, Ok(0o100_644)),
            file(CONFIGURATION, true, Ok(0o100_600)),
            file(CONFIGURATION, true, Ok(0o100_640)),
        ]);
        let [finding] = found.as_slice() else { panic!("{found:?}") };
        assert!(finding.what.contains("/etc/x and 1 more"), "{finding:?}");
        assert_eq!(finding.mend, "chmod 600 /etc/*.conf");
    }

    fn provider(provider: &Value) -> Provider {
        let text = json!({ "kind": "pool", "slots": { "interfaces": ["vpn1"] },
                           "clients": ["10.77.0.11"], "provider": provider });
        match Policy::parse(&text.to_string()).unwrap() {
            Policy::Pool(policy) => policy.provider,
            other
            @ (Policy::Selector(_) | Policy::Guard(_) | Policy::Dns(_) | Policy::Chain(_)) => {
                panic!("{other:?}")
            }
        }
    }

    #[test]
    fn one_key_for_several_slots_is_told_where_there_is_one() {
        let own = json!({ "private_key_file": "/k", "address": ["10.64.0.2"] });
        let told = |text: &Value, slots| keys(&provider(text), slots).map(|finding| finding.what);
        let mullvad = json!({ "mullvad": { "identity": own } });
        assert!(told(&mullvad, 5).unwrap().starts_with("5 slots use one key"));
        assert_eq!(told(&mullvad, 1), None);
        assert!(told(&json!({ "nordvpn": { "token_file": "/t" } }), 2).is_some());
        assert_eq!(told(&json!({ "directory": { "path": "/e" } }), 5), None);
        let http = json!({ "http": { "url": "https://a.example/" } });
        assert_eq!(told(&http, 5), None);
    }
}
