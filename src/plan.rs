//! What to do, as data: every choice has been made.
//!
//! **Invariant:** a step names each object that it changes, may be done twice without harm, and
//! carries the commands that take it back.

use crate::iproute::{Route, Rule};
use crate::kernel::ConfigRef;
use crate::names::{Interface, Mark};
use crate::observation::Pages;
use crate::policy::ClientKey;
use crate::wireguard::PublicKey;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

/// The parts of a change, in their order. Clients are moved between proving and clearing, so that
/// they never stand on a tunnel that is not proven or already gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Tunnels, their tables and sysctls are made or changed.
    Build,
    /// Clients are moved: the nft table and the rules.
    Place,
    /// What is no longer wished is removed.
    Clear,
}

/// One change and what takes it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When it is its turn.
    pub phase: Phase,
    /// The change.
    pub action: Action,
    /// What takes it back, in order.
    pub undo: Vec<Action>,
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Make a tunnel's interface, anew if a dead one stands there.
    CreateTunnel {
        /// The interface.
        interface: Interface,
        /// Who implements it.
        backend: Backend,
    },
    /// Remove a tunnel's interface and, in userspace, its daemon.
    RemoveTunnel {
        /// The interface.
        interface: Interface,
        /// Who implements it.
        backend: Backend,
    },
    /// Give a tunnel its keys and its peer, from a file of the pool, through standard input.
    Configure {
        /// The interface.
        interface: Interface,
        /// The file.
        config: ConfigRef,
        /// The peer's literal address.
        endpoint: SocketAddr,
        /// The port that it listens on already; `None`: a new one is chosen.
        listen_port: Option<NonZeroU16>,
        /// What its own packets carry; `None`: nothing.
        #[serde(default)]
        fwmark: Option<Mark>,
        /// The program that does it.
        tool: String,
    },
    /// Tell a tunnel anew where its peer is, so that it looks for the way there again.
    Aim {
        /// The interface.
        interface: Interface,
        /// The peer.
        peer: PublicKey,
        /// Where the peer is, as before.
        endpoint: SocketAddr,
        /// The program that does it.
        tool: String,
    },
    /// Add an address.
    AddAddress {
        /// The interface.
        interface: Interface,
        /// The address.
        address: IpNet,
    },
    /// Remove an address.
    RemoveAddress {
        /// The interface.
        interface: Interface,
        /// The address.
        address: IpNet,
    },
    /// Set the MTU and bring the link up.
    LinkUp {
        /// The interface.
        interface: Interface,
        /// The MTU.
        mtu: u16,
    },
    /// Write a value below `/proc/sys`.
    Sysctl {
        /// The path, with `/`.
        path: String,
        /// The value.
        value: String,
    },
    /// Add or replace a route.
    ReplaceRoute(Route),
    /// Delete a route.
    DeleteRoute(Route),
    /// Add a rule.
    AddRule(Rule),
    /// Delete a rule.
    DeleteRule(Rule),
    /// Load an nft text, which replaces the whole table.
    LoadNft {
        /// The table in family `inet`.
        table: String,
        /// The text.
        text: String,
    },
    /// Delete an nft table.
    DropNft {
        /// The table in family `inet`.
        table: String,
    },
}

/// Who implements a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Backend {
    /// A link type of the kernel.
    Kernel(String),
    /// A daemon.
    Userspace(String),
}

impl Action {
    /// The tunnel that it changes, if it does.
    #[must_use]
    pub fn interface(&self) -> Option<&Interface> {
        match self {
            Self::CreateTunnel { interface, .. }
            | Self::RemoveTunnel { interface, .. }
            | Self::Configure { interface, .. }
            | Self::Aim { interface, .. }
            | Self::AddAddress { interface, .. }
            | Self::RemoveAddress { interface, .. }
            | Self::LinkUp { interface, .. } => Some(interface),
            Self::Sysctl { .. }
            | Self::ReplaceRoute(_)
            | Self::DeleteRoute(_)
            | Self::AddRule(_)
            | Self::DeleteRule(_)
            | Self::LoadNft { .. }
            | Self::DropNft { .. } => None,
        }
    }

    /// The command line, for people and for the plan. What goes through standard input is named,
    /// not shown.
    #[must_use]
    pub fn command(&self) -> String {
        match self {
            Self::CreateTunnel { interface, backend: Backend::Kernel(kind) } => {
                format!("ip link add dev {interface} type {kind}")
            }
            Self::CreateTunnel { interface, backend: Backend::Userspace(program) } => {
                format!("{program} {interface}")
            }
            Self::RemoveTunnel { interface, .. } => format!("ip link delete dev {interface}"),
            Self::Configure { interface, config, endpoint, fwmark, tool, .. } => {
                let marked = fwmark.map(|mark| format!(", mark {mark}")).unwrap_or_default();
                format!(
                    "{tool} setconf {interface} /dev/stdin < {} (peer at {endpoint}{marked})",
                    config.path()
                )
            }
            Self::Aim { interface, peer, endpoint, tool } => {
                format!("{tool} set {interface} peer {peer} endpoint {endpoint}")
            }
            Self::AddAddress { interface, address } => {
                format!("ip address replace {address} dev {interface}")
            }
            Self::RemoveAddress { interface, address } => {
                format!("ip address delete {address} dev {interface}")
            }
            Self::LinkUp { interface, mtu } => format!("ip link set dev {interface} mtu {mtu} up"),
            Self::Sysctl { path, value } => format!("sysctl -w {path}={value}"),
            Self::ReplaceRoute(route) => ip(route.replace_args()),
            Self::DeleteRoute(route) => ip(route.del_args()),
            Self::AddRule(rule) => ip(rule.add_args()),
            Self::DeleteRule(rule) => ip(rule.del_args()),
            Self::LoadNft { table, .. } => format!("nft -f - (table inet {table})"),
            Self::DropNft { table } => format!("nft delete table inet {table}"),
        }
    }
}

