//! Collects the values of a file until it ends, then makes a configuration of them.
//!
//! **Invariant:** a value that was seen and is wrong counts as given, so that one slip makes one problem.

mod peer;

use super::keys::{InterfaceKey, Key, Shape};
use super::{Fault, values};
use crate::wireguard::config::{Dialect, Parameter, Section, TunnelConfig};
use crate::wireguard::key::SecretKey;
use crate::wireguard::problem::{Note, NoteCode, Problem, ProblemCode};
use ipnet::IpNet;
use peer::PeerDraft;
use std::num::NonZeroU16;

/// A key that may stand once.
struct Once<T> {
    line: Option<u32>,
    value: Option<T>,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self { line: None, value: None }
    }
}

impl<T: PartialEq> Once<T> {
    fn set(&mut self, line: u32, name: &str, value: Result<T, Fault>) -> Result<(), Fault> {
        let first = self.line.replace(line);
        let value = value?;
        match (&self.value, first) {
            (Some(old), Some(first)) if *old != value => Err(Fault::new(
                ProblemCode::Repeated,
                format!("{name} differs from the one on line {first}"),
                "keep one of the two",
            )),
            (Some(_) | None, _) => {
                self.value = Some(value);
                Ok(())
            }
        }
    }
}

/// A key whose values add up.
#[derive(Default)]
struct List {
    seen: bool,
    entries: Vec<IpNet>,
}

impl List {
    fn add(&mut self, entry: IpNet) {
        if !self.entries.contains(&entry) {
            self.entries.push(entry);
        }
    }
}

/// What the file has said so far.
#[derive(Default)]
pub(super) struct Draft {
    private_key: Once<SecretKey>,
    listen_port: Once<NonZeroU16>,
    fwmark: Once<Option<u32>>,
    addresses: List,
    dns: Vec<String>,
    mtu: Once<u16>,
    peers: Vec<PeerDraft>,
    parameters: Vec<Parameter>,
}

fn note(notes: &mut Vec<Note>, line: u32, code: NoteCode, text: impl Into<String>) {
    notes.push(Note { line, code, text: text.into() });
}

fn missing(line: u32, what: &str) -> Problem {
    Fault::new(
        ProblemCode::Missing,
        format!("{what} is missing"),
        "copy the whole file again from the provider",
    )
    .at(line)
}

impl Draft {
    pub(super) fn begin_peer(&mut self, line: u32) {
        self.peers.push(PeerDraft::begin(line));
    }

    /// Remembers that a key stood there whose value was refused before it came here.
    pub(super) fn saw(&mut self, key: Key, line: u32) {
        match key {
            Key::Interface(InterfaceKey::PrivateKey) => self.private_key.line = Some(line),
            Key::Interface(InterfaceKey::Address) => self.addresses.seen = true,
            Key::Peer(key) => {
                if let Some(peer) = self.peers.last_mut() {
                    peer.saw(key, line);
                }
            }
            // Nobody misses the others.
            Key::Interface(_) | Key::Amnezia(..) => {}
        }
    }

    /// Takes one value, its blanks already dropped.
    pub(super) fn take(
        &mut self,
        line: u32,
        key: Key,
        value: &str,
        problems: &mut Vec<Problem>,
        notes: &mut Vec<Note>,
    ) {
        let done = match key {
            Key::Interface(key) => self.interface(line, key, value, problems, notes),
            Key::Peer(key) => match self.peers.last_mut() {
                Some(peer) => peer.take(line, key, value, problems, notes),
                None => Ok(()),
            },
            Key::Amnezia(name, section, shape) => self.parameter(name, section, shape, value),
        };
        problems.extend(done.err().map(|fault| fault.at(line)));
    }

