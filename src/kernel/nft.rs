//! The nft table of a pool, as text that replaces the whole table in one transaction.
//!
//! The rules are those that were tried packet by packet; what each of them is for stands beside it.
//!
//! **Invariant:** the text depends on the layout alone, and equal layouts give equal text, so that a
//! hash of the text tells whether the table is the one that is wished.

mod barrier;
mod marks;
mod text;
mod translate;

pub use text::{holds_clients, is_open, placement_in};

use crate::names::{Interface, Mark};
use crate::policy::pool::{DIRECT_MARK, INBOUND_MARK, MARK_BASE};
use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use text::{element, named};

/// Everything that the table of a pool depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The table's name in family `inet`.
    pub table: String,
    /// The first mark; its upper half says that a mark is ours.
    pub base: Mark,
    /// The tunnels that carry clients, with the mark of each and, where it is up, its MTU.
    pub slots: BTreeMap<Interface, SlotLayout>,
    /// Other tunnels of ours that nothing new may come in from: test, bootstrap and standby.
    pub other_tunnels: BTreeSet<Interface>,
    /// Their own addresses, as far as they stay.
    pub other_addresses: BTreeSet<Ipv4Addr>,
    /// Where clients are.
    pub lan: BTreeSet<Interface>,
    /// The uplink.
    pub wan: Interface,
    /// What clients reach without a slot.
    pub local: Vec<Ipv4Net>,
    /// The LAN's own IPv6 prefixes, which stay open.
    pub local6: Vec<Ipv6Net>,
    /// All addresses of clients.
    pub clients: Vec<Ipv4Net>,
    /// Where the flows that a client opens go; a client that is absent is on None.
    pub placement: BTreeMap<Ipv4Net, Mark>,
    /// Spread prefixes: the mark of each hash bucket, in order; None is None.
    pub spread: BTreeMap<Ipv4Net, Vec<Option<Mark>>>,
    /// Local users by number, with their mark; None is None.
    pub users: BTreeMap<u32, Option<Mark>>,
    /// Whether IPv6 from the LAN is rejected where nothing admits it.
    pub block_ipv6: bool,
    /// What admits it; `None`: nothing.
    pub six: Option<Six>,
    /// Whether the replies of flows that the WAN opened leave by the WAN.
    pub keep_inbound: bool,
    /// Whether clients leave a slot with its address.
    pub masquerade: bool,
    /// Marks of slots that other tunnels run in: what carries one, the own packets of such a tunnel
    /// too, leaves by that slot or not at all.
    pub inside: BTreeSet<Mark>,
}

/// One slot in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotLayout {
    /// What marks its flows.
    pub mark: Mark,
    /// Its MTU, when it is loaded.
    pub mtu: Option<u16>,
    /// Its own addresses, when it is loaded.
    pub addresses: BTreeSet<Ipv4Addr>,
    /// Its own IPv6 addresses, when it is loaded with what carries IPv6.
    pub addresses6: BTreeSet<Ipv6Addr>,
}

/// IPv6 of clients that have it by slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Six {
    /// All IPv6 addresses of clients.
    pub clients: Vec<Ipv6Net>,
    /// Where the flows that they open go; one that is absent is on None.
    pub placement: BTreeMap<Ipv6Net, Mark>,
    /// Local users by number, with their mark; None is None.
    pub users: BTreeMap<u32, Option<Mark>>,
}

/// What is on every link and leads nowhere else: link-local addresses (RFC 4291, 2.5.6) and groups.
const NEAR6: [&str; 2] = ["fe80::/10", "ff00::/8"];

/// The part of a placement that is on this mark.
fn placed_on<Net: Copy + Ord>(mark: Mark, all: &BTreeMap<Net, Mark>) -> BTreeMap<Net, Mark> {
    all.iter().filter(|(_, on)| **on == mark).map(|(net, on)| (*net, *on)).collect()
}

/// The same of users, who are on None otherwise.
fn users_on(mark: Mark, all: &BTreeMap<u32, Option<Mark>>) -> BTreeMap<u32, Option<Mark>> {
    all.iter().map(|(uid, on)| (*uid, on.filter(|on| *on == mark))).collect()
}

impl Layout {
    /// What a client reaches over IPv6 without a slot.
    fn near6(&self) -> Vec<String> {
        NEAR6
            .into_iter()
            .map(str::to_owned)
            .chain(self.local6.iter().map(Ipv6Net::to_string))
            .collect()
    }

