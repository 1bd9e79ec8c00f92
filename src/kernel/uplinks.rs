//! The nft table by which flows stay on the uplink that they were opened on.
//!
//! A flow is marked when its first packet leaves by an uplink, with one mark where its opener sends
//! by it and another where its answers do; packets in that direction are led by the mark from then
//! on, the others as ever.
//!
//! **Invariant:** only what leaves by an uplink and carries nobody's mark, neither on the packet nor
//! on its flow, is marked; equal layouts give equal text.

use crate::names::{Interface, Mark};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// Everything that the table depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplinks {
    /// The table's name in family `inet`.
    pub table: String,
    /// The uplinks.
    pub uplinks: Vec<Uplink>,
}

/// One uplink in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// Its device.
    pub interface: Interface,
    /// The next hop; none: whatever leaves by the device.
    pub gateway: Option<Ipv4Addr>,
    /// What leads packets to its routing table.
    pub mark: Mark,
    /// The mark of a flow whose opener sends by it.
    pub opened: Mark,
    /// The mark of a flow that is answered by it.
    pub answered: Mark,
}

impl Uplinks {
    /// The text for `nft -f -`: it replaces the table whole, or makes it.
    #[must_use]
    pub fn render(&self) -> String {
        let table = &self.table;
        // The first line lets the second succeed when there was no table; all is one transaction.
        let mut out =
            format!("table inet {table} {{ }}\ndelete table inet {table}\ntable inet {table} {{\n");
        // Before the kernel looks for a way, and behind the address translation of answers, so that
        // the gateway's own are told from a client's.
        self.stay(&mut out, "forwarded", "filter hook prerouting priority dstnat + 10");
        self.come_in(&mut out);
        out.push_str("  }\n");
        // A way is looked for anew when the mark of a packet of this machine has changed.
        self.stay(&mut out, "own", "route hook output priority mangle");
        out.push_str("  }\n");
        out.push_str(
            "  chain first { type filter hook postrouting priority mangle; policy accept;\n",
        );
        for uplink in &self.uplinks {
            let Uplink { interface, gateway, mark, opened, answered } = uplink;
            let hop =
                gateway.map(|gateway| format!(" rt ip nexthop {gateway}")).unwrap_or_default();
            for (direction, kept) in [("original", opened), ("reply", answered)] {
                let _ = writeln!(
                    out,
                    "    meta nfproto ipv4 oifname \"{interface}\"{hop} meta mark {{ 0, {mark} }} ct mark 0 ct direction {direction} ct mark set {kept}"
                );
            }
        }
        out.push_str("  }\n}\n");
        out
    }

    fn stay(&self, out: &mut String, chain: &str, hook: &str) {
        let _ = writeln!(out, "  chain {chain} {{ type {hook}; policy accept;");
        for uplink in &self.uplinks {
            let Uplink { mark, opened, answered, .. } = uplink;
            for (direction, kept) in [("original", opened), ("reply", answered)] {
                let _ = writeln!(
                    out,
                    "    meta nfproto ipv4 meta mark 0 ct mark {kept} ct direction {direction} meta mark set {mark}"
                );
            }
        }
    }

    /// What comes in for this machine itself is looked up with the mark of its uplink by the filter of
    /// reverse paths, which passes it then, be it strict or main without any default route. What is
    /// for somebody else has no mark, since that would lead it back out.
    fn come_in(&self, out: &mut String) {
        for uplink in &self.uplinks {
            let Uplink { interface, mark, opened, answered, .. } = uplink;
            for (direction, kept) in [("reply", opened), ("original", answered)] {
                let _ = writeln!(
                    out,
                    "    meta nfproto ipv4 iifname \"{interface}\" meta mark 0 ct mark {kept} ct direction {direction} fib daddr type local meta mark set {mark}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_marked_as_it_leaves_and_led_by_its_mark_in_that_direction_alone() {
        let uplink = |name: &str, gateway, n: u32| Uplink {
            interface: Interface::try_from(name.to_owned()).unwrap(),
            gateway,
            mark: Mark(0x4552_0000 + n),
            opened: Mark(0x4552_0000 + n),
            answered: Mark(0x4552_0002 + n),
        };
        let table = Uplinks {
            table: "egressctl_office".to_owned(),
            uplinks: vec![
                uplink("eth0", Some(Ipv4Addr::new(192, 0, 2, 1)), 0),
                uplink("ppp0", None, 1),
            ],
        };
        insta::assert_snapshot!(table.render(), @r#"
table inet egressctl_office { }
delete table inet egressctl_office
table inet egressctl_office {
  chain forwarded { type filter hook prerouting priority dstnat + 10; policy accept;
    meta nfproto ipv4 meta mark 0 ct mark 0x45520000 ct direction original meta mark set 0x45520000
    meta nfproto ipv4 meta mark 0 ct mark 0x45520002 ct direction reply meta mark set 0x45520000
    meta nfproto ipv4 meta mark 0 ct mark 0x45520001 ct direction original meta mark set 0x45520001
    meta nfproto ipv4 meta mark 0 ct mark 0x45520003 ct direction reply meta mark set 0x45520001
    meta nfproto ipv4 iifname "eth0" meta mark 0 ct mark 0x45520000 ct direction reply fib daddr type local meta mark set 0x45520000
    meta nfproto ipv4 iifname "eth0" meta mark 0 ct mark 0x45520002 ct direction original fib daddr type local meta mark set 0x45520000
    meta nfproto ipv4 iifname "ppp0" meta mark 0 ct mark 0x45520001 ct direction reply fib daddr type local meta mark set 0x45520001
    meta nfproto ipv4 iifname "ppp0" meta mark 0 ct mark 0x45520003 ct direction original fib daddr type local meta mark set 0x45520001
  }
  chain own { type route hook output priority mangle; policy accept;
    meta nfproto ipv4 meta mark 0 ct mark 0x45520000 ct direction original meta mark set 0x45520000
    meta nfproto ipv4 meta mark 0 ct mark 0x45520002 ct direction reply meta mark set 0x45520000
    meta nfproto ipv4 meta mark 0 ct mark 0x45520001 ct direction original meta mark set 0x45520001
    meta nfproto ipv4 meta mark 0 ct mark 0x45520003 ct direction reply meta mark set 0x45520001
  }
  chain first { type filter hook postrouting priority mangle; policy accept;
    meta nfproto ipv4 oifname "eth0" rt ip nexthop 192.0.2.1 meta mark { 0, 0x45520000 } ct mark 0 ct direction original ct mark set 0x45520000
    meta nfproto ipv4 oifname "eth0" rt ip nexthop 192.0.2.1 meta mark { 0, 0x45520000 } ct mark 0 ct direction reply ct mark set 0x45520002
    meta nfproto ipv4 oifname "ppp0" meta mark { 0, 0x45520001 } ct mark 0 ct direction original ct mark set 0x45520001
    meta nfproto ipv4 oifname "ppp0" meta mark { 0, 0x45520001 } ct mark 0 ct direction reply ct mark set 0x45520003
  }
}
"#);
    }
}
