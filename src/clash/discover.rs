//! What a core's configuration says of how it is reached and used: what both programs' files have in
//! common.
//!
//! **Invariant:** a control that leaves this machine is never told as one that can be used; the
//! secret is beside what is told and never in it.

use crate::observation::Outline;
use crate::outcome::harmless;
use crate::setting::Control;
use crate::url::Target;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// What a core's configuration says, with the secret that control wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// All but the secret.
    pub outline: Outline,
    /// The secret, if there is one.
    pub secret: Option<Secret>,
}

/// A secret that was read. It cannot be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret; `None` where there is none, which is how both programs write that control is open.
    ///
    /// # Errors
    /// That no request can carry it.
    pub fn new(text: &str) -> Result<Option<Self>, String> {
        if text.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) {
            return Err(
                "the secret of its control holds characters that no request can carry: write letters and digits"
                    .to_owned(),
            );
        }
        Ok((!text.is_empty()).then(|| Self(text.to_owned())))
    }

    /// What the header `Authorization` says.
    #[must_use]
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

/// Where something listens, as both programs write it: `127.0.0.1:9090`, `:9090`, `[::1]:9090`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listens {
    /// The address by which it is reached from here; `None`: it is not.
    pub(super) here: Option<IpAddr>,
    /// The port.
    pub(super) port: u16,
    /// Whether others than this machine reach it too.
    pub(super) beyond: bool,
}

/// Reads where something listens. `None`: it is no address with a port.
pub(super) fn listens(text: &str) -> Option<Listens> {
    let (host, port) = text.trim().rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some(at(host, port))
}

/// The same for a host that is written apart. What listens everywhere is reached by loopback.
pub(super) fn at(host: &str, port: u16) -> Listens {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let (here, beyond) = match (host, host.parse::<IpAddr>()) {
        ("" | "*", _) => (Some(loopback), true),
        ("localhost", _) => (Some(loopback), false),
        (_, Ok(address)) if address.is_unspecified() => (Some(loopback), true),
        (_, Ok(address)) => (address.is_loopback().then_some(address), !address.is_loopback()),
        (_, Err(_)) => (None, true),
    };
    Listens { here, port, beyond }
}

/// The control that listens there, and whether it does so beyond this machine.
pub(super) fn control(key: &str, written: &str) -> (Result<Control, String>, Option<String>) {
    let shown = harmless(written);
    if written.is_empty() {
        return (
            Err(format!("{key} is not set, so nothing can steer it: set it to 127.0.0.1:9090")),
            None,
        );
    }
    let Some(listens) = listens(written) else {
        return (Err(format!("{key} is {shown}, which is no ADDRESS:PORT")), None);
    };
    let exposed = listens.beyond.then(|| shown.clone());
    let elsewhere = || {
        format!(
            "{key} is {shown}, and control is taken over loopback alone: set it to 127.0.0.1:PORT"
        )
    };
    let url = listens.here.map(|address| {
        let host = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
        Target::try_from(format!("http://{host}:{}", listens.port))
    });
    let control = match url {
        Some(Ok(url)) => Ok(Control::Http(url)),
        Some(Err(_)) | None => Err(elsewhere()),
    };
    (control, exposed)
}

/// Which group of `outline` is steered and which member of it chooses by itself, with what a policy
/// names of them.
///
/// # Errors
/// Why it cannot be told, with the groups that it might be.
pub fn groups(
    outline: &Outline,
    group: Option<&str>,
    automatic: Option<&str>,
) -> Result<(String, String), String> {
    if let (Some(group), Some(automatic)) = (group, automatic) {
        return Ok((group.to_owned(), automatic.to_owned()));
    }
    let wanted = |named: Option<&str>, name: &str| named.is_none_or(|named| named == name);
    let pairs = outline.selectors.iter().flat_map(|(selector, members)| {
        let chooses = |member: &&String| match automatic {
            Some(named) => *member == named,
            None => outline.automatic.contains(*member),
        };
        members.iter().filter(chooses).map(move |member| (selector, member))
    });
    let pairs: Vec<(&String, &String)> =
        pairs.filter(|(selector, _)| wanted(group, selector)).collect();
    // Where several would do, it is the one that leads what no rule leads elsewhere.
    let leads = |pair: &&(&String, &String)| outline.default_way.as_ref() == Some(pair.0);
    let first: Vec<&(&String, &String)> = pairs.iter().filter(leads).collect();
    match (pairs.as_slice(), first.as_slice()) {
        ([(selector, member)], _) | (_, [(selector, member)]) => {
            Ok(((*selector).clone(), (*member).clone()))
        }
        ([], _) => Err(format!(
            "{} has no selector that holds a group which chooses by itself: add one, or name group and automatic in the policy",
            outline.read_in
        )),
        (several, _) => {
            let one = |(selector, member): &(&String, &String)| {
                format!("{} with {}", harmless(selector), harmless(member))
            };
            let all: Vec<String> = several.iter().map(one).collect();
            Err(format!(
                "{} has several selectors that hold a group which chooses by itself ({}): name group and automatic in the policy",
                outline.read_in,
                all.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_listens_everywhere_is_reached_by_loopback_and_what_listens_elsewhere_is_not() {
        for (written, url, exposed) in [
            ("127.0.0.1:9090", Some("http://127.0.0.1:9090"), false),
            ("localhost:9090", Some("http://127.0.0.1:9090"), false),
            ("[::1]:9090", Some("http://[::1]:9090"), false),
            (":9090", Some("http://127.0.0.1:9090"), true),
            ("0.0.0.0:9090", Some("http://127.0.0.1:9090"), true),
            ("[::]:9090", Some("http://127.0.0.1:9090"), true),
            ("192.168.1.1:9090", None, true),
            ("router.lan:9090", None, true),
            ("9090", None, false),
            ("127.0.0.1:0", None, false),
            ("", None, false),
        ] {
            let (control, beyond) = control("external-controller", written);
            let expected = url.map(|url| Control::Http(Target::try_from(url.to_owned()).unwrap()));
            assert_eq!(control.ok(), expected, "{written}");
            assert_eq!(beyond.is_some(), exposed, "{written}");
        }
    }

    #[test]
    fn a_secret_is_not_shown_and_one_that_no_header_carries_is_refused_without_a_byte_of_it() {
        let secret = Secret::new("hunter2").unwrap().unwrap();
        assert_eq!(secret.bearer(), "Bearer hunter2");
        assert!(!format!("{secret:?}").contains("hunter2"));
        assert_eq!(Secret::new(""), Ok(None));
        let why = Secret::new("hunter2\r\nX: y").unwrap_err();
        assert!(!why.contains("hunter2"), "{why}");
    }
}
