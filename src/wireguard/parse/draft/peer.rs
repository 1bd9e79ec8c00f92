//! One `[Peer]` section while it is read.
//!
//! **Invariant:** allowed prefixes have no host bits and no repetitions.

use super::{List, Once, missing, note};
use crate::wireguard::config::{Endpoint, Peer};
use crate::wireguard::key::{KeyFault, PresharedKey, PublicKey};
use crate::wireguard::parse::keys::PeerKey;
use crate::wireguard::parse::{Fault, values};
use crate::wireguard::problem::{Note, NoteCode, Problem, ProblemCode, shown};
use std::num::NonZeroU16;

/// What a `[Peer]` section has said so far.
#[derive(Default)]
pub(super) struct PeerDraft {
    pub(super) line: u32,
    public_key: Once<PublicKey>,
    preshared_key: Once<PresharedKey>,
    allowed_ips: List,
    endpoint: Once<Endpoint>,
    keepalive: Once<Option<NonZeroU16>>,
}

impl PeerDraft {
    pub(super) fn begin(line: u32) -> Self {
        Self { line, ..Self::default() }
    }

    pub(super) fn saw(&mut self, key: PeerKey, line: u32) {
        match key {
            PeerKey::PublicKey => self.public_key.line = Some(line),
            PeerKey::Endpoint => self.endpoint.line = Some(line),
            PeerKey::AllowedIps => self.allowed_ips.seen = true,
            // Nobody misses the others.
            PeerKey::PresharedKey | PeerKey::PersistentKeepalive => {}
        }
    }

    pub(super) fn take(
        &mut self,
        line: u32,
        key: PeerKey,
        value: &str,
        problems: &mut Vec<Problem>,
        notes: &mut Vec<Note>,
    ) -> Result<(), Fault> {
        let name = key.name();
        match key {
            PeerKey::PublicKey => {
                let read = values::key(name, value, PublicKey::from_base64);
                self.public_key.set(line, name, read)
            }
            PeerKey::PresharedKey if is_no_key(value) => {
                let text = "PresharedKey is empty and counts as absent";
                note(notes, line, NoteCode::NoPresharedKey, text);
                Ok(())
            }
            PeerKey::PresharedKey => {
                let read = values::key(name, value, PresharedKey::from_base64);
                self.preshared_key.set(line, name, read)
            }
            PeerKey::Endpoint => self.endpoint.set(line, name, values::endpoint(value)),
            PeerKey::PersistentKeepalive => {
                self.keepalive.set(line, name, values::keepalive(value))
            }
            PeerKey::AllowedIps => {
                self.allowed_ips.seen = true;
                for entry in value.split(',') {
                    match values::prefix(name, entry) {
                        Err(fault) => problems.push(fault.at(line)),
                        Ok(prefix) => {
                            let masked = prefix.trunc();
                            if masked != prefix {
                                let text =
                                    format!("AllowedIPs {} is read as {masked}", shown(entry));
                                note(notes, line, NoteCode::HostBitsMasked, text);
                            }
                            self.allowed_ips.add(masked);
                        }
                    }
                }
                Ok(())
            }
        }
    }

    pub(super) fn check(
        &self,
        own: Option<PublicKey>,
        before: &[Self],
        problems: &mut Vec<Problem>,
    ) {
        for (seen, name) in [
            (self.public_key.line.is_some(), "PublicKey in [Peer]"),
            (self.endpoint.line.is_some(), "Endpoint in [Peer]"),
            (self.allowed_ips.seen, "AllowedIPs in [Peer]"),
        ] {
            if !seen {
                problems.push(missing(self.line, name));
            }
        }
        let line = self.public_key.line.unwrap_or(self.line);
        if self.public_key.value.is_some() && self.public_key.value == own {
            problems.push(
                Fault::new(
                    ProblemCode::OwnKey,
                    "the peer's PublicKey belongs to our own PrivateKey",
                    "copy both keys again from the provider",
                )
                .at(line),
            );
        }
        for other in before {
            if self.public_key.value.is_some() && self.public_key.value == other.public_key.value {
                problems.push(
                    Fault::new(
                        ProblemCode::DuplicatePeer,
                        format!("the peer of line {} has the same PublicKey", other.line),
                        "keep one of the two",
                    )
                    .at(line),
                );
            }
            let shared =
                self.allowed_ips.entries.iter().find(|p| other.allowed_ips.entries.contains(p));
            if let Some(prefix) = shared {
                problems.push(
                    Fault::new(
                        ProblemCode::OverlappingRoutes,
                        format!("{prefix} is in AllowedIPs of the peer of line {} too", other.line),
                        "give each destination to one peer",
                    )
                    .at(self.line),
                );
            }
        }
    }

    pub(super) fn finish(self) -> Option<Peer> {
        Some(Peer {
            public_key: self.public_key.value?,
            preshared_key: self.preshared_key.value,
            allowed_ips: self.allowed_ips.entries,
            endpoint: self.endpoint.value?,
            persistent_keepalive: self.keepalive.value.flatten(),
        })
    }
}

/// Whether a preshared key is empty, or the zeros that `wg` prints and takes for none.
fn is_no_key(value: &str) -> bool {
    value.is_empty() || PresharedKey::from_base64(value) == Err(KeyFault::Zero)
}
