//! One entry of a list, made into a tunnel.
//!
//! **Invariant:** whatever form an entry has, its values pass the same parser; a reason holds no key.

use crate::host::secret::secret;
use crate::policy::provider::{Identity, Place};
use crate::wireguard::{KeyFault, PresharedKey, Problem, SecretKey, TunnelConfig, parse_bytes};
use std::fmt::{self, Write as _};
use std::path::Path;

/// The seconds between keepalives where a list says nothing: what keeps a mapping of a usual NAT.
const KEEPALIVE: u16 = 25;

/// What a source offers as one tunnel.
pub(super) struct Offer {
    /// Its name as the source has it.
    pub(super) name: String,
    /// Where it says it is.
    pub(super) place: Place,
    /// What it was asked for by.
    pub(super) origin: Option<String>,
    /// The tunnel, or why there is none.
    pub(super) config: Result<TunnelConfig, String>,
}

/// Our own end.
pub(super) struct OwnEnd {
    /// Our key.
    private_key: SecretKey,
    /// The key that we share with every server.
    preshared_key: Option<PresharedKey>,
    /// Our addresses.
    addresses: Vec<String>,
}

impl Offer {
    /// A server of a list that holds only the other ends.
    pub(super) fn server(
        name: Option<String>,
        place: Place,
        address: Option<String>,
        port: u16,
        public_key: Option<String>,
        own: &OwnEnd,
    ) -> Self {
        let config = match address {
            Some(address) => Parts::peer(&address, port, public_key).config(Some(own)),
            None => Err("has no address".to_owned()),
        };
        Self { name: name.unwrap_or_default(), place, origin: None, config }
    }

    /// An entry that has not the shape of the others.
    pub(super) fn misshapen(number: usize) -> Self {
        let config = Err("has another shape than the others".to_owned());
        Self { name: format!("entry {number}"), place: Place::default(), origin: None, config }
    }
}

impl OwnEnd {
    /// Reads the files of `identity`; `usual` are the addresses where it names none.
    pub(super) fn read(identity: &Identity, usual: &[&str]) -> anyhow::Result<Self> {
        let key = secret(&identity.private_key_file)?;
        let private_key = good(own_key(&key), &identity.private_key_file)?;
        let preshared_key = match &identity.preshared_key_file {
            None => None,
            Some(path) => Some(good(PresharedKey::from_base64(&secret(path)?), path)?),
        };
        let addresses = if identity.address.is_empty() {
            usual.iter().map(|&address| address.to_owned()).collect()
        } else {
            identity.address.iter().map(|address| address.0.to_string()).collect()
        };
        Ok(Self { private_key, preshared_key, addresses })
    }

    /// An end with a key that a service has told, and the addresses that everybody has there.
    pub(super) fn told(key: &str, usual: &[&str]) -> Result<Self, KeyFault> {
        let addresses = usual.iter().map(|&address| address.to_owned()).collect();
        Ok(Self { private_key: own_key(key)?, preshared_key: None, addresses })
    }
}

/// Reads our own key. Some interfaces hand out keys without their last character, which is always
/// the same.
fn own_key(text: &str) -> Result<SecretKey, KeyFault> {
    if text.len() == 43 {
        SecretKey::from_base64(&format!("{text}="))
    } else {
        SecretKey::from_base64(text)
    }
}

impl fmt::Display for OwnEnd {
    /// Enough to see that it changed, and nothing secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let preshared = self.preshared_key.as_ref().map(PresharedKey::fingerprint);
        write!(f, "{} {preshared:?} {:?}", self.private_key.public(), self.addresses)
    }
}

fn good<T>(key: Result<T, KeyFault>, path: &Path) -> anyhow::Result<T> {
    key.map_err(|why| anyhow::anyhow!("{} holds no key: {why}", path.display()))
}

