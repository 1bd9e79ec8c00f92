//! The keys that may stand in a file.
//!
//! **Invariant:** every key belongs to one section and is written in one way.

use super::Fault;
use crate::wireguard::config::Section;
use crate::wireguard::problem::{ProblemCode, shown};

/// A known key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// One of `[Interface]`.
    Interface(InterfaceKey),
    /// One of `[Peer]`.
    Peer(PeerKey),
    /// A parameter of AmneziaWG.
    Amnezia(&'static str, Section, Shape),
}

/// A key of `[Interface]`, of `wg` or of `wg-quick`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InterfaceKey {
    PrivateKey,
    ListenPort,
    FwMark,
    Address,
    Dns,
    Mtu,
    Table,
    SaveConfig,
    /// One of the commands that `wg-quick` would run.
    Hook(&'static str),
}

/// A key of `[Peer]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerKey {
    PublicKey,
    PresharedKey,
    AllowedIps,
    Endpoint,
    PersistentKeepalive,
}

/// What the value of an AmneziaWG parameter looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A number up to 65535.
    Number,
    /// A number up to 4294967295, or a range of two.
    Header,
    /// Any text; blanks inside are dropped.
    Word,
    /// Any text, blanks included.
    Text,
}

const AMNEZIA: &[(&str, Section, Shape)] = &[
    ("Jc", Section::Interface, Shape::Number),
    ("Jmin", Section::Interface, Shape::Number),
    ("Jmax", Section::Interface, Shape::Number),
    ("S1", Section::Interface, Shape::Number),
    ("S2", Section::Interface, Shape::Number),
    ("S3", Section::Interface, Shape::Number),
    ("S4", Section::Interface, Shape::Number),
    ("H1", Section::Interface, Shape::Header),
    ("H2", Section::Interface, Shape::Header),
    ("H3", Section::Interface, Shape::Header),
    ("H4", Section::Interface, Shape::Header),
    ("I1", Section::Interface, Shape::Text),
    ("I2", Section::Interface, Shape::Text),
    ("I3", Section::Interface, Shape::Text),
    ("I4", Section::Interface, Shape::Text),
    ("I5", Section::Interface, Shape::Text),
    ("HeaderProtectionKey", Section::Interface, Shape::Word),
    ("ContentPaddingAddition", Section::Interface, Shape::Word),
    ("RekeyAfterTime", Section::Interface, Shape::Word),
    ("RekeyTimeout", Section::Interface, Shape::Word),
    ("RejectAfterTime", Section::Interface, Shape::Word),
    ("KeepaliveTimeout", Section::Interface, Shape::Word),
    ("MaxHandshakeAttempts", Section::Interface, Shape::Word),
    ("RandomTrailers", Section::Interface, Shape::Word),
    ("DisableCookies", Section::Interface, Shape::Word),
    ("AdvancedSecurity", Section::Peer, Shape::Word),
];

const INTERFACE: &[InterfaceKey] = &[
    InterfaceKey::PrivateKey,
    InterfaceKey::ListenPort,
    InterfaceKey::FwMark,
    InterfaceKey::Address,
    InterfaceKey::Dns,
    InterfaceKey::Mtu,
    InterfaceKey::Table,
    InterfaceKey::SaveConfig,
    InterfaceKey::Hook("PreUp"),
    InterfaceKey::Hook("PostUp"),
    InterfaceKey::Hook("PreDown"),
    InterfaceKey::Hook("PostDown"),
];

const PEER: &[PeerKey] = &[
    PeerKey::PublicKey,
    PeerKey::PresharedKey,
    PeerKey::AllowedIps,
    PeerKey::Endpoint,
    PeerKey::PersistentKeepalive,
];

impl InterfaceKey {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PrivateKey => "PrivateKey",
            Self::ListenPort => "ListenPort",
            Self::FwMark => "FwMark",
            Self::Address => "Address",
            Self::Dns => "DNS",
            Self::Mtu => "MTU",
            Self::Table => "Table",
            Self::SaveConfig => "SaveConfig",
            Self::Hook(name) => name,
        }
    }
}

impl PeerKey {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PublicKey => "PublicKey",
            Self::PresharedKey => "PresharedKey",
            Self::AllowedIps => "AllowedIPs",
            Self::Endpoint => "Endpoint",
            Self::PersistentKeepalive => "PersistentKeepalive",
        }
    }
}

impl Key {
    fn all() -> impl Iterator<Item = Self> {
        let amnezia = AMNEZIA.iter().map(|(name, section, shape)| {
            let (name, section, shape) = (*name, *section, *shape);
            Self::Amnezia(name, section, shape)
        });
        let interface = INTERFACE.iter().copied().map(Self::Interface);
        interface.chain(PEER.iter().copied().map(Self::Peer)).chain(amnezia)
    }

    /// The key with this name, in any case, as `wg` and `wg-quick` read it.
    pub(super) fn find(name: &str) -> Option<Self> {
        Self::all().find(|key| key.name().eq_ignore_ascii_case(name))
    }

    /// Its name as it is written.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Interface(key) => key.name(),
            Self::Peer(key) => key.name(),
            Self::Amnezia(name, ..) => name,
        }
    }

    /// The section where it stands.
    pub(super) fn section(self) -> Section {
        match self {
            Self::Interface(_) => Section::Interface,
            Self::Peer(_) => Section::Peer,
            Self::Amnezia(_, section, _) => section,
        }
    }

    /// Whether an empty value means something: that there is no preshared key, or nothing to ignore.
    pub(super) fn may_be_empty(self) -> bool {
        matches!(
            self,
            Self::Peer(PeerKey::PresharedKey)
                | Self::Interface(
                    InterfaceKey::Dns
                        | InterfaceKey::Table
                        | InterfaceKey::SaveConfig
                        | InterfaceKey::Hook(_)
                )
        )
    }

    /// Whether the blanks inside its value count.
    pub(super) fn keeps_blanks(self) -> bool {
        matches!(self, Self::Amnezia(_, _, Shape::Text))
    }
}

/// The problem of an unknown key, with the nearest known one. The value is not shown: it may be a
/// secret under a misspelt name.
pub(super) fn unknown(name: &str) -> Fault {
    /// Two slips of the finger; at three, short names turn into one another.
    const NEAR: usize = 2;
    let lower = name.to_ascii_lowercase();
    // Comparing costs the product of the lengths, and no key is longer than 22.
    let nearest = (name.len() <= 32)
        .then(|| {
            Key::all()
                .filter(|key| key.name().len() > NEAR)
                .map(|key| {
                    let known = key.name().to_ascii_lowercase();
                    (strsim::damerau_levenshtein(&known, &lower), key)
                })
                .filter(|(distance, _)| *distance <= NEAR)
                .min_by_key(|(distance, _)| *distance)
        })
        .flatten();
    let mend = match nearest {
        Some((_, key)) => format!("did you mean {}?", key.name()),
        None => "remove the line".to_owned(),
    };
    Fault::new(ProblemCode::UnknownKey, format!("there is no key {}", shown(name)), mend)
}
