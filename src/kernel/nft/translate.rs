//! The chains that rewrite: the size that TCP announces, and the address that a client leaves with.
//!
//! **Invariant:** a client leaves a slot with the slot's address and within its MTU; the WAN's address is
//! given to nobody but who is on Direct.

use super::Layout;
use super::text::names;
use crate::names::Interface;
use std::fmt::Write as _;

/// IPv4 and TCP headers without options, which an MSS does not count (RFC 6691).
const HEADERS: u16 = 40;
/// The same of IPv6, whose header is 20 bytes longer.
const HEADERS6: u16 = 60;

impl Layout {
    pub(super) fn mss(&self, out: &mut String) {
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

    pub(super) fn nat(&self, out: &mut String) {
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