/// The values of an entry that is no wg-quick file.
#[derive(Default)]
pub(super) struct Parts {
    /// `HOST:PORT`.
    pub(super) endpoint: Option<String>,
    /// The peer's key.
    pub(super) public_key: Option<String>,
    /// The additional secret.
    pub(super) preshared_key: Option<String>,
    /// What goes to the peer; none: everything of IPv4.
    pub(super) allowed_ips: Vec<String>,
    /// Our key, where the list has it.
    pub(super) private_key: Option<String>,
    /// Our addresses, where the list has them.
    pub(super) addresses: Vec<String>,
    /// The MTU.
    pub(super) mtu: Option<String>,
}

impl Parts {
    /// An entry of a list that holds only the peers.
    pub(super) fn peer(address: &str, port: u16, public_key: Option<String>) -> Self {
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        Self { endpoint: Some(format!("{host}:{port}")), public_key, ..Self::default() }
    }

    /// The tunnel; what the entry lacks of our end is taken from `own`.
    pub(super) fn config(self, own: Option<&OwnEnd>) -> Result<TunnelConfig, String> {
        let lacks = |what: &str| format!("has no {what}, and there is no identity to take it from");
        let private_key = self
            .private_key
            .or_else(|| Some(own?.private_key.reveal()))
            .ok_or_else(|| lacks("private_key"))?;
        let addresses = match own {
            Some(own) if self.addresses.is_empty() => own.addresses.clone(),
            Some(_) | None => self.addresses,
        };
        if addresses.is_empty() {
            return Err(lacks("address"));
        }
        let allowed_ips = if self.allowed_ips.is_empty() {
            vec!["0.0.0.0/0".to_owned()]
        } else {
            self.allowed_ips
        };
        let preshared_key =
            self.preshared_key.or_else(|| Some(own?.preshared_key.as_ref()?.reveal()));
        let endpoint = self.endpoint.ok_or("has no endpoint")?;
        let public_key = self.public_key.ok_or("has no public_key")?;
        let mut ours = vec![("PrivateKey", private_key), ("Address", addresses.join(","))];
        ours.extend(self.mtu.map(|mtu| ("MTU", mtu)));
        let mut peers = vec![
            ("PublicKey", public_key),
            ("AllowedIPs", allowed_ips.join(",")),
            ("Endpoint", endpoint),
            ("PersistentKeepalive", KEEPALIVE.to_string()),
        ];
        peers.extend(preshared_key.map(|key| ("PresharedKey", key)));
        let mut text = String::new();
        for (section, lines) in [("[Interface]", ours), ("[Peer]", peers)] {
            // Writing into a String cannot fail.
            let _infallible = writeln!(text, "{section}");
            for (key, value) in lines {
                // What would end the line or begin a comment there could say something else, and what
                // has blanks would be read without.
                if value.is_empty() || value.contains(|c: char| !c.is_ascii_graphic() || c == '#') {
                    return Err(format!("{key} is empty, or has characters that no value has"));
                }
                let _infallible = writeln!(text, "{key} = {value}");
            }
        }
        // Nobody wrote the lines that a problem names.
        parse_bytes(text.as_bytes()).map(|parsed| parsed.config).map_err(|mut problems| {
            for problem in &mut problems {
                problem.line = 0;
            }
            in_short(&problems)
        })
    }
}

/// The tunnel that a wg-quick file describes, or why it describes none.
pub(super) fn wg_quick_text(bytes: &[u8]) -> Result<TunnelConfig, String> {
    parse_bytes(bytes).map(|parsed| parsed.config).map_err(|problems| in_short(&problems))
}

/// The first problem and how many more there are.
fn in_short(problems: &[Problem]) -> String {
    // What stands on a line is easier found than what stands nowhere.
    let first = problems.iter().find(|problem| problem.line > 0).or_else(|| problems.first());
    let first = first.map(ToString::to_string).unwrap_or_default();
    match problems.len().saturating_sub(1) {
        0 => first,
        1 => format!("{first} and 1 more problem"),
        more => format!("{first} and {more} more problems"),
    }
}