    fn direct(&self) -> Mark {
        Mark(self.base.0.saturating_add(DIRECT_MARK))
    }

    fn inbound(&self) -> Mark {
        Mark(self.base.0.saturating_add(INBOUND_MARK))
    }

    /// Whether any client is on Direct, which is what opens the WAN to Direct's mark.
    #[must_use]
    pub fn anyone_direct(&self) -> bool {
        let direct = self.direct();
        self.placement.values().any(|mark| *mark == direct)
            || self.spread.values().flatten().any(|mark| *mark == Some(direct))
            || self.users.values().any(|mark| *mark == Some(direct))
            || self.six.as_ref().is_some_and(|six| {
                six.placement.values().any(|mark| *mark == direct)
                    || six.users.values().any(|mark| *mark == Some(direct))
            })
    }

    /// One-armed: the WAN is also the LAN, so a reply to the WAN and a client's packet look alike.
    fn one_armed(&self) -> bool {
        self.lan.contains(&self.wan)
    }

    /// The layout that closes the clients at boot: the same table before any tunnel exists. What
    /// is on Direct stays so, because that is where the last run had put it.
    #[must_use]
    pub fn at_boot(&self) -> Self {
        let direct = self.direct();
        Self {
            slots: BTreeMap::new(),
            other_tunnels: BTreeSet::new(),
            other_addresses: BTreeSet::new(),
            inside: BTreeSet::new(),
            placement: placed_on(direct, &self.placement),
            spread: self
                .spread
                .iter()
                .map(|(net, marks)| {
                    (*net, marks.iter().map(|mark| mark.filter(|mark| *mark == direct)).collect())
                })
                .collect(),
            users: users_on(direct, &self.users),
            six: self.six.as_ref().map(|six| Six {
                clients: six.clients.clone(),
                placement: placed_on(direct, &six.placement),
                users: users_on(direct, &six.users),
            }),
            keep_inbound: false,
            ..self.clone()
        }
    }

    /// The text for `nft -f -`: it replaces the table whole, or makes it.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        let table = &self.table;
        // The first line lets the second succeed when there was no table; all is one transaction.
        let _ = writeln!(
            out,
            "table inet {table} {{ }}\ndelete table inet {table}\ntable inet {table} {{"
        );
        self.sets(&mut out);
        self.mark_in(&mut out);
        self.mark_out(&mut out);
        self.barrier(&mut out);
        self.inside(&mut out);
        self.source(&mut out);
        self.slot_in(&mut out);
        self.mss(&mut out);
        self.nat(&mut out);
        out.push_str("}\n");
        out
    }

    fn sets(&self, out: &mut String) {
        let placed = self.placement.iter().map(|(net, mark)| format!("{} : {mark}", element(*net)));
        named(out, "map client_mark", "type ipv4_addr : mark; flags interval;", placed);
        named(
            out,
            "set clients",
            "type ipv4_addr; flags interval;",
            self.clients.iter().copied().map(element),
        );
        named(
            out,
            "set local4",
            "type ipv4_addr; flags interval;",
            self.local.iter().copied().map(element),
        );
        let mut way: Vec<String> =
            self.slots.iter().map(|(name, slot)| format!("{} . \"{name}\"", slot.mark)).collect();
        if self.anyone_direct() {
            way.push(format!("{} . \"{}\"", self.direct(), self.wan));
        }
        if self.inbound_kept() {
            way.push(format!("{} . \"{}\"", self.inbound(), self.wan));
        }
        named(out, "set way", "type mark . ifname;", way.into_iter());
        if let Some(six) = &self.six {
            let placed =
                six.placement.iter().map(|(net, mark)| format!("{} : {mark}", element(*net)));
            named(out, "map client_mark6", "type ipv6_addr : mark; flags interval;", placed);
            let clients = six.clients.iter().copied().map(element);
            named(out, "set clients6", "type ipv6_addr; flags interval;", clients);
            let near = self.near6().into_iter();
            named(out, "set local6", "type ipv6_addr; flags interval;", near);
        }
    }

    fn inbound_kept(&self) -> bool {
        self.keep_inbound && !self.one_armed()
    }

    fn base_bits(&self) -> Mark {
        Mark(self.base.0 & MARK_BASE)
    }
}
