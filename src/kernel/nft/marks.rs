//! The chains that say by which way a flow goes: its mark, set once when it begins.
//!
//! **Invariant:** only the first packet of a flow is placed; every later one goes by the mark of its flow, so
//! that a client who is moved keeps what is open where it is.

use super::Layout;
use super::text::names;
use crate::policy::pool::MARK_BASE;
use std::fmt::Write as _;

/// The seed of the spread hash: any constant does, it only has to stay the same across runs so that
/// a client keeps its bucket.
const SEED: u32 = 0x4547;

impl Layout {
    pub(super) fn mark_in(&self, out: &mut String) {
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

    pub(super) fn mark_out(&self, out: &mut String) {
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
}
