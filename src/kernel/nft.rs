//! The nft table of a pool, as text that replaces the whole table in one transaction.
//!
//! The rules are those that were tried packet by packet; what each of them is for stands beside it.
//!
//! **Invariant:** the text depends on the layout alone, and equal layouts give equal text, so that a
//! hash of the text tells whether the table is the one that is wished.

mod text;

pub use text::{is_open, placement_in};

use crate::names::{Interface, Mark};
use crate::policy::pool::{DIRECT_MARK, INBOUND_MARK, MARK_BASE};
use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use text::{element, named, names, names_with};

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

/// IPv4 and TCP headers without options, which an MSS does not count (RFC 6691).
const HEADERS: u16 = 40;
/// The same of IPv6, whose header is 20 bytes longer.
const HEADERS6: u16 = 60;

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
            placement: self
                .placement
                .iter()
                .filter(|(_, mark)| **mark == direct)
                .map(|(net, mark)| (*net, *mark))
                .collect(),
            spread: self
                .spread
                .iter()
                .map(|(net, marks)| {
                    (*net, marks.iter().map(|mark| mark.filter(|mark| *mark == direct)).collect())
                })
                .collect(),
            users: self
                .users
                .iter()
                .map(|(uid, mark)| (*uid, mark.filter(|mark| *mark == direct)))
                .collect(),
            six: self.six.as_ref().map(|six| Six {
                clients: six.clients.clone(),
                placement: six
                    .placement
                    .iter()
                    .filter(|(_, mark)| **mark == direct)
                    .map(|(net, mark)| (*net, *mark))
                    .collect(),
                users: six
                    .users
                    .iter()
                    .map(|(uid, mark)| (*uid, mark.filter(|mark| *mark == direct)))
                    .collect(),
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

    fn mark_in(&self, out: &mut String) {
        let lan = names(self.lan.iter());
        // After the address translation of port forwards, so that their targets are seen.
        out.push_str(
            "  chain mark_in { type filter hook prerouting priority dstnat + 10; policy accept;\n",
        );
        for (name, slot) in &self.slots {
            // The mark makes a strict reverse-path lookup find the slot's own table.
            let _ = writeln!(out, "    iifname \"{name}\" meta mark set {}", slot.mark);
        }
        let new = format!("ct state new iifname {lan}");
        let away = "ip daddr != @local4 fib daddr type != local ct mark set";
        // Without a LAN there is nobody to mark but local users; nft refuses an empty set.
        let spread = if self.lan.is_empty() { None } else { Some(&self.spread) };
        for (net, buckets) in spread.into_iter().flatten() {
            let marks: Vec<String> = buckets
                .iter()
                .enumerate()
                .filter_map(|(n, mark)| mark.map(|mark| format!("{n} : {mark}")))
                .collect();
            if !marks.is_empty() {
                let _ = writeln!(
                    out,
                    "    {new} ip saddr {net} {away} jhash ip saddr mod {} seed {SEED:#x} map {{ {} }}",
                    buckets.len(),
                    marks.join(", ")
                );
            }
        }
        if !self.lan.is_empty() {
            let _ = writeln!(out, "    {new} ip saddr @clients {away} ip saddr map @client_mark");
            if self.six.is_some() {
                let _ = writeln!(
                    out,
                    "    {new} ip6 saddr @clients6 ip6 daddr != @local6 fib daddr type != local ct mark set ip6 saddr map @client_mark6"
                );
            }
        }
        if self.inbound_kept() {
            // A provider that is only being tried opens nothing either.
            let tunnels = self.slots.keys().chain(&self.other_tunnels);
            let inner = names(self.lan.iter().chain(tunnels));
            // Of TCP only a SYN opens a flow: what a server still sends for a flow that was ended is
            // `new` to conntrack too, and must not open a client's way out by the WAN.
            let six = self.six.as_ref().map(|_| "ip6 daddr @clients6");
            for to in std::iter::once("ip daddr @clients").chain(six) {
                for opens in ["meta l4proto != tcp", "tcp flags & (fin | syn | rst | ack) == syn"] {
                    let _ = writeln!(
                        out,
                        "    ct state new iifname != {inner} {to} {opens} ct mark set {}",
                        self.inbound()
                    );
                }
            }
        }
        let _ = writeln!(
            out,
            "    ct mark & {MARK_BASE:#010x} == {} meta mark set ct mark",
            self.base_bits()
        );
        out.push_str("  }\n");
    }

    fn base_bits(&self) -> Mark {
        Mark(self.base.0 & MARK_BASE)
    }

    fn mark_out(&self, out: &mut String) {
        if self.users.is_empty() {
            return;
        }
        let away = if self.lan.is_empty() {
            String::new()
        } else {
            format!(" oifname != {}", names(self.lan.iter()))
        };
        out.push_str("  chain mark_out { type route hook output priority mangle; policy accept;\n");
        for (uid, mark) in &self.users {
            let six = self
                .six
                .as_ref()
                .map(|six| ("ip6 daddr != @local6", six.users.get(uid).copied().flatten()));
            for (far, mark) in std::iter::once(("ip daddr != @local4", *mark)).chain(six) {
                let own = format!(
                    "meta skuid {uid} oifname != \"lo\" {far} fib daddr type != local ct state new ct direction original"
                );
                // None: an answer at once is kinder to a program than a timeout.
                let what = mark.map_or_else(
                    || format!("{away} reject with icmpx type admin-prohibited"),
                    |mark| format!(" ct mark set {mark}"),
                );
                let _ = writeln!(out, "    {own}{what}");
            }
            let _ = writeln!(
                out,
                "    meta skuid {uid} ct direction original ct mark & {MARK_BASE:#010x} == {} meta mark set ct mark",
                self.base_bits()
            );
        }
        out.push_str("  }\n");
    }

    fn barrier(&self, out: &mut String) {
        let lan = names(self.lan.iter());
        let no = "reject with icmpx type admin-prohibited";
        out.push_str(
            "  chain barrier { type filter hook forward priority filter; policy accept;\n",
        );
        if self.six.is_some() {
            if !self.lan.is_empty() {
                let _ =
                    writeln!(out, "    ip6 saddr @clients6 oifname {lan} ip6 daddr @local6 accept");
            }
            out.push_str("    ip6 saddr @clients6 meta mark . oifname @way accept\n");
            let _ = writeln!(out, "    ip6 saddr @clients6 {no}");
        }
        if self.block_ipv6 && self.one_armed() {
            // In and out are the same device here, so the destination has to tell.
            let near: Vec<String> = std::iter::once("fe80::/10".to_owned())
                .chain(self.local6.iter().map(Ipv6Net::to_string))
                .collect();
            let _ = writeln!(out, "    iifname {lan} ip6 daddr != {{ {} }} {no}", near.join(", "));
        } else if self.block_ipv6 && !self.lan.is_empty() {
            let _ = writeln!(out, "    meta nfproto ipv6 iifname {lan} oifname != {lan} {no}");
        }
        // The LAN interface alone would be open on a one-armed gateway, hence the address too.
        if !self.lan.is_empty() {
            let _ = writeln!(out, "    ip saddr @clients oifname {lan} ip daddr @local4 accept");
        }
        out.push_str("    ip saddr @clients meta mark . oifname @way accept\n");
        let _ = writeln!(out, "    ip saddr @clients {no}");
        if !self.slots.is_empty() {
            let tunnels = names(self.slots.keys().chain(&self.other_tunnels));
            let _ = writeln!(out, "    iifname {tunnels} ct state new drop");
        }
        out.push_str("  }\n");
        if !self.users.is_empty() {
            let near = names_with("lo", self.lan.iter());
            // In an output hook oifname is still the device from before the mark's rerouting.
            out.push_str("  chain user_barrier { type filter hook postrouting priority filter; policy accept;\n");
            for uid in self.users.keys() {
                let _ = writeln!(
                    out,
                    "    meta skuid {uid} oifname != {near} meta mark . oifname != @way drop"
                );
            }
            out.push_str("  }\n");
        }
    }

    /// A tunnel inside another one is closed when the rule is gone that leads it there. Its packets
    /// are of a flow without a mark, which those that come back to clients are not.
    fn inside(&self, out: &mut String) {
        if self.inside.is_empty() {
            return;
        }
        let marks: Vec<String> = self.inside.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            out,
            "  chain inside {{ type filter hook postrouting priority filter; policy accept;\n    ct mark 0 meta mark {{ {} }} meta mark . oifname != @way drop\n  }}",
            marks.join(", ")
        );
    }

    /// What the kernel still sends by itself from a tunnel's address, for a process that has ended
    /// or for a flow that was cut, belongs to no user any more and must not leave in clear either.
    fn source(&self, out: &mut String) {
        let addresses: BTreeSet<&Ipv4Addr> = self
            .slots
            .values()
            .flat_map(|slot| &slot.addresses)
            .chain(&self.other_addresses)
            .collect();
        let addresses6: BTreeSet<&Ipv6Addr> =
            self.slots.values().flat_map(|slot| &slot.addresses6).collect();
        if addresses.is_empty() && addresses6.is_empty() {
            return;
        }
        let tunnels = names_with("lo", self.slots.keys().chain(&self.other_tunnels));
        out.push_str(
            "  chain source { type filter hook postrouting priority filter; policy accept;\n",
        );
        let four: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let six: Vec<String> = addresses6.iter().map(ToString::to_string).collect();
        for (family, addresses) in [("ip", four), ("ip6", six)] {
            if !addresses.is_empty() {
                let addresses = addresses.join(", ");
                let _ =
                    writeln!(out, "    {family} saddr {{ {addresses} }} oifname != {tunnels} drop");
            }
        }
        out.push_str("  }\n");
    }

    fn slot_in(&self, out: &mut String) {
        let tunnels: BTreeSet<&Interface> = self.slots.keys().chain(&self.other_tunnels).collect();
        if tunnels.is_empty() {
            return;
        }
        // Late data after a cut would draw the gateway's own reset, out by the WAN in clear; and the
        // provider has no business inside the gateway.
        let _ = writeln!(
            out,
            "  chain slot_in {{ type filter hook input priority filter; policy accept;\n    iifname {} ct state {{ new, invalid, untracked }} drop\n  }}",
            names(tunnels.into_iter())
        );
    }

    fn mss(&self, out: &mut String) {
        let loaded: Vec<(&Interface, u16)> =
            self.slots.iter().filter_map(|(name, slot)| slot.mtu.map(|mtu| (name, mtu))).collect();
        if loaded.is_empty() {
            return;
        }
        let slots = names(loaded.iter().map(|(name, _)| *name));
        // `rt mtu` clamps only what leaves by the slot; the answer's own announcement needs the map.
        let _ = writeln!(
            out,
            "  chain mss {{ type filter hook forward priority mangle; policy accept;\n    oifname {slots} tcp flags syn tcp option maxseg size set rt mtu"
        );
        let families: &[(&str, u16)] = match &self.six {
            None => &[("", HEADERS)],
            Some(_) => &[("meta nfproto ipv4 ", HEADERS), ("meta nfproto ipv6 ", HEADERS6)],
        };
        for (family, headers) in families {
            let sizes: Vec<String> = loaded
                .iter()
                .map(|(name, mtu)| format!("\"{name}\" : {}", mtu.saturating_sub(*headers)))
                .collect();
            let _ = writeln!(
                out,
                "    {family}iifname {slots} tcp flags & (syn | rst) == syn tcp option maxseg size set iifname map {{ {} }}",
                sizes.join(", ")
            );
        }
        out.push_str("  }\n");
    }

    fn nat(&self, out: &mut String) {
        let slots = names(self.slots.keys());
        if !self.slots.is_empty() {
            out.push_str("  chain nat_slots { type nat hook postrouting priority srcnat - 10; policy accept;\n");
            if self.masquerade {
                let _ = writeln!(out, "    oifname {slots} masquerade");
            } else {
                // A local process chose its source before its mark chose the slot.
                for uid in self.users.keys() {
                    let _ = writeln!(out, "    meta skuid {uid} oifname {slots} masquerade");
                }
            }
            out.push_str("  }\n");
        }
        // Later than a stranger's own address translation, which wins.
        let _ = writeln!(
            out,
            "  chain nat_wan {{ type nat hook postrouting priority srcnat + 10; policy accept;\n    oifname \"{}\" ct mark {} masquerade\n  }}",
            self.wan,
            self.direct()
        );
    }
}

/// The seed of the spread hash: any constant does, it only has to stay the same across runs so that
/// a client keeps its bucket.
const SEED: u32 = 0x4547;
