//! The chains that close: what goes by no way of its own goes nowhere.
//!
//! **Invariant:** a packet of a client or of a local user leaves by the device that its mark belongs to, or it
//! is rejected; and nothing new comes in by a tunnel.

use super::Layout;
use super::text::{names, names_with};
use crate::names::Interface;
use ipnet::Ipv6Net;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

impl Layout {
    pub(super) fn barrier(&self, out: &mut String) {
        let lan = names(self.lan.iter());
        let no = "reject with icmpx type admin-prohibited";
        out.push_str(
            "  chain barrier { type filter hook forward priority filter; policy accept;\n",
        );
        // First of all: what a provider sends may bear the address of a client.
        let tunnels: BTreeSet<&Interface> = self.slots.keys().chain(&self.other_tunnels).collect();
        if !tunnels.is_empty() {
            let tunnels = names(tunnels.into_iter());
            let _ = writeln!(out, "    iifname {tunnels} ct state new drop");
        }
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
    pub(super) fn inside(&self, out: &mut String) {
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
    pub(super) fn source(&self, out: &mut String) {
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

    pub(super) fn slot_in(&self, out: &mut String) {
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
}