    fn interface(
        &mut self,
        line: u32,
        key: InterfaceKey,
        value: &str,
        problems: &mut Vec<Problem>,
        notes: &mut Vec<Note>,
    ) -> Result<(), Fault> {
        let name = key.name();
        match key {
            InterfaceKey::PrivateKey => {
                let read = values::key(name, value, SecretKey::from_base64);
                return self.private_key.set(line, name, read);
            }
            InterfaceKey::ListenPort => {
                let text = "ListenPort is not used: a slot has its own";
                note(notes, line, NoteCode::ListenPortIgnored, text);
                return self.listen_port.set(line, name, values::port(value));
            }
            InterfaceKey::FwMark => {
                let text = "FwMark is not used: egressctl sets its own";
                note(notes, line, NoteCode::FwMarkIgnored, text);
                return self.fwmark.set(line, name, values::fwmark(value));
            }
            InterfaceKey::Mtu => return self.mtu.set(line, name, values::mtu(value)),
            InterfaceKey::Address => {
                self.addresses.seen = true;
                for entry in value.split(',') {
                    match values::address(entry) {
                        Ok(address) => self.addresses.add(address),
                        Err(fault) => problems.push(fault.at(line)),
                    }
                }
            }
            InterfaceKey::Dns => {
                let entries = value.split(',').filter(|entry| !entry.is_empty());
                self.dns.extend(entries.map(str::to_owned));
                let text = "DNS is not used: clients keep their resolvers";
                note(notes, line, NoteCode::DnsIgnored, text);
            }
            InterfaceKey::Table => {
                let text = "Table is not used: a slot has its own";
                note(notes, line, NoteCode::TableIgnored, text);
            }
            InterfaceKey::SaveConfig => {
                let text = "SaveConfig is not used: the file is never rewritten";
                note(notes, line, NoteCode::SaveConfigIgnored, text);
            }
            InterfaceKey::Hook(name) => {
                note(notes, line, NoteCode::HookIgnored, format!("{name} is never run"));
            }
        }
        Ok(())
    }

    fn parameter(
        &mut self,
        name: &'static str,
        section: Section,
        shape: Shape,
        value: &str,
    ) -> Result<(), Fault> {
        values::amnezia(name, shape, value)?;
        match self.parameters.iter().find(|old| old.name == name) {
            Some(old) if old.value != value => Err(Fault::new(
                ProblemCode::Repeated,
                format!("{name} stands twice with different values"),
                "keep one of the two",
            )),
            Some(_) => Ok(()),
            None => {
                self.parameters.push(Parameter { section, name, value: value.to_owned() });
                Ok(())
            }
        }
    }

    /// Makes the configuration, or says what is missing.
    pub(super) fn finish(
        self,
        problems: &mut Vec<Problem>,
        notes: &mut Vec<Note>,
    ) -> Option<TunnelConfig> {
        if self.private_key.line.is_none() {
            problems.push(missing(0, "PrivateKey in [Interface]"));
        }
        if !self.addresses.seen {
            problems.push(missing(0, "Address in [Interface]"));
        }
        let six = self.addresses.entries.iter().any(|address| matches!(address, IpNet::V6(_)));
        if let Some(mtu) = self.mtu.value.filter(|mtu| six && *mtu < 1280) {
            problems.push(
                Fault::new(
                    ProblemCode::BadNumber,
                    format!("MTU cannot be {mtu} with an IPv6 address"),
                    "write at least 1280, or remove the IPv6 address",
                )
                .at(self.mtu.line.unwrap_or(0)),
            );
        }
        let own = self.private_key.value.as_ref().map(SecretKey::public);
        for (index, peer) in self.peers.iter().enumerate() {
            peer.check(own, self.peers.get(..index).unwrap_or_default(), problems);
        }
        let mut peers = self.peers.into_iter();
        let first = peers.next();
        match (&first, peers.next()) {
            (None, _) => problems.push(
                Fault::new(
                    ProblemCode::NoPeer,
                    "there is no [Peer] section",
                    "copy the whole file again from the provider",
                )
                .at(0),
            ),
            (Some(_), Some(second)) => problems.push(
                Fault::new(
                    ProblemCode::SeveralPeers,
                    "there are several peers, and a tunnel of a pool leads to one",
                    "make a file for each peer",
                )
                .at(second.line),
            ),
            (Some(_), None) => {}
        }
        let (line, peer) = first.and_then(|first| Some((first.line, first.finish()?)))?;
        if !covers_ipv4(&peer.allowed_ips) {
            note(
                notes,
                line,
                NoteCode::NarrowAllowedIps,
                "AllowedIPs does not cover 0.0.0.0/0: the tunnel refuses all other destinations",
            );
        }
        let dialect = if self.parameters.is_empty() {
            Dialect::Plain
        } else {
            Dialect::Amnezia(self.parameters)
        };
        Some(TunnelConfig {
            private_key: self.private_key.value?,
            listen_port: self.listen_port.value,
            fwmark: self.fwmark.value.flatten(),
            addresses: self.addresses.entries,
            dns: self.dns,
            mtu: self.mtu.value,
            peer,
            dialect,
        })
    }
}

fn covers_ipv4(prefixes: &[IpNet]) -> bool {
    let all = IpNet::aggregate(&prefixes.to_vec());
    all.iter().any(|prefix| matches!(prefix, IpNet::V4(_)) && prefix.prefix_len() == 0)
}