/// The command line of what iproute2 is told. What is not wholly modelled is never ours.
fn ip(args: Option<Vec<String>>) -> String {
    args.map_or_else(String::new, |args| format!("ip {}", args.join(" ")))
}

impl ConfigRef {
    /// Where the file is, below the policy's state folder.
    #[must_use]
    pub fn path(&self) -> String {
        format!("pool/{}/{}", self.generation, self.file)
    }
}

/// What must be true after the change, beside the world being as wished.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Check {
    /// A slot carries a request, asked before clients are moved onto it.
    Answer {
        /// The slot.
        interface: Interface,
        /// What is asked.
        ask: Pages,
        /// How often it is tried.
        attempts: u32,
    },
    /// The kernel sends what a client with this mark sends by this device.
    Route {
        /// For whom.
        client: ClientKey,
        /// The question to `ip route get`.
        query: RouteQuery,
        /// The device that must be named.
        device: Interface,
    },
    /// What carries a tunnel itself leaves by no tunnel of the policy, asked before clients are moved
    /// onto it: a tunnel within itself, or within a slot that may fail, is no way out.
    Outside {
        /// The slot.
        interface: Interface,
        /// The question to `ip route get`, of its endpoint.
        query: RouteQuery,
        /// The devices that must not be named.
        tunnels: BTreeSet<Interface>,
    },
}

/// A question to `ip route get`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RouteQuery {
    /// Where to.
    pub to: IpAddr,
    /// From which client, arriving on which interface; `None` for a local user.
    pub from: Option<(IpAddr, Interface)>,
    /// With which mark; `None`: with none.
    pub mark: Option<Mark>,
    /// As which local user.
    pub uid: Option<u32>,
}

impl RouteQuery {
    /// The arguments after `ip -N -j`.
    #[must_use]
    pub fn args(&self) -> Vec<String> {
        let mut args = vec!["route".to_owned(), "get".to_owned(), self.to.to_string()];
        if let Some((from, iif)) = &self.from {
            args.extend(["from".to_owned(), from.to_string(), "iif".to_owned(), iif.to_string()]);
        }
        args.extend(self.mark.iter().flat_map(|mark| ["mark".to_owned(), mark.to_string()]));
        if let Some(uid) = self.uid {
            args.extend(["uid".to_owned(), uid.to_string()]);
        }
        args
    }
}

impl Check {
    /// For people and for the plan.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Answer { interface, .. } => format!("a request through {interface} is answered"),
            Self::Route { client, query, device } => {
                format!("{client}: ip {} names {device}", query.args().join(" "))
            }
            Self::Outside { interface, query, .. } => {
                format!("{interface} itself: ip {} names no slot", query.args().join(" "))
            }
        }
    }
}

/// A contradiction in a plan, which is a fault of this program and never of the world.
///
/// Each rule here guards one of the things that must never happen; a plan with a note is not carried out.
#[must_use]
pub fn lint(steps: &[Step]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut last = Phase::Build;
    let mut table_dropped = false;
    for step in steps {
        if step.phase < last {
            notes.push(format!("{} comes after a later phase", step.action.command()));
        }
        last = step.phase;
        match &step.action {
            Action::DropNft { .. } => table_dropped = true,
            Action::DeleteRule(_) if table_dropped => {
                notes.push("the nft table is dropped before the rules are gone".to_owned());
            }
            Action::LoadNft { .. }
                if steps.iter().any(|other| {
                    matches!(&other.action, Action::AddRule(_)) && other.phase < step.phase
                }) =>
            {
                notes.push("a rule comes before the nft table stands".to_owned());
            }
            Action::CreateTunnel { .. }
            | Action::RemoveTunnel { .. }
            | Action::Configure { .. }
            | Action::Aim { .. }
            | Action::AddAddress { .. }
            | Action::RemoveAddress { .. }
            | Action::LinkUp { .. }
            | Action::Sysctl { .. }
            | Action::ReplaceRoute(_)
            | Action::DeleteRoute(_)
            | Action::AddRule(_)
            | Action::DeleteRule(_)
            | Action::LoadNft { .. } => {}
        }
        if step.undo.is_empty() {
            notes.push(format!("{} has no undo", step.action.command()));
        }
    }
    notes
}
